//! The type of `round(x, digits)` depends on the value of `digits`, so that value has to be a literal from the beginning.

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

/// Returns true for a call of `round` with two arguments.
pub fn applies_to(function: &ScalarFunction) -> bool {
    function.func.name() == "round" && function.args.len() == 2
}

/// Replaces the number of digits by the literal that it evaluates to. If DataFusion sees a literal, it makes the digits a part of
/// the type; so it has to see the same before and after it evaluates constants. Sets `needs_values` if the number depends on a
/// parameter.
pub fn settle_digits(function: ScalarFunction, needs_values: &mut bool) -> Expr {
    let ScalarFunction { func, mut args } = function;
    let digits = &args[1];
    let stands_in = |expr: &Expr| Ok(matches!(expr, Expr::Placeholder(_)));
    let from_rows = |expr: &Expr| {
        Ok(expr.is_volatile()
            || matches!(
                expr,
                Expr::Column(_)
                    | Expr::OuterReferenceColumn(..)
                    | Expr::ScalarSubquery(_)
                    | Expr::AggregateFunction(_)
            ))
    };
    if digits.exists(stands_in).unwrap_or(true) {
        *needs_values = true;
    } else if !digits.exists(from_rows).unwrap_or(true)
        && let Ok(Expr::Literal(number, metadata)) =
            ExprSimplifier::new(SimplifyContext::default()).simplify(digits.clone())
        && let Ok(number) = number.cast_to(&Arrow::Int32)
    {
        args[1] = Expr::Literal(number, metadata);
    }
    Expr::ScalarFunction(ScalarFunction { func, args })
}

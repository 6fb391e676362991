//! `round(x, digits)`, whose type depends on the digits.

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

pub fn takes(function: &ScalarFunction) -> bool {
    function.func.name() == "round" && function.args.len() == 2
}

/// The number of digits as the literal that it comes to. It is part of the type, if DataFusion sees a literal: it has to see the
/// same before and after it works out constants. `needs_values` is set where that is a parameter's.
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

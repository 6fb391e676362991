//! `text ~ pattern` in an optimized plan as [`regexp_like`](super::functions): the optimizer knows the operator and makes LIKE or
//! `=` of it where it can; what is left of it is carried out row by row.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};

use super::functions::{self, OPERATOR};

/// A plan whose operators are functions.
pub(crate) fn in_place(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        // What stands in a scan tells which pieces to leave out; a filter above it asks again.
        if matches!(plan, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| Ok(rewrite(expr)))?;
            Ok(if rewritten.transformed {
                rewritten.update_data(|expr| name.restore(expr))
            } else {
                rewritten
            })
        })
    })?;
    Ok(rewritten.data)
}

/// Whether an expression is such a function with a pattern that is the same for all rows: it has an answer for each.
pub(crate) fn is_safe(function: &ScalarFunction) -> bool {
    functions::is_operator(&function.func) && matches!(function.args.get(1), Some(Expr::Literal(..)))
}

fn rewrite(expr: Expr) -> Transformed<Expr> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: op @ (RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch),
        right,
    }) = expr
    else {
        return Transformed::no(expr);
    };
    let mut args = vec![*left, *right];
    if matches!(op, RegexIMatch | RegexNotIMatch) {
        args.push(lit("i"));
    }
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(OPERATOR.clone(), args));
    Transformed::yes(if matches!(op, RegexNotMatch | RegexNotIMatch) { !call } else { call })
}

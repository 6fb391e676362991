//! Turns `text ~ pattern` and `text LIKE pattern` in an optimized plan into calls of interruptible [functions](super::functions).
//!
//! The optimizer has to see the operators: it turns them into LIKE or `=` where it can, and scans skip blocks by them. Only the
//! operators that remain are executed row by row by the functions. The optimizer also computes constants, by kernels that nothing
//! can interrupt. So an operator that may take long there becomes a call before the optimizer sees it ([`call_if_slow`]).

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};

use super::LikePattern;
use super::functions::{self, LIKE, OPERATOR};
use super::pattern;

/// Length of a pattern, in [places](pattern::places_of), up to which the optimizer may match it against a constant text.
const FOLDED_PLACES_MAX: usize = 256;

/// Replaces the operators of a plan by calls.
pub fn plan_with_calls(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(node_with_calls)?.data)
}

/// Replaces the operators of one node by calls. Conditions in a scan stay operators: they only select the blocks to skip, and a
/// filter above the scan tests every row again.
pub fn node_with_calls(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if matches!(plan, LogicalPlan::TableScan(_)) {
        return Ok(Transformed::no(plan));
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| Ok(rewrite(expr)))?;
        Ok(if rewritten.transformed { rewritten.update_data(|expr| name.restore(expr)) } else { rewritten })
    })
}

/// Returns true for a call that stands for an operator and has a constant pattern. It cannot fail for a single row.
pub fn is_safe(function: &ScalarFunction) -> bool {
    functions::is_operator(&function.func) && matches!(function.args.get(1), Some(Expr::Literal(..)))
}

fn rewrite(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(binary) if is_regex(binary.op) => Transformed::yes(regex_call(binary)),
        Expr::Like(like) if !is_simple(&like) => Transformed::yes(like_call(like)),
        expr => Transformed::no(expr),
    }
}

/// Turns an operator into a call if its pattern is long or not constant.
pub fn call_if_slow(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryExpr(binary) if is_regex(binary.op) && is_slow(&binary.right) => regex_call(binary),
        Expr::Like(like) if is_slow(&like.pattern) && !is_simple(&like) => like_call(like),
        expr => expr,
    }
}

fn is_slow(pattern: &Expr) -> bool {
    match pattern {
        Expr::Literal(pattern, _) => pattern.try_as_str().flatten().is_some_and(|text| {
            text.len() > FOLDED_PLACES_MAX || pattern::places_of(text) > FOLDED_PLACES_MAX
        }),
        // The value is inserted before the plan is executed, and [`node_with_calls`] handles the operator then.
        Expr::Placeholder(_) => false,
        _ => true,
    }
}

/// Returns true if the LIKE kernel needs one pass over a text, or if the pattern is a parameter.
fn is_simple(like: &Like) -> bool {
    match &*like.pattern {
        Expr::Literal(pattern, _) => pattern
            .try_as_str()
            .flatten()
            .is_none_or(|text| LikePattern::read(text, like.case_insensitive).is_simple()),
        Expr::Placeholder(_) => true,
        _ => false,
    }
}

pub fn is_regex(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

fn regex_call(BinaryExpr { left, op, right }: BinaryExpr) -> Expr {
    let mut args = vec![*left, *right];
    if matches!(op, Operator::RegexIMatch | Operator::RegexNotIMatch) {
        args.push(lit("i"));
    }
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(OPERATOR.clone(), args));
    if matches!(op, Operator::RegexNotMatch | Operator::RegexNotIMatch) { !call } else { call }
}

/// Converts a LIKE whose escape character is the backslash.
fn like_call(like: Like) -> Expr {
    let mut args = vec![*like.expr, *like.pattern];
    if like.case_insensitive {
        args.push(lit("i"));
    }
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(LIKE.clone(), args));
    if like.negated { !call } else { call }
}

//! `text ~ pattern` and `text LIKE pattern` in an optimized plan as [functions](super::functions): the optimizer knows the operators,
//! makes LIKE or `=` of them where it can, and scans leave blocks out by them; what is left of them is carried out row by row.
//!
//! The optimizer also computes what is constant, with kernels that nothing interrupts. So what may take long there is a function from
//! the beginning ([`call_if_slow`]).

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};

use super::LikePattern;
use super::functions::{self, LIKE, OPERATOR};
use super::pattern;

/// Places of a pattern that the optimizer may look for in a text as long as a statement.
const FOLDED_PLACES_MAX: usize = 256;

/// A plan whose operators are functions.
pub fn in_place(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(in_node)?.data)
}

/// The same of one node. What stands in a scan tells which pieces to leave out; a filter above it asks again.
pub fn in_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
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

/// Whether an expression is such a function with a pattern that is the same for all rows: it has an answer for each.
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

/// An operator as a function, if its pattern is not known yet or long.
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
        // Its value is put in before the plan is carried out, and folded then ([`in_node`]).
        Expr::Placeholder(_) => false,
        _ => true,
    }
}

/// Whether the kernel for LIKE goes over a text once, or the pattern is not known before the plan is carried out.
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

/// A LIKE whose escape is the backslash.
fn like_call(like: Like) -> Expr {
    let mut args = vec![*like.expr, *like.pattern];
    if like.case_insensitive {
        args.push(lit("i"));
    }
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(LIKE.clone(), args));
    if like.negated { !call } else { call }
}

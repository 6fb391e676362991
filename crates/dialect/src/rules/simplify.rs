//! Keeps DataFusion's simplification of expressions from changing results.
//!
//! DataFusion merges lists that are tested for one operand: `x IN (1, 2) AND x IN (2, 3)` becomes `x IN (2)`. Without a common
//! item it becomes false or true, also where `x` is null. Items are compared as they are written, so that `x IN (a) AND x IN (b)`
//! and `x NOT IN ($1) OR x NOT IN ($2)` have no item in common. And a null in a list is treated as an ordinary item.
//!
//! Here, if an expression could be affected, the operand of each list gets a unique alias while the expression is simplified, so
//! that no two lists have the same operand. Columns get an alias too, so that `x = 1 OR x = 2` does not become a list on the way.
//! Afterwards the aliases are removed, and such equalities become the lists that scans, key lookups and indexes use.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, ScalarValue};
use datafusion::logical_expr::expr::{Alias, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Prefix of the aliases. No column has such a name.
const MARK: &str = "polynya operand ";
/// Length of the longest list over a column that becomes comparisons, as in DataFusion.
const COMPARED_MAX: usize = 3;

/// Replaces DataFusion's rule.
pub fn simplify_exactly(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    let rule = rules.iter_mut().find(|rule| rule.name() == Simplify.name());
    *rule.expect("DataFusion has this rule") = Arc::new(Simplify);
}

/// The rule that replaces DataFusion's `simplify_expressions`.
#[derive(Debug)]
pub struct Simplify;

impl OptimizerRule for Simplify {
    fn name(&self) -> &str {
        "simplify_expressions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let info = SimplifyContext::default()
            .with_schema(schema_of(&plan)?)
            .with_config_options(config.options())
            .with_query_execution_start_time(config.query_execution_start_time());
        // The two sides of a join condition must not be swapped.
        let reorders = !matches!(plan, LogicalPlan::Join(_));
        let simplifier = ExprSimplifier::new(info).with_canonicalize(reorders);
        let names = NamePreserver::new(&plan);
        let is_filter = matches!(plan, LogicalPlan::Filter(_));
        let mut rewrite = |expr: Expr| {
            let name = names.save(&expr);
            let mut simplified = simplified(expr, &simplifier, reorders)?;
            if is_filter {
                simplified = simplified.transform_data(|expr| Ok(without_bounds(expr)))?;
            }
            Ok(simplified.update_data(|expr| name.restore(expr)))
        };
        plan.map_expressions(|expr| match &expr {
            Expr::GroupingSet(_) => expr.map_children(&mut rewrite),
            _ => rewrite(expr),
        })
    }
}

/// Removes comparisons of integers with the least or the greatest value of their type: `x >= least` becomes `x IS NOT NULL`.
/// DataFusion counts the integers between two bounds, and the count of all 64-bit integers overflows.
fn without_bounds(condition: Expr) -> Transformed<Expr> {
    let BinaryExpr { left, op, right } = match condition {
        Expr::BinaryExpr(binary) => binary,
        other => return Transformed::no(other),
    };
    if op == Operator::And {
        let (left, right) = (without_bounds(*left), without_bounds(*right));
        let changed = left.transformed || right.transformed;
        return Transformed::new_transformed(left.data.and(right.data), changed);
    }
    let is_end = |literal: &Expr, op: Operator| match (literal, op) {
        (Expr::Literal(value, _), Operator::GtEq) => is_least(value),
        (Expr::Literal(value, _), Operator::LtEq) => is_greatest(value),
        _ => false,
    };
    match op.swap() {
        _ if is_end(&right, op) => Transformed::yes(left.is_not_null()),
        Some(swapped) if is_end(&left, swapped) => Transformed::yes(right.is_not_null()),
        _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
    }
}

fn is_least(value: &ScalarValue) -> bool {
    matches!(value, ScalarValue::Int64(Some(i64::MIN)) | ScalarValue::UInt64(Some(0)))
}

fn is_greatest(value: &ScalarValue) -> bool {
    matches!(value, ScalarValue::Int64(Some(i64::MAX)) | ScalarValue::UInt64(Some(u64::MAX)))
}

/// Returns the columns that the expressions of a node can read.
fn schema_of(plan: &LogicalPlan) -> Result<DFSchemaRef> {
    Ok(match plan {
        LogicalPlan::TableScan(scan) => {
            // The filters of a scan may read columns that the scan does not return.
            let schema = scan.source.schema();
            Arc::new(DFSchema::try_from_qualified_schema(scan.table_name.clone(), &schema)?)
        }
        other if other.inputs().is_empty() => Arc::new(DFSchema::empty()),
        other => Arc::new(merge_schema(&other.inputs())),
    })
}

fn simplified(expr: Expr, simplifier: &ExprSimplifier, reorders: bool) -> Result<Transformed<Expr>> {
    if !may_join_lists(&expr)? {
        return Ok(simplifier.simplify_with_cycle_count_transformed(expr)?.0);
    }
    let named = named(expr, reorders)?;
    let simplified = simplifier.simplify_with_cycle_count_transformed(named)?.0;
    simplified.map_data(plain)
}

/// Returns true if an expression could contain two lists: a list may be written, or made from a pattern, or from the operands of
/// OR (or of AND under NOT).
fn may_join_lists(expr: &Expr) -> Result<bool> {
    let mut lists = 0;
    for part in split_conjunction(expr) {
        part.apply(|expr| {
            lists += match expr {
                Expr::InList(_) => 1,
                Expr::Case(_) => 2,
                Expr::BinaryExpr(BinaryExpr { op, .. }) if is_logic(*op) || is_pattern(*op) => 1,
                _ => 0,
            };
            Ok(if lists > 1 { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
    }
    Ok(lists > 1)
}

fn is_logic(op: Operator) -> bool {
    matches!(op, Operator::And | Operator::Or)
}

fn is_pattern(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

/// Gives columns an alias, and the operand of each list another one.
fn named(expr: Expr, reorders: bool) -> Result<Expr> {
    let named = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) => Transformed::yes(name(expr, 0)),
            Expr::BinaryExpr(binary) if reorders => Transformed::yes(Expr::BinaryExpr(ordered(binary))),
            // A list of literals with a constant operand is evaluated anyway.
            Expr::InList(list) if !is_literal(&list.list) && is_constant(&list.expr)? => {
                Transformed::yes(compared(list))
            }
            other => Transformed::no(other),
        })
    })?;
    let mut count = 0;
    // Top-down, so that a list within the operand of another list keeps its own number.
    let named = named.data.transform_down(|expr| {
        count += 1;
        Ok(match expr {
            Expr::InList(mut list) => {
                let operand = std::mem::take(list.expr.as_mut());
                let operand = renamed(operand, count)?;
                // A volatile operand has no columns to rename, and each use of it is a different value.
                *list.expr = if operand.transformed { operand.data } else { name(operand.data, count) };
                Transformed::yes(Expr::InList(list))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_pattern(op) => {
                let left = Box::new(renamed(*left, count)?.data);
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(named.data)
}

fn name(expr: Expr, number: usize) -> Expr {
    expr.alias(format!("{MARK}{number}"))
}

fn renamed(expr: Expr, number: usize) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Alias(alias) if is_mark(&alias) => Transformed::yes(name(*alias.expr, number)),
            other => Transformed::no(other),
        })
    })
}

fn is_mark(alias: &Alias) -> bool {
    alias.relation.is_none() && alias.name.starts_with(MARK)
}

/// Puts columns before literals, and two columns in a fixed order, so that equal comparisons look equal. The columns have aliases
/// by now.
fn ordered(binary: BinaryExpr) -> BinaryExpr {
    let BinaryExpr { left, op, right } = binary;
    let swaps = match (&*left, named_column(&left), named_column(&right)) {
        (_, Some(left), Some(right)) => right > left,
        (Expr::Literal(..), None, Some(_)) => true,
        _ => false,
    };
    match op.swap() {
        Some(swapped) if swaps => BinaryExpr { left: right, op: swapped, right: left },
        _ => BinaryExpr { left, op, right },
    }
}

fn named_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Alias(alias) if is_mark(alias) => alias.expr.try_as_col(),
        _ => None,
    }
}

/// Returns true if the expression will be evaluated to a literal, which would lose its alias.
fn is_constant(expr: &Expr) -> Result<bool> {
    let varies = expr.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
        ))
    })?;
    Ok(!varies && !expr.is_volatile())
}

fn is_literal(list: &[Expr]) -> bool {
    list.iter().all(|item| matches!(item, Expr::Literal(..)))
}

/// Rewrites a list as comparisons with each of its items.
fn compared(list: InList) -> Expr {
    let InList { expr, list, negated } = list;
    let one = |item: Expr| {
        let expr = expr.as_ref().clone();
        if negated { expr.not_eq(item) } else { expr.eq(item) }
    };
    let both = |left: Expr, right: Expr| if negated { left.and(right) } else { left.or(right) };
    halves(list.into_iter().map(one).collect(), &both)
        .unwrap_or_else(|| datafusion::logical_expr::lit(negated))
}

/// Combines expressions as a balanced tree, because a list may be longer than a tree may be deep.
fn halves(mut all: Vec<Expr>, both: &dyn Fn(Expr, Expr) -> Expr) -> Option<Expr> {
    if all.len() < 2 {
        return all.pop();
    }
    let right = all.split_off(all.len().div_ceil(2));
    Some(both(halves(all, both)?, halves(right, both)?))
}

/// Removes the aliases, and brings equalities and lists to the form in which DataFusion's rules leave them.
fn plain(expr: Expr) -> Result<Expr> {
    let plain = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Alias(alias) if is_mark(&alias) => Transformed::yes(*alias.expr),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => match one_list(&left, &right) {
                Some(list) => Transformed::yes(Expr::InList(list)),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right })),
            },
            other => Transformed::no(other),
        })
    })?;
    let short = plain.data.transform_up(|expr| {
        Ok(match expr {
            Expr::InList(list) if is_short(&list) => Transformed::yes(compared(list)),
            other => Transformed::no(other),
        })
    });
    short.data()
}

fn is_short(list: &InList) -> bool {
    match list.list.len() {
        0 => false,
        1 => true,
        count => count <= COMPARED_MAX && list.expr.try_as_col().is_some(),
    }
}

/// Merges two lists or equalities over one column. The merged list is true, false and null where their OR is.
fn one_list(left: &Expr, right: &Expr) -> Option<InList> {
    let ((column, left), (other, right)) = (items(left)?, items(right)?);
    if column != other {
        return None;
    }
    let mut list: Vec<Expr> = Vec::with_capacity(left.len() + right.len());
    let mut seen = std::collections::HashSet::new();
    list.extend(left.iter().chain(right).filter(|item| seen.insert(*item)).cloned());
    Some(InList { expr: Box::new(Expr::Column(column.clone())), list, negated: false })
}

/// Returns a column and the items that it is compared with.
fn items(expr: &Expr) -> Option<(&Column, &[Expr])> {
    match expr {
        Expr::InList(InList { expr, list, negated: false }) => Some((expr.try_as_col()?, list)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(..)) => Some((column, std::slice::from_ref(&**right))),
            (Expr::Literal(..), Expr::Column(column)) => Some((column, std::slice::from_ref(&**left))),
            _ => None,
        },
        _ => None,
    }
}

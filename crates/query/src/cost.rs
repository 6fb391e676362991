//! Estimates the cost of a plan: a light one may run on the threads that answer lookups and pages (R3).
//!
//! This module lists the light operations; a plan with any other is heavy. Rows are counted as scans will read them, without the
//! blocks that cannot match; joins count as if all pairs matched; texts count by their length. So a light statement takes
//! milliseconds and returns a small answer, and a statement behind it waits no longer than that.

use std::sync::Arc;

use datafusion::datasource::memory::DataSourceExec;
use datafusion::logical_expr::{LogicalPlan, Operator};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::Expr;
use dialect::rules::float_casts;
use dialect::rules::float_keys;
use dialect::rules::integer_casts;
use dialect::rules::optimization_barrier;
use dialect::rules::property_barrier::PropertyBarrier;
use dialect::rules::union_order::OrderedUnionExec;
use table::BATCH_ROWS;

use crate::dynamic_filter::KeyCollectorExec;
use crate::scan::Scan;

/// Greatest cost of a light statement, in units of about a nanosecond.
const LIGHT_COST_MAX: f64 = 8e6;
/// Rows of a light statement's answer, and about how many bytes: such an answer never waits for its reader.
const ANSWER_ROWS: f64 = BATCH_ROWS as f64;
const ANSWER_BYTES: f64 = 1e6;
/// Costs per row: of a comparison or sum, of a CASE, of a function call, and of a place in a group or in a sort.
const SIMPLE: f64 = 1.0;
const CASE: f64 = 32.0;
const FUNCTION: f64 = 128.0;
const PLACE: f64 = 32.0;
/// Cost of looking up one row.
const LOOKUP: f64 = 500.0;
/// Cost of a byte: of a file that is read for the first time, or of a text that is searched.
const BYTE: f64 = 0.5;
/// Functions whose cost per row is bounded by the length of its text.
const FUNCTIONS: [&str; 22] = [
    "abs",
    "btrim",
    "ceil",
    "character_length",
    "checked_add",
    "checked_multiply",
    "checked_negate",
    "checked_subtract",
    "coalesce",
    "date_bin",
    "date_part",
    "date_trunc",
    float_keys::NAME,
    "floor",
    "length",
    "lower",
    "nullif",
    "octet_length",
    "round",
    "to_timestamp",
    "upper",
    "uuid_text",
];
const AGGREGATES: [&str; 7] = ["avg", "bool_and", "bool_or", "count", "max", "min", "sum"];
const SINGLE_VALUE: &str = "single_value";

/// Returns true if a plan is light.
pub(crate) fn is_light(plan: &Arc<dyn ExecutionPlan>) -> bool {
    estimate(plan).is_some_and(|all| {
        all.cost <= LIGHT_COST_MAX && all.rows <= ANSWER_ROWS && all.rows * all.row_bytes <= ANSWER_BYTES
    })
}

/// Returns true if a plan is cheap to fill with values and to make physical: constants are folded then, and some functions may
/// take any time.
pub(crate) fn is_cheap_to_bind(plan: &LogicalPlan) -> bool {
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    let mut plain = true;
    let looked = plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr {
                    plain &= FUNCTIONS.contains(&function.func.name());
                }
                plain &= !matches!(expr, Expr::GroupingSet(_));
                Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    });
    looked.is_ok() && plain
}

/// Upper bounds of a plan's output, and its total cost.
#[derive(Clone, Copy)]
struct Estimate {
    rows: f64,
    /// Bytes of a row, with all columns that were read.
    row_bytes: f64,
    cost: f64,
}

impl Estimate {
    fn costs(self, more: f64) -> Estimate {
        Estimate { cost: self.cost + more, ..self }
    }
}

/// Estimates a plan; `None` if it is not understood, or may take any time.
fn estimate(plan: &Arc<dyn ExecutionPlan>) -> Option<Estimate> {
    let any = plan.as_any();
    let mut all = match any.downcast_ref::<Scan>() {
        Some(scan) => of_scan(scan, usize::MAX),
        None => of_node(plan)?,
    };
    if let Some(wanted) = plan.fetch() {
        all.rows = all.rows.min(wanted as f64);
    }
    Some(all)
}

/// Estimates a scan of which each part reads `wanted` rows at most.
fn of_scan(scan: &Scan, wanted: usize) -> Estimate {
    let parts = scan.properties().output_partitioning().partition_count();
    let rows = scan.rows(None);
    let read = rows.min(wanted.saturating_mul(parts)) as f64;
    let share = if rows == 0 { 0.0 } else { read / rows as f64 };
    let cost = read * SIMPLE + scan.lookups() as f64 * LOOKUP + scan.untouched_bytes() as f64 * share * BYTE;
    Estimate { rows: read, row_bytes: scan.row_bytes() as f64, cost }
}

/// Returns the scan under a plan, if the plan returns all its rows newest first.
pub(crate) fn newest_first_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&Scan> {
    let any = plan.as_any();
    if let Some(scan) = any.downcast_ref::<Scan>() {
        return scan.is_newest_first().then_some(scan);
    }
    let passes = any.is::<ProjectionExec>() || any.is::<CooperativeExec>();
    let [input] = plan.children()[..] else { return None };
    if passes { newest_first_scan(input) } else { None }
}

fn of_node(plan: &Arc<dyn ExecutionPlan>) -> Option<Estimate> {
    let any = plan.as_any();
    if let Some(sort) = any.downcast_ref::<SortExec>()
        && let Some(wanted) = sort.fetch()
        && let Some(scan) = newest_first_scan(sort.input())
    {
        // The sort ends as soon as it has its rows.
        let read = of_scan(scan, wanted.saturating_add(2 * BATCH_ROWS));
        return Some(read.costs(read.rows * 4.0 * SIMPLE));
    }
    let inputs: Vec<Estimate> = plan.children().into_iter().map(estimate).collect::<Option<_>>()?;
    let cost = inputs.iter().map(|input| input.cost).sum();
    let read: f64 = inputs.iter().map(|input| input.rows).sum();
    let row_bytes = inputs.iter().map(|input| input.row_bytes).fold(0.0, f64::max);
    let all = Estimate { rows: read, row_bytes, cost };
    let of = |expression: &Arc<dyn PhysicalExpr>| of_expression(expression, row_bytes);
    if let Some(filter) = any.downcast_ref::<FilterExec>() {
        return Some(all.costs(read * of(filter.predicate())?));
    }
    if let Some(projection) = any.downcast_ref::<ProjectionExec>() {
        let each: f64 = projection.expr().iter().map(|column| of(&column.expr)).sum::<Option<f64>>()?;
        return Some(all.costs(read * each));
    }
    if let Some(aggregate) = any.downcast_ref::<AggregateExec>() {
        let grouped = aggregate.group_expr();
        if grouped.groups().len() > 1 || aggregate.filter_expr().iter().any(Option::is_some) {
            return None;
        }
        let keys = grouped.expr().iter().map(|(key, _)| Some(PLACE + of(key)?)).sum::<Option<f64>>()?;
        let figure = |figure: &Arc<datafusion::physical_expr::aggregate::AggregateFunctionExpr>| {
            let name = figure.fun().name();
            let known = AGGREGATES.contains(&name) || name == SINGLE_VALUE;
            let plain = known && figure.order_bys().is_empty();
            let own = if figure.is_distinct() { PLACE } else { SIMPLE };
            plain.then(|| Some(own + figure.expressions().iter().map(of).sum::<Option<f64>>()?))?
        };
        let figures = aggregate.aggr_expr().iter().map(figure).sum::<Option<f64>>()?;
        let rows = if grouped.expr().is_empty() { 1.0 } else { read };
        return Some(Estimate { rows, row_bytes, cost: cost + read * (keys + figures) });
    }
    if let Some(sort) = any.downcast_ref::<SortExec>() {
        // A sort with a limit rejects most rows after one comparison.
        let kept = sort.fetch().map_or(1.0, |fetch| (fetch as f64 / read.max(1.0)).min(1.0));
        let place = 2.0 * SIMPLE + PLACE * kept;
        let each = sort.expr().iter().map(|by| Some(place + of(&by.expr)?)).sum::<Option<f64>>()?;
        return Some(all.costs(read * each + read * kept * row_bytes * BYTE));
    }
    if let Some(join) = any.downcast_ref::<HashJoinExec>() {
        let rows = inputs.iter().map(|input| input.rows.max(1.0)).product::<f64>();
        let filter = join.filter().map_or(Some(0.0), |filter| of(filter.expression()))?;
        let row_bytes = inputs.iter().map(|input| input.row_bytes).sum();
        return Some(Estimate { rows, row_bytes, cost: cost + read * PLACE + rows * (PLACE + filter) });
    }
    let passes = any.is::<CoalescePartitionsExec>()
        || any.is::<CooperativeExec>()
        || any.is::<PropertyBarrier>()
        || any.is::<GlobalLimitExec>()
        || any.is::<LocalLimitExec>()
        || any.is::<OrderedUnionExec>()
        || any.is::<RepartitionExec>()
        || any.is::<SortPreservingMergeExec>()
        || any.is::<KeyCollectorExec>()
        || any.is::<UnionExec>();
    if passes {
        return Some(all.costs(read * SIMPLE));
    }
    if any.is::<EmptyExec>() || any.is::<PlaceholderRowExec>() || any.is::<DataSourceExec>() {
        // Literal values of the statement, or rows of the catalog.
        let known = plan.partition_statistics(None).ok()?;
        let rows = known.num_rows.get_value().copied()? as f64;
        let bytes = known.total_byte_size.get_value().copied().unwrap_or_default() as f64;
        return Some(Estimate { rows, row_bytes: bytes / rows.max(1.0), cost: rows + 1.0 });
    }
    None
}

/// Estimates the cost of an expression for a row of `row_bytes` bytes.
fn of_expression(expression: &Arc<dyn PhysicalExpr>, row_bytes: f64) -> Option<f64> {
    let any = expression.as_any();
    let text = row_bytes * BYTE;
    let own = if any.is::<Column>() || any.is::<Literal>() {
        0.0
    } else if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
        match binary.op() {
            RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch => return None,
            _ => SIMPLE,
        }
    } else if let Some(list) = any.downcast_ref::<InListExpr>() {
        SIMPLE + list.list().len() as f64
    } else if let Some(function) = any.downcast_ref::<ScalarFunctionExpr>() {
        if optimization_barrier::is_function(function.fun()) {
            return of_expression(function.args().first()?, row_bytes);
        }
        if function.name() == float_keys::NAME {
            return Some(SIMPLE + of_expression(function.args().first()?, row_bytes)?);
        }
        if float_casts::is_function(function.fun()) || integer_casts::is_function(function.fun()) {
            FUNCTION
        } else if FUNCTIONS.contains(&function.name()) {
            FUNCTION + text
        } else {
            return None;
        }
    } else if any.is::<LikeExpr>() || any.is::<CastExpr>() || any.is::<TryCastExpr>() {
        2.0 * SIMPLE + 2.0 * text
    } else if any.is::<CaseExpr>() {
        CASE
    } else if any.is::<IsNullExpr>()
        || any.is::<IsNotNullExpr>()
        || any.is::<NotExpr>()
        || any.is::<NegativeExpr>()
    {
        SIMPLE
    } else {
        return None;
    };
    let parts = expression.children().into_iter().map(|part| of_expression(part, row_bytes));
    Some(own + parts.sum::<Option<f64>>()?)
}

//! How much work a plan is: whether it may run where lookups and pages are answered (R3).
//!
//! The estimate errs upwards. Rows are counted as the scans will read them, after blocks that cannot match were left out;
//! joins count as if all pairs matched; what is not known here is much. So a light statement takes milliseconds, and
//! whoever waits behind it waits for no longer.

use std::sync::Arc;

use datafusion::datasource::memory::DataSourceExec;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::expressions::{CaseExpr, Column, LikeExpr, Literal};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::scan::Scan;

/// What a light statement may cost, in units of about a nanosecond.
const LIGHT: f64 = 8e6;
/// Of a row: a comparison or a sum, a text matched or a case told, a function called, a place in a group or in an order.
const SIMPLE: f64 = 1.0;
const MATCH: f64 = 32.0;
const FUNCTION: f64 = 128.0;
const PLACE: f64 = 32.0;
/// Of a row that is looked up by itself.
const LOOKUP: f64 = 500.0;
/// Of a byte of what is read: its checksum, where it is touched first.
const BYTE: f64 = 0.02;

/// Whether a plan is little work.
pub(crate) fn is_light(plan: &Arc<dyn ExecutionPlan>) -> bool {
    estimate(plan).is_some_and(|estimate| estimate.cost <= LIGHT)
}

/// Rows that come out, at most, and what all of it costs.
#[derive(Clone, Copy)]
struct Estimate {
    rows: f64,
    cost: f64,
}

impl Estimate {
    fn costs(self, more: f64) -> Estimate {
        Estimate { cost: self.cost + more, ..self }
    }
}

/// `None`: nothing is known of it, or it may take any time.
fn estimate(plan: &Arc<dyn ExecutionPlan>) -> Option<Estimate> {
    let any = plan.as_any();
    if let Some(scan) = any.downcast_ref::<Scan>() {
        let rows = scan.rows(None) as f64;
        let each = if scan.is_lookup() { LOOKUP } else { SIMPLE };
        return Some(Estimate { rows, cost: rows * each + scan.file_bytes() as f64 * BYTE });
    }
    let mut estimate = beside_scans(plan)?;
    if let Some(wanted) = plan.fetch() {
        estimate.rows = estimate.rows.min(wanted as f64);
    }
    Some(estimate)
}

/// Of a plan that reads what others give.
fn beside_scans(plan: &Arc<dyn ExecutionPlan>) -> Option<Estimate> {
    let any = plan.as_any();
    let inputs: Vec<Estimate> = plan.children().into_iter().map(estimate).collect::<Option<_>>()?;
    let cost = inputs.iter().map(|input| input.cost).sum();
    let read: f64 = inputs.iter().map(|input| input.rows).sum();
    let all = Estimate { rows: read, cost };
    if let Some(filter) = any.downcast_ref::<FilterExec>() {
        return Some(all.costs(read * of_expression(filter.predicate())));
    }
    if let Some(projection) = any.downcast_ref::<ProjectionExec>() {
        let each: f64 = projection.expr().iter().map(|column| of_expression(&column.expr)).sum();
        return Some(all.costs(read * each));
    }
    if let Some(aggregate) = any.downcast_ref::<AggregateExec>() {
        let grouped = aggregate.group_expr().expr();
        let keys: f64 = grouped.iter().map(|(key, _)| PLACE + of_expression(key)).sum();
        let figures: f64 = aggregate
            .aggr_expr()
            .iter()
            .map(|figure| match figure.is_distinct() || !figure.order_bys().is_empty() {
                true => PLACE,
                false => SIMPLE + figure.expressions().iter().map(of_expression).sum::<f64>(),
            })
            .sum();
        let rows = if grouped.is_empty() { 1.0 } else { read };
        return Some(Estimate { rows, cost: cost + read * (keys + figures) });
    }
    if let Some(sort) = any.downcast_ref::<SortExec>() {
        // Of the first few only, most rows are seen to be none after one look.
        let place = if sort.fetch().is_some() { 2.0 * SIMPLE } else { PLACE };
        let each: f64 = sort.expr().iter().map(|by| place + of_expression(&by.expr)).sum();
        return Some(all.costs(read * each));
    }
    let multiplies = any.is::<HashJoinExec>()
        || any.is::<CrossJoinExec>()
        || any.is::<NestedLoopJoinExec>()
        || any.is::<SortMergeJoinExec>();
    if multiplies {
        let rows = inputs.iter().map(|input| input.rows.max(1.0)).product::<f64>();
        return Some(Estimate { rows, cost: cost + (read + rows) * PLACE });
    }
    let passes = any.is::<CoalescePartitionsExec>()
        || any.is::<CooperativeExec>()
        || any.is::<GlobalLimitExec>()
        || any.is::<LocalLimitExec>()
        || any.is::<RepartitionExec>()
        || any.is::<SortPreservingMergeExec>()
        || any.is::<UnionExec>();
    if passes {
        return Some(all.costs(read * SIMPLE));
    }
    if any.is::<EmptyExec>() || any.is::<PlaceholderRowExec>() || any.is::<DataSourceExec>() {
        // Values that stand in the statement, or what the catalog says.
        let rows = plan.partition_statistics(None).ok()?.num_rows.get_value().copied()? as f64;
        let parts = plan.output_partitioning().partition_count() as f64;
        return Some(Estimate { rows, cost: rows + parts });
    }
    None
}

/// What an expression costs a row.
fn of_expression(expression: &Arc<dyn PhysicalExpr>) -> f64 {
    let any = expression.as_any();
    let own = match () {
        () if any.is::<Column>() || any.is::<Literal>() => 0.0,
        () if any.is::<ScalarFunctionExpr>() => FUNCTION,
        () if any.is::<LikeExpr>() || any.is::<CaseExpr>() => MATCH,
        () => SIMPLE,
    };
    own + expression.children().into_iter().map(of_expression).sum::<f64>()
}

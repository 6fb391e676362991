//! Index advice: records statements that read far more rows than their filters accepted, by table and columns.
//!
//! The records are in memory, bounded in number, and updated without a lock that readers could wait for. They contain only the
//! columns that statements compared, none of the compared values.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use dialect::rules::property_barrier::PropertyBarrier;
use futures::{Stream, StreamExt};
use types::{ColumnId, IndexDef, TableDef, TableId};

use crate::compact_batches::CompactExec;
use crate::prune::ColumnTest;
use crate::scan::Scan;

/// Rows that a statement must read to be recorded; one that reads fewer is quick enough.
const ROWS_MIN: u64 = 10_000;
/// Rows that a statement must read for each row that its filter accepts.
const ROWS_FOR_ONE: u64 = 100;
/// Values of a join's smaller side, at most, for which an index on the other side would help.
const JOINED_MAX: usize = 1_024;
/// Number of records; further tables and columns are not recorded.
const KNOWN_MAX: usize = 256;

/// The records; see the module.
#[derive(Debug, Default)]
pub(crate) struct IndexAdvice {
    records: ArcSwap<imbl::OrdMap<AdviceKey, Arc<ReadCounts>>>,
}

type AdviceKey = (TableId, Vec<ColumnId>);

#[derive(Debug, Default)]
struct ReadCounts {
    queries: AtomicU64,
    scanned: AtomicU64,
    returned: AtomicU64,
}

/// A record of one table's columns, for readers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdvisedIndex {
    pub columns: Vec<ColumnId>,
    pub queries: u64,
    pub scanned: u64,
    pub returned: u64,
}

impl IndexAdvice {
    /// Returns the records of a table for which no index exists yet.
    pub fn missing_indexes(&self, def: &TableDef) -> Vec<AdvisedIndex> {
        let known = self.records.load();
        let of_table = known.iter().filter(|((id, columns), _)| {
            let is_there =
                |index: &IndexDef| index.kind == index::column::KIND && index.columns.starts_with(columns);
            *id == def.id
                && !def.indexes.iter().any(is_there)
                && columns.iter().all(|column| def.schema.column(*column).is_some())
        });
        let piece = |((_, columns), seen): (&AdviceKey, &Arc<ReadCounts>)| AdvisedIndex {
            columns: columns.clone(),
            queries: seen.queries.load(Ordering::Relaxed),
            scanned: seen.scanned.load(Ordering::Relaxed),
            returned: seen.returned.load(Ordering::Relaxed),
        };
        of_table.map(piece).collect()
    }

    fn add(&self, table: TableId, columns: Vec<ColumnId>, scanned: u64, returned: u64) {
        let key = (table, columns);
        let mut seen = self.records.load().get(&key).cloned();
        if seen.is_none() {
            self.records.rcu(|known| {
                let full = known.len() >= KNOWN_MAX;
                let mut next = imbl::OrdMap::clone(known);
                seen = match next.get(&key) {
                    Some(seen) => Some(seen.clone()),
                    None if full => None,
                    None => Some(next.entry(key.clone()).or_default().clone()),
                };
                next
            });
        }
        let Some(seen) = seen else { return };
        seen.queries.fetch_add(1, Ordering::Relaxed);
        seen.scanned.fetch_add(scanned, Ordering::Relaxed);
        seen.returned.fetch_add(returned, Ordering::Relaxed);
    }

    /// Records the reads of a finished plan.
    fn record(&self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(filter) = plan.as_any().downcast_ref::<FilterExec>()
            && let Some(scan) = scan_below(filter.input())
        {
            let returned = filter.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or(0) as u64;
            // An index would not help a read of the past.
            let scanned = if scan.snapshot().as_of().is_none() { scan.scanned() } else { 0 };
            if is_much(scanned) && scanned >= returned.max(1).saturating_mul(ROWS_FOR_ONE) {
                let def = scan.snapshot().def();
                let columns = scan.coverage().map(|(_, tests)| index_columns(tests, def)).unwrap_or_default();
                if !columns.is_empty() {
                    self.add(def.id, columns, scanned, returned);
                }
            }
        }
        if let Some(sort) = plan.as_any().downcast_ref::<SortExec>() {
            self.record_sort(sort);
        }
        if let Some(aggregate) = plan.as_any().downcast_ref::<AggregateExec>() {
            self.record_extremes(aggregate);
        }
        if let Some(join) = plan.as_any().downcast_ref::<HashJoinExec>() {
            self.record_join(join);
        }
        plan.children().into_iter().for_each(|child| self.record(child));
    }

    /// Records a sort with a limit that read all rows.
    fn record_sort(&self, sort: &SortExec) {
        let Some(count) = sort.fetch() else { return };
        let sources: Vec<_> =
            sort.expr().iter().map_while(|by| column_source(sort.input(), &by.expr)).collect();
        let Some((scan, _)) = sources.first().copied() else { return };
        let Some((_, tests)) = scan.coverage() else { return };
        // An index is read in one direction.
        let first = sort.expr().first();
        let same_way = sort
            .expr()
            .iter()
            .zip(&sources)
            .take_while(|(by, _)| by.options.descending == first.options.descending);
        let order: Vec<ColumnId> = same_way.map(|(_, (_, column))| *column).collect();
        let def = scan.snapshot().def();
        let mut columns = equality_columns(tests, def);
        columns.extend(order.into_iter().filter(|id| is_indexable(*id, def)));
        let mut seen = Vec::new();
        columns.retain(|id| {
            !seen.contains(id) && {
                seen.push(*id);
                true
            }
        });
        self.record_scan(scan, columns, count as u64);
    }

    /// Records `min` and `max` over all rows that a condition accepts.
    fn record_extremes(&self, aggregate: &AggregateExec) {
        let is_first = matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single);
        let figures = aggregate.aggr_expr();
        let is_extreme = |name: &str| matches!(name, "min" | "max");
        if !is_first
            || !aggregate.group_expr().expr().is_empty()
            || !figures.iter().all(|figure| is_extreme(figure.fun().name()))
        {
            return;
        }
        for figure in figures {
            let arguments = figure.expressions();
            let [argument] = &arguments[..] else { continue };
            let Some((scan, column)) = column_source(aggregate.input(), argument) else { continue };
            let Some((_, tests)) = scan.coverage() else { continue };
            let def = scan.snapshot().def();
            let mut columns = equality_columns(tests, def);
            if is_indexable(column, def) && !columns.contains(&column) {
                columns.push(column);
                self.record_scan(scan, columns, 1);
            }
        }
    }

    /// Records a join that scanned its larger side for the few values of the other.
    fn record_join(&self, join: &HashJoinExec) {
        let Some(metrics) = join.metrics() else { return };
        let small = metrics.sum_by_name("build_input_rows").map_or(usize::MAX, |rows| rows.as_usize());
        if small > JOINED_MAX {
            return;
        }
        let sources: Option<Vec<_>> =
            join.on().iter().map(|(_, right)| column_source(join.right(), right)).collect();
        let Some(sources) = sources else { return };
        let Some((scan, _)) = sources.first().copied() else { return };
        let columns: Vec<ColumnId> = sources.iter().map(|(_, column)| *column).collect();
        if columns.iter().all(|id| is_indexable(*id, scan.snapshot().def())) {
            self.record_scan(scan, columns, metrics.output_rows().unwrap_or(0) as u64);
        }
    }

    /// Records a scan that read far more rows than were needed.
    fn record_scan(&self, scan: &Scan, mut columns: Vec<ColumnId>, returned: u64) {
        columns.truncate(index::column::COLUMNS_MAX);
        let scanned = scan.scanned();
        let is_worth_it = is_much(scanned) && scanned >= returned.max(1).saturating_mul(ROWS_FOR_ONE);
        if is_worth_it && !columns.is_empty() && scan.coverage().is_some() {
            self.add(scan.snapshot().def().id, columns, scanned, returned);
        }
    }

    /// Wraps the stream of a plan: when the stream is dropped, the plan's reads are recorded. The wrapper keeps the plan, and the
    /// memory that the plan holds, until then.
    pub fn watch(
        self: &Arc<Self>,
        plan: &Arc<dyn ExecutionPlan>,
        stream: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        if !reads_much(plan) {
            return stream;
        }
        Box::pin(RecordingStream { stream, plan: plan.clone(), advice: self.clone(), failed: false })
    }
}

fn is_much(rows: u64) -> bool {
    rows >= ROWS_MIN
}

fn reads_much(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.as_any().downcast_ref::<Scan>() {
        Some(scan) => scan.coverage().is_some() && is_much(scan.rows(None) as u64),
        None => plan.children().into_iter().any(reads_much),
    }
}

fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&Scan> {
    let any = plan.as_any();
    if let Some(scan) = any.downcast_ref::<Scan>() {
        return Some(scan);
    }
    let passes = any.is::<CooperativeExec>()
        || any.is::<RepartitionExec>()
        || any.is::<CompactExec>()
        || any.is::<PropertyBarrier>();
    let [input] = plan.children()[..] else { return None };
    if passes { scan_below(input) } else { None }
}

/// Follows a column of a node down to the scan that it comes from unchanged. Returns that scan and the table's column.
fn column_source<'p>(
    plan: &'p Arc<dyn ExecutionPlan>,
    expr: &Arc<dyn PhysicalExpr>,
) -> Option<(&'p Scan, ColumnId)> {
    let at = expr.as_any().downcast_ref::<Column>()?.index();
    column_source_at(plan, at)
}

pub(crate) fn column_source_at(plan: &Arc<dyn ExecutionPlan>, at: usize) -> Option<(&Scan, ColumnId)> {
    let any = plan.as_any();
    if let Some(scan) = any.downcast_ref::<Scan>() {
        return Some((scan, scan.column(at)?));
    }
    if let Some(projection) = any.downcast_ref::<ProjectionExec>() {
        return column_source(projection.input(), &projection.expr().get(at)?.expr);
    }
    if let Some(filter) = any.downcast_ref::<FilterExec>() {
        let at = match filter.projection() {
            Some(columns) => *columns.get(at)?,
            None => at,
        };
        return column_source_at(filter.input(), at);
    }
    let passes = any.is::<CooperativeExec>()
        || any.is::<RepartitionExec>()
        || any.is::<CoalescePartitionsExec>()
        || any.is::<CompactExec>()
        || any.is::<PropertyBarrier>();
    let [input] = plan.children()[..] else { return None };
    if passes { column_source_at(input, at) } else { None }
}

/// Returns true if an index could be over this column.
fn is_indexable(id: ColumnId, def: &TableDef) -> bool {
    let index = IndexDef {
        name: String::new(),
        kind: index::column::KIND.into(),
        columns: vec![id],
        options: Vec::new(),
        unique: None,
    };
    def.schema.column(id).is_some() && index::column::check(def, &index).is_ok()
}

/// Returns the columns that the tests compare with single values.
fn equality_columns(tests: &[ColumnTest], def: &TableDef) -> Vec<ColumnId> {
    let mut equal: Vec<ColumnId> = tests
        .iter()
        .filter_map(|test| match test {
            ColumnTest::Compare { column, op: Operator::Eq, .. } | ColumnTest::OneOf { column, .. } => {
                Some(*column)
            }
            ColumnTest::IsNull(column) => Some(*column),
            _ => None,
        })
        .filter(|id| is_indexable(*id, def))
        .collect();
    equal.sort_unstable();
    equal.dedup();
    equal
}

/// Returns the columns of an index that would have found the rows: first those compared with single values, then one with another
/// condition.
fn index_columns(tests: &[ColumnTest], def: &TableDef) -> Vec<ColumnId> {
    let mut equal = equality_columns(tests, def);
    let next = tests.iter().find_map(|test| match test {
        ColumnTest::Compare { column, .. } | ColumnTest::StartsWith { column, .. } => {
            Some(*column).filter(|id| is_indexable(*id, def) && !equal.contains(id))
        }
        _ => None,
    });
    equal.truncate(index::column::COLUMNS_MAX - 1);
    equal.extend(next);
    equal
}

struct RecordingStream {
    stream: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    advice: Arc<IndexAdvice>,
    /// True if the stream failed. Its counts are then meaningless, and the statement may run again in another way.
    failed: bool,
}

impl Stream for RecordingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.stream.poll_next_unpin(context);
        self.failed |= matches!(next, Poll::Ready(Some(Err(_))));
        next
    }
}

impl RecordBatchStream for RecordingStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Drop for RecordingStream {
    fn drop(&mut self) {
        if !self.failed {
            self.advice.record(&self.plan);
        }
    }
}

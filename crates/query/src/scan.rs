//! Scans a snapshot: one stream per part, batches of at most 8192 rows, in row-id order or in storage order.

mod dynamic_filters;
mod piece_order;
mod reader;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use table::{Projection, ScanPiece, Snapshot};
use types::{ColumnId, IndexDef, ROW_ID, ROW_ID_NAME, RowId, TIME, TIME_NAME, Value};

use crate::dynamic_filter::join_keys::JoinKeyFilter;
use crate::index_lookup::IndexedRows;
use crate::provider::{Table, lookup_parts, position};
use crate::prune::ColumnTest;
use dynamic_filters::DynamicFilters;

/// The work of one partition of a scan.
#[derive(Clone, Debug)]
pub(crate) enum ScanPart {
    Pieces(Vec<ScanPiece>),
    /// Rows found by key, row id or index.
    Rows(Vec<RowId>),
    /// A number of rows without columns.
    Count(u64),
}

/// The physical scan of one table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    snapshot: Arc<Snapshot>,
    projection: Projection,
    parts: Arc<Vec<ScanPart>>,
    /// Name of the index that found the rows.
    index: Option<String>,
    /// True if every row read is wanted: then the counts are exact.
    exact: bool,
    /// Rows that each part returns at most.
    limit: Option<usize>,
    /// True if each part is read from its end, for the newest rows.
    newest_first: bool,
    /// The table and the tests of a scan that leaves out only rows which these tests refuse.
    coverage: Option<Arc<(Table, Vec<ColumnTest>)>>,
    /// Filters of joins and sorts above, which become known while the plan runs.
    dynamic_filters: Arc<DynamicFilters>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl Scan {
    pub fn new(
        snapshot: Arc<Snapshot>,
        projection: Projection,
        parts: Vec<ScanPart>,
        exact: bool,
        limit: Option<usize>,
    ) -> Self {
        let properties = properties(&projection, &parts, false);
        let parts = Arc::new(parts);
        Scan {
            snapshot,
            projection,
            parts,
            index: None,
            exact,
            limit,
            newest_first: false,
            coverage: None,
            dynamic_filters: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties,
        }
    }

    /// Makes a scan that returns as many rows without columns as an index counted.
    pub fn of_counted_rows(snapshot: &Arc<Snapshot>, index: String, rows: u64) -> types::Result<Self> {
        let projection = snapshot.projection(&[])?;
        let scan = Scan::new(snapshot.clone(), projection, vec![ScanPart::Count(rows)], false, None);
        Ok(scan.with_index(index))
    }

    /// Marks the scan as complete: of all rows it leaves out only those that these tests refuse.
    pub fn with_coverage(self, table: Table, tests: Vec<ColumnTest>) -> Self {
        Scan { coverage: Some(Arc::new((table, tests))), ..self }
    }

    /// Adds the dynamic filter of a join. Returns `None` if the scan cannot use it.
    pub fn with_dynamic_filter(&self, filter: Arc<JoinKeyFilter>) -> Option<Self> {
        self.coverage()?;
        let dynamic_filters = Arc::new(self.dynamic_filters.with(filter));
        Some(Scan { dynamic_filters, ..self.with(self.limit, self.newest_first) })
    }

    /// Returns true if rows can be looked up by values of this column.
    pub fn can_look_up(&self, column: ColumnId) -> bool {
        let def = self.snapshot.def();
        let is_first =
            |index: &IndexDef| index.kind == index::column::KIND && index.columns.first() == Some(&column);
        column == ROW_ID || def.primary_key.as_slice() == [column] || def.indexes.iter().any(is_first)
    }

    /// Returns the arguments of [`Scan::with_coverage`]; `None` for any other scan.
    pub fn coverage(&self) -> Option<(&Table, &[ColumnTest])> {
        let (table, tests) = &**self.coverage.as_ref().filter(|_| self.limit.is_none())?;
        Some((table, tests))
    }

    /// Returns a scan of the same columns over the rows that an index found. Its tail is split into at most `parts` parts.
    pub fn narrowed(&self, found: IndexedRows, parts: usize) -> Option<Self> {
        let (table, tests) = self.coverage()?;
        let parts = lookup_parts(&table.snapshot, &found, tests, parts);
        let scan = Scan::new(self.snapshot.clone(), self.projection.clone(), parts, false, None);
        Some(scan.with_index(found.name))
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Rows read so far by scanning, not by lookups.
    pub fn scanned(&self) -> u64 {
        let sum = self.metrics.clone_inner().sum_by_name(reader::ROWS_SCANNED);
        sum.map_or(0, |sum| sum.as_usize() as u64)
    }

    pub fn columns(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.projection.columns()
    }

    pub fn column(&self, at: usize) -> Option<ColumnId> {
        self.projection.columns().nth(at)
    }

    pub fn with_index(self, index: String) -> Self {
        Scan { index: Some(index), ..self }
    }

    fn with(&self, limit: Option<usize>, newest_first: bool) -> Self {
        let properties = if newest_first == self.newest_first {
            self.properties.clone()
        } else {
            properties(&self.projection, &self.parts, newest_first)
        };
        Scan {
            snapshot: self.snapshot.clone(),
            projection: self.projection.clone(),
            parts: self.parts.clone(),
            index: self.index.clone(),
            exact: self.exact,
            limit,
            newest_first,
            coverage: self.coverage.clone(),
            dynamic_filters: Arc::new(self.dynamic_filters.undecided()),
            metrics: ExecutionPlanMetricsSet::new(),
            properties,
        }
    }

    /// Returns true if the scan's rows were found by an index.
    pub fn is_lookup(&self) -> bool {
        self.index.is_some()
    }

    /// Number of rows that are looked up one by one.
    pub fn lookups(&self) -> usize {
        self.looked_up_rows().map(<[RowId]>::len).sum()
    }

    fn looked_up_rows(&self) -> impl Iterator<Item = &[RowId]> {
        self.parts.iter().map(|part| match part {
            ScanPart::Rows(rows) => rows.as_slice(),
            ScanPart::Pieces(_) | ScanPart::Count(_) => &[],
        })
    }

    fn count(&self) -> Option<u64> {
        let count = |part: &ScanPart| if let ScanPart::Count(rows) = part { Some(*rows) } else { None };
        self.parts.iter().filter_map(count).reduce(|all, rows| all + rows)
    }

    /// Returns a scan that reads the pieces first which may hold the first rows of an order. The filter of the sort above then
    /// shows that the others hold no wanted rows.
    fn with_first_pieces_first(&self, order: &[PhysicalSortExpr]) -> Option<Self> {
        let first = order.first()?;
        let at = first.expr.as_any().downcast_ref::<Column>()?.index();
        let parts = piece_order::by_bounds(&self.parts, self.column(at)?, first.options)?;
        let properties = properties(&self.projection, &parts, false);
        Some(Scan { parts: Arc::new(parts), properties, ..self.with(None, false) })
    }

    /// Sets the least and greatest time in the statistics, if no row was deleted: those of the blocks.
    fn bounds_of_time(&self, statistics: &mut Statistics) {
        let Some(column) = self.snapshot.def().time else { return };
        let Some(at) = position(&self.projection, column) else { return };
        let (mut least, mut greatest) = (None, None);
        for piece in self.pieces() {
            let zone = if piece.has_deleted() { None } else { piece.zone(column) };
            match zone.map(|zone| (zone.min, zone.max)) {
                Some((Some(Value::Timestamp(min)), Some(Value::Timestamp(max)))) => {
                    least = Some(least.map_or(min, |least: i64| least.min(min)));
                    greatest = Some(greatest.map_or(max, |greatest: i64| greatest.max(max)));
                }
                // No row of the piece has a time.
                Some((None, _)) => {}
                _ => return,
            }
        }
        let known = |time: Option<i64>| match time {
            Some(time) => Precision::Exact(ScalarValue::TimestampMicrosecond(Some(time), Some("UTC".into()))),
            None => Precision::Absent,
        };
        let column = &mut statistics.column_statistics[at];
        (column.min_value, column.max_value) = (known(least), known(greatest));
    }

    pub fn is_newest_first(&self) -> bool {
        self.newest_first
    }

    fn pieces(&self) -> impl Iterator<Item = &ScanPiece> {
        self.parts.iter().flat_map(|part| match part {
            ScanPart::Pieces(pieces) => pieces.as_slice(),
            ScanPart::Rows(_) | ScanPart::Count(_) => &[],
        })
    }

    /// Bytes of files that would be read for the first time, with all columns: they must be checked against their checksums.
    pub fn untouched_bytes(&self) -> u64 {
        let looked_up = self.looked_up_rows().map(|rows| self.snapshot.untouched_bytes(rows)).sum::<u64>();
        looked_up + self.pieces().map(ScanPiece::untouched_bytes).sum::<u64>()
    }

    /// Approximate bytes of one row, with all columns.
    pub fn row_bytes(&self) -> u64 {
        self.snapshot.raw_bytes() / self.snapshot.rows().max(1)
    }

    /// Number of rows to read, of one part or of all.
    pub fn rows(&self, partition: Option<usize>) -> usize {
        let of_part = |part: &ScanPart| {
            let rows = match part {
                ScanPart::Pieces(pieces) => pieces.iter().map(ScanPiece::rows).sum(),
                ScanPart::Rows(rows) => rows.len(),
                ScanPart::Count(_) => 0,
            };
            rows.min(self.limit.unwrap_or(usize::MAX))
        };
        match partition {
            Some(i) => self.parts.get(i).map_or(0, of_part),
            None => self.parts.iter().map(of_part).sum(),
        }
    }
}

/// Returns true if each part is in row-id order.
fn in_row_order(parts: &[ScanPart]) -> bool {
    let of_piece = |pieces: &[ScanPiece]| {
        pieces.iter().all(ScanPiece::is_in_row_order)
            && pieces.is_sorted_by(|one, next| one.row_range().1 < next.row_range().0)
    };
    parts.iter().all(|part| match part {
        ScanPart::Pieces(pieces) => of_piece(pieces),
        ScanPart::Rows(_) | ScanPart::Count(_) => true,
    })
}

/// Returns the plan properties. `_time` never falls with the row id, so a part in the order of one is in the order of both; read
/// from its end, it is in the reverse order of both.
fn properties(projection: &Projection, parts: &[ScanPart], newest_first: bool) -> Arc<PlanProperties> {
    let options = SortOptions { descending: newest_first, nulls_first: newest_first };
    let ordering = |id, name| {
        let column = Arc::new(Column::new(name, position(projection, id)?));
        Some([PhysicalSortExpr::new(column, options)])
    };
    let known = [ordering(ROW_ID, ROW_ID_NAME), ordering(TIME, TIME_NAME)].into_iter().flatten();
    let orderings = known.filter(|_| in_row_order(parts));
    let equivalence = EquivalenceProperties::new_with_orderings(projection.schema().clone(), orderings);
    let partitioning = Partitioning::UnknownPartitioning(parts.len());
    Arc::new(PlanProperties::new(equivalence, partitioning, EmissionType::Incremental, Boundedness::Bounded))
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.projection.schema().fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, "Scan: table={}, columns=[{}]", self.snapshot.def().name, names.join(", "))?;
        if let Some(lsn) = self.snapshot.as_of() {
            write!(f, ", as of lsn {lsn}")?;
        }
        if let Some(index) = &self.index {
            write!(f, ", index={index}")?;
        }
        if let Some(rows) = self.count() {
            write!(f, ", counted={rows} rows")?;
        }
        if self.parts.iter().any(|part| matches!(part, ScanPart::Rows(_))) {
            write!(f, ", lookup={} rows", self.lookups())?;
        }
        if self.parts.iter().any(|part| matches!(part, ScanPart::Pieces(_))) {
            let label = if self.index.is_some() { "tail" } else { "pieces" };
            write!(f, ", {label}={}", self.pieces().count())?;
        }
        if let Some(found) = self.dynamic_filters.lookup() {
            write!(f, ", while joining: {found}")?;
        }
        if self.newest_first {
            f.write_str(", newest first")?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &str {
        "Scan"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reader = self.reader(partition);
        let schema: SchemaRef = self.projection.schema().clone();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(reader))))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        let rows = self.rows(partition);
        let mut statistics = Statistics::new_unknown(self.projection.schema());
        let whole = self.parts.iter().all(|part| matches!(part, ScanPart::Pieces(_)));
        // With a limit each part returns up to that many rows: their sum is not the answer's count.
        statistics.num_rows = if self.exact && whole && (self.limit.is_none() || partition.is_some()) {
            Precision::Exact(rows)
        } else {
            Precision::Inexact(rows)
        };
        if self.exact && whole && self.limit.is_none() && partition.is_none() {
            self.bounds_of_time(&mut statistics);
        }
        Ok(statistics)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    /// Forgets the filters that were learned while the plan ran.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Scan { dynamic_filters: Arc::default(), ..self.with(self.limit, self.newest_first) }))
    }

    /// Accepts the filters that sorts push down while they run. The scan may return more rows than they accept, so the nodes
    /// above still filter.
    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters: Vec<_> = result.parent_filters.iter().map(|given| given.filter.clone()).collect();
        let taken =
            FilterPushdownPropagation::with_parent_pushdown_result(vec![PushedDown::No; filters.len()]);
        let is_unfit = self.coverage.is_none() || filters.is_empty();
        if phase != FilterPushdownPhase::Post || is_unfit {
            return Ok(taken);
        }
        let dynamic_filters = Arc::new(DynamicFilters::of(filters));
        let scan = Scan { dynamic_filters, ..self.with(self.limit, self.newest_first) };
        Ok(taken.with_updated_node(Arc::new(scan)))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(self.with(limit, self.newest_first)))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    /// Accepts a descending sort by row id or arrival by reading the newest rows first: the sort above then ends at its limit.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let column = order.first().filter(|first| first.options.descending);
        let column = column.and_then(|first| first.expr.as_any().downcast_ref::<Column>());
        let is_ours = column.is_some_and(|column| {
            [ROW_ID, TIME].into_iter().any(|id| position(&self.projection, id) == Some(column.index()))
        });
        if self.newest_first || self.limit.is_some() {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        if !is_ours || !in_row_order(&self.parts) {
            return Ok(match self.with_first_pieces_first(order) {
                Some(scan) => SortOrderPushdownResult::Inexact { inner: Arc::new(scan) },
                None => SortOrderPushdownResult::Unsupported,
            });
        }
        Ok(SortOrderPushdownResult::Inexact { inner: Arc::new(self.with(None, true)) })
    }
}

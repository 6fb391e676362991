//! Reading a snapshot's pieces: one stream a part, batches of at most 8192 rows, in row-id order.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use table::{BATCH_ROWS, Piece, Projection, Snapshot};
use types::{ROW_ID, ROW_ID_NAME, RowId, TIME, TIME_NAME};

use crate::provider::position;

/// What one partition reads.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Pieces(Vec<Piece>),
    /// Found by key or row id.
    Rows(Vec<RowId>),
}

/// The physical scan of one table.
#[derive(Debug)]
pub(crate) struct Scan {
    snapshot: Arc<Snapshot>,
    projection: Projection,
    parts: Arc<Vec<Part>>,
    /// The index that found rows, by its name.
    index: Option<String>,
    /// Whether every row read is wanted: then the counts are exact.
    exact: bool,
    /// Rows that are wanted of each part at most.
    limit: Option<usize>,
    /// Whether each part is read from its end: for the newest rows.
    newest_first: bool,
    properties: Arc<PlanProperties>,
}

impl Scan {
    pub fn new(
        snapshot: Arc<Snapshot>,
        projection: Projection,
        parts: Vec<Part>,
        exact: bool,
        limit: Option<usize>,
    ) -> Self {
        let properties = properties(&projection, parts.len(), false);
        let parts = Arc::new(parts);
        Scan { snapshot, projection, parts, index: None, exact, limit, newest_first: false, properties }
    }

    pub fn found_by(self, index: String) -> Self {
        Scan { index: Some(index), ..self }
    }

    fn with(&self, limit: Option<usize>, newest_first: bool) -> Self {
        let properties = if newest_first == self.newest_first {
            self.properties.clone()
        } else {
            properties(&self.projection, self.parts.len(), newest_first)
        };
        Scan {
            snapshot: self.snapshot.clone(),
            projection: self.projection.clone(),
            parts: self.parts.clone(),
            index: self.index.clone(),
            exact: self.exact,
            limit,
            newest_first,
            properties,
        }
    }

    /// Rows that are looked up one by one.
    pub fn lookups(&self) -> usize {
        self.found().map(<[RowId]>::len).sum()
    }

    fn found(&self) -> impl Iterator<Item = &[RowId]> {
        self.parts.iter().map(|part| match part {
            Part::Rows(rows) => rows.as_slice(),
            Part::Pieces(_) => &[],
        })
    }

    pub fn is_newest_first(&self) -> bool {
        self.newest_first
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.parts.iter().flat_map(|part| match part {
            Part::Pieces(pieces) => pieces.as_slice(),
            Part::Rows(_) => &[],
        })
    }

    /// What is read of files for the first time, with all columns: so much is checked.
    pub fn untouched_bytes(&self) -> u64 {
        let looked_up = self.found().map(|rows| self.snapshot.untouched_bytes(rows)).sum::<u64>();
        looked_up + self.pieces().map(Piece::untouched_bytes).sum::<u64>()
    }

    /// About what a row takes, with all columns.
    pub fn row_bytes(&self) -> u64 {
        self.snapshot.bytes() / self.snapshot.rows().max(1)
    }

    /// Rows that are read, of one part or of all.
    pub fn rows(&self, partition: Option<usize>) -> usize {
        let of_part = |part: &Part| {
            let rows = match part {
                Part::Pieces(pieces) => pieces.iter().map(Piece::rows).sum(),
                Part::Rows(rows) => rows.len(),
            };
            rows.min(self.limit.unwrap_or(usize::MAX))
        };
        match partition {
            Some(i) => self.parts.get(i).map_or(0, of_part),
            None => self.parts.iter().map(of_part).sum(),
        }
    }
}

/// `_time` never falls with the row id, so a part is in the order of both;
/// read from its end, in the opposite of both.
fn properties(projection: &Projection, parts: usize, newest_first: bool) -> Arc<PlanProperties> {
    let options = SortOptions { descending: newest_first, nulls_first: newest_first };
    let ordering = |id, name| {
        let column = Arc::new(Column::new(name, position(projection, id)?));
        Some([PhysicalSortExpr::new(column, options)])
    };
    let orderings = [ordering(ROW_ID, ROW_ID_NAME), ordering(TIME, TIME_NAME)].into_iter().flatten();
    let equivalence = EquivalenceProperties::new_with_orderings(projection.schema().clone(), orderings);
    let partitioning = Partitioning::UnknownPartitioning(parts);
    Arc::new(PlanProperties::new(equivalence, partitioning, EmissionType::Incremental, Boundedness::Bounded))
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.projection.schema().fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, "Scan: table={}, columns=[{}]", self.snapshot.def().name, names.join(", "))?;
        if let Some(index) = &self.index {
            write!(f, ", index={index}")?;
        }
        if self.parts.iter().any(|part| matches!(part, Part::Rows(_))) {
            write!(f, ", lookup={} rows", self.lookups())?;
        }
        if self.parts.iter().any(|part| matches!(part, Part::Pieces(_))) {
            let label = if self.index.is_some() { "tail" } else { "pieces" };
            write!(f, ", {label}={}", self.pieces().count())?;
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
        let reader = Reader {
            snapshot: self.snapshot.clone(),
            projection: self.projection.clone(),
            parts: self.parts.clone(),
            partition,
            next: 0,
            left: self.limit.unwrap_or(usize::MAX),
            newest_first: self.newest_first,
        };
        let schema: SchemaRef = self.projection.schema().clone();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(reader))))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        let rows = self.rows(partition);
        let mut statistics = Statistics::new_unknown(self.projection.schema());
        let whole = self.parts.iter().all(|part| matches!(part, Part::Pieces(_)));
        // With a limit each part gives up to as many: the sum is not the answer's count.
        statistics.num_rows = if self.exact && whole && (self.limit.is_none() || partition.is_some()) {
            Precision::Exact(rows)
        } else {
            Precision::Inexact(rows)
        };
        Ok(statistics)
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

    /// The newest rows first: the sort above finds its input in order then, and ends at its limit.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let column = order.first().filter(|first| first.options.descending);
        let column = column.and_then(|first| first.expr.as_any().downcast_ref::<Column>());
        let is_ours = column.is_some_and(|column| {
            [ROW_ID, TIME].into_iter().any(|id| position(&self.projection, id) == Some(column.index()))
        });
        if !is_ours || self.newest_first || self.limit.is_some() {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        Ok(SortOrderPushdownResult::Inexact { inner: Arc::new(self.with(None, true)) })
    }
}

/// Reads one part, a piece at a time, when it is asked to.
struct Reader {
    snapshot: Arc<Snapshot>,
    projection: Projection,
    parts: Arc<Vec<Part>>,
    partition: usize,
    next: usize,
    left: usize,
    newest_first: bool,
}

impl Reader {
    fn read(&mut self) -> Option<types::Result<RecordBatch>> {
        let _reading = vfs::read_path();
        match &self.parts[self.partition] {
            Part::Pieces(pieces) => {
                let at = self.next;
                self.next += 1;
                let piece = if self.newest_first { pieces.iter().rev().nth(at) } else { pieces.get(at) };
                Some(piece?.read(&self.projection))
            }
            Part::Rows(rows) => {
                let left = rows.len().checked_sub(self.next).filter(|left| *left > 0)?;
                let count = left.min(BATCH_ROWS);
                let rows =
                    if self.newest_first { &rows[left - count..left] } else { &rows[self.next..][..count] };
                self.next += count;
                Some(self.snapshot.fetch(rows, &self.projection))
            }
        }
    }
}

fn reversed(batch: &RecordBatch) -> Result<RecordBatch> {
    let last_first = UInt32Array::from_iter_values((0..batch.num_rows() as u32).rev());
    Ok(take_record_batch(batch, &last_first)?)
}

impl Iterator for Reader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let batch = match self.read()? {
            Ok(batch) => batch,
            Err(error) => {
                self.left = 0;
                return Some(Err(DataFusionError::External(Box::new(error))));
            }
        };
        let batch = match self.newest_first.then(|| reversed(&batch)) {
            None => batch,
            Some(Ok(batch)) => batch,
            Some(Err(error)) => return Some(Err(error)),
        };
        let batch = if batch.num_rows() > self.left { batch.slice(0, self.left) } else { batch };
        self.left -= batch.num_rows();
        Some(Ok(batch))
    }
}

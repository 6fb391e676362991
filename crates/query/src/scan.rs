//! Reading a snapshot's pieces: one stream a part, batches of at most 8192 rows, in row-id order.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
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
    /// Whether every row read is wanted: then the counts are exact.
    exact: bool,
    /// Rows that are wanted of each part at most.
    limit: Option<usize>,
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
        let schema = projection.schema().clone();
        let ordering = |id, name| {
            let column = Arc::new(Column::new(name, position(&projection, id)?));
            Some([PhysicalSortExpr::new(column, SortOptions { descending: false, nulls_first: false })])
        };
        // `_time` never falls with the row id, so a part is in the order of both.
        let orderings = [ordering(ROW_ID, ROW_ID_NAME), ordering(TIME, TIME_NAME)].into_iter().flatten();
        let equivalence = EquivalenceProperties::new_with_orderings(schema, orderings);
        let partitioning = Partitioning::UnknownPartitioning(parts.len());
        let properties =
            PlanProperties::new(equivalence, partitioning, EmissionType::Incremental, Boundedness::Bounded);
        Scan { snapshot, projection, parts: Arc::new(parts), exact, limit, properties: Arc::new(properties) }
    }

    fn rows(&self, partition: Option<usize>) -> usize {
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

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.projection.schema().fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, "Scan: table={}, columns=[{}]", self.snapshot.def().name, names.join(", "))?;
        match self.parts.as_slice() {
            [Part::Rows(rows)] => write!(f, ", lookup={} rows", rows.len())?,
            parts => {
                let pieces = parts.iter().map(|p| if let Part::Pieces(p) = p { p.len() } else { 0 });
                write!(f, ", pieces={}", pieces.sum::<usize>())?;
            }
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
        Some(Arc::new(Scan {
            snapshot: self.snapshot.clone(),
            projection: self.projection.clone(),
            parts: self.parts.clone(),
            exact: self.exact,
            limit,
            properties: self.properties.clone(),
        }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
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
}

impl Reader {
    fn read(&mut self) -> Option<types::Result<RecordBatch>> {
        match &self.parts[self.partition] {
            Part::Pieces(pieces) => {
                let piece = pieces.get(self.next)?;
                self.next += 1;
                Some(piece.read(&self.projection))
            }
            Part::Rows(rows) => {
                let rows = rows.get(self.next..).filter(|rest| !rest.is_empty())?;
                let rows = &rows[..rows.len().min(BATCH_ROWS)];
                self.next += rows.len();
                Some(self.snapshot.fetch(rows, &self.projection))
            }
        }
    }
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
        let batch = if batch.num_rows() > self.left { batch.slice(0, self.left) } else { batch };
        self.left -= batch.num_rows();
        Some(Ok(batch))
    }
}

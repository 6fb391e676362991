//! Bounds the batches that a cross join makes.
//!
//! DataFusion repeats each row of the left side for a whole batch of the right side, which copies a row of megabytes thousands of
//! times. Here the batches of the right side are split by the length of the longest row of the left side.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType as Arrow;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::CrossJoinExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use crate::functions::result_limits::BATCH_BYTES_MAX;

/// Returns the same join with both sides wrapped.
pub fn with_bounded_batches(join: &CrossJoinExec) -> CrossJoinExec {
    let longest = Arc::new(AtomicUsize::new(0));
    let side = |role, input: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
        Arc::new(CrossJoinSide { role, longest: longest.clone(), input: input.clone() })
    };
    CrossJoinExec::new(side(Role::Repeated, join.left()), side(Role::Cut, join.right()))
}

#[derive(Clone, Copy, Debug)]
enum Role {
    /// The left side. It is read to its end before the first read of the right side.
    Repeated,
    /// The right side, whose batches are split.
    Cut,
}

#[derive(Debug)]
struct CrossJoinSide {
    role: Role,
    /// Bytes of the longest row of the left side so far.
    longest: Arc<AtomicUsize>,
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for CrossJoinSide {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LongRowsExec: {:?}", self.role)
    }
}

impl ExecutionPlan for CrossJoinSide {
    fn name(&self) -> &'static str {
        "LongRowsExec"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().ok_or_else(|| DataFusionError::Internal("one child expected".into()))?;
        Ok(Arc::new(CrossJoinSide { role: self.role, longest: self.longest.clone(), input }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (schema, longest) = (input.schema(), self.longest.clone());
        Ok(match self.role {
            Role::Repeated => {
                let measured = input.inspect_ok(move |batch| {
                    longest.fetch_max(longest_row_bytes(batch), Ordering::Relaxed);
                });
                Box::pin(RecordBatchStreamAdapter::new(schema, measured))
            }
            Role::Cut => {
                let cut = input.flat_map(move |batch| {
                    let rows = rows_each(longest.load(Ordering::Relaxed));
                    stream::iter(batch.map_or_else(|error| vec![Err(error)], |batch| parts(&batch, rows)))
                });
                Box::pin(RecordBatchStreamAdapter::new(schema, cut))
            }
        })
    }
}

/// Returns for how many rows of the right side a row of `row_bytes` bytes may be repeated in one batch.
fn rows_each(row_bytes: usize) -> usize {
    (BATCH_BYTES_MAX as usize / row_bytes.max(1)).max(1)
}

/// Splits a batch into parts of `rows` rows.
fn parts(batch: &RecordBatch, rows: usize) -> Vec<Result<RecordBatch>> {
    let starts = (0..batch.num_rows()).step_by(rows);
    starts.map(|start| Ok(batch.slice(start, rows.min(batch.num_rows() - start)))).collect()
}

/// Returns an upper bound of the bytes of the longest row.
fn longest_row_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(longest_value_bytes).sum()
}

fn longest_value_bytes(array: &ArrayRef) -> usize {
    let each = |row: usize| {
        let data = array.slice(row, 1).to_data();
        data.get_slice_memory_size().unwrap_or_else(|_| data.get_array_memory_size())
    };
    match array.data_type() {
        Arrow::Utf8View => array.as_string_view().lengths().max().unwrap_or(0) as usize,
        Arrow::BinaryView => array.as_binary_view().lengths().max().unwrap_or(0) as usize,
        data_type => match data_type.primitive_width() {
            Some(width) => width,
            None => (0..array.len()).map(each).max().unwrap_or(0),
        },
    }
}

//! Copies batches that are small slices of large buffers, below the nodes that keep them.
//!
//! A batch of a table is a slice of something larger: of the batch written in one commit, or of a block in a file. A node that
//! keeps it is charged for the whole buffers, once per batch: a sort of a commit of a million rows has no memory for the first
//! 8,192, and nothing yet that it could spill. So below sorts, and below the kept side of joins, rows are copied out of buffers
//! that are much larger. Rows that were filtered or computed are copies already.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{
    Array, ArrayRef, BinaryViewArray, MutableArrayData, RecordBatch, RecordBatchOptions, StringViewArray,
    make_array,
};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt};

/// Bytes that an array may hold in addition to its rows.
const SPARE_BYTES: usize = 4 << 10;

/// Returns the plan with [`CompactExec`] nodes below all nodes that keep batches.
pub(crate) fn with_compact_nodes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let compacted = plan.transform_up(|plan| {
        let any = plan.as_any();
        let keeps = any.is::<SortExec>()
            || any.is::<HashJoinExec>()
            || any.is::<NestedLoopJoinExec>()
            || any.is::<CrossJoinExec>();
        if !keeps {
            return Ok(Transformed::no(plan));
        }
        // Joins keep their left side.
        let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
        if let Some(kept) = children.first_mut() {
            *kept = Arc::new(CompactExec { inner: kept.clone() });
        }
        plan.with_new_children(children).map(Transformed::yes)
    });
    compacted.data()
}

/// A plan node that compacts batches; see the module.
#[derive(Debug)]
pub(crate) struct CompactExec {
    inner: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for CompactExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compact")
    }
}

impl ExecutionPlan for CompactExec {
    fn name(&self) -> &str {
        "Compact"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = children.pop().ok_or_else(|| DataFusionError::Internal("one child expected".into()))?;
        Ok(Arc::new(CompactExec { inner }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(CompactStream { inner: self.inner.execute(partition, context)? }))
    }
}

struct CompactStream {
    inner: SendableRecordBatchStream,
}

impl Stream for CompactStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll_next_unpin(context).map(|next| next.map(|batch| compact_batch(batch?)))
    }
}

impl RecordBatchStream for CompactStream {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

fn compact_batch(batch: RecordBatch) -> Result<RecordBatch> {
    if !batch.columns().iter().any(is_small_slice) {
        return Ok(batch);
    }
    let own = |column: &ArrayRef| if is_small_slice(column) { copy_array(column) } else { column.clone() };
    let columns = batch.columns().iter().map(own).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

/// Returns true if an array is a small part of the buffers that it holds.
fn is_small_slice(array: &ArrayRef) -> bool {
    let held = array.get_buffer_memory_size();
    let own = array.to_data().get_slice_memory_size().unwrap_or(held) + views_bytes(array);
    held > own.saturating_mul(2).saturating_add(SPARE_BYTES)
}

/// Bytes of the texts that a view array refers to; its slice size counts only the views.
fn views_bytes(array: &ArrayRef) -> usize {
    let any = array.as_any();
    match (any.downcast_ref::<StringViewArray>(), any.downcast_ref::<BinaryViewArray>()) {
        (Some(views), _) => views.total_buffer_bytes_used(),
        (_, Some(views)) => views.total_buffer_bytes_used(),
        _ => 0,
    }
}

fn copy_array(array: &ArrayRef) -> ArrayRef {
    let any = array.as_any();
    if let Some(views) = any.downcast_ref::<StringViewArray>() {
        return Arc::new(views.gc());
    }
    if let Some(views) = any.downcast_ref::<BinaryViewArray>() {
        return Arc::new(views.gc());
    }
    let data = array.to_data();
    let mut own = MutableArrayData::new(vec![&data], false, data.len());
    own.extend(0, 0, data.len());
    make_array(own.freeze())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn a_piece_of_a_large_batch_becomes_its_own() {
        let texts: StringArray = (0..10_000).map(|i| Some(format!("text {i} of a row"))).collect();
        let views: StringViewArray = (0..10_000).map(|i| Some(format!("text {i} of a row"))).collect();
        let numbers: Int64Array = (0..10_000).map(|i| (i % 3 > 0).then_some(i)).collect();
        let fields = vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("v", DataType::Utf8View, true),
            Field::new("n", DataType::Int64, true),
        ];
        let columns: Vec<ArrayRef> = vec![Arc::new(texts), Arc::new(views), Arc::new(numbers)];
        let whole = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let piece = whole.slice(5_000, 100);
        let own = compact_batch(piece.clone()).unwrap();
        assert_eq!(own, piece);
        assert!(own.get_array_memory_size() < 20_000, "{}", own.get_array_memory_size());
        // A slice with most of the rows is not copied.
        let most = whole.slice(0, 9_000);
        let kept = compact_batch(most.clone()).unwrap();
        assert_eq!(
            kept.column(0).to_data().buffers()[1].as_ptr(),
            most.column(0).to_data().buffers()[1].as_ptr()
        );
    }
}

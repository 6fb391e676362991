//! Helpers for record batches whose first column is the row id, ascending.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use types::RowId;

/// Returns the last row id of a batch, or `None` if the batch is empty.
pub(crate) fn last(batch: &RecordBatch) -> Option<RowId> {
    let ids = batch.column(0).as_primitive_opt::<Int64Type>()?;
    (!ids.is_empty()).then(|| RowId(ids.value(ids.len() - 1) as u64))
}

/// Returns the rows of a batch up to and including `last`.
pub(crate) fn up_to(batch: &RecordBatch, last: RowId) -> RecordBatch {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    batch.slice(0, ids.values().partition_point(|id| *id as u64 <= last.0))
}

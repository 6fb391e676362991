//! What arrays take and what they keep alive.

use std::collections::HashSet;

use arrow::array::{Array, ArrayData, ArrayRef, MutableArrayData, RecordBatch, make_array};
use arrow::buffer::Buffer;

/// Bytes that the batch's values need: slices count only what they show.
pub(crate) fn used(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(used_by).sum()
}

/// [`used`] for one column.
pub(crate) fn used_by(array: &ArrayRef) -> u64 {
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size()) as u64
}

/// Bytes that the batch keeps from being freed: each allocation once, whole.
pub(crate) fn held(batch: &RecordBatch) -> u64 {
    fn buffer(buffer: &Buffer, seen: &mut HashSet<usize>) -> u64 {
        if seen.insert(buffer.data_ptr().as_ptr() as usize) { buffer.capacity() as u64 } else { 0 }
    }
    fn data(d: &ArrayData, seen: &mut HashSet<usize>) -> u64 {
        let nulls = d.nulls().map_or(0, |n| buffer(n.buffer(), seen));
        let own: u64 = d.buffers().iter().map(|b| buffer(b, seen)).sum();
        nulls + own + d.child_data().iter().map(|child| data(child, seen)).sum::<u64>()
    }
    let mut seen = HashSet::new();
    batch.columns().iter().map(|c| data(&c.to_data(), &mut seen)).sum()
}

/// Whether keeping the batch would keep much more memory than it shows.
pub(crate) fn pins(used: u64, held: u64) -> bool {
    held > used + used / 4 + 4096
}

/// The same values in memory of their own, without room to spare.
pub(crate) fn copied(batch: &RecordBatch) -> RecordBatch {
    let copy = |column: &ArrayRef| {
        let data = column.to_data();
        let mut out = MutableArrayData::new(vec![&data], false, data.len());
        out.extend(0, 0, data.len());
        let mut array = make_array(out.freeze());
        array.shrink_to_fit();
        array
    };
    let columns = batch.columns().iter().map(copy).collect();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
        .expect("a copy fits the schema of its original")
}

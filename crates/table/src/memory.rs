//! The memory that arrays use and keep alive.

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, MutableArrayData, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{
    DataType as Arrow, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use types::memory::slice_bytes;

/// Bytes that the batch's values need: a slice counts only the values that it shows.
pub(crate) fn used(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(used_by).sum()
}

/// Bytes that one column's values need, counted as in [`used`].
pub(crate) fn used_by(array: &ArrayRef) -> u64 {
    slice_bytes(array) as u64
}

/// Bytes that the batch keeps from being freed: each allocation counts once, and whole.
pub(crate) fn held(batch: &RecordBatch) -> u64 {
    fn data(d: &ArrayData, see: &mut impl FnMut(&Buffer)) {
        d.nulls().into_iter().for_each(|nulls| see(nulls.buffer()));
        d.buffers().iter().for_each(&mut *see);
        d.child_data().iter().for_each(|child| data(child, see));
    }
    let mut allocations: Vec<(usize, u64)> = Vec::with_capacity(batch.num_columns() * 2);
    let mut see = |buffer: &Buffer| {
        allocations.push((buffer.data_ptr().as_ptr().addr(), buffer.capacity() as u64));
    };
    for column in batch.columns() {
        // Batches of one row are frequent, and building their `ArrayData` would take more allocations than the batch has.
        match column.data_type() {
            Arrow::Int64 => see(column.as_primitive::<Int64Type>().values().inner()),
            Arrow::Int32 => see(column.as_primitive::<Int32Type>().values().inner()),
            Arrow::Float64 => see(column.as_primitive::<Float64Type>().values().inner()),
            Arrow::Timestamp(TimeUnit::Microsecond, _) => {
                see(column.as_primitive::<TimestampMicrosecondType>().values().inner());
            }
            Arrow::Utf8 => {
                let texts = column.as_string::<i32>();
                see(texts.offsets().inner().inner());
                see(texts.values());
            }
            _ => {
                data(&column.to_data(), &mut see);
                continue;
            }
        }
        column.nulls().into_iter().for_each(|nulls| see(nulls.buffer()));
    }
    allocations.sort_unstable();
    allocations.dedup_by_key(|(address, _)| *address);
    allocations.iter().map(|(_, bytes)| bytes).sum()
}

/// Returns true if keeping the batch would keep much more memory alive than its values need.
pub(crate) fn pins(used: u64, held: u64) -> bool {
    held > used + used / 4 + 4096
}

/// Copies the values into memory of their own, without spare room.
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

//! Measures batches, to bound the bytes that are encoded at once.

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType as Arrow;
use arrow::record_batch::RecordBatch;
use types::{Error, Kind, Result};

/// Maximum number of bytes of one row. A row is encoded in one go, so its text, several times as long, is in memory at once.
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// Returns a number of first rows, at least one, that take about `bytes`.
pub fn rows_within(batch: &RecordBatch, bytes: usize) -> usize {
    let mut rows = batch.num_rows();
    while rows > 1 && first_rows(batch, rows) > bytes {
        rows /= 2;
    }
    rows
}

/// Fails if the first row is too large to be written.
pub fn check_row(batch: &RecordBatch) -> Result<()> {
    let bytes = first_rows(batch, 1);
    if bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("a row of {} MiB is in the answer, more than {} MiB", bytes >> 20, ROW_BYTES_MAX >> 20);
    Err(Error::new(Kind::TooLarge, message)
        .hint("ask for fewer columns, or for parts of long values with substr"))
}

fn first_rows(batch: &RecordBatch, rows: usize) -> usize {
    batch.columns().iter().map(|column| bytes(column, 0, rows)).fold(0, usize::saturating_add)
}

/// Returns the bytes of some values, exactly for types of variable length. Arrow's own figure covers all buffers that an array
/// shares.
fn bytes(array: &dyn Array, start: usize, len: usize) -> usize {
    let end = start + len;
    let within = |from: usize, to: usize| to.saturating_sub(from);
    let list = |values: &dyn Array, from: usize, to: usize| {
        let inner = if to > from { bytes(values, from, to - from) } else { 0 };
        inner.saturating_add(8 * len)
    };
    match array.data_type() {
        Arrow::Utf8 => {
            let offsets = array.as_string::<i32>().value_offsets();
            within(offsets[start] as usize, offsets[end] as usize)
        }
        Arrow::LargeUtf8 => {
            let offsets = array.as_string::<i64>().value_offsets();
            within(offsets[start] as usize, offsets[end] as usize)
        }
        Arrow::Binary => {
            let offsets = array.as_binary::<i32>().value_offsets();
            within(offsets[start] as usize, offsets[end] as usize)
        }
        Arrow::LargeBinary => {
            let offsets = array.as_binary::<i64>().value_offsets();
            within(offsets[start] as usize, offsets[end] as usize)
        }
        // The lower 32 bits of a view are its length.
        Arrow::Utf8View => {
            array.as_string_view().views()[start..end].iter().map(|view| *view as u32 as usize).sum()
        }
        Arrow::BinaryView => {
            array.as_binary_view().views()[start..end].iter().map(|view| *view as u32 as usize).sum()
        }
        Arrow::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            list(lists.values(), offsets[start] as usize, offsets[end] as usize)
        }
        Arrow::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            list(lists.values(), offsets[start] as usize, offsets[end] as usize)
        }
        Arrow::FixedSizeList(_, each) => {
            let each = usize::try_from(*each).unwrap_or(0);
            list(array.as_fixed_size_list().values(), start * each, end * each)
        }
        Arrow::Map(..) => {
            let map = array.as_map();
            let offsets = map.value_offsets();
            list(map.entries(), offsets[start] as usize, offsets[end] as usize)
        }
        Arrow::Struct(_) => {
            let columns = array.as_struct().columns();
            columns.iter().map(|column| bytes(column, start, len)).fold(0, usize::saturating_add)
        }
        other => other.primitive_width().unwrap_or(16).saturating_mul(len),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, ListArray, StringArray, StringViewArray, StructArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn a_row_is_measured_by_itself_and_not_by_the_batch_it_came_in() {
        let long = "x".repeat(1_000);
        let texts = [long.as_str(), "a", "bc", ""];
        let lists = (0..4).map(|i| Some(vec![Some(1i64); i * 10]));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("text", Arc::new(StringArray::from_iter_values(texts))),
            ("view", Arc::new(StringViewArray::from_iter_values(texts))),
            ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ];
        let inner: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
        let field = arrow::datatypes::Field::new("n", Arrow::Int32, true);
        let nested: ArrayRef = Arc::new(StructArray::from(vec![(Arc::new(field), inner)]));
        let batch = RecordBatch::try_from_iter(columns.into_iter().chain([("struct", nested)])).unwrap();
        assert_eq!(first_rows(&batch, 1), 1_000 + 1_000 + 8 + 4);
        assert_eq!(first_rows(&batch.slice(1, 3), 1), 1 + 1 + (10 * 8 + 8) + 4);
        assert_eq!(first_rows(&batch.slice(2, 2), 2), 2 + 2 + (50 * 8 + 16) + 8);
        assert_eq!(rows_within(&batch, 100), 1);
        assert_eq!(rows_within(&batch.slice(1, 3), 1 << 20), 3);
    }
}

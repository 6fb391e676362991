//! The memory size of Arrow arrays.

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;

/// Returns the bytes that the values of an array need; a slice counts only its own rows. The result equals
/// [`ArrayData::get_slice_memory_size`], which this calls for nested arrays. Calling it for all arrays would be
/// slower: it needs an [`ArrayData`] first, which takes a dozen allocations for each single-row batch.
///
/// [`ArrayData`]: arrow::array::ArrayData
/// [`ArrayData::get_slice_memory_size`]: arrow::array::ArrayData::get_slice_memory_size
pub fn slice_bytes(array: &dyn Array) -> usize {
    let (rows, data_type) = (array.len(), array.data_type());
    let shown = |offsets: &[i32]| (offsets[rows] - offsets[0]) as usize + rows * 4;
    let values = match data_type {
        DataType::Utf8 => shown(array.as_string::<i32>().value_offsets()),
        DataType::Binary => shown(array.as_binary::<i32>().value_offsets()),
        DataType::Boolean => rows.div_ceil(8),
        _ => match data_type.primitive_width() {
            Some(width) => rows * width,
            None => {
                let bytes = array.to_data().get_slice_memory_size();
                return bytes.unwrap_or_else(|_| array.get_array_memory_size());
            }
        },
    };
    values + array.nulls().map_or(0, |_| rows.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float32Array, Int64Array,
        ListArray, StringArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn the_short_ways_come_to_what_arrow_counts() {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter([Some(1), None, Some(3)])),
            Arc::new(Int64Array::from_iter_values(0..100)),
            Arc::new(Float32Array::from_iter_values([1.0, 2.0])),
            Arc::new(TimestampMicrosecondArray::from_value(1, 9).with_timezone("UTC")),
            Arc::new(Decimal128Array::from_iter_values([1, 2, 3])),
            Arc::new(BooleanArray::from_iter((0..19).map(|i| (i != 3).then_some(i % 2 == 0)))),
            Arc::new(StringArray::from_iter(["", "one", "twenty"].map(Some).into_iter().chain([None]))),
            Arc::new(BinaryArray::from_iter_values(["one", "twenty", "three", "four"])),
            Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8; 16], [2; 16]].into_iter()).unwrap()),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None])),
        ];
        for array in arrays {
            for part in [array.clone(), array.slice(1, array.len() - 1), array.slice(0, 0)] {
                let wanted = part.to_data().get_slice_memory_size().unwrap();
                assert_eq!(slice_bytes(&part), wanted, "{} of {}", part.data_type(), part.len());
            }
        }
    }
}

//! Upper bound of a batch's encoded length, computed before anything is encoded or applied.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field};

use super::width;

/// Bytes that an array can take besides its values: flags, alignment of up to three buffers, and the field's part of the schema
/// without its name.
const NODE_BYTES: u64 = 64;

/// Returns the number of bytes that these rows can take in a frame at most, alone or joined with other rows of the same schema.
/// Validity bitmaps and nulls count in full, since joined rows with values make them necessary.
pub fn bytes_max(batch: &RecordBatch) -> u64 {
    let fields = batch.schema_ref().fields().iter();
    let columns = fields.zip(batch.columns()).map(|(field, column)| node(field, column.as_ref()));
    columns.sum::<u64>() + NODE_BYTES
}

fn node(field: &Field, array: &dyn Array) -> u64 {
    let len = array.len() as u64;
    let bits = len.div_ceil(8);
    let offsets = (len + 1) * 4;
    let between = |offsets: &[i32]| match offsets {
        [first, .., last] => (*first as usize, (last - first) as usize),
        _ => (0, 0),
    };
    let values = match array.data_type() {
        DataType::Boolean => bits,
        DataType::Utf8 => offsets + between(array.as_string::<i32>().value_offsets()).1 as u64,
        DataType::Binary => offsets + between(array.as_binary::<i32>().value_offsets()).1 as u64,
        DataType::FixedSizeBinary(width) => len * *width as u64,
        DataType::List(item) => {
            let array = array.as_list::<i32>();
            let (start, items) = between(array.value_offsets());
            offsets + node(item, array.values().slice(start, items).as_ref())
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            fields.iter().zip(columns).map(|(field, column)| node(field, column.as_ref())).sum()
        }
        DataType::FixedSizeList(item, width) => {
            let array = array.as_fixed_size_list();
            node(item, array.values().slice(0, array.len() * *width as usize).as_ref())
        }
        // Types that the log does not support are refused when they are encoded.
        other => len * width(other).unwrap_or(16) as u64,
    };
    NODE_BYTES + field.name().len() as u64 + bits + values
}

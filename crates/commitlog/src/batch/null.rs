//! Arrays in which every slot is null: common in wide sparse tables, and stored as one byte.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, FixedSizeListArray, make_array, new_null_array};
use arrow::buffer::{Buffer, MutableBuffer, NullBuffer};
use arrow::datatypes::DataType;
use types::{Error, Result};

use super::width;

/// Returns the bytes of memory that `slots` nulls take, or `None` for a type that is never stored that way.
pub(super) fn memory(data_type: &DataType, slots: u64) -> Option<u64> {
    let bitmap = slots / 8 + 1;
    let values = match data_type {
        DataType::Boolean => bitmap,
        DataType::Utf8 | DataType::Binary | DataType::List(_) => slots.checked_add(1)?.checked_mul(4)?,
        DataType::FixedSizeList(item, len) => {
            // A nullable child would need nulls of its own; vectors have none.
            width(item.data_type()).filter(|_| !item.is_nullable())?;
            let len = u64::try_from(*len).ok()?;
            slots.checked_mul(len)?.checked_mul(width(item.data_type())? as u64)?
        }
        other => slots.checked_mul(width(other)? as u64)?,
    };
    bitmap.checked_add(values)
}

/// Makes an array of `slots` nulls. Only for types whose size [`memory`] knows.
pub(super) fn array(data_type: &DataType, slots: usize) -> Result<ArrayRef> {
    let DataType::FixedSizeList(item, len) = data_type else {
        return Ok(new_null_array(data_type, slots));
    };
    // Arrow's own `new_null_array` makes the child null as well, which a NOT NULL child must not be, even behind a null.
    let count = slots * *len as usize;
    let bytes = count * width(item.data_type()).unwrap_or(0);
    let zeros: Buffer = MutableBuffer::from_len_zeroed(bytes).into();
    let impossible = |e| Error::internal("building a column of nulls failed").caused_by(e);
    let child = arrow::array::ArrayData::builder(item.data_type().clone()).len(count).add_buffer(zeros);
    let child = make_array(child.build().map_err(impossible)?);
    let nulls = NullBuffer::new_null(slots);
    let array =
        FixedSizeListArray::try_new(Arc::clone(item), *len, child, Some(nulls)).map_err(impossible)?;
    debug_assert_eq!(array.len(), slots);
    Ok(Arc::new(array))
}

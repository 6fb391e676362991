//! Arguments of functions that go over texts row by row. A constant is kept once: a copy for each row of a batch would multiply a
//! long text by 8,192.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

/// An argument as texts or as whole numbers: one value for each row, or one for all of them.
pub struct TextOrNumber {
    array: ArrayRef,
    is_constant: bool,
}

impl TextOrNumber {
    /// Reads integers as int64, and everything else as text. `rows` is the number of rows of the call.
    pub fn of(value: &ColumnarValue, rows: usize) -> Result<TextOrNumber> {
        let is_constant = matches!(value, ColumnarValue::Scalar(_));
        let array = value.to_array(if is_constant { 1 } else { rows })?;
        let wanted = if array.data_type().is_integer() { Arrow::Int64 } else { Arrow::Utf8 };
        Ok(TextOrNumber { array: cast(&array, &wanted)?, is_constant })
    }

    /// The text of a row; `None` if it is null, or the argument is a number.
    pub fn text(&self, row: usize) -> Option<&str> {
        let (texts, at) = (self.array.as_string_opt::<i32>()?, self.position(row));
        texts.is_valid(at).then(|| texts.value(at))
    }

    /// The number of a row; `None` if it is null, or the argument is a text.
    pub fn number(&self, row: usize) -> Option<i64> {
        let (numbers, at) = (self.array.as_primitive_opt::<Int64Type>()?, self.position(row));
        numbers.is_valid(at).then(|| numbers.value(at))
    }

    fn position(&self, row: usize) -> usize {
        if self.is_constant { 0 } else { row }
    }
}

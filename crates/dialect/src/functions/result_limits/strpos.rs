//! `strpos(text, part)` takes time linear in the text. DataFusion's takes time proportional to the product of both lengths.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::execution::interrupt;

/// Bytes searched between two checks of the deadline.
const BYTES_BETWEEN_CHECKS: usize = 1 << 20;

/// Returns the position, counted from 1, of the character at which the first `part` of a text begins; 0 if there is none.
pub(super) fn invoke(args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let [text, part] = args.args.as_slice() else {
        return Err(DataFusionError::Internal("`strpos` has two arguments".into()));
    };
    let is_constant = [text, part].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let texts = cast(&text.to_array(rows)?, &Arrow::LargeUtf8)?;
    let parts = Parts::of(part, rows)?;
    let mut bytes = 0;
    let mut positions = Vec::with_capacity(rows);
    for (row, text) in texts.as_string::<i64>().iter().enumerate() {
        let (Some(text), Some(part)) = (text, parts.get(row)) else {
            positions.push(None);
            continue;
        };
        bytes += text.len();
        if bytes > BYTES_BETWEEN_CHECKS {
            interrupt::check()?;
            bytes = 0;
        }
        let position = text.find(part).map_or(0, |byte| text[..byte].chars().count() + 1);
        positions.push(Some(position as i64));
    }
    let positions: ArrayRef = Arc::new(Int64Array::from(positions));
    let positions = cast(&positions, args.return_field.data_type())?;
    if is_constant {
        ScalarValue::try_from_array(&positions, 0).map(ColumnarValue::Scalar)
    } else {
        Ok(ColumnarValue::Array(positions))
    }
}

/// The searched parts: one for all rows, or one for each row.
struct Parts {
    texts: ArrayRef,
    is_one: bool,
}

impl Parts {
    fn of(part: &ColumnarValue, rows: usize) -> Result<Parts> {
        let is_one = matches!(part, ColumnarValue::Scalar(_));
        let texts = cast(&part.to_array(if is_one { 1 } else { rows })?, &Arrow::LargeUtf8)?;
        Ok(Parts { texts, is_one })
    }

    fn get(&self, row: usize) -> Option<&str> {
        let (texts, row) = (self.texts.as_string::<i64>(), if self.is_one { 0 } else { row });
        texts.is_valid(row).then(|| texts.value(row))
    }
}

//! `strpos(text, part)` takes time linear in the text. DataFusion's takes time proportional to the product of both lengths.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::cast;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::execution::interrupt;
use crate::functions::text_or_number::TextOrNumber;

/// Bytes searched between two checks of the deadline.
const BYTES_BETWEEN_CHECKS: usize = 1 << 20;

/// Returns the position, counted from 1, of the character at which the first `part` of a text begins; 0 if there is none.
pub(super) fn invoke(args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let [text, part] = args.args.as_slice() else {
        return Err(DataFusionError::Internal("`strpos` has two arguments".into()));
    };
    let is_constant = [text, part].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let (texts, parts) = (TextOrNumber::of(text, rows)?, TextOrNumber::of(part, rows)?);
    let mut bytes = 0;
    let mut positions = Vec::with_capacity(rows);
    for row in 0..rows {
        let (Some(text), Some(part)) = (texts.text(row), parts.text(row)) else {
            positions.push(None);
            continue;
        };
        bytes += text.len() + part.len();
        if bytes > BYTES_BETWEEN_CHECKS {
            interrupt::check()?;
            bytes = 0;
        }
        // The library reads all of the part first, however short the text.
        let found = if part.len() <= text.len() { text.find(part) } else { None };
        let position = found.map_or(0, |byte| text[..byte].chars().count() + 1);
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

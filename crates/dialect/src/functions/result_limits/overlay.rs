//! `overlay(text placing new from start [for count])` counts characters, as in PostgreSQL. DataFusion's counts bytes, and loses a
//! text that ends before `start`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use types::Error;

pub(super) fn invoke(args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
    let (text, new, start, count) = match arrays.as_slice() {
        [text, new, start] => (text, new, start, None),
        [text, new, start, count] => (text, new, start, Some(count)),
        _ => return Err(DataFusionError::Internal("overlay takes three arguments or four".into())),
    };
    let (text, new) = (cast(text, &Arrow::Utf8)?, cast(new, &Arrow::Utf8)?);
    let start = cast(start, &Arrow::Int64)?;
    let count = count.map(|count| cast(count, &Arrow::Int64)).transpose()?;
    let laid = overlay(text.as_string(), new.as_string(), &start, count.as_ref())?;
    let laid = cast(&(Arc::new(laid) as ArrayRef), args.return_field.data_type())?;
    if is_constant {
        return ScalarValue::try_from_array(&laid, 0).map(ColumnarValue::Scalar);
    }
    Ok(ColumnarValue::Array(laid))
}

/// Returns the text before `start`, the new text, and the text from `count` characters after `start`, as in the SQL standard.
fn overlay(
    texts: &StringArray,
    news: &StringArray,
    starts: &ArrayRef,
    counts: Option<&ArrayRef>,
) -> Result<StringArray> {
    let starts = starts.as_primitive::<Int64Type>();
    let counts = counts.map(|counts| counts.as_primitive::<Int64Type>());
    let mut laid = StringBuilder::new();
    for row in 0..texts.len() {
        let is_null = texts.is_null(row)
            || news.is_null(row)
            || starts.is_null(row)
            || counts.is_some_and(|counts| counts.is_null(row));
        if is_null {
            laid.append_null();
            continue;
        }
        let (text, new, start) = (texts.value(row), news.value(row), starts.value(row));
        let before = usize::try_from(start.saturating_sub(1)).map_err(|_| {
            let error = Error::invalid("`overlay` begins at a character, counted from 1");
            DataFusionError::External(Box::new(error))
        })?;
        let count = counts.map_or_else(|| new.chars().count() as i64, |counts| counts.value(row));
        let after = usize::try_from(start.saturating_add(count).saturating_sub(1)).unwrap_or(0);
        let byte = |character: usize| text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte);
        laid.append_value([&text[..byte(before)], new, &text[byte(after)..]].concat());
    }
    Ok(laid.finish())
}

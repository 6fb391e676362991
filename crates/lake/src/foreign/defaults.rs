//! Initial defaults, which schemas of format 3 have: the value that older rows show in a column that was added later.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array, StringArray,
    StructArray, new_null_array,
};
use arrow::datatypes::{DataType as Arrow, TimeUnit};
use serde_json::Value as Json;
use types::{DataType, Error, Kind, Result};

use super::schema::{Node, NodeKind};
use crate::live_rows::as_type;

/// Converts a default to one row of the type of `kind`. `column` is for messages.
pub(super) fn initial(json: &Json, kind: &NodeKind, column: &str) -> Result<ArrayRef> {
    let wrong = || Error::damaged(format!("column `{column}` has a default that is not of its type: {json}"));
    let text = || json.as_str().map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
    let array: Option<ArrayRef> = match kind {
        NodeKind::Plain(DataType::Bool) => {
            json.as_bool().map(|value| Arc::new(BooleanArray::from(vec![value])) as _)
        }
        NodeKind::Plain(DataType::Int32 | DataType::Int64) => {
            json.as_i64().map(|value| Arc::new(Int64Array::from(vec![value])) as _)
        }
        NodeKind::Plain(DataType::Float32 | DataType::Float64) => {
            json.as_f64().map(|value| Arc::new(Float64Array::from(vec![value])) as _)
        }
        NodeKind::Plain(DataType::Binary) => {
            json.as_str().and_then(bytes_of).map(|bytes| Arc::new(BinaryArray::from(vec![&bytes[..]])) as _)
        }
        NodeKind::Plain(DataType::Uuid) => {
            let bytes = json.as_str().and_then(|text| bytes_of(&text.replace('-', "")));
            let array = bytes.and_then(|bytes| FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).ok());
            array.map(|array| Arc::new(array) as _)
        }
        NodeKind::Plain(_) => text(),
        NodeKind::Time => {
            let text = text().ok_or_else(wrong)?;
            Some(as_type(&text, &Arrow::Time64(TimeUnit::Microsecond)).map_err(|_| wrong())?)
        }
        // A struct's default only says that the struct is present; its fields have their own defaults.
        NodeKind::Struct(fields) if json.as_object().is_some_and(|object| object.is_empty()) => {
            Some(empty(fields)?)
        }
        NodeKind::Struct(_) | NodeKind::List(_) | NodeKind::Map(..) => {
            return Err(Error::new(
                Kind::Invalid,
                format!("column `{column}` has a default of a nested type, which is not read"),
            )
            .hint(
                "let the program that writes the table rewrite its data files in a copy without the default",
            ));
        }
    };
    let wanted = kind.data_type().to_arrow();
    as_type(&array.ok_or_else(wrong)?, &wanted).map_err(|_| wrong())
}

fn empty(fields: &[Node]) -> Result<ArrayRef> {
    let Arrow::Struct(wanted) = NodeKind::Struct(fields.to_vec()).data_type().to_arrow() else {
        return Err(Error::internal("a struct that is none"));
    };
    let column = |node: &Node| match &node.default {
        Some(default) => default.clone(),
        None => new_null_array(&node.data_type().to_arrow(), 1),
    };
    let columns = fields.iter().map(column).collect();
    let made = StructArray::try_new_with_length(wanted, columns, None, 1);
    made.map(|made| Arc::new(made) as ArrayRef).map_err(|e| Error::internal(format!("a default: {e}")))
}

/// Decodes hexadecimal digits.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let plain = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| (0..text.len()).step_by(2).map(pair).collect())?
}

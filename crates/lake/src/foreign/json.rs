//! Converts maps to JSON objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MapArray, StringBuilder};
use arrow::datatypes::{DataType as Arrow, Field, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use types::{Error, Kind, Result};

/// Arrow's extension types for values whose meaning their storage type does not tell.
const EXTENSION: &str = "ARROW:extension:name";
const JSON: &str = "arrow.json";
const UUID: &str = "arrow.uuid";

/// Returns a field without a name for an array's values. Its metadata marks JSON and UUIDs, which Arrow's own types do not
/// distinguish.
pub(super) fn field_of(array: &ArrayRef, is_json: bool) -> Field {
    let extension = match array.data_type() {
        Arrow::Utf8 if is_json => Some(JSON),
        Arrow::FixedSizeBinary(16) => Some(UUID),
        _ => None,
    };
    let pair = |extension: &str| (EXTENSION.to_owned(), extension.to_owned());
    Field::new("", array.data_type().clone(), true).with_metadata(extension.map(pair).into_iter().collect())
}

/// Converts each map to a JSON object, with keys of any type as text. `keys` and `values` are those of all the maps, in types
/// that tables hold, each with the field that tells its type. If a key occurs twice the last value counts, as in Parquet's
/// specification.
///
/// Fails with [`Kind::Schema`] at a number that JSON cannot represent (NaN, infinities).
pub fn maps_as_json(
    maps: &MapArray,
    keys: (&ArrayRef, &Field),
    values: (&ArrayRef, &Field),
) -> Result<ArrayRef> {
    let mut out = StringBuilder::with_capacity(maps.len(), 16 * keys.0.len());
    for row in 0..maps.len() {
        if maps.is_null(row) {
            out.append_null();
            continue;
        }
        let mut object = BTreeMap::new();
        for at in maps.value_offsets()[row] as usize..maps.value_offsets()[row + 1] as usize {
            let mut json = String::new();
            write(values.0, values.1, at, &mut json)?;
            object.insert(text(keys.0, keys.1, at)?, json);
        }
        out.append_value(braced(object));
    }
    Ok(Arc::new(out.finish()))
}

fn braced(object: BTreeMap<String, String>) -> String {
    let fields: Vec<String> = object.iter().map(|(key, json)| format!("{}:{json}", quoted(key))).collect();
    format!("{{{}}}", fields.join(","))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a value in the form of HTTP responses, except that integers above 2^53 stay numbers.
fn write(array: &ArrayRef, field: &Field, at: usize, out: &mut String) -> Result<()> {
    if array.is_null(at) {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        Arrow::Boolean => out.push_str(if array.as_boolean().value(at) { "true" } else { "false" }),
        Arrow::Int32 | Arrow::Int64 => out.push_str(&text(array, field, at)?),
        Arrow::Float32 => out.push_str(&number(array.as_primitive::<Float32Type>().value(at).into())?),
        Arrow::Float64 => out.push_str(&number(array.as_primitive::<Float64Type>().value(at))?),
        Arrow::Utf8 if extension(field) == Some(JSON) => out.push_str(array.as_string::<i32>().value(at)),
        Arrow::List(item) => items(&array.as_list::<i32>().value(at), item, out)?,
        Arrow::FixedSizeList(item, _) => items(&array.as_fixed_size_list().value(at), item, out)?,
        Arrow::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let pair = |(field, column): (&Arc<Field>, &ArrayRef)| {
                let mut json = String::new();
                write(column, field, at, &mut json)?;
                Ok((field.name().clone(), json))
            };
            out.push_str(&braced(columns.map(pair).collect::<Result<_>>()?));
        }
        _ => out.push_str(&quoted(&text(array, field, at)?)),
    }
    Ok(())
}

fn items(items: &ArrayRef, item: &Field, out: &mut String) -> Result<()> {
    out.push('[');
    for at in 0..items.len() {
        if at > 0 {
            out.push(',');
        }
        write(items, item, at, out)?;
    }
    out.push(']');
    Ok(())
}

fn extension(field: &Field) -> Option<&str> {
    field.metadata().get(EXTENSION).map(String::as_str)
}

fn number(value: f64) -> Result<String> {
    let number = serde_json::Number::from_f64(value).map(|number| number.to_string());
    number.ok_or_else(|| {
        Error::new(Kind::Schema, format!("a value within a map is {value}, which JSON does not have"))
            .hint("maps become JSON: make the value null in a copy, or the map a list of structs")
    })
}

/// Returns a value as text; bytes become base64.
fn text(array: &ArrayRef, field: &Field, at: usize) -> Result<String> {
    let shown = |why: &dyn std::fmt::Display| Error::damaged(format!("a map's value cannot be shown: {why}"));
    match array.data_type() {
        Arrow::Binary => return Ok(STANDARD.encode(array.as_binary::<i32>().value(at))),
        Arrow::FixedSizeBinary(_) => {
            let bytes = array.as_fixed_size_binary().value(at);
            return Ok(if extension(field) == Some(UUID) { hyphened(bytes) } else { STANDARD.encode(bytes) });
        }
        nested if nested.is_nested() => {
            let what = format!("a map contains {nested}, which cannot become JSON");
            return Err(Error::new(Kind::Schema, what).hint("leave the column out in a copy"));
        }
        _ => {}
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options).map_err(|e| shown(&e))?;
    formatter.value(at).try_to_string().map_err(|e| shown(&e))
}

fn hyphened(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

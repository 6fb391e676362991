//! Maps as JSON objects.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MapArray, StringBuilder};
use arrow::datatypes::{DataType as Arrow, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Map, Value as Json};
use types::{Error, Result};

/// One object for each map: keys as text, whatever type they are of. `keys` and `values` are those of all the maps, as types
/// that tables hold.
pub fn objects(maps: &MapArray, keys: &ArrayRef, values: &ArrayRef) -> Result<ArrayRef> {
    let mut out = StringBuilder::with_capacity(maps.len(), 16 * keys.len());
    for row in 0..maps.len() {
        if maps.is_null(row) {
            out.append_null();
            continue;
        }
        let mut object = Map::new();
        for at in maps.value_offsets()[row] as usize..maps.value_offsets()[row + 1] as usize {
            object.insert(text(keys, at)?, value(values, at)?);
        }
        out.append_value(Json::Object(object).to_string());
    }
    Ok(Arc::new(out.finish()))
}

/// As HTTP shows values of the same types, but integers beyond 2^53, which stay numbers.
fn value(array: &ArrayRef, at: usize) -> Result<Json> {
    if array.is_null(at) {
        return Ok(Json::Null);
    }
    // No number of JSON: null, as elsewhere.
    let float = |value: f64| serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number);
    Ok(match array.data_type() {
        Arrow::Boolean => Json::Bool(array.as_boolean().value(at)),
        Arrow::Int32 => Json::from(array.as_primitive::<Int32Type>().value(at)),
        Arrow::Int64 => Json::from(array.as_primitive::<Int64Type>().value(at)),
        Arrow::Float32 => float(array.as_primitive::<Float32Type>().value(at).into()),
        Arrow::Float64 => float(array.as_primitive::<Float64Type>().value(at)),
        Arrow::List(_) => {
            let list = array.as_list::<i32>();
            let (begin, end) = (list.value_offsets()[at] as usize, list.value_offsets()[at + 1] as usize);
            Json::Array((begin..end).map(|at| value(list.values(), at)).collect::<Result<_>>()?)
        }
        Arrow::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let pair = |(field, column): (&Arc<arrow::datatypes::Field>, &ArrayRef)| {
                Ok((field.name().clone(), value(column, at)?))
            };
            Json::Object(columns.map(pair).collect::<Result<_>>()?)
        }
        _ => Json::String(text(array, at)?),
    })
}

/// A value that is no number, as text: binary and uuids as hexadecimal digits.
fn text(array: &ArrayRef, at: usize) -> Result<String> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options)
        .map_err(|e| Error::damaged(format!("a map's value cannot be shown: {e}")))?;
    formatter
        .value(at)
        .try_to_string()
        .map_err(|e| Error::damaged(format!("a map's value cannot be shown: {e}")))
}

//! Converts the results of expressions and literals to the values of a column. Stricter than CAST: nothing is rounded, cut or
//! guessed.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, ListArray, StringArray, StructArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType as Arrow, Decimal128Type, DecimalType, Float32Type, Float64Type};
use types::{DataType, Error, Field, Kind, Result, Value, name};

use crate::functions::arrays;
use crate::functions::uuid;
use crate::rewrites::coercion::Number;
use crate::rules::float_casts;

/// Magnitude from which a float64 may stand for another integer than the intended one.
const FLOAT_INTEGER_MAX: f64 = (1u64 << 53) as f64;

const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// Converts an array to the Arrow type of `data_type` ([`DataType::to_arrow`]). Fails if a value does not fit exactly.
pub fn to_column(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let wanted = data_type.to_arrow();
    if *array.data_type() == wanted && *data_type != DataType::Json {
        return Ok(array.clone());
    }
    if *array.data_type() == Arrow::Null {
        return Ok(arrow::array::new_null_array(&wanted, array.len()));
    }
    let misfit = || {
        let found = sql::sql_type::field_type_name(&arrow::datatypes::Field::new(
            "",
            array.data_type().clone(),
            true,
        ));
        Error::new(Kind::Schema, format!("{data_type} expected, {found} found")).hint("CAST it")
    };
    if is_text(array.data_type()) && !matches!(data_type, DataType::String) {
        return texts_to_column(array, data_type);
    }
    let from = array.data_type();
    match data_type {
        DataType::Bool | DataType::Json => Err(misfit()),
        DataType::Int32 | DataType::Int64 => match from {
            _ if from.is_integer() => cast(array, &wanted),
            Arrow::Float16
            | Arrow::Float32
            | Arrow::Float64
            | Arrow::Decimal128(..)
            | Arrow::Decimal256(..) => {
                let whole = cast(array, &wanted)?;
                whole_only(array, &whole, data_type)?;
                Ok(whole)
            }
            _ => Err(misfit()),
        },
        DataType::Decimal { precision, scale } if from.is_floating() => {
            decimals(array, *precision, *scale, data_type)
        }
        DataType::Float32 | DataType::Float64 | DataType::Decimal { .. } if from.is_numeric() => {
            cast(array, &wanted)
        }
        DataType::Float32 | DataType::Float64 | DataType::Decimal { .. } => Err(misfit()),
        DataType::String => match from {
            Arrow::FixedSizeBinary(16) => Ok(uuid::write_all(array)),
            Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
                Err(misfit())
            }
            Arrow::List(_) | Arrow::LargeList(_) | Arrow::FixedSizeList(..) | Arrow::Struct(_) => {
                Err(misfit())
            }
            _ => cast(array, &wanted),
        },
        DataType::Binary => match from {
            Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => cast(array, &wanted),
            _ => Err(misfit()),
        },
        DataType::Date if matches!(from, Arrow::Date64 | Arrow::Timestamp(..)) => cast(array, &wanted),
        DataType::Timestamp if matches!(from, Arrow::Date32 | Arrow::Date64 | Arrow::Timestamp(..)) => {
            cast(array, &wanted)
        }
        DataType::Date | DataType::Timestamp | DataType::Uuid => Err(misfit()),
        DataType::List(item) => {
            let lists = as_lists(array).ok_or_else(misfit)?;
            let lists = lists?;
            let items = to_field(lists.values(), item)?;
            let field = item.to_arrow();
            ListArray::try_new(field, lists.offsets().clone(), items, lists.nulls().cloned())
                .map(|a| Arc::new(a) as ArrayRef)
                .map_err(refused)
        }
        DataType::Struct(fields) => {
            let parts = array.as_struct_opt().ok_or_else(misfit)?;
            struct_of(parts, fields, &wanted).unwrap_or_else(|| Err(misfit()))
        }
        DataType::Vector(len) => {
            let lists = as_lists(array).ok_or_else(misfit)??;
            vectors(&lists, *len, &wanted)
        }
        DataType::Point | DataType::Point3d => points(array, &wanted).unwrap_or_else(|| Err(misfit())),
    }
}

fn is_text(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View)
}

fn cast(array: &ArrayRef, wanted: &Arrow) -> Result<ArrayRef> {
    float_casts::cast(array, wanted, &STRICT).map_err(refused)
}

/// Converts floats to decimals by the fewest digits that identify each float. Most of the digits of its exact value were never
/// written.
fn decimals(array: &ArrayRef, precision: u8, scale: u8, data_type: &DataType) -> Result<ArrayRef> {
    let decimal = |number: Option<Number>, float: f64| {
        number
            .and_then(|number| number.rounded(precision, scale as i8))
            .map(Value::Decimal)
            .ok_or_else(|| Error::new(Kind::Schema, format!("{float} is not a valid {data_type}")))
    };
    let values: Result<Vec<Value>> = if let Some(floats) = array.as_primitive_opt::<Float32Type>() {
        let value = |v: Option<f32>| v.map_or(Ok(Value::Null), |v| decimal(Number::of_float(v), v.into()));
        floats.iter().map(value).collect()
    } else {
        let floats = cast(array, &Arrow::Float64)?;
        let value = |v: Option<f64>| v.map_or(Ok(Value::Null), |v| decimal(Number::of_float(v), v));
        floats.as_primitive::<Float64Type>().iter().map(value).collect()
    };
    Value::to_array(&values?, data_type)
}

/// Fails if a float that was sent for a decimal or an integer may differ from the number that was meant. Numbers of up to 15
/// digits pass through a float64 unchanged.
pub fn keeps_digits(value: &Value, data_type: &DataType) -> Result<()> {
    let (float, number) = match (value, data_type) {
        (Value::Float64(v), _) => (*v, Number::of_float(*v)),
        (Value::Float32(v), _) => (f64::from(*v), Number::of_float(*v)),
        (Value::List(items), DataType::List(item)) => {
            return items.iter().try_for_each(|value| keeps_digits(value, &item.data_type));
        }
        _ => return Ok(()),
    };
    let unsure = match data_type {
        DataType::Decimal { .. } => number.is_some_and(Number::is_long),
        DataType::Int32 | DataType::Int64 => float.abs() >= FLOAT_INTEGER_MAX,
        _ => false,
    };
    if !unsure {
        return Ok(());
    }
    let message = format!("{data_type} expected, {float} found as a float64, which may have lost digits");
    Err(Error::new(Kind::Schema, message).hint("send the number as a string, in quotes"))
}

fn refused(error: arrow::error::ArrowError) -> Error {
    let text = error.to_string();
    let text = text.trim_start_matches("Cast error: ").trim_start_matches("Invalid argument error: ");
    Error::new(Kind::Schema, text.chars().take(300).collect::<String>())
}

/// Fails unless the integers equal the numbers that they were cast from.
fn whole_only(numbers: &ArrayRef, whole: &ArrayRef, data_type: &DataType) -> Result<()> {
    let no = |number: String| {
        Error::new(Kind::Schema, format!("{number} is not a valid {data_type}"))
            .hint("round it: round(x)::bigint")
    };
    if let Arrow::Decimal128(precision, scale) = numbers.data_type() {
        // A float64 may not hold the digits that decide.
        let unit = 10i128.checked_pow(u32::try_from(*scale).unwrap_or(0)).unwrap_or(i128::MAX);
        let broken = numbers.as_primitive::<Decimal128Type>().iter().flatten().find(|v| v % unit != 0);
        return match broken {
            Some(v) => Err(no(Decimal128Type::format_decimal(v, *precision, *scale))),
            None => Ok(()),
        };
    }
    let before = cast(numbers, &Arrow::Float64)?;
    let after = cast(whole, &Arrow::Float64)?;
    let (before, after) = (before.as_primitive::<Float64Type>(), after.as_primitive::<Float64Type>());
    match (0..before.len()).find(|i| before.is_valid(*i) && before.value(*i) != after.value(*i)) {
        Some(i) => Err(no(before.value(i).to_string())),
        None => Ok(()),
    }
}

fn as_lists(array: &ArrayRef) -> Option<Result<ListArray>> {
    match array.data_type() {
        Arrow::List(_) => Some(Ok(array.as_list::<i32>().clone())),
        Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => {
            Some(cast(array, &Arrow::List(item.clone())).map(|a| a.as_list::<i32>().clone()))
        }
        _ => None,
    }
}

fn to_field(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let column = to_column(array, &field.data_type)?;
    if !field.nullable && column.null_count() > 0 {
        return Err(Error::new(Kind::Schema, format!("`{}` is NOT NULL", field.name)));
    }
    Ok(column)
}

/// Converts a struct: by field names if they are the same, else by position.
fn struct_of(parts: &StructArray, fields: &[Field], wanted: &Arrow) -> Option<Result<ArrayRef>> {
    if parts.num_columns() != fields.len() {
        return None;
    }
    let by_name: Option<Vec<&ArrayRef>> = fields.iter().map(|f| parts.column_by_name(&f.name)).collect();
    let columns = by_name.unwrap_or_else(|| parts.columns().iter().collect());
    let columns: Result<Vec<ArrayRef>> =
        columns.into_iter().zip(fields).map(|(column, field)| to_field(column, field)).collect();
    let Arrow::Struct(arrow_fields) = wanted else { return None };
    Some(columns.and_then(|columns| {
        StructArray::try_new(arrow_fields.clone(), columns, parts.nulls().cloned())
            .map(|a| Arc::new(a) as ArrayRef)
            .map_err(refused)
    }))
}

fn vectors(lists: &ListArray, len: u32, wanted: &Arrow) -> Result<ArrayRef> {
    for i in 0..lists.len() {
        if lists.is_valid(i) && lists.value_length(i) as u32 != len {
            let found = lists.value_length(i);
            return Err(Error::new(Kind::Schema, format!("vector({len}) expected, {found} numbers found")));
        }
    }
    if !lists.value_type().is_numeric() {
        return Err(Error::new(
            Kind::Schema,
            format!("vector({len}) expected, a list of {} found", lists.value_type()),
        ));
    }
    let target = Arrow::FixedSizeList(
        Arc::new(arrow::datatypes::Field::new("item", Arrow::Float32, true)),
        len as i32,
    );
    let loose = cast(&(Arc::new(lists.clone()) as ArrayRef), &target)?;
    let loose = loose.as_fixed_size_list();
    let has_null = (0..loose.len()).any(|i| loose.is_valid(i) && loose.value(i).null_count() > 0);
    if has_null {
        return Err(Error::new(Kind::Schema, "a vector holds numbers only, null found"));
    }
    let Arrow::FixedSizeList(item, size) = wanted else { unreachable!("a vector") };
    // The numbers of a null vector are null too, which the type does not allow, so they become zero.
    let numbers = loose.values().as_primitive::<arrow::datatypes::Float32Type>();
    let numbers = arrow::array::Float32Array::from_iter_values(numbers.iter().map(Option::unwrap_or_default));
    FixedSizeListArray::try_new(item.clone(), *size, Arc::new(numbers), loose.nulls().cloned())
        .map(|a| Arc::new(a) as ArrayRef)
        .map_err(refused)
}

/// Converts a struct of as many numbers, or a list of them, to points.
fn points(array: &ArrayRef, wanted: &Arrow) -> Option<Result<ArrayRef>> {
    let Arrow::Struct(fields) = wanted else { return None };
    let (columns, nulls): (Vec<ArrayRef>, _) = if let Some(parts) = array.as_struct_opt() {
        if parts.num_columns() != fields.len() || parts.columns().iter().any(|c| !c.data_type().is_numeric())
        {
            return None;
        }
        (parts.columns().to_vec(), parts.nulls().cloned())
    } else {
        let lists = match as_lists(array)? {
            Ok(lists) if lists.value_type().is_numeric() => lists,
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        };
        let right = |i: usize| lists.is_null(i) || lists.value_length(i) as usize == fields.len();
        if !(0..lists.len()).all(right) {
            return Some(Err(Error::new(
                Kind::Schema,
                format!("a point of {} numbers expected", fields.len()),
            )));
        }
        let values = match cast(lists.values(), &Arrow::Float64) {
            Ok(values) => values,
            Err(error) => return Some(Err(error)),
        };
        let values = values.as_primitive::<Float64Type>();
        let part = |k: usize| {
            let number = |i: usize| {
                let at = lists.value_offsets()[i] as usize + k;
                (lists.is_valid(i) && values.is_valid(at)).then(|| values.value(at))
            };
            Arc::new(Float64Array::from_iter((0..lists.len()).map(number))) as ArrayRef
        };
        ((0..fields.len()).map(part).collect(), lists.nulls().cloned())
    };
    let known = |i: usize| nulls.as_ref().is_none_or(|n: &arrow::buffer::NullBuffer| n.is_valid(i));
    let column = |column: &ArrayRef| -> Result<ArrayRef> {
        let column = cast(column, &Arrow::Float64)?;
        let column = column.as_primitive::<Float64Type>();
        if (0..column.len()).any(|i| known(i) && column.is_null(i)) {
            return Err(Error::new(Kind::Schema, "a point holds numbers only, null found"));
        }
        Ok(Arc::new(Float64Array::from_iter_values(column.iter().map(Option::unwrap_or_default))))
    };
    let columns: Result<Vec<ArrayRef>> = columns.iter().map(column).collect();
    Some(columns.and_then(|columns| {
        StructArray::try_new(fields.clone(), columns, nulls).map(|a| Arc::new(a) as ArrayRef).map_err(refused)
    }))
}

fn texts_to_column(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let texts = cast(array, &Arrow::Utf8)?;
    let texts = texts.as_string::<i32>();
    let values: Vec<Value> = texts
        .iter()
        .map(|text| text.map_or(Ok(Value::Null), |text| text_to_value(text, data_type)))
        .collect::<Result<_>>()?;
    Value::to_array(&values, data_type)
}

/// Bytes of the longest text that is read as a bool, a date or a decimal.
const SHORT_TEXT_BYTES_MAX: usize = 1_000;

/// Number of items of the longest list that is read from a text. Each takes about a hundred bytes while it is read.
const ITEMS_MAX: usize = 1_000_000;

fn has_too_many_items(text: &str) -> bool {
    text.len() > 2 * ITEMS_MAX && text.bytes().filter(|byte| *byte == b',').count() > ITEMS_MAX
}

/// Reads a text as a value of a type, as in an SQL literal or in a cell of a file.
pub fn text_to_value(text: &str, data_type: &DataType) -> Result<Value> {
    let no = || Error::new(Kind::Schema, format!("`{}` is not a valid {data_type}", name::printable(text)));
    Ok(match data_type {
        DataType::String => Value::String(text.to_owned()),
        DataType::Int32 => Value::Int32(text.trim().parse().map_err(|_| no())?),
        DataType::Int64 => Value::Int64(text.trim().parse().map_err(|_| no())?),
        DataType::Float32 => Value::Float32(text.trim().parse().map_err(|_| no())?),
        DataType::Float64 => Value::Float64(text.trim().parse().map_err(|_| no())?),
        DataType::Uuid => Value::Uuid(uuid::parse(text).ok_or_else(no)?),
        DataType::Json => {
            serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|e| no().hint(e.to_string()))?;
            Value::Json(text.to_owned())
        }
        DataType::Binary => match text.strip_prefix("\\x") {
            Some(digits) => Value::Binary(hex(digits).ok_or_else(no)?),
            None => Value::Binary(text.as_bytes().to_vec()),
        },
        DataType::Timestamp => Value::Timestamp(wire::text::parse_time(text.trim()).ok_or_else(no)?),
        // Arrow's parser of decimals is recursive over the digits.
        DataType::Bool | DataType::Date | DataType::Decimal { .. } if text.len() > SHORT_TEXT_BYTES_MAX => {
            return Err(no());
        }
        DataType::Bool | DataType::Date | DataType::Decimal { .. } => {
            let array: ArrayRef = Arc::new(StringArray::from(vec![text.trim()]));
            let cast = cast_with_options(&array, &data_type.to_arrow(), &STRICT).map_err(|_| no())?;
            Value::from_array(&cast, data_type, 0)
        }
        DataType::List(_) | DataType::Struct(_) if has_too_many_items(text) => {
            let message = format!("a text of more than {ITEMS_MAX} items is read as a {data_type}");
            return Err(Error::new(Kind::TooLarge, message));
        }
        DataType::List(item) if arrays::is_braced(text) => arrays::to_value(text, item)?,
        DataType::List(_)
        | DataType::Struct(_)
        | DataType::Vector(_)
        | DataType::Point
        | DataType::Point3d => {
            let json: serde_json::Value = serde_json::from_str(text).map_err(|e| no().hint(e.to_string()))?;
            json_to_value(&json, data_type)?
        }
    })
}

/// Adds the seconds to a time that is written without them: `2026-01-01 10:30`, optionally followed by `+02` or `Z`. Returns
/// `None` for other texts.
pub fn with_seconds(text: &str) -> Option<String> {
    let text = text.trim();
    let (minutes, zone) = (text.get(..16)?, text.get(16..)?);
    let fits = minutes.bytes().zip("0000-00-00 00:00".bytes()).all(|(found, form)| match form {
        b'0' => found.is_ascii_digit(),
        b' ' => matches!(found, b' ' | b'T' | b't'),
        form => found == form,
    });
    let ends = zone.is_empty() || zone.starts_with(['Z', 'z', '+', '-', ' ']);
    (fits && ends).then(|| format!("{minutes}:00{zone}"))
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).ok()).collect()
}

/// Converts JSON to a value of a type.
fn json_to_value(json: &serde_json::Value, data_type: &DataType) -> Result<Value> {
    use serde_json::Value as Json;
    let no = || {
        let text = json.to_string();
        Error::new(Kind::Schema, format!("`{}` is not a valid {data_type}", name::printable(&text)))
    };
    let numbers =
        |items: &[Json]| items.iter().map(|v| v.as_f64().ok_or_else(no)).collect::<Result<Vec<f64>>>();
    let by_name = |map: &serde_json::Map<String, Json>, names: &[&str]| {
        if map.len() != names.len() {
            return Err(no());
        }
        names.iter().map(|n| map.get(*n).and_then(Json::as_f64).ok_or_else(no)).collect::<Result<Vec<f64>>>()
    };
    Ok(match (data_type, json) {
        (_, Json::Null) => Value::Null,
        (DataType::Json, json) => Value::Json(json.to_string()),
        (DataType::Bool, Json::Bool(v)) => Value::Bool(*v),
        (DataType::String, Json::String(v)) => Value::String(v.clone()),
        (DataType::List(item), Json::Array(items)) => {
            Value::List(items.iter().map(|v| json_to_value(v, &item.data_type)).collect::<Result<_>>()?)
        }
        (DataType::Struct(fields), Json::Object(map)) => {
            if let Some(other) = map.keys().find(|key| !fields.iter().any(|f| f.name == **key)) {
                return Err(no().hint(format!("there is no field `{}`", name::printable(other))));
            }
            let value = |f: &Field| json_to_value(map.get(&f.name).unwrap_or(&Json::Null), &f.data_type);
            Value::Struct(fields.iter().map(value).collect::<Result<_>>()?)
        }
        (DataType::Vector(len), Json::Array(items)) => {
            let numbers = numbers(items)?;
            if numbers.len() != *len as usize {
                return Err(Error::new(
                    Kind::Schema,
                    format!("{data_type} expected, {} numbers found", numbers.len()),
                ));
            }
            Value::Vector(numbers.into_iter().map(|v| v as f32).collect())
        }
        (DataType::Point, Json::Array(items)) => Value::Point(numbers(items)?.try_into().map_err(|_| no())?),
        (DataType::Point3d, Json::Array(items)) => {
            Value::Point3d(numbers(items)?.try_into().map_err(|_| no())?)
        }
        (DataType::Point, Json::Object(map)) => {
            Value::Point(by_name(map, &["lon", "lat"])?.try_into().map_err(|_| no())?)
        }
        (DataType::Point3d, Json::Object(map)) => {
            Value::Point3d(by_name(map, &["x", "y", "z"])?.try_into().map_err(|_| no())?)
        }
        (DataType::Decimal { .. }, Json::Number(v)) if v.is_f64() => {
            let float = v.as_f64().ok_or_else(no)?;
            keeps_digits(&Value::Float64(float), data_type)?;
            text_to_value(&float.to_string(), data_type)?
        }
        (
            DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal { .. },
            Json::Number(v),
        ) => text_to_value(&v.to_string(), data_type)?,
        (_, Json::String(text)) => text_to_value(text, data_type)?,
        _ => return Err(no()),
    })
}

/// Converts a parameter to a value of a column.
pub fn value_to_column(value: &Value, data_type: &DataType) -> Result<Value> {
    if let Ok(value) = value.clone().cast(data_type) {
        return match value {
            // A text that becomes JSON has to be valid JSON.
            Value::Json(text) => text_to_value(&text, &DataType::Json),
            other => Ok(other),
        };
    }
    if let Value::String(text) | Value::Json(text) = value {
        return text_to_value(text, data_type);
    }
    keeps_digits(value, data_type)?;
    let scalar = crate::values::params::scalar(value)?;
    let array = scalar.to_array().map_err(crate::error::from_datafusion)?;
    let column = to_column(&array, data_type)?;
    Ok(Value::from_array(&column, data_type, 0))
}

/// Returns a value as an SQL literal.
pub fn literal_text(value: &Value, data_type: &DataType) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(v) => v.to_string(),
        Value::Int32(v) => v.to_string(),
        Value::Int64(v) => v.to_string(),
        Value::Float32(v) => v.to_string(),
        Value::Float64(v) => v.to_string(),
        Value::String(v) | Value::Json(v) => quoted(v),
        Value::Uuid(v) => quoted(&uuid::format(v)),
        Value::Binary(v) => {
            quoted(&format!("\\x{}", v.iter().map(|b| format!("{b:02x}")).collect::<String>()))
        }
        other => {
            let shown = Value::to_array(std::slice::from_ref(other), data_type)
                .ok()
                .and_then(|array| arrow::util::display::array_value_to_string(&array, 0).ok());
            quoted(&shown.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, TimestampSecondArray};
    use types::ColumnId;

    fn of(text: &str, data_type: &str) -> Result<Value> {
        text_to_value(text, &DataType::parse(data_type, &mut ColumnId(0)).unwrap())
    }

    #[test]
    fn text_becomes_every_type() {
        for (text, data_type, expected) in [
            ("t", "bool", Value::Bool(true)),
            ("-7", "int32", Value::Int32(-7)),
            ("9223372036854775807", "int64", Value::Int64(i64::MAX)),
            ("-1.5e3", "float64", Value::Float64(-1500.0)),
            ("-1.23", "decimal(10,2)", Value::Decimal(-123)),
            ("1970-01-02", "date", Value::Date(1)),
            ("1970-01-01T00:00:01.5Z", "timestamp", Value::Timestamp(1_500_000)),
            ("1970-01-01 01:00:01+01", "timestamp", Value::Timestamp(1_000_000)),
            ("\\x00ff", "binary", Value::Binary(vec![0, 255])),
            ("{\"a\": 1}", "json", Value::Json("{\"a\": 1}".into())),
            ("[1, null]", "list<int64>", Value::List(vec![Value::Int64(1), Value::Null])),
            ("{\"a\": 1}", "struct<a: int64, b: string>", Value::Struct(vec![Value::Int64(1), Value::Null])),
            ("[1, 2.5]", "vector(2)", Value::Vector(vec![1.0, 2.5])),
            ("[13.4, 52.5]", "point", Value::Point([13.4, 52.5])),
            ("{\"lat\": 52.5, \"lon\": 13.4}", "point", Value::Point([13.4, 52.5])),
        ] {
            assert_eq!(of(text, data_type).unwrap_or_else(|e| panic!("{text}: {e}")), expected);
        }
        for (text, data_type) in [
            ("1.5", "int64"),
            ("9223372036854775808", "int64"),
            ("abc", "float64"),
            ("2024-13-01", "date"),
            ("{a}", "json"),
            ("[1]", "vector(2)"),
            ("\\x0", "binary"),
            ("{\"c\": 1}", "struct<a: int64>"),
        ] {
            assert_eq!(of(text, data_type).unwrap_err().kind(), Kind::Schema, "{text} as {data_type}");
        }
    }

    #[test]
    fn an_expression_that_would_lose_something_is_refused() {
        let halves: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.5]));
        assert!(to_column(&halves, &DataType::Int64).is_err());
        assert!(to_column(&halves.slice(0, 1), &DataType::Int64).is_ok());
        let large: ArrayRef = Arc::new(Int64Array::from(vec![1i64 << 40]));
        assert!(to_column(&large, &DataType::Int32).is_err());
        assert!(to_column(&large, &DataType::Timestamp).is_err());
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1]));
        let micros = to_column(&seconds, &DataType::Timestamp).unwrap();
        assert_eq!(Value::from_array(&micros, &DataType::Timestamp, 0), Value::Timestamp(1_000_000));
    }

    #[test]
    fn lists_become_vectors_and_points() {
        let list =
            ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(1.0), Some(2.0)]), None]);
        let list: ArrayRef = Arc::new(list);
        for data_type in [DataType::Vector(2), DataType::Point] {
            let column = to_column(&list, &data_type).unwrap();
            assert_eq!(column.data_type(), &data_type.to_arrow());
            assert!(column.is_valid(0) && column.is_null(1));
        }
        assert!(to_column(&list, &DataType::Vector(3)).is_err());
        assert!(to_column(&list, &DataType::Point3d).is_err());
    }
}

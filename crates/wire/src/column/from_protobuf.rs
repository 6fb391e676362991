//! Takes values from Protobuf.

use types::{DataType, Error, name};

use super::from_json::unread;
use super::{BytesKind, ColumnBuffer, Data, EXACT_MAX, Member, Result, ValueFault};
use crate::protobuf::{Value, members, values, write_json};
use crate::{Budget, text};

impl ColumnBuffer {
    /// Takes the next value. After a misfit the caller must truncate the column.
    pub fn push_protobuf(&mut self, value: Value<'_>, budget: &mut Budget) -> Result<()> {
        // A JSON null counts as null too.
        if matches!(value, Value::Null) || matches!(value, Value::Json(text) if text.trim() == "null") {
            return self.push_nulls(1, budget);
        }
        if let Data::Untyped = self.data {
            self.set_type(inferred_type(value), budget)?;
        }
        match (&mut self.data, value) {
            (Data::Bool(v), Value::Bool(flag)) => v.append(flag),
            (Data::Int64(v), Value::Int64(number)) => v.push(number),
            (Data::Int64(_), Value::Double(number)) if self.open => {
                self.widen()?;
                let Data::Float64(v) = &mut self.data else { unreachable!("just widened") };
                v.push(number);
            }
            (Data::Int32(v), Value::Int64(number)) => {
                v.push(i32::try_from(number).map_err(|_| unread("int32", &number.to_string()))?);
            }
            (Data::Float64(v), Value::Double(number)) => v.push(number),
            (Data::Float64(v), Value::Int64(number)) => {
                let is_exact = number as f64 as i128 == i128::from(number);
                v.push(
                    is_exact
                        .then_some(number as f64)
                        .ok_or_else(|| unread("float64", &number.to_string()))?,
                );
            }
            (Data::Float32(v), Value::Double(number)) => v.push(float32(number)?),
            (Data::Float32(v), Value::Int64(number)) => v.push(float32_of(number)?),
            (Data::Decimal(v, precision, scale), Value::Int64(_) | Value::String(_)) => {
                let written = match value {
                    Value::String(text) => text.to_owned(),
                    Value::Int64(number) => number.to_string(),
                    _ => unreachable!("one of the two"),
                };
                let number = text::parse_decimal(&written, *precision, *scale);
                v.push(number.ok_or_else(|| unread(&format!("decimal({precision},{scale})"), &written))?);
            }
            (Data::Bytes(offsets, bytes, BytesKind::String), Value::String(text)) => {
                bytes.extend_from_slice(text.as_bytes());
                offsets.push(bytes.len() as i32);
            }
            (Data::Bytes(offsets, bytes, BytesKind::Base64), Value::Bytes(given)) => {
                bytes.extend_from_slice(given);
                offsets.push(bytes.len() as i32);
            }
            (Data::Bytes(offsets, bytes, BytesKind::Json), _) => {
                let before = bytes.len();
                write_json(value, 0, bytes)?;
                // Escapes and names may take more bytes than the input had.
                budget.take(bytes.len() - before)?;
                let end = i32::try_from(bytes.len());
                offsets.push(end.map_err(|_| Error::invalid("a json column has too many bytes"))?);
            }
            (Data::Date(v), Value::String(text)) => {
                v.push(text::parse_day(text).ok_or_else(|| unread("date like `2026-11-21`", text))?);
            }
            (Data::Timestamp(v), Value::Timestamp(micros)) => v.push(micros),
            (Data::Timestamp(v), Value::Int64(number)) => {
                let micros = match self.input {
                    Some(unit) => {
                        let micros = unit.micros(&number.to_string());
                        micros.ok_or_else(|| format!("timestamp as {unit} expected, `{number}` found"))
                    }
                    None => text::micros_of_number(number),
                };
                v.push(micros.map_err(ValueFault::Misfit)?);
            }
            (Data::Timestamp(v), Value::String(text)) => {
                let expected = "timestamp like `2026-11-21T08:06:51Z`";
                v.push(text::parse_time(text).ok_or_else(|| unread(expected, text))?);
            }
            (Data::Uuid(v), Value::Bytes(bytes)) => match bytes.len() {
                16 => v.extend_from_slice(bytes),
                len => return Err(ValueFault::Misfit(format!("uuid expected, {len} bytes found"))),
            },
            (Data::Uuid(v), Value::String(text)) => {
                v.extend_from_slice(&text::parse_uuid(text).ok_or_else(|| unread("uuid", text))?);
            }
            (Data::List(offsets, item, nullable), Value::List(message)) => {
                for value in values(message) {
                    let value = value?;
                    if !*nullable && matches!(value, Value::Null) {
                        return Err(ValueFault::Misfit("list element that is not null expected".into()));
                    }
                    item.push_protobuf(value, budget)?;
                }
                let end = i32::try_from(item.len);
                offsets.push(end.map_err(|_| Error::invalid("a list column has too many elements"))?);
            }
            (Data::Struct(fields), Value::Struct(message)) => push_struct(fields, message, budget, self.len)?,
            (Data::Vector(v, width), Value::List(message)) => {
                let start = v.len();
                for value in values(message) {
                    v.push(match value? {
                        Value::Double(number) => float32(number)?,
                        Value::Int64(number) => float32_of(number)?,
                        other => return Err(misfit("float32", other)),
                    });
                }
                let found = v.len() - start;
                if found != *width {
                    return Err(ValueFault::Misfit(format!("{width} numbers expected, {found} found")));
                }
            }
            (Data::Floats(names, columns), Value::List(_) | Value::Struct(_)) => {
                push_point(names, columns, value)?;
            }
            _ => {
                let expected = self.data_type().map_or_else(|| "a value".into(), DataType::to_string);
                return Err(misfit(&expected, value));
            }
        }
        self.mark_valid();
        Ok(())
    }
}

/// Returns the type of a new column with this first value.
fn inferred_type(value: Value<'_>) -> DataType {
    match value {
        Value::Bool(_) => DataType::Bool,
        Value::Int64(_) => DataType::Int64,
        Value::Double(_) => DataType::Float64,
        Value::String(_) => DataType::String,
        Value::Bytes(_) => DataType::Binary,
        Value::Timestamp(_) => DataType::Timestamp,
        Value::Null | Value::Json(_) | Value::List(_) | Value::Struct(_) => DataType::Json,
    }
}

fn push_struct(fields: &mut [Member], message: &[u8], budget: &mut Budget, row: usize) -> Result<()> {
    for member in members(message) {
        let (key, value) = member?;
        let Some(at) = name::resolve(key, fields.iter().map(|f| f.name.as_str())) else {
            return Err(ValueFault::Misfit(format!("the struct has no field `{}`", name::printable(key))));
        };
        let field = &mut fields[at];
        if field.column.len > row {
            return Err(ValueFault::Misfit(format!("the field `{}` is given twice", field.name)));
        }
        if !field.nullable && matches!(value, Value::Null) {
            return Err(ValueFault::Misfit(format!("the field `{}` is null but NOT NULL", field.name)));
        }
        field.column.push_protobuf(value, budget)?;
    }
    for field in fields {
        if field.column.len == row {
            if !field.nullable {
                return Err(ValueFault::Misfit(format!(
                    "the field `{}` is missing but NOT NULL",
                    field.name
                )));
            }
            field.column.push_nulls(1, budget)?;
        }
    }
    Ok(())
}

fn push_point(names: &[&str], columns: &mut [Vec<f64>], value: Value<'_>) -> Result<()> {
    let number = |value| match value {
        Value::Double(number) => Ok(number),
        Value::Int64(number) if number.unsigned_abs() <= EXACT_MAX => Ok(number as f64),
        other => Err(misfit("float64", other)),
    };
    let mut point: Vec<Option<f64>> = vec![None; names.len()];
    match value {
        Value::List(message) => {
            let mut found = 0;
            for value in values(message) {
                let value = number(value?)?;
                if let Some(coordinate) = point.get_mut(found) {
                    *coordinate = Some(value);
                }
                found += 1;
            }
            if found != names.len() {
                return Err(ValueFault::Misfit(format!("{} numbers expected, {found} found", names.len())));
            }
        }
        Value::Struct(message) => {
            for member in members(message) {
                let (key, value) = member?;
                let Some(at) = names.iter().position(|name| *name == key) else {
                    return Err(ValueFault::Misfit(format!("a point has no `{}`", name::printable(key))));
                };
                if point[at].replace(number(value)?).is_some() {
                    return Err(ValueFault::Misfit(format!("`{key}` is given twice")));
                }
            }
        }
        other => return Err(misfit("point (a struct or a list)", other)),
    }
    if let Some(at) = point.iter().position(Option::is_none) {
        return Err(ValueFault::Misfit(format!("`{}` is missing", names[at])));
    }
    for (column, value) in columns.iter_mut().zip(point.into_iter().flatten()) {
        column.push(value);
    }
    Ok(())
}

/// Rounds to the nearest float32, as for a number written with a fraction. Fails if a finite number becomes infinite.
fn float32(number: f64) -> Result<f32> {
    let nearest = number as f32;
    if number.is_finite() && nearest.is_infinite() {
        return Err(unread("float32", &number.to_string()));
    }
    Ok(nearest)
}

fn float32_of(number: i64) -> Result<f32> {
    let nearest = number as f32;
    if nearest as i128 == i128::from(number) {
        Ok(nearest)
    } else {
        Err(unread("float32", &number.to_string()))
    }
}

/// Makes the error "int64 expected, string `"x"` found".
fn misfit(expected: &str, value: Value<'_>) -> ValueFault {
    let mut shown = Vec::new();
    let found = match (value, write_json(value, 0, &mut shown)) {
        (Value::Null, _) | (_, Err(_)) => value.kind().to_owned(),
        _ => {
            let text = String::from_utf8_lossy(&shown);
            let mut short: String = text.chars().take(40).collect();
            if short.len() < text.len() {
                short.push('…');
            }
            format!("{} `{}`", value.kind(), name::printable(&short))
        }
    };
    ValueFault::Misfit(format!("{expected} expected, {found} found"))
}

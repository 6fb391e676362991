//! Single values: defaults, keys, and rows that are given value by value.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    FixedSizeBinaryBuilder, FixedSizeListArray, Float32Builder, Float64Array, Float64Builder, Int32Builder,
    Int64Builder, ListArray, StringBuilder, StructArray, TimestampMicrosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};

use crate::codec::{Decoder, Encoder};
use crate::data_type::NESTING_MAX;
use crate::{DataType, Error, Kind, Result};

/// One value of a column. Its data type is determined by the column, not by the value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    /// The unscaled number: 1.23 at scale 2 is 123.
    Decimal(i128),
    String(String),
    Binary(Vec<u8>),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    Uuid([u8; 16]),
    /// JSON text.
    Json(String),
    List(Vec<Value>),
    /// The fields' values, in the order of the type's fields.
    Struct(Vec<Value>),
    Vector(Vec<f32>),
    /// `lon`, `lat`.
    Point([f64; 2]),
    /// `x`, `y`, `z`.
    Point3d([f64; 3]),
}

macro_rules! from {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl From<$rust> for Value {
            fn from(value: $rust) -> Self {
                Value::$variant(value.into())
            }
        }
    )*};
}

from! {
    bool => Bool, i32 => Int32, i64 => Int64, f32 => Float32, f64 => Float64, &str => String, String => String,
    Vec<u8> => Binary, [u8; 16] => Uuid, Vec<f32> => Vector, [f64; 2] => Point, [f64; 3] => Point3d,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// The range of dates that every format can represent: 0001-01-01 to 9999-12-31, in days since 1970-01-01.
pub const DATES: RangeInclusive<i32> = -719_162..=2_932_896;
/// The range of timestamps on those dates, in microseconds.
pub const TIMES: RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

impl Value {
    /// Fails with [`Kind::Schema`] unless a column of `data_type` can hold this value. Null passes for every type.
    pub fn check(&self, data_type: &DataType) -> Result<()> {
        let value = self.clone().cast(data_type)?;
        let what = match value {
            Value::Date(day) if !DATES.contains(&day) => "date",
            Value::Timestamp(time) if !TIMES.contains(&time) => "time",
            _ => return Ok(()),
        };
        Err(Error::new(Kind::Schema, format!("a {what} lies beyond the years 1 to 9999")))
    }

    /// Converts this value to `data_type` if no information is lost: integers widen, an integer becomes a float or
    /// decimal that holds it exactly, and text becomes JSON text unchanged. All other casts fail with
    /// [`Kind::Schema`].
    pub fn cast(self, data_type: &DataType) -> Result<Value> {
        let misfit = |value: &Value| {
            Error::new(Kind::Schema, format!("{data_type} expected, {} found", value.kind_name()))
        };
        Ok(match (self, data_type) {
            (Value::Null, _) => Value::Null,
            (v @ Value::Bool(_), DataType::Bool)
            | (v @ Value::Int32(_), DataType::Int32)
            | (v @ Value::Int64(_), DataType::Int64)
            | (v @ Value::Float32(_), DataType::Float32)
            | (v @ Value::Float64(_), DataType::Float64)
            | (v @ Value::String(_), DataType::String)
            | (v @ Value::Binary(_), DataType::Binary)
            | (v @ Value::Date(_), DataType::Date)
            | (v @ Value::Timestamp(_), DataType::Timestamp)
            | (v @ Value::Uuid(_), DataType::Uuid)
            | (v @ Value::Json(_), DataType::Json)
            | (v @ Value::Point(_), DataType::Point)
            | (v @ Value::Point3d(_), DataType::Point3d) => v,
            (Value::Int32(v), DataType::Int64) => Value::Int64(v.into()),
            (Value::Int64(v), DataType::Int32) => Value::Int32(
                v.try_into().map_err(|_| Error::new(Kind::Schema, format!("{v} does not fit int32")))?,
            ),
            (Value::Int32(v), DataType::Float64) => Value::Float64(v.into()),
            (Value::Int64(v), DataType::Float64) if v.unsigned_abs() <= 1 << 53 => Value::Float64(v as f64),
            (Value::Float32(v), DataType::Float64) => Value::Float64(v.into()),
            (Value::String(v), DataType::Json) => Value::Json(v),
            (Value::Decimal(v), DataType::Decimal { precision, .. }) => {
                if v.unsigned_abs() >= 10u128.pow((*precision).into()) {
                    return Err(Error::new(
                        Kind::Schema,
                        format!("a decimal has more digits than {data_type}"),
                    ));
                }
                Value::Decimal(v)
            }
            (Value::Vector(v), DataType::Vector(len)) => {
                if v.len() != *len as usize {
                    return Err(Error::new(
                        Kind::Schema,
                        format!("{data_type} expected, {} numbers found", v.len()),
                    ));
                }
                Value::Vector(v)
            }
            (Value::List(items), DataType::List(item)) => {
                let cast = |v: Value| cast_nested(v, &item.data_type, item.nullable, &item.name);
                Value::List(items.into_iter().map(cast).collect::<Result<_>>()?)
            }
            (Value::Struct(values), DataType::Struct(fields)) => {
                if values.len() != fields.len() {
                    return Err(Error::new(
                        Kind::Schema,
                        format!("{data_type} has {} fields, {} values found", fields.len(), values.len()),
                    ));
                }
                let cast = |(v, f): (Value, &crate::Field)| cast_nested(v, &f.data_type, f.nullable, &f.name);
                Value::Struct(values.into_iter().zip(fields).map(cast).collect::<Result<_>>()?)
            }
            (other, _) => return Err(misfit(&other)),
        })
    }

    /// Returns the name of the value's kind, as types are written.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int32(_) => "int32",
            Value::Int64(_) => "int64",
            Value::Float32(_) => "float32",
            Value::Float64(_) => "float64",
            Value::Decimal(_) => "decimal",
            Value::String(_) => "string",
            Value::Binary(_) => "binary",
            Value::Date(_) => "date",
            Value::Timestamp(_) => "timestamp",
            Value::Uuid(_) => "uuid",
            Value::Json(_) => "json",
            Value::List(_) => "list",
            Value::Struct(_) => "struct",
            Value::Vector(_) => "vector",
            Value::Point(_) => "point",
            Value::Point3d(_) => "point3d",
        }
    }

    /// Makes an array of `data_type` from `values`, each converted by [`Value::cast`].
    pub fn to_array(values: &[Value], data_type: &DataType) -> Result<ArrayRef> {
        let cast: Vec<Value> = values.iter().map(|v| v.clone().cast(data_type)).collect::<Result<_>>()?;
        Ok(build(&cast, data_type))
    }

    /// Returns the value at `row` of an array whose type is [`DataType::to_arrow`] of `data_type`.
    pub fn from_array(array: &dyn Array, data_type: &DataType, row: usize) -> Value {
        if array.is_null(row) {
            return Value::Null;
        }
        let floats = |array: &StructArray| -> Vec<f64> {
            array.columns().iter().map(|c| c.as_primitive::<Float64Type>().value(row)).collect()
        };
        match data_type {
            DataType::Bool => Value::Bool(array.as_boolean().value(row)),
            DataType::Int32 => Value::Int32(array.as_primitive::<Int32Type>().value(row)),
            DataType::Int64 => Value::Int64(array.as_primitive::<Int64Type>().value(row)),
            DataType::Float32 => Value::Float32(array.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => Value::Float64(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal { .. } => Value::Decimal(array.as_primitive::<Decimal128Type>().value(row)),
            DataType::String => Value::String(array.as_string::<i32>().value(row).to_owned()),
            DataType::Json => Value::Json(array.as_string::<i32>().value(row).to_owned()),
            DataType::Binary => Value::Binary(array.as_binary::<i32>().value(row).to_vec()),
            DataType::Date => Value::Date(array.as_primitive::<Date32Type>().value(row)),
            DataType::Timestamp => {
                Value::Timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            DataType::Uuid => {
                let bytes = array.as_fixed_size_binary().value(row);
                Value::Uuid(bytes.try_into().expect("a uuid column is 16 bytes wide"))
            }
            DataType::List(item) => {
                let items = array.as_list::<i32>().value(row);
                Value::List((0..items.len()).map(|i| Value::from_array(&items, &item.data_type, i)).collect())
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let value = |(f, c): (&crate::Field, &ArrayRef)| Value::from_array(c, &f.data_type, row);
                Value::Struct(fields.iter().zip(columns).map(value).collect())
            }
            DataType::Vector(_) => Value::Vector(
                array.as_fixed_size_list().value(row).as_primitive::<Float32Type>().values().to_vec(),
            ),
            DataType::Point => {
                Value::Point(floats(array.as_struct()).try_into().expect("a point has two numbers"))
            }
            DataType::Point3d => {
                Value::Point3d(floats(array.as_struct()).try_into().expect("a point3d has three numbers"))
            }
        }
    }

    pub(crate) fn encode(&self, e: &mut Encoder) {
        match self {
            Value::Null => e.u8(0),
            Value::Bool(v) => {
                e.u8(1);
                e.bool(*v);
            }
            Value::Int32(v) => {
                e.u8(2);
                e.u32(*v as u32);
            }
            Value::Int64(v) => {
                e.u8(3);
                e.i64(*v);
            }
            Value::Float32(v) => {
                e.u8(4);
                e.u32(v.to_bits());
            }
            Value::Float64(v) => {
                e.u8(5);
                e.f64(*v);
            }
            Value::Decimal(v) => {
                e.u8(6);
                e.i128(*v);
            }
            Value::String(v) => {
                e.u8(7);
                e.str(v);
            }
            Value::Binary(v) => {
                e.u8(8);
                e.blob(v);
            }
            Value::Date(v) => {
                e.u8(9);
                e.u32(*v as u32);
            }
            Value::Timestamp(v) => {
                e.u8(10);
                e.i64(*v);
            }
            Value::Uuid(v) => {
                e.u8(11);
                e.bytes.extend_from_slice(v);
            }
            Value::Json(v) => {
                e.u8(12);
                e.str(v);
            }
            Value::List(v) => {
                e.u8(13);
                e.list(v, |e, v| v.encode(e));
            }
            Value::Struct(v) => {
                e.u8(14);
                e.list(v, |e, v| v.encode(e));
            }
            Value::Vector(v) => {
                e.u8(15);
                e.list(v, |e, v| e.u32(v.to_bits()));
            }
            Value::Point(v) => {
                e.u8(16);
                v.iter().for_each(|v| e.f64(*v));
            }
            Value::Point3d(v) => {
                e.u8(17);
                v.iter().for_each(|v| e.f64(*v));
            }
        }
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        Self::decode_nested(d, 0)
    }

    fn decode_nested(d: &mut Decoder<'_>, depth: usize) -> Result<Self> {
        if depth > NESTING_MAX {
            return Err(d.damaged("a value nested too deep"));
        }
        Ok(match d.u8()? {
            0 => Value::Null,
            1 => Value::Bool(d.bool()?),
            2 => Value::Int32(d.u32()? as i32),
            3 => Value::Int64(d.i64()?),
            4 => Value::Float32(f32::from_bits(d.u32()?)),
            5 => Value::Float64(d.f64()?),
            6 => Value::Decimal(d.i128()?),
            7 => Value::String(d.str()?.to_owned()),
            8 => Value::Binary(d.blob()?.to_vec()),
            9 => Value::Date(d.u32()? as i32),
            10 => Value::Timestamp(d.i64()?),
            11 => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(d.take(16)?);
                Value::Uuid(bytes)
            }
            12 => Value::Json(d.str()?.to_owned()),
            13 => Value::List(d.list(|d| Self::decode_nested(d, depth + 1))?),
            14 => Value::Struct(d.list(|d| Self::decode_nested(d, depth + 1))?),
            15 => Value::Vector(d.list(|d| d.u32().map(f32::from_bits))?),
            16 => Value::Point([d.f64()?, d.f64()?]),
            17 => Value::Point3d([d.f64()?, d.f64()?, d.f64()?]),
            other => return Err(d.damaged(format!("{other} is not a kind of value"))),
        })
    }
}

fn cast_nested(value: Value, data_type: &DataType, nullable: bool, name: &str) -> Result<Value> {
    if value == Value::Null && !nullable {
        return Err(Error::new(Kind::Schema, format!("`{name}` is NOT NULL")));
    }
    value.cast(data_type)
}

/// Builds one array from values that were cast to `data_type`. The capacity is exact.
fn build(values: &[Value], data_type: &DataType) -> ArrayRef {
    macro_rules! fill {
        ($builder:expr, $variant:ident($v:ident) => $value:expr) => {{
            let mut builder = $builder;
            for value in values {
                match value {
                    Value::$variant($v) => builder.append_value($value),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }};
    }
    let rows = values.len();
    let nulls = || NullBuffer::from_iter(values.iter().map(|v| *v != Value::Null));
    let text_bytes = || {
        let bytes = |value: &Value| match value {
            Value::String(v) | Value::Json(v) => v.len(),
            Value::Binary(v) => v.len(),
            _ => 0,
        };
        values.iter().map(bytes).sum()
    };
    let floats = |width: usize, part: &dyn Fn(&Value, usize) -> f64| -> ArrayRef {
        let Arrow::Struct(fields) = data_type.to_arrow() else { unreachable!("points are structs") };
        let column =
            |i| Arc::new(Float64Array::from_iter_values(values.iter().map(|v| part(v, i)))) as ArrayRef;
        Arc::new(StructArray::new(fields, (0..width).map(column).collect(), Some(nulls())))
    };
    match data_type {
        DataType::Bool => fill!(BooleanBuilder::with_capacity(rows), Bool(v) => *v),
        DataType::Int32 => fill!(Int32Builder::with_capacity(rows), Int32(v) => *v),
        DataType::Int64 => fill!(Int64Builder::with_capacity(rows), Int64(v) => *v),
        DataType::Float32 => fill!(Float32Builder::with_capacity(rows), Float32(v) => *v),
        DataType::Float64 => fill!(Float64Builder::with_capacity(rows), Float64(v) => *v),
        DataType::Decimal { .. } => {
            let builder = Decimal128Builder::with_capacity(rows).with_data_type(data_type.to_arrow());
            fill!(builder, Decimal(v) => *v)
        }
        DataType::String => fill!(StringBuilder::with_capacity(rows, text_bytes()), String(v) => v),
        DataType::Json => fill!(StringBuilder::with_capacity(rows, text_bytes()), Json(v) => v),
        DataType::Binary => fill!(BinaryBuilder::with_capacity(rows, text_bytes()), Binary(v) => v),
        DataType::Date => fill!(Date32Builder::with_capacity(rows), Date(v) => *v),
        DataType::Timestamp => {
            let builder = TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC");
            fill!(builder, Timestamp(v) => *v)
        }
        DataType::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(rows, 16);
            for value in values {
                match value {
                    Value::Uuid(v) => builder.append_value(v).expect("a uuid is 16 bytes"),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::List(item) => {
            let items = |v: &Value| if let Value::List(items) = v { items.clone() } else { Vec::new() };
            let lists: Vec<Vec<Value>> = values.iter().map(items).collect();
            let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
            let flat = build(&lists.concat(), &item.data_type);
            Arc::new(ListArray::new(item.to_arrow(), offsets, flat, Some(nulls())))
        }
        DataType::Struct(fields) => {
            let Arrow::Struct(arrow_fields) = data_type.to_arrow() else { unreachable!("a struct") };
            let column = |(i, field): (usize, &crate::Field)| {
                let part = |v: &Value| match v {
                    Value::Struct(parts) => parts[i].clone(),
                    _ if field.nullable => Value::Null,
                    _ => zero(&field.data_type),
                };
                build(&values.iter().map(part).collect::<Vec<_>>(), &field.data_type)
            };
            let columns = fields.iter().enumerate().map(column).collect();
            let array = StructArray::try_new_with_length(arrow_fields, columns, Some(nulls()), values.len());
            Arc::new(array.expect("children of one length, without nulls where the field forbids them"))
        }
        DataType::Vector(len) => {
            let Arrow::FixedSizeList(item, size) = data_type.to_arrow() else { unreachable!("a vector") };
            let mut flat = Float32Builder::with_capacity(values.len() * *len as usize);
            for value in values {
                match value {
                    Value::Vector(v) => flat.append_slice(v),
                    _ => flat.append_value_n(0.0, *len as usize),
                }
            }
            Arc::new(FixedSizeListArray::new(item, size, Arc::new(flat.finish()), Some(nulls())))
        }
        DataType::Point => floats(2, &|v, i| if let Value::Point(p) = v { p[i] } else { 0.0 }),
        DataType::Point3d => floats(3, &|v, i| if let Value::Point3d(p) = v { p[i] } else { 0.0 }),
    }
}

/// Returns the filler for a NOT NULL child of a null parent. It is never shown, but Arrow requires the child to have
/// no nulls.
fn zero(data_type: &DataType) -> Value {
    match data_type {
        DataType::Bool => Value::Bool(false),
        DataType::Int32 => Value::Int32(0),
        DataType::Int64 => Value::Int64(0),
        DataType::Float32 => Value::Float32(0.0),
        DataType::Float64 => Value::Float64(0.0),
        DataType::Decimal { .. } => Value::Decimal(0),
        DataType::String => Value::String(String::new()),
        DataType::Binary => Value::Binary(Vec::new()),
        DataType::Date => Value::Date(0),
        DataType::Timestamp => Value::Timestamp(0),
        DataType::Uuid => Value::Uuid([0; 16]),
        DataType::Json => Value::Json("null".into()),
        DataType::List(_) => Value::List(Vec::new()),
        DataType::Struct(fields) => Value::Struct(
            fields.iter().map(|f| if f.nullable { Value::Null } else { zero(&f.data_type) }).collect(),
        ),
        DataType::Vector(len) => Value::Vector(vec![0.0; *len as usize]),
        DataType::Point => Value::Point([0.0; 2]),
        DataType::Point3d => Value::Point3d([0.0; 3]),
    }
}

#[cfg(test)]
mod tests;

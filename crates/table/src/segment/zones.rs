//! Zone maps: the least value, the greatest value and the number of nulls of each column in each block.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::compute::{max, max_boolean, max_string, min, min_boolean, min_string};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use types::codec::{Decoder, Encoder};
use types::{ColumnId, Result, Value};

use crate::Zone;

/// Bytes above which a text is cut as a lower bound and unknown as an upper bound.
const TEXT_MAX: usize = 64;

/// Computes the zone of one block's column. `None` for types without a zone, and for floats with NaN, which does not compare with
/// other values.
pub(crate) fn of(column: &ArrayRef) -> Option<Zone> {
    fn bounds<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        value: fn(T::Native) -> Value,
    ) -> (Option<Value>, Option<Value>) {
        let column = column.as_primitive::<T>();
        (min(column).map(value), max(column).map(value))
    }
    let (min, max) = match column.data_type() {
        Arrow::Boolean => (
            min_boolean(column.as_boolean()).map(Value::Bool),
            max_boolean(column.as_boolean()).map(Value::Bool),
        ),
        Arrow::Int32 => bounds::<Int32Type>(column, Value::Int32),
        Arrow::Int64 => bounds::<Int64Type>(column, Value::Int64),
        Arrow::Float32 if column.as_primitive::<Float32Type>().iter().flatten().all(|v| !v.is_nan()) => {
            bounds::<Float32Type>(column, Value::Float32)
        }
        Arrow::Float64 if column.as_primitive::<Float64Type>().iter().flatten().all(|v| !v.is_nan()) => {
            bounds::<Float64Type>(column, Value::Float64)
        }
        Arrow::Decimal128(..) => bounds::<Decimal128Type>(column, Value::Decimal),
        Arrow::Date32 => bounds::<Date32Type>(column, Value::Date),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            bounds::<TimestampMicrosecondType>(column, Value::Timestamp)
        }
        Arrow::Utf8 => {
            let texts = column.as_string::<i32>();
            let cut = |text: &str| {
                let end = (0..=TEXT_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                Value::String(text[..end.unwrap_or(0)].to_owned())
            };
            let least = min_string(texts).map(cut);
            let greatest = max_string(texts).filter(|t| t.len() <= TEXT_MAX);
            (least, greatest.map(|text| Value::String(text.to_owned())))
        }
        _ => return None,
    };
    Some(Zone { min, max, nulls: column.null_count() as u64 })
}

/// The columns of a block that have a zone, with their zones.
pub(crate) type BlockZones = Vec<(ColumnId, Zone)>;

pub(crate) fn encode(blocks: &[BlockZones]) -> Vec<u8> {
    let mut e = Encoder::new();
    e.list(blocks, |e, zones| {
        e.list(zones, |e, (column, zone)| {
            e.varint(column.0.into());
            e.varint(zone.nulls);
            e.option(zone.min.as_ref(), value);
            e.option(zone.max.as_ref(), value);
        });
    });
    e.bytes
}

pub(crate) fn decode(bytes: &[u8], blocks: usize) -> Result<Vec<BlockZones>> {
    let mut d = Decoder::new(bytes);
    let all = d.list(|d| {
        d.list(|d| {
            let (column, nulls) = (ColumnId(d.varint32()?), d.varint()?);
            Ok((column, Zone { nulls, min: d.option(read_value)?, max: d.option(read_value)? }))
        })
    })?;
    d.finish()?;
    if all.len() != blocks {
        return Err(d.damaged(format!("zone maps of {} blocks where {blocks} exist", all.len())));
    }
    Ok(all)
}

fn value(e: &mut Encoder, value: &Value) {
    match value {
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
        Value::Date(v) => {
            e.u8(9);
            e.u32(*v as u32);
        }
        Value::Timestamp(v) => {
            e.u8(10);
            e.i64(*v);
        }
        other => unreachable!("`of` makes no zone of {}", other.kind_name()),
    }
}

fn read_value(d: &mut Decoder<'_>) -> Result<Value> {
    Ok(match d.u8()? {
        1 => Value::Bool(d.bool()?),
        2 => Value::Int32(d.u32()? as i32),
        3 => Value::Int64(d.i64()?),
        4 => Value::Float32(f32::from_bits(d.u32()?)),
        5 => Value::Float64(d.f64()?),
        6 => Value::Decimal(d.i128()?),
        7 => Value::String(d.str()?.to_owned()),
        9 => Value::Date(d.u32()? as i32),
        10 => Value::Timestamp(d.i64()?),
        other => return Err(d.damaged(format!("{other} is not a kind of bound"))),
    })
}

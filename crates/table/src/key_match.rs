//! Compares key bytes with a stored row without encoding the row.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Date32Type, Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType};
use types::DataType;

use crate::layout::Layout;

/// Returns true if row `row` has the key `key`: the same result as comparing with [`types::key::encode_row`] of the row.
pub(crate) fn matches(layout: &Layout, batch: &RecordBatch, row: usize, mut key: &[u8]) -> bool {
    for (at, data_type) in layout.key.iter().zip(&layout.key_types) {
        let column = batch.column(*at);
        let same = match data_type {
            DataType::Bool => eat(&mut key, &[u8::from(column.as_boolean().value(row))]),
            DataType::Int32 => int32(&mut key, column.as_primitive::<Int32Type>().value(row)),
            DataType::Date => int32(&mut key, column.as_primitive::<Date32Type>().value(row)),
            DataType::Int64 => int64(&mut key, column.as_primitive::<Int64Type>().value(row)),
            DataType::Timestamp => {
                int64(&mut key, column.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            DataType::Decimal { .. } => {
                let value = column.as_primitive::<Decimal128Type>().value(row);
                eat(&mut key, &(value ^ i128::MIN).to_be_bytes())
            }
            DataType::Uuid => eat(&mut key, column.as_fixed_size_binary().value(row)),
            DataType::String => text(&mut key, column.as_string::<i32>().value(row).as_bytes()),
            DataType::Binary => text(&mut key, column.as_binary::<i32>().value(row)),
            other => unreachable!("{other} is not a key type; TableDef::set_primary_key refuses it"),
        };
        if !same {
            return false;
        }
    }
    key.is_empty()
}

fn eat(key: &mut &[u8], expected: &[u8]) -> bool {
    match key.strip_prefix(expected) {
        Some(rest) => {
            *key = rest;
            true
        }
        None => false,
    }
}

fn int32(key: &mut &[u8], value: i32) -> bool {
    eat(key, &(value ^ i32::MIN).to_be_bytes())
}

fn int64(key: &mut &[u8], value: i64) -> bool {
    eat(key, &(value ^ i64::MIN).to_be_bytes())
}

fn text(key: &mut &[u8], mut value: &[u8]) -> bool {
    while let Some(zero) = value.iter().position(|b| *b == 0) {
        if !(eat(key, &value[..zero]) && eat(key, &[0, 0xff])) {
            return false;
        }
        value = &value[zero + 1..];
    }
    eat(key, value) && eat(key, &[0, 0])
}

#[cfg(test)]
#[path = "key_match/tests.rs"]
mod tests;

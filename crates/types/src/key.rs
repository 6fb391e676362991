//! Primary keys as bytes that compare as the key's values do, and their hash.
//!
//! A key's bytes are its columns' one after the other:
//!
//! | type | bytes |
//! |---|---|
//! | bool | 0 or 1 |
//! | int32, int64, date, timestamp, decimal | big-endian with the sign bit flipped (4, 8, 4, 8, 16 bytes) |
//! | uuid | its 16 bytes |
//! | string, binary | its bytes, each 0 followed by 0xff, then 0 0 |
//!
//! Both this encoding and [`hash`] are part of the stored format: key runs hold hashes.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Date32Type, Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType};

use crate::{DataType, Error, Result, Value};

/// Appends the key bytes of one row. `columns` are the key's columns in key order, `types` theirs.
/// The values must not be null, which a table's NOT NULL check has seen to.
pub fn encode_row(types: &[DataType], columns: &[&dyn Array], row: usize, out: &mut Vec<u8>) {
    assert_eq!(types.len(), columns.len(), "one type for each key column");
    for (data_type, column) in types.iter().zip(columns) {
        debug_assert!(column.is_valid(row), "key columns are NOT NULL");
        match data_type {
            DataType::Bool => out.push(u8::from(column.as_boolean().value(row))),
            DataType::Int32 => int32(column.as_primitive::<Int32Type>().value(row), out),
            DataType::Date => int32(column.as_primitive::<Date32Type>().value(row), out),
            DataType::Int64 => int64(column.as_primitive::<Int64Type>().value(row), out),
            DataType::Timestamp => int64(column.as_primitive::<TimestampMicrosecondType>().value(row), out),
            DataType::Decimal { .. } => int128(column.as_primitive::<Decimal128Type>().value(row), out),
            DataType::Uuid => out.extend_from_slice(column.as_fixed_size_binary().value(row)),
            DataType::String => text(column.as_string::<i32>().value(row).as_bytes(), out),
            DataType::Binary => text(column.as_binary::<i32>().value(row), out),
            other => unreachable!("{other} is no key type; TableDef::set_primary_key refuses it"),
        }
    }
}

/// The same bytes from single values.
pub fn encode_values(types: &[DataType], values: &[Value]) -> Result<Vec<u8>> {
    if types.len() != values.len() {
        return Err(Error::invalid(format!(
            "the key has {} columns, {} values were given",
            types.len(),
            values.len()
        )));
    }
    let mut out = Vec::new();
    for (data_type, value) in types.iter().zip(values) {
        match value.clone().cast(data_type)? {
            Value::Bool(v) => out.push(u8::from(v)),
            Value::Int32(v) | Value::Date(v) => int32(v, &mut out),
            Value::Int64(v) | Value::Timestamp(v) => int64(v, &mut out),
            Value::Decimal(v) => int128(v, &mut out),
            Value::Uuid(v) => out.extend_from_slice(&v),
            Value::String(v) => text(v.as_bytes(), &mut out),
            Value::Binary(v) => text(&v, &mut out),
            Value::Null => return Err(Error::invalid("a key value is null")),
            other => return Err(Error::invalid(format!("{other:?} cannot be part of a key"))),
        }
    }
    Ok(out)
}

/// The hash under which key runs hold a key: XXH3, 64 bits, seed 0.
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

fn int32(value: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value ^ i32::MIN).to_be_bytes());
}

fn int64(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value ^ i64::MIN).to_be_bytes());
}

fn int128(value: i128, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value ^ i128::MIN).to_be_bytes());
}

fn text(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(zero) = bytes.iter().position(|b| *b == 0) {
        out.extend_from_slice(&bytes[..zero]);
        out.extend_from_slice(&[0, 0xff]);
        bytes = &bytes[zero + 1..];
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(values: &[Value], types: &[DataType]) -> Vec<u8> {
        encode_values(types, values).unwrap()
    }

    #[test]
    fn keys_sort_as_their_values() {
        let ints = [i64::MIN, -300, -1, 0, 1, 255, 256, i64::MAX];
        for pair in ints.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|v| key(&[Value::Int64(v)], &[DataType::Int64]));
            assert!(a < b);
        }
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "aa", "b", "é"];
        for pair in texts.windows(2) {
            let types = [DataType::String, DataType::Int32];
            let a = key(&[Value::String(pair[0].into()), Value::Int32(9)], &types);
            let b = key(&[Value::String(pair[1].into()), Value::Int32(-9)], &types);
            assert!(a < b, "{pair:?}");
        }
    }

    #[test]
    fn a_column_and_a_value_give_the_same_bytes() {
        let types = [
            DataType::Bool,
            DataType::Int32,
            DataType::Int64,
            DataType::Decimal { precision: 10, scale: 2 },
            DataType::String,
            DataType::Binary,
            DataType::Date,
            DataType::Timestamp,
            DataType::Uuid,
        ];
        let values = [
            Value::Bool(true),
            Value::Int32(-4),
            Value::Int64(5),
            Value::Decimal(-123),
            Value::String("a\0b".into()),
            Value::Binary(vec![0, 1]),
            Value::Date(20_000),
            Value::Timestamp(-1),
            Value::Uuid([7; 16]),
        ];
        let arrays: Vec<_> = types
            .iter()
            .zip(&values)
            .map(|(t, v)| Value::to_array(std::slice::from_ref(v), t).unwrap())
            .collect();
        let columns: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
        let mut from_row = Vec::new();
        encode_row(&types, &columns, 0, &mut from_row);
        assert_eq!(from_row, key(&values, &types));
    }

    /// Stored key runs hold these; they must never change.
    #[test]
    fn the_hash_is_fixed() {
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
    }
}

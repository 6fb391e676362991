//! Encodes values as bytes whose order is the order of the values, for primary keys, key hashes and column indexes.
//!
//! A key is the concatenation of its columns:
//!
//! | type | bytes |
//! |---|---|
//! | bool | 0 or 1 |
//! | int32, int64, date, timestamp, decimal | big-endian with the sign bit flipped (4, 8, 4, 8, 16 bytes) |
//! | float32, float64 | big-endian bits (4, 8 bytes) in IEEE 754's total order: sign bit flipped, or all bits if negative. Not in keys |
//! | uuid | its 16 bytes |
//! | string, binary | its bytes, each 0 followed by 0xff, then 0 0 |
//!
//! Both this encoding and [`hash`] are part of the stored format: key runs hold hashes, indexes hold the bytes.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};

use crate::{DataType, Error, Result, Value};

/// Appends the key bytes of one row. `columns` are the key's columns in key order, `types` their types. The values
/// must not be null; the table's NOT NULL check ensures that.
pub fn encode_row(types: &[DataType], columns: &[&dyn Array], row: usize, out: &mut Vec<u8>) {
    assert_eq!(types.len(), columns.len(), "one type for each key column");
    for (data_type, column) in types.iter().zip(columns) {
        append(data_type, *column, row, out);
    }
}

/// Appends the bytes of one value, which must not be null. `column` holds values of `data_type`, which is one of the
/// types in the table above.
pub fn append(data_type: &DataType, column: &dyn Array, row: usize, out: &mut Vec<u8>) {
    debug_assert!(column.is_valid(row), "key columns are NOT NULL");
    match data_type {
        DataType::Bool => out.push(u8::from(column.as_boolean().value(row))),
        DataType::Int32 => int32(column.as_primitive::<Int32Type>().value(row), out),
        DataType::Date => int32(column.as_primitive::<Date32Type>().value(row), out),
        DataType::Int64 => int64(column.as_primitive::<Int64Type>().value(row), out),
        DataType::Timestamp => int64(column.as_primitive::<TimestampMicrosecondType>().value(row), out),
        DataType::Float32 => float32(column.as_primitive::<Float32Type>().value(row), out),
        DataType::Float64 => float64(column.as_primitive::<Float64Type>().value(row), out),
        DataType::Decimal { .. } => int128(column.as_primitive::<Decimal128Type>().value(row), out),
        DataType::Uuid => out.extend_from_slice(column.as_fixed_size_binary().value(row)),
        DataType::String => text(column.as_string::<i32>().value(row).as_bytes(), out),
        DataType::Binary => text(column.as_binary::<i32>().value(row), out),
        other => unreachable!("{other} is not a key type; a definition with such a key is refused"),
    }
}

/// Appends bytes that are equal for equal values. Differs from [`append`] for floats: -0.0 is encoded as 0.0, and all
/// NaNs alike.
pub fn append_equal(data_type: &DataType, column: &dyn Array, row: usize, out: &mut Vec<u8>) {
    match data_type {
        DataType::Float32 => {
            let value = column.as_primitive::<Float32Type>().value(row);
            float32(if value.is_nan() { f32::NAN } else { value + 0.0 }, out);
        }
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            float64(if value.is_nan() { f64::NAN } else { value + 0.0 }, out);
        }
        _ => append(data_type, column, row, out),
    }
}

/// Encodes one key from single values, with the same result as [`encode_row`].
pub fn encode_values<'a>(
    types: impl IntoIterator<Item = &'a DataType, IntoIter: Clone>,
    values: &[Value],
) -> Result<Vec<u8>> {
    let types = types.into_iter();
    let columns = types.clone().count();
    if columns != values.len() {
        return Err(Error::invalid(format!(
            "the key has {columns} columns, {} values were given",
            values.len()
        )));
    }
    let mut out = Vec::with_capacity(16);
    for (data_type, value) in types.zip(values) {
        if data_type.is_key() {
            append_value(data_type, value, &mut out)?;
        } else {
            return Err(Error::invalid(format!("{value:?} cannot be part of a key")));
        }
    }
    Ok(out)
}

/// Appends the bytes of one value after casting it to `data_type`, with the same result as [`append`].
/// [`Kind::Invalid`](crate::Kind::Invalid) for null and for types without an order.
pub fn append_value(data_type: &DataType, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    match value.clone().cast(data_type)? {
        Value::Bool(v) => out.push(u8::from(v)),
        Value::Int32(v) | Value::Date(v) => int32(v, out),
        Value::Int64(v) | Value::Timestamp(v) => int64(v, out),
        Value::Float32(v) => float32(v, out),
        Value::Float64(v) => float64(v, out),
        Value::Decimal(v) => int128(v, out),
        Value::Uuid(v) => out.extend_from_slice(&v),
        Value::String(v) => text(v.as_bytes(), out),
        Value::Binary(v) => text(&v, out),
        Value::Null => return Err(Error::invalid("a key value is null")),
        other => return Err(Error::invalid(format!("{other:?} cannot be part of a key"))),
    }
    Ok(())
}

/// Appends the bytes that every encoded text with this prefix begins with.
pub fn append_prefix(prefix: &str, out: &mut Vec<u8>) {
    text(prefix.as_bytes(), out);
    // The terminator is removed.
    out.truncate(out.len() - 2);
}

/// Hashes a key for key runs: XXH3, 64 bits, seed 0.
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

fn int32(value: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value ^ i32::MIN).to_be_bytes());
}

fn int64(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value ^ i64::MIN).to_be_bytes());
}

fn float32(value: f32, out: &mut Vec<u8>) {
    let bits = value.to_bits() as i32;
    // All bits but the sign of a negative number are flipped, as `f32::total_cmp` does.
    int32(bits ^ (((bits >> 31) as u32) >> 1) as i32, out);
}

fn float64(value: f64, out: &mut Vec<u8>) {
    let bits = value.to_bits() as i64;
    int64(bits ^ (((bits >> 63) as u64) >> 1) as i64, out);
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
    fn floats_sort_in_total_order() {
        let floats = [
            -f64::NAN,
            f64::NEG_INFINITY,
            -2.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            1e-300,
            2.5,
            f64::INFINITY,
            f64::NAN,
        ];
        let bytes = |data_type: &DataType, value: &Value| {
            let mut out = Vec::new();
            append_value(data_type, value, &mut out).unwrap();
            let array = Value::to_array(std::slice::from_ref(value), data_type).unwrap();
            let mut of_column = Vec::new();
            append(data_type, array.as_ref(), 0, &mut of_column);
            assert_eq!(out, of_column);
            out
        };
        for pair in floats.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|v| bytes(&DataType::Float64, &Value::Float64(v)));
            assert!(a < b, "{pair:?}");
            let (a, b) = (pair[0] as f32, pair[1] as f32);
            let [x, y] = [a, b].map(|v| bytes(&DataType::Float32, &Value::Float32(v)));
            assert_eq!(x.cmp(&y), a.total_cmp(&b), "{pair:?}");
        }
        assert!(encode_values(&[DataType::Float64], &[Value::Float64(1.0)]).is_err(), "no primary key");
    }

    #[test]
    fn floats_that_are_equal_have_equal_bytes() {
        let bytes = |value: f64| {
            let of = |data_type: DataType, value: Value| {
                let array = Value::to_array(&[value], &data_type).unwrap();
                let mut out = Vec::new();
                append_equal(&data_type, array.as_ref(), 0, &mut out);
                out
            };
            [
                of(DataType::Float64, Value::Float64(value)),
                of(DataType::Float32, Value::Float32(value as f32)),
            ]
        };
        assert_eq!(bytes(-0.0), bytes(0.0));
        assert_eq!(bytes(f64::NAN), bytes(-f64::NAN));
        assert_eq!(bytes(f64::NAN), bytes(f64::from_bits(f64::NAN.to_bits() | 7 << 40)));
        assert_ne!(bytes(f64::NAN), bytes(f64::INFINITY));
        assert_ne!(bytes(1.0), bytes(-1.0));
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

    /// Stored key runs hold these hashes, so they must never change.
    #[test]
    fn the_hash_is_fixed() {
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
    }
}

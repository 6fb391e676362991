//! Iceberg's partition transforms, applied to columns.
//!
//! Hashes are 32-bit Murmur3 (x86, seed 0) over the bytes that the specification prescribes: integers, dates and times as
//! eight little-endian bytes; decimals as the shortest big-endian two's complement; texts as UTF-8; uuids and binary
//! unchanged. Times and widths round down: -1 is in the hour before 1970, and truncates to -10 with width ten.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, Int32Array, StringArray};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use types::{Error, Result, Transform};

use crate::single_value::{SingleValue, shortest_bytes};

const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

/// Parses a transform in Iceberg's notation. Returns `None` for any other, `void` included.
pub fn parse(text: &str) -> Option<Transform> {
    let (called, number) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((called, number)) => (called, Some(number.parse().ok().filter(|n: &u32| *n > 0)?)),
        None => (text, None),
    };
    Some(match (called, number) {
        ("identity", None) => Transform::Identity,
        ("bucket", Some(count)) => Transform::Bucket(count),
        ("truncate", Some(width)) => Transform::Truncate(width),
        ("year", None) => Transform::Year,
        ("month", None) => Transform::Month,
        ("day", None) => Transform::Day,
        ("hour", None) => Transform::Hour,
        _ => return None,
    })
}

/// Applies a transform to each value; nulls stay null.
pub fn apply(transform: Transform, column: &ArrayRef) -> Result<ArrayRef> {
    match transform {
        Transform::Identity => Ok(normalize_nans(column)),
        Transform::Bucket(count) => bucket(column, count),
        Transform::Truncate(width) => truncate(column, width),
        Transform::Year | Transform::Month => {
            let of = |days: i64| match transform {
                Transform::Year => year_and_month(days).0 - 1970,
                _ => (year_and_month(days).0 - 1970) * 12 + year_and_month(days).1 - 1,
            };
            times(column, |us| of(us.div_euclid(DAY_US)), of)
        }
        Transform::Day => times(column, |us| us.div_euclid(DAY_US), |days| days),
        Transform::Hour => times(column, |us| us.div_euclid(HOUR_US), |days| days.saturating_mul(24)),
    }
}

/// Returns the value at a row as a partition value; `None` for null.
pub fn value_at(column: &ArrayRef, row: usize) -> Result<Option<SingleValue>> {
    if column.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match column.data_type() {
        Arrow::Boolean => SingleValue::Bool(column.as_boolean().value(row)),
        Arrow::Int32 => SingleValue::Int(column.as_primitive::<Int32Type>().value(row).into()),
        Arrow::Int64 => SingleValue::Int(column.as_primitive::<Int64Type>().value(row)),
        Arrow::Float32 => SingleValue::Float(column.as_primitive::<Float32Type>().value(row).into()),
        Arrow::Float64 => SingleValue::Float(column.as_primitive::<Float64Type>().value(row)),
        Arrow::Date32 => SingleValue::Int(column.as_primitive::<Date32Type>().value(row).into()),
        Arrow::Timestamp(..) => SingleValue::Int(micros(column)?.value(row)),
        Arrow::Decimal128(..) => SingleValue::Decimal(column.as_primitive::<Decimal128Type>().value(row)),
        Arrow::Utf8 => SingleValue::Bytes(column.as_string::<i32>().value(row).as_bytes().to_vec()),
        Arrow::Binary => SingleValue::Bytes(column.as_binary::<i32>().value(row).to_vec()),
        Arrow::FixedSizeBinary(_) => SingleValue::Bytes(column.as_fixed_size_binary().value(row).to_vec()),
        other => return Err(unknown(other)),
    }))
}

fn unknown(arrow: &Arrow) -> Error {
    Error::internal(format!("a column of type {arrow} is not partitioned"))
}

fn micros(column: &ArrayRef) -> Result<&arrow::array::PrimitiveArray<TimestampMicrosecondType>> {
    column.as_primitive_opt().ok_or_else(|| unknown(column.data_type()))
}

/// Makes all NaNs equal: their payload bits have no meaning.
fn normalize_nans(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        Arrow::Float32 => {
            let floats = column.as_primitive::<Float32Type>();
            Arc::new(floats.unary::<_, Float32Type>(|v| if v.is_nan() { f32::NAN } else { v }))
        }
        Arrow::Float64 => {
            let floats = column.as_primitive::<Float64Type>();
            Arc::new(floats.unary::<_, Float64Type>(|v| if v.is_nan() { f64::NAN } else { v }))
        }
        _ => column.clone(),
    }
}

fn times(
    column: &ArrayRef,
    of_micros: impl Fn(i64) -> i64,
    of_days: impl Fn(i64) -> i64,
) -> Result<ArrayRef> {
    // The years that a table accepts are far inside this range.
    let narrow = |n: i64| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    Ok(match column.data_type() {
        Arrow::Date32 => {
            let days = column.as_primitive::<Date32Type>();
            Arc::new(days.unary::<_, Int32Type>(|days| narrow(of_days(days.into()))))
        }
        Arrow::Timestamp(..) => Arc::new(micros(column)?.unary::<_, Int32Type>(|us| narrow(of_micros(us)))),
        other => return Err(unknown(other)),
    })
}

/// Returns the year and month (1 to 12) of a day since 1970, in the proleptic Gregorian calendar.
fn year_and_month(days: i64) -> (i64, i64) {
    let (year, month, _) = date(days);
    (year, month)
}

/// Returns the year, month and day of the month of a day since 1970. The computed year begins in March, so that a leap day
/// is its last.
pub fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let from_march_0 = days + 719_468;
    let (era, day) = (from_march_0.div_euclid(DAYS_OF_400_YEARS), from_march_0.rem_euclid(DAYS_OF_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400, month + 3);
    if month > 12 { (year + 1, month - 12, day) } else { (year, month, day) }
}

fn bucket(column: &ArrayRef, count: u32) -> Result<ArrayRef> {
    let of = |hash: u32| ((hash & i32::MAX as u32) % count) as i32;
    let of_long = |n: i64| of(murmur3(&n.to_le_bytes()));
    Ok(Arc::new(match column.data_type() {
        Arrow::Int32 => column.as_primitive::<Int32Type>().unary::<_, Int32Type>(|n| of_long(n.into())),
        Arrow::Int64 => column.as_primitive::<Int64Type>().unary(of_long),
        Arrow::Date32 => column.as_primitive::<Date32Type>().unary(|n| of_long(n.into())),
        Arrow::Timestamp(..) => micros(column)?.unary(of_long),
        Arrow::Decimal128(..) => {
            column.as_primitive::<Decimal128Type>().unary(|n| of(murmur3(&shortest_bytes(n))))
        }
        Arrow::Utf8 => {
            let texts = column.as_string::<i32>();
            Int32Array::from_iter(texts.iter().map(|text| text.map(|text| of(murmur3(text.as_bytes())))))
        }
        Arrow::Binary => {
            let blobs = column.as_binary::<i32>();
            Int32Array::from_iter(blobs.iter().map(|blob| blob.map(|blob| of(murmur3(blob)))))
        }
        Arrow::FixedSizeBinary(_) => {
            let blobs = column.as_fixed_size_binary();
            Int32Array::from_iter(blobs.iter().map(|blob| blob.map(|blob| of(murmur3(blob)))))
        }
        other => return Err(unknown(other)),
    }))
}

fn truncate(column: &ArrayRef, width: u32) -> Result<ArrayRef> {
    Ok(match column.data_type() {
        // The least value of the type may have no multiple below it; then the value itself is the result.
        Arrow::Int32 => {
            let of =
                |n: i32| (i64::from(n) - i64::from(n).rem_euclid(width.into())).max(i32::MIN.into()) as i32;
            Arc::new(column.as_primitive::<Int32Type>().unary::<_, Int32Type>(of)) as ArrayRef
        }
        Arrow::Int64 => {
            let of = |n: i64| n.saturating_sub(n.rem_euclid(width.into()));
            Arc::new(column.as_primitive::<Int64Type>().unary::<_, Int64Type>(of))
        }
        Arrow::Decimal128(precision, scale) => {
            let least = 1 - 10i128.pow((*precision).into());
            let of = |n: i128| (n - n.rem_euclid(width.into())).max(least);
            let truncated: Decimal128Array =
                column.as_primitive::<Decimal128Type>().unary::<_, Decimal128Type>(of);
            let typed = truncated.with_precision_and_scale(*precision, *scale);
            Arc::new(typed.map_err(|e| Error::internal(format!("a truncated decimal: {e}")))?)
        }
        Arrow::Utf8 => {
            let cut = |text: &str| -> usize {
                text.char_indices().nth(width as usize).map_or(text.len(), |(at, _)| at)
            };
            let texts = column.as_string::<i32>().iter();
            Arc::new(StringArray::from_iter(texts.map(|text| text.map(|text| text[..cut(text)].to_owned()))))
        }
        Arrow::Binary => {
            let blobs = column.as_binary::<i32>().iter();
            let cut = |blob: &[u8]| blob[..blob.len().min(width as usize)].to_vec();
            Arc::new(BinaryArray::from_iter(blobs.map(|blob| blob.map(cut))))
        }
        other => return Err(unknown(other)),
    })
}

/// 32-bit Murmur3 for x86 with seed 0, by Austin Appleby.
fn murmur3(bytes: &[u8]) -> u32 {
    let scramble = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = 0u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        hash ^= scramble(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let rest = words.remainder().iter().rev().fold(0u32, |rest, byte| rest << 8 | u32::from(*byte));
    hash ^= scramble(rest) ^ bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests;

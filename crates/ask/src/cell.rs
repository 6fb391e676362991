//! Values of small query results.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Value as Json, json};

use crate::number::Number;
use crate::time::{DAY, rfc3339};

/// The longest text in an answer, in characters. A longer one is cut and ends with `…`.
const TEXT_CHARS_MAX: usize = 300;
/// The largest integer that JSON readers keep exactly. Larger ones are written as strings.
const EXACT_MAX: u64 = 1 << 53;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(Number),
    Text(String),
    /// Microseconds since 1970.
    Time(i64),
}

impl Cell {
    pub fn json(&self) -> Json {
        match self {
            Cell::Null => Json::Null,
            Cell::Bool(value) => json!(value),
            Cell::Int(value) if value.unsigned_abs() > EXACT_MAX => json!(value.to_string()),
            Cell::Int(value) => json!(value),
            // NaN and the infinities become null.
            Cell::Float(value) => json!(value),
            Cell::Decimal(value) if value.fits_in_float() => json!(value.to_f64()),
            Cell::Decimal(value) => json!(value.to_string()),
            Cell::Text(text) => json!(text),
            Cell::Time(time) => json!(rfc3339(*time)),
        }
    }

    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Int(value) => Some(*value as f64),
            Cell::Float(value) => Some(*value),
            Cell::Decimal(value) => Some(value.to_f64()),
            _ => None,
        }
    }

    /// Compares the value with a number, over all digits of both. Returns `None` for values that are not numbers.
    pub fn order(&self, number: Number) -> Option<Ordering> {
        match self {
            Cell::Int(value) => Some(Number::from(*value).order(number)),
            Cell::Decimal(value) => Some(value.order(number)),
            Cell::Float(value) => value.partial_cmp(&number.to_f64()),
            _ => None,
        }
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Cell::Int(value) | Cell::Time(value) => Some(*value),
            _ => None,
        }
    }

    pub fn time(&self) -> Option<i64> {
        if let Cell::Time(time) = self { Some(*time) } else { None }
    }

    pub fn text(&self) -> Option<&str> {
        if let Cell::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the value as it appears in a sentence.
    pub fn phrase(&self) -> String {
        match self {
            Cell::Null => "nothing".into(),
            Cell::Text(text) => format!("“{text}”"),
            Cell::Float(value) => crate::sources::format_figure(*value),
            Cell::Int(value) => crate::sources::format_integer(*value),
            Cell::Decimal(value) => value.phrase(),
            Cell::Time(time) => crate::time::format_time(*time),
            Cell::Bool(value) => value.to_string(),
        }
    }
}

/// Converts a batch to rows of cells.
pub(crate) fn rows(batch: &RecordBatch) -> Vec<Vec<Cell>> {
    let columns: Vec<Vec<Cell>> = batch.columns().iter().map(cells).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect()
}

fn cells(array: &ArrayRef) -> Vec<Cell> {
    macro_rules! ints {
        ($type:ty) => {
            (0..array.len())
                .map(|i| one(array, i, |i| Cell::Int(array.as_primitive::<$type>().value(i).into())))
                .collect()
        };
    }
    match array.data_type() {
        Arrow::Boolean => {
            (0..array.len()).map(|i| one(array, i, |i| Cell::Bool(array.as_boolean().value(i)))).collect()
        }
        Arrow::Int8 => ints!(Int8Type),
        Arrow::Int16 => ints!(Int16Type),
        Arrow::Int32 => ints!(Int32Type),
        Arrow::Int64 => ints!(Int64Type),
        Arrow::UInt8 => ints!(UInt8Type),
        Arrow::UInt16 => ints!(UInt16Type),
        Arrow::UInt32 => ints!(UInt32Type),
        Arrow::UInt64 => (0..array.len())
            .map(|i| {
                one(array, i, |i| {
                    let value = array.as_primitive::<UInt64Type>().value(i);
                    i64::try_from(value).map_or_else(|_| Cell::Text(value.to_string()), Cell::Int)
                })
            })
            .collect(),
        Arrow::Float32 => (0..array.len())
            .map(|i| one(array, i, |i| Cell::Float(array.as_primitive::<Float32Type>().value(i).into())))
            .collect(),
        Arrow::Float64 => (0..array.len())
            .map(|i| one(array, i, |i| Cell::Float(array.as_primitive::<Float64Type>().value(i))))
            .collect(),
        Arrow::Decimal128(_, scale) => (0..array.len())
            .map(|i| {
                one(array, i, |i| {
                    let value = array.as_primitive::<Decimal128Type>().value(i);
                    match u32::try_from(*scale) {
                        Ok(scale) => Cell::Decimal(Number::new(value, scale)),
                        Err(_) => Cell::Float(value as f64 / 10f64.powi((*scale).into())),
                    }
                })
            })
            .collect(),
        Arrow::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _) => (0..array.len())
            .map(|i| one(array, i, |i| Cell::Time(array.as_primitive::<TimestampMicrosecondType>().value(i))))
            .collect(),
        Arrow::Date32 => (0..array.len())
            .map(|i| {
                one(array, i, |i| {
                    let day = i64::from(array.as_primitive::<Date32Type>().value(i));
                    Cell::Text(rfc3339(day * DAY)[..].split('T').next().unwrap_or_default().to_owned())
                })
            })
            .collect(),
        _ => {
            let options = FormatOptions::default().with_display_error(true);
            let Ok(formatter) = ArrayFormatter::try_new(array.as_ref(), &options) else {
                return vec![Cell::Null; array.len()];
            };
            (0..array.len())
                .map(|i| one(array, i, |i| Cell::Text(truncate(&formatter.value(i).to_string()))))
                .collect()
        }
    }
}

fn one(array: &ArrayRef, at: usize, value: impl Fn(usize) -> Cell) -> Cell {
    if array.is_null(at) || *array.data_type() == Arrow::Null { Cell::Null } else { value(at) }
}

/// Cuts a text to [`TEXT_CHARS_MAX`] characters.
pub(crate) fn truncate(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

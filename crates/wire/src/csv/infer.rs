//! Infers the types of undeclared columns from the texts of their values.

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::Date32Type;
use types::{DATES, DataType, TIMES};

/// Returns the narrowest type for a text; `None` if it is empty. Dates and times are recognised only if `times` is
/// set: rows sent to a table keep them as texts, as JSON rows do.
pub fn type_of(text: &str, times: bool) -> Option<DataType> {
    if text.is_empty() {
        return None;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    // A text such as `007` is a name, not a number: as a number it would lose its zeros.
    let padded =
        digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let begins_like_a_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    Some(match text {
        _ if padded || text.starts_with('+') => DataType::String,
        _ if text.parse::<i64>().is_ok() => DataType::Int64,
        // A whole number beyond 64 bits would lose digits as a float.
        _ if digits.bytes().all(|byte| byte.is_ascii_digit()) => DataType::String,
        _ if begins_like_a_number && text.parse::<f64>().is_ok_and(f64::is_finite) => DataType::Float64,
        "NaN" | "inf" | "-inf" | "Infinity" | "-Infinity" => DataType::Float64,
        _ if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") => DataType::Bool,
        _ if !times => DataType::String,
        // Times beyond the years that timestamp columns can hold stay texts.
        _ if text.len() == 10 && Date32Type::parse(text).is_some_and(|day| DATES.contains(&day)) => {
            DataType::Date
        }
        _ if text.len() > 10
            && begins_like_a_number
            && string_to_datetime(&utc(), text)
                .is_ok_and(|time| TIMES.contains(&time.timestamp_micros())) =>
        {
            DataType::Timestamp
        }
        _ => DataType::String,
    })
}

/// Returns the narrowest type that holds values of both types.
pub fn join(a: DataType, b: DataType) -> DataType {
    match (&a, &b) {
        _ if a == b => a,
        (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) => DataType::Float64,
        (DataType::Date, DataType::Timestamp) | (DataType::Timestamp, DataType::Date) => DataType::Timestamp,
        _ => DataType::String,
    }
}

fn utc() -> Tz {
    "+00:00".parse().expect("an offset of nothing is a time zone")
}

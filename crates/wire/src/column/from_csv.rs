//! Takes values from the text of CSV fields.

use super::from_json::unread;
use super::{BytesKind, ColumnBuffer, Data, Result, ValueFault};
use crate::parser::Parser;
use crate::{Budget, text};

impl ColumnBuffer {
    /// Takes the next value. An empty field is null, but a quoted empty field is the empty value in columns of strings
    /// or binaries. After a misfit the caller must truncate the column.
    pub fn push_csv(&mut self, written: &str, is_quoted: bool, budget: &mut Budget) -> Result<()> {
        if written.is_empty() && !(is_quoted && self.holds_empty()) {
            return self.push_nulls(1, budget);
        }
        // Values other than texts may have spaces around them.
        let trimmed = written.trim();
        match &mut self.data {
            Data::Untyped => unreachable!("a column of CSV has its type from the beginning"),
            Data::Bool(v) => v.append(parse_bool(trimmed).ok_or_else(|| unread("bool", written))?),
            Data::Int32(v) => v.push(trimmed.parse().map_err(|_| unread("int32", written))?),
            Data::Int64(v) => v.push(trimmed.parse().map_err(|_| unread("int64", written))?),
            Data::Float32(v) => v.push(parse_float32(trimmed).ok_or_else(|| unread("float32", written))?),
            Data::Float64(v) => v.push(parse_float64(trimmed).ok_or_else(|| unread("float64", written))?),
            Data::Decimal(v, precision, scale) => {
                let digits = trimmed.strip_prefix('+').unwrap_or(trimmed);
                let value = text::parse_decimal(digits, *precision, *scale);
                v.push(value.ok_or_else(|| unread(&format!("decimal({precision},{scale})"), written))?);
            }
            Data::Bytes(offsets, bytes, content) => {
                match content {
                    BytesKind::String => bytes.extend_from_slice(written.as_bytes()),
                    BytesKind::Base64 if !parse_binary(written, bytes) => {
                        return Err(unread("base64, or hexadecimal digits after `\\x`", written));
                    }
                    BytesKind::Base64 => {}
                    BytesKind::Json => return self.push_json_field(written, budget),
                }
                offsets.push(bytes.len() as i32);
            }
            Data::Date(v) => {
                let day =
                    text::parse_day(trimmed).ok_or_else(|| unread("date like `2026-11-21`", written))?;
                v.push(day);
            }
            Data::Timestamp(v) => {
                let of_number = self.input.and_then(|unit| unit.micros(trimmed));
                let time = of_number.or_else(|| text::parse_time(trimmed));
                v.push(time.ok_or_else(|| unread("timestamp like `2026-11-21T08:06:51Z`", written))?);
            }
            Data::Uuid(v) => {
                v.extend_from_slice(&text::parse_uuid(trimmed).ok_or_else(|| unread("uuid", written))?);
            }
            Data::List(..) | Data::Struct(_) | Data::Vector(..) | Data::Floats(..) => {
                return self.push_json_field(written, budget);
            }
        }
        self.mark_valid();
        Ok(())
    }

    /// Takes a value that has no other text form than JSON.
    fn push_json_field(&mut self, written: &str, budget: &mut Budget) -> Result<()> {
        let mut p = Parser::new(written);
        let read = self.push_json(&mut p, budget);
        let read = read.and_then(|()| match p.peek() {
            None => Ok(()),
            Some(_) => p.malformed("the end of the value").map_err(ValueFault::from),
        });
        read.map_err(|fault| match fault {
            ValueFault::Malformed(at) => {
                let (expected, byte) = (at.expected, at.at);
                unread(&format!("JSON ({expected} at byte {byte})"), written)
            }
            other => other,
        })
    }
}

/// Parses a bool in the spellings of SQL and of most programs.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    const TRUE: [&str; 6] = ["true", "t", "yes", "y", "on", "1"];
    const FALSE: [&str; 6] = ["false", "f", "no", "n", "off", "0"];
    let is_one_of = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(TRUE) { Some(true) } else { is_one_of(FALSE).then_some(false) }
}

/// Parses a float. An integer is accepted only if the float represents it exactly, an infinity only if it is spelled
/// as one.
fn parse_float64(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let is_exact = || format!("{value:.0}") == text.strip_prefix('+').unwrap_or(text);
    fits(text, value.is_finite(), is_exact).then_some(value)
}

fn parse_float32(text: &str) -> Option<f32> {
    let value: f32 = text.parse().ok()?;
    let is_exact = || format!("{value:.0}") == text.strip_prefix('+').unwrap_or(text);
    fits(text, value.is_finite(), is_exact).then_some(value)
}

fn fits(text: &str, is_finite: bool, is_exact: impl Fn() -> bool) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    // Integers of few digits are always exact.
    let is_short = digits.len() <= 6;
    if is_finite {
        !is_integer || is_short || is_exact()
    } else {
        !digits.contains(|c: char| c.is_ascii_digit())
    }
}

fn parse_binary(written: &str, out: &mut Vec<u8>) -> bool {
    let Some(digits) = written.strip_prefix("\\x") else { return text::parse_base64(written, out) };
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hex {
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hexadecimal digits");
        out.extend((0..digits.len()).step_by(2).map(byte));
    }
    is_hex
}

#[cfg(test)]
mod tests {
    use types::{ColumnId, DataType, Value};

    use super::*;

    fn cell(data_type: &str, written: &str, is_quoted: bool) -> std::result::Result<Value, String> {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        let mut column = ColumnBuffer::new(&data_type);
        let mut budget = Budget::new(1 << 20);
        match column.push_csv(written, is_quoted, &mut budget) {
            Ok(()) => Ok(Value::from_array(&column.finish().unwrap().unwrap(), &data_type, 0)),
            Err(ValueFault::Misfit(message)) => {
                column.truncate(0);
                assert_eq!(column.finish().unwrap().unwrap().len(), 0, "nothing is left of it");
                Err(message)
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cell_becomes_a_value_of_every_type() {
        for (data_type, written, expected) in [
            ("bool", "Yes", Value::Bool(true)),
            ("int32", " -7 ", Value::Int32(-7)),
            ("int64", "+9223372036854775807", Value::Int64(i64::MAX)),
            ("float64", "-1.5e3", Value::Float64(-1500.0)),
            ("float64", "-inf", Value::Float64(f64::NEG_INFINITY)),
            ("float64", "-9007199254740994", Value::Float64(-9007199254740994.0)),
            ("float32", "0.1", Value::Float32(0.1)),
            ("decimal(10,2)", "12.5", Value::Decimal(1250)),
            ("string", " a ", Value::String(" a ".into())),
            ("json", "{\"a\": [1]}", Value::Json("{\"a\": [1]}".into())),
            ("binary", "AP8=", Value::Binary(vec![0, 255])),
            ("binary", "\\x00fF", Value::Binary(vec![0, 255])),
            ("date", "2026-11-21", Value::Date(20_778)),
            ("date", "1970-1-2", Value::Date(1)),
            ("timestamp", "1970-01-01T00:00:01.5Z", Value::Timestamp(1_500_000)),
            ("timestamp", "1970-01-01 01:00:01+01", Value::Timestamp(1_000_000)),
            ("timestamp", "1970-01-02", Value::Timestamp(86_400_000_000)),
            (
                "uuid",
                "01234567-89ab-cdef-0123-456789abcdef",
                Value::Uuid(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"),
            ),
            ("list<int64>", "[1, null]", Value::List(vec![Value::Int64(1), Value::Null])),
            ("struct<a: int64>", "{\"a\":5}", Value::Struct(vec![Value::Int64(5)])),
            ("vector(2)", "[1, 2.5]", Value::Vector(vec![1.0, 2.5])),
            ("point", "{\"lat\":1,\"lon\":2}", Value::Point([2.0, 1.0])),
        ] {
            assert_eq!(cell(data_type, written, false), Ok(expected), "{written} as {data_type}");
        }
        assert_eq!(cell("string", "", true), Ok(Value::String(String::new())));
        assert_eq!(cell("binary", "", true), Ok(Value::Binary(Vec::new())));
        for data_type in ["string", "int64", "json", "list<int64>", "timestamp"] {
            assert_eq!(cell(data_type, "", false), Ok(Value::Null), "{data_type}");
        }
        assert_eq!(
            cell("int64", "", true),
            Ok(Value::Null),
            "programs that quote everything quote nothing too"
        );
    }

    #[test]
    fn what_would_lose_something_or_be_guessed_is_refused() {
        for (data_type, written) in [
            ("bool", "2"),
            ("int32", "2147483648"),
            ("int64", "1.0"),
            ("int64", "0x10"),
            ("float64", "1e400"),
            ("float64", "9007199254740993"),
            ("float32", "1e39"),
            ("float32", "16777217"),
            ("decimal(4,1)", "1.25"),
            ("json", "{a}"),
            ("json", "1 2"),
            ("binary", "a*b"),
            ("binary", "\\x0"),
            ("date", "2026-02-30"),
            ("date", "2020-09-08 01:02:03"),
            ("timestamp", "20240101"),
            ("timestamp", "1700000000000000"),
            ("timestamp", "99999-01-01 00:00:00"),
            ("uuid", "0123"),
            ("list<int64>", "[1, \"x\"]"),
            ("struct<a: int64 not null>", "{}"),
            ("vector(2)", "[1]"),
        ] {
            let message = cell(data_type, written, false).unwrap_err();
            assert!(message.contains("expected") || message.contains("NOT NULL"), "{written}: {message}");
        }
    }
}

//! Single values in Iceberg's encodings: bounds of columns and partition values.

use std::cmp::Ordering;
use std::fmt::Write;

use types::DataType;

use crate::avro::{Body, Datum};
use crate::schema::decimal_bytes;

/// A type whose values Iceberg can encode as single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleType {
    Bool,
    Int,
    Long,
    Float,
    Double,
    Decimal { precision: u8, scale: u8 },
    Date,
    Timestamptz,
    String,
    Binary,
    Uuid,
}

impl SingleType {
    pub fn is_float(self) -> bool {
        matches!(self, SingleType::Float | SingleType::Double)
    }
}

/// A value without the width of its type, since a column may be wider now than it was in older files.
#[derive(Clone, Debug)]
pub enum Single {
    Bool(bool),
    /// An integer, date or time.
    Int(i64),
    Float(f64),
    /// A text, binary or uuid.
    Bytes(Vec<u8>),
    Decimal(i128),
}

impl PartialEq for Single {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Single {
    /// Returns `None` for values of different types. Floats compare in their total order.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Single::Bool(a), Single::Bool(b)) => Some(a.cmp(b)),
            (Single::Int(a), Single::Int(b)) => Some(a.cmp(b)),
            (Single::Float(a), Single::Float(b)) => Some(a.total_cmp(b)),
            (Single::Bytes(a), Single::Bytes(b)) => Some(a.cmp(b)),
            (Single::Decimal(a), Single::Decimal(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

impl SingleType {
    /// Returns `None` for lists, structs, vectors and points.
    pub fn of(data_type: &DataType) -> Option<SingleType> {
        Some(match data_type {
            DataType::Bool => SingleType::Bool,
            DataType::Int32 => SingleType::Int,
            DataType::Int64 => SingleType::Long,
            DataType::Float32 => SingleType::Float,
            DataType::Float64 => SingleType::Double,
            DataType::Decimal { precision, scale } => {
                SingleType::Decimal { precision: *precision, scale: *scale }
            }
            DataType::Date => SingleType::Date,
            DataType::Timestamp => SingleType::Timestamptz,
            DataType::String | DataType::Json => SingleType::String,
            DataType::Binary => SingleType::Binary,
            DataType::Uuid => SingleType::Uuid,
            DataType::List(_)
            | DataType::Struct(_)
            | DataType::Vector(_)
            | DataType::Point
            | DataType::Point3d => return None,
        })
    }

    /// Parses a type in the notation of Iceberg schemas.
    pub fn parse(iceberg: &str) -> Option<SingleType> {
        Some(match iceberg {
            "boolean" => SingleType::Bool,
            "int" => SingleType::Int,
            "long" => SingleType::Long,
            "float" => SingleType::Float,
            "double" => SingleType::Double,
            "date" => SingleType::Date,
            "timestamptz" | "timestamp" => SingleType::Timestamptz,
            "string" => SingleType::String,
            "binary" => SingleType::Binary,
            "uuid" => SingleType::Uuid,
            other => {
                let digits = other.strip_prefix("decimal(")?.strip_suffix(')')?;
                let (precision, scale) = digits.split_once(',')?;
                let precision = precision.trim().parse().ok().filter(|p| (1..=38).contains(p))?;
                SingleType::Decimal { precision, scale: scale.trim().parse().ok()? }
            }
        })
    }

    /// Encodes a bound.
    pub fn to_bytes(self, value: &Single) -> Vec<u8> {
        match (value, self) {
            (Single::Bool(value), _) => vec![(*value).into()],
            (Single::Int(value), SingleType::Int | SingleType::Date) => {
                (*value as i32).to_le_bytes().to_vec()
            }
            (Single::Int(value), _) => value.to_le_bytes().to_vec(),
            (Single::Float(value), SingleType::Float) => (*value as f32).to_le_bytes().to_vec(),
            (Single::Float(value), _) => value.to_le_bytes().to_vec(),
            (Single::Bytes(bytes), _) => bytes.clone(),
            // The specification asks for the fewest bytes. DuckDB 1.4 misreads fewer than 16 bytes here, and a filter would
            // lose rows.
            (Single::Decimal(value), SingleType::Decimal { precision: 19.., .. }) => {
                value.to_be_bytes().to_vec()
            }
            (Single::Decimal(value), _) => shortest(*value),
        }
    }

    /// Returns the Avro type of a value for a field of a record. `id` makes the names of named types unique.
    pub fn avro(self, id: i32) -> String {
        let mut out = String::new();
        let written = match self {
            SingleType::Bool => write!(out, "\"boolean\""),
            SingleType::Int => write!(out, "\"int\""),
            SingleType::Long => write!(out, "\"long\""),
            SingleType::Float => write!(out, "\"float\""),
            SingleType::Double => write!(out, "\"double\""),
            SingleType::Date => write!(out, r#"{{"type":"int","logicalType":"date"}}"#),
            SingleType::Timestamptz => {
                write!(out, r#"{{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":true}}"#)
            }
            SingleType::String => write!(out, "\"string\""),
            SingleType::Binary => write!(out, "\"bytes\""),
            SingleType::Uuid => {
                write!(out, r#"{{"type":"fixed","name":"uuid_{id}","size":16,"logicalType":"uuid"}}"#)
            }
            SingleType::Decimal { precision, scale } => write!(
                out,
                r#"{{"type":"fixed","name":"decimal_{id}","size":{},"logicalType":"decimal","precision":{precision},"scale":{scale}}}"#,
                decimal_bytes(precision.into())
            ),
        };
        written.expect("a String takes all");
        out
    }

    /// Writes a value in the Avro type that [`SingleType::avro`] returns.
    pub fn put_avro(self, body: &mut Body, value: &Single) {
        match (value, self) {
            (Single::Bool(value), _) => body.raw(&[(*value).into()]),
            (Single::Int(value), _) => body.long(*value),
            (Single::Float(value), SingleType::Float) => body.raw(&(*value as f32).to_le_bytes()),
            (Single::Float(value), _) => body.raw(&value.to_le_bytes()),
            (Single::Bytes(bytes), SingleType::Uuid) => body.raw(bytes),
            (Single::Bytes(bytes), _) => body.blob(bytes),
            (Single::Decimal(value), SingleType::Decimal { precision, .. }) => {
                let bytes = value.to_be_bytes();
                body.raw(&bytes[16 - decimal_bytes(precision.into()) as usize..]);
            }
            (Single::Decimal(value), _) => body.blob(&shortest(*value)),
        }
    }

    /// Converts a value from an Avro file, in whatever width it was written. Returns `None` for null and for values of
    /// other types.
    pub fn of_datum(self, datum: &Datum) -> Option<Single> {
        Some(match (datum, self) {
            (Datum::Bool(value), _) => Single::Bool(*value),
            (Datum::Long(value), _) => Single::Int(*value),
            (Datum::Double(value), _) => Single::Float(*value),
            (Datum::Bytes(bytes), SingleType::Decimal { .. }) => Single::Decimal(decimal(bytes)?),
            (Datum::Bytes(bytes), _) => Single::Bytes(bytes.clone()),
            (Datum::Null | Datum::Array(_) | Datum::Record(_), _) => return None,
        })
    }
}

/// Encodes a number in big-endian two's complement with the fewest bytes.
pub fn shortest(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let redundant = |at: usize| bytes[at] == sign && (bytes[at + 1] ^ sign) & 0x80 == 0;
    let first = (0..15).find(|at| !redundant(*at)).unwrap_or(15);
    bytes[first..].to_vec()
}

/// Decodes big-endian two's complement of any length up to 16 bytes; `None` if it is longer.
pub fn decimal(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first().is_some_and(|b| *b >= 0x80) { 0xff } else { 0 };
    let mut wide = [sign; 16];
    wide[16usize.checked_sub(bytes.len())?..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_few_bytes_as_hold_them() {
        for (value, bytes) in [
            (0, vec![0]),
            (127, vec![127]),
            (128, vec![0, 128]),
            (-1, vec![255]),
            (-128, vec![128]),
            (-129, vec![255, 127]),
        ] {
            assert_eq!(shortest(value), bytes, "{value}");
            assert_eq!(decimal(&bytes), Some(value));
        }
        for value in [i128::MIN, i128::MAX] {
            assert_eq!(shortest(value).len(), 16);
            assert_eq!(decimal(&shortest(value)), Some(value));
        }
        assert_eq!(decimal(&[0; 17]), None);
    }

    #[test]
    fn types_are_read_as_iceberg_writes_them() {
        for (text, wanted) in [
            ("long", Some(SingleType::Long)),
            ("decimal(9, 2)", Some(SingleType::Decimal { precision: 9, scale: 2 })),
            ("decimal(39,2)", None),
            ("list", None),
        ] {
            assert_eq!(SingleType::parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn floats_keep_the_sign_of_zero_apart() {
        assert!(Single::Float(-0.0) < Single::Float(0.0));
        assert_eq!(Single::Float(f64::NAN), Single::Float(f64::NAN));
        assert_eq!(Single::Int(1).partial_cmp(&Single::Bool(true)), None);
    }
}

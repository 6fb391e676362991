//! Single values in Iceberg's encodings: bounds of columns and partition values.

use std::cmp::Ordering;
use std::fmt::Write;

use types::DataType;

use crate::avro::{Body, Datum};
use crate::schema::decimal_bytes;

/// A type whose values Iceberg can encode as single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimitiveType {
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

impl PrimitiveType {
    pub fn is_float(self) -> bool {
        matches!(self, PrimitiveType::Float | PrimitiveType::Double)
    }
}

/// A value without the width of its type, since a column may be wider now than it was in older files.
#[derive(Clone, Debug)]
pub enum SingleValue {
    Bool(bool),
    /// An integer, date or time.
    Int(i64),
    Float(f64),
    /// A text, binary or uuid.
    Bytes(Vec<u8>),
    Decimal(i128),
}

impl PartialEq for SingleValue {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for SingleValue {
    /// Returns `None` for values of different types. Floats compare in their total order.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (SingleValue::Bool(a), SingleValue::Bool(b)) => Some(a.cmp(b)),
            (SingleValue::Int(a), SingleValue::Int(b)) => Some(a.cmp(b)),
            (SingleValue::Float(a), SingleValue::Float(b)) => Some(a.total_cmp(b)),
            (SingleValue::Bytes(a), SingleValue::Bytes(b)) => Some(a.cmp(b)),
            (SingleValue::Decimal(a), SingleValue::Decimal(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

impl PrimitiveType {
    /// Returns `None` for lists, structs, vectors and points.
    pub fn of(data_type: &DataType) -> Option<PrimitiveType> {
        Some(match data_type {
            DataType::Bool => PrimitiveType::Bool,
            DataType::Int32 => PrimitiveType::Int,
            DataType::Int64 => PrimitiveType::Long,
            DataType::Float32 => PrimitiveType::Float,
            DataType::Float64 => PrimitiveType::Double,
            DataType::Decimal { precision, scale } => {
                PrimitiveType::Decimal { precision: *precision, scale: *scale }
            }
            DataType::Date => PrimitiveType::Date,
            DataType::Timestamp => PrimitiveType::Timestamptz,
            DataType::String | DataType::Json => PrimitiveType::String,
            DataType::Binary => PrimitiveType::Binary,
            DataType::Uuid => PrimitiveType::Uuid,
            DataType::List(_)
            | DataType::Struct(_)
            | DataType::Vector(_)
            | DataType::Point
            | DataType::Point3d => return None,
        })
    }

    /// Parses a type in the notation of Iceberg schemas.
    pub fn parse(iceberg: &str) -> Option<PrimitiveType> {
        Some(match iceberg {
            "boolean" => PrimitiveType::Bool,
            "int" => PrimitiveType::Int,
            "long" => PrimitiveType::Long,
            "float" => PrimitiveType::Float,
            "double" => PrimitiveType::Double,
            "date" => PrimitiveType::Date,
            "timestamptz" | "timestamp" => PrimitiveType::Timestamptz,
            "string" => PrimitiveType::String,
            "binary" => PrimitiveType::Binary,
            "uuid" => PrimitiveType::Uuid,
            other => {
                let digits = other.strip_prefix("decimal(")?.strip_suffix(')')?;
                let (precision, scale) = digits.split_once(',')?;
                let precision = precision.trim().parse().ok().filter(|p| (1..=38).contains(p))?;
                PrimitiveType::Decimal { precision, scale: scale.trim().parse().ok()? }
            }
        })
    }

    /// Encodes a bound.
    pub fn to_bytes(self, value: &SingleValue) -> Vec<u8> {
        match (value, self) {
            (SingleValue::Bool(value), _) => vec![(*value).into()],
            (SingleValue::Int(value), PrimitiveType::Int | PrimitiveType::Date) => {
                (*value as i32).to_le_bytes().to_vec()
            }
            (SingleValue::Int(value), _) => value.to_le_bytes().to_vec(),
            (SingleValue::Float(value), PrimitiveType::Float) => (*value as f32).to_le_bytes().to_vec(),
            (SingleValue::Float(value), _) => value.to_le_bytes().to_vec(),
            (SingleValue::Bytes(bytes), _) => bytes.clone(),
            // The specification asks for the fewest bytes. DuckDB 1.4 misreads fewer than 16 bytes here, and a filter would
            // lose rows.
            (SingleValue::Decimal(value), PrimitiveType::Decimal { precision: 19.., .. }) => {
                value.to_be_bytes().to_vec()
            }
            (SingleValue::Decimal(value), _) => shortest_bytes(*value),
        }
    }

    /// Returns the Avro type of a value for a field of a record. `id` makes the names of named types unique.
    pub fn avro(self, id: i32) -> String {
        let mut out = String::new();
        let written = match self {
            PrimitiveType::Bool => write!(out, "\"boolean\""),
            PrimitiveType::Int => write!(out, "\"int\""),
            PrimitiveType::Long => write!(out, "\"long\""),
            PrimitiveType::Float => write!(out, "\"float\""),
            PrimitiveType::Double => write!(out, "\"double\""),
            PrimitiveType::Date => write!(out, r#"{{"type":"int","logicalType":"date"}}"#),
            PrimitiveType::Timestamptz => {
                write!(out, r#"{{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":true}}"#)
            }
            PrimitiveType::String => write!(out, "\"string\""),
            PrimitiveType::Binary => write!(out, "\"bytes\""),
            PrimitiveType::Uuid => {
                write!(out, r#"{{"type":"fixed","name":"uuid_{id}","size":16,"logicalType":"uuid"}}"#)
            }
            PrimitiveType::Decimal { precision, scale } => write!(
                out,
                r#"{{"type":"fixed","name":"decimal_{id}","size":{},"logicalType":"decimal","precision":{precision},"scale":{scale}}}"#,
                decimal_bytes(precision.into())
            ),
        };
        written.expect("a String takes all");
        out
    }

    /// Writes a value in the Avro type that [`PrimitiveType::avro`] returns.
    pub fn put_avro(self, body: &mut Body, value: &SingleValue) {
        match (value, self) {
            (SingleValue::Bool(value), _) => body.raw(&[(*value).into()]),
            (SingleValue::Int(value), _) => body.long(*value),
            (SingleValue::Float(value), PrimitiveType::Float) => body.raw(&(*value as f32).to_le_bytes()),
            (SingleValue::Float(value), _) => body.raw(&value.to_le_bytes()),
            (SingleValue::Bytes(bytes), PrimitiveType::Uuid) => body.raw(bytes),
            (SingleValue::Bytes(bytes), _) => body.blob(bytes),
            (SingleValue::Decimal(value), PrimitiveType::Decimal { precision, .. }) => {
                let bytes = value.to_be_bytes();
                body.raw(&bytes[16 - decimal_bytes(precision.into()) as usize..]);
            }
            (SingleValue::Decimal(value), _) => body.blob(&shortest_bytes(*value)),
        }
    }

    /// Converts a value from an Avro file, in whatever width it was written. Returns `None` for null and for values of
    /// other types.
    pub fn of_datum(self, datum: &Datum) -> Option<SingleValue> {
        Some(match (datum, self) {
            (Datum::Bool(value), _) => SingleValue::Bool(*value),
            (Datum::Long(value), _) => SingleValue::Int(*value),
            (Datum::Double(value), _) => SingleValue::Float(*value),
            (Datum::Bytes(bytes), PrimitiveType::Decimal { .. }) => {
                SingleValue::Decimal(decimal_from_bytes(bytes)?)
            }
            (Datum::Bytes(bytes), _) => SingleValue::Bytes(bytes.clone()),
            (Datum::Null | Datum::Array(_) | Datum::Record(_), _) => return None,
        })
    }
}

/// Encodes a number in big-endian two's complement with the fewest bytes.
pub fn shortest_bytes(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let redundant = |at: usize| bytes[at] == sign && (bytes[at + 1] ^ sign) & 0x80 == 0;
    let first = (0..15).find(|at| !redundant(*at)).unwrap_or(15);
    bytes[first..].to_vec()
}

/// Decodes big-endian two's complement of any length up to 16 bytes; `None` if it is longer.
pub fn decimal_from_bytes(bytes: &[u8]) -> Option<i128> {
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
            assert_eq!(shortest_bytes(value), bytes, "{value}");
            assert_eq!(decimal_from_bytes(&bytes), Some(value));
        }
        for value in [i128::MIN, i128::MAX] {
            assert_eq!(shortest_bytes(value).len(), 16);
            assert_eq!(decimal_from_bytes(&shortest_bytes(value)), Some(value));
        }
        assert_eq!(decimal_from_bytes(&[0; 17]), None);
    }

    #[test]
    fn types_are_read_as_iceberg_writes_them() {
        for (text, wanted) in [
            ("long", Some(PrimitiveType::Long)),
            ("decimal(9, 2)", Some(PrimitiveType::Decimal { precision: 9, scale: 2 })),
            ("decimal(39,2)", None),
            ("list", None),
        ] {
            assert_eq!(PrimitiveType::parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn floats_keep_the_sign_of_zero_apart() {
        assert!(SingleValue::Float(-0.0) < SingleValue::Float(0.0));
        assert_eq!(SingleValue::Float(f64::NAN), SingleValue::Float(f64::NAN));
        assert_eq!(SingleValue::Int(1).partial_cmp(&SingleValue::Bool(true)), None);
    }
}

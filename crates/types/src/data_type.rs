//! Column types: their text form, their stored form and the Arrow type of each.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef, Fields, TimeUnit};

use crate::codec::{Decoder, Encoder};
use crate::{ColumnId, Error, Result, name};

/// The key in an Arrow field's metadata under which Parquet and Iceberg writers look for the column id.
pub const FIELD_ID_KEY: &str = "PARQUET:field_id";
const EXTENSION_KEY: &str = "ARROW:extension:name";

/// The greatest nesting depth of a type. It bounds every recursion over a type.
pub const NESTING_MAX: usize = 16;
pub const VECTOR_LEN_MAX: u32 = 65_536;

/// The type of a column's values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    Bool,
    Int32,
    Int64,
    Float32,
    Float64,
    /// 1 to 38 digits, of which `scale` (0 to precision) stand after the point.
    Decimal {
        precision: u8,
        scale: u8,
    },
    String,
    Binary,
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    Uuid,
    /// JSON text.
    Json,
    List(Box<Field>),
    Struct(Vec<Field>),
    /// A vector of exactly this many float32.
    Vector(u32),
    /// `lon`, `lat` in degrees (or `x`, `y` in any unit): a struct of two float64.
    Point,
    /// `x`, `y`, `z`: a struct of three float64.
    Point3d,
}

/// A named value nested in a list or struct. It has an id like a column, because Iceberg requires one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub id: ColumnId,
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
}

impl DataType {
    /// Returns the Arrow type that holds it in memory, in segments and on the wire.
    pub fn to_arrow(&self) -> Arrow {
        let float64s = |names: &[&str]| {
            Arrow::Struct(
                names.iter().map(|n| ArrowField::new(*n, Arrow::Float64, false)).collect::<Fields>(),
            )
        };
        match self {
            DataType::Bool => Arrow::Boolean,
            DataType::Int32 => Arrow::Int32,
            DataType::Int64 => Arrow::Int64,
            DataType::Float32 => Arrow::Float32,
            DataType::Float64 => Arrow::Float64,
            DataType::Decimal { precision, scale } => Arrow::Decimal128(*precision, *scale as i8),
            DataType::String | DataType::Json => Arrow::Utf8,
            DataType::Binary => Arrow::Binary,
            DataType::Date => Arrow::Date32,
            DataType::Timestamp => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            DataType::Uuid => Arrow::FixedSizeBinary(16),
            DataType::List(item) => Arrow::List(item.to_arrow()),
            DataType::Struct(fields) => Arrow::Struct(fields.iter().map(Field::to_arrow).collect::<Fields>()),
            DataType::Vector(len) => {
                Arrow::FixedSizeList(Arc::new(ArrowField::new("item", Arrow::Float32, false)), *len as i32)
            }
            DataType::Point => float64s(&["lon", "lat"]),
            DataType::Point3d => float64s(&["x", "y", "z"]),
        }
    }

    /// Parses a type as [`fmt::Display`] prints it: `int64`, `decimal(10,2)`, `list<string>`, `struct<a: int64, b:
    /// list<string>>`, `vector(384)`. Nested fields are nullable unless followed by `not null` and get ids from
    /// `next_id`, outer ones first.
    pub fn parse(text: &str, next_id: &mut ColumnId) -> Result<Self> {
        let mut parser = Parser { text, rest: text, next_id };
        let parsed = parser.data_type(0)?;
        parser.skip_space();
        if !parser.rest.is_empty() {
            return Err(parser.error("the end"));
        }
        Ok(parsed)
    }

    /// Fails unless storage can read this type back: nested at most `NESTING_MAX` deep, decimals and vectors within
    /// their bounds. Every function that puts a type into a definition must call this first. A definition that was
    /// logged and cannot be decoded would keep the whole database from opening.
    pub fn check(&self) -> Result<()> {
        self.check_at(0)
    }

    fn check_at(&self, depth: usize) -> Result<()> {
        // The depth is checked before descending, so that the recursion is bounded for every type.
        if depth > NESTING_MAX {
            return Err(Error::invalid(format!("a type nests more than {NESTING_MAX} levels deep"))
                .hint("use fewer levels of list and struct, or a json column"));
        }
        match self {
            DataType::Decimal { precision, scale } => check_decimal(*precision, *scale),
            DataType::Vector(len) => check_vector(*len),
            DataType::List(item) => item.data_type.check_at(depth + 1),
            DataType::Struct(fields) => fields.iter().try_for_each(|f| f.data_type.check_at(depth + 1)),
            _ => Ok(()),
        }
    }

    /// Returns true if values of this type can be part of a primary key.
    pub fn is_key(&self) -> bool {
        !matches!(
            self,
            DataType::Float32
                | DataType::Float64
                | DataType::Json
                | DataType::List(_)
                | DataType::Struct(_)
                | DataType::Vector(_)
                | DataType::Point
                | DataType::Point3d
        )
    }

    /// Returns true if ALTER TABLE may change a column of this type to `to`: no value is lost.
    pub fn widens_to(&self, to: &DataType) -> bool {
        match (self, to) {
            (DataType::Int32, DataType::Int64) | (DataType::Float32, DataType::Float64) => true,
            (DataType::Decimal { precision: p, scale: s }, DataType::Decimal { precision: wider, scale }) => {
                s == scale && p <= wider
            }
            (from, to) => from == to,
        }
    }

    pub(crate) fn encode(&self, e: &mut Encoder) {
        match self {
            DataType::Bool => e.u8(1),
            DataType::Int32 => e.u8(2),
            DataType::Int64 => e.u8(3),
            DataType::Float32 => e.u8(4),
            DataType::Float64 => e.u8(5),
            DataType::Decimal { precision, scale } => {
                e.u8(6);
                e.u8(*precision);
                e.u8(*scale);
            }
            DataType::String => e.u8(7),
            DataType::Binary => e.u8(8),
            DataType::Date => e.u8(9),
            DataType::Timestamp => e.u8(10),
            DataType::Uuid => e.u8(11),
            DataType::Json => e.u8(12),
            DataType::List(item) => {
                e.u8(13);
                item.encode(e);
            }
            DataType::Struct(fields) => {
                e.u8(14);
                e.list(fields, |e, field| field.encode(e));
            }
            DataType::Vector(len) => {
                e.u8(15);
                e.u32(*len);
            }
            DataType::Point => e.u8(16),
            DataType::Point3d => e.u8(17),
        }
    }

    pub(crate) fn decode(d: &mut Decoder<'_>, depth: usize) -> Result<Self> {
        if depth > NESTING_MAX {
            return Err(d.damaged("a type nested too deep"));
        }
        Ok(match d.u8()? {
            1 => DataType::Bool,
            2 => DataType::Int32,
            3 => DataType::Int64,
            4 => DataType::Float32,
            5 => DataType::Float64,
            6 => {
                let (precision, scale) = (d.u8()?, d.u8()?);
                check_decimal(precision, scale).map_err(|e| d.damaged(e.message()))?;
                DataType::Decimal { precision, scale }
            }
            7 => DataType::String,
            8 => DataType::Binary,
            9 => DataType::Date,
            10 => DataType::Timestamp,
            11 => DataType::Uuid,
            12 => DataType::Json,
            13 => DataType::List(Box::new(Field::decode(d, depth + 1)?)),
            14 => DataType::Struct(d.list(|d| Field::decode(d, depth + 1))?),
            15 => {
                let len = d.u32()?;
                check_vector(len).map_err(|e| d.damaged(e.message()))?;
                DataType::Vector(len)
            }
            16 => DataType::Point,
            17 => DataType::Point3d,
            other => return Err(d.damaged(format!("{other} is not a data type"))),
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Bool => f.write_str("bool"),
            DataType::Int32 => f.write_str("int32"),
            DataType::Int64 => f.write_str("int64"),
            DataType::Float32 => f.write_str("float32"),
            DataType::Float64 => f.write_str("float64"),
            DataType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            DataType::String => f.write_str("string"),
            DataType::Binary => f.write_str("binary"),
            DataType::Date => f.write_str("date"),
            DataType::Timestamp => f.write_str("timestamp"),
            DataType::Uuid => f.write_str("uuid"),
            DataType::Json => f.write_str("json"),
            DataType::List(item) => {
                write!(f, "list<{}{}>", item.data_type, if item.nullable { "" } else { " not null" })
            }
            DataType::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    let not_null = if field.nullable { "" } else { " not null" };
                    write!(f, "{comma}{}: {}{not_null}", Quoted(&field.name), field.data_type)?;
                }
                f.write_str(">")
            }
            DataType::Vector(len) => write!(f, "vector({len})"),
            DataType::Point => f.write_str("point"),
            DataType::Point3d => f.write_str("point3d"),
        }
    }
}

impl Field {
    /// Returns the Arrow field. Its metadata holds the id and, for uuid and json, Arrow's canonical extension name.
    pub fn to_arrow(&self) -> FieldRef {
        Arc::new(arrow_field(&self.name, &self.data_type, self.nullable, self.id))
    }

    fn encode(&self, e: &mut Encoder) {
        e.varint(self.id.0.into());
        e.str(&self.name);
        e.bool(self.nullable);
        self.data_type.encode(e);
    }

    fn decode(d: &mut Decoder<'_>, depth: usize) -> Result<Self> {
        let (id, name, nullable) = (ColumnId(d.varint32()?), d.str()?.to_owned(), d.bool()?);
        Ok(Field { id, name, nullable, data_type: DataType::decode(d, depth)? })
    }
}

pub(crate) fn arrow_field(name: &str, data_type: &DataType, nullable: bool, id: ColumnId) -> ArrowField {
    let mut metadata = HashMap::from([(FIELD_ID_KEY.to_owned(), id.to_string())]);
    match data_type {
        DataType::Uuid => metadata.insert(EXTENSION_KEY.into(), "arrow.uuid".into()),
        DataType::Json => metadata.insert(EXTENSION_KEY.into(), "arrow.json".into()),
        _ => None,
    };
    ArrowField::new(name, data_type.to_arrow(), nullable).with_metadata(metadata)
}

/// A nested field's name as [`Parser`] reads it back: bare if it is a word, else in double quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(is_word) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn check_decimal(precision: u8, scale: u8) -> Result<()> {
    if (1..=38).contains(&precision) && scale <= precision {
        return Ok(());
    }
    Err(Error::invalid(format!("decimal({precision},{scale}) does not exist"))
        .hint("precision is 1 to 38, scale 0 to precision"))
}

fn check_vector(len: u32) -> Result<()> {
    if (1..=VECTOR_LEN_MAX).contains(&len) {
        return Ok(());
    }
    Err(Error::invalid(format!("vector({len}) does not exist")).hint(format!("use 1 to {VECTOR_LEN_MAX}")))
}

struct Parser<'a, 'n> {
    text: &'a str,
    rest: &'a str,
    next_id: &'n mut ColumnId,
}

impl Parser<'_, '_> {
    fn error(&self, expected: &str) -> Error {
        let found =
            if self.rest.is_empty() { "the end".into() } else { format!("`{}`", name::printable(self.rest)) };
        Error::invalid(format!(
            "`{}` is not a data type: {expected} expected, {found} found",
            name::printable(self.text)
        ))
        .hint(
            "types are bool, int32, int64, float32, float64, decimal(p,s), string, binary, date, timestamp, uuid, \
             json, list<type>, struct<name: type, …>, vector(n), point, point3d",
        )
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.error(&format!("`{token}`"))) }
    }

    fn word(&mut self) -> &str {
        self.skip_space();
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let before = self.rest;
        let parsed = self.word().parse();
        parsed.map_err(|_| {
            self.rest = before;
            self.error("a number")
        })
    }

    fn take_id(&mut self) -> ColumnId {
        let id = *self.next_id;
        *self.next_id = id.next();
        id
    }

    fn not_null(&mut self) -> Result<bool> {
        if !self.eat("not") {
            return Ok(false);
        }
        self.expect("null")?;
        Ok(true)
    }

    fn data_type(&mut self, depth: usize) -> Result<DataType> {
        if depth > NESTING_MAX {
            return Err(self.error(&format!("at most {NESTING_MAX} levels of nesting")));
        }
        let before = self.rest;
        let word = self.word().to_ascii_lowercase();
        Ok(match word.as_str() {
            "bool" | "boolean" => DataType::Bool,
            "int32" | "int" | "integer" => DataType::Int32,
            "int64" | "long" | "bigint" => DataType::Int64,
            "float32" | "real" => DataType::Float32,
            "float64" | "double" => DataType::Float64,
            "decimal" => {
                self.expect("(")?;
                let precision = self.number()?;
                let scale = if self.eat(",") { self.number()? } else { 0 };
                self.expect(")")?;
                check_decimal(precision, scale)?;
                DataType::Decimal { precision, scale }
            }
            "string" | "text" => DataType::String,
            "binary" => DataType::Binary,
            "date" => DataType::Date,
            "timestamp" | "timestamptz" => DataType::Timestamp,
            "uuid" => DataType::Uuid,
            "json" => DataType::Json,
            "list" => {
                self.expect("<")?;
                let id = self.take_id();
                let data_type = self.data_type(depth + 1)?;
                let nullable = !self.not_null()?;
                self.expect(">")?;
                DataType::List(Box::new(Field { id, name: "element".into(), data_type, nullable }))
            }
            "struct" => {
                self.expect("<")?;
                let mut fields: Vec<Field> = Vec::new();
                loop {
                    let name = self.field_name()?;
                    self.expect(":")?;
                    let id = self.take_id();
                    let data_type = self.data_type(depth + 1)?;
                    let nullable = !self.not_null()?;
                    if fields.iter().any(|f| f.name.eq_ignore_ascii_case(&name)) {
                        return Err(Error::invalid(format!("a struct has two fields `{name}`")));
                    }
                    fields.push(Field { id, name, data_type, nullable });
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect(">")?;
                DataType::Struct(fields)
            }
            "vector" => {
                self.expect("(")?;
                let len = self.number()?;
                self.expect(")")?;
                check_vector(len)?;
                DataType::Vector(len)
            }
            "point" => DataType::Point,
            "point3d" => DataType::Point3d,
            _ => {
                self.rest = before;
                return Err(self.error("a type"));
            }
        })
    }

    fn field_name(&mut self) -> Result<String> {
        let name = if self.eat("\"") {
            let mut name = String::new();
            loop {
                let Some(end) = self.rest.find('"') else { return Err(self.error("`\"`")) };
                name.push_str(&self.rest[..end]);
                self.rest = &self.rest[end + 1..];
                if !self.rest.starts_with('"') {
                    break name;
                }
                name.push('"');
                self.rest = &self.rest[1..];
            }
        } else {
            self.word().to_owned()
        };
        if name.is_empty() {
            return Err(self.error("a field name"));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DataType> {
        DataType::parse(text, &mut ColumnId(10))
    }

    #[test]
    fn a_printed_type_is_read_back_and_survives_storage() {
        for text in [
            "bool",
            "decimal(10,2)",
            "list<string not null>",
            "struct<a: int64, \"b c\": list<struct<x: uuid not null>>, \"q\"\"\": json>",
            "vector(384)",
            "point3d",
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed.to_string(), text);
            let mut e = Encoder::new();
            parsed.encode(&mut e);
            let mut d = Decoder::new(&e.bytes);
            assert_eq!(DataType::decode(&mut d, 0).unwrap(), parsed);
            d.finish().unwrap();
        }
    }

    #[test]
    fn nested_fields_get_ids_outer_first() {
        let mut next = ColumnId(10);
        let DataType::List(item) = DataType::parse("list<struct<a: int32, b: int32>>", &mut next).unwrap()
        else {
            panic!("a list");
        };
        let DataType::Struct(fields) = &item.data_type else { panic!("a struct") };
        assert_eq!(
            (item.id, fields[0].id, fields[1].id, next),
            (ColumnId(10), ColumnId(11), ColumnId(12), ColumnId(13))
        );
    }

    #[test]
    fn a_type_passes_the_check_exactly_if_storage_reads_it_back() {
        let nested = |levels: usize, inner: DataType| {
            (0..levels).fold(inner, |data_type, _| {
                let item = Field { id: ColumnId(1), name: "element".into(), data_type, nullable: true };
                DataType::List(Box::new(item))
            })
        };
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        let mut types: Vec<DataType> =
            (0..NESTING_MAX + 4).map(|levels| nested(levels, DataType::Int32)).collect();
        types.extend([decimal(38, 38), decimal(39, 1), decimal(0, 0), decimal(3, 4)]);
        types.extend([0, 1, VECTOR_LEN_MAX, VECTOR_LEN_MAX + 1].map(DataType::Vector));
        types.push(nested(NESTING_MAX, DataType::Vector(3)));
        types.push(nested(2, DataType::Vector(0)));
        for data_type in types {
            let mut e = Encoder::new();
            data_type.encode(&mut e);
            let read_back = DataType::decode(&mut Decoder::new(&e.bytes), 0).is_ok();
            assert_eq!(data_type.check().is_ok(), read_back, "{data_type}");
        }
        assert!(nested(10_000, DataType::Int32).check().is_err());
    }

    #[test]
    fn wrong_types_are_refused_with_what_was_expected() {
        for (text, part) in [
            ("integr", "a type expected, `integr` found"),
            ("decimal(40,2)", "decimal(40,2) does not exist"),
            ("decimal(10,11)", "does not exist"),
            ("vector(0)", "vector(0) does not exist"),
            ("vector(x)", "a number expected, `x)` found"),
            ("list<int64", "`>` expected, the end found"),
            ("struct<a: int64, A: int64>", "two fields `A`"),
            ("int64 x", "the end expected"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(parse(&"list<".repeat(100_000)).is_err());
    }
}

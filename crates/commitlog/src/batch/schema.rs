//! Encoding of a batch's columns: names, ids, types and nullability.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Result};

use super::DEPTH_MAX;

const ID_KEY: &str = "PARQUET:field_id";
const EXTENSION_KEY: &str = "ARROW:extension:name";

const NULLABLE: u8 = 1;
/// Flag of text that is JSON, or of 16 bytes that are a uuid.
const EXTENSION: u8 = 2;

const BOOL: u8 = 1;
const INT32: u8 = 2;
const INT64: u8 = 3;
const FLOAT32: u8 = 4;
const FLOAT64: u8 = 5;
const DECIMAL: u8 = 6;
const UTF8: u8 = 7;
const BINARY: u8 = 8;
const DATE: u8 = 9;
const TIMESTAMP: u8 = 10;
const BYTES16: u8 = 11;
const LIST: u8 = 13;
const STRUCT: u8 = 14;
const FIXED_LIST: u8 = 15;

pub(super) fn encode(schema: &Schema) -> Result<Vec<u8>> {
    let mut e = Encoder::new();
    fields(&mut e, schema.fields(), 0)?;
    Ok(e.bytes)
}

fn fields(e: &mut Encoder, fields: &Fields, depth: usize) -> Result<()> {
    e.varint(fields.len() as u64);
    fields.iter().try_for_each(|f| field(e, f, depth))
}

fn field(e: &mut Encoder, field: &Field, depth: usize) -> Result<()> {
    let refused = |why: &str| {
        Err(Error::internal(format!("a column of type {} cannot be logged: {why}", field.data_type()))
            .with("column", field.name()))
    };
    if depth > DEPTH_MAX {
        return refused("it nests too deep");
    }
    let id = match field.metadata().get(ID_KEY).map(|id| id.parse::<u32>()) {
        None => 0,
        Some(Ok(id)) => id,
        Some(Err(_)) => return refused("its id is not a number"),
    };
    e.varint(id.into());
    e.str(field.name());
    let extension = match field.data_type() {
        DataType::Utf8 => "arrow.json",
        DataType::FixedSizeBinary(16) => "arrow.uuid",
        _ => "",
    };
    let extended = field.metadata().get(EXTENSION_KEY).is_some_and(|name| name == extension);
    e.u8(u8::from(field.is_nullable()) * NULLABLE + u8::from(extended) * EXTENSION);
    match field.data_type() {
        DataType::Boolean => e.u8(BOOL),
        DataType::Int32 => e.u8(INT32),
        DataType::Int64 => e.u8(INT64),
        DataType::Float32 => e.u8(FLOAT32),
        DataType::Float64 => e.u8(FLOAT64),
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            e.u8(DECIMAL);
            e.u8(*precision);
            e.u8(*scale as u8);
        }
        DataType::Utf8 => e.u8(UTF8),
        DataType::Binary => e.u8(BINARY),
        DataType::Date32 => e.u8(DATE),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => e.u8(TIMESTAMP),
        DataType::FixedSizeBinary(16) => e.u8(BYTES16),
        DataType::List(item) => {
            e.u8(LIST);
            self::field(e, item, depth + 1)?;
        }
        DataType::Struct(inner) => {
            e.u8(STRUCT);
            fields(e, inner, depth + 1)?;
        }
        DataType::FixedSizeList(item, len) if *len > 0 => {
            e.u8(FIXED_LIST);
            e.u32(*len as u32);
            self::field(e, item, depth + 1)?;
        }
        _ => return refused("bring it to one of the types of `types::DataType` first"),
    }
    Ok(())
}

pub(super) fn decode(bytes: &[u8]) -> Result<SchemaRef> {
    let mut d = Decoder::new(bytes);
    let fields = read_fields(&mut d, 0)?;
    d.finish()?;
    Ok(Arc::new(Schema::new(fields)))
}

fn read_fields(d: &mut Decoder<'_>, depth: usize) -> Result<Fields> {
    d.list(|d| read_field(d, depth)).map(Fields::from)
}

fn read_field(d: &mut Decoder<'_>, depth: usize) -> Result<FieldRef> {
    if depth > DEPTH_MAX {
        return Err(d.damaged("a type nested too deep"));
    }
    let id = d.varint32()?;
    let name = d.str()?;
    let flags = d.u8()?;
    if flags > NULLABLE | EXTENSION {
        return Err(d.damaged(format!("{flags} are not flags of a column")));
    }
    let mut extension = None;
    let data_type = match d.u8()? {
        BOOL => DataType::Boolean,
        INT32 => DataType::Int32,
        INT64 => DataType::Int64,
        FLOAT32 => DataType::Float32,
        FLOAT64 => DataType::Float64,
        DECIMAL => {
            let (precision, scale) = (d.u8()?, d.u8()?);
            if !(1..=38).contains(&precision) || scale > precision {
                return Err(d.damaged(format!("decimal({precision},{scale}) does not exist")));
            }
            DataType::Decimal128(precision, scale as i8)
        }
        UTF8 => {
            extension = Some("arrow.json");
            DataType::Utf8
        }
        BINARY => DataType::Binary,
        DATE => DataType::Date32,
        TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        BYTES16 => {
            extension = Some("arrow.uuid");
            DataType::FixedSizeBinary(16)
        }
        LIST => DataType::List(read_field(d, depth + 1)?),
        STRUCT => DataType::Struct(read_fields(d, depth + 1)?),
        FIXED_LIST => {
            let len = i32::try_from(d.u32()?).ok().filter(|len| *len > 0);
            let len = len.ok_or_else(|| d.damaged("a list of impossible length"))?;
            DataType::FixedSizeList(read_field(d, depth + 1)?, len)
        }
        tag => {
            return Err(Error::new(Kind::Newer, format!("a column of unknown type {tag}"))
                .hint("open this directory with the newer Polynya that wrote it"));
        }
    };
    let mut metadata = HashMap::new();
    if id > 0 {
        metadata.insert(ID_KEY.to_owned(), id.to_string());
    }
    if flags & EXTENSION != 0 {
        let extension = extension.ok_or_else(|| d.damaged("an extension of a type that cannot have one"))?;
        metadata.insert(EXTENSION_KEY.to_owned(), extension.to_owned());
    }
    Ok(Arc::new(Field::new(name, data_type, flags & NULLABLE != 0).with_metadata(metadata)))
}

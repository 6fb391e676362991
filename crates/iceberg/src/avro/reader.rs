//! Reads a container file with the schema in its own header.

use std::collections::HashMap;
use std::io::Read;

use serde_json::Value as Json;
use types::{Error, Result};

use super::{MAGIC, SYNC_LEN};

/// A value of any Avro type. Integers and floats have one variant each, because readers of manifests do not depend on
/// widths.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Null,
    Bool(bool),
    Long(i64),
    Double(f64),
    /// A `bytes`, `string` or `fixed`.
    Bytes(Vec<u8>),
    Array(Vec<Datum>),
    Record(Record),
}

/// The fields of a record by Iceberg field id. Fields without an id are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record(Vec<(i32, Datum)>);

impl Record {
    pub fn get(&self, id: i32) -> Option<&Datum> {
        self.0.iter().find(|(field, _)| *field == id).map(|(_, value)| value).filter(|v| **v != Datum::Null)
    }

    pub fn long(&self, id: i32) -> Option<i64> {
        match self.get(id)? {
            Datum::Long(value) => Some(*value),
            _ => None,
        }
    }

    pub fn text(&self, id: i32) -> Option<&str> {
        std::str::from_utf8(self.bytes(id)?).ok()
    }

    pub fn bytes(&self, id: i32) -> Option<&[u8]> {
        match self.get(id)? {
            Datum::Bytes(value) => Some(value),
            _ => None,
        }
    }

    pub fn record(&self, id: i32) -> Option<&Record> {
        match self.get(id)? {
            Datum::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Returns the items of an array; none if it is null.
    pub fn items(&self, id: i32) -> &[Datum] {
        match self.get(id) {
            Some(Datum::Array(items)) => items,
            _ => &[],
        }
    }
}

/// The metadata in a file's header: bytes by key.
pub type Head = HashMap<String, Vec<u8>>;

/// Reads a container file: its header and its records.
pub fn read(file: &[u8]) -> Result<(Head, Vec<Record>)> {
    let mut input = Input { rest: file };
    if input.take(MAGIC.len())? != MAGIC {
        return Err(Error::damaged("this is not an Avro file: it does not begin like one"));
    }
    let mut head = HashMap::new();
    input.blocks(|input| {
        let key =
            String::from_utf8(input.blob()?.to_vec()).map_err(|_| damaged("a key that is not UTF-8"))?;
        head.insert(key, input.blob()?.to_vec());
        Ok(())
    })?;
    let sync: [u8; SYNC_LEN] = input.take(SYNC_LEN)?.try_into().expect("taken so long");
    let schema = head.get("avro.schema").ok_or_else(|| damaged("no schema"))?;
    let schema: Json = serde_json::from_slice(schema).map_err(|_| damaged("a schema that is not JSON"))?;
    let schema = Parser::default().schema(&schema, 0)?;
    let deflated = match head.get("avro.codec").map(Vec::as_slice) {
        None | Some(b"null") => false,
        Some(b"deflate") => true,
        Some(other) => {
            let name = String::from_utf8_lossy(other).into_owned();
            return Err(Error::new(types::Kind::Newer, format!("an Avro file compressed with {name}"))
                .hint("null and deflate are known"));
        }
    };
    let mut records = Vec::new();
    while !input.rest.is_empty() {
        let count = input.long()?;
        let bytes = input.blob()?;
        if input.take(SYNC_LEN)? != sync {
            return Err(damaged("a block that does not end where it should"));
        }
        let inflated;
        let mut block = Input { rest: bytes };
        if deflated {
            inflated = inflate(bytes)?;
            block = Input { rest: &inflated };
        }
        for _ in 0..count {
            match block.datum(&schema)? {
                Datum::Record(record) => records.push(record),
                _ => return Err(damaged("values that are not records")),
            }
        }
        if !block.rest.is_empty() {
            return Err(damaged("more bytes in a block than its records need"));
        }
    }
    Ok((head, records))
}

/// Bytes of one block after decompression, at most.
const BLOCK_BYTES_MAX: u64 = 256 << 20;

fn inflate(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut decoder = flate2::read::DeflateDecoder::new(bytes).take(BLOCK_BYTES_MAX + 1);
    decoder.read_to_end(&mut out).map_err(|_| damaged("a block that cannot be unpacked"))?;
    if out.len() as u64 > BLOCK_BYTES_MAX {
        return Err(damaged("a block that unpacks to more than 256 MiB"));
    }
    Ok(out)
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("an Avro file with {what}"))
}

/// Levels of nested types in a schema, at most. Iceberg's manifests need five.
const NESTING_MAX: usize = 16;

#[derive(Clone, Debug)]
enum Schema {
    Null,
    Bool,
    Long,
    Float,
    Double,
    Bytes,
    Fixed(usize),
    Array(Box<Schema>),
    Map(Box<Schema>),
    Union(Vec<Schema>),
    Record(Vec<(Option<i32>, Schema)>),
}

/// Parses a schema. Remembers its named types, which later parts may refer to.
#[derive(Default)]
struct Parser {
    named: HashMap<String, Schema>,
    /// Number of types that references to named ones have added so far.
    types: usize,
}

/// Number of types that references to named ones may add to a schema.
const TYPES_MAX: usize = 10_000;

impl Schema {
    /// Returns the number of types in the schema, and its depth.
    fn measure(&self) -> (usize, usize) {
        let inner: Vec<&Schema> = match self {
            Schema::Array(item) | Schema::Map(item) => vec![item],
            Schema::Union(options) => options.iter().collect(),
            Schema::Record(fields) => fields.iter().map(|(_, schema)| schema).collect(),
            _ => Vec::new(),
        };
        let measured = inner.iter().map(|schema| schema.measure());
        let (types, levels) =
            measured.fold((0, 0), |(n, deep), (types, levels)| (n + types, deep.max(levels)));
        (types + 1, levels + 1)
    }
}

impl Parser {
    fn schema(&mut self, json: &Json, depth: usize) -> Result<Schema> {
        if depth > NESTING_MAX {
            return Err(damaged("a schema nested too deep"));
        }
        if let Some(options) = json.as_array() {
            let options = options.iter().map(|option| self.schema(option, depth + 1));
            return Ok(Schema::Union(options.collect::<Result<_>>()?));
        }
        let name = match json {
            Json::String(name) => name.as_str(),
            _ => match &json["type"] {
                Json::String(name) => name.as_str(),
                nested => return self.schema(nested, depth + 1),
            },
        };
        let parsed = match name {
            "null" => Schema::Null,
            "boolean" => Schema::Bool,
            "int" | "long" => Schema::Long,
            "float" => Schema::Float,
            "double" => Schema::Double,
            "bytes" | "string" => Schema::Bytes,
            "fixed" => {
                let size = json["size"].as_u64().ok_or_else(|| damaged("a fixed without a size"))?;
                Schema::Fixed(
                    usize::try_from(size).map_err(|_| damaged("a fixed type of an impossible size"))?,
                )
            }
            "array" => Schema::Array(Box::new(self.schema(&json["items"], depth + 1)?)),
            "map" => Schema::Map(Box::new(self.schema(&json["values"], depth + 1)?)),
            "record" => {
                let fields = json["fields"].as_array().ok_or_else(|| damaged("a record without fields"))?;
                let field = |field: &Json| {
                    let id = field["field-id"].as_i64().and_then(|id| i32::try_from(id).ok());
                    Ok((id, self.schema(&field["type"], depth + 1)?))
                };
                Schema::Record(fields.iter().map(field).collect::<Result<_>>()?)
            }
            named => {
                let known = self.named.get(named).cloned().ok_or_else(|| damaged("an unknown type"))?;
                let (types, levels) = known.measure();
                self.types += types;
                if self.types > TYPES_MAX || depth + levels > NESTING_MAX {
                    // References within referenced types could multiply a few types without bound.
                    return Err(damaged("a schema that is too large"));
                }
                return Ok(known);
            }
        };
        if let Some(name) = json["name"].as_str() {
            self.named.insert(name.to_owned(), parsed.clone());
        }
        Ok(parsed)
    }
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| damaged("an unexpected end"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn long(&mut self) -> Result<i64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(damaged("a number that does not end"))
    }

    fn blob(&mut self) -> Result<&'a [u8]> {
        let len = self.long()?;
        self.take(usize::try_from(len).map_err(|_| damaged("a negative length"))?)
    }

    /// Calls `item` for each item of an array or map, block by block.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // A negative count is followed by the block's length in bytes, for readers that skip it.
                self.long()?;
                count = count.checked_neg().ok_or_else(|| damaged("a count out of range"))?;
            }
            for _ in 0..count {
                let before = self.rest.len();
                item(self)?;
                if self.rest.len() == before {
                    // A few bytes could otherwise announce any number of items.
                    return Err(damaged("items of no length"));
                }
            }
        }
    }

    /// Decodes one value. The recursion is no deeper than the schema, whose depth is bounded.
    fn datum(&mut self, schema: &Schema) -> Result<Datum> {
        Ok(match schema {
            Schema::Null => Datum::Null,
            Schema::Bool => Datum::Bool(self.take(1)?[0] != 0),
            Schema::Long => Datum::Long(self.long()?),
            Schema::Float => {
                let bytes = self.take(4)?.try_into().expect("taken so long");
                Datum::Double(f32::from_le_bytes(bytes).into())
            }
            Schema::Double => {
                Datum::Double(f64::from_le_bytes(self.take(8)?.try_into().expect("taken so long")))
            }
            Schema::Bytes => Datum::Bytes(self.blob()?.to_vec()),
            Schema::Fixed(len) => Datum::Bytes(self.take(*len)?.to_vec()),
            Schema::Array(item) => {
                let mut items = Vec::new();
                self.blocks(|input| {
                    items.push(input.datum(item)?);
                    Ok(())
                })?;
                Datum::Array(items)
            }
            Schema::Map(value) => {
                // Manifests have no fields that are maps, so the entries are skipped.
                self.blocks(|input| {
                    input.blob()?;
                    input.datum(value).map(drop)
                })?;
                Datum::Null
            }
            Schema::Union(options) => {
                let option = usize::try_from(self.long()?).ok().and_then(|at| options.get(at));
                self.datum(option.ok_or_else(|| damaged("an invalid union branch"))?)?
            }
            Schema::Record(fields) => {
                let mut record = Vec::with_capacity(fields.len());
                for (id, schema) in fields {
                    let value = self.datum(schema)?;
                    if let Some(id) = id {
                        record.push((*id, value));
                    }
                }
                Datum::Record(Record(record))
            }
        })
    }
}

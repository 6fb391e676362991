//! Avro object container files, limited to the parts that Iceberg's manifests need.
//!
//! Writing produces one uncompressed block with a constant schema. Reading accepts any schema of records, arrays, maps and
//! unions, since another program may have written the manifest; the `field-id` of a field tells its meaning.

mod reader;

pub use reader::{Datum, Record, read};

use xxhash_rust::xxh3::xxh3_128;

const MAGIC: &[u8; 4] = b"Obj\x01";
const SYNC_LEN: usize = 16;

/// The records of a container, encoded one after the other.
#[derive(Debug, Default)]
pub struct Body {
    bytes: Vec<u8>,
    records: u64,
}

impl Body {
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the end of a record.
    pub fn end_record(&mut self) {
        self.records += 1;
    }

    /// Writes an `int` or a `long`.
    pub fn long(&mut self, value: i64) {
        put_long(&mut self.bytes, value);
    }

    /// Writes `bytes` or a `string`.
    pub fn blob(&mut self, value: &[u8]) {
        self.long(value.len() as i64);
        self.bytes.extend_from_slice(value);
    }

    /// Writes bytes of a fixed length: a `fixed`, `float` or `double`.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn bool(&mut self, value: bool) {
        self.bytes.push(value.into());
    }

    /// Writes the branch of a union of null and another type: 1 if a value follows, 0 for null.
    pub fn some(&mut self, is_some: bool) {
        self.long(is_some.into());
    }

    pub fn optional_long(&mut self, value: Option<i64>) {
        self.some(value.is_some());
        if let Some(value) = value {
            self.long(value);
        }
    }

    /// Writes an array as one block.
    pub fn array<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        if !items.is_empty() {
            self.long(items.len() as i64);
            items.iter().for_each(|item| write(self, item));
        }
        self.long(0);
    }

    /// Returns the whole file. `metadata` adds keys and values to the file's header.
    pub fn into_file(self, schema: &str, metadata: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + schema.len() + 256);
        out.extend_from_slice(MAGIC);
        let head = [("avro.schema", schema), ("avro.codec", "null")];
        put_long(&mut out, (head.len() + metadata.len()) as i64);
        for (key, value) in head.iter().chain(metadata) {
            for part in [key, value] {
                put_long(&mut out, part.len() as i64);
                out.extend_from_slice(part.as_bytes());
            }
        }
        put_long(&mut out, 0);
        // The sync marker may be any 16 bytes that are unlikely to occur in the data.
        let sync = xxh3_128(&self.bytes).to_le_bytes();
        out.extend_from_slice(&sync);
        if self.records > 0 {
            put_long(&mut out, self.records as i64);
            put_long(&mut out, self.bytes.len() as i64);
            out.extend_from_slice(&self.bytes);
            out.extend_from_slice(&sync);
        }
        out
    }
}

/// Writes a zigzag-encoded varint: seven bits per byte, the lowest first.
fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests;

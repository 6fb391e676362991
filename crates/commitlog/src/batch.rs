//! A compact codec for Arrow record batches.
//!
//! It stores rows in log frames. Arrow's IPC format spends hundreds of bytes of flatbuffer per batch, which is
//! more than the rows of a small commit; this codec spends a few bytes per column besides the names and the buffers. Array
//! buffers are written without a copy; slices are normalised so that only their own rows are written.
//!
//! A batch describes itself (names, ids, types, nullability), so that it can be read without the table definition of that time.
//! Decoding validates everything (lengths, offsets, UTF-8, nulls in columns that allow none), never panics, and shares the given
//! memory if that is aligned.
//!
//! Types: the physical ones of [`types::DataType::to_arrow`]. Of a field's metadata only the column id and the extension
//! name of uuid and json are stored.

mod bound;
mod decode;
mod encode;
mod null;
mod schema;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, SchemaRef};
use types::{Result, SchemaVersion, TableId};

use crate::gather::Gather;

pub use bound::bytes_max;
pub(crate) use decode::decode_at;
pub(crate) use encode::encode_into;

/// Levels to which types can nest.
const DEPTH_MAX: usize = types_nesting();
/// Flag of an array whose validity bitmap is stored before its other buffers.
const HAS_NULLS: u8 = 1;
/// Flag of an array whose slots are all null; no buffer of it, or of its children, is stored.
const ALL_NULL: u8 = 2;
/// Bytes of memory that arrays stored as [`ALL_NULL`] may take per batch when they are read. Without a bound, a few stored bytes
/// could request any amount.
const ALL_NULL_BYTES_MAX: u64 = 256 << 20;

const fn types_nesting() -> usize {
    // `types` counts the levels of lists and structs; a vector or point at the innermost level adds one.
    16 + 2
}

/// Encodes one batch on its own.
pub fn encode(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut gather = Gather::default();
    encode_into(&mut gather, batch, &schema::encode(batch.schema_ref())?)?;
    let mut bytes = Vec::with_capacity(gather.len() as usize);
    for slice in gather.io_slices() {
        bytes.extend_from_slice(&slice);
    }
    Ok(bytes)
}

/// Decodes a batch that [`encode`] encoded. The batch shares the memory of `bytes` if that is aligned.
pub fn decode(bytes: &Buffer) -> Result<RecordBatch> {
    let (batch, end) = decode_at(bytes, 0, bytes.len(), &mut |bytes| schema::decode(bytes))?;
    if end != bytes.len() {
        return Err(types::Error::damaged(format!("{} bytes follow a batch", bytes.len() - end)));
    }
    Ok(batch)
}

/// Caches the encoded schemas of tables, so that a schema is encoded once per change, not once per frame.
#[derive(Debug, Default)]
pub(crate) struct SchemaWriter {
    known: HashMap<TableId, (SchemaVersion, SchemaRef, Arc<[u8]>)>,
}

impl SchemaWriter {
    pub(crate) fn encoded(
        &mut self,
        table: TableId,
        version: SchemaVersion,
        schema: &SchemaRef,
    ) -> Result<Arc<[u8]>> {
        if let Some((known_version, known, bytes)) = self.known.get(&table)
            && *known_version == version
            && (Arc::ptr_eq(known, schema) || known == schema)
        {
            return Ok(Arc::clone(bytes));
        }
        let bytes: Arc<[u8]> = schema::encode(schema)?.into();
        if self.known.len() >= SCHEMAS_MAX {
            self.known.clear();
        }
        self.known.insert(table, (version, Arc::clone(schema), Arc::clone(&bytes)));
        Ok(bytes)
    }
}

/// Caches the decoded schemas of tables, so that the batches of a table share one.
#[derive(Debug, Default)]
pub(crate) struct SchemaReader {
    known: HashMap<TableId, (Vec<u8>, SchemaRef)>,
}

impl SchemaReader {
    pub(crate) fn decoded(&mut self, table: TableId, bytes: &[u8]) -> Result<SchemaRef> {
        if let Some((known, schema)) = self.known.get(&table)
            && known == bytes
        {
            return Ok(Arc::clone(schema));
        }
        let schema = schema::decode(bytes)?;
        if self.known.len() >= SCHEMAS_MAX {
            self.known.clear();
        }
        self.known.insert(table, (bytes.to_vec(), Arc::clone(&schema)));
        Ok(schema)
    }
}

/// Number of cached schemas at which the cache is cleared: dropped tables leave theirs behind.
const SCHEMAS_MAX: usize = 2 * types::schema::TABLES_MAX;

/// Returns the bytes per slot of a fixed-width type; `None` for other types.
fn width(data_type: &DataType) -> Option<usize> {
    Some(match data_type {
        DataType::Int32 | DataType::Float32 | DataType::Date32 => 4,
        DataType::Int64 | DataType::Float64 | DataType::Timestamp(..) => 8,
        DataType::Decimal128(..) | DataType::FixedSizeBinary(16) => 16,
        _ => return None,
    })
}

/// Returns the alignment of buffers of a type, counted from the frame's start. A frame that is read into memory aligned to 16 or
/// more can then be used in place.
fn alignment(data_type: &DataType) -> usize {
    if matches!(data_type, DataType::Decimal128(..)) { 16 } else { 8 }
}

#[cfg(test)]
mod tests;

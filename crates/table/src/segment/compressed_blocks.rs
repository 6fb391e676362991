//! Compressed blocks. Each buffer of a record batch is compressed on its own, as Arrow IPC specifies, so that a reader unpacks
//! only the columns that it reads. Checksums are over the bytes in the file.
//!
//! Unpacked columns are not cached: each reader has them in its own memory, one block at a time.
//!
//! Section 8 of the sidecar: codec u8 (1 is zstd) · list of varint, per block the sum of its buffers' lengths before
//! compression.

use std::ops::Deref;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::ipc::{CompressionType, root_as_message};
use types::codec::{Decoder, Encoder};
use types::{ColumnId, Error, Kind, Result, TIME};

use super::{Block, Lazy, Segment, SegmentBody, lazy};
use crate::Projection;
use crate::head::Stored;
use crate::layout::Layout;

const ZSTD: u8 = 1;
/// Bytes that an unpacked block can have. No writer makes a larger one: a block is about 64 MiB, or one row.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Number of a segment's blocks that are compressed to estimate the saving.
const SAMPLES: usize = 3;
/// Share of its size above which a compressed segment would not be worth it.
const WORTH: f64 = 0.9;

/// The form in which a segment's rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockCompression {
    /// Uncompressed: read in place from the mapped file.
    Plain,
    /// Compressed with zstd.
    Zstd,
}

impl BlockCompression {
    pub(super) fn write_options(self) -> Result<IpcWriteOptions> {
        let compression = match self {
            BlockCompression::Plain => None,
            BlockCompression::Zstd => Some(CompressionType::ZSTD),
        };
        let options = IpcWriteOptions::default().try_with_compression(compression);
        options.map_err(|e| Error::internal(format!("Arrow IPC cannot be written compressed: {e}")))
    }
}

/// The columns of a block that a reader needs. The row ids always come with them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NeededColumns<'a> {
    All,
    /// The columns of the table's key.
    Key,
    /// One column, if the block has it.
    Column(ColumnId),
    /// The columns of a projection that the block has.
    Columns(&'a Projection),
}

impl NeededColumns<'_> {
    pub const TIMES: NeededColumns<'static> = NeededColumns::Column(TIME);

    /// The positions of the needed columns, ascending.
    fn of(self, layout: &Layout) -> Vec<usize> {
        let mut positions = vec![0];
        match self {
            NeededColumns::All => return (0..layout.ids.len()).collect(),
            NeededColumns::Key => positions.extend_from_slice(&layout.key),
            NeededColumns::Column(id) => positions.extend(layout.position(id)),
            NeededColumns::Columns(projection) => {
                positions.extend(projection.columns().filter_map(|id| layout.position(id)));
            }
        }
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}

/// Rows in the memory where their reader finds them.
#[derive(Clone, Debug)]
pub(crate) enum BlockRows<'a> {
    /// In the head, or in a mapped file.
    Stored(&'a Arc<Stored>),
    /// The requested columns of a compressed block, in the reader's memory.
    Unpacked { stored: Arc<Stored>, segment: &'a Segment, block: usize },
    /// All columns, fetched from the lake.
    Fetched(Arc<Stored>),
}

impl Deref for BlockRows<'_> {
    type Target = Arc<Stored>;

    fn deref(&self) -> &Arc<Stored> {
        match self {
            BlockRows::Stored(stored) => stored,
            BlockRows::Unpacked { stored, .. } | BlockRows::Fetched(stored) => stored,
        }
    }
}

impl<'a> BlockRows<'a> {
    /// Adds the columns of `need`, if they are not there yet.
    pub fn with(self, need: NeededColumns<'_>) -> Result<BlockRows<'a>> {
        match self {
            BlockRows::Stored(_) | BlockRows::Fetched(_) => Ok(self),
            BlockRows::Unpacked { stored, segment, block } => segment.unpack(block, need, Some(&stored)),
        }
    }
}

/// The additional part of a compressed segment.
#[derive(Debug)]
pub(super) struct PackedBlocks {
    /// Bytes of each block's buffers before compression.
    raw: Vec<u64>,
    /// Bytes by which compression shortened all blocks together.
    saved: u64,
    /// The result of checking each block's checksum and row ids, at first touch.
    checked: Vec<Lazy<()>>,
    /// The error of each block whose columns could not be unpacked although its checksum was right.
    broken: Vec<Lazy<()>>,
}

impl PackedBlocks {
    pub fn encode(raw: &[u64]) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u8(ZSTD);
        e.list(raw, |e, len| e.varint(*len));
        e.bytes
    }

    pub fn decode(bytes: &[u8], blocks: &[Block]) -> Result<PackedBlocks> {
        let mut d = Decoder::new(bytes);
        let codec = d.u8()?;
        if codec != ZSTD {
            let what = format!("blocks are compressed by codec {codec}, which this program does not know");
            return Err(Error::new(Kind::Newer, what)
                .hint("open this directory with the newer Polynya that wrote it"));
        }
        let raw = d.list(Decoder::varint)?;
        d.finish()?;
        if raw.len() != blocks.len() || raw.iter().any(|len| *len > BLOCK_BYTES_MAX) {
            let what = format!("lengths of {} blocks where {} exist", raw.len(), blocks.len());
            return Err(d.damaged(what));
        }
        let bodies: u64 = blocks.iter().map(|block| block.body_len).sum();
        let saved = raw.iter().sum::<u64>().saturating_sub(bodies);
        let none = || raw.iter().map(|_| Lazy::new()).collect();
        Ok(PackedBlocks { checked: none(), broken: none(), raw, saved })
    }

    pub fn is_damaged(&self) -> bool {
        self.checked.iter().chain(&self.broken).any(super::is_bad)
    }

    pub fn raw(&self, block: usize) -> u64 {
        self.raw[block]
    }
}

/// Sums the lengths of a compressed record batch's buffers before compression. `message` ends with the batch.
pub(super) fn raw_len(message: &[u8], metadata_len: usize) -> Result<u64> {
    let wrong =
        |what: &str| Error::damaged(format!("a block of rows is not a compressed record batch: {what}"));
    let (metadata, body) = message.split_at_checked(metadata_len).ok_or_else(|| wrong("it is too short"))?;
    let metadata = metadata.get(8..).ok_or_else(|| wrong("it has no header"))?;
    let parsed = root_as_message(metadata).map_err(|e| wrong(&e.to_string()))?;
    let batch = parsed.header_as_record_batch().ok_or_else(|| wrong("it is something else"))?;
    let codec = batch.compression().map(|compression| compression.codec());
    if codec != Some(CompressionType::ZSTD) {
        return Err(wrong(&format!("its codec is {codec:?}")));
    }
    let mut all = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = range.and_then(|(at, len)| body.get(at..at.checked_add(len)?));
        let bytes = bytes.ok_or_else(|| wrong("a buffer lies beyond its end"))?;
        let Some((prefix, rest)) = bytes.split_first_chunk::<8>() else {
            if bytes.is_empty() {
                continue;
            }
            return Err(wrong("a buffer has no length"));
        };
        // A length of −1 marks a buffer that is stored uncompressed.
        let len = match i64::from_le_bytes(*prefix) {
            -1 => rest.len() as u64,
            len => u64::try_from(len).map_err(|_| wrong("a buffer has a negative length"))?,
        };
        all = all.checked_add(len).ok_or_else(|| wrong("its buffers are too long"))?;
    }
    Ok(all)
}

impl Segment {
    /// Returns true if the segment's blocks are compressed.
    pub fn is_compressed(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| body.packed.is_some())
    }

    /// Bytes that the segment's files would have if they were here and uncompressed, about.
    pub fn raw_bytes(&self) -> u64 {
        let body = self.body.as_ref().ok();
        let packed = body.and_then(|body| body.packed.as_ref());
        let left = body.filter(|body| body.evicted.is_some()).map_or(0, |body| body.table.file_len);
        self.meta.bytes + packed.map_or(0, |packed| packed.saved) + left
    }

    /// Bytes that a block would have uncompressed, about.
    pub(crate) fn block_bytes(&self, block: usize) -> Result<u64> {
        let body = self.body()?;
        let info = &body.table.blocks[block];
        let raw = body.packed.as_ref().map(|packed| u64::from(info.metadata_len) + packed.raw(block));
        Ok(raw.unwrap_or(info.len()))
    }

    /// Unpacks columns of a compressed block: returns those of `known` and those of `need`. The block is checked at first touch.
    pub(super) fn unpack(
        &self,
        block: usize,
        need: NeededColumns<'_>,
        known: Option<&Arc<Stored>>,
    ) -> Result<BlockRows<'_>> {
        let body = self.body()?;
        let packed = body.packed.as_ref().ok_or_else(|| Error::internal("a plain block was unpacked"))?;
        let in_file = |e: Error| e.with("file", self.arrow_path.display());
        lazy(&packed.checked[block], || body.check_packed(packed, block).map_err(in_file))?;
        if let Some(Err(error)) = packed.broken[block].get() {
            return Err(error.clone());
        }
        let wanted = need.of(&body.layout);
        let stored = body.unpack(block, wanted, known.map(Arc::as_ref)).map_err(|error| {
            let error = in_file(error);
            let _ = lazy(&packed.broken[block], || Err(error.clone()));
            error
        })?;
        Ok(BlockRows::Unpacked { stored: Arc::new(stored), segment: self, block })
    }

    /// Returns true if compressing the segment would make it small enough to be worth it. Judges by a few of its blocks.
    pub fn is_worth_compressing(&self) -> Result<bool> {
        let body = self.body()?;
        let blocks = body.table.blocks.len();
        if self.is_compressed() || self.is_evicted() || blocks == 0 {
            return Ok(false);
        }
        let (mut before, mut after) = (0, 0);
        let mut samples: Vec<usize> = (0..SAMPLES).map(|i| i * (blocks - 1) / (SAMPLES - 1)).collect();
        samples.dedup();
        for block in samples {
            let rows = self.block(block, NeededColumns::All)?;
            let encoded = encode(&rows.batch)?;
            before += body.table.blocks[block].len();
            after += encoded;
        }
        Ok(after as f64 <= before as f64 * WORTH)
    }
}

/// Returns the length of a batch after compression.
fn encode(batch: &RecordBatch) -> Result<u64> {
    let failed = |e| Error::internal(format!("encoding a block of a segment failed: {e}"));
    let mut ipc = FileWriter::try_new_with_options(
        Vec::new(),
        batch.schema_ref(),
        BlockCompression::Zstd.write_options()?,
    )
    .map_err(failed)?;
    ipc.get_mut().clear();
    ipc.write(batch).map_err(failed)?;
    Ok(ipc.get_ref().len() as u64)
}

#[cfg(test)]
thread_local! {
    /// Number of times that this thread unpacked columns of a block.
    static UNPACKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl SegmentBody {
    fn check_packed(&self, packed: &PackedBlocks, block: usize) -> Result<()> {
        let bytes = self.checked_bytes(block)?;
        let info = &self.table.blocks[block];
        // Bounds the memory that unpacking reserves, before any is reserved.
        let raw = raw_len(&bytes, info.metadata_len as usize);
        let raw = raw.map_err(|e| e.with("block", block).with("offset", info.offset))?;
        if raw != packed.raw(block) {
            let what = format!("a block unpacks to {raw} bytes where {} are expected", packed.raw(block));
            return Err(self.damaged_block(block, what));
        }
        let row_ids = self.unpack(block, vec![0], None)?;
        self.check_rows(block, &row_ids)
    }

    fn unpack(&self, block: usize, wanted: Vec<usize>, known: Option<&Stored>) -> Result<Stored> {
        let position = |at: &usize| known.and_then(|known| known.layout.position(self.layout.ids[*at]));
        let missing: Vec<usize> = wanted.iter().copied().filter(|at| position(at).is_none()).collect();
        #[cfg(test)]
        UNPACKED.with(|times| times.set(times.get() + usize::from(!missing.is_empty())));
        let fresh = if missing.is_empty() {
            None
        } else {
            Some(self.read_block(block, self.block_bytes(block), Some(missing.clone()))?)
        };
        // Known columns that are not requested again are kept too, so that the result never has fewer columns.
        let all = match known {
            None => wanted,
            Some(known) => {
                let before = known.layout.ids.iter().filter_map(|id| self.layout.position(*id));
                let mut all: Vec<usize> = before.chain(wanted).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        let layout =
            if all.len() == self.layout.ids.len() { self.layout.clone() } else { self.layout.part(&all)? };
        let column = |at: &usize| match (missing.binary_search(at), &fresh, known, position(at)) {
            (Ok(found), Some(fresh), ..) => Ok(fresh.column(found).clone()),
            (_, _, Some(known), Some(found)) => Ok(known.batch.column(found).clone()),
            _ => Err(Error::internal("a column of a block was not unpacked")),
        };
        let columns = all.iter().map(column).collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(layout.schema.clone(), columns)
            .map_err(|e| self.damaged_block(block, format!("columns that do not form a block: {e}")))?;
        Ok(Stored { batch, layout })
    }
}

#[cfg(test)]
#[path = "compressed_blocks/tests.rs"]
mod tests;

//! A segment: rows in an Arrow IPC file, with a sidecar that tells which rows they are and what bounds their values have.
//!
//! `<id>.arrow` is a genuine Arrow IPC file (no dictionaries, fields carry their column ids, `_row_id` and `_time` first), whose
//! blocks may be compressed (`compressed_blocks.rs`). Rows are in row-id order, or in the order of the table's time column. `<id>.meta` is
//! the sidecar, in a format of our own: see `sidecar.rs`. Neither file changes once it has its name.

mod blocks;
pub(crate) mod compressed_blocks;
mod evicted_segment;
mod key_run;
mod order;
mod rebuild;
mod row_ids;
mod sidecar;
mod verify;
mod writer;
pub(crate) mod zones;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::MetadataVersion;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use bytes::Bytes;
use crc32c::crc32c;
use once_cell::race::OnceBox;
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Result, RowId, SegmentId, TableDef, TableId};
use vfs::{Access, Env};

use crate::evicted_rows::LakeSnapshot;
use crate::head::Stored;
use crate::layout::Layout;
use crate::lsn_runs::{self, LsnRun};
use crate::{SegmentMeta, Zone};
use blocks::{Block, BlockTable};
pub use compressed_blocks::BlockCompression;
use compressed_blocks::PackedBlocks;
pub(crate) use compressed_blocks::{BlockRows, NeededColumns};
use evicted_segment::EvictedColumns;
pub(crate) use evicted_segment::{evict, forget_bounds};
use key_run::KeyRun;
use order::Order;
pub(crate) use row_ids::RowIds;
use sidecar::{Sidecar, Tag};
pub(crate) use writer::{Writer, discard};

/// An open segment. Each part is validated at first touch; a damaged part stays an error, and the other parts can still be read.
#[derive(Debug)]
pub struct Segment {
    meta: SegmentMeta,
    /// Paths of the two files, for errors.
    arrow_path: PathBuf,
    meta_path: PathBuf,
    body: Result<Arc<SegmentBody>>,
    /// The lake position where the rows of an evicted segment are read. `None` before the lake is open.
    pub(crate) landed: Option<Arc<dyn LakeSnapshot>>,
}

/// A part that is decoded at first touch and kept. The first reader publishes it by compare-and-swap, so no reader ever waits
/// (R1); two that come at once both do the work. An error is kept too: a damaged part stays latched.
type Lazy<T> = OnceBox<Result<T>>;

#[derive(Debug)]
struct SegmentBody {
    arrow: Bytes,
    sidecar: Sidecar,
    layout: Arc<Layout>,
    decoder: FileDecoder,
    table: BlockTable,
    /// The decoded blocks of an uncompressed segment.
    cells: Vec<Lazy<Arc<Stored>>>,
    packed: Option<PackedBlocks>,
    evicted: Option<EvictedColumns>,
    /// Blocks that a reader other than background work has touched.
    wanted: Vec<AtomicBool>,
    runs: Lazy<Vec<LsnRun>>,
    row_ids: Lazy<RowIds>,
    zones: Lazy<Vec<zones::BlockZones>>,
    keys: Lazy<KeyRun>,
    /// True if a part of the sidecar was damaged and rebuilt from the rows.
    rebuilt: AtomicBool,
    /// True if rows are in row-id order; otherwise `order` maps ranks to ordinals.
    in_row_order: bool,
    order: Lazy<Order>,
    /// The damage that keeps the lake of an evicted segment from being opened.
    lake_error: OnceBox<Error>,
}

impl Segment {
    /// Maps the segment's files in `dir`, the table's directory. Never fails: a segment that cannot be opened answers every
    /// read with the error that [`Segment::check`] returns, so that its table can still serve the other segments.
    pub fn open(env: &Env, dir: &Path, def: &TableDef, meta: SegmentMeta) -> Arc<Segment> {
        let [arrow, sidecar] = file_names(meta.id).map(|name| dir.join(name));
        let body = SegmentBody::open(env, &arrow, &sidecar, def, &meta).map(Arc::new);
        Arc::new(Segment { meta, arrow_path: arrow, meta_path: sidecar, body, landed: None })
    }

    pub fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    pub fn id(&self) -> SegmentId {
        self.meta.id
    }

    /// Returns the error that keeps the whole segment from being read, if any. Damage within blocks is found when they are
    /// touched.
    pub fn check(&self) -> Result<()> {
        self.body().map(|_| ())
    }

    fn body(&self) -> Result<&SegmentBody> {
        self.body.as_deref().map_err(Clone::clone)
    }

    /// Returns true if damage was found so far that cannot be rebuilt from the rows.
    pub fn is_damaged(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| {
            body.cells.iter().any(is_bad)
                || body.packed.as_ref().is_some_and(PackedBlocks::is_damaged)
                || is_bad(&body.runs)
                || is_bad(&body.row_ids)
                || is_bad(&body.keys)
                || is_bad(&body.order)
                || is_bad(&body.zones)
        }) || self.body.is_err()
    }

    /// Returns true if a part of the sidecar is damaged and was rebuilt from the rows: a compaction should rewrite the segment.
    pub fn is_rebuilt(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| body.rebuilt.load(Relaxed))
    }

    pub(crate) fn block_count(&self) -> Result<usize> {
        Ok(self.body()?.table.blocks.len())
    }

    pub(crate) fn block_info(&self, block: usize) -> Result<&Block> {
        Ok(&self.body()?.table.blocks[block])
    }

    /// Returns a block's rows, checked at first touch: all columns out of the mapped file, or, of a compressed block, the needed
    /// columns.
    pub(crate) fn block(&self, block: usize, need: NeededColumns<'_>) -> Result<BlockRows<'_>> {
        let body = self.body()?;
        if body.evicted.is_some() {
            return Err(Error::internal("a block was read here although its rows are only in the lake"));
        }
        body.touch(block);
        if body.packed.is_some() {
            return self.unpack(block, need, None);
        }
        let decode = || body.decode(block).map_err(|e| e.with("file", self.arrow_path.display()));
        lazy(&body.cells[block], decode).map(BlockRows::Stored)
    }

    /// Returns true if a block was checked and decoded before and its rows are kept. False for compressed blocks.
    pub(crate) fn is_touched(&self, block: usize) -> bool {
        let touched =
            |body: &Arc<SegmentBody>| body.cells.get(block).is_some_and(|cell| cell.get().is_some());
        self.body.as_ref().is_ok_and(touched)
    }

    pub(crate) fn runs(&self) -> Result<&[LsnRun]> {
        let body = self.body()?;
        let read = || {
            let bytes = body.sidecar.section(Tag::LsnRuns)?;
            let mut d = Decoder::new(&bytes);
            let runs = lsn_runs::decode(&mut d)?;
            d.finish()?;
            let within = |run: &LsnRun| covers(&self.meta, RowId(run.first));
            if runs.is_empty() != (self.meta.rows == 0) || !runs.iter().all(within) {
                return Err(d.damaged("lsn runs that do not match the segment's rows"));
            }
            Ok(runs)
        };
        lazy(&body.runs, || read().map_err(|e| self.in_sidecar(e))).map(Vec::as_slice)
    }

    pub(crate) fn row_ids(&self) -> Result<&RowIds> {
        let body = self.body()?;
        lazy(&body.row_ids, || self.stored_row_ids(body).or_else(|damage| self.row_ids_of_rows(body, damage)))
    }

    /// Bounds of a block's column; `None` if unknown.
    pub(crate) fn zone(&self, block: usize, column: types::ColumnId) -> Option<Zone> {
        let body = self.body().ok()?;
        let read = || zones::decode(&body.sidecar.section(Tag::Zones)?, body.table.blocks.len());
        let all = lazy(&body.zones, || read().map_err(|e| self.in_sidecar(e))).ok()?;
        all[block].iter().find(|(id, _)| *id == column).map(|(_, zone)| zone.clone())
    }

    pub(crate) fn has_column(&self, column: types::ColumnId) -> bool {
        self.body().is_ok_and(|body| match &body.evicted {
            Some(evicted) => evicted.columns.contains(&column),
            None => body.layout.position(column).is_some(),
        })
    }

    fn keys(&self) -> Result<&KeyRun> {
        let body = self.body()?;
        lazy(&body.keys, || self.stored_keys(body).or_else(|damage| self.keys_of_rows(body, damage)))
    }

    /// The rows whose key has this hash, each as its block and index there.
    pub(crate) fn candidates(&self, hash: u64) -> Result<impl Iterator<Item = (usize, usize)> + '_> {
        let blocks = &self.body()?.table.blocks;
        Ok(self.keys()?.candidates(hash).map(move |ordinal| place(blocks, ordinal)))
    }

    /// Prefetches the entries that [`Segment::candidates`] reads, if the key run was read before. Prefetching several segments at
    /// once overlaps the loads.
    pub(crate) fn touch_key(&self, hash: u64) {
        let keys = self.body.as_ref().ok().and_then(|body| body.keys.get());
        keys.into_iter().flatten().for_each(|keys| keys.touch(hash));
    }

    /// Returns true if rows are in row-id order.
    pub fn is_in_row_order(&self) -> bool {
        self.body().is_ok_and(|body| body.in_row_order)
    }

    fn order(&self) -> Result<&Order> {
        let body = self.body()?;
        lazy(&body.order, || self.stored_order(body).or_else(|damage| self.order_of_rows(body, damage)))
    }

    /// Fails if the row-id order of a segment in time order is unknown. Damage within blocks is found when they are touched.
    pub(crate) fn check_order(&self) -> Result<()> {
        if self.body()?.in_row_order {
            return Ok(());
        }
        self.order()?;
        self.row_ids().map(|_| ())
    }

    /// Returns the block, and the index there, of the row that is the `rank`-th by row id. For segments in time order only.
    pub(crate) fn place_of_rank(&self, rank: u64) -> Result<(usize, usize)> {
        let ordinal = self.order()?.ordinal(rank);
        let ordinal =
            ordinal.ok_or_else(|| Error::internal("a row beyond a segment's last one was requested"))?;
        Ok(place(&self.body()?.table.blocks, ordinal))
    }

    /// Returns the block that may store a row version, by its bounds; `None` if no block does.
    pub(crate) fn block_of(&self, row: u64) -> Result<Option<usize>> {
        if !self.body()?.in_row_order {
            return Ok(self.locate(row)?.map(|(block, _)| block));
        }
        let blocks = &self.body()?.table.blocks;
        let block = blocks.partition_point(|b| b.last_row < row);
        Ok(blocks.get(block).filter(|b| b.first_row <= row).map(|_| block))
    }

    /// Returns the block of a row version and its index there; `None` if the segment does not store it.
    pub(crate) fn locate(&self, row: u64) -> Result<Option<(usize, usize)>> {
        if !self.body()?.in_row_order {
            return self.row_ids()?.rank(row).map(|rank| self.place_of_rank(rank)).transpose();
        }
        let Some(block) = self.block_of(row)? else { return Ok(None) };
        let info = self.block_info(block)?;
        if info.last_row - info.first_row + 1 == u64::from(info.rows) {
            return Ok(Some((block, (row - info.first_row) as usize)));
        }
        if self.is_compressed() || self.is_evicted() {
            let rank = self.row_ids()?.rank(row);
            return Ok(rank.map(|rank| (block, (rank - info.ordinal) as usize)));
        }
        let rows = self.block(block, NeededColumns::All)?;
        Ok(rows.row_ids().binary_search(&(row as i64)).ok().map(|at| (block, at)))
    }

    /// Returns the first stored row id whose time of arrival is `time` or later.
    pub(crate) fn row_at_time(&self, time: i64) -> Result<Option<u64>> {
        let blocks = &self.body()?.table.blocks;
        if !self.is_in_row_order() {
            return self.row_at_time_by_rank(blocks, time);
        }
        let block = blocks.partition_point(|b| b.last_time < time);
        match blocks.get(block) {
            None => Ok(None),
            Some(info) if info.first_time >= time => Ok(Some(info.first_row)),
            Some(_) if self.is_evicted() => self.row_at_time_in_lake(block, time),
            Some(_) => {
                let stored = self.block(block, NeededColumns::TIMES)?;
                let at = stored.times().partition_point(|t| *t < time);
                Ok(Some(stored.row_ids()[at] as u64))
            }
        }
    }

    /// Searches a segment in time order. Times of arrival never fall with the row id, so a binary search by rank finds the row.
    /// Blocks that are wholly before or after `time` narrow the range.
    fn row_at_time_by_rank(&self, blocks: &[Block], time: i64) -> Result<Option<u64>> {
        let ids = self.row_ids()?;
        let rank_of = |row: Option<u64>| row.and_then(|row| ids.rank(row));
        let before = blocks.iter().filter(|b| b.last_time < time).map(|b| b.last_row).max();
        let after = blocks.iter().filter(|b| b.first_time >= time).map(|b| b.first_row).min();
        let mut low = rank_of(before).map_or(0, |rank| rank + 1);
        let mut high = rank_of(after).unwrap_or(ids.len());
        while low < high {
            let middle = u64::midpoint(low, high);
            let (block, index) = self.place_of_rank(middle)?;
            if self.block(block, NeededColumns::TIMES)?.times()[index] < time {
                low = middle + 1
            } else {
                high = middle
            }
        }
        Ok(ids.select(low))
    }

    fn in_sidecar(&self, e: Error) -> Error {
        e.with("file", self.meta_path.display())
    }
}

impl SegmentBody {
    fn open(
        env: &Env,
        arrow: &Path,
        sidecar: &Path,
        def: &TableDef,
        meta: &SegmentMeta,
    ) -> Result<SegmentBody> {
        let map = |path: &Path| {
            let bytes = env.disk.open(path, Access::Read).and_then(|file| file.map());
            bytes.map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => Error::damaged("a segment's file is missing")
                    .with("file", path.display())
                    .hint("restore it from a backup"),
                _ => Error::io(format_args!("mapping {}", path.display()), e),
            })
        };
        let in_sidecar = |e: Error| e.with("file", sidecar.display());
        let opened = Sidecar::open(map(sidecar)?, meta.crc).map_err(in_sidecar)?;
        let summary = opened.section(Tag::Summary).and_then(|bytes| check_summary(&bytes, def.id, meta));
        summary.map_err(in_sidecar)?;
        let in_row_order = !opened.has(Tag::Order);
        let table = opened.section(Tag::Blocks).and_then(|bytes| BlockTable::decode(&bytes, in_row_order));
        let table = table.map_err(in_sidecar)?;
        if table.rows() != meta.rows {
            let what = format!("blocks of {} rows where {} are expected", table.rows(), meta.rows);
            return Err(in_sidecar(Error::damaged(what)));
        }
        let packed = if opened.has(Tag::Packed) {
            let packed = opened.section(Tag::Packed);
            Some(packed.and_then(|bytes| PackedBlocks::decode(&bytes, &table.blocks)).map_err(in_sidecar)?)
        } else {
            None
        };
        if opened.has(Tag::Evicted) {
            let evicted = opened.section(Tag::Evicted).and_then(|bytes| EvictedColumns::decode(&bytes));
            return Ok(SegmentBody::of_evicted(opened, table, evicted.map_err(in_sidecar)?, def));
        }
        let bytes = map(arrow)?;
        let layout = table
            .check_ends(&bytes)
            .and_then(|()| read_schema(&bytes, def))
            .map_err(|e| e.with("file", arrow.display()))?;
        Ok(SegmentBody {
            arrow: bytes,
            sidecar: opened,
            decoder: FileDecoder::new(layout.schema.clone(), MetadataVersion::V5),
            layout,
            cells: match packed {
                Some(_) => Vec::new(),
                None => table.blocks.iter().map(|_| Lazy::new()).collect(),
            },
            packed,
            evicted: None,
            wanted: table.blocks.iter().map(|_| AtomicBool::new(false)).collect(),
            table,
            runs: Lazy::new(),
            row_ids: Lazy::new(),
            zones: Lazy::new(),
            keys: Lazy::new(),
            rebuilt: AtomicBool::new(false),
            in_row_order,
            order: Lazy::new(),
            lake_error: OnceBox::new(),
        })
    }

    /// Blocks that only background work touches are the first to leave the page cache when memory is short.
    fn touch(&self, block: usize) {
        let wanted = &self.wanted[block];
        if !vfs::in_background_reads() {
            // Loads first: a store would take the cache line from other readers.
            if !wanted.load(Relaxed) {
                wanted.store(true, Relaxed);
            }
        } else if !wanted.load(Relaxed) {
            let start = self.table.blocks[block].offset as usize;
            vfs::note_background_read(
                self.arrow.slice(start..start + self.table.blocks[block].len() as usize),
            );
        }
    }

    fn decode(&self, block: usize) -> Result<Arc<Stored>> {
        let batch = self.read_block(block, self.checked_bytes(block)?, None)?;
        let stored = Stored { batch, layout: self.layout.clone() };
        self.check_rows(block, &stored)?;
        Ok(Arc::new(stored))
    }

    /// Returns a buffer of the block alone: a batch that refers to it is charged for the block, not for the whole file.
    fn block_bytes(&self, block: usize) -> Buffer {
        let info = &self.table.blocks[block];
        let start = info.offset as usize;
        Buffer::from(self.arrow.slice(start..start + info.len() as usize))
    }

    fn checked_bytes(&self, block: usize) -> Result<Buffer> {
        let bytes = self.block_bytes(block);
        if crc32c(&bytes) == self.table.blocks[block].crc {
            Ok(bytes)
        } else {
            Err(self.damaged_block(block, "a block of rows does not match its checksum".into()))
        }
    }

    /// Decodes the columns of a block at these positions, or all columns.
    fn read_block(&self, block: usize, bytes: Buffer, columns: Option<Vec<usize>>) -> Result<RecordBatch> {
        let info = &self.table.blocks[block];
        let place =
            arrow::ipc::Block::new(info.offset as i64, info.metadata_len as i32, info.body_len as i64);
        let batch = match columns {
            None => self.decoder.read_record_batch(&place, &bytes),
            Some(columns) => FileDecoder::new(self.layout.schema.clone(), MetadataVersion::V5)
                .with_projection(columns)
                .read_record_batch(&place, &bytes),
        };
        let no_batch = |e| self.damaged_block(block, format!("a block of rows is not a record batch: {e}"));
        batch.map_err(no_batch)?.ok_or_else(|| self.damaged_block(block, "a block without rows".into()))
    }

    /// Fails unless the rows of a block are those that the block table describes.
    fn check_rows(&self, block: usize, stored: &Stored) -> Result<()> {
        let info = &self.table.blocks[block];
        let rows = stored.row_ids();
        let bounds = if self.in_row_order {
            (rows.first(), rows.last())
        } else {
            (rows.iter().min(), rows.iter().max())
        };
        if rows.len() != info.rows as usize
            || bounds != (Some(&(info.first_row as i64)), Some(&(info.last_row as i64)))
            || self.in_row_order && rows.windows(2).any(|pair| pair[0] >= pair[1])
        {
            let what = "a block of rows that does not match the block table";
            return Err(self.damaged_block(block, what.into()));
        }
        Ok(())
    }

    fn damaged_block(&self, block: usize, what: String) -> Error {
        Error::damaged(what).with("block", block).with("offset", self.table.blocks[block].offset)
    }
}

/// Returns the block of an existing ordinal, and the index there.
fn place(blocks: &[Block], ordinal: u32) -> (usize, usize) {
    let ordinal = u64::from(ordinal);
    // Most blocks are full, so the guess is usually right.
    let guess = (ordinal as usize / crate::BATCH_ROWS).min(blocks.len() - 1);
    let hit = |b: &Block| ordinal >= b.ordinal && ordinal - b.ordinal < u64::from(b.rows);
    let block =
        if hit(&blocks[guess]) { guess } else { blocks.partition_point(|b| b.ordinal <= ordinal) - 1 };
    (block, (ordinal - blocks[block].ordinal) as usize)
}

fn is_bad<T>(cell: &Lazy<T>) -> bool {
    cell.get().is_some_and(Result::is_err)
}

fn lazy<T>(cell: &Lazy<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    cell.get_or_init(|| Box::new(make())).as_ref().map_err(Clone::clone)
}

/// Reads the layout from the Arrow file's footer, whose bytes have passed their checksum.
fn read_schema(file: &[u8], def: &TableDef) -> Result<Arc<Layout>> {
    let damaged = |what: String| Error::damaged(format!("the Arrow file's footer cannot be read: {what}"));
    let end = file.last_chunk::<10>().ok_or_else(|| damaged("it is too short".into()))?;
    let len = read_footer_length(*end).map_err(|e| damaged(e.to_string()))?;
    let start =
        (file.len() - 10).checked_sub(len).ok_or_else(|| damaged("it is longer than the file".into()))?;
    let footer =
        arrow::ipc::root_as_footer(&file[start..file.len() - 10]).map_err(|e| damaged(e.to_string()))?;
    let schema = footer.schema().ok_or_else(|| damaged("it has no schema".into()))?;
    if footer.version() != MetadataVersion::V5 {
        return Err(damaged(format!("its metadata version is {:?}", footer.version())));
    }
    Layout::of_stored(Arc::new(fb_to_schema(schema)), def)
}

/// Encodes the sidecar's summary of its segment, which must equal the summary that follows from the manifest.
pub(crate) fn encode_summary(table: TableId, meta: &SegmentMeta, e: &mut Encoder) {
    e.varint(table.0.into());
    e.varint(meta.id.0);
    e.varint(meta.first_row.0);
    e.varint(meta.last_row.0);
    e.varint(meta.rows);
    e.varint(meta.schema_version.0.into());
    e.i64(meta.first_time);
    e.i64(meta.last_time);
    e.varint(meta.first_lsn.0);
    e.varint(meta.last_lsn.0);
}

fn check_summary(bytes: &[u8], table: TableId, meta: &SegmentMeta) -> Result<()> {
    let mut expected = Encoder::new();
    encode_summary(table, meta, &mut expected);
    if expected.bytes == bytes {
        return Ok(());
    }
    Err(Error::damaged(format!(
        "the sidecar describes another segment than segment {} of table {table}",
        meta.id
    )))
}

/// The directory of a table's segments within a data directory: `tables/<id>`.
pub fn table_dir(root: &Path, table: TableId) -> PathBuf {
    root.join("tables").join(table.to_string())
}

/// The names of a segment's files: the Arrow file and the sidecar.
pub fn file_names(id: SegmentId) -> [String; 2] {
    [format!("{id}.arrow"), format!("{id}.meta")]
}

/// The names of the files that a segment has: an evicted one has only a sidecar.
pub fn names_of(segment: &Segment) -> Vec<String> {
    let [arrow, sidecar] = file_names(segment.id());
    if segment.is_evicted() { vec![sidecar] } else { vec![arrow, sidecar] }
}

/// Removes a segment's files if they exist. The engine calls it once no `Arc<Segment>` is left (G1).
pub fn remove_files(env: &Env, dir: &Path, id: SegmentId) -> Result<()> {
    for name in file_names(id) {
        match env.disk.remove(&dir.join(&name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format_args!("removing {name}"), e).with("directory", dir.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns true if a row id is in the range that a segment covers.
pub(crate) fn covers(meta: &SegmentMeta, row: RowId) -> bool {
    meta.first_row <= row && row <= meta.last_row
}

/// Returns true if an error means that stored bytes are bad or unreadable, rather than that a request is.
pub(crate) fn is_damage(e: &Error) -> bool {
    matches!(e.kind(), Kind::Damaged | Kind::Io | Kind::Newer)
}

#[cfg(test)]
mod tests;

//! Writes a segment: the blocks as they come, then the sidecar; then renames both files to their final names.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::ipc::writer::FileWriter;
use crc32c::crc32c;
use roaring::RoaringTreemap;
use types::codec::Encoder;
use types::{Error, Lsn, Result, RowId, SegmentId, TableDef};
use vfs::{Env, File, WriteBehind};

use super::blocks::{Block, BlockTable};
use super::compressed_blocks::{BlockCompression, PackedBlocks, raw_len};
use super::order::Order;
use super::row_ids::RowIds;
use super::sidecar::{self, Tag};
use super::{encode_summary, file_names, key_run, zones};
use crate::head::Stored;
use crate::layout::Layout;
use crate::lsn_runs::{self, LsnRun};
use crate::{BATCH_ROWS, SegmentMeta, memory};

/// Bytes of the steps in which the sidecar is written, so that the log's fsync never waits behind a large flush.
const STEP_BYTES: usize = 4 << 20;
/// Bytes at which a block is closed early, so that no text column overflows its 32-bit offsets.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// Writes rows in the layout of `def` into a segment: in row-id order, unless [`Writer::ordered`] announces another order.
pub(crate) struct Writer<'a> {
    env: &'a Env,
    dir: PathBuf,
    id: SegmentId,
    def: &'a TableDef,
    layout: Arc<Layout>,
    tick: &'a mut dyn FnMut(u64) -> Result<()>,
    out: Output,
    ipc: FileWriter<Vec<u8>>,
    table: BlockTable,
    /// Bytes of each block before compression; `None` if the segment is not compressed.
    raw: Option<Vec<u64>>,
    zones: Vec<zones::BlockZones>,
    runs: Vec<LsnRun>,
    row_ids: RoaringTreemap,
    /// The ordinal of each row, by row id; `None` if rows come in row-id order.
    ordinals: Option<Vec<u32>>,
    keys: Vec<(u64, u32)>,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: u64,
}

/// A new file that is written from front to back; written bytes are flushed to the disk meanwhile.
pub(super) struct Output {
    file: Arc<dyn File>,
    pub path: PathBuf,
    pub len: u64,
    behind: WriteBehind,
}

impl Output {
    /// Creates the file. Replaces a file of that name that a crash may have left.
    pub fn create(env: &Env, path: PathBuf) -> Result<Output> {
        let io = |e| Error::io(format_args!("creating {}", path.display()), e);
        if env.disk.exists(&path).map_err(io)? {
            env.disk.remove(&path).map_err(io)?;
        }
        let file = env.disk.create(&path).map_err(io)?;
        Ok(Output { file, path, len: 0, behind: WriteBehind::default() })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let io = |e| Error::io(format_args!("writing {}", self.path.display()), e);
        self.file.write_at(&[IoSlice::new(bytes)], self.len).map_err(io)?;
        self.len += bytes.len() as u64;
        self.behind.advance(&*self.file, self.len).map_err(io)
    }

    pub fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io(format_args!("syncing {}", self.path.display()), e))
    }
}

impl<'a> Writer<'a> {
    pub fn create(
        env: &'a Env,
        dir: &Path,
        id: SegmentId,
        def: &'a TableDef,
        layout: &Arc<Layout>,
        form: BlockCompression,
        tick: &'a mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Writer<'a>> {
        make_dir(env, dir)?;
        let [arrow, _] = file_names(id);
        let mut out = Output::create(env, dir.join(format!("{arrow}.tmp")))?;
        let options = form.write_options()?;
        let mut ipc =
            FileWriter::try_new_with_options(Vec::new(), &layout.schema, options).map_err(ipc_error)?;
        let head = std::mem::take(ipc.get_mut());
        out.write(&head)?;
        let table = BlockTable { head_len: out.len, head_crc: crc32c(&head), ..BlockTable::default() };
        Ok(Writer {
            env,
            dir: dir.to_owned(),
            id,
            def,
            layout: layout.clone(),
            tick,
            out,
            ipc,
            table,
            raw: (form == BlockCompression::Zstd).then(Vec::new),
            zones: Vec::new(),
            runs: Vec::new(),
            row_ids: RoaringTreemap::new(),
            ordinals: None,
            keys: Vec::new(),
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
        })
    }

    /// Announces rows in another order, before the first row: the row ids, the commits that wrote them, and the ordinal of each
    /// row by row id.
    pub fn ordered(&mut self, row_ids: RoaringTreemap, runs: Vec<LsnRun>, ordinals: Vec<u32>) {
        (self.row_ids, self.runs, self.ordinals) = (row_ids, runs, Some(ordinals));
    }

    /// Adds rows. `runs` has the commits that wrote them, and may have others.
    pub fn push(&mut self, batch: &RecordBatch, runs: &[LsnRun]) -> Result<()> {
        if self.ordinals.is_none() {
            let stored = Stored { batch: batch.clone(), layout: self.layout.clone() };
            self.note(stored.row_ids(), runs);
        }
        let mut offset = 0;
        while offset < batch.num_rows() {
            let take = (BATCH_ROWS - self.waiting_rows).min(batch.num_rows() - offset);
            let part = batch.slice(offset, take);
            let bytes = memory::used(&part);
            if self.waiting_rows > 0 && self.waiting_bytes + bytes > BLOCK_BYTES_MAX {
                self.flush()?;
                continue;
            }
            offset += take;
            self.waiting.push(part);
            self.waiting_rows += take;
            self.waiting_bytes += bytes;
            if self.waiting_rows == BATCH_ROWS {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Records the ids of the rows and the commits that wrote them.
    fn note(&mut self, rows: &[i64], runs: &[LsnRun]) {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
        let (first, last) = (*first as u64, *last as u64);
        let is_next = self.row_ids.max().is_none_or(|max| max < first);
        let mut at = runs.partition_point(|run| run.first <= first).saturating_sub(1);
        // Usually no id is missing between the first and the last.
        if is_next && last.checked_sub(first).is_some_and(|more| more + 1 == rows.len() as u64) {
            debug_assert!(rows.is_sorted_by(|a, b| a < b), "rows of a segment come in row-id order");
            self.row_ids.insert_range(first..=last);
            lsn_runs::push(&mut self.runs, LsnRun { lsn: runs[at].lsn, first });
            for run in runs[at + 1..].iter().take_while(|run| run.first <= last) {
                lsn_runs::push(&mut self.runs, *run);
            }
            return;
        }
        for row in rows {
            let row = *row as u64;
            assert!(self.row_ids.try_push(row).is_ok(), "rows of a segment come in row-id order");
            while runs.get(at + 1).is_some_and(|next| next.first <= row) {
                at += 1;
            }
            lsn_runs::push(&mut self.runs, LsnRun { lsn: runs[at].lsn, first: row });
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.waiting_rows == 0 {
            return Ok(());
        }
        let joined = concat_batches(&self.layout.schema, &self.waiting);
        let batch = joined.map_err(|e| Error::internal(format!("joining rows of a segment failed: {e}")))?;
        self.waiting.clear();
        (self.waiting_rows, self.waiting_bytes) = (0, 0);

        let ordinal = self.table.rows();
        if u32::try_from(ordinal + batch.num_rows() as u64).is_err() {
            return Err(Error::internal("a segment of more than 2^32 rows was asked for"));
        }
        self.ipc.write(&batch).map_err(ipc_error)?;
        let mut bytes = std::mem::take(self.ipc.get_mut());
        // The message starts with a marker and the length of its padded metadata.
        let metadata_len = 8 + u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        if let Some(raw) = &mut self.raw {
            raw.push(raw_len(&bytes, metadata_len as usize)?);
        }
        let stored = Stored { batch, layout: self.layout.clone() };
        let (rows, times) = (stored.row_ids(), stored.times());
        let bounds = |values: &[i64]| {
            (values.iter().min().copied().unwrap_or(0), values.iter().max().copied().unwrap_or(0))
        };
        let ((first_row, last_row), (first_time, last_time)) = (bounds(rows), bounds(times));
        self.table.blocks.push(Block {
            offset: self.out.len,
            metadata_len,
            body_len: bytes.len() as u64 - u64::from(metadata_len),
            crc: crc32c(&bytes),
            ordinal,
            rows: rows.len() as u32,
            first_row: first_row as u64,
            last_row: last_row as u64,
            first_time,
            last_time,
        });
        self.out.write(&bytes)?;
        let zone = |(id, column): (&types::ColumnId, &arrow::array::ArrayRef)| {
            zones::of(column).map(|zone| (*id, zone))
        };
        self.zones.push(self.layout.ids.iter().zip(stored.batch.columns()).filter_map(zone).collect());
        if self.def.is_keyed() {
            self.keys.extend(key_run::hashes(&self.layout, &stored.batch).zip(ordinal as u32..));
        }
        let written = bytes.len() as u64;
        // The next block reuses the buffer: new memory for each block costs more than writing into it.
        bytes.clear();
        *self.ipc.get_mut() = bytes;
        (self.tick)(written)
    }

    /// Makes the segment durable under its name. `first_row..=last_row` is the range that it covers.
    pub fn finish(mut self, first_row: RowId, last_row: RowId) -> Result<SegmentMeta> {
        self.flush()?;
        self.ipc.finish().map_err(ipc_error)?;
        let tail = std::mem::take(self.ipc.get_mut());
        self.out.write(&tail)?;
        self.out.sync()?;
        self.table.tail_crc = crc32c(&tail);
        self.table.file_len = self.out.len;

        let mut meta = SegmentMeta {
            id: self.id,
            first_row,
            last_row,
            rows: self.table.rows(),
            bytes: 0,
            schema_version: self.def.schema.version,
            first_time: self.table.blocks.iter().map(|b| b.first_time).min().unwrap_or(0),
            last_time: self.table.blocks.iter().map(|b| b.last_time).max().unwrap_or(0),
            first_lsn: Lsn(self.runs.first().map_or(0, |run| run.lsn)),
            last_lsn: Lsn(self.runs.last().map_or(0, |run| run.lsn)),
            crc: 0,
        };
        let section = |write: &dyn Fn(&mut Encoder)| {
            let mut e = Encoder::new();
            write(&mut e);
            e.bytes
        };
        let mut sections = vec![
            (Tag::Summary, section(&|e| encode_summary(self.def.id, &meta, e))),
            (Tag::Blocks, self.table.encode()),
            (Tag::LsnRuns, section(&|e| lsn_runs::encode(&self.runs, e))),
            (Tag::RowIds, section(&|e| RowIds::encode(&self.row_ids, e))),
            (Tag::Zones, zones::encode(&self.zones)),
        ];
        if self.def.is_keyed() {
            sections.push((Tag::Keys, key_run::encode(std::mem::take(&mut self.keys))));
        }
        if let Some(ordinals) = self.ordinals.take() {
            assert_eq!(ordinals.len() as u64, self.table.rows(), "as many rows came as were announced");
            sections.push((Tag::Order, Order::encode(&ordinals)));
        }
        if let Some(raw) = self.raw.take() {
            sections.push((Tag::Packed, PackedBlocks::encode(&raw)));
        }
        let (bytes, crc) = sidecar::encode(&sections);
        let [arrow_name, meta_name] = file_names(self.id);
        let mut out = Output::create(self.env, self.dir.join(format!("{meta_name}.tmp")))?;
        for part in bytes.chunks(STEP_BYTES) {
            out.write(part)?;
        }
        out.sync()?;
        for (from, name) in [(&self.out.path, arrow_name), (&out.path, meta_name)] {
            let renamed = self.env.disk.rename(from, &self.dir.join(&name));
            renamed.map_err(|e| Error::io(format_args!("naming {name}"), e))?;
        }
        sync_dir(self.env, &self.dir)?;
        (meta.bytes, meta.crc) = (self.out.len + out.len, crc);
        Ok(meta)
    }
}

/// Removes the files that a failed write left, under temporary and final names. The next attempt takes another id, so they would
/// otherwise stay until the database is opened again.
pub(crate) fn discard(env: &Env, dir: &Path, id: SegmentId) {
    for name in file_names(id) {
        // Best effort: the caller is about to report why the write failed, which matters more.
        let _ = env.disk.remove(&dir.join(format!("{name}.tmp")));
        let _ = env.disk.remove(&dir.join(name));
    }
}

fn make_dir(env: &Env, dir: &Path) -> Result<()> {
    let io = |e| Error::io(format_args!("making {}", dir.display()), e);
    if env.disk.exists(dir).map_err(io)? {
        return Ok(());
    }
    env.disk.create_dir_all(dir).map_err(io)?;
    // `tables/7` is durable once `tables` is synced, and `tables` once its parent is.
    for parent in dir.ancestors().skip(1).take(2).filter(|p| !p.as_os_str().is_empty()) {
        sync_dir(env, parent)?;
    }
    Ok(())
}

pub(super) fn sync_dir(env: &Env, dir: &Path) -> Result<()> {
    env.disk.sync_dir(dir).map_err(|e| Error::io(format_args!("syncing {}", dir.display()), e))
}

fn ipc_error(e: arrow::error::ArrowError) -> Error {
    Error::internal(format!("encoding a segment as Arrow IPC failed: {e}"))
}

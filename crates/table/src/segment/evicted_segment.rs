//! An evicted segment: its rows are in the lake alone, and it has a sidecar without an Arrow file.
//!
//! Its blocks are ranges of its row ids, in row-id order; their byte lengths are about those that the rows had here.
//!
//! Section 9 of the sidecar: the ids of the columns that the rows have, list of varint.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::ipc::MetadataVersion;
use arrow::ipc::reader::FileDecoder;
use bytes::Bytes;
use once_cell::race::OnceBox;
use types::codec::{Decoder, Encoder};
use types::{ColumnId, Error, Result, RowId, SegmentId, TableDef};
use vfs::Env;

use super::blocks::{Block, BlockTable};
use super::sidecar::{self, Sidecar, Tag};
use super::writer::{self, Output};
use super::{Lazy, NeededColumns, Segment, SegmentBody, encode_summary, file_names, lazy, zones};
use crate::evicted_rows::LakeSnapshot;
use crate::layout::Layout;
use crate::{BATCH_ROWS, SegmentMeta};

/// The additional part of an evicted segment.
#[derive(Debug)]
pub(super) struct EvictedColumns {
    pub columns: Vec<ColumnId>,
}

impl EvictedColumns {
    fn encode(columns: &[ColumnId]) -> Vec<u8> {
        let mut e = Encoder::new();
        e.list(columns, |e, id| e.varint(id.0.into()));
        e.bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<EvictedColumns> {
        let mut d = Decoder::new(bytes);
        let columns = d.list(|d| d.varint32().map(ColumnId))?;
        d.finish()?;
        Ok(EvictedColumns { columns })
    }
}

impl SegmentBody {
    pub(super) fn of_evicted(
        sidecar: Sidecar,
        table: BlockTable,
        evicted: EvictedColumns,
        def: &TableDef,
    ) -> SegmentBody {
        let layout = Layout::of(def);
        SegmentBody {
            arrow: Bytes::new(),
            sidecar,
            decoder: FileDecoder::new(layout.schema.clone(), MetadataVersion::V5),
            layout,
            cells: Vec::new(),
            packed: None,
            evicted: Some(evicted),
            wanted: table.blocks.iter().map(|_| AtomicBool::new(false)).collect(),
            table,
            runs: Lazy::new(),
            row_ids: Lazy::new(),
            zones: Lazy::new(),
            keys: Lazy::new(),
            rebuilt: AtomicBool::new(false),
            in_row_order: true,
            order: Lazy::new(),
            lake_error: OnceBox::new(),
        }
    }
}

impl Segment {
    /// Returns true if the segment's rows are in the lake alone.
    pub fn is_evicted(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| body.evicted.is_some())
    }

    /// Returns the same segment, whose rows are read at `landed`.
    pub(crate) fn pinned(&self, landed: &Arc<dyn LakeSnapshot>) -> Arc<Segment> {
        Arc::new(Segment {
            meta: self.meta.clone(),
            arrow_path: self.arrow_path.clone(),
            meta_path: self.meta_path.clone(),
            body: self.body.clone(),
            landed: Some(landed.clone()),
        })
    }

    /// Stores the damage that keeps the lake from being opened. Reads return this error until the lake is opened.
    pub fn note_lake_error(&self, error: &Error) {
        if let Ok(body) = &self.body
            && body.evicted.is_some()
        {
            // Keeps an earlier error, which is as good.
            let _ = body.lake_error.set(Box::new(error.clone()));
        }
    }

    /// The error that keeps the rows of an evicted segment from being read: damage of its lake.
    pub fn lake_error(&self) -> Option<&Error> {
        self.body.as_ref().ok().filter(|_| self.landed.is_none())?.lake_error.get()
    }

    /// Returns true if the sidecar has bounds of the values in a block.
    pub(crate) fn has_bounds(&self, block: usize) -> Result<bool> {
        let body = self.body()?;
        let read = || zones::decode(&body.sidecar.section(Tag::Zones)?, body.table.blocks.len());
        let all = lazy(&body.zones, || read().map_err(|e| self.in_sidecar(e)))?;
        Ok(!all[block].is_empty())
    }

    /// Returns true if another value of the same segment lives, so that its file is in use.
    pub fn is_shared(&self) -> bool {
        self.body.as_ref().is_ok_and(|body| Arc::strong_count(body) > 1)
    }

    /// The row ids of a block of an evicted segment, ascending.
    pub(crate) fn ids_of_block(&self, block: usize) -> Result<impl Iterator<Item = u64> + '_> {
        let info = self.block_info(block)?;
        let last = info.last_row;
        Ok(self.row_ids()?.starting_at(info.first_row).take_while(move |row| *row <= last))
    }

    /// Returns the first row of a block whose time is `time` or later. The block's last time must be `time` or later. If that row
    /// is gone from the lake, returns the first row after the block.
    pub(super) fn row_at_time_in_lake(&self, block: usize, time: i64) -> Result<Option<u64>> {
        let rows: Vec<RowId> = self.ids_of_block(block)?.map(RowId).collect();
        let times = self.times_in_lake(&rows)?;
        let found = times.iter().find(|(_, at)| *at >= time).map(|(row, _)| *row);
        // Rows after the block are later still.
        let behind = self.body()?.table.blocks.get(block + 1).map(|next| next.first_row);
        Ok(found.or(behind).or_else(|| self.meta.last_row.0.checked_add(1)))
    }
}

/// Writes segment `id` in `dir`, durably: a sidecar for the rows of `segment`, which the lake has. `tick` is called with the
/// bytes that were read.
pub(crate) fn evict(
    segment: &Segment,
    env: &Env,
    dir: &Path,
    id: SegmentId,
    def: &TableDef,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SegmentMeta> {
    let body = segment.body()?;
    if body.evicted.is_some() || def.is_keyed() {
        return Err(Error::internal("a segment was to be evicted that has no rows here, or has keys"));
    }
    let mut table = BlockTable::default();
    let mut all_zones = Vec::new();
    if body.in_row_order {
        for (number, block) in body.table.blocks.iter().enumerate() {
            let body_len = segment.block_bytes(number)?.saturating_sub(u64::from(block.metadata_len));
            table.blocks.push(Block { body_len, offset: table.file_len, crc: 0, ..block.clone() });
            table.file_len += u64::from(block.metadata_len) + body_len;
            tick(0)?;
        }
        all_zones.extend(zones::decode(&body.sidecar.section(Tag::Zones)?, body.table.blocks.len())?);
    } else {
        let mut rows: Vec<(i64, i64)> = Vec::with_capacity(body.table.rows() as usize);
        for block in 0..body.table.blocks.len() {
            let stored = segment.block(block, NeededColumns::TIMES)?;
            rows.extend(stored.row_ids().iter().copied().zip(stored.times().iter().copied()));
            tick(body.table.blocks[block].len())?;
        }
        rows.sort_unstable();
        let row_bytes = (segment.raw_bytes() / (rows.len() as u64).max(1)).max(1);
        for rows in rows.chunks(BATCH_ROWS) {
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { continue };
            let block = Block {
                offset: table.file_len,
                metadata_len: 8,
                body_len: row_bytes * rows.len() as u64,
                crc: 0,
                ordinal: table.rows(),
                rows: rows.len() as u32,
                first_row: first.0 as u64,
                last_row: last.0 as u64,
                first_time: first.1,
                last_time: last.1,
            };
            table.file_len += block.len();
            table.blocks.push(block);
            all_zones.push(Vec::new());
        }
    }
    let known: BTreeSet<ColumnId> = body.layout.ids.iter().copied().collect();
    let columns: Vec<ColumnId> = known.into_iter().collect();
    write(segment, env, dir, id, def, (&table, &all_zones, &columns))
}

/// Writes segment `id` in `dir`, durably: the evicted segment `segment` without the column bounds of some blocks.
pub(crate) fn forget_bounds(
    segment: &Segment,
    blocks: &BTreeSet<usize>,
    env: &Env,
    dir: &Path,
    id: SegmentId,
    def: &TableDef,
) -> Result<SegmentMeta> {
    let body = segment.body()?;
    let Some(evicted) = &body.evicted else {
        return Err(Error::internal("the bounds of a segment with rows on this machine were to be dropped"));
    };
    let mut all_zones = zones::decode(&body.sidecar.section(Tag::Zones)?, body.table.blocks.len())?;
    for (_, zones) in all_zones.iter_mut().enumerate().filter(|(block, _)| blocks.contains(block)) {
        zones.clear();
    }
    write(segment, env, dir, id, def, (&body.table, &all_zones, &evicted.columns))
}

/// Writes the sidecar of an evicted segment.
fn write(
    segment: &Segment,
    env: &Env,
    dir: &Path,
    id: SegmentId,
    def: &TableDef,
    (table, zones, columns): (&BlockTable, &[zones::BlockZones], &[ColumnId]),
) -> Result<SegmentMeta> {
    let mut meta = SegmentMeta { id, bytes: 0, crc: 0, ..segment.meta.clone() };
    let mut summary = Encoder::new();
    encode_summary(def.id, &meta, &mut summary);
    let runs = segment.body()?.sidecar.section(Tag::LsnRuns)?.to_vec();
    let mut row_ids = Encoder::new();
    super::RowIds::encode(&segment.row_ids()?.to_bitmap(), &mut row_ids);
    let sections = [
        (Tag::Summary, summary.bytes),
        (Tag::Blocks, table.encode()),
        (Tag::LsnRuns, runs),
        (Tag::RowIds, row_ids.bytes),
        (Tag::Zones, zones::encode(zones)),
        (Tag::Evicted, EvictedColumns::encode(columns)),
    ];
    let (bytes, crc) = sidecar::encode(&sections);
    let [_, name] = file_names(id);
    let mut out = Output::create(env, dir.join(format!("{name}.tmp")))?;
    out.write(&bytes)?;
    out.sync()?;
    env.disk.rename(&out.path, &dir.join(&name)).map_err(|e| Error::io(format_args!("naming {name}"), e))?;
    writer::sync_dir(env, dir)?;
    (meta.bytes, meta.crc) = (out.len, crc);
    Ok(meta)
}

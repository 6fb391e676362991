//! A snapshot: a table at one lsn.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, SchemaRef};
use types::{ColumnId, Error, Lsn, Micros, Result, RowId, TableDef, key};

use crate::evicted_rows::LakeRange;
use crate::gather::Gather;
use crate::lsn_runs;
use crate::parts::{Parts, RowInBatch, RowLocation};
use crate::segment::{NeededColumns, Segment};
use crate::{BATCH_ROWS, Projection, RowRef, ScanPiece, Tip};

/// An immutable table value (S1). It is `Send + Sync`, and its readers never wait for a writer.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) parts: Parts,
    pub(crate) lsn: Lsn,
}

impl Snapshot {
    pub fn def(&self) -> &Arc<TableDef> {
        &self.parts.compiled.def
    }

    /// The Arrow schema of all columns: `_row_id`, `_time`, then the table's columns. The same `Arc` until the definition
    /// changes.
    pub fn arrow_schema(&self) -> &SchemaRef {
        self.parts.compiled.all.schema()
    }

    /// Converts a batch that names its columns to this table's columns: see [`conform`](crate::conform()).
    pub fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        crate::conform::with_schema(batch, self.def(), self.parts.compiled.user.schema())
    }

    /// All columns, system columns first; made once per definition.
    pub fn all_columns(&self) -> &Projection {
        &self.parts.compiled.all
    }

    /// The user's columns, in the shape that [`Snapshot::conform`] returns; made once per definition.
    pub fn user_columns(&self) -> &Projection {
        &self.parts.compiled.user
    }

    /// Returns the projection to these columns (system ids included) in this order.
    pub fn projection(&self, columns: &[ColumnId]) -> Result<Projection> {
        Projection::pick(self.def(), self.arrow_schema(), columns)
    }

    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns a snapshot of an empty table with the same definition. A cache of values that depend on the definition alone keeps
    /// this one instead, so that it does not keep rows in memory or files on disk.
    pub fn without_rows(&self) -> Arc<Snapshot> {
        Tip::empty(self.parts.compiled.clone()).snapshot(Lsn(0))
    }

    /// Number of live rows.
    pub fn rows(&self) -> u64 {
        self.parts.live()
    }

    /// Bytes of the head's arrays and of the segments' files.
    pub fn bytes(&self) -> u64 {
        self.parts.head.bytes() + self.parts.segment_bytes
    }

    /// Bytes that all rows would take in memory, about: [`Snapshot::bytes`] if nothing was compressed or evicted.
    pub fn raw_bytes(&self) -> u64 {
        self.parts.head.bytes() + self.parts.segment_raw_bytes
    }

    /// Bytes of the files of compressed segments, and about the bytes that these files would have uncompressed.
    pub fn compressed_bytes(&self) -> (u64, u64) {
        let packed = self.segments().filter(|segment| segment.is_compressed());
        packed.fold((0, 0), |(bytes, raw), s| (bytes + s.meta().bytes, raw + s.raw_bytes()))
    }

    /// Bytes of one of the newest rows, live or not, on average; 0 before there is a row.
    pub fn row_bytes(&self) -> u64 {
        let newest = || self.segments().rev().find(|segment| segment.meta().rows > 0);
        match self.head_rows() {
            0 => newest().map_or(0, |segment| segment.raw_bytes() / segment.meta().rows),
            rows => self.head_bytes() / rows,
        }
    }

    /// Number of rows in the head, deleted ones included.
    pub fn head_rows(&self) -> u64 {
        self.parts.head.rows()
    }

    pub fn head_bytes(&self) -> u64 {
        self.parts.head.bytes()
    }

    /// The lsn of the first row that no segment covers; `None` if the head is empty.
    pub fn head_first_lsn(&self) -> Option<Lsn> {
        self.parts.head.batches().first().map(|batch| Lsn(batch.runs[0].lsn))
    }

    pub fn next_row(&self) -> RowId {
        RowId(self.parts.next_row)
    }

    /// The first row id that no segment covers.
    pub fn sealed_next(&self) -> RowId {
        RowId(self.parts.sealed_next)
    }

    /// The segments, in row-id order.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &Arc<Segment>> + DoubleEndedIterator {
        self.parts.segments.iter().map(|entry| &entry.segment)
    }

    /// Segments with deleted rows that are still in their files, each with the number of these rows.
    pub fn segments_with_deletes(&self) -> impl Iterator<Item = (&Arc<Segment>, u64)> {
        let touched = self.parts.segments.iter().filter(|entry| !entry.deletes.is_empty());
        touched.map(|entry| (&entry.segment, entry.deletes.len()))
    }

    /// Number of deleted rows in the head.
    pub fn head_deleted(&self) -> u64 {
        self.parts.head_deletes.len()
    }

    /// Number of live rows in segments. Costs O(1).
    pub fn sealed_live(&self) -> u64 {
        self.parts.segment_live
    }

    /// Returns the units of a parallel scan in row-id order, without those that have no live row. A segment that cannot be opened
    /// is one piece whose reading fails.
    ///
    /// In a snapshot of the past, the pieces of rows that ended later come last and begin again at smaller row ids.
    pub fn pieces(&self) -> Vec<ScanPiece> {
        self.pieces_from(0).collect()
    }

    /// Returns the pieces of the rows after `row`, without earlier rows. [`ScanPiece::rows`] of the first piece may be too large.
    pub fn pieces_after(&self, row: RowId) -> Vec<ScanPiece> {
        let from = row.next().0;
        self.pieces_from(from).map(|piece| piece.starting_at(from)).filter(|piece| piece.rows() > 0).collect()
    }

    /// Estimates the bytes of file blocks that a fetch of these rows would read for the first time. `rows` must ascend.
    pub fn untouched_bytes(&self, rows: &[RowId]) -> u64 {
        let (mut bytes, mut known) = (0, 0..0);
        let mut seen = HashSet::new();
        for row in rows.iter().map(|row| row.0) {
            if known.contains(&row) || row >= self.parts.sealed_next {
                continue;
            }
            let Some((_, entry)) = self.parts.entry_of(row) else { continue };
            let Ok(Some(block)) = entry.segment.block_of(row) else { continue };
            let Ok(info) = entry.segment.block_info(block) else { continue };
            if entry.segment.is_in_row_order() {
                known = info.first_row..info.last_row + 1;
            } else if !seen.insert((entry.segment.id(), block)) {
                continue;
            }
            if entry.segment.is_evicted() {
                bytes += crate::piece::LAKE_READ_BYTES;
            } else if !entry.segment.is_touched(block) {
                bytes += entry.segment.block_bytes(block).unwrap_or(info.len());
            }
        }
        bytes
    }

    /// Returns the rows of [`Snapshot::pieces`] in the order in which they are stored, which costs least to read. The pieces of a
    /// segment in time order overlap in their row ids, and their [`ScanPiece::rows`] may count deleted rows
    /// ([`ScanPiece::is_counted`]).
    pub fn stored_pieces(&self) -> Vec<ScanPiece> {
        self.stored_from(0).collect()
    }

    pub(crate) fn stored_from(&self, from: u64) -> impl Iterator<Item = ScanPiece> + '_ {
        self.pieces_of(from, true)
    }

    /// Returns the pieces that may hold live rows from `from` on, in row-id order.
    pub(crate) fn pieces_from(&self, from: u64) -> impl Iterator<Item = ScanPiece> + '_ {
        self.pieces_of(from, false)
    }

    fn pieces_of(&self, from: u64, as_stored: bool) -> impl Iterator<Item = ScanPiece> + '_ {
        let parts = &self.parts;
        let def = &parts.compiled.def;
        let at = parts.segments.partition_point(|entry| entry.segment.meta().last_row.0 < from);
        // A segment that cannot be opened may have live rows whatever the counts say: leaving it out would lose them silently. In
        // stored order, evicted rows are read in pieces of the lake's files instead.
        let lake_pieces = if as_stored { self.lake_pieces(from) } else { Vec::new() };
        let in_files = !lake_pieces.is_empty();
        let wanted = move |entry: &&crate::parts::Entry| {
            (entry.live() > 0 || entry.segment.check().is_err()) && !(in_files && entry.segment.is_evicted())
        };
        let sealed = parts.segments[at..].iter().filter(wanted).flat_map(move |entry| {
            let by_rank = !as_stored && !entry.segment.is_in_row_order();
            let damaged = entry.segment.check().is_err() || by_rank && entry.segment.check_order().is_err();
            let count = match (damaged, by_rank) {
                (true, _) => 1,
                (false, true) => (entry.segment.meta().rows as usize).div_ceil(BATCH_ROWS),
                (false, false) => entry.segment.block_count().unwrap_or(0),
            };
            (0..count).filter_map(move |block| {
                if damaged {
                    return Some(ScanPiece::of_damaged(&entry.segment, &entry.deletes, def));
                }
                if by_rank {
                    let piece = ScanPiece::of_ranks(&entry.segment, block, &entry.deletes, def).ok();
                    return piece.filter(|piece| piece.row_range().1.0 >= from);
                }
                let past = entry.segment.block_info(block).is_ok_and(|info| info.last_row < from);
                if past { None } else { ScanPiece::of_block(&entry.segment, block, &entry.deletes, def).ok() }
            })
        });
        let at = parts.head.batches().partition_point(|batch| batch.end() <= from);
        let head = parts.head.batches()[at..].iter().map(|b| ScanPiece::of_head(b, &parts.head_deletes, def));
        let later = parts.past_view.iter().flat_map(|past_view| &past_view.segments).flat_map(move |entry| {
            let blocks = 0..entry.segment.block_count().unwrap_or(0);
            blocks.filter_map(move |block| {
                let piece = ScanPiece::of_block(&entry.segment, block, &entry.deletes, def).ok()?;
                (piece.row_range().1.0 >= from).then_some(piece)
            })
        });
        lake_pieces.into_iter().chain(sealed).chain(head).chain(later).filter(|piece| piece.rows() > 0)
    }

    /// Returns pieces of the lake's files that hold evicted rows from `from` on; empty if there are none, or before the lake is
    /// open.
    fn lake_pieces(&self, from: u64) -> Vec<ScanPiece> {
        let parts = &self.parts;
        let Some(last) = parts.last_evicted().filter(|last| last.0 >= from) else { return Vec::new() };
        // A row that was deleted since may have left the lake's files. Readers of the past fetch each row by id, so that a
        // missing row is an error.
        if parts.past_view.is_some() {
            return Vec::new();
        }
        let evicted = parts.segments.iter().filter(|entry| entry.segment.is_evicted());
        let newest =
            evicted.filter_map(|entry| entry.segment.landed.as_ref()).max_by_key(|landed| landed.row());
        let Some(landed) = newest.filter(|landed| landed.row() >= last) else { return Vec::new() };
        let file_ranges =
            landed.file_ranges(last).into_iter().filter(|file_range| file_range.last_row.0 >= from);
        let range =
            |file_range| LakeRange { landed: landed.clone(), file_range, segments: parts.segments.clone() };
        file_ranges
            .map(|file_range| ScanPiece::of_lake_range(range(file_range), last.0, &parts.compiled.def))
            .collect()
    }

    /// Returns true if any of the table's segments is evicted, so that some rows are in the lake alone.
    pub fn has_evicted(&self) -> bool {
        self.parts.last_evicted().is_some()
    }

    /// The first row id from which on all rows are on this machine; the rows before it are in the lake alone.
    pub fn hot_from(&self) -> RowId {
        self.parts.last_evicted().map_or(RowId(1), RowId::next)
    }

    /// The place of the lake that has the evicted rows; `None` while the lake is not open, or if no row is evicted.
    pub fn lake_place(&self) -> Option<String> {
        let evicted = self.parts.segments.iter().find(|entry| entry.segment.is_evicted())?;
        evicted.segment.landed.as_ref().map(|landed| landed.place())
    }

    /// Number of live rows that are in the lake alone, and about the bytes that they would take in memory.
    pub fn evicted(&self) -> (u64, u64) {
        let evicted = self.parts.segments.iter().filter(|entry| entry.segment.is_evicted());
        evicted.fold((0, 0), |(rows, bytes), entry| {
            let segment = &entry.segment;
            (rows + entry.live(), bytes + segment.raw_bytes() - segment.meta().bytes)
        })
    }

    /// Returns true if reading rows from `from` on may have to read the lake.
    pub fn needs_lake(&self, from: RowId) -> bool {
        self.parts.last_evicted().is_some_and(|last| from <= last)
    }

    /// Returns the live row of a key, given as [`types::key`] bytes.
    pub fn find(&self, key: &[u8]) -> Result<Option<RowId>> {
        Ok(self.parts.find(key, 0)?.map(|(row, _)| RowId(row)))
    }

    /// Returns a reference to the live row of a key, to be read without copying.
    pub fn get_row(&self, key: &[u8]) -> Result<Option<RowRef>> {
        self.parts.find(key, 0)?.map(|(_, place)| self.row_ref(place)).transpose()
    }

    /// Returns columns of the live row of a key, one value each.
    pub fn columns_of(&self, key: &[u8], projection: &Projection) -> Result<Option<Vec<ArrayRef>>> {
        let Some((_, place)) = self.parts.find(key, 0)? else { return Ok(None) };
        let stored = place.stored.with(NeededColumns::Columns(projection))?;
        projection.row(&stored.layout, &stored.batch, place.index).map(Some)
    }

    /// Returns the live row of each key, in the order of `keys`.
    pub fn find_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<RowId>>> {
        /// Number of keys that are prefetched together: what they load stays in the processor's cache until the lookups.
        const AHEAD: usize = 256;
        let mut found = Vec::with_capacity(keys.len());
        // In compressed segments, the lookups share unpacked blocks: one chunk of all keys matters more than the cache.
        let ahead = if self.parts.is_compressed() { keys.len().max(1) } else { AHEAD };
        for keys in keys.chunks(ahead) {
            self.parts.keys.touch(keys.iter().map(|key| key::hash(key)));
            found.extend(self.parts.find_many(keys)?.into_iter().map(|row| row.map(RowId)));
        }
        Ok(found)
    }

    /// Returns a row version by its id, if it is live.
    pub fn row(&self, row: RowId) -> Result<Option<RowRef>> {
        self.parts.row(row.0, NeededColumns::All)?.map(|place| self.row_ref(place)).transpose()
    }

    fn row_ref(&self, place: RowInBatch<'_>) -> Result<RowRef> {
        let stored = place.stored.with(NeededColumns::All)?;
        Ok(RowRef { stored: Arc::clone(&stored), index: place.index, def: self.def().clone() })
    }

    pub fn is_live(&self, row: RowId) -> Result<bool> {
        self.parts.is_live(row.0)
    }

    /// Reads the live ones of `rows`, in the given order; the others are left out (project `_row_id` to see which).
    pub fn fetch(&self, rows: &[RowId], projection: &Projection) -> Result<RecordBatch> {
        let mut gather = Gather::default();
        for row in rows {
            match self.parts.locate_row(row.0)? {
                None => {}
                Some(RowLocation::Head(place)) => gather.add(&place.stored, place.index),
                Some(RowLocation::Block(segment, block, index)) => gather.add_in(segment, block, index)?,
                Some(RowLocation::Evicted(segment)) => gather.add_evicted(segment, *row),
            }
        }
        gather.finish(projection)
    }

    /// Reads up to `limit` live rows from `from` on, in row-id order.
    pub fn scan_from(&self, from: RowId, limit: usize, projection: &Projection) -> Result<RecordBatch> {
        if self.parts.past_view.as_ref().is_some_and(|past_view| past_view.live > 0) {
            return self.fetch(&self.rows_from(from, limit)?, projection);
        }
        let mut parts = Vec::new();
        let mut rows = 0;
        for piece in self.pieces_from(from.0) {
            let batch = piece.read_rows(from.0, u64::MAX, limit - rows, projection)?;
            rows += batch.num_rows();
            parts.push(batch);
            if rows >= limit {
                break;
            }
        }
        match parts.len() {
            0 => Ok(projection.empty()),
            1 => Ok(parts.remove(0)),
            _ => concat_batches(projection.schema(), &parts).map_err(|e| {
                Error::internal(format!("joining rows failed: {e}")).hint("ask for fewer rows at once")
            }),
        }
    }

    /// Returns the ids of up to `limit` live rows from `from` on, ascending. For snapshots of the past, whose pieces are in no
    /// order.
    fn rows_from(&self, from: RowId, limit: usize) -> Result<Vec<RowId>> {
        let projection = self.projection(&[types::ROW_ID])?;
        let mut rows: Vec<RowId> = Vec::new();
        let mut end = u64::MAX;
        for piece in self.pieces_from(from.0) {
            if piece.row_range().0.0 >= end {
                continue;
            }
            let batch = piece.read_rows(from.0, end, limit, &projection)?;
            let ids = batch.column(0).as_primitive::<Int64Type>().values();
            rows.extend(ids.iter().map(|row| RowId(*row as u64)));
            if rows.len() >= limit.saturating_mul(2) || rows.len() >= limit && end == u64::MAX {
                rows.sort_unstable();
                rows.truncate(limit);
                end = rows.last().map_or(end, |last| last.0);
            }
        }
        rows.sort_unstable();
        rows.truncate(limit);
        Ok(rows)
    }

    /// Counts the live rows with ids from `first` to `last`.
    pub fn rows_between(&self, first: RowId, last: RowId) -> Result<u64> {
        let projection = self.projection(&[types::ROW_ID])?;
        let mut rows = 0;
        for piece in self.pieces_from(first.0) {
            let (low, high) = piece.row_range();
            if low > last {
                // The pieces of ended rows are in no order.
                if self.parts.past_view.is_some() {
                    continue;
                }
                break;
            }
            let within = if low >= first && high <= last {
                piece.rows()
            } else {
                piece.read_rows(first.0, last.next().0, usize::MAX, &projection)?.num_rows()
            };
            rows += within as u64;
        }
        Ok(rows)
    }

    /// Returns the first row id whose `_time` is `time` or later; [`Snapshot::next_row`] if there is none.
    pub fn row_at_time(&self, time: Micros) -> Result<RowId> {
        let mut first = self.row_of_present_at_time(time)?;
        for entry in self.parts.past_view.iter().flat_map(|past_view| &past_view.segments) {
            if let Some(row) = entry.segment.row_at_time(time)? {
                first = first.min(RowId(row));
            }
        }
        Ok(first.min(self.next_row()))
    }

    fn row_of_present_at_time(&self, time: Micros) -> Result<RowId> {
        let stored = |entry: &&crate::parts::Entry| entry.segment.meta().rows > 0;
        for entry in self.parts.segments.iter().filter(stored) {
            if entry.segment.meta().last_time >= time
                && let Some(row) = entry.segment.row_at_time(time)?
            {
                return Ok(RowId(row));
            }
        }
        let batches = self.parts.head.batches();
        let at =
            batches.partition_point(|batch| batch.stored.times().last().is_some_and(|last| *last < time));
        Ok(RowId(batches.get(at).map_or(self.parts.next_row, |batch| {
            batch.first + batch.stored.times().partition_point(|t| *t < time) as u64
        })))
    }

    /// Returns the lsn of the commit that wrote a live row; `None` if the row is not live.
    pub fn lsn_of(&self, row: RowId) -> Result<Option<Lsn>> {
        if !self.parts.is_live(row.0)? {
            return Ok(None);
        }
        let runs = match self.parts.head.locate(row.0) {
            Some((batch, _)) => &batch.runs,
            None => match (self.parts.past_entry_of(row.0)?, self.parts.entry_of(row.0)) {
                (Some(entry), _) | (None, Some((_, entry))) => entry.segment.runs()?,
                (None, None) => return Ok(None),
            },
        };
        Ok(Some(Lsn(lsn_runs::lsn_at(runs, row.0))))
    }

    /// The smallest `after` that [`Snapshot::changes`] accepts.
    pub fn history_floor(&self) -> Lsn {
        self.parts.history.feed_floor()
    }
}

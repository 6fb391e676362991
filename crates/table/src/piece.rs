//! The unit of a parallel scan.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, TimestampMicrosecondArray,
};
use arrow::compute::filter_record_batch;
use types::{ColumnId, DataType, Error, ROW_ID, Result, RowId, TIME, TableDef, Value};

use crate::deletes::DeleteVector;
use crate::evicted_rows::LakeRange;
use crate::gather::Gather;
use crate::head::HeadBatch;
use crate::lsn_runs::LsnRun;
use crate::segment::{BlockRows, NeededColumns, Segment};
use crate::{BATCH_ROWS, Projection, evicted_rows, memory};

/// Bytes that any read from the lake counts for, at least, as bytes that are read for the first time. Such a read may take a
/// while, so a caller that must not wait leaves it to other threads.
pub(crate) const LAKE_READ_BYTES: u64 = 32 << 20;

/// Up to [`BATCH_ROWS`](crate::BATCH_ROWS) rows of a snapshot: a head batch, a block of a segment, or a range of a lake file.
/// Holds the data that it needs, so it may outlive the snapshot.
#[derive(Clone, Debug)]
pub struct ScanPiece {
    source: PieceSource,
    deletes: DeleteVector,
    def: Arc<TableDef>,
    first: u64,
    last: u64,
    live: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum PieceSource {
    Head(Arc<HeadBatch>),
    Block(Arc<Segment>, usize),
    /// A block of an evicted segment: its rows are fetched from the lake by id.
    Evicted(Arc<Segment>, usize),
    /// A range of a file of the lake.
    Lake(Box<LakeRange>),
    /// Rows of a segment in time order, by their ranks in row-id order: they are gathered from several blocks.
    Ranks(Arc<Segment>, Range<u64>),
    /// A segment that cannot be opened: reading the piece returns the error.
    Damaged(Arc<Segment>),
}

/// The result of [`ScanPiece::read_within`].
#[derive(Debug)]
pub struct ReadBatch {
    pub batch: RecordBatch,
    /// Bytes of the values that were read.
    pub decoded: u64,
}

/// Bounds of a column's values within a piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// A lower bound of the values. `None` if all values are null.
    pub min: Option<Value>,
    /// An upper bound of the values. Unknown if `None` although [`Zone::min`] is known.
    pub max: Option<Value>,
    pub nulls: u64,
}

impl ScanPiece {
    pub(crate) fn of_head(batch: &Arc<HeadBatch>, deletes: &DeleteVector, def: &Arc<TableDef>) -> ScanPiece {
        let (first, last) = (batch.first, batch.end() - 1);
        let live = batch.rows() as u64 - deletes.count(first..=last);
        let source = PieceSource::Head(batch.clone());
        ScanPiece {
            source,
            deletes: deletes.clone(),
            def: def.clone(),
            first,
            last,
            live,
            bytes: batch.bytes,
        }
    }

    pub(crate) fn of_block(
        segment: &Arc<Segment>,
        block: usize,
        deletes: &DeleteVector,
        def: &Arc<TableDef>,
    ) -> Result<ScanPiece> {
        let info = segment.block_info(block)?;
        let (first, last) = (info.first_row, info.last_row);
        // Saturating: deletes that came while the segment could not be read may name rows that it does not store.
        let live = if segment.is_in_row_order() {
            u64::from(info.rows).saturating_sub(deletes.count(first..=last))
        } else {
            // Which ids between the bounds the block stores is unknown without reading it, so deletes cannot be counted.
            u64::from(info.rows)
        };
        let source = if segment.is_evicted() {
            PieceSource::Evicted(segment.clone(), block)
        } else {
            PieceSource::Block(segment.clone(), block)
        };
        let bytes = segment.block_bytes(block)?;
        Ok(ScanPiece { source, deletes: deletes.clone(), def: def.clone(), first, last, live, bytes })
    }

    /// The `at`-th piece in row-id order of a segment that is stored in time order.
    pub(crate) fn of_ranks(
        segment: &Arc<Segment>,
        at: usize,
        deletes: &DeleteVector,
        def: &Arc<TableDef>,
    ) -> Result<ScanPiece> {
        let ids = segment.row_ids()?;
        let start = (at * BATCH_ROWS) as u64;
        let end = ids.len().min(start + BATCH_ROWS as u64);
        let (Some(first), Some(last)) = (ids.select(start), ids.select(end.saturating_sub(1))) else {
            return Err(Error::internal("a segment was asked for more rows than it has"));
        };
        let live = (end - start).saturating_sub(deletes.count(first..=last));
        let bytes = segment.raw_bytes() * (end - start) / ids.len();
        let source = PieceSource::Ranks(segment.clone(), start..end);
        Ok(ScanPiece { source, deletes: deletes.clone(), def: def.clone(), first, last, live, bytes })
    }

    /// A piece for a whole segment that cannot be opened.
    pub(crate) fn of_damaged(
        segment: &Arc<Segment>,
        deletes: &DeleteVector,
        def: &Arc<TableDef>,
    ) -> ScanPiece {
        let meta = segment.meta();
        ScanPiece {
            source: PieceSource::Damaged(segment.clone()),
            deletes: deletes.clone(),
            def: def.clone(),
            first: meta.first_row.0,
            last: meta.last_row.0,
            // It is unknown which stored rows the deletes hit. At least 1, so that no scan leaves the piece out.
            live: meta.rows.saturating_sub(deletes.len()).max(1),
            bytes: meta.bytes,
        }
    }

    /// A piece of a lake file, some of whose rows may belong to the table. No row id of the piece is above `last`.
    pub(crate) fn of_lake_range(range: LakeRange, last: u64, def: &Arc<TableDef>) -> ScanPiece {
        let (first, file_range) = (range.file_range.first_row.0, &range.file_range);
        ScanPiece {
            deletes: DeleteVector::default(),
            def: def.clone(),
            first,
            last: file_range.last_row.0.min(last),
            live: u64::from(file_range.rows).min((file_range.last_row.0.min(last) + 1).saturating_sub(first)),
            bytes: file_range.bytes,
            source: PieceSource::Lake(Box::new(range)),
        }
    }

    /// Returns true if the piece's rows are in the lake alone: reading them may take a while.
    pub fn is_evicted(&self) -> bool {
        matches!(self.source, PieceSource::Evicted(..) | PieceSource::Lake(_))
    }

    /// Returns true if the piece has no row with this value, where that follows from the lake's partition. Bounds are not
    /// considered.
    pub fn lacks(&self, column: ColumnId, value: &Value) -> bool {
        matches!(&self.source, PieceSource::Lake(range) if range.landed.lacks(&range.file_range, column, value))
    }

    /// Reads tighter bounds for [`ScanPiece::zone`] if they are stored apart from the rows. Returns false if there are none.
    pub fn read_bounds(&self) -> Result<bool> {
        match &self.source {
            PieceSource::Lake(range) => range.landed.read_bounds(&range.file_range).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Leaves out the rows before `from`. [`ScanPiece::rows`] may then be larger than the number of rows left.
    pub(crate) fn starting_at(mut self, from: u64) -> ScanPiece {
        self.first = self.first.max(from);
        self.live = self.live.min((self.last + 1).saturating_sub(self.first));
        self
    }

    /// Returns true if [`ScanPiece::rows`] is exact. It may be too large for a piece of
    /// [`Snapshot::stored_pieces`](crate::Snapshot::stored_pieces).
    pub fn is_counted(&self) -> bool {
        match &self.source {
            PieceSource::Lake(_) => false,
            _ => self.is_in_row_order() || self.deletes.count(self.first..=self.last) == 0,
        }
    }

    /// Returns true if the piece's rows are in row-id order.
    pub fn is_in_row_order(&self) -> bool {
        match &self.source {
            PieceSource::Block(segment, _) => segment.is_in_row_order(),
            PieceSource::Lake(_) => false,
            PieceSource::Head(_)
            | PieceSource::Ranks(..)
            | PieceSource::Evicted(..)
            | PieceSource::Damaged(_) => true,
        }
    }

    /// Returns true if rows of the piece may have been deleted.
    pub fn has_deleted(&self) -> bool {
        self.deletes.count(self.first..=self.last) > 0
            || matches!(self.source, PieceSource::Damaged(_) | PieceSource::Lake(_))
    }

    pub(crate) fn is_deleted(&self, row: u64) -> bool {
        self.deletes.contains(row)
    }

    /// Number of live rows; see [`ScanPiece::is_counted`].
    pub fn rows(&self) -> usize {
        self.live as usize
    }

    /// The first and the last row id, deleted rows included.
    pub fn row_range(&self) -> (RowId, RowId) {
        (RowId(self.first), RowId(self.last))
    }

    /// Bytes that all columns of the piece take, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the piece that have not been read and checked yet; 0 for the head.
    pub fn untouched_bytes(&self) -> u64 {
        match &self.source {
            PieceSource::Block(segment, block) if !segment.is_touched(*block) => self.bytes,
            PieceSource::Evicted(..) | PieceSource::Lake(_) => self.bytes.max(LAKE_READ_BYTES),
            // The rows may be in any block of the segment.
            PieceSource::Ranks(segment, _)
                if (0..segment.block_count().unwrap_or(0)).any(|block| !segment.is_touched(block)) =>
            {
                self.bytes
            }
            _ => 0,
        }
    }

    /// Bounds of a column of numbers, text or times. Deleted rows count. `None` if unknown, as with a damaged sidecar.
    pub fn zone(&self, column: ColumnId) -> Option<Zone> {
        let data_type = match column {
            ROW_ID => &DataType::Int64,
            TIME => &DataType::Timestamp,
            column => &self.def.schema.column(column)?.data_type,
        };
        let stored = match &self.source {
            // The head's row ids and times ascend, so the first and the last are the bounds.
            PieceSource::Head(_) if column == ROW_ID => {
                let bound = |row: u64| Some(Value::Int64(row as i64));
                return Some(Zone { min: bound(self.first), max: bound(self.last), nulls: 0 });
            }
            PieceSource::Head(batch) if column == TIME => {
                let times = batch.stored.times();
                let bound = |time: Option<&i64>| time.map(|time| Value::Timestamp(*time));
                return Some(Zone { min: bound(times.first()), max: bound(times.last()), nulls: 0 });
            }
            PieceSource::Head(batch) => match batch.stored.layout.position(column) {
                Some(position) => batch.zone(position)?.clone(),
                None => return self.zone_of_absent(column, batch.rows() as u64),
            },
            PieceSource::Lake(_) if column == ROW_ID => {
                let bound = |row: u64| Some(Value::Int64(row as i64));
                return Some(Zone { min: bound(self.first), max: bound(self.last), nulls: 0 });
            }
            PieceSource::Lake(range) => {
                let zone = range.landed.zone(&range.file_range, column, data_type)?;
                // Rows that were written before the column was added show its initial value, which their file does not have.
                let shows = self.def.schema.column(column).is_some_and(|column| column.initial.is_some());
                if zone.min.is_none() && shows {
                    return None;
                }
                zone
            }
            PieceSource::Block(segment, block) | PieceSource::Evicted(segment, block)
                if segment.has_column(column) =>
            {
                segment.zone(*block, column)?
            }
            PieceSource::Block(segment, block) | PieceSource::Evicted(segment, block) => {
                return self.zone_of_absent(column, u64::from(segment.block_info(*block).ok()?.rows));
            }
            PieceSource::Ranks(segment, ranks) if !segment.has_column(column) => {
                return self.zone_of_absent(column, ranks.end - ranks.start);
            }
            PieceSource::Ranks(..) | PieceSource::Damaged(_) => return None,
        };
        let Zone { min, max, nulls } = stored;
        // The values may be stored in a narrower type.
        let widen = |v: Option<Value>| v.map(|v| v.cast(data_type)).transpose();
        Some(Zone { min: widen(min).ok()?, max: widen(max).ok()?, nulls })
    }

    /// The zone of a column that was added after these rows were written.
    fn zone_of_absent(&self, column: ColumnId, rows: u64) -> Option<Zone> {
        let initial = self.def.schema.column(column)?.initial.clone();
        match initial.filter(|value| *value != Value::Null) {
            Some(Value::Json(_) | Value::List(_) | Value::Struct(_) | Value::Vector(_)) => None,
            Some(value) => Some(Zone { min: Some(value.clone()), max: Some(value), nulls: 0 }),
            None => Some(Zone { min: None, max: None, nulls: rows }),
        }
    }

    /// Reads the live rows, projected. The block is checked against its checksum at first touch. Copies nothing unless rows are
    /// deleted.
    pub fn read(&self, projection: &Projection) -> Result<RecordBatch> {
        self.read_rows(self.first, u64::MAX, usize::MAX, projection)
    }

    /// Reads the live rows whose time in the given column is within bounds, as far as that is cheaper than reading all. The time
    /// column is read first, the other columns only for the rows that match.
    pub fn read_within(
        &self,
        projection: &Projection,
        window: Option<(ColumnId, RangeInclusive<i64>)>,
    ) -> Result<ReadBatch> {
        if let (PieceSource::Lake(range), Some((column, window))) = (&self.source, &window) {
            return self.read_range(range, projection, *column, window);
        }
        let stored = match &window {
            Some((column, _)) => self.times(*column)?,
            None => None,
        };
        let (Some((_, window)), Some((stored, times))) = (window, stored) else {
            let batch = self.read(projection)?;
            return Ok(ReadBatch { decoded: memory::used(&batch), batch });
        };
        let has_deleted = self.has_deleted();
        let live = |at: usize| !has_deleted || !self.deletes.contains(stored.row_ids()[at] as u64);
        let from = |row: i64| row as u64 >= self.first;
        let wanted: BooleanArray = (times.iter().enumerate())
            .map(|(at, time)| {
                let is_within = time.is_some_and(|time| window.contains(&time));
                Some(is_within && from(stored.row_ids()[at]) && live(at))
            })
            .collect();
        let read_first = memory::used_by(&(Arc::new(times) as ArrayRef));
        let (count, first) = (wanted.true_count(), wanted.values().set_indices().next());
        let Some(first) = first else {
            return Ok(ReadBatch { batch: projection.empty(), decoded: read_first });
        };
        let last = wanted.values().set_indices().last().unwrap_or(first);
        let stored = stored.with(NeededColumns::Columns(projection))?;
        let part = projection.apply(&stored.layout, &slice(&stored.batch, first, last + 1 - first))?;
        let batch = if count == part.num_rows() {
            part
        } else {
            filter_record_batch(&part, &wanted.slice(first, part.num_rows()))
                .map_err(|e| Error::internal(format!("leaving out rows of other times failed: {e}")))?
        };
        Ok(ReadBatch { decoded: read_first + memory::used(&batch), batch })
    }

    /// Reads a range of a lake file as [`ScanPiece::read_within`] does. Reads the other columns only if a row is within bounds.
    fn read_range(
        &self,
        range: &LakeRange,
        projection: &Projection,
        column: ColumnId,
        window: &RangeInclusive<i64>,
    ) -> Result<ReadBatch> {
        let rows = self.first..self.last + 1;
        let time = Projection::new(&self.def, &[column])?;
        let found = range.landed.read(&range.file_range, &evicted_rows::wanted_columns(&time))?;
        let times = time.of_lake_rows(&found)?;
        let read_first = memory::used(&times);
        let times: Option<&TimestampMicrosecondArray> = times.column(0).as_primitive_opt();
        let is_within =
            |at: usize| times.is_none_or(|times| times.is_valid(at) && window.contains(&times.value(at)));
        let mask = range.mask(&found.row_ids, &rows)?;
        if !mask.iter().enumerate().any(|(at, live)| *live && is_within(at)) {
            return Ok(ReadBatch { batch: projection.empty(), decoded: read_first });
        }
        let batch = range.read(&rows, usize::MAX, projection)?;
        Ok(ReadBatch { decoded: read_first + memory::used(&batch), batch })
    }

    /// Returns a column of timestamps as it is stored, with its rows. `None` if the rows are not in one batch, or do not have
    /// such a column.
    fn times(&self, column: ColumnId) -> Result<Option<(BlockRows<'_>, TimestampMicrosecondArray)>> {
        if matches!(self.source, PieceSource::Ranks(..) | PieceSource::Evicted(..) | PieceSource::Lake(_)) {
            return Ok(None);
        }
        let stored = self.stored(NeededColumns::Column(column))?;
        let array = stored.layout.position(column).map(|at| stored.batch.column(at));
        let times = array.and_then(|array| array.as_primitive_opt().cloned());
        Ok(times.map(|times| (stored, times)))
    }

    /// Reads the live rows with `from ≤ row id < end`, at most `limit`.
    pub(crate) fn read_rows(
        &self,
        from: u64,
        end: u64,
        limit: usize,
        projection: &Projection,
    ) -> Result<RecordBatch> {
        match &self.source {
            PieceSource::Ranks(segment, _) => return self.gathered(segment, from..end, limit, projection),
            PieceSource::Evicted(segment, block) => {
                return self.fetched(segment, *block, from..end, limit, projection);
            }
            PieceSource::Lake(range) => {
                let rows = from.max(self.first)..end.min(self.last + 1);
                return range.read(&rows, limit, projection);
            }
            PieceSource::Block(segment, _) if !segment.is_in_row_order() => {
                return self.filtered(from..end, limit, projection);
            }
            _ => {}
        }
        let stored = self.stored(NeededColumns::Columns(projection))?;
        let rows = stored.row_ids();
        let start = rows.partition_point(|row| (*row as u64) < from);
        let stop = start + rows[start..].partition_point(|row| (*row as u64) < end);
        if start == stop || limit == 0 {
            return Ok(projection.empty());
        }
        let (first, last) = (rows[start] as u64, rows[stop - 1] as u64);
        let deleted = self.deletes.count(first..=last);
        if deleted == 0 {
            let part = slice(&stored.batch, start, (stop - start).min(limit));
            return projection.apply(&stored.layout, &part);
        }
        let mut mask = BooleanBufferBuilder::new(stop - start);
        mask.append_n(stop - start, true);
        for row in self.deletes.iter(first..=last) {
            if let Ok(at) = rows[start..stop].binary_search(&(row as i64)) {
                mask.set_bit(at, false);
            }
        }
        let mask = BooleanArray::new(mask.finish(), None);
        // Rows past the limit need not be copied.
        let kept = match mask.values().set_indices().nth(limit.saturating_sub(1)) {
            Some(at) if limit < stop - start => at + 1,
            _ => stop - start,
        };
        let part = projection.apply(&stored.layout, &slice(&stored.batch, start, kept))?;
        let live = filter_record_batch(&part, &mask.slice(0, kept));
        live.map_err(|e| Error::internal(format!("leaving out deleted rows failed: {e}")))
    }

    /// Reads the live rows with ids in `rows`, at most `limit`, in row-id order, out of a segment in time order.
    fn gathered(
        &self,
        segment: &Segment,
        rows: Range<u64>,
        limit: usize,
        projection: &Projection,
    ) -> Result<RecordBatch> {
        let ids = segment.row_ids()?;
        let mut wanted = ids.starting_at(self.first.max(rows.start)).peekable();
        let start = wanted.peek().and_then(|row| ids.rank(*row)).unwrap_or(0);
        let live = wanted
            .zip(start..)
            .take_while(|(row, _)| *row <= self.last && *row < rows.end)
            .filter(|(row, _)| !self.deletes.contains(*row))
            .take(limit);
        if projection.columns().len() == 0 {
            return projection.batch(Vec::new(), live.count());
        }
        let mut gather = Gather::default();
        for (_, rank) in live {
            let (block, index) = segment.place_of_rank(rank)?;
            gather.add_in(segment, block, index)?;
        }
        gather.finish(projection)
    }

    /// Reads the live rows with ids in `rows`, at most `limit`, of an evicted segment out of the lake.
    fn fetched(
        &self,
        segment: &Segment,
        block: usize,
        rows: Range<u64>,
        limit: usize,
        projection: &Projection,
    ) -> Result<RecordBatch> {
        let from = self.first.max(rows.start);
        let live: Vec<RowId> = segment
            .ids_of_block(block)?
            .skip_while(|row| *row < from)
            .take_while(|row| *row < rows.end && *row <= self.last)
            .filter(|row| !self.deletes.contains(*row))
            .take(limit)
            .map(RowId)
            .collect();
        if projection.columns().len() == 0 {
            return projection.batch(Vec::new(), live.len());
        }
        segment.fetch(&live, projection)
    }

    /// Reads the live rows with ids in `rows`, at most `limit`, in stored order, of a block in time order.
    fn filtered(&self, rows: Range<u64>, limit: usize, projection: &Projection) -> Result<RecordBatch> {
        let stored = self.stored(NeededColumns::Columns(projection))?;
        let all = rows.start <= self.first && self.last < rows.end;
        if all && self.deletes.count(self.first..=self.last) == 0 {
            let part = slice(&stored.batch, 0, stored.batch.num_rows().min(limit));
            return projection.apply(&stored.layout, &part);
        }
        let mut left = limit;
        let mask: BooleanArray = (stored.row_ids().iter())
            .map(|row| {
                let row = *row as u64;
                let wanted = left > 0 && rows.contains(&row) && !self.deletes.contains(row);
                left -= usize::from(wanted);
                Some(wanted)
            })
            .collect();
        let live = filter_record_batch(&projection.apply(&stored.layout, &stored.batch)?, &mask);
        live.map_err(|e| Error::internal(format!("leaving out deleted rows failed: {e}")))
    }

    pub(crate) fn stored(&self, need: NeededColumns<'_>) -> Result<BlockRows<'_>> {
        match &self.source {
            PieceSource::Head(batch) => Ok(BlockRows::Stored(&batch.stored)),
            PieceSource::Block(segment, block) => segment.block(*block, need),
            PieceSource::Ranks(..) | PieceSource::Evicted(..) | PieceSource::Lake(_) => {
                Err(Error::internal("rows that are gathered lie in no one batch"))
            }
            PieceSource::Damaged(segment) => {
                segment.check()?;
                segment.check_order()?;
                Err(Error::internal("a segment that can be read was taken for a damaged one"))
            }
        }
    }

    /// Picks one row of the piece, by its index in [`ScanPiece::stored`].
    pub(crate) fn pick<'a>(&'a self, gather: &mut Gather<'a>, index: usize) -> Result<()> {
        match &self.source {
            PieceSource::Block(segment, block) => gather.add_in(segment, *block, index),
            _ => {
                let stored = self.stored(NeededColumns::All)?;
                gather.add(&stored, index);
                Ok(())
            }
        }
    }

    /// The commits that wrote the rows of this piece.
    pub(crate) fn runs(&self) -> Result<&[LsnRun]> {
        match &self.source {
            PieceSource::Head(batch) => Ok(&batch.runs),
            PieceSource::Block(segment, _)
            | PieceSource::Evicted(segment, _)
            | PieceSource::Ranks(segment, _)
            | PieceSource::Damaged(segment) => segment.runs(),
            PieceSource::Lake(_) => Err(Error::internal("lsns of rows are not read from the lake's files")),
        }
    }
}

fn slice(batch: &RecordBatch, offset: usize, len: usize) -> RecordBatch {
    if offset == 0 && len == batch.num_rows() { batch.clone() } else { batch.slice(offset, len) }
}

//! The unit of a parallel scan.

use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::filter_record_batch;
use types::{ColumnId, DataType, Error, ROW_ID, Result, RowId, TIME, TableDef, Value};

use crate::Projection;
use crate::deletes::DeleteVector;
use crate::head::{HeadBatch, Stored};
use crate::lsn_runs::Run;
use crate::segment::Segment;

/// At most [`BATCH_ROWS`](crate::BATCH_ROWS) neighbouring rows of a snapshot: a head batch or a block of a segment.
/// Holds what it needs; it may outlive the snapshot.
#[derive(Clone, Debug)]
pub struct Piece {
    source: Source,
    deletes: DeleteVector,
    def: Arc<TableDef>,
    first: u64,
    last: u64,
    live: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Head(Arc<HeadBatch>),
    Block(Arc<Segment>, usize),
    /// A segment whose blocks are not known: reading it says why.
    Damaged(Arc<Segment>),
}

/// Bounds of a column's values within a piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// No value is below. `None`: all values are null.
    pub min: Option<Value>,
    /// No value is above; unknown if `None` although [`Zone::min`] is known.
    pub max: Option<Value>,
    pub nulls: u64,
}

impl Piece {
    pub(crate) fn of_head(batch: &Arc<HeadBatch>, deletes: &DeleteVector, def: &Arc<TableDef>) -> Piece {
        let (first, last) = (batch.first, batch.end() - 1);
        let live = batch.rows() as u64 - deletes.count(first..=last);
        let source = Source::Head(batch.clone());
        Piece { source, deletes: deletes.clone(), def: def.clone(), first, last, live, bytes: batch.bytes }
    }

    pub(crate) fn of_block(
        segment: &Arc<Segment>,
        block: usize,
        deletes: &DeleteVector,
        def: &Arc<TableDef>,
    ) -> Result<Piece> {
        let info = segment.block_info(block)?;
        let (first, last) = (info.first_row, info.last_row);
        // Saturating: deletes that came while the segment could not be read may name rows that it does not store.
        let live = u64::from(info.rows).saturating_sub(deletes.count(first..=last));
        let source = Source::Block(segment.clone(), block);
        Ok(Piece { source, deletes: deletes.clone(), def: def.clone(), first, last, live, bytes: info.len() })
    }

    /// Stands for a whole segment that cannot be opened.
    pub(crate) fn of_damaged(segment: &Arc<Segment>, deletes: &DeleteVector, def: &Arc<TableDef>) -> Piece {
        let meta = segment.meta();
        Piece {
            source: Source::Damaged(segment.clone()),
            deletes: deletes.clone(),
            def: def.clone(),
            first: meta.first_row.0,
            last: meta.last_row.0,
            // Which of its rows the deletes hit is not known. At least one, so that nobody leaves the piece out.
            live: meta.rows.saturating_sub(deletes.len()).max(1),
            bytes: meta.bytes,
        }
    }

    /// Without the rows before `from`. [`Piece::rows`] may be more than are left.
    pub(crate) fn starting_at(mut self, from: u64) -> Piece {
        self.first = self.first.max(from);
        self.live = self.live.min((self.last + 1).saturating_sub(self.first));
        self
    }

    /// Live rows.
    pub fn rows(&self) -> usize {
        self.live as usize
    }

    /// The first and last row id stored, deleted rows included.
    pub fn row_range(&self) -> (RowId, RowId) {
        (RowId(self.first), RowId(self.last))
    }

    /// About how many bytes all columns of it take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What of it nobody has read yet, so that it is checked first: nothing of the head.
    pub fn untouched_bytes(&self) -> u64 {
        match &self.source {
            Source::Block(segment, block) if !segment.is_touched(*block) => self.bytes,
            _ => 0,
        }
    }

    /// Bounds of a column of numbers, text or times. Deleted rows count. A damaged sidecar knows nothing.
    pub fn zone(&self, column: ColumnId) -> Option<Zone> {
        let data_type = match column {
            ROW_ID => &DataType::Int64,
            TIME => &DataType::Timestamp,
            column => &self.def.schema.column(column)?.data_type,
        };
        let stored = match &self.source {
            // In the order of their rows.
            Source::Head(_) if column == ROW_ID => {
                let bound = |row: u64| Some(Value::Int64(row as i64));
                return Some(Zone { min: bound(self.first), max: bound(self.last), nulls: 0 });
            }
            Source::Head(batch) if column == TIME => {
                let times = batch.stored.times();
                let bound = |time: Option<&i64>| time.map(|time| Value::Timestamp(*time));
                return Some(Zone { min: bound(times.first()), max: bound(times.last()), nulls: 0 });
            }
            Source::Head(batch) => match batch.stored.layout.position(column) {
                Some(position) => batch.zone(position)?.clone(),
                None => return self.zone_of_absent(column, batch.rows() as u64),
            },
            Source::Block(segment, block) if segment.has_column(column) => segment.zone(*block, column)?,
            Source::Block(segment, block) => {
                return self.zone_of_absent(column, u64::from(segment.block_info(*block).ok()?.rows));
            }
            Source::Damaged(_) => return None,
        };
        let Zone { min, max, nulls } = stored;
        // Stored under a narrower type, perhaps.
        let widen = |v: Option<Value>| v.map(|v| v.cast(data_type)).transpose();
        Some(Zone { min: widen(min).ok()?, max: widen(max).ok()?, nulls })
    }

    /// Of a column that was added after these rows were written.
    fn zone_of_absent(&self, column: ColumnId, rows: u64) -> Option<Zone> {
        let initial = self.def.schema.column(column)?.initial.clone();
        match initial.filter(|value| *value != Value::Null) {
            Some(Value::Json(_) | Value::List(_) | Value::Struct(_) | Value::Vector(_)) => None,
            Some(value) => Some(Zone { min: Some(value.clone()), max: Some(value), nulls: 0 }),
            None => Some(Zone { min: None, max: None, nulls: rows }),
        }
    }

    /// The live rows, projected; checked against its checksum when it is touched first. No copy unless rows are deleted.
    pub fn read(&self, projection: &Projection) -> Result<RecordBatch> {
        self.read_rows(self.first, u64::MAX, usize::MAX, projection)
    }

    /// The live rows with `from ≤ row id < end`, at most `limit`.
    pub(crate) fn read_rows(
        &self,
        from: u64,
        end: u64,
        limit: usize,
        projection: &Projection,
    ) -> Result<RecordBatch> {
        let stored = self.stored()?;
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
        // Past the limit nothing needs to be copied.
        let kept = match mask.values().set_indices().nth(limit.saturating_sub(1)) {
            Some(at) if limit < stop - start => at + 1,
            _ => stop - start,
        };
        let part = projection.apply(&stored.layout, &slice(&stored.batch, start, kept))?;
        let live = filter_record_batch(&part, &mask.slice(0, kept));
        live.map_err(|e| Error::internal(format!("leaving out deleted rows failed: {e}")))
    }

    fn stored(&self) -> Result<&Arc<Stored>> {
        match &self.source {
            Source::Head(batch) => Ok(&batch.stored),
            Source::Block(segment, block) => segment.block(*block),
            Source::Damaged(segment) => {
                segment.check()?;
                Err(Error::internal("a segment that can be read was taken for a damaged one"))
            }
        }
    }

    /// Which commits wrote the rows of this piece.
    pub(crate) fn runs(&self) -> Result<&[Run]> {
        match &self.source {
            Source::Head(batch) => Ok(&batch.runs),
            Source::Block(segment, _) | Source::Damaged(segment) => segment.runs(),
        }
    }
}

fn slice(batch: &RecordBatch, offset: usize, len: usize) -> RecordBatch {
    if offset == 0 && len == batch.num_rows() { batch.clone() } else { batch.slice(offset, len) }
}

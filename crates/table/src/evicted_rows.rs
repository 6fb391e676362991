//! Reads evicted rows, which only the table's lake has.
//!
//! An evicted segment keeps its sidecar: its row ids, the commits that wrote them, and the bounds of its blocks. So deletes,
//! counts and the change feed work as before. The values are read from the lake by row id, at the position that the snapshot
//! pins. Whole scans read the lake's files in their own order instead, because partitions and column bounds belong to these
//! files.
//!
//! [`LakeSnapshot`] is that position. The crate `lake` implements it. The engine attaches it to the evicted segments with each position
//! that is published; it includes all evicted rows of the snapshot and is never newer than the snapshot's lsn. So every live
//! evicted row is in it, and any other row in it was deleted, which the snapshot's own delete vectors tell.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::DataType as Arrow;
use types::{ColumnId, DataType, Error, Kind, ROW_ID, Result, RowId, Value};

use crate::parts::{Entry, Parts};
use crate::{Projection, Segment, Zone};

/// One pinned position of a table's lake: none of its files is removed while this value lives (G1). Reads never wait for a lock
/// that a write or background work can hold (R1); a read of a remote store ends within the store's own deadline.
pub trait LakeSnapshot: fmt::Debug + Send + Sync + 'static {
    /// The row id up to which the position has every live row.
    fn row(&self) -> RowId;

    /// The Iceberg snapshot, and the place of its metadata, for messages.
    fn place(&self) -> String;

    /// The lake's files in ranges of at most [`BATCH_ROWS`](crate::BATCH_ROWS) rows, in their stored order. Leaves out ranges
    /// without rows up to `last`. Costs no I/O.
    fn file_ranges(&self, last: RowId) -> Vec<LakeFileRange>;

    /// Bounds of a column within a range; they may be wider than its values. `None` if nothing is known. Costs no I/O; bounds
    /// that [`LakeSnapshot::read_bounds`] has read are tighter.
    fn zone(&self, file_range: &LakeFileRange, column: ColumnId, data_type: &DataType) -> Option<Zone>;

    /// Returns true if the partition of a range has no row with this value. Costs no I/O.
    fn lacks(&self, file_range: &LakeFileRange, column: ColumnId, value: &Value) -> bool;

    /// Reads the column bounds of a range for later calls of [`LakeSnapshot::zone`].
    fn read_bounds(&self, file_range: &LakeFileRange) -> Result<()>;

    /// Reads all rows of a range.
    fn read(&self, file_range: &LakeFileRange, wanted: &[(ColumnId, Arrow)]) -> Result<LakeRows>;

    /// Reads rows by their ids, which ascend. Returns those that the lake has, in any order.
    fn fetch(&self, rows: &[RowId], wanted: &[(ColumnId, Arrow)]) -> Result<Vec<LakeRows>>;
}

/// A range of rows in one file of the lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LakeFileRange {
    /// The number of the file within the position.
    pub file: usize,
    /// The index of the first row in the file.
    pub position: u64,
    pub rows: u32,
    /// Bounds of the row ids; they may be wider than the rows.
    pub first_row: RowId,
    pub last_row: RowId,
    /// Bytes that all columns take in memory, about.
    pub bytes: u64,
}

/// Rows read from the lake.
#[derive(Clone, Debug)]
pub struct LakeRows {
    pub row_ids: Int64Array,
    /// The requested columns, in order; `None` if the rows were written before the column existed.
    pub columns: Vec<Option<ArrayRef>>,
}

/// Returns the columns to request from the lake for a projection. Row ids always come with them.
pub(crate) fn wanted_columns(projection: &Projection) -> Vec<(ColumnId, Arrow)> {
    projection.wanted().filter(|(id, _)| *id != ROW_ID).map(|(id, arrow)| (id, arrow.clone())).collect()
}

impl Segment {
    /// The lake position where the segment's rows are read. Fails with [`Kind::Busy`] before the lake is open, and with
    /// [`Kind::Damaged`] if damage keeps it from being opened.
    pub fn landed(&self) -> Result<&Arc<dyn LakeSnapshot>> {
        self.check()?;
        self.landed.as_ref().ok_or_else(|| {
            let (first, last) = (self.meta().first_row, self.meta().last_row);
            if let Some(error) = self.lake_error() {
                return error.clone().with("rows that only the lake has", format!("{first} to {last}"));
            }
            Error::new(
                Kind::Busy,
                format!("rows {first} to {last} are only in the lake, which is not open"),
            )
            .hint("it is opened in the background after a start: retry in a moment; `polynya tables` and the log show what delays it")
        })
    }

    /// Reads rows by their ids, which ascend, and returns them in that order. Fails if one is missing: each of them must be live.
    pub(crate) fn fetch(&self, rows: &[RowId], projection: &Projection) -> Result<RecordBatch> {
        let ids_alone = projection.columns().all(|id| id == ROW_ID);
        let found = if ids_alone {
            let row_ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0 as i64));
            vec![LakeRows { row_ids, columns: Vec::new() }]
        } else if rows.is_empty() {
            Vec::new()
        } else {
            self.landed()?.fetch(rows, &wanted_columns(projection))?
        };
        let mut parts = Vec::with_capacity(found.len());
        let mut ids = Vec::with_capacity(rows.len());
        for found in &found {
            ids.extend_from_slice(found.row_ids.values());
            parts.push(projection.of_lake_rows(found)?);
        }
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        let is_sorted = ids.is_sorted();
        if !is_sorted {
            order.sort_unstable_by_key(|at| ids[*at as usize]);
        }
        let is_it = order.iter().map(|at| ids[*at as usize] as u64).eq(rows.iter().map(|row| row.0));
        if !is_it {
            return Err(self.missing(rows, ids));
        }
        let batch = match &parts[..] {
            [] => return Ok(projection.empty()),
            [only] => only.clone(),
            several => concat_batches(projection.schema(), several)
                .map_err(|e| Error::internal(format!("joining rows of the lake failed: {e}")))?,
        };
        if is_sorted {
            return Ok(batch);
        }
        take_record_batch(&batch, &UInt32Array::from(order))
            .map_err(|e| Error::internal(format!("ordering rows of the lake failed: {e}")))
    }

    /// Returns the ids of those rows that the lake still has, with their times of arrival. Dead rows may have left the lake's
    /// files.
    pub(crate) fn times_in_lake(&self, rows: &[RowId]) -> Result<Vec<(u64, i64)>> {
        use arrow::array::AsArray;
        use arrow::datatypes::TimestampMicrosecondType;
        let time = Arrow::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()));
        let mut all = Vec::with_capacity(rows.len());
        for found in self.landed()?.fetch(rows, &[(types::TIME, time)])? {
            let times = found.columns.first().and_then(Option::as_ref);
            let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
            let times = times.ok_or_else(|| Error::damaged("a file of the lake has no times of arrival"))?;
            all.extend(
                found.row_ids.values().iter().map(|row| *row as u64).zip(times.values().iter().copied()),
            );
        }
        all.sort_unstable();
        Ok(all)
    }

    fn missing(&self, wanted: &[RowId], mut found: Vec<i64>) -> Error {
        found.sort_unstable();
        if let Some(twice) = found.windows(2).find(|pair| pair[0] == pair[1]) {
            return Error::damaged(format!("row {} is in the lake twice", twice[0]));
        }
        let missing = wanted.iter().find(|row| found.binary_search(&(row.0 as i64)).is_err());
        let place = self.landed.as_ref().map(|landed| landed.place()).unwrap_or_default();
        match missing {
            Some(row) => Error::damaged(format!("row {row} is only in the lake, and the lake's files do not have it"))
                .with("lake", place)
                .hint("a row that was deleted since is read AS OF an earlier time only until the lake rewrites its file"),
            None => Error::damaged("the lake returned other rows than were requested").with("lake", place),
        }
    }
}

impl Parts {
    /// The last row of the last evicted segment; `None` if no segment is evicted.
    pub fn last_evicted(&self) -> Option<RowId> {
        self.segments.iter().rev().find(|entry| entry.segment.is_evicted()).map(|e| e.segment.meta().last_row)
    }
}

/// A range of a lake file as a part of a table, with the segments that tell which of its rows are live.
#[derive(Clone, Debug)]
pub(crate) struct LakeRange {
    pub landed: Arc<dyn LakeSnapshot>,
    pub file_range: LakeFileRange,
    pub segments: Arc<Vec<Entry>>,
}

impl LakeRange {
    /// Returns true if a row is live and in an evicted segment.
    fn has(&self, row: u64) -> Result<bool> {
        let at = self.segments.partition_point(|entry| entry.segment.meta().last_row.0 < row);
        let Some(entry) = self.segments.get(at).filter(|entry| entry.segment.meta().first_row.0 <= row)
        else {
            return Ok(false);
        };
        let segment = &entry.segment;
        Ok(segment.is_evicted() && !entry.deletes.contains(row) && segment.row_ids()?.contains(row))
    }

    /// Tells for each of the row ids whether it is in `rows` and live.
    pub fn mask(&self, row_ids: &Int64Array, rows: &std::ops::Range<u64>) -> Result<Vec<bool>> {
        let wanted = |row: &i64| {
            let row = *row as u64;
            Ok(rows.contains(&row) && self.has(row)?)
        };
        row_ids.values().iter().map(wanted).collect()
    }

    /// Reads the live rows with ids in `rows`, at most `limit`, in stored order.
    pub fn read(
        &self,
        rows: &std::ops::Range<u64>,
        limit: usize,
        projection: &Projection,
    ) -> Result<RecordBatch> {
        let found = self.landed.read(&self.file_range, &wanted_columns(projection))?;
        let mut mask = self.mask(&found.row_ids, rows)?;
        let mut left = limit;
        for wanted in &mut mask {
            *wanted &= left > 0;
            left -= usize::from(*wanted);
        }
        let batch = projection.of_lake_rows(&found)?;
        if mask.iter().all(|wanted| *wanted) {
            return Ok(batch);
        }
        filter_record_batch(&batch, &mask.into())
            .map_err(|e| Error::internal(format!("leaving out rows of the lake failed: {e}")))
    }
}

//! The order of rows in a new segment.
//!
//! Rows are in row-id order, unless the table names a time column whose values are scattered over the rows. Then they are sorted
//! by that time, then by row id; rows without a time come last. So a range of time lies in few blocks, in whatever order the rows
//! arrived. Row ids do not change: the segment maps them to its order (`segment/order.rs`).

use arrow::array::{Array, AsArray};
use arrow::datatypes::TimestampMicrosecondType;
use roaring::RoaringTreemap;
use types::{ColumnId, DataType, Error, Result, TableDef};

use crate::gather::Gather;
use crate::lsn_runs::{self, LsnRun};
use crate::segment::{NeededColumns, Writer};
use crate::{BATCH_ROWS, ScanPiece, Snapshot};

/// Number of rows in the groups by which the scatter of times is measured: the rows of a block. Smaller in tests, so that small
/// tables are sorted too.
const GROUP_ROWS: usize = if cfg!(test) { 16 } else { BATCH_ROWS };
/// Bytes of rows that are gathered at a time, about.
const GATHER_BYTES: u64 = 32 << 20;

/// The column by whose values rows may be sorted.
pub(crate) fn time_column(def: &TableDef) -> Option<ColumnId> {
    let column = def.schema.column(def.time?)?;
    (column.data_type == DataType::Timestamp).then_some(column.id)
}

/// Writes the live rows with `first ≤ row id < below`.
pub(crate) fn write(snapshot: &Snapshot, writer: &mut Writer<'_>, first: u64, below: u64) -> Result<()> {
    if let Some(column) = time_column(snapshot.def()) {
        let rows = TimedRows::of(snapshot, column, first, below)?;
        if rows.are_scattered() {
            return rows.write(snapshot, writer);
        }
    }
    for piece in snapshot.pieces_from(first) {
        if piece.row_range().0.0 >= below {
            break;
        }
        let batch = piece.read_rows(first, below, usize::MAX, snapshot.all_columns())?;
        writer.push(&batch, piece.runs()?)?;
    }
    Ok(())
}

/// A row's time and id, and the place from which it is read.
struct TimedRow {
    /// The row's time; `i64::MAX` if it has none.
    time: i64,
    row: u64,
    source: u32,
    index: u32,
}

struct TimedRows {
    rows: Vec<TimedRow>,
    /// Positions in `rows` by row id.
    by_id: Vec<u32>,
    sources: Vec<ScanPiece>,
    bytes: u64,
    /// The lsn runs of the sources.
    runs: Vec<LsnRun>,
}

impl TimedRows {
    fn of(snapshot: &Snapshot, column: ColumnId, first: u64, below: u64) -> Result<TimedRows> {
        let projection = snapshot.projection(&[column])?;
        let (mut rows, mut sources, mut bytes, mut runs) = (Vec::new(), Vec::new(), 0, Vec::<LsnRun>::new());
        for piece in snapshot.stored_from(first) {
            if piece.row_range().0.0 >= below {
                break;
            }
            let stored = piece.stored(NeededColumns::Column(column))?;
            let times = projection.apply(&stored.layout, &stored.batch)?;
            let times = times.column(0).as_primitive_opt::<TimestampMicrosecondType>();
            let times = times.ok_or_else(|| Error::internal("a column of times was asked for"))?;
            let source = sources.len() as u32;
            for (index, row) in stored.row_ids().iter().enumerate() {
                let row = *row as u64;
                if row < first || row >= below || piece.is_deleted(row) {
                    continue;
                }
                let time = if times.is_valid(index) { times.value(index) } else { i64::MAX };
                rows.push(TimedRow { time, row, source, index: index as u32 });
            }
            bytes += piece.bytes();
            drop(stored);
            // All blocks of a segment share the segment's runs.
            let more = piece.runs()?;
            let known = runs.last().map_or(0, |last| last.first);
            runs.extend_from_slice(&more[more.partition_point(|run| run.first <= known)..]);
            sources.push(piece);
        }
        let count = u32::try_from(rows.len());
        let count = count.map_err(|_| Error::internal("a segment of more than 2^32 rows was asked for"))?;
        let mut by_id: Vec<u32> = (0..count).collect();
        if !rows.is_sorted_by_key(|row| row.row) {
            by_id.sort_unstable_by_key(|at| rows[*at as usize].row);
        }
        Ok(TimedRows { rows, by_id, sources, bytes, runs })
    }

    /// Returns true if blocks in row-id order would together span more than twice the time that all rows span. Rows that come
    /// nearly in the order of their time keep row-id order: a scan of a range then reads a block or two more, but rows are found
    /// without a mapping.
    fn are_scattered(&self) -> bool {
        let span = |rows: &[u32]| {
            let times = rows.iter().map(|at| self.rows[*at as usize].time).filter(|time| *time < i64::MAX);
            let bounds = times.fold(None, |bounds: Option<(i64, i64)>, time| {
                let (low, high) = bounds.unwrap_or((time, time));
                Some((low.min(time), high.max(time)))
            });
            bounds.map_or(0.0, |(low, high)| high as f64 - low as f64)
        };
        let groups: f64 = self.by_id.chunks(GROUP_ROWS).map(span).sum();
        groups > 2.0 * span(&self.by_id)
    }

    fn write(mut self, snapshot: &Snapshot, writer: &mut Writer<'_>) -> Result<()> {
        let (mut row_ids, mut runs, mut run) = (RoaringTreemap::new(), Vec::new(), 0);
        for at in &self.by_id {
            let row = self.rows[*at as usize].row;
            row_ids
                .try_push(row)
                .map_err(|_| Error::internal("a row was found twice while a segment was written"))?;
            while self.runs.get(run + 1).is_some_and(|next| next.first <= row) {
                run += 1;
            }
            let lsn = self.runs.get(run).ok_or_else(|| Error::internal("rows that no commit wrote"))?.lsn;
            lsn_runs::push(&mut runs, LsnRun { lsn, first: row });
        }
        self.by_id = Vec::new();
        self.rows.sort_unstable_by_key(|row| (row.time, row.row));
        let mut ordinals: Vec<u32> = (0..self.rows.len() as u32).collect();
        ordinals.sort_unstable_by_key(|at| self.rows[*at as usize].row);
        writer.ordered(row_ids, runs, ordinals);

        let row_bytes = self.bytes / self.rows.len().max(1) as u64;
        let at_once = (GATHER_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS as u64) as usize;
        for part in self.rows.chunks(at_once) {
            let mut gather = Gather::default();
            for row in part {
                self.sources[row.source as usize].pick(&mut gather, row.index as usize)?;
            }
            writer.push(&gather.finish(snapshot.all_columns())?, &[])?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "cluster/tests.rs"]
mod tests;

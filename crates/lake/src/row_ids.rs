//! Which row ids a data file holds, and so which position each of them has.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use types::{Error, ROW_ID, Result, RowId};

use crate::schema::parquet_error;

/// Ascending row ids as runs without gaps: rows that arrive and stay make one run, whatever their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowIds {
    /// First row id of each run, and the position of that row.
    runs: Vec<(u64, u64)>,
    rows: u64,
    last: u64,
}

impl RowIds {
    /// Adds the row ids of a batch.
    pub fn extend(&mut self, column: &ArrayRef) -> Result<()> {
        let ids = column.as_primitive_opt::<Int64Type>().filter(|ids| ids.null_count() == 0);
        let ids = ids.ok_or_else(|| Error::damaged("a column of row ids that is none"))?;
        for id in ids.values() {
            let id = u64::try_from(*id).map_err(|_| Error::damaged("a negative row id"))?;
            if self.rows > 0 && id <= self.last {
                return Err(Error::damaged("row ids that do not ascend"));
            }
            if self.rows == 0 || id != self.last + 1 {
                self.runs.push((id, self.rows));
            }
            self.last = id;
            self.rows += 1;
        }
        Ok(())
    }

    /// Reads them from a data file.
    pub fn of_file(bytes: Bytes) -> Result<RowIds> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(parquet_error)?;
        let schema = builder.parquet_schema();
        let is_row_id = |t: &parquet::schema::types::Type| {
            let info = t.get_basic_info();
            info.has_id() && info.id() == ROW_ID.0 as i32
        };
        let at = schema.root_schema().get_fields().iter().position(|field| is_row_id(field));
        let at = at.ok_or_else(|| Error::damaged("a data file without row ids"))?;
        let mask = ProjectionMask::roots(schema, [at]);
        let reader = builder.with_projection(mask).build().map_err(parquet_error)?;
        let mut ids = RowIds::default();
        for batch in reader {
            let batch = batch.map_err(|e| Error::damaged(format!("a data file cannot be read: {e}")))?;
            ids.extend(batch.column(0))?;
        }
        Ok(ids)
    }

    /// How many there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn first(&self) -> Option<RowId> {
        self.runs.first().map(|(first, _)| RowId(*first))
    }

    pub fn last(&self) -> Option<RowId> {
        (self.rows > 0).then_some(RowId(self.last))
    }

    /// About what it takes in memory.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.runs.len() * size_of::<(u64, u64)>()
    }

    pub fn position(&self, row: RowId) -> Option<u64> {
        let at = self.runs.partition_point(|(first, _)| *first <= row.0).checked_sub(1)?;
        let (first, position) = self.runs[at];
        let end = self.runs.get(at + 1).map_or(self.rows, |(_, next)| *next);
        let found = position + (row.0 - first);
        (found < end).then_some(found)
    }

    /// The row at a position.
    pub fn row(&self, position: u64) -> Option<RowId> {
        let at = self.runs.partition_point(|(_, at)| *at <= position).checked_sub(1)?;
        let (first, from) = self.runs[at];
        (position < self.rows).then(|| RowId(first + (position - from)))
    }

    pub fn iter(&self) -> impl Iterator<Item = RowId> + '_ {
        self.runs.iter().enumerate().flat_map(|(at, (first, position))| {
            let end = self.runs.get(at + 1).map_or(self.rows, |(_, next)| *next);
            (0..end - position).map(move |n| RowId(first + n))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn ids(rows: &[i64]) -> RowIds {
        let mut ids = RowIds::default();
        for part in rows.chunks(3) {
            ids.extend(&(Arc::new(Int64Array::from(part.to_vec())) as ArrayRef)).unwrap();
        }
        ids
    }

    #[test]
    fn a_position_is_the_rank_of_a_row() {
        let rows = [3, 4, 5, 9, 12, 13, 40];
        let ids = ids(&rows);
        assert_eq!(ids.runs.len(), 4);
        for id in 0..50 {
            let expected = rows.iter().position(|row| *row == id).map(|at| at as u64);
            assert_eq!(ids.position(RowId(id as u64)), expected, "{id}");
        }
        assert_eq!(ids.iter().map(|row| row.0 as i64).collect::<Vec<_>>(), rows);
        for at in 0..9 {
            assert_eq!(ids.row(at), rows.get(at as usize).map(|row| RowId(*row as u64)));
        }
        assert_eq!((ids.first(), ids.last(), ids.rows()), (Some(RowId(3)), Some(RowId(40)), 7));
    }

    #[test]
    fn row_ids_that_do_not_ascend_are_damage() {
        let mut ids = ids(&[5]);
        for bad in [5, 4, -1] {
            assert!(ids.extend(&(Arc::new(Int64Array::from(vec![bad])) as ArrayRef)).is_err());
        }
    }
}

//! Writes new rows into data files.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use iceberg::manifest::Entry;
use iceberg::spec::Partition;
use table::Snapshot;
use types::{Result, RowId};

use super::CommitBuilder;
use super::output::PartitionWriter;
use crate::arranged_rows::ArrangedRows;
use crate::data_file::FilePartition;

/// Approximate bytes of rows that are read and written at a time.
pub(super) const SCAN_BYTES: u64 = 8 << 20;

impl CommitBuilder<'_> {
    /// Returns the spec and partition of new files.
    pub(super) fn target_partition(&self, partition: Arc<Partition>) -> FilePartition {
        FilePartition { spec: self.next.default_spec_id, partition }
    }

    /// Writes the live rows from `first` to `last`, up to the limit of one commit. Also returns the last row that was
    /// considered.
    pub(super) fn land_rows(&mut self, first: RowId, last: RowId) -> Result<(Vec<Entry>, RowId)> {
        if self.columns.layout.is_plain() {
            self.land_in_id_order(first, last)
        } else {
            self.land_arranged(first, last)
        }
    }

    /// Writes rows in the order of their ids, batch by batch.
    fn land_in_id_order(&mut self, first: RowId, last: RowId) -> Result<(Vec<Entry>, RowId)> {
        let mut rows = LiveRowScan::of(self.table, first, last);
        let bytes_max = self.options.commit_bytes_max;
        let place = self.target_partition(Arc::default());
        let mut output = PartitionWriter::new(self, place, (last.0 + 1).saturating_sub(first.0));
        while rows.taken < bytes_max
            && let Some(batch) = rows.next()?
        {
            output.push(&batch, true)?;
        }
        Ok((output.finish()?, rows.reached()))
    }

    /// Writes each partition's rows into a sorted file of its own. All rows of the commit are in memory at once; the files
    /// are written one after the other.
    fn land_arranged(&mut self, first: RowId, last: RowId) -> Result<(Vec<Entry>, RowId)> {
        let mut rows = LiveRowScan::of(self.table, first, last);
        let bytes_max = self.options.commit_bytes_max.min(self.options.arrange_bytes);
        let mut batches = Vec::new();
        while rows.taken < bytes_max
            && let Some(batch) = rows.next()?
        {
            batches.push(batch);
            (self.tick)(0)?;
        }
        let arranged = ArrangedRows::of(self.columns, &self.order, batches, self.options.partitions_max)?;
        let entries = self.write_arranged(&arranged)?;
        Ok((entries, arranged.first_unarranged().map_or(rows.reached(), |left| RowId(left.0 - 1))))
    }

    pub(super) fn write_arranged(&mut self, arranged: &ArrangedRows) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let batch_rows = arranged.batch_rows(SCAN_BYTES);
        for run in &arranged.runs {
            let place = self.target_partition(run.partition.clone());
            let mut output = PartitionWriter::new(self, place, arranged.count(run) as u64);
            arranged.each(run, batch_rows, &mut |batch| output.push(batch, true))?;
            entries.extend(output.finish()?);
        }
        Ok(entries)
    }
}

/// Reads the live rows of a range, batch by batch.
struct LiveRowScan<'a> {
    table: &'a Snapshot,
    next: RowId,
    last: RowId,
    batch_rows: usize,
    /// Bytes of all rows read so far.
    taken: u64,
}

impl<'a> LiveRowScan<'a> {
    fn of(table: &'a Snapshot, first: RowId, last: RowId) -> Self {
        // Rows from several batches are joined in memory, so their number is bounded by bytes.
        let batch_rows = (SCAN_BYTES / table.row_bytes().max(1)).clamp(1, table::BATCH_ROWS as u64) as usize;
        LiveRowScan { table, next: first, last, batch_rows, taken: 0 }
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.next > self.last {
            return Ok(None);
        }
        let batch = self.table.scan_from(self.next, self.batch_rows, self.table.all_columns())?;
        let batch = up_to(batch, self.last);
        if batch.num_rows() == 0 {
            self.next = self.last.next();
            return Ok(None);
        }
        self.next = last_row(&batch).next();
        self.taken += bytes_of(&batch);
        Ok(Some(batch))
    }

    /// Returns the last row id that was considered.
    fn reached(&self) -> RowId {
        RowId(self.next.0 - 1)
    }
}

fn last_row(batch: &RecordBatch) -> RowId {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    RowId(ids.value(ids.len() - 1) as u64)
}

/// Returns the bytes of a batch's own rows; its arrays may be slices of larger ones.
pub(crate) fn bytes_of(batch: &RecordBatch) -> u64 {
    let bytes =
        |column: &arrow::array::ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0) as u64;
    batch.columns().iter().map(bytes).sum()
}

/// Returns the rows of a batch up to id `last`, which need not be in it.
fn up_to(batch: RecordBatch, last: RowId) -> RecordBatch {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let count = ids.values().partition_point(|id| *id as u64 <= last.0);
    batch.slice(0, count)
}

//! Writes the rows of one partition into data files.

use arrow::array::RecordBatch;
use iceberg::manifest::Entry;
use types::Result;

use super::CommitBuilder;
use crate::data_file::{self, FilePartition, WrittenFile};

/// Writes rows into data files, and starts a new one whenever a file is full.
pub(super) struct PartitionWriter<'w, 'a> {
    work: &'w mut CommitBuilder<'a>,
    place: FilePartition,
    /// Approximate number of rows to come.
    rows: u64,
    writer: Option<(data_file::Writer<'a>, String)>,
    in_order: bool,
    entries: Vec<Entry>,
}

impl CommitBuilder<'_> {
    /// Adds a finished file to the commit.
    pub(super) fn add_file(&mut self, written: WrittenFile) -> Entry {
        if let Some(row_ids) = written.row_ids {
            self.base.cache.put(&written.file.path, row_ids);
        }
        self.added(written.file)
    }
}

impl<'w, 'a> PartitionWriter<'w, 'a> {
    pub fn new(work: &'w mut CommitBuilder<'a>, place: FilePartition, rows: u64) -> Self {
        PartitionWriter { work, place, rows, writer: None, in_order: true, entries: Vec::new() }
    }

    /// Adds rows. `in_order` is true if they follow the rows before them in the table's order.
    pub fn push(&mut self, batch: &RecordBatch, in_order: bool) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.writer.is_none() {
            let (path, location) = self.work.new_file("data", "parquet");
            self.work.made.push(path.clone());
            let columns = self.work.columns;
            let writer = data_file::Writer::create(&self.work.base.store, path, columns, self.rows, batch)?;
            self.writer = Some((writer, location));
            self.in_order = true;
        }
        let (writer, _) = self.writer.as_mut().expect("made above");
        self.in_order &= in_order;
        writer.push(batch)?;
        let is_full = writer.bytes() >= self.work.options.file_bytes;
        // Zero bytes are reported here, because the size is known only when a row group ends.
        (self.work.tick)(0)?;
        if is_full { self.end_file() } else { Ok(()) }
    }

    fn end_file(&mut self) -> Result<()> {
        let Some((writer, location)) = self.writer.take() else { return Ok(()) };
        let sort_order = self.work.sort_order.filter(|_| self.in_order);
        let written = writer.finish(location, self.place.clone(), sort_order)?;
        (self.work.tick)(written.file.bytes)?;
        self.entries.push(self.work.add_file(written));
        Ok(())
    }

    /// Returns the finished files.
    pub fn finish(mut self) -> Result<Vec<Entry>> {
        self.end_file()?;
        Ok(self.entries)
    }
}

//! Reads a Parquet file of rows or deletes that another program wrote, batch by batch.

use std::fmt::Display;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::reader::ChunkReader;
use types::{Error, Result, parquet_footer};

use super::file_contents::FileContents;
use super::leaves::int96_as_micros;
use super::{DataFile, FileLocator};

const BATCH_ROWS: usize = 8_192;

pub(super) fn damaged(why: &dyn Display) -> Error {
    Error::damaged(format!("a file of rows cannot be read: {why}"))
}

/// Runs a read of another program's file and returns a panic as an error: the Parquet reader asserts properties that damaged
/// files violate.
pub(super) fn catch_panics<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged(&"it is not valid Parquet")))
}

/// A file whose footer was read.
pub(super) struct ParquetFile {
    contents: FileContents,
    metadata: ArrowReaderMetadata,
}

/// Reads the rows of a file, batch by batch.
pub(super) struct Batches {
    contents: FileContents,
    metadata: ArrowReaderMetadata,
    columns: ProjectionMask,
    /// Ranges of row groups that are not read yet; those of one range are read together.
    remaining: std::vec::IntoIter<Range<usize>>,
    /// The reader of the current range; `None` between ranges and at the end.
    reader: Option<ParquetRecordBatchReader>,
}

impl ParquetFile {
    /// Reads the footer and checks that the length and the number of rows are those in the manifest.
    pub fn open(locator: &FileLocator, file: &DataFile) -> Result<ParquetFile> {
        let contents = FileContents::open(&locator.store, locator.find(&file.path)?, file.bytes)?;
        parquet_footer::check(file.bytes, |at, count| {
            contents.get_bytes(at, count).map(|bytes| bytes.to_vec()).map_err(|e| contents.cause(&e))
        })?;
        // The Arrow schema that a writer may have added is skipped, since it hides Parquet's field ids.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata =
            catch_panics(|| ArrowReaderMetadata::load(&contents, options).map_err(|e| contents.cause(&e)))?;
        if metadata.metadata().file_metadata().num_rows() as u64 != file.rows {
            return Err(Error::damaged("a file has another number of rows than its manifest says"));
        }
        let metadata = int96_as_micros(metadata).map_err(|e| damaged(&e))?;
        Ok(ParquetFile { contents, metadata })
    }

    pub fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    /// Reads the columns `roots` of the rows from `first` on. Fetches nothing before the first batch.
    pub fn read(self, roots: &[usize], first: u64) -> Result<Batches> {
        let ParquetFile { contents, metadata } = self;
        let columns = ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied());
        let mut groups = catch_panics(|| Ok(contents.select_columns(metadata.metadata(), &columns)))?;
        // Row groups before the first row are skipped without a look at them.
        let mut offset = usize::try_from(first).unwrap_or(usize::MAX);
        let mut before = 0;
        for group in metadata.metadata().row_groups() {
            let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
            if rows > offset {
                break;
            }
            (before, offset) = (before + 1, offset - rows);
        }
        groups.retain_mut(|range| {
            range.start = range.start.max(before);
            range.start < range.end
        });
        let mut batches =
            Batches { contents, metadata, columns, remaining: groups.into_iter(), reader: None };
        batches.begin_next(offset)?;
        Ok(batches)
    }
}

impl Batches {
    /// Returns the next rows; `None` at the end. The caller stops after an error.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(reader) = &mut self.reader {
            let batch = catch_panics(|| reader.next().transpose().map_err(|e| self.contents.cause(&e)))?;
            match batch {
                Some(batch) => return Ok(Some(batch)),
                None => self.begin_next(0)?,
            }
        }
        Ok(None)
    }

    /// Begins the next range of row groups, without its first `offset` rows.
    fn begin_next(&mut self, offset: usize) -> Result<()> {
        self.reader = None;
        let Some(groups) = self.remaining.next() else { return Ok(()) };
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.contents.clone(), self.metadata.clone())
                .with_row_groups(groups.collect())
                .with_projection(self.columns.clone())
                .with_batch_size(BATCH_ROWS)
                .with_offset(offset);
        self.reader = Some(catch_panics(|| builder.build().map_err(|e| self.contents.cause(&e)))?);
        Ok(())
    }
}

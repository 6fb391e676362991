//! A Parquet file of data or of deletes that another program wrote, batch by batch.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use types::{Error, Result};

use super::contents::Contents;
use super::leaves::int96_as_micros;
use super::{DataFile, Place};

const BATCH_ROWS: usize = 8_192;

pub(super) fn damaged(why: &dyn Display) -> Error {
    Error::damaged(format!("a file of rows cannot be read: {why}"))
}

/// Reads of a file that another program wrote. The Parquet reader asserts some of what damaged files break.
pub(super) fn caught<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged(&"it is no Parquet in itself")))
}

/// A file whose footer was read.
pub(super) struct ParquetFile {
    contents: Contents,
    metadata: ArrowReaderMetadata,
}

/// Rows of a file, one batch after the other.
pub(super) struct Batches {
    contents: Contents,
    reader: ParquetRecordBatchReader,
}

impl ParquetFile {
    /// Reads the footer: whether it is the file that the manifest says.
    pub fn open(place: &Place, file: &DataFile) -> Result<ParquetFile> {
        let contents = Contents::open(&place.store, place.find(&file.path)?, file.bytes)?;
        // What Parquet itself says: the Arrow schema that a writer may have put beside it hides the field ids.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata =
            caught(|| ArrowReaderMetadata::load(&contents, options).map_err(|e| contents.cause(&e)))?;
        if metadata.metadata().file_metadata().num_rows() as u64 != file.rows {
            return Err(Error::damaged("a file has another number of rows than its manifest says"));
        }
        let metadata = int96_as_micros(metadata).map_err(|e| damaged(&e))?;
        Ok(ParquetFile { contents, metadata })
    }

    pub fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    /// The rows from one of them on, of these of the schema's columns. Nothing is fetched before the first batch is.
    pub fn read(self, roots: &[usize], first: u64) -> Result<Batches> {
        let ParquetFile { contents, metadata } = self;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied());
        let reader = caught(|| {
            contents.want(metadata.metadata(), &mask);
            // Row groups before it are not even looked at.
            let (mut group, mut offset) = (0, usize::try_from(first).unwrap_or(usize::MAX));
            let groups = metadata.metadata().row_groups();
            while let Some(rows) = groups.get(group).map(|of| of.num_rows() as usize)
                && rows <= offset
            {
                (group, offset) = (group + 1, offset - rows);
            }
            let following = (group..groups.len()).collect();
            ParquetRecordBatchReaderBuilder::new_with_metadata(contents.clone(), metadata)
                .with_row_groups(following)
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .with_offset(offset)
                .build()
                .map_err(|e| contents.cause(&e))
        })?;
        Ok(Batches { contents, reader })
    }
}

impl Batches {
    /// Some more rows; `None` at the end. After an error nothing more is asked for.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        caught(|| self.reader.next().transpose().map_err(|e| self.contents.cause(&e)))
    }
}

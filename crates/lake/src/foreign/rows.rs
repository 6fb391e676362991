//! The live rows of a table, one batch after the other.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::reader::ChunkReader;
use types::{Error, Result};

use super::leaves::int96_as_micros;
use super::project::{self, Source};
use super::tail::Tail;
use super::{DataFile, Foreign};

const BATCH_ROWS: usize = 8_192;

/// Reads a table's rows from a place on.
pub struct Rows {
    table: Arc<Foreign>,
    schema: SchemaRef,
    /// The file that is next.
    at: usize,
    /// Live rows of it that are left out.
    skip: u64,
    open: Option<Open>,
}

/// A data file that is being read.
pub(super) struct Open {
    reader: ParquetRecordBatchReader,
    /// Where each column comes from.
    sources: Vec<Source>,
    /// Where the next batch begins, in the file.
    position: u64,
    rows: u64,
    deleted: Arc<Vec<u64>>,
}

impl Rows {
    pub(super) fn new(table: Arc<Foreign>, from: u64) -> Rows {
        let fields =
            table.columns.iter().map(|column| Field::new(&column.name, column.data_type.to_arrow(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let (mut at, mut skip) = (0, from);
        while let Some(file) = table.data.get(at).filter(|file| file.live() <= skip) {
            skip -= file.live();
            at += 1;
        }
        Rows { table, schema, at, skip, open: None }
    }

    /// Some more rows; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.open.is_none() {
                let Some(file) = self.table.data.get(self.at) else { return Ok(None) };
                let first = stored(&file.deleted, self.skip);
                self.open = Some(open(&self.table, file, first).map_err(|e| e.with("file", &file.path))?);
                (self.at, self.skip) = (self.at + 1, 0);
            }
            let file = &self.table.data[self.at - 1];
            let Some(open) = &mut self.open else { continue };
            match open.next(&self.schema).map_err(|e| e.with("file", &file.path))? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => return Ok(Some(batch)),
                None => self.open = None,
            }
        }
    }
}

/// Where in a file the live row stands before which there are so many.
fn stored(deleted: &[u64], live: u64) -> u64 {
    let mut at = live;
    for position in deleted {
        if *position > at {
            break;
        }
        at += 1;
    }
    at
}

fn damaged(why: &dyn std::fmt::Display) -> Error {
    Error::damaged(format!("a data file cannot be read: {why}"))
}

/// Looks at a data file's footer: whether it is the file that the manifest says, and has what the table's columns need.
pub(super) fn check(table: &Foreign, file: &DataFile) -> Result<()> {
    // In an object store the footer alone is asked for; here the file is mapped, and as long as it is.
    if table.place.store.is_remote() {
        let tail = Tail::open(&table.place.store, table.place.find(&file.path)?, file.bytes)?;
        let metadata = metadata(file, &tail)?;
        return project::sources(table, file, metadata.schema()).map(drop);
    }
    open(table, file, 0).map(drop)
}

fn metadata(file: &DataFile, bytes: &impl ChunkReader) -> Result<ArrowReaderMetadata> {
    // What Parquet itself says: the Arrow schema that a writer may have put beside it hides the field ids.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(bytes, options).map_err(|e| damaged(&e))?;
    if metadata.metadata().file_metadata().num_rows() as u64 != file.rows {
        return Err(Error::damaged("a data file has another number of rows than its manifest says"));
    }
    int96_as_micros(metadata).map_err(|e| damaged(&e))
}

/// Opens a data file at one of its rows, and finds where the table's columns are in it.
pub(super) fn open(table: &Foreign, file: &DataFile, first: u64) -> Result<Open> {
    let bytes = table.place.read(&file.path)?;
    if bytes.len() as u64 != file.bytes {
        return Err(Error::damaged("a data file is not as long as its manifest says"));
    }
    let metadata = metadata(file, &bytes)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata);
    let (mut sources, roots) = project::sources(table, file, builder.schema())?;
    sources.iter_mut().for_each(|source| source.rank(&roots));
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let offset = usize::try_from(first).unwrap_or(usize::MAX);
    let reader = builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .with_offset(offset)
        .build()
        .map_err(|e| damaged(&e))?;
    Ok(Open { reader, sources, position: first, rows: file.rows, deleted: file.deleted.clone() })
}

impl Open {
    fn next(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.reader.next() else {
            return match self.position >= self.rows {
                true => Ok(None),
                false => Err(damaged(&"it ends too early")),
            };
        };
        let mut batch = batch.map_err(|e| damaged(&e))?;
        let (begin, end) = (self.position, self.position + batch.num_rows() as u64);
        self.position = end;
        let from = self.deleted.partition_point(|at| *at < begin);
        let to = self.deleted.partition_point(|at| *at < end);
        if from < to {
            let mut live = vec![true; batch.num_rows()];
            for at in &self.deleted[from..to] {
                live[(at - begin) as usize] = false;
            }
            batch = filter_record_batch(&batch, &BooleanArray::from(live)).map_err(|e| damaged(&e))?;
        }
        let columns = self.sources.iter().map(|source| source.column(&batch));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            .map(Some)
            .map_err(|e| damaged(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_row_is_found_behind_the_deleted_ones() {
        for (deleted, live, at) in
            [(vec![], 5, 5), (vec![0, 1], 0, 2), (vec![5], 5, 6), (vec![6], 5, 5), (vec![0, 3, 4, 9], 3, 6)]
        {
            assert_eq!(stored(&deleted, live), at, "{deleted:?}");
        }
    }
}

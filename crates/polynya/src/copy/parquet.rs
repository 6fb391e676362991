//! Rows as Parquet. A file names its columns, so they may stand in any order.

use std::io::BufWriter;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use types::{Error, Kind, Result, TableDef, name};

use super::{Input, Output, failed, position};

/// A group of rows ends here: what is held of it in memory.
const GROUP_BYTES: usize = 32 << 20;
const ROWS: usize = 8_192;

pub(super) struct Writer {
    writer: ArrowWriter<BufWriter<Output>>,
    path: String,
}

impl Writer {
    pub fn new(path: &str, schema: &SchemaRef, out: BufWriter<Output>) -> Result<Writer> {
        let properties =
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties))
            .map_err(|e| parquet_failed(path, e))?;
        Ok(Writer { writer, path: path.to_owned() })
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch).map_err(|e| parquet_failed(&self.path, e))?;
        if self.writer.in_progress_size() > GROUP_BYTES {
            self.writer.flush().map_err(|e| parquet_failed(&self.path, e))?;
        }
        Ok(())
    }

    pub fn end(self) -> Result<BufWriter<Output>> {
        self.writer.into_inner().map_err(|e| parquet_failed(&self.path, e))
    }
}

/// The rows of a file, with the columns of the table that it has; of `columns` alone if some are named.
pub(super) fn read(
    path: &str,
    def: &TableDef,
    columns: &[usize],
    input: Input,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(Chunks(input)).map_err(|e| parquet_failed(path, e))?;
    let schema = builder.schema().clone();
    let mut wanted = Vec::new();
    let mut found = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        match position(def, &(field.name().clone(), false)) {
            Ok(place) if columns.is_empty() || columns.contains(&place) => {
                wanted.push(at);
                found.push(place);
            }
            Ok(_) => {}
            Err(_) if !columns.is_empty() => {}
            Err(error) => {
                return Err(error.hint("name the columns that are to be read: COPY t (a, b) FROM …"));
            }
        }
    }
    if let Some(lacking) = columns.iter().find(|place| !found.contains(place)) {
        let name = name::printable(&def.schema.columns[*lacking].name);
        return Err(Error::invalid(format!("the file has no column `{name}`")));
    }
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
    let reader =
        builder.with_projection(mask).with_batch_size(ROWS).build().map_err(|e| parquet_failed(path, e))?;
    let path = path.to_owned();
    Ok(reader.map(move |batch| {
        let batch = batch.map_err(|e| super::formats::arrow_failed(&path, e))?;
        // What the file says of its columns beyond their types is not the table's.
        let schema = batch.schema();
        let field = |field: &Arc<Field>| Field::new(field.name(), field.data_type().clone(), true);
        let schema = Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec())
            .map_err(|e| Error::invalid(format!("the rows of the file make no batch: {e}")))
    }))
}

fn parquet_failed(path: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => failed(path, *error),
            Err(source) => unreadable(path, &source.to_string()),
        },
        other => unreadable(path, &other.to_string()),
    }
}

fn unreadable(path: &str, why: &str) -> Error {
    let why: String = why.chars().take(300).collect();
    Error::new(Kind::Schema, format!("`{}` cannot be copied: {why}", name::printable(path)))
}

/// A file as the reader wants it.
struct Chunks(Input);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.len
    }
}

impl ChunkReader for Chunks {
    type T = Input;

    fn get_read(&self, start: u64) -> ParquetResult<Input> {
        Ok(Input { file: self.0.file.clone(), at: start.min(self.0.len), len: self.0.len })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.0.len) {
            return Err(ParquetError::EOF("a part beyond the end of the file is wanted".into()));
        }
        let mut bytes = vec![0; length];
        self.0.file.read_at(&mut bytes, start).map_err(|e| ParquetError::External(Box::new(e)))?;
        Ok(bytes.into())
    }
}

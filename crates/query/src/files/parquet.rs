//! Reads and writes rows as Parquet. A file names its columns, so their order does not matter.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Type, ZstdLevel};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use types::{Error, Kind, Result, TableDef, name, parquet_footer};
use wire::json_texts;

use super::input::{FileReader, Input, failed};
use super::rows::{self, BATCH_BYTES, LineRange, ROWS, position};

/// Bytes of one row group, which is held in memory.
const GROUP_BYTES: usize = 32 << 20;
/// Rows of a batch with texts or bytes: a file can say in few bytes that one long value is repeated many times.
const LONG_ROWS: usize = 1_024;

pub(super) struct Writer(ArrowWriter<Vec<u8>>);

impl Writer {
    pub fn new(schema: &SchemaRef) -> Result<Writer> {
        let properties =
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        let writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties));
        writer.map(Writer).map_err(parquet_failed)
    }

    pub fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        self.0.write(batch).map_err(parquet_failed)?;
        if self.0.in_progress_size().max(self.0.memory_size() / 2) > GROUP_BYTES {
            self.0.flush().map_err(parquet_failed)?;
        }
        // The writer itself counts the bytes that it has written so far.
        out.append(self.0.inner_mut());
        Ok(())
    }

    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.0.finish().map_err(parquet_failed)?;
        out.append(self.0.inner_mut());
        Ok(())
    }
}

/// Reads the rows of a file: all columns that the table has, or only `columns` if any are named.
pub(super) fn read(
    def: &TableDef,
    columns: &[usize],
    input: Input,
) -> Result<impl Iterator<Item = Result<(RecordBatch, LineRange)>> + use<>> {
    let Input::File(file) = input else {
        return Err(Error::invalid("Parquet cannot be read from a stream: its index is at its end")
            .hint("save it to a file"));
    };
    let chunks = Chunks(FileReader::whole(file).map_err(failed)?);
    parquet_footer::check(chunks.len(), |at, count| {
        chunks.get_bytes(at, count).map(|bytes| bytes.to_vec()).map_err(parquet_failed)
    })?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(chunks).map_err(parquet_failed)?;
    let schema = builder.schema().clone();
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
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
    let rows = batch_rows(builder.metadata());
    let rows_said = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
    let reader = builder.with_projection(mask).with_batch_size(rows).build().map_err(parquet_failed)?;
    let targets: Vec<_> = found.iter().map(|place| def.schema.columns[*place].clone()).collect();
    let mut read = 0;
    let mut ended = false;
    let mut reader = reader;
    Ok(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let Some(batch) = reader.next() else {
            ended = true;
            let said = format!("the file has {read} rows, and its footer says that it has {rows_said}");
            return (read != rows_said).then(|| Err(Error::new(Kind::Schema, said)));
        };
        let batch = batch.map_err(rows::arrow_failed).and_then(|batch| {
            let first = read + 1;
            read += batch.num_rows() as u64;
            for (column, array) in targets.iter().zip(batch.columns()) {
                rows::check_null(column, array).map_err(|error| {
                    let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or(0) as u64;
                    rows::at(format_args!("row {}", first + row), Some(&column.name), error)
                })?;
                if let Some(bad) = json_texts::invalid_rows(&column.name, array, &column.data_type).next() {
                    let place = format_args!("row {}", first + bad.row as u64);
                    let error = Error::new(Kind::Schema, bad.message);
                    return Err(rows::at(place, bad.column.as_deref(), error));
                }
            }
            // The file's metadata of columns beyond their types is dropped.
            let schema = batch.schema();
            let field = |field: &Arc<Field>| Field::new(field.name(), field.data_type().clone(), true);
            let schema = Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>());
            let batch = RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec())
                .map_err(|e| Error::invalid(format!("the rows of the file make no batch: {e}")))?;
            Ok((batch, LineRange { first, last: read }))
        });
        ended = batch.is_err();
        Some(batch)
    }))
}

/// Returns the rows of a batch, such that it takes about as much memory as one of a text format.
fn batch_rows(file: &ParquetMetaData) -> usize {
    let is_long = file
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .any(|column| matches!(column.physical_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY));
    let row_bytes = file.row_groups().iter().map(|group| {
        let bytes = u64::try_from(group.total_byte_size()).unwrap_or(0);
        bytes / u64::try_from(group.num_rows()).unwrap_or(0).max(1)
    });
    let fit = BATCH_BYTES as u64 / row_bytes.max().unwrap_or(0).max(1);
    (fit as usize).clamp(1, if is_long { LONG_ROWS } else { ROWS })
}

fn parquet_failed(error: ParquetError) -> Error {
    let why = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => return failed(*error),
            Err(source) => source.to_string(),
        },
        other => other.to_string(),
    };
    Error::new(Kind::Schema, why.chars().take(300).collect::<String>())
}

/// A file in the form that the Parquet reader needs.
struct Chunks(FileReader);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.len
    }
}

impl ChunkReader for Chunks {
    type T = FileReader;

    fn get_read(&self, start: u64) -> ParquetResult<FileReader> {
        Ok(FileReader { file: self.0.file.clone(), at: start.min(self.0.len), len: self.0.len })
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

//! Parquet files, some row groups' worth of rows at a time. Positions are row numbers.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType as Arrow, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use types::{Error, Kind, Result, schema};

use super::arrow_stream;
use super::piece::{ARROW, PIECE_BYTES, Piece, Pieces};

const BATCH_ROWS: usize = 8_192;
const PIECE_ROWS_MAX: u64 = 131_072;

/// A Parquet file being cut.
pub struct Parquet {
    path: std::path::PathBuf,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    /// Which columns of the file are taken: Polynya's own are made anew.
    columns: Vec<usize>,
    position: u64,
    pub rows: u64,
}

impl Parquet {
    /// `renames`: columns that are called otherwise in the table, old and new name.
    pub fn open(path: &Path, position: u64, renames: &[(String, String)]) -> Result<Self> {
        let (reader, file_schema, rows) = open(path, position)?;
        let is_taken = |i: &usize| {
            let own = [schema::ROW_ID_NAME, lake::ROW_ID_NAME, schema::TIME_NAME];
            !own.contains(&file_schema.field(*i).name().as_str())
        };
        let columns: Vec<usize> = (0..file_schema.fields().len()).filter(is_taken).collect();
        let fields = columns.iter().map(|i| {
            let field = file_schema.field(*i);
            let renamed = renames.iter().find(|(old, _)| old == field.name());
            let name = renamed.map_or(field.name(), |(_, new)| new);
            Field::new(name, ours(field.data_type()), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Parquet { path: path.to_owned(), reader, schema, columns, position, rows })
    }

    /// The columns that are taken, as tables hold them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let column = |(i, field): (&usize, &Arc<Field>)| -> Result<ArrayRef> {
            let array = batch.column(*i);
            cast_with_options(array, field.data_type(), &options).map_err(|error| {
                Error::new(
                    Kind::Schema,
                    format!(
                        "column `{}` ({}) cannot become {}",
                        field.name(),
                        array.data_type(),
                        field.data_type()
                    ),
                )
                .caused_by(error)
            })
        };
        let arrays = self.columns.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(self.schema.clone(), arrays).map_err(|error| damaged(&self.path, &error))
    }
}

fn open(path: &Path, position: u64) -> Result<(ParquetRecordBatchReader, SchemaRef, u64)> {
    let file = File::open(path).map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(path, &error))?;
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
    let schema = builder.schema().clone();
    let offset = usize::try_from(position).unwrap_or(usize::MAX);
    let reader = builder
        .with_offset(offset)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| damaged(path, &error))?;
    Ok((reader, schema, rows))
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("{} is no Parquet file that can be read: {error}", path.display()))
}

impl Pieces for Parquet {
    fn next(&mut self) -> Result<Option<Piece>> {
        let start = self.position;
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut bytes = 0;
        while bytes < PIECE_BYTES && self.position - start < PIECE_ROWS_MAX {
            let Some(batch) = self.reader.next() else { break };
            let batch = self.convert(&batch.map_err(|error| damaged(&self.path, &error))?)?;
            bytes += batch.get_array_memory_size();
            self.position += batch.num_rows() as u64;
            batches.push(batch);
        }
        let rows = self.position - start;
        if rows == 0 {
            return Ok(None);
        }
        let batch = concat_batches(&self.schema, &batches).map_err(|error| damaged(&self.path, &error))?;
        let body = arrow_stream(&batch)?;
        Ok(Some(Piece { end: self.position, line: self.position, rows, content_type: ARROW, body }))
    }
}

/// The type among those that a table can hold that takes an Arrow type's values whole.
fn ours(arrow: &Arrow) -> Arrow {
    match arrow {
        Arrow::Int8 | Arrow::Int16 | Arrow::UInt8 | Arrow::UInt16 => Arrow::Int32,
        Arrow::UInt32 | Arrow::UInt64 => Arrow::Int64,
        Arrow::Float16 => Arrow::Float32,
        Arrow::LargeUtf8 | Arrow::Utf8View => Arrow::Utf8,
        Arrow::LargeBinary | Arrow::BinaryView => Arrow::Binary,
        Arrow::Dictionary(_, values) => ours(values),
        Arrow::Timestamp(_, _) | Arrow::Date64 => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Arrow::Time32(_) | Arrow::Time64(_) | Arrow::Null => Arrow::Utf8,
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            Arrow::Decimal128(*precision, *scale)
        }
        Arrow::List(item) | Arrow::LargeList(item) => {
            Arrow::List(Arc::new(Field::new(item.name(), ours(item.data_type()), true)))
        }
        Arrow::Struct(fields) => {
            Arrow::Struct(fields.iter().map(|f| Field::new(f.name(), ours(f.data_type()), true)).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int64Array, UInt16Array};
    use arrow::datatypes::Int8Type;
    use parquet::arrow::ArrowWriter;

    use super::*;

    fn write(rows: i64) -> (tempfile::TempDir, std::path::PathBuf) {
        let words: DictionaryArray<Int8Type> =
            (0..rows).map(|i| if i % 2 == 0 { "even" } else { "odd" }).collect();
        let batch = RecordBatch::try_from_iter([
            ("_row_id", Arc::new(Int64Array::from_iter_values(1..=rows)) as ArrayRef),
            ("_polynya_row_id", Arc::new(Int64Array::from_iter_values(1..=rows))),
            ("n", Arc::new(UInt16Array::from_iter_values((0..rows).map(|i| i as u16)))),
            ("word", Arc::new(words)),
        ])
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        (dir, path)
    }

    fn read(piece: &Piece) -> RecordBatch {
        let reader =
            arrow::ipc::reader::StreamReader::try_new(std::io::Cursor::new(&piece.body[..]), None).unwrap();
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    #[test]
    fn columns_come_as_types_that_tables_hold_and_polynyas_own_are_left_out() {
        let (_dir, path) = write(10);
        let piece = Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap();
        let batch = read(&piece);
        let types: Vec<_> =
            batch.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
        assert_eq!(types, [("n".to_owned(), Arrow::Int32), ("word".to_owned(), Arrow::Utf8)]);
        assert_eq!((piece.rows, batch.num_rows()), (10, 10));
    }

    #[test]
    fn a_file_goes_on_from_any_row() {
        let (_dir, path) = write(30_000);
        let whole = Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap();
        assert_eq!((whole.rows, whole.end), (30_000, 30_000));
        let mut resumed = Parquet::open(&path, 12_345, &[]).unwrap();
        let rest = resumed.next().unwrap().unwrap();
        assert_eq!((rest.rows, rest.end), (17_655, 30_000));
        assert_eq!(read(&rest), read(&whole).slice(12_345, 17_655));
        assert_eq!(resumed.next().unwrap(), None);
    }

    #[test]
    fn what_is_no_parquet_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"PAR1 and then nothing").unwrap();
        assert!(Parquet::open(&path, 0, &[]).err().unwrap().to_string().contains("no Parquet file"));
    }
}

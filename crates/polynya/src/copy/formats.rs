//! Rows as CSV and NDJSON. What a format cannot say is refused: nothing comes back as something else.

use std::io::{BufReader, BufWriter};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, StringBuilder};
use arrow::datatypes::{DataType as Arrow, Field, Float32Type, Float64Type, Schema, SchemaRef};
use arrow::json::{ReaderBuilder, WriterBuilder, writer::LineDelimited};
use query::files::{Copy, Format, from_text, to_text};
use types::{Column, DataType, Error, Kind, Result, TableDef, name};

use super::{Input, Output, failed, position};

/// Rows of one batch at most.
const ROWS: usize = 8_192;
/// A batch of CSV ends here too, so that large rows do not add up.
const BATCH_BYTES: usize = 8 << 20;

type Out = BufWriter<Output>;

pub(super) enum Writer {
    Csv {
        writer: Box<csv::Writer<Out>>,
        null: String,
        path: String,
    },
    Ndjson {
        writer: arrow::json::Writer<Out, LineDelimited>,
        path: String,
    },
    #[cfg(feature = "parquet")]
    Parquet(Box<super::parquet::Writer>),
}

impl Writer {
    pub fn new(copy: &Copy, schema: &SchemaRef, out: Out) -> Result<Writer> {
        let path = copy.path.clone();
        match copy.format {
            Format::Csv => {
                let mut writer = csv::WriterBuilder::new().delimiter(copy.delimiter as u8).from_writer(out);
                if copy.header {
                    let names = schema.fields().iter().map(|field| field.name());
                    writer.write_record(names).map_err(|e| csv_failed(&path, e))?;
                }
                Ok(Writer::Csv { writer: Box::new(writer), null: copy.null.clone(), path })
            }
            Format::Ndjson => {
                let writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(out);
                Ok(Writer::Ndjson { writer, path })
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                Ok(Writer::Parquet(Box::new(super::parquet::Writer::new(&path, schema, out)?)))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(no_parquet()),
        }
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = batch.schema();
        match self {
            Writer::Csv { writer, null, path } => {
                let mut texts: Vec<StringArray> = Vec::with_capacity(batch.num_columns());
                for (field, column) in schema.fields().iter().zip(batch.columns()) {
                    let text = to_text(column).map_err(|e| {
                        e.with("column", field.name()).hint("CSV has only single values: copy it as ndjson")
                    })?;
                    let text = text.as_string::<i32>().clone();
                    if text.iter().flatten().any(|value| value == null) {
                        return Err(Error::new(
                            Kind::Schema,
                            format!("`{}` is a value, and would be read as NULL", name::printable(null)),
                        )
                        .with("column", field.name())
                        .hint("choose what stands for NULL: WITH (FORMAT csv, NULL '\\N')"));
                    }
                    texts.push(text);
                }
                for row in 0..batch.num_rows() {
                    let cells = texts.iter().map(|text| match text.is_valid(row) {
                        true => text.value(row),
                        false => null.as_str(),
                    });
                    writer.write_record(cells).map_err(|e| csv_failed(path, e))?;
                }
                Ok(())
            }
            Writer::Ndjson { writer, path } => {
                let (mut fields, mut columns) = (Vec::new(), Vec::new());
                for (field, column) in schema.fields().iter().zip(batch.columns()) {
                    if has_infinite(column) {
                        return Err(Error::new(Kind::Schema, "JSON has no infinite numbers and no NaN")
                            .with("column", field.name())
                            .hint("copy it as csv, or make them NULL in a query"));
                    }
                    let column = match column.data_type() {
                        Arrow::FixedSizeBinary(16) => to_text(column)?,
                        _ => column.clone(),
                    };
                    fields.push(Field::new(field.name(), column.data_type().clone(), true));
                    columns.push(column);
                }
                let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
                    .map_err(|e| Error::internal(format!("rows to be copied make no batch: {e}")))?;
                writer.write(&batch).map_err(|e| arrow_failed(path, e))
            }
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => writer.write(batch),
        }
    }

    pub fn end(self) -> Result<Out> {
        match self {
            Writer::Csv { writer, path, .. } => {
                writer.into_inner().map_err(|e| failed(&path, e.into_error()))
            }
            Writer::Ndjson { mut writer, path } => {
                writer.finish().map_err(|e| arrow_failed(&path, e))?;
                Ok(writer.into_inner())
            }
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => writer.end(),
        }
    }
}

fn has_infinite(array: &ArrayRef) -> bool {
    match array.data_type() {
        Arrow::Float32 => array.as_primitive::<Float32Type>().iter().flatten().any(|v| !v.is_finite()),
        Arrow::Float64 => array.as_primitive::<Float64Type>().iter().flatten().any(|v| !v.is_finite()),
        Arrow::List(_) => has_infinite(array.as_list::<i32>().values()),
        Arrow::FixedSizeList(..) => has_infinite(array.as_fixed_size_list().values()),
        Arrow::Struct(_) => array.as_struct().columns().iter().any(has_infinite),
        _ => false,
    }
}

type Batches = Box<dyn Iterator<Item = Result<RecordBatch>>>;

/// The rows of a file, for these columns of a table: all of them if none is named.
pub(super) fn read(copy: &Copy, def: &TableDef, places: &[usize], input: Input) -> Result<Batches> {
    let named = |places: &[usize]| places.iter().map(|at| def.schema.columns[*at].clone()).collect();
    let all: Vec<usize> = (0..def.schema.columns.len()).collect();
    let mut columns: Vec<Column> = named(if places.is_empty() { &all } else { places });
    match copy.format {
        Format::Csv => {
            let mut reader = csv::ReaderBuilder::new()
                .delimiter(copy.delimiter as u8)
                .has_headers(copy.header)
                .from_reader(buffered(input));
            if copy.header && places.is_empty() {
                let header = reader.headers().map_err(|e| csv_failed(&copy.path, e))?;
                let named_there = header.iter().map(|name| position(def, &(name.to_owned(), false)));
                columns = named(&named_there.collect::<Result<Vec<_>>>()?);
            }
            Ok(Box::new(Csv {
                records: reader.into_records(),
                columns,
                null: copy.null.clone(),
                path: copy.path.clone(),
                row: 0,
                ended: false,
            }))
        }
        Format::Ndjson => {
            let field = |column: &Column| {
                let data_type = match column.data_type {
                    DataType::Uuid => Arrow::Utf8,
                    ref other => other.to_arrow(),
                };
                Field::new(&column.name, data_type, true)
            };
            let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
            let reader = ReaderBuilder::new(schema)
                .with_strict_mode(true)
                .with_batch_size(ROWS)
                .build(buffered(input))
                .map_err(|e| arrow_failed(&copy.path, e))?;
            let path = copy.path.clone();
            Ok(Box::new(reader.map(move |batch| {
                let batch = batch.map_err(|e| arrow_failed(&path, e))?;
                let arrays =
                    columns.iter().zip(batch.columns()).map(|(column, array)| match column.data_type {
                        DataType::Uuid | DataType::Json => typed(array, column),
                        _ => Ok(array.clone()),
                    });
                batch_of(&columns, arrays.collect::<Result<Vec<_>>>()?)
            })))
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => Ok(Box::new(super::parquet::read(&copy.path, def, places, input)?)),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(no_parquet()),
    }
}

fn buffered(input: Input) -> BufReader<Input> {
    BufReader::with_capacity(super::BUFFER_BYTES, input)
}

fn typed(texts: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    from_text(texts, &column.data_type).map_err(|e| e.with("column", &column.name))
}

fn batch_of(columns: &[Column], arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
    let field =
        |(column, array): (&Column, &ArrayRef)| Field::new(&column.name, array.data_type().clone(), true);
    let schema = Schema::new(columns.iter().zip(&arrays).map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), arrays)
        .map_err(|e| Error::invalid(format!("the rows of the file make no batch: {e}")))
}

struct Csv {
    records: csv::StringRecordsIntoIter<BufReader<Input>>,
    columns: Vec<Column>,
    null: String,
    path: String,
    /// Rows that were read.
    row: u64,
    ended: bool,
}

impl Csv {
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut texts: Vec<StringBuilder> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let (mut rows, mut bytes) = (0, 0);
        for record in self.records.by_ref().take(ROWS) {
            let record = record.map_err(|e| csv_failed(&self.path, e))?;
            rows += 1;
            bytes += record.as_slice().len();
            if record.len() != texts.len() {
                let (wanted, found) = (texts.len(), record.len());
                return Err(Error::new(Kind::Schema, format!("{wanted} values expected, {found} found"))
                    .with("row", self.row + rows));
            }
            for (text, cell) in texts.iter_mut().zip(&record) {
                text.append_option(Some(cell).filter(|cell| *cell != self.null));
            }
            if bytes > BATCH_BYTES {
                break;
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        let first = self.row + 1;
        self.row += rows;
        let arrays = self.columns.iter().zip(&mut texts).map(|(column, text)| {
            let texts: ArrayRef = Arc::new(text.finish());
            typed(&texts, column).map_err(|e| e.with("rows", format!("{first} to {}", self.row)))
        });
        batch_of(&self.columns, arrays.collect::<Result<Vec<_>>>()?).map(Some)
    }
}

impl Iterator for Csv {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batch();
        self.ended = !matches!(batch, Ok(Some(_)));
        batch.transpose()
    }
}

fn csv_failed(path: &str, error: csv::Error) -> Error {
    if !error.is_io_error() {
        let shown = name::printable(path);
        return Error::new(Kind::Schema, format!("`{shown}` is not the CSV that is expected: {error}"));
    }
    match error.into_kind() {
        csv::ErrorKind::Io(error) => failed(path, error),
        other => Error::internal(format!("an error of reading is none: {other:?}")),
    }
}

pub(super) fn arrow_failed(path: &str, error: arrow::error::ArrowError) -> Error {
    match error {
        arrow::error::ArrowError::IoError(_, error) => failed(path, error),
        other => {
            let text: String = other.to_string().chars().take(300).collect();
            Error::new(Kind::Schema, format!("`{}` cannot be copied: {text}", name::printable(path)))
        }
    }
}

#[cfg(not(feature = "parquet"))]
fn no_parquet() -> Error {
    Error::invalid("this program was built without Parquet")
        .hint("take csv or ndjson, or build it with the feature `parquet` of the crate `polynya`")
}

//! Rows as the bytes of a file. What a format cannot say is refused: nothing comes back as something else.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType as Arrow, Float32Type, Float64Type, SchemaRef};
use types::{DataType, Error, Kind, Result, name};
use wire::out::json;

use super::ndjson::BOM;
use super::{Copy, Format};
use crate::convert;

/// Writes batch after batch; what is written is appended to `out`, whose owner takes it away.
pub struct Writer(Form);

enum Form {
    Csv {
        delimiter: u8,
        null: String,
        /// The first line, until it was written.
        header: Option<Vec<String>>,
        /// Whether something was written.
        begun: bool,
    },
    Ndjson(json::Writer),
    #[cfg(feature = "parquet")]
    Parquet(Box<super::parquet::Writer>),
}

impl Writer {
    pub fn new(copy: &Copy, schema: &SchemaRef) -> Result<Writer> {
        Ok(Writer(match copy.format {
            Format::Csv => {
                let names = || schema.fields().iter().map(|field| field.name().clone()).collect();
                Form::Csv {
                    delimiter: copy.delimiter as u8,
                    null: copy.null.clone(),
                    header: copy.header.then(names),
                    begun: false,
                }
            }
            Format::Ndjson => Form::Ndjson(json::Writer::exact(schema)),
            #[cfg(feature = "parquet")]
            Format::Parquet => Form::Parquet(Box::new(super::parquet::Writer::new(schema)?)),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => return Err(super::rows::no_parquet()),
        }))
    }

    pub fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.0 {
            Form::Csv { delimiter, null, header, begun } => {
                let (texts, start) = (texts(batch, null)?, out.len());
                let mut writer = csv_writer(*delimiter, out);
                if let Some(names) = header.take() {
                    writer.write_record(names).map_err(csv_failed)?;
                }
                for row in 0..batch.num_rows() {
                    let cells = texts.iter().map(|text| match text.is_valid(row) {
                        true => text.value(row),
                        false => null.as_str(),
                    });
                    writer.write_record(cells).map_err(csv_failed)?;
                }
                writer.flush().map_err(|e| csv_failed(e.into()))?;
                drop(writer);
                mark(begun, start, out);
                Ok(())
            }
            Form::Ndjson(writer) => {
                for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                    if has_infinite(column) {
                        return Err(Error::new(Kind::Schema, "JSON has no infinite numbers and no NaN")
                            .with("column", field.name())
                            .hint("copy it as csv, or make them NULL in a query"));
                    }
                }
                writer.rows(batch, out);
                Ok(())
            }
            #[cfg(feature = "parquet")]
            Form::Parquet(writer) => writer.batch(batch, out),
        }
    }

    /// What stands behind the rows.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.0 {
            Form::Csv { delimiter, header, begun, .. } => {
                let (Some(names), start) = (header.take(), out.len()) else { return Ok(()) };
                let mut writer = csv_writer(*delimiter, out);
                writer.write_record(names).map_err(csv_failed)?;
                writer.flush().map_err(|e| csv_failed(e.into()))?;
                drop(writer);
                mark(begun, start, out);
                Ok(())
            }
            Form::Ndjson(_) => Ok(()),
            #[cfg(feature = "parquet")]
            Form::Parquet(writer) => writer.end(out),
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Form::Csv { .. } => "a writer of CSV",
            Form::Ndjson(_) => "a writer of NDJSON",
            #[cfg(feature = "parquet")]
            Form::Parquet(_) => "a writer of Parquet",
        })
    }
}

/// Who reads a file leaves out a byte order mark that it begins with: before one that belongs to a value stands another.
fn mark(begun: &mut bool, start: usize, out: &mut Vec<u8>) {
    if !*begun && out[start..].starts_with(BOM) {
        out.splice(start..start, BOM.iter().copied());
    }
    *begun |= out.len() > start;
}

fn csv_writer(delimiter: u8, out: &mut Vec<u8>) -> csv::Writer<&mut Vec<u8>> {
    csv::WriterBuilder::new().delimiter(delimiter).from_writer(out)
}

/// The cells of CSV, column by column.
fn texts(batch: &RecordBatch, null: &str) -> Result<Vec<StringArray>> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let texts = columns.map(|(field, column)| {
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
        Ok(text)
    });
    texts.collect()
}

/// Values as text, of which the same values are read again. Refused for what has none: bytes, lists and structs.
fn to_text(values: &ArrayRef) -> Result<ArrayRef> {
    convert::to_column(values, &DataType::String)
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

fn csv_failed(error: csv::Error) -> Error {
    Error::internal(format!("rows cannot be written as CSV: {error}"))
}

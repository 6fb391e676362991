//! Writes rows as the bytes of a file. Values that the format cannot hold are refused, so that nothing is read back as something
//! else.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType as Arrow, Float32Type, Float64Type, SchemaRef};
use dialect::values::convert;
use types::{DataType, Error, Kind, Result};
use wire::out::{csv, json};

use super::ndjson::BOM;
use super::{Copy, Format};

/// Writes batch after batch. Its bytes are appended to `out`, which the caller drains.
pub struct Writer(FormatWriter);

enum FormatWriter {
    Csv {
        delimiter: u8,
        null: String,
        /// The first line, until it is written.
        header: Option<Vec<String>>,
        /// True once anything was written.
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
                FormatWriter::Csv {
                    delimiter: copy.delimiter as u8,
                    null: copy.null.clone(),
                    header: copy.header.then(names),
                    begun: false,
                }
            }
            Format::Ndjson => FormatWriter::Ndjson(json::Writer::exact(schema)),
            #[cfg(feature = "parquet")]
            Format::Parquet => FormatWriter::Parquet(Box::new(super::parquet::Writer::new(schema)?)),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => return Err(super::rows::no_parquet()),
        }))
    }

    pub fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.0 {
            FormatWriter::Csv { delimiter, null, header, begun } => {
                let (texts, start) = (texts(batch)?, out.len());
                if let Some(names) = header.take() {
                    csv_record(*delimiter, null, names.iter().map(|name| Some(name.as_str())), out);
                }
                for row in 0..batch.num_rows() {
                    let cells = texts.iter().map(|text| text.is_valid(row).then(|| text.value(row)));
                    csv_record(*delimiter, null, cells, out);
                }
                double_bom(begun, start, out);
                Ok(())
            }
            FormatWriter::Ndjson(writer) => {
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
            FormatWriter::Parquet(writer) => writer.batch(batch, out),
        }
    }

    /// Writes the end of the file after the last row.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.0 {
            FormatWriter::Csv { delimiter, null, header, begun } => {
                let (Some(names), start) = (header.take(), out.len()) else { return Ok(()) };
                csv_record(*delimiter, null, names.iter().map(|name| Some(name.as_str())), out);
                double_bom(begun, start, out);
                Ok(())
            }
            FormatWriter::Ndjson(_) => Ok(()),
            #[cfg(feature = "parquet")]
            FormatWriter::Parquet(writer) => writer.end(out),
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            FormatWriter::Csv { .. } => "a writer of CSV",
            FormatWriter::Ndjson(_) => "a writer of NDJSON",
            #[cfg(feature = "parquet")]
            FormatWriter::Parquet(_) => "a writer of Parquet",
        })
    }
}

/// Readers drop a byte order mark at the beginning of a file, so one that belongs to the first value is written twice.
fn double_bom(begun: &mut bool, start: usize, out: &mut Vec<u8>) {
    if !*begun && out[start..].starts_with(BOM) {
        out.splice(start..start, BOM.iter().copied());
    }
    *begun |= out.len() > start;
}

/// Writes one line. A text that would be read as NULL is quoted.
fn csv_record<'a>(
    delimiter: u8,
    null: &str,
    cells: impl Iterator<Item = Option<&'a str>>,
    out: &mut Vec<u8>,
) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            out.push(delimiter);
        }
        match cell {
            None => out.extend_from_slice(null.as_bytes()),
            Some(text) if text == null => csv::quoted_field(text.as_bytes(), out),
            Some(text) => csv::field(text.as_bytes(), delimiter, out),
        }
    }
    out.push(b'\n');
}

/// Returns the cells of CSV, column by column.
fn texts(batch: &RecordBatch) -> Result<Vec<StringArray>> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let texts = columns.map(|(field, column)| {
        let text = to_text(column).map_err(|e| {
            e.with("column", field.name()).hint("CSV has only single values: copy it as ndjson")
        })?;
        Ok(text.as_string::<i32>().clone())
    });
    texts.collect()
}

/// Converts values to text that is read back as the same values. Refuses types without such text: bytes, lists and structs.
fn to_text(values: &ArrayRef) -> Result<ArrayRef> {
    let texts = convert::to_column(values, &DataType::String)?;
    let word = match values.data_type() {
        Arrow::Float32 => {
            let floats = values.as_primitive::<Float32Type>();
            floats.iter().map(|v| v.and_then(|v| json::float_word(v.into()))).collect::<Vec<_>>()
        }
        Arrow::Float64 => {
            values.as_primitive::<Float64Type>().iter().map(|v| v.and_then(json::float_word)).collect()
        }
        _ => return Ok(texts),
    };
    if word.iter().all(Option::is_none) {
        return Ok(texts);
    }
    let with_words = texts.as_string::<i32>().iter().zip(word).map(|(text, word)| word.or(text));
    Ok(Arc::new(with_words.collect::<StringArray>()))
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

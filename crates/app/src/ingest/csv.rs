//! CSV: the delimiter, the header and the types are inferred from the first rows; declared types win.
//!
//! A value that does not fit what was inferred stops the file with the line, the column and the flag that cures it:
//! a wrong guess must not silently become nulls.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, StringBuilder};
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::Date32Type;
use csv::{ByteRecord, ReaderBuilder};
use serde_json::json;
use types::{ColumnId, DATES, DataType, Error, Kind, Result, TIMES, name};
use wire::quotes::{Quotes, Unclosed};

use crate::units::counted;

use super::arrow_stream;
use super::piece::{ARROW, PIECE_BYTES, Piece, Pieces};

/// Rows looked at to infer.
const SAMPLE_ROWS: usize = 10_000;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// How a file is to be read: inferred once, then kept with its progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialect {
    pub delimiter: u8,
    pub has_header: bool,
    pub columns: Vec<(String, DataType)>,
}

impl Dialect {
    /// As it is kept with the file's position.
    pub fn to_text(&self) -> String {
        let columns: Vec<_> =
            self.columns.iter().map(|(name, data_type)| json!([name, data_type.to_string()])).collect();
        json!({ "delimiter": self.delimiter, "has_header": self.has_header, "columns": columns }).to_string()
    }

    pub fn from_text(text: &str) -> Result<Self> {
        let read = || -> Option<Dialect> {
            let value: serde_json::Value = serde_json::from_str(text).ok()?;
            let column = |pair: &serde_json::Value| {
                let data_type = DataType::parse(pair[1].as_str()?, &mut ColumnId(0)).ok()?;
                Some((pair[0].as_str()?.to_owned(), data_type))
            };
            Some(Dialect {
                delimiter: u8::try_from(value["delimiter"].as_u64()?).ok()?,
                has_header: value["has_header"].as_bool()?,
                columns: value["columns"].as_array()?.iter().map(column).collect::<Option<_>>()?,
            })
        };
        read().ok_or_else(|| {
            Error::invalid("how this file was read before is not known").hint("begin anew with --again")
        })
    }
}

/// What the user said about a file.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    pub has_header: Option<bool>,
    pub delimiter: Option<u8>,
    /// Types by column name: from `--column NAME:TYPE`, and below them those of an existing table.
    pub types: Vec<(String, DataType)>,
}

/// The delimiter that cuts the first lines into the same number (at least two) of fields.
pub fn delimiter(prefix: &[u8]) -> Option<u8> {
    let fields_of = |delimiter: u8| {
        let records = sample(prefix, delimiter, 50);
        let first = records.first()?.len();
        (first > 1 && records.iter().all(|record| record.len() == first)).then_some((first, delimiter))
    };
    let found = DELIMITERS.into_iter().filter_map(fields_of);
    found.max_by_key(|(fields, _)| *fields).map(|(_, delimiter)| delimiter)
}

/// The delimiter that cuts the first record into most fields: a guess for what is known to be CSV.
fn likely_delimiter(prefix: &[u8]) -> Option<u8> {
    let fields = |delimiter: u8| Some((sample(prefix, delimiter, 1).first()?.len(), delimiter));
    let most = DELIMITERS.into_iter().rev().filter_map(fields).max_by_key(|(fields, _)| *fields)?;
    (most.0 > 1).then_some(most.1)
}

/// The first record whose number of fields is another than the first one's, as a sentence: why text that looks like CSV
/// is none.
pub fn first_uneven(prefix: &[u8]) -> Option<String> {
    let records = sample(prefix, likely_delimiter(prefix)?, 50);
    let width = records.first()?.len();
    let uneven = records.iter().find(|record| record.len() != width)?;
    let line = uneven.position().map_or(0, csv::Position::line);
    Some(uneven_sentence(line, uneven.len(), width))
}

fn uneven_sentence(line: u64, found: usize, wanted: usize) -> String {
    let are = if wanted == 1 { "is" } else { "are" };
    format!("line {line} has {} where {wanted} {are} expected", counted(found as u64, "field"))
}

/// The first whole records of a prefix. The last one may be cut by the prefix's end and is left out unless it is the
/// only one.
fn sample(prefix: &[u8], delimiter: u8, rows_max: usize) -> Vec<ByteRecord> {
    let mut reader = reader(prefix, delimiter);
    let mut records: Vec<ByteRecord> =
        reader.byte_records().map_while(|record| record.ok()).take(rows_max + 1).collect();
    if records.len() > rows_max || (prefix.len() >= super::source::PREFIX_BYTES && records.len() > 1) {
        records.pop();
    }
    records
}

fn reader<R: Read>(input: R, delimiter: u8) -> csv::Reader<R> {
    ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(input)
}

/// Finds out how to read a file from its first bytes.
pub fn infer(prefix: &[u8], declared: &Declared) -> Result<Dialect> {
    let delimiter =
        declared.delimiter.or_else(|| delimiter(prefix)).or_else(|| likely_delimiter(prefix)).unwrap_or(b',');
    let records = sample(prefix, delimiter, SAMPLE_ROWS);
    let Some(first) = records.first() else { return Err(Error::invalid("there is no row in this file")) };
    // A header is text that names no number: a first row with a number, a date or an empty field is data.
    let is_title = |field: &[u8]| !field.is_empty() && matches!(type_of(field), Some(DataType::String));
    let has_header = declared.has_header.unwrap_or_else(|| first.iter().all(is_title));
    let width = first.len();
    let rows = &records[usize::from(has_header)..];
    let mut columns = Vec::with_capacity(width);
    let mut names = HashSet::new();
    for i in 0..width {
        let title = match has_header {
            true => String::from_utf8_lossy(&first[i]).trim().to_owned(),
            false => String::new(),
        };
        let title = if title.is_empty() { format!("column{}", i + 1) } else { title };
        if !names.insert(title.to_lowercase()) {
            return Err(Error::invalid(format!("two columns are called `{}`", name::printable(&title)))
                .hint("rename one in the first line, or use --no-header"));
        }
        let known = declared.types.iter().find(|(known, _)| known.eq_ignore_ascii_case(&title));
        let data_type = match known {
            Some((_, data_type)) => data_type.clone(),
            None => rows
                .iter()
                .filter_map(|row| row.get(i))
                .filter_map(type_of)
                .reduce(join)
                .unwrap_or(DataType::String),
        };
        columns.push((title, data_type));
    }
    Ok(Dialect { delimiter, has_header, columns })
}

/// The narrowest type that a field's text fits; `None` if it is empty.
fn type_of(field: &[u8]) -> Option<DataType> {
    let Ok(text) = std::str::from_utf8(field) else { return Some(DataType::String) };
    if text.is_empty() {
        return None;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    // `007` is a name, not a number: as one it would lose its zeros.
    let padded =
        digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let begins_like_a_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    Some(match text {
        _ if padded || text.starts_with('+') => DataType::String,
        _ if text.parse::<i64>().is_ok() => DataType::Int64,
        // A whole number beyond 64 bits would lose digits as a float.
        _ if digits.bytes().all(|byte| byte.is_ascii_digit()) => DataType::String,
        _ if begins_like_a_number && text.parse::<f64>().is_ok() => DataType::Float64,
        "NaN" | "inf" | "-inf" => DataType::Float64,
        _ if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") => DataType::Bool,
        // What lies beyond the years that columns of times hold stays a text.
        _ if text.len() == 10 && Date32Type::parse(text).is_some_and(|day| DATES.contains(&day)) => {
            DataType::Date
        }
        _ if text.len() > 10
            && begins_like_a_number
            && string_to_datetime(&arrow_utc(), text)
                .is_ok_and(|time| TIMES.contains(&time.timestamp_micros())) =>
        {
            DataType::Timestamp
        }
        _ => DataType::String,
    })
}

fn arrow_utc() -> arrow::array::timezone::Tz {
    "+00:00".parse().expect("an offset of nothing is a time zone")
}

/// The narrowest type that holds both.
fn join(a: DataType, b: DataType) -> DataType {
    match (&a, &b) {
        _ if a == b => a,
        (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) => DataType::Float64,
        (DataType::Date, DataType::Timestamp) | (DataType::Timestamp, DataType::Date) => DataType::Timestamp,
        _ => DataType::String,
    }
}

fn unreadable(line: u64, error: csv::Error) -> Error {
    if let csv::ErrorKind::Io(io) = error.kind()
        && let Some(unclosed) = Unclosed::error_of(io)
    {
        return unclosed;
    }
    Error::invalid(format!("line {line} cannot be read: {error}"))
}

/// A CSV source being cut.
pub struct Csv {
    reader: csv::Reader<Quotes<Box<dyn Read + Send>>>,
    dialect: Dialect,
    /// Where the reader began in the source.
    base: u64,
    base_line: u64,
}

impl Csv {
    /// `position` 0 begins with the header, if there is one.
    pub fn new(reader: Box<dyn Read + Send>, dialect: Dialect, position: u64, line: u64) -> Self {
        let reader = self::reader(Quotes::new(reader, dialect.delimiter, line), dialect.delimiter);
        Csv { reader, dialect, base: position, base_line: line }
    }

    fn position(&self) -> u64 {
        self.base + self.reader.position().byte()
    }

    fn line(&self) -> u64 {
        self.base_line + self.reader.position().line() - 1
    }

    fn convert(&self, column: usize, texts: ArrayRef, lines: &[u64]) -> Result<ArrayRef> {
        let (title, data_type) = &self.dialect.columns[column];
        let target = data_type.to_arrow();
        let unreadable = |error: arrow::error::ArrowError| {
            Error::invalid(format!("column `{title}` cannot be read as {data_type}")).caused_by(error)
        };
        // Unreadable values become nulls here, so that the first of them can be named.
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let converted = cast_with_options(&texts, &target, &options).map_err(unreadable)?;
        if converted.null_count() > texts.null_count()
            && let Some(row) = (0..texts.len()).find(|row| converted.is_null(*row) && texts.is_valid(*row))
        {
            let found = texts.as_any().downcast_ref::<StringArray>().map_or("", |texts| texts.value(row));
            return Err(Error::new(
                Kind::Schema,
                format!(
                    "line {}, column `{title}`: `{}` is no {data_type}",
                    lines[row],
                    name::printable(found)
                ),
            )
            .hint(format!("read it as text with --column '{title}:string'")));
        }
        Ok(converted)
    }
}

impl Pieces for Csv {
    fn next(&mut self) -> Result<Option<Piece>> {
        let width = self.dialect.columns.len();
        let mut record = ByteRecord::new();
        let mut builders: Vec<StringBuilder> = (0..width).map(|_| StringBuilder::new()).collect();
        let mut lines = Vec::new();
        let start = self.position();
        let wanted = start + PIECE_BYTES as u64;
        while self.position() < wanted {
            let line = self.line() + 1;
            let is_header = self.dialect.has_header && self.position() == 0;
            let more = self.reader.read_byte_record(&mut record).map_err(|error| unreadable(line, error))?;
            if !more {
                break;
            }
            // The reader skips blank lines; the record knows where it really stood.
            let line = record.position().map_or(line, |position| self.base_line + position.line());
            if is_header {
                continue;
            }
            if record.len() != width {
                return Err(Error::new(
                    Kind::Schema,
                    uneven_sentence(line, record.len(), width),
                )
                .hint("is the delimiter right? `--delimiter` names another, and fields that hold it need quotes"));
            }
            for (i, (builder, field)) in builders.iter_mut().zip(&record).enumerate() {
                match std::str::from_utf8(field) {
                    // An empty field is nothing, except where text is expected and quotes cannot be told.
                    Ok("") => builder.append_null(),
                    Ok(text) => builder.append_value(text),
                    Err(_) => {
                        return Err(Error::invalid(format!(
                            "line {line}, column `{}` is not UTF-8",
                            self.dialect.columns[i].0
                        ))
                        .hint("convert the file first, for example `iconv -f latin1 -t utf8`"));
                    }
                }
            }
            lines.push(line);
        }
        if lines.is_empty() && self.position() == start {
            return Ok(None);
        }
        let mut arrays = Vec::with_capacity(width);
        for (i, mut builder) in builders.into_iter().enumerate() {
            let array = self.convert(i, Arc::new(builder.finish()), &lines)?;
            arrays.push((self.dialect.columns[i].0.clone(), array, true));
        }
        let batch = RecordBatch::try_from_iter_with_nullable(arrays)
            .map_err(|error| Error::internal("CSV rows do not make a batch").caused_by(error))?;
        let body = arrow_stream(&batch)?;
        let (end, line, rows) = (self.position(), self.line(), lines.len() as u64);
        Ok(Some(Piece { end, line, rows, content_type: ARROW, body }))
    }
}

#[cfg(test)]
mod tests;

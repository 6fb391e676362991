//! CSV sources. The delimiter, the header and the types are inferred from the first rows; declared types win.
//!
//! A value that does not fit its inferred type is an error that names the line, the column and the flag that helps. A wrong
//! guess must not silently become nulls.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use csv::{ByteRecord, ReaderBuilder};
use serde_json::json;
use types::{ColumnId, DataType, Error, Field, Kind, Result, name};
use wire::csv::{ColumnBuilder, Reader, infer};

use crate::units::counted;

use super::arrow_stream;
use super::piece::{ARROW, PIECE_BYTES, Pieces, SourcePiece};

/// Rows from which the types are inferred, at most.
const SAMPLE_ROWS: usize = 10_000;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The form of a CSV file: inferred once, then stored with the file's position.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialect {
    pub delimiter: u8,
    pub has_header: bool,
    pub columns: Vec<(String, DataType)>,
}

impl Dialect {
    /// Formats the dialect as JSON, to be stored with the file's position.
    pub fn to_text(&self) -> String {
        let columns: Vec<_> =
            self.columns.iter().map(|(name, data_type)| json!([name, data_type.to_string()])).collect();
        json!({ "delimiter": self.delimiter, "has_header": self.has_header, "columns": columns }).to_string()
    }

    /// Parses a stored dialect.
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
            Error::invalid("it is not known how this file was read before").hint("start over with --again")
        })
    }
}

/// The form of a file as the user declared it by flags.
#[derive(Clone, Debug, Default)]
pub struct CsvOptions {
    pub has_header: Option<bool>,
    pub delimiter: Option<u8>,
    /// Types by column name: first those of `--column NAME:TYPE`, then those of an existing table. The first match counts.
    pub types: Vec<(String, DataType)>,
}

/// Finds the delimiter that splits each of the first records into the same number of fields, at least two. Of several, the
/// one with most fields wins.
pub fn delimiter(prefix: &[u8]) -> Option<u8> {
    let fields_of = |delimiter: u8| {
        let records = sample(prefix, delimiter, 50);
        let first = records.first()?.len();
        (first > 1 && records.iter().all(|record| record.len() == first)).then_some((first, delimiter))
    };
    let found = DELIMITERS.into_iter().filter_map(fields_of);
    found.max_by_key(|(fields, _)| *fields).map(|(_, delimiter)| delimiter)
}

/// Finds the delimiter that splits the first record into most fields: a guess for a text that is known to be CSV.
fn likely_delimiter(prefix: &[u8]) -> Option<u8> {
    let fields = |delimiter: u8| Some((sample(prefix, delimiter, 1).first()?.len(), delimiter));
    let most = DELIMITERS.into_iter().rev().filter_map(fields).max_by_key(|(fields, _)| *fields)?;
    (most.0 > 1).then_some(most.1)
}

/// Describes the first record that has another number of fields than the very first one, to explain why a text that looks
/// like CSV is not recognised as such.
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

/// Returns the first records of a prefix. The last one may be truncated by the prefix's end, and is left out unless it is
/// the only one.
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

/// Infers the dialect of a file from its first bytes. Fails with `invalid` if there is no row, or if two columns have the
/// same name.
pub fn infer(prefix: &[u8], declared: &CsvOptions) -> Result<Dialect> {
    let delimiter =
        declared.delimiter.or_else(|| delimiter(prefix)).or_else(|| likely_delimiter(prefix)).unwrap_or(b',');
    let records = sample(prefix, delimiter, SAMPLE_ROWS);
    let Some(first) = records.first() else { return Err(Error::invalid("there is no row in this file")) };
    // All fields of a header are text. A first row with a number, a date or an empty field is data.
    let is_title = |field: &[u8]| !field.is_empty() && matches!(type_of(field), Some(DataType::String));
    let has_header = declared.has_header.unwrap_or_else(|| first.iter().all(is_title));
    let width = first.len();
    let rows = &records[usize::from(has_header)..];
    let mut columns = Vec::with_capacity(width);
    let mut names = HashSet::new();
    for i in 0..width {
        let title =
            if has_header { String::from_utf8_lossy(&first[i]).trim().to_owned() } else { String::new() };
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
                .reduce(infer::join)
                .unwrap_or(DataType::String),
        };
        columns.push((title, data_type));
    }
    Ok(Dialect { delimiter, has_header, columns })
}

/// Returns the narrowest type that a field's text fits; `None` for an empty field.
fn type_of(field: &[u8]) -> Option<DataType> {
    std::str::from_utf8(field).map_or(Some(DataType::String), |text| infer::type_of(text, true))
}

/// A CSV source that is being cut into pieces.
pub struct Csv {
    reader: Reader<Box<dyn Read + Send>>,
    dialect: Dialect,
    /// Position in the source at which the reader began.
    base: u64,
}

impl Csv {
    /// Makes a source of `reader`, which stands at `position` of the file, after `line` lines. At position 0 the header
    /// comes first, if the dialect has one.
    pub fn new(reader: Box<dyn Read + Send>, dialect: Dialect, position: u64, line: u64) -> Self {
        let reader = Reader::new(reader, dialect.delimiter, line);
        let mut csv = Csv { reader, dialect, base: position };
        if !csv.begins_with_header() {
            csv.take_empty_lines();
        }
        csv
    }

    fn begins_with_header(&self) -> bool {
        self.dialect.has_header && self.position() == 0
    }

    /// Reads empty lines as rows if there is one column: such a line is a row whose value is null.
    fn take_empty_lines(&mut self) {
        if self.dialect.columns.len() == 1 {
            self.reader.take_empty_lines();
        }
    }

    fn position(&self) -> u64 {
        self.base + self.reader.position()
    }
}

impl Pieces for Csv {
    fn next(&mut self) -> Result<Option<SourcePiece>> {
        let mut columns: Vec<ColumnBuilder> =
            self.dialect.columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type)).collect();
        let mut ends = Vec::new();
        let start = self.position();
        let wanted = start + PIECE_BYTES as u64;
        while self.position() < wanted {
            let is_header = self.begins_with_header();
            let Some(record) = self.reader.read().map_err(|failed| failed.error)? else { break };
            let line = record.line;
            if is_header {
                self.take_empty_lines();
                continue;
            }
            if record.len() != columns.len() {
                return Err(Error::new(
                    Kind::Schema,
                    uneven_sentence(line, record.len(), columns.len()),
                )
                .hint("is the delimiter right? `--delimiter` names another, and fields that hold it need quotes"));
            }
            for (at, (cells, (title, data_type))) in columns.iter_mut().zip(&self.dialect.columns).enumerate()
            {
                let field = record.text(at).map_err(|_| {
                    Error::invalid(format!("line {line}, column `{title}` is not UTF-8"))
                        .hint("convert the file first, for example `iconv -f latin1 -t utf8`")
                })?;
                cells.push(field, record.is_quoted(at)).map_err(|error| match error.kind() {
                    Kind::Schema => {
                        let found = name::printable(field);
                        let what =
                            format!("line {line}, column `{title}`: `{found}` is not a valid {data_type}");
                        Error::new(Kind::Schema, what)
                            .hint(format!("read it as text with --column '{title}:string'"))
                    }
                    _ => error,
                })?;
            }
            ends.push((self.position(), self.reader.lines()));
        }
        let rows = ends.len() as u64;
        if rows == 0 && self.position() == start {
            return Ok(None);
        }
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (cells, (title, data_type)) in columns.into_iter().zip(&self.dialect.columns) {
            // The Arrow field carries the extension types json and uuid, from which a new column gets its type.
            let (name, data_type) = (title.clone(), data_type.clone());
            fields.push(Field { id: ColumnId(0), name, data_type, nullable: true }.to_arrow());
            arrays.push(cells.finish()?);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| Error::internal("CSV rows do not make a batch").caused_by(error))?;
        let body = arrow_stream(&batch)?;
        let (end, line) = (self.position(), self.reader.lines());
        Ok(Some(SourcePiece { end, line, rows, content_type: ARROW, body, ends }))
    }
}

#[cfg(test)]
mod tests;

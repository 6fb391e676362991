//! Rows as CSV (RFC 4180): the first line names the columns, and fields may be quoted.
//!
//! A value is parsed by its column's type, in the form that [`crate::out`] writes and in the usual forms of other
//! programs: dates, times, uuids and decimals as text; `true`, `t`, `yes`, `on`, `1` and their opposites; base64, or
//! `\x` and hexadecimal digits; lists, structs, vectors, points and json columns as JSON; for floats also `NaN`,
//! `Infinity` and `-Infinity`. An empty field is null, and `""` is the empty value in columns of strings and binaries.
//! If the body has one column, an empty line is a row with a null; otherwise empty lines are skipped. A column that
//! the table lacks gets the narrowest type of [`infer`] that holds all its values; without any value it is not made.
//!
//! Three faults are refused although CSV readers accept them silently: a quote that is never closed, because the rest
//! of the file would be one field; text after a closing quote; and a carriage return without a line feed.

pub mod infer;
pub(crate) mod quotes;
mod reader;

use arrow::array::{Array, ArrayRef, AsArray};
use types::{DataType, Error, Kind};

use super::column::{ColumnBuffer, ValueFault};
use super::row_collector::{Misfit, RowCollector};
use super::sift::{OnError, SiftedRows, bounded};
use super::{Budget, DecodeTarget, DecodedRows, Limits, RefusedBody};

pub use reader::{ReadFailure, Reader, Record, failed};

/// The byte order mark U+FEFF, with which some programs begin a text file.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Decodes every row of a body. If any row is bad, none is taken, and the error names all bad rows with line and
/// column, up to a limit.
pub fn decode(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<DecodedRows, RefusedBody> {
    read(body, target, limits, OnError::Refuse).map(|sifted| sifted.rows)
}

/// Decodes the good rows of a body and reports the bad ones.
pub fn sift(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<SiftedRows, RefusedBody> {
    read(body, target, limits, OnError::Skip)
}

fn read(
    body: &[u8],
    target: DecodeTarget<'_>,
    limits: &Limits,
    on_error: OnError,
) -> Result<SiftedRows, RefusedBody> {
    let mut reader = Reader::new(body, b',', limits.before.lines);
    let header: Vec<String> = match reader.read().map_err(with_line)? {
        Some(header) => header.texts().map(|name| name.map(str::to_owned)).collect::<Result<_, _>>()?,
        None => {
            return Err(Error::invalid("the body has no line")
                .hint("the first line names the columns, each further one is a row")
                .into());
        }
    };
    let new = || ColumnBuffer::new(&DataType::String);
    let mut collector = RowCollector::new(header.iter().map(String::as_str), target, limits, on_error, new)?;
    if header.len() == 1 {
        reader.take_empty_lines();
    }
    while let Some(record) = reader.read().map_err(with_line)? {
        let raw = &body[record.start as usize..record.end as usize];
        // A row that is an empty line consists only of its line end, which therefore belongs to it.
        let own = trimmed(raw).len().max(usize::from(!raw.is_empty()));
        let start = record.end as usize - own;
        let shown = || String::from_utf8_lossy(trimmed(raw)).trim_end().to_owned();
        let more = collector.row(start, Some(record.line), shown, |body_columns, budget| {
            if record.len() != body_columns.len() {
                let (wanted, found) = (body_columns.len(), record.len());
                return Err(Misfit::of_row(format!("{wanted} values expected, {found} found")));
            }
            for (at, body_column) in body_columns.iter_mut().enumerate() {
                let misfit = |fault| Misfit { body_column: Some(at), fault };
                let text =
                    record.text(at).map_err(|error| misfit(ValueFault::Misfit(error.message().into())))?;
                let is_quoted = text.is_empty() && record.is_quoted(at);
                body_column.column.push_csv(text, is_quoted, budget).map_err(misfit)?;
            }
            Ok(())
        })?;
        if !more {
            break;
        }
    }
    let mut sifted = collector.finish(row_at, |texts, _, budget| inferred(&texts, budget))?;
    sifted.origins.has_lines = true;
    Ok(sifted)
}

/// Removes the line ends in front of a record.
fn trimmed(raw: &[u8]) -> &[u8] {
    &raw[raw.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(raw.len())..]
}

/// Returns the text of the row that begins at byte `start`.
fn row_at(body: &[u8], start: usize) -> String {
    let rest = &body[start..];
    bounded(&String::from_utf8_lossy(&rest[..quotes::record_len(rest)])).to_owned()
}

/// Builds a column field by field, for callers that know its type and read the records themselves.
#[derive(Debug)]
pub struct ColumnBuilder {
    column: ColumnBuffer,
    budget: Budget,
}

impl ColumnBuilder {
    pub fn new(data_type: &DataType) -> Self {
        ColumnBuilder {
            column: ColumnBuffer::new(data_type),
            budget: Budget::new(Limits::default().decoded_bytes_max),
        }
    }

    /// Appends a field; `is_quoted` tells whether it was quoted. [`Kind::Schema`] if the text is not a value of the
    /// type, and then nothing is appended.
    pub fn push(&mut self, text: &str, is_quoted: bool) -> Result<(), Error> {
        let len = self.column.len;
        self.column.push_csv(text, is_quoted, &mut self.budget).map_err(|fault| {
            self.column.truncate(len);
            match fault {
                ValueFault::Misfit(message) => Error::new(Kind::Schema, message),
                ValueFault::Malformed(at) => Error::new(Kind::Schema, format!("{} expected", at.expected)),
                ValueFault::Limit(error) => error,
            }
        })
    }

    pub fn finish(self) -> Result<ArrayRef, Error> {
        self.column.finish()?.ok_or_else(|| Error::internal("a column of CSV without a type"))
    }
}

/// Adds the line to an error of the reader, unless its message has it already.
fn with_line(failed: ReadFailure) -> Error {
    let ReadFailure { line, error } = failed;
    match error.kind() {
        Kind::Schema | Kind::TooLarge => {
            let said = Error::new(error.kind(), format!("line {line}: {}", error.message()));
            match error.hint_text() {
                Some(hint) => said.hint(hint),
                None => said,
            }
        }
        _ => error,
    }
}

/// Converts the texts of a new column to the narrowest type that holds them all. `None` if all are null.
fn inferred(texts: &ArrayRef, budget: &mut Budget) -> Result<Option<(ArrayRef, DataType)>, Error> {
    let texts_of = texts.as_string::<i32>();
    let found = texts_of.iter().flatten().filter_map(|text| infer::type_of(text, false)).reduce(infer::join);
    let data_type = match found {
        Some(data_type) => data_type,
        // All texts are empty and quoted.
        None if texts_of.null_count() < texts_of.len() => DataType::String,
        None => return Ok(None),
    };
    if data_type == DataType::String {
        return Ok(Some((texts.clone(), data_type)));
    }
    let mut column = ColumnBuffer::new(&data_type);
    for text in texts_of {
        match column.push_csv(text.unwrap_or(""), false, budget) {
            Ok(()) => {}
            Err(ValueFault::Limit(error)) => return Err(error),
            // The column has an integer that the floats beside it cannot represent.
            Err(_) => return Ok(Some((texts.clone(), DataType::String))),
        }
    }
    Ok(column.finish()?.map(|array| (array, data_type)))
}

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;

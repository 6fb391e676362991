//! Rows as CSV (RFC 4180): the first line names the columns, fields may stand in quotes.
//!
//! A value is read as its column's type, as [`crate::out`] writes it and as programs usually do: dates, times, uuids,
//! decimals as text, `true`, `t`, `yes`, `on`, `1` and their opposites, base64 (or `\x` and hexadecimal digits), lists,
//! structs, vectors, points and json columns as JSON. An empty field is null; `""` is the empty text in columns of texts and
//! bytes. Where the body has one column, an empty line is a row that is null; elsewhere empty lines are passed over. Floats are
//! `NaN`, `Infinity` and `-Infinity` too. A column that the table lacks gets the narrowest type of [`infer`] that holds all of
//! its values, and none if it has no value.
//!
//! A quote that is never closed is refused: a reader takes the rest of the file for one field then. So are text behind a
//! closing quote and a carriage return alone, of which a reader makes something all the same.

pub mod infer;
pub(crate) mod quotes;
mod reader;

use arrow::array::{Array, ArrayRef, AsArray};
use types::{DataType, Error, Kind};

use super::column::{Column, Fault};
use super::gather::{Gather, Misfit};
use super::sift::{OnError, Sifted, bounded};
use super::{Budget, Limits, Refused, Rows, Target};

pub use reader::{Failed, Reader, Record, failed};

/// What some programs begin a file of text with: U+FEFF.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads every row of a body. If any is bad, none is taken and all bad ones are named with line and column, up to a limit.
pub fn decode(body: &[u8], target: Target<'_>, limits: &Limits) -> Result<Rows, Refused> {
    read(body, target, limits, OnError::Refuse).map(|sifted| sifted.rows)
}

/// The good rows of a body.
pub fn sift(body: &[u8], target: Target<'_>, limits: &Limits) -> Result<Sifted, Refused> {
    read(body, target, limits, OnError::Skip)
}

fn read(body: &[u8], target: Target<'_>, limits: &Limits, on_error: OnError) -> Result<Sifted, Refused> {
    let mut reader = Reader::new(body, b',', limits.before.lines);
    let header: Vec<String> = match reader.read().map_err(placed)? {
        Some(header) => header.texts().map(|name| name.map(str::to_owned)).collect::<Result<_, _>>()?,
        None => {
            return Err(Error::invalid("the body has no line")
                .hint("the first line names the columns, each further one is a row")
                .into());
        }
    };
    let new = || Column::new(&DataType::String);
    let mut gather = Gather::new(header.iter().map(String::as_str), target, limits, on_error, new)?;
    if header.len() == 1 {
        reader.take_empty_lines();
    }
    while let Some(record) = reader.read().map_err(placed)? {
        let raw = &body[record.start as usize..record.end as usize];
        // An empty line that is a row has nothing but its end, which belongs to it.
        let own = trimmed(raw).len().max(usize::from(!raw.is_empty()));
        let start = record.end as usize - own;
        let shown = || String::from_utf8_lossy(trimmed(raw)).trim_end().to_owned();
        let more = gather.row(start, Some(record.line), shown, |places, budget| {
            if record.len() != places.len() {
                let (wanted, found) = (places.len(), record.len());
                return Err(Misfit::of_row(format!("{wanted} values expected, {found} found")));
            }
            for (at, place) in places.iter_mut().enumerate() {
                let misfit = |fault| Misfit { place: Some(at), fault };
                let text = record.text(at).map_err(|error| misfit(Fault::Misfit(error.message().into())))?;
                let is_quoted = text.is_empty() && record.is_quoted(at);
                place.column.cell(text, is_quoted, budget).map_err(misfit)?;
            }
            Ok(())
        })?;
        if !more {
            break;
        }
    }
    let mut sifted = gather.finish(row_at, |texts, _, budget| inferred(&texts, budget))?;
    sifted.origins.has_lines = true;
    Ok(sifted)
}

/// Without the ends of lines before it.
fn trimmed(raw: &[u8]) -> &[u8] {
    &raw[raw.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(raw.len())..]
}

/// The row that begins at a byte.
fn row_at(body: &[u8], start: usize) -> String {
    let rest = &body[start..];
    bounded(&String::from_utf8_lossy(&rest[..quotes::record_len(rest)])).to_owned()
}

/// A column that is made of cells one by one, for those who know its type and read the records themselves.
#[derive(Debug)]
pub struct Cells {
    column: Column,
    budget: Budget,
}

impl Cells {
    pub fn new(data_type: &DataType) -> Self {
        Cells { column: Column::new(data_type), budget: Budget::new(Limits::default().decoded_bytes_max) }
    }

    /// Takes the text of a field, `is_quoted` if it stands in quotes. [`Kind::Schema`] if it is no value of the type; then it was
    /// not taken.
    pub fn push(&mut self, text: &str, is_quoted: bool) -> Result<(), Error> {
        let len = self.column.len;
        self.column.cell(text, is_quoted, &mut self.budget).map_err(|fault| {
            self.column.truncate(len);
            match fault {
                Fault::Misfit(message) => Error::new(Kind::Schema, message),
                Fault::Malformed(at) => Error::new(Kind::Schema, format!("{} expected", at.expected)),
                Fault::Limit(error) => error,
            }
        })
    }

    pub fn finish(self) -> Result<ArrayRef, Error> {
        self.column.finish()?.ok_or_else(|| Error::internal("a column of CSV without a type"))
    }
}

/// An error of the reader with its line, unless it says it.
fn placed(failed: Failed) -> Error {
    let Failed { line, error } = failed;
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

/// The texts of a new column as the narrowest type that holds them all.
fn inferred(texts: &ArrayRef, budget: &mut Budget) -> Result<Option<(ArrayRef, DataType)>, Error> {
    let texts_of = texts.as_string::<i32>();
    let found = texts_of.iter().flatten().filter_map(|text| infer::type_of(text, false)).reduce(infer::join);
    let data_type = match found {
        Some(data_type) => data_type,
        // Texts that are all empty, in quotes.
        None if texts_of.null_count() < texts_of.len() => DataType::String,
        None => return Ok(None),
    };
    if data_type == DataType::String {
        return Ok(Some((texts.clone(), data_type)));
    }
    let mut column = Column::new(&data_type);
    for text in texts_of {
        match column.cell(text.unwrap_or(""), false, budget) {
            Ok(()) => {}
            Err(Fault::Limit(error)) => return Err(error),
            // An integer that the floats beside it cannot hold.
            Err(_) => return Ok(Some((texts.clone(), DataType::String))),
        }
    }
    Ok(column.finish()?.map(|array| (array, data_type)))
}

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;

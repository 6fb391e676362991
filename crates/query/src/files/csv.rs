//! Rows out of CSV.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use csv::StringRecord;
use types::{Column, Error, Kind, Result};

use super::Copy;
use super::input::{Bounded, Input, failed};
use super::rows::{self, BATCH_BYTES, BUFFER_BYTES, Lines, ROWS};

/// CSV whose columns are not known yet: see [`Rows::header`].
pub(super) struct Rows {
    reader: csv::Reader<Bounded>,
    null: String,
}

impl Rows {
    pub fn new(copy: &Copy, input: Input) -> Result<Self> {
        let reader = csv::ReaderBuilder::new()
            .delimiter(copy.delimiter as u8)
            .has_headers(copy.header)
            // Counted here, so that the error says it in our words.
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(input.reader()?);
        Ok(Rows { reader, null: copy.null.clone() })
    }

    /// The names in the first line, if it has names. An empty file has none.
    pub fn header(&mut self, copy: &Copy) -> Result<Option<StringRecord>> {
        if !copy.header {
            return Ok(None);
        }
        let header = self.reader.headers().map_err(|error| csv_failed(error, 1))?.clone();
        Ok(Some(header).filter(|header| !header.is_empty()))
    }

    pub fn of(self, columns: Vec<Column>) -> Csv {
        Csv { rows: self, columns, record: StringRecord::new(), ended: false }
    }
}

pub(super) struct Csv {
    rows: Rows,
    columns: Vec<Column>,
    record: StringRecord,
    ended: bool,
}

impl Csv {
    fn batch(&mut self) -> Result<Option<(RecordBatch, Lines)>> {
        let mut texts: Vec<StringBuilder> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < ROWS && bytes <= BATCH_BYTES {
            let begins = self.rows.reader.position().line();
            let read = self.rows.reader.read_record(&mut self.record);
            if !read.map_err(|error| csv_failed(error, begins))? {
                break;
            }
            self.rows.reader.get_mut().row_was_read();
            let line = self.record.position().map_or(0, csv::Position::line);
            if self.record.len() != texts.len() {
                let (wanted, found) = (texts.len(), self.record.len());
                let error = Error::new(Kind::Schema, format!("{wanted} values expected, {found} found"));
                return Err(rows::at(format_args!("line {line}"), None, error));
            }
            lines.push(line);
            bytes += self.record.as_slice().len();
            for (text, cell) in texts.iter_mut().zip(&self.record) {
                text.append_option(Some(cell).filter(|cell| *cell != self.rows.null));
            }
        }
        let (Some(first), Some(last)) = (lines.first().copied(), lines.last().copied()) else {
            return Ok(None);
        };
        let texts: Vec<ArrayRef> = texts.iter_mut().map(|text| Arc::new(text.finish()) as ArrayRef).collect();
        let typed = |texts: &[ArrayRef]| -> Result<Vec<ArrayRef>, (usize, Error)> {
            let columns = self.columns.iter().zip(texts).enumerate();
            let typed = columns.map(|(at, (column, texts))| {
                let array = rows::typed(texts, column).map_err(|error| (at, error))?;
                rows::check_null(column, &array).map_err(|error| (at, error))?;
                Ok(array)
            });
            typed.collect()
        };
        let arrays = typed(&texts).map_err(|(column, error)| {
            // Once more, row by row, to say which.
            let found = lines.iter().enumerate().find_map(|(row, line)| {
                let row: Vec<ArrayRef> = texts.iter().map(|texts| texts.slice(row, 1)).collect();
                typed(&row).err().map(|(column, error)| (*line, column, error))
            });
            match found {
                Some((line, column, error)) => {
                    rows::at(format_args!("line {line}"), Some(&self.columns[column].name), error)
                }
                None => {
                    rows::at(format_args!("lines {first} to {last}"), Some(&self.columns[column].name), error)
                }
            }
        })?;
        rows::batch_of(&self.columns, arrays).map(|batch| Some((batch, Lines { first, last })))
    }
}

impl Iterator for Csv {
    type Item = Result<(RecordBatch, Lines)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batch();
        self.ended = !matches!(batch, Ok(Some(_)));
        batch.transpose()
    }
}

fn csv_failed(error: csv::Error, line: u64) -> Error {
    let line = error.position().map_or(line, csv::Position::line);
    let error = match error.into_kind() {
        csv::ErrorKind::Io(error) => failed(error),
        csv::ErrorKind::Utf8 { err, .. } => Error::new(Kind::Schema, format!("no UTF-8: {err}")),
        other => Error::internal(format!("CSV that is read leniently is refused: {other:?}")),
    };
    match error.kind() {
        Kind::Schema | Kind::TooLarge => rows::at(format_args!("line {line}"), None, error),
        _ => error,
    }
}

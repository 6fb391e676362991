//! Reads rows from CSV. [`wire::csv`] splits the records.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use types::{Column, DataType, EpochUnit, Error, Kind, Result, TableDef};
use wire::csv::{ReadFailure, Reader};

use super::Copy;
use super::input::{Input, RowLimitedReader};
use super::rows::{self, BATCH_BYTES, LineRange, ROWS};

/// A CSV reader before its columns are known; see [`CsvInput::header`].
pub(super) struct CsvInput {
    reader: Reader<RowLimitedReader>,
    null: String,
}

impl CsvInput {
    pub fn new(copy: &Copy, input: Input) -> Result<Self> {
        let reader = Reader::new(input.reader()?, copy.delimiter as u8, 0);
        Ok(CsvInput { reader, null: copy.null.clone() })
    }

    /// Reads the names in the first line, if COPY says HEADER. An empty file has none.
    pub fn header(&mut self, copy: &Copy) -> Result<Option<Vec<String>>> {
        if !copy.header {
            return Ok(None);
        }
        let Some(record) = self.reader.read().map_err(error_at_line)? else { return Ok(None) };
        let line = record.line;
        let names = record.texts().map(|name| name.map(str::to_owned));
        names.collect::<Result<_>>().map(Some).map_err(|error| error_at_line(ReadFailure { line, error }))
    }

    pub fn of(mut self, columns: Vec<Column>, def: &TableDef) -> CsvRows {
        if columns.len() == 1 {
            self.reader.take_empty_lines();
        }
        let units = columns.iter().map(|column| def.input_of(column.id)).collect();
        CsvRows { rows: self, columns, units, ended: false }
    }
}

pub(super) struct CsvRows {
    rows: CsvInput,
    columns: Vec<Column>,
    /// The unit of numbers, for each timestamp column that declares one.
    units: Vec<Option<EpochUnit>>,
    ended: bool,
}

impl CsvRows {
    fn batch(&mut self) -> Result<Option<(RecordBatch, LineRange)>> {
        let mut texts: Vec<StringBuilder> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut time = Vec::new();
        while lines.len() < ROWS && bytes <= BATCH_BYTES {
            let Some(record) = self.rows.reader.read().map_err(error_at_line)? else { break };
            let line = record.line;
            if record.len() != texts.len() {
                let (wanted, found) = (texts.len(), record.len());
                let error = Error::new(Kind::Schema, format!("{wanted} values expected, {found} found"));
                return Err(error_at_line(ReadFailure { line, error }));
            }
            lines.push(line);
            bytes += record.bytes();
            for (at, (text, column)) in texts.iter_mut().zip(&self.columns).enumerate() {
                let cell = record.text(at).map_err(|error| error_at_line(ReadFailure { line, error }))?;
                let is_null = is_null(cell, record.is_quoted(at), column, &self.rows.null);
                match self.units[at].filter(|_| !is_null).and_then(|unit| unit.micros(cell.trim())) {
                    Some(micros) => {
                        time.clear();
                        wire::text::write_timestamp(micros, &mut time);
                        text.append_value(String::from_utf8_lossy(&time));
                    }
                    None => text.append_option((!is_null).then_some(cell)),
                }
            }
            self.rows.reader.get_mut().row_was_read();
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
            // Converts again row by row, to find the bad one.
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
        rows::batch_of(&self.columns, arrays).map(|batch| Some((batch, LineRange { first, last })))
    }
}

impl Iterator for CsvRows {
    type Item = Result<(RecordBatch, LineRange)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batch();
        self.ended = !matches!(batch, Ok(Some(_)));
        batch.transpose()
    }
}

/// Returns true if a cell is NULL. The text of NULL means NULL only outside of quotes; in quotes it is a text. Some programs
/// quote all cells, even empty ones, so an empty quoted cell is NULL in a column that cannot hold an empty value.
fn is_null(cell: &str, is_quoted: bool, column: &Column, null: &str) -> bool {
    let holds_empty = matches!(column.data_type, DataType::String | DataType::Binary);
    if is_quoted { cell.is_empty() && null.is_empty() && !holds_empty } else { cell == null }
}

/// Returns the error of a record, with its line.
fn error_at_line(failed: ReadFailure) -> Error {
    match failed.error.kind() {
        Kind::Schema | Kind::TooLarge => rows::at(format_args!("line {}", failed.line), None, failed.error),
        _ => failed.error,
    }
}

#[cfg(test)]
mod tests {
    use types::{DataType, TableDef, TableId};

    use super::super::{Input, parse_copy, read};
    use crate::files::LineRange;

    fn def() -> TableDef {
        let mut def = TableDef::new(TableId(1), "main.t");
        for (name, data_type) in [("n", DataType::Int64), ("s", DataType::String)] {
            def.add_column(name, &data_type, true, None).unwrap();
        }
        def
    }

    fn lines(text: &'static str, header: bool) -> Result<Vec<LineRange>, String> {
        let statement = if header { "COPY t FROM STDIN (HEADER)" } else { "COPY t FROM STDIN" };
        let copy = parse_copy(statement, 1_000).unwrap().unwrap();
        let input = Input::Stream(Box::new(text.as_bytes()));
        let rows = read(&copy, &def(), &[], input).map_err(|e| e.to_string())?;
        rows.map(|row| row.map(|(_, lines)| lines).map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn a_row_is_named_by_its_first_line_whatever_ends_lines() {
        for (text, header, wanted) in [
            ("1,a\nx,b\n", false, "line 2,"),
            ("1,a\nx,b", false, "line 2,"),
            ("1,a\r\n2,b\r\nx,c\r\n", false, "line 3,"),
            ("1,a\n\n\nx,b", false, "line 4,"),
            ("n,s\nx,b\n", true, "line 2,"),
            ("1,\"a\nb\nc\"\nx,\"d\ne\"\n", false, "line 4,"),
            ("\u{feff}n,s\n1,a\nx,b\n", true, "line 3,"),
        ] {
            let error = lines(text, header).unwrap_err();
            assert!(error.starts_with(wanted) && error.contains("column `n`: `x`"), "{text:?}: {error}");
        }
        assert_eq!(lines("1,a\n2,\"b\n\"\n", false), Ok(vec![LineRange { first: 1, last: 2 }]));
        assert_eq!(lines("1,a\r\n\r\n2,\"b\nc\"\n3,d", false), Ok(vec![LineRange { first: 1, last: 5 }]));
        assert_eq!(lines("", true), Ok(vec![]));
    }

    /// The rest of the file was once taken for a text, and the rows in it were lost.
    #[test]
    fn a_quote_that_is_never_closed_is_refused_with_its_line() {
        for (text, header, line) in [
            ("1,a\n2,\"b\n3,c\n4,d\n5,e\n", false, 2),
            ("1,a\n\"3,4\n5,6\n", false, 2),
            ("1,a\n2,\"", false, 2),
            ("1,\"a\nb\"\n2,\"\"\"b\"\"\n", false, 3),
            ("\u{feff}n,\"s\n1,a\n", true, 1),
        ] {
            let error = lines(text, header).unwrap_err();
            let wanted = format!("line {line}: a quote opens here and is never closed; ");
            assert!(error.starts_with(&wanted), "{text:?}: {error}");
        }
        let whole = "1,5\" pipe\n2,\"a \"\"b\"\"\"\n3,\"\"\n";
        assert_eq!(lines(whole, false), Ok(vec![LineRange { first: 1, last: 3 }]));
    }
}

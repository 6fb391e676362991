//! Reads rows from JSON objects, normally one per line. An object may span several lines, and a line may contain several. Values
//! mean the same as in posted rows: [`wire::json`].

use std::io::Read;

use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use types::{Column, Error, Kind, Result, TableDef, name};
use wire::Limits;
pub(super) use wire::csv::BOM;
use wire::json::{DecodeTarget, decode};
use wire::parser::{Parser, SyntaxError};

use super::input::{Input, RowLimitedReader, failed};
use super::rows::{self, BUFFER_BYTES, LineRange, ROWS};

pub(super) struct NdjsonRows {
    input: RowLimitedReader,
    /// The table's definition, reduced to the wanted columns.
    def: TableDef,
    /// Bytes that were read and not decoded yet.
    block: Vec<u8>,
    /// Number of the line in which `block` begins.
    line: u64,
    begun: bool,
    at_end: bool,
    ended: bool,
}

/// The complete objects at the beginning of a text.
struct Objects {
    starts: Vec<usize>,
    /// Offset of the end of the last object.
    end: usize,
    /// The error that stopped the search; `None` at the end of the text, or if there were enough objects.
    stopped: Option<SyntaxError>,
}

impl NdjsonRows {
    pub fn new(def: &TableDef, mut columns: Vec<Column>, input: Input) -> Result<Self> {
        // Defaults are for columns that the file does not contain at all.
        columns.iter_mut().for_each(|column| column.default = None);
        let mut def = def.clone();
        def.schema.columns = columns;
        let (input, block) = (input.reader()?, Vec::new());
        Ok(NdjsonRows { input, def, block, line: 1, begun: false, at_end: false, ended: false })
    }

    /// Reads until there are `wanted` bytes, or until the end.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        while !self.at_end && self.block.len() < wanted {
            let len = self.block.len();
            self.block.resize(len + BUFFER_BYTES, 0);
            let count = loop {
                match self.input.read(&mut self.block[len..]) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.block.truncate(len + count.as_ref().copied().unwrap_or(0));
            self.at_end = count.map_err(|error| self.not_read(error))? == 0;
            if !self.begun && (self.at_end || self.block.len() >= BOM.len()) {
                self.begun = true;
                if self.block.starts_with(BOM) {
                    self.block.drain(..BOM.len());
                }
            }
        }
        Ok(())
    }

    fn not_read(&self, error: std::io::Error) -> Error {
        let error = failed(error);
        match error.kind() {
            Kind::TooLarge => {
                let begin = self.block.iter().position(|byte| !byte.is_ascii_whitespace());
                self.at(begin.unwrap_or(0), None, error)
            }
            _ => error,
        }
    }

    /// Returns an error with the line of a byte of the block.
    fn at(&self, byte: usize, column: Option<&str>, error: Error) -> Error {
        rows::at(format_args!("line {}", self.line_of(byte)), column, error)
    }

    fn line_of(&self, byte: usize) -> u64 {
        self.line + newlines(&self.block[..byte.min(self.block.len())])
    }

    fn batch(&mut self) -> Result<Option<(RecordBatch, LineRange)>> {
        let mut wanted = FILL_BYTES;
        let objects = loop {
            self.fill(wanted)?;
            let text = self.text()?;
            let objects = objects(text);
            if !objects.starts.is_empty() {
                break objects;
            }
            match objects.stopped {
                None if self.at_end && text.len() == self.block.len() => return Ok(None),
                // No value spans lines, so one that is malformed before the end of a line stays malformed.
                Some(malformed) if self.at_end || text[malformed.at..].contains('\n') => {
                    return Err(self.malformed(text, malformed));
                }
                _ => wanted = self.block.len() * 2 + FILL_BYTES,
            }
        };
        let (mut starts, mut end) = (&objects.starts[..], objects.end);
        let batch = loop {
            match self.decoded(starts, end) {
                // The rows are wide: decode fewer at once.
                Err(error) if error.kind() == Kind::TooLarge && starts.len() > 1 => {
                    let half = starts.len() / 2;
                    (starts, end) = (&starts[..half], starts[half]);
                }
                decoded => break decoded?,
            }
        };
        let lines = LineRange { first: self.line_of(starts[0]), last: self.line_of(end) };
        self.line = lines.last;
        self.block.drain(..end);
        self.input.row_was_read();
        Ok(Some((batch, lines)))
    }

    /// Returns the block as text, as far as it is valid UTF-8.
    fn text(&self) -> Result<&str> {
        match std::str::from_utf8(&self.block) {
            Ok(text) => Ok(text),
            // The rest of a cut character may follow.
            Err(cut) if cut.error_len().is_none() && !self.at_end || cut.valid_up_to() > 0 => {
                Ok(std::str::from_utf8(&self.block[..cut.valid_up_to()]).expect("it was found valid so far"))
            }
            Err(cut) => Err(self.at(cut.valid_up_to(), None, Error::new(Kind::Schema, "not UTF-8"))),
        }
    }

    fn malformed(&self, text: &str, malformed: SyntaxError) -> Error {
        let begin = text.len() - text.trim_start().len();
        if text.len() < self.block.len() && malformed.at == text.len() {
            return self.at(malformed.at, None, Error::new(Kind::Schema, "not UTF-8"));
        }
        let message = match text[malformed.at..].chars().next() {
            None => "the last object is not closed".to_owned(),
            Some(found) => {
                format!("not JSON: {} expected, `{}` found", malformed.expected, found.escape_debug())
            }
        };
        self.at(begin, None, Error::new(Kind::Schema, message))
    }

    /// Decodes the objects into the table's columns.
    fn decoded(&self, starts: &[usize], end: usize) -> Result<RecordBatch> {
        let table = name::short_table_name(&self.def.name);
        let target = DecodeTarget { table, def: Some(&self.def), may_add_columns: false };
        let limits = Limits { bad_rows_max: 1, ..Limits::default() };
        let decoded = decode(&self.block[..end], target, &limits).map_err(|refused| {
            let Some(bad) = refused.rows.first() else { return refused.error };
            // The hint of `decode` is meant for posted rows.
            let said = Error::new(Kind::Schema, &bad.message);
            self.at(starts.get(bad.row - 1).copied().unwrap_or(end), bad.column.as_deref(), said)
        })?;
        let arrays = self.def.schema.columns.iter().map(|column| {
            let array = match decoded.batch.column_by_name(&column.name) {
                Some(array) => array.clone(),
                None => new_null_array(&column.data_type.to_arrow(), starts.len()),
            };
            rows::check_null(column, &array).map_err(|error| {
                let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or(0);
                self.at(starts[row], Some(&column.name), error)
            })?;
            Ok(array)
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        rows::batch_of(&self.def.schema.columns, arrays)
    }
}

/// Bytes that are read before objects are searched.
const FILL_BYTES: usize = 1 << 20;

fn objects(text: &str) -> Objects {
    let mut parser = Parser::new(text);
    let mut objects = Objects { starts: Vec::new(), end: 0, stopped: None };
    while objects.starts.len() < ROWS {
        let start = match parser.peek() {
            None => break,
            Some(b'{') => parser.at(),
            Some(_) => {
                objects.stopped =
                    Some(SyntaxError { at: parser.at(), expected: "an object (`{`) for each row" });
                break;
            }
        };
        if let Err(malformed) = parser.skip() {
            objects.stopped = Some(malformed);
            break;
        }
        objects.starts.push(start);
        objects.end = parser.at();
    }
    objects
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Iterator for NdjsonRows {
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

//! Rows out of objects of JSON, one a line. One may take several lines, and a line may have several.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType as Arrow, Field, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;
use types::{Column, DataType, Error, Kind, Result};

use super::input::{Bounded, Input, failed};
use super::rows::{self, BUFFER_BYTES, Lines, ROWS};

pub(super) struct Rows {
    input: Bounded,
    columns: Vec<Column>,
    schema: SchemaRef,
    /// Bytes that were read and are no batch yet; they begin with a line.
    block: Vec<u8>,
    /// The number of that line.
    line: u64,
    begun: bool,
    at_end: bool,
    ended: bool,
}

impl Rows {
    pub fn new(columns: Vec<Column>, input: Input) -> Result<Self> {
        let field = |column: &Column| {
            let data_type = match column.data_type {
                DataType::Uuid => Arrow::Utf8,
                ref other => other.to_arrow(),
            };
            Field::new(&column.name, data_type, true)
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let input = input.reader()?;
        let block = Vec::new();
        Ok(Rows { input, columns, schema, block, line: 1, begun: false, at_end: false, ended: false })
    }

    fn decoder(&self) -> Result<Decoder> {
        ReaderBuilder::new(self.schema.clone())
            .with_strict_mode(true)
            .with_batch_size(ROWS)
            .build_decoder()
            .map_err(rows::arrow_failed)
    }

    /// Reads on until there are some lines behind `from`, or the end of all.
    fn fill(&mut self, from: usize) -> Result<()> {
        while !self.at_end {
            let new = self.block.get(from..).unwrap_or_default();
            if new.len() >= FILL_BYTES && new.contains(&b'\n') {
                return Ok(());
            }
            let len = self.block.len();
            self.block.resize(len + BUFFER_BYTES, 0);
            let count = loop {
                match self.input.read(&mut self.block[len..]) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.block.truncate(len + count.as_ref().copied().unwrap_or(0));
            self.at_end = count.map_err(|error| self.not_read(from, error))? == 0;
            if !self.begun && (self.at_end || self.block.len() >= BOM.len()) {
                self.begun = true;
                if self.block.starts_with(BOM) {
                    self.block.drain(..BOM.len());
                }
            }
        }
        Ok(())
    }

    fn not_read(&self, from: usize, error: std::io::Error) -> Error {
        let error = failed(error);
        match error.kind() {
            Kind::TooLarge => {
                let line = self.line + newlines(&self.block[..from.min(self.block.len())]);
                rows::at(format_args!("line {line}"), None, error)
            }
            _ => error,
        }
    }

    /// The end of the whole lines behind `from`, of no more than a batch has rows.
    fn whole_lines(&self, from: usize) -> usize {
        let ends = self.block[from..].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let (mut end, mut count) = (from, 0);
        for (at, _) in ends.take(ROWS) {
            (end, count) = (from + at + 1, count + 1);
        }
        if self.at_end && count < ROWS { self.block.len() } else { end }
    }

    fn batch(&mut self) -> Result<Option<(RecordBatch, Lines)>> {
        loop {
            let mut decoder = self.decoder()?;
            // How much of the block the decoder has taken.
            let mut taken = 0;
            loop {
                self.fill(taken)?;
                let end = self.whole_lines(taken);
                let decoded = decoder.decode(&self.block[taken..end]).map_err(rows::arrow_failed);
                taken += decoded.map_err(|error| self.located(end, (None, error)))?;
                // It stops where a batch is full.
                if taken < end || !decoder.has_partial_record() {
                    break;
                }
                if self.at_end && taken == self.block.len() {
                    let error = Error::new(Kind::Schema, "the last object is not closed");
                    return Err(self.located(taken, (None, error)));
                }
            }
            let batch = decoder.flush().map_err(|error| (None, rows::arrow_failed(error)));
            let batch = batch.and_then(|batch| self.finished(batch));
            let batch = batch.map_err(|misfit| self.located(taken, misfit))?;
            let first = self.line;
            self.line += newlines(&self.block[..taken]);
            let last = if self.block[..taken].ends_with(b"\n") { self.line - 1 } else { self.line };
            self.block.drain(..taken);
            self.input.row_was_read();
            match batch {
                Some(batch) => return Ok(Some((batch, Lines { first, last: last.max(first) }))),
                None if self.at_end && self.block.is_empty() => return Ok(None),
                // Lines without objects.
                None => {}
            }
        }
    }

    /// What Arrow read, as the table wants it.
    fn finished(&self, batch: Option<RecordBatch>) -> Result<Option<RecordBatch>, Misfit> {
        let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) else { return Ok(None) };
        let arrays = self.columns.iter().zip(batch.columns()).map(|(column, array)| {
            let named = |error: Error| (Some(column.name.clone()), error);
            let array: ArrayRef = match column.data_type {
                DataType::Uuid | DataType::Json => rows::typed(array, column).map_err(named)?,
                _ => array.clone(),
            };
            rows::check_null(column, &array).map_err(named)?;
            Ok(array)
        });
        let arrays = arrays.collect::<Result<Vec<_>, Misfit>>()?;
        rows::batch_of(&self.columns, arrays).map(Some).map_err(|error| (None, error))
    }

    /// What something in the first `len` bytes of the block led to, with its line: they are read once more, line by line.
    fn located(&self, len: usize, misfit: Misfit) -> Error {
        let Ok(mut decoder) = self.decoder() else { return misfit.1 };
        let (mut line, mut begun) = (self.line, self.line);
        for text in self.block[..len].split_inclusive(|byte| *byte == b'\n') {
            if !decoder.has_partial_record() {
                begun = line;
            }
            if let Err((column, error)) = self.read_again(&mut decoder, text) {
                return rows::at(format_args!("line {begun}"), column.as_deref(), error);
            }
            line += 1;
        }
        rows::at(format_args!("line {begun}"), misfit.0.as_deref(), misfit.1)
    }

    /// The objects that end in a line.
    fn read_again(&self, decoder: &mut Decoder, mut line: &[u8]) -> Result<(), Misfit> {
        while !line.is_empty() {
            let count = decoder.decode(line).map_err(|error| (None, rows::arrow_failed(error)))?;
            line = &line[count..];
            if !decoder.has_partial_record() {
                let batch = decoder.flush().map_err(|error| (None, rows::arrow_failed(error)))?;
                self.finished(batch)?;
            }
        }
        Ok(())
    }
}

/// What does not fit, and its column where one is known.
type Misfit = (Option<String>, Error);

/// So much is read before lines are looked for.
const FILL_BYTES: usize = 1 << 20;
/// What some programs put before UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Iterator for Rows {
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

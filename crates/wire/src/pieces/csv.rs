//! Cuts CSV between records. Each piece repeats the header line.

use std::io::Read;

use types::Result;

use super::{StreamBuffer, StreamPiece};
use crate::StreamOffset;
use crate::csv::quotes;
use crate::sift::newlines;

#[derive(Default)]
pub(super) struct CsvCutter {
    header: Option<Vec<u8>>,
    /// True if there is only one column, so that an empty line is a row.
    takes_empty_lines: bool,
}

impl CsvCutter {
    pub fn next<R: Read>(&mut self, source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
        let header = match &self.header {
            Some(header) => header.clone(),
            None => {
                source.take_mark()?;
                let end = loop {
                    let is_over = is_over(source)?;
                    match quotes::first_end(&source.buffer) {
                        Some(end) => break end,
                        None if is_over || source.ended => break source.buffer.len(),
                        None => source.more()?,
                    }
                };
                let header = source.take(end);
                self.header = Some(header.clone());
                self.takes_empty_lines = quotes::has_one_field(&header);
                if self.is_over(source)? {
                    // A header without rows is a piece too, so that faults of its names are reported.
                    return Ok(Some(StreamPiece::whole(header, StreamOffset::default(), false)));
                }
                header
            }
        };
        if self.is_over(source)? {
            return Ok(None);
        }
        source.fill(source.piece_bytes)?;
        let end = loop {
            let near = &source.buffer[..source.piece_bytes.min(source.buffer.len())];
            match quotes::last_end(near).or_else(|| quotes::first_end(&source.buffer)) {
                Some(end) => break end,
                None if source.ended => break source.buffer.len(),
                None => source.more()?,
            }
        };
        // Line numbers continue as if the header stood right before these rows.
        let mut before = source.before;
        before.lines = before.lines.saturating_sub(newlines(&header));
        before.bytes = before.bytes.saturating_sub(header.len());
        let mut body = header;
        if !body.ends_with(b"\n") {
            body.push(b'\n');
        }
        body.append(&mut source.take(end));
        Ok(Some(StreamPiece::whole(body, before, false)))
    }

    /// Returns true if no row is left.
    fn is_over<R: Read>(&self, source: &mut StreamBuffer<R>) -> Result<bool> {
        if !self.takes_empty_lines {
            return is_over(source);
        }
        if source.buffer.is_empty() && !source.ended {
            source.fill(source.piece_bytes)?;
        }
        Ok(source.buffer.is_empty())
    }
}

/// Removes line ends at the beginning, and returns true if nothing is left.
fn is_over<R: Read>(source: &mut StreamBuffer<R>) -> Result<bool> {
    loop {
        let ends = source.buffer.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        let ends = ends.unwrap_or(source.buffer.len());
        // A carriage return alone is not a line end.
        source.take(source.buffer[..ends].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        if !source.buffer.is_empty() || source.ended {
            return Ok(source.buffer.is_empty());
        }
        source.fill(source.piece_bytes)?;
    }
}

//! A stream of rows cut into pieces of whole rows, as it comes: each piece is a body of its own, and means what its rows meant
//! where they stood.
//!
//! Memory holds a piece and what was read behind it. A row may have [`ROW_BYTES_MAX`].

mod arrow;
mod csv;
mod json;
mod protobuf;

use std::io::{ErrorKind, Read};

use types::{Error, Kind, Result};

use super::Before;
use super::csv::failed;

/// How much a piece has, about; a larger row is one alone.
pub const PIECE_BYTES: usize = 16 << 20;
/// What a row may have that is not all there yet.
pub const ROW_BYTES_MAX: usize = 64 << 20;
/// What is read at once, at most.
const READ_BYTES: usize = 256 << 10;

/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Objects or one array; `lines`: each line is a row for certain.
    Json {
        lines: bool,
    },
    Csv,
    Arrow,
    Protobuf,
}

/// Some rows of a stream.
#[derive(Debug, PartialEq)]
pub struct Piece {
    pub body: Vec<u8>,
    /// What came before it; of the rows only whoever reads them knows.
    pub before: Before,
    /// Of JSON: whether each of its lines is a row for certain.
    pub lines: bool,
}

/// A stream being cut.
pub struct Pieces<R> {
    source: Source<R>,
    cut: Cut,
}

enum Cut {
    Json(json::Cut),
    Csv(csv::Cut),
    Arrow(arrow::Cut),
    Protobuf(protobuf::Cut),
}

impl<R: Read> Pieces<R> {
    pub fn new(kind: Form, source: R) -> Self {
        Self::of(kind, source, PIECE_BYTES, ROW_BYTES_MAX)
    }

    fn of(kind: Form, source: R, piece_bytes: usize, row_bytes_max: usize) -> Self {
        let cut = match kind {
            Form::Json { lines } => Cut::Json(json::Cut::new(lines)),
            Form::Csv => Cut::Csv(csv::Cut::default()),
            Form::Arrow => Cut::Arrow(arrow::Cut::default()),
            Form::Protobuf => Cut::Protobuf(protobuf::Cut::default()),
        };
        let buffer = Vec::new();
        Pieces {
            source: Source {
                inner: source,
                buffer,
                before: Before::default(),
                ended: false,
                piece_bytes,
                row_bytes_max,
            },
            cut,
        }
    }

    /// The next piece; `None` at the end. What is wrong with the rows is said by whoever reads the piece.
    #[allow(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<Piece>> {
        match &mut self.cut {
            Cut::Json(cut) => cut.next(&mut self.source),
            Cut::Csv(cut) => cut.next(&mut self.source),
            Cut::Arrow(cut) => cut.next(&mut self.source),
            Cut::Protobuf(cut) => cut.next(&mut self.source),
        }
    }
}

impl<R> Pieces<R> {
    /// Whether what came, if no piece did, is an array without elements and not nothing.
    pub fn is_empty_array(&self) -> bool {
        matches!(&self.cut, Cut::Json(cut) if cut.is_closed())
    }
}

/// What was read and is in no piece yet.
struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Of the buffer's first byte.
    before: Before,
    ended: bool,
    piece_bytes: usize,
    row_bytes_max: usize,
}

impl<R: Read> Source<R> {
    /// Reads on until the buffer has so much, or all there is.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        while !self.ended && self.buffer.len() < wanted {
            let len = self.buffer.len();
            self.buffer.resize(len + READ_BYTES.min(wanted - len), 0);
            let read = self.inner.read(&mut self.buffer[len..]);
            self.buffer.truncate(len + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(count) => self.ended = count == 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// The first byte that is no space, once those before it were taken away; `None` at the end.
    fn first(&mut self) -> Result<Option<u8>> {
        loop {
            let spaces = self.buffer.len() - self.buffer.trim_ascii_start().len();
            self.take(spaces);
            if let Some(byte) = self.buffer.first() {
                return Ok(Some(*byte));
            }
            if self.ended {
                return Ok(None);
            }
            self.fill(self.piece_bytes)?;
        }
    }

    /// Reads on where what is there holds no whole row. Fails where a row has more than it may.
    fn more(&mut self) -> Result<()> {
        let len = self.buffer.len();
        if len >= self.row_bytes_max {
            let message = format!("a row of more than {} MiB", self.row_bytes_max >> 20);
            return Err(Error::new(Kind::TooLarge, message)
                .with("line", self.before.lines + 1)
                .hint("is a quote or a bracket not closed?"));
        }
        self.fill((len * 2).max(self.piece_bytes).max(16).min(self.row_bytes_max))
    }

    /// Takes the first bytes away.
    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(count);
        let taken = std::mem::replace(&mut self.buffer, rest);
        self.before.bytes += taken.len();
        self.before.lines += super::sift::newlines(&taken);
        taken
    }
}

#[cfg(test)]
mod tests;

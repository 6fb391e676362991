//! A stream of rows cut into pieces of whole rows, as it comes: each piece is a body of its own, and means what its rows meant
//! where they stood.
//!
//! Memory holds a piece and what was read behind it. A row may have [`ROW_BYTES_MAX`].

mod arrow;
mod csv;
mod json;
mod protobuf;

use std::io::{ErrorKind, Read};

use prost::bytes::Bytes;
use types::{Error, Kind, Result};

use super::csv::{BOM, failed};
use super::{Before, Part};

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
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub body: Bytes,
    /// What came before it; of the rows only whoever reads them knows.
    pub before: Before,
    /// Of JSON: whether each of its lines is a row for certain.
    pub lines: bool,
    /// Which of the body's rows it is, if not all: some of one batch of Arrow.
    pub part: Option<Part>,
}

impl Piece {
    fn whole(body: Vec<u8>, before: Before, lines: bool) -> Self {
        Piece { body: body.into(), before, lines, part: None }
    }

    /// The same rows in smaller pieces, for where they take too much once they are read; one of one row stays alone.
    pub fn divided(&self, form: Form) -> Result<Vec<Piece>> {
        let form = match form {
            Form::Json { .. } => Form::Json { lines: self.lines },
            other => other,
        };
        let mut bytes = if self.part.is_none() { self.body.len() / 2 } else { 0 };
        while bytes > 0 {
            let mut cut = Pieces::of(form, &self.body[..], bytes, usize::MAX);
            cut.source.before = self.before;
            if let (true, Cut::Json(cut)) = (self.lines, &mut cut.cut) {
                cut.is_among_rows();
            }
            let mut pieces = Vec::new();
            while let Some(piece) = cut.next()? {
                pieces.push(piece);
                // What is left is the other half.
                cut.source.piece_bytes = usize::MAX;
            }
            if pieces.len() > 1 {
                return Ok(pieces);
            }
            // A message of Arrow is one piece by now; of other rows the first may be the larger half.
            bytes = if form == Form::Arrow { 0 } else { bytes / 2 };
        }
        let rows = match (form, self.part) {
            (_, Some(part)) => part,
            (Form::Arrow, None) => Part { first: 0, rows: arrow::rows(&self.body)? },
            _ => Part { first: 0, rows: 1 },
        };
        let half = rows.rows / 2;
        let parts = [
            Part { first: rows.first, rows: half },
            Part { first: rows.first + half, rows: rows.rows - half },
        ];
        let parts = parts.into_iter().filter(|part| part.rows > 0);
        Ok(parts.map(|part| Piece { part: Some(part), ..self.clone() }).collect())
    }
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
        Pieces { source: Source::new(source, piece_bytes, row_bytes_max), cut }
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
    fn new(inner: R, piece_bytes: usize, row_bytes_max: usize) -> Self {
        let (buffer, before) = (Vec::new(), Before::default());
        Source { inner, buffer, before, ended: false, piece_bytes, row_bytes_max }
    }

    /// Takes a byte order mark away, with which a stream may begin and none of its pieces does.
    fn take_mark(&mut self) -> Result<()> {
        self.fill(BOM.len())?;
        if self.before == Before::default() && self.buffer.starts_with(BOM) {
            self.take(BOM.len());
        }
        Ok(())
    }

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

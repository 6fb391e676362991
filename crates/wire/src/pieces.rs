//! Cuts a stream of rows into pieces of whole rows while it is read. Each piece is a body of its own, and its rows
//! mean the same as in the stream.
//!
//! Memory holds one piece and the bytes read after it. A row may have up to [`ROW_BYTES_MAX`].

mod arrow;
mod csv;
mod json;
mod protobuf;

use std::io::{ErrorKind, Read};

use prost::bytes::Bytes;
use types::{Error, Kind, Result};

use super::csv::{BOM, failed};
use super::{RowRange, StreamOffset};

/// The approximate size of a piece in bytes; a larger row is a piece alone.
pub const PIECE_BYTES: usize = 16 << 20;
/// The greatest size of a row in bytes, for a row that has not been read completely.
pub const ROW_BYTES_MAX: usize = 64 << 20;
/// Bytes read at once, at most.
const READ_BYTES: usize = 256 << 10;

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    /// Objects or one array. `lines` declares that each line is a row.
    Json {
        lines: bool,
    },
    Csv,
    Arrow,
    Protobuf,
}

/// Some rows of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPiece {
    pub body: Bytes,
    /// The part of the stream before it. Its row count is known only to the caller that decodes the pieces.
    pub before: StreamOffset,
    /// For JSON: true if each of its lines is known to be a row.
    pub lines: bool,
    /// The rows of the body that belong to the piece, if not all: a part of one Arrow batch.
    pub part: Option<RowRange>,
}

impl StreamPiece {
    fn whole(body: Vec<u8>, before: StreamOffset, lines: bool) -> Self {
        StreamPiece { body: body.into(), before, lines, part: None }
    }

    /// Divides the rows into smaller pieces, for a piece that needs too much memory when it is decoded. A piece of one
    /// row stays as it is.
    pub fn divided(&self, form: StreamFormat) -> Result<Vec<StreamPiece>> {
        let form = match form {
            StreamFormat::Json { .. } => StreamFormat::Json { lines: self.lines },
            other => other,
        };
        let mut bytes = if self.part.is_none() { self.body.len() / 2 } else { 0 };
        while bytes > 0 {
            let mut cut = Pieces::of(form, &self.body[..], bytes, usize::MAX);
            cut.source.before = self.before;
            if let (true, Cutter::Json(cut)) = (self.lines, &mut cut.cut) {
                cut.is_among_rows();
            }
            let mut pieces = Vec::new();
            while let Some(piece) = cut.next()? {
                pieces.push(piece);
                // All the rest goes into the second piece.
                cut.source.piece_bytes = usize::MAX;
            }
            if pieces.len() > 1 {
                return Ok(pieces);
            }
            // For Arrow, the piece now holds a single message. For other formats, the first row may be larger than
            // half of the piece.
            bytes = if form == StreamFormat::Arrow { 0 } else { bytes / 2 };
        }
        let rows = match (form, self.part) {
            (_, Some(part)) => part,
            (StreamFormat::Arrow, None) => RowRange { first: 0, rows: arrow::rows(&self.body)? },
            _ => RowRange { first: 0, rows: 1 },
        };
        let half = rows.rows / 2;
        let parts = [
            RowRange { first: rows.first, rows: half },
            RowRange { first: rows.first + half, rows: rows.rows - half },
        ];
        let parts = parts.into_iter().filter(|part| part.rows > 0);
        Ok(parts.map(|part| StreamPiece { part: Some(part), ..self.clone() }).collect())
    }
}

/// A stream that is being cut.
pub struct Pieces<R> {
    source: StreamBuffer<R>,
    cut: Cutter,
}

enum Cutter {
    Json(json::JsonCutter),
    Csv(csv::CsvCutter),
    Arrow(arrow::ArrowCutter),
    Protobuf(protobuf::ProtobufCutter),
}

impl<R: Read> Pieces<R> {
    pub fn new(kind: StreamFormat, source: R) -> Self {
        Self::of(kind, source, PIECE_BYTES, ROW_BYTES_MAX)
    }

    fn of(kind: StreamFormat, source: R, piece_bytes: usize, row_bytes_max: usize) -> Self {
        let cut = match kind {
            StreamFormat::Json { lines } => Cutter::Json(json::JsonCutter::new(lines)),
            StreamFormat::Csv => Cutter::Csv(csv::CsvCutter::default()),
            StreamFormat::Arrow => Cutter::Arrow(arrow::ArrowCutter::default()),
            StreamFormat::Protobuf => Cutter::Protobuf(protobuf::ProtobufCutter::default()),
        };
        Pieces { source: StreamBuffer::new(source, piece_bytes, row_bytes_max), cut }
    }

    /// Returns the next piece; `None` at the end. Faults of rows are reported later, when the piece is decoded.
    #[allow(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<StreamPiece>> {
        match &mut self.cut {
            Cutter::Json(cut) => cut.next(&mut self.source),
            Cutter::Csv(cut) => cut.next(&mut self.source),
            Cutter::Arrow(cut) => cut.next(&mut self.source),
            Cutter::Protobuf(cut) => cut.next(&mut self.source),
        }
    }
}

impl<R> Pieces<R> {
    /// Returns true if the stream was an array without elements, to distinguish that from an empty stream.
    pub fn is_empty_array(&self) -> bool {
        matches!(&self.cut, Cutter::Json(cut) if cut.is_closed())
    }
}

/// The input, and the bytes that were read but belong to no piece yet.
struct StreamBuffer<R> {
    inner: R,
    buffer: Vec<u8>,
    /// The part of the stream before the buffer's first byte.
    before: StreamOffset,
    ended: bool,
    piece_bytes: usize,
    row_bytes_max: usize,
}

impl<R: Read> StreamBuffer<R> {
    fn new(inner: R, piece_bytes: usize, row_bytes_max: usize) -> Self {
        let (buffer, before) = (Vec::new(), StreamOffset::default());
        StreamBuffer { inner, buffer, before, ended: false, piece_bytes, row_bytes_max }
    }

    /// Removes a byte order mark at the beginning of the stream, so that no piece begins with one.
    fn take_mark(&mut self) -> Result<()> {
        self.fill(BOM.len())?;
        if self.before == StreamOffset::default() && self.buffer.starts_with(BOM) {
            self.take(BOM.len());
        }
        Ok(())
    }

    /// Reads until the buffer has `wanted` bytes or the input ends.
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

    /// Skips white space and returns the next byte; `None` at the end.
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

    /// Reads more, because the buffer holds no whole row. Fails if a row is too large.
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

    /// Removes the first `count` bytes from the buffer and returns them.
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

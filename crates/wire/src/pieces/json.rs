//! Cuts JSON between lines, objects, or elements of an array.

use std::io::Read;

use types::{Error, Result};

use super::{StreamBuffer, StreamPiece};
use crate::parser::{Parser, SyntaxError};
use crate::sift::newlines;

pub(super) struct JsonCutter {
    /// True if each line is declared to be a row.
    lines: bool,
    at: JsonPosition,
    /// True if a row spanned several lines.
    spans: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum JsonPosition {
    /// The start of the stream, before anything is read.
    Beginning,
    /// In a sequence of objects.
    Rows,
    /// In front of an array's bracket, or after one of its elements.
    Array { first: bool },
    /// After an array.
    End,
}

/// The range of whole rows in the buffer.
#[derive(Default)]
struct WholeRows {
    /// The start of the first row and the end of the last; equal if there is none.
    start: usize,
    end: usize,
    /// The offset after the bracket that closes the array, if it is there.
    closed: Option<usize>,
    /// The reason why no more rows were found, and whether further input cannot change that.
    stopped: Option<(SyntaxError, bool)>,
}

const HINT: &str = "send an object, an array of objects, or one object a line";

impl JsonCutter {
    pub fn new(lines: bool) -> Self {
        JsonCutter { lines, at: JsonPosition::Beginning, spans: false }
    }

    /// Declares that the input is a sequence of rows, even if it begins with a bracket.
    pub fn is_among_rows(&mut self) {
        self.at = JsonPosition::Rows;
    }

    /// Returns true if an array has ended.
    pub fn is_closed(&self) -> bool {
        self.at == JsonPosition::End
    }

    pub fn next<R: Read>(&mut self, source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
        if self.at == JsonPosition::Beginning {
            source.take_mark()?;
            self.at = match source.first()? {
                // A declared line format does not apply to an array.
                Some(b'[') => JsonPosition::Array { first: true },
                _ => JsonPosition::Rows,
            };
        }
        match self.at {
            JsonPosition::Rows if self.lines => lines(source),
            JsonPosition::Rows => self.rows(source),
            JsonPosition::Array { .. } => self.elements(source),
            JsonPosition::Beginning | JsonPosition::End => Ok(None),
        }
    }

    /// Returns a piece of objects in a sequence.
    fn rows<R: Read>(&mut self, source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
        source.first()?;
        source.fill(source.piece_bytes)?;
        loop {
            let found = self.whole_rows(source);
            if found.end > 0 {
                return Ok(Some(piece(source, found.end, false)));
            }
            match found.stopped {
                None => return Ok(None),
                // The whole line must be in the buffer, since all of it may be bad.
                Some((malformed, certain)) if source.ended || certain && source.buffer.contains(&b'\n') => {
                    return self.broken(source, malformed).map(Some);
                }
                Some(_) => source.more()?,
            }
        }
    }

    /// Handles a row of invalid JSON at the beginning of the buffer. If rows do not span lines, the bad row is one
    /// line, which becomes a piece. Otherwise the start of the next row is unknown, and the stream is refused.
    fn broken<R: Read>(&self, source: &mut StreamBuffer<R>, malformed: SyntaxError) -> Result<StreamPiece> {
        let line = source.buffer.iter().position(|byte| *byte == b'\n');
        let end = line.map_or(source.buffer.len(), |at| at + 1);
        let opens = matches!(source.buffer[..end].trim_ascii_end().last(), Some(b'{' | b'[' | b','));
        if self.spans || opens {
            Err(no_json(source, malformed.at, malformed.expected))
        } else {
            Ok(piece(source, end, true))
        }
    }

    /// Returns a piece of elements, as an array of its own.
    fn elements<R: Read>(&mut self, source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
        source.fill(source.piece_bytes)?;
        loop {
            let found = self.whole_rows(source);
            // An invalid array is refused from its beginning, as soon as the fault is certain.
            match &found.stopped {
                Some((malformed, certain)) if *certain || source.ended => {
                    return Err(no_json(source, malformed.at, malformed.expected));
                }
                _ => {}
            }
            let mut piece = None;
            if found.end > found.start {
                source.take(found.start);
                let mut before = source.before;
                // The bracket of the piece replaces the bracket or comma of the stream.
                before.bytes = before.bytes.saturating_sub(1);
                let rows = source.take(found.end - found.start);
                let body = [b"[", &rows[..], b"]"].concat();
                piece = Some(StreamPiece::whole(body, before, false));
                self.at = JsonPosition::Array { first: false };
            }
            if let Some(closed) = found.closed {
                let taken = if piece.is_some() { found.end } else { 0 };
                source.take(closed - taken);
                self.at = JsonPosition::End;
                source.first()?.map_or(Ok(()), |_| Err(no_end(source)))?;
                return Ok(piece);
            }
            if piece.is_some() {
                return Ok(piece);
            }
            source.more()?;
        }
    }

    /// Finds whole rows at the beginning of the buffer, up to the size of a piece.
    fn whole_rows<R: Read>(&mut self, source: &StreamBuffer<R>) -> WholeRows {
        let (text, is_cut) = match std::str::from_utf8(&source.buffer) {
            Ok(text) => (text, false),
            Err(cut) => {
                let text = std::str::from_utf8(&source.buffer[..cut.valid_up_to()]).unwrap_or_default();
                // The text ends here for certain if the bytes cannot be completed to a character.
                (text, cut.error_len().is_some() || source.ended)
            }
        };
        let mut found = WholeRows::default();
        let mut p = Parser::new(text);
        // A string cannot contain a line break, so a fault before the end of a line is certain.
        let stop = |at: usize, expected: &'static str| {
            let expected = if is_cut && at == text.len() { "UTF-8" } else { expected };
            Some((SyntaxError { at, expected }, is_cut || text[at..].contains('\n')))
        };
        let is_array = matches!(self.at, JsonPosition::Array { .. });
        let mut first = self.at == JsonPosition::Array { first: true };
        if first {
            p.eat(b'[');
        }
        loop {
            if is_array {
                if p.eat(b']') {
                    found.closed = Some(p.at());
                    return found;
                }
                if !std::mem::take(&mut first) && !p.eat(b',') {
                    found.stopped = stop(p.at(), "`,` or `]`");
                    return found;
                }
            }
            let next = p.peek();
            let start = p.at();
            match next {
                // A sequence of objects may end here.
                None if !is_array && !is_cut => return found,
                None => {
                    found.stopped = stop(start, "a value");
                    return found;
                }
                Some(b'{') => {}
                Some(_) if is_array => {}
                Some(_) => {
                    found.stopped =
                        Some((SyntaxError { at: start, expected: "an object (`{`) for each row" }, true));
                    return found;
                }
            }
            if found.end > found.start && start >= source.piece_bytes {
                return found;
            }
            match p.skip() {
                // A number at the end of the buffer may go on.
                Ok(row) if !row.ends_with(['}', ']', '"']) && p.at() == text.len() && !source.ended => {
                    found.stopped =
                        Some((SyntaxError { at: p.at(), expected: "the end of a number" }, false));
                    return found;
                }
                Ok(row) => self.spans |= !is_array && row.contains('\n'),
                Err(malformed) => {
                    found.stopped = stop(malformed.at, malformed.expected);
                    return found;
                }
            }
            if found.end == found.start {
                found.start = if is_array { start } else { 0 };
            }
            found.end = p.at();
        }
    }
}

/// Returns a piece of whole lines without parsing them: as many as fit, or one longer line.
fn lines<R: Read>(source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
    if source.first()?.is_none() {
        return Ok(None);
    }
    source.fill(source.piece_bytes)?;
    loop {
        let len = source.buffer.len();
        let (near, far) = source.buffer.split_at(source.piece_bytes.min(len));
        let is_end = |byte: &u8| *byte == b'\n';
        let end = match near.iter().rposition(is_end) {
            _ if source.ended && far.is_empty() => len,
            Some(at) => at + 1,
            None => match far.iter().position(is_end) {
                Some(at) => near.len() + at + 1,
                None if source.ended => len,
                None => {
                    source.more()?;
                    continue;
                }
            },
        };
        return Ok(Some(piece(source, end, true)));
    }
}

fn piece<R: Read>(source: &mut StreamBuffer<R>, end: usize, lines: bool) -> StreamPiece {
    let before = source.before;
    StreamPiece::whole(source.take(end), before, lines)
}

fn no_end<R>(source: &StreamBuffer<R>) -> Error {
    no_json(source, 0, "the end of the body after `]`")
}

fn no_json<R>(source: &StreamBuffer<R>, at: usize, expected: &str) -> Error {
    let line = 1 + source.before.lines + newlines(&source.buffer[..at]);
    let rest = String::from_utf8_lossy(&source.buffer[at..(at + 4).min(source.buffer.len())]).into_owned();
    let found =
        rest.chars().next().map_or("the end of the body".into(), |c| format!("`{}`", c.escape_debug()));
    let byte = source.before.bytes + at;
    Error::invalid(format!("not JSON: {expected} expected at byte {byte} (line {line}), {found} found"))
        .hint(HINT)
}

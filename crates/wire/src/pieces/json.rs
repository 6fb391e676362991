//! JSON: whole lines, whole objects, or whole elements of an array.

use std::io::Read;

use types::{Error, Result};

use super::{Piece, Source};
use crate::parser::{Malformed, Parser};
use crate::sift::newlines;

pub(super) struct Cut {
    /// Whether each line is a row for certain.
    lines: bool,
    at: At,
    /// Whether a row had several lines.
    spans: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Nothing was read.
    Beginning,
    /// Among objects one after the other.
    Rows,
    /// Before the bracket of an array, or behind one of its elements.
    Array { first: bool },
    /// Behind an array.
    End,
}

/// How far whole rows go in what was read.
#[derive(Default)]
struct Whole {
    /// Where the first begins and the last ends; the same if there is none.
    start: usize,
    end: usize,
    /// Behind the bracket that closes the array, if it is there.
    closed: Option<usize>,
    /// Why there are no more, and whether that stays so whatever may follow.
    stopped: Option<(Malformed, bool)>,
}

const HINT: &str = "send an object, an array of objects, or one object a line";

impl Cut {
    pub fn new(lines: bool) -> Self {
        Cut { lines, at: At::Beginning, spans: false }
    }

    /// What comes are rows one after the other, whatever the first looks like.
    pub fn is_among_rows(&mut self) {
        self.at = At::Rows;
    }

    /// Whether an array has ended.
    pub fn is_closed(&self) -> bool {
        self.at == At::End
    }

    pub fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Piece>> {
        if self.at == At::Beginning {
            source.take_mark()?;
            self.at = match source.first()? {
                // Where an array begins there are no lines.
                Some(b'[') => At::Array { first: true },
                _ => At::Rows,
            };
        }
        match self.at {
            At::Rows if self.lines => lines(source),
            At::Rows => self.rows(source),
            At::Array { .. } => self.elements(source),
            At::Beginning | At::End => Ok(None),
        }
    }

    /// Objects one after the other.
    fn rows<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Piece>> {
        source.first()?;
        source.fill(source.piece_bytes)?;
        loop {
            let found = self.whole(source);
            if found.end > 0 {
                return Ok(Some(piece(source, found.end, false)));
            }
            match found.stopped {
                None => return Ok(None),
                // Its line has to be there, should it be all of it.
                Some((malformed, certain)) if source.ended || certain && source.buffer.contains(&b'\n') => {
                    return self.broken(source, malformed).map(Some);
                }
                Some(_) => source.more()?,
            }
        }
    }

    /// A row that is no JSON begins what was read. It is its line alone where rows do not span lines; else nobody knows where
    /// the next one begins.
    fn broken<R: Read>(&self, source: &mut Source<R>, malformed: Malformed) -> Result<Piece> {
        let line = source.buffer.iter().position(|byte| *byte == b'\n');
        let end = line.map_or(source.buffer.len(), |at| at + 1);
        let opens = matches!(source.buffer[..end].trim_ascii_end().last(), Some(b'{' | b'[' | b','));
        match self.spans || opens {
            true => Err(no_json(source, malformed.at, malformed.expected)),
            false => Ok(piece(source, end, true)),
        }
    }

    /// Elements of an array, as an array.
    fn elements<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Piece>> {
        source.fill(source.piece_bytes)?;
        loop {
            let found = self.whole(source);
            // What is no array is none from its beginning on, as far as that is known.
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
                // The bracket of the piece stands where the one of the array does, or a comma.
                before.bytes = before.bytes.saturating_sub(1);
                let rows = source.take(found.end - found.start);
                let body = [b"[", &rows[..], b"]"].concat();
                piece = Some(Piece::whole(body, before, false));
                self.at = At::Array { first: false };
            }
            if let Some(closed) = found.closed {
                let taken = if piece.is_some() { found.end } else { 0 };
                source.take(closed - taken);
                self.at = At::End;
                source.first()?.map_or(Ok(()), |_| Err(no_end(source)))?;
                return Ok(piece);
            }
            if piece.is_some() {
                return Ok(piece);
            }
            source.more()?;
        }
    }

    /// Whole rows at the beginning of what was read, as much as a piece has.
    fn whole<R: Read>(&mut self, source: &Source<R>) -> Whole {
        let (text, is_cut) = match std::str::from_utf8(&source.buffer) {
            Ok(text) => (text, false),
            Err(cut) => {
                let text = std::str::from_utf8(&source.buffer[..cut.valid_up_to()]).unwrap_or_default();
                // Unless the rest of a character may come.
                (text, cut.error_len().is_some() || source.ended)
            }
        };
        let mut found = Whole::default();
        let mut p = Parser::new(text);
        // No value reaches beyond its line, so that what is malformed before the end of a line stays so.
        let stop = |at: usize, expected: &'static str| {
            let expected = if is_cut && at == text.len() { "UTF-8" } else { expected };
            Some((Malformed { at, expected }, is_cut || text[at..].contains('\n')))
        };
        let is_array = matches!(self.at, At::Array { .. });
        let mut first = self.at == At::Array { first: true };
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
                // Nothing may follow objects.
                None if !is_array && !is_cut => return found,
                None => {
                    found.stopped = stop(start, "a value");
                    return found;
                }
                Some(b'{') => {}
                Some(_) if is_array => {}
                Some(_) => {
                    found.stopped =
                        Some((Malformed { at: start, expected: "an object (`{`) for each row" }, true));
                    return found;
                }
            }
            if found.end > found.start && start >= source.piece_bytes {
                return found;
            }
            match p.skip() {
                // A number at the end of what was read may go on.
                Ok(row) if !row.ends_with(['}', ']', '"']) && p.at() == text.len() && !source.ended => {
                    found.stopped = Some((Malformed { at: p.at(), expected: "the end of a number" }, false));
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

/// Whole lines, whatever stands in them: as many as a piece has, or one that is longer.
fn lines<R: Read>(source: &mut Source<R>) -> Result<Option<Piece>> {
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

fn piece<R: Read>(source: &mut Source<R>, end: usize, lines: bool) -> Piece {
    let before = source.before;
    Piece::whole(source.take(end), before, lines)
}

fn no_end<R>(source: &Source<R>) -> Error {
    no_json(source, 0, "the end of the body behind `]`")
}

fn no_json<R>(source: &Source<R>, at: usize, expected: &str) -> Error {
    let line = 1 + source.before.lines + newlines(&source.buffer[..at]);
    let rest = String::from_utf8_lossy(&source.buffer[at..(at + 4).min(source.buffer.len())]).into_owned();
    let found =
        rest.chars().next().map_or("the end of the body".into(), |c| format!("`{}`", c.escape_debug()));
    let byte = source.before.bytes + at;
    Error::invalid(format!("no JSON: {expected} expected at byte {byte} (line {line}), {found} found"))
        .hint(HINT)
}

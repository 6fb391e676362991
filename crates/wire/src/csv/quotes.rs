//! Detects faults that a CSV reader accepts silently: a quote that is never closed, so that the rest of the file
//! becomes one field; text after a closing quote, which the reader joins to the field; and a carriage return alone,
//! which ends the row.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};

use types::Error;

/// Passes bytes on unchanged, and fails with [`MalformedCsv`] if a row or field does not end as it must.
pub struct QuoteChecker<R> {
    inner: R,
    delimiter: u8,
    state: State,
    /// The number of bytes seen, up to the length of a byte order mark.
    seen: u8,
    line: u64,
    /// The line at which the last quoted field began.
    opened: u64,
    /// The number of bytes passed on.
    passed: u64,
    /// The field's position in its record.
    field: usize,
    /// Quoted fields that were not taken yet: the offset of each in the source, and its position in its record.
    quoted: VecDeque<(u64, usize)>,
    /// A carriage return that is held back until the next byte is known, so that the reader sees both at once.
    waiting: Option<u8>,
}

/// The state of the scanner, by RFC 4180 as the reader implements it: a quote counts only at the beginning of a field.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Start,
    Bare,
    Quoted,
    /// After a quote inside a quoted field: either its end or the first half of a doubled quote.
    Closing,
    /// After a carriage return outside of quotes: a line feed must follow.
    Return,
}

/// The error of a malformed source.
#[derive(Debug)]
pub struct MalformedCsv {
    line: u64,
    what: &'static str,
    hint: &'static str,
}

impl fmt::Display for MalformedCsv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for MalformedCsv {}

impl MalformedCsv {
    fn unclosed(line: u64) -> Self {
        let hint = "close it, or double it where it is part of the text; is the file whole?";
        MalformedCsv { line, what: "a quote opens here and is never closed", hint }
    }

    fn behind_quote(line: u64) -> Self {
        let hint =
            "double a quote where it is part of a text in quotes, and close the text before the separator";
        MalformedCsv { line, what: "text follows the quote that closes a field", hint }
    }

    fn lone_return(line: u64) -> Self {
        let hint = "lines end in \\n or \\r\\n; put texts with a carriage return in quotes";
        MalformedCsv { line, what: "a carriage return without a line feed", hint }
    }

    /// Returns the user's error if a source failed with this one.
    pub fn error_of(error: &io::Error) -> Option<Error> {
        let broken = error.get_ref()?.downcast_ref::<MalformedCsv>()?;
        Some(Error::invalid(broken.to_string()).hint(broken.hint))
    }
}

impl<R> QuoteChecker<R> {
    /// Wraps a source of which `lines` lines were read before.
    pub fn new(inner: R, delimiter: u8, lines: u64) -> Self {
        QuoteChecker {
            inner,
            delimiter,
            state: State::Start,
            seen: 0,
            line: lines + 1,
            opened: 0,
            passed: 0,
            field: 0,
            quoted: VecDeque::new(),
            waiting: None,
        }
    }

    /// Takes the positions of quoted fields that begin before byte `end` of the source. Each is returned only once.
    pub fn take_quoted(&mut self, end: u64, places: &mut Vec<usize>) {
        let count = self.quoted.iter().take_while(|(at, _)| *at < end).count();
        places.extend(self.quoted.drain(..count).map(|(_, place)| place));
    }

    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    fn watch(&mut self, bytes: &[u8]) -> Result<(), MalformedCsv> {
        for (at, &byte) in (self.passed..).zip(bytes) {
            let line = self.line;
            self.line += u64::from(byte == b'\n');
            if self.seen < 3 {
                self.seen += 1;
                if matches!(byte, 0xef | 0xbb | 0xbf) {
                    continue;
                }
            }
            let next = self.state.after(byte, self.delimiter);
            match (self.state, next) {
                (State::Start, State::Quoted) => {
                    self.opened = line;
                    self.quoted.push_back((at, self.field));
                }
                (State::Closing, State::Bare) => return Err(MalformedCsv::behind_quote(line)),
                (State::Return, _) if byte != b'\n' => return Err(MalformedCsv::lone_return(line)),
                _ => {}
            }
            if next == State::Start {
                self.field = if byte == b'\n' { 0 } else { self.field + 1 };
            }
            self.state = next;
        }
        self.passed += bytes.len() as u64;
        Ok(())
    }
}

impl State {
    #[inline]
    fn after(self, byte: u8, delimiter: u8) -> State {
        match (self, byte) {
            (State::Quoted, b'"') => State::Closing,
            (State::Quoted, _) => State::Quoted,
            (State::Closing, b'"') => State::Quoted,
            (State::Start, b'"') => State::Quoted,
            _ if byte == delimiter || byte == b'\n' => State::Start,
            (_, b'\r') => State::Return,
            _ => State::Bare,
        }
    }
}

impl<R: Read> Read for QuoteChecker<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let held = match (self.waiting.take(), buf.first_mut()) {
            (Some(byte), Some(first)) => {
                *first = byte;
                1
            }
            (waiting, _) => {
                self.waiting = waiting;
                0
            }
        };
        let mut count = held + self.inner.read(&mut buf[held..])?;
        if count > 1 && buf[count - 1] == b'\r' {
            count -= 1;
            self.waiting = Some(b'\r');
        }
        let broken = |broken| io::Error::new(io::ErrorKind::InvalidData, broken);
        if count == 0 && !buf.is_empty() {
            match self.state {
                State::Quoted => return Err(broken(MalformedCsv::unclosed(self.opened))),
                State::Return => return Err(broken(MalformedCsv::lone_return(self.line))),
                _ => {}
            }
        }
        self.watch(&buf[..count]).map_err(broken)?;
        Ok(count)
    }
}

/// Returns the length of the record at the beginning of `bytes`, without its line end.
pub fn record_len(bytes: &[u8]) -> usize {
    let record = &bytes[..first_end(bytes).unwrap_or(bytes.len())];
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record).len()
}

/// Returns true if the first record of a text has only one field.
pub fn has_one_field(bytes: &[u8]) -> bool {
    let mut state = State::Start;
    let record = &bytes[..first_end(bytes).unwrap_or(bytes.len())];
    record.iter().all(|byte| {
        state = state.after(*byte, b',');
        state != State::Start || *byte != b','
    })
}

/// Returns the offset after the line end of the first record, if it has one. The text must begin with a record.
pub fn first_end(bytes: &[u8]) -> Option<usize> {
    let mut state = State::Start;
    let ends = |byte: &u8| {
        state = state.after(*byte, b',');
        state == State::Start && *byte == b'\n'
    };
    bytes.iter().position(ends).map(|at| at + 1)
}

/// Returns the offset after the last complete record. The text must begin with a record.
pub fn last_end(bytes: &[u8]) -> Option<usize> {
    let (mut state, mut last) = (State::Start, None);
    for (at, byte) in bytes.iter().enumerate() {
        state = state.after(*byte, b',');
        if state == State::Start && *byte == b'\n' {
            last = Some(at + 1);
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        QuoteChecker::new(text.as_bytes(), b',', 0).read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn fields_in_quotes_are_told_by_their_places() {
        for (text, wanted) in [
            ("\"\",,\"\"\n", &[0, 2][..]),
            ("\u{feff}\"\",b\n,\"x\"\n", &[0, 1]),
            ("\"a,\"\"\",\"\"\"\",c\r\n\r\nd,e,\"f\ng\"", &[0, 1, 2]),
            ("x\"\",\n", &[]),
        ] {
            let mut quotes = QuoteChecker::new(text.as_bytes(), b',', 0);
            quotes.read_to_end(&mut Vec::new()).unwrap();
            let mut places = Vec::new();
            quotes.take_quoted(u64::MAX, &mut places);
            assert_eq!(places, wanted, "{text:?}");
        }
    }

    #[test]
    fn what_ends_nobody_knows_where_fails_and_names_its_line() {
        for fine in [
            "",
            "a,b\n1,\"2\n3\"\n",
            "a\n5\" pipe\n",
            "\"a\"\"b\",c",
            "\u{feff}\"a\",b\n",
            "a,\"\"\n",
            "a\r\n\"b\"\r\n\"c\rd\"\r\n",
        ] {
            assert_eq!(read(fine).unwrap(), fine.as_bytes(), "{fine:?}");
        }
        for (open, line) in
            [("a,b\n1,\"2\n3,4\n", 2), ("\"", 1), ("a\n\"b\nc\"\n\"\"\"x", 4), ("\u{feff}\"a", 1)]
        {
            let error = read(open).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{open:?}: {error}");
        }
        for (broken, told) in [
            ("\"a\"x\"\n", "line 1: text follows the quote that closes a field"),
            ("a,b\n1,\"x\" \n", "line 2: text follows the quote that closes a field"),
            ("a\nfoo\rbar\n", "line 2: a carriage return without a line feed"),
            ("a\n\"foo\"\r\"bar\"\n", "line 2: a carriage return without a line feed"),
            ("a\nfoo\r", "line 2: a carriage return without a line feed"),
        ] {
            assert_eq!(read(broken).unwrap_err().to_string(), told, "{broken:?}");
        }
    }
}

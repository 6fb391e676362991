//! Reads CSV record by record, with the line of each, from bodies in memory, files and streams.

use std::collections::VecDeque;
use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, ReaderBuilder};
use types::{Error, Kind};

use super::quotes::{MalformedCsv, QuoteChecker};

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// The greatest number of lines of one row, including the empty lines before it. Their offsets are kept until it is
/// read.
const LINES_MAX: usize = 1 << 20;

/// A CSV reader that tracks lines and quoting. Records may have any number of fields.
pub struct Reader<R> {
    inner: csv::Reader<LineCounter<R>>,
    record: ByteRecord,
    /// Positions of the quoted fields of the record.
    quoted: Vec<usize>,
    /// The number of lines of the source before this reader's input.
    lines: u64,
    /// True if empty lines are rows; see [`Reader::take_empty_lines`].
    takes_empty_lines: bool,
    /// Empty lines before the record that was read, not yet returned.
    empty: VecDeque<SourcePosition>,
    /// The line and end of the record that was read, until it is returned.
    read: Option<(u64, SourcePosition)>,
    /// The end of the last row that was returned.
    given: SourcePosition,
    /// The record of an empty line: one field of no characters.
    empty_record: ByteRecord,
}

/// A position in the source: the bytes and the line ends before it.
#[derive(Clone, Copy, Default)]
struct SourcePosition {
    byte: u64,
    lines: u64,
}

/// One row.
pub struct Record<'a> {
    fields: &'a ByteRecord,
    quoted: &'a [usize],
    /// The number of its first line, from 1.
    pub line: u64,
    /// The range of its bytes in the source, which may include line ends before and after it.
    pub start: u64,
    pub end: u64,
}

/// The failure to read a record.
#[derive(Debug)]
pub struct ReadFailure {
    /// The line at which the record begins.
    pub line: u64,
    pub error: Error,
}

impl<R: Read> Reader<R> {
    /// Makes a reader of a source of which `lines` lines were read before.
    pub fn new(source: R, delimiter: u8, lines: u64) -> Self {
        let counted = LineCounter::new(QuoteChecker::new(source, delimiter, lines));
        let inner = ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            // The caller checks the number of fields, so that the error has this project's wording.
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(counted);
        Reader {
            inner,
            record: ByteRecord::new(),
            quoted: Vec::new(),
            lines,
            takes_empty_lines: false,
            empty: VecDeque::new(),
            read: None,
            given: SourcePosition::default(),
            empty_record: ByteRecord::from(vec![""]),
        }
    }

    /// Makes empty lines rows of one empty field from here on. Callers use it if there is only one column, since a row
    /// with a null has no other form there. Otherwise empty lines are skipped.
    pub fn take_empty_lines(&mut self) {
        self.takes_empty_lines = true;
    }

    /// Returns the next record; `None` at the end. [`Kind::Invalid`] if a record or field does not end as it must.
    pub fn read(&mut self) -> Result<Option<Record<'_>>, ReadFailure> {
        if self.empty.is_empty() && self.read.is_none() {
            self.fetch()?;
        }
        let start = self.given.byte;
        if let Some(place) = self.empty.pop_front() {
            self.given = place;
            let (line, end) = (self.lines + place.lines, place.byte);
            return Ok(Some(Record { fields: &self.empty_record, quoted: &[], line, start, end }));
        }
        let Some((line, place)) = self.read.take() else {
            self.given = self.inner.get_ref().passed;
            return Ok(None);
        };
        self.given = place;
        Ok(Some(Record { fields: &self.record, quoted: &self.quoted, line, start, end: place.byte }))
    }

    /// Reads a record, and the empty lines before it if they are rows.
    fn fetch(&mut self) -> Result<(), ReadFailure> {
        self.quoted.clear();
        let read = self.inner.read_byte_record(&mut self.record);
        let end = self.inner.position().byte();
        let is_record = !matches!(read, Ok(false));
        let empty = self.takes_empty_lines.then_some(&mut self.empty);
        let source = self.inner.get_mut();
        let line = self.lines + source.pass(end, is_record.then(|| self.record.as_slice()), empty);
        source.inner.take_quoted(end, &mut self.quoted);
        match read {
            Ok(true) => {
                self.read = Some((line, source.passed));
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(ReadFailure { line, error: of_reader(error) }),
        }
    }

    /// The offset in the source after the last returned record and its line end.
    pub fn position(&self) -> u64 {
        self.given.byte
    }

    /// The number of line ends up to there, including those before this reader's input.
    pub fn lines(&self) -> u64 {
        self.lines + self.given.lines
    }

    /// Returns the source.
    pub fn get_mut(&mut self) -> &mut R {
        self.inner.get_mut().inner.get_mut()
    }
}

impl Record<'_> {
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The total length of the fields in bytes.
    pub fn bytes(&self) -> usize {
        self.fields.as_slice().len()
    }

    /// Returns true if the field is quoted. This distinguishes an empty text from a null.
    pub fn is_quoted(&self, at: usize) -> bool {
        self.quoted.binary_search(&at).is_ok()
    }

    /// Returns a field as text. [`Kind::Schema`] if it is not UTF-8.
    pub fn text(&self, at: usize) -> Result<&str, Error> {
        std::str::from_utf8(&self.fields[at])
            .map_err(|_| Error::new(Kind::Schema, "not UTF-8").hint("convert the file to UTF-8 first"))
    }

    pub fn texts(&self) -> impl Iterator<Item = Result<&str, Error>> {
        (0..self.len()).map(|at| self.text(at))
    }
}

fn of_reader(error: csv::Error) -> Error {
    match error.into_kind() {
        ErrorKind::Io(error) => MalformedCsv::error_of(&error).unwrap_or_else(|| failed(error)),
        other => Error::internal(format!("CSV that is read leniently is refused: {other:?}")),
    }
}

/// Converts a read error. An [`Error`] of this project that went through `std::io` is returned unchanged.
pub fn failed(error: io::Error) -> Error {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).cloned();
    ours.unwrap_or_else(|| Error::io("reading the rows", error))
}

/// Tracks the offsets of line ends that were read but not yet assigned to a record. The CSV reader also counts lines,
/// but reports only where the previous record ended: empty lines and the `\n` of a `\r\n` come after that position.
struct LineCounter<R> {
    inner: QuoteChecker<R>,
    /// The number of bytes read.
    read: u64,
    /// The offsets of line ends that no record has passed yet.
    ends: VecDeque<u64>,
    /// The position after the last record and its line end.
    passed: SourcePosition,
}

impl<R> LineCounter<R> {
    fn new(inner: QuoteChecker<R>) -> Self {
        LineCounter { inner, read: 0, ends: VecDeque::new(), passed: SourcePosition::default() }
    }

    fn pass_end(&mut self) {
        if let Some(at) = self.ends.pop_front() {
            self.passed = SourcePosition { byte: at + 1, lines: self.passed.lines + 1 };
        }
    }

    /// Moves on to byte `end`, past empty lines, which are added to `empty`, and past the record if there is one.
    /// Returns the first line of the record.
    fn pass(
        &mut self,
        end: u64,
        record: Option<&[u8]>,
        mut empty: Option<&mut VecDeque<SourcePosition>>,
    ) -> u64 {
        let mut its_own = 0;
        while self.ends.front().is_some_and(|at| *at < end) {
            self.pass_end();
            its_own = u64::from(self.passed.byte == end);
            if let Some(empty) = &mut empty {
                empty.push_back(self.passed);
            }
        }
        self.passed.byte = end;
        let Some(record) = record else { return (1 + self.passed.lines).max(1) };
        let of_record = its_own + newlines(record);
        if let Some(empty) = empty {
            empty.truncate(empty.len().saturating_sub(usize::try_from(of_record).unwrap_or(usize::MAX)));
        }
        let line = (1 + self.passed.lines).saturating_sub(of_record).max(1);
        // The CSV reader ends a record at the carriage return, but the line feed after it belongs to the record too.
        if its_own == 0 && self.ends.front() == Some(&end) {
            self.pass_end();
        }
        line
    }
}

impl<R: Read> Read for LineCounter<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.ends.len() > LINES_MAX {
            let message = format!("more than {LINES_MAX} lines that are empty, or of one row");
            let error = Error::new(Kind::TooLarge, message).hint("is a quote not closed?");
            return Err(io::Error::other(error));
        }
        let count = self.inner.read(bytes)?;
        let ends = bytes[..count].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        self.ends.extend(ends.map(|(at, _)| self.read + at as u64));
        self.read += count as u64;
        Ok(count)
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

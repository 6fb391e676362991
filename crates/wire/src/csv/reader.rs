//! CSV, record by record, with the line of each. For bodies in memory, files and streams alike.

use std::collections::VecDeque;
use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, ReaderBuilder};
use types::{Error, Kind};

use super::quotes::{Broken, Quotes};

/// What is read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// Lines of one row, with the empty ones before it: their ends are remembered until it is read.
const LINES_MAX: usize = 1 << 20;

/// See the module. Records may have any number of fields.
pub struct Reader<R> {
    inner: csv::Reader<Counted<R>>,
    record: ByteRecord,
    /// Places of the record's fields that stand in quotes.
    quoted: Vec<usize>,
    /// Lines of the source that came before.
    lines: u64,
    /// See [`Reader::take_empty_lines`].
    takes_empty_lines: bool,
    /// Empty lines before the record that was read.
    empty: VecDeque<Place>,
    /// What the record is, until it was given.
    read: Option<(u64, Place)>,
    /// Up to where the rows were given.
    given: Place,
    /// What an empty line is: one field without a character.
    empty_record: ByteRecord,
}

/// A place in the source: bytes before it, and ends of lines.
#[derive(Clone, Copy, Default)]
struct Place {
    byte: u64,
    lines: u64,
}

/// A row.
pub struct Record<'a> {
    fields: &'a ByteRecord,
    quoted: &'a [usize],
    /// The first of its lines, from 1.
    pub line: u64,
    /// Its bytes in the source; ends of lines may be before and behind it.
    pub start: u64,
    pub end: u64,
}

/// Why there is no further record.
#[derive(Debug)]
pub struct Failed {
    /// Where the record begins.
    pub line: u64,
    pub error: Error,
}

impl<R: Read> Reader<R> {
    /// `lines` of the source came before.
    pub fn new(source: R, delimiter: u8, lines: u64) -> Self {
        let counted = Counted::new(Quotes::new(source, delimiter, lines));
        let inner = ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            // Counted by who reads, so that the error says it in our words.
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
            given: Place::default(),
            empty_record: ByteRecord::from(vec![""]),
        }
    }

    /// From here on an empty line is a row of one empty field. So it is where rows have one column: a row that is null there has
    /// no other form. Elsewhere empty lines are passed over.
    pub fn take_empty_lines(&mut self) {
        self.takes_empty_lines = true;
    }

    /// The next record; `None` at the end. Where records or fields do not end as they have to, it is [`Kind::Invalid`].
    pub fn read(&mut self) -> Result<Option<Record<'_>>, Failed> {
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

    /// Reads a record, and the empty lines before it if they are taken.
    fn fetch(&mut self) -> Result<(), Failed> {
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
            Err(error) => Err(Failed { line, error: of_reader(error) }),
        }
    }

    /// Bytes of the source up to the end of the last record, with the end of its line.
    pub fn position(&self) -> u64 {
        self.given.byte
    }

    /// Ends of lines up to there, those of before included.
    pub fn lines(&self) -> u64 {
        self.lines + self.given.lines
    }

    /// The source.
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

    /// How long its fields are together.
    pub fn bytes(&self) -> usize {
        self.fields.as_slice().len()
    }

    /// Whether a field stands in quotes: an empty one is a text then, and else nothing.
    pub fn is_quoted(&self, at: usize) -> bool {
        self.quoted.binary_search(&at).is_ok()
    }

    /// [`Kind::Schema`] if it is no UTF-8.
    pub fn text(&self, at: usize) -> Result<&str, Error> {
        std::str::from_utf8(&self.fields[at])
            .map_err(|_| Error::new(Kind::Schema, "no UTF-8").hint("convert the file to UTF-8 first"))
    }

    pub fn texts(&self) -> impl Iterator<Item = Result<&str, Error>> {
        (0..self.len()).map(|at| self.text(at))
    }
}

fn of_reader(error: csv::Error) -> Error {
    match error.into_kind() {
        ErrorKind::Io(error) => Broken::error_of(&error).unwrap_or_else(|| failed(error)),
        other => Error::internal(format!("CSV that is read leniently is refused: {other:?}")),
    }
}

/// An error of reading; one of ours that came through `std::io` as it was.
pub fn failed(error: io::Error) -> Error {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).cloned();
    ours.unwrap_or_else(|| Error::io("reading the rows", error))
}

/// Where lines end in what was read and is no record yet. The reader of CSV counts them too, and says of a record where the
/// one before ended: empty lines and the `\n` of `\r\n` are behind that.
struct Counted<R> {
    inner: Quotes<R>,
    /// Bytes that were read.
    read: u64,
    /// Where the ends of lines are that no record has passed.
    ends: VecDeque<u64>,
    /// Behind the last record, and the end of its line.
    passed: Place,
}

impl<R> Counted<R> {
    fn new(inner: Quotes<R>) -> Self {
        Counted { inner, read: 0, ends: VecDeque::new(), passed: Place::default() }
    }

    fn pass_end(&mut self) {
        if let Some(at) = self.ends.pop_front() {
            self.passed = Place { byte: at + 1, lines: self.passed.lines + 1 };
        }
    }

    /// Passes what was read up to a byte: empty lines, which `empty` takes, and the record, if there is one. Returns the first of
    /// its lines.
    fn pass(&mut self, end: u64, record: Option<&[u8]>, mut empty: Option<&mut VecDeque<Place>>) -> u64 {
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
        // A record ends at its carriage return; the line feed behind it is its own too.
        if its_own == 0 && self.ends.front() == Some(&end) {
            self.pass_end();
        }
        line
    }
}

impl<R: Read> Read for Counted<R> {
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

//! CSV, record by record, with the line of each. For bodies in memory, files and streams alike.

use std::collections::VecDeque;
use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, ReaderBuilder};
use types::{Error, Kind};

use super::quotes::{Broken, Quotes};

/// What is read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// See the module. Records may have any number of fields.
pub struct Reader<R> {
    inner: csv::Reader<Counted<R>>,
    record: ByteRecord,
    /// Lines of the source that came before.
    lines: u64,
}

/// A row.
pub struct Record<'a> {
    fields: &'a ByteRecord,
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
        Reader { inner, record: ByteRecord::new(), lines }
    }

    /// The next record; `None` at the end. Where records or fields do not end as they have to, it is [`Kind::Invalid`].
    pub fn read(&mut self) -> Result<Option<Record<'_>>, Failed> {
        let start = self.position();
        let read = self.inner.read_byte_record(&mut self.record);
        let end = self.position();
        let line = self.lines + self.inner.get_mut().line(end, self.record.as_slice());
        match read {
            Ok(true) => Ok(Some(Record { fields: &self.record, line, start, end })),
            Ok(false) => Ok(None),
            Err(error) => Err(Failed { line, error: of_reader(error) }),
        }
    }

    /// Bytes of the source up to the end of the last record.
    pub fn position(&self) -> u64 {
        self.inner.position().byte()
    }

    /// Ends of lines up to there, those of before included.
    pub fn lines(&self) -> u64 {
        self.lines + self.inner.get_ref().passed
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
/// one before ended: empty lines and `\r\n` are behind that.
struct Counted<R> {
    inner: Quotes<R>,
    /// Bytes that were read.
    read: u64,
    /// Where the ends of lines are that no record has passed.
    ends: VecDeque<u64>,
    /// How many were passed.
    passed: u64,
}

impl<R> Counted<R> {
    fn new(inner: Quotes<R>) -> Self {
        Counted { inner, read: 0, ends: VecDeque::new(), passed: 0 }
    }

    /// The first line of a record that was read up to a byte.
    fn line(&mut self, end: u64, record: &[u8]) -> u64 {
        // Whether it ends in an end of a line.
        let mut its_own = 0;
        while let Some(at) = self.ends.front().copied().filter(|at| *at < end) {
            self.ends.pop_front();
            self.passed += 1;
            its_own = u64::from(at + 1 == end);
        }
        (1 + self.passed).saturating_sub(its_own + newlines(record)).max(1)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
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

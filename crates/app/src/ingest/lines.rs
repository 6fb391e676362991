//! Sources of lines: NDJSON, which is sent unchanged, and access logs, which are parsed here.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use bytes::Bytes;
use types::{Error, Kind, Result};

use super::arrow_stream;
use super::piece::{ARROW, NDJSON, PIECE_BYTES, Pieces, SourcePiece, line_count, lines};
use super::source::text_prefix;
use crate::access_log::{self, Entry};
use crate::units::counted;

/// Bytes of the longest line: the server's limit for a request.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Cuts a stream after whole lines.
struct Chunks {
    reader: Box<dyn Read + Send>,
    position: u64,
    line: u64,
    /// Bytes that were read and not yet returned.
    pending: Vec<u8>,
    ended: bool,
}

impl Chunks {
    fn new(reader: Box<dyn Read + Send>, position: u64, line: u64) -> Self {
        Chunks { reader, position, line, pending: Vec::new(), ended: false }
    }

    /// Returns whole lines of about [`PIECE_BYTES`] together, or `None` at the end. The last line of the source may lack its
    /// newline. Fails with `too_large` for a line longer than `LINE_BYTES_MAX`.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.fill(PIECE_BYTES)?;
        let end = if self.ended {
            self.pending.len()
        } else {
            loop {
                if let Some(newline) = self.pending.iter().rposition(|byte| *byte == b'\n') {
                    break newline + 1;
                }
                if self.ended {
                    break self.pending.len();
                }
                if self.pending.len() >= LINE_BYTES_MAX {
                    return Err(Error::new(
                        Kind::TooLarge,
                        format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.line + 1),
                    )
                    .hint("is this a file of lines? `--format` names another format"));
                }
                self.fill(self.pending.len() * 2)?;
            }
        };
        if end == 0 {
            return Ok(None);
        }
        let rest = self.pending.split_off(end);
        let chunk = std::mem::replace(&mut self.pending, rest);
        self.position += chunk.len() as u64;
        self.line += line_count(&chunk);
        Ok(Some(chunk))
    }

    /// Reads until `wanted` bytes are pending or the source ends.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.pending.len() < wanted && !self.ended {
            let missing = (wanted - self.pending.len()) as u64;
            let mut limited = self.reader.by_ref().take(missing);
            let got = limited
                .read_to_end(&mut self.pending)
                .map_err(|error| Error::io(format!("reading after line {}", self.line), error))?;
            self.ended = (got as u64) < missing;
        }
        Ok(())
    }
}

/// An NDJSON source. Its lines are sent unchanged, because the server parses them by the table's types.
pub struct Ndjson(Chunks);

impl Ndjson {
    pub fn new(reader: Box<dyn Read + Send>, position: u64, line: u64) -> Self {
        Ndjson(Chunks::new(reader, position, line))
    }
}

impl Pieces for Ndjson {
    fn next(&mut self) -> Result<Option<SourcePiece>> {
        let starts = self.0.position == 0;
        let Some(chunk) = self.0.next()? else { return Ok(None) };
        let mut body = Bytes::from(chunk);
        if starts {
            body = body.slice(body.len() - text_prefix(&body).len()..);
        }
        let rows = lines(&body).count() as u64;
        let (end, line, ends) = (self.0.position, self.0.line, Vec::new());
        Ok(Some(SourcePiece { end, line, rows, content_type: NDJSON, body, ends }))
    }
}

/// An access log, parsed line by line.
pub struct AccessLog {
    chunks: Chunks,
    /// Number of lines that could not be parsed and are stored as text.
    pub broken: u64,
}

impl AccessLog {
    pub fn new(reader: Box<dyn Read + Send>, position: u64, line: u64) -> Self {
        AccessLog { chunks: Chunks::new(reader, position, line), broken: 0 }
    }
}

impl Pieces for AccessLog {
    fn next(&mut self) -> Result<Option<SourcePiece>> {
        let line_before = self.chunks.line;
        let Some(chunk) = self.chunks.next()? else { return Ok(None) };
        let text = text_prefix(&chunk);
        let (mut end, mut line) = (self.chunks.position - text.len() as u64, line_before);
        let (mut entries, mut ends): (Vec<Entry>, Vec<_>) = Default::default();
        for whole in text.split_inclusive(|byte| *byte == b'\n') {
            end += whole.len() as u64;
            line += 1;
            if let Some(entry) = lines(whole).next() {
                entries.push(access_log::parse(&String::from_utf8_lossy(entry)));
                ends.push((end, line));
            }
        }
        self.broken += entries.iter().filter(|entry| entry.line.is_some()).count() as u64;
        let body = arrow_stream(&to_batch(&entries)?)?;
        let (end, line, rows) = (self.chunks.position, self.chunks.line, entries.len() as u64);
        Ok(Some(SourcePiece { end, line, rows, content_type: ARROW, body, ends }))
    }

    fn note(&self) -> Option<String> {
        let lines = counted(self.broken, "line");
        let are = if self.broken == 1 { "is" } else { "are" };
        (self.broken > 0)
            .then(|| format!("{lines} could not be taken apart and {are} kept whole in the column `line`"))
    }
}

/// Makes a batch of entries, with the columns of [`access_log::COLUMNS`].
pub fn to_batch(entries: &[Entry]) -> Result<RecordBatch> {
    let texts = |get: fn(&Entry) -> &Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(entries.iter().map(|entry| get(entry).as_deref())))
    };
    let numbers = |get: fn(&Entry) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(entries.iter().map(get)))
    };
    let times =
        TimestampMicrosecondArray::from_iter(entries.iter().map(|entry| entry.time)).with_timezone("UTC");
    let arrays: [ArrayRef; access_log::COLUMNS.len()] = [
        Arc::new(times),
        texts(|e| &e.host),
        texts(|e| &e.client),
        texts(|e| &e.ident),
        texts(|e| &e.user),
        texts(|e| &e.method),
        texts(|e| &e.path),
        texts(|e| &e.protocol),
        numbers(|e| e.status),
        numbers(|e| e.bytes),
        texts(|e| &e.referer),
        texts(|e| &e.agent),
        texts(|e| &e.extra),
        texts(|e| &e.line),
    ];
    let named = access_log::COLUMNS.iter().zip(arrays).map(|((name, _), array)| (*name, array, true));
    RecordBatch::try_from_iter_with_nullable(named)
        .map_err(|error| Error::internal("log lines do not make a batch").caused_by(error))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn all(pieces: &mut dyn Pieces) -> Vec<SourcePiece> {
        std::iter::from_fn(|| pieces.next().unwrap()).collect()
    }

    fn reader(text: &str, position: usize) -> Box<dyn Read + Send> {
        Box::new(Cursor::new(text.as_bytes()[position..].to_vec()))
    }

    #[test]
    fn pieces_are_whole_lines_and_together_the_source() {
        let text: String =
            (0..400_000).map(|i| format!("{{\"number\": {i}}}\n")).collect::<String>() + "{\"last\": 1}";
        let pieces = all(&mut Ndjson::new(reader(&text, 0), 0, 0));
        assert!(pieces.len() > 1);
        assert!(pieces.iter().all(|piece| piece.body.len() <= PIECE_BYTES));
        assert_eq!(pieces.iter().map(|piece| piece.rows).sum::<u64>(), 400_001);
        assert_eq!(pieces.last().unwrap().line, 400_001);
        let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.body.to_vec()).collect();
        assert_eq!(joined, text.as_bytes());
        for piece in &pieces[..pieces.len() - 1] {
            assert_eq!(piece.body.last(), Some(&b'\n'));
            let again = all(&mut Ndjson::new(reader(&text, piece.end as usize), piece.end, piece.line));
            assert_eq!(again.last().unwrap().end, text.len() as u64, "resumed at {}", piece.end);
        }
    }

    #[test]
    fn a_line_longer_than_a_piece_stays_whole() {
        let long = format!("{{\"a\": \"{}\"}}\n", "x".repeat(PIECE_BYTES * 2));
        let pieces = all(&mut Ndjson::new(reader(&(long.clone() + "{}\n"), 0), 0, 0));
        assert_eq!(pieces.iter().map(|piece| piece.rows).sum::<u64>(), 2);
        assert_eq!(pieces[0].line, 2.min(pieces[0].rows));
    }

    #[test]
    fn a_log_keeps_the_lines_that_it_cannot_take_apart() {
        let text = "\u{feff}1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5\r\n\nbroken\n";
        let mut log = AccessLog::new(reader(text, 0), 0, 0);
        let piece = log.next().unwrap().unwrap();
        assert_eq!((piece.rows, piece.line, log.broken), (2, 3, 1));
        assert_eq!(log.next().unwrap(), None);
        assert_eq!(
            log.note().unwrap(),
            "1 line could not be taken apart and is kept whole in the column `line`"
        );
    }
}

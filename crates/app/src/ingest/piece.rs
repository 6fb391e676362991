//! The pieces that a source is cut into. Each becomes one request and one commit.

use ::arrow::array::RecordBatch;
use ::arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use types::{Error, Result};

use super::arrow_stream;

/// Bytes of a source in one piece, about: large enough that the cost of a commit is negligible, small enough that the
/// progress bar moves and an interrupted run repeats little.
pub const PIECE_BYTES: usize = 4 << 20;

/// Some rows of a source, as one request's body.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePiece {
    /// Position at which the piece ends and the next one starts: in bytes of the unpacked source, or rows of a Parquet file.
    pub end: u64,
    /// Lines of the source up to the piece's end, for messages.
    pub line: u64,
    pub rows: u64,
    pub content_type: &'static str,
    pub body: Bytes,
    /// End position of each row, and the lines up to it. Empty if the body is lines of the source, which tell it themselves.
    pub ends: Vec<(u64, u64)>,
}

impl SourcePiece {
    /// Splits the piece into two with half of the rows each, for rows that are too large for one commit after decoding.
    /// Returns `None` if the piece cannot be split.
    pub fn halves(&self) -> Result<Option<[SourcePiece; 2]>> {
        match self.content_type {
            NDJSON => Ok(self.halves_of_lines()),
            ARROW => self.halves_of_rows(),
            _ => Ok(None),
        }
    }

    fn halves_of_lines(&self) -> Option<[SourcePiece; 2]> {
        // The cut lies after a newline, with rows on both sides. The server would read a body that begins with `[` as an array.
        let is_cut = |at: &usize| {
            let (first, rest) = self.body.split_at(*at);
            let next = || rest.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
            first.ends_with(b"\n")
                && next().is_some_and(|byte| !matches!(byte, b'[' | b'\r' | b'\n'))
                && !first.trim_ascii_start().is_empty()
        };
        let middle = self.body.len() / 2;
        let cut = (1..=middle).rev().find(is_cut).or_else(|| (middle..self.body.len()).find(is_cut))?;
        let (first, rest) = (self.body.slice(..cut), self.body.slice(cut..));
        let part = |body: Bytes, end, line| SourcePiece {
            end,
            line,
            rows: lines(&body).count() as u64,
            content_type: NDJSON,
            body,
            ends: Vec::new(),
        };
        let (end, line) = (self.end - rest.len() as u64, self.line - line_count(&rest));
        Some([part(first, end, line), part(rest, self.end, self.line)])
    }

    fn halves_of_rows(&self) -> Result<Option<[SourcePiece; 2]>> {
        let half = self.ends.len() / 2;
        if half == 0 {
            return Ok(None);
        }
        let failed = |error| Error::internal("a piece cannot be read again").caused_by(error);
        let batches = StreamReader::try_new(&self.body[..], None)
            .and_then(Iterator::collect::<Result<Vec<RecordBatch>, _>>)
            .map_err(failed)?;
        let [batch] = &batches[..] else { return Ok(None) };
        let part = |from: usize, to: usize, (end, line)| -> Result<SourcePiece> {
            let body = arrow_stream(&batch.slice(from, to - from))?;
            let rows = (to - from) as u64;
            Ok(SourcePiece { end, line, rows, content_type: ARROW, body, ends: self.ends[from..to].to_vec() })
        };
        let rows = self.ends.len();
        Ok(Some([part(0, half, self.ends[half - 1])?, part(half, rows, (self.end, self.line))?]))
    }
}

/// Returns the lines of a text that are not blank, without the space around them.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(|line| line.trim_ascii()).filter(|line| !line.is_empty())
}

/// Counts the lines of a text. The last one may lack its newline.
pub fn line_count(text: &[u8]) -> u64 {
    let newlines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    newlines + u64::from(text.last().is_some_and(|last| *last != b'\n'))
}

pub const NDJSON: &str = "application/x-ndjson";
pub const JSON: &str = "application/json";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// A source that is being cut into pieces.
pub trait Pieces: Send {
    /// Returns the next piece, or `None` at the end.
    fn next(&mut self) -> Result<Option<SourcePiece>>;

    /// Returns a remark for people about the rows that were read, if there is one.
    fn note(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::super::csv::{Csv, CsvOptions, infer};
    use super::super::lines::{AccessLog, Ndjson};
    use super::*;

    /// Returns the number of rows of a piece, its end and its line.
    fn shown(piece: &SourcePiece) -> (usize, u64, u64) {
        let rows = match piece.content_type {
            NDJSON => lines(&piece.body).count(),
            _ => StreamReader::try_new(&piece.body[..], None)
                .unwrap()
                .map(|batch| batch.unwrap().num_rows())
                .sum(),
        };
        assert_eq!(rows as u64, piece.rows);
        (rows, piece.end, piece.line)
    }

    /// Splits a piece into halves, down to single rows, in the order of the source.
    fn singles(piece: SourcePiece) -> Vec<SourcePiece> {
        let (mut left, mut all) = (vec![piece], Vec::new());
        while let Some(piece) = left.pop() {
            match piece.halves().unwrap() {
                Some([first, rest]) => left.extend([rest, first]),
                None => all.push(piece),
            }
        }
        all
    }

    #[test]
    fn a_half_ends_where_the_source_can_be_read_on() {
        let csv = "n,s\n1,a\n2,\"b\n\"\n\n3,c";
        let log = "\n1.1.1.1 - - [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n\nbroken\nlast";
        let ndjson = "{\"n\":1}\n\n{\"n\":2}\n{\"n\":3}";
        for (kind, text) in [("csv", csv), ("log", log), ("ndjson", ndjson)] {
            let pieces = |position: usize, line: u64| -> Box<dyn Pieces> {
                let source: Box<dyn Read + Send> =
                    Box::new(Cursor::new(text.as_bytes()[position..].to_vec()));
                let position = position as u64;
                match kind {
                    "csv" => {
                        let dialect = infer(csv.as_bytes(), &CsvOptions::default()).unwrap();
                        Box::new(Csv::new(source, dialect, position, line))
                    }
                    "log" => Box::new(AccessLog::new(source, position, line)),
                    _ => Box::new(Ndjson::new(source, position, line)),
                }
            };
            let whole = pieces(0, 0).next().unwrap().unwrap();
            let last = (whole.end, whole.line);
            assert_eq!((whole.rows, whole.end), (3, text.len() as u64), "{kind}");
            let singles = singles(whole);
            let ends = singles.last().map(|piece| (piece.end, piece.line));
            assert_eq!(ends, Some(last), "{kind}");
            let mut left = 3;
            for piece in &singles {
                left -= shown(piece).0;
                let rest = pieces(piece.end as usize, piece.line).next().unwrap();
                let found = rest.map_or((0, piece.end, piece.line), |rest| shown(&rest));
                assert_eq!(found, (left, last.0, last.1), "{kind}: behind {piece:?}");
            }
            assert_eq!(left, 0, "{kind}");
        }
        // No half begins like an array, and each half has a row.
        let of = |body: &'static str| SourcePiece {
            end: body.len() as u64,
            line: line_count(body.as_bytes()),
            rows: lines(body.as_bytes()).count() as u64,
            content_type: NDJSON,
            body: Bytes::from(body),
            ends: Vec::new(),
        };
        let halves = |body| of(body).halves().unwrap().map(|halves| halves.map(|half| half.body));
        assert_eq!(halves("{}\n[{}]\n"), None);
        assert_eq!(halves("\n\n{\"a\":1}\n\n\n\n"), None);
        let cut = ["{}\n [1]\n[2]\n", " {}\n"].map(Bytes::from);
        assert_eq!(halves("{}\n [1]\n[2]\n {}\n"), Some(cut));
        let array = SourcePiece {
            end: 9,
            line: 1,
            rows: 1,
            content_type: JSON,
            body: Bytes::from("[{},{},1]"),
            ends: Vec::new(),
        };
        assert_eq!(array.halves().unwrap(), None);
    }
}

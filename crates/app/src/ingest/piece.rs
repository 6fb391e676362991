//! A source cut into pieces: each becomes one request and one commit.

use ::arrow::array::RecordBatch;
use ::arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use types::{Error, Result};

use super::arrow_stream;

/// How much of a source one request carries: large enough that a commit's cost is nothing, small enough that the
/// progress bar moves and an interrupted run repeats little.
pub const PIECE_BYTES: usize = 4 << 20;

/// Some rows of a source, as one request's body.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Where it ends: the next one starts here. Bytes of the unpacked source, or rows of a Parquet file.
    pub end: u64,
    /// Lines up to its end, for messages.
    pub line: u64,
    pub rows: u64,
    pub content_type: &'static str,
    pub body: Bytes,
    /// Where each row ends, and the lines up to there, where its body does not tell.
    pub ends: Vec<(u64, u64)>,
}

impl Piece {
    /// The same rows as two pieces, for where the table makes too much of them; `None` where there is no place to cut.
    pub fn halves(&self) -> Result<Option<[Piece; 2]>> {
        match self.content_type {
            NDJSON => Ok(self.halves_of_lines()),
            ARROW => self.halves_of_rows(),
            _ => Ok(None),
        }
    }

    fn halves_of_lines(&self) -> Option<[Piece; 2]> {
        // Behind a line, with rows on both sides. A body that begins with `[` would be taken for an array.
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
        let part = |body: Bytes, end, line| Piece {
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

    fn halves_of_rows(&self) -> Result<Option<[Piece; 2]>> {
        let half = self.ends.len() / 2;
        if half == 0 {
            return Ok(None);
        }
        let failed = |error| Error::internal("a piece cannot be read again").caused_by(error);
        let batches = StreamReader::try_new(&self.body[..], None)
            .and_then(Iterator::collect::<Result<Vec<RecordBatch>, _>>)
            .map_err(failed)?;
        let [batch] = &batches[..] else { return Ok(None) };
        let part = |from: usize, to: usize, (end, line)| -> Result<Piece> {
            let body = arrow_stream(&batch.slice(from, to - from))?;
            let rows = (to - from) as u64;
            Ok(Piece { end, line, rows, content_type: ARROW, body, ends: self.ends[from..to].to_vec() })
        };
        let rows = self.ends.len();
        Ok(Some([part(0, half, self.ends[half - 1])?, part(half, rows, (self.end, self.line))?]))
    }
}

/// The lines of a text that say something.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(|line| line.trim_ascii()).filter(|line| !line.is_empty())
}

/// How many lines a text has; the last may lack its newline.
pub fn line_count(text: &[u8]) -> u64 {
    let newlines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    newlines + u64::from(text.last().is_some_and(|last| *last != b'\n'))
}

pub const NDJSON: &str = "application/x-ndjson";
pub const JSON: &str = "application/json";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// A source being cut.
pub trait Pieces: Send {
    /// The next piece, or `None` at the end.
    fn next(&mut self) -> Result<Option<Piece>>;

    /// What a person should know about what was read.
    fn note(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::super::csv::{Csv, Declared, infer};
    use super::super::lines::{AccessLog, Ndjson};
    use super::*;

    /// What a piece holds, and where it ends.
    fn shown(piece: &Piece) -> (usize, u64, u64) {
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

    /// Halves, down to single rows, in the order of the source.
    fn singles(piece: Piece) -> Vec<Piece> {
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
                        let dialect = infer(csv.as_bytes(), &Declared::default()).unwrap();
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
        // No half begins as an array does, or has no row.
        let of = |body: &'static str| Piece {
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
        let array = Piece {
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

//! A source cut into pieces: each becomes one request and one commit.

use bytes::Bytes;
use types::Result;

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

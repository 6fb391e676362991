//! Rows in and rows out: what bytes on the wire mean. No HTTP here beyond the names of media types.
//!
//! In: [`json`] (an object, an array, or one object after the other, which is NDJSON), [`csv`], [`protobuf`] and [`ipc`]
//! (an Arrow stream) become one [`Rows`]: a record batch by column name and the columns that the table lacks. Out: [`out`]
//! writes any record batch as JSON, NDJSON, CSV or an Arrow stream. Logs of OpenTelemetry are rows of columns of their own
//! ([`otlp`]).
//!
//! Bytes from outside never panic and never make more memory than [`Limits`] allows.
//!
//! ## How JSON becomes values
//!
//! | column | JSON |
//! |---|---|
//! | bool | `true`, `false` |
//! | int32, int64 | a number without fraction or exponent that fits, or the same as a string beyond 2^53, as [`out`] writes it |
//! | float32, float64 | a number; an integer only if the float holds it exactly |
//! | decimal(p,s) | a number, read from its text and never through a float, or the same as a string |
//! | string | a string |
//! | json | anything; kept as the text it came as |
//! | binary | a base64 string |
//! | date | `"2026-11-21"` |
//! | timestamp | a string as [`text::parse_time`] reads it, or an integer: µs since 1970, unless the column declares another unit |
//! | uuid | a string of 32 hexadecimal digits, hyphens allowed |
//! | list, vector(n) | an array |
//! | struct | an object |
//! | point, point3d | `{"lon":…,"lat":…}` or `[lon,lat]`; `{"x":…,"y":…,"z":…}` or `[x,y,z]` |
//!
//! A field without a column becomes one: integer → int64, fraction → float64, string → string, bool → bool, object or
//! array → json. A field that is null in every row makes no column. A column that met integers first and a fraction
//! later in the same body is float64. A field given twice in one object, also by two spellings of its case, is refused.

mod column;
pub mod count;
pub mod csv;
mod gather;
pub mod ipc;
pub mod json;
mod names;
pub mod otlp;
pub mod out;
pub mod parser;
pub mod pieces;
pub mod protobuf;
mod sift;
pub mod text;
pub mod texts;
pub mod value;

use arrow::record_batch::RecordBatch;
use types::{DataType, Error, TableDef};

pub use sift::{OnError, RAW_BYTES_MAX, Sifted, Skipped};

/// What the rows are for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// As users write it, for messages.
    pub table: &'a str,
    /// `None` for a table that is yet to be made.
    pub def: Option<&'a TableDef>,
    /// Whether a field without a column may become one.
    pub may_add_columns: bool,
}

/// What a body became.
#[derive(Debug)]
pub struct Rows {
    /// The user columns that the body mentions, by name; `table::conform` adds the others.
    pub batch: RecordBatch,
    /// Columns of `batch` that the table does not have yet, in order of appearance.
    pub new_columns: Vec<NewColumn>,
}

/// A column that the body asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct NewColumn {
    pub name: String,
    pub data_type: DataType,
}

/// How much one body may make.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that the decoded arrays may take, nulls of absent columns included.
    pub decoded_bytes_max: usize,
    /// Bad rows named before decoding stops.
    pub bad_rows_max: usize,
    /// What came before the body, where it is a piece of a stream: messages count on from there.
    pub before: Before,
    /// Which of the body's rows are meant, if not all. Of Arrow alone, whose batches come as a whole.
    pub part: Option<Part>,
    /// Of JSON: whether the body stands among rows one after the other, so that a `[` begins no array.
    pub among_rows: bool,
}

/// Some rows of a body, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub first: usize,
    pub rows: usize,
}

/// How much of a stream came before a piece of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    pub rows: usize,
    pub lines: u64,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            decoded_bytes_max: 256 << 20,
            bad_rows_max: 10,
            before: Before::default(),
            part: None,
            among_rows: false,
        }
    }
}

/// Why a body was refused: the error, and each row at fault up to a limit.
#[derive(Debug)]
pub struct Refused {
    pub error: Error,
    pub rows: Vec<BadRow>,
}

/// A row that does not fit. Rows count from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRow {
    pub row: usize,
    /// Where it begins, from 1: of CSV, where rows and lines are not the same.
    pub line: Option<u64>,
    pub column: Option<String>,
    pub message: String,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, rows: Vec::new() }
    }
}

/// One error for all bad rows: the first is spelled out, the others are counted.
pub(crate) fn refused(rows: Vec<BadRow>, limits: &Limits, hint: Option<String>) -> Refused {
    let first = &rows[0];
    let line = first.line.map_or_else(String::new, |line| format!(" (line {line})"));
    let column = first.column.as_ref().map_or_else(String::new, |column| format!(", column `{column}`"));
    let mut message = format!("row {}{line}{column}: {}", first.row, first.message);
    if rows.len() >= limits.bad_rows_max {
        message += &format!("; {} or more rows are bad, reading stopped there", rows.len());
    } else if rows.len() > 1 {
        message += &format!("; {} rows are bad in all", rows.len());
    }
    let mut error = Error::new(types::Kind::Schema, message);
    if let Some(hint) = hint {
        error = error.hint(hint);
    }
    Refused { error, rows }
}

/// Counts down what a body may still allocate.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    total: usize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        Budget { left: total, total }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> types::Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::new(
                types::Kind::TooLarge,
                format!("the rows would take more than {} MiB of memory once decoded", self.total >> 20),
            )
            .hint("send fewer rows in one body")),
        }
    }
}

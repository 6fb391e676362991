//! Encodes and decodes rows in the formats of the wire. No HTTP here beyond the names of media types.
//!
//! In: [`json`] (an object, an array, or a sequence of objects, which is NDJSON), [`csv`], [`protobuf`] and [`ipc`]
//! (an Arrow stream) become one [`DecodedRows`]: a record batch by column name and the columns that the table lacks.
//! Out: [`out`] writes any record batch as JSON, NDJSON, CSV or an Arrow stream. Logs of OpenTelemetry become rows
//! with fixed columns ([`otlp`]).
//!
//! Input bytes never cause a panic and never take more memory than [`Limits`] allows.
//!
//! ## JSON values of each column type
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
//! array → json. A field that is null in every row makes no column. A column whose first values are integers becomes
//! float64 if a fraction follows in the same body. A field given twice in one object is refused, also if the two
//! differ by case.

mod column;
pub mod count;
pub mod csv;
pub mod ipc;
pub mod json;
pub mod json_texts;
mod names;
pub mod otlp;
pub mod out;
pub mod parser;
pub mod pieces;
pub mod protobuf;
mod row_collector;
mod sift;
pub mod text;
pub mod value;

use arrow::record_batch::RecordBatch;
use types::{DataType, Error, TableDef};

pub use sift::{OnError, RAW_BYTES_MAX, SiftedRows, SkippedRow};

/// The table that the rows are decoded for.
#[derive(Clone, Copy, Debug)]
pub struct DecodeTarget<'a> {
    /// The name as users write it, for messages.
    pub table: &'a str,
    /// The definition; `None` if the table will be made for these rows.
    pub def: Option<&'a TableDef>,
    /// True if a field without a column may become one.
    pub may_add_columns: bool,
}

/// The decoded rows of a body.
#[derive(Debug)]
pub struct DecodedRows {
    /// The table's columns that occur in the body, and new ones, by name; `table::conform` adds the others.
    pub batch: RecordBatch,
    /// The columns of `batch` that the table does not have yet, in order of appearance.
    pub new_columns: Vec<NewColumn>,
}

/// A new column that the body needs.
#[derive(Clone, Debug, PartialEq)]
pub struct NewColumn {
    pub name: String,
    pub data_type: DataType,
}

/// The limits for decoding one body.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that the decoded arrays may take, including the nulls of absent columns.
    pub decoded_bytes_max: usize,
    /// The number of bad rows after which decoding stops.
    pub bad_rows_max: usize,
    /// The part of the stream before this body, if it is a piece of one; row, line and byte numbers in messages
    /// continue from it.
    pub before: StreamOffset,
    /// The rows to be decoded, if not all. Used for Arrow, whose batches cannot be split before decoding.
    pub part: Option<RowRange>,
    /// True if a JSON body is from the middle of a sequence of rows, so that a `[` begins no array. Ignored for other
    /// formats.
    pub among_rows: bool,
}

/// A range of consecutive rows of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The index of the first row, from 0.
    pub first: usize,
    pub rows: usize,
}

/// The size of the part of a stream before one of its pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOffset {
    pub rows: usize,
    pub lines: u64,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            decoded_bytes_max: 256 << 20,
            bad_rows_max: 10,
            before: StreamOffset::default(),
            part: None,
            among_rows: false,
        }
    }
}

/// The refusal of a body: the error, and each bad row up to a limit.
#[derive(Debug)]
pub struct RefusedBody {
    pub error: Error,
    pub rows: Vec<BadRow>,
}

/// A bad row, by its number from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRow {
    pub row: usize,
    /// The number of its first line, from 1. Only for CSV, where rows and lines are numbered differently.
    pub line: Option<u64>,
    pub column: Option<String>,
    pub message: String,
}

impl From<Error> for RefusedBody {
    fn from(error: Error) -> Self {
        RefusedBody { error, rows: Vec::new() }
    }
}

/// Makes one error for all bad rows: it describes the first and counts the others.
pub(crate) fn refused(rows: Vec<BadRow>, limits: &Limits, hint: Option<String>) -> RefusedBody {
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
    RefusedBody { error, rows }
}

/// The memory that a body may still allocate.
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

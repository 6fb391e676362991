//! Rows as Protobuf: one message `Rows` of `proto/polynya.proto`.
//!
//! The body is decoded in place: values go from the bytes into the columns. No message objects are built, which would
//! take twenty times the memory. Lengths are checked before use, and nesting is bounded. Unknown fields are refused,
//! because the sender may rely on them.
//!
//! | column | value |
//! |---|---|
//! | bool | `bool` |
//! | int32, int64 | `int64` that fits |
//! | float32, float64 | `double`; `int64` only if the float holds it exactly |
//! | decimal(p,s) | `string`, `int64` |
//! | string | `string` |
//! | json | anything: `json` as it is, the others as JSON writes them, bytes in base64 |
//! | binary | `bytes` |
//! | date | `string` |
//! | timestamp | `timestamp_micros`, `string`, `int64` in microseconds |
//! | uuid | `bytes` (16 of them), `string` |
//! | list, vector(n) | `list` |
//! | struct | `struct` |
//! | point, point3d | `struct`, `list` |
//!
//! A column that the table lacks gets the type of its first value: `int64`, `float64` (also if a `double` follows an
//! `int64`), `bool`, `string`, `binary`, `timestamp`; `json`, `list` and `struct` make a json column.

mod to_json;
mod wire;

use types::Error;

use super::column::{ColumnBuffer, ValueFault};
use super::row_collector::{BodyColumn, Misfit, RowCollector};
use super::sift::{OnError, SiftedRows};
use super::{Budget, DecodeTarget, DecodedRows, Limits, RefusedBody};

pub(crate) use to_json::write_json;
pub(crate) use wire::{Fields, MalformedMessage, Value, members, values};

/// Field numbers of `Rows` and `Row`.
pub(crate) const COLUMNS: u32 = 1;
pub(crate) const ROWS: u32 = 2;

/// Decodes every row of a body. If any row is bad, none is taken, and the error names all bad rows, up to a limit.
pub fn decode(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<DecodedRows, RefusedBody> {
    read(body, target, limits, OnError::Refuse).map(|sifted| sifted.rows)
}

/// Decodes the good rows of a body and reports the bad ones. Bytes that are not a message `Row` are a bad row too,
/// since the length before them tells where the row ends.
pub fn sift(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<SiftedRows, RefusedBody> {
    read(body, target, limits, OnError::Skip)
}

fn read(
    body: &[u8],
    target: DecodeTarget<'_>,
    limits: &Limits,
    on_error: OnError,
) -> Result<SiftedRows, RefusedBody> {
    // The names are read first, because they may stand anywhere in the message. This also detects a truncated body
    // before any row is taken.
    let columns = columns(body)?;
    let mut collector =
        RowCollector::new(columns.iter().copied(), target, limits, on_error, ColumnBuffer::untyped)?;
    let mut message = Fields::new(body);
    loop {
        let start = body.len() - message.left();
        let Some((number, field)) = message.next().map_err(no_rows)? else { break };
        let (ROWS, Some(row)) = (number, field.bytes()) else { continue };
        let raw = || to_json::row(row, &columns);
        if !collector.row(start, None, raw, |body_columns, budget| fill(row, body_columns, budget))? {
            break;
        }
    }
    collector.finish(row_at, |array, data_type, _| Ok(Some((array, data_type))))
}

/// Walks the whole message and returns the names of the columns.
fn columns(body: &[u8]) -> Result<Vec<&str>, Error> {
    let mut columns = Vec::new();
    let mut message = Fields::new(body);
    while let Some((number, field)) = message.next().map_err(no_rows)? {
        match (number, field.bytes()) {
            (COLUMNS, Some(name)) => {
                columns.push(
                    std::str::from_utf8(name)
                        .map_err(|_| no_rows(MalformedMessage("a column's name is not UTF-8")))?,
                );
            }
            (ROWS, Some(_)) => {}
            (COLUMNS | ROWS, None) => {
                return Err(no_rows(MalformedMessage("a field has the wrong wire type")));
            }
            _ => return Err(no_rows(MalformedMessage("it has a field that `Rows` does not have"))),
        }
        if columns.len() > types::schema::COLUMNS_MAX {
            return Err(Error::new(
                types::Kind::Schema,
                format!("the rows have more than {} columns", types::schema::COLUMNS_MAX),
            ));
        }
    }
    Ok(columns)
}

pub(crate) fn no_rows(broken: MalformedMessage) -> Error {
    Error::invalid(format!("the body is not a message `Rows`: {}", broken.0))
        .hint("`proto/polynya.proto` defines it")
}

/// Appends a row's values to the columns.
fn fill(row: &[u8], body_columns: &mut [BodyColumn], budget: &mut Budget) -> Result<(), Misfit> {
    let broken =
        |broken: MalformedMessage| Misfit::of_row(format!("it is not a message `Row`: {}", broken.0));
    let mut count = 0;
    for value in values(row) {
        let value = value.map_err(broken)?;
        if let Some(body_column) = body_columns.get_mut(count) {
            body_column
                .column
                .push_protobuf(value, budget)
                .map_err(|fault| Misfit { body_column: Some(count), fault })?;
        }
        count += 1;
    }
    if count > body_columns.len() {
        return Err(Misfit::of_row(format!("{} values at most expected, {count} found", body_columns.len())));
    }
    for (at, body_column) in body_columns.iter_mut().enumerate().skip(count) {
        body_column.column.push_nulls(1, budget).map_err(|fault| Misfit { body_column: Some(at), fault })?;
    }
    Ok(())
}

/// Returns the text of the row whose field begins at byte `start`.
fn row_at(body: &[u8], start: usize) -> String {
    // Senders write the columns before the rows.
    let mut names = Vec::new();
    let mut message = Fields::new(body);
    while let Ok(Some((COLUMNS, field))) = message.next() {
        names.push(field.bytes().and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default());
    }
    let field = Fields::new(&body[start..]).next().ok().flatten();
    to_json::row(field.and_then(|(_, field)| field.bytes()).unwrap_or_default(), &names)
}

/// A malformed message is reported as a misfit of the value.
impl From<MalformedMessage> for ValueFault {
    fn from(broken: MalformedMessage) -> Self {
        ValueFault::Misfit(format!("it is not a message `Value`: {}", broken.0))
    }
}

#[cfg(test)]
mod tests;

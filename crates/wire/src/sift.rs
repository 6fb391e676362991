//! Leaves out bad rows and keeps the good ones (`on_error=skip`).
//!
//! Each format has a function `sift` beside its `decode`. It returns the good rows, and for each bad one its number,
//! the reason and its text. A fault that hides the start of the next row (an unclosed quote in CSV, a broken array in
//! JSON, a truncated stream) still refuses the body. A row left out has no influence on new columns: neither on their
//! types nor on whether they are made.

use arrow::array::{Array, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use std::sync::Arc;
use types::{Error, RejectedRow, Result};

use super::{BadRow, Budget, DecodedRows, Limits, RefusedBody, StreamOffset, out, refused};

/// Bytes of a bad row's text that are kept.
pub const RAW_BYTES_MAX: usize = 16 << 10;

/// The handling of rows that do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The body is refused.
    #[default]
    Refuse,
    /// The bad rows are left out.
    Skip,
}

/// A row that was left out.
#[derive(Clone, Debug, PartialEq)]
pub struct SkippedRow {
    pub bad: BadRow,
    /// The row's text as received, or as JSON for formats without text; its first [`RAW_BYTES_MAX`] bytes.
    pub raw: String,
}

/// The good rows of a body, and the bad ones that were left out.
#[derive(Debug)]
pub struct SiftedRows {
    pub rows: DecodedRows,
    /// The bad rows, in the order of the body.
    pub skipped: Vec<SkippedRow>,
    pub(crate) origins: RowOrigins,
}

/// The origin of a batch's rows in the body.
#[derive(Debug)]
pub(crate) struct RowOrigins {
    /// The offset of each row in the body; empty if the format has no rows in sequence.
    pub starts: Vec<usize>,
    /// Returns the text of the row at an offset of the body.
    pub raw: fn(&[u8], usize) -> String,
    /// True if rows are also identified by their line.
    pub has_lines: bool,
    pub before: StreamOffset,
}

impl SiftedRows {
    /// Makes the result for a body whose rows all fit so far and are shown by their values.
    pub(crate) fn whole(rows: DecodedRows, before: StreamOffset) -> Self {
        let origins = RowOrigins { starts: Vec::new(), raw: |_, _| String::new(), has_lines: false, before };
        SiftedRows { rows, skipped: Vec::new(), origins }
    }

    /// Leaves out further rows that the table cannot take, given in ascending order. `body` is the input of the
    /// decoder.
    pub fn leave_out(&mut self, body: &[u8], unfit: Vec<RejectedRow>) -> Result<()> {
        if unfit.is_empty() {
            return Ok(());
        }
        let batch = &self.rows.batch;
        let mut keep = vec![true; batch.num_rows()];
        let mut gone = Vec::with_capacity(unfit.len());
        // The loop below maps rows of the batch to rows of the body, which also has the rows left out before.
        let mut left_out = self.skipped.iter().map(|skipped| skipped.bad.row).peekable();
        let before = self.origins.before;
        let (mut number, mut next) = (before.rows, 0);
        let (mut line, mut counted) = (1 + before.lines, 0);
        let writer = out::json::Writer::new(&batch.schema());
        for RejectedRow { row, column, message } in unfit {
            let Some(kept) = keep.get_mut(row) else { continue };
            *kept = false;
            while next <= row {
                number += 1;
                match left_out.next_if_eq(&number) {
                    Some(_) => {}
                    None => next += 1,
                }
            }
            let (mut raw, mut of_line) = (String::new(), None);
            match self.origins.starts.get(row) {
                Some(start) => {
                    raw = (self.origins.raw)(body, *start);
                    if self.origins.has_lines {
                        line += newlines(&body[counted..*start]);
                        counted = *start;
                        of_line = Some(line);
                    }
                }
                None => {
                    let mut text = Vec::new();
                    writer.rows(&batch.slice(row, 1), &mut text);
                    raw.push_str(bounded(String::from_utf8_lossy(&text).trim_end()));
                }
            }
            gone.push(SkippedRow { bad: BadRow { row: number, line: of_line, column, message }, raw });
        }
        self.rows = without(&self.rows, &BooleanArray::from(keep.clone()))?;
        if !self.origins.starts.is_empty() {
            let mut keep = keep.into_iter();
            self.origins.starts.retain(|_| keep.next().unwrap_or(false));
        }
        self.skipped.append(&mut gone);
        self.skipped.sort_by_key(|skipped| skipped.bad.row);
        Ok(())
    }
}

impl SiftedRows {
    /// Refuses the body because of rows that the table cannot take, given in ascending order; `None` if all rows are
    /// good.
    pub fn refuse(
        mut self,
        body: &[u8],
        unfit: Vec<RejectedRow>,
        limits: &Limits,
    ) -> Result<Option<RefusedBody>> {
        self.leave_out(body, unfit)?;
        let bad: Vec<BadRow> =
            self.skipped.into_iter().take(limits.bad_rows_max).map(|skipped| skipped.bad).collect();
        Ok((!bad.is_empty()).then(|| refused(bad, limits, None)))
    }
}

/// Returns the rows to keep. A new column without any value in them is dropped.
fn without(rows: &DecodedRows, keep: &BooleanArray) -> Result<DecodedRows> {
    let failed = |e: arrow::error::ArrowError| Error::internal(format!("bad rows cannot be skipped: {e}"));
    let (mut fields, mut arrays): (Vec<Field>, Vec<_>) = Default::default();
    let mut new_columns = rows.new_columns.clone();
    let schema = rows.batch.schema();
    for (field, array) in schema.fields().iter().zip(rows.batch.columns()) {
        let array = filter(array, keep).map_err(failed)?;
        let is_new = new_columns.iter().position(|new| new.name == *field.name());
        match is_new {
            Some(at) if array.null_count() == array.len() => {
                new_columns.remove(at);
            }
            _ => {
                fields.push(field.as_ref().clone());
                arrays.push(array);
            }
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(keep.true_count()));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
    Ok(DecodedRows { batch: batch.map_err(failed)?, new_columns })
}

/// Returns the beginning of a text, up to [`RAW_BYTES_MAX`] bytes.
pub(crate) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(RAW_BYTES_MAX)]
}

/// Charges the memory for a row that was left out.
pub(crate) fn charge(skipped: &SkippedRow, budget: &mut Budget) -> Result<()> {
    budget.take(160 + skipped.raw.len() + skipped.bad.message.len())
}

pub(crate) fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

//! Collects rows from formats that name their columns before the first row: CSV and Protobuf.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use types::{DataType, Error};

use super::column::{ColumnBuffer, ValueFault, null_bytes};
use super::sift::{OnError, RowOrigins, SiftedRows, SkippedRow, bounded, charge};
use super::{BadRow, Budget, DecodeTarget, DecodedRows, Limits, NewColumn, RefusedBody, names, refused};

/// A column of the body.
pub(crate) struct BodyColumn {
    /// The table's spelling of the name, or for a new column the body's.
    pub name: String,
    /// The position among the table's columns; `None` for a new column.
    pub existing: Option<usize>,
    pub column: ColumnBuffer,
}

/// A value that does not fit: its column, if a single column is at fault, and the reason.
pub(crate) struct Misfit {
    pub body_column: Option<usize>,
    pub fault: ValueFault,
}

impl Misfit {
    pub fn of_row(message: impl Into<String>) -> Self {
        Misfit { body_column: None, fault: ValueFault::Misfit(message.into()) }
    }
}

pub(crate) struct RowCollector<'a> {
    limits: &'a Limits,
    on_error: OnError,
    body_columns: Vec<BodyColumn>,
    /// The number of rows taken, and of all rows.
    rows: usize,
    seen: usize,
    /// Bytes that a row of nulls takes.
    row_bytes: usize,
    bad: Vec<BadRow>,
    /// The bad rows that were left out, and the offset of each good row in the body. Empty unless bad rows are
    /// skipped.
    skipped: Vec<SkippedRow>,
    starts: Vec<usize>,
    budget: Budget,
}

impl<'a> RowCollector<'a> {
    /// Resolves the names of the columns. `new` makes the builder for a column that the table lacks.
    pub fn new<'n>(
        wanted: impl Iterator<Item = &'n str> + Clone,
        target: DecodeTarget<'_>,
        limits: &'a Limits,
        on_error: OnError,
        new: impl Fn() -> ColumnBuffer,
    ) -> Result<Self, RefusedBody> {
        let found = names::resolve(wanted.clone(), target, limits)?;
        let known = names::columns(target);
        let body_column = |(name, existing): (&str, Option<usize>)| {
            let (name, column) = match existing {
                Some(at) => (known[at].name.clone(), ColumnBuffer::of(target.def, &known[at])),
                None => (name.to_owned(), new()),
            };
            BodyColumn { name, existing, column }
        };
        let body_columns: Vec<BodyColumn> = wanted.zip(found).map(body_column).collect();
        let of_new = body_columns.iter().filter(|body_column| body_column.existing.is_none()).count() * 8;
        let of_start = if on_error == OnError::Skip { size_of::<usize>() } else { 0 };
        let of_known = known.iter().map(|c| null_bytes(&c.data_type)).sum::<usize>();
        Ok(RowCollector {
            limits,
            on_error,
            body_columns,
            rows: 0,
            seen: 0,
            row_bytes: 16 + of_new + of_start + of_known,
            bad: Vec::new(),
            skipped: Vec::new(),
            starts: Vec::new(),
            budget: Budget::new(limits.decoded_bytes_max),
        })
    }

    /// Takes a row: `fill` must append one value to each column. `start` is the row's offset in the body, `raw`
    /// returns the row as text. Returns true if more rows are wanted.
    pub fn row(
        &mut self,
        start: usize,
        line: Option<u64>,
        raw: impl FnOnce() -> String,
        fill: impl FnOnce(&mut [BodyColumn], &mut Budget) -> Result<(), Misfit>,
    ) -> Result<bool, Error> {
        self.seen += 1;
        let bytes = (self.rows + 1).saturating_mul(self.row_bytes);
        Budget::new(self.limits.decoded_bytes_max).take(bytes)?;
        let skips = self.on_error == OnError::Skip;
        let Err(misfit) = fill(&mut self.body_columns, &mut self.budget) else {
            self.rows += 1;
            if skips {
                self.starts.push(start);
            }
            return Ok(true);
        };
        let message = match misfit.fault {
            ValueFault::Misfit(message) => message,
            ValueFault::Malformed(at) => format!("{} expected at byte {}", at.expected, at.at),
            ValueFault::Limit(error) => return Err(error),
        };
        for body_column in &mut self.body_columns {
            body_column.column.truncate(self.rows);
        }
        let column = misfit.body_column.map(|at| self.body_columns[at].name.clone());
        let bad = BadRow { row: self.limits.before.rows + self.seen, line, column, message };
        if skips {
            let skipped = SkippedRow { bad, raw: bounded(&raw()).to_owned() };
            charge(&skipped, &mut self.budget)?;
            self.skipped.push(skipped);
            return Ok(true);
        }
        self.bad.push(bad);
        Ok(self.bad.len() < self.limits.bad_rows_max)
    }

    /// Makes the batch. `last` may convert a new column whose type is known only at the end; a column without a type
    /// is dropped. `raw` returns the row at an offset of the body.
    pub fn finish(
        self,
        raw: fn(&[u8], usize) -> String,
        last: impl Fn(ArrayRef, DataType, &mut Budget) -> Result<Option<(ArrayRef, DataType)>, Error>,
    ) -> Result<SiftedRows, RefusedBody> {
        let RowCollector { limits, body_columns, rows, bad, skipped, starts, mut budget, .. } = self;
        if !bad.is_empty() {
            let hint = "change the rows, or leave them out: ?on_error=skip";
            return Err(refused(bad, limits, Some(hint.into())));
        }
        let (mut fields, mut arrays, mut new_columns) = (Vec::new(), Vec::new(), Vec::new());
        for body_column in body_columns {
            let data_type = body_column.column.data_type().cloned();
            let (Some(data_type), Some(array)) = (data_type, body_column.column.finish()?) else { continue };
            let (array, data_type) = match body_column.existing {
                Some(_) => (array, data_type),
                None => match last(array, data_type, &mut budget)? {
                    Some(found) => found,
                    None => continue,
                },
            };
            debug_assert_eq!(array.len(), rows, "each row gave each place a value");
            fields.push(Field::new(&body_column.name, array.data_type().clone(), true));
            arrays.push(array);
            if body_column.existing.is_none() {
                new_columns.push(NewColumn { name: body_column.name, data_type });
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
            .map_err(|e| Error::internal(format!("decoded rows do not form a batch: {e}")))?;
        Ok(SiftedRows {
            rows: DecodedRows { batch, new_columns },
            skipped,
            origins: RowOrigins { starts, raw, has_lines: false, before: limits.before },
        })
    }
}

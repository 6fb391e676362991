//! Collects rows from formats that name their columns before the first row: CSV and Protobuf.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use types::{DataType, Error};

use super::column::{Column, Fault, null_bytes};
use super::sift::{OnError, Origins, Sifted, Skipped, bounded, charge};
use super::{BadRow, Budget, Limits, NewColumn, Refused, Rows, Target, names, refused};

/// A column of the body.
pub(crate) struct Place {
    /// The table's spelling of the name, or for a new column the body's.
    pub name: String,
    /// The position among the table's columns; `None` for a new column.
    pub existing: Option<usize>,
    pub column: Column,
}

/// A value that does not fit: its column, if a single column is at fault, and the reason.
pub(crate) struct Misfit {
    pub place: Option<usize>,
    pub fault: Fault,
}

impl Misfit {
    pub fn of_row(message: impl Into<String>) -> Self {
        Misfit { place: None, fault: Fault::Misfit(message.into()) }
    }
}

pub(crate) struct Gather<'a> {
    limits: &'a Limits,
    on_error: OnError,
    places: Vec<Place>,
    /// The number of rows taken, and of all rows.
    rows: usize,
    seen: usize,
    /// Bytes that a row of nulls takes.
    row_bytes: usize,
    bad: Vec<BadRow>,
    /// The bad rows that were left out, and the offset of each good row in the body. Empty unless bad rows are
    /// skipped.
    skipped: Vec<Skipped>,
    starts: Vec<usize>,
    budget: Budget,
}

impl<'a> Gather<'a> {
    /// Resolves the names of the columns. `new` makes the builder for a column that the table lacks.
    pub fn new<'n>(
        wanted: impl Iterator<Item = &'n str> + Clone,
        target: Target<'_>,
        limits: &'a Limits,
        on_error: OnError,
        new: impl Fn() -> Column,
    ) -> Result<Self, Refused> {
        let found = names::resolve(wanted.clone(), target, limits)?;
        let known = names::columns(target);
        let place = |(name, existing): (&str, Option<usize>)| {
            let (name, column) = match existing {
                Some(at) => (known[at].name.clone(), Column::of(target.def, &known[at])),
                None => (name.to_owned(), new()),
            };
            Place { name, existing, column }
        };
        let places: Vec<Place> = wanted.zip(found).map(place).collect();
        let of_new = places.iter().filter(|place| place.existing.is_none()).count() * 8;
        let of_start = if on_error == OnError::Skip { size_of::<usize>() } else { 0 };
        let of_known = known.iter().map(|c| null_bytes(&c.data_type)).sum::<usize>();
        Ok(Gather {
            limits,
            on_error,
            places,
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
        fill: impl FnOnce(&mut [Place], &mut Budget) -> Result<(), Misfit>,
    ) -> Result<bool, Error> {
        self.seen += 1;
        let bytes = (self.rows + 1).saturating_mul(self.row_bytes);
        Budget::new(self.limits.decoded_bytes_max).take(bytes)?;
        let skips = self.on_error == OnError::Skip;
        let Err(misfit) = fill(&mut self.places, &mut self.budget) else {
            self.rows += 1;
            if skips {
                self.starts.push(start);
            }
            return Ok(true);
        };
        let message = match misfit.fault {
            Fault::Misfit(message) => message,
            Fault::Malformed(at) => format!("{} expected at byte {}", at.expected, at.at),
            Fault::Limit(error) => return Err(error),
        };
        for place in &mut self.places {
            place.column.truncate(self.rows);
        }
        let column = misfit.place.map(|at| self.places[at].name.clone());
        let bad = BadRow { row: self.limits.before.rows + self.seen, line, column, message };
        if skips {
            let skipped = Skipped { bad, raw: bounded(&raw()).to_owned() };
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
    ) -> Result<Sifted, Refused> {
        let Gather { limits, places, rows, bad, skipped, starts, mut budget, .. } = self;
        if !bad.is_empty() {
            let hint = "change the rows, or leave them out: ?on_error=skip";
            return Err(refused(bad, limits, Some(hint.into())));
        }
        let (mut fields, mut arrays, mut new_columns) = (Vec::new(), Vec::new(), Vec::new());
        for place in places {
            let data_type = place.column.data_type().cloned();
            let (Some(data_type), Some(array)) = (data_type, place.column.finish()?) else { continue };
            let (array, data_type) = match place.existing {
                Some(_) => (array, data_type),
                None => match last(array, data_type, &mut budget)? {
                    Some(found) => found,
                    None => continue,
                },
            };
            debug_assert_eq!(array.len(), rows, "each row gave each place a value");
            fields.push(Field::new(&place.name, array.data_type().clone(), true));
            arrays.push(array);
            if place.existing.is_none() {
                new_columns.push(NewColumn { name: place.name, data_type });
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
            .map_err(|e| Error::internal(format!("decoded rows make no batch: {e}")))?;
        Ok(Sifted {
            rows: Rows { batch, new_columns },
            skipped,
            origins: Origins { starts, raw, has_lines: false, before: limits.before },
        })
    }
}

//! The order of rows within a file: by the table's sort columns and then by row id, or by row id alone.

use std::cmp::Ordering;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use iceberg::schema::Columns;
use types::{Error, Result};

use crate::row_ids::ids_of;

/// Computes sort keys of rows.
pub(crate) struct RowOrder {
    /// Indices of the sort columns in a batch and the converter to comparable rows; `None` sorts by row id.
    by: Option<(Vec<usize>, RowConverter)>,
}

/// The sort keys of a batch's rows.
pub(crate) struct SortKeys {
    sorts: Option<Rows>,
    ids: Vec<i64>,
}

impl RowOrder {
    pub fn of(columns: &Columns) -> Result<RowOrder> {
        let sorts = &columns.layout.sorts;
        if sorts.is_empty() {
            return Ok(RowOrder { by: None });
        }
        let field = |sort: &iceberg::layout::SortColumn| {
            let options = SortOptions { descending: sort.descending, nulls_first: sort.nulls_first };
            SortField::new_with_options(columns.arrow.field(sort.at).data_type().clone(), options)
        };
        let converter = RowConverter::new(sorts.iter().map(field).collect()).map_err(failed)?;
        Ok(RowOrder { by: Some((sorts.iter().map(|sort| sort.at).collect(), converter)) })
    }

    pub fn keys(&self, batch: &RecordBatch) -> Result<SortKeys> {
        let sorts = match &self.by {
            None => None,
            Some((at, converter)) => {
                let columns: Vec<ArrayRef> = at.iter().map(|at| batch.column(*at).clone()).collect();
                Some(converter.convert_columns(&columns).map_err(failed)?)
            }
        };
        Ok(SortKeys { sorts, ids: ids_of(batch.column(0))?.to_vec() })
    }
}

impl SortKeys {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Compares a row with a row of other keys. Both must come from the same [`RowOrder`].
    pub fn compare(&self, row: usize, other: &SortKeys, other_row: usize) -> Ordering {
        let sorts = match (&self.sorts, &other.sorts) {
            (Some(ours), Some(theirs)) => ours.row(row).cmp(&theirs.row(other_row)),
            _ => Ordering::Equal,
        };
        sorts.then_with(|| self.ids[row].cmp(&other.ids[other_row]))
    }

    /// Returns true if each row comes after the one before it.
    pub fn ascend(&self) -> bool {
        (1..self.len()).all(|row| self.compare(row - 1, self, row) == Ordering::Less)
    }
}

fn failed(error: ArrowError) -> Error {
    Error::internal(format!("sorting rows: {error}"))
}

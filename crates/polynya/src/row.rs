//! One row of a snapshot.

use table::RowRef;
use types::{Error, Result, RowId, Value, name};

/// A row of a snapshot, by reference. It keeps the underlying batch alive and copies values only on access.
#[derive(Clone, Debug)]
pub struct Row(RowRef);

impl Row {
    pub(crate) fn new(row: RowRef) -> Self {
        Row(row)
    }

    /// Returns the id of this version of the row, which compare-and-set expects.
    pub fn row_id(&self) -> RowId {
        self.0.row_id()
    }

    /// Returns the value of a column. The name matches exactly, or regardless of case if that is unambiguous.
    pub fn get(&self, column: &str) -> Result<Value> {
        let found = self.0.def().schema.column_named(column);
        let missing = || Error::not_found(format!("there is no column `{}`", name::printable(column)));
        self.0.value(found.ok_or_else(missing)?.id)
    }

    /// Returns all values, in the order of the table's columns.
    pub fn values(&self) -> Result<Vec<Value>> {
        self.0.values()
    }
}

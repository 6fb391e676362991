//! One row.

use table::RowRef;
use types::{Error, Result, RowId, Value, name};

/// A row of a snapshot, by reference: it keeps what holds it alive and copies nothing before it is asked.
#[derive(Clone, Debug)]
pub struct Row(RowRef);

impl Row {
    pub(crate) fn new(row: RowRef) -> Self {
        Row(row)
    }

    /// Names this version of the row: what compare-and-set expects.
    pub fn row_id(&self) -> RowId {
        self.0.row_id()
    }

    /// The value of a column, named exactly or by the only name that differs by case.
    pub fn get(&self, column: &str) -> Result<Value> {
        let found = self.0.def().schema.column_named(column);
        let missing = || Error::not_found(format!("there is no column `{}`", name::printable(column)));
        self.0.value(found.ok_or_else(missing)?.id)
    }

    /// All values, in the order of the table's columns.
    pub fn values(&self) -> Result<Vec<Value>> {
        self.0.values()
    }
}

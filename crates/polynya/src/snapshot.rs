//! The database at one lsn.

use std::sync::Arc;
use std::vec;

use arrow::array::RecordBatch;
use engine::Root;
use table::{Piece, Projection};
use types::{DataType, Error, Lsn, Result, Value, key, name};

use crate::Row;

/// An immutable value: all tables at one lsn. Cheap to clone and to send to other threads.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Root>);

impl Snapshot {
    pub(crate) fn new(root: Arc<Root>) -> Self {
        Snapshot(root)
    }

    /// The last commit it contains.
    pub fn lsn(&self) -> Lsn {
        self.0.lsn()
    }

    /// A table by `[namespace.]table`: exact, or the only one that differs by case.
    pub fn table(&self, table: &str) -> Result<Arc<table::Snapshot>> {
        let full_name = name::full_table_name(table)?;
        if let Some(found) = self.0.table(&full_name) {
            return Ok(found.clone());
        }
        let names = self.0.tables().map(|t| t.def().name.as_str());
        let folded = name::resolve(&full_name, names).and_then(|i| self.0.tables().nth(i));
        folded
            .cloned()
            .ok_or_else(|| Error::not_found(format!("there is no table `{}`", name::printable(table))))
    }

    /// The row of a key, given in the order of the key's columns.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        let table = self.table(table)?;
        if !table.def().is_keyed() {
            return Err(Error::invalid(format!("table `{}` has no primary key", table.def().name)));
        }
        let types: Vec<DataType> = table.def().key_columns().map(|c| c.data_type.clone()).collect();
        let row = table.get_row(&key::encode_values(&types, key)?)?;
        Ok(row.map(|row| Row::new(table.def().clone(), row)))
    }

    /// All rows of a table in row-id order, in batches; `_row_id` and `_time` come first.
    pub fn scan(&self, table: &str) -> Result<Scan> {
        let table = self.table(table)?;
        Ok(Scan { projection: table.all_columns().clone(), pieces: table.pieces().into_iter() })
    }
}

/// Batches of a table, read as they are asked for.
#[derive(Debug)]
pub struct Scan {
    projection: Projection,
    pieces: vec::IntoIter<Piece>,
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.pieces.next()?.read(&self.projection))
    }
}

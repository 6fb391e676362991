//! The database at one lsn.

use std::sync::Arc;
use std::vec;

use arrow::array::RecordBatch;
use engine::Root;
use table::{Piece, Projection};
use types::{DataType, Error, Lsn, Result, Value, key, name};

use crate::Row;
use crate::lease::Lease;

/// An immutable value: all tables at one lsn. Cheap to clone and to send to other threads.
///
/// It ends after [`crate::Options::snapshot_age_max`]: what was taken out of it, a table or a scan, goes on, and all else fails
/// with [`crate::Kind::Timeout`].
#[derive(Clone, Debug)]
pub struct Snapshot {
    lease: Arc<Lease>,
}

impl Snapshot {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Snapshot { lease }
    }

    /// The last commit it contains.
    pub fn lsn(&self) -> Lsn {
        self.lease.lsn()
    }

    /// A table by `[namespace.]table`: exact, or the only one that differs by case.
    pub fn table(&self, table: &str) -> Result<Arc<table::Snapshot>> {
        let held = self.lease.held()?;
        match &held.then {
            Some(view) => view.table(table),
            None => self::table(&held.root, table),
        }
    }

    /// The row of a key, given in the order of the key's columns.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        get(&self.table(table)?, key)
    }

    /// All rows of a table in row-id order, in batches; `_row_id` and `_time` come first. In a snapshot of the past, rows that
    /// were changed or deleted since come behind the others.
    pub fn scan(&self, table: &str) -> Result<Scan> {
        let table = self.table(table)?;
        Ok(Scan { projection: table.all_columns().clone(), pieces: table.pieces().into_iter() })
    }
}

pub(crate) fn table(root: &Arc<Root>, table: &str) -> Result<Arc<table::Snapshot>> {
    let full_name = name::full_table_name(table)?;
    if let Some(found) = root.table(&full_name) {
        return Ok(found.clone());
    }
    let names = root.tables().map(|t| t.def().name.as_str());
    let folded = name::resolve(&full_name, names).and_then(|i| root.tables().nth(i));
    folded.cloned().ok_or_else(|| Error::not_found(format!("there is no table `{}`", name::printable(table))))
}

pub(crate) fn get(table: &Arc<table::Snapshot>, key: &[Value]) -> Result<Option<Row>> {
    if !table.def().is_keyed() {
        return Err(Error::invalid(format!("table `{}` has no primary key", table.def().name)));
    }
    let types: Vec<DataType> = table.def().key_columns().map(|c| c.data_type.clone()).collect();
    let row = table.get_row(&key::encode_values(&types, key)?)?;
    Ok(row.map(|row| Row::new(table.def().clone(), row)))
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

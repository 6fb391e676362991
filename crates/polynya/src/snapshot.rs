//! The database at one lsn.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use engine::Root;
#[cfg(feature = "sql")]
use engine::View;
use table::Projection;
use types::{Error, Lsn, Result, TableDef, Value, key, name};

use crate::Row;
use crate::lease::{Lease, Pieces};

/// An immutable value: all tables at one lsn. Cheap to clone and to send to other threads.
///
/// It ends after [`crate::Options::snapshot_age_max`]: reading it, and what is left of its scans, fails with
/// [`crate::Kind::Timeout`]. Batches that were read stay.
#[derive(Clone, Debug)]
pub struct Snapshot {
    lease: Arc<Lease>,
}

impl Snapshot {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Snapshot { lease }
    }

    /// What SQL reads it through.
    #[cfg(feature = "sql")]
    pub(crate) fn view(&self, db: &crate::Database) -> Result<View> {
        let held = self.lease.held()?;
        match &held.then {
            Some(view) => Ok(view.clone()),
            None => db.engine.view_of(held.root.clone(), &db.principal),
        }
    }

    /// The last commit it contains.
    pub fn lsn(&self) -> Lsn {
        self.lease.lsn()
    }

    /// How a table is defined: its columns, key and options.
    pub fn definition(&self, table: &str) -> Result<Arc<TableDef>> {
        Ok(self.table(table)?.def().clone())
    }

    /// How many rows a table has. Costs nothing.
    pub fn rows(&self, table: &str) -> Result<u64> {
        Ok(self.table(table)?.rows())
    }

    /// A table by `[namespace.]table`: exact, or the only one that differs by case. The value is the engine's own and has no
    /// end, so it is not handed out.
    pub(crate) fn table(&self, table: &str) -> Result<Arc<table::Snapshot>> {
        let held = self.lease.held()?;
        match &held.then {
            Some(view) => view.table(table),
            None => table_of(&held.root, table),
        }
    }

    /// The row of a key, given in the order of the key's columns.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        row_of(&*self.table(table)?, key)
    }

    /// All rows of a table in row-id order, in batches; `_row_id` and `_time` come first. In a snapshot of the past, rows that
    /// were changed or deleted since come behind the others.
    pub fn scan(&self, table: &str) -> Result<Scan> {
        let table = self.table(table)?;
        let pieces = self.lease.lend(table.pieces())?;
        Ok(Scan { projection: table.all_columns().clone(), pieces, next: 0 })
    }
}

/// A table of a root by `[namespace.]table`: exact, or the only one that differs by case.
pub(crate) fn table_of(root: &Root, table: &str) -> Result<Arc<table::Snapshot>> {
    if let Some(found) = root.table(&name::qualified(table)) {
        return Ok(found.clone());
    }
    let full_name = name::full_table_name(table)?;
    let names = root.tables().map(|t| t.def().name.as_str());
    let folded = name::resolve(&full_name, names).and_then(|i| root.tables().nth(i));
    folded.cloned().ok_or_else(|| Error::not_found(format!("there is no table `{}`", name::printable(table))))
}

/// The row of a key of the table.
pub(crate) fn row_of(table: &table::Snapshot, key: &[Value]) -> Result<Option<Row>> {
    let def = table.def();
    if !def.is_keyed() {
        return Err(Error::invalid(format!("table `{}` has no primary key", def.name)));
    }
    let types = def.key_columns().map(|column| &column.data_type);
    let _reading = vfs::read_path();
    Ok(table.get_row(&key::encode_values(types, key)?)?.map(Row::new))
}

/// Batches of a table, read as they are asked for. Its last item is [`crate::Kind::Timeout`] if the snapshot ends before.
#[derive(Debug)]
pub struct Scan {
    projection: Projection,
    pieces: Arc<Pieces>,
    next: usize,
}

impl Scan {
    /// Of every batch.
    pub fn schema(&self) -> &SchemaRef {
        self.projection.schema()
    }
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.pieces.count {
            self.pieces.let_go();
            return None;
        }
        match self.pieces.all() {
            Ok(pieces) => {
                self.next += 1;
                Some(pieces[self.next - 1].read(&self.projection))
            }
            Err(ended) => {
                self.next = self.pieces.count;
                Some(Err(ended))
            }
        }
    }
}

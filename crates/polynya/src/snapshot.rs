//! The database at one lsn.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use engine::DatabaseRoot;
#[cfg(feature = "sql")]
use engine::View;
use table::Projection;
use types::{Error, Lsn, Result, TableDef, Value, key, name};

use crate::Row;
use crate::lease::{Lease, LeasedPieces};

/// An immutable snapshot of all tables at one lsn. Cheap to clone and to send to other threads.
///
/// It ends after [`crate::Options::snapshot_age_max`]: further reads and running scans then fail with [`crate::Kind::Timeout`].
/// Batches that were read stay valid.
#[derive(Clone, Debug)]
pub struct Snapshot {
    lease: Arc<Lease>,
}

impl Snapshot {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Snapshot { lease }
    }

    /// Returns the view through which SQL reads the snapshot.
    #[cfg(feature = "sql")]
    pub(crate) fn view(&self, db: &crate::Database) -> Result<View> {
        let leased = self.lease.root()?;
        match &leased.past {
            Some(view) => Ok(view.clone()),
            None => db.engine.view_of(leased.root.clone(), &db.principal),
        }
    }

    /// Returns the last commit that the snapshot contains.
    pub fn lsn(&self) -> Lsn {
        self.lease.lsn()
    }

    /// Returns the definition of a table: its columns, key and options.
    pub fn definition(&self, table: &str) -> Result<Arc<TableDef>> {
        Ok(self.table(table)?.def().clone())
    }

    /// Returns the number of rows of a table, in constant time.
    pub fn rows(&self, table: &str) -> Result<u64> {
        Ok(self.table(table)?.rows())
    }

    /// Returns a table by `[namespace.]table`. The name matches exactly, or regardless of case if that is unambiguous. The result
    /// is not bound by the lease, so it must not be handed to callers.
    pub(crate) fn table(&self, table: &str) -> Result<Arc<table::Snapshot>> {
        let leased = self.lease.root()?;
        match &leased.past {
            Some(view) => view.table(table),
            None => table_of(&leased.root, table),
        }
    }

    /// Returns the row of a key. Values come in the order of the key's columns.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        row_of(&*self.table(table)?, key)
    }

    /// Returns all rows of a table in batches, in row-id order; `_row_id` and `_time` are the first columns. In a snapshot of the
    /// past, rows that were changed or deleted since come last.
    pub fn scan(&self, table: &str) -> Result<Scan> {
        let table = self.table(table)?;
        let pieces = self.lease.lease_pieces(table.pieces())?;
        Ok(Scan { projection: table.all_columns().clone(), pieces, next: 0 })
    }
}

/// Returns a table of a root by `[namespace.]table`. The name matches exactly, or regardless of case if that is unambiguous.
pub(crate) fn table_of(root: &DatabaseRoot, table: &str) -> Result<Arc<table::Snapshot>> {
    if let Some(found) = root.table(&name::qualified(table)) {
        return Ok(found.clone());
    }
    let full_name = name::full_table_name(table)?;
    let names = root.tables().map(|t| t.def().name.as_str());
    let folded = name::resolve(&full_name, names).and_then(|i| root.tables().nth(i));
    folded.cloned().ok_or_else(|| Error::not_found(format!("there is no table `{}`", name::printable(table))))
}

/// Returns the row of a key. Fails with [`Kind::Invalid`](types::Kind::Invalid) if the table has no primary key.
pub(crate) fn row_of(table: &table::Snapshot, key: &[Value]) -> Result<Option<Row>> {
    let def = table.def();
    if !def.is_keyed() {
        return Err(Error::invalid(format!("table `{}` has no primary key", def.name)));
    }
    let types = def.key_columns().map(|column| &column.data_type);
    let _reading = vfs::read_path();
    Ok(table.get_row(&key::encode_values(types, key)?)?.map(Row::new))
}

/// An iterator over the batches of a table, which are read on demand. Yields [`crate::Kind::Timeout`] as its last item if the
/// snapshot ends before.
#[derive(Debug)]
pub struct Scan {
    projection: Projection,
    pieces: Arc<LeasedPieces>,
    next: usize,
}

impl Scan {
    /// Returns the schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        self.projection.schema()
    }
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.pieces.count {
            self.pieces.release();
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

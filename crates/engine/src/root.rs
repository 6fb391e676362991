//! The root: the whole database at one lsn, as an immutable value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use commitlog::edit::ApiKey;
use types::{Error, Kind, Lsn, Micros, Principal, Result, RowId, Scope, TableId, TableSet, name};

use crate::near::near;

/// Everything at one lsn (S1, S2). Loading it is one atomic operation; holding it delays nobody, it only keeps memory
/// and files alive.
#[derive(Clone, Debug)]
pub struct Root {
    pub(crate) lsn: Lsn,
    pub(crate) time: Micros,
    /// When it was made, on the engine's monotonic clock.
    pub(crate) made: Duration,
    /// By full name.
    pub(crate) tables: imbl::OrdMap<Arc<str>, Arc<table::Snapshot>>,
    pub(crate) meta: Arc<Meta>,
}

/// What a database has besides tables. Changes rarely, so roots share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub keys: Vec<ApiKey>,
    pub next_table: TableId,
    pub checkpoints: BTreeMap<(String, TableId), Checkpoint>,
}

/// How far a materializer has come in a table's change feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub row: RowId,
    pub lsn: Lsn,
    pub state: Vec<u8>,
}

impl Root {
    /// The last commit it contains.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// `_time` of that commit.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// By full name, `namespace.table`.
    pub fn table(&self, full_name: &str) -> Option<&Arc<table::Snapshot>> {
        self.tables.get(full_name)
    }

    /// All tables in the order of their full names.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<table::Snapshot>> {
        self.tables.values()
    }

    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    pub fn keys(&self) -> &[ApiKey] {
        &self.meta.keys
    }
}

/// A root through the eyes of a principal (A1): tables that it may not see do not exist.
#[derive(Clone, Debug)]
pub struct View {
    root: Arc<Root>,
    tables: TableSet,
}

impl View {
    pub(crate) fn new(root: Arc<Root>, principal: &Principal) -> Result<Self> {
        principal.require(Scope::Read)?;
        Ok(View { root, tables: principal.tables.clone() })
    }

    pub fn lsn(&self) -> Lsn {
        self.root.lsn
    }

    pub fn time(&self) -> Micros {
        self.root.time
    }

    /// The tables that exist for this principal, in the order of their full names.
    pub fn tables(&self) -> Vec<Arc<table::Snapshot>> {
        let visible = |t: &&Arc<table::Snapshot>| self.tables.contains(&t.def().name);
        self.root.tables().filter(visible).cloned().collect()
    }

    /// The table of this name: `[namespace.]table`, exact or the only one that differs by case. [`Kind::NotFound`] names
    /// near ones.
    pub fn table(&self, wanted: &str) -> Result<Arc<table::Snapshot>> {
        let full_name = name::full_table_name(wanted)?;
        self.find(&full_name).ok_or_else(|| self.missing(&full_name))
    }

    /// [`View::table`] for a name that is already full; `None` if there is no such table.
    pub fn find(&self, full_name: &str) -> Option<Arc<table::Snapshot>> {
        if !self.tables.contains(full_name) {
            return self.find_folded(full_name);
        }
        self.root.table(full_name).cloned().or_else(|| self.find_folded(full_name))
    }

    fn find_folded(&self, full_name: &str) -> Option<Arc<table::Snapshot>> {
        let visible = || self.root.tables().filter(|t| self.tables.contains(&t.def().name));
        let position = name::resolve(full_name, visible().map(|t| t.def().name.as_str()))?;
        visible().nth(position).cloned()
    }

    fn missing(&self, full_name: &str) -> Error {
        let short = name::short_table_name(full_name);
        let error = Error::new(Kind::NotFound, format!("there is no table `{}`", name::printable(short)));
        let visible = self.root.tables().map(|t| t.def().name.as_str()).filter(|n| self.tables.contains(n));
        let near = near(full_name, visible);
        if near.is_empty() {
            return error.hint("`GET /v1/tables` or `SHOW TABLES` lists the tables");
        }
        let names: Vec<String> = near.iter().map(|n| format!("`{}`", name::short_table_name(n))).collect();
        error.hint(format!("did you mean {}?", names.join(" or ")))
    }
}

//! The root: the whole database at one lsn, as an immutable value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use commitlog::edit::ApiKey;
use table::materializer::{Checkpoint, Position};
use table::unique::Lookup;
use types::{Lsn, Micros, TableId, ViewDef};

use crate::commit_times::CommitTimes;

/// The whole database at one lsn (S1, S2). Loading a root is one atomic operation. Holding it delays nobody; it only keeps
/// memory and files alive.
#[derive(Clone, Debug)]
pub struct DatabaseRoot {
    pub(crate) lsn: Lsn,
    pub(crate) time: Micros,
    /// Time at which it was made, on the engine's monotonic clock.
    pub(crate) made: Duration,
    /// Tables by full name.
    pub(crate) tables: imbl::OrdMap<Arc<str>, Arc<table::Snapshot>>,
    pub(crate) meta: Arc<Meta>,
    /// Times of its commits.
    pub(crate) times: CommitTimes,
    /// The positions that materializers have published, by table and materializer.
    pub(crate) derived: imbl::OrdMap<(TableId, &'static str), Arc<Position>>,
}

/// The contents of a database besides its tables. They change rarely, so roots share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub keys: Vec<ApiKey>,
    pub next_table: TableId,
    /// The checkpoint of each materializer in each table.
    pub checkpoints: BTreeMap<(String, TableId), Checkpoint>,
    /// Views by full name.
    pub views: BTreeMap<String, Arc<ViewDef>>,
}

impl Meta {
    /// Adds a key, in place of one of the same name.
    pub fn put_key(&mut self, api_key: ApiKey) {
        self.keys.retain(|key| key.name != api_key.name);
        self.keys.push(api_key);
    }
}

impl DatabaseRoot {
    /// The last commit it contains.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// `_time` of that commit.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// Returns the table of a full name, `namespace.table`.
    pub fn table(&self, full_name: &str) -> Option<&Arc<table::Snapshot>> {
        self.tables.get(full_name)
    }

    /// All tables in the order of their full names.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<table::Snapshot>> {
        self.tables.values()
    }

    /// Number of segments in which damage was found since the start. Damage in parts that were not read since then is not
    /// known.
    pub fn damaged_segments(&self) -> usize {
        let is_damaged =
            |segment: &&Arc<table::Segment>| segment.is_damaged() || segment.lake_error().is_some();
        self.tables().flat_map(|table| table.segments()).filter(is_damaged).count()
    }

    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    pub fn keys(&self) -> &[ApiKey] {
        &self.meta.keys
    }

    /// All views in the order of their full names.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDef>> {
        self.meta.views.values()
    }

    /// Returns the lookup in which writers find values of a table's unique indexes.
    pub(crate) fn lookup(&self, table: TableId) -> Option<&Arc<dyn Lookup>> {
        let of_table = self.derived.range((table, "")..).take_while(|((id, _), _)| *id == table);
        of_table.into_iter().find_map(|(_, position)| position.lookup.as_ref())
    }

    /// Returns the position that a materializer has published for a table; `None` before its first step, and for a while
    /// after a restart. The changes of this root's table that it lacks are in [`table::Snapshot::delta`].
    pub fn derived(&self, materializer: &str, table: TableId) -> Option<&Arc<Position>> {
        let of_table = self.derived.range((table, "")..).take_while(|((id, _), _)| *id == table);
        of_table.into_iter().find(|((_, name), _)| *name == materializer).map(|(_, position)| position)
    }
}

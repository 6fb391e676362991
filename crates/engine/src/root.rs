//! The root: the whole database at one lsn, as an immutable value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use commitlog::edit::ApiKey;
use table::materializer::{Checkpoint, Position};
use table::unique::Lookup;
use types::{Lsn, Micros, TableId, ViewDef};

use crate::times::Times;

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
    /// When its commits were made.
    pub(crate) times: Times,
    /// What materializers have published, by table and materializer.
    pub(crate) derived: imbl::OrdMap<(TableId, &'static str), Arc<Position>>,
}

/// What a database has besides tables. Changes rarely, so roots share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub keys: Vec<ApiKey>,
    pub next_table: TableId,
    /// How far each materializer has come in each table.
    pub checkpoints: BTreeMap<(String, TableId), Checkpoint>,
    /// By full name.
    pub views: BTreeMap<String, Arc<ViewDef>>,
}

impl Meta {
    /// In place of the one of its name.
    pub fn put_key(&mut self, api_key: ApiKey) {
        self.keys.retain(|key| key.name != api_key.name);
        self.keys.push(api_key);
    }
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

    /// Segments in which something was found damaged since the start. What was not read since then is not known.
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

    /// In the order of their full names.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDef>> {
        self.meta.views.values()
    }

    /// What writers look values of a table up in.
    pub(crate) fn lookup(&self, table: TableId) -> Option<&Arc<dyn Lookup>> {
        let of_table = self.derived.range((table, "")..).take_while(|((id, _), _)| *id == table);
        of_table.into_iter().find_map(|(_, position)| position.lookup.as_ref())
    }

    /// What a materializer has published of a table; `None` before its first step, and for a while after a restart. What
    /// it lacks of this root's table is [`table::Snapshot::delta`].
    pub fn derived(&self, materializer: &str, table: TableId) -> Option<&Arc<Position>> {
        let of_table = self.derived.range((table, "")..).take_while(|((id, _), _)| *id == table);
        of_table.into_iter().find(|((_, name), _)| *name == materializer).map(|(_, position)| position)
    }
}

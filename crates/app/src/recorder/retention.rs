//! Deletes rows of `polynya.*` tables that are older than the setting `record.keep`.
//!
//! It deletes by row id: `_time` never decreases with the row id, so the old rows are a prefix of the table. Compaction
//! frees their disk space later.

use std::collections::HashMap;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use engine::{Engine, Op, Transaction};
use types::{Micros, Principal, Result, RowId, TableId, name, schema};

/// Rows that one commit deletes, at most.
const ROWS_PER_COMMIT: usize = 10_000;
/// Commits of one run for each table, at most. After a long pause the deletion takes several runs.
const COMMITS_PER_RUN: usize = 50;

/// Deletes old rows, and remembers the row id up to which each table was cleared, so that deleted rows are not scanned again.
pub struct Retention {
    keep: Micros,
    cleared: HashMap<TableId, RowId>,
}

impl Retention {
    pub fn new(keep: Micros) -> Self {
        Retention { keep, cleared: HashMap::new() }
    }

    /// Deletes the rows that are too old at `now`, in all tables without a key of Polynya's own namespace. An error of a
    /// table is only logged; the next run tries again.
    pub fn run(&mut self, engine: &Engine, now: Micros) {
        let root = engine.root();
        let is_record =
            |table: &table::Snapshot| name::is_reserved(&table.def().name) && !table.def().is_keyed();
        for snapshot in root.tables().filter(|table| is_record(table)) {
            if let Err(error) = self.clear(engine, snapshot, now) {
                tracing::debug!(%error, table = snapshot.def().name, "old rows were not deleted");
            }
        }
    }

    fn clear(&mut self, engine: &Engine, snapshot: &table::Snapshot, now: Micros) -> Result<()> {
        let def = snapshot.def();
        let end = snapshot.row_at_time(now.saturating_sub(self.keep))?;
        let from = self.cleared.entry(def.id).or_insert(RowId(1));
        let projection = snapshot.projection(&[schema::ROW_ID])?;
        for _ in 0..COMMITS_PER_RUN {
            let batch = snapshot.scan_from(*from, ROWS_PER_COMMIT, &projection)?;
            let ids = batch.column(0).as_primitive::<Int64Type>().values();
            let old: Vec<RowId> =
                ids.iter().map(|id| RowId(*id as u64)).take_while(|row| *row < end).collect();
            let Some(last) = old.last().copied() else { break };
            let delete = Op::Delete { table: def.name.clone(), rows: old, must_exist: false };
            engine.commit(&Principal::local(), Transaction::new(vec![delete]).internal())?;
            *from = last.next();
        }
        Ok(())
    }
}

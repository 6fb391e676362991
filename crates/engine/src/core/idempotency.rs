//! Requests with an idempotency key on the commit thread: repetition is checked before everything else, and the outcome is
//! written after everything else.

use arrow::array::RecordBatch;
use commitlog::record::{CommitRun, Deletes, InsertedRows};
use types::{Error, Result, RowId, SchemaVersion, TableId};

use super::{Core, Group};
use crate::idempotency::{self, TABLE};
use crate::prepare::Insert;
use crate::transaction::Committed;

/// The row that records a request.
pub(super) struct RequestRecord {
    pub table: TableId,
    pub version: SchemaVersion,
    pub batch: RecordBatch,
    /// Rows that it replaces.
    pub replaces: Vec<RowId>,
}

impl Core {
    /// Refuses a request that was committed before, even if it would meet another error too.
    pub(super) fn check_not_repeated(&self, insert: &Insert) -> Result<()> {
        let tip = self.names.get(TABLE).and_then(|id| self.tips.get(id));
        for key in &insert.keys {
            let found = super::check::find_again(tip, &insert.target, key)?;
            if found.is_some_and(|found| !insert.replaces.contains(&found)) {
                return Err(idempotency::repeated());
            }
        }
        Ok(())
    }

    /// Writes the outcome of the commit. The row gets its own section and bypasses the staged rows of the group. Its table
    /// has a key, so none of its rows is ever staged, and small inserts to other tables go on being gathered.
    pub(super) fn apply_remember(
        &mut self,
        group: &mut Group,
        offset: u32,
        row: RequestRecord,
        committed: &Committed,
        firsts: Option<&[(TableId, RowId)]>,
    ) -> Result<()> {
        let RequestRecord { table, version, batch, replaces } = row;
        let id_of = |name: &str| self.names.get(name).copied();
        let batch = idempotency::with_outcome(&batch, committed, firsts, id_of)?;
        let lsn = group.lsn(offset);
        let tip = self.tips.get_mut(&table).ok_or_else(|| Error::internal("a checked table has no tip"))?;
        if !replaces.is_empty() {
            tip.keep_deletes_after(self.wanted_after);
            tip.delete(replaces.iter().copied(), lsn);
            let runs = vec![CommitRun { lsn_offset: offset, count: replaces.len() as u32 }];
            group.frame.deletes(Deletes { table, runs, rows: replaces });
        }
        let first_row = tip.next_row();
        tip.append(first_row, group.frame.time(), &[(lsn, 1)], &batch)?;
        let runs = vec![CommitRun { lsn_offset: offset, count: 1 }];
        group.frame.rows(InsertedRows { table, schema_version: version, first_row, runs, batch });
        self.dirty.insert(table);
        Ok(())
    }
}

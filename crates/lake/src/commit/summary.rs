//! The summary of a snapshot.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use iceberg::metadata;
use types::{Lsn, RowId};

use super::{CommitBuilder, DeleteFileChanges, SnapshotChanges};
use crate::state::{DeleteFile, LiveFile};

impl CommitBuilder<'_> {
    #[allow(clippy::too_many_arguments, reason = "a list of what is counted")]
    pub(super) fn summary(
        &self,
        changed: &SnapshotChanges,
        deletes: &DeleteFileChanges,
        new_positions: u64,
        data: &[Arc<LiveFile>],
        live_deletes: &[Arc<DeleteFile>],
        row: RowId,
        lsn: Lsn,
    ) -> BTreeMap<String, String> {
        let operation = match (changed.added.is_empty(), new_positions == 0, changed.removed.is_empty()) {
            (false, true, true) => "append",
            (true, false, true) => "delete",
            (true, true, _) if !changed.dropped_rows(self.base) => "replace",
            _ => "overwrite",
        };
        let mut summary = self.extra_summary.clone();
        summary.insert("operation".into(), operation.into());
        let mut count = |key: &str, value: u64, always: bool| {
            if value > 0 || always {
                summary.insert(key.to_owned(), value.to_string());
            }
        };
        let added = || changed.added.iter().chain(&changed.replaced);
        let removed = || self.base.data.iter().filter(|live| changed.removed.contains(&live.path));
        let positions = |deletes: &[Arc<DeleteFile>]| deletes.iter().map(|d| d.entry.file.rows).sum::<u64>();
        count("added-data-files", added().count() as u64, false);
        count("added-records", added().map(|e| e.file.rows).sum(), false);
        let added_deletes = deletes.added.iter().map(|d| &d.entry);
        let added_bytes = added().chain(added_deletes).map(|e| e.file.bytes).sum();
        count("added-files-size", added_bytes, false);
        count("added-delete-files", deletes.added.len() as u64, false);
        count("added-position-delete-files", deletes.added.len() as u64, false);
        count("added-position-deletes", positions(&deletes.added), false);
        count("deleted-data-files", removed().count() as u64, false);
        count("deleted-records", removed().map(|live| live.entry.file.rows).sum(), false);
        count("removed-delete-files", deletes.dropped.len() as u64, false);
        count("removed-position-delete-files", deletes.dropped.len() as u64, false);
        let touched = added().map(|e| &e.file).chain(removed().map(|live| &live.entry.file));
        let touched = touched.chain(deletes.added.iter().map(|d| &d.entry.file));
        let partitions: HashSet<_> = touched.map(|file| (file.spec, &*file.partition)).collect();
        count("changed-partition-count", partitions.len() as u64, true);
        count("total-data-files", data.len() as u64, true);
        count("total-records", data.iter().map(|live| live.entry.file.rows).sum(), true);
        count("total-delete-files", live_deletes.len() as u64, true);
        count("total-position-deletes", positions(live_deletes), true);
        count("total-equality-deletes", 0, true);
        let bytes = data.iter().map(|live| live.entry.file.bytes);
        let bytes = bytes.chain(live_deletes.iter().map(|d| d.entry.file.bytes)).sum();
        count("total-files-size", bytes, true);
        summary.insert(metadata::ROW.into(), row.to_string());
        summary.insert(metadata::LSN.into(), lsn.to_string());
        summary
    }
}

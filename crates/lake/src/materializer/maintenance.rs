//! Requests to a lake other than landing: erasure, maintenance, and the sweep for files that nothing names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use table::Snapshot;
use table::materializer::Position;
use types::{Lsn, Result, RowId, TableDef, TableId};
use vfs::Env;

use super::Materializer;
use crate::erasure::{ErasureCallback, ErasureReport};
use crate::row_ids;
use crate::state::{Lake, newest_version};
use crate::store::Store;
use crate::upkeep::{self, Depth};

impl Materializer {
    /// Requests that rows deleted up to `lsn` are removed from all files and snapshots of a table's lake. The caller then
    /// has to hurry the engine (`Engine::hurry`), so that a step looks at the request. `callback` is called with the result on
    /// the thread that did the work, and must not block there.
    pub fn erase(&self, table: TableId, lsn: Lsn, callback: ErasureCallback) {
        self.erasures.add(table, lsn, callback);
    }

    /// Requests all maintenance of a table's lake at once, which otherwise happens in small steps: merges data files,
    /// position delete files and manifests as far as possible, expires snapshots, and sweeps files that nothing names. The
    /// caller has to hurry the engine, as with [`Materializer::erase`].
    pub fn maintain(&self, table: TableId, callback: upkeep::MaintenanceCallback) {
        self.upkeep.add(table, Depth::Full, Some(callback));
    }

    /// Returns true if a table's lake needs maintenance at this position, though it lacks no rows. The maintenance is then
    /// requested, and the caller has to hurry the engine.
    pub fn request_due_maintenance(&self, env: &Env, table: TableId, position: &Position) -> bool {
        let Some(lake) = position.published::<Lake>() else { return false };
        let swept = self.orphans.time_since_sweep(table, env.clock.monotonic());
        let wanted = lake.due_maintenance(&self.options, env.clock.now() / 1000, Some(swept));
        if let Some(depth) = wanted {
            self.upkeep.add(table, depth, None);
        }
        wanted.is_some()
    }

    #[cfg(test)]
    pub(crate) fn depth(&self, table: TableId) -> Option<Depth> {
        self.upkeep.depth(table)
    }

    /// Returns true if a table's Iceberg table exists here, even if it is not written any more.
    pub fn lake_exists(&self, env: &Env, def: &TableDef) -> Result<bool> {
        let store = Store::new(env.clone(), self.options.objects.clone());
        // A catalog has its tables in other directories of the warehouse.
        Ok(!store.lacks_key() && newest_version(&store, &self.dir_of(def))?.is_some())
    }

    /// Ends an erasure whose commit is published: removes the files that only older snapshots needed, and notifies the
    /// waiters. Returns false if readers still hold some of the files.
    pub(super) fn end_erasure(
        &self,
        table: TableId,
        lake: &Lake,
        snapshot: &Snapshot,
        lsn: Lsn,
    ) -> Result<bool> {
        let held = self.shared.cache.pins.pinned_files();
        let (files_removed, bytes_removed) = lake.remove_garbage(&held, true)?;
        let swept = lake.sweep()?;
        let mut done = ErasureReport {
            files_removed: files_removed + swept.files,
            bytes_removed: bytes_removed + swept.bytes,
            ..ErasureReport::default()
        };
        for path in &swept.foreign {
            if holds_only_live_rows(lake, snapshot, path)? {
                done.foreign_files += 1;
                continue;
            }
            done.bytes_removed += lake.store.len(path)?;
            lake.store.remove(path)?;
            done.files_removed += 1;
        }
        let is_done = lake.garbage.is_empty() && swept.held == 0;
        if !is_done {
            // Foreign files are counted once, at the end of the erasure.
            done.foreign_files = 0;
        }
        self.erasures.add_result(table, done);
        if is_done {
            self.erasures.end(table, lsn, Ok(()));
        }
        Ok(is_done)
    }

    /// Ends maintenance after the last merge: sweeps files that nothing names, and notifies the waiters.
    pub(super) fn end_upkeep(&self, env: &Env, table: TableId, lake: &Lake) -> Result<()> {
        self.sweep(env, table, lake)?;
        self.upkeep.end(table, Ok(lake.extent()));
        Ok(())
    }

    /// Sweeps files that nothing names. Must not be called while a commit may be under way.
    fn sweep(&self, env: &Env, table: TableId, lake: &Lake) -> Result<()> {
        let swept = lake.sweep()?;
        let found = swept.foreign.len() as u64;
        let (now, age) = (env.clock.monotonic(), self.options.orphans_after);
        let old = self.orphans.update(table, &lake.dir, swept.foreign, now, age);
        let (mut files, mut bytes) = (swept.files, swept.bytes);
        for path in &old {
            bytes += lake.store.len(path)?;
            lake.store.remove(path)?;
            files += 1;
        }
        self.upkeep.add_result(table, |sum| {
            sum.files_removed += files;
            sum.bytes_removed += bytes;
            sum.orphans_removed += files;
            sum.orphans_left = found - old.len() as u64;
        });
        Ok(())
    }
}

/// Bytes of a file of another program that can be adopted, at most.
const FOREIGN_BYTES_MAX: u64 = 1 << 30;

/// Returns true if an unnamed file of another program may survive an erasure, because all its rows are live in the table. A
/// file that was once in the table and escaped removal by a crash may contain rows to erase. Manifests contain bounds, so
/// they do not survive. A file without readable rows of the table does not either, since it cannot be committed.
fn holds_only_live_rows(lake: &Lake, table: &Snapshot, path: &Path) -> Result<bool> {
    if !path.starts_with(lake.dir.join("data")) || lake.store.len(path)? > FOREIGN_BYTES_MAX {
        return Ok(false);
    }
    let bytes = lake.store.read(path)?;
    let (mut all_live, mut failed) = (true, None);
    let mut look = |_: u64, row: RowId| -> Result<()> {
        match table.is_live(row) {
            Ok(is_live) => all_live &= is_live,
            Err(error) => failed = Some(error),
        }
        Ok(())
    };
    // The decoders of the libraries may panic on arbitrary files.
    let scanned = catch_unwind(AssertUnwindSafe(|| row_ids::scan(bytes, None, &mut look)));
    match failed {
        Some(error) => Err(error),
        None => Ok(all_live && matches!(scanned, Ok(Ok(())))),
    }
}

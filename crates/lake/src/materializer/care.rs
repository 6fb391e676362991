//! What is asked of a lake beside landing: erasures, maintenance, and a look for files that nothing names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use table::Snapshot;
use table::materializer::Position;
use types::{Lsn, Result, RowId, TableDef, TableId};
use vfs::Env;

use super::Materializer;
use crate::erase::{Erased, Told};
use crate::row_ids;
use crate::state::{Lake, newest_version};
use crate::store::Store;
use crate::upkeep::{self, Depth};

impl Materializer {
    /// Asks that rows of a table which were deleted up to `lsn` are in no file of its lake any more, nor in any snapshot.
    /// The engine then has to be hurried (`Engine::hurry`), so that a step looks; `told` hears how it went from the thread
    /// that did it, and must not wait for anything there.
    pub fn erase(&self, table: TableId, lsn: Lsn, told: Told) {
        self.erasures.add(table, lsn, told);
    }

    /// Asks that all is done now for a table's lake that is otherwise done unasked, little by little: small files, positions
    /// and manifests become as few as can be, old snapshots go, and what nothing names is looked for. As with
    /// [`Materializer::erase`], the engine has to be hurried.
    pub fn maintain(&self, table: TableId, told: upkeep::Told) {
        self.upkeep.add(table, Depth::Whole, Some(told));
    }

    /// Whether a table's lake, at a position that this published, wants something done though it lacks nothing. If so it is
    /// noted, and the engine has to be hurried.
    pub fn tend(&self, env: &Env, table: TableId, position: &Position) -> bool {
        let Some(lake) = position.published::<Lake>() else { return false };
        let swept = self.orphans.swept(table, env.clock.monotonic());
        let wanted = lake.wants(&self.options, env.clock.now() / 1000, Some(swept));
        if let Some(depth) = wanted {
            self.upkeep.add(table, depth, None);
        }
        wanted.is_some()
    }

    #[cfg(test)]
    pub(crate) fn depth(&self, table: TableId) -> Option<Depth> {
        self.upkeep.depth(table)
    }

    /// Whether a table's Iceberg table is there, whether or not it is still written.
    pub fn stands(&self, env: &Env, def: &TableDef) -> Result<bool> {
        let store = Store::new(env.clone(), self.options.objects.clone());
        // A catalog has its tables elsewhere in the warehouse.
        Ok(!store.lacks_key() && newest_version(&store, &self.dir_of(def))?.is_some())
    }

    /// The newest state names nothing that was deleted up to `lsn`: what only older ones needed goes, and who asked is told.
    /// False: readers hold some of it still.
    pub(super) fn end_erasure(
        &self,
        table: TableId,
        lake: &Lake,
        snapshot: &Snapshot,
        lsn: Lsn,
    ) -> Result<bool> {
        let held = self.shared.cache.1.files();
        let (files_removed, bytes_removed) = lake.remove_garbage(&held, true)?;
        let swept = lake.sweep()?;
        let mut done = Erased {
            files_removed: files_removed + swept.files,
            bytes_removed: bytes_removed + swept.bytes,
            ..Erased::default()
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
            // Counted when it is done.
            done.foreign_files = 0;
        }
        self.erasures.add_up(table, done);
        if is_done {
            self.erasures.end(table, lsn, Ok(()));
        }
        Ok(is_done)
    }

    /// Nothing is left to be merged: files that nothing names are looked for, and who asked is told.
    pub(super) fn end_upkeep(&self, env: &Env, table: TableId, lake: &Lake) -> Result<()> {
        self.sweep(env, table, lake)?;
        self.upkeep.end(table, Ok(lake.extent()));
        Ok(())
    }

    /// Looks for files that nothing names. Where a commit may be under way it must not be called.
    fn sweep(&self, env: &Env, table: TableId, lake: &Lake) -> Result<()> {
        let swept = lake.sweep()?;
        let found = swept.foreign.len() as u64;
        let (now, age) = (env.clock.monotonic(), self.options.orphans_after);
        let old = self.orphans.found(table, &lake.dir, swept.foreign, now, age);
        let (mut files, mut bytes) = (swept.files, swept.bytes);
        for path in &old {
            bytes += lake.store.len(path)?;
            lake.store.remove(path)?;
            files += 1;
        }
        self.upkeep.add_up(table, |sum| {
            sum.files_removed += files;
            sum.bytes_removed += bytes;
            sum.orphans_removed += files;
            sum.orphans_left = found - old.len() as u64;
        });
        Ok(())
    }
}

/// No larger file of another program is ever taken into a table.
const FOREIGN_BYTES_MAX: u64 = 1 << 30;

/// Whether a file that nothing names and that another program wrote is to outlive an erasure: its rows are all in the table. Where
/// it was in the table once and a crash kept it from being removed, it may hold what is to be gone. Manifests tell bounds,
/// and what cannot be read as rows of the table can be committed by nobody.
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
    // Libraries may not be ready for everything that is in it.
    let scanned = catch_unwind(AssertUnwindSafe(|| row_ids::scan(bytes, None, &mut look)));
    match failed {
        Some(error) => Err(error),
        None => Ok(all_live && matches!(scanned, Ok(Ok(())))),
    }
}

//! Maintenance apart from commits: for tables without new rows, and on request.
//!
//! Each commit merges and expires as much as pays for itself; maintenance does the rest. Automatically, it expires
//! snapshots that became old after the last commit, and merges the small files of a table completely once it has been quiet
//! for a while ([`Options::quiet_after`](crate::Options::quiet_after)). On request
//! ([`Materializer::maintain`](crate::Materializer::maintain)) it does all of that at once. In either case it then sweeps
//! files that nothing names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use iceberg::metadata::UNSORTED;
use types::{Error, Kind, Result, TableId};
use vfs::{Mutex, Rank};

use crate::commit;
use crate::expiry;
use crate::options::Options;
use crate::state::Lake;

/// The amounts in a lake that maintenance reduces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub data_files: u64,
    pub delete_files: u64,
    pub deleted_rows: u64,
    pub manifests: u64,
    pub snapshots: u64,
    /// Number of metadata files, the current one included.
    pub metadata_files: u64,
    /// Bytes of the current snapshot's files.
    pub bytes: u64,
}

/// The result of maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    pub before: Extent,
    pub after: Extent,
    pub commits: u64,
    /// Data files that were rewritten.
    pub files_rewritten: u64,
    pub snapshots_expired: u64,
    /// Removed files, with orphans included.
    pub files_removed: u64,
    pub bytes_removed: u64,
    /// Removed files that nothing named before the maintenance.
    pub orphans_removed: u64,
    /// Unnamed files that are not removed yet: another program may be about to commit them.
    pub orphans_left: u64,
}

/// Callback that receives the result, once.
pub type MaintenanceCallback = Box<dyn FnOnce(Result<MaintenanceReport>) + Send>;

/// The extent of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Expires snapshots that became old since the last commit.
    Expire,
    /// Merges data files, position delete files and manifests as well.
    Full,
}

/// Maintenance tasks that are not done yet.
pub(crate) struct MaintenanceTasks(Mutex<BTreeMap<TableId, MaintenanceTask>>);

struct MaintenanceTask {
    depth: Depth,
    waiters: Vec<MaintenanceCallback>,
    so_far: MaintenanceReport,
    begun: bool,
    /// True if nothing is left to merge or expire.
    is_tidy: bool,
    /// Number of further commits, at most. Each commit leaves less to do, so the limit is never reached.
    commits_left: u32,
}

const COMMITS_MAX: u32 = 1_000;
/// Waiters for one table, at most.
const WAITING_MAX: usize = 64;

impl Default for MaintenanceTasks {
    fn default() -> Self {
        MaintenanceTasks(Mutex::new(Rank::new(51, "lake maintenance"), BTreeMap::new()))
    }
}

impl std::fmt::Debug for MaintenanceTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}

impl MaintenanceTasks {
    pub fn add(&self, table: TableId, depth: Depth, callback: Option<MaintenanceCallback>) {
        let mut tasks = self.0.lock();
        let task = tasks.entry(table).or_insert_with(|| MaintenanceTask {
            depth,
            waiters: Vec::new(),
            so_far: MaintenanceReport::default(),
            begun: false,
            is_tidy: false,
            commits_left: COMMITS_MAX,
        });
        task.depth = task.depth.max(depth);
        let Some(callback) = callback else { return };
        if task.waiters.len() < WAITING_MAX {
            task.waiters.push(callback);
            return;
        }
        drop(tasks);
        callback(Err(Error::new(
            Kind::Busy,
            "too many requests wait for the maintenance of this table already",
        )));
    }

    /// Returns the extent of the maintenance that a table has to get; `None` if none is due.
    pub fn depth(&self, table: TableId) -> Option<Depth> {
        self.0.lock().get(&table).map(|task| task.depth)
    }

    /// Records the amounts before the first commit.
    pub fn begin(&self, table: TableId, before: Extent) {
        if let Some(task) = self.0.lock().get_mut(&table)
            && !task.begun
        {
            (task.begun, task.so_far.before) = (true, before);
        }
    }

    /// Records a commit for maintenance. `is_complete` is true if it did everything that was to do with the existing files.
    /// Later rows do not count: the maintenance of a table under constant writes would never end.
    pub fn committed(&self, table: TableId, is_complete: bool) {
        if let Some(task) = self.0.lock().get_mut(&table) {
            task.commits_left = task.commits_left.saturating_sub(1);
            task.is_tidy = is_complete || task.commits_left == 0;
        }
    }

    /// Returns true if only the sweep for unnamed files is left.
    pub fn is_tidy(&self, table: TableId) -> bool {
        self.0.lock().get(&table).is_some_and(|task| task.is_tidy)
    }

    pub fn add_result(&self, table: TableId, add: impl FnOnce(&mut MaintenanceReport)) {
        if let Some(task) = self.0.lock().get_mut(&table) {
            add(&mut task.so_far);
        }
    }

    pub fn end(&self, table: TableId, outcome: Result<Extent>) {
        let Some(task) = self.0.lock().remove(&table) else { return };
        for callback in task.waiters {
            callback(outcome.clone().map(|after| MaintenanceReport { after, ..task.so_far }));
        }
    }
}

impl Lake {
    pub fn extent(&self) -> Extent {
        Extent {
            data_files: self.data.len() as u64,
            delete_files: self.deletes.len() as u64,
            deleted_rows: self.data.iter().map(|live| live.deleted).sum(),
            manifests: (self.manifests.len() + self.emptied_manifests.len()) as u64,
            snapshots: self.metadata.snapshots.len() as u64,
            metadata_files: self.metadata.metadata_log.len() as u64 + 1,
            bytes: self.bytes(),
        }
    }

    /// Returns true if a complete merge would reduce the number of files.
    fn has_to_merge(&self, options: &Options) -> bool {
        let sort_order = Some(self.metadata.default_sort_order_id).filter(|id| *id != UNSORTED);
        let mut seen = HashSet::new();
        let mut small =
            self.data.iter().map(|live| &live.entry.file).filter(|file| file.bytes < options.file_bytes / 2);
        // Files are grouped as by the merge itself: those of an earlier layout apart from the others.
        small.any(|file| {
            let is_current = file.spec == self.metadata.default_spec_id && file.sort_order == sort_order;
            !seen.insert((file.spec, &*file.partition, is_current))
        }) || commit::has_many_files(self)
    }

    /// Returns the maintenance that is worthwhile without a request; `None` if none is. `swept` is the time since the last
    /// sweep for unnamed files.
    pub(crate) fn due_maintenance(
        &self,
        options: &Options,
        now_ms: i64,
        swept: Option<Duration>,
    ) -> Option<Depth> {
        let quiet_ms = now_ms.saturating_sub(self.metadata.last_updated_ms);
        let is_quiet = quiet_ms >= i64::try_from(options.quiet_after.as_millis()).unwrap_or(i64::MAX);
        if is_quiet && self.has_to_merge(options) {
            return Some(Depth::Full);
        }
        let sweeps = swept.is_some_and(|swept| swept >= options.sweep_every);
        // A table with regular commits expires snapshots in them.
        let commits = quiet_ms < i64::try_from(2 * options.trickle_wait.as_millis()).unwrap_or(i64::MAX);
        (sweeps || !commits && expiry::is_due(self, options, now_ms)).then_some(Depth::Expire)
    }
}

/// Unnamed files that other programs wrote. Such a program may be about to commit one, so it stays until it has been seen
/// for [`Options::orphans_after`](crate::Options::orphans_after). This is kept in memory only: each start counts from the
/// beginning.
#[derive(Debug)]
pub(crate) struct Orphans(Mutex<OrphanTimes>);

#[derive(Debug, Default)]
struct OrphanTimes {
    first_seen: BTreeMap<PathBuf, Duration>,
    /// Time of each table's last sweep.
    last_sweep: BTreeMap<TableId, Duration>,
}

/// Orphans that are tracked at a time; further ones wait until some of these are gone.
const ORPHANS_MAX: usize = 16_384;

impl Default for Orphans {
    fn default() -> Self {
        Orphans(Mutex::new(Rank::new(52, "lake orphans"), OrphanTimes::default()))
    }
}

impl Orphans {
    /// Returns the time since a table's last sweep; since the first call, if there was none.
    pub fn time_since_sweep(&self, table: TableId, now: Duration) -> Duration {
        let mut times = self.0.lock();
        now.saturating_sub(*times.last_sweep.entry(table).or_insert(now))
    }

    /// Records the orphans found in a directory, and returns those that have been there for `age`. Orphans that were not
    /// found again are forgotten.
    pub fn update(
        &self,
        table: TableId,
        dir: &Path,
        found: Vec<PathBuf>,
        now: Duration,
        age: Duration,
    ) -> Vec<PathBuf> {
        let mut times = self.0.lock();
        times.last_sweep.insert(table, now);
        let found: BTreeSet<PathBuf> = found.into_iter().collect();
        times.first_seen.retain(|path, _| !path.starts_with(dir) || found.contains(path));
        let mut old = Vec::new();
        for path in found {
            match times.first_seen.get(&path).copied() {
                Some(since) if now.saturating_sub(since) >= age => {
                    times.first_seen.remove(&path);
                    old.push(path);
                }
                Some(_) => {}
                None if times.first_seen.len() < ORPHANS_MAX => drop(times.first_seen.insert(path, now)),
                None => {}
            }
        }
        old
    }

    pub fn forget_table(&self, table: TableId, dir: &Path) {
        let mut times = self.0.lock();
        times.last_sweep.remove(&table);
        times.first_seen.retain(|path, _| !path.starts_with(dir));
    }
}

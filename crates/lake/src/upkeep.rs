//! Maintenance beside commits: what a table needs that gets no rows any more, and what somebody asks for now.
//!
//! Each commit merges and expires as much as pays for itself. What that leaves is done here: unasked, snapshots that grew old
//! after the last commit go, and a table that has been quiet for a while gets its small files merged to the end
//! ([`Options::quiet_after`](crate::Options::quiet_after)); asked ([`Materializer::maintain`](crate::Materializer::maintain)), all
//! of that is done at once. Either way files that nothing names are looked for afterwards.

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

/// How much is in a lake that maintenance makes less of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub data_files: u64,
    pub delete_files: u64,
    pub deleted_rows: u64,
    pub manifests: u64,
    pub snapshots: u64,
    /// The current one included.
    pub metadata_files: u64,
    /// Of the current snapshot's files.
    pub bytes: u64,
}

/// What maintenance came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    pub before: Extent,
    pub after: Extent,
    pub commits: u64,
    /// Data files that were written anew.
    pub files_rewritten: u64,
    pub snapshots_expired: u64,
    /// Files that no kept snapshot names any more, those that nothing named before among them.
    pub files_removed: u64,
    pub bytes_removed: u64,
    /// Files that nothing named before.
    pub orphans_removed: u64,
    /// Files that nothing names and that are not removed yet: another program may be about to commit them.
    pub orphans_left: u64,
}

/// Hears how it went, once.
pub type Told = Box<dyn FnOnce(Result<Maintained>) + Send>;

/// How far maintenance goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Expiry alone, of what grew old since the last commit.
    Expire,
    /// Small files, positions and manifests are merged as well.
    Whole,
}

/// What is to be done and is not.
pub(crate) struct Tasks(Mutex<BTreeMap<TableId, Task>>);

struct Task {
    depth: Depth,
    told: Vec<Told>,
    so_far: Maintained,
    begun: bool,
    /// Nothing is left to be merged or to expire.
    is_tidy: bool,
    /// Commits at most: each makes less of what there is, so this many are never needed.
    commits_left: u32,
}

const COMMITS_MAX: u32 = 1_000;
/// Who may wait for one table.
const WAITING_MAX: usize = 64;

impl Default for Tasks {
    fn default() -> Self {
        Tasks(Mutex::new(Rank::new(51, "lake maintenance"), BTreeMap::new()))
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}

impl Tasks {
    pub fn add(&self, table: TableId, depth: Depth, told: Option<Told>) {
        let mut tasks = self.0.lock();
        let task = tasks.entry(table).or_insert_with(|| Task {
            depth,
            told: Vec::new(),
            so_far: Maintained::default(),
            begun: false,
            is_tidy: false,
            commits_left: COMMITS_MAX,
        });
        task.depth = task.depth.max(depth);
        let Some(told) = told else { return };
        if task.told.len() < WAITING_MAX {
            task.told.push(told);
            return;
        }
        drop(tasks);
        told(Err(Error::new(Kind::Busy, "too many wait for the maintenance of this table already")));
    }

    /// What is due for a table, if anything is.
    pub fn depth(&self, table: TableId) -> Option<Depth> {
        self.0.lock().get(&table).map(|task| task.depth)
    }

    /// Notes where it begins, the first time.
    pub fn begin(&self, table: TableId, before: Extent) {
        if let Some(task) = self.0.lock().get_mut(&table)
            && !task.begun
        {
            (task.begun, task.so_far.before) = (true, before);
        }
    }

    /// A commit was made for it; `is_whole`: it did all that was to be done with what there was. Rows that came since are no
    /// matter of it: a table that is written all the time would never be done.
    pub fn committed(&self, table: TableId, is_whole: bool) {
        if let Some(task) = self.0.lock().get_mut(&table) {
            task.commits_left = task.commits_left.saturating_sub(1);
            task.is_tidy = is_whole || task.commits_left == 0;
        }
    }

    /// Whether all that is left is to look for files that nothing names.
    pub fn is_tidy(&self, table: TableId) -> bool {
        self.0.lock().get(&table).is_some_and(|task| task.is_tidy)
    }

    pub fn add_up(&self, table: TableId, add: impl FnOnce(&mut Maintained)) {
        if let Some(task) = self.0.lock().get_mut(&table) {
            add(&mut task.so_far);
        }
    }

    pub fn end(&self, table: TableId, outcome: Result<Extent>) {
        let Some(task) = self.0.lock().remove(&table) else { return };
        for told in task.told {
            told(outcome.clone().map(|after| Maintained { after, ..task.so_far }));
        }
    }
}

impl Lake {
    pub fn extent(&self) -> Extent {
        Extent {
            data_files: self.data.len() as u64,
            delete_files: self.deletes.len() as u64,
            deleted_rows: self.data.iter().map(|live| live.deleted).sum(),
            manifests: (self.manifests.len() + self.emptied.len()) as u64,
            snapshots: self.metadata.snapshots.len() as u64,
            metadata_files: self.metadata.metadata_log.len() as u64 + 1,
            bytes: self.bytes(),
        }
    }

    /// Whether merging to the end would make fewer files.
    fn has_to_merge(&self, options: &Options) -> bool {
        let sort_order = Some(self.metadata.default_sort_order_id).filter(|id| *id != UNSORTED);
        let mut seen = HashSet::new();
        let mut small =
            self.data.iter().map(|live| &live.entry.file).filter(|file| file.bytes < options.file_bytes / 2);
        // As groups of files that become one are made: what has another layout than the present one by itself.
        small.any(|file| {
            let is_current = file.spec == self.metadata.default_spec_id && file.sort_order == sort_order;
            !seen.insert((file.spec, &*file.partition, is_current))
        }) || commit::has_many_files(self)
    }

    /// What is worth doing though nobody asks and nothing is missing; `swept`: how long ago it was looked for files that
    /// nothing names.
    pub(crate) fn wants(&self, options: &Options, now_ms: i64, swept: Option<Duration>) -> Option<Depth> {
        let quiet_ms = now_ms.saturating_sub(self.metadata.last_updated_ms);
        let is_quiet = quiet_ms >= i64::try_from(options.quiet_after.as_millis()).unwrap_or(i64::MAX);
        if is_quiet && self.has_to_merge(options) {
            return Some(Depth::Whole);
        }
        let sweeps = swept.is_some_and(|swept| swept >= options.sweep_every);
        // What commits goes on to expire by itself.
        let commits = quiet_ms < i64::try_from(2 * options.trickle_wait.as_millis()).unwrap_or(i64::MAX);
        (sweeps || !commits && expiry::is_due(self, options, now_ms)).then_some(Depth::Expire)
    }
}

/// Files that nothing names and that this program did not write. Another one may be about to commit them, so they stay
/// until they have been seen for [`Options::orphans_after`](crate::Options::orphans_after). Known in memory alone: a start begins to count anew.
#[derive(Debug)]
pub(crate) struct Orphans(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    since: BTreeMap<PathBuf, Duration>,
    /// When each table was looked through last.
    swept: BTreeMap<TableId, Duration>,
}

/// So many are known at once; further ones wait until these are gone.
const ORPHANS_MAX: usize = 16_384;

impl Default for Orphans {
    fn default() -> Self {
        Orphans(Mutex::new(Rank::new(52, "lake orphans"), Seen::default()))
    }
}

impl Orphans {
    /// How long ago a table was looked through; at first since now.
    pub fn swept(&self, table: TableId, now: Duration) -> Duration {
        let mut seen = self.0.lock();
        now.saturating_sub(*seen.swept.entry(table).or_insert(now))
    }

    /// Takes what was found in a directory, and tells what of it has been there long enough. What is not found any more
    /// is forgotten.
    pub fn found(
        &self,
        table: TableId,
        dir: &Path,
        found: Vec<PathBuf>,
        now: Duration,
        age: Duration,
    ) -> Vec<PathBuf> {
        let mut seen = self.0.lock();
        seen.swept.insert(table, now);
        let found: BTreeSet<PathBuf> = found.into_iter().collect();
        seen.since.retain(|path, _| !path.starts_with(dir) || found.contains(path));
        let mut old = Vec::new();
        for path in found {
            match seen.since.get(&path).copied() {
                Some(since) if now.saturating_sub(since) >= age => {
                    seen.since.remove(&path);
                    old.push(path);
                }
                Some(_) => {}
                None if seen.since.len() < ORPHANS_MAX => drop(seen.since.insert(path, now)),
                None => {}
            }
        }
        old
    }

    pub fn drop_of(&self, table: TableId, dir: &Path) {
        let mut seen = self.0.lock();
        seen.swept.remove(&table);
        seen.since.retain(|path, _| !path.starts_with(dir));
    }
}

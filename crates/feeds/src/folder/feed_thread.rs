//! The feed's thread: schedules scans, writes changes, reports progress.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::Engine;
use types::{Result, TableId};

use super::rows::{self, StoredRow};
use super::scan_schedule::{ScanExtent, ScheduledTree};
use super::tree::{FileChange, ScanScope};
use super::watch::{Events, FolderWatcher};
use super::{FolderRoot, Options, POLL_EVERY, Shared};

/// Time until a file that is being written is examined again.
const HOT_AGAIN: Duration = Duration::from_millis(60);
/// Time until another attempt for a folder that is unavailable or a table that takes no writes.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between full scans of a tree whose changes the kernel reports.
const SURE_EVERY: Duration = Duration::from_secs(60);
/// The share of a processor for polling: the pause is this many times as long as the last scan.
const SHARE: u32 = 20;
const POLL_PAUSE_MAX: Duration = Duration::from_secs(10);
const SKIPPED_MAX: usize = 100;
/// The number of scans of a tree after which its rows are written even if it has not settled. Before that nothing is
/// written, because an unread note may be private and linked to from one that was read. A tree in which files are
/// written all the time never settles.
const FIRST_SCANS_MAX: u8 = 10;
/// The greatest number of watches over all folders; each takes kernel memory.
const WATCHES_MAX: usize = 16_384;

pub struct FeedThread {
    engine: Engine,
    options: Options,
    /// The id of the table that the trees were compared with. A table that was dropped and made again has another one.
    table: Option<TableId>,
    trees: Vec<ScheduledTree>,
    watch: FolderWatcher,
    /// The tree and folder of each watch.
    watched: HashMap<i32, (usize, String)>,
    /// Changes that are not written yet.
    pending: Vec<FileChange>,
    skipped: BTreeMap<String, String>,
    shared: Arc<Shared>,
    write_failure: Option<String>,
}

impl FeedThread {
    pub fn new(
        engine: Engine,
        options: Options,
        roots: Vec<FolderRoot>,
        known: Vec<StoredRow>,
        watch: FolderWatcher,
        shared: Arc<Shared>,
    ) -> FeedThread {
        let trees = roots.into_iter().map(|root| ScheduledTree::new(root, options.limits)).collect();
        let table = engine.root().table(&options.table).map(|table| table.def().id);
        let mut feed = FeedThread {
            engine,
            options,
            table,
            trees,
            watch,
            watched: HashMap::new(),
            pending: Vec::new(),
            skipped: BTreeMap::new(),
            shared,
            write_failure: None,
        };
        feed.assign_rows(known);
        feed
    }

    /// Passes the table's rows to their trees. Rows that belong to no tree are removed.
    fn assign_rows(&mut self, known: Vec<StoredRow>) {
        let trees = &mut self.trees;
        for StoredRow { path, stored } in known {
            // Single files have priority, then the folder with the longest prefix: the roots are in that order.
            let of_file = trees.iter().position(|scheduled| scheduled.tree.root().is_file_at(&path));
            let owner =
                of_file.or_else(|| trees.iter().position(|scheduled| scheduled.tree.root().holds(&path)));
            match owner {
                Some(owner) => trees[owner].tree.set_stored(path, stored),
                None => self.pending.push(FileChange::Remove { path }),
            }
        }
    }

    /// Returns true if the table is still the one that the trees were compared with.
    fn has_table(&self) -> bool {
        let root = self.engine.root();
        self.table.is_some() && root.table(&self.options.table).map(|table| table.def().id) == self.table
    }

    /// Takes everything in again after the table was dropped, as a start does. If only later changes were written, the
    /// new table would lack most notes, and links to missing private notes would show their names (A1).
    fn rebuild(&mut self) -> Result<()> {
        let Options { table, rule, parsed, limits, .. } = &self.options;
        if self.table.take().is_some() {
            tracing::warn!(
                "the table of the notes was dropped while its folders are followed; they are read again"
            );
        }
        self.pending.clear();
        self.skipped.clear();
        for scheduled in &mut self.trees {
            // The watches stay: the folders are the same.
            let watches = std::mem::take(&mut scheduled.watches);
            *scheduled =
                ScheduledTree { watches, ..ScheduledTree::new(scheduled.tree.root().clone(), *limits) };
        }
        rows::ensure(&self.engine, table)?;
        let id = self.engine.root().table(table).map(|table| table.def().id);
        let known = super::reconciled(&self.engine, table, rule, parsed)?;
        self.table = id;
        self.assign_rows(known);
        Ok(())
    }

    pub fn run(mut self) {
        let heart = vfs::heartbeat::register(self.engine.env().clock.clone(), "folders", "background");
        let mut retry = None;
        loop {
            let next = self.trees.iter().filter_map(ScheduledTree::due).chain(retry).min();
            // No event reports a dropped table, so the thread wakes regularly to check for it, which costs next to
            // nothing.
            let pause = next.map_or(AGAIN, |next| next.saturating_duration_since(Instant::now()).min(AGAIN));
            let pause = if self.table.is_none() { AGAIN } else { pause };
            heart.idle();
            let events = self.watch.wait(pause);
            heart.busy();
            if self.is_stopping() {
                return;
            }
            if !self.has_table() && !self.try_rebuild() {
                continue;
            }
            self.schedule_scans(events, Instant::now());
            for at in 0..self.trees.len() {
                if self.trees[at].due().is_some_and(|due| due <= Instant::now()) {
                    self.scan(at);
                }
                if self.is_stopping() {
                    return;
                }
            }
            if retry.is_none_or(|retry| retry <= Instant::now()) && self.is_ready_to_write() {
                retry = self.write().then(|| Instant::now() + AGAIN);
            }
            self.publish_state();
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Acquire)
    }

    /// Tries [`FeedThread::rebuild`]. If it fails, reports the error and returns false.
    fn try_rebuild(&mut self) -> bool {
        let result = self.rebuild();
        let is_done = result.is_ok();
        self.report_write(result);
        if !is_done {
            self.publish_state();
        }
        is_done
    }

    /// Returns true if every tree has settled, failed, or used up its first scans.
    fn is_ready_to_write(&self) -> bool {
        let is_whole = |scheduled: &ScheduledTree| {
            scheduled.settled || scheduled.failure.is_some() || scheduled.scans >= FIRST_SCANS_MAX
        };
        self.trees.iter().all(is_whole)
    }

    /// Schedules scans for the reported changes.
    fn schedule_scans(&mut self, events: Events, now: Instant) {
        if events.lost {
            self.trees
                .iter_mut()
                .filter(|l| !l.watches.is_empty())
                .for_each(|l| l.request_scan(ScanExtent::Everything, now));
        }
        for watch in events.folders {
            if let Some((at, _)) = self.watched.get(&watch) {
                self.trees[*at].request_scan(ScanExtent::Everything, now);
            }
        }
        for watch in events.files {
            if let Some((at, folder)) = self.watched.get(&watch) {
                self.trees[*at].request_scan(ScanExtent::Folders([folder.clone()].into()), now);
            }
        }
        // Watches that ended are handled last, because other events of the same batch refer to them by the same
        // number.
        for watch in events.gone {
            if let Some((at, folder)) = self.watched.remove(&watch) {
                let scheduled = &mut self.trees[at];
                if scheduled.watches.get(&folder) == Some(&watch) {
                    scheduled.watches.remove(&folder);
                }
                scheduled.request_scan(ScanExtent::Everything, now);
            }
        }
    }

    fn scan(&mut self, at: usize) {
        let started = Instant::now();
        let scheduled = &mut self.trees[at];
        let requested = scheduled.requested.take().map(|(_, extent)| extent);
        let is_full = scheduled.full_scan_at.is_some_and(|due| due <= started);
        let extent = requested.filter(|_| !is_full).unwrap_or(ScanExtent::Everything);
        let outcome = scheduled.tree.scan(match &extent {
            ScanExtent::Everything => ScanScope::Everything,
            ScanExtent::Folders(folders) => ScanScope::Folders(folders),
        });
        let ended = Instant::now();
        scheduled.last_scan_ended = Some(ended);
        {
            let mut state = self.shared.state.lock();
            state.scans += 1;
            state.last_scan = ended - started;
        }
        let scan = match outcome {
            Ok(scan) => scan,
            Err(error) => {
                let said = error.to_string();
                if scheduled.failure.as_ref() != Some(&said) {
                    tracing::warn!("{said}");
                    scheduled.failure = Some(said);
                }
                scheduled.full_scan_at = Some(ended + AGAIN);
                return;
            }
        };
        scheduled.failure = None;
        scheduled.settled |= !scan.hot;
        scheduled.scans = scheduled.scans.saturating_add(1);
        self.shared.state.lock().files_read += scan.read as u64;
        for change in scan.changes {
            self.skipped.remove(change.path());
            self.pending.push(change);
        }
        for (path, why) in scan.warnings {
            if self.skipped.get(&path) != Some(&why) {
                tracing::warn!("{path}: {why}");
                if self.skipped.len() < SKIPPED_MAX {
                    self.skipped.insert(path, why);
                }
            }
        }
        if extent == ScanExtent::Everything {
            let new = self.update_watches(at);
            let scheduled = &mut self.trees[at];
            scheduled.full_scan_at = match () {
                () if scheduled.tree.root().still => None,
                () if scheduled.is_watched => Some(ended + SURE_EVERY),
                () => Some(ended + ((ended - started) * SHARE).clamp(POLL_EVERY, POLL_PAUSE_MAX)),
            };
            // Changes between the scan and the new watch were not reported, so the newly watched folders are scanned
            // again.
            if !new.is_empty() && scheduled.is_watched {
                scheduled.requested = Some((ended, ScanExtent::Folders(new)));
            }
        }
        if scan.hot {
            self.trees[at].schedule(extent, ended + HOT_AGAIN);
        }
    }

    /// Watches the folders of a tree that are not watched yet, and ends the watches of folders that are gone. Returns
    /// the newly watched folders.
    fn update_watches(&mut self, at: usize) -> BTreeSet<String> {
        let mut new = BTreeSet::new();
        let scheduled = &mut self.trees[at];
        let root = scheduled.tree.root();
        scheduled.is_watched = self.options.watch
            && !root.still
            && !root.path.is_file()
            && self.watch.reports_changes(&root.path);
        let folders = scheduled.tree.folders().filter(|_| scheduled.is_watched).map(str::to_owned);
        let wanted: BTreeSet<String> = folders.collect();
        let gone: Vec<String> =
            scheduled.watches.keys().filter(|folder| !wanted.contains(*folder)).cloned().collect();
        for watch in gone.iter().filter_map(|folder| scheduled.watches.remove(folder)) {
            self.watched.remove(&watch);
            self.watch.remove(watch);
        }
        for folder in wanted {
            let disk_path = scheduled.tree.disk_path(&folder);
            let watch = if self.watched.len() < WATCHES_MAX { self.watch.add(&disk_path) } else { None };
            let Some(watch) = watch else {
                // The folder was just removed, or there are too many watches. In both cases polling finds the changes.
                scheduled.is_watched = false;
                continue;
            };
            let old = scheduled.watches.insert(folder.clone(), watch);
            if old == Some(watch) {
                continue;
            }
            // Another folder has taken the path of this one.
            if let Some(old) = old.filter(|old| self.watched.get(old) == Some(&(at, folder.clone()))) {
                self.watched.remove(&old);
                self.watch.remove(old);
            }
            self.watched.insert(watch, (at, folder.clone()));
            new.insert(folder);
        }
        new
    }

    /// Writes the pending changes. Returns true if some are left.
    fn write(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let Options { table, rule, parsed, .. } = &self.options;
        // Only the last change of a path counts; earlier ones may still be here because the table took no writes.
        let mut last = BTreeMap::new();
        for change in std::mem::take(&mut self.pending) {
            last.insert(change.path().to_owned(), change);
        }
        self.pending = last.into_values().collect();
        let before = self.pending.len();
        // If the table was just dropped, this fails; only `rebuild` makes a new one.
        let result = rows::write(&self.engine, table, rule, parsed, &mut self.pending, &self.shared.stopping);
        self.shared.state.lock().rows_written += (before - self.pending.len()) as u64;
        self.report_write(result.map(drop));
        !self.pending.is_empty()
    }

    fn report_write(&mut self, written: Result<()>) {
        let Err(error) = written else {
            self.write_failure = None;
            return;
        };
        if self.is_stopping() {
            return;
        }
        let said = format!("the changes are not written yet: {error}");
        if self.write_failure.as_ref() != Some(&said) {
            tracing::warn!("{said}");
            self.write_failure = Some(said);
        }
    }

    fn publish_state(&self) {
        let mut state = self.shared.state.lock();
        state.files = self.trees.iter().map(|scheduled| scheduled.tree.files() as u64).sum();
        state.bytes = self.trees.iter().map(|scheduled| scheduled.tree.bytes()).sum();
        let failures = self.trees.iter().filter_map(|scheduled| scheduled.failure.clone());
        state.failures = failures.chain(self.write_failure.clone()).collect();
        state.skipped = self.skipped.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        state.watched = self.watched.len() as u64;
        state.polled = self
            .trees
            .iter()
            .filter(|scheduled| !scheduled.is_watched && !scheduled.tree.root().still)
            .count() as u64;
        state.settled = self.pending.is_empty()
            && self.trees.iter().all(|scheduled| scheduled.settled && scheduled.failure.is_none());
    }
}

impl FolderRoot {
    /// Returns true if a path of the vault belongs to this folder.
    fn holds(&self, path: &str) -> bool {
        !self.path.is_file()
            && (self.prefix.is_empty()
                || path.strip_prefix(self.prefix.as_str()).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Returns true if this root is a single file with this path in the vault.
    fn is_file_at(&self, path: &str) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let wanted = if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        self.path.is_file() && wanted == path
    }
}

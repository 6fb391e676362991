//! The feed's thread: when to look, what to write, what to say.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::Engine;
use types::{Result, TableId};

use super::looked::{Looked, What};
use super::rows::{self, Known};
use super::tree::{Change, Scope};
use super::watch::{Events, Watch};
use super::{LOOK_EVERY, Options, Root, Shared};

/// A file that is being written is looked at again.
const HOT_AGAIN: Duration = Duration::from_millis(60);
/// A folder that is away, and a table that takes nothing.
const AGAIN: Duration = Duration::from_secs(1);
/// Even where the kernel tells of changes, everything is looked at so often.
const SURE_EVERY: Duration = Duration::from_secs(60);
/// Of a processor, for looking again and again.
const SHARE: u32 = 20;
const POLL_PAUSE_MAX: Duration = Duration::from_secs(10);
const PASSED_OVER_MAX: usize = 100;
/// Nothing is written before a tree is whole: what it has not read yet may be private, and linked to from what it has. So
/// many looks are made for that; where files are written all the time it never is.
const FIRST_LOOKS_MAX: u8 = 10;
/// Of all folders together; each takes kernel memory.
const WATCHES_MAX: usize = 16_384;

pub struct Run {
    engine: Engine,
    options: Options,
    /// The table that the trees were compared with. One that was dropped and made again is another one.
    table: Option<TableId>,
    trees: Vec<Looked>,
    watch: Watch,
    /// Which tree and folder a watch stands for.
    watched: HashMap<i32, (usize, String)>,
    /// Changes that are not written yet.
    pending: Vec<Change>,
    passed_over: BTreeMap<String, String>,
    shared: Arc<Shared>,
    write_failure: Option<String>,
}

impl Run {
    pub fn new(
        engine: Engine,
        options: Options,
        roots: Vec<Root>,
        known: Vec<Known>,
        watch: Watch,
        shared: Arc<Shared>,
    ) -> Run {
        let trees = roots.into_iter().map(|root| Looked::new(root, options.limits)).collect();
        let table = engine.root().table(&options.table).map(|table| table.def().id);
        let mut run = Run {
            engine,
            options,
            table,
            trees,
            watch,
            watched: HashMap::new(),
            pending: Vec::new(),
            passed_over: BTreeMap::new(),
            shared,
            write_failure: None,
        };
        run.know(known);
        run
    }

    /// Tells the trees of the table's rows. Those of no tree go.
    fn know(&mut self, known: Vec<Known>) {
        let trees = &mut self.trees;
        for Known { path, taken } in known {
            // Single files first, then the folder with the longest prefix: the roots come in that order.
            let of_file = trees.iter().position(|looked| looked.tree.root().is_file_at(&path));
            let owner = of_file.or_else(|| trees.iter().position(|looked| looked.tree.root().holds(&path)));
            match owner {
                Some(owner) => trees[owner].tree.know(path, taken),
                None => self.pending.push(Change::Remove { path }),
            }
        }
    }

    /// Whether the table is the one that the trees know.
    fn has_table(&self) -> bool {
        let root = self.engine.root();
        self.table.is_some() && root.table(&self.options.table).map(|table| table.def().id) == self.table
    }

    /// Somebody dropped the table: everything is taken in again, as after a start. Written into the new table alone, what
    /// changes next would be a site in which nothing else exists, and links would show what private notes are called (A1).
    fn retake(&mut self) -> Result<()> {
        let Options { table, rule, parsed, limits, .. } = &self.options;
        if self.table.take().is_some() {
            tracing::warn!(
                "the table of the notes was dropped while its folders are followed; they are taken in again"
            );
        }
        self.pending.clear();
        self.passed_over.clear();
        for looked in &mut self.trees {
            // What the kernel tells of stays: the folders are the same.
            let watches = std::mem::take(&mut looked.watches);
            *looked = Looked { watches, ..Looked::new(looked.tree.root().clone(), *limits) };
        }
        rows::ensure(&self.engine, table)?;
        let id = self.engine.root().table(table).map(|table| table.def().id);
        let known = super::reconciled(&self.engine, table, rule, parsed)?;
        self.table = id;
        self.know(known);
        Ok(())
    }

    pub fn run(mut self) {
        let heart = vfs::heartbeat::register(self.engine.env().clock.clone(), "folders", "background");
        let mut retry = None;
        loop {
            let next = self.trees.iter().filter_map(Looked::due).chain(retry).min();
            // Nobody tells of a dropped table, and to ask costs next to nothing.
            let pause = next.map_or(AGAIN, |next| next.saturating_duration_since(Instant::now()).min(AGAIN));
            let pause = if self.table.is_none() { AGAIN } else { pause };
            heart.idle();
            let events = self.watch.wait(pause);
            heart.busy();
            if self.is_stopping() {
                return;
            }
            if !self.has_table() && !self.retaken() {
                continue;
            }
            self.note(events, Instant::now());
            for at in 0..self.trees.len() {
                if self.trees[at].due().is_some_and(|due| due <= Instant::now()) {
                    self.look(at);
                }
                if self.is_stopping() {
                    return;
                }
            }
            if retry.is_none_or(|retry| retry <= Instant::now()) && self.is_whole() {
                retry = self.write().then(|| Instant::now() + AGAIN);
            }
            self.tell();
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Acquire)
    }

    /// False, and said, if it cannot be now.
    fn retaken(&mut self) -> bool {
        let retaken = self.retake();
        let is_done = retaken.is_ok();
        self.said(retaken);
        if !is_done {
            self.tell();
        }
        is_done
    }

    /// Whether every tree was looked at as a whole, or cannot be.
    fn is_whole(&self) -> bool {
        let is_whole = |looked: &Looked| {
            looked.settled || looked.failure.is_some() || looked.first_looks >= FIRST_LOOKS_MAX
        };
        self.trees.iter().all(is_whole)
    }

    /// Makes due what was told of.
    fn note(&mut self, events: Events, now: Instant) {
        if events.lost {
            self.trees
                .iter_mut()
                .filter(|l| !l.watches.is_empty())
                .for_each(|l| l.wants(What::Everything, now));
        }
        for watch in events.folders {
            if let Some((at, _)) = self.watched.get(&watch) {
                self.trees[*at].wants(What::Everything, now);
            }
        }
        for watch in events.files {
            if let Some((at, folder)) = self.watched.get(&watch) {
                self.trees[*at].wants(What::Folders([folder.clone()].into()), now);
            }
        }
        // Last: the same batch says why, by the same number.
        for watch in events.gone {
            if let Some((at, folder)) = self.watched.remove(&watch) {
                let looked = &mut self.trees[at];
                if looked.watches.get(&folder) == Some(&watch) {
                    looked.watches.remove(&folder);
                }
                looked.wants(What::Everything, now);
            }
        }
    }

    fn look(&mut self, at: usize) {
        let started = Instant::now();
        let looked = &mut self.trees[at];
        let soon = looked.soon.take().map(|(_, what)| what);
        let sure = looked.sure.is_some_and(|sure| sure <= started);
        let what = soon.filter(|_| !sure).unwrap_or(What::Everything);
        let outcome = looked.tree.look(match &what {
            What::Everything => Scope::Everything,
            What::Folders(folders) => Scope::Folders(folders),
        });
        let ended = Instant::now();
        looked.ended = Some(ended);
        {
            let mut state = self.shared.state.lock();
            state.looks += 1;
            state.last_look = ended - started;
        }
        let look = match outcome {
            Ok(look) => look,
            Err(error) => {
                let said = error.to_string();
                if looked.failure.as_ref() != Some(&said) {
                    tracing::warn!("{said}");
                    looked.failure = Some(said);
                }
                looked.sure = Some(ended + AGAIN);
                return;
            }
        };
        looked.failure = None;
        looked.settled |= !look.hot;
        looked.first_looks = looked.first_looks.saturating_add(1);
        self.shared.state.lock().files_read += look.read as u64;
        for change in look.changes {
            self.passed_over.remove(change.path());
            self.pending.push(change);
        }
        for (path, why) in look.warnings {
            if self.passed_over.get(&path) != Some(&why) {
                tracing::warn!("{path}: {why}");
                if self.passed_over.len() < PASSED_OVER_MAX {
                    self.passed_over.insert(path, why);
                }
            }
        }
        if what == What::Everything {
            let new = self.follow(at);
            let looked = &mut self.trees[at];
            looked.sure = match () {
                () if looked.tree.root().still => None,
                () if looked.told => Some(ended + SURE_EVERY),
                () => Some(ended + ((ended - started) * SHARE).clamp(LOOK_EVERY, POLL_PAUSE_MAX)),
            };
            // What came between the look and the watch was not told of.
            if !new.is_empty() && looked.told {
                looked.soon = Some((ended, What::Folders(new)));
            }
        }
        if look.hot {
            self.trees[at].merge(what, ended + HOT_AGAIN);
        }
    }

    /// Watches the folders of a tree that are not watched yet, and lets go of those that are no more. Returns the new ones.
    fn follow(&mut self, at: usize) -> BTreeSet<String> {
        let mut new = BTreeSet::new();
        let looked = &mut self.trees[at];
        let root = looked.tree.root();
        looked.told =
            self.options.watch && !root.still && !root.path.is_file() && self.watch.tells_of(&root.path);
        let folders = looked.tree.folders().filter(|_| looked.told).map(str::to_owned);
        let wanted: BTreeSet<String> = folders.collect();
        let gone: Vec<String> =
            looked.watches.keys().filter(|folder| !wanted.contains(*folder)).cloned().collect();
        for watch in gone.iter().filter_map(|folder| looked.watches.remove(folder)) {
            self.watched.remove(&watch);
            self.watch.remove(watch);
        }
        for folder in wanted {
            let place = looked.tree.place(&folder);
            let watch = if self.watched.len() < WATCHES_MAX { self.watch.add(&place) } else { None };
            let Some(watch) = watch else {
                // Removed meanwhile, or one too many: either way looking again finds out.
                looked.told = false;
                continue;
            };
            let old = looked.watches.insert(folder.clone(), watch);
            if old == Some(watch) {
                continue;
            }
            // Another folder took its place.
            if let Some(old) = old.filter(|old| self.watched.get(old) == Some(&(at, folder.clone()))) {
                self.watched.remove(&old);
                self.watch.remove(old);
            }
            self.watched.insert(watch, (at, folder.clone()));
            new.insert(folder);
        }
        new
    }

    /// True if something is left.
    fn write(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let Options { table, rule, parsed, .. } = &self.options;
        // The last word on a path counts: earlier ones may wait here since the table took nothing.
        let mut last = BTreeMap::new();
        for change in std::mem::take(&mut self.pending) {
            last.insert(change.path().to_owned(), change);
        }
        self.pending = last.into_values().collect();
        let before = self.pending.len();
        // If it was dropped just now there is none to write to; a new one is made by `retake` alone.
        let result = rows::write(&self.engine, table, rule, parsed, &mut self.pending, &self.shared.stopping);
        self.shared.state.lock().rows_written += (before - self.pending.len()) as u64;
        self.said(result.map(drop));
        !self.pending.is_empty()
    }

    fn said(&mut self, written: Result<()>) {
        let Err(error) = written else {
            self.write_failure = None;
            return;
        };
        if self.is_stopping() {
            return;
        }
        let said = format!("what changed is not written yet: {error}");
        if self.write_failure.as_ref() != Some(&said) {
            tracing::warn!("{said}");
            self.write_failure = Some(said);
        }
    }

    fn tell(&self) {
        let mut state = self.shared.state.lock();
        state.files = self.trees.iter().map(|looked| looked.tree.files() as u64).sum();
        state.bytes = self.trees.iter().map(|looked| looked.tree.bytes()).sum();
        let failures = self.trees.iter().filter_map(|looked| looked.failure.clone());
        state.failures = failures.chain(self.write_failure.clone()).collect();
        state.passed_over = self.passed_over.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        state.watched = self.watched.len() as u64;
        state.polled =
            self.trees.iter().filter(|looked| !looked.told && !looked.tree.root().still).count() as u64;
        state.settled = self.pending.is_empty()
            && self.trees.iter().all(|looked| looked.settled && looked.failure.is_none());
    }
}

impl Root {
    /// Whether a path of the vault would be in this folder.
    fn holds(&self, path: &str) -> bool {
        !self.path.is_file()
            && (self.prefix.is_empty()
                || path.strip_prefix(self.prefix.as_str()).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Whether it is a single file, of this path in the vault.
    fn is_file_at(&self, path: &str) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let wanted = if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        self.path.is_file() && wanted == path
    }
}

//! Erasure on request: rows that ended leave the files of their table, at once and for good.
//!
//! A delete alone leaves the row where it is until its segment is merged, and then for as long as the past is kept. An
//! erasure lets the table forget its past up to a commit, seals a head that holds rows which ended, writes every segment anew
//! that holds one, has what is derived of it here (indexes) do the same, and waits until the files of what was replaced are
//! removed. What was written to the log stays there until its files are used again; that, its archive and backups are nothing
//! that this reaches.
//!
//! Each stage begins when nothing else is at work on the table's segments, and under the lock that says so: what a seal or a
//! merge made of an older state is in the root by then, so nothing slips through. Asked for in memory alone: after a crash
//! it is asked again, and goes on with what is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use table::{Segment, Snapshot, evict};
use types::{Error, Kind, Lsn, Result, SegmentId, TableId};
use vfs::{Mutex, Rank};

use crate::background::{self, Under};
use crate::engine::Engine;
use crate::evict as engine_evict;
use crate::forget;
use crate::root::Root;
use crate::shared::{Background, Shared, What};

/// An erasure of rows of one table. Whoever waits for it looks at it.
#[derive(Debug)]
pub struct Erasure {
    /// Rows that ended up to this commit.
    pub lsn: Lsn,
    state: Mutex<State>,
}

/// How far an erasure is.
#[derive(Clone, Debug, Default)]
pub struct Erasing {
    /// Files of rows that ended and were kept for AS OF: forgotten with all that is in them.
    pub history_segments: u64,
    /// Segments that were written anew without them, a sealed head among them.
    pub segments_rewritten: u64,
    /// Segments that cannot be read, and so cannot be written anew.
    pub segments_damaged: u64,
    /// Files of what was replaced, and their size; those that still wait for their last reader not among them.
    pub segments_removed: u64,
    pub bytes_removed: u64,
    /// Replaced segments whose files are not removed yet.
    pub segments_held: u64,
    /// Materializers whose files may hold such rows still: [`table::materializer::Materializer::expunge`].
    pub indexes_left: Vec<&'static str>,
    /// Why its last piece of work failed; it is tried again.
    pub error: Option<Error>,
    /// Nothing is left to be done; or why it cannot be.
    pub ended: Option<Result<()>>,
}

#[derive(Debug, Default)]
struct State {
    told: Erasing,
    stage: Stage,
    /// One that reaches further took its place before it began.
    followed_by: Option<Arc<Erasure>>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Forget,
    Seal,
    /// `None`: which they are is not known yet.
    Rewrite(Option<BTreeSet<SegmentId>>),
    /// Whether the materializers were asked.
    Expunge(bool),
    /// What was replaced up to this lsn.
    Remove(Lsn),
}

/// What is to be done next.
pub(crate) enum Next {
    Forget(forget::Task),
    Seal(Arc<Snapshot>),
    Rewrite(Arc<Snapshot>, SegmentId),
}

/// Whether rows of a segment are here, or none is left anywhere. Those that the lake alone has are erased there.
fn is_here(segment: &Segment, deleted: u64) -> bool {
    !segment.is_evicted() || segment.meta().rows <= deleted
}

/// Whether a segment with ended rows is to be written anew: it has some, or tells bounds that may be values of some.
fn is_due(table: &Snapshot, segment: &Segment, deleted: u64) -> bool {
    is_here(segment, deleted) || evict::has_bounds_of_ended_rows(table, segment.id())
}

/// Materializers that no longer follow a table, and whose files of it are not removed yet: a reader holds them.
fn left_over(shared: &Shared, background: &Background, table: &Snapshot, since: Lsn) -> Vec<&'static str> {
    let id = table.def().id;
    let all = shared.materializers.load();
    let follows = |name: &&str| all.iter().any(|of| of.name() == *name && of.follows(table.def()));
    let waiting = background.leftovers.iter().filter(|l| l.table == id && l.since <= since);
    let waiting = waiting.map(|l| l.materializer.name());
    let removing = background.deriving.iter().filter(|(of, _)| *of == id).map(|(_, name)| *name);
    waiting.chain(removing).filter(|name| !follows(name)).collect()
}

impl Erasure {
    fn new(lsn: Lsn) -> Self {
        Erasure { lsn, state: Mutex::new(Rank::new(49, "engine erasure"), State::default()) }
    }

    /// How far it is, or the one that took its place.
    pub fn state(&self) -> Erasing {
        let state = self.state.lock();
        let Some(next) = state.followed_by.clone() else { return state.told.clone() };
        drop(state);
        next.state()
    }

    pub(crate) fn end(&self, outcome: Result<()>) {
        self.state.lock().told.ended.get_or_insert(outcome);
    }

    /// Whether segments of the table are still to be forgotten, sealed or written anew.
    pub(crate) fn is_at_segments(&self) -> bool {
        let state = self.state.lock();
        state.told.ended.is_none() && !matches!(state.stage, Stage::Expunge(_) | Stage::Remove(_))
    }

    /// What is due, if nobody else is at work on the table's segments. Called under the lock of the background.
    fn next(
        &self,
        shared: &Shared,
        root: &Root,
        table: &Arc<Snapshot>,
        background: &mut Background,
    ) -> Option<Next> {
        let id = table.def().id;
        let mut guard = self.state.lock();
        let State { told, stage, .. } = &mut *guard;
        loop {
            match stage {
                Stage::Forget => return Some(Next::Forget(forget::Task::all_of(table, self.lsn))),
                Stage::Seal if table.head_deleted() > 0 => return Some(Next::Seal(table.clone())),
                Stage::Seal => *stage = Stage::Rewrite(None),
                Stage::Rewrite(None) => {
                    let touched = table.segments_with_deletes();
                    let touched = touched.filter(|(segment, deleted)| is_due(table, segment, *deleted));
                    *stage = Stage::Rewrite(Some(touched.map(|(segment, _)| segment.id()).collect()));
                }
                Stage::Rewrite(Some(left)) => {
                    let mut found = None;
                    left.retain(|id| {
                        // One is enough for now.
                        if found.is_some() {
                            return true;
                        }
                        // Merged meanwhile, or let go of: its rows may have left for the lake.
                        let touched = table.segments_with_deletes().find(|(segment, _)| segment.id() == *id);
                        let due = touched.filter(|(segment, deleted)| is_due(table, segment, *deleted));
                        let Some((segment, _)) = due else { return false };
                        if segment.is_damaged() {
                            told.segments_damaged += 1;
                            return false;
                        }
                        found = Some(*id);
                        true
                    });
                    if let Some(segment) = found {
                        return Some(Next::Rewrite(table.clone(), segment));
                    }
                    *stage = Stage::Expunge(false);
                }
                Stage::Expunge(asked) => {
                    let all = shared.materializers.load();
                    let all = all.iter().filter(|materializer| materializer.follows(table.def()));
                    if !*asked {
                        *asked = true;
                        let left = all.filter(|materializer| materializer.expunge(id, self.lsn));
                        told.indexes_left = left.map(|materializer| materializer.name()).collect();
                        for name in &told.indexes_left {
                            background.pauses.remove(&(id, *name));
                        }
                        continue;
                    }
                    let at_it = all.filter(|materializer| materializer.is_step_requested(table.def()));
                    let at_it: Vec<_> = at_it.map(|materializer| materializer.name()).collect();
                    told.indexes_left.retain(|name| at_it.contains(name));
                    if !told.indexes_left.is_empty() {
                        return None;
                    }
                    *stage = Stage::Remove(root.lsn());
                }
                Stage::Remove(since) => {
                    let held = background.obsolete.iter().filter(|o| o.table == id && o.since <= *since);
                    let removing = background.removing.iter().filter(|(table, _)| *table == id);
                    told.segments_held = (held.count() + removing.count()) as u64;
                    told.indexes_left = left_over(shared, background, table, *since);
                    told.error =
                        background.left.iter().find(|((of, _), _)| *of == id).map(|(_, e)| e.clone());
                    if told.segments_held == 0 && told.indexes_left.is_empty() {
                        told.ended.get_or_insert(Ok(()));
                    }
                    return None;
                }
            }
        }
    }

    /// A piece of work failed; it is tried again.
    pub(crate) fn failed(&self, error: &Error) {
        self.state.lock().told.error = Some(error.clone());
    }

    /// A piece of work went well.
    pub(crate) fn did(&self, done: Done) {
        let mut state = self.state.lock();
        state.told.error = None;
        match done {
            Done::Forgot { segments } => {
                state.told.history_segments += segments;
                if matches!(state.stage, Stage::Forget) {
                    state.stage = Stage::Seal;
                }
            }
            Done::Sealed => {
                state.told.segments_rewritten += 1;
                if matches!(state.stage, Stage::Seal) {
                    state.stage = Stage::Rewrite(None);
                }
            }
            Done::Rewrote => state.told.segments_rewritten += 1,
            Done::Removed { bytes } => {
                state.told.segments_removed += 1;
                state.told.bytes_removed += bytes;
            }
        }
    }
}

/// What was done.
pub(crate) enum Done {
    Forgot { segments: u64 },
    Sealed,
    Rewrote,
    Removed { bytes: u64 },
}

impl Engine {
    /// Lets go of all rows of a table that ended up to `lsn`, wherever they still stand in its files; the past of the table
    /// is read from there on at best. Done in the background: the erasure that is returned tells how far it is. One that is
    /// under way or waits, for the same commit or a later one, is joined; what goes further waits for the one under way, which
    /// would else never end where somebody asks again and again.
    ///
    /// It may end long after the segments were written anew, while a reader still holds a replaced one.
    pub fn erase(&self, table: TableId, lsn: Lsn) -> Result<Arc<Erasure>> {
        let shared = self.shared();
        let mut background = shared.background.lock();
        // Under the lock: who closes ends what is in it by then.
        shared.check_open()?;
        let Background { erasing, erasing_next, .. } = &mut *background;
        let known = [erasing.get(&table), erasing_next.get(&table)].into_iter().flatten();
        let joined = known.into_iter().find(|erasure| erasure.lsn >= lsn).cloned();
        let erasure = joined.unwrap_or_else(|| {
            let erasure = Arc::new(Erasure::new(lsn));
            let place = if erasing.contains_key(&table) { erasing_next } else { erasing };
            if let Some(before) = place.insert(table, erasure.clone()) {
                before.state.lock().followed_by = Some(erasure.clone());
            }
            erasure
        });
        // What failed before is tried at once, and what it failed for may be cured.
        erasure.state.lock().told.error = None;
        for (what, retry) in &mut background.retries {
            if matches!(what, What::Table(of) | What::Forget(of) | What::Compact(of) | What::Derive(of, _) if *of == table)
            {
                retry.due = Duration::ZERO;
            }
        }
        drop(background);
        shared.wake_background();
        Ok(erasure)
    }
}

/// The next piece of an erasure, and whose it is. Ends those that are done.
pub(crate) fn next(
    shared: &Shared,
    root: &Root,
    background: &mut Background,
    now: Duration,
) -> Option<(Arc<Erasure>, Next)> {
    let all: Vec<(TableId, Arc<Erasure>)> =
        background.erasing.iter().map(|(id, erasure)| (*id, erasure.clone())).collect();
    for (id, erasure) in all {
        let Some(table) = root.tables().find(|table| table.def().id == id) else {
            erasure.end(Err(Error::not_found("the table was dropped, and all its files with it")));
            ended(background, id);
            continue;
        };
        // An older state of the table knows nothing of the deletes that are meant.
        let may = [What::Table(id), What::Forget(id), What::Compact(id)]
            .iter()
            .all(|what| background.may(*what, now));
        if table.lsn() < erasure.lsn || !may {
            continue;
        }
        let next = erasure.next(shared, root, table, background);
        if erasure.state().ended.is_some() {
            ended(background, id);
        }
        if let Some(next) = next {
            return Some((erasure, next));
        }
    }
    None
}

/// The erasure of a table has ended, and the one that waits for it begins.
fn ended(background: &mut Background, table: TableId) {
    background.erasing.remove(&table);
    if let Some(next) = background.erasing_next.remove(&table) {
        background.erasing.insert(table, next);
    }
}

/// One piece of an erasure: the same work as is done unasked, for other reasons.
pub(crate) fn run(shared: &Arc<Shared>, erasure: &Erasure, next: Next) -> Result<()> {
    let (what, done) = match &next {
        Next::Forget(task) => (task.what(), Done::Forgot { segments: task.segments() }),
        Next::Seal(table) => (What::Table(table.def().id), Done::Sealed),
        Next::Rewrite(table, _) => (What::Compact(table.def().id), Done::Rewrote),
    };
    let under = Under::way(shared, what);
    let made = match next {
        Next::Forget(task) => {
            shared.counters.forgotten.add(1);
            Ok(task.edit())
        }
        Next::Seal(table) => background::seal(shared, &table, table.next_row()),
        Next::Rewrite(table, segment)
            if !table
                .segments_with_deletes()
                .any(|(of, deleted)| of.id() == segment && is_here(of, deleted)) =>
        {
            engine_evict::forget_bounds(shared, &table, segment)
        }
        Next::Rewrite(table, segment) => {
            let inputs = [segment];
            let form = background::form_of(shared, &table, &inputs);
            background::compact(shared, &table, &inputs, form)
        }
    };
    let outcome = match made {
        Ok(edit) => background::hand_over(shared, edit, under),
        Err(error) => {
            under.end(true);
            Err(error)
        }
    };
    match &outcome {
        Ok(()) => erasure.did(done),
        // Found out of a segment: it is left, and counted.
        Err(error) if error.kind() == Kind::Damaged => {}
        Err(error) => erasure.failed(error),
    }
    outcome
}

/// When erasures are looked at again: files wait for their last reader.
pub(crate) fn again(background: &Background) -> Option<Duration> {
    (!background.erasing.is_empty()).then_some(LOOK_EVERY)
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A closing database erases nothing more.
pub(crate) fn close(background: &mut Background) {
    let waiting = std::mem::take(&mut background.erasing_next);
    for erasure in std::mem::take(&mut background.erasing).into_values().chain(waiting.into_values()) {
        erasure.end(Err(Error::new(Kind::Closed, "the database is closing; ask again when it is open")));
    }
}

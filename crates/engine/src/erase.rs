//! Erasure on request: removes deleted rows from all files of their table, at once and for good.
//!
//! A mere delete leaves the row in its segment until that is merged, and then in the past for as long as that is kept. An
//! erasure drops the past of a table up to a commit, seals a head that holds deleted rows, and rewrites every segment that
//! holds one. It lets local derived data (indexes) do the same, and waits until the replaced files are removed. Records in
//! the log stay until its files are used again. The archive of the log and backups are out of its reach.
//!
//! Each stage begins when nothing else works on the table's segments, and under the lock that shows that. The output of a
//! seal or merge that read an older state is in the root by then, so nothing slips through. An erasure is requested in
//! memory only: after a crash it is requested again, and goes on with the rest.

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

/// An erasure of rows of one table. A caller that waits for it polls its state.
#[derive(Debug)]
pub struct Erasure {
    /// Rows that were deleted up to this commit are erased.
    pub lsn: Lsn,
    state: Mutex<State>,
}

/// Progress of an erasure.
#[derive(Clone, Debug, Default)]
pub struct Erasing {
    /// Files of deleted rows that were kept for AS OF and are dropped with everything in them.
    pub history_segments: u64,
    /// Segments that were rewritten without the deleted rows, a sealed head included.
    pub segments_rewritten: u64,
    /// Segments that cannot be read, and so cannot be rewritten.
    pub segments_damaged: u64,
    /// Replaced files that were removed, and their size. Files that still wait for their last reader do not count.
    pub segments_removed: u64,
    pub bytes_removed: u64,
    /// Replaced segments whose files are not removed yet.
    pub segments_held: u64,
    /// Materializers whose files may still hold such rows: [`table::materializer::Materializer::expunge`].
    pub indexes_left: Vec<&'static str>,
    /// Error of its last piece of work, if that failed; it is retried.
    pub error: Option<Error>,
    /// The outcome, once nothing is left to be done or the rest cannot be done.
    pub ended: Option<Result<()>>,
}

#[derive(Debug, Default)]
struct State {
    told: Erasing,
    stage: Stage,
    /// The erasure that replaced this one before it began, because it reaches further.
    followed_by: Option<Arc<Erasure>>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Forget,
    Seal,
    /// The segments left to rewrite; `None` while they are not known yet.
    Rewrite(Option<BTreeSet<SegmentId>>),
    /// True once the materializers were asked.
    Expunge(bool),
    /// Removal of the files that were replaced up to this lsn.
    Remove(Lsn),
}

/// The next piece of work of an erasure.
pub(crate) enum Next {
    Forget(forget::Task),
    Seal(Arc<Snapshot>),
    Rewrite(Arc<Snapshot>, SegmentId),
}

/// Returns true if the rows of a segment are on this machine, or if none of them is live anywhere. Rows that only the lake
/// has are erased there.
fn is_here(segment: &Segment, deleted: u64) -> bool {
    !segment.is_evicted() || segment.meta().rows <= deleted
}

/// Returns true if a segment with deleted rows must be rewritten: it holds some, or its bounds may be values of some.
fn is_due(table: &Snapshot, segment: &Segment, deleted: u64) -> bool {
    is_here(segment, deleted) || evict::has_bounds_of_ended_rows(table, segment.id())
}

/// Returns the materializers that no longer follow a table and whose files for it are not removed yet, because a reader
/// holds them.
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

    /// The progress of this erasure, or of the one that replaced it.
    pub fn state(&self) -> Erasing {
        let state = self.state.lock();
        let Some(next) = state.followed_by.clone() else { return state.told.clone() };
        drop(state);
        next.state()
    }

    pub(crate) fn end(&self, outcome: Result<()>) {
        self.state.lock().told.ended.get_or_insert(outcome);
    }

    /// Returns true if segments of the table are still to be dropped, sealed or rewritten.
    pub(crate) fn is_at_segments(&self) -> bool {
        let state = self.state.lock();
        state.told.ended.is_none() && !matches!(state.stage, Stage::Expunge(_) | Stage::Remove(_))
    }

    /// Returns the work that is due. Called under the lock of the background state, while nothing else works on the table's
    /// segments.
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
                        // The segment may have been merged meanwhile, or its rows may have been evicted to the lake.
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

    /// Records that a piece of work failed; it is retried.
    pub(crate) fn failed(&self, error: &Error) {
        self.state.lock().told.error = Some(error.clone());
    }

    /// Records that a piece of work succeeded.
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

/// A completed piece of work.
pub(crate) enum Done {
    Forgot { segments: u64 },
    Sealed,
    Rewrote,
    Removed { bytes: u64 },
}

impl Engine {
    /// Erases all rows of a table that were deleted up to `lsn`, wherever its files still hold them. The past of the table
    /// can then be read back to `lsn` at best. The work is done in the background, and the returned erasure shows its
    /// progress. A call joins an erasure that runs or waits if it is for the same commit or a later one. A call that goes
    /// further waits for the running one, which would otherwise never end while calls keep coming.
    ///
    /// It may end long after the segments were rewritten, while a reader still holds a replaced one.
    pub fn erase(&self, table: TableId, lsn: Lsn) -> Result<Arc<Erasure>> {
        let shared = self.shared();
        let mut background = shared.background.lock();
        // Checked under the lock: closing ends the erasures that are registered by then.
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
        // Failed work is retried at once: the reason for the failure may be gone.
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

/// Returns the next piece of work of all erasures, and its erasure. Ends those that are done.
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
        // An older state of the table does not have the deletes in question.
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

/// Removes an erasure that has ended, and lets the one that waits for it begin.
fn ended(background: &mut Background, table: TableId) {
    background.erasing.remove(&table);
    if let Some(next) = background.erasing_next.remove(&table) {
        background.erasing.insert(table, next);
    }
}

/// Does one piece of an erasure. The work is the same as that of the background pool for other reasons.
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
        // The segment was found damaged: it is left alone, and counted.
        Err(error) if error.kind() == Kind::Damaged => {}
        Err(error) => erasure.failed(error),
    }
    outcome
}

/// Returns the time until erasures are checked again, since files wait for their last reader.
pub(crate) fn again(background: &Background) -> Option<Duration> {
    (!background.erasing.is_empty()).then_some(LOOK_EVERY)
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ends all erasures of a closing database.
pub(crate) fn close(background: &mut Background) {
    let waiting = std::mem::take(&mut background.erasing_next);
    for erasure in std::mem::take(&mut background.erasing).into_values().chain(waiting.into_values()) {
        erasure.end(Err(Error::new(Kind::Closed, "the database is closing; ask again when it is open")));
    }
}

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

use crate::background::state::{BackgroundJob, BackgroundState};
use crate::background::{self, RunningJob};
use crate::database_root::DatabaseRoot;
use crate::engine::Engine;
use crate::evict as engine_evict;
use crate::past_retention;
use crate::shared_state::Shared;

/// An erasure of rows of one table. A caller that waits for it polls its state.
#[derive(Debug)]
pub struct Erasure {
    /// Rows that were deleted up to this commit are erased.
    pub lsn: Lsn,
    state: Mutex<State>,
}

/// Progress of an erasure.
#[derive(Clone, Debug, Default)]
pub struct ErasureProgress {
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
    progress: ErasureProgress,
    stage: ErasureStage,
    /// The erasure that replaced this one before it began, because it reaches further.
    replaced_by: Option<Arc<Erasure>>,
}

#[derive(Debug, Default)]
enum ErasureStage {
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
pub(crate) enum ErasureStep {
    Forget(past_retention::DropPastTask),
    Seal(Arc<Snapshot>),
    Rewrite(Arc<Snapshot>, SegmentId),
}

/// Returns true if the rows of a segment are on this machine, or if none of them is live anywhere. Rows that only the lake
/// has are erased there.
fn is_local(segment: &Segment, deleted: u64) -> bool {
    !segment.is_evicted() || segment.meta().rows <= deleted
}

/// Returns true if a segment with deleted rows must be rewritten: it holds some, or its bounds may be values of some.
fn is_due(table: &Snapshot, segment: &Segment, deleted: u64) -> bool {
    is_local(segment, deleted) || evict::has_bounds_of_ended_rows(table, segment.id())
}

/// Returns the materializers that no longer follow a table and whose files for it are not removed yet, because a reader
/// holds them.
fn unremoved_materializers(
    shared: &Shared,
    background: &BackgroundState,
    table: &Snapshot,
    since: Lsn,
) -> Vec<&'static str> {
    let id = table.def().id;
    let all = shared.materializers.load();
    let follows = |name: &&str| all.iter().any(|of| of.name() == *name && of.follows(table.def()));
    let waiting = background.obsolete_outputs.iter().filter(|l| l.table == id && l.since <= since);
    let waiting = waiting.map(|l| l.materializer.name());
    let removing = background.deriving.iter().filter(|(of, _)| *of == id).map(|(_, name)| *name);
    waiting.chain(removing).filter(|name| !follows(name)).collect()
}

impl Erasure {
    fn new(lsn: Lsn) -> Self {
        Erasure { lsn, state: Mutex::new(Rank::new(49, "engine erasure"), State::default()) }
    }

    /// The progress of this erasure, or of the one that replaced it.
    pub fn state(&self) -> ErasureProgress {
        let state = self.state.lock();
        let Some(next) = state.replaced_by.clone() else { return state.progress.clone() };
        drop(state);
        next.state()
    }

    pub(crate) fn end(&self, outcome: Result<()>) {
        self.state.lock().progress.ended.get_or_insert(outcome);
    }

    /// Returns true if segments of the table are still to be dropped, sealed or rewritten.
    pub(crate) fn is_at_segments(&self) -> bool {
        let state = self.state.lock();
        state.progress.ended.is_none()
            && !matches!(state.stage, ErasureStage::Expunge(_) | ErasureStage::Remove(_))
    }

    /// Returns the work that is due. Called under the lock of the background state, while nothing else works on the table's
    /// segments.
    fn next(
        &self,
        shared: &Shared,
        root: &DatabaseRoot,
        table: &Arc<Snapshot>,
        background: &mut BackgroundState,
    ) -> Option<ErasureStep> {
        let id = table.def().id;
        let mut guard = self.state.lock();
        let State { progress, stage, .. } = &mut *guard;
        loop {
            match stage {
                ErasureStage::Forget => {
                    return Some(ErasureStep::Forget(past_retention::DropPastTask::all_of(table, self.lsn)));
                }
                ErasureStage::Seal if table.head_deleted() > 0 => {
                    return Some(ErasureStep::Seal(table.clone()));
                }
                ErasureStage::Seal => *stage = ErasureStage::Rewrite(None),
                ErasureStage::Rewrite(None) => {
                    let touched = table.segments_with_deletes();
                    let touched = touched.filter(|(segment, deleted)| is_due(table, segment, *deleted));
                    *stage = ErasureStage::Rewrite(Some(touched.map(|(segment, _)| segment.id()).collect()));
                }
                ErasureStage::Rewrite(Some(left)) => {
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
                            progress.segments_damaged += 1;
                            return false;
                        }
                        found = Some(*id);
                        true
                    });
                    if let Some(segment) = found {
                        return Some(ErasureStep::Rewrite(table.clone(), segment));
                    }
                    *stage = ErasureStage::Expunge(false);
                }
                ErasureStage::Expunge(asked) => {
                    let all = shared.materializers.load();
                    let all = all.iter().filter(|materializer| materializer.follows(table.def()));
                    if !*asked {
                        *asked = true;
                        let left = all.filter(|materializer| materializer.expunge(id, self.lsn));
                        progress.indexes_left = left.map(|materializer| materializer.name()).collect();
                        for name in &progress.indexes_left {
                            background.pauses.remove(&(id, *name));
                        }
                        continue;
                    }
                    let at_it = all.filter(|materializer| materializer.is_step_requested(table.def()));
                    let at_it: Vec<_> = at_it.map(|materializer| materializer.name()).collect();
                    progress.indexes_left.retain(|name| at_it.contains(name));
                    if !progress.indexes_left.is_empty() {
                        return None;
                    }
                    *stage = ErasureStage::Remove(root.lsn());
                }
                ErasureStage::Remove(since) => {
                    let held = background.obsolete.iter().filter(|o| o.table == id && o.since <= *since);
                    let removing = background.removing.iter().filter(|(table, _)| *table == id);
                    progress.segments_held = (held.count() + removing.count()) as u64;
                    progress.indexes_left = unremoved_materializers(shared, background, table, *since);
                    progress.error = background
                        .removal_errors
                        .iter()
                        .find(|((of, _), _)| *of == id)
                        .map(|(_, e)| e.clone());
                    if progress.segments_held == 0 && progress.indexes_left.is_empty() {
                        progress.ended.get_or_insert(Ok(()));
                    }
                    return None;
                }
            }
        }
    }

    /// Records that a piece of work failed; it is retried.
    pub(crate) fn failed(&self, error: &Error) {
        self.state.lock().progress.error = Some(error.clone());
    }

    /// Records that a piece of work succeeded.
    pub(crate) fn completed(&self, done: CompletedStep) {
        let mut state = self.state.lock();
        state.progress.error = None;
        match done {
            CompletedStep::Forgot { segments } => {
                state.progress.history_segments += segments;
                if matches!(state.stage, ErasureStage::Forget) {
                    state.stage = ErasureStage::Seal;
                }
            }
            CompletedStep::Sealed => {
                state.progress.segments_rewritten += 1;
                if matches!(state.stage, ErasureStage::Seal) {
                    state.stage = ErasureStage::Rewrite(None);
                }
            }
            CompletedStep::Rewrote => state.progress.segments_rewritten += 1,
            CompletedStep::Removed { bytes } => {
                state.progress.segments_removed += 1;
                state.progress.bytes_removed += bytes;
            }
        }
    }
}

/// A completed piece of work.
pub(crate) enum CompletedStep {
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
        let BackgroundState { erasing, erasing_next, .. } = &mut *background;
        let known = [erasing.get(&table), erasing_next.get(&table)].into_iter().flatten();
        let joined = known.into_iter().find(|erasure| erasure.lsn >= lsn).cloned();
        let erasure = joined.unwrap_or_else(|| {
            let erasure = Arc::new(Erasure::new(lsn));
            let place = if erasing.contains_key(&table) { erasing_next } else { erasing };
            if let Some(before) = place.insert(table, erasure.clone()) {
                before.state.lock().replaced_by = Some(erasure.clone());
            }
            erasure
        });
        // Failed work is retried at once: the reason for the failure may be gone.
        erasure.state.lock().progress.error = None;
        for (job, retry) in &mut background.retries {
            let is_of_table = match job {
                BackgroundJob::Seal(of)
                | BackgroundJob::Forget(of)
                | BackgroundJob::Compact(of)
                | BackgroundJob::Derive(of, _) => *of == table,
                _ => false,
            };
            if is_of_table {
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
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<(Arc<Erasure>, ErasureStep)> {
    let all: Vec<(TableId, Arc<Erasure>)> =
        background.erasing.iter().map(|(id, erasure)| (*id, erasure.clone())).collect();
    for (id, erasure) in all {
        let Some(table) = root.tables().find(|table| table.def().id == id) else {
            erasure.end(Err(Error::not_found("the table was dropped, and all its files with it")));
            finish(background, id);
            continue;
        };
        // An older state of the table does not have the deletes in question.
        let may = [BackgroundJob::Seal(id), BackgroundJob::Forget(id), BackgroundJob::Compact(id)]
            .iter()
            .all(|job| background.may(*job, now));
        if table.lsn() < erasure.lsn || !may {
            continue;
        }
        let next = erasure.next(shared, root, table, background);
        if erasure.state().ended.is_some() {
            finish(background, id);
        }
        if let Some(next) = next {
            return Some((erasure, next));
        }
    }
    None
}

/// Removes an erasure that has ended, and lets the one that waits for it begin.
fn finish(background: &mut BackgroundState, table: TableId) {
    background.erasing.remove(&table);
    if let Some(next) = background.erasing_next.remove(&table) {
        background.erasing.insert(table, next);
    }
}

/// Does one piece of an erasure. The work is the same as that of the background pool for other reasons.
pub(crate) fn run(shared: &Arc<Shared>, erasure: &Erasure, next: ErasureStep) -> Result<()> {
    let (job, done) = match &next {
        ErasureStep::Forget(task) => (task.job(), CompletedStep::Forgot { segments: task.segments() }),
        ErasureStep::Seal(table) => (BackgroundJob::Seal(table.def().id), CompletedStep::Sealed),
        ErasureStep::Rewrite(table, _) => (BackgroundJob::Compact(table.def().id), CompletedStep::Rewrote),
    };
    let running = RunningJob::new(shared, job);
    let made = match next {
        ErasureStep::Forget(task) => {
            shared.counters.forgotten.add(1);
            Ok(task.edit())
        }
        ErasureStep::Seal(table) => background::seal(shared, &table, table.next_row()),
        ErasureStep::Rewrite(table, segment)
            if !table
                .segments_with_deletes()
                .any(|(of, deleted)| of.id() == segment && is_local(of, deleted)) =>
        {
            engine_evict::forget_bounds(shared, &table, segment)
        }
        ErasureStep::Rewrite(table, segment) => {
            let inputs = [segment];
            let form = background::compression_of(shared, &table, &inputs);
            background::compact(shared, &table, &inputs, form)
        }
    };
    let outcome = match made {
        Ok(edit) => background::hand_over(shared, edit, running),
        Err(error) => {
            running.end(true);
            Err(error)
        }
    };
    match &outcome {
        Ok(()) => erasure.completed(done),
        // The segment was found damaged: it is left alone, and counted.
        Err(error) if error.kind() == Kind::Damaged => {}
        Err(error) => erasure.failed(error),
    }
    outcome
}

/// Returns the time until erasures are checked again, since files wait for their last reader.
pub(crate) fn again(background: &BackgroundState) -> Option<Duration> {
    (!background.erasing.is_empty()).then_some(LOOK_EVERY)
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ends all erasures of a closing database.
pub(crate) fn close(background: &mut BackgroundState) {
    let waiting = std::mem::take(&mut background.erasing_next);
    for erasure in std::mem::take(&mut background.erasing).into_values().chain(waiting.into_values()) {
        erasure.end(Err(Error::new(Kind::Closed, "the database is closing; ask again when it is open")));
    }
}

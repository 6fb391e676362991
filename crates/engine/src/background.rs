//! Background work: finds the most urgent piece and does it.
//!
//! [`step`] does at most one piece. Each piece reads a published root, hands an edit to the commit thread and waits for its
//! answer, so that no table is worked on twice at once. In the simulator the same pieces are cut in two (make, then apply)
//! by [`Step`](crate::Step).

mod due;
mod seal_progress;
pub(crate) mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use table::segment::BlockCompression;
use table::{compaction, past, segment};
use types::{Error, Kind, Lsn, Result, RowId, SegmentId, TableId};

use crate::background::state::{BackgroundJob, BackgroundState, ObsoleteOutput};
use crate::cold;
use crate::derive;
use crate::erase::{self, CompletedStep, Erasure};
use crate::evict;
use crate::expire;
use crate::inbox::{BackgroundEdit, Request};
use crate::manifest::{self, Manifest};
use crate::past_retention;
use crate::pool::LongWorkPermit;
use crate::shared_state::Shared;

pub(crate) use seal_progress::SealProgress;

/// A piece of work that is due.
enum BackgroundTask {
    Preallocate,
    Seal { snapshot: Arc<table::Snapshot> },
    Compact { snapshot: Arc<table::Snapshot>, inputs: Vec<SegmentId> },
    Manifest,
    Remove { table: TableId, segment: SegmentId, bytes: u64 },
    Derive(derive::DeriveTask),
    Expire(expire::ExpireTask),
    Forget(past_retention::DropPastTask),
    Erase(Arc<Erasure>, erase::ErasureStep),
    Compress(cold::CompressTask),
    Evict(evict::EvictTask),
    ObsoleteOutput(ObsoleteOutput),
}

/// Result of a call of [`step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// A piece was done or failed: there may be more.
    Worked,
    /// There is nothing to do now; something is due again after this time.
    Idle { again: Option<Duration> },
}

/// Does the most urgent piece of work.
pub(crate) fn step(shared: &Arc<Shared>) -> StepOutcome {
    let Some(_active) = ActiveThread::enter(shared) else { return StepOutcome::Idle { again: None } };
    let looked = shared.env.clock.monotonic();
    let mut permit = LongWorkPermit::Unlimited;
    let Some(task) = next(shared, &mut permit) else {
        let mut background = shared.background.lock();
        // Work whose retry was due and that was not begun is no longer needed: its retry must not wake the pool for ever.
        let mut retries = std::mem::take(&mut background.retries);
        retries.retain(|job, retry| retry.due > looked || background.is_running(*job));
        background.retries = retries;
        let now = shared.env.clock.monotonic();
        let failed = background.retries.values().map(|retry| retry.due.saturating_sub(now)).min();
        let derive = derive::again(shared, &mut background, looked, now);
        let expire = expire::again(&shared.root.load(), &shared.options, &mut background, now);
        let forget = past_retention::again(shared, &shared.root.load(), &background, now);
        let cold = cold::again(shared, &shared.root.load(), &mut background, now);
        let evict = evict::again(shared, &shared.root.load(), &background, now);
        let obsolete = due::obsolete_again(&background, now);
        let erase = erase::again(&background);
        let others = matches!(permit, LongWorkPermit::Refused).then_some(LONG_WAIT);
        let due = [failed, derive, expire, forget, cold, evict, obsolete, erase, others];
        let again = due.into_iter().flatten().min();
        return StepOutcome::Idle { again };
    };
    // There may be more work, and this piece may take long. Commits wake nobody while the flag is up.
    shared.wake_background();
    // Readers take precedence over this thread, also for memory.
    let _passing = vfs::background_reads();
    if let Err(error) = run(shared, task)
        && error.kind() != Kind::Closed
    {
        shared.counters.background_errors.add(1);
    }
    StepOutcome::Worked
}

/// A pool thread's stay in a database, counted so that closing can wait for it. The last thread to leave a closed database
/// releases the lock on its directory, and not before: a file that it still renames must not meet another process.
struct ActiveThread<'a>(&'a Arc<Shared>);

impl<'a> ActiveThread<'a> {
    /// Enters the database. Returns `None` once it is closing: from then on the number of threads in it only falls.
    fn enter(shared: &'a Arc<Shared>) -> Option<Self> {
        let mut background = shared.background.lock();
        if shared.closing.load(Ordering::Acquire) {
            return None;
        }
        background.active += 1;
        Some(ActiveThread(shared))
    }
}

impl Drop for ActiveThread<'_> {
    fn drop(&mut self) {
        let mut background = self.0.background.lock();
        background.active -= 1;
        let dir_lock = if background.active == 0 { background.dir_lock.take() } else { None };
        drop(background);
        drop(dir_lock);
        self.0.background_left.notify_all();
    }
}

/// A running piece of work. A panic drops it too, so that the work can begin again after a while.
pub(crate) struct RunningJob {
    shared: Arc<Shared>,
    job: BackgroundJob,
    ended: bool,
}

impl RunningJob {
    pub(crate) fn new(shared: &Arc<Shared>, job: BackgroundJob) -> RunningJob {
        RunningJob { shared: shared.clone(), job, ended: false }
    }

    /// Ends the work and records whether it failed.
    pub(crate) fn end(mut self, failed: bool) {
        self.note(failed);
    }

    fn note(&mut self, failed: bool) {
        self.ended = true;
        let now = self.shared.env.clock.monotonic();
        let mut background = self.shared.background.lock();
        background.end(self.job);
        if failed {
            background.failed(self.job, now);
        } else {
            background.retries.remove(&self.job);
        }
        drop(background);
        self.shared.wake_background();
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if !self.ended {
            self.note(true);
        }
    }
}

/// Writes a manifest of the newest root now. Waits for one that is being written. Returns the lsn from which the log is
/// still needed.
pub(crate) fn write_manifest(shared: &Shared) -> Result<Lsn> {
    let _writing = shared.manifest_writing.lock();
    // Loaded under the lock, so that no manifest is followed by an older one.
    let root = shared.root.load_full();
    let manifest = Manifest::of(&root, shared.next_segment());
    manifest::write(&shared.env, &shared.dir, &manifest)?;
    shared.manifest_lsn.store(manifest.lsn.0, Ordering::Release);
    shared.counters.manifests.add(1);
    Ok(manifest.replay_from)
}

/// Waits, at most `patience`, for the seals that are due because the log has too many files. The manifest of a closing
/// database can then let those files go: otherwise short commands one after another would each leave a file behind.
pub(crate) fn await_short_log(shared: &Shared, patience: Duration) {
    let deadline = Instant::now() + patience;
    let due = |background: &BackgroundState| {
        let (root, log) = (shared.root.load(), shared.syncer.stats());
        let now = shared.env.clock.monotonic();
        let mut idle = root.tables().filter(|t| t.head_rows() > 0).map(|t| BackgroundJob::Seal(t.def().id));
        log.files > shared.options.log_files_max
            && log.oldest_file_lsn >= Manifest::replay_from(&root)
            && shared.write_error.load().is_none()
            && idle.any(|job| background.may(job, now) || background.is_running(job))
    };
    let mut background = shared.background.lock();
    while due(&background) && Instant::now() < deadline {
        drop(background);
        shared.wake_background();
        background = shared.background.lock();
        shared.background_left.wait_for(&mut background, Duration::from_millis(10));
    }
}

/// Fails while the disk has little room, which is kept for the log and for work that frees more. Called before data besides
/// the rows is written.
pub(crate) fn check_room(shared: &Shared) -> Result<()> {
    let wanted = 2 * shared.options.log.file_bytes;
    match shared.env.disk.free_bytes(&shared.dir) {
        Ok(free) if free < wanted => Err(Error::new(
            Kind::DiskFull,
            format!(
                "{} MiB of the disk are free; indexes and other derived data are built again from {} MiB on",
                free >> 20,
                wanted >> 20
            ),
        )),
        _ => Ok(()),
    }
}

/// Time until a database looks again for long work while too many threads are in such work.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// Returns the most urgent piece of work. Long work is looked for only if the thread may do it; `permit` tells that
/// afterwards.
fn next(shared: &Shared, permit: &mut LongWorkPermit) -> Option<BackgroundTask> {
    let now = shared.env.clock.monotonic();
    // Declared before the lock guard, so that it is dropped after it.
    let root;
    let mut background = shared.background.lock();
    // Loaded under the lock, so that all work that has ended is in it: with an older root the same rows would be sealed
    // twice.
    root = shared.root.load_full();
    if !background.retries.is_empty() {
        // Work on a table that was dropped is not retried; removing its derived output is.
        let exists = |table: &TableId| root.tables().any(|t| t.def().id == *table);
        let BackgroundState { retries, obsolete_outputs, deriving, .. } = &mut *background;
        retries.retain(|job, _| match job {
            BackgroundJob::Derive(table, name) => {
                let is_left = |l: &ObsoleteOutput| l.table == *table && l.materializer.name() == *name;
                exists(table) || deriving.contains(&(*table, *name)) || obsolete_outputs.iter().any(is_left)
            }
            BackgroundJob::Seal(table)
            | BackgroundJob::Forget(table)
            | BackgroundJob::Compact(table)
            | BackgroundJob::Expire(table)
            | BackgroundJob::Evict(table)
            | BackgroundJob::Compress(table) => exists(table),
            BackgroundJob::Manifest | BackgroundJob::Preallocate => true,
        });
    }
    if begins_file(shared, &mut background, now) {
        return Some(BackgroundTask::Preallocate);
    }
    if shared.write_error.load().is_none() {
        // Dropping old rows is quick and possible only between seals. It comes first, because the seals of a busy table
        // would leave no moment for it.
        if let Some(task) = past_retention::next(shared, &root, &mut background, now) {
            background.begin(task.job());
            return Some(BackgroundTask::Forget(task));
        }
        if let Some(snapshot) = due::sealable(shared, &root, &background, now) {
            background.begin(BackgroundJob::Seal(snapshot.def().id));
            return Some(BackgroundTask::Seal { snapshot });
        }
        if background.may(BackgroundJob::Manifest, now) && due::manifest_due(shared, &root, &background, now)
        {
            background.begin(BackgroundJob::Manifest);
            return Some(BackgroundTask::Manifest);
        }
        *permit = if shared.stepped { LongWorkPermit::Unlimited } else { LongWorkPermit::take() };
        let may_be_long = !matches!(permit, LongWorkPermit::Refused);
        if may_be_long && let Some(task) = derive::next_awaited(shared, &root, &mut background, now) {
            background.begin(task.job());
            return Some(BackgroundTask::Derive(task));
        }
        if may_be_long && let Some((erasure, next)) = erase::next(shared, &root, &mut background, now) {
            background.begin(match &next {
                erase::ErasureStep::Forget(task) => task.job(),
                erase::ErasureStep::Seal(table) => BackgroundJob::Seal(table.def().id),
                erase::ErasureStep::Rewrite(table, _) => BackgroundJob::Compact(table.def().id),
            });
            return Some(BackgroundTask::Erase(erasure, next));
        }
        if may_be_long && let Some((snapshot, inputs)) = due::compactable(shared, &root, &mut background, now)
        {
            background.begin(BackgroundJob::Compact(snapshot.def().id));
            return Some(BackgroundTask::Compact { snapshot, inputs });
        }
        if let Some(task) = expire::next(&root, &shared.options, &background, now) {
            background.begin(task.job());
            return Some(BackgroundTask::Expire(task));
        }
        if may_be_long && let Some(task) = derive::next(shared, &root, &mut background, now) {
            background.begin(task.job());
            return Some(BackgroundTask::Derive(task));
        }
        if may_be_long && let Some(task) = evict::next(shared, &root, &background, now) {
            background.begin(task.job());
            return Some(BackgroundTask::Evict(task));
        }
        if may_be_long && let Some(task) = cold::next(shared, &root, &background, now) {
            background.begin(task.job());
            return Some(BackgroundTask::Compress(task));
        }
    }
    // A remote store may be slow, and a database that takes no writes needs no thread for seals.
    if !matches!(permit, LongWorkPermit::Refused)
        && let Some(output) = derive::next_obsolete_output(&root, &mut background, now)
    {
        return Some(BackgroundTask::ObsoleteOutput(output));
    }
    removable(shared, &mut background)
}

/// Takes a replaced segment that no reader holds and no manifest names (G1).
fn removable(shared: &Shared, background: &mut BackgroundState) -> Option<BackgroundTask> {
    let unused = |o: &state::ObsoleteSegment| {
        Arc::strong_count(&o.segment) == 1 && !o.segment.is_shared() && shared.manifest_covers(o.since)
    };
    let position = background.obsolete.iter().position(unused)?;
    let obsolete = background.obsolete.swap_remove(position);
    let (bytes, segment) = (obsolete.segment.meta().bytes, obsolete.segment.id());
    shared.counters.held_bytes.take(bytes);
    background.removing.push((obsolete.table, segment));
    Some(BackgroundTask::Remove { table: obsolete.table, segment, bytes })
}

fn run(shared: &Arc<Shared>, task: BackgroundTask) -> Result<()> {
    match task {
        BackgroundTask::Preallocate => prepare_file(shared),
        BackgroundTask::Seal { snapshot } => {
            let running = RunningJob::new(shared, BackgroundJob::Seal(snapshot.def().id));
            match seal(shared, &snapshot, snapshot.next_row()) {
                Ok(edit) => hand_over(shared, edit, running),
                Err(error) => {
                    running.end(true);
                    Err(error)
                }
            }
        }
        BackgroundTask::Compact { snapshot, inputs } => {
            let table = snapshot.def().id;
            let running = RunningJob::new(shared, BackgroundJob::Compact(table));
            // Removed here, so that after a panic or damage the merge is not tried again before something changes in the
            // table.
            shared.background.lock().compactable.remove(&table);
            let form = compression_of(shared, &snapshot, &inputs);
            match compact(shared, &snapshot, &inputs, form) {
                Ok(edit) => {
                    shared.background.lock().compactable.insert(table);
                    hand_over(shared, edit, running)
                }
                Err(error) => {
                    let is_damaged = error.kind() == Kind::Damaged;
                    if !is_damaged {
                        shared.background.lock().compactable.insert(table);
                    }
                    running.end(!is_damaged);
                    Err(error)
                }
            }
        }
        BackgroundTask::Manifest => {
            let running = RunningJob::new(shared, BackgroundJob::Manifest);
            let log_bytes = shared.syncer.stats().bytes_written;
            match write_manifest(shared) {
                Ok(below) => {
                    let mut background = shared.background.lock();
                    background.manifest_log_bytes = log_bytes;
                    // Segments that were replaced while it was written wait for another manifest.
                    let covered = background.obsolete.iter().all(|o| shared.manifest_covers(o.since));
                    background.obsolete_since = (!covered).then(|| shared.env.clock.monotonic());
                    drop(background);
                    shared.trimmed_below.fetch_max(below.0, Ordering::AcqRel);
                    // Done here and not by the commit thread: a disk may take a tenth of a second to free the blocks of a
                    // file.
                    match shared.preallocator.trim(below) {
                        Ok(()) => hand_over(shared, BackgroundEdit::Trimmed, running),
                        Err(error) => {
                            running.end(true);
                            Err(error)
                        }
                    }
                }
                Err(error) => {
                    running.end(true);
                    Err(error)
                }
            }
        }
        BackgroundTask::Derive(task) => {
            let running = RunningJob::new(shared, task.job());
            derive::run(shared, task, running)
        }
        BackgroundTask::Expire(task) => {
            let running = RunningJob::new(shared, task.job());
            expire::run(shared, task, running)
        }
        BackgroundTask::Forget(task) => {
            let running = RunningJob::new(shared, task.job());
            shared.counters.forgotten.add(1);
            hand_over(shared, task.edit(), running)
        }
        BackgroundTask::Erase(erasure, next) => erase::run(shared, &erasure, next),
        BackgroundTask::Evict(task) => {
            let running = RunningJob::new(shared, task.job());
            evict::run(shared, task, running)
        }
        BackgroundTask::Compress(task) => {
            let running = RunningJob::new(shared, task.job());
            cold::run(shared, task, running)
        }
        BackgroundTask::ObsoleteOutput(output) => {
            let running = RunningJob::new(shared, output.job());
            let removed = derive::remove(shared, &output);
            let pair = (output.table, output.materializer.name());
            let mut background = shared.background.lock();
            if let Err(error) = &removed {
                // Logged once, although it is retried again and again.
                if background.removal_errors.insert(pair, error.clone()).is_none() {
                    let (table, of) = (output.table, pair.1);
                    tracing::warn!(%table, materializer = of, %error, "derived data of a table that is no longer followed could not be removed");
                }
                background.obsolete_outputs.push(output);
            } else {
                background.removal_errors.remove(&pair);
            }
            drop(background);
            running.end(removed.is_err());
            removed
        }
        BackgroundTask::Remove { table, segment, bytes } => {
            let dir = segment::table_dir(&shared.dir, table);
            let removed = segment::remove_files(&shared.env, &dir, segment);
            let mut background = shared.background.lock();
            background.removing.retain(|removing| *removing != (table, segment));
            if let Some(erasure) = background.erasing.get(&table) {
                match &removed {
                    Ok(()) => erasure.completed(CompletedStep::Removed { bytes }),
                    // This is not retried: a file that nothing names is removed when the database is opened.
                    Err(error) => erasure.end(Err(error.clone())),
                }
            }
            drop(background);
            removed?;
            shared.counters.removed_segments.add(1);
            Ok(())
        }
    }
}

/// Writes the head's rows below `below` into a segment.
pub(crate) fn seal(shared: &Arc<Shared>, snapshot: &table::Snapshot, below: RowId) -> Result<BackgroundEdit> {
    let def = snapshot.def();
    let dir = make_table_dir(shared, def.id)?;
    let id = shared.take_segment_id();
    let kept = retain_deleted_rows(shared, snapshot, snapshot.sealed_next(), RowId(below.0 - 1))?;
    let mut sealing = SealProgress::new(shared, snapshot.head_bytes());
    let mut tick = tick(shared);
    let sealed = table::seal(snapshot, &shared.env, &dir, id, below, &mut |bytes| {
        sealing.add(bytes);
        tick(bytes)
    });
    let meta = sealed.inspect_err(|_| discard(shared, &dir, kept.as_ref()))?;
    let segment = table::Segment::open(&shared.env, &dir, def, meta);
    // The next attempt takes another id, so these files would stay until the database is opened again.
    segment.check().inspect_err(|_| {
        drop(segment::remove_files(&shared.env, &dir, id));
        discard(shared, &dir, kept.as_ref());
    })?;
    shared.counters.seals.add(1);
    shared.background.lock().compactable.insert(def.id);
    Ok(BackgroundEdit::Seal { table: def.id, segment, kept, sealing })
}

/// Writes recently deleted rows that a seal or a compaction would drop into a segment of the past. Returns `None` if the
/// past of the table is not kept.
fn retain_deleted_rows(
    shared: &Arc<Shared>,
    snapshot: &table::Snapshot,
    first: RowId,
    last: RowId,
) -> Result<Option<table::RetainedRows>> {
    let def = snapshot.def();
    if !past_retention::keeps_past(def) {
        return Ok(None);
    }
    // Rows that can no longer be read need not be kept, and the past must not seem to reach back to them.
    let after = past_retention::wanted_after(shared, &shared.root.load(), def).max(snapshot.past_floor());
    let (dir, id) = (segment::table_dir(&shared.dir, def.id), shared.take_segment_id());
    let meta =
        past::write_past_segment(snapshot, &shared.env, &dir, id, first, last, after, &mut tick(shared))?;
    let segment = meta.map(|meta| table::Segment::open(&shared.env, &dir, def, meta));
    if let Some(segment) = &segment {
        segment.check().inspect_err(|_| drop(segment::remove_files(&shared.env, &dir, id)))?;
    }
    Ok(Some(table::RetainedRows { after, floor: None, last_end: snapshot.lsn(), segment }))
}

/// Removes retained rows that were written for work that failed: the next attempt writes them under other ids.
fn discard(shared: &Shared, dir: &std::path::Path, kept: Option<&table::RetainedRows>) {
    if let Some(segment) = kept.and_then(|kept| kept.segment.as_ref()) {
        // The first failure matters more, and files that nothing names are removed when the database is opened.
        let _ = segment::remove_files(&shared.env, dir, segment.id());
    }
}

/// Returns the form in which merged segments are written: compressed if all of the inputs were, so that the output need not
/// be compressed again.
pub(crate) fn compression_of(
    shared: &Shared,
    snapshot: &table::Snapshot,
    inputs: &[SegmentId],
) -> BlockCompression {
    match shared.options.zstd_after {
        Some(_) => compaction::form_of(snapshot, inputs),
        None => BlockCompression::Plain,
    }
}

/// Merges neighbouring segments into one.
pub(crate) fn compact(
    shared: &Arc<Shared>,
    snapshot: &table::Snapshot,
    inputs: &[SegmentId],
    form: BlockCompression,
) -> Result<BackgroundEdit> {
    let def = snapshot.def();
    let dir = make_table_dir(shared, def.id)?;
    let id = shared.take_segment_id();
    let taken = || snapshot.segments().filter(|s| inputs.contains(&s.id())).map(|s| s.meta());
    // Deleted rows that only the lake had are not retained: the past then reaches less far back.
    let is_away = snapshot.segments().any(|s| inputs.contains(&s.id()) && s.is_evicted());
    let kept = match (taken().next(), taken().next_back()) {
        _ if is_away => None,
        (Some(first), Some(last)) => retain_deleted_rows(shared, snapshot, first.first_row, last.last_row)?,
        _ => None,
    };
    let merged = compaction::merge(snapshot, inputs, &shared.env, &dir, id, form, &mut tick(shared));
    let meta = merged.inspect_err(|_| discard(shared, &dir, kept.as_ref()))?;
    let output = meta.map(|meta| table::Segment::open(&shared.env, &dir, def, meta));
    if let Some(segment) = &output {
        segment.check().inspect_err(|_| {
            drop(segment::remove_files(&shared.env, &dir, id));
            discard(shared, &dir, kept.as_ref());
        })?;
    }
    shared.counters.compactions.add(1);
    Ok(BackgroundEdit::Compact { table: def.id, inputs: inputs.to_vec(), output, kept })
}

/// Returns the callback of long work. It counts background bytes, prepares a log file when one is wanted, and ends the work
/// when the database closes.
pub(crate) fn tick(shared: &Arc<Shared>) -> impl FnMut(u64) -> Result<()> + use<> {
    let shared = shared.clone();
    move |bytes| {
        shared.counters.background_bytes.add(bytes);
        if shared.closing.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, "the database is closing"));
        }
        // Long work makes way for this: a log that finds no file ready creates one itself, and all writers wait for that.
        if shared.wants_file.load(Ordering::Relaxed) {
            let begins = begins_file(&shared, &mut shared.background.lock(), shared.env.clock.monotonic());
            if begins {
                // A failure is reported again by the writer that finds no file.
                let _ = prepare_file(&shared);
            }
        }
        Ok(())
    }
}

/// Begins to prepare a log file, if one is wanted. Returns true if it has begun.
fn begins_file(shared: &Shared, background: &mut BackgroundState, now: Duration) -> bool {
    if !shared.wants_file.load(Ordering::Relaxed) || !background.may(BackgroundJob::Preallocate, now) {
        return false;
    }
    shared.wants_file.store(false, Ordering::Relaxed);
    background.begin(BackgroundJob::Preallocate);
    true
}

fn prepare_file(shared: &Arc<Shared>) -> Result<()> {
    let running = RunningJob::new(shared, BackgroundJob::Preallocate);
    let result = shared.preallocator.prepare();
    // A failure is reported again by the writer that finds no file; each rotation asks again.
    running.end(false);
    result
}

/// Returns the directory of a table's segments, made durable by name.
pub(crate) fn make_table_dir(shared: &Shared, table: TableId) -> Result<std::path::PathBuf> {
    let dir = segment::table_dir(&shared.dir, table);
    let disk = &shared.env.disk;
    let make = || -> std::io::Result<()> {
        if disk.exists(&dir)? {
            return Ok(());
        }
        disk.create_dir_all(&dir)?;
        // After a failed sync the name may or may not be durable: it must not pass for durable the next time.
        disk.sync_dir(&shared.dir.join("tables")).inspect_err(|_| drop(disk.remove_dir(&dir)))
    };
    make().map_err(|e| Error::io(format!("making {}", dir.display()), e))?;
    Ok(dir)
}

/// Gives an edit to the commit thread and waits until it is published; only then does the work end. A simulator steps the
/// commit itself, so there this only queues the edit.
pub(crate) fn hand_over(shared: &Arc<Shared>, edit: BackgroundEdit, running: RunningJob) -> Result<()> {
    if let Some(running) = publish(shared, edit, running)? {
        running.end(false);
    }
    Ok(())
}

/// Gives an edit to the commit thread and waits until it is published. The work goes on afterwards, for a follow-up that
/// must not overlap with its next run. Returns `None` in a simulator, where the work ends with the commit.
pub(crate) fn publish(
    shared: &Arc<Shared>,
    edit: BackgroundEdit,
    running: RunningJob,
) -> Result<Option<RunningJob>> {
    let (sender, receiver) = mpsc::channel();
    let stepped = shared.stepped;
    let done = Box::new(move |result: Result<_>| {
        let told = match result {
            Ok(_) if !stepped => Ok(Some(running)),
            result => {
                running.end(result.is_err());
                result.map(|_| None)
            }
        };
        // The receiver is gone in a simulator.
        let _ = sender.send(told);
    });
    if let Err((request, error)) = shared.inbox.push(Request::Edit { edit, done }) {
        request.refuse(error.clone());
        return Err(error);
    }
    if stepped {
        return Ok(None);
    }
    receiver.recv().unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
}

#[cfg(test)]
#[path = "background/tests.rs"]
mod tests;

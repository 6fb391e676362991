//! Runs materializers: picks the table that is due, takes one step in it, and removes output that is no longer needed.
//!
//! A materializer decides itself when waiting for more rows pays. While rows arrive, the pool checks all materializers every
//! [`LOOK_EVERY`], not at each commit. When no more rows arrive, it checks once and then sleeps.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress};
use types::{Error, IndexDef, Kind, Lsn, Result, RowId, TableId};

use crate::background::state::{BackgroundJob, BackgroundState, CatchUpTarget, ObsoleteOutput};
use crate::background::{self, RunningJob};
use crate::database_root::DatabaseRoot;
use crate::inbox::BackgroundEdit;
use crate::shared_state::Shared;

/// Longest time from a commit to the next check of the materializers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One step that is due.
pub(crate) struct DeriveTask {
    materializer: Arc<dyn Materializer>,
    snapshot: Arc<table::Snapshot>,
    from: StepStart,
    urgent: bool,
}

/// The starting point of a step.
enum StepStart {
    Nothing,
    /// A checkpoint of an earlier process, whose output is not open yet.
    Checkpoint(Checkpoint),
    Position(Arc<Position>),
}

impl StepStart {
    fn position(&self) -> Option<&Position> {
        match self {
            StepStart::Position(position) => Some(position),
            StepStart::Nothing | StepStart::Checkpoint(_) => None,
        }
    }
}

impl DeriveTask {
    pub fn job(&self) -> BackgroundJob {
        BackgroundJob::Derive(self.snapshot.def().id, self.materializer.name())
    }
}

/// Returns the step for the table and materializer that are furthest behind, of those that may run now.
pub(crate) fn next(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<DeriveTask> {
    background.derive_looked = root.lsn();
    furthest_behind(shared, root, background, now, &|_| true)
}

/// Returns the step that is furthest behind, of tables whose writers wait for it: they have to read all rows while the index
/// that finds values is missing, after a restart or during a rebuild.
pub(crate) fn next_awaited(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<DeriveTask> {
    let is_awaited = |table: &table::Snapshot| {
        table.def().indexes.iter().any(IndexDef::checks_writes) && root.lookup(table.def().id).is_none()
    };
    // Usually there is none, which costs one look at each table.
    root.tables().any(|table| is_awaited(table)).then_some(())?;
    furthest_behind(shared, root, background, now, &is_awaited)
}

fn furthest_behind(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
    is_meant: &dyn Fn(&table::Snapshot) -> bool,
) -> Option<DeriveTask> {
    let materializers = shared.materializers.load();
    let mut best: Option<(Option<Lsn>, DeriveTask)> = None;
    for materializer in materializers.iter() {
        let name = materializer.name();
        if is_busy_remote(materializer, background) {
            continue;
        }
        for snapshot in root.tables().filter(|table| materializer.follows(table.def()) && is_meant(table)) {
            let pair = (snapshot.def().id, name);
            if !background.may(BackgroundJob::Derive(pair.0, name), now) {
                continue;
            }
            let urgent = background.urgent.contains_key(&pair);
            if !urgent && background.pauses.get(&pair).is_some_and(|until| *until > now) {
                continue;
            }
            let position = root.derived(name, pair.0);
            let rebuild = background.rebuild.contains(&pair);
            let stands = position.map(|position| position.checkpoint.lsn);
            let stands = stands.max(background.unchanged.get(&pair).copied().filter(|_| position.is_some()));
            let is_done =
                stands >= Some(snapshot.lsn()) && position.is_none_or(|p| has_rows(p, snapshot.next_row()));
            if is_done && !rebuild && !materializer.is_step_requested(snapshot.def()) {
                background.urgent.remove(&pair);
                continue;
            }
            if best.as_ref().is_none_or(|(least, _)| stands < *least) {
                let checkpoint = || root.meta.checkpoints.get(&(name.to_owned(), pair.0)).cloned();
                let from = match (position, rebuild) {
                    (_, true) => StepStart::Nothing,
                    (Some(position), false) => StepStart::Position(position.clone()),
                    (None, false) => checkpoint().map_or(StepStart::Nothing, StepStart::Checkpoint),
                };
                let (materializer, snapshot) = (materializer.clone(), snapshot.clone());
                best = Some((stands, DeriveTask { materializer, snapshot, from, urgent }));
            }
        }
    }
    let (_, task) = best?;
    background.pauses.remove(&(task.snapshot.def().id, task.materializer.name()));
    Some(task)
}

/// Returns true if a remote materializer is already at work. Its steps run one at a time, so that a slow remote system holds
/// only one of the threads that seal and merge.
fn is_busy_remote(materializer: &Arc<dyn Materializer>, background: &BackgroundState) -> bool {
    materializer.is_remote() && background.is_deriving(materializer.name())
}

/// Returns true if a position has all rows below `next_row`. A step takes in a bounded number of rows, so a position may be
/// at its table's lsn and still lack some.
pub(crate) fn has_rows(position: &Position, next_row: RowId) -> bool {
    next_row <= position.checkpoint.row.next()
}

/// Returns the time until the materializers must be checked again if nothing wakes the pool before. Called when there is
/// nothing to do now. The last check began at `looked`.
pub(crate) fn again(
    shared: &Shared,
    background: &mut BackgroundState,
    looked: Duration,
    now: Duration,
) -> Option<Duration> {
    if shared.materializers.load().is_empty() {
        return None;
    }
    // A pause that had ended by then held nothing back: its table was dropped, or the other thing that it waits for wakes
    // the pool.
    background.pauses.retain(|_, until| *until > looked);
    let pause = background.pauses.values().map(|until| until.saturating_sub(now)).min();
    // Commits do not wake the pool while it is about to check.
    if shared.materializers_looked_at.swap(false, Ordering::AcqRel)
        || shared.root.load().lsn() != background.derive_looked
    {
        shared.materializers_looked_at.store(true, Ordering::Release);
        return Some(pause.map_or(LOOK_EVERY, |pause| pause.min(LOOK_EVERY)));
    }
    pause
}

/// Opens a materializer's output for tables whose evicted rows only it has, so that they can be read from the start.
/// Failures are retried in the background.
pub(crate) fn open_evicted(shared: &Arc<Shared>, materializer: &Arc<dyn Materializer>) {
    let root = shared.root.load_full();
    let name = materializer.name();
    for snapshot in root.tables().filter(|table| table.has_evicted() && materializer.follows(table.def())) {
        let Some(checkpoint) = root.meta.checkpoints.get(&(name.to_owned(), snapshot.def().id)) else {
            continue;
        };
        let task = DeriveTask {
            materializer: materializer.clone(),
            snapshot: snapshot.clone(),
            from: StepStart::Checkpoint(checkpoint.clone()),
            urgent: false,
        };
        let job = task.job();
        let mut background = shared.background.lock();
        if !background.may(job, shared.env.clock.monotonic()) {
            continue;
        }
        background.begin(job);
        drop(background);
        // `run` has logged the failure.
        let _ = run(shared, task, RunningJob::new(shared, job));
    }
}

/// Returns the damage that a step met, or `None` if it failed for another reason. A missing file counts as damage.
fn damage(error: &Error) -> Option<Error> {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match error.kind() {
        Kind::Damaged => Some(error.clone()),
        Kind::Io if source.is_some_and(|source| source.kind() == std::io::ErrorKind::NotFound) => {
            Some(Error::damaged(error.to_string()))
        }
        _ => None,
    }
}

pub(crate) fn run(shared: &Arc<Shared>, task: DeriveTask, running: RunningJob) -> Result<()> {
    // A panic in one materializer (a bug of a library or of ours) is reported as its failure and retried later like one.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(shared, &task)))
        .unwrap_or_else(|_| Err(Error::internal("a materializer met a bug of Polynya and stopped")));
    let pair = (task.snapshot.def().id, task.materializer.name());
    match outcome {
        Ok(Progress::Advanced(mut position)) => {
            position.lookup = task.materializer.lookup(&position.published);
            if task.snapshot.has_evicted() {
                position.landed = task.materializer.landed(&position.published, &task.snapshot);
            }
            let position = Arc::new(position);
            let mut background = shared.background.lock();
            // Callers that asked for these rows wait for nothing more once the position is published.
            let asked = background.urgent.get(&pair).copied().filter(|asked| asked.is_met_by(&position));
            if asked.is_some() {
                background.urgent.remove(&pair);
            }
            drop(background);
            let edit = BackgroundEdit::Derive { table: pair.0, name: pair.1, position: position.clone() };
            let running = background::publish(shared, edit, running).inspect_err(|_| {
                if let Some(asked) = asked {
                    shared.background.lock().urgent.entry(pair).or_insert(asked);
                }
            })?;
            // The position is published now: the lag that slows writers is measured against the position that readers have.
            shared.note_step(&*task.materializer, &task.snapshot, task.from.position(), Some(&position));
            let mut background = shared.background.lock();
            background.rebuild.remove(&pair);
            background.unchanged.remove(&pair);
            drop(background);
            // A simulator has not published the position yet, so no file is superfluous.
            let Some(running) = running else { return Ok(()) };
            // Files are removed before the next step may begin: this position does not name the files of that step.
            let place = place(shared, &*task.materializer, pair.0);
            let cleaned = place.and_then(|place| task.materializer.clean(&place, &position));
            running.end(false);
            cleaned
        }
        Ok(progress) => {
            let stands = task.from.position();
            shared.note_step(&*task.materializer, &task.snapshot, stands, stands);
            let mut background = shared.background.lock();
            let has_hurried = match progress {
                Progress::Later(pause) => {
                    let until = shared.env.clock.monotonic() + pause.max(Duration::from_millis(1));
                    background.pauses.insert(pair, until);
                    task.urgent
                }
                _ => {
                    background.unchanged.insert(pair, task.snapshot.lsn());
                    true
                }
            };
            // The materializer has read all of the requested rows: another step at once would give the same result.
            let looked_at = CatchUpTarget::of(&task.snapshot);
            if has_hurried && background.urgent.get(&pair).is_some_and(|asked| *asked <= looked_at) {
                background.urgent.remove(&pair);
            }
            drop(background);
            running.end(false);
            Ok(())
        }
        Err(error) => {
            if error.kind() != Kind::Closed {
                shared.note_failure(task.snapshot.def(), pair.1, &error);
            }
            if let Some(damage) = damage(&error).filter(|_| task.materializer.stores_evicted_rows()) {
                task.snapshot.segments().for_each(|segment| segment.note_lake_error(&damage));
            }
            // A rebuild from rows that cannot be read would fail at the same place.
            if error.kind() == Kind::Damaged && !task.snapshot.segments().any(|segment| segment.is_damaged())
            {
                shared.background.lock().rebuild.insert(pair);
            }
            running.end(error.kind() != Kind::Closed);
            Err(error)
        }
    }
}

fn step(shared: &Arc<Shared>, task: &DeriveTask) -> Result<Progress> {
    let place = place(shared, &*task.materializer, task.snapshot.def().id)?;
    let from = match &task.from {
        StepStart::Nothing => None,
        StepStart::Position(position) => Some(position),
        StepStart::Checkpoint(checkpoint) => {
            match task.materializer.open(&place, &task.snapshot, checkpoint) {
                Ok(published) => {
                    return Ok(Progress::Advanced(Position::new(checkpoint.clone(), published)));
                }
                Err(error) if error.kind() == Kind::Closed => return Err(error),
                // Output that cannot be opened is rebuilt.
                Err(_) => None,
            }
        }
    };
    background::check_room(shared)?;
    let mut tick = background::tick(shared);
    let mut budget = Budget { rows: shared.options.step_rows, urgent: task.urgent, tick: &mut tick };
    task.materializer.step(&place, &task.snapshot, from, &mut budget)
}

/// Returns the folder `derived/<materializer>/<table id>`, made durable by name.
fn place(shared: &Shared, materializer: &dyn Materializer, table: TableId) -> Result<MaterializerDir> {
    let dir = dir_of(&shared.dir, materializer.name(), table);
    if !shared.env.disk.exists(&dir).unwrap_or(false) {
        crate::open::make_dir(&shared.env, &dir)
            .map_err(|e| Error::io(format!("making {}", dir.display()), e))?;
    }
    Ok(MaterializerDir { env: shared.env.clone(), dir })
}

fn dir_of(dir: &Path, materializer: &str, table: TableId) -> PathBuf {
    dir.join("derived").join(materializer).join(table.to_string())
}

/// Takes output that nobody reads any more. Until it is removed, nothing is derived from its table, which may be followed
/// again by then.
pub(crate) fn next_obsolete_output(
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<ObsoleteOutput> {
    let gone = |l: &ObsoleteOutput| l.since <= root.lsn();
    // A table that is followed again needs no removal: its next step cleans up after those before it.
    let followed =
        |l: &ObsoleteOutput| root.tables().any(|t| t.def().id == l.table && l.materializer.follows(t.def()));
    let BackgroundState { obsolete_outputs, removal_errors, .. } = &mut *background;
    obsolete_outputs.retain(|l| {
        let again = gone(l) && followed(l);
        if again {
            removal_errors.remove(&(l.table, l.materializer.name()));
        }
        !again
    });
    let unused = |l: &ObsoleteOutput| {
        l.position.as_ref().is_none_or(|position| Arc::strong_count(position) == 1)
            && !l.materializer.is_held(l.table)
    };
    let may = |l: &ObsoleteOutput| {
        background.may(BackgroundJob::Derive(l.table, l.materializer.name()), now)
            && !is_busy_remote(&l.materializer, background)
    };
    let position = background.obsolete_outputs.iter().position(|l| gone(l) && unused(l) && may(l))?;
    let output = background.obsolete_outputs.swap_remove(position);
    background.begin(output.job());
    let pair = (output.table, output.materializer.name());
    background.pauses.remove(&pair);
    background.urgent.remove(&pair);
    background.unchanged.remove(&pair);
    background.rebuild.remove(&pair);
    Some(output)
}

impl ObsoleteOutput {
    pub fn job(&self) -> BackgroundJob {
        BackgroundJob::Derive(self.table, self.materializer.name())
    }
}

pub(crate) fn remove(shared: &Shared, output: &ObsoleteOutput) -> Result<()> {
    let dir = dir_of(&shared.dir, output.materializer.name(), output.table);
    let failed = |e| Error::io(format!("looking for {}", dir.display()), e);
    if !shared.env.disk.exists(&dir).map_err(failed)? {
        return Ok(());
    }
    let place = MaterializerDir { env: shared.env.clone(), dir: dir.clone() };
    // A table is in the root as long as anything of it counts, and table ids are never reused.
    if shared.root.load().tables().any(|table| table.def().id == output.table) {
        output.materializer.unfollowed(&place)?;
    } else {
        output.materializer.dropped(&place)?;
    }
    // The folder stays if files of others are in it.
    let _ = shared.env.disk.remove_dir(&dir);
    Ok(())
}

/// Returns the output for tables that an earlier process dropped without removing the output.
pub(crate) fn orphans(shared: &Shared, materializer: &Arc<dyn Materializer>) -> Result<Vec<ObsoleteOutput>> {
    let dir = shared.dir.join("derived").join(materializer.name());
    let disk = &shared.env.disk;
    let failed = |e| Error::io(format!("listing {}", dir.display()), e);
    if !disk.exists(&dir).map_err(failed)? {
        return Ok(Vec::new());
    }
    let root = shared.root.load();
    let follows = |id: TableId| root.tables().any(|t| t.def().id == id && materializer.follows(t.def()));
    let ids = disk.list(&dir).map_err(failed)?.into_iter().filter_map(|entry| {
        let id = TableId(crate::open::canonical(&entry.name)?);
        (entry.is_dir && !follows(id)).then_some(id)
    });
    Ok(ids
        .map(|table| ObsoleteOutput {
            materializer: materializer.clone(),
            table,
            position: None,
            since: Lsn(0),
        })
        .collect())
}

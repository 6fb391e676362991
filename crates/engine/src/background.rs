//! Background work: what is due, and one piece of it.
//!
//! [`step`] does at most one piece: the most urgent. Everything reads a published root and hands an edit to the commit
//! thread, waiting for its answer so that no table is worked on twice at once. In the simulator the same pieces are
//! cut in two (make, then apply) by [`Step`](crate::Step).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use table::compaction::{self, Policy};
use table::segment;
use types::{Error, Kind, Lsn, Result, RowId, SegmentId, TableId};

use crate::inbox::{BackgroundEdit, Request};
use crate::manifest::{self, Manifest};
use crate::root::Root;
use crate::shared::{Background, Shared};

/// A piece of work that is due.
enum Task {
    Preallocate,
    Seal { snapshot: Arc<table::Snapshot> },
    Compact { snapshot: Arc<table::Snapshot>, inputs: Vec<SegmentId> },
    Manifest { root: Arc<Root> },
    Remove { table: TableId, segment: SegmentId },
}

/// Does the most urgent piece of work. False if there is none.
pub(crate) fn step(shared: &Arc<Shared>) -> bool {
    shared.background.lock().active += 1;
    let task = if shared.closing.load(Ordering::Acquire) { None } else { next(shared) };
    let worked = task.is_some();
    if let Some(task) = task
        && let Err(error) = run(shared, task)
        && error.kind() != Kind::Closed
    {
        shared.counters.background_errors.add(1);
    }
    let mut background = shared.background.lock();
    background.active -= 1;
    drop(background);
    shared.background_left.notify_all();
    worked
}

/// Writes a manifest of the newest root now; for closing.
pub(crate) fn write_manifest(shared: &Shared) -> Result<Lsn> {
    let root = shared.root.load_full();
    let manifest = Manifest::of(&root, shared.next_segment());
    manifest::write(&shared.env, &shared.dir, &manifest)?;
    shared.manifest_lsn.store(manifest.lsn.0, Ordering::Release);
    shared.counters.manifests.add(1);
    Ok(manifest.replay_from)
}

fn next(shared: &Shared) -> Option<Task> {
    let root = shared.root.load_full();
    let mut background = shared.background.lock();
    if background.preallocate && !background.preallocating {
        background.preallocate = false;
        background.preallocating = true;
        return Some(Task::Preallocate);
    }
    if shared.write_error.load().is_none() {
        if let Some(snapshot) = sealable(shared, &root, &background) {
            background.busy.insert(snapshot.def().id);
            return Some(Task::Seal { snapshot });
        }
        if manifest_due(shared, &root, &background) {
            background.manifest_running = true;
            return Some(Task::Manifest { root });
        }
        if let Some((snapshot, inputs)) = compactable(&root, &mut background) {
            background.busy.insert(snapshot.def().id);
            return Some(Task::Compact { snapshot, inputs });
        }
    }
    removable(shared, &mut background)
}

/// The table whose head should go first: the largest one that is full, the largest one at all while the debt is high,
/// or the one whose rows hold back a log that has grown too long.
fn sealable(shared: &Shared, root: &Root, background: &Background) -> Option<Arc<table::Snapshot>> {
    let options = &shared.options;
    let idle = || root.tables().filter(|t| t.head_rows() > 0 && !background.busy.contains(&t.def().id));
    let largest = idle().max_by_key(|t| t.head_bytes())?;
    let full = largest.head_bytes() >= options.seal_bytes;
    let indebted = shared.counters.head_bytes.get() >= options.debt_soft_bytes / 2;
    if full || indebted {
        return Some(largest.clone());
    }
    if let Some(long) = idle().find(|t| t.head_rows() >= options.seal_rows) {
        return Some(long.clone());
    }
    if shared.syncer.stats().files <= options.log_files_max {
        return None;
    }
    idle().min_by_key(|t| t.head_first_lsn()).cloned()
}

/// A manifest pays off once it lets go of a log file.
fn manifest_due(shared: &Shared, root: &Root, background: &Background) -> bool {
    if background.manifest_running || shared.manifest_covers(root.lsn()) {
        return false;
    }
    let stats = shared.syncer.stats();
    let written = stats.bytes_written.saturating_sub(background.manifest_log_bytes);
    written >= shared.options.log.file_bytes || !background.obsolete.is_empty() && written >= 1 << 20
}

fn compactable(root: &Root, background: &mut Background) -> Option<(Arc<table::Snapshot>, Vec<SegmentId>)> {
    let candidates: Vec<TableId> = background.compactable.difference(&background.busy).copied().collect();
    if candidates.is_empty() {
        return None;
    }
    for snapshot in root.tables().filter(|t| candidates.contains(&t.def().id)) {
        if let Some(inputs) = compaction::plan(snapshot, &Policy::default()) {
            return Some((snapshot.clone(), inputs));
        }
        background.compactable.remove(&snapshot.def().id);
    }
    None
}

/// A replaced segment that nobody reads any more and that no manifest names (G1).
fn removable(shared: &Shared, background: &mut Background) -> Option<Task> {
    let unused =
        |o: &crate::shared::Obsolete| Arc::strong_count(&o.segment) == 1 && shared.manifest_covers(o.since);
    let position = background.obsolete.iter().position(unused)?;
    let obsolete = background.obsolete.swap_remove(position);
    Some(Task::Remove { table: obsolete.table, segment: obsolete.segment.id() })
}

fn run(shared: &Arc<Shared>, task: Task) -> Result<()> {
    match task {
        Task::Preallocate => {
            let result = shared.preallocator.prepare();
            shared.background.lock().preallocating = false;
            result
        }
        Task::Seal { snapshot } => {
            let table = snapshot.def().id;
            match seal(shared, &snapshot, snapshot.next_row()) {
                Ok(edit) => hand_over(shared, edit, Some(table)),
                Err(error) => Err(finish(shared, table, error)),
            }
        }
        Task::Compact { snapshot, inputs } => {
            let table = snapshot.def().id;
            match compact(shared, &snapshot, &inputs) {
                Ok(edit) => hand_over(shared, edit, Some(table)),
                Err(error) => {
                    // Not again before something changes there: the same damage would be met in a circle.
                    shared.background.lock().compactable.remove(&table);
                    Err(finish(shared, table, error))
                }
            }
        }
        Task::Manifest { root } => {
            drop(root);
            let log_bytes = shared.syncer.stats().bytes_written;
            let result = write_manifest(shared);
            let mut background = shared.background.lock();
            background.manifest_running = false;
            background.manifest_log_bytes = log_bytes;
            drop(background);
            hand_over(shared, BackgroundEdit::Trim { below: result? }, None)
        }
        Task::Remove { table, segment } => {
            let dir = segment::table_dir(&shared.dir, table);
            segment::remove_files(&shared.env, &dir, segment)?;
            shared.counters.removed_segments.add(1);
            Ok(())
        }
    }
}

/// The work on a table came to nothing.
fn finish(shared: &Shared, table: TableId, error: Error) -> Error {
    shared.background.lock().busy.remove(&table);
    error
}

/// Writes the head's rows below `below` into a segment.
fn seal(shared: &Arc<Shared>, snapshot: &table::Snapshot, below: RowId) -> Result<BackgroundEdit> {
    let def = snapshot.def();
    let dir = make_table_dir(shared, def.id)?;
    let id = shared.take_segment_id();
    let meta = table::seal(snapshot, &shared.env, &dir, id, below, &mut tick(shared))?;
    let segment = table::Segment::open(&shared.env, &dir, def, meta);
    segment.check()?;
    shared.counters.seals.add(1);
    shared.background.lock().compactable.insert(def.id);
    Ok(BackgroundEdit::Seal { table: def.id, segment })
}

/// Merges neighbouring segments into one.
fn compact(shared: &Arc<Shared>, snapshot: &table::Snapshot, inputs: &[SegmentId]) -> Result<BackgroundEdit> {
    let def = snapshot.def();
    let dir = make_table_dir(shared, def.id)?;
    let id = shared.take_segment_id();
    let meta = compaction::merge(snapshot, inputs, &shared.env, &dir, id, &mut tick(shared))?;
    let output = meta.map(|meta| table::Segment::open(&shared.env, &dir, def, meta));
    if let Some(segment) = &output {
        segment.check()?;
    }
    shared.counters.compactions.add(1);
    Ok(BackgroundEdit::Compact { table: def.id, inputs: inputs.to_vec(), output })
}

/// Counts background bytes and ends the work when the database closes.
fn tick(shared: &Arc<Shared>) -> impl FnMut(u64) -> Result<()> + use<> {
    let shared = shared.clone();
    move |bytes| {
        shared.counters.background_bytes.add(bytes);
        if shared.closing.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, "the database is closing"));
        }
        Ok(())
    }
}

/// The directory of a table's segments, durable by name.
fn make_table_dir(shared: &Shared, table: TableId) -> Result<std::path::PathBuf> {
    let dir = segment::table_dir(&shared.dir, table);
    let disk = &shared.env.disk;
    let make = || -> std::io::Result<()> {
        if disk.exists(&dir)? {
            return Ok(());
        }
        disk.create_dir_all(&dir)?;
        // After a failed sync nothing is known of the name: it must not pass for durable the next time.
        disk.sync_dir(&shared.dir.join("tables")).inspect_err(|_| drop(disk.remove_dir(&dir)))
    };
    make().map_err(|e| Error::io(format!("making {}", dir.display()), e))?;
    Ok(dir)
}

/// Gives an edit to the commit thread and waits until it is published; only then may the next work on `table` begin. A
/// simulator steps the commit itself, so there it only queues the edit.
fn hand_over(shared: &Arc<Shared>, edit: BackgroundEdit, table: Option<TableId>) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    let finished = shared.clone();
    let done = Box::new(move |result: Result<_>| {
        if let Some(table) = table {
            finished.background.lock().busy.remove(&table);
            finished.wake_background();
        }
        // Nobody listens in a simulator.
        let _ = sender.send(result.map(|_| ()));
    });
    if let Err((request, error)) = shared.inbox.push(Request::Edit { edit, done }) {
        request.refuse(error.clone());
        return Err(error);
    }
    if shared.stepped {
        return Ok(());
    }
    receiver.recv().unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
}

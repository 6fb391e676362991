//! Chooses the head to seal, the segments to merge, and the time of a manifest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use table::compaction;
use types::{Lsn, SegmentId, TableId};

use crate::background::state::{BackgroundJob, BackgroundState};
use crate::database_root::DatabaseRoot;
use crate::manifest::Manifest;
use crate::shared_state::Shared;

/// Returns the table whose head is sealed next. That is the largest full head, or the largest of all while the debt is high,
/// or the one that holds back a log that is too long or finds no room.
pub(super) fn sealable(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &BackgroundState,
    now: Duration,
) -> Option<Arc<table::Snapshot>> {
    let options = &shared.options;
    let may = |t: &&Arc<table::Snapshot>| background.may(BackgroundJob::Seal(t.def().id), now);
    let idle = || root.tables().filter(|t| t.head_rows() > 0).filter(may);
    let largest = idle().max_by_key(|t| t.head_bytes())?;
    let full = largest.head_bytes() >= options.seal_bytes;
    // A head that is being sealed already, or waits after a failure, is no reason to seal a few rows of another table.
    let others: u64 = root.tables().filter(|t| !may(t)).map(|t| t.head_bytes()).sum();
    let indebted = shared.counters.head_bytes.get().saturating_sub(others) >= options.debt_soft_bytes / 2;
    if full || indebted {
        return Some(largest.clone());
    }
    if let Some(long) = idle().find(|t| t.head_rows() >= options.seal_rows) {
        return Some(long.clone());
    }
    let log = shared.syncer.stats();
    let holds_room = log.no_room && log.files > 1;
    if log.files <= options.log_files_max && !holds_room {
        return None;
    }
    // A log file that no head needs goes with a manifest. While that is being written, rows that came since would otherwise
    // be sealed again and again, in segments of a few rows.
    let asked = Lsn(shared.trimmed_below.load(Ordering::Acquire));
    let is_held = log.oldest_file_lsn >= Manifest::replay_from(root);
    if !is_held && (log.oldest_file_lsn >= asked || background.is_running(BackgroundJob::Manifest)) {
        return None;
    }
    idle().min_by_key(|t| t.head_first_lsn()).cloned()
}

/// Returns true if a manifest pays off because it lets a log file or replaced segments be removed. It is due at once if the
/// log grows, and otherwise a little later.
pub(super) fn manifest_due(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &BackgroundState,
    now: Duration,
) -> bool {
    let stats = shared.syncer.stats();
    // A file that nothing needs any more is trimmed at once, but only one attempt is made: an archive may keep the file
    // after all.
    let asked = Lsn(shared.trimmed_below.load(Ordering::Acquire));
    if stats.oldest_file_lsn > Lsn(0)
        && stats.oldest_file_lsn >= asked
        && stats.oldest_file_lsn < Manifest::replay_from(root)
    {
        return true;
    }
    if shared.manifest_covers(root.lsn()) {
        return false;
    }
    let written = stats.bytes_written.saturating_sub(background.manifest_log_bytes);
    // An erasure waits for the removal of files that a manifest still names.
    let awaited = !background.erasing.is_empty()
        && background.obsolete.iter().any(|obsolete| !shared.manifest_covers(obsolete.since));
    if awaited {
        return true;
    }
    let waited = background.obsolete_since.is_some_and(|since| now >= since + OBSOLETE_WAIT);
    written >= shared.options.log.file_bytes
        || !background.obsolete.is_empty() && (written >= 1 << 20 || waited)
}

/// Time that the files of replaced segments and dropped tables wait for a manifest if nothing else needs one.
const OBSOLETE_WAIT: Duration = Duration::from_secs(5);

/// Returns the time until replaced segments are checked again: a manifest that lets them be removed may be due, or their
/// last reader may be gone.
pub(super) fn obsolete_again(background: &BackgroundState, now: Duration) -> Option<Duration> {
    let due = background.obsolete_since.unwrap_or(now) + OBSOLETE_WAIT;
    (!background.obsolete.is_empty()).then(|| due.saturating_sub(now).max(Duration::from_secs(1)))
}

/// Number of segments below which a table is not merged while seals are behind.
const SEGMENTS_WAIT_MAX: usize = 256;

pub(super) fn compactable(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<(Arc<table::Snapshot>, Vec<SegmentId>)> {
    // Finds the tables in whose segments rows were deleted since the last look; seals and merges report theirs themselves.
    let before = std::mem::take(&mut background.sealed_live);
    for table in root.tables() {
        let (id, live) = (table.def().id, table.sealed_live());
        background.sealed_live.insert(id, live);
        let is_rebuilt = table.segments().any(|segment| segment.is_rebuilt() && !segment.is_damaged());
        if is_rebuilt || before.get(&id).is_some_and(|before| live < *before) {
            background.compactable.insert(id);
        }
    }
    let may = |table: &TableId| background.may(BackgroundJob::Compact(*table), now);
    let candidates: Vec<TableId> = background.compactable.iter().copied().filter(may).collect();
    if candidates.is_empty() {
        return None;
    }
    // While writers are ahead of the seals, a merge would take disk and cores from the seals that let writers go on. A seal
    // is due then, and its end leads back here.
    let pressed = shared.counters.head_bytes.get() >= shared.options.debt_soft_bytes / 2;
    for snapshot in root.tables().filter(|t| candidates.contains(&t.def().id)) {
        let id = snapshot.def().id;
        let is_awaited = background.forget_waits.contains(&id) || background.is_being_erased(id);
        if (pressed || is_awaited) && snapshot.segments().len() < SEGMENTS_WAIT_MAX {
            continue;
        }
        if let Some(inputs) = compaction::plan(snapshot, &shared.options.compaction) {
            return Some((snapshot.clone(), inputs));
        }
        background.compactable.remove(&snapshot.def().id);
    }
    None
}

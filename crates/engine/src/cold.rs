//! Compresses segments to which no row was added for a while: [`Options::zstd_after`](crate::Options::zstd_after).
//!
//! A segment is cold once the newest of its rows arrived that long ago. It is compressed when nothing else is to be done:
//! one at a time in each database, with rests in between. Its replacement is the output of a compaction like any other, so
//! snapshots keep the old file, and a crash half way leaves a file that nothing names.

use std::sync::Arc;
use std::time::Duration;

use table::compaction;
use table::segment::BlockCompression;
use table::{Segment, Snapshot};
use types::{Micros, Result, SegmentId};

use crate::background::state::{BackgroundJob, BackgroundState};
use crate::background::{self, RunningJob};
use crate::database_root::DatabaseRoot;
use crate::shared_state::Shared;

/// Length of the rest after each segment, as a multiple of the time that it took.
const REST: u32 = 3;
/// Longest rest, however long a busy machine took.
const REST_MAX: Duration = Duration::from_secs(60);

/// A cold segment.
pub(crate) struct CompressTask {
    snapshot: Arc<Snapshot>,
    segment: Arc<Segment>,
}

impl CompressTask {
    pub fn job(&self) -> BackgroundJob {
        BackgroundJob::Compress(self.snapshot.def().id)
    }
}

/// Returns the segments that are not compressed and would be smaller, with the time at which each is cold.
fn waiting<'a>(
    shared: &'a Shared,
    root: &'a DatabaseRoot,
    background: &'a BackgroundState,
    now: Duration,
) -> impl Iterator<Item = (&'a Arc<Snapshot>, &'a Arc<Segment>, Micros)> {
    let after = shared.options.zstd_after.map(|after| i64::try_from(after.as_micros()).unwrap_or(i64::MAX));
    after.into_iter().flat_map(move |after| {
        let may = move |table: &&Arc<Snapshot>| {
            let id = table.def().id;
            background.may(BackgroundJob::Compress(id), now) && !background.is_being_erased(id)
        };
        root.tables().filter(may).flat_map(move |table| {
            compaction::compressible(table, &shared.options.compaction)
                .filter(|(segment, _)| !background.incompressible.contains(&segment.id()))
                .map(move |(segment, last)| (table, segment, last.saturating_add(after)))
        })
    })
}

/// Returns the segment that has been cold the longest.
pub(crate) fn next(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &BackgroundState,
    now: Duration,
) -> Option<CompressTask> {
    if shared.options.zstd_after.is_none() || background.cold_due > now {
        return None;
    }
    let time = shared.env.clock.now();
    let (snapshot, segment, _) = waiting(shared, root, background, now)
        .filter(|(.., cold_at)| *cold_at <= time)
        .min_by_key(|(.., cold_at)| *cold_at)?;
    Some(CompressTask { snapshot: snapshot.clone(), segment: segment.clone() })
}

/// Returns the time until the next compression. Called when there is nothing to do now.
pub(crate) fn again(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<Duration> {
    shared.options.zstd_after?;
    if !background.incompressible.is_empty() {
        let lives = |id: &SegmentId| root.tables().any(|t| t.segments().any(|s| s.id() == *id));
        background.incompressible.retain(lives);
    }
    let first = waiting(shared, root, background, now).map(|(.., cold_at)| cold_at).min()?;
    let left = first.saturating_sub(shared.env.clock.now()).max(0);
    Some(Duration::from_micros(left.unsigned_abs()).max(background.cold_due.saturating_sub(now)))
}

pub(crate) fn run(shared: &Arc<Shared>, task: CompressTask, running: RunningJob) -> Result<()> {
    let CompressTask { snapshot, segment } = task;
    let began = shared.env.clock.monotonic();
    let inputs = [segment.id()];
    let made = match background::check_room(shared).and_then(|()| segment.is_worth_compressing()) {
        Ok(true) => background::compact(shared, &snapshot, &inputs, BlockCompression::Zstd).map(Some),
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    let ended = shared.env.clock.monotonic();
    let rest = (ended.saturating_sub(began) * REST).min(REST_MAX);
    shared.background.lock().cold_due = ended + rest;
    match made {
        Ok(Some(edit)) => {
            shared.counters.compressions.add(1);
            background::hand_over(shared, edit, running)
        }
        Ok(None) => {
            shared.background.lock().incompressible.insert(segment.id());
            running.end(false);
            Ok(())
        }
        Err(error) => {
            running.end(true);
            Err(error)
        }
    }
}

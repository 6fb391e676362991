//! Drops deleted rows that were retained for readers of the past: after [`Options::history`](crate::Options::history), or
//! earlier if there are too many of them.

use std::sync::Arc;
use std::time::Duration;

use table::Snapshot;
use types::{Lsn, Micros, SegmentId, TableDef, TableId, name};

use crate::background::state::{BackgroundJob, BackgroundState};
use crate::commit_times::CommitTimes;
use crate::database_root::DatabaseRoot;
use crate::inbox::BackgroundEdit;
use crate::shared_state::Shared;

/// Number of segments of deleted rows that a table keeps: each holds two files open.
const SEGMENTS_MAX: usize = 1_024;

/// Segments of the past that a table is to drop.
pub(crate) struct DropPastTask {
    table: TableId,
    segments: Vec<SegmentId>,
    floor: Lsn,
}

impl DropPastTask {
    /// Drops the whole past of a table, and at least every row that was deleted up to a commit.
    pub fn all_of(table: &Snapshot, lsn: Lsn) -> DropPastTask {
        let (segments, ends): (Vec<SegmentId>, Vec<Lsn>) =
            table.past_segments().map(|(segment, last_end)| (segment.id(), last_end)).unzip();
        let floor = ends.into_iter().max().unwrap_or_default().max(lsn);
        DropPastTask { table: table.def().id, segments, floor }
    }

    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    pub fn job(&self) -> BackgroundJob {
        BackgroundJob::Forget(self.table)
    }

    pub fn edit(self) -> BackgroundEdit {
        BackgroundEdit::Forget { table: self.table, segments: self.segments, floor: self.floor }
    }
}

/// Returns the commit after which deleted rows of a table are retained.
pub(crate) fn wanted_after(shared: &Shared, root: &DatabaseRoot, def: &TableDef) -> Lsn {
    if keeps_past(def) { root.times.at(oldest(shared)).unwrap_or(Lsn(0)) } else { Lsn(u64::MAX) }
}

/// Returns true if deleted rows of a table are retained. Polynya's own records come and go all the time, and nobody changes
/// them by mistake.
pub(crate) fn keeps_past(def: &TableDef) -> bool {
    !name::is_reserved(&def.name)
}

fn oldest(shared: &Shared) -> Micros {
    let history = i64::try_from(shared.options.history.as_micros()).unwrap_or(i64::MAX);
    shared.env.clock.now().saturating_sub(history)
}

fn with_past(root: &DatabaseRoot) -> impl Iterator<Item = &Arc<Snapshot>> {
    root.tables().filter(|table| table.past_segments().len() > 0)
}

/// Returns the drop that is due now. Notes the tables whose drop must wait until running work no longer retains rows there.
pub(crate) fn next(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<DropPastTask> {
    background.forget_waits.clear();
    let mut bytes: u64 = with_past(root).map(|table| table.past_bytes()).sum();
    if bytes == 0 {
        return None;
    }
    // The oldest segments go first if all tables together have too many bytes.
    let mut limit = Lsn(0);
    if bytes > shared.options.history_bytes_max {
        let mut all: Vec<(Lsn, u64)> = with_past(root)
            .flat_map(|table| table.past_segments().map(|(s, last_end)| (last_end, s.meta().bytes)))
            .collect();
        all.sort_unstable();
        for (last_end, size) in all {
            if bytes <= shared.options.history_bytes_max {
                break;
            }
            bytes -= size;
            limit = last_end;
        }
    }
    let of = |table: &Arc<Snapshot>| {
        let too_many = table.past_segments().len().saturating_sub(SEGMENTS_MAX);
        let wanted = limit.max(wanted_after(shared, root, table.def()));
        let is_old = |(at, (_, last_end)): &(usize, (_, Lsn))| *last_end <= wanted || *at < too_many;
        let old = table.past_segments().enumerate().filter(is_old);
        let (segments, ends): (Vec<SegmentId>, Vec<Lsn>) =
            old.map(|(_, (segment, last_end))| (segment.id(), last_end)).unzip();
        let floor = ends.into_iter().max()?;
        Some(DropPastTask { table: table.def().id, segments, floor })
    };
    for task in with_past(root).filter_map(of) {
        if background.may(task.job(), now) {
            return Some(task);
        }
        if background.is_running(task.job()) {
            background.forget_waits.insert(task.table);
        }
    }
    None
}

/// Returns the time until some rows will be old enough. Called when there is nothing to do now. Work that runs on a table
/// wakes the pool itself when it ends.
pub(crate) fn again(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &BackgroundState,
    now: Duration,
) -> Option<Duration> {
    let first = with_past(root)
        .filter(|table| background.may(BackgroundJob::Forget(table.def().id), now))
        .flat_map(|table| table.past_segments().map(|(_, last_end)| last_end))
        .min()?;
    Some(until(&root.times, first, oldest(shared)))
}

/// Returns the time until rows that ended with a commit are old enough, if rows that ended at `oldest` are old enough now.
fn until(times: &CommitTimes, last_end: Lsn, oldest: Micros) -> Duration {
    // Rows that ended before all known times go together with those of the first known time.
    let ended = times.of(last_end).or(times.first()).unwrap_or(Micros::MIN);
    let left = ended.saturating_sub(oldest).saturating_add(1_000).max(1_000);
    Duration::from_micros(left.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There were more commits than times are kept for: the pool looked a thousand times a second for rows that it could not
    /// drop yet.
    #[test]
    fn what_ended_at_a_time_that_is_not_known_is_waited_for_as_well() {
        let second = 1_000_000;
        let mut times = CommitTimes::from(100 * second, Lsn(10));
        times.push(101 * second, Lsn(11));
        assert_eq!(times.at(99 * second), None);
        for (last_end, seconds) in [(11, 51), (10, 50), (3, 50)] {
            let wait = until(&times, Lsn(last_end), 50 * second);
            assert_eq!(wait, Duration::from_micros(seconds * second as u64 + 1_000), "{last_end}");
            let then = times.at(50 * second + wait.as_micros() as i64);
            assert!(then.is_some_and(|wanted| wanted >= Lsn(last_end)), "{last_end}: {then:?}");
        }
    }
}

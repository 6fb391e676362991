//! Eviction: drops rows from this machine that a table need not keep here, because its lake has them (`hot` in the
//! definition).
//!
//! Whole sealed segments go, the oldest first, one at a time in a database, when nothing else is to be done. Before one
//! goes, each of its live rows is compared with the lake's, column by column, so evicted rows are known to be readable. A
//! sidecar without rows takes the segment's place, as the output of a compaction. So snapshots keep the old files, and a
//! crash half way leaves a sidecar that nothing names.

use std::sync::Arc;
use std::time::Duration;

use table::materializer::{Materializer, Position};
use table::{Segment, Snapshot, evict};
use types::{Error, HotLimit, Kind, Micros, Result, RowId, SegmentId};

use crate::background::state::{BackgroundJob, BackgroundState};
use crate::background::{self, RunningJob};
use crate::database_root::DatabaseRoot;
use crate::inbox::BackgroundEdit;
use crate::shared_state::Shared;

/// Longest rest after a segment; otherwise the work rests as long as it took.
const REST_MAX: Duration = Duration::from_secs(60);
/// Time that a segment waits if its last rows were deleted before they reached the lake: until then the lake may write
/// others.
const WAIT: Duration = Duration::from_secs(60);

/// A segment that may be evicted.
pub(crate) struct EvictTask {
    snapshot: Arc<Snapshot>,
    segment: Arc<Segment>,
    materializer: Arc<dyn Materializer>,
    position: Arc<Position>,
}

impl EvictTask {
    pub fn job(&self) -> BackgroundJob {
        BackgroundJob::Evict(self.snapshot.def().id)
    }
}

/// Returns a table's oldest segment on this machine, and the time from which on it may be evicted. `None` if the table keeps
/// all its rows here.
fn waiting(table: &Snapshot) -> Option<(&Arc<Segment>, Micros)> {
    let hot = table.def().options.hot.filter(|_| !table.def().is_keyed())?;
    let segment = evict::next_segment(table)?;
    let at = match hot {
        HotLimit::Micros(micros) => segment.meta().last_time.saturating_add(micros),
        HotLimit::Bytes(bytes) => (hot_bytes(table) > bytes).then_some(Micros::MIN)?,
    };
    Some((segment, at))
}

/// Bytes of a table's rows on this machine: heads in memory, and files.
pub fn hot_bytes(table: &Snapshot) -> u64 {
    let files = table.segments().filter(|segment| !segment.is_evicted()).map(|segment| segment.meta().bytes);
    table.head_bytes() + files.sum::<u64>()
}

/// Returns the materializer that stores a table's evicted rows, and its position in the root.
fn passed<'a>(
    shared: &Shared,
    root: &'a DatabaseRoot,
    table: &Snapshot,
) -> Option<(Arc<dyn Materializer>, &'a Arc<Position>)> {
    let materializers = shared.materializers.load();
    let lands = |m: &&Arc<dyn Materializer>| m.stores_evicted_rows() && m.follows(table.def());
    let materializer = materializers.iter().find(lands)?.clone();
    let position = root.derived(materializer.name(), table.def().id)?;
    Some((materializer, position))
}

pub(crate) fn next(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &BackgroundState,
    now: Duration,
) -> Option<EvictTask> {
    if background.evict_due > now || !background.evicting.is_empty() {
        return None;
    }
    let time = shared.env.clock.now();
    let may = |table: &&Arc<Snapshot>| {
        let id = table.def().id;
        background.may(BackgroundJob::Evict(id), now)
            && !background.is_being_erased(id)
            && background.evict_waits.get(&id).is_none_or(|until| *until <= now)
    };
    root.tables().filter(may).find_map(|table| {
        let (segment, _) = waiting(table).filter(|(_, at)| *at <= time)?;
        let (materializer, position) = passed(shared, root, table)?;
        if position.checkpoint.row < segment.meta().last_row {
            return None;
        }
        Some(EvictTask {
            snapshot: table.clone(),
            segment: segment.clone(),
            materializer,
            position: position.clone(),
        })
    })
}

/// Returns the time until the next eviction. Called when there is nothing to do now. A segment that waits for the lake is
/// checked when the lake has come further.
pub(crate) fn again(
    shared: &Shared,
    root: &DatabaseRoot,
    background: &BackgroundState,
    now: Duration,
) -> Option<Duration> {
    if shared.write_error.load().is_some() || !background.evicting.is_empty() {
        return None;
    }
    let time = shared.env.clock.now();
    let left = |table: &Arc<Snapshot>| {
        // The end of running work leads to another check.
        if background.is_running(BackgroundJob::Evict(table.def().id)) {
            return None;
        }
        let (segment, at) = waiting(table)?;
        let (_, position) = passed(shared, root, table)?;
        if position.checkpoint.row < segment.meta().last_row {
            return None;
        }
        let waits = background.evict_waits.get(&table.def().id).copied().unwrap_or_default();
        let left = Duration::from_micros(at.saturating_sub(time).max(0).unsigned_abs());
        let retries =
            background.retries.get(&BackgroundJob::Evict(table.def().id)).map_or(Duration::ZERO, |r| r.due);
        let until = background.evict_due.max(waits).max(retries);
        Some(left.max(until.saturating_sub(now)).max(Duration::from_millis(10)))
    };
    root.tables().filter_map(left).min()
}

pub(crate) fn run(shared: &Arc<Shared>, task: EvictTask, running: RunningJob) -> Result<()> {
    let began = shared.env.clock.monotonic();
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| make(shared, &task)))
        .unwrap_or_else(|_| Err(types::Error::internal("eviction met a bug of Polynya and stopped")));
    let ended = shared.env.clock.monotonic();
    let mut background = shared.background.lock();
    background.evict_due = ended + ended.saturating_sub(began).min(REST_MAX);
    background.evict_waits.remove(&task.snapshot.def().id);
    if matches!(made, Ok(None)) {
        background.evict_waits.insert(task.snapshot.def().id, ended + WAIT);
    }
    drop(background);
    match made {
        Ok(Some(edit)) => {
            shared.counters.evictions.add(1);
            background::hand_over(shared, edit, running)
        }
        Ok(None) => {
            running.end(false);
            Ok(())
        }
        Err(error) => {
            if error.kind() != Kind::Closed {
                tracing::warn!(table = %task.snapshot.def().name, segment = %task.segment.id(), %error, "a segment that the lake should have was not evicted");
            }
            running.end(error.kind() != Kind::Closed);
            Err(error)
        }
    }
}

/// Compares a segment with the lake and writes the sidecar that replaces it. Returns `None` if the lake does not confirm yet
/// that it has all rows.
fn make(shared: &Arc<Shared>, task: &EvictTask) -> Result<Option<BackgroundEdit>> {
    let EvictTask { snapshot, segment, materializer, position } = task;
    let (def, input) = (snapshot.def(), segment.id());
    let landed = materializer.landed(&position.published, snapshot);
    let Some(landed) = landed.filter(|landed| is_passed(landed.row(), segment)) else { return Ok(None) };
    let mut tick = background::tick(shared);
    evict::compare(snapshot, input, &landed, &mut tick)?;
    let dir = background::make_table_dir(shared, def.id)?;
    let id = shared.take_segment_id();
    let meta = evict::write_sidecar(snapshot, input, &shared.env, &dir, id, &mut tick)?;
    let output = Segment::open(&shared.env, &dir, def, meta);
    output.check().inspect_err(|_| drop(table::segment::remove_files(&shared.env, &dir, id)))?;
    let (position, name) = (position.clone(), materializer.name());
    Ok(Some(BackgroundEdit::Evict { table: def.id, input, output, landed, position, name }))
}

/// Rewrites the sidecar of an evicted segment without bounds that may be values of deleted rows. It replaces the segment
/// like an eviction.
pub(crate) fn forget_bounds(
    shared: &Arc<Shared>,
    snapshot: &Snapshot,
    input: SegmentId,
) -> Result<BackgroundEdit> {
    let def = snapshot.def();
    let root = shared.root.load();
    let segment = snapshot.segments().find(|segment| segment.id() == input);
    let segment =
        segment.ok_or_else(|| Error::internal("the segment whose bounds are to be dropped is missing"))?;
    let landed = segment.landed()?;
    let Some((materializer, position)) = passed(shared, &root, snapshot) else {
        return Err(Error::new(Kind::Busy, "the position of the lake is not known yet"));
    };
    let dir = background::make_table_dir(shared, def.id)?;
    let id = shared.take_segment_id();
    let meta = evict::forget_bounds(snapshot, input, &shared.env, &dir, id)?;
    let output = Segment::open(&shared.env, &dir, def, meta);
    output.check().inspect_err(|_| drop(table::segment::remove_files(&shared.env, &dir, id)))?;
    let (landed, position, name) = (landed.clone(), position.clone(), materializer.name());
    Ok(BackgroundEdit::Evict { table: def.id, input, output, landed, position, name })
}

fn is_passed(row: RowId, segment: &Segment) -> bool {
    row >= segment.meta().last_row
}

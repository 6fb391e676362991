//! TTL: deletes rows that are older than their table keeps them. It is an ordinary delete that goes through the log, so
//! change feed, indexes and lake see it; each commit deletes a bounded number of rows. Records of requests that were
//! remembered for long enough ([`crate::idempotency`]) are deleted in the same way.
//!
//! Until it is deleted, an old row is there like any other. A table is checked again after a tenth of its time to live, and
//! at least once a minute. The table of remembered requests is also checked as soon as it has a hundredth more rows than it
//! may have; the commit thread notices that ([`has_too_many`]).

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use table::Snapshot;
use types::{DataType, Error, Micros, Principal, ROW_ID, Result, RowId, TableId};

use crate::background::RunningJob;
use crate::background::state::{BackgroundJob, BackgroundState};
use crate::database_root::DatabaseRoot;
use crate::idempotency;
use crate::inbox::Request;
use crate::options::Options;
use crate::prepare::{self, PreparedOp};
use crate::shared_state::Shared;
use crate::transaction::{Op, Transaction};

/// Number of rows that one commit deletes at most.
const ROWS_AT_ONCE: usize = 4_096;
/// Pause between two commits for a table that has more to delete: writers and materializers come first.
const COMMIT_PAUSE: Duration = Duration::from_millis(20);
const LOOK_MIN: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_secs(60);
/// Divisor of the surplus of rows that makes a table due at once: a hundredth of the rows that it may keep. Each check then
/// deletes about as many; without the margin there would be a commit for every few requests.
const SURPLUS_DIVISOR: u64 = 100;

/// A table that is due for a check.
pub(crate) struct ExpireTask {
    root: Arc<DatabaseRoot>,
    table: Arc<Snapshot>,
    limits: RetentionLimits,
}

/// The rows that a table keeps.
#[derive(Clone, Copy)]
struct RetentionLimits {
    /// Age up to which rows are kept.
    ttl: Micros,
    /// Number of rows that are kept at most.
    rows_max: u64,
}

/// The next checks of a table, on the machine's monotonic clock.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExpiryTimes {
    /// Time of the regular check.
    at: Duration,
    /// Time of the check if it has too many rows; not at once after the last check, so that writers come first.
    beyond: Duration,
}

impl ExpiryTimes {
    fn of(background: &BackgroundState, table: &Snapshot, limits: RetentionLimits) -> Duration {
        let due = background.expire_due.get(&table.def().id).copied().unwrap_or_default();
        if limits.is_exceeded_by(table) { due.beyond } else { due.at }
    }
}

impl RetentionLimits {
    /// Returns true if there are so many surplus rows that they are deleted now.
    fn is_exceeded_by(self, table: &Snapshot) -> bool {
        table.rows() > self.rows_max.saturating_add(self.rows_max / SURPLUS_DIVISOR)
    }
}

/// Returns true if a commit made a table due by its number of rows. `old` is the table before the commit.
pub(crate) fn has_too_many(old: &Snapshot, new: &Snapshot, options: &Options) -> bool {
    // The cheap test comes first, since this is called for each table of a commit.
    new.rows() > options.remember_max
        && limits_of(new, options)
            .is_some_and(|limits| limits.is_exceeded_by(new) && !limits.is_exceeded_by(old))
}

impl ExpireTask {
    pub fn job(&self) -> BackgroundJob {
        BackgroundJob::Expire(self.table.def().id)
    }
}

fn with_ttl<'a>(
    root: &'a DatabaseRoot,
    options: &'a Options,
) -> impl Iterator<Item = (&'a Arc<Snapshot>, RetentionLimits)> {
    root.tables().filter_map(move |table| Some((table, limits_of(table, options)?)))
}

fn limits_of(table: &Snapshot, options: &Options) -> Option<RetentionLimits> {
    if table.def().name == idempotency::TABLE {
        let ttl = Micros::try_from(options.remember_for.as_micros()).unwrap_or(Micros::MAX);
        Some(RetentionLimits { ttl, rows_max: options.remember_max })
    } else {
        table.def().options.ttl.map(|ttl| RetentionLimits { ttl, rows_max: u64::MAX })
    }
}

/// Returns the table that was due first.
pub(crate) fn next(
    root: &Arc<DatabaseRoot>,
    options: &Options,
    background: &BackgroundState,
    now: Duration,
) -> Option<ExpireTask> {
    let due =
        |(table, limits): &(&Arc<Snapshot>, RetentionLimits)| ExpiryTimes::of(background, table, *limits);
    let may = |one: &(&Arc<Snapshot>, RetentionLimits)| {
        due(one) <= now && background.may(BackgroundJob::Expire(one.0.def().id), now)
    };
    let (table, limits) = with_ttl(root, options).filter(may).min_by_key(due)?;
    Some(ExpireTask { root: root.clone(), table: table.clone(), limits })
}

/// Returns the time until a table must be checked again. Called when there is nothing to do now.
pub(crate) fn again(
    root: &DatabaseRoot,
    options: &Options,
    background: &mut BackgroundState,
    now: Duration,
) -> Option<Duration> {
    if !background.expire_due.is_empty() {
        let lives = |id: &TableId| with_ttl(root, options).any(|(table, _)| table.def().id == *id);
        background.expire_due.retain(|id, _| lives(id));
    }
    let due = |(table, limits): (&Arc<Snapshot>, RetentionLimits)| ExpiryTimes::of(background, table, limits);
    with_ttl(root, options).map(|one| due(one).saturating_sub(now)).min()
}

pub(crate) fn run(shared: &Arc<Shared>, task: ExpireTask, running: RunningJob) -> Result<()> {
    let id = task.table.def().id;
    let rows = match old_rows(&task.table, task.limits, shared.env.clock.now()) {
        Ok(rows) => rows,
        Err(error) => {
            running.end(true);
            return Err(error);
        }
    };
    let look = Duration::from_micros(task.limits.ttl.unsigned_abs() / 10).clamp(LOOK_MIN, LOOK_MAX);
    let pause = if rows.len() < ROWS_AT_ONCE { look } else { COMMIT_PAUSE };
    let now = shared.env.clock.monotonic();
    let due = ExpiryTimes { at: now + pause, beyond: now + COMMIT_PAUSE };
    shared.background.lock().expire_due.insert(id, due);
    if rows.is_empty() {
        running.end(false);
        return Ok(());
    }
    // Prepared against the root that was read, so that the ids cannot be taken for those of another table of the same name.
    let op = Op::Delete { table: task.table.def().name.clone(), rows, must_exist: false };
    let transaction = Transaction::new(vec![op]).internal();
    let prepared =
        prepare::prepare(&task.root, &Principal::local(), &shared.materializers.load(), 0, transaction);
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            running.end(true);
            return Err(error);
        }
    };
    for op in &mut prepared.ops {
        if let PreparedOp::Delete { target, rows, .. } = op {
            *op = PreparedOp::Expire { target: target.clone(), rows: std::mem::take(rows) };
        }
    }
    let done = Box::new(move |result: Result<_>| running.end(result.is_err()));
    if let Err((request, error)) = shared.inbox.push(Request::Write { prepared, done }) {
        request.refuse(error.clone());
        return Err(error);
    }
    Ok(())
}

/// Returns live rows that a table no longer keeps, at most [`ROWS_AT_ONCE`]. Rows without a time are always kept.
fn old_rows(table: &Snapshot, limits: RetentionLimits, now: Micros) -> Result<Vec<RowId>> {
    let beyond = usize::try_from(table.rows().saturating_sub(limits.rows_max)).unwrap_or(usize::MAX);
    if beyond > 0 {
        let ids = table.scan_from(RowId(1), beyond.min(ROWS_AT_ONCE), &table.projection(&[ROW_ID])?)?;
        let ids = ids.column(0).as_primitive_opt::<Int64Type>();
        let ids = ids.ok_or_else(|| Error::internal("a row id was asked for"))?;
        return Ok(ids.values().iter().map(|id| RowId(*id as u64)).collect());
    }
    let cutoff = now.saturating_sub(limits.ttl);
    let def = table.def();
    let mut old = Vec::new();
    let unexpected = || Error::internal("a row id and a time were asked for");
    let column = match def.time.and_then(|id| def.schema.column(id)) {
        None => None,
        Some(column) if column.data_type == DataType::Timestamp => Some(column.id),
        // A column of another type cannot be compared with a time.
        Some(_) => return Ok(old),
    };
    let end = match column {
        None => table.row_at_time(cutoff)?,
        Some(_) => table.next_row(),
    };
    let wanted = [Some(ROW_ID), column];
    let projection = table.projection(&wanted.into_iter().flatten().collect::<Vec<_>>())?;
    // Zone maps of blocks narrow the times best if the pieces are in stored order.
    let pieces = if column.is_some() { table.stored_pieces() } else { table.pieces() };
    for piece in pieces {
        if piece.row_range().0 >= end {
            break;
        }
        if let Some(zone) = column.and_then(|id| piece.zone(id))
            && !matches!(zone.min, Some(types::Value::Timestamp(min)) if min < cutoff)
        {
            continue;
        }
        let batch = piece.read(&projection)?;
        let ids = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
        let times = match column {
            None => None,
            Some(_) => {
                let times = batch.column(1).as_primitive_opt::<TimestampMicrosecondType>();
                Some(times.ok_or_else(unexpected)?)
            }
        };
        for (at, id) in ids.values().iter().enumerate() {
            let id = RowId(*id as u64);
            let is_old = times.is_none_or(|times| times.is_valid(at) && times.value(at) < cutoff);
            if is_old && id < end {
                old.push(id);
                if old.len() == ROWS_AT_ONCE {
                    old.sort_unstable();
                    return Ok(old);
                }
            }
        }
    }
    old.sort_unstable();
    Ok(old)
}

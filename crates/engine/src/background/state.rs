//! Bookkeeping of background work: the running and waiting jobs of one database, and their back-off after failures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use table::materializer::{Materializer, Position};
use types::{Error, Lsn, RowId, SegmentId, TableId};
use vfs::Lock;

use crate::derive;
use crate::erase::Erasure;
use crate::expire;

/// Background work that is running or due.
#[derive(Default)]
pub(crate) struct BackgroundState {
    /// Tables whose head is being sealed, or whose past is being forgotten.
    pub sealing: BTreeSet<TableId>,
    /// Tables whose segments are being merged or compressed, or whose past is being forgotten. Heads are sealed during a
    /// merge: it takes seconds, and a head that waited for it would fill up meanwhile.
    pub merging: BTreeSet<TableId>,
    /// Tables whose segments may be worth compacting.
    pub compactable: BTreeSet<TableId>,
    /// Number of live rows in a table's segments at the last check.
    pub sealed_live: BTreeMap<TableId, u64>,
    /// Replaced segments. Their files wait for the last reader and for a manifest at or above the lsn.
    pub obsolete: Vec<ObsoleteSegment>,
    /// Segments whose files are being removed.
    pub removing: Vec<(TableId, SegmentId)>,
    /// Time since which one of them has waited for a manifest, on the machine's monotonic clock.
    pub obsolete_since: Option<Duration>,
    pub manifest_running: bool,
    /// Log bytes written when the newest manifest was made.
    pub manifest_log_bytes: u64,
    pub preallocating: bool,
    /// Number of pool threads inside this database.
    pub active: usize,
    /// Failed work that waits before it is retried.
    pub retries: BTreeMap<BackgroundJob, RetryTime>,
    /// Materializers at work on a table.
    pub deriving: BTreeSet<(TableId, &'static str)>,
    /// Materializers that wait for more rows, with the end of the wait on the machine's monotonic clock.
    pub pauses: BTreeMap<(TableId, &'static str), Duration>,
    /// Materializers whose output a caller waits for, with the state of the table at the newest such request.
    pub urgent: BTreeMap<(TableId, &'static str), CatchUpTarget>,
    /// Lsn up to which a materializer has read a table and found nothing to change.
    pub unchanged: BTreeMap<(TableId, &'static str), Lsn>,
    /// Materializers that rebuild their output from the first row on.
    pub rebuild: BTreeSet<(TableId, &'static str)>,
    /// Tables whose old deleted rows are to be dropped once no running work retains rows there; until then no merge begins.
    pub forget_waits: BTreeSet<TableId>,
    /// Tables whose expired rows are being deleted.
    pub expiring: BTreeSet<TableId>,
    /// Time at which a table is next checked for expired rows.
    pub expire_due: BTreeMap<TableId, expire::ExpiryTimes>,
    /// Erasures under way, at most one for each table: each removes deleted rows from every file.
    pub erasing: BTreeMap<TableId, Arc<Erasure>>,
    /// Erasures that begin when those under way on the same tables have ended.
    pub erasing_next: BTreeMap<TableId, Arc<Erasure>>,
    /// Tables of which a segment is being evicted.
    pub evicting: BTreeSet<TableId>,
    /// Earliest time of the next eviction, on the machine's monotonic clock.
    pub evict_due: Duration,
    /// Tables whose next segment waits until the lake has written more, with the end of the wait.
    pub evict_waits: BTreeMap<TableId, Duration>,
    /// True while a segment is being compressed.
    pub compressing: bool,
    /// Earliest time of the next compression, on the machine's monotonic clock.
    pub cold_due: Duration,
    /// Cold segments that compression would not make smaller.
    pub incompressible: BTreeSet<SegmentId>,
    /// Output of materializers for tables that are gone, to be removed.
    pub obsolete_outputs: Vec<ObsoleteOutput>,
    /// Errors that have kept such output from being removed so far.
    pub removal_errors: BTreeMap<(TableId, &'static str), Error>,
    /// Lsn of the root that was last checked for work of materializers.
    pub derive_looked: Lsn,
    /// The closed database's lock on its directory, held until the last pool thread has left the database.
    pub dir_lock: Option<Box<dyn Lock>>,
}

/// A piece of background work. Each runs at most once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BackgroundJob {
    /// Seals a table's head.
    Seal(TableId),
    /// Drops retained rows of a table's past. No seal, merge or eviction runs beside it: the rows that they retain would be
    /// older than those that it dropped.
    Forget(TableId),
    Manifest,
    Preallocate,
    Derive(TableId, &'static str),
    Expire(TableId),
    /// Compacts segments of a table. Heads are sealed meanwhile, and a failure here does not keep them from that.
    Compact(TableId),
    /// Drops the rows of a segment from this machine; the lake has them. Heads are sealed meanwhile, because a remote store
    /// may be slow.
    Evict(TableId),
    /// Compresses a segment of a table. Runs in one table at a time.
    Compress(TableId),
}

/// The state of a table at some moment: its last commit, and the row id after its last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CatchUpTarget {
    pub lsn: Lsn,
    pub next_row: RowId,
}

impl CatchUpTarget {
    pub fn of(table: &table::Snapshot) -> Self {
        CatchUpTarget { lsn: table.lsn(), next_row: table.next_row() }
    }

    pub fn is_met_by(self, position: &Position) -> bool {
        self.lsn <= position.checkpoint.lsn && derive::has_rows(position, self.next_row)
    }
}

/// Output of a materializer for a table that is gone, kept until no reader holds it.
pub(crate) struct ObsoleteOutput {
    pub materializer: Arc<dyn Materializer>,
    pub table: TableId,
    pub position: Option<Arc<Position>>,
    /// The lsn from which on no root has it.
    pub since: Lsn,
}

/// Back-off of work that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryTime {
    pub delay: Duration,
    /// Time of the next attempt, on the machine's monotonic clock.
    pub due: Duration,
}

/// The first and the longest wait after a failure; in between each failure doubles the wait.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

impl BackgroundState {
    /// Returns true if this work may begin: it is not running, and it is not backing off after a failure.
    pub fn may(&self, job: BackgroundJob, now: Duration) -> bool {
        !self.is_running(job) && self.retries.get(&job).is_none_or(|retry| retry.due <= now)
    }

    pub fn is_running(&self, job: BackgroundJob) -> bool {
        match job {
            BackgroundJob::Seal(table) => self.sealing.contains(&table),
            BackgroundJob::Forget(table) => [&self.sealing, &self.merging, &self.evicting]
                .into_iter()
                .any(|at_work| at_work.contains(&table)),
            BackgroundJob::Compact(table) | BackgroundJob::Evict(table) => {
                self.merging.contains(&table) || self.evicting.contains(&table)
            }
            BackgroundJob::Manifest => self.manifest_running,
            BackgroundJob::Preallocate => self.preallocating,
            BackgroundJob::Derive(table, name) => self.deriving.contains(&(table, name)),
            BackgroundJob::Expire(table) => self.expiring.contains(&table),
            BackgroundJob::Compress(table) => {
                self.compressing || self.merging.contains(&table) || self.evicting.contains(&table)
            }
        }
    }

    /// Returns true if an erasure still has segments of a table to rewrite: no other work on its segments begins meanwhile.
    pub fn is_being_erased(&self, table: TableId) -> bool {
        self.erasing.get(&table).is_some_and(|erasure| erasure.is_at_segments())
    }

    /// Returns true if any work runs for the materializer of this name.
    pub fn is_deriving(&self, name: &str) -> bool {
        self.deriving.iter().any(|(_, of)| *of == name)
    }

    pub fn begin(&mut self, job: BackgroundJob) {
        match job {
            BackgroundJob::Seal(table) => drop(self.sealing.insert(table)),
            BackgroundJob::Forget(table) => {
                self.sealing.insert(table);
                self.merging.insert(table);
            }
            BackgroundJob::Compact(table) => drop(self.merging.insert(table)),
            BackgroundJob::Manifest => self.manifest_running = true,
            BackgroundJob::Preallocate => self.preallocating = true,
            BackgroundJob::Derive(table, name) => drop(self.deriving.insert((table, name))),
            BackgroundJob::Expire(table) => drop(self.expiring.insert(table)),
            BackgroundJob::Evict(table) => drop(self.evicting.insert(table)),
            BackgroundJob::Compress(table) => {
                self.merging.insert(table);
                self.compressing = true;
            }
        }
    }

    pub fn end(&mut self, job: BackgroundJob) {
        match job {
            BackgroundJob::Seal(table) => drop(self.sealing.remove(&table)),
            BackgroundJob::Forget(table) => {
                self.sealing.remove(&table);
                self.merging.remove(&table);
            }
            BackgroundJob::Compact(table) => drop(self.merging.remove(&table)),
            BackgroundJob::Manifest => self.manifest_running = false,
            BackgroundJob::Preallocate => self.preallocating = false,
            BackgroundJob::Derive(table, name) => drop(self.deriving.remove(&(table, name))),
            BackgroundJob::Expire(table) => drop(self.expiring.remove(&table)),
            BackgroundJob::Evict(table) => drop(self.evicting.remove(&table)),
            BackgroundJob::Compress(table) => {
                self.merging.remove(&table);
                self.compressing = false;
            }
        }
    }

    pub fn failed(&mut self, job: BackgroundJob, now: Duration) {
        let delay = self.retries.get(&job).map_or(RETRY_FIRST, |retry| (retry.delay * 2).min(RETRY_MAX));
        self.retries.insert(job, RetryTime { delay, due: now + delay });
    }
}

/// A replaced segment: no root from `since` on has it.
pub(crate) struct ObsoleteSegment {
    pub table: TableId,
    pub segment: Arc<table::Segment>,
    pub since: Lsn,
}

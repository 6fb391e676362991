//! State that the threads of one database share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use table::materializer::{Materializer, Position};
use types::{Error, Kind, Lsn, Result, RowId, SegmentId, TableId};
use vfs::{Condvar, Env, Lock, Mutex};

use crate::archive::Archive;
use crate::arrivals::Arrivals;
use crate::counters::Counters;
use crate::derive;
use crate::erase::Erasure;
use crate::expire;
use crate::inbox::Inbox;
use crate::interactive::Registry;
use crate::options::Options;
use crate::pool;
use crate::root::Root;
use crate::standing::Notes;

pub(crate) struct Shared {
    pub env: Env,
    pub dir: PathBuf,
    pub options: Options,
    /// The root that readers load. Only the commit thread stores it.
    pub root: ArcSwap<Root>,
    pub inbox: Inbox,
    /// Number of threads that wait for a commit of their own.
    pub committers: AtomicUsize,
    pub counters: Counters,
    pub syncer: commitlog::Syncer,
    pub preallocator: commitlog::Preallocator,
    pub background: Mutex<Background>,
    pub background_left: Condvar,
    /// Set when there may be background work; the pool checks it.
    pub work: AtomicBool,
    pub closing: AtomicBool,
    /// Set once writes are refused for good: damage found at opening, or a latched log.
    pub write_error: ArcSwapOption<Error>,
    next_segment: AtomicU64,
    /// The lsn of the newest commit that recovery found, made before this process.
    pub opened_at: Lsn,
    /// The lsn of the newest durable manifest.
    pub manifest_lsn: AtomicU64,
    /// True if no thread runs: a simulator steps everything.
    pub stepped: bool,
    /// The registered materializers, which derive something from tables.
    pub materializers: ArcSwap<Vec<Arc<dyn Materializer>>>,
    /// True while the background pool is about to check the materializers anyway, so that no commit needs to wake it.
    pub materializers_looked_at: AtomicBool,
    /// Errors and phases of the materializers, kept beside their positions.
    pub notes: ArcSwap<Notes>,
    /// The archive of the log, if there is one.
    pub archive: Option<Archive>,
    /// Threads that wait for the next commit.
    pub arrivals: Arrivals,
    /// Set when the log was opened or began a new file: a spare file should be ready before that one is full.
    pub wants_file: AtomicBool,
    /// Bytes of a group for which the log had no room. Back to 0 once a group at least as long found room, or the log got a
    /// new file.
    pub lacks_room: AtomicU64,
    /// The lsn below which the newest trim let the log drop files.
    pub trimmed_below: AtomicU64,
    /// Held while a manifest is written: one at a time, each newer than the last.
    pub manifest_writing: Mutex<()>,
    /// The open transactions.
    pub transactions: Registry,
}

/// Counts a thread as waiting for a commit for as long as this value lives.
pub(crate) struct Committer<'a>(&'a AtomicUsize);

impl<'a> Committer<'a> {
    pub fn of(shared: &'a Shared) -> Self {
        shared.committers.fetch_add(1, Ordering::Relaxed);
        Committer(&shared.committers)
    }
}

impl Drop for Committer<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Background work that is running or due.
#[derive(Default)]
pub(crate) struct Background {
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
    pub obsolete: Vec<Obsolete>,
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
    pub retries: BTreeMap<What, Retry>,
    /// Materializers at work on a table.
    pub deriving: BTreeSet<(TableId, &'static str)>,
    /// Materializers that wait for more rows, with the end of the wait on the machine's monotonic clock.
    pub pauses: BTreeMap<(TableId, &'static str), Duration>,
    /// Materializers whose output a caller waits for, with the state of the table at the newest such request.
    pub urgent: BTreeMap<(TableId, &'static str), Asked>,
    /// Lsn up to which a materializer has read a table and found nothing to change.
    pub unchanged: BTreeMap<(TableId, &'static str), Lsn>,
    /// Materializers that rebuild their output from the first row on.
    pub rebuild: BTreeSet<(TableId, &'static str)>,
    /// Tables whose old deleted rows are to be dropped once no running work retains rows there; until then no merge begins.
    pub forget_waits: BTreeSet<TableId>,
    /// Tables whose expired rows are being deleted.
    pub expiring: BTreeSet<TableId>,
    /// Time at which a table is next checked for expired rows.
    pub expire_due: BTreeMap<TableId, expire::Due>,
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
    pub leftovers: Vec<Leftover>,
    /// Errors that have kept such output from being removed so far.
    pub left: BTreeMap<(TableId, &'static str), Error>,
    /// Lsn of the root that was last checked for work of materializers.
    pub derive_looked: Lsn,
    /// The closed database's lock on its directory, held until the last pool thread has left the database.
    pub dir_lock: Option<Box<dyn Lock>>,
}

/// A piece of background work. Each runs at most once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Seals a table's head.
    Table(TableId),
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
    Cold(TableId),
}

/// The state of a table at some moment: its last commit, and the row id after its last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    pub lsn: Lsn,
    pub next_row: RowId,
}

impl Asked {
    pub fn of(table: &table::Snapshot) -> Self {
        Asked { lsn: table.lsn(), next_row: table.next_row() }
    }

    pub fn is_met_by(self, position: &Position) -> bool {
        self.lsn <= position.checkpoint.lsn && derive::has_rows(position, self.next_row)
    }
}

/// Output of a materializer for a table that is gone, kept until no reader holds it.
pub(crate) struct Leftover {
    pub materializer: Arc<dyn Materializer>,
    pub table: TableId,
    pub position: Option<Arc<Position>>,
    /// The lsn from which on no root has it.
    pub since: Lsn,
}

/// Back-off of work that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub delay: Duration,
    /// Time of the next attempt, on the machine's monotonic clock.
    pub due: Duration,
}

/// The first and the longest wait after a failure; in between each failure doubles the wait.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Background {
    /// Returns true if this work may begin: it is not running, and it is not backing off after a failure.
    pub fn may(&self, what: What, now: Duration) -> bool {
        !self.is_running(what) && self.retries.get(&what).is_none_or(|retry| retry.due <= now)
    }

    pub fn is_running(&self, what: What) -> bool {
        match what {
            What::Table(table) => self.sealing.contains(&table),
            What::Forget(table) => [&self.sealing, &self.merging, &self.evicting]
                .into_iter()
                .any(|at_work| at_work.contains(&table)),
            What::Compact(table) | What::Evict(table) => {
                self.merging.contains(&table) || self.evicting.contains(&table)
            }
            What::Manifest => self.manifest_running,
            What::Preallocate => self.preallocating,
            What::Derive(table, name) => self.deriving.contains(&(table, name)),
            What::Expire(table) => self.expiring.contains(&table),
            What::Cold(table) => {
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

    pub fn begin(&mut self, what: What) {
        match what {
            What::Table(table) => drop(self.sealing.insert(table)),
            What::Forget(table) => {
                self.sealing.insert(table);
                self.merging.insert(table);
            }
            What::Compact(table) => drop(self.merging.insert(table)),
            What::Manifest => self.manifest_running = true,
            What::Preallocate => self.preallocating = true,
            What::Derive(table, name) => drop(self.deriving.insert((table, name))),
            What::Expire(table) => drop(self.expiring.insert(table)),
            What::Evict(table) => drop(self.evicting.insert(table)),
            What::Cold(table) => {
                self.merging.insert(table);
                self.compressing = true;
            }
        }
    }

    pub fn end(&mut self, what: What) {
        match what {
            What::Table(table) => drop(self.sealing.remove(&table)),
            What::Forget(table) => {
                self.sealing.remove(&table);
                self.merging.remove(&table);
            }
            What::Compact(table) => drop(self.merging.remove(&table)),
            What::Manifest => self.manifest_running = false,
            What::Preallocate => self.preallocating = false,
            What::Derive(table, name) => drop(self.deriving.remove(&(table, name))),
            What::Expire(table) => drop(self.expiring.remove(&table)),
            What::Evict(table) => drop(self.evicting.remove(&table)),
            What::Cold(table) => {
                self.merging.remove(&table);
                self.compressing = false;
            }
        }
    }

    pub fn failed(&mut self, what: What, now: Duration) {
        let delay = self.retries.get(&what).map_or(RETRY_FIRST, |retry| (retry.delay * 2).min(RETRY_MAX));
        self.retries.insert(what, Retry { delay, due: now + delay });
    }
}

/// A replaced segment: no root from `since` on has it.
pub(crate) struct Obsolete {
    pub table: TableId,
    pub segment: Arc<table::Segment>,
    pub since: Lsn,
}

impl Shared {
    #[allow(clippy::too_many_arguments, reason = "called once, by open")]
    pub fn new(
        env: Env,
        dir: PathBuf,
        options: Options,
        root: Root,
        log: &commitlog::Writer,
        next_segment: SegmentId,
        manifest_lsn: Lsn,
        stepped: bool,
        archive: Option<Archive>,
    ) -> Self {
        let inbox = Inbox::new(options.inbox_len_max, options.inbox_bytes_max);
        let background =
            Background { compactable: root.tables().map(|t| t.def().id).collect(), ..Background::default() };
        let counters = Counters::default();
        counters.head_bytes.set(root.tables().map(|t| t.head_bytes()).sum());
        Shared {
            opened_at: root.lsn,
            env,
            dir,
            options,
            root: ArcSwap::from_pointee(root),
            inbox,
            committers: AtomicUsize::new(0),
            counters,
            syncer: log.syncer(),
            preallocator: log.preallocator(),
            background: Mutex::new(vfs::Rank::new(48, "engine background"), background),
            background_left: Condvar::new(),
            work: AtomicBool::new(true),
            closing: AtomicBool::new(false),
            write_error: ArcSwapOption::empty(),
            next_segment: AtomicU64::new(next_segment.0),
            manifest_lsn: AtomicU64::new(manifest_lsn.0),
            stepped,
            materializers: ArcSwap::default(),
            materializers_looked_at: AtomicBool::new(false),
            notes: ArcSwap::default(),
            archive,
            arrivals: Arrivals::default(),
            wants_file: AtomicBool::new(true),
            lacks_room: AtomicU64::new(0),
            trimmed_below: AtomicU64::new(0),
            manifest_writing: Mutex::new(vfs::Rank::new(46, "engine manifest"), ()),
            transactions: Registry::default(),
        }
    }

    /// Returns a segment id that was never used before.
    pub fn take_segment_id(&self) -> SegmentId {
        SegmentId(self.next_segment.fetch_add(1, Ordering::Relaxed))
    }

    pub fn next_segment(&self) -> SegmentId {
        SegmentId(self.next_segment.load(Ordering::Relaxed))
    }

    /// Lets the background pool look for work here.
    pub fn wake_background(&self) {
        if !self.work.swap(true, Ordering::AcqRel) && !self.stepped {
            pool::wake();
        }
    }

    /// Lets the background pool check the materializers, unless it is about to do so anyway.
    pub fn wake_materializers(&self) {
        if !self.materializers.load().is_empty() && !self.materializers_looked_at.swap(true, Ordering::AcqRel)
        {
            self.wake_background();
        }
    }

    /// Fails once the database is closing.
    pub fn check_open(&self) -> Result<()> {
        match self.closing.load(Ordering::Acquire) {
            true => Err(Error::new(Kind::Closed, "the database is closed or closing")),
            false => Ok(()),
        }
    }

    /// Fails once the database is closing or refuses writes for good.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.write_error.load().as_deref() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Refuses all writes from now on. If called again, the first error stays.
    pub fn refuse_writes(&self, error: Error) {
        let error = Arc::new(error);
        self.write_error.rcu(|old| old.clone().or_else(|| Some(error.clone())));
    }

    /// Bytes that were accepted and are not in a segment yet; ingest is paced by them.
    pub fn debt_bytes(&self) -> u64 {
        let (head, sealing) = (self.counters.head_bytes.get(), self.counters.sealing_bytes.get());
        self.inbox.bytes() + head.saturating_sub(sealing)
    }
}

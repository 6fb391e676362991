//! What the threads of one database share.

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
    /// What readers see. Stored by the commit thread alone.
    pub root: ArcSwap<Root>,
    pub inbox: Inbox,
    /// Threads that wait for a commit of theirs.
    pub committers: AtomicUsize,
    pub counters: Counters,
    pub syncer: commitlog::Syncer,
    pub preallocator: commitlog::Preallocator,
    pub background: Mutex<Background>,
    pub background_left: Condvar,
    /// Set when there may be background work; the pool looks at it.
    pub work: AtomicBool,
    pub closing: AtomicBool,
    /// Set once writes are refused for good: damage found at opening, or a latched log.
    pub write_error: ArcSwapOption<Error>,
    next_segment: AtomicU64,
    /// What recovery found: the newest commit before any of this process.
    pub opened_at: Lsn,
    /// The lsn of the newest durable manifest.
    pub manifest_lsn: AtomicU64,
    /// No thread runs: a simulator steps everything.
    pub stepped: bool,
    /// What derives something from tables.
    pub materializers: ArcSwap<Vec<Arc<dyn Materializer>>>,
    /// The background pool will look at the materializers soon, unasked.
    pub materializers_looked_at: AtomicBool,
    /// How far they have come, beside their positions.
    pub notes: ArcSwap<Notes>,
    /// Where the log is archived, if it is.
    pub archive: Option<Archive>,
    /// Who waits for a commit.
    pub arrivals: Arrivals,
    /// The log went on in a new file, or was opened: another one should be ready when that one is full.
    pub wants_file: AtomicBool,
    /// How long a group was for which the log had no room; 0 once one that long has found some, or the log got a new file.
    pub lacks_room: AtomicU64,
    /// What the newest trim was asked for.
    pub trimmed_below: AtomicU64,
    /// Held while a manifest is written: one at a time, each newer than the last.
    pub manifest_writing: Mutex<()>,
    /// Open ones.
    pub transactions: Registry,
}

/// A thread that waits for a commit, counted for as long as this lives.
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

/// What background work is under way or due.
#[derive(Default)]
pub(crate) struct Background {
    /// Tables whose head is being sealed, or whose past is being forgotten.
    pub sealing: BTreeSet<TableId>,
    /// Tables whose segments are being merged, or one of them compressed, or whose past is being forgotten. Beside a merge heads are
    /// sealed: it takes seconds, and a head that waits for it fills up meanwhile.
    pub merging: BTreeSet<TableId>,
    /// Tables whose segments may be worth compacting.
    pub compactable: BTreeSet<TableId>,
    /// How many live rows their segments had when they were looked at last.
    pub sealed_live: BTreeMap<TableId, u64>,
    /// Replaced segments whose files wait for the last reader and for a manifest at or above the lsn.
    pub obsolete: Vec<Obsolete>,
    /// Segments whose files are being removed.
    pub removing: Vec<(TableId, SegmentId)>,
    /// Since when one of them has waited for a manifest, on the machine's monotonic clock.
    pub obsolete_since: Option<Duration>,
    pub manifest_running: bool,
    /// Log bytes written when the newest manifest was made.
    pub manifest_log_bytes: u64,
    pub preallocating: bool,
    /// Pool threads inside this database.
    pub active: usize,
    /// Work that failed and waits before it is tried again.
    pub retries: BTreeMap<What, Retry>,
    /// Materializers at work on a table.
    pub deriving: BTreeSet<(TableId, &'static str)>,
    /// Materializers that wait for more rows, and until when, on the machine's monotonic clock.
    pub pauses: BTreeMap<(TableId, &'static str), Duration>,
    /// Materializers whose result somebody waits for, and as what the table was when that was asked for last.
    pub urgent: BTreeMap<(TableId, &'static str), Asked>,
    /// Tables that materializers have looked at and found unchanged, up to which lsn.
    pub unchanged: BTreeMap<(TableId, &'static str), Lsn>,
    /// Materializers that begin from nothing.
    pub rebuild: BTreeSet<(TableId, &'static str)>,
    /// Tables that are to forget something once nothing puts rows away there; until then no merge begins.
    pub forget_waits: BTreeSet<TableId>,
    /// Tables whose old rows are being deleted.
    pub expiring: BTreeSet<TableId>,
    /// When tables are looked at again for old rows.
    pub expire_due: BTreeMap<TableId, expire::Due>,
    /// Rows that ended are being erased, one erasure for each table.
    pub erasing: BTreeMap<TableId, Arc<Erasure>>,
    /// What begins when those have ended.
    pub erasing_next: BTreeMap<TableId, Arc<Erasure>>,
    /// Tables of which a segment is being evicted.
    pub evicting: BTreeSet<TableId>,
    /// When the next may be, on the machine's monotonic clock.
    pub evict_due: Duration,
    /// Segments that wait until the lake has written more.
    pub evict_waits: BTreeMap<TableId, Duration>,
    /// A segment is being compressed.
    pub compressing: bool,
    /// When the next may be, on the machine's monotonic clock.
    pub cold_due: Duration,
    /// Cold segments that compression would not make smaller.
    pub incompressible: BTreeSet<SegmentId>,
    /// What materializers keep of tables that are gone.
    pub leftovers: Vec<Leftover>,
    /// Why some of that could not be removed yet.
    pub left: BTreeMap<(TableId, &'static str), Error>,
    /// The root that was looked at last for work of materializers.
    pub derive_looked: Lsn,
    /// The closed database's hold on its directory, until the last pool thread has left it.
    pub dir_lock: Option<Box<dyn Lock>>,
}

/// A piece of background work of which there is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Seals a table's head.
    Table(TableId),
    /// Forgets some of a table's past. Beside it nothing puts rows away there: they would be older than what was forgotten.
    Forget(TableId),
    Manifest,
    Preallocate,
    Derive(TableId, &'static str),
    Expire(TableId),
    /// Compacts segments of a table. Beside it heads are sealed, and its failure keeps none from that.
    Compact(TableId),
    /// Lets go of a segment's rows, which the lake has. Beside it heads are sealed: a store elsewhere may be slow.
    Evict(TableId),
    /// Compresses a segment of a table, in one table at a time.
    Cold(TableId),
}

/// A table as it was: after a commit, and with all rows below one.
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

/// What a materializer keeps of a table that is gone, until nobody reads it.
pub(crate) struct Leftover {
    pub materializer: Arc<dyn Materializer>,
    pub table: TableId,
    pub position: Option<Arc<Position>>,
    /// From this lsn on no root has it.
    pub since: Lsn,
}

/// When failed work is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub delay: Duration,
    /// On the machine's monotonic clock.
    pub due: Duration,
}

/// How long work that failed waits: first, and at most; in between it doubles.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Background {
    /// Whether this work may be begun: nobody is at it, and it does not wait after a failure.
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

    /// Whether an erasure has segments of a table to write anew: nothing else begins to.
    pub fn is_being_erased(&self, table: TableId) -> bool {
        self.erasing.get(&table).is_some_and(|erasure| erasure.is_at_segments())
    }

    /// Whether anything is under way for the materializer of this name.
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

/// A segment that no newer root has.
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

    /// A segment id that nobody had before.
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

    /// Lets the background pool look at the materializers, unless it will soon.
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

    /// Refuses all writes from now on. The first reason stays.
    pub fn refuse_writes(&self, error: Error) {
        let error = Arc::new(error);
        self.write_error.rcu(|old| old.clone().or_else(|| Some(error.clone())));
    }

    /// Bytes that were accepted and are not in segments yet: what ingest is paced by.
    pub fn debt_bytes(&self) -> u64 {
        let (head, sealing) = (self.counters.head_bytes.get(), self.counters.sealing_bytes.get());
        self.inbox.bytes() + head.saturating_sub(sealing)
    }
}

//! State that the threads of one database share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use table::materializer::Materializer;
use types::{Error, Kind, Lsn, Result, SegmentId};
use vfs::{Condvar, Env, Mutex};

use crate::archive::Archive;
use crate::background::state::BackgroundState;
use crate::commit_waiters::CommitWaiters;
use crate::counters::Counters;
use crate::database_root::DatabaseRoot;
use crate::inbox::Inbox;
use crate::interactive::Registry;
use crate::materializer_progress::MaterializerNotes;
use crate::options::Options;
use crate::pool;

pub(crate) struct Shared {
    pub env: Env,
    pub dir: PathBuf,
    pub options: Options,
    /// The root that readers load. Only the commit thread stores it.
    pub root: ArcSwap<DatabaseRoot>,
    pub inbox: Inbox,
    /// Number of threads that wait for a commit of their own.
    pub waiting_writers: AtomicUsize,
    pub counters: Counters,
    pub syncer: commitlog::Syncer,
    pub preallocator: commitlog::Preallocator,
    pub background: Mutex<BackgroundState>,
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
    pub notes: ArcSwap<MaterializerNotes>,
    /// The archive of the log, if there is one.
    pub archive: Option<Archive>,
    /// Threads that wait for the next commit.
    pub commit_waiters: CommitWaiters,
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
pub(crate) struct WaitingWriter<'a>(&'a AtomicUsize);

impl<'a> WaitingWriter<'a> {
    pub fn of(shared: &'a Shared) -> Self {
        shared.waiting_writers.fetch_add(1, Ordering::Relaxed);
        WaitingWriter(&shared.waiting_writers)
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    #[allow(clippy::too_many_arguments, reason = "called once, by open")]
    pub fn new(
        env: Env,
        dir: PathBuf,
        options: Options,
        root: DatabaseRoot,
        log: &commitlog::Writer,
        next_segment: SegmentId,
        manifest_lsn: Lsn,
        stepped: bool,
        archive: Option<Archive>,
    ) -> Self {
        let inbox = Inbox::new(options.inbox_len_max, options.inbox_bytes_max);
        let background = BackgroundState {
            compactable: root.tables().map(|t| t.def().id).collect(),
            ..BackgroundState::default()
        };
        let counters = Counters::default();
        counters.head_bytes.set(root.tables().map(|t| t.head_bytes()).sum());
        Shared {
            opened_at: root.lsn,
            env,
            dir,
            options,
            root: ArcSwap::from_pointee(root),
            inbox,
            waiting_writers: AtomicUsize::new(0),
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
            commit_waiters: CommitWaiters::default(),
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
        if self.closing.load(Ordering::Acquire) {
            Err(Error::new(Kind::Closed, "the database is closed or closing"))
        } else {
            Ok(())
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

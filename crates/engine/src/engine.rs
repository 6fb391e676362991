//! The handle on an open database, and its threads.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use commitlog::edit::ApiKey;
use table::materializer::Materializer;
use types::{Error, Kind, Lsn, Principal, Result, TableId, name};
use vfs::{Env, Lock, Mutex, Rank};

use crate::archive::{self, Archive};
use crate::background;
use crate::background::state::{BackgroundJob, CatchUpTarget};
use crate::backup::{self, Backup, Progress};
use crate::core::Core;
use crate::counters::Status;
use crate::database_root::DatabaseRoot;
use crate::derive;
use crate::erase;
use crate::group_commit::GroupCommit;
use crate::inbox::{CommitCallback, Request};
use crate::open;
use crate::options::Options;
use crate::pool;
use crate::prepare::{self, Prepared};
use crate::root_reaper;
use crate::shared_state::{Shared, WaitingWriter};
use crate::threads::Class;
use crate::transaction::{Ack, Committed, Mode, Op, Transaction};
use crate::view::View;

/// A handle on an open database. Clones share the database; dropping the last one closes it.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// Bytes of unacknowledged commits that recovery cut off the end of the log ([`commitlog::Recovery::torn_bytes`]).
    torn_bytes: u64,
    /// The threads and the directory lock; taken by the first call of `close`.
    running: Mutex<Option<Running>>,
    /// The holder of the core in a database with threads; `None` in a stepped database.
    group_commit: Option<Arc<GroupCommit>>,
    /// The core of a database without threads.
    stepped: Mutex<Option<Core>>,
    /// The archiver of a database without threads.
    stepped_archive: Mutex<Option<archive::ArchiveWriter>>,
}

struct Running {
    threads: Option<Threads>,
    /// Keeps other processes out.
    lock: Box<dyn Lock>,
}

struct Threads {
    commit: JoinHandle<Option<Core>>,
    sync: JoinHandle<()>,
    group_commit: Arc<GroupCommit>,
    /// Receives a message when the archive's thread has ended.
    archive: Option<mpsc::Receiver<()>>,
}

/// One step of a database without threads, for a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes the queued requests as one group.
    Commit,
    /// Syncs the written frames, publishes the root and answers the writers.
    Sync,
    /// Does one piece of background work; its result waits for the next commit.
    Background,
    /// Copies one piece of the log to the archive.
    Archive,
}

/// Longest time that closing waits for background work before it goes on without it.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

impl Engine {
    /// Opens the database in `dir`, creates it if there is none, and recovers the acknowledged commits (L1, L2).
    ///
    /// Fails with [`Kind::InUse`] while another process has it open, with [`Kind::Newer`] if a newer version wrote it. A
    /// damaged log is not an error here: the recovered part serves reads, writes are refused, and [`Status::write_error`]
    /// names the place of the damage.
    pub fn open(env: Env, dir: &Path, options: Options) -> Result<Engine> {
        Self::open_with(env, dir, options, false)
    }

    /// Opens the database like [`Engine::open`] but starts no thread: it advances only by [`Engine::step`]. For simulators.
    pub fn open_stepped(env: Env, dir: &Path, options: Options) -> Result<Engine> {
        Self::open_with(env, dir, options, true)
    }

    fn open_with(env: Env, dir: &Path, options: Options, stepped: bool) -> Result<Engine> {
        let failed = |what: &str, e| Error::io(format!("{what} {}", dir.display()), e);
        open::make_dir(&env, dir).map_err(|e| failed("making the directory", e))?;
        let lock = env.disk.lock(&dir.join("LOCK")).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => {
                Error::new(Kind::InUse, format!("{} is open in another process", dir.display()))
                    .hint("talk to that process, or stop it first")
            }
            _ => failed("locking", e),
        })?;
        let opened = open::open(&env, dir, &options)?;
        let archive = Archive::open(&env, dir, &options)?;
        let shared = Arc::new(Shared::new(
            env,
            dir.to_owned(),
            options,
            opened.root,
            &opened.log,
            opened.next_segment,
            opened.manifest_lsn,
            stepped,
            archive,
        ));
        if let Some(damage) = opened.damage {
            shared.refuse_writes(damage);
        }
        let core = Core::new(shared.clone(), opened.log, opened.tips, opened.meta);
        let (threads, core) =
            if stepped { (None, Some(core)) } else { (Some(Threads::start(&shared, core)?), None) };
        let writer = (stepped && shared.archive.is_some()).then(|| archive::ArchiveWriter::new(&shared));
        let group_commit = threads.as_ref().map(|threads: &Threads| threads.group_commit.clone());
        let running = Running { threads, lock };
        Ok(Engine(Arc::new(Inner {
            shared,
            torn_bytes: opened.torn_bytes,
            group_commit,
            running: Mutex::new(Rank::new(44, "engine running"), Some(running)),
            stepped: Mutex::new(Rank::new(45, "engine core"), core),
            stepped_archive: Mutex::new(Rank::new(43, "engine archive keeper"), writer),
        })))
    }

    /// Returns the newest published root: one atomic load that never waits (R1). After the database closed, this is the last
    /// one.
    pub fn root(&self) -> Arc<DatabaseRoot> {
        self.0.shared.root.load_full()
    }

    /// Returns the newest root as `principal` may see it. Fails with [`Kind::Closed`] once the database is closing. A view
    /// that was taken earlier stays readable, because it keeps its files mapped.
    pub fn view(&self, principal: &Principal) -> Result<View> {
        self.0.shared.check_open()?;
        View::new(self.root(), principal)
    }

    /// Returns a view of a root that was taken earlier; otherwise like [`Engine::view`].
    pub fn view_of(&self, root: Arc<DatabaseRoot>, principal: &Principal) -> Result<View> {
        self.0.shared.check_open()?;
        View::new(root, principal)
    }

    /// Waits until a commit after `after` can be read, for at most `timeout`. Returns false if none came. A thread that
    /// serves readers must not call it. Fails with [`Kind::Closed`] once the database is closing.
    pub fn wait_for_commit(&self, after: Lsn, timeout: Duration) -> Result<bool> {
        let shared = &self.0.shared;
        let is_there = || shared.root.load().lsn() > after;
        shared.commit_waiters.wait(timeout, || is_there() || shared.check_open().is_err());
        if is_there() { Ok(true) } else { shared.check_open().map(|()| false) }
    }

    pub fn keys(&self) -> Vec<ApiKey> {
        self.root().keys().to_vec()
    }

    /// Prepares a transaction in this thread and queues it. `done` is called once: before this returns, or by the commit
    /// thread, which it must not block. If the commit thread panics, the callbacks of its current group are dropped without
    /// being called, and all others get [`Kind::Latched`].
    ///
    /// [`Kind::Busy`] asks the caller to try again later, [`Kind::Conflict`] to read again and retry, [`Kind::DiskFull`] to
    /// wait for room. [`Kind::Latched`] and [`Kind::Damaged`] last until the database is reopened.
    pub fn submit(
        &self,
        principal: &Principal,
        transaction: Transaction,
        done: impl FnOnce(Result<Committed>) + Send + 'static,
    ) {
        self.submit_at(&self.shared().root.load_full(), principal, transaction, done);
    }

    /// Submits a transaction that follows from rows read in `view`: a name in it means the table that the view shows under
    /// that name. Fails with [`Kind::Conflict`] if a table that it writes was replaced since by another one of the same
    /// name, or if its columns have changed.
    pub fn submit_read(
        &self,
        view: &View,
        principal: &Principal,
        transaction: Transaction,
        done: impl FnOnce(Result<Committed>) + Send + 'static,
    ) {
        match self.root_for(view, &transaction) {
            Ok(root) => self.submit_at(&root, principal, transaction, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Chooses the root against which a transaction made from `view` is prepared. The newest root is taken if the written
    /// tables are unchanged in it, or if inserted rows mean the same there; little is then left for the commit thread to
    /// check again. Otherwise it is the view's own root, and the commit refuses the transaction.
    fn root_for(&self, view: &View, transaction: &Transaction) -> Result<Arc<DatabaseRoot>> {
        let Some(read) = view.present() else {
            return Err(Error::invalid("rows are written to the present, not to an earlier point"));
        };
        let newest = self.shared().root.load_full();
        let is_same = |op: &Op| {
            let Some(table) = op.table().map(name::qualified) else { return true };
            let (then, now) = match (read.table(&table), newest.table(&table)) {
                (Some(then), Some(now)) => (then.def(), now.def()),
                (then, now) => return then.is_none() && now.is_none(),
            };
            let is_altered = then.schema.version != now.schema.version;
            then.id == now.id
                && match op {
                    // New rows name the columns that they have values for; the others get their defaults.
                    Op::Insert { batch, mode, .. }
                        if is_altered && !matches!(mode, Mode::CompareAndSet(_)) =>
                    {
                        then.schema.resolves_alike(&now.schema, batch.schema_ref())
                    }
                    _ => !is_altered,
                }
        };
        if Arc::ptr_eq(read, &newest) || transaction.ops.iter().all(is_same) {
            Ok(newest)
        } else {
            Ok(read.clone())
        }
    }

    fn submit_at(
        &self,
        root: &Arc<DatabaseRoot>,
        principal: &Principal,
        transaction: Transaction,
        done: impl FnOnce(Result<Committed>) + Send + 'static,
    ) {
        let ack = transaction.ack;
        let prepared = match self.prepare(root, principal, transaction) {
            Ok(prepared) => prepared,
            Err(error) => return done(Err(error)),
        };
        match ack {
            Ack::Durable => self.queue(prepared, Box::new(done)),
            // While the log has no room, an answer from memory would promise a write that is then lost. This writer waits
            // for the outcome instead, which also shows when there is room again.
            Ack::Memory if self.lacks_room() => self.queue(prepared, Box::new(done)),
            Ack::Memory => match self.push(prepared, Box::new(|_| ())) {
                Ok(()) => done(Ok(Committed::default())),
                Err((_, error)) => done(Err(error)),
            },
        }
    }

    /// Submits a transaction and waits for the answer. If the transaction is small and the commit thread is asleep, the
    /// caller's own thread commits it. A thread that serves readers must not call it.
    pub fn commit(&self, principal: &Principal, transaction: Transaction) -> Result<Committed> {
        self.commit_at(&self.shared().root.load_full(), principal, transaction)
    }

    /// Submits like [`Engine::submit_read`] and waits for the answer, like [`Engine::commit`].
    pub fn commit_read(
        &self,
        view: &View,
        principal: &Principal,
        transaction: Transaction,
    ) -> Result<Committed> {
        self.commit_at(&self.root_for(view, &transaction)?, principal, transaction)
    }

    fn commit_at(
        &self,
        root: &Arc<DatabaseRoot>,
        principal: &Principal,
        transaction: Transaction,
    ) -> Result<Committed> {
        assert!(!self.0.shared.stepped, "a database without threads answers only when it is stepped");
        let (sender, receiver) = mpsc::channel();
        let done = move |result| {
            // The receiver is alive: it waits below.
            let _ = sender.send(result);
        };
        // Counts this thread as waiting until it has its answer.
        let _waits;
        if transaction.ack == Ack::Memory {
            self.submit_at(root, principal, transaction, done);
        } else {
            let prepared = self.prepare(root, principal, transaction)?;
            _waits = WaitingWriter::of(&self.0.shared);
            let request = Request::Write { prepared, done: Box::new(done) };
            let left = match &self.0.group_commit {
                Some(group_commit) => group_commit.commit_here(request),
                None => Some(request),
            };
            if let Some(Request::Write { prepared, done }) = left {
                self.queue(prepared, done);
            }
        }
        receiver.recv().unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
    }

    fn prepare(
        &self,
        root: &Arc<DatabaseRoot>,
        principal: &Principal,
        transaction: Transaction,
    ) -> Result<Prepared> {
        self.admit()?;
        let shared = &self.0.shared;
        let newest = shared.root.load();
        for op in &transaction.ops {
            if let Op::Insert { table, .. } | Op::Update { table, .. } = op {
                self.check_lag(&newest, table)?;
            }
        }
        let materializers = shared.materializers.load();
        prepare::prepare(root, principal, &materializers, shared.options.unique_at_once_rows, transaction)
    }

    /// Hands a prepared transaction to the commit thread, or refuses it.
    fn queue(&self, prepared: Prepared, done: CommitCallback) {
        if let Err((request, error)) = self.push(prepared, done) {
            request.refuse(error);
        }
    }

    fn push(&self, prepared: Prepared, done: CommitCallback) -> std::result::Result<(), (Request, Error)> {
        let shared = &self.0.shared;
        let pushed = shared.inbox.push(Request::Write { prepared, done });
        if let Err((_, error)) = &pushed
            && error.kind() == Kind::Busy
        {
            shared.counters.refused_inbox.add(1);
        }
        pushed
    }

    /// Queues a transaction that is already prepared. `tables` names the tables into which it inserts rows.
    pub(crate) fn submit_prepared(
        &self,
        tables: &[String],
        prepared: Prepared,
        done: impl FnOnce(Result<Committed>) + Send + 'static,
    ) {
        let shared = &self.0.shared;
        let root = shared.root.load_full();
        let admitted =
            self.admit().and_then(|()| tables.iter().try_for_each(|table| self.check_lag(&root, table)));
        if let Err(error) = admitted {
            return done(Err(error));
        }
        self.queue(prepared, Box::new(done));
    }

    fn admit(&self) -> Result<()> {
        let shared = &self.0.shared;
        shared.check_writable()?;
        if shared.debt_bytes() >= shared.options.debt_hard_bytes {
            shared.counters.refused_debt.add(1);
            shared.wake_background();
            return Err(Error::new(Kind::Busy, "more was written than could be sealed so far")
                .hint("send it again a little later"));
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    pub(crate) fn shared_weak(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0.shared)
    }

    /// Lets a materializer follow the tables that it wants, from now on. The output of an earlier process is opened in the
    /// background; until then [`DatabaseRoot::derived`] returns nothing for it.
    pub fn register(&self, materializer: Arc<dyn Materializer>) -> Result<()> {
        let shared = &self.0.shared;
        shared.check_open()?;
        let orphans = derive::orphans(shared, &materializer)?;
        if materializer.is_remote() && !shared.stepped {
            pool::add_thread().map_err(|e| Error::io("starting a thread", e))?;
        }
        shared.materializers.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(materializer.clone());
            all
        });
        shared.background.lock().obsolete_outputs.extend(orphans);
        // A remote materializer may be unreachable: the server starts without waiting for it.
        if materializer.stores_evicted_rows() && !materializer.is_remote() && !shared.stepped {
            derive::open_evicted(shared, &materializer);
        }
        shared.wake_background();
        Ok(())
    }

    /// Lets a materializer take in all rows that a table has now, without waiting for more rows or for the back-off after a
    /// failure. [`DatabaseRoot::derived`] shows its progress.
    pub fn hurry(&self, materializer: &'static str, table: TableId) {
        let root = self.0.shared.root.load_full();
        let Some(now) =
            root.tables().find(|snapshot| snapshot.def().id == table).map(|now| CatchUpTarget::of(now))
        else {
            return;
        };
        let mut background = self.0.shared.background.lock();
        let asked = background.urgent.entry((table, materializer)).or_insert(now);
        *asked = now.max(*asked);
        if let Some(retry) = background.retries.get_mut(&BackgroundJob::Derive(table, materializer)) {
            retry.due = Duration::ZERO;
        }
        drop(background);
        self.0.shared.wake_background();
    }

    /// Lets a materializer rebuild its output for a table. Called when that was found missing.
    pub fn rebuild(&self, materializer: &'static str, table: TableId) {
        self.0.shared.background.lock().rebuild.insert((table, materializer));
        self.hurry(materializer, table);
    }

    /// Returns the time that an ingest request should wait before it is admitted, so that writers slow down before they are
    /// refused. Zero while the debt is small. Takes no lock.
    pub fn pace(&self) -> Duration {
        let shared = &self.0.shared;
        let (soft, hard) = (shared.options.debt_soft_bytes, shared.options.debt_hard_bytes);
        let debt = shared.debt_bytes();
        if debt <= soft || hard <= soft {
            return Duration::ZERO;
        }
        let excess = ((debt - soft) as f64 / (hard - soft) as f64).min(1.0);
        shared.options.pace_max.mul_f64(excess * excess)
    }

    /// Returns true if the log had no room for the last write. The next write finds out whether it has room by then.
    pub fn lacks_room(&self) -> bool {
        self.0.shared.lacks_room.load(Ordering::Relaxed) > 0
    }

    pub fn status(&self) -> Status {
        let shared = &self.0.shared;
        let counters = &shared.counters;
        let root = shared.root.load();
        let (roots_retired, oldest) = root_reaper::held();
        let now = shared.env.clock.monotonic();
        Status {
            lsn: root.lsn(),
            tables: root.table_count(),
            commits: counters.commits.get(),
            groups: counters.groups.get(),
            rows: counters.rows.get(),
            deletes: counters.deletes.get(),
            refused: counters.refused(),
            conflicts: counters.conflicts.get(),
            inbox_bytes: shared.inbox.bytes(),
            head_bytes: counters.head_bytes.get(),
            debt_bytes: shared.debt_bytes(),
            debt_soft_bytes: shared.options.debt_soft_bytes,
            debt_hard_bytes: shared.options.debt_hard_bytes,
            roots_retired,
            oldest_root_age: oldest.map_or(Duration::ZERO, |made| now.saturating_sub(made)),
            held_bytes: counters.held_bytes.get(),
            seals: counters.seals.get(),
            compactions: counters.compactions.get(),
            compressions: counters.compressions.get(),
            evictions: counters.evictions.get(),
            manifests: counters.manifests.get(),
            forgotten: counters.forgotten.get(),
            past_bytes: root.tables().map(|table| table.past_bytes()).sum(),
            background_bytes: counters.background_bytes.get(),
            background_errors: counters.background_errors.get(),
            removed_segments: counters.removed_segments.get(),
            transactions_open: shared.transactions.open_count(),
            transactions_bytes: shared.transactions.bytes(),
            transactions_expired: shared.transactions.expired_count(),
            archive: shared.archive.as_ref().map(|a| a.status(shared.syncer.stats().archive_files)),
            log: shared.syncer.stats(),
            read_major_faults: vfs::read_major_faults(),
            write_error: shared.write_error.load().as_deref().cloned(),
            closing: shared.closing.load(Ordering::Acquire),
        }
    }

    /// Takes a backup of the database as it is now into the folder `dest`, which must be empty or absent. Runs in the
    /// calling thread while reads and writes go on. [`backup::restore`](crate::backup::restore()) turns the backup into a
    /// database directory again.
    ///
    /// `progress` is called after every step, of a few MiB at most; an error from it ends the backup. Fails with
    /// [`Kind::Exists`] if `dest` is not empty, with [`Kind::Damaged`] if a file of the database is damaged. After a failure
    /// the files written so far are removed.
    /// failure what was written is removed.
    pub fn backup(&self, dest: &Path, progress: &mut dyn FnMut(Progress) -> Result<()>) -> Result<Backup> {
        backup::take(&self.0.shared, dest, progress)
    }

    /// Takes a backup like [`Engine::backup`], but sends it to a store that is not a folder. After a failure the sent files
    /// stay there without forming a backup, and the next attempt does not send them again.
    pub fn send_backup(
        &self,
        store: &dyn backup::BackupStore,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<backup::SentBackup> {
        backup::send(&self.0.shared, store, progress)
    }

    /// The lsn of the newest commit that recovery found at opening, commits of background work included.
    pub fn opened_at(&self) -> Lsn {
        self.0.shared.opened_at
    }

    /// Bytes of unacknowledged commits that opening cut off the end of the log; a crash leaves them there.
    pub fn torn_bytes(&self) -> u64 {
        self.0.torn_bytes
    }

    /// The directory of the database.
    pub fn dir(&self) -> &Path {
        &self.0.shared.dir
    }

    /// The files, clock and randomness with which the database was opened.
    pub fn env(&self) -> &Env {
        &self.0.shared.env
    }

    /// Does one step of a database that was opened without threads. Returns false if there was nothing to do.
    pub fn step(&self, step: Step) -> bool {
        let mut stepped = self.0.stepped.lock();
        let core = stepped.as_mut().expect("opened by `open_stepped` and not closed");
        let shared = &self.0.shared;
        match step {
            Step::Commit => {
                let taken = shared.inbox.take(shared.options.group_bytes_max);
                let any = !taken.requests.is_empty();
                core.step(taken) || any
            }
            Step::Sync => {
                if !core.syncing() {
                    return false;
                }
                shared.inbox.synced(shared.syncer.sync());
                core.step(shared.inbox.take_synced());
                true
            }
            Step::Archive => {
                drop(stepped);
                let mut writer = self.0.stepped_archive.lock();
                match (writer.as_mut(), &shared.archive) {
                    (Some(writer), Some(archive)) => writer.step(shared, archive).unwrap_or(false),
                    _ => false,
                }
            }
            Step::Background => {
                drop(stepped);
                shared.work.store(false, Ordering::Release);
                background::step(shared) == background::StepOutcome::Worked
            }
        }
    }

    /// Refuses new writes, finishes the admitted ones, writes a manifest so that the next opening is quick, and ends all
    /// threads. Waits about 2 s at most for background work; work that takes longer keeps the directory locked until it
    /// ends. Later calls do nothing, also on clones. Called inside a commit's callback, it returns at once and the database
    /// closes a little later.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        let Some(running) = self.running.lock().take() else { return Ok(()) };
        let core = self.stepped.lock().take();
        let shared = self.shared.clone();
        if running.threads.as_ref().is_some_and(|threads| !threads.is_current()) {
            background::await_short_log(&shared, CLOSE_PATIENCE);
        }
        shared.closing.store(true, Ordering::Release);
        erase::close(&mut shared.background.lock());
        shared.transactions.close();
        shared.commit_waiters.notify();
        shared.preallocator.stop();
        if running.threads.as_ref().is_some_and(Threads::is_current) {
            // The commit thread cannot wait for its own end: the last handle was dropped inside a callback.
            let closing = move || drop(close(&shared, running, core));
            let spawned = Class::Background.spawn("pn-close", closing);
            return spawned
                .map(drop)
                .map_err(|e| Error::io("starting the thread that closes the database", e));
        }
        close(&shared, running, core)
    }
}

fn close(shared: &Arc<Shared>, running: Running, core: Option<Core>) -> Result<()> {
    if !shared.stepped {
        pool::leave(shared);
    }
    // Background work sees the flag at its next tick; edits that it hands over until then are still taken.
    let deadline = Instant::now() + CLOSE_PATIENCE;
    let mut background = shared.background.lock();
    while background.active > 0 && Instant::now() < deadline {
        shared.background_left.wait_for(&mut background, Duration::from_millis(50));
    }
    drop(background);
    shared.inbox.close();
    let core = match running.threads {
        Some(mut threads) => {
            let archived = threads.archive.take();
            let core = threads.join();
            // The archive's thread stays if its folder hangs. It then only reads files, which does no harm.
            if let (Some(archive), Some(archived)) = (&shared.archive, archived) {
                archive.end();
                let _ = archived.recv_timeout(CLOSE_PATIENCE);
            }
            core
        }
        None => core,
    };
    let result = match core {
        Some(core) if shared.write_error.load().is_none() => {
            background::write_manifest(shared).and_then(|below| core.close(below))
        }
        _ => Ok(()),
    };
    let mut background = shared.background.lock();
    if background.active > 0 {
        // The pool thread that leaves last releases the lock.
        background.dir_lock = Some(running.lock);
        return result;
    }
    drop(background);
    drop(running.lock);
    result
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Dropping a database without threads acts like a crash, as a simulator needs it.
        if !self.shared.stepped {
            let _ = self.close();
        }
    }
}

impl Threads {
    fn start(shared: &Arc<Shared>, core: Core) -> Result<Threads> {
        let failed = |e| Error::io("starting a thread", e);
        let group_commit = Arc::new(GroupCommit::new(shared.clone(), core));
        let sync = {
            let group_commit = group_commit.clone();
            Class::Interactive.spawn("pn-sync", move || group_commit.run_sync()).map_err(failed)?
        };
        let commit = {
            let group_commit = group_commit.clone();
            Class::Interactive.spawn("pn-commit", move || group_commit.run_commit()).map_err(failed)?
        };
        let archive =
            if shared.archive.is_some() { Some(start_archive(shared).map_err(failed)?) } else { None };
        pool::join(shared).map_err(failed)?;
        Ok(Threads { commit, sync, group_commit, archive })
    }

    /// Returns true if the caller is one of these threads.
    fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        [self.commit.thread().id(), self.sync.thread().id()].contains(&current)
    }

    fn join(self) -> Option<Core> {
        let core = self.commit.join().ok().flatten();
        self.group_commit.end_sync();
        // The result is ignored: a panic of the sync thread leaves nothing to do.
        let _ = self.sync.join();
        core
    }
}

fn start_archive(shared: &Arc<Shared>) -> std::io::Result<mpsc::Receiver<()>> {
    let (ended, receiver) = mpsc::channel();
    let shared = shared.clone();
    // The keeper must exist before the log is trimmed for the first time.
    let writer = archive::ArchiveWriter::new(&shared);
    Class::Background.spawn("pn-archive", move || {
        if let Some(archive) = &shared.archive {
            archive::run(&shared, archive, writer);
        }
        // The send fails if the closing thread no longer waits, which is fine.
        let _ = ended.send(());
    })?;
    Ok(receiver)
}

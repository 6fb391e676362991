//! The door: one statement in, rows or what was done out.

mod jobs;
mod lanes;
mod statement;
#[cfg(test)]
mod tests;

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::TrackConsumersPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::sql::sqlparser::ast::Statement;
use dialect::error::from_datafusion;
use dialect::execution::cancel::{Cancel, CancelOnDrop, Hold};
use dialect::execution::interrupt;
use dialect::values::params::Params;
use engine::{Engine, OpenTransaction, View};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use types::{Error, Kind, Principal, Result, Scope, Value};

use crate::answer::{Answer, Rows};
use crate::deadline::{Deadline, Phase};
use crate::direct::Caller;
use crate::files;
use crate::memory::Pool;
use crate::options::{Limits, Options};
use crate::planner::Planner;
use crate::prepared::{Inferred, Lookup};
use crate::watchdog::{GRACE, Reply, Watchdog, Why};

use lanes::{Lanes, Runtimes};
use statement::Job;

/// How DataFusion calls the directories that it makes for spill files.
const SPILL_PREFIX: &str = "datafusion-";
/// A longer text is no light statement's.
const LIGHT_TEXT_BYTES: usize = 1 << 10;
/// Light statements that run or are being read. A further one goes among the heavy ones, whose queue is bounded too.
const LIGHT_PLACES: usize = 256;
/// Statements that wait to be planned: each takes a millisecond or so.
const SHORT_WAITING_MAX: usize = 1_024;
/// Beside the memory for sorts, joins and groupings of heavy statements, an eighth as much is theirs alone: what heavy ones
/// hold delays none. Not out of it: a sort that spills in a small pool needs all of that.
const LIGHT_SHARE: usize = 8;

/// SQL over an engine. Cheap to clone; all clones share threads, memory and limits.
#[derive(Clone)]
pub struct Sql(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
    runtimes: vfs::Mutex<Option<Runtimes>>,
    watchdog: Watchdog,
}

struct Shared {
    engine: Engine,
    closed: Arc<AtomicBool>,
    planner: Planner,
    options: Options,
    lanes: Lanes,
    light_places: Arc<Semaphore>,
    /// Of statements with a short text that are parsed and planned, and of the others.
    planning_short: Queue,
    planning: Queue,
    /// Of heavy statements that execute.
    executing: Queue,
    running: Arc<AtomicUsize>,
    started: AtomicU64,
    direct: AtomicU64,
    heavy: AtomicU64,
    refused: AtomicU64,
}

/// Counters for `/metrics`; read without a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Statements that are planned or execute: those whose reader is slow included, and those that were answered with a
    /// timeout while a thread still works for them.
    pub running: usize,
    /// How long ago the oldest of them began, those that wait included: what it reads stands still since then, and the files
    /// that it may read stay.
    pub oldest: Duration,
    /// Statements that wait for others to be planned, and heavy ones that wait for one of their kind to end.
    pub waiting: usize,
    /// Statements since the start.
    pub started: u64,
    /// Of those, lookups that needed no plan.
    pub direct: u64,
    /// Of those that started, the ones that were no light work.
    pub heavy: u64,
    /// Statements that were refused with `Busy`.
    pub refused: u64,
    /// Bytes that sorts, joins and groupings hold.
    pub memory_bytes: usize,
    /// Bytes of spill files.
    pub spilled_bytes: u64,
}

/// One statement as it comes in.
struct Asked<'a> {
    principal: Principal,
    /// What it reads, and then it writes only into `transaction`; `None`: the newest that its principal may see.
    view: Option<View>,
    transaction: Option<OpenTransaction>,
    text: &'a str,
    /// `text`, if it was parsed before.
    parsed: Option<Arc<Statement>>,
    /// Whether it was found to be no lookup, or too large a one.
    is_planned: bool,
    params: Vec<Value>,
    limits: Limits,
    /// The longest deadline, if not that of all statements.
    longest: Option<Duration>,
}

impl<'a> Asked<'a> {
    fn of(principal: &Principal, text: &'a str, params: Vec<Value>, limits: Limits) -> Self {
        Asked {
            principal: principal.clone(),
            view: None,
            transaction: None,
            text,
            parsed: None,
            is_planned: false,
            params,
            limits,
            longest: None,
        }
    }
}

impl Sql {
    /// Starts the threads. Fails if they cannot be started or the options contradict each other.
    pub fn new(engine: Engine, options: Options) -> Result<Sql> {
        prepare_spill_dir(&options.spill_dir)?;
        let pool = |bytes_max| {
            let consumers = std::num::NonZeroUsize::new(3).expect("3 is not 0");
            Arc::new(TrackConsumersPool::new(Pool::new(bytes_max), consumers))
        };
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![options.spill_dir.clone()]))
            .with_max_temp_directory_size(options.spill_bytes_max);
        let heavy = RuntimeEnvBuilder::new()
            .with_memory_pool(pool(options.memory_bytes))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(from_datafusion)?;
        // The same files and the same bound of them.
        let light = Arc::new(RuntimeEnv {
            memory_pool: pool(options.memory_bytes / LIGHT_SHARE),
            ..RuntimeEnv::clone(&heavy)
        });
        interrupt::inherit();
        let runtimes = Runtimes::start(options.threads.max(1))?;
        let closed = Arc::new(AtomicBool::new(false));
        let shared = Shared {
            planner: Planner::new(engine.clone(), &options, light, heavy),
            engine,
            closed: closed.clone(),
            lanes: runtimes.lanes(),
            light_places: Arc::new(Semaphore::new(LIGHT_PLACES)),
            planning_short: Queue::new(options.threads, SHORT_WAITING_MAX),
            planning: Queue::new(options.threads, options.waiting_max),
            executing: Queue::new(options.concurrent_max, options.waiting_max),
            options,
            running: Arc::default(),
            started: AtomicU64::new(0),
            direct: AtomicU64::new(0),
            heavy: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Ok(Sql(Arc::new(Handle {
            shared: Arc::new(shared),
            closed,
            runtimes: vfs::Mutex::new(vfs::Rank::new(30, "sql threads"), Some(runtimes)),
            watchdog: Watchdog::start()?,
        })))
    }

    /// Runs one statement. May be awaited on any runtime; the work is done by SQL's own threads. Dropping the future or
    /// the answer cancels it (a commit that is on its way may still happen).
    ///
    /// Everything that the statement reads stands at one lsn (S2), the newest that is durable when it starts.
    /// UPDATE and DELETE are refused by the engine if a row that they read has changed; then they run again.
    pub async fn run(
        &self,
        principal: &Principal,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        self.start(Asked::of(principal, text, params, limits)).await
    }

    /// The COPY that a text is; `None` if it is another statement.
    pub fn copy_of(&self, text: &str) -> Result<Option<files::Copy>> {
        files::copy(text, self.text_bytes_max())
    }

    /// Runs the query of a COPY … TO: any number of rows unless there are limits, and [`Options::copy_deadline`]. Over the view
    /// that is given it only reads.
    pub async fn copy_out(
        &self,
        principal: &Principal,
        view: Option<View>,
        query: &str,
        limits: Limits,
    ) -> Result<Rows> {
        let options = &self.0.shared.options;
        let longest = Some(options.copy_deadline.max(options.deadline));
        let limits = Limits { rows_max: Some(limits.rows_max.unwrap_or(u64::MAX)), ..limits };
        let principal = if view.is_some() { &nobody() } else { principal };
        let asked = Asked::of(principal, query, Vec::new(), limits);
        match self.start(Asked { view, longest, ..asked }).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(_) => Err(files::no_rows()),
        }
    }

    /// Where statements spill to: a directory of this machine for bytes that are needed for a while.
    pub fn spill_dir(&self) -> &Path {
        &self.0.shared.options.spill_dir
    }

    /// The answer of a text that was run before and is a lookup, here and now, for a thread that would only wait for
    /// another one to answer; `None` if it is none: then [`Sql::run_planned`].
    pub fn lookup_here(&self, principal: &Principal, text: &str, params: &[Value]) -> Result<Option<Rows>> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.0.shared.direct(principal, None, text, params, &Limits::default(), Caller::Waiting)
    }

    /// [`Sql::run`] of what [`Sql::lookup_here`] did not answer: it is not looked for once more.
    pub async fn run_planned(
        &self,
        principal: &Principal,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        self.start(Asked { is_planned: true, ..Asked::of(principal, text, params, limits) }).await
    }

    /// [`Sql::run`] of a text that was parsed before.
    pub(crate) async fn run_parsed(
        &self,
        principal: &Principal,
        text: &str,
        parsed: Arc<Statement>,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        self.start(Asked { parsed: Some(parsed), ..Asked::of(principal, text, params, limits) }).await
    }

    /// Opens a transaction for [`Sql::run_in`].
    pub fn begin(&self, principal: &Principal) -> Result<OpenTransaction> {
        self.0.shared.engine.begin(principal)
    }

    /// Runs one statement inside a transaction, with the rights of whom it was opened for: it reads what the transaction
    /// began with and what was written in it, and what it writes is seen by the next one. A statement that fails has
    /// written nothing. It never runs again by itself, and at most until the transaction's time is up.
    ///
    /// Dropping the future rolls the transaction back: nobody knows then what the statement came to.
    pub async fn run_in(
        &self,
        transaction: &OpenTransaction,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        struct Known<'a>(&'a OpenTransaction, bool);
        impl Drop for Known<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    self.0.rollback();
                }
            }
        }
        let view = transaction.view()?;
        let left = transaction.remaining();
        let limits =
            Limits { deadline: Some(limits.deadline.map_or(left, |asked| asked.min(left))), ..limits };
        let mut known = Known(transaction, false);
        let asked = Asked::of(transaction.principal(), text, params, limits);
        let asked = Asked { view: Some(view), transaction: Some(transaction.clone()), ..asked };
        let answer = self.start(asked).await;
        known.1 = true;
        answer
    }

    /// Runs one statement that only reads, over a view that the caller has: several of them stand at one lsn (S2), and see
    /// what the view's principal may see. [`Kind::Forbidden`] for a statement that would write, whoever asks.
    pub async fn read(&self, view: View, text: &str, params: Vec<Value>, limits: Limits) -> Result<Rows> {
        match self.start(Asked { view: Some(view), ..Asked::of(&nobody(), text, params, limits) }).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(_) => Err(Error::internal("a statement that only reads has done something")),
        }
    }

    async fn start(&self, asked: Asked<'_>) -> Result<Answer> {
        let Asked { principal, view, transaction, text, parsed, is_planned, params, limits, longest } = asked;
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        if !is_planned
            && let Some(rows) =
                self.0.shared.direct(&principal, view.as_ref(), text, &params, &limits, Caller::Shared)?
        {
            return Ok(Answer::Rows(rows));
        }
        let (sender, receiver) = oneshot::channel();
        let longest = longest.unwrap_or(self.0.shared.options.deadline);
        let deadline = Deadline::after(limits.deadline.map_or(longest, |asked| asked.min(longest)));
        let cancel = self.0.shared.cancel(deadline);
        let job = Arc::new(Job {
            deadline,
            phase: Phase::default(),
            cancel: cancel.clone(),
            only_records: AtomicBool::new(false),
            shared: self.0.shared.clone(),
            principal,
            view,
            transaction,
            text: text.to_owned(),
            parsed,
            params,
            limits,
        });
        let reply = Arc::new(Reply::new(sender));
        let watch = self.0.watchdog.watch(deadline.at() + GRACE, {
            let (reply, job) = (reply.clone(), job.clone());
            move |why| match why {
                Why::Overdue => {
                    job.cancel.cancel();
                    reply.end(&job.phase, job.deadline.passed());
                }
                Why::Closed => reply.end(&Phase::default(), closed()),
            }
        });
        self.0.shared.started.fetch_add(1, Ordering::Relaxed);
        let run = interrupt::within(cancel.clone(), job.run(reply, watch));
        let task = self.0.shared.lanes.light.spawn(run).abort_handle();
        let mut guard = (AbortOnDrop(Some(task)), CancelOnDrop(Some(cancel)));
        let answer = receiver.await.unwrap_or_else(|_| match self.0.closed.load(Ordering::Acquire) {
            true => Err(closed()),
            false => Err(Error::internal("the statement stopped without an answer")),
        });
        // From here on the answer's reader keeps it alive.
        guard.0.0 = None;
        guard.1.0 = None;
        answer
    }

    pub(crate) fn view(&self, principal: &Principal) -> Result<View> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.0.shared.engine.view(principal)
    }

    pub(crate) fn rows_max(&self) -> u64 {
        self.0.shared.options.rows_max
    }

    pub(crate) fn text_bytes_max(&self) -> usize {
        self.0.shared.options.text_bytes_max
    }

    /// [`Planner::infer`].
    pub(crate) fn infer(&self, statement: &Statement, parameters: usize, view: &View) -> Result<Inferred> {
        self.0.shared.planner.infer(statement, parameters, view)
    }

    /// [`Planner::lookup`].
    pub(crate) fn lookup(&self, text: &str, params: &Params, view: &View) -> Option<Lookup> {
        self.0.shared.planner.lookup(text, params, view)
    }

    /// A lookup was answered.
    pub(crate) fn counted_direct(&self) {
        self.0.shared.started.fetch_add(1, Ordering::Relaxed);
        self.0.shared.direct.fetch_add(1, Ordering::Relaxed);
    }

    /// What a statement gets that asks for nothing else.
    pub(crate) fn deadline(&self) -> Duration {
        self.0.shared.options.deadline
    }

    pub fn status(&self) -> Status {
        let shared = &self.0.shared;
        let (light, heavy) = (shared.planner.light_context(), shared.planner.context());
        Status {
            running: shared.running.load(Ordering::Relaxed),
            oldest: self.0.watchdog.oldest(),
            waiting: shared.executing.waiting() + shared.planning.waiting() + shared.planning_short.waiting(),
            started: shared.started.load(Ordering::Relaxed),
            direct: shared.direct.load(Ordering::Relaxed),
            heavy: shared.heavy.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            memory_bytes: heavy.memory_pool().reserved() + light.memory_pool().reserved(),
            spilled_bytes: heavy.runtime_env().disk_manager.used_disk_space(),
        }
    }

    /// Ends all statements and the threads; answers that are being read end in an error of kind `Closed`. Waits up to a
    /// second for threads that are in the middle of a batch.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        let runtimes = self.0.runtimes.lock().take();
        if let Some(runtimes) = runtimes {
            runtimes.end();
        }
        self.0.watchdog.close();
    }
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sql").field("status", &self.status()).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(runtimes) = self.runtimes.get_mut().take() {
            runtimes.abandon();
        }
        self.watchdog.close();
    }
}

/// Whom no rights are needed for beyond a view.
fn nobody() -> Principal {
    Principal { name: "reader".into(), scope: Scope::Read, tables: types::TableSet::Only(Vec::new()) }
}

/// Makes the directory, and removes what a process that was killed left there.
fn prepare_spill_dir(dir: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("preparing the spill directory {}", dir.display()), e);
    // What spills are rows: their owner's alone. Below a directory that only he may enter, the files' own modes do not matter.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(SPILL_PREFIX) {
            std::fs::remove_dir_all(entry.path()).map_err(failed)?;
        } else if name.starts_with(files::SPOOL_PREFIX) {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

fn closed() -> Error {
    Error::new(Kind::Closed, "SQL is closed")
}

/// The error of a statement that panicked with this. Arrow has no other answer to a batch that its offsets cannot count.
pub(crate) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    if text.is_some_and(|text| text.contains("offset overflow") || text == "capacity overflow") {
        return Error::new(Kind::TooLarge, "a batch of rows with values this long has more than 2 GiB")
            .hint("ask for fewer rows at once, or for a part of each value");
    }
    Error::internal("the statement met a bug of Polynya and stopped")
}

struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// A place among the statements that are planned or that execute.
struct Place {
    _permit: OwnedSemaphorePermit,
    _hold: Hold,
}

impl Place {
    fn free(places: &Arc<Semaphore>, cancel: &Arc<Cancel>) -> Option<Place> {
        let permit = places.clone().try_acquire_owned().ok()?;
        Some(Place { _permit: permit, _hold: cancel.hold() })
    }
}

/// Places, and a bounded number of statements that wait for one.
struct Queue {
    places: Arc<Semaphore>,
    places_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Queue {
    fn new(places_max: usize, waiting_max: usize) -> Self {
        let places_max = places_max.max(1);
        let places = Arc::new(Semaphore::new(places_max));
        Queue { places, places_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A place, if one is free.
    fn free(&self, cancel: &Arc<Cancel>) -> Option<Place> {
        Place::free(&self.places, cancel)
    }

    /// Waits for a place. [`Kind::Busy`] if as many wait as may.
    async fn admit(&self, cancel: &Arc<Cancel>) -> Result<Place> {
        if let Some(place) = self.free(cancel) {
            return Ok(place);
        }
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.waiting_max {
            let message = format!("{} statements run and {before} wait already", self.places_max);
            return Err(Error::new(Kind::Busy, message).hint("try again a little later"));
        }
        let permit = self.places.clone().acquire_owned().await.map_err(|_| closed())?;
        Ok(Place { _permit: permit, _hold: cancel.hold() })
    }
}

impl Shared {
    /// The answer of a lookup, here and now: it takes less than waking another thread.
    fn direct(
        &self,
        principal: &Principal,
        view: Option<&View>,
        text: &str,
        params: &[Value],
        limits: &Limits,
        caller: Caller,
    ) -> Result<Option<Rows>> {
        if text.len() > LIGHT_TEXT_BYTES || limits.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Ok(None);
        }
        let view = match view {
            Some(view) => view.clone(),
            None => self.engine.view(principal)?,
        };
        let found = self.planner.direct(text, &Params::new(params.to_vec()), &view, caller)?;
        let rows_max = limits.rows_max.unwrap_or(self.options.rows_max);
        let Some((batch, only_records)) = found.filter(|(batch, _)| batch.num_rows() as u64 <= rows_max)
        else {
            return Ok(None);
        };
        self.started.fetch_add(1, Ordering::Relaxed);
        self.direct.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Rows::of(batch, view.lsn()).of_records(only_records)))
    }

    /// What ends a statement at its deadline, and counts it while it runs.
    fn cancel(&self, deadline: Deadline) -> Arc<Cancel> {
        Cancel::counted(deadline.at(), self.running.clone(), self.planner.context().memory_pool().clone())
    }

    /// One of the places for light statements, if one is free.
    fn light_place(&self, cancel: &Arc<Cancel>) -> Option<Place> {
        Place::free(&self.light_places, cancel)
    }

    /// Waits for a place in a queue.
    async fn admit(&self, queue: &Queue, cancel: &Arc<Cancel>) -> Result<Place> {
        let admitted = queue.admit(cancel).await;
        if admitted.as_ref().is_err_and(|error| error.kind() == Kind::Busy) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }
}

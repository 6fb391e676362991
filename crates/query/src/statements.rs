//! The entry point of SQL: admits statements to threads and memory, runs them, and answers.

mod jobs;
mod runtimes;
mod task;
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
use dialect::execution::cancellation::{CancelOnDrop, Cancellation, RunningGuard};
use dialect::execution::interrupt;
use dialect::values::params::Params;
use engine::{Engine, OpenTransaction, View};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use types::{Error, Kind, Principal, Result, Scope, Value};

use crate::answer::{Answer, AnswerRows};
use crate::deadline::{CommitPhase, Deadline};
use crate::files;
use crate::memory::SharedMemoryPool;
use crate::options::{Limits, Options};
use crate::planner::Planner;
use crate::point_lookup::Caller;
use crate::prepared::{InferredTypes, PreparedLookup};
use crate::watchdog::{EndReason, GRACE, Reply, Watchdog};

use runtimes::{RuntimeHandles, Runtimes};
use task::StatementTask;

/// Prefix of the directories that DataFusion makes for spill files.
const SPILL_PREFIX: &str = "datafusion-";
/// Bytes of the longest text of a light statement.
const LIGHT_TEXT_BYTES: usize = 1 << 10;
/// Light statements that run or are being read. A further one goes among the heavy ones, whose queue is bounded too.
const LIGHT_SLOTS: usize = 256;
/// Statements that wait to be planned: each takes a millisecond or so.
const SHORT_WAITING_MAX: usize = 1_024;
/// Divisor of the memory setting that gives the light statements' own memory for sorts, joins and groupings. Heavy statements
/// cannot use it, so they do not delay light ones. It comes in addition to theirs: a sort that spills in a small pool needs all
/// of that pool.
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
    runtimes: RuntimeHandles,
    light_slots: Arc<Semaphore>,
    /// Queues of the statements that are parsed and planned: those with a short text, and the others.
    planning_short: AdmissionQueue,
    planning: AdmissionQueue,
    /// Queue of the heavy statements that execute.
    executing: AdmissionQueue,
    running: Arc<AtomicUsize>,
    started: AtomicU64,
    direct: AtomicU64,
    heavy: AtomicU64,
    refused: AtomicU64,
}

/// Counters for `/metrics`; read without a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Statements that are planned or execute. It includes those whose reader is slow, and those that were answered with a
    /// timeout while a thread still works for them.
    pub running: usize,
    /// Age of the oldest running or waiting statement. The files of its snapshot cannot be removed before it ends.
    pub oldest: Duration,
    /// Statements that wait to be planned, and heavy ones that wait to execute.
    pub waiting: usize,
    /// Statements since the start.
    pub started: u64,
    /// Statements among these that were point lookups without a plan.
    pub direct: u64,
    /// Statements among these that were heavy.
    pub heavy: u64,
    /// Statements refused with `Busy`.
    pub refused: u64,
    /// Bytes that sorts, joins and groupings hold.
    pub memory_bytes: usize,
    /// Bytes of spill files.
    pub spilled_bytes: u64,
}

/// One statement as it comes in.
struct StatementRequest<'a> {
    principal: Principal,
    /// The view to read, which makes the statement read-only unless `transaction` is set; `None`: the newest view of the
    /// principal.
    view: Option<View>,
    transaction: Option<OpenTransaction>,
    text: &'a str,
    /// The parse of `text`, if it was parsed before.
    parsed: Option<Arc<Statement>>,
    /// True if the statement was already found to be no point lookup, or one that is too large.
    is_planned: bool,
    params: Vec<Value>,
    limits: Limits,
    /// The longest deadline, if it is not that of all statements.
    deadline_max: Option<Duration>,
}

impl<'a> StatementRequest<'a> {
    fn of(principal: &Principal, text: &'a str, params: Vec<Value>, limits: Limits) -> Self {
        StatementRequest {
            principal: principal.clone(),
            view: None,
            transaction: None,
            text,
            parsed: None,
            is_planned: false,
            params,
            limits,
            deadline_max: None,
        }
    }
}

impl Sql {
    /// Starts the threads. Fails if they cannot be started or the options contradict each other.
    pub fn new(engine: Engine, options: Options) -> Result<Sql> {
        prepare_spill_dir(&options.spill_dir)?;
        let pool = |bytes_max| {
            let consumers = std::num::NonZeroUsize::new(3).expect("3 is not 0");
            Arc::new(TrackConsumersPool::new(SharedMemoryPool::new(bytes_max), consumers))
        };
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![options.spill_dir.clone()]))
            .with_max_temp_directory_size(options.spill_bytes_max);
        let heavy = RuntimeEnvBuilder::new()
            .with_memory_pool(pool(options.memory_bytes))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(from_datafusion)?;
        // The spill files and their limit are shared.
        let light = Arc::new(RuntimeEnv {
            memory_pool: pool(options.memory_bytes / LIGHT_SHARE),
            ..RuntimeEnv::clone(&heavy)
        });
        interrupt::install_task_tracer();
        let runtimes = Runtimes::start(options.threads.max(1))?;
        let closed = Arc::new(AtomicBool::new(false));
        let shared = Shared {
            planner: Planner::new(engine.clone(), &options, light, heavy),
            engine,
            closed: closed.clone(),
            runtimes: runtimes.handles(),
            light_slots: Arc::new(Semaphore::new(LIGHT_SLOTS)),
            planning_short: AdmissionQueue::new(options.threads, SHORT_WAITING_MAX),
            planning: AdmissionQueue::new(options.threads, options.waiting_max),
            executing: AdmissionQueue::new(options.concurrent_max, options.waiting_max),
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

    /// Runs one statement. May be awaited on any runtime; SQL's own threads do the work. Dropping the future or the answer
    /// cancels the statement (a commit that was handed to the engine may still happen).
    ///
    /// Everything that the statement reads stands at one lsn (S2), the newest that is durable when it starts. The engine refuses
    /// an UPDATE or DELETE if a row that it read has changed; the statement then runs again.
    pub async fn run(
        &self,
        principal: &Principal,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        self.start(StatementRequest::of(principal, text, params, limits)).await
    }

    /// Parses a COPY statement; returns `None` for any other statement.
    pub fn parse_copy(&self, text: &str) -> Result<Option<files::Copy>> {
        files::parse_copy(text, self.text_bytes_max())
    }

    /// Runs the query of a COPY … TO. It returns any number of rows unless `limits` bound them, and has
    /// [`Options::copy_deadline`]. With a view, the query may only read.
    pub async fn copy_out(
        &self,
        principal: &Principal,
        view: Option<View>,
        query: &str,
        limits: Limits,
    ) -> Result<AnswerRows> {
        let options = &self.0.shared.options;
        let deadline_max = Some(options.copy_deadline.max(options.deadline));
        let limits = Limits { rows_max: Some(limits.rows_max.unwrap_or(u64::MAX)), ..limits };
        let principal = if view.is_some() { &read_only_principal() } else { principal };
        let request = StatementRequest::of(principal, query, Vec::new(), limits);
        match self.start(StatementRequest { view, deadline_max, ..request }).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(_) => Err(files::no_rows()),
        }
    }

    /// Returns the directory of the spill files, which also holds other temporary files.
    pub fn spill_dir(&self) -> &Path {
        &self.0.shared.options.spill_dir
    }

    /// Answers a text on the calling thread if it was run before and is a point lookup: for a thread that would otherwise wait
    /// for another one. `None` for every other text: call [`Sql::run_without_lookup`] then.
    pub fn try_lookup(
        &self,
        principal: &Principal,
        text: &str,
        params: &[Value],
    ) -> Result<Option<AnswerRows>> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.0.shared.point_lookup(principal, None, text, params, &Limits::default(), Caller::Waiting)
    }

    /// Runs a statement that [`Sql::try_lookup`] did not answer; does not try the lookup again.
    pub async fn run_without_lookup(
        &self,
        principal: &Principal,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        self.start(StatementRequest {
            is_planned: true,
            ..StatementRequest::of(principal, text, params, limits)
        })
        .await
    }

    /// Runs a statement whose text was parsed before.
    pub(crate) async fn run_parsed(
        &self,
        principal: &Principal,
        text: &str,
        parsed: Arc<Statement>,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        self.start(StatementRequest {
            parsed: Some(parsed),
            ..StatementRequest::of(principal, text, params, limits)
        })
        .await
    }

    /// Opens a transaction for [`Sql::run_in`].
    pub fn begin(&self, principal: &Principal) -> Result<OpenTransaction> {
        self.0.shared.engine.begin(principal)
    }

    /// Runs one statement inside a transaction, with the rights of the principal that opened it. It reads the transaction's
    /// snapshot and earlier writes; the next statement sees its writes. A failed statement has written nothing. It is not
    /// retried, and ends with the transaction's time limit at the latest.
    ///
    /// Dropping the future rolls the transaction back, because the outcome of the statement is then unknown.
    pub async fn run_in(
        &self,
        transaction: &OpenTransaction,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        struct RollbackUnlessDone<'a>(&'a OpenTransaction, bool);
        impl Drop for RollbackUnlessDone<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    self.0.rollback();
                }
            }
        }
        let view = transaction.view()?;
        let left = transaction.remaining();
        let limits =
            Limits { deadline: Some(limits.deadline.map_or(left, |request| request.min(left))), ..limits };
        let mut guard = RollbackUnlessDone(transaction, false);
        let request = StatementRequest::of(transaction.principal(), text, params, limits);
        let request =
            StatementRequest { view: Some(view), transaction: Some(transaction.clone()), ..request };
        let answer = self.start(request).await;
        guard.1 = true;
        answer
    }

    /// Runs one read-only statement over the caller's view. Several statements can so read at one lsn (S2); each sees what the
    /// view's principal may see. Returns [`Kind::Forbidden`] for a statement that would write, for every principal.
    pub async fn read(
        &self,
        view: View,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<AnswerRows> {
        match self
            .start(StatementRequest {
                view: Some(view),
                ..StatementRequest::of(&read_only_principal(), text, params, limits)
            })
            .await?
        {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(_) => Err(Error::internal("a statement that only reads has done something")),
        }
    }

    async fn start(&self, request: StatementRequest<'_>) -> Result<Answer> {
        let StatementRequest {
            principal,
            view,
            transaction,
            text,
            parsed,
            is_planned,
            params,
            limits,
            deadline_max,
        } = request;
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        if !is_planned
            && let Some(rows) = self.0.shared.point_lookup(
                &principal,
                view.as_ref(),
                text,
                &params,
                &limits,
                Caller::Shared,
            )?
        {
            return Ok(Answer::Rows(rows));
        }
        let (sender, receiver) = oneshot::channel();
        let deadline_max = deadline_max.unwrap_or(self.0.shared.options.deadline);
        let deadline =
            Deadline::after(limits.deadline.map_or(deadline_max, |request| request.min(deadline_max)));
        let cancel = self.0.shared.cancel(deadline);
        let task = Arc::new(StatementTask {
            deadline,
            phase: CommitPhase::default(),
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
            let (reply, task) = (reply.clone(), task.clone());
            move |why| match why {
                EndReason::Overdue => {
                    task.cancel.cancel();
                    reply.end(&task.phase, task.deadline.timeout_error());
                }
                EndReason::Closed => reply.end(&CommitPhase::default(), closed()),
            }
        });
        self.0.shared.started.fetch_add(1, Ordering::Relaxed);
        let run = interrupt::scope(cancel.clone(), task.run(reply, watch));
        let task = self.0.shared.runtimes.light.spawn(run).abort_handle();
        let mut guard = (AbortOnDrop(Some(task)), CancelOnDrop(Some(cancel)));
        let answer = receiver.await.unwrap_or_else(|_| {
            if self.0.closed.load(Ordering::Acquire) {
                Err(closed())
            } else {
                Err(Error::internal("the statement stopped without an answer"))
            }
        });
        // The reader of the answer keeps the statement alive from here on.
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

    /// Calls [`Planner::infer`].
    pub(crate) fn infer(
        &self,
        statement: &Statement,
        parameters: usize,
        view: &View,
    ) -> Result<InferredTypes> {
        self.0.shared.planner.infer(statement, parameters, view)
    }

    /// Calls [`Planner::lookup`].
    pub(crate) fn lookup(&self, text: &str, params: &Params, view: &View) -> Option<PreparedLookup> {
        self.0.shared.planner.lookup(text, params, view)
    }

    /// Counts a lookup that a prepared statement answered.
    pub(crate) fn count_lookup(&self) {
        self.0.shared.started.fetch_add(1, Ordering::Relaxed);
        self.0.shared.direct.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the time limit of a statement that names none.
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

    /// Ends all statements and threads; answers that are being read end with an error of kind `Closed`. Waits up to a second for
    /// threads that are in the middle of a batch.
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

/// A principal without rights of its own, for statements that read a given view.
fn read_only_principal() -> Principal {
    Principal { name: "reader".into(), scope: Scope::Read, tables: types::TableSet::Only(Vec::new()) }
}

/// Makes the directory, and removes files that a killed process left there.
fn prepare_spill_dir(dir: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("preparing the spill directory {}", dir.display()), e);
    // Spill files contain rows, so only their owner may read them. The mode of the directory protects them, whatever theirs is.
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

/// Converts the panic of a statement to an error. Arrow panics if the offsets of a batch cannot hold its size.
pub(crate) fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
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

/// A slot among the statements that are planned or that execute.
struct Slot {
    _permit: OwnedSemaphorePermit,
    _hold: RunningGuard,
}

impl Slot {
    fn try_take(slots: &Arc<Semaphore>, cancel: &Arc<Cancellation>) -> Option<Slot> {
        let permit = slots.clone().try_acquire_owned().ok()?;
        Some(Slot { _permit: permit, _hold: cancel.hold() })
    }
}

/// A limited number of slots, and a limited number of statements that wait for one.
struct AdmissionQueue {
    slots: Arc<Semaphore>,
    slots_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl AdmissionQueue {
    fn new(slots_max: usize, waiting_max: usize) -> Self {
        let slots_max = slots_max.max(1);
        let slots = Arc::new(Semaphore::new(slots_max));
        AdmissionQueue { slots, slots_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns a slot if one is free.
    fn try_take(&self, cancel: &Arc<Cancellation>) -> Option<Slot> {
        Slot::try_take(&self.slots, cancel)
    }

    /// Waits for a slot. [`Kind::Busy`] if the queue is full.
    async fn admit(&self, cancel: &Arc<Cancellation>) -> Result<Slot> {
        if let Some(slot) = self.try_take(cancel) {
            return Ok(slot);
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
            let message = format!("{} statements run and {before} wait already", self.slots_max);
            return Err(Error::new(Kind::Busy, message).hint("try again a little later"));
        }
        let permit = self.slots.clone().acquire_owned().await.map_err(|_| closed())?;
        Ok(Slot { _permit: permit, _hold: cancel.hold() })
    }
}

impl Shared {
    /// Answers a point lookup on the calling thread: that takes less time than to wake another one.
    fn point_lookup(
        &self,
        principal: &Principal,
        view: Option<&View>,
        text: &str,
        params: &[Value],
        limits: &Limits,
        caller: Caller,
    ) -> Result<Option<AnswerRows>> {
        if text.len() > LIGHT_TEXT_BYTES || limits.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Ok(None);
        }
        let view = match view {
            Some(view) => view.clone(),
            None => self.engine.view(principal)?,
        };
        let found = self.planner.point_lookup(text, &Params::new(params.to_vec()), &view, caller)?;
        let rows_max = limits.rows_max.unwrap_or(self.options.rows_max);
        let Some((batch, only_records)) = found.filter(|(batch, _)| batch.num_rows() as u64 <= rows_max)
        else {
            return Ok(None);
        };
        self.started.fetch_add(1, Ordering::Relaxed);
        self.direct.fetch_add(1, Ordering::Relaxed);
        Ok(Some(AnswerRows::from_batch(batch, view.lsn()).with_only_records(only_records)))
    }

    /// Makes the handle that ends a statement at its deadline, and counts it while it runs.
    fn cancel(&self, deadline: Deadline) -> Arc<Cancellation> {
        Cancellation::counted(
            deadline.at(),
            self.running.clone(),
            self.planner.context().memory_pool().clone(),
        )
    }

    /// Returns a slot for a light statement, if one is free.
    fn light_slot(&self, cancel: &Arc<Cancellation>) -> Option<Slot> {
        Slot::try_take(&self.light_slots, cancel)
    }

    /// Waits for a slot in a queue, and counts refusals.
    async fn admit(&self, queue: &AdmissionQueue, cancel: &Arc<Cancellation>) -> Result<Slot> {
        let admitted = queue.admit(cancel).await;
        if admitted.as_ref().is_err_and(|error| error.kind() == Kind::Busy) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }
}

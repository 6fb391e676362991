//! The door: one statement in, rows or what was done out.

mod jobs;
mod lanes;
#[cfg(test)]
mod tests;

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::TrackConsumersPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::{ObjectType, Statement};
use engine::{Committed, Engine, Op, Transaction, View};
use futures::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use types::{Error, Kind, Lsn, Principal, Result, Scope, Value};

use crate::answer::{Answer, Done, DoneKind, End, Rows, WAITING_BATCHES_MAX};
use crate::cancel::{Cancel, CancelOnDrop};
use crate::ddl::later;
use crate::deadline::{Deadline, Phase};
use crate::error::from_datafusion;
use crate::execute::{self, LONG_TEXT_BYTES, Sink, heavy};
use crate::memory::Pool;
use crate::names::{self, Written};
use crate::options::{Limits, Options};
use crate::params::{self, Params};
use crate::planner::{Planned, Planner, table};
use crate::watchdog::{GRACE, Reply, Watch, Watchdog, Why};
use crate::write::Writer;
use crate::{catalog, parse, weight};

use lanes::{Lane, Lanes, Runtimes};

/// How DataFusion calls the directories that it makes for spill files.
const SPILL_PREFIX: &str = "datafusion-";
/// How long beyond its deadline a statement waits to hear whether its transaction was committed.
const COMMIT_WAIT: Duration = Duration::from_secs(60);
/// A longer text, or one with a longer value, is no light statement's.
const LIGHT_TEXT_BYTES: usize = 1 << 10;
const LIGHT_VALUE_BYTES: usize = 1 << 10;
/// Light statements that run or are being read. A further one goes among the heavy ones, whose queue is bounded too.
const LIGHT_PLACES: usize = 256;
/// Beside the memory for sorts, joins and groupings of heavy statements, an eighth as much is theirs alone: what heavy ones
/// hold delays none. Not out of it: a sort that spills in a small pool needs all of that.
const LIGHT_SHARE: usize = 8;
/// How often a statement that lost against another writer is run again.
const ATTEMPTS_MAX: u32 = 8;

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
    /// Of statements that are parsed and planned.
    planning: Arc<Semaphore>,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    started: AtomicU64,
    direct: AtomicU64,
    heavy: AtomicU64,
    refused: AtomicU64,
}

/// Counters for `/metrics`; read without a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Statements that execute, those whose reader is slow included.
    pub running: usize,
    /// Heavy statements that wait for one of their kind to end.
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
        let runtimes = Runtimes::start(options.threads.max(1))?;
        let closed = Arc::new(AtomicBool::new(false));
        let shared = Shared {
            engine,
            closed: closed.clone(),
            planner: Planner::new(&options, light, heavy),
            lanes: runtimes.lanes(),
            light_places: Arc::new(Semaphore::new(LIGHT_PLACES)),
            planning: Arc::new(Semaphore::new(options.threads.max(1))),
            permits: Arc::new(Semaphore::new(options.concurrent_max.max(1))),
            options,
            waiting: AtomicUsize::new(0),
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
        self.start(principal.clone(), None, text, params, limits).await
    }

    /// Runs one statement that only reads, over a view that the caller has: several of them stand at one lsn (S2), and see
    /// what the view's principal may see. [`Kind::Forbidden`] for a statement that would write, whoever asks.
    pub async fn read(&self, view: View, text: &str, params: Vec<Value>, limits: Limits) -> Result<Rows> {
        // Nobody's rights are needed beyond the view.
        let nobody = Principal {
            name: "reader".into(),
            scope: Scope::Read,
            tables: types::TableSet::Only(Vec::new()),
        };
        match self.start(nobody, Some(view), text, params, limits).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(_) => Err(Error::internal("a statement that only reads has done something")),
        }
    }

    async fn start(
        &self,
        principal: Principal,
        view: Option<View>,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        if let Some(rows) = self.0.shared.direct(&principal, view.as_ref(), text, &params, &limits)? {
            return Ok(Answer::Rows(rows));
        }
        let (sender, receiver) = oneshot::channel();
        let longest = self.0.shared.options.deadline;
        let deadline = Deadline::after(limits.deadline.map_or(longest, |asked| asked.min(longest)));
        let cancel = Cancel::at(deadline.at());
        let job = Arc::new(Job {
            deadline,
            phase: Phase::default(),
            cancel: cancel.clone(),
            only_records: AtomicBool::new(false),
            shared: self.0.shared.clone(),
            principal,
            view,
            text: text.to_owned(),
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
        let task = self.0.shared.lanes.light.spawn(job.run(reply, watch)).abort_handle();
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

    /// What a statement gets that asks for nothing else.
    pub(crate) fn deadline(&self) -> Duration {
        self.0.shared.options.deadline
    }

    pub fn status(&self) -> Status {
        let shared = &self.0.shared;
        let (light, heavy) = (shared.planner.light_context(), shared.planner.context());
        Status {
            running: LIGHT_PLACES.saturating_sub(shared.light_places.available_permits())
                + shared.options.concurrent_max.max(1).saturating_sub(shared.permits.available_permits()),
            waiting: shared.waiting.load(Ordering::Relaxed),
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

/// Makes the directory, and removes what a process that was killed left there.
fn prepare_spill_dir(dir: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("preparing the spill directory {}", dir.display()), e);
    // What spills are rows: their owner's alone. Below a directory that only he may enter, the files' own modes do not matter.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(SPILL_PREFIX) {
            std::fs::remove_dir_all(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

fn closed() -> Error {
    Error::new(Kind::Closed, "SQL is closed")
}

fn bug() -> Error {
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

/// One statement. What is little work is done on the threads of light statements from the beginning to the end; what turns
/// out to be much, and what is known to be, waits for a place among the heavy ones (R3).
struct Job {
    deadline: Deadline,
    phase: Phase,
    cancel: Arc<Cancel>,
    /// Found out by planning: [`Rows::reads_only_records`].
    only_records: AtomicBool,
    shared: Arc<Shared>,
    principal: Principal,
    /// What it reads, and then it only reads; `None`: the newest that its principal may see.
    view: Option<View>,
    text: String,
    params: Vec<Value>,
    limits: Limits,
}

/// What planning came to.
enum Work {
    Query {
        plan: Arc<dyn ExecutionPlan>,
        lsn: Lsn,
    },
    /// Anything else, with what it is understood against.
    Command(Box<Statement>, View),
}

impl Work {
    fn is_light(&self) -> bool {
        matches!(self, Work::Query { plan, .. } if weight::is_light(plan))
    }
}

/// A statement that has begun to give rows, or was carried out.
enum Begun {
    Rows(SendableRecordBatchStream, Lsn),
    Done(Answer),
}

impl Job {
    /// Runs on the threads of light statements.
    async fn run(self: Arc<Self>, reply: Arc<Reply>, _watch: Watch) {
        if self.is_known()
            && let Some(place) = self.shared.light_place()
        {
            // Here and now: another task would be another thread to wake.
            let begun = AssertUnwindSafe(self.begin_if_light()).catch_unwind().await;
            match begun.unwrap_or_else(|_| Err(bug())) {
                Ok(Some(begun)) => return self.answer(begun, place, &reply, Lane::Light).await,
                Ok(None) => {}
                Err(error) => {
                    reply.give(Err(error), None);
                    return;
                }
            }
        }
        let mut task = self.shared.lanes.heavy.spawn(self.clone().run_heavy(reply));
        let _guard = AbortOnDrop(Some(task.abort_handle()));
        // It has answered itself.
        let _ = (&mut task).await;
    }

    /// Whether the text was planned before, putting the values into that plan is little work, and it was light.
    fn is_known(&self) -> bool {
        let is_small = |value: &Value| match value {
            Value::String(text) | Value::Json(text) => text.len() <= LIGHT_VALUE_BYTES,
            Value::Binary(bytes) => bytes.len() <= LIGHT_VALUE_BYTES,
            Value::List(_) | Value::Struct(_) | Value::Vector(_) => false,
            _ => true,
        };
        self.text.len() <= LIGHT_TEXT_BYTES
            && self.params.iter().all(is_small)
            && self.shared.planner.is_light(&self.text, &Params::new(self.params.clone()))
    }

    /// `None` if it is no light work.
    async fn begin_if_light(&self) -> Result<Option<Begun>> {
        if self.deadline.has_passed() {
            return Err(self.deadline.passed());
        }
        let work = self.understand().await?;
        if work.is_light() { self.begin(work, Lane::Light).await.map(Some) } else { Ok(None) }
    }

    /// Runs on the threads of heavy statements. What turns out to be light there needs no place among them.
    async fn run_heavy(self: Arc<Self>, reply: Arc<Reply>) {
        let job = self.clone();
        let begun = self.within(async move {
            let shared = &job.shared;
            let turn = shared.admit(&shared.planning).await?;
            let work = job.understand().await?;
            drop(turn);
            let is_light = work.is_light();
            shared.planner.weighed(&job.text, &Params::new(job.params.clone()), is_light);
            if is_light && let Some(place) = shared.light_place() {
                return Ok((job.begin(work, Lane::Light).await?, place, Lane::Light));
            }
            shared.heavy.fetch_add(1, Ordering::Relaxed);
            if let Ok(place) = shared.permits.clone().try_acquire_owned() {
                return Ok((job.begin(work, Lane::Heavy).await?, place, Lane::Heavy));
            }
            // Who waits holds no snapshot, and reads the newest one then.
            drop(work);
            let place = shared.admit(&shared.permits).await?;
            Ok((job.begin(job.understand().await?, Lane::Heavy).await?, place, Lane::Heavy))
        });
        match begun.await {
            Ok((begun, place, lane)) => self.answer(begun, place, &reply, lane).await,
            // A receiver that is gone has cancelled the statement.
            Err(error) => drop(reply.give(Err(error), None)),
        }
    }

    /// The outcome of work in a task of its own: it does not yield while it parses and plans, and the deadline holds all
    /// the same.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut task = tokio::spawn(work);
        let _guard = AbortOnDrop(Some(task.abort_handle()));
        let ended = match self.deadline.limit(&mut task).await {
            Ok(ended) => Ok(ended),
            Err(passed) if self.phase.expire() => Err(passed),
            // The transaction is on its way: only its outcome is an answer.
            Err(_) => tokio::time::timeout(COMMIT_WAIT, &mut task).await.map_err(|_| {
                Error::new(Kind::Timeout, "whether the statement was carried out is not known yet: it was handed over in time, and the disk has not answered since")
                    .hint("look whether its rows are there before you send it again")
            }),
        };
        ended.and_then(|ended| {
            ended.unwrap_or_else(|e| match e.is_panic() {
                true => Err(bug()),
                false => Err(closed()),
            })
        })
    }

    /// Gives the answer, and its rows as long as somebody reads them. The statement keeps its place until then.
    async fn answer(&self, begun: Begun, _place: OwnedSemaphorePermit, reply: &Reply, lane: Lane) {
        let (stream, lsn) = match begun {
            Begun::Rows(stream, lsn) => (stream, lsn),
            Begun::Done(answer) => {
                reply.give(Ok(answer), None);
                return;
            }
        };
        let (batches, waiting) = mpsc::channel(WAITING_BATCHES_MAX);
        let end = Arc::new(End::default());
        let rows = Rows::new(stream.schema(), lsn, waiting, end.clone(), Some(self.cancel.clone()))
            .of_records(self.only_records.load(Ordering::Acquire));
        let rows_max = self.limits.rows_max.unwrap_or(self.shared.options.rows_max);
        let source = batches.downgrade();
        let sink = Sink {
            batches,
            end,
            rows_max,
            overflow: self.limits.overflow,
            closed: self.shared.closed.clone(),
        };
        let mut pump = Box::pin(sink.pump(stream, self.deadline));
        // A small answer is whole before its reader is woken, who would otherwise be woken once more for its rows.
        let first = match lane {
            Lane::Light => futures::poll!(AssertUnwindSafe(&mut pump).catch_unwind()),
            Lane::Heavy => Poll::Pending,
        };
        if let Poll::Ready(Err(_)) = first {
            reply.give(Err(bug()), None);
            return;
        }
        if reply.give(Ok(Answer::Rows(rows)), Some(source)) && first.is_pending() {
            pump.await;
        }
    }

    /// Starts what was understood, on the threads where this is called, with the memory of that lane.
    async fn begin(&self, work: Work, lane: Lane) -> Result<Begun> {
        let planner = &self.shared.planner;
        match work {
            Work::Query { plan, lsn } => {
                let context = match lane {
                    Lane::Light => planner.light_context(),
                    Lane::Heavy => planner.context(),
                };
                Ok(Begun::Rows(execute::stream(context, plan)?, lsn))
            }
            Work::Command(statement, view) => {
                let params = Params::new(self.params.clone());
                self.command(&statement, &params, &view).await.map(Begun::Done)
            }
        }
    }

    /// Parses and plans, over the newest view.
    async fn understand(&self) -> Result<Work> {
        let shared = &self.shared;
        let view = match &self.view {
            Some(view) => view.clone(),
            None => shared.engine.view(&self.principal)?,
        };
        let params = Params::new(self.params.clone());
        if let Some(planned) = shared.planner.again(&self.text, &params, &view)? {
            return self.query(planned, view.lsn()).await;
        }
        let statement = heavy(self.long(), || parse::statement(&self.text, shared.options.text_bytes_max))?;
        let parameters = names::parameters(&statement)?;
        if parameters != params.values.len() {
            return Err(params::count_differs("statement", parameters, params.values.len()));
        }
        let is_query = match &statement {
            Statement::Query(query) => query_only(parse::reads_only(query))?,
            Statement::Explain { statement, .. } => match statement.as_ref() {
                Statement::Query(query) => query_only(parse::reads_only(query))?,
                _ => return Err(later("EXPLAIN of a statement that writes")),
            },
            _ => false,
        };
        if !is_query {
            return Ok(Work::Command(Box::new(statement), view));
        }
        let planned =
            heavy(self.long(), || shared.planner.plan(statement, &params, &view, Some(&self.text)))?;
        self.query(planned, view.lsn()).await
    }

    async fn query(&self, planned: Planned, lsn: Lsn) -> Result<Work> {
        // Most texts need no second look.
        if self.text.to_ascii_lowercase().contains("polynya") {
            self.only_records.store(planned.reads_only_records(), Ordering::Release);
        }
        let plan = execute::physical(&self.shared.planner, &planned, &self.cancel, self.long()).await?;
        Ok(Work::Query { plan, lsn })
    }

    /// Whether parsing and planning may take long.
    fn long(&self) -> bool {
        self.text.len() > LONG_TEXT_BYTES
    }

    /// Statements that are no queries.
    async fn command(&self, statement: &Statement, params: &Params, view: &View) -> Result<Answer> {
        match statement {
            Statement::ShowTables { .. } => {
                Ok(Answer::Rows(Rows::of(catalog::show_tables(view)?, view.lsn())))
            }
            Statement::ExplainTable { table_name, .. } => {
                let snapshot = table(view, &Written::of(table_name)?)?;
                Ok(Answer::Rows(Rows::of(catalog::describe(&snapshot)?, view.lsn())))
            }
            Statement::CreateTable(_) => self.write(DoneKind::CreateTable, statement, params).await,
            Statement::Drop { object_type: ObjectType::Table, .. } => {
                self.write(DoneKind::DropTable, statement, params).await
            }
            Statement::CreateIndex(_) => self.write(DoneKind::CreateIndex, statement, params).await,
            Statement::Drop { object_type: ObjectType::Index, .. } => {
                self.write(DoneKind::DropIndex, statement, params).await
            }
            Statement::Insert(_) => self.write(DoneKind::Insert, statement, params).await,
            Statement::Update(_) => self.write(DoneKind::Update, statement, params).await,
            Statement::Delete(_) => self.write(DoneKind::Delete, statement, params).await,
            other => {
                let text = other.to_string();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                Err(later(&words.join(" ")))
            }
        }
    }

    /// Makes a change over a view and commits it; again over a newer one if another writer was faster.
    async fn write(&self, kind: DoneKind, statement: &Statement, params: &Params) -> Result<Answer> {
        if self.view.is_some() {
            return Err(Error::new(
                Kind::Forbidden,
                format!("{} writes, and here is only read", kind.name()),
            )
            .hint("SELECT, EXPLAIN, SHOW TABLES and DESCRIBE read; POST /v1/sql writes"));
        }
        self.principal.require(Scope::Write)?;
        let shared = &self.shared;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let view = shared.engine.view(&self.principal)?;
            let writer = Writer {
                planner: &shared.planner,
                view: &view,
                params,
                cancel: &self.cancel,
                long: self.long(),
            };
            let change = writer.change(statement).await?;
            if change.ops.is_empty() {
                return Ok(Answer::Done(Done { kind, count: change.count, lsn: view.lsn() }));
            }
            let count = change.count;
            if !self.phase.begin_commit() {
                return Err(self.deadline.passed());
            }
            let committed = self.commit(change.ops).await;
            drop(change.memory);
            match committed {
                Ok(committed) => return Ok(Answer::Done(Done { kind, count, lsn: committed.lsn })),
                Err(error) if error.kind() == Kind::Conflict && attempt < ATTEMPTS_MAX => {
                    self.phase.refused();
                    if self.deadline.has_passed() {
                        return Err(self.deadline.passed());
                    }
                    // The other writer's commit is durable within a sync or two; look again then.
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(5))).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn commit(&self, ops: Vec<Op>) -> Result<Committed> {
        let (sender, receiver) = oneshot::channel();
        self.shared.engine.submit(&self.principal, Transaction::new(ops), move |result| {
            // Nobody waits any more if the statement was cancelled.
            let _ = sender.send(result);
        });
        receiver.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
    }
}

fn query_only(reads_only: bool) -> Result<bool> {
    if reads_only { Ok(true) } else { Err(later("a query that writes")) }
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
    ) -> Result<Option<Rows>> {
        if text.len() > LIGHT_TEXT_BYTES || limits.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Ok(None);
        }
        let view = match view {
            Some(view) => view.clone(),
            None => self.engine.view(principal)?,
        };
        let found = self.planner.direct(text, &Params::new(params.to_vec()), &view)?;
        let rows_max = limits.rows_max.unwrap_or(self.options.rows_max);
        let Some((batch, only_records)) = found.filter(|(batch, _)| batch.num_rows() as u64 <= rows_max)
        else {
            return Ok(None);
        };
        self.started.fetch_add(1, Ordering::Relaxed);
        self.direct.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Rows::of(batch, view.lsn()).of_records(only_records)))
    }

    fn light_place(&self) -> Option<OwnedSemaphorePermit> {
        self.light_places.clone().try_acquire_owned().ok()
    }

    /// Waits for one of those places, in a queue of bounded length.
    async fn admit(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
        if let Ok(permit) = places.clone().try_acquire_owned() {
            return Ok(permit);
        }
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.options.waiting_max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::new(
                Kind::Busy,
                format!("{} statements run and {before} wait already", self.options.concurrent_max.max(1)),
            )
            .hint("try again a little later"));
        }
        places.clone().acquire_owned().await.map_err(|_| closed())
    }
}

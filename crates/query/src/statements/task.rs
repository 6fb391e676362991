//! Runs one statement from its text to its answer: parses and plans it, admits it as light or heavy, executes it, and commits if
//! it writes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::sql::sqlparser::ast::{ObjectType, Statement};
use dialect::execution::cancellation::{Cancellation, RunningGuard};
use dialect::execution::interrupt;
use dialect::values::params::{self, Params};
use engine::{Committed, Op, OpenTransaction, Transaction, View};
use futures::{FutureExt, StreamExt};
use sql::names::{self, ParsedTableName};
use sql::not_yet;
use sql::parse;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use types::{Error, Kind, Lsn, Principal, Result, Scope, Value, ViewDef};

use super::runtimes::Workload;
use super::{AbortOnDrop, AdmissionQueue, LIGHT_TEXT_BYTES, Shared, Slot, closed, panic_error};
use crate::answer::{Answer, AnswerEnd, AnswerRows, Completion, CompletionKind, WAITING_BATCHES_MAX};
use crate::catalog;
use crate::cost;
use crate::deadline::{COMMIT_WAIT, CommitPhase, Deadline};
use crate::execute::{self, AnswerSink, LONG_TEXT_BYTES, block_in_place_if};
use crate::files;
use crate::options::{Limits, Overflow};
use crate::planner::{JoinAlgorithm, PlannedQuery, resolve_table};
use crate::session::needs_session;
use crate::watchdog::{Reply, Watch};
use crate::write::{ReturnedRows, Writer, statement_after_with};

/// Bytes of the longest parameter value of a light statement.
const LIGHT_VALUE_BYTES: usize = 1 << 10;
/// Attempts at a statement that loses against other writers.
const ATTEMPTS_MAX: u32 = 8;

/// One statement. Light statements run on the threads of light statements from beginning to end. A statement that is heavy, or
/// that turns out to be, waits for a slot among the heavy ones (R3).
pub(super) struct StatementTask {
    pub deadline: Deadline,
    pub phase: CommitPhase,
    pub cancel: Arc<Cancellation>,
    /// The value of [`AnswerRows::reads_only_records`], found while planning.
    pub only_records: AtomicBool,
    pub shared: Arc<Shared>,
    pub principal: Principal,
    /// The view to read, which makes the statement read-only unless `transaction` is set; `None`: the newest view of the
    /// principal.
    pub view: Option<View>,
    /// The transaction to write to; `None`: the statement commits by itself.
    pub transaction: Option<OpenTransaction>,
    pub text: String,
    /// The parse of `text`, if it was parsed before.
    pub parsed: Option<Arc<Statement>>,
    pub params: Vec<Value>,
    pub limits: Limits,
}

/// The result of planning.
enum PlannedStatement {
    Query {
        plan: Arc<dyn ExecutionPlan>,
        /// The logical plan of `plan`.
        planned: Box<PlannedQuery>,
        lsn: Lsn,
    },
    /// Any other statement, and the view that it was parsed against.
    Command(Box<Statement>, View),
}

impl PlannedStatement {
    fn is_light(&self) -> bool {
        matches!(self, PlannedStatement::Query { plan, .. } if cost::is_light(plan))
    }
}

/// A planned statement.
enum AdmittedStatement {
    Light(StartedStatement, Slot),
    /// The hold keeps the statement counted as running.
    Heavy(PlannedStatement, RunningGuard),
}

/// A statement that has begun to return rows, or was carried out.
enum StartedStatement {
    Rows(SendableRecordBatchStream, Lsn),
    Done(Answer),
}

impl StatementTask {
    /// Runs the statement. This future itself runs on the threads of light statements.
    pub async fn run(self: Arc<Self>, reply: Arc<Reply>, _watch: Watch) {
        if self.has_light_plan()
            && let Some(slot) = self.shared.light_slot(&self.cancel)
        {
            // On this task: another task would have to wake another thread.
            let started = AssertUnwindSafe(self.start_if_light()).catch_unwind().await;
            match started.unwrap_or_else(|panic| Err(panic_error(&*panic))) {
                Ok(Some(started)) => return self.send_answer(started, slot, &reply, Workload::Light).await,
                Ok(None) => {}
                Err(error) => {
                    reply.give(Err(error), None);
                    return;
                }
            }
        }
        let mut admitted = None;
        if self.text.len() <= LIGHT_TEXT_BYTES {
            let statement = self.clone();
            let planned = self.run_on(&self.shared.runtimes.planning, async move {
                statement.plan_in_turn(&statement.shared.planning_short).await
            });
            match planned.await {
                Ok(AdmittedStatement::Light(started, slot)) => {
                    return self.send_answer(started, slot, &reply, Workload::Light).await;
                }
                Ok(AdmittedStatement::Heavy(work, hold)) => admitted = Some((work, hold)),
                // The statement was cancelled if the receiver is gone.
                Err(error) => {
                    reply.give(Err(error), None);
                    return;
                }
            }
        }
        let run = self.with_cancel(self.clone().run_heavy(admitted, reply));
        let mut task = self.shared.runtimes.heavy.spawn(run);
        let _guard = AbortOnDrop(Some(task.abort_handle()));
        // `run_heavy` has given the answer.
        let _ = (&mut task).await;
    }

    /// Wraps work of this statement so that it ends with the statement.
    fn with_cancel<F: Future + Send>(&self, work: F) -> impl Future<Output = F::Output> + Send + use<F> {
        interrupt::scope(self.cancel.clone(), work)
    }

    /// Returns true if the text has a cached plan that is cheap to fill with these values, and that was light.
    fn has_light_plan(&self) -> bool {
        let is_small = |value: &Value| match value {
            Value::String(text) | Value::Json(text) => text.len() <= LIGHT_VALUE_BYTES,
            Value::Binary(bytes) => bytes.len() <= LIGHT_VALUE_BYTES,
            Value::List(_) | Value::Struct(_) | Value::Vector(_) => false,
            _ => true,
        };
        self.text.len() <= LIGHT_TEXT_BYTES
            && self.params.iter().all(is_small)
            && self.shared.planner.has_light_plan(&self.text, &Params::new(self.params.clone()))
    }

    /// Begins the statement if it is light; else returns `None`.
    async fn start_if_light(self: &Arc<Self>) -> Result<Option<StartedStatement>> {
        if self.deadline.has_passed() {
            return Err(self.deadline.timeout_error());
        }
        let work = self.parse_and_plan().await?;
        if work.is_light() { self.start(work, Workload::Light).await.map(Some) } else { Ok(None) }
    }

    /// Waits for a planning slot, parses and plans, and begins the statement if it is light.
    async fn plan_in_turn(self: &Arc<Self>, turns: &AdmissionQueue) -> Result<AdmittedStatement> {
        let turn = self.shared.admit(turns, &self.cancel).await?;
        let work = self.parse_and_plan().await?;
        // The hold bridges the time between the planning slot and the next one.
        let hold = self.cancel.hold();
        drop(turn);
        let is_light = work.is_light();
        self.shared.planner.record_weight(&self.text, &Params::new(self.params.clone()), is_light);
        if is_light && let Some(slot) = self.shared.light_slot(&self.cancel) {
            return Ok(AdmittedStatement::Light(self.start(work, Workload::Light).await?, slot));
        }
        Ok(AdmittedStatement::Heavy(work, hold))
    }

    /// Runs the statement on the threads of heavy statements. If it turns out to be light it needs no slot among them.
    async fn run_heavy(
        self: Arc<Self>,
        admitted: Option<(PlannedStatement, RunningGuard)>,
        reply: Arc<Reply>,
    ) {
        let statement = self.clone();
        let started = self.run_on(&self.shared.runtimes.heavy, async move {
            let shared = &statement.shared;
            let (work, hold) = match admitted {
                Some(admitted) => admitted,
                None => match statement.plan_in_turn(&shared.planning).await? {
                    AdmittedStatement::Light(started, slot) => return Ok((started, slot, Workload::Light)),
                    AdmittedStatement::Heavy(work, hold) => (work, hold),
                },
            };
            shared.heavy.fetch_add(1, Ordering::Relaxed);
            if let Some(slot) = shared.executing.try_take(&statement.cancel) {
                return Ok((statement.start(work, Workload::Heavy).await?, slot, Workload::Heavy));
            }
            // A waiting statement holds no snapshot; it will read the newest one.
            drop((work, hold));
            let slot = shared.admit(&shared.executing, &statement.cancel).await?;
            Ok((
                statement.start(statement.parse_and_plan().await?, Workload::Heavy).await?,
                slot,
                Workload::Heavy,
            ))
        });
        match started.await {
            Ok((started, slot, workload)) => self.send_answer(started, slot, &reply, workload).await,
            // The statement was cancelled if the receiver is gone.
            Err(error) => drop(reply.give(Err(error), None)),
        }
    }

    /// Runs work in a task of its own and returns its outcome. The work does not yield while it parses and plans, and the
    /// deadline must hold nevertheless.
    async fn run_on<T: Send + 'static>(
        &self,
        runtime: &Handle,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut task = runtime.spawn(self.with_cancel(work));
        let _guard = AbortOnDrop(Some(task.abort_handle()));
        let ended = match self.deadline.limit(&mut task).await {
            Ok(ended) => Ok(ended),
            Err(passed) if self.phase.expire() => Err(passed),
            // The transaction was handed to the engine: only its outcome is an answer.
            Err(_) => tokio::time::timeout(COMMIT_WAIT, &mut task).await.map_err(|_| {
                Error::new(Kind::Timeout, "it is not known yet whether the statement was committed: it was handed over in time, but the disk has not answered since")
                    .hint("check whether its rows are there before you send it again")
            }),
        };
        ended.and_then(|ended| {
            ended.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => Err(panic_error(&*panic)),
                Err(_) => Err(closed()),
            })
        })
    }

    /// Gives the answer, and its rows as long as they are read. The statement keeps its slot until then.
    async fn send_answer(&self, started: StartedStatement, _slot: Slot, reply: &Reply, workload: Workload) {
        let (stream, lsn) = match started {
            StartedStatement::Rows(stream, lsn) => (stream, lsn),
            StartedStatement::Done(answer) => {
                reply.give(Ok(answer), None);
                return;
            }
        };
        let (batches, waiting) = mpsc::channel(WAITING_BATCHES_MAX);
        let end = Arc::new(AnswerEnd::default());
        let rows = AnswerRows::new(stream.schema(), lsn, waiting, end.clone(), Some(self.cancel.clone()))
            .with_only_records(self.only_records.load(Ordering::Acquire));
        let rows_max = self.limits.rows_max.unwrap_or(self.shared.options.rows_max);
        let source = batches.downgrade();
        let sink = AnswerSink {
            batches,
            end,
            rows_max,
            overflow: self.limits.overflow,
            closed: self.shared.closed.clone(),
        };
        let mut pump = Box::pin(sink.pump(stream, self.deadline));
        // A small answer is complete before its reader is woken, who would otherwise be woken a second time for the rows.
        let first = match workload {
            Workload::Light => futures::poll!(&mut pump),
            Workload::Heavy => Poll::Pending,
        };
        if reply.give(Ok(Answer::Rows(rows)), Some(source)) && first.is_pending() {
            pump.await;
        }
    }

    /// Begins the statement on the current threads, with the memory of `workload`.
    async fn start(self: &Arc<Self>, work: PlannedStatement, workload: Workload) -> Result<StartedStatement> {
        let planner = &self.shared.planner;
        match work {
            PlannedStatement::Query { plan, planned, lsn } => {
                let advice = &planner.advice;
                let stream = match workload {
                    Workload::Light => {
                        let heavy = self.clone().restart_as_heavy(planned, plan.schema());
                        execute::stream_or_heavy(planner.light_context(), plan, advice, heavy)?
                    }
                    Workload::Heavy => self.heavy_stream(plan, planned)?,
                };
                Ok(StartedStatement::Rows(stream, lsn))
            }
            PlannedStatement::Command(statement, view) => {
                let params = Params::new(self.params.clone());
                self.command(&statement, &params, &view).await.map(StartedStatement::Done)
            }
        }
    }

    fn heavy_stream(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        planned: Box<PlannedQuery>,
    ) -> Result<SendableRecordBatchStream> {
        let (shared, cancel, long) = (self.shared.clone(), self.cancel.clone(), self.is_long());
        let sorted = async move {
            execute::physical_plan(&shared.planner, &planned, JoinAlgorithm::SortMerge, &cancel, long).await
        };
        let planner = &self.shared.planner;
        execute::stream_or_sorted(planner.context(), plan, &planner.advice, sorted)
    }

    /// Runs a statement again that was light but needed more memory than light statements have. It waits for a slot among the
    /// heavy ones and runs on their threads, over the same snapshot.
    async fn restart_as_heavy(
        self: Arc<Self>,
        planned: Box<PlannedQuery>,
        schema: SchemaRef,
    ) -> Result<SendableRecordBatchStream> {
        let shared = &self.shared;
        shared.planner.record_weight(&self.text, &Params::new(self.params.clone()), false);
        shared.heavy.fetch_add(1, Ordering::Relaxed);
        let slot = shared.admit(&shared.executing, &self.cancel).await?;
        let heavy = shared.runtimes.heavy.clone();
        let mut stream = RecordBatchReceiverStream::builder(schema, WAITING_BATCHES_MAX);
        let batches = stream.tx();
        let work = async move {
            let _slot = slot;
            let started = async {
                let (planner, long) = (&self.shared.planner, self.is_long());
                let plan = execute::physical_plan(planner, &planned, JoinAlgorithm::Hash, &self.cancel, long)
                    .await?;
                self.heavy_stream(plan, planned)
            };
            let mut rows = started.await.map_err(|e| DataFusionError::External(Box::new(e)))?;
            while let Some(batch) = rows.next().await {
                if batches.send(batch).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        stream.spawn_on(work, &heavy);
        Ok(stream.build())
    }

    /// Parses and plans over the newest view, or over the given one.
    async fn parse_and_plan(&self) -> Result<PlannedStatement> {
        let shared = &self.shared;
        let view = match &self.view {
            Some(view) => view.clone(),
            None => shared.engine.view(&self.principal)?,
        };
        let params = Params::new(self.params.clone());
        if let Some(planned) = shared.planner.cached_plan(&self.text, &params, &view)? {
            return self.plan_query(planned, view.lsn()).await;
        }
        let mut statement = match &self.parsed {
            Some(parsed) => Statement::clone(parsed),
            None => block_in_place_if(self.is_long(), || {
                parse::statement(&self.text, shared.options.text_bytes_max)
            })?,
        };
        let parameters = names::parameters(&statement)?;
        if parameters != params.values.len() {
            return Err(params::count_differs("statement", parameters, params.values.len()));
        }
        let is_query = match &mut statement {
            Statement::Query(query) if statement_after_with(query).is_some() => false,
            Statement::Query(query) => query_only(parse::reads_only(query))?,
            Statement::Explain { statement, analyze, .. } => {
                match statement.as_ref() {
                    Statement::Query(query) if statement_after_with(query).is_none() => {
                        query_only(parse::reads_only(query))?;
                    }
                    _ if *analyze => {
                        return Err(not_yet("EXPLAIN ANALYZE of a statement that writes").hint(
                            "EXPLAIN shows how it finds its rows; EXPLAIN ANALYZE of a SELECT with the same WHERE counts them",
                        ));
                    }
                    writes => **statement = self.writer(&view, &params).read_query(writes)?,
                }
                true
            }
            _ => false,
        };
        if !is_query {
            return Ok(PlannedStatement::Command(Box::new(statement), view));
        }
        let planned = block_in_place_if(self.is_long(), || {
            shared.planner.plan(statement, &params, &view, Some(&self.text))
        })?;
        self.plan_query(planned, view.lsn()).await
    }

    async fn plan_query(&self, planned: PlannedQuery, lsn: Lsn) -> Result<PlannedStatement> {
        // Most texts do not name the reserved namespace.
        if self.text.to_ascii_lowercase().contains("polynya") {
            self.only_records.store(planned.reads_only_records(), Ordering::Release);
        }
        let planner = &self.shared.planner;
        let plan =
            execute::physical_plan(planner, &planned, JoinAlgorithm::Hash, &self.cancel, self.is_long())
                .await?;
        Ok(PlannedStatement::Query { plan, planned: Box::new(planned), lsn })
    }

    /// Returns true if parsing and planning may take long.
    fn is_long(&self) -> bool {
        self.text.len() > LONG_TEXT_BYTES
    }

    /// Carries out a statement that is not a query.
    async fn command(&self, statement: &Statement, params: &Params, view: &View) -> Result<Answer> {
        match statement {
            Statement::ShowTables { .. } => {
                Ok(Answer::Rows(AnswerRows::from_batch(catalog::show_tables(view)?, view.lsn())))
            }
            Statement::ExplainTable { table_name, .. } => {
                let written = ParsedTableName::of(table_name)?;
                let rows = match view.view(&written.text()).filter(|def| written.admits(&def.name)) {
                    Some(def) => {
                        catalog::describe_view(&def, &self.shared.planner.view_column_types(&def, view)?)?
                    }
                    None => catalog::describe(&*resolve_table(view, &written)?)?,
                };
                Ok(Answer::Rows(AnswerRows::from_batch(rows, view.lsn())))
            }
            Statement::CreateTable(_) => self.write(CompletionKind::CreateTable, statement, params).await,
            Statement::ShowViews { .. } => {
                let view_column_types =
                    |def: &ViewDef| self.shared.planner.view_column_types(def, view).unwrap_or_default();
                Ok(Answer::Rows(AnswerRows::from_batch(
                    catalog::show_views(view, &view_column_types)?,
                    view.lsn(),
                )))
            }
            Statement::CreateView(_) => self.write(CompletionKind::CreateView, statement, params).await,
            Statement::Drop { object_type: ObjectType::View, .. } => {
                self.write(CompletionKind::DropView, statement, params).await
            }
            Statement::AlterTable(_) => self.write(CompletionKind::AlterTable, statement, params).await,
            Statement::Drop { object_type: ObjectType::Table, .. } => {
                self.write(CompletionKind::DropTable, statement, params).await
            }
            Statement::CreateIndex(_) => self.write(CompletionKind::CreateIndex, statement, params).await,
            Statement::Drop { object_type: ObjectType::Index, .. } => {
                self.write(CompletionKind::DropIndex, statement, params).await
            }
            Statement::Insert(_) => self.write(CompletionKind::Insert, statement, params).await,
            Statement::Update(_) => self.write(CompletionKind::Update, statement, params).await,
            Statement::Delete(_) => self.write(CompletionKind::Delete, statement, params).await,
            Statement::Truncate(_) => self.write(CompletionKind::Truncate, statement, params).await,
            // One of these statements after a WITH.
            Statement::Query(query) => match statement_after_with(query) {
                Some((_, Statement::Insert(_))) => {
                    self.write(CompletionKind::Insert, statement, params).await
                }
                Some((_, Statement::Update(_))) => {
                    self.write(CompletionKind::Update, statement, params).await
                }
                Some((_, Statement::Delete(_))) => {
                    self.write(CompletionKind::Delete, statement, params).await
                }
                _ => Err(not_yet("a query that writes")),
            },
            Statement::Copy { target, .. } => Err(files::refused(target)),
            Statement::Merge(_) => Err(not_yet("MERGE").hint(
                "write INSERT … SELECT … ON CONFLICT (key) DO UPDATE SET …, UPDATE … FROM or DELETE … USING",
            )),
            other => {
                if let Some(error) = needs_session(other) {
                    return Err(error);
                }
                let text = other.to_string();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                Err(not_yet(&words.join(" ")))
            }
        }
    }

    /// Makes a change over a view and commits it; repeats over a newer view if another writer was faster.
    async fn write(&self, kind: CompletionKind, statement: &Statement, params: &Params) -> Result<Answer> {
        if self.view.is_some() && self.transaction.is_none() {
            return Err(Error::new(
                Kind::Forbidden,
                format!("{} writes, but only reads are allowed here", kind.name()),
            )
            .hint("SELECT, EXPLAIN, SHOW TABLES and DESCRIBE read; POST /v1/sql writes"));
        }
        self.principal.require(Scope::Write)?;
        let shared = &self.shared;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let view = match &self.view {
                Some(view) => view.clone(),
                None => shared.engine.view(&self.principal)?,
            };
            let writer = self.writer(&view, params);
            let change = writer.change(statement).await?;
            self.check_returned(change.returned.as_ref())?;
            if change.ops.is_empty() {
                let done = Completion { kind, count: change.count, lsn: view.lsn() };
                return self.finish(&writer, done, change.returned, None).await;
            }
            if !self.phase.begin_commit() {
                return Err(self.deadline.timeout_error());
            }
            let committed = match &self.transaction {
                Some(transaction) => transaction
                    .apply_read(&view, change.ops)
                    .map(|written| as_committed(&written, view.lsn())),
                None => self.commit(&view, change.ops).await,
            };
            drop(change.memory);
            match committed {
                Ok(committed) => {
                    let count = if change.counts_inserted { committed.count } else { change.count };
                    let done = Completion { kind, count, lsn: committed.lsn };
                    return self.finish(&writer, done, change.returned, Some(&committed)).await;
                }
                // A given view does not change, so the statement would fail again.
                Err(error)
                    if crate::write::may_retry(&change.arbiters, &error)
                        && self.view.is_none()
                        && attempt < ATTEMPTS_MAX =>
                {
                    self.phase.commit_refused();
                    if self.deadline.has_passed() {
                        return Err(self.deadline.timeout_error());
                    }
                    // The other writer's commit is durable within a sync or two; the retry can see it then.
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(5))).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn writer<'a>(&'a self, view: &'a View, params: &'a Params) -> Writer<'a> {
        let planner = &self.shared.planner;
        Writer { planner, view, params, cancel: &self.cancel, long: self.is_long(), with: None }
    }

    /// Refuses the statement, before anything is written, if it would return more rows than allowed.
    fn check_returned(&self, returned: Option<&ReturnedRows>) -> Result<()> {
        let rows_max = self.limits.rows_max.unwrap_or(self.shared.options.rows_max);
        if self.limits.overflow == Overflow::Error && returned.is_some_and(|r| r.count() > rows_max) {
            return Err(Error::new(Kind::TooLarge, format!("RETURNING gives more than {rows_max} rows"))
                .hint("change fewer rows, leave RETURNING out, or raise the limit; nothing was changed"));
        }
        Ok(())
    }

    async fn finish(
        &self,
        writer: &Writer<'_>,
        done: Completion,
        returned: Option<ReturnedRows>,
        committed: Option<&Committed>,
    ) -> Result<Answer> {
        let Some(returned) = returned else { return Ok(Answer::Done(done)) };
        let (rows, memory) = writer.complete(returned, committed).await?;
        let rows_max = self.limits.rows_max.unwrap_or(self.shared.options.rows_max);
        Ok(Answer::Rows(AnswerRows::from_batch_with_limit(rows, done.lsn, rows_max, memory)))
    }

    /// Commits operations that were derived from a view.
    async fn commit(&self, view: &View, ops: Vec<Op>) -> Result<Committed> {
        let (sender, receiver) = oneshot::channel();
        self.shared.engine.submit_read(view, &self.principal, Transaction::new(ops), move |result| {
            // The receiver is gone if the statement was cancelled.
            let _ = sender.send(result);
        });
        receiver.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
    }
}

/// Converts the result of a statement in an open transaction. Its rows have the ids that they have within the transaction.
fn as_committed(written: &[engine::WrittenRows], lsn: Lsn) -> Committed {
    let rows = written.iter().rev().find(|written| written.count > 0);
    Committed {
        lsn,
        first_row: rows.and_then(|written| written.first_row),
        last_row: rows.and_then(|written| written.last_row),
        time: rows.map_or(0, |written| written.time),
        count: written.iter().map(|written| written.count).sum(),
        deleted: written.iter().map(|written| written.deleted).sum(),
    }
}

fn query_only(reads_only: bool) -> Result<bool> {
    if reads_only { Ok(true) } else { Err(not_yet("a query that writes")) }
}

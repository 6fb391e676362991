//! Runs other work among the statements: on SQL's threads, in one of their slots, until a deadline.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use dialect::error::from_datafusion;
use dialect::execution::cancellation::CancelOnDrop;
use dialect::execution::interrupt;
use dialect::values::params::{self, Params};
use engine::View;
use futures::StreamExt;
use roaring::RoaringTreemap;
use sql::names;
use table::Snapshot;
use tokio::sync::oneshot;
use types::{Error, Result, Value};

use super::{AbortOnDrop, Sql, closed};
use crate::deadline::Deadline;
use crate::execute::{self, LONG_TEXT_BYTES, block_in_place_if};
use crate::planner::JoinAlgorithm;
use crate::write;

impl Sql {
    /// Returns the row ids of a table in `view` for which a predicate holds. Dropping the future cancels the query.
    pub(crate) async fn rows_where(
        &self,
        view: &View,
        snapshot: Arc<Snapshot>,
        predicate: &str,
        params: Vec<Value>,
        deadline: Deadline,
    ) -> Result<RoaringTreemap> {
        let (view, predicate) = (view.clone(), predicate.to_owned());
        let shared = self.0.shared.clone();
        let cancel = shared.cancel(deadline);
        let _guard = CancelOnDrop(Some(cancel.clone()));
        let own = cancel.clone();
        let work = async move {
            let _slot = shared.admit(&shared.executing, &cancel).await?;
            let long = predicate.len() > LONG_TEXT_BYTES;
            let statement = block_in_place_if(long, || {
                write::row_ids_where(&snapshot, &predicate, shared.options.text_bytes_max)
            })?;
            let params = Params::new(params);
            let named = names::parameters(&statement)?;
            if named != params.values.len() {
                return Err(params::count_differs("filter", named, params.values.len()));
            }
            let planned = block_in_place_if(long, || shared.planner.plan(statement, &params, &view, None))?;
            let plan =
                execute::physical_plan(&shared.planner, &planned, JoinAlgorithm::Hash, &cancel, long).await?;
            let mut stream = execute::stream(shared.planner.context(), plan)?;
            let mut rows = RoaringTreemap::new();
            while let Some(batch) = stream.next().await {
                let batch = batch.map_err(from_datafusion)?;
                let ids = batch.column(0).as_primitive::<Int64Type>();
                rows.extend(ids.values().iter().map(|id| *id as u64));
            }
            Ok(rows)
        };
        self.among_statements(deadline, interrupt::scope(own, work)).await
    }

    /// Runs another module's work that does not yield, in a slot of a heavy statement. The job checks its deadline itself.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        within: std::time::Duration,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.blocking(Deadline::after(within), job).await
    }

    /// Runs another module's work that takes a millisecond or two, like a point lookup, on the threads of light statements.
    pub async fn run_brief<T: Send + 'static>(
        &self,
        within: std::time::Duration,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let work = async move { job() };
        self.on(&self.0.shared.runtimes.light, Deadline::after(within), work).await
    }

    /// Awaits a future on SQL's threads, whose timers it may use, until the deadline.
    pub(crate) async fn waiting<T: Send + 'static>(
        &self,
        deadline: Deadline,
        waiting: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.on(&self.0.shared.runtimes.light, deadline, waiting).await
    }

    /// Runs work that does not yield, in a slot of a heavy statement. The job checks its deadline itself.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        deadline: Deadline,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.0.shared.clone();
        let work = async move {
            let _slot = shared.admit(&shared.executing, &shared.cancel(deadline)).await?;
            if deadline.has_passed() {
                return Err(deadline.timeout_error());
            }
            block_in_place_if(true, job)
        };
        self.among_statements(deadline, work).await
    }

    /// Runs a future on the threads of heavy statements, until the deadline.
    async fn among_statements<T: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.on(&self.0.shared.runtimes.heavy, deadline, work).await
    }

    async fn on<T: Send + 'static>(
        &self,
        runtime: &tokio::runtime::Handle,
        deadline: Deadline,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if self.0.closed.load(std::sync::atomic::Ordering::Acquire) {
            return Err(closed());
        }
        let (sender, receiver) = oneshot::channel();
        let task = runtime.spawn(async move {
            let outcome = match deadline.limit(Box::pin(work)).await {
                Ok(outcome) => outcome,
                Err(passed) => Err(passed),
            };
            // The receiver is gone if the client left.
            let _ = sender.send(outcome);
        });
        let _guard = AbortOnDrop(Some(task.abort_handle()));
        receiver.await.unwrap_or_else(|_| {
            if self.0.closed.load(std::sync::atomic::Ordering::Acquire) {
                Err(closed())
            } else {
                Err(Error::internal("the search met a bug of Polynya and stopped"))
            }
        })
    }
}

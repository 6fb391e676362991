//! Runs physical plans: as a stream of batches within limits, or to one batch for statements that write.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::compute::concat_batches;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use dialect::error::from_datafusion;
use dialect::execution::cancellation::Cancellation;
use futures::future::FutureExt;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use types::{Error, Kind, Result};

use crate::answer::AnswerEnd;
use crate::compact_batches::with_compact_nodes;
use crate::deadline::Deadline;
use crate::index_advice::IndexAdvice;
use crate::memory::CountingPool;
use crate::options::Overflow;
use crate::planner::{JoinAlgorithm, PlannedQuery, Planner};
use crate::statements::panic_error;

/// Bytes of the rows that one statement may write: it is one transaction, and holds them until it commits.
pub(crate) const WRITE_BYTES_MAX: usize = 256 << 20;

/// Bytes of a statement's text above which parsing and planning may take long.
pub(crate) const LONG_TEXT_BYTES: usize = 2 << 10;

/// Runs work that does not yield. If it may take `long`, the runtime first moves this thread's other tasks to another thread, so
/// that other statements and this one's deadline go on. (A short statement would lose more time by the move than by its work.)
pub(crate) fn block_in_place_if<T>(long: bool, work: impl FnOnce() -> T) -> T {
    if long { tokio::task::block_in_place(work) } else { work() }
}

/// Makes the physical plan, wrapped so that `cancel` can end it at any time.
pub(crate) async fn physical_plan(
    planner: &Planner,
    planned: &PlannedQuery,
    joins: JoinAlgorithm,
    cancel: &Arc<Cancellation>,
    long: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let guarded = |plan| cancel.make_cancellable(plan).map_err(from_datafusion);
    if !long {
        return guarded(planner.physical_plan(planned, joins).await?);
    }
    block_in_place_if(long, || {
        guarded(tokio::runtime::Handle::current().block_on(planner.physical_plan(planned, joins))?)
    })
}

/// Starts a plan and returns its batches. Work beside the reader's polls runs on the current runtime.
pub(crate) fn stream(
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<SendableRecordBatchStream> {
    execute_stream(plan, context).map_err(from_datafusion)
}

/// Starts a plan whose joins may need more memory than there is. A hash join holds one side, cannot spill, and has returned no
/// row when it runs out of memory; the stream then continues with the plan that `sorted` makes ([`JoinAlgorithm::SortMerge`]).
/// The first plan must be dropped entirely to free its memory, so `advice` watches each plan by itself.
pub(crate) fn stream_or_sorted(
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
    advice: &Arc<IndexAdvice>,
    sorted: impl Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'static,
) -> Result<SendableRecordBatchStream> {
    let plan = with_compact_nodes(plan).map_err(from_datafusion)?;
    if !joins_by_hash(&plan) {
        return Ok(advice.watch(&plan, stream(context, plan.clone())?));
    }
    let (counting, memory) = counting_context(&context);
    let first = advice.watch(&plan, stream(counting, plan.clone())?);
    let advice = advice.clone();
    let second = async move {
        drop(plan);
        memory.wait_until_empty().await;
        let plan = with_compact_nodes(sorted.await.map_err(|e| DataFusionError::External(Box::new(e)))?)?;
        Ok(advice.watch(&plan, execute_stream(plan.clone(), context)?))
    };
    Ok(with_fallback(first, second))
}

/// Starts a plan that was estimated to be light, in the memory of light statements. If that memory does not suffice, the stream
/// continues with the stream that `heavy` makes.
pub(crate) fn stream_or_heavy(
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
    advice: &Arc<IndexAdvice>,
    heavy: impl Future<Output = Result<SendableRecordBatchStream>> + Send + 'static,
) -> Result<SendableRecordBatchStream> {
    let first = advice.watch(&plan, stream(context, plan.clone())?);
    let second = async move { heavy.await.map_err(|e| DataFusionError::External(Box::new(e))) };
    Ok(with_fallback(first, second))
}

/// Returns a stream that switches to the result of `second` if the first runs out of memory before its first row. The first
/// stream is dropped before the switch.
fn with_fallback(
    mut first: SendableRecordBatchStream,
    second: impl Future<Output = std::result::Result<SendableRecordBatchStream, DataFusionError>> + Send + 'static,
) -> SendableRecordBatchStream {
    let schema = first.schema();
    let batches = async move {
        let mut next = first.next().await;
        while matches!(&next, Some(Ok(batch)) if batch.num_rows() == 0) {
            next = first.next().await;
        }
        match next {
            Some(Err(error)) if is_out_of_memory(&error) => {
                drop(first);
                Ok::<_, DataFusionError>(second.await?.left_stream())
            }
            next => Ok(futures::stream::iter(next).chain(first).right_stream()),
        }
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(batches).try_flatten()))
}

/// Makes a context for one plan, and a counter that tells when the plan has released all its memory.
fn counting_context(context: &TaskContext) -> (Arc<TaskContext>, Arc<CountingPool>) {
    let memory = Arc::new(CountingPool::new(context.memory_pool().clone()));
    let runtime = RuntimeEnv { memory_pool: memory.clone(), ..RuntimeEnv::clone(&context.runtime_env()) };
    let counting = TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone(),
        context.scalar_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        Arc::new(runtime),
    );
    (Arc::new(counting), memory)
}

fn joins_by_hash(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.as_any().is::<HashJoinExec>() || plan.children().into_iter().any(joins_by_hash)
}

fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Runs a plan to its end and returns all rows, for a statement that writes. Their bytes count towards the memory that all
/// statements share, until the returned reservation is dropped.
pub(crate) async fn collect(
    planner: &Planner,
    planned: &PlannedQuery,
    cancel: &Arc<Cancellation>,
    long: bool,
) -> Result<(RecordBatch, MemoryReservation)> {
    let plan = physical_plan(planner, planned, JoinAlgorithm::Hash, cancel, long).await?;
    let by_hash = joins_by_hash(&plan);
    let (context, memory) = counting_context(&planner.context());
    match collect_plan(context, plan).await {
        Err(CollectError::OutOfMemory(_)) if by_hash => memory.wait_until_empty().await,
        Err(stopped) => return Err(stopped.into_error()),
        Ok(collected) => return Ok(collected),
    }
    // `stream_or_sorted` has the reason for this second attempt.
    let plan = physical_plan(planner, planned, JoinAlgorithm::SortMerge, cancel, long).await?;
    collect_plan(planner.context(), plan).await.map_err(CollectError::into_error)
}

enum CollectError {
    OutOfMemory(Error),
    Other(Error),
}

impl CollectError {
    fn into_error(self) -> Error {
        let (CollectError::OutOfMemory(error) | CollectError::Other(error)) = self;
        error
    }
}

impl From<Error> for CollectError {
    fn from(error: Error) -> Self {
        CollectError::Other(error)
    }
}

async fn collect_plan(
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
) -> std::result::Result<(RecordBatch, MemoryReservation), CollectError> {
    let memory = MemoryConsumer::new("rows to be written").register(context.memory_pool());
    let plan = with_compact_nodes(plan).map_err(from_datafusion)?;
    let mut stream = stream(context, plan)?;
    let schema = stream.schema();
    let (mut batches, mut rows_bytes, mut held) = (Vec::new(), 0, HashSet::new());
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|e| {
            if is_out_of_memory(&e) {
                CollectError::OutOfMemory(from_datafusion(e))
            } else {
                CollectError::Other(from_datafusion(e))
            }
        })?;
        rows_bytes += copied_bytes(&batch);
        memory.try_grow(new_buffer_bytes(&batch, &mut held)).map_err(from_datafusion)?;
        if rows_bytes > WRITE_BYTES_MAX {
            let error = Error::new(
                Kind::TooLarge,
                format!("the statement writes more than {} MiB in one transaction", WRITE_BYTES_MAX >> 20),
            );
            return Err(error.hint("split it by a WHERE over the key or _row_id").into());
        }
        batches.push(batch);
    }
    drop(stream);
    let whole = match batches.as_slice() {
        [one] => one.clone(),
        several => {
            memory.try_grow(rows_bytes).map_err(from_datafusion)?;
            concat_batches(&schema, several)
                .map_err(|e| Error::internal(format!("batches of one query differ: {e}")))?
        }
    };
    drop(batches);
    memory.resize(whole.get_array_memory_size());
    Ok((whole, memory))
}

/// Reserves `bytes` of the memory that all statements share.
pub(crate) fn reserve(planner: &Planner, bytes: usize) -> Result<MemoryReservation> {
    let memory = MemoryConsumer::new("rows to be written").register(planner.context().memory_pool());
    memory.try_grow(bytes).map_err(from_datafusion)?;
    Ok(memory)
}

/// Bytes of a copy of these rows.
fn copied_bytes(batch: &RecordBatch) -> usize {
    // An array whose slice cannot be measured counts with its whole buffers.
    let bytes = |array: &ArrayRef| {
        array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    };
    batch.columns().iter().map(bytes).sum()
}

/// Bytes of the batch's buffers that no earlier batch holds: batches of one table are often slices of shared buffers.
fn new_buffer_bytes(batch: &RecordBatch, held: &mut HashSet<usize>) -> usize {
    fn of(data: &ArrayData, held: &mut HashSet<usize>) -> usize {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        let own = data.buffers().iter().chain(nulls);
        let new = own.filter(|buffer| held.insert(buffer.data_ptr().as_ptr() as usize));
        let own: usize = new.map(Buffer::capacity).sum();
        own + data.child_data().iter().map(|child| of(child, held)).sum::<usize>()
    }
    batch.columns().iter().map(|array| of(&array.to_data(), held)).sum()
}

/// The receiver of an answer's rows, with its limits.
pub(crate) struct AnswerSink {
    pub batches: mpsc::Sender<Result<RecordBatch>>,
    pub end: Arc<AnswerEnd>,
    pub rows_max: u64,
    pub overflow: Overflow,
    /// True while SQL is closing.
    pub closed: Arc<AtomicBool>,
}

impl AnswerSink {
    /// Passes batches on until the stream ends, a limit is reached, or the reader is gone. The stream is then dropped, which ends
    /// all work for it.
    pub async fn pump(self, mut stream: SendableRecordBatchStream, deadline: Deadline) {
        let copied = AssertUnwindSafe(self.copy(&mut stream)).catch_unwind();
        let copied = copied.map(|copied| copied.unwrap_or_else(|panic| Err(panic_error(&*panic))));
        let result = tokio::select! {
            biased;
            () = self.batches.closed() => Ok(()),
            result = deadline.limit(copied.boxed()) => result.and_then(|result| result),
        };
        // During the close some parts of the plan end before others, which then fail for lack of them.
        let result = match result {
            Err(_) if self.closed.load(Ordering::Acquire) => {
                Err(Error::new(Kind::Closed, "the statement stopped before its end: SQL was closed"))
            }
            result => result,
        };
        self.end.set(result);
    }

    async fn copy(&self, stream: &mut SendableRecordBatchStream) -> Result<()> {
        let mut room = self.rows_max;
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(from_datafusion)?;
            let rows = batch.num_rows() as u64;
            if rows == 0 {
                continue;
            }
            if rows <= room {
                room -= rows;
                self.send(batch).await;
                continue;
            }
            if self.overflow == Overflow::Error {
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("the answer has more than {} rows", self.rows_max),
                )
                .hint("add LIMIT, aggregate, or raise the limit"));
            }
            if room > 0 {
                self.send(batch.slice(0, room as usize)).await;
            }
            self.end.truncated.store(true, Ordering::Release);
            return Ok(());
        }
        Ok(())
    }

    async fn send(&self, batch: RecordBatch) {
        // A failed send means that the reader is gone, and `pump` is about to end.
        let _ = self.batches.send(Ok(batch)).await;
    }
}

//! Running a plan: a stream of batches within limits, and all of it at once for statements that write.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use types::{Error, Kind, Result};

use crate::answer::End;
use crate::cancel::Cancel;
use crate::error::from_datafusion;
use crate::options::Overflow;
use crate::planner::{Planned, Planner};

/// What a statement that writes may hold in memory before it commits; it is one transaction.
pub(crate) const WRITE_BYTES_MAX: usize = 256 << 20;

/// Until when a statement may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: std::time::Instant,
    after: Duration,
}

impl Deadline {
    pub fn after(after: Duration) -> Self {
        let now = std::time::Instant::now();
        // A deadline beyond the clock's range is none.
        let at = now.checked_add(after).unwrap_or_else(|| now + Duration::from_secs(1 << 30));
        Deadline { at, after }
    }

    pub fn at(self) -> std::time::Instant {
        self.at
    }

    /// The future's value, or [`Kind::Timeout`].
    pub async fn limit<T>(self, future: BoxFuture<'_, T>) -> Result<T> {
        timeout_at(self.at.into(), future).await.map_err(|_| self.passed())
    }

    pub fn passed(self) -> Error {
        Error::new(Kind::Timeout, format!("the statement did not finish within {:?}", self.after))
            .hint("ask for less, or give it a longer deadline")
    }
}

/// A plan that is ready to give batches.
pub(crate) async fn start(
    planner: &Planner,
    planned: &Planned,
    cancel: &Arc<Cancel>,
) -> Result<SendableRecordBatchStream> {
    let plan = cancel.guard(planner.physical(planned).await?).map_err(from_datafusion)?;
    execute_stream(plan, planner.context()).map_err(from_datafusion)
}

/// All batches of a plan, for a statement that writes.
pub(crate) async fn collect(
    planner: &Planner,
    planned: &Planned,
    cancel: &Arc<Cancel>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let mut stream = start(planner, planned, cancel).await?;
    let schema = stream.schema();
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(from_datafusion)?;
        bytes += batch.get_array_memory_size();
        if bytes > WRITE_BYTES_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!("the statement writes more than {} MiB in one transaction", WRITE_BYTES_MAX >> 20),
            )
            .hint("split it by a WHERE over the key or _row_id"));
        }
        batches.push(batch);
    }
    Ok((schema, batches))
}

/// Where an answer's rows go.
pub(crate) struct Sink {
    pub batches: mpsc::Sender<Result<RecordBatch>>,
    pub end: Arc<End>,
    pub rows_max: u64,
    pub overflow: Overflow,
}

impl Sink {
    /// Hands the rows on as they come, until the end, a limit, or until nobody reads any more: then the stream is
    /// dropped, and with it everything that works for it.
    pub async fn pump(self, mut stream: SendableRecordBatchStream, deadline: Deadline) {
        let result = tokio::select! {
            biased;
            () = self.batches.closed() => Ok(()),
            result = deadline.limit(self.copy(&mut stream).boxed()) => result.and_then(|result| result),
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
        // Without a reader `pump` is about to end.
        let _ = self.batches.send(Ok(batch)).await;
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end.set(Err(Error::internal("the statement met a bug of Polynya and stopped")));
        }
    }
}

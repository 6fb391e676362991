//! The answers of statements: streams of rows, or a summary of a change.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryReservation;
use dialect::execution::cancellation::{CancelOnDrop, Cancellation};
use futures::Stream;
use sql::sql_type;
use tokio::sync::mpsc;
use types::{Error, Kind, Lsn, Result};

/// Number of batches buffered between a statement and its reader: the statement stops when nobody reads.
pub(crate) const WAITING_BATCHES_MAX: usize = 2;

/// The answer of a statement.
#[derive(Debug)]
pub enum Answer {
    /// The rows of SELECT, EXPLAIN, SHOW and DESCRIBE, or of a change with RETURNING. In the latter case each row is a changed
    /// row, and the lsn is that of the commit.
    Rows(AnswerRows),
    /// The summary of a statement that changes something, unless it asks for rows with RETURNING.
    Done(Completion),
}

/// The summary of a statement that is not a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub kind: CompletionKind,
    /// Rows inserted, updated or deleted; 0 for everything else.
    pub count: u64,
    /// The lsn of the commit: a read at this lsn or later sees the change. If there was nothing to change, the lsn of the view
    /// that showed this. Inside a transaction, the lsn of its beginning.
    pub lsn: Lsn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    CreateTable,
    AlterTable,
    CreateView,
    DropView,
    DropTable,
    CreateIndex,
    DropIndex,
    Insert,
    Update,
    Delete,
    Truncate,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Release,
    Prepare,
    Deallocate,
}

impl CompletionKind {
    /// Returns the beginning of PostgreSQL's command tag: `CREATE TABLE`, `INSERT`.
    pub fn name(self) -> &'static str {
        match self {
            CompletionKind::CreateTable => "CREATE TABLE",
            CompletionKind::AlterTable => "ALTER TABLE",
            CompletionKind::CreateView => "CREATE VIEW",
            CompletionKind::DropView => "DROP VIEW",
            CompletionKind::DropTable => "DROP TABLE",
            CompletionKind::CreateIndex => "CREATE INDEX",
            CompletionKind::DropIndex => "DROP INDEX",
            CompletionKind::Insert => "INSERT",
            CompletionKind::Update => "UPDATE",
            CompletionKind::Delete => "DELETE",
            CompletionKind::Truncate => "TRUNCATE TABLE",
            CompletionKind::Begin => "BEGIN",
            CompletionKind::Commit => "COMMIT",
            CompletionKind::Rollback => "ROLLBACK",
            CompletionKind::Savepoint => "SAVEPOINT",
            CompletionKind::Release => "RELEASE",
            CompletionKind::Prepare => "PREPARE",
            CompletionKind::Deallocate => "DEALLOCATE",
        }
    }
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerColumn {
    pub name: String,
    /// The name that [`types::DataType`] writes if Polynya has the type, else the name that Arrow gives it.
    pub data_type: String,
}

/// The rows of an answer, as a stream of batches of at most 8192 rows. It may be read on any runtime, or with
/// [`AnswerRows::next`]. Dropping it cancels the statement.
///
/// The stream ends after an error, which may follow after batches. An answer is complete only once `None` was returned.
#[derive(Debug)]
pub struct AnswerRows {
    schema: SchemaRef,
    lsn: Lsn,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    end: Arc<AnswerEnd>,
    ended: bool,
    only_records: bool,
    cancel: CancelOnDrop,
    /// Memory that a finished answer holds; released when it is dropped.
    memory: Option<MemoryReservation>,
}

/// The end of a statement's rows. It distinguishes a complete answer from one that broke off.
#[derive(Debug, Default)]
pub(crate) struct AnswerEnd {
    result: OnceLock<Result<()>>,
    pub truncated: AtomicBool,
}

impl AnswerEnd {
    pub fn set(&self, result: Result<()>) {
        // Only the first end counts.
        let _ = self.result.set(result);
    }
}

impl AnswerRows {
    /// Makes the reader of a stream of batches. With `cancel`, dropping the reader cancels the statement.
    pub(crate) fn new(
        schema: SchemaRef,
        lsn: Lsn,
        batches: mpsc::Receiver<Result<RecordBatch>>,
        end: Arc<AnswerEnd>,
        cancel: Option<Arc<Cancellation>>,
    ) -> Self {
        let cancel = CancelOnDrop(cancel);
        AnswerRows { schema, lsn, batches, end, ended: false, only_records: false, cancel, memory: None }
    }

    /// Makes an answer of a finished batch of any length, of which it returns at most `rows_max` rows. `memory` reserves the
    /// batch's bytes in the memory that all statements share.
    pub(crate) fn from_batch_with_limit(
        batch: RecordBatch,
        lsn: Lsn,
        rows_max: u64,
        memory: MemoryReservation,
    ) -> Self {
        let rows = batch.num_rows().min(usize::try_from(rows_max).unwrap_or(usize::MAX));
        let pieces = rows.div_ceil(table::BATCH_ROWS);
        let (sender, batches) = mpsc::channel(pieces.max(1));
        for first in (0..rows).step_by(table::BATCH_ROWS) {
            let piece = batch.slice(first, table::BATCH_ROWS.min(rows - first));
            sender.try_send(Ok(piece)).expect("the channel has room for all");
        }
        let end = Arc::new(AnswerEnd::default());
        end.truncated.store(rows < batch.num_rows(), Ordering::Release);
        end.set(Ok(()));
        AnswerRows { memory: Some(memory), ..AnswerRows::new(batch.schema(), lsn, batches, end, None) }
    }

    /// Makes an answer of one finished batch of at most 8192 rows.
    pub(crate) fn from_batch(batch: RecordBatch, lsn: Lsn) -> Self {
        let (sender, batches) = mpsc::channel(1);
        let end = Arc::new(AnswerEnd::default());
        end.set(Ok(()));
        let schema = batch.schema();
        if batch.num_rows() > 0 {
            sender.try_send(Ok(batch)).expect("the channel has room for one");
        }
        AnswerRows::new(schema, lsn, batches, end, None)
    }

    /// Returns the Arrow schema of the batches. Fields that are columns of a table carry its metadata (Arrow's extension names
    /// for uuid and json).
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn columns(&self) -> Vec<AnswerColumn> {
        let column = |field: &arrow::datatypes::FieldRef| AnswerColumn {
            name: field.name().clone(),
            data_type: sql_type::field_type_name(field),
        };
        self.schema.fields().iter().map(column).collect()
    }

    /// The lsn at which every row was read (S2).
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns [`Kind::Timeout`] once the statement's deadline has passed: for readers that work long on one batch.
    pub fn check_deadline(&self) -> Result<()> {
        self.cancel.0.as_ref().map_or(Ok(()), |cancel| cancel.check_deadline())
    }

    /// Returns true if all rows come from Polynya's own record tables.
    pub fn reads_only_records(&self) -> bool {
        self.only_records
    }

    /// Returns true if these are the rows of RETURNING.
    pub fn is_returned(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn with_only_records(self, only_records: bool) -> Self {
        AnswerRows { only_records, ..self }
    }

    /// Returns true if rows were left out because of [`crate::Overflow::Truncate`]. Final once the stream has ended.
    pub fn truncated(&self) -> bool {
        self.end.truncated.load(Ordering::Acquire)
    }

    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Reads all batches into memory: for answers known to be small, and for tests.
    pub async fn collect(&mut self) -> Result<Vec<RecordBatch>> {
        let mut all = Vec::new();
        while let Some(batch) = self.next().await {
            all.push(batch?);
        }
        Ok(all)
    }
}

impl Stream for AnswerRows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(item) = self.batches.poll_recv(cx) else { return Poll::Pending };
        if item.is_some() {
            return Poll::Ready(item);
        }
        self.ended = true;
        let stopped =
            || Err(Error::new(Kind::Closed, "the statement stopped before its end: SQL was closed"));
        let end = self.end.result.get().cloned().unwrap_or_else(stopped);
        Poll::Ready(end.err().map(Err))
    }
}

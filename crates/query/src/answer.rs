//! What a statement answers: rows as they are found, or what it did.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryReservation;
use dialect::execution::cancel::{Cancel, CancelOnDrop};
use futures::Stream;
use sql::sql_type;
use tokio::sync::mpsc;
use types::{Error, Kind, Lsn, Result};

/// Batches that wait between the statement and its reader: the statement stops when nobody reads.
pub(crate) const WAITING_BATCHES_MAX: usize = 2;

/// What a statement answers.
#[derive(Debug)]
pub enum Answer {
    /// SELECT, EXPLAIN, SHOW, DESCRIBE, and what changes rows with RETURNING: then each row is one that was changed, and
    /// the lsn that of the commit.
    Rows(Rows),
    /// Everything that changes something, unless it asks for rows with RETURNING.
    Done(Done),
}

/// What a statement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub kind: DoneKind,
    /// Rows inserted, updated or deleted; 0 for everything else.
    pub count: u64,
    /// The commit that did it: what is read at this lsn or later shows it. If nothing had to be done, the lsn at
    /// which that was found. Inside a transaction, the lsn of its beginning.
    pub lsn: Lsn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneKind {
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

impl DoneKind {
    /// As PostgreSQL's command tag begins: `CREATE TABLE`, `INSERT`.
    pub fn name(self) -> &'static str {
        match self {
            DoneKind::CreateTable => "CREATE TABLE",
            DoneKind::AlterTable => "ALTER TABLE",
            DoneKind::CreateView => "CREATE VIEW",
            DoneKind::DropView => "DROP VIEW",
            DoneKind::DropTable => "DROP TABLE",
            DoneKind::CreateIndex => "CREATE INDEX",
            DoneKind::DropIndex => "DROP INDEX",
            DoneKind::Insert => "INSERT",
            DoneKind::Update => "UPDATE",
            DoneKind::Delete => "DELETE",
            DoneKind::Truncate => "TRUNCATE TABLE",
            DoneKind::Begin => "BEGIN",
            DoneKind::Commit => "COMMIT",
            DoneKind::Rollback => "ROLLBACK",
            DoneKind::Savepoint => "SAVEPOINT",
            DoneKind::Release => "RELEASE",
            DoneKind::Prepare => "PREPARE",
            DoneKind::Deallocate => "DEALLOCATE",
        }
    }
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerColumn {
    pub name: String,
    /// As [`types::DataType`] writes it where there is such a type, else a name of Arrow's.
    pub data_type: String,
}

/// The rows of an answer, in batches of at most 8192. A stream that may be read on any runtime, or with
/// [`Rows::next`]. Dropping it cancels the statement.
///
/// After an error the stream ends. The error may come after batches: an answer is whole only once `None` was seen.
#[derive(Debug)]
pub struct Rows {
    schema: SchemaRef,
    lsn: Lsn,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    end: Arc<End>,
    ended: bool,
    only_records: bool,
    cancel: CancelOnDrop,
    /// Of an answer that is there already: held until it goes.
    memory: Option<MemoryReservation>,
}

/// How a statement's rows ended. Without it an answer that broke off would look whole.
#[derive(Debug, Default)]
pub(crate) struct End {
    result: OnceLock<Result<()>>,
    pub truncated: AtomicBool,
}

impl End {
    pub fn set(&self, result: Result<()>) {
        // Only the first end counts.
        let _ = self.result.set(result);
    }
}

impl Rows {
    /// With `cancel`, dropping the answer sets it.
    pub(crate) fn new(
        schema: SchemaRef,
        lsn: Lsn,
        batches: mpsc::Receiver<Result<RecordBatch>>,
        end: Arc<End>,
        cancel: Option<Arc<Cancel>>,
    ) -> Self {
        let cancel = CancelOnDrop(cancel);
        Rows { schema, lsn, batches, end, ended: false, only_records: false, cancel, memory: None }
    }

    /// An answer of any number of rows that are there already, of which the first `rows_max` are given. `memory` is what
    /// they hold of what statements share.
    pub(crate) fn whole(batch: RecordBatch, lsn: Lsn, rows_max: u64, memory: MemoryReservation) -> Self {
        let rows = batch.num_rows().min(usize::try_from(rows_max).unwrap_or(usize::MAX));
        let pieces = rows.div_ceil(table::BATCH_ROWS);
        let (sender, batches) = mpsc::channel(pieces.max(1));
        for first in (0..rows).step_by(table::BATCH_ROWS) {
            let piece = batch.slice(first, table::BATCH_ROWS.min(rows - first));
            sender.try_send(Ok(piece)).expect("the channel has room for all");
        }
        let end = Arc::new(End::default());
        end.truncated.store(rows < batch.num_rows(), Ordering::Release);
        end.set(Ok(()));
        Rows { memory: Some(memory), ..Rows::new(batch.schema(), lsn, batches, end, None) }
    }

    /// An answer that is there already.
    pub(crate) fn of(batch: RecordBatch, lsn: Lsn) -> Self {
        let (sender, batches) = mpsc::channel(1);
        let end = Arc::new(End::default());
        end.set(Ok(()));
        let schema = batch.schema();
        if batch.num_rows() > 0 {
            sender.try_send(Ok(batch)).expect("the channel has room for one");
        }
        Rows::new(schema, lsn, batches, end, None)
    }

    /// Arrow's schema of the batches. Fields that are a table's columns carry its metadata (uuid and json: Arrow's
    /// extension names).
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

    /// Every row stands at this lsn (S2).
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// [`Kind::Timeout`] once the statement's deadline has passed: for readers that take their time over a batch.
    pub fn check_deadline(&self) -> Result<()> {
        self.cancel.0.as_ref().map_or(Ok(()), |cancel| cancel.check_deadline())
    }

    /// Whether the rows are made of Polynya's own records, and of nothing else.
    pub fn reads_only_records(&self) -> bool {
        self.only_records
    }

    /// Whether they are the rows of RETURNING.
    pub fn is_returned(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn of_records(self, only_records: bool) -> Self {
        Rows { only_records, ..self }
    }

    /// Whether rows were left out because of [`crate::Overflow::Truncate`]. Final once the stream has ended.
    pub fn truncated(&self) -> bool {
        self.end.truncated.load(Ordering::Acquire)
    }

    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// All batches at once; for answers known to be small, and tests.
    pub async fn collect(&mut self) -> Result<Vec<RecordBatch>> {
        let mut all = Vec::new();
        while let Some(batch) = self.next().await {
            all.push(batch?);
        }
        Ok(all)
    }
}

impl Stream for Rows {
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

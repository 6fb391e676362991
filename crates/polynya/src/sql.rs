//! SQL, blocking or as a future for any runtime.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use arrow::array::RecordBatch;
use engine::Engine;
use query::{Limits, Sql};
use types::{DataType, Error, Lsn, Result, Value};

use crate::Database;

/// SQL that is set up at its first use, so that a program with key lookups only does not pay for it.
pub(crate) struct LazySql {
    engine: Engine,
    options: query::Options,
    sql: OnceLock<Result<Sql>>,
}

impl LazySql {
    pub fn new(engine: &Engine, options: query::Options) -> Self {
        LazySql { engine: engine.clone(), options, sql: OnceLock::new() }
    }

    pub fn get(&self) -> Result<&Sql> {
        let made = self.sql.get_or_init(|| Sql::new(self.engine.clone(), self.options.clone()));
        made.as_ref().map_err(Clone::clone)
    }

    pub fn status(&self) -> query::Status {
        self.sql.get().and_then(|made| made.as_ref().ok()).map_or_else(Default::default, Sql::status)
    }

    pub fn close(&self) {
        if let Some(Ok(sql)) = self.sql.get() {
            sql.close();
        }
    }
}

/// The complete answer of a statement.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The rows of a SELECT or of RETURNING; empty for other statements.
    pub batches: Vec<RecordBatch>,
    /// The number of rows returned, inserted, updated or deleted.
    pub count: u64,
}

impl Answer {
    pub(crate) async fn collect(answer: query::Answer) -> Result<Answer> {
        match answer {
            query::Answer::Done(done) => Ok(Answer { batches: Vec::new(), count: done.count }),
            query::Answer::Rows(mut rows) => {
                let batches = rows.collect().await?;
                let count = batches.iter().map(|batch| batch.num_rows() as u64).sum();
                Ok(Answer { batches, count })
            }
        }
    }

    /// Returns the value of an answer with one row and one column. Fails for any other shape.
    pub fn value(&self) -> Result<Value> {
        let mut rows = self.batches.iter().filter(|batch| batch.num_rows() > 0);
        let only = rows.next().filter(|b| self.count == 1 && b.num_columns() == 1);
        let Some(batch) = only else {
            return Err(Error::invalid(format!(
                "one row with one column expected, {} rows found",
                self.count
            )));
        };
        let array = batch.column(0);
        let data_type = value_type(array.data_type()).ok_or_else(|| {
            Error::invalid(format!("a {} is read from the batch itself", array.data_type()))
        })?;
        let cast = arrow::compute::cast(array, &data_type.to_arrow())
            .map_err(|e| Error::invalid(format!("the value cannot be shown: {e}")))?;
        Ok(Value::from_array(&cast, &data_type, 0))
    }
}

/// Returns the type of a single value of an answer.
fn value_type(arrow: &arrow::datatypes::DataType) -> Option<DataType> {
    use arrow::datatypes::DataType as Arrow;
    Some(match arrow {
        Arrow::Boolean => DataType::Bool,
        Arrow::Int32 => DataType::Int32,
        a if a.is_integer() => DataType::Int64,
        Arrow::Float32 => DataType::Float32,
        Arrow::Float64 => DataType::Float64,
        Arrow::Decimal128(precision, scale) if *scale >= 0 => {
            DataType::Decimal { precision: *precision, scale: *scale as u8 }
        }
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View | Arrow::Null => DataType::String,
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView => DataType::Binary,
        Arrow::Date32 => DataType::Date,
        Arrow::Timestamp(..) => DataType::Timestamp,
        _ => return None,
    })
}

impl Database {
    /// Runs one statement (PostgreSQL's dialect, parameters as `$1`) and waits for the complete answer. Use [`Database::query`]
    /// for large answers.
    ///
    /// `COPY table TO 'file'`, `COPY (query) TO 'file'` and `COPY table FROM 'file'` access files with the rights of this
    /// process, in this thread, so the text must come from a trusted source. An existing file is replaced only with
    /// ALLOWOVERWRITE at the end of the statement; otherwise this fails with [`crate::Kind::Exists`].
    pub fn sql(&self, text: &str, params: &[Value]) -> Result<Answer> {
        self.engine.view(&self.principal)?;
        match self.sql.get()?.try_lookup(&self.principal, text, params)? {
            Some(rows) => block_on(Answer::collect(query::Answer::Rows(rows))),
            None => block_on(self.answer(text, params, true)),
        }
    }

    /// Runs one statement like [`Database::sql`], as a future for any runtime.
    pub async fn sql_async(&self, text: &str, params: &[Value]) -> Result<Answer> {
        self.answer(text, params, false).await
    }

    /// Runs a statement. `is_planned`: it needs a plan, since it is not a lookup.
    async fn answer(&self, text: &str, params: &[Value], is_planned: bool) -> Result<Answer> {
        if let Some(copy) = query::files::parse_copy(text, self.sql.options.text_bytes_max)? {
            self.engine.view(&self.principal)?;
            return match params {
                [] => self.copy(&copy).await,
                _ => Err(query::files::no_params()),
            };
        }
        if !is_planned {
            return Answer::collect(self.query(text, params).await?).await;
        }
        let (sql, params) = (self.sql.get()?, params.to_vec());
        Answer::collect(sql.run_without_lookup(&self.principal, text, params, Limits::default()).await?).await
    }

    /// Runs one read-only statement over the snapshot of [`Database::snapshot_at`]. All tables in it are as they were at that
    /// lsn; for a single table use `AS OF` in the statement. Fails with [`crate::Kind::Forbidden`] for a statement that writes.
    pub fn sql_at(&self, lsn: Lsn, text: &str, params: &[Value]) -> Result<Answer> {
        let view = self.engine.view(&self.principal)?.at(lsn)?;
        let sql = self.sql.get()?;
        block_on(async {
            let rows = sql.read(view, text, params.to_vec(), Limits::default()).await?;
            Answer::collect(query::Answer::Rows(rows)).await
        })
    }

    /// Runs one read-only statement over a snapshot that the caller holds and returns its rows as a stream. All statements over
    /// one snapshot see the same lsn. Fails with [`crate::Kind::Forbidden`] for a statement that writes.
    pub async fn query_in(
        &self,
        snapshot: &crate::Snapshot,
        text: &str,
        params: &[Value],
    ) -> Result<query::AnswerRows> {
        let view = snapshot.view(self)?;
        self.sql.get()?.read(view, text, params.to_vec(), Limits::default()).await
    }

    /// Returns counters of SQL: running statements, open results, the age of the oldest, and the memory they hold.
    pub fn sql_status(&self) -> query::Status {
        self.sql.status()
    }

    /// Runs one statement and returns its rows as a stream. The stream ends with [`crate::Kind::Timeout`] at the deadline of
    /// [`query::Options`], even if the reader has not fetched all rows. Dropping it cancels the statement.
    pub async fn query(&self, text: &str, params: &[Value]) -> Result<query::Answer> {
        // The check comes first, so that a closed database does not set up SQL.
        self.engine.view(&self.principal)?;
        self.sql.get()?.run(&self.principal, text, params.to_vec(), Limits::default()).await
    }
}

/// Waits in this thread for a future of any runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

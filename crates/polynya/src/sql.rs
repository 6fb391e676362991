//! SQL for callers of any kind: blocking, or as a future of any runtime.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use arrow::array::RecordBatch;
use engine::Engine;
use query::{Limits, Sql};
use types::{DataType, Error, Lsn, Result, Value};

use crate::Database;

/// SQL is set up at its first use: a program that only looks up keys pays nothing for it.
pub(crate) struct Lazy {
    engine: Engine,
    options: query::Options,
    sql: OnceLock<Result<Sql>>,
}

impl Lazy {
    pub fn new(engine: &Engine, options: query::Options) -> Self {
        Lazy { engine: engine.clone(), options, sql: OnceLock::new() }
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

/// What a statement answered, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The rows of a SELECT, and of RETURNING; none for other statements.
    pub batches: Vec<RecordBatch>,
    /// Rows found, inserted, updated or deleted.
    pub count: u64,
}

impl Answer {
    pub(crate) async fn whole(answer: query::Answer) -> Result<Answer> {
        match answer {
            query::Answer::Done(done) => Ok(Answer { batches: Vec::new(), count: done.count }),
            query::Answer::Rows(mut rows) => {
                let batches = rows.collect().await?;
                let count = batches.iter().map(|batch| batch.num_rows() as u64).sum();
                Ok(Answer { batches, count })
            }
        }
    }

    /// The only value of an answer with one row and one column.
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

/// The type as which a single value of an answer is given.
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
    /// Runs one statement (PostgreSQL's dialect, parameters as `$1`) and waits for all of its answer. For large answers
    /// take [`Database::query`].
    ///
    /// `COPY table TO 'file'`, `COPY (query) TO 'file'` and `COPY table FROM 'file'` read and write files as this process may,
    /// in this thread; the statement must be written by somebody who may do that. A file that is there is not replaced
    /// ([`crate::Kind::Exists`]) unless ALLOWOVERWRITE stands at the end.
    pub fn sql(&self, text: &str, params: &[Value]) -> Result<Answer> {
        self.engine.view(&self.principal)?;
        match self.sql.get()?.lookup_here(&self.principal, text, params)? {
            Some(rows) => block_on(Answer::whole(query::Answer::Rows(rows))),
            None => block_on(self.answer(text, params, true)),
        }
    }

    /// The same as a future of any runtime.
    pub async fn sql_async(&self, text: &str, params: &[Value]) -> Result<Answer> {
        self.answer(text, params, false).await
    }

    /// `is_planned`: it was found to be no lookup.
    async fn answer(&self, text: &str, params: &[Value], is_planned: bool) -> Result<Answer> {
        if let Some(copy) = query::files::copy(text, self.sql.options.text_bytes_max)? {
            self.engine.view(&self.principal)?;
            return match params {
                [] => self.copy(&copy).await,
                _ => Err(query::files::no_params()),
            };
        }
        if !is_planned {
            return Answer::whole(self.query(text, params).await?).await;
        }
        let (sql, params) = (self.sql.get()?, params.to_vec());
        Answer::whole(sql.run_planned(&self.principal, text, params, Limits::default()).await?).await
    }

    /// Runs one statement that only reads over a snapshot of the past: [`Database::snapshot_at`]. All that it names is as it was
    /// then; for single tables write `AS OF` in the statement. [`crate::Kind::Forbidden`] for a statement that would write.
    pub fn sql_at(&self, lsn: Lsn, text: &str, params: &[Value]) -> Result<Answer> {
        let view = self.engine.view(&self.principal)?.at(lsn)?;
        let sql = self.sql.get()?;
        block_on(async {
            let rows = sql.read(view, text, params.to_vec(), Limits::default()).await?;
            Answer::whole(query::Answer::Rows(rows)).await
        })
    }

    /// Runs one statement that only reads over a snapshot that the caller holds, and gives its rows as a stream: of all that is
    /// asked of one snapshot, the answers stand at one lsn. [`crate::Kind::Forbidden`] for a statement that would write.
    pub async fn query_in(
        &self,
        snapshot: &crate::Snapshot,
        text: &str,
        params: &[Value],
    ) -> Result<query::Rows> {
        let view = snapshot.view(self)?;
        self.sql.get()?.read(view, text, params.to_vec(), Limits::default()).await
    }

    /// What statements are doing: how many run or are read, how long the oldest has been at it, and what they hold.
    pub fn sql_status(&self) -> query::Status {
        self.sql.status()
    }

    /// Runs one statement and gives its rows as a stream, which ends in [`crate::Kind::Timeout`] at the deadline of
    /// [`query::Options`], taken or not; dropping the stream cancels it.
    pub async fn query(&self, text: &str, params: &[Value]) -> Result<query::Answer> {
        // Asked first, so that nothing is set up for a database that is closed.
        self.engine.view(&self.principal)?;
        self.sql.get()?.run(&self.principal, text, params.to_vec(), Limits::default()).await
    }
}

/// Waits for a future in this thread, whatever runtime it may belong to.
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

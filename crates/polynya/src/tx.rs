//! Transactions that are open for a while.

use arrow::array::RecordBatch;
#[cfg(feature = "sql")]
use engine::Transaction;
use engine::{Mode, Op, OpenTransaction, Outcome, Written};
use types::{Lsn, Result, Value};

use crate::database::{Database, to_batch};
use crate::snapshot::{row_of, table_of};
use crate::{Row, Snapshot};

/// An open transaction: it reads the database as of its beginning with what it has written itself, and commits all of
/// that at once or not at all. Made by [`Database::begin`]; rolled back when it is dropped.
///
/// ```
/// # use polynya::{Database, DataType, Kind, NewTable, Value};
/// # fn main() -> polynya::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("polynya-doc-tx-{}", std::process::id()));
/// # let db = Database::open(&dir)?;
/// # db.create_table(NewTable::new("accounts").column("name", DataType::String).column("cents", DataType::Int64).primary_key(["name"]))?;
/// # db.insert_rows("accounts", &["name", "cents"], [["ann".into(), Value::Int64(500)], ["bob".into(), Value::Int64(0)]])?;
/// loop {
///     let mut tx = db.begin()?;
///     let ann = tx.get("accounts", &["ann".into()])?.expect("she has an account").get("cents")?;
///     let Value::Int64(cents) = ann else { unreachable!("cents are int64") };
///     tx.upsert_rows("accounts", &["name", "cents"], [["ann".into(), Value::Int64(cents - 100)]])?;
///     tx.upsert_rows("accounts", &["name", "cents"], [["bob".into(), Value::Int64(100)]])?;
///     match tx.commit() {
///         Ok(_) => break,
///         // Somebody else has written one of these rows meanwhile: look again.
///         Err(error) if error.kind() == Kind::Conflict => continue,
///         Err(error) => return Err(error),
///     }
/// }
/// assert_eq!(db.get("accounts", &["ann".into()])?.unwrap().get("cents")?, Value::Int64(400));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
///
/// Snapshot isolation: nothing of what others commit meanwhile is seen, and [`Tx::commit`] fails with
/// [`crate::Kind::Conflict`] if somebody else has written a key or a row that this one writes. What was only read is not
/// checked: two transactions that each read what the other writes may both commit.
///
/// At most 60 s and 64 MiB ([`crate::TransactionLimits`]). A call that fails has written nothing, and the transaction goes
/// on; once its time is up every call fails with [`crate::Kind::Timeout`]. Tables and indexes are made and dropped outside.
/// Row ids and `_time` of rows that it wrote are given anew at the commit.
pub struct Tx {
    db: Database,
    open: OpenTransaction,
}

impl Database {
    /// Begins a transaction at the newest commit. [`crate::Kind::Busy`] while too many are open.
    pub fn begin(&self) -> Result<Tx> {
        Ok(Tx { open: self.engine.begin(&self.principal)?, db: self.clone() })
    }
}

impl Tx {
    /// [`Database::insert`] in here.
    pub fn insert(&mut self, table: &str, batch: RecordBatch) -> Result<Written> {
        self.db.check(table, &batch)?;
        self.write(Op::Insert { table: table.into(), batch, mode: Mode::Append })
    }

    /// [`Database::upsert`] in here.
    pub fn upsert(&mut self, table: &str, batch: RecordBatch) -> Result<Written> {
        self.db.check(table, &batch)?;
        self.write(Op::Insert { table: table.into(), batch, mode: Mode::Upsert })
    }

    /// [`Tx::insert`] for rows given value by value, in the order of `columns`.
    pub fn insert_rows<R>(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<Written>
    where
        R: Into<Vec<Value>>,
    {
        let batch = to_batch(&*self.snapshot()?.table(table)?, columns, rows)?;
        self.insert(table, batch)
    }

    /// [`Tx::upsert`] for rows given value by value, in the order of `columns`.
    pub fn upsert_rows<R>(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<Written>
    where
        R: Into<Vec<Value>>,
    {
        let batch = to_batch(&*self.snapshot()?.table(table)?, columns, rows)?;
        self.upsert(table, batch)
    }

    /// Ends the row of a key; 0 in [`Written::deleted`] if there is none.
    pub fn delete(&mut self, table: &str, key: &[Value]) -> Result<Written> {
        self.write(Op::DeleteKeys { table: table.into(), keys: vec![key.to_vec()] })
    }

    /// Any operations on rows; each sees what those before it did. Rows are taken as they come: see [`Database::commit`].
    pub fn apply(&mut self, ops: Vec<Op>) -> Result<Vec<Written>> {
        self.open.apply(ops)
    }

    fn write(&mut self, op: Op) -> Result<Written> {
        Ok(self.open.apply(vec![op])?.pop().unwrap_or_default())
    }

    /// The row of a key.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        row_of(&*table_of(&*self.open.root()?, table)?, key)
    }

    /// The whole database as this transaction has it now. Later writes do not change it.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::new(self.db.leases.of_own(self.open.root()?)))
    }

    /// The lsn of the beginning.
    pub fn lsn(&self) -> Result<Lsn> {
        self.open.lsn()
    }

    /// One statement, which reads and writes in here. See [`Database::sql`].
    #[cfg(feature = "sql")]
    pub fn sql(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        crate::block_on(self.sql_async(text, params))
    }

    /// The same as a future of any runtime. Dropping it before it is through rolls the transaction back.
    #[cfg(feature = "sql")]
    pub async fn sql_async(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        self.open.view()?;
        let sql = self.db.sql.get()?;
        crate::Answer::whole(sql.run_in(&self.open, text, params.to_vec(), query::Limits::default()).await?)
            .await
    }

    /// Notes a place to come back to. A name may be given again; then it means the newer place.
    pub fn savepoint(&mut self, name: &str) -> Result<()> {
        self.open.savepoint(name)
    }

    /// Undoes what was written since a savepoint, which stays.
    pub fn rollback_to(&mut self, name: &str) -> Result<()> {
        self.open.rollback_to(name)
    }

    /// Forgets a savepoint and those made after it; what was written stays.
    pub fn release(&mut self, name: &str) -> Result<()> {
        self.open.release(name)
    }

    /// Commits, and returns once that survives a crash. After an error nothing of it is there; of the kinds that
    /// [`Database::commit`] fails with, [`crate::Kind::Conflict`] names the table and the key that somebody else has
    /// written.
    pub fn commit(self) -> Result<Outcome> {
        let tables = self.open.tables_written();
        let pace = tables.iter().map(|table| self.db.engine.pace_of(table)).max().unwrap_or_default();
        // It must not run out of time by waiting.
        let pace = pace.min(self.open.remaining() / 2);
        if !pace.is_zero() {
            std::thread::sleep(pace);
        }
        self.open.commit()
    }

    /// The same for async code: `done` is called once, from a thread that it must not block.
    pub fn commit_then(self, done: impl FnOnce(Result<Outcome>) + Send + 'static) {
        self.open.submit_commit(None, done);
    }

    /// The same as a future of any runtime. Once it was polled the commit is on its way, and dropping the future does not
    /// take it back.
    #[cfg(feature = "sql")]
    pub async fn commit_async(self) -> Result<Outcome> {
        query::commit(&self.open, None).await
    }

    /// Forgets everything that was written.
    pub fn rollback(self) {
        self.open.rollback();
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        // A statement that is being cancelled may hold it for a moment yet. Once it was committed this does nothing.
        self.open.rollback();
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tx").field(&self.open).finish()
    }
}

/// SQL statements one after the other, with BEGIN, COMMIT, ROLLBACK and SAVEPOINT as PostgreSQL has them: a statement that
/// fails inside a transaction makes it fail, and until ROLLBACK (or ROLLBACK TO) every further one is refused. COMMIT of
/// such a transaction is an error. Dropping it rolls back what is open.
#[cfg(feature = "sql")]
pub struct Session {
    db: Database,
    inner: query::Session,
}

#[cfg(feature = "sql")]
impl Database {
    /// A session for SQL with transactions. Many may be open at once.
    pub fn session(&self) -> Result<Session> {
        self.engine.view(&self.principal)?;
        let inner = query::Session::new(self.sql.get()?.clone(), self.principal.clone());
        Ok(Session { db: self.clone(), inner })
    }
}

#[cfg(feature = "sql")]
impl Session {
    /// Runs one statement: in the transaction that is open, else by itself.
    pub fn sql(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        crate::block_on(self.sql_async(text, params))
    }

    /// The same as a future of any runtime. Dropping it before it is through makes an open transaction fail.
    pub async fn sql_async(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        let whole = crate::Answer::whole(self.query(text, params).await?).await;
        if whole.is_err() {
            self.inner.fail();
        }
        whole
    }

    /// Runs one statement and gives its rows as a stream. If the stream breaks off inside a transaction, say so with
    /// [`Session::fail`].
    pub async fn query(&mut self, text: &str, params: &[Value]) -> Result<query::Answer> {
        self.inner.run(text, params.to_vec(), query::Limits::default()).await
    }

    /// Makes an open transaction fail, as a statement that fails does.
    pub fn fail(&mut self) {
        self.inner.fail();
    }

    /// [`Database::insert`], in the transaction if one is open. Gives the number of rows.
    pub fn insert(&mut self, table: &str, batch: RecordBatch) -> Result<u64> {
        self.write(table, batch, Mode::Append)
    }

    /// [`Database::upsert`], in the transaction if one is open. Gives the number of rows.
    pub fn upsert(&mut self, table: &str, batch: RecordBatch) -> Result<u64> {
        self.write(table, batch, Mode::Upsert)
    }

    fn write(&mut self, table: &str, batch: RecordBatch, mode: Mode) -> Result<u64> {
        self.db.check(table, &batch)?;
        let transaction = Transaction::insert(table, batch, mode);
        if !self.inner.is_open() {
            return Ok(self.db.commit(transaction)?.count);
        }
        let written = self.inner.apply(transaction.ops)?.unwrap_or_default();
        Ok(written.iter().map(|written| written.count).sum())
    }

    /// Whether a transaction is open, a failed one included.
    pub fn is_open(&self) -> bool {
        self.inner.is_open()
    }
}

#[cfg(feature = "sql")]
impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Session").field(&self.inner).finish()
    }
}

#[cfg(all(test, feature = "sql"))]
mod tests;

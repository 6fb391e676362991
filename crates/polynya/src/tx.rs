//! Open transactions.

use arrow::array::RecordBatch;
#[cfg(feature = "sql")]
use engine::Transaction;
use engine::{Mode, Op, OpenTransaction, TransactionOutcome, WrittenRows};
use types::{Lsn, Result, Value};

use crate::database::{Database, to_batch};
use crate::snapshot::{row_of, table_of};
use crate::{Row, Snapshot};

/// An open transaction. It reads the database as of its beginning together with its own writes, and commits all of them at once
/// or none. Created by [`Database::begin`]; rolled back when it is dropped.
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
///         // Another writer changed one of these rows meanwhile, so read again.
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
/// Snapshot isolation: commits of others after the beginning are not visible. [`Tx::commit`] fails with [`crate::Kind::Conflict`]
/// if another writer changed a key or a row that this transaction writes. Rows that were only read are not checked: of two
/// transactions that each read the other's writes, both may commit.
///
/// A transaction lasts up to 60 s and holds up to 64 MiB ([`crate::TransactionLimits`]). A failed call writes nothing, and the
/// transaction continues. After its time every call fails with [`crate::Kind::Timeout`]. Tables and indexes cannot be created or
/// dropped in it. Rows that it wrote get new row ids and a new `_time` at the commit.
pub struct Tx {
    db: Database,
    open: OpenTransaction,
}

impl Database {
    /// Begins a transaction at the newest commit. Fails with [`crate::Kind::Busy`] while too many are open.
    pub fn begin(&self) -> Result<Tx> {
        Ok(Tx { open: self.engine.begin(&self.principal)?, db: self.clone() })
    }
}

impl Tx {
    /// Inserts rows like [`Database::insert`], within the transaction.
    pub fn insert(&mut self, table: &str, batch: RecordBatch) -> Result<WrittenRows> {
        self.db.check(table, &batch)?;
        self.write(Op::Insert { table: table.into(), batch, mode: Mode::Append })
    }

    /// Inserts or replaces rows like [`Database::upsert`], within the transaction.
    pub fn upsert(&mut self, table: &str, batch: RecordBatch) -> Result<WrittenRows> {
        self.db.check(table, &batch)?;
        self.write(Op::Insert { table: table.into(), batch, mode: Mode::Upsert })
    }

    /// Inserts rows like [`Tx::insert`], given value by value in the order of `columns`.
    pub fn insert_rows<R>(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<WrittenRows>
    where
        R: Into<Vec<Value>>,
    {
        let batch = to_batch(&*self.snapshot()?.table(table)?, columns, rows)?;
        self.insert(table, batch)
    }

    /// Inserts or replaces rows like [`Tx::upsert`], given value by value in the order of `columns`.
    pub fn upsert_rows<R>(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<WrittenRows>
    where
        R: Into<Vec<Value>>,
    {
        let batch = to_batch(&*self.snapshot()?.table(table)?, columns, rows)?;
        self.upsert(table, batch)
    }

    /// Deletes the row of a key. [`WrittenRows::deleted`] is 0 if there is none.
    pub fn delete(&mut self, table: &str, key: &[Value]) -> Result<WrittenRows> {
        self.write(Op::DeleteKeys { table: table.into(), keys: vec![key.to_vec()] })
    }

    /// Applies operations on rows; each sees the effect of those before it. Json columns are not checked, as in
    /// [`Database::commit`].
    pub fn apply(&mut self, ops: Vec<Op>) -> Result<Vec<WrittenRows>> {
        self.open.apply(ops)
    }

    fn write(&mut self, op: Op) -> Result<WrittenRows> {
        Ok(self.open.apply(vec![op])?.pop().unwrap_or_default())
    }

    /// Returns the row of a key.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        row_of(&*table_of(&*self.open.root()?, table)?, key)
    }

    /// Returns a snapshot of the whole database as the transaction sees it now. Later writes do not change the snapshot.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::new(self.db.leases.of_own(self.open.root()?)))
    }

    /// Returns the lsn at which the transaction began.
    pub fn lsn(&self) -> Result<Lsn> {
        self.open.lsn()
    }

    /// Runs one statement within the transaction. See [`Database::sql`].
    #[cfg(feature = "sql")]
    pub fn sql(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        crate::block_on(self.sql_async(text, params))
    }

    /// Runs one statement like [`Tx::sql`], as a future for any runtime. Dropping the future before it is done rolls the
    /// transaction back.
    #[cfg(feature = "sql")]
    pub async fn sql_async(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        self.open.view()?;
        let sql = self.db.sql.get()?;
        crate::Answer::collect(sql.run_in(&self.open, text, params.to_vec(), query::Limits::default()).await?)
            .await
    }

    /// Sets a savepoint. A reused name refers to the newest savepoint of that name.
    pub fn savepoint(&mut self, name: &str) -> Result<()> {
        self.open.savepoint(name)
    }

    /// Undoes all writes since a savepoint, which stays.
    pub fn rollback_to(&mut self, name: &str) -> Result<()> {
        self.open.rollback_to(name)
    }

    /// Releases a savepoint and all later ones. Their writes stay.
    pub fn release(&mut self, name: &str) -> Result<()> {
        self.open.release(name)
    }

    /// Commits, and returns once the commit survives a crash. After an error nothing is committed. Errors have the kinds of
    /// [`Database::commit`]; [`crate::Kind::Conflict`] names the table and the key that another writer changed.
    pub fn commit(self) -> Result<TransactionOutcome> {
        let tables = self.open.tables_written();
        let pace = tables.iter().map(|table| self.db.engine.pace_of(table)).max().unwrap_or_default();
        // The pause must not use up the transaction's own time.
        let pace = pace.min(self.open.remaining() / 2);
        if !pace.is_zero() {
            std::thread::sleep(pace);
        }
        self.open.commit()
    }

    /// Commits like [`Tx::commit`] without blocking, for async code: `done` is called once, from a thread that it must not block.
    pub fn commit_then(self, done: impl FnOnce(Result<TransactionOutcome>) + Send + 'static) {
        self.open.submit_commit(None, done);
    }

    /// Commits like [`Tx::commit`], as a future for any runtime. The commit starts at the first poll; dropping the future after
    /// that does not undo it.
    #[cfg(feature = "sql")]
    pub async fn commit_async(self) -> Result<TransactionOutcome> {
        query::commit(&self.open, None).await
    }

    /// Discards all writes.
    pub fn rollback(self) {
        self.open.rollback();
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        // A statement under cancellation may still hold the transaction for a moment. After a commit this has no effect.
        self.open.rollback();
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tx").field(&self.open).finish()
    }
}

/// A session for SQL statements with BEGIN, COMMIT, ROLLBACK and SAVEPOINT, as in PostgreSQL. A statement that fails inside a
/// transaction makes the transaction fail: until ROLLBACK (or ROLLBACK TO) every further statement is refused, and COMMIT is an
/// error. Dropping the session rolls back an open transaction.
#[cfg(feature = "sql")]
pub struct Session {
    db: Database,
    inner: query::Session,
}

#[cfg(feature = "sql")]
impl Database {
    /// Opens a session for SQL with transactions. Many may be open at once.
    pub fn session(&self) -> Result<Session> {
        self.engine.view(&self.principal)?;
        let inner = query::Session::new(self.sql.get()?.clone(), self.principal.clone());
        Ok(Session { db: self.clone(), inner })
    }
}

#[cfg(feature = "sql")]
impl Session {
    /// Runs one statement, in the open transaction if there is one.
    pub fn sql(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        crate::block_on(self.sql_async(text, params))
    }

    /// Runs one statement like [`Session::sql`], as a future for any runtime. Dropping it before it is done makes an open
    /// transaction fail.
    pub async fn sql_async(&mut self, text: &str, params: &[Value]) -> Result<crate::Answer> {
        let whole = crate::Answer::collect(self.query(text, params).await?).await;
        if whole.is_err() {
            self.inner.fail();
        }
        whole
    }

    /// Runs one statement and returns its rows as a stream. If the stream fails inside a transaction, the caller must report that
    /// with [`Session::fail`].
    pub async fn query(&mut self, text: &str, params: &[Value]) -> Result<query::Answer> {
        self.inner.run(text, params.to_vec(), query::Limits::default()).await
    }

    /// Makes an open transaction fail, as a failed statement does.
    pub fn fail(&mut self) {
        self.inner.fail();
    }

    /// Inserts rows like [`Database::insert`], in the open transaction if there is one. Returns the number of rows.
    pub fn insert(&mut self, table: &str, batch: RecordBatch) -> Result<u64> {
        self.write(table, batch, Mode::Append)
    }

    /// Inserts or replaces rows like [`Database::upsert`], in the open transaction if there is one. Returns the number of rows.
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

    /// Returns true while a transaction is open, even a failed one.
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

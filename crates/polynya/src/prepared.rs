//! Prepared statements.

use query::{Limits, Prepared};
use types::{DataType, Result, Value};

use crate::sql::block_on;
use crate::{Answer, Database};

/// A prepared statement. It is parsed once and planned once for each definition of its tables; it stays valid when they change.
/// May be used from many threads at once.
///
/// From the second run on, lookups of one table's rows by key or by an index are answered in the calling thread without a plan.
/// [`Statement::run`] reads up to thousands of rows there, the async calls up to a thousand.
#[derive(Clone, Debug)]
pub struct Statement(Prepared);

impl Database {
    /// Prepares a statement. Mistakes in its text are reported now rather than when it is run.
    ///
    /// ```
    /// # use polynya::{Database, Value};
    /// # fn main() -> polynya::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("polynya-doc-prepared-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// db.sql("CREATE TABLE stock (item text PRIMARY KEY, count bigint NOT NULL)", &[])?;
    /// let add = db.prepare(
    ///     "INSERT INTO stock VALUES ($1, $2) ON CONFLICT (item) DO UPDATE SET count = stock.count + excluded.count RETURNING count",
    /// )?;
    /// add.run(&["bolt".into(), Value::Int64(40)])?;
    /// assert_eq!(add.run(&["bolt".into(), Value::Int64(2)])?.value()?, Value::Int64(42));
    /// let count = db.prepare("SELECT count FROM stock WHERE item = $1")?;
    /// assert_eq!(count.run(&["bolt".into()])?.value()?, Value::Int64(42));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(&self, text: &str) -> Result<Statement> {
        block_on(self.prepare_async(text))
    }

    /// Prepares a statement like [`Database::prepare`], as a future for any runtime.
    pub async fn prepare_async(&self, text: &str) -> Result<Statement> {
        // The check comes first, so that a closed database does not set up SQL.
        self.engine.view(&self.principal)?;
        self.sql.get()?.prepare(&self.principal, text).await.map(Statement)
    }
}

impl Statement {
    /// Returns the types of `$1`, `$2`, …, as far as the statement determines them. A value of another type is converted if that
    /// loses nothing; otherwise running the statement fails with [`crate::Kind::Invalid`].
    pub fn parameter_types(&self) -> Vec<Option<DataType>> {
        self.0.parameter_types()
    }

    /// Runs the statement and waits for the complete answer.
    pub fn run(&self, params: &[Value]) -> Result<Answer> {
        match self.0.lookup(params, true)? {
            Some(batch) => Ok(Answer { count: batch.num_rows() as u64, batches: vec![batch] }),
            None => block_on(self.run_async(params)),
        }
    }

    /// Runs the statement like [`Statement::run`], as a future for any runtime.
    pub async fn run_async(&self, params: &[Value]) -> Result<Answer> {
        if let Some(batch) = self.0.lookup(params, false)? {
            return Ok(Answer { count: batch.num_rows() as u64, batches: vec![batch] });
        }
        Answer::collect(self.query(params).await?).await
    }

    /// Runs the statement and returns its rows as a stream. Dropping the stream cancels it.
    pub async fn query(&self, params: &[Value]) -> Result<query::Answer> {
        self.0.run(params, Limits::default()).await
    }
}

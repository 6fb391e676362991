//! The open database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use engine::backup::Backup;
use engine::threads::Class;
use engine::{Committed, Engine, Mode, Op, Status, Transaction};
use types::{Error, Lsn, Micros, Principal, Result, Value, name};
use vfs::Env;

use crate::lease::Leases;
use crate::snapshot::row_of;
use crate::{Changes, NewTable, Row, Snapshot, json};

/// Options for opening a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub engine: engine::Options,
    /// The longest time that a [`Snapshot`] is kept. After it, reads of the snapshot fail with [`crate::Kind::Timeout`] and its
    /// memory and files are released. `None`: no limit. The age of the oldest snapshot is in [`Status::oldest_root_age`], the
    /// bytes held for snapshots in [`Status::held_bytes`].
    pub snapshot_age_max: Option<Duration>,
    /// Options of SQL. `None`: [`query::Options::new`], or [`query::Options::edge`] on a small machine, spilling into the
    /// database's directory.
    #[cfg(feature = "sql")]
    pub sql: Option<query::Options>,
    /// True for a machine with little memory. It decides the default of `sql`.
    pub edge: bool,
}

impl Options {
    /// Options for a machine with little memory: a database of a million small rows needs up to 64 MiB. See
    /// [`engine::Options::edge`].
    pub fn edge() -> Options {
        Options { engine: engine::Options::edge(), edge: true, ..Options::default() }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            engine: engine::Options::default(),
            snapshot_age_max: Some(Duration::from_secs(600)),
            #[cfg(feature = "sql")]
            sql: None,
            edge: false,
        }
    }
}

/// An open database. Clones share it. It closes when the last clone is dropped, or with [`Database::close`].
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Engine,
    pub(crate) principal: Principal,
    pub(crate) leases: Arc<Leases>,
    #[cfg(feature = "text")]
    pub(crate) text: Arc<index::text::TextMaterializer>,
    #[cfg(feature = "sql")]
    pub(crate) sql: Arc<crate::sql::LazySql>,
}

impl Database {
    /// Opens the database in a directory and recovers all acknowledged commits. Creates the directory and the database if they
    /// are missing.
    ///
    /// Fails with [`crate::Kind::InUse`] while another process has it open. If the log is damaged, [`Database::status`] says so:
    /// recovered data stays readable, and writes are refused.
    pub fn open(dir: impl AsRef<Path>) -> Result<Database> {
        Self::open_with(dir, Options::default())
    }

    pub fn open_with(dir: impl AsRef<Path>, options: Options) -> Result<Database> {
        #[cfg(feature = "sql")]
        let sql = options.sql.unwrap_or_else(|| {
            let spill = dir.as_ref().join("spill");
            if options.edge { query::Options::edge(spill) } else { query::Options::new(spill) }
        });
        let engine = Engine::open(Env::real(), dir.as_ref(), options.engine)?;
        engine.register(index::column::ColumnMaterializer::new())?;
        #[cfg(feature = "text")]
        let text = index::text::TextMaterializer::new();
        #[cfg(feature = "text")]
        engine.register(text.clone())?;
        Ok(Database {
            #[cfg(feature = "text")]
            text,
            #[cfg(feature = "sql")]
            sql: Arc::new(crate::sql::LazySql::new(&engine, sql)),
            engine,
            leases: Leases::new(options.snapshot_age_max),
            principal: Principal::local(),
        })
    }

    /// Finishes the admitted commits, ends all background work and releases the directory, within about 2 s. Later calls, on
    /// clones too, fail with [`crate::Kind::Closed`]. Held snapshots stay readable, even after another process opened the
    /// directory and removed their files. The infallible [`Database::snapshot`] and [`Database::tables`] go on to show the last
    /// state. In the callback of [`Database::commit_then`] this returns at once, and the database closes a little later.
    pub fn close(&self) -> Result<()> {
        #[cfg(feature = "sql")]
        self.sql.close();
        self.leases.close();
        self.engine.close()
    }

    pub fn create_table(&self, table: NewTable) -> Result<Committed> {
        let (def, if_absent) = table.into_def()?;
        self.commit(Transaction::new(vec![Op::CreateTable { def, if_absent }]))
    }

    pub fn drop_table(&self, table: &str) -> Result<Committed> {
        self.commit(Transaction::new(vec![Op::DropTable { table: table.into(), if_exists: false }]))
    }

    /// Returns the full names of all tables, `namespace.table`, in order.
    pub fn tables(&self) -> Vec<String> {
        self.engine.root().tables().map(|t| t.def().name.clone()).collect()
    }

    /// Inserts the rows of an Arrow batch. Columns are matched by name; missing ones get their default or null. Fails with
    /// [`crate::Kind::Exists`] if a key exists already, and with [`crate::Kind::Schema`] if a row does not fit, such as invalid
    /// JSON in a json column. After an error nothing is inserted.
    pub fn insert(&self, table: &str, batch: RecordBatch) -> Result<Committed> {
        self.check(table, &batch)?;
        self.commit(Transaction::insert(table, batch, Mode::Append))
    }

    /// Inserts rows like [`Database::insert`], and replaces rows with the same key.
    pub fn upsert(&self, table: &str, batch: RecordBatch) -> Result<Committed> {
        self.check(table, &batch)?;
        self.commit(Transaction::insert(table, batch, Mode::Upsert))
    }

    /// Checks the json columns of a batch, which the engine does not check.
    pub(crate) fn check(&self, table: &str, batch: &RecordBatch) -> Result<()> {
        match self.engine.view(&self.principal)?.table(table) {
            Ok(table) => json::check(batch, table.def()),
            // The commit fails with a better message: the name may be that of a view or of a table that the caller may not write.
            Err(_) => Ok(()),
        }
    }

    /// Inserts rows like [`Database::insert`], given value by value in the order of `columns`.
    pub fn insert_rows<R>(
        &self,
        table: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<Committed>
    where
        R: Into<Vec<Value>>,
    {
        let batch = self.to_batch(table, columns, rows)?;
        self.insert(table, batch)
    }

    /// Builds an Arrow batch from rows given value by value, for the named columns of a table.
    pub fn to_batch<R>(
        &self,
        table: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<RecordBatch>
    where
        R: Into<Vec<Value>>,
    {
        let snapshot = self.engine.view(&self.principal)?.table(table)?;
        to_batch(&snapshot, columns, rows)
    }

    /// Deletes the row of a key. [`Committed::deleted`] is 0 if there is none.
    pub fn delete(&self, table: &str, key: &[Value]) -> Result<Committed> {
        let op = Op::DeleteKeys { table: table.into(), keys: vec![key.to_vec()] };
        self.commit(Transaction::new(vec![op]))
    }

    /// Returns the row of a key in the newest snapshot.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        row_of(&*self.engine.view(&self.principal)?.table(table)?, key)
    }

    /// Commits operations over any number of tables, all of them or none. Blocks until they are durable. Unlike
    /// [`Database::insert`] it does not check json columns: the caller must supply valid JSON.
    pub fn commit(&self, transaction: Transaction) -> Result<Committed> {
        let tables = transaction.ops.iter().filter_map(|op| match op {
            Op::Insert { table, .. } | Op::Update { table, .. } => Some(self.engine.pace_of(table)),
            _ => None,
        });
        let pace = tables.max().unwrap_or_else(|| self.engine.pace());
        if !pace.is_zero() {
            // Writers that outrun the disk or an index are slowed down before they are refused.
            std::thread::sleep(pace);
        }
        self.engine.commit(&self.principal, transaction)
    }

    /// Commits like [`Database::commit`] without blocking, for async code: `done` is called once, from a thread that it must not
    /// block.
    pub fn commit_then(
        &self,
        transaction: Transaction,
        done: impl FnOnce(Result<Committed>) + Send + 'static,
    ) {
        self.engine.submit(&self.principal, transaction, done);
    }

    /// Returns an immutable snapshot of the whole newest database, without waiting. It keeps memory and files alive while it is
    /// held, and ends after [`Options::snapshot_age_max`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.leases.of(self.engine.root()))
    }

    /// Returns a snapshot of the whole database at an earlier commit, with the table and column names of that time. It reaches
    /// back as far as [`engine::Options::history`], and further for tables without later changes or deletes.
    ///
    /// Fails with [`crate::Kind::Invalid`] for a future lsn. Reading a table that does not reach back so far fails with
    /// [`crate::Kind::NotFound`].
    pub fn snapshot_at(&self, lsn: Lsn) -> Result<Snapshot> {
        let view = self.engine.view(&self.principal)?.at(lsn)?;
        Ok(Snapshot::new(self.leases.of_past(self.engine.root(), view)))
    }

    /// Returns the snapshot of the last commit at or before a time, as [`Database::snapshot_at`] does. The time is in µs since
    /// 1970 and is resolved to the millisecond. Fails with [`crate::Kind::NotFound`] if the time is before the known commits.
    pub fn snapshot_at_time(&self, time: Micros) -> Result<Snapshot> {
        let view = self.engine.view(&self.principal)?;
        let lsn = view.lsn_at(time)?;
        Ok(Snapshot::new(self.leases.of_past(self.engine.root(), view.at(lsn)?)))
    }

    /// Follows a table's commits after the lsn `after`: [`Lsn`] 0 begins with the oldest known commit, the lsn of a
    /// [`Database::snapshot`] continues from that snapshot.
    pub fn changes(&self, table: &str, after: Lsn) -> Result<Changes> {
        Changes::new(self.clone(), table, after)
    }

    /// Takes a backup of the newest state into the folder `dest`, which must be empty or missing. Reads and writes go on
    /// meanwhile; the backup runs in a thread of the lowest priority. [`restore`](crate::restore()) turns it into a database.
    ///
    /// Fails with [`crate::Kind::Exists`] if `dest` is not empty, and with [`crate::Kind::Damaged`] if a file of the database is
    /// damaged. After a failure the written files are removed.
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        let (engine, dest) = (self.engine.clone(), dest.as_ref().to_owned());
        let taken = Class::Background.spawn("pn-backup", move || engine.backup(&dest, &mut |_| Ok(())));
        let taken = taken.map_err(|e| Error::io("starting a thread", e))?.join();
        taken.unwrap_or_else(|_| Err(Error::internal("the thread that took the backup failed")))
    }

    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Returns the engine, for features that this crate does not expose.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Builds an Arrow batch from rows given value by value, for the named columns of a table.
pub(crate) fn to_batch<R>(
    snapshot: &table::Snapshot,
    columns: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> Result<RecordBatch>
where
    R: Into<Vec<Value>>,
{
    let mut values: Vec<Vec<Value>> = vec![Vec::new(); columns.len()];
    for (i, row) in rows.into_iter().enumerate() {
        let row: Vec<Value> = row.into();
        if row.len() != columns.len() {
            return Err(Error::invalid(format!("{} values expected, {} found", columns.len(), row.len()))
                .with("row", i + 1));
        }
        row.into_iter().zip(&mut values).for_each(|(value, column)| column.push(value));
    }
    let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (wanted, values) in columns.iter().zip(&values) {
        let Some(column) = snapshot.def().schema.column_named(wanted) else {
            return Err(Error::not_found(format!("there is no column `{}`", name::printable(wanted)))
                .with("table", name::short_table_name(&snapshot.def().name)));
        };
        let array = Value::to_array(values, &column.data_type).map_err(|e| e.with("column", &column.name))?;
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|e| Error::invalid(format!("these rows make no batch: {e}")))
}

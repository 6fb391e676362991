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

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub engine: engine::Options,
    /// How long a [`Snapshot`] is held at most: after that reading it fails with [`crate::Kind::Timeout`], and what it kept
    /// goes. `None`: as long as the program wants, which keeps memory and files for as long. How old the oldest is, and what
    /// they keep, is in [`Status::oldest_root_age`] and [`Status::held_bytes`].
    pub snapshot_age_max: Option<Duration>,
    /// `None`: what [`query::Options::new`] says, or [`query::Options::edge`] for a small machine, spilling into the
    /// database's directory.
    #[cfg(feature = "sql")]
    pub sql: Option<query::Options>,
    /// Whether the machine is a small one.
    pub edge: bool,
}

impl Options {
    /// For a machine with little memory: a database of a million small rows within 64 MiB of its own. See
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

/// An open database. Clones are the same one; it closes when the last is dropped, or with [`Database::close`].
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Engine,
    pub(crate) principal: Principal,
    pub(crate) leases: Arc<Leases>,
    #[cfg(feature = "text")]
    pub(crate) text: Arc<index::text::Text>,
    #[cfg(feature = "sql")]
    pub(crate) sql: Arc<crate::sql::Lazy>,
}

impl Database {
    /// Opens the database in a directory, making both if they are missing, and recovers what was acknowledged.
    ///
    /// Fails with [`crate::Kind::InUse`] while another process has it open. The answer to damage found in the log is in
    /// [`Database::status`]: reads go on with what could be recovered, writes are refused.
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
        engine.register(index::column::Column::new())?;
        #[cfg(feature = "text")]
        let text = index::text::Text::new();
        #[cfg(feature = "text")]
        engine.register(text.clone())?;
        Ok(Database {
            #[cfg(feature = "text")]
            text,
            #[cfg(feature = "sql")]
            sql: Arc::new(crate::sql::Lazy::new(&engine, sql)),
            engine,
            leases: Leases::new(options.snapshot_age_max),
            principal: Principal::local(),
        })
    }

    /// Finishes what was admitted, ends all background work and lets go of the directory, within about 2 s. Later calls,
    /// on clones too, fail with [`crate::Kind::Closed`]; snapshots that are held stay readable, even after another
    /// process opened the directory and removed their files. What cannot fail, [`Database::snapshot`] and
    /// [`Database::tables`], goes on to show the database as it was last. Called in the callback of
    /// [`Database::commit_then`] it returns at once, and the database closes a little later.
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

    /// The tables' full names, `namespace.table`, in order.
    pub fn tables(&self) -> Vec<String> {
        self.engine.root().tables().map(|t| t.def().name.clone()).collect()
    }

    /// Inserts the rows of an Arrow batch; columns are matched by name, those that are missing get their default or
    /// null. A row whose key is taken makes it fail with [`crate::Kind::Exists`], one that does not fit, as text that is no
    /// JSON in a json column, with [`crate::Kind::Schema`], and then nothing is inserted.
    pub fn insert(&self, table: &str, batch: RecordBatch) -> Result<Committed> {
        self.check(table, &batch)?;
        self.commit(Transaction::insert(table, batch, Mode::Append))
    }

    /// [`Database::insert`], replacing rows of the same key.
    pub fn upsert(&self, table: &str, batch: RecordBatch) -> Result<Committed> {
        self.check(table, &batch)?;
        self.commit(Transaction::insert(table, batch, Mode::Upsert))
    }

    /// What the engine does not look at in rows of a batch.
    pub(crate) fn check(&self, table: &str, batch: &RecordBatch) -> Result<()> {
        match self.engine.view(&self.principal)?.table(table) {
            Ok(table) => json::check(batch, table.def()),
            // The commit says it better: it may be a view, or what the caller may not write.
            Err(_) => Ok(()),
        }
    }

    /// [`Database::insert`] for rows given value by value, in the order of `columns`.
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

    /// An Arrow batch of rows given value by value, for the named columns of a table.
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

    /// Ends the row of a key; 0 in [`Committed::deleted`] if there is none.
    pub fn delete(&self, table: &str, key: &[Value]) -> Result<Committed> {
        let op = Op::DeleteKeys { table: table.into(), keys: vec![key.to_vec()] };
        self.commit(Transaction::new(vec![op]))
    }

    /// The row of a key, as the newest snapshot has it.
    pub fn get(&self, table: &str, key: &[Value]) -> Result<Option<Row>> {
        row_of(&*self.engine.view(&self.principal)?.table(table)?, key)
    }

    /// Operations over any number of tables that happen together or not at all. Blocks until they are durable. Rows are
    /// taken as they come: that what goes into json columns is JSON is for the caller, unlike in [`Database::insert`].
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

    /// The same for async code: `done` is called once, from a thread that it must not block.
    pub fn commit_then(
        &self,
        transaction: Transaction,
        done: impl FnOnce(Result<Committed>) + Send + 'static,
    ) {
        self.engine.submit(&self.principal, transaction, done);
    }

    /// The whole database as of now: never changes, waits for nobody, keeps memory and files alive while it is held, and ends
    /// after [`Options::snapshot_age_max`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.leases.of(self.engine.root()))
    }

    /// The whole database as it was at an earlier commit, with the names and columns of then: as far back as
    /// [`engine::Options::history`] says, and further where nothing was changed or deleted since.
    ///
    /// [`crate::Kind::Invalid`] for an lsn that is yet to come. Of a table that cannot be read so far back, reading says so
    /// with [`crate::Kind::NotFound`].
    pub fn snapshot_at(&self, lsn: Lsn) -> Result<Snapshot> {
        let view = self.engine.view(&self.principal)?.at(lsn)?;
        Ok(Snapshot::new(self.leases.of_past(self.engine.root(), view)))
    }

    /// [`Database::snapshot_at`] for the last commit at or before a time, in µs since 1970 and to the millisecond.
    /// [`crate::Kind::NotFound`] if that is longer ago than commits are known.
    pub fn snapshot_at_time(&self, time: Micros) -> Result<Snapshot> {
        let view = self.engine.view(&self.principal)?;
        let lsn = view.lsn_at(time)?;
        Ok(Snapshot::new(self.leases.of_past(self.engine.root(), view.at(lsn)?)))
    }

    /// Follows a table's commits from `after` on: [`Lsn`] 0 for all that are still known, [`Database::snapshot`]'s to go
    /// on from what was read there.
    pub fn changes(&self, table: &str, after: Lsn) -> Result<Changes> {
        Changes::new(self.clone(), table, after)
    }

    /// Takes a backup of everything as of now into the folder `dest`, which must be empty or not there yet, while reads
    /// and writes go on, in a thread of the lowest priority. [`restore`](crate::restore()) makes a database of it again.
    ///
    /// Fails with [`crate::Kind::Exists`] if `dest` holds something, with [`crate::Kind::Damaged`] if a file of the
    /// database is damaged. After a failure what was written is removed.
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        let (engine, dest) = (self.engine.clone(), dest.as_ref().to_owned());
        let taken = Class::Background.spawn("pn-backup", move || engine.backup(&dest, &mut |_| Ok(())));
        let taken = taken.map_err(|e| Error::io("starting a thread", e))?.join();
        taken.unwrap_or_else(|_| Err(Error::internal("the thread that took the backup failed")))
    }

    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// The layer below, for what this face does not show.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// An Arrow batch of rows given value by value, for the named columns of a table.
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

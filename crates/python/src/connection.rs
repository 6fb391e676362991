//! Connections to a database.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use polynya::Lsn;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::capsule::{ArrowSource, arrow_source};
use crate::changes::Changes;
use crate::cursor::Cursor;
use crate::error::{OrRaise, database, interface};
use crate::open_databases::{Lease, Settings};
use crate::session::Session;
use crate::snapshot::Snapshot;
use crate::to_value::to_value;
use crate::wait;

/// The approximate size of one commit of appended rows, in bytes, unless a transaction is open.
const PIECE_BYTES: usize = 64 << 20;

/// Opens the database in the folder ``path``. Creates the folder and the database if they are missing.
///
/// Connections of one process to one folder share one open database, which closes with the last of them. If another process has
/// it open, this raises an ``OperationalError`` with the code ``in_use``.
///
/// ``autocommit``: True commits each statement by itself. Otherwise the first statement that reads or writes rows begins a
/// transaction, as in DB-API 2.0. It lasts until ``commit()`` or ``rollback()``, and at most 60 seconds.
///
/// The first connection to a folder may set the other options. ``timeout`` is the time of a statement including the reading of
/// its rows, in seconds (60). ``memory_bytes_max`` is the memory for the sorts, joins and groupings of all statements, which
/// spill to disk beyond it (256 MiB). ``rows_max`` is the size of an answer (10,000,000). ``history`` is the time for which
/// changed and deleted rows can be read with ``AS OF``, in seconds (600).
#[pyfunction]
#[pyo3(signature = (path, *, autocommit=false, timeout=None, memory_bytes_max=None, rows_max=None, history=None))]
pub fn connect(
    py: Python<'_>,
    path: PathBuf,
    autocommit: bool,
    timeout: Option<f64>,
    memory_bytes_max: Option<usize>,
    rows_max: Option<u64>,
    history: Option<f64>,
) -> PyResult<Connection> {
    let settings = Settings { timeout, memory_bytes_max, rows_max, history };
    let session = py.detach(|| Session::new(Lease::open(&path, &settings)?, autocommit))?;
    Ok(Connection { session: Arc::new(session), path })
}

/// A connection with its transaction. Made by ``polynya.connect``.
///
/// May be used from several threads. Its statements run one after the other, and all threads share its transaction. Threads that
/// need transactions of their own open their own connections to the same folder.
///
/// As a context manager it commits at the end, or rolls back after an exception, and closes.
#[pyclass(module = "polynya", frozen)]
pub struct Connection {
    session: Arc<Session>,
    path: PathBuf,
}

#[pymethods]
impl Connection {
    /// Returns a new cursor.
    fn cursor(slf: PyRef<'_, Self>) -> PyResult<Cursor> {
        slf.session.lease()?;
        let session = slf.session.clone();
        Ok(Cursor::new(slf.into(), session, None))
    }

    /// Runs ``cursor().execute(sql, parameters)`` and returns the cursor.
    #[pyo3(signature = (sql, parameters=None))]
    fn execute(
        slf: PyRef<'_, Self>,
        sql: Bound<'_, PyString>,
        parameters: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Cursor> {
        let py = slf.py();
        let mut cursor = Self::cursor(slf)?;
        cursor.run(py, &sql, parameters)?;
        Ok(cursor)
    }

    /// Runs ``cursor().executemany(sql, seq_of_parameters)`` and returns the cursor.
    fn executemany(
        slf: PyRef<'_, Self>,
        sql: Bound<'_, PyString>,
        seq_of_parameters: &Bound<'_, PyAny>,
    ) -> PyResult<Cursor> {
        let mut cursor = Self::cursor(slf)?;
        cursor.run_many(&sql, seq_of_parameters)?;
        Ok(cursor)
    }

    /// Commits the open transaction and returns once it survives a crash. Does nothing if none is open.
    ///
    /// Raises ``ConflictError`` if another writer changed a key or a row first; then nothing of the transaction is committed.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.commit())
    }

    /// Rolls back the open transaction. Does nothing if none is open.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.rollback())
    }

    /// Rolls back the open transaction and closes the connection. The database closes with the last connection to its folder, and
    /// another process may then open it. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.close())
    }

    /// Returns a transaction as a context manager, for connections with ``autocommit``. It begins the transaction, commits it at
    /// the end, and rolls it back after an exception::
    ///
    ///     with connection.transaction():
    ///         connection.execute("UPDATE ...")
    ///         connection.execute("INSERT ...")
    fn transaction(&self) -> Transaction {
        Transaction { session: self.session.clone() }
    }

    /// True if each statement commits by itself.
    #[getter]
    fn autocommit(&self) -> bool {
        self.session.autocommit()
    }

    #[setter]
    fn set_autocommit(&self, py: Python<'_>, autocommit: bool) -> PyResult<()> {
        py.detach(|| self.session.set_autocommit(autocommit))
    }

    /// True while a transaction is open.
    #[getter]
    fn in_transaction(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.session.is_open())
    }

    /// True after the connection was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.session.is_closed()
    }

    /// The folder of the database.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The number of the newest commit, from which ``snapshot`` and ``changes`` may start.
    #[getter]
    fn lsn(&self) -> PyResult<u64> {
        Ok(self.session.lease()?.database().snapshot().lsn().0)
    }

    /// Appends Arrow rows from an object with ``__arrow_c_stream__`` or ``__arrow_c_array__``, such as a pyarrow Table or
    /// RecordBatchReader, a polars or pandas DataFrame, or a DuckDB result. Columns are matched by name; missing ones get their
    /// default or NULL. With ``upsert`` rows with the same key are replaced. Returns the number of rows.
    ///
    /// In an open transaction the rows are part of it. With ``autocommit`` and no open transaction, up to 64 MiB are one commit;
    /// more is committed in pieces, and an error gives the number of rows committed before it.
    #[pyo3(signature = (table, data, *, upsert=false))]
    fn append(&self, py: Python<'_>, table: String, data: &Bound<'_, PyAny>, upsert: bool) -> PyResult<u64> {
        self.session.lease()?;
        let source = arrow_source(data)?;
        py.detach(|| append(&self.session, &table, source, upsert))
    }

    /// Returns the row of a key as a dict, or None. This is the fastest access to one row. It reads committed data, even while a
    /// transaction is open.
    #[pyo3(signature = (table, *key))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: String,
        key: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let lease = self.session.lease()?;
        crate::snapshot::get(py, &lease.database().snapshot(), &table, &key)
    }

    /// Returns an immutable snapshot of the whole database: the newest, or that of an earlier commit ``lsn`` or ``time`` (a
    /// datetime), as far back as ``history`` reaches.
    #[pyo3(signature = (*, lsn=None, time=None))]
    fn snapshot(
        slf: PyRef<'_, Self>,
        lsn: Option<u64>,
        time: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Snapshot> {
        let lease = slf.session.lease()?;
        let db = lease.database();
        let snapshot = match (lsn, time) {
            (None, None) => db.snapshot(),
            (Some(lsn), None) => db.snapshot_at(Lsn(lsn)).or_raise()?,
            (None, Some(time)) => match to_value(time, 0)? {
                polynya::Value::Timestamp(micros) => db.snapshot_at_time(micros).or_raise()?,
                _ => return Err(interface("`time` is no datetime", "pass a datetime.datetime")),
            },
            (Some(_), Some(_)) => return Err(interface("both `lsn` and `time` were given", "pass one")),
        };
        let session = slf.session.clone();
        Ok(Snapshot::new(slf.into(), session, snapshot))
    }

    /// Follows a table: returns an iterator of pages with the inserts and deletes of the commits after ``after``, in order. By
    /// default it begins with the next commit; ``after=0`` begins with the oldest known one.
    ///
    /// It waits for commits, and ends after ``timeout`` seconds without one; ``timeout=0`` returns only existing commits. Pass
    /// its ``position`` as ``after`` to resume later: then no change is missed and none comes twice.
    #[pyo3(signature = (table, *, after=None, timeout=None))]
    fn changes(&self, table: String, after: Option<u64>, timeout: Option<f64>) -> PyResult<Changes> {
        let lease = self.session.lease()?;
        let db = lease.database();
        let after = after.map_or_else(|| db.snapshot().lsn(), Lsn);
        Changes::new(self.session.clone(), db.changes(&table, after).or_raise()?, table, timeout)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.session.lease()?;
        Ok(slf)
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (_, _) = (value, traceback);
        let failed = kind.is_some();
        py.detach(|| {
            if self.session.is_closed() {
                return Ok(());
            }
            let ended = if failed { self.session.rollback() } else { self.session.commit() };
            let closed = self.session.close();
            // An error of the block takes precedence.
            if failed { Ok(()) } else { ended.and(closed) }
        })
    }

    fn __repr__(&self) -> String {
        let closed = if self.session.is_closed() { ", closed" } else { "" };
        format!("<polynya.Connection to {}{closed}>", self.path.display())
    }
}

/// A transaction as a context manager. Made by ``Connection.transaction``.
#[pyclass(module = "polynya", frozen)]
pub struct Transaction {
    session: Arc<Session>,
}

#[pymethods]
impl Transaction {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.run("BEGIN", &[]).map(drop))
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (_, _) = (value, traceback);
        let failed = kind.is_some();
        py.detach(|| {
            if failed {
                // An error of the block takes precedence.
                let _ = self.session.rollback();
                return Ok(());
            }
            self.session.commit()
        })
    }
}

fn append(session: &Session, table: &str, source: ArrowSource, upsert: bool) -> PyResult<u64> {
    let (mut waiting, mut bytes, mut count) = (Vec::new(), 0, 0);
    let write = |waiting: &mut Vec<RecordBatch>, count: &mut u64| -> PyResult<()> {
        wait::check_signals()?;
        let Some(first) = waiting.first() else { return Ok(()) };
        let all = match &waiting[..] {
            [only] => only.clone(),
            _ => concat_batches(&first.schema(), &*waiting)
                .map_err(|e| interface(format!("the batches differ: {e}"), "give batches of one schema"))?,
        };
        waiting.clear();
        let in_transaction = !session.autocommit() || session.is_open()?;
        *count += session.insert(table, all, upsert)?.map_err(|error| {
            let before = (!in_transaction && *count > 0).then_some(*count);
            database(match before {
                Some(before) => error.with("rows committed before", before),
                None => error,
            })
        })?;
        Ok(())
    };
    for batch in source {
        let batch = batch.or_raise()?;
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1) + 1;
        for piece in pieces(batch) {
            let size = row_bytes * piece.num_rows();
            if bytes + size > PIECE_BYTES {
                write(&mut waiting, &mut count)?;
                bytes = 0;
            }
            bytes += size;
            waiting.push(piece);
        }
    }
    write(&mut waiting, &mut count)?;
    Ok(count)
}

/// Splits a batch into parts that are committed separately.
fn pieces(batch: RecordBatch) -> Vec<RecordBatch> {
    let parts = batch.get_array_memory_size().div_ceil(PIECE_BYTES).max(1);
    let rows = batch.num_rows().div_ceil(parts).max(1);
    (0..batch.num_rows()).step_by(rows).map(|at| batch.slice(at, rows.min(batch.num_rows() - at))).collect()
}

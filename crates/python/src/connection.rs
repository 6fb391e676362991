//! Connections.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use polynya::Lsn;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::capsule::{Given, given};
use crate::changes::Changes;
use crate::cursor::Cursor;
use crate::error::{OrRaise, database, interface};
use crate::opened::{Lease, Settings};
use crate::session::Session;
use crate::snapshot::Snapshot;
use crate::to_value::to_value;
use crate::wait;

/// Rows that are appended are committed in pieces of about so much, unless a transaction is open.
const PIECE_BYTES: usize = 64 << 20;

/// Opens the database in the folder ``path``, making both if they are missing.
///
/// Connections of one process to one folder share one open database, which closes with the last of them. Another process
/// that has it open is an ``OperationalError`` with the code ``in_use``.
///
/// ``autocommit``: whether each statement commits by itself. If not, the first statement that reads or writes rows begins
/// a transaction, as DB-API 2.0 has it; it lasts until ``commit()`` or ``rollback()``, and at most 60 seconds.
///
/// The rest may be said by the first connection to a folder: ``timeout``, the seconds that a statement may take with the
/// reading of its rows (60); ``memory_bytes_max`` for the sorts, joins and groupings of all statements, which spill to
/// disk beyond it (256 MiB); ``rows_max`` of an answer (10,000,000); ``history``, the seconds that changed and deleted
/// rows can be read ``AS OF`` an earlier point (600).
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
    let session = py.detach(|| Session::new(Lease::take(&path, &settings)?, autocommit))?;
    Ok(Connection { session: Arc::new(session), path })
}

/// A connection: statements, and the transaction that they stand in. Made by ``polynya.connect``.
///
/// May be used from several threads; its statements run one after the other, and its transaction is everybody's. Threads
/// that want transactions of their own open connections of their own, to the same folder.
///
/// As a context manager it commits at the end, or rolls back after an exception, and closes.
#[pyclass(module = "polynya", frozen)]
pub struct Connection {
    session: Arc<Session>,
    path: PathBuf,
}

#[pymethods]
impl Connection {
    /// A new cursor.
    fn cursor(slf: PyRef<'_, Self>) -> PyResult<Cursor> {
        slf.session.lease()?;
        let session = slf.session.clone();
        Ok(Cursor::new(slf.into(), session, None))
    }

    /// ``cursor().execute(sql, parameters)``.
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

    /// ``cursor().executemany(sql, seq_of_parameters)``.
    fn executemany(
        slf: PyRef<'_, Self>,
        sql: Bound<'_, PyString>,
        seq_of_parameters: &Bound<'_, PyAny>,
    ) -> PyResult<Cursor> {
        let mut cursor = Self::cursor(slf)?;
        cursor.run_many(&sql, seq_of_parameters)?;
        Ok(cursor)
    }

    /// Commits the transaction that is open, and returns once that survives a crash. Does nothing if none is open.
    ///
    /// ``ConflictError``: another writer was faster with a key or a row, and nothing of the transaction has happened.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.commit())
    }

    /// Undoes the transaction that is open. Does nothing if none is open.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.rollback())
    }

    /// Rolls back what is open and closes. With the last connection to a folder its database closes, and another process
    /// may open it. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.close())
    }

    /// A transaction as a block, for connections with ``autocommit``: begins one, commits it at the end, rolls it back after
    /// an exception::
    ///
    ///     with connection.transaction():
    ///         connection.execute("UPDATE ...")
    ///         connection.execute("INSERT ...")
    fn transaction(&self) -> Transaction {
        Transaction { session: self.session.clone() }
    }

    /// Whether each statement commits by itself.
    #[getter]
    fn autocommit(&self) -> bool {
        self.session.autocommit()
    }

    #[setter]
    fn set_autocommit(&self, py: Python<'_>, autocommit: bool) -> PyResult<()> {
        py.detach(|| self.session.set_autocommit(autocommit))
    }

    /// Whether a transaction is open.
    #[getter]
    fn in_transaction(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.session.is_open())
    }

    /// Whether the connection was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.session.is_closed()
    }

    /// The folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The number of the newest commit: where ``snapshot`` and ``changes`` may start.
    #[getter]
    fn lsn(&self) -> PyResult<u64> {
        Ok(self.session.lease()?.database().snapshot().lsn().0)
    }

    /// Appends rows that are Arrow already: whatever has ``__arrow_c_stream__`` or ``__arrow_c_array__``, such as a pyarrow
    /// Table or RecordBatchReader, a polars or pandas DataFrame, a DuckDB result. Columns are matched by name; those that
    /// are missing get their default or NULL. With ``upsert`` rows of the same key are replaced. Gives the number of rows.
    ///
    /// In a transaction they are a part of it. With ``autocommit`` and none open, up to 64 MiB are one commit; more is
    /// committed in pieces, and an error says how many rows were committed before it.
    #[pyo3(signature = (table, data, *, upsert=false))]
    fn append(&self, py: Python<'_>, table: String, data: &Bound<'_, PyAny>, upsert: bool) -> PyResult<u64> {
        self.session.lease()?;
        let given = given(data)?;
        py.detach(|| append(&self.session, &table, given, upsert))
    }

    /// The row of a key as a dict, or None: the quickest way to one row. It reads what is committed, whatever transaction is
    /// open.
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

    /// The whole database at one point, which never changes: now, or at an earlier commit ``lsn`` or ``time`` (a datetime),
    /// as far back as ``history`` reaches.
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

    /// Follows a table: an iterator of pages with what commits after ``after`` inserted and deleted, in order. By default it
    /// begins with the next commit; ``after=0`` gives all that is still known.
    ///
    /// It waits for commits, and ends once none came for ``timeout`` seconds; ``timeout=0`` gives what is there. Its
    /// ``position`` is what to pass as ``after`` to go on later: nothing is missed and nothing comes twice.
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
            // An error of the block is the one to be heard of.
            if failed { Ok(()) } else { ended.and(closed) }
        })
    }

    fn __repr__(&self) -> String {
        let closed = if self.session.is_closed() { ", closed" } else { "" };
        format!("<polynya.Connection to {}{closed}>", self.path.display())
    }
}

/// A transaction as a block. Made by ``Connection.transaction``.
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
                // An error of the block is the one to be heard of.
                let _ = self.session.rollback();
                return Ok(());
            }
            self.session.commit()
        })
    }
}

fn append(session: &Session, table: &str, given: Given, upsert: bool) -> PyResult<u64> {
    let (mut waiting, mut bytes, mut count) = (Vec::new(), 0, 0);
    let write = |waiting: &mut Vec<RecordBatch>, count: &mut u64| -> PyResult<()> {
        wait::look()?;
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
    for batch in given {
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

/// A batch in parts that may be committed.
fn pieces(batch: RecordBatch) -> Vec<RecordBatch> {
    let parts = batch.get_array_memory_size().div_ceil(PIECE_BYTES).max(1);
    let rows = batch.num_rows().div_ceil(parts).max(1);
    (0..batch.num_rows()).step_by(rows).map(|at| batch.slice(at, rows.min(batch.num_rows() - at))).collect()
}

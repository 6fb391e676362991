//! Cursors: statements and their rows.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use polynya::Value;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyString, PyTuple};

use crate::capsule;
use crate::connection::Connection;
use crate::error::{OrRaise, interface};
use crate::from_arrow;
use crate::rows::{ArrowRows, ErrorSlot, Reader, StatementRows};
use crate::session::{Session, StatementResult};
use crate::text::numbered;
use crate::to_value::params;
use crate::wait::{self, ReadError};

/// The number of parameter lists that are taken from Python and run at a time.
const LISTS_AT_ONCE: usize = 1_000;

/// Runs statements and returns their rows. Made by ``Connection.cursor``. For one thread at a time.
///
/// Rows are read when they are fetched, so an answer of any size takes little memory. Dropping or closing the cursor ends the
/// statement.
#[pyclass(module = "polynya")]
pub struct Cursor {
    connection: Py<Connection>,
    session: Arc<Session>,
    /// The snapshot to read instead of the newest state.
    snapshot: Option<polynya::Snapshot>,
    schema: Option<SchemaRef>,
    types: Vec<String>,
    answer: Option<StatementRows>,
    /// Batches that were read already.
    ahead: VecDeque<RecordBatch>,
    /// The position of the next row in the first of them.
    at: usize,
    read: i64,
    rowcount: i64,
    closed: bool,
    /// The default number of rows of ``fetchmany``.
    #[pyo3(get, set)]
    arraysize: usize,
}

impl Cursor {
    pub fn new(
        connection: Py<Connection>,
        session: Arc<Session>,
        snapshot: Option<polynya::Snapshot>,
    ) -> Self {
        Cursor {
            connection,
            session,
            snapshot,
            schema: None,
            types: Vec::new(),
            answer: None,
            ahead: VecDeque::new(),
            at: 0,
            read: 0,
            rowcount: -1,
            closed: false,
            arraysize: 1,
        }
    }

    /// Discards the result of the last statement.
    fn begin(&mut self) -> PyResult<()> {
        if self.closed {
            return Err(interface("the cursor is closed", "`Connection.cursor` makes another one"));
        }
        self.answer = None;
        self.ahead.clear();
        self.schema = None;
        (self.at, self.read, self.rowcount) = (0, 0, -1);
        Ok(())
    }

    pub fn run(
        &mut self,
        py: Python<'_>,
        sql: &Bound<'_, PyString>,
        parameters: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.begin()?;
        let (text, values) = (sql.to_cow()?, params(parameters)?);
        let (session, snapshot) = (&self.session, self.snapshot.as_ref());
        let outcome = py.detach(|| match snapshot {
            None => session.run(&text, &values),
            Some(snapshot) => read(session, snapshot, &text, &values),
        })?;
        match outcome {
            StatementResult::Done(changed) => self.rowcount = changed.map_or(-1, |rows| rows as i64),
            StatementResult::Rows(rows, transaction) => {
                let is_returned = rows.is_returned();
                let mut answer = StatementRows::new(
                    rows,
                    transaction.map(|transaction| (self.session.clone(), transaction)),
                );
                self.schema = Some(answer.schema().clone());
                self.types = answer.types();
                if is_returned {
                    // The rows are in memory, and the caller needs their number.
                    while let Some(batch) = answer.next().map_err(ReadError::raised)? {
                        self.ahead.push_back(batch);
                    }
                    self.rowcount = self.ahead.iter().map(|batch| batch.num_rows() as i64).sum();
                } else {
                    self.answer = Some(answer);
                }
            }
        }
        Ok(())
    }

    pub fn run_many(&mut self, sql: &Bound<'_, PyString>, lists: &Bound<'_, PyAny>) -> PyResult<()> {
        self.begin()?;
        if self.snapshot.is_some() {
            return Err(interface("a snapshot is only read", "write with a cursor of the connection"));
        }
        let py = sql.py();
        let text = sql.to_cow()?.into_owned();
        let lists = lists.try_iter()?.unbind();
        let mut ended = false;
        // Runs detached from the interpreter, which is attached only while values are read.
        let next = std::iter::from_fn(|| {
            if ended {
                return None;
            }
            let some = Python::attach(|py| {
                let mut some = Vec::new();
                let mut lists = lists.bind(py).clone();
                while some.len() < LISTS_AT_ONCE {
                    match lists.next() {
                        Some(list) => some.push(params(Some(&list?))?),
                        None => break,
                    }
                }
                Ok(some)
            });
            ended = some.as_ref().map_or(true, |some| some.len() < LISTS_AT_ONCE);
            Some(some)
        });
        let session = &self.session;
        self.rowcount = py.detach(|| session.run_many(&text, next))? as i64;
        Ok(())
    }

    /// Returns the batch with the next row, or `None` after the last row.
    fn batch(&mut self) -> PyResult<Option<&RecordBatch>> {
        if self.closed {
            return Err(interface("the cursor is closed", "`Connection.cursor` makes another one"));
        }
        if self.schema.is_none() {
            return Err(interface(
                "there are no rows: no statement that gives some was run",
                "`execute` one",
            ));
        }
        while self.ahead.front().is_some_and(|batch| self.at >= batch.num_rows()) {
            self.ahead.pop_front();
            self.at = 0;
        }
        if self.ahead.is_empty()
            && let Some(answer) = &mut self.answer
        {
            match answer.next().map_err(ReadError::raised) {
                Ok(Some(batch)) => self.ahead.push_back(batch),
                Ok(None) => {
                    self.answer = None;
                    self.rowcount = self.read;
                }
                Err(error) => {
                    self.answer = None;
                    return Err(error);
                }
            }
        }
        Ok(self.ahead.front())
    }

    fn rows<'py>(&mut self, py: Python<'py>, most: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let mut rows = Vec::new();
        while rows.len() < most {
            // After `batch` returns, `at` is within the first batch.
            if self.batch()?.is_none() {
                break;
            }
            let (from, Some(batch)) = (self.at, self.ahead.front()) else { break };
            let until = from + (batch.num_rows() - from).min(most - rows.len());
            for at in from..until {
                rows.push(from_arrow::row(py, batch, at)?);
            }
            self.at = until;
            self.read += (until - from) as i64;
        }
        Ok(rows)
    }

    /// Returns the rows that were not fetched yet.
    fn rest(&mut self) -> PyResult<(ArrowRows, ErrorSlot)> {
        self.batch()?;
        let mut ahead = std::mem::take(&mut self.ahead);
        if let Some(first) = ahead.front_mut() {
            *first = first.slice(self.at, first.num_rows() - self.at);
        }
        self.at = 0;
        let schema = self.schema.clone().unwrap_or_else(|| Arc::new(arrow::datatypes::Schema::empty()));
        let mut answer = self.answer.take();
        let rest = std::iter::from_fn(move || answer.as_mut()?.next().transpose());
        let reader = Reader::new(&schema, ahead.into_iter().map(Ok).chain(rest));
        let slot = reader.slot();
        Ok((ArrowRows::new(reader), slot))
    }

    /// Passes the remaining rows to pyarrow. Errors keep their class, which Arrow's interface cannot carry.
    fn pyarrow<'py>(&mut self, py: Python<'py>, read: &str) -> PyResult<Bound<'py, PyAny>> {
        let pyarrow = py.import("pyarrow").map_err(|_| {
            interface(
                "pyarrow is not installed",
                "`pip install pyarrow`, or pass the cursor to what reads Arrow",
            )
        })?;
        let (rows, slot) = self.rest()?;
        let reader =
            pyarrow.getattr("RecordBatchReader")?.call_method1("from_stream", (Py::new(py, rows)?,))?;
        if read.is_empty() {
            return Ok(reader);
        }
        reader.call_method0(read).map_err(|theirs| {
            let ours = slot.lock().take();
            ours.map_or(theirs, |ours| {
                // Consumes the signal that was raised a second time.
                let _ = py.check_signals();
                ours.raised()
            })
        })
    }
}

#[pymethods]
impl Cursor {
    /// Runs one statement of PostgreSQL's dialect. ``parameters`` are the values of ``$1``, ``$2``, ..., or of each ``?`` in
    /// turn. Returns the cursor, so that ``for row in cursor.execute(...)`` works.
    #[pyo3(signature = (sql, parameters=None))]
    fn execute<'py>(
        mut slf: PyRefMut<'py, Self>,
        sql: Bound<'py, PyString>,
        parameters: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let py = slf.py();
        slf.run(py, &sql, parameters)?;
        Ok(slf)
    }

    /// Runs one statement without result rows once for each list of values. With ``autocommit`` and no open transaction all of
    /// them are one transaction. ``rowcount`` is the sum. For many rows ``Connection.append`` is faster.
    fn executemany<'py>(
        mut slf: PyRefMut<'py, Self>,
        sql: Bound<'py, PyString>,
        seq_of_parameters: &Bound<'py, PyAny>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        slf.run_many(&sql, seq_of_parameters)?;
        Ok(slf)
    }

    /// Returns the next row as a tuple, or None after the last.
    fn fetchone<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        Ok(self.rows(py, 1)?.pop())
    }

    /// Returns a list of the next ``size`` rows (default ``arraysize``), fewer at the end.
    #[pyo3(signature = (size=None))]
    fn fetchmany<'py>(&mut self, py: Python<'py>, size: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.rows(py, size.unwrap_or(self.arraysize))?;
        PyList::new(py, rows)
    }

    /// Returns a list of all remaining rows.
    fn fetchall<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.rows(py, usize::MAX)?;
        PyList::new(py, rows)
    }

    /// Returns the remaining rows as Arrow data for any library that reads them, batch by batch, without a copy.
    fn fetch_arrow(&mut self) -> PyResult<ArrowRows> {
        Ok(self.rest()?.0)
    }

    /// Returns the remaining rows as a ``pyarrow.Table``, without a copy.
    fn fetch_arrow_table<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.pyarrow(py, "read_all")
    }

    /// Returns the remaining rows as a ``pyarrow.RecordBatchReader``, batch by batch, in bounded memory.
    fn fetch_record_batch<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.pyarrow(py, "")
    }

    /// Exports the remaining rows to libraries that read Arrow: ``polars.DataFrame(cursor)``, ``pyarrow.table(cursor)``.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let (rows, _) = self.rest()?;
        capsule::stream(py, rows.take()?)
    }

    /// One tuple per column of the rows: name, type, and the other five fields of DB-API 2.0, of which precision and scale are
    /// set for decimals. None if the last statement gave no rows. The type is a text such as ``"int64"``, which equals
    /// ``polynya.STRING``, ``BINARY``, ``NUMBER`` or ``DATETIME`` if it is one of these.
    #[getter]
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(schema) = &self.schema else { return Ok(None) };
        let column = |(field, name): (&arrow::datatypes::FieldRef, &String)| {
            let (precision, scale) = match field.data_type() {
                DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                    (Some(*precision), Some(*scale))
                }
                _ => (None, None),
            };
            let none = None::<bool>;
            (field.name(), name, none, none, precision, scale, none).into_pyobject(py)
        };
        let columns = schema.fields().iter().zip(&self.types).map(column).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, columns).map(Some)
    }

    /// The number of rows that the last statement changed, or returned once all are fetched; -1 while it is unknown.
    #[getter]
    fn rowcount(&self) -> i64 {
        self.rowcount
    }

    /// The connection of this cursor.
    #[getter]
    fn connection(&self, py: Python<'_>) -> Py<Connection> {
        self.connection.clone_ref(py)
    }

    /// Closes the cursor and ends its statement.
    fn close(&mut self) {
        let _ = self.begin();
        self.closed = true;
    }

    /// Does nothing; DB-API 2.0 requires it.
    #[pyo3(signature = (sizes))]
    fn setinputsizes(&self, sizes: &Bound<'_, PyAny>) {
        let _ = sizes;
    }

    /// Does nothing; DB-API 2.0 requires it.
    #[pyo3(signature = (size, column=None))]
    fn setoutputsize(&self, size: &Bound<'_, PyAny>, column: Option<&Bound<'_, PyAny>>) {
        let (_, _) = (size, column);
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.fetchone(py)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }
}

/// Runs a read-only statement over a snapshot.
fn read(
    session: &Session,
    snapshot: &polynya::Snapshot,
    text: &str,
    params: &[Value],
) -> PyResult<StatementResult> {
    let lease = session.lease()?;
    let text = match params {
        [] => text.into(),
        _ => numbered(text).or_raise()?,
    };
    let rows = wait::wait(lease.database().query_in(snapshot, &text, params))?.or_raise()?;
    Ok(StatementResult::Rows(rows, None))
}

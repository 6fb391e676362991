//! Cursors: statements, and the rows that they gave.

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
use crate::rows::{Answer, ArrowRows, Reader, Slot};
use crate::session::{Outcome, Session};
use crate::text::numbered;
use crate::to_value::params;
use crate::wait::{self, Broken};

/// How many lists of values are run before the next ones are taken from Python.
const LISTS_AT_ONCE: usize = 1_000;

/// Runs statements and gives their rows. Made by ``Connection.cursor``; to be used by one thread at a time.
///
/// Rows are read as they are fetched: an answer of any size takes little memory, and dropping the cursor, or closing it,
/// ends the statement.
#[pyclass(module = "polynya")]
pub struct Cursor {
    connection: Py<Connection>,
    session: Arc<Session>,
    /// What is read instead of the newest.
    snapshot: Option<polynya::Snapshot>,
    schema: Option<SchemaRef>,
    types: Vec<String>,
    answer: Option<Answer>,
    /// Batches that are there already.
    ahead: VecDeque<RecordBatch>,
    /// The next row of the first of them.
    at: usize,
    read: i64,
    rowcount: i64,
    closed: bool,
    /// How many rows ``fetchmany`` gives unless told otherwise.
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

    /// Forgets what the last statement gave.
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
            Outcome::Done(changed) => self.rowcount = changed.map_or(-1, |rows| rows as i64),
            Outcome::Rows(rows, transaction) => {
                let is_returned = rows.is_returned();
                let mut answer =
                    Answer::new(rows, transaction.map(|transaction| (self.session.clone(), transaction)));
                self.schema = Some(answer.schema().clone());
                self.types = answer.types();
                if is_returned {
                    // They are there, and who changes rows wants to know how many.
                    while let Some(batch) = answer.next().map_err(Broken::raised)? {
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
        // Called without the interpreter, which is taken for as long as values are read.
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

    /// The batch with the next row; `None` behind the last.
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
            match answer.next().map_err(Broken::raised) {
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
            // Afterwards `at` is within the first batch.
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

    /// The rows that were not fetched yet.
    fn rest(&mut self) -> PyResult<(ArrowRows, Slot)> {
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

    /// Passes the rest to pyarrow. Errors keep their class, which Arrow's interface has no place for.
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
                // The signal that was raised once more is heard of now.
                let _ = py.check_signals();
                ours.raised()
            })
        })
    }
}

#[pymethods]
impl Cursor {
    /// Runs one statement of PostgreSQL's dialect. ``parameters`` are the values of ``$1``, ``$2``, ..., or of each ``?`` in
    /// turn. Gives the cursor, so that ``for row in cursor.execute(...)`` works.
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

    /// Runs one statement that gives no rows with each of several lists of values. With ``autocommit`` and no transaction
    /// open, all of them are one transaction. ``rowcount`` is the sum. For many rows ``Connection.append`` is faster.
    fn executemany<'py>(
        mut slf: PyRefMut<'py, Self>,
        sql: Bound<'py, PyString>,
        seq_of_parameters: &Bound<'py, PyAny>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        slf.run_many(&sql, seq_of_parameters)?;
        Ok(slf)
    }

    /// The next row as a tuple; None behind the last.
    fn fetchone<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        Ok(self.rows(py, 1)?.pop())
    }

    /// The next ``size`` rows (``arraysize``, unless given), fewer at the end, in a list.
    #[pyo3(signature = (size=None))]
    fn fetchmany<'py>(&mut self, py: Python<'py>, size: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.rows(py, size.unwrap_or(self.arraysize))?;
        PyList::new(py, rows)
    }

    /// All rows that are left, in a list.
    fn fetchall<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.rows(py, usize::MAX)?;
        PyList::new(py, rows)
    }

    /// The rows that are left as Arrow data, for any library that reads them. Without a copy, batch by batch.
    fn fetch_arrow(&mut self) -> PyResult<ArrowRows> {
        Ok(self.rest()?.0)
    }

    /// The rows that are left as a ``pyarrow.Table``, without a copy.
    fn fetch_arrow_table<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.pyarrow(py, "read_all")
    }

    /// The rows that are left as a ``pyarrow.RecordBatchReader``: batch by batch, in memory that does not grow.
    fn fetch_record_batch<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.pyarrow(py, "")
    }

    /// The rows that are left, for libraries that read Arrow: ``polars.DataFrame(cursor)``, ``pyarrow.table(cursor)``.
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

    /// One tuple for each column of the rows: name, type, and five places of DB-API 2.0, of which precision and scale are
    /// known of decimals. None if the last statement gave no rows. The type is its name as text (``"int64"``), which is
    /// equal to ``polynya.STRING``, ``BINARY``, ``NUMBER`` or ``DATETIME``, if it is one of these.
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

    /// How many rows the last statement changed, or gave once all were fetched; -1 while that is not known.
    #[getter]
    fn rowcount(&self) -> i64 {
        self.rowcount
    }

    /// The connection.
    #[getter]
    fn connection(&self, py: Python<'_>) -> Py<Connection> {
        self.connection.clone_ref(py)
    }

    /// Ends the statement whose rows are being read.
    fn close(&mut self) {
        let _ = self.begin();
        self.closed = true;
    }

    /// Does nothing; DB-API 2.0 wants it.
    #[pyo3(signature = (sizes))]
    fn setinputsizes(&self, sizes: &Bound<'_, PyAny>) {
        let _ = sizes;
    }

    /// Does nothing; DB-API 2.0 wants it.
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

/// Runs a statement that only reads, over a snapshot.
fn read(session: &Session, snapshot: &polynya::Snapshot, text: &str, params: &[Value]) -> PyResult<Outcome> {
    let lease = session.lease()?;
    let text = match params {
        [] => text.into(),
        _ => numbered(text).or_raise()?,
    };
    let rows = wait::wait(lease.database().query_in(snapshot, &text, params))?.or_raise()?;
    Ok(Outcome::Rows(rows, None))
}

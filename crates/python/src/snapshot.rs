//! The database at one lsn.

use std::sync::Arc;

use polynya::Value;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::connection::Connection;
use crate::cursor::Cursor;
use crate::error::{OrRaise, interface};
use crate::from_arrow;
use crate::rows::{ArrowRows, Reader};
use crate::session::Session;
use crate::to_value::to_value;
use crate::wait::ReadError;

/// The whole database at one commit. It never changes. The memory and files that it holds are released when it is closed, at the
/// end of its ``with`` block, or with the object. Made by ``Connection.snapshot``.
#[pyclass(module = "polynya", frozen)]
pub struct Snapshot {
    connection: Py<Connection>,
    session: Arc<Session>,
    inner: parking_lot::Mutex<Option<polynya::Snapshot>>,
}

impl Snapshot {
    pub fn new(connection: Py<Connection>, session: Arc<Session>, inner: polynya::Snapshot) -> Self {
        Snapshot { connection, session, inner: parking_lot::Mutex::new(Some(inner)) }
    }

    fn inner(&self) -> PyResult<polynya::Snapshot> {
        let inner = self.inner.lock().clone();
        inner.ok_or_else(|| interface("the snapshot is closed", "`Connection.snapshot` takes another one"))
    }
}

#[pymethods]
impl Snapshot {
    /// The number of the last commit that it contains.
    #[getter]
    fn lsn(&self) -> PyResult<u64> {
        Ok(self.inner()?.lsn().0)
    }

    /// Runs one read-only statement and returns a cursor.
    #[pyo3(signature = (sql, parameters=None))]
    fn execute(
        &self,
        py: Python<'_>,
        sql: Bound<'_, PyString>,
        parameters: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Cursor> {
        let connection = self.connection.clone_ref(py);
        let mut cursor = Cursor::new(connection, self.session.clone(), Some(self.inner()?));
        cursor.run(py, &sql, parameters)?;
        Ok(cursor)
    }

    /// Returns all rows of a table as Arrow data in the order of their row ids, with ``_row_id`` and ``_time``. They are the
    /// table's own memory, without a copy.
    fn scan(&self, table: &str) -> PyResult<ArrowRows> {
        let scan = self.inner()?.scan(table).or_raise()?;
        let schema = scan.schema().clone();
        Ok(ArrowRows::new(Reader::new(&schema, scan.map(|batch| batch.map_err(ReadError::Database)))))
    }

    /// Returns the row of a key as a dict, or None.
    #[pyo3(signature = (table, *key))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        key: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        get(py, &self.inner()?, table, &key)
    }

    /// Releases the snapshot. Rows that were returned stay valid.
    fn close(&self) {
        let inner = self.inner.lock().take();
        drop(inner);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }
}

/// Returns the row of a key as a dict.
pub fn get<'py>(
    py: Python<'py>,
    snapshot: &polynya::Snapshot,
    table: &str,
    key: &[Bound<'py, PyAny>],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let key = key.iter().map(|value| to_value(value, 0)).collect::<PyResult<Vec<_>>>()?;
    let def = snapshot.definition(table).or_raise()?;
    let key = key
        .into_iter()
        .zip(def.key_columns().map(Some).chain(std::iter::repeat(None)))
        .map(|(value, column)| match column {
            Some(column) => value.cast(&column.data_type).map_err(|e| e.with("column", &column.name)),
            None => Ok(value),
        })
        .collect::<polynya::Result<Vec<Value>>>()
        .or_raise()?;
    let Some(row) = snapshot.get(table, &key).or_raise()? else { return Ok(None) };
    let values = row.values().or_raise()?;
    let dict = PyDict::new(py);
    let fields = def.schema.to_arrow_user();
    for ((column, field), value) in def.schema.columns.iter().zip(fields.fields()).zip(values) {
        let array = Value::to_array(&[value], &column.data_type).or_raise()?;
        dict.set_item(&column.name, from_arrow::value(py, &array, field, 0)?)?;
    }
    Ok(Some(dict.into_any()))
}

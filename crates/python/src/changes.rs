//! An iterator over the commits of one table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use polynya::{Inserted, Page};
use pyo3::prelude::*;

use crate::error::{OrRaise, interface};
use crate::rows::{ArrowRows, Reader};
use crate::session::Session;
use crate::wait;

/// The commits of a table, page by page. Made by ``Connection.changes``.
#[pyclass(module = "polynya")]
pub struct Changes {
    session: Arc<Session>,
    changes: polynya::Changes,
    table: String,
    timeout: Option<Duration>,
}

impl Changes {
    pub fn new(
        session: Arc<Session>,
        changes: polynya::Changes,
        table: String,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let duration = |seconds| {
            let error = || interface(format!("`timeout` is {seconds}"), "give a number of seconds from 0 on");
            Duration::try_from_secs_f64(seconds).map_err(|_| error())
        };
        Ok(Changes { session, changes, table, timeout: timeout.map(duration).transpose()? })
    }

    /// Waits for the next page; `None` after the timeout.
    fn next(&mut self) -> PyResult<Option<Page>> {
        let start = Instant::now();
        loop {
            self.session.lease()?;
            let left = self.timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let longest =
                left.map_or(wait::SIGNAL_CHECK_INTERVAL, |left| left.min(wait::SIGNAL_CHECK_INTERVAL));
            let page = self.changes.wait(longest).or_raise()?;
            if page.is_some() || left.is_some_and(|left| left.is_zero()) {
                return Ok(page);
            }
            wait::check_signals()?;
        }
    }
}

#[pymethods]
impl Changes {
    /// The commit up to which all changes were returned. Pass it as ``after`` to resume.
    #[getter]
    fn position(&self) -> u64 {
        self.changes.position().0
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<ChangePage>> {
        let Some(page) = py.detach(|| self.next())? else { return Ok(None) };
        let lease = self.session.lease()?;
        let schema = match page.inserted.first() {
            Some(first) => first.batch.schema(),
            None => lease.database().snapshot().scan(&self.table).or_raise()?.schema().clone(),
        };
        Ok(Some(ChangePage { schema, page }))
    }
}

/// The changes of some commits to a table. A row that was inserted and deleted within one page is only among the deleted. An
/// update is a delete of the old row id and an insert under a new one.
#[pyclass(module = "polynya", frozen)]
pub struct ChangePage {
    schema: SchemaRef,
    page: Page,
}

#[pymethods]
impl ChangePage {
    /// The inserted rows as Arrow data: ``_row_id``, ``_time``, the table's columns, and ``_lsn``, the commit.
    #[getter]
    fn inserted(&self) -> PyResult<ArrowRows> {
        let mut fields = self.schema.fields().to_vec();
        fields.push(Arc::new(Field::new("_lsn", DataType::Int64, false)));
        let schema = Schema::new(fields);
        let batches = self.page.inserted.iter().map(|inserted| with_lsn(inserted, &schema));
        let batches = batches.collect::<PyResult<Vec<_>>>()?;
        Ok(ArrowRows::new(Reader::new(&schema, batches.into_iter().map(Ok))))
    }

    /// The deleted rows: pairs of row id and commit, in the order of the commits.
    #[getter]
    fn deleted(&self) -> Vec<(u64, u64)> {
        self.page.deleted.iter().map(|(row, lsn)| (row.0, lsn.0)).collect()
    }

    /// The number of inserted rows.
    #[getter]
    fn inserted_count(&self) -> usize {
        self.page.inserted.iter().map(|inserted| inserted.batch.num_rows()).sum()
    }

    /// The last commit of the page.
    #[getter]
    fn lsn(&self) -> u64 {
        self.page.next.0
    }
}

fn with_lsn(inserted: &Inserted, schema: &Schema) -> PyResult<RecordBatch> {
    let lsns = inserted.runs.iter().flat_map(|(lsn, rows)| std::iter::repeat_n(lsn.0 as i64, *rows));
    let mut columns = inserted.batch.columns().to_vec();
    columns.push(Arc::new(Int64Array::from_iter_values(lsns)) as ArrayRef);
    RecordBatch::try_new(Arc::new(schema.clone()), columns)
        .map_err(|e| interface(format!("the table changed within a page: {e}"), "ask from its position on"))
}

//! Rows as they are read: by cursors, and by other libraries as Arrow.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use parking_lot::Mutex;
use polynya::Rows;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capsule;
use crate::error::interface;
use crate::session::Session;
use crate::wait::{self, Broken};

/// The rows of a statement, and the session whose transaction fails when they break off.
pub struct Answer {
    rows: Rows,
    /// With its transaction.
    session: Option<(Arc<Session>, u64)>,
}

impl Answer {
    pub fn new(rows: Rows, session: Option<(Arc<Session>, u64)>) -> Self {
        Answer { rows, session }
    }

    pub fn schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    /// The names of the columns' types.
    pub fn types(&self) -> Vec<String> {
        self.rows.columns().into_iter().map(|column| column.data_type).collect()
    }

    /// The next batch that has rows. In a thread of any kind.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, Broken> {
        loop {
            let next = wait::wait_anywhere(self.rows.next());
            match next.and_then(|next| next.transpose().map_err(Broken::Database)) {
                Ok(Some(batch)) if batch.num_rows() == 0 => {}
                Ok(next) => return Ok(next),
                Err(error) => {
                    if let Some((session, transaction)) = &self.session {
                        session.broke_off(*transaction);
                    }
                    return Err(error);
                }
            }
        }
    }
}

/// Why the rows broke off that were handed to somebody else.
pub type Slot = Arc<Mutex<Option<Broken>>>;

/// Batches of one schema, for whoever reads Arrow, in a thread of any kind.
pub struct Reader<I: Send> {
    schema: SchemaRef,
    /// `None` once it was dropped.
    batches: Option<I>,
    slot: Option<Slot>,
}

impl<I: Iterator<Item = Result<RecordBatch, Broken>> + Send> Reader<I> {
    pub fn new(schema: &Schema, batches: I) -> Self {
        // What storage calls its columns is nothing to a reader; what types are called is.
        let field = |field: &FieldRef| {
            let metadata = field.metadata().iter().filter(|(key, _)| key.starts_with("ARROW:"));
            let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
            field.as_ref().clone().with_metadata(metadata)
        };
        let schema = Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()));
        Reader { schema, batches: Some(batches), slot: Some(Slot::default()) }
    }

    /// Where is found why it broke off: whoever reads has the text alone.
    pub fn slot(&self) -> Slot {
        self.slot.clone().unwrap_or_default()
    }
}

impl<I: Iterator<Item = Result<RecordBatch, Broken>> + Send> Iterator for Reader<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.batches.as_mut()?.next()? {
            Ok(batch) => {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                Some(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options))
            }
            Err(broken) => {
                let text = broken.text();
                *self.slot().lock() = Some(broken);
                Some(Err(ArrowError::ExternalError(text.into())))
            }
        }
    }
}

impl<I: Iterator<Item = Result<RecordBatch, Broken>> + Send> RecordBatchReader for Reader<I> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl<I: Send> Drop for Reader<I> {
    fn drop(&mut self) {
        // It may hold the last of a connection, and an exception.
        let held = (self.batches.take(), self.slot.take());
        wait::detached(|| drop(held));
    }
}

/// Rows as Arrow data, in batches, which any library reads that speaks Arrow's PyCapsule interface, without a copy::
///
///     pyarrow.table(rows)
///     polars.DataFrame(rows)
///     pyarrow.RecordBatchReader.from_stream(rows)   # batch by batch
///
/// They are given once.
#[pyclass(module = "polynya", frozen)]
pub struct ArrowRows {
    reader: Mutex<Option<Box<dyn RecordBatchReader + Send>>>,
}

impl ArrowRows {
    pub fn new(reader: impl RecordBatchReader + Send + 'static) -> Self {
        ArrowRows { reader: Mutex::new(Some(Box::new(reader))) }
    }

    /// The rows, for the only one who gets them.
    pub fn take(&self) -> PyResult<Box<dyn RecordBatchReader + Send>> {
        self.reader.lock().take().ok_or_else(|| interface("these rows were handed over already", "ask anew"))
    }
}

#[pymethods]
impl ArrowRows {
    /// Hands the rows over as a capsule that holds an ``ArrowArrayStream``. ``requested_schema`` is not followed: whoever
    /// reads casts.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        capsule::stream(py, self.take()?)
    }
}

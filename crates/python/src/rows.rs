//! Rows as they are read, by cursors and by other libraries as Arrow.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use parking_lot::Mutex;
use polynya::AnswerRows;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capsule;
use crate::error::interface;
use crate::session::Session;
use crate::wait::{self, ReadError};

/// The rows of a statement, with the session whose transaction fails if reading them fails.
pub struct StatementRows {
    rows: AnswerRows,
    /// The session with the number of its transaction.
    session: Option<(Arc<Session>, u64)>,
}

impl StatementRows {
    pub fn new(rows: AnswerRows, session: Option<(Arc<Session>, u64)>) -> Self {
        StatementRows { rows, session }
    }

    pub fn schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    /// Returns the names of the columns' types.
    pub fn types(&self) -> Vec<String> {
        self.rows.columns().into_iter().map(|column| column.data_type).collect()
    }

    /// Returns the next batch that is not empty. May be called in any thread.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, ReadError> {
        loop {
            let next = wait::wait_anywhere(self.rows.next());
            match next.and_then(|next| next.transpose().map_err(ReadError::Database)) {
                Ok(Some(batch)) if batch.num_rows() == 0 => {}
                Ok(next) => return Ok(next),
                Err(error) => {
                    if let Some((session, transaction)) = &self.session {
                        session.mark_failed(*transaction);
                    }
                    return Err(error);
                }
            }
        }
    }
}

/// The error of rows that another library reads.
pub type ErrorSlot = Arc<Mutex<Option<ReadError>>>;

/// Batches of one schema for an Arrow consumer, which may run in any thread.
pub struct Reader<I: Send> {
    schema: SchemaRef,
    /// The remaining batches; `None` only during the drop.
    batches: Option<I>,
    slot: Option<ErrorSlot>,
}

impl<I: Iterator<Item = Result<RecordBatch, ReadError>> + Send> Reader<I> {
    pub fn new(schema: &Schema, batches: I) -> Self {
        // Internal metadata of columns is dropped; the names of Arrow extension types are kept.
        let field = |field: &FieldRef| {
            let metadata = field.metadata().iter().filter(|(key, _)| key.starts_with("ARROW:"));
            let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
            field.as_ref().clone().with_metadata(metadata)
        };
        let schema = Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()));
        Reader { schema, batches: Some(batches), slot: Some(ErrorSlot::default()) }
    }

    /// Returns the slot for the error, since Arrow passes only its text to the consumer.
    pub fn slot(&self) -> ErrorSlot {
        self.slot.clone().unwrap_or_default()
    }
}

impl<I: Iterator<Item = Result<RecordBatch, ReadError>> + Send> Iterator for Reader<I> {
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

impl<I: Iterator<Item = Result<RecordBatch, ReadError>> + Send> RecordBatchReader for Reader<I> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl<I: Send> Drop for Reader<I> {
    fn drop(&mut self) {
        // They may hold the last reference to a connection, and an exception.
        let held = (self.batches.take(), self.slot.take());
        wait::detached(|| drop(held));
    }
}

/// Rows as Arrow data in batches, without a copy, for any library that reads Arrow's PyCapsule interface::
///
///     pyarrow.table(rows)
///     polars.DataFrame(rows)
///     pyarrow.RecordBatchReader.from_stream(rows)   # batch by batch
///
/// The rows can be taken once.
#[pyclass(module = "polynya", frozen)]
pub struct ArrowRows {
    reader: Mutex<Option<Box<dyn RecordBatchReader + Send>>>,
}

impl ArrowRows {
    pub fn new(reader: impl RecordBatchReader + Send + 'static) -> Self {
        ArrowRows { reader: Mutex::new(Some(Box::new(reader))) }
    }

    /// Takes the rows; the second call fails.
    pub fn take(&self) -> PyResult<Box<dyn RecordBatchReader + Send>> {
        self.reader.lock().take().ok_or_else(|| interface("these rows were handed over already", "ask anew"))
    }
}

#[pymethods]
impl ArrowRows {
    /// Exports the rows as a capsule with an ``ArrowArrayStream``. ``requested_schema`` is ignored: the consumer casts them.
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

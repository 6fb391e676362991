//! Arrow's PyCapsule interface, by which libraries in one process exchange Arrow data without depending on each other.
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use arrow::array::{RecordBatch, RecordBatchReader};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::c_data::{self, ArrowArray, ArrowArrayStream, ArrowSchema, ImportedStream};
use crate::error::{OrRaise, interface};

const STREAM: &std::ffi::CStr = c"arrow_array_stream";
const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";

/// Wraps batches in a capsule. Batches that no consumer takes are dropped with it.
pub fn stream(py: Python<'_>, reader: Box<dyn RecordBatchReader + Send>) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, c_data::stream(reader), STREAM)
}

/// Arrow data from a Python object.
pub enum ArrowSource {
    Stream(ImportedStream),
    One(Option<RecordBatch>),
}

impl Iterator for ArrowSource {
    type Item = polynya::Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            ArrowSource::Stream(import) => import.next(),
            ArrowSource::One(batch) => batch.take().map(Ok),
        }
    }
}

/// Returns the batches of an object: a table, a frame, a reader, a record batch.
pub fn arrow_source(object: &Bound<'_, PyAny>) -> PyResult<ArrowSource> {
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?;
        let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(STREAM))?.cast::<ArrowArrayStream>();
        // SAFETY: a capsule of this name holds such a struct, and no other code uses it while this thread is attached.
        let stream = unsafe { ArrowArrayStream::take(pointer.as_ptr()) };
        return Ok(ArrowSource::Stream(ImportedStream::new(stream).or_raise()?));
    }
    if object.hasattr("__arrow_c_array__")? {
        let pair = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
        let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<ArrowSchema>();
        let array = array.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
        // SAFETY: capsules of these names hold such structs, and no other code uses them while this thread is attached.
        let (schema, array) =
            unsafe { (ArrowSchema::take(schema.as_ptr()), ArrowArray::take(array.as_ptr())) };
        return Ok(ArrowSource::One(Some(c_data::array(&schema, &array).or_raise()?)));
    }
    Err(interface(
        format!("an object of type {} gives no Arrow data", object.get_type().name()?),
        "pass what has `__arrow_c_stream__`: a pyarrow Table or reader, a polars or pandas DataFrame, a DuckDB result",
    ))
}

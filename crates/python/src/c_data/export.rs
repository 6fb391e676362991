//! Exports batches for other libraries to read in place.

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{Array, ArrayData, RecordBatchReader, StructArray, layout};
use arrow::buffer::{Buffer, MutableBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use arrow::util::bit_util;

use super::{ArrowArray, ArrowArrayStream, ArrowSchema, schema};

/// The error code for an invalid argument. The next one is that of an input or output error.
const EINVAL: c_int = 22;
const EIO: c_int = 5;

/// The memory that an exported array points into.
struct ExportedBuffers {
    /// Keeps the memory behind `pointers` alive.
    _buffers: Vec<Option<Buffer>>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    dictionary: *mut ArrowArray,
}

fn of_data(data: &ArrayData) -> ArrowArray {
    let layout = layout(data.data_type());
    let mut buffers: Vec<Option<Buffer>> = data.buffers().iter().cloned().map(Some).collect();
    if layout.variadic {
        let lengths: Vec<i64> = data.buffers().iter().skip(1).map(|buffer| buffer.len() as i64).collect();
        buffers.push(Some(ScalarBuffer::from(lengths).into_inner()));
    }
    if layout.can_contain_null_mask {
        buffers.insert(0, validity(data));
    }
    let pointer = |buffer: &Option<Buffer>| buffer.as_ref().map_or(std::ptr::null(), |b| b.as_ptr().cast());
    let pointers = buffers.iter().map(pointer).collect();
    let boxed = |data: &ArrayData| Box::into_raw(Box::new(of_data(data)));
    let (children, dictionary) = match data.data_type() {
        DataType::Dictionary(..) => (Vec::new(), boxed(&data.child_data()[0])),
        _ => (data.child_data().iter().map(boxed).collect(), std::ptr::null_mut()),
    };
    let mut owned = Box::new(ExportedBuffers { _buffers: buffers, pointers, children, dictionary });
    ArrowArray {
        length: data.len() as i64,
        null_count: match data.data_type() {
            DataType::Null => data.len() as i64,
            _ => data.null_count() as i64,
        },
        offset: data.offset() as i64,
        n_buffers: owned.pointers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.pointers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary,
        release: Some(release),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// Returns the validity bits, starting at the array's own offset.
fn validity(data: &ArrayData) -> Option<Buffer> {
    let nulls = data.nulls()?;
    if nulls.offset() == data.offset() {
        return Some(nulls.buffer().clone());
    }
    if data.offset() == 0 {
        return Some(nulls.inner().sliced());
    }
    let mut bits = MutableBuffer::new_null(data.offset() + nulls.len());
    for at in (0..nulls.len()).filter(|at| nulls.is_valid(*at)) {
        bit_util::set_bit(bits.as_slice_mut(), data.offset() + at);
    }
    Some(bits.into())
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: a consumer releases what it was given once; `private_data` was made by `of_data`.
    let owned = unsafe {
        (*array).release = None;
        Box::from_raw((*array).private_data.cast::<ExportedBuffers>())
    };
    for child in owned.children.iter().chain([&owned.dictionary]).filter(|child| !child.is_null()) {
        // SAFETY: made by `Box::into_raw` in `of_data`; dropping it releases it unless the consumer moved it away.
        drop(unsafe { Box::from_raw(*child) });
    }
}

/// A stream of batches with its last error.
struct BatchStream {
    reader: Box<dyn RecordBatchReader + Send>,
    error: CString,
}

/// Exports batches as a stream, which reads them on demand.
pub fn stream(reader: Box<dyn RecordBatchReader + Send>) -> ArrowArrayStream {
    ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(Box::new(BatchStream { reader, error: CString::default() })).cast(),
    }
}

/// Runs `step` and turns a panic into an error, since a panic must not unwind into C.
fn guarded(
    batches: &mut BatchStream,
    code: c_int,
    step: impl FnOnce(&mut BatchStream) -> Result<(), String>,
) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(|| step(batches)));
    match result.unwrap_or_else(|_| Err("a bug of Polynya: reading the rows panicked".into())) {
        Ok(()) => 0,
        Err(message) => {
            batches.error = CString::new(message.replace('\0', "")).unwrap_or_default();
            code
        }
    }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the consumer passes the stream that it was given and room for a schema.
    let batches = unsafe { &mut *(*stream).private_data.cast::<BatchStream>() };
    guarded(batches, EINVAL, |batches| {
        let exported = schema::export(&batches.reader.schema()).map_err(|e| e.to_string())?;
        // SAFETY: the same; the room for the schema holds none that would have to be released.
        unsafe { out.write(exported) };
        Ok(())
    })
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: the consumer passes the stream that it was given and room for an array.
    let batches = unsafe { &mut *(*stream).private_data.cast::<BatchStream>() };
    guarded(batches, EIO, |batches| {
        let exported = match batches.reader.next() {
            None => ArrowArray::released(),
            Some(Ok(batch)) => of_data(&StructArray::from(batch).to_data()),
            Some(Err(error)) => return Err(error.to_string()),
        };
        // SAFETY: the same.
        unsafe { out.write(exported) };
        Ok(())
    })
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: the consumer passes the stream that it was given.
    unsafe { (*(*stream).private_data.cast::<BatchStream>()).error.as_ptr() }
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: a consumer releases what it was given once; `private_data` is what `stream` made.
    unsafe {
        (*stream).release = None;
        drop(Box::from_raw((*stream).private_data.cast::<BatchStream>()));
    }
}

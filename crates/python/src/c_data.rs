//! Arrow's C data interface: batches are exported to other libraries of the process without a copy, and imported with one.
//!
//! The three structs are those of <https://arrow.apache.org/docs/format/CDataInterface.html> and `…/CStreamInterface.html`.
//! `arrow` offers the same behind its feature `ffi`. With that feature on, cargo builds another variant of everything that
//! DataFusion needs, and a wheel would share no artifact with the rest of the workspace. So this module implements it, for the
//! types that tables and statements return and that frames of other libraries have.
//!
//! Exported data stay in place: the consumer reads the buffers of the batch, which live until it calls `release`. Imported data
//! are copied, since a table keeps them. An Arrow array may share memory with a NumPy array, which can change later; a committed
//! row must not.
//!
//! All `unsafe` code of this crate is in this module, in `capsule.rs` and in `wait.rs`.

mod export;
mod import;
mod schema;

use std::ffi::{c_char, c_int, c_void};

pub use export::stream;
pub use import::{ImportedStream, array};

/// A type with the name of its field.
#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// The values of one array.
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// A sequence of arrays of one type.
#[repr(C)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// Implements release for the structs: each is released once, when it is dropped. A struct without `release` was already released
/// or moved away.
macro_rules! released {
    ($($name:ident),*) => {$(
        // SAFETY: the interface lets a struct be moved to another thread; the owner is its only user.
        unsafe impl Send for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: `release` belongs to this struct; it is still set, so the struct was not released yet.
                    unsafe { release(self) }
                }
            }
        }

        impl $name {
            /// Moves the struct out of a pointer and marks the original as released.
            ///
            /// # Safety `from` points to a valid struct that no other code uses meanwhile.
            pub unsafe fn take(from: *mut Self) -> Self {
                // SAFETY: the caller guarantees it.
                unsafe { std::ptr::replace(from, Self::released()) }
            }
        }
    )*};
}

released!(ArrowSchema, ArrowArray, ArrowArrayStream);

impl ArrowSchema {
    fn released() -> Self {
        ArrowSchema {
            format: std::ptr::null(),
            name: std::ptr::null(),
            metadata: std::ptr::null(),
            flags: 0,
            n_children: 0,
            children: std::ptr::null_mut(),
            dictionary: std::ptr::null_mut(),
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }
}

impl ArrowArray {
    fn released() -> Self {
        ArrowArray {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: std::ptr::null_mut(),
            children: std::ptr::null_mut(),
            dictionary: std::ptr::null_mut(),
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }
}

impl ArrowArrayStream {
    fn released() -> Self {
        ArrowArrayStream {
            get_schema: None,
            get_next: None,
            get_last_error: None,
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }
}

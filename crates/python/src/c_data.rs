//! Arrow's C data interface: batches handed to other libraries of the process without a copy, and taken from them with one.
//!
//! The three structs are those of <https://arrow.apache.org/docs/format/CDataInterface.html> and `…/CStreamInterface.html`.
//! `arrow` has the same behind its feature `ffi`. With that feature on, everything below DataFusion is another crate to
//! cargo, and a wheel would share no artifact with the rest of the workspace; so this module does it, for the types that
//! tables and statements give and frames of other libraries have.
//!
//! What goes out stays where it is: the consumer reads the buffers of the batch, which live until it calls `release`.
//! What comes in is copied, since a table keeps it: memory of a NumPy array may change under an Arrow array that was made
//! of it, and a row that was committed may not.
//!
//! All `unsafe` of this crate is in here, in `capsule.rs` and in `wait.rs`.

mod export;
mod import;
mod schema;

use std::ffi::{c_char, c_int, c_void};

pub use export::stream;
pub use import::{Import, array};

/// A type, and the name of what has it.
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

/// Values of one array.
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

/// Arrays of one type, one after the other.
#[repr(C)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// All of them are released once, when they are dropped; one without `release` was, or was moved away.
macro_rules! released {
    ($($name:ident),*) => {$(
        // SAFETY: the interface lets a struct be moved to another thread; whoever has it is its only user.
        unsafe impl Send for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: `release` belongs to this struct, which was not released yet, else it would be gone.
                    unsafe { release(self) }
                }
            }
        }

        impl $name {
            /// Takes what a pointer holds; there it counts as released.
            ///
            /// # Safety
            /// `from` points to a valid struct that nobody else uses meanwhile.
            pub unsafe fn take(from: *mut Self) -> Self {
                // SAFETY: as the caller promises.
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

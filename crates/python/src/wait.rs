//! Waiting without holding the interpreter, and without being deaf to Ctrl-C.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;

/// How often who waits looks whether a signal came.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Lets Python's handlers of signals run, if some came. To be called while detached.
pub fn look() -> PyResult<()> {
    Python::try_attach(|py| py.check_signals())
        .unwrap_or_else(|| Err(PyKeyboardInterrupt::new_err("the interpreter is ending")))
}

/// Waits for a future in a thread that is detached; `look` may end that. Dropping the future cancels what it does.
fn wait_with<T>(future: impl Future<Output = T>, look: impl Fn() -> PyResult<()>) -> PyResult<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut looked = std::time::Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(value);
        }
        thread::park_timeout(LOOK_EVERY);
        if looked.elapsed() >= LOOK_EVERY {
            look()?;
            looked = std::time::Instant::now();
        }
    }
}

/// Waits for a future in a thread that is detached. A handler that raises (Ctrl-C does) ends it.
pub fn wait<T>(future: impl Future<Output = T>) -> PyResult<T> {
    wait_with(future, look)
}

/// Runs `work` in a thread of any kind, detached. Where other libraries call us (for rows, or to let go of them) nothing is
/// known: a thread may have the interpreter, or have let go of it behind pyo3's back, or be none of Python's.
pub fn detached<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // SAFETY: asks for a pointer of this thread's and needs no state.
    if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        return work();
    }
    // SAFETY: this takes the interpreter if the thread does not have it, and `Release` gives it back if it did not; in
    // between it is ours, and `detach` makes that known to pyo3.
    unsafe {
        let state = ffi::PyGILState_Ensure();
        let result = Python::assume_attached().detach(work);
        ffi::PyGILState_Release(state);
        result
    }
}

/// [`wait`] in a thread of any kind. What is there already is given without the interpreter.
pub fn wait_anywhere<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, Broken> {
    let mut future = pin!(future);
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(value);
    }
    detached(|| wait(future).map_err(Broken::interrupted))
}

/// Why reading rows ended, for who may not be attached.
pub enum Broken {
    Database(polynya::Error),
    /// What a handler of a signal raised, with its text.
    Python(PyErr, String),
}

impl Broken {
    /// In a thread that is detached.
    fn interrupted(error: PyErr) -> Self {
        let text = Python::try_attach(|py| error.value(py).to_string()).unwrap_or_default();
        Broken::Python(error, format!("interrupted: {text}"))
    }

    /// What those are told who have no exceptions. Ctrl-C is then raised again where the interpreter can.
    pub fn text(&self) -> String {
        match self {
            Broken::Database(error) => error.to_string(),
            Broken::Python(_, text) => {
                // SAFETY: as if the signal came now; may be called in any thread in any state.
                unsafe { ffi::PyErr_SetInterrupt() };
                text.clone()
            }
        }
    }

    pub fn raised(self) -> PyErr {
        match self {
            Broken::Database(error) => crate::error::database(error),
            Broken::Python(error, _) => error,
        }
    }
}

/// Takes a lock that a statement may hold for long. In a thread that is detached: who holds the lock may wait for the
/// interpreter.
pub fn lock<T>(mutex: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    loop {
        if let Some(guard) = mutex.try_lock_for(LOOK_EVERY) {
            return Ok(guard);
        }
        look()?;
    }
}

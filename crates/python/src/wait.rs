//! Waits without holding the interpreter, while Ctrl-C keeps working.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;

/// Time between two checks for signals during a wait.
pub const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs Python's signal handlers if signals arrived. Must be called detached.
pub fn check_signals() -> PyResult<()> {
    Python::try_attach(|py| py.check_signals())
        .unwrap_or_else(|| Err(PyKeyboardInterrupt::new_err("the interpreter is ending")))
}

/// Waits for a future in a detached thread. An error of `check` ends the wait. Dropping the future cancels its work.
fn wait_with<T>(future: impl Future<Output = T>, check: impl Fn() -> PyResult<()>) -> PyResult<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut checked = std::time::Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(value);
        }
        thread::park_timeout(SIGNAL_CHECK_INTERVAL);
        if checked.elapsed() >= SIGNAL_CHECK_INTERVAL {
            check()?;
            checked = std::time::Instant::now();
        }
    }
}

/// Waits for a future in a detached thread. A signal handler that raises, as for Ctrl-C, ends the wait.
pub fn wait<T>(future: impl Future<Output = T>) -> PyResult<T> {
    wait_with(future, check_signals)
}

/// Runs `work` detached, in any thread. Other libraries call us to read or release rows, and the state of their thread is
/// unknown: it may hold the interpreter, may have released it without pyo3's knowledge, or may not be a Python thread.
pub fn detached<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // SAFETY: reads a pointer of this thread and needs no state.
    if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        return work();
    }
    // SAFETY: `Ensure` takes the interpreter if the thread does not have it, and `Release` restores that state. In between this
    // thread has it, which `assume_attached` tells pyo3.
    unsafe {
        let state = ffi::PyGILState_Ensure();
        let result = Python::assume_attached().detach(work);
        ffi::PyGILState_Release(state);
        result
    }
}

/// Waits like [`wait`] in any thread. A result that is ready is returned without the interpreter.
pub fn wait_anywhere<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, ReadError> {
    let mut future = pin!(future);
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(value);
    }
    detached(|| wait(future).map_err(ReadError::interrupted))
}

/// The reason why reading rows ended, for code that may be detached.
pub enum ReadError {
    Database(polynya::Error),
    /// The exception of a signal handler, with its text.
    Python(PyErr, String),
}

impl ReadError {
    /// Wraps the exception of a signal handler. Must be called detached.
    fn interrupted(error: PyErr) -> Self {
        let text = Python::try_attach(|py| error.value(py).to_string()).unwrap_or_default();
        ReadError::Python(error, format!("interrupted: {text}"))
    }

    /// Returns the text for consumers without exceptions. Ctrl-C is raised again, so that the interpreter handles it later.
    pub fn text(&self) -> String {
        match self {
            ReadError::Database(error) => error.to_string(),
            ReadError::Python(_, text) => {
                // SAFETY: has the effect of a signal arriving now; may be called in any thread in any state.
                unsafe { ffi::PyErr_SetInterrupt() };
                text.clone()
            }
        }
    }

    pub fn raised(self) -> PyErr {
        match self {
            ReadError::Database(error) => crate::error::database(error),
            ReadError::Python(error, _) => error,
        }
    }
}

/// Takes a lock that a statement may hold for long. Must be called detached, since the holder of the lock may wait for the
/// interpreter.
pub fn lock<T>(mutex: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    loop {
        if let Some(guard) = mutex.try_lock_for(SIGNAL_CHECK_INTERVAL) {
            return Ok(guard);
        }
        check_signals()?;
    }
}

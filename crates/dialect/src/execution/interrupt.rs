//! Lets a statement end inside the functions that it calls and inside the planner. Neither of them knows of statements.
//!
//! Every task of a statement runs [`within`] it: while one of its tasks is polled, its [`Cancel`] is the current one of the
//! thread, and [`check`] fails once the deadline has passed or the statement was cancelled. Tasks that DataFusion starts by
//! itself inherit the statement of the task that starts them ([`tasks`]) and hold it, so that it counts as running until the last
//! of them has ended. [`function`] checks the statement between slices of rows, and charges the values that functions make to it
//! ([`Charges`]).

mod charges;
mod folding;
pub mod function;
mod planning;
mod tasks;
mod window;

use std::cell::RefCell;
use std::sync::Arc;
use std::task::Poll;

use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

use crate::execution::cancel::Cancel;

pub use charges::Charges;
pub use folding::{FoldingCall, Planning, planning};
pub use planning::DeadlinePlanner;
pub use tasks::inherit;
pub use window::interruptible as interruptible_window;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Cancel>>> = const { RefCell::new(None) };
}

/// Returns the statement that this thread works for.
pub fn current() -> Option<Arc<Cancel>> {
    CURRENT.with_borrow(Option::clone)
}

/// Fails once the current statement should end, or once the planner should leave the current function call to the execution.
pub fn check() -> Result<()> {
    folding::check_time()?;
    check_statement()
}

/// Fails once the statement that this thread works for should end.
pub fn check_statement() -> Result<()> {
    CURRENT.with_borrow(|current| current.as_ref().map_or(Ok(()), |current| current.check()))
}

/// Charges the memory of a function's result to the current statement, and returns the result.
pub fn charge(value: ColumnarValue) -> Result<ColumnarValue> {
    if let ColumnarValue::Scalar(value) = &value {
        folding::check_bytes(value.size())?;
    }
    CURRENT.with_borrow(|current| match current.as_ref().and_then(|current| current.charges()) {
        Some(charges) => charges.charge(&value),
        None => Ok(()),
    })?;
    Ok(value)
}

/// Fails if a result of `bytes` bytes could not be charged to the current statement. Called before the result is made.
pub fn foresee(bytes: u128) -> Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    folding::check_bytes(bytes)?;
    CURRENT.with_borrow(|current| {
        let charges = current.as_ref().and_then(|current| current.charges());
        charges.map_or(Ok(()), |charges| charges.foresee(bytes))
    })
}

/// Wraps a future so that the thread works for the statement while the future is polled.
pub fn within<T>(
    cancel: Arc<Cancel>,
    future: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| -> Poll<T> {
        let _entered = Entered::new(cancel.clone());
        let polled = future.as_mut().poll(context);
        if let Some(charges) = cancel.charges() {
            charges.release();
        }
        polled
    })
}

/// Makes the thread work for a statement until this is dropped.
pub struct Entered(Option<Arc<Cancel>>);

impl Entered {
    pub fn new(cancel: Arc<Cancel>) -> Self {
        Entered(CURRENT.replace(Some(cancel)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

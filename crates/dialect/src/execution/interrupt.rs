//! Lets a statement end inside the functions that it calls and inside the planner. Neither of them knows of statements.
//!
//! Every task of a statement runs in a [`scope`] of it: while one of its tasks is polled, its [`Cancellation`] is the current one
//! of the thread, and [`check`] fails once the deadline has passed or the statement was cancelled. Tasks that DataFusion starts
//! by itself inherit the statement of the task that starts them (`tasks`) and hold it, so that it counts as running until the
//! last of them has ended. [`function`] checks the statement between slices of rows, and charges the values that functions make
//! to it ([`FunctionMemory`]).

mod folding;
pub mod function;
mod function_memory;
mod planning;
mod tasks;
mod window;

use std::cell::RefCell;
use std::sync::Arc;
use std::task::Poll;

use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

use crate::execution::cancellation::Cancellation;

pub use folding::{FoldingCall, PlanningScope, planning_scope};
pub use function_memory::FunctionMemory;
pub use planning::DeadlinePlanner;
pub use tasks::install_task_tracer;
pub use window::interruptible as interruptible_window;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Cancellation>>> = const { RefCell::new(None) };
}

/// Returns the statement that this thread works for.
pub fn current() -> Option<Arc<Cancellation>> {
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
pub fn check_memory(bytes: u128) -> Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    folding::check_bytes(bytes)?;
    CURRENT.with_borrow(|current| {
        let charges = current.as_ref().and_then(|current| current.charges());
        charges.map_or(Ok(()), |charges| charges.check_memory(bytes))
    })
}

/// Wraps a future so that the thread works for the statement while the future is polled.
pub fn scope<T>(
    cancel: Arc<Cancellation>,
    future: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| -> Poll<T> {
        let _entered = StatementScope::new(cancel.clone());
        let polled = future.as_mut().poll(context);
        if let Some(charges) = cancel.charges() {
            charges.release();
        }
        polled
    })
}

/// Makes the thread work for a statement until this is dropped.
pub struct StatementScope(Option<Arc<Cancellation>>);

impl StatementScope {
    pub fn new(cancel: Arc<Cancellation>) -> Self {
        StatementScope(CURRENT.replace(Some(cancel)))
    }
}

impl Drop for StatementScope {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

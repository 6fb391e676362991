//! Lets a statement end inside the functions that it calls and inside the planner, which know nothing of statements.
//!
//! Every task of a statement runs [`within`] it: while one of its tasks is polled, its [`Cancel`] is the thread's current one, and
//! [`check`] fails once the deadline has passed or nobody waits any more. Tasks that DataFusion starts by itself inherit the
//! statement of the task that starts them ([`tasks`]), and hold it: it counts as running until the last of them has ended.
//! [`function`] looks at the statement between slices of rows, and charges it what functions make ([`Charges`]).

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

/// The statement that this thread works for.
pub fn current() -> Option<Arc<Cancel>> {
    CURRENT.with_borrow(Option::clone)
}

/// Fails once the statement that this thread works for is to end, or the function that it calls is to be left for the execution.
pub fn check() -> Result<()> {
    folding::check_time()?;
    check_statement()
}

/// Fails once the statement that this thread works for is to end.
pub fn check_statement() -> Result<()> {
    CURRENT.with_borrow(|current| current.as_ref().map_or(Ok(()), |current| current.check()))
}

/// Takes the memory of what a function has made from what the statement may hold.
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

/// Fails where what a function is about to make could not be taken from what the statement may hold.
pub fn foresee(bytes: u128) -> Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    folding::check_bytes(bytes)?;
    CURRENT.with_borrow(|current| {
        let charges = current.as_ref().and_then(|current| current.charges());
        charges.map_or(Ok(()), |charges| charges.foresee(bytes))
    })
}

/// A future that works for a statement.
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

/// The thread works for a statement until this is dropped.
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

//! Bounds the functions that the planner calls to compute constants before the execution.
//!
//! Plans are made one at a time, also for different statements, so functions may take little time here. A call that takes longer,
//! or makes a long value, fails; the planner then leaves the expression as it is, and the execution computes it.

use std::cell::Cell;
use std::task::Poll;
use std::time::{Duration, Instant};

use datafusion::common::Result;
use datafusion::error::DataFusionError;

/// Time that all function calls together may take while one plan is made.
const TIME_MAX: Duration = Duration::from_millis(100);
/// Bytes of the longest value that the planner computes: operators on it use kernels that nothing can interrupt.
const VALUE_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct FoldingTime {
    /// The time spent in calls that have ended.
    before: Duration,
    /// The start of the current call.
    since: Option<Instant>,
}

thread_local! {
    static FOLDING_TIME: Cell<Option<FoldingTime>> = const { Cell::new(None) };
}

/// Makes the thread count as planning until this is dropped.
pub struct PlanningScope(Option<FoldingTime>);

impl PlanningScope {
    pub fn begin() -> Self {
        let outer = FOLDING_TIME.get();
        // A plan within a plan, such as that of a view, shares the time budget of the outer plan.
        if outer.is_none() {
            FOLDING_TIME.set(Some(FoldingTime { before: Duration::ZERO, since: None }));
        }
        PlanningScope(outer)
    }
}

impl Drop for PlanningScope {
    fn drop(&mut self) {
        if self.0.is_none() {
            FOLDING_TIME.set(None);
        }
    }
}

/// Wraps a future so that the thread counts as planning while the future is polled.
pub fn planning_scope<T>(future: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| -> Poll<T> {
        let _planning = PlanningScope::begin();
        future.as_mut().poll(context)
    })
}

/// Counts the time of a function call until this is dropped.
pub struct FoldingCall {
    is_outermost: bool,
}

impl FoldingCall {
    pub fn begin() -> Self {
        let spent = FOLDING_TIME.get().filter(|spent| spent.since.is_none());
        if let Some(spent) = spent {
            FOLDING_TIME.set(Some(FoldingTime { since: Some(Instant::now()), ..spent }));
        }
        FoldingCall { is_outermost: spent.is_some() }
    }
}

impl Drop for FoldingCall {
    fn drop(&mut self) {
        if self.is_outermost
            && let Some(FoldingTime { before, since: Some(since) }) = FOLDING_TIME.get()
        {
            FOLDING_TIME.set(Some(FoldingTime { before: before + since.elapsed(), since: None }));
        }
    }
}

/// Fails once the calls of the current planning have used up their time.
pub(super) fn check_time() -> Result<()> {
    match FOLDING_TIME.get() {
        Some(FoldingTime { before, since })
            if before + since.map_or(Duration::ZERO, |s| s.elapsed()) > TIME_MAX =>
        {
            Err(deferred("takes long"))
        }
        _ => Ok(()),
    }
}

/// Fails if a value is too long to be computed while planning.
pub(super) fn check_bytes(bytes: usize) -> Result<()> {
    if FOLDING_TIME.get().is_some() && bytes > VALUE_BYTES_MAX {
        Err(deferred("makes a long value"))
    } else {
        Ok(())
    }
}

fn deferred(why: &str) -> DataFusionError {
    DataFusionError::Execution(format!("a function {why} and is left for the execution"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_the_planner_are_bounded_and_all_of_one_plan_together() {
        assert!(check_bytes(usize::MAX).is_ok());
        let planning = PlanningScope::begin();
        assert!(check_bytes(VALUE_BYTES_MAX).is_ok());
        assert!(check_bytes(VALUE_BYTES_MAX + 1).is_err());
        let start = Instant::now();
        let call = FoldingCall::begin();
        let view = PlanningScope::begin();
        while start.elapsed() < Duration::from_micros(10) {
            assert!(check_time().is_ok());
        }
        drop((view, call));
        let spent = FOLDING_TIME.get().unwrap();
        assert!(spent.since.is_none() && spent.before > Duration::ZERO, "{spent:?}");
        FOLDING_TIME.set(Some(FoldingTime { before: TIME_MAX * 2, since: None }));
        assert!(check_time().is_err());
        drop(planning);
        assert!(check_time().is_ok());
    }
}

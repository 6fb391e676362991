//! Makes the tasks that DataFusion starts work for the statement of the task that starts them.

use std::any::Any;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{StatementScope, current, scope};

/// Installs the tracer of DataFusion's tasks. It is called before the first statement; one call is enough for a process. If the
/// program has installed a tracer of its own, that one stays: its statements still end, at the next batch of each of DataFusion's
/// tasks.
pub fn install_task_tracer() {
    // This fails if a tracer is already installed.
    let _ = set_join_set_tracer(&StatementTracer);
}

struct StatementTracer;

type Erased = Box<dyn Any + Send>;

impl JoinSetTracer for StatementTracer {
    fn trace_future(&self, future: BoxFuture<'static, Erased>) -> BoxFuture<'static, Erased> {
        let Some(cancel) = current() else { return future };
        let hold = cancel.hold();
        let work = async move {
            let _hold = hold;
            future.await
        };
        scope(cancel, work).boxed()
    }

    fn trace_block(&self, work: Box<dyn FnOnce() -> Erased + Send>) -> Box<dyn FnOnce() -> Erased + Send> {
        let Some(cancel) = current() else { return work };
        let hold = cancel.hold();
        Box::new(move || {
            let _hold = hold;
            let _entered = StatementScope::new(cancel);
            work()
        })
    }
}

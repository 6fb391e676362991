//! The threads of SQL: for light statements, which readers await like a point lookup, for planning short texts, and for all other
//! work.

use std::time::{Duration, Instant};

use engine::threads::Class;
use tokio::runtime::{Builder, Handle, Runtime};
use types::{Error, Result};

/// Bytes of each thread's stack: a multiple of the need of the deepest tree that `parse` accepts. Only the used part takes
/// memory.
const STACK_BYTES: usize = 64 << 20;
/// Time that the close waits for threads in the middle of a batch.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The kind of threads, and of slots, that a statement runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    Light,
    Heavy,
}

pub(super) struct Runtimes {
    /// Class `Interactive`: executes light statements whose plan was cached.
    light: Runtime,
    /// Class `Work`: plans short texts, which need not wait for long executions here.
    planning: Runtime,
    /// Class `Work`: everything else.
    heavy: Runtime,
}

/// Handles for starting tasks, without a lock.
pub(super) struct RuntimeHandles {
    pub light: Handle,
    pub planning: Handle,
    pub heavy: Handle,
}

impl Runtimes {
    /// Starts `threads` threads of each kind.
    pub fn start(threads: usize) -> Result<Runtimes> {
        let runtime = |name: &str, class: Class| {
            Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_stack_size(STACK_BYTES)
                .thread_name(name)
                .on_thread_start(move || class.enter())
                .enable_time()
                .build()
                .map_err(|e| Error::io("starting the threads of SQL", e))
        };
        Ok(Runtimes {
            light: runtime("pn-sql-light", Class::Interactive)?,
            planning: runtime("pn-sql-plan", Class::Work)?,
            heavy: runtime("polynya-sql", Class::Work)?,
        })
    }

    pub fn handles(&self) -> RuntimeHandles {
        let handle = |runtime: &Runtime| runtime.handle().clone();
        RuntimeHandles {
            light: handle(&self.light),
            planning: handle(&self.planning),
            heavy: handle(&self.heavy),
        }
    }

    /// Ends all work, and waits up to [`CLOSE_WAIT`] for threads that are in the middle of a batch.
    pub fn end(self) {
        // In a thread of its own: the caller's may belong to a runtime that must not block.
        let ended = std::thread::Builder::new().name("polynya-sql-end".into()).spawn(move || {
            let since = Instant::now();
            for runtime in [self.heavy, self.planning, self.light] {
                runtime.shutdown_timeout(CLOSE_WAIT.saturating_sub(since.elapsed()));
            }
        });
        if let Ok(thread) = ended {
            // The thread only waits, and a panic in it could not be reported.
            let _ = thread.join();
        }
    }

    /// Ends all work without waiting.
    pub fn abandon(self) {
        self.heavy.shutdown_background();
        self.planning.shutdown_background();
        self.light.shutdown_background();
    }
}

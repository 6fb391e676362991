//! The threads of SQL: those of light statements, for which readers wait as for a lookup, those that plan short texts, and those of all
//! other work.

use std::time::{Duration, Instant};

use engine::threads::Class;
use tokio::runtime::{Builder, Handle, Runtime};
use types::{Error, Result};

/// The stack of each thread, a multiple of what the deepest tree that `parse` lets through takes. Only what is used of it
/// takes memory.
const STACK_BYTES: usize = 64 << 20;
/// What closing waits for threads that are in the middle of a batch.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// On whose threads, or in whose places.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Light,
    Heavy,
}

pub(super) struct Runtimes {
    /// Class `Interactive`: execute what is little work and was planned before.
    light: Runtime,
    /// Class `Work`: plan texts that are short, which what executes for long does not keep waiting.
    planning: Runtime,
    /// Class `Work`: everything else.
    heavy: Runtime,
}

/// Where statements are started, without a lock.
pub(super) struct Lanes {
    pub light: Handle,
    pub planning: Handle,
    pub heavy: Handle,
}

impl Runtimes {
    /// So many threads of each kind.
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

    pub fn lanes(&self) -> Lanes {
        let handle = |runtime: &Runtime| runtime.handle().clone();
        Lanes { light: handle(&self.light), planning: handle(&self.planning), heavy: handle(&self.heavy) }
    }

    /// Ends all work, and waits a moment for threads that are in the middle of a batch.
    pub fn end(self) {
        // Not in the caller's thread, which may belong to a runtime that must not block.
        let ended = std::thread::Builder::new().name("polynya-sql-end".into()).spawn(move || {
            let since = Instant::now();
            for runtime in [self.heavy, self.planning, self.light] {
                runtime.shutdown_timeout(CLOSE_WAIT.saturating_sub(since.elapsed()));
            }
        });
        if let Ok(thread) = ended {
            // It only waits; a panic there would have no one to tell.
            let _ = thread.join();
        }
    }

    /// Ends all work and waits for nothing.
    pub fn abandon(self) {
        self.heavy.shutdown_background();
        self.planning.shutdown_background();
        self.light.shutdown_background();
    }
}

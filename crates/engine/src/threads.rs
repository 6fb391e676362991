//! Thread classes: the priority at which a thread runs, fixed when it starts.
//!
//! On Linux the nice value belongs to the thread. A class that is 10 higher gets about a tenth of a busy core's time,
//! so a point read does not wait behind an analytical query or a compaction (R3).

use std::io;
use std::thread::{Builder, JoinHandle};

/// Purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Lookups, pages, cached answers, and the commit path that all writers wait for: nice 0.
    Interactive,
    /// Decoding of ingested rows and analytical SQL: nice 10.
    Work,
    /// Sealing, compaction, indexes: nice 19.
    Background,
}

impl Class {
    pub fn nice(self) -> i32 {
        match self {
            Class::Interactive => 0,
            Class::Work => 10,
            Class::Background => 19,
        }
    }

    /// Puts the calling thread into this class. Called once, when the thread starts. Without the right to do so (a process
    /// started at a higher nice value cannot lower it) the thread keeps its priority.
    pub fn enter(self) {
        if self != Class::Interactive {
            let _ = rustix::process::setpriority_process(None, self.nice());
        }
    }

    /// Starts a named thread of this class.
    pub fn spawn<T: Send + 'static>(
        self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        Builder::new().name(name.to_owned()).spawn(move || {
            self.enter();
            body()
        })
    }
}

/// Returns true if the calling thread has the priority of [`Class::Interactive`], or a higher one.
pub(crate) fn is_interactive() -> bool {
    rustix::process::getpriority_process(None).is_ok_and(|nice| nice <= Class::Interactive.nice())
}

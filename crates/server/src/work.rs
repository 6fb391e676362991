//! Threads of class `Work` for what would hold a reader up: decoding larger bodies, writing larger answers (R3).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use engine::threads::Class;
use tokio::sync::oneshot;
use types::{Error, Kind, Result};
use vfs::{Condvar, Mutex, Rank};

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads and a bounded queue.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ended: bool,
}

impl Pool {
    pub fn start(threads: usize, waiting_max: usize) -> Result<Pool> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Rank::new(20, "server work"), Queue::default()),
            changed: Condvar::new(),
            waiting_max,
        });
        let threads = (0..threads.max(1))
            .map(|i| {
                let shared = shared.clone();
                Class::Work.spawn(&format!("pn-work-{i}"), move || shared.run())
            })
            .collect::<std::io::Result<_>>()
            .map_err(|e| Error::io("starting a thread", e))?;
        Ok(Pool { shared, threads })
    }

    /// Runs `job` and gives its result. [`Kind::Busy`] if too many wait.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody waits any more if the client left: then nothing is to be done.
            if !sender.is_closed() {
                let _ = sender.send(job());
            }
        });
        {
            let mut queue = self.shared.queue.lock();
            if queue.ended {
                return Err(Error::new(Kind::Closed, "the server stops"));
            }
            if queue.jobs.len() >= self.shared.waiting_max {
                return Err(Error::new(Kind::Busy, "too many requests wait to be worked on")
                    .hint("retry a little later"));
            }
            queue.jobs.push_back(job);
        }
        self.shared.changed.notify_one();
        receiver.await.map_err(|_| Error::internal("a request's work failed"))
    }

    pub fn waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().ended = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread of the pool may be what drops it last.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut queue = self.queue.lock();
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.ended {
                    return;
                }
                self.changed.wait(&mut queue);
            };
            drop(queue);
            // The waiting request gets an error; the thread goes on.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

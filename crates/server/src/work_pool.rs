//! A pool of threads of class `Work`, for jobs that would delay readers: decoding larger bodies, writing larger answers (R3).
//!
//! Submitting a job takes no lock. If a thread of this class were preempted while it held one, it would delay the reader, whose
//! priority is higher. The queue is tokio's, whose senders use atomics only. The receiving end is shared among the threads of the
//! pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

use engine::threads::Class;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot};
use types::{Error, Kind, Result};
use vfs::{Mutex, Rank};

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads and a bounded queue of jobs.
pub struct WorkPool {
    /// `None` only while the pool is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    shared: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    received: Mutex<mpsc::Receiver<Job>>,
    /// One flag for each thread, set while it has found no job and is about to park or has parked.
    idle: Vec<AtomicBool>,
    refused: AtomicU64,
    threads: OnceLock<Vec<Thread>>,
}

impl WorkPool {
    pub fn start(threads: usize, waiting_max: usize) -> Result<WorkPool> {
        WorkPool::with_name("pn-work", threads, waiting_max)
    }

    /// Starts a pool whose threads have names that begin with `thread_name`, for work that must not delay other jobs.
    pub fn with_name(thread_name: &str, threads: usize, waiting_max: usize) -> Result<WorkPool> {
        let (jobs, received) = mpsc::channel(waiting_max.max(1));
        let shared = Arc::new(Queue {
            received: Mutex::new(Rank::new(20, "server work"), received),
            idle: (0..threads.max(1)).map(|_| AtomicBool::new(false)).collect(),
            refused: AtomicU64::new(0),
            threads: OnceLock::new(),
        });
        let threads = (0..shared.idle.len())
            .map(|i| {
                let shared = shared.clone();
                Class::Work.spawn(&format!("{thread_name}-{i}"), move || shared.run(i))
            })
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|e| Error::io("starting a thread", e))?;
        // Nothing else sets it.
        let _ = shared.threads.set(threads.iter().map(|thread| thread.thread().clone()).collect());
        Ok(WorkPool { jobs: Some(jobs), shared, threads })
    }

    /// Runs `job` on a thread of the pool and returns its result. Fails with [`Kind::Busy`] if too many jobs wait.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            // If the client has left, nobody waits for the result and the job is skipped.
            if !sender.is_closed() {
                let _ = sender.send(job());
            }
        });
        let closed = || Error::new(Kind::Closed, "the server stops");
        self.jobs.as_ref().ok_or_else(closed)?.try_send(job).map_err(|e| match e {
            TrySendError::Full(_) => {
                self.shared.refused.fetch_add(1, Relaxed);
                Error::new(Kind::Busy, "too many requests wait to be worked on").hint("retry a little later")
            }
            TrySendError::Closed(_) => closed(),
        })?;
        self.shared.wake_one();
        receiver.await.map_err(|_| Error::internal("a request's work failed"))
    }

    /// Returns the number of jobs that were refused because too many waited.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Relaxed)
    }

    pub fn waiting(&self) -> usize {
        self.jobs.as_ref().map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }
}

impl Drop for WorkPool {
    fn drop(&mut self) {
        // The threads finish the waiting jobs before they end.
        self.jobs = None;
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The last reference may be dropped by a thread of the pool, which cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Queue {
    /// Wakes an idle thread after a job was queued. A busy thread looks at the queue again before it parks.
    fn wake_one(&self) {
        let Some(threads) = self.threads.get() else { return };
        let idle = self.idle.iter().zip(threads).find(|(idle, _)| idle.swap(false, SeqCst));
        if let Some((_, thread)) = idle {
            thread.unpark();
        }
    }

    fn run(&self, own: usize) {
        loop {
            let mut received = self.received.lock();
            let found = received.try_recv();
            if found.is_ok() {
                // A caller that queued a job until now may have taken this thread for idle. That job is visible here, and another
                // thread is woken for it.
                self.idle[own].store(false, SeqCst);
            }
            let more = found.is_ok() && !received.is_empty();
            drop(received);
            if more {
                self.wake_one();
            }
            match found {
                // If the job panics, its request gets an error and the thread goes on.
                Ok(job) => drop(catch_unwind(AssertUnwindSafe(job))),
                Err(TryRecvError::Disconnected) => return,
                // The flag is set before the last look at the queue. A caller that queues a job after that look sees the flag.
                Err(TryRecvError::Empty) if !self.idle[own].swap(true, SeqCst) => {}
                Err(TryRecvError::Empty) => std::thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_job_is_done_once_whoever_gives_it() {
        let _limit = testkit::limit(120);
        let pool = Arc::new(WorkPool::start(3, 10_000).unwrap());
        let jobs = (0..5_000_u64).map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move {
                // Some jobs arrive while all threads are parked, some while none is.
                if n % 100 == 0 {
                    tokio::task::yield_now().await;
                }
                pool.run(move || n).await
            })
        });
        for (n, job) in (0..).zip(jobs.collect::<Vec<_>>()) {
            assert_eq!(job.await.unwrap().unwrap(), n);
        }
        assert_eq!(pool.waiting(), 0);
        let failed = pool.run(|| -> u64 { panic!("a job that fails, for the test") }).await;
        assert_eq!(failed.unwrap_err().kind(), Kind::Internal);
        assert_eq!(pool.run(|| 7).await.unwrap(), 7, "its thread goes on");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_queue_refuses_and_the_end_does_what_waits() {
        let _limit = testkit::limit(120);
        let pool = Arc::new(WorkPool::start(1, 2).unwrap());
        let (release, held) = std_mpsc::channel::<()>();
        let (begun, began) = oneshot::channel();
        let spawn = |job: Box<dyn FnOnce() -> u64 + Send>| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.run(job).await })
        };
        let first = spawn(Box::new(move || {
            begun.send(()).unwrap();
            held.recv().unwrap();
            1
        }));
        began.await.unwrap();
        let others: Vec<_> = (2..4).map(|n| spawn(Box::new(move || n))).collect();
        while pool.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|| 9).await.unwrap_err().kind(), Kind::Busy);
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), 1);
        for (n, other) in (2..).zip(others) {
            assert_eq!(other.await.unwrap().unwrap(), n);
        }
        drop(Arc::into_inner(pool));
    }
}

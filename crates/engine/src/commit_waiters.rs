//! Waits for the next commit. It costs the commit thread something only while a thread waits.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use vfs::{Condvar, Mutex, Rank};

pub(crate) struct CommitWaiters {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    arrived: Condvar,
}

impl Default for CommitWaiters {
    fn default() -> Self {
        let lock = Mutex::new(Rank::new(58, "engine arrivals"), ());
        CommitWaiters { waiting: AtomicUsize::new(0), lock, arrived: Condvar::new() }
    }
}

impl CommitWaiters {
    /// Wakes the waiters after a change that they may be waiting for.
    pub fn notify(&self) {
        // The change is made before the waiters are counted, and waiters count themselves before they look for it: one of
        // the two sees the other.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.arrived.notify_all();
        }
    }

    /// Waits until `is_there` returns true, for at most `timeout`. Returns its last result.
    pub fn wait(&self, timeout: Duration, is_there: impl Fn() -> bool) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut guard = self.lock.lock();
        let found = loop {
            if is_there() {
                break true;
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break false,
                Some(left) => drop(self.arrived.wait_for(&mut guard, left)),
                None => self.arrived.wait(&mut guard),
            }
        };
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }
}

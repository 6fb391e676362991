//! Shared state of the parts of a soak: counts of their requests, wrong answers, and the signal to end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of wrong answers that a report shows.
const EXAMPLES_MAX: usize = 20;

#[derive(Debug, Default)]
pub(super) struct SoakState {
    pub statements: AtomicU64,
    pub reads: AtomicU64,
    /// Requests that were refused as busy and sent again.
    pub refused: AtomicU64,
    /// Transactions that failed because another writer committed first.
    pub conflicts: AtomicU64,
    pub wrong: AtomicU64,
    /// Duration and text of the longest read since the last sample, and of the longest of all.
    longest: Mutex<[(Duration, String); 2]>,
    examples: Mutex<Vec<String>>,
    /// Ends the soak after the steps under way.
    pub end: AtomicBool,
    /// Set while the server is being killed: from then on an unanswered request is not a failure.
    pub killing: AtomicBool,
}

impl SoakState {
    pub fn is_over(&self) -> bool {
        self.end.load(Relaxed) || self.killing.load(Relaxed)
    }

    pub fn report_wrong(&self, what: String) {
        self.wrong.fetch_add(1, Relaxed);
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        if examples.len() < EXAMPLES_MAX {
            examples.push(what);
        }
    }

    /// Adds the counts and examples of another state.
    pub fn merge(&self, other: &SoakState) {
        for (ours, theirs) in [
            (&self.statements, &other.statements),
            (&self.reads, &other.reads),
            (&self.refused, &other.refused),
            (&self.conflicts, &other.conflicts),
            (&self.wrong, &other.wrong),
        ] {
            ours.fetch_add(theirs.load(Relaxed), Relaxed);
        }
        self.examples.lock().unwrap_or_else(PoisonError::into_inner).extend(other.examples());
    }

    pub fn examples(&self) -> Vec<String> {
        self.examples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a read that was answered.
    pub fn record_read(&self, time: Duration, what: &str) {
        self.reads.fetch_add(1, Relaxed);
        for longest in self.longest.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if time > longest.0 {
                *longest = (time, what.to_owned());
            }
        }
    }

    /// Returns the longest read since the last call, in milliseconds, and its text.
    pub fn take_longest(&self) -> (f64, String) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, what) = std::mem::take(&mut longest[0]);
        (time.as_secs_f64() * 1e3, what)
    }

    /// Returns the longest read of the whole soak, in milliseconds, and its text.
    pub fn longest_of_all(&self) -> (f64, String) {
        let longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        (longest[1].0.as_secs_f64() * 1e3, longest[1].1.clone())
    }

    /// Sleeps for the given time, or until the soak ends.
    pub fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

//! The deadline of a statement, and its interplay with the commit: once a transaction has been handed to the engine it cannot be
//! taken back, so from then on the deadline no longer answers.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use types::{Error, Kind, Result};

/// Time that a statement waits beyond its deadline for the outcome of its commit.
pub(crate) const COMMIT_WAIT: Duration = Duration::from_secs(60);

/// The time at which a statement must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
}

impl Deadline {
    pub fn after(after: Duration) -> Self {
        let now = Instant::now();
        // A deadline beyond the clock's range is replaced by one in 34 years.
        let at = now.checked_add(after).unwrap_or_else(|| now + Duration::from_secs(1 << 30));
        Deadline { at, after }
    }

    pub fn at(self) -> Instant {
        self.at
    }

    pub fn has_passed(self) -> bool {
        Instant::now() >= self.at
    }

    /// Returns the future's value, or [`Kind::Timeout`].
    pub async fn limit<T>(self, future: impl Future<Output = T> + Unpin) -> Result<T> {
        timeout_at(self.at.into(), future).await.map_err(|_| self.timeout_error())
    }

    pub fn timeout_error(self) -> Error {
        Error::new(Kind::Timeout, format!("the statement did not finish within {}", in_words(self.after)))
            .hint("ask for less, or give it a longer deadline")
    }
}

/// Formats a time as `20 ms` or `1.5 s`.
fn in_words(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms => format!("{} s", (ms as f64 / 100.0).round() / 10.0),
    }
}

const RUNNING: u8 = 0;
const COMMITTING: u8 = 1;
const EXPIRED: u8 = 2;

/// Decides between the deadline and the commit, which may come at the same moment: only one of them happens.
#[derive(Debug, Default)]
pub(crate) struct CommitPhase(AtomicU8);

impl CommitPhase {
    /// Returns true if the transaction may be handed to the engine; [`CommitPhase::expire`] then returns false.
    pub fn begin_commit(&self) -> bool {
        self.step(RUNNING, COMMITTING)
    }

    /// Records that the engine refused the transaction: nothing was written, and the statement may continue or time out.
    pub fn commit_refused(&self) {
        self.step(COMMITTING, RUNNING);
    }

    /// Returns true if the statement may be answered with a timeout; [`CommitPhase::begin_commit`] then returns false.
    pub fn expire(&self) -> bool {
        self.step(RUNNING, EXPIRED)
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_told_as_people_write_times() {
        for (ms, said) in [(0, "0 ms"), (20, "20 ms"), (1_000, "1 s"), (1_540, "1.5 s"), (30_000, "30 s")] {
            let error = Deadline::after(Duration::from_millis(ms)).timeout_error();
            assert_eq!(error.message(), format!("the statement did not finish within {said}"));
        }
    }

    #[test]
    fn a_statement_is_either_handed_over_or_timed_out() {
        let phase = CommitPhase::default();
        assert!(phase.begin_commit());
        assert!(!phase.expire());
        phase.commit_refused();
        assert!(phase.expire());
        assert!(!phase.begin_commit());
    }
}

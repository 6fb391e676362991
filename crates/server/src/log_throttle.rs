//! Limits how often a repeated failure is logged.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Throttles the log lines of one kind of failure to one in 10 s, because a lack of files or disk space lasts. Counts the others.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    unreported: u64,
    last_report: Option<Instant>,
}

impl LogThrottle {
    const INTERVAL: Duration = Duration::from_secs(10);

    /// Counts one occurrence. Returns the number of occurrences since the last log line if a new line is due, else `None`.
    pub fn note(&mut self, now: Instant) -> Option<u64> {
        self.unreported += 1;
        if self.last_report.is_some_and(|last_report| now.duration_since(last_report) < Self::INTERVAL) {
            return None;
        }
        self.last_report = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

/// The throttles of failed requests by error code, for all servers of the process.
static FAILED_REQUESTS: Mutex<BTreeMap<&'static str, LogThrottle>> = Mutex::new(BTreeMap::new());

/// Counts a request that failed with this code. Returns the number of such requests since the last log line if a new line is due.
pub(crate) fn note_failure(code: &'static str) -> Option<u64> {
    let mut throttles = FAILED_REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    throttles.entry(code).or_default().note(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_told_once_in_a_while_and_counted() {
        let (mut throttle, start) = (LogThrottle::default(), Instant::now());
        let reported = (0..500).filter_map(|i| throttle.note(start + Duration::from_millis(i * 50)));
        assert_eq!(reported.collect::<Vec<_>>(), [1, 200, 200]);
        assert_eq!(note_failure("a code of this test"), Some(1));
        assert_eq!(note_failure("a code of this test"), None);
    }
}

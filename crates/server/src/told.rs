//! Limits how often a repeated failure is logged.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Throttles the log lines of one kind of failure to one in 10 s, because a lack of files or disk space lasts. Counts the others.
#[derive(Debug, Default)]
pub(crate) struct Told {
    untold: u64,
    last: Option<Instant>,
}

impl Told {
    const PAUSE: Duration = Duration::from_secs(10);

    /// Counts one occurrence. Returns the number of occurrences since the last log line if a new line is due, else `None`.
    pub fn note(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.last.is_some_and(|last| now.duration_since(last) < Self::PAUSE) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// The throttles of failed requests by error code, for all servers of the process.
static REQUESTS: Mutex<BTreeMap<&'static str, Told>> = Mutex::new(BTreeMap::new());

/// Counts a request that failed with this code. Returns the number of such requests since the last log line if a new line is due.
pub(crate) fn of_requests(code: &'static str) -> Option<u64> {
    let mut requests = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    requests.entry(code).or_default().note(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_told_once_in_a_while_and_counted() {
        let (mut told, start) = (Told::default(), Instant::now());
        let said = (0..500).filter_map(|i| told.note(start + Duration::from_millis(i * 50)));
        assert_eq!(said.collect::<Vec<_>>(), [1, 200, 200]);
        assert_eq!(of_requests("a code of this test"), Some(1));
        assert_eq!(of_requests("a code of this test"), None);
    }
}

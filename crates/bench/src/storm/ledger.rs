//! Records what was sent and what was acknowledged. Every answer is compared with it, and after the kill the whole database.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state of a batch of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchStatus {
    /// Sent and not answered, perhaps never: the table holds it completely or not at all.
    Sent,
    /// Acknowledged: the table holds it, and its first row has this id.
    Acknowledged { first_row: u64 },
    /// Refused, so the table does not hold it.
    Refused,
}

/// Batches of events, numbered from 0.
#[derive(Debug, Default)]
pub(super) struct BatchLedger {
    statuses: Mutex<Vec<BatchStatus>>,
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

impl BatchLedger {
    fn statuses(&self) -> MutexGuard<'_, Vec<BatchStatus>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the next batch and returns its number; from now on the table may hold it.
    pub(super) fn send(&self) -> u64 {
        let mut statuses = self.statuses();
        statuses.push(BatchStatus::Sent);
        self.sent.store(statuses.len() as u64, SeqCst);
        statuses.len() as u64 - 1
    }

    pub(super) fn acknowledge(&self, number: u64, first_row: u64) {
        self.statuses()[number as usize] = BatchStatus::Acknowledged { first_row };
        // Counted after its state is set, because a reader that sees the count may request the batch.
        self.acknowledged.fetch_add(1, SeqCst);
    }

    pub(super) fn refuse(&self, number: u64) {
        self.statuses()[number as usize] = BatchStatus::Refused;
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(SeqCst)
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    pub(super) fn status(&self, number: u64) -> Option<BatchStatus> {
        self.statuses().get(number as usize).copied()
    }

    /// Returns an acknowledged batch and its first row, searching from `start` on.
    pub(super) fn acknowledged_near(&self, start: u64) -> Option<(u64, u64)> {
        let statuses = self.statuses();
        let count = statuses.len().max(1);
        (0..statuses.len()).map(|step| (start as usize + step) % count).find_map(|number| {
            match statuses[number] {
                BatchStatus::Acknowledged { first_row } => Some((number as u64, first_row)),
                BatchStatus::Sent | BatchStatus::Refused => None,
            }
        })
    }
}

/// A number that only grows and that one connection writes. Its true value lies between the acknowledged and the sent value.
#[derive(Debug, Default)]
pub(super) struct MonotonicNumber {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

impl MonotonicNumber {
    pub(super) fn send(&self, value: u64) {
        self.sent.fetch_max(value, SeqCst);
    }

    pub(super) fn acknowledge(&self, value: u64) {
        self.acknowledged.fetch_max(value, SeqCst);
    }

    /// The acknowledged value: from now on the true value is at least this.
    pub(super) fn floor(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    /// The sent value: so far the true value is at most this.
    pub(super) fn ceiling(&self) -> u64 {
        self.sent.load(SeqCst)
    }
}

/// The whole record of a storm.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) events: BatchLedger,
    /// Versions, by key.
    pub(super) readings: Vec<MonotonicNumber>,
    /// The number of documents. Their ids are smaller than this number.
    pub(super) articles: MonotonicNumber,
    /// Revisions, by note. Writing a file is not acknowledged, so a revision counts as acknowledged once a page has shown it.
    pub(super) notes: Vec<MonotonicNumber>,
}

impl Ledger {
    pub(super) fn new(readings: u64, notes: u64) -> Ledger {
        Ledger {
            events: BatchLedger::default(),
            readings: (0..readings).map(|_| MonotonicNumber::default()).collect(),
            articles: MonotonicNumber::default(),
            notes: (0..notes).map(|_| MonotonicNumber::default()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_acknowledged_batches_are_asked_for() {
        let batches = BatchLedger::default();
        assert_eq!(batches.acknowledged_near(0), None);
        let numbers: Vec<u64> = (0..4).map(|_| batches.send()).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        batches.refuse(0);
        batches.acknowledge(2, 77);
        for start in 0..9 {
            assert_eq!(batches.acknowledged_near(start), Some((2, 77)), "{start}");
        }
        assert_eq!((batches.sent(), batches.acknowledged()), (4, 1));
        assert_eq!(
            (batches.status(1), batches.status(0), batches.status(4)),
            (Some(BatchStatus::Sent), Some(BatchStatus::Refused), None)
        );
    }

    #[test]
    fn a_number_that_grows_never_falls() {
        let counted = MonotonicNumber::default();
        counted.send(5);
        counted.acknowledge(5);
        counted.acknowledge(3);
        counted.send(9);
        assert_eq!((counted.floor(), counted.ceiling()), (5, 9));
    }
}

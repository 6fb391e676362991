//! The open transactions of a database, the memory that they hold together, and their expiry.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use types::{Error, Kind, Result};

use super::{EndReason, TransactionLimits, TransactionSlot};
use crate::engine::Engine;
use crate::root_reaper;
use crate::shared_state::Shared;

/// The open transactions of one database. It has no lock, because beginning a transaction is part of reading (R1).
#[derive(Default)]
pub(crate) struct Registry {
    /// Ordered by expiry; addresses tell transactions of the same moment apart.
    slots: ArcSwap<imbl::OrdMap<(Duration, usize), Weak<TransactionSlot>>>,
    open: AtomicUsize,
    bytes: AtomicU64,
    expired: AtomicU64,
    /// True while the reaper is going to check by itself.
    watched: AtomicBool,
}

impl Registry {
    /// Enters a transaction. Returns true if the reaper must be told of it.
    pub fn enter(&self, slot: &Arc<TransactionSlot>, limits: &TransactionLimits) -> Result<bool> {
        let one_more = |open: usize| (open < limits.open_max).then_some(open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).map_err(|open| {
            Error::new(Kind::Busy, format!("{open} transactions are open already"))
                .hint("commit or roll back some of them, or try again a little later")
        })?;
        self.slots.rcu(|slots| slots.update(key(slot), Arc::downgrade(slot)));
        Ok(!self.watched.swap(true, Ordering::AcqRel))
    }

    /// Removes a transaction; called once for each that entered.
    pub fn leave(&self, slot: &TransactionSlot) {
        self.slots.rcu(|slots| slots.without(&key(slot)));
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Fails with [`Kind::Busy`] if `more` bytes are too many for all transactions together.
    pub fn check_room(&self, more: u64, limits: &TransactionLimits) -> Result<()> {
        if more > 0 && self.bytes().saturating_add(more) > limits.bytes_of_all_max {
            return Err(Error::new(
                Kind::Busy,
                format!(
                    "open transactions hold {} MiB together, which is as much as they may",
                    limits.bytes_of_all_max >> 20
                ),
            )
            .hint("try again a little later"));
        }
        Ok(())
    }

    pub fn resize(&self, before: u64, after: u64) {
        match after.checked_sub(before) {
            Some(more) => self.bytes.fetch_add(more, Ordering::Relaxed),
            None => self.bytes.fetch_sub(before - after, Ordering::Relaxed),
        };
    }

    pub fn expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        // A transaction may be ended before its last change is counted, so the sum may be negative for a moment.
        (self.bytes.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    pub fn expired_count(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Ends the transactions that expire by `now`. Returns the expiry of the next one.
    pub fn expire(&self, now: Duration) -> Option<Duration> {
        loop {
            let slots = self.slots.load_full();
            for (_, slot) in slots.iter().take_while(|((due, _), _)| *due <= now) {
                if let Some(slot) = slot.upgrade() {
                    slot.end(self, EndReason::Expired);
                }
            }
            if let Some(((due, _), _)) = self.slots.load().iter().find(|((due, _), _)| *due > now) {
                return Some(*due);
            }
            self.watched.store(false, Ordering::Release);
            // A transaction that entered just before relied on the reaper checking.
            if self.slots.load().is_empty() || self.watched.swap(true, Ordering::AcqRel) {
                return None;
            }
        }
    }

    /// Ends all transactions of a closing database.
    pub fn close(&self) {
        for slot in self.slots.load_full().values().filter_map(Weak::upgrade) {
            slot.end(self, EndReason::Closed);
        }
    }
}

fn key(slot: &TransactionSlot) -> (Duration, usize) {
    (slot.due, std::ptr::from_ref(slot).addr())
}

impl Engine {
    /// Lets the reaper check the open transactions, if `told` says that it does not do so yet.
    pub(super) fn watch_transactions(&self, told: bool) {
        let shared = self.shared();
        // A simulator has no reaper: an expired transaction ends at its next use.
        if told && !shared.stepped {
            root_reaper::call_at(Instant::now() + shared.options.transactions.time_max, self.shared_weak());
        }
    }
}

impl Shared {
    /// Checks room like [`Registry::check_room`], and counts a refusal.
    pub(super) fn check_room(&self, more: u64) -> Result<()> {
        let checked = self.transactions.check_room(more, &self.options.transactions);
        if checked.is_err() {
            self.counters.refused_transactions.add(1);
        }
        checked
    }

    /// Ends expired transactions, called by the reaper. Returns the time of the next call.
    pub(crate) fn expire_transactions(&self) -> Option<Instant> {
        let now = self.env.clock.monotonic();
        let next = self.transactions.expire(now)?;
        // A simulated clock may stand still; the reaper must not spin on it.
        Some(Instant::now() + next.saturating_sub(now).max(Duration::from_millis(1)))
    }
}

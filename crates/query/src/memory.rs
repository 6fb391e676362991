//! The memory pool that sorts, joins and groupings of all statements share.
//!
//! It works like DataFusion's `FairSpillPool`, with four differences:
//! - Consumers that can spill never get the last quarter of the pool.
//! - The merge of one sort's spill files gets at most a quarter; it takes all it can. In DataFusion's pool the first merge takes
//!   all that is left, and another sort, or the merge above both, gets nothing: a statement fails although every part of it could
//!   work with less.
//! - A consumer that can spill gets at most half of the pool, even alone. Before a sort spills it merges its rows, and for that
//!   merge it has reserved twice their size.
//! - A consumer that holds almost nothing may take half of the free memory, whatever its share is. The first batch of a sort, and
//!   the last sort of a grouping before it spills, have nothing to give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use tokio::sync::Notify;
use vfs::{Mutex, MutexGuard, Rank};

/// Prefix of the name that DataFusion's sort gives its merge of spill files.
const SPILL_MERGE: &str = "ExternalSorterMerge";

/// The memory pool of all statements; see the module.
#[derive(Debug)]
pub(crate) struct SharedMemoryPool {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of registered consumers that can spill.
    spillers: usize,
    spillable: usize,
    unspillable: usize,
}

impl SharedMemoryPool {
    pub fn new(bytes_max: usize) -> Self {
        SharedMemoryPool { bytes_max, state: Mutex::new(Rank::new(35, "sql memory"), State::default()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl MemoryPool for SharedMemoryPool {
    fn register(&self, consumer: &MemoryConsumer) {
        self.state().spillers += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.state().spillers -= usize::from(consumer.can_spill());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let mut state = self.state();
        if reservation.consumer().can_spill() {
            state.spillable += additional;
        } else {
            state.unspillable += additional;
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.state();
        if reservation.consumer().can_spill() {
            state.spillable -= shrink;
        } else {
            state.unspillable -= shrink;
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.state();
        let kept = self.bytes_max / 4;
        let left = if reservation.consumer().can_spill() {
            let shared = self.bytes_max - kept.max(state.unspillable.min(self.bytes_max));
            let share = (shared / state.spillers.max(1)).min(self.bytes_max / 2);
            let free = self.bytes_max.saturating_sub(state.spillable + state.unspillable);
            let first = if reservation.size() <= self.bytes_max >> 10 { free / 2 } else { 0 };
            share.saturating_sub(reservation.size()).max(first).min(free)
        } else {
            let free = self.bytes_max.saturating_sub(state.spillable + state.unspillable);
            if reservation.consumer().name().starts_with(SPILL_MERGE) {
                free.min(kept.saturating_sub(reservation.size()))
            } else {
                free
            }
        };
        if additional > left {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} holds {} bytes and asks for {additional} more, {left} are left for it",
                reservation.consumer().name(),
                reservation.size()
            )));
        }
        if reservation.consumer().can_spill() {
            state.spillable += additional;
        } else {
            state.unspillable += additional;
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        let state = self.state();
        state.spillable + state.unspillable
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes_max)
    }
}

/// A memory pool that counts the consumers of one plan. Some tasks of a dropped plan end a little later, on other threads, and
/// hold memory until then.
#[derive(Debug)]
pub(crate) struct CountingPool {
    pool: Arc<dyn MemoryPool>,
    consumers: AtomicUsize,
    gone: Notify,
}

impl CountingPool {
    pub fn new(pool: Arc<dyn MemoryPool>) -> Self {
        CountingPool { pool, consumers: AtomicUsize::new(0), gone: Notify::new() }
    }

    /// Waits until the plan has no consumer any more.
    pub async fn wait_until_empty(&self) {
        loop {
            let gone = self.gone.notified();
            if self.consumers.load(Ordering::Acquire) == 0 {
                return;
            }
            gone.await;
        }
    }
}

impl MemoryPool for CountingPool {
    fn register(&self, consumer: &MemoryConsumer) {
        self.consumers.fetch_add(1, Ordering::AcqRel);
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
        if self.consumers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.gone.notify_waiters();
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.pool.try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spillers_leave_a_quarter_to_those_that_cannot() {
        let pool: Arc<dyn MemoryPool> = Arc::new(SharedMemoryPool::new(1_000));
        let spiller = |name: &str| MemoryConsumer::new(name).with_can_spill(true).register(&pool);
        let (a, b) = (spiller("a"), spiller("b"));
        a.try_grow(375).unwrap();
        assert!(a.try_grow(1).is_err(), "half of three quarters each");
        b.try_grow(375).unwrap();
        let merge = MemoryConsumer::new("merge").register(&pool);
        merge.try_grow(250).unwrap();
        assert!(merge.try_grow(1).is_err());
        drop((a, b));
        merge.try_grow(750).unwrap();
        assert_eq!(pool.reserved(), 1_000);
        assert!(spiller("c").try_grow(1).is_err());
        drop(merge);
        assert_eq!(pool.reserved(), 0);
        let alone = spiller("d");
        alone.try_grow(500).unwrap();
        assert!(alone.try_grow(1).is_err(), "half of all");
        let others: Vec<_> = (0..9).map(|_| spiller("e")).collect();
        others[0].try_grow(250).unwrap();
        assert!(others[0].try_grow(1).is_err(), "more than its share, once");
        others[1].try_grow(75).unwrap();
        assert!(others[1].try_grow(1).is_err());
    }
}

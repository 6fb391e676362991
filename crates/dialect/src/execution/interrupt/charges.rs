//! The memory of values that functions make, which DataFusion reserves for nobody: a hundred columns of 60 MB each are as many bytes
//! as those that a sort holds, and are taken from what all statements share.
//!
//! A batch of values is charged for as long as it is held; what copies are made of it belongs to whoever makes them. A constant is
//! charged until nothing works for its statement any more: it stands in the plan. [`FREE_BYTES`] of each statement are not charged: a
//! sort may hold all the memory that there is, and needs the next batch before it spills.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::Array;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use vfs::{Mutex, Rank};

/// Smaller values are not worth the charge.
const CHARGED_MIN: usize = 256 << 10;
/// Bytes that the values of one statement may take without a reservation.
const FREE_BYTES: usize = 4 << 20;
/// A constant is in the plan, and in what is made of it.
const COPIES_OF_CONSTANT: usize = 2;
/// What they are called where memory does not suffice.
const CONSUMER: &str = "FunctionValues";

/// What one statement's functions hold.
#[derive(Debug)]
pub struct Charges {
    held: Mutex<Held>,
    /// Bytes that were refused: the optimizer takes an error of a constant for a reason to try again later.
    refused: AtomicUsize,
}

#[derive(Debug)]
struct Held {
    batches: Vec<(Weak<dyn Array>, usize)>,
    constants: usize,
    reservation: MemoryReservation,
}

impl Held {
    /// Forgets batches that nobody holds any more.
    fn sweep(&mut self) {
        self.batches.retain(|(array, _)| array.strong_count() > 0);
    }

    /// Reserves what is held and so many bytes more.
    fn reserve(&self, more: usize) -> Result<()> {
        let held: usize = self.batches.iter().map(|(_, bytes)| bytes).sum();
        let all = held.saturating_add(self.constants).saturating_add(more);
        self.reservation.try_resize(all.saturating_sub(FREE_BYTES))
    }
}

impl Charges {
    pub fn to(pool: Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(CONSUMER).register(&pool);
        let held = Held { batches: Vec::new(), constants: 0, reservation };
        Charges { held: Mutex::new(Rank::new(34, "sql values"), held), refused: AtomicUsize::new(0) }
    }

    /// Fails once something was refused.
    pub fn check(&self) -> Result<()> {
        match self.refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            bytes => self.foresee(bytes),
        }
    }

    fn reserve(&self, held: &Held, more: usize) -> Result<()> {
        held.reserve(more).inspect_err(|_| self.refused.store(more, Ordering::Relaxed))
    }

    /// Takes the memory of what a function has made; fails where there is none left.
    pub fn charge(&self, value: &ColumnarValue) -> Result<()> {
        let bytes = match value {
            ColumnarValue::Array(array) => {
                let data = array.to_data();
                data.get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
            }
            ColumnarValue::Scalar(value) => value.size().saturating_mul(COPIES_OF_CONSTANT),
        };
        if bytes < CHARGED_MIN {
            return Ok(());
        }
        let mut held = self.held.lock();
        held.sweep();
        self.reserve(&held, bytes)?;
        match value {
            ColumnarValue::Array(array) => held.batches.push((Arc::downgrade(array), bytes)),
            ColumnarValue::Scalar(_) => held.constants += bytes,
        }
        Ok(())
    }

    /// Fails where so much could not be taken, before it is made.
    pub fn foresee(&self, bytes: usize) -> Result<()> {
        if bytes < CHARGED_MIN {
            return Ok(());
        }
        let mut held = self.held.lock();
        held.sweep();
        self.reserve(&held, bytes)?;
        held.reserve(0)
    }

    /// Gives all of it back, when nothing works for the statement any more.
    pub fn clear(&self) {
        let mut held = self.held.lock();
        (held.batches, held.constants) = (Vec::new(), 0);
        held.reservation.free();
    }

    /// Gives back what nobody holds any more.
    pub fn release(&self) {
        let mut held = self.held.lock();
        if held.batches.is_empty() {
            return;
        }
        let before = held.batches.len();
        held.sweep();
        if held.batches.len() < before {
            // It becomes less, which nothing refuses.
            let _ = held.reserve(0);
        }
    }
}

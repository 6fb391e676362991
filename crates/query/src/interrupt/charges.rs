//! The memory of values that functions make, which DataFusion reserves for nobody: a hundred columns of 60 MB each are as many bytes
//! as those that a sort holds, and are taken from what all statements share.
//!
//! A batch of values is charged for as long as it is held; what copies are made of it belongs to whoever makes them. A constant is
//! charged until nothing works for its statement any more: it stands in the plan.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::Array;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use vfs::{Mutex, Rank};

/// Smaller values are not worth the charge.
const CHARGED_MIN: usize = 256 << 10;
/// A constant is in the plan, and in what is made of it.
const COPIES_OF_CONSTANT: usize = 2;
/// What they are called where memory does not suffice.
const CONSUMER: &str = "FunctionValues";

/// What one statement's functions hold.
#[derive(Debug)]
pub(crate) struct Charges {
    pool: Arc<dyn MemoryPool>,
    held: Mutex<Held>,
    /// Bytes that were refused: the optimizer takes an error of a constant for a reason to try again later.
    refused: AtomicUsize,
}

#[derive(Debug, Default)]
struct Held {
    batches: Vec<(Weak<dyn Array>, MemoryReservation)>,
    constants: Vec<MemoryReservation>,
}

impl Charges {
    pub fn to(pool: Arc<dyn MemoryPool>) -> Self {
        let held = Mutex::new(Rank::new(35, "sql values"), Held::default());
        Charges { pool, held, refused: AtomicUsize::new(0) }
    }

    /// Fails once something was refused.
    pub fn check(&self) -> Result<()> {
        match self.refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            bytes => self.reserve(bytes).map(drop),
        }
    }

    fn reserve(&self, bytes: usize) -> Result<MemoryReservation> {
        let reservation = MemoryConsumer::new(CONSUMER).register(&self.pool);
        match reservation.try_grow(bytes) {
            Ok(()) => Ok(reservation),
            Err(error) => {
                self.refused.store(bytes, Ordering::Relaxed);
                Err(error)
            }
        }
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
        self.release();
        let reservation = self.reserve(bytes)?;
        let mut held = self.held.lock();
        match value {
            ColumnarValue::Array(array) => held.batches.push((Arc::downgrade(array), reservation)),
            ColumnarValue::Scalar(_) => held.constants.push(reservation),
        }
        Ok(())
    }

    /// Fails where so much could not be taken, before it is made.
    pub fn foresee(&self, bytes: usize) -> Result<()> {
        if bytes < CHARGED_MIN {
            return Ok(());
        }
        self.release();
        self.reserve(bytes).map(drop)
    }

    /// Gives all of it back, when nothing works for the statement any more.
    pub fn clear(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        // The pool has a lock of its own.
        drop(held);
    }

    /// Gives back what nobody holds any more.
    pub fn release(&self) {
        let mut held = self.held.lock();
        if held.batches.is_empty() {
            return;
        }
        let all = std::mem::take(&mut held.batches);
        let (live, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|(array, _)| array.strong_count() > 0);
        held.batches = live;
        drop(held);
        // The pool has a lock of its own.
        drop(gone);
    }
}

//! Accounts for the memory of values that functions make.
//!
//! DataFusion does not reserve that memory: a hundred columns of 60 MB each take as many bytes as a sort holds, out of the memory
//! that all statements share. Here a batch of values is charged while anything holds it; a copy of it belongs to the operator
//! that makes the copy. A constant stands in the plan, so it is charged until nothing works for its statement any more. The first
//! [`FREE_BYTES`] of each statement are not charged: a sort may hold all the memory, and it needs the next batch before it can
//! spill.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::Array;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use vfs::{Mutex, Rank};

/// Bytes of the smallest value that is charged.
const CHARGED_MIN: usize = 256 << 10;
/// Bytes that the values of one statement may take without a reservation.
const FREE_BYTES: usize = 4 << 20;
/// Number of times that a constant is counted: it stands in the plan, and in the results made from it.
const COPIES_OF_CONSTANT: usize = 2;
/// Name of the memory consumer in messages about a lack of memory.
const CONSUMER: &str = "FunctionValues";

/// The memory that the values of one statement's functions hold.
#[derive(Debug)]
pub struct FunctionMemory {
    held: Mutex<ChargedValues>,
    /// Bytes of the refused charge, or 0. Remembered because the optimizer takes the error of a constant for a reason to try
    /// again later.
    refused: AtomicUsize,
}

#[derive(Debug)]
struct ChargedValues {
    batches: Vec<(Weak<dyn Array>, usize)>,
    constants: usize,
    reservation: MemoryReservation,
}

impl ChargedValues {
    /// Removes batches that nothing holds any more.
    fn sweep(&mut self) {
        self.batches.retain(|(array, _)| array.strong_count() > 0);
    }

    /// Reserves the bytes that are held, and `more`.
    fn reserve(&self, more: usize) -> Result<()> {
        let held: usize = self.batches.iter().map(|(_, bytes)| bytes).sum();
        let all = held.saturating_add(self.constants).saturating_add(more);
        self.reservation.try_resize(all.saturating_sub(FREE_BYTES))
    }
}

impl FunctionMemory {
    pub fn new(pool: Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(CONSUMER).register(&pool);
        let held = ChargedValues { batches: Vec::new(), constants: 0, reservation };
        FunctionMemory { held: Mutex::new(Rank::new(34, "sql values"), held), refused: AtomicUsize::new(0) }
    }

    /// Fails once a charge was refused and still cannot be granted.
    pub fn check(&self) -> Result<()> {
        match self.refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            bytes => self.check_memory(bytes),
        }
    }

    fn reserve(&self, held: &ChargedValues, more: usize) -> Result<()> {
        held.reserve(more).inspect_err(|_| self.refused.store(more, Ordering::Relaxed))
    }

    /// Charges the memory of a function's result; fails if the pool has too little left.
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

    /// Fails if a value of `bytes` bytes could not be charged. Called before the value is made.
    pub fn check_memory(&self, bytes: usize) -> Result<()> {
        if bytes < CHARGED_MIN {
            return Ok(());
        }
        let mut held = self.held.lock();
        held.sweep();
        self.reserve(&held, bytes)?;
        held.reserve(0)
    }

    /// Returns all memory, when nothing works for the statement any more.
    pub fn clear(&self) {
        let mut held = self.held.lock();
        (held.batches, held.constants) = (Vec::new(), 0);
        held.reservation.free();
    }

    /// Returns the memory of batches that nothing holds any more.
    pub fn release(&self) {
        let mut held = self.held.lock();
        if held.batches.is_empty() {
            return;
        }
        let before = held.batches.len();
        held.sweep();
        if held.batches.len() < before {
            // Shrinking a reservation cannot fail.
            let _ = held.reserve(0);
        }
    }
}

//! A clock that stands still until a test moves it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use vfs::{Clock, Micros};

/// The start of every simulation: 2026-01-01T00:00:00Z.
pub const START: Micros = 1_767_225_600_000_000;

/// A clock that moves only by [`SimClock::advance`] and [`SimClock::jump`].
#[derive(Debug)]
pub struct SimClock {
    wall_us: AtomicI64,
    monotonic_ns: AtomicU64,
}

impl SimClock {
    pub fn new() -> Self {
        SimClock { wall_us: AtomicI64::new(START), monotonic_ns: AtomicU64::new(0) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        self.monotonic_ns.fetch_add(by.as_nanos() as u64, SeqCst);
        self.wall_us.fetch_add(by.as_micros() as i64, SeqCst);
    }

    /// Sets the wall clock forwards or backwards, as an administrator or a time server does. No time passes.
    pub fn jump(&self, by: Micros) {
        self.wall_us.fetch_add(by, SeqCst);
    }
}

impl Default for SimClock {
    fn default() -> Self {
        SimClock::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        self.wall_us.load(SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(SeqCst))
    }
}

//! Heartbeats: for each serving thread, how long it has been busy with the present turn of its loop, and its longest
//! turn.
//!
//! A thread that serves many requests must never be long in one turn, because the next request waits. Metrics show the
//! longest turn of each thread. An unfinished turn counts too, so a thread that hangs is visible while it hangs.
//!
//! Beating takes no lock and shares no cache line with another thread. The list of threads is behind a lock that is
//! taken only by starting, ending and listing threads.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock::Clock;
use crate::lock::{Mutex, Rank};

/// The span that [`Status::longest_recent`] covers, in whole seconds.
pub const RECENT_SECONDS: u64 = 10;

/// The number of slots: one for each recent second, one for the current second, and some that are being overwritten.
const SLOTS: usize = 16;

static REGISTRY: Mutex<Vec<Arc<Beat>>> = Mutex::new(Rank::new(127, "heartbeats"), Vec::new());

/// Adds the calling thread to the list. `class` is the name of its thread class, for metrics.
pub fn register(clock: Arc<dyn Clock>, name: impl Into<String>, class: &'static str) -> Heartbeat {
    let beat = Arc::new(Beat {
        name: name.into(),
        class,
        clock,
        busy_since: AtomicU64::new(IDLE),
        turns: AtomicU64::new(0),
        longest_ns: AtomicU64::new(0),
        slots: [const { AtomicU64::new(0) }; SLOTS],
    });
    REGISTRY.lock().push(beat.clone());
    Heartbeat(beat)
}

/// Returns the status of all serving threads, in the order in which they started. Must not be called on a read path:
/// it takes the list's lock.
pub fn heartbeats() -> Vec<Status> {
    let beats = REGISTRY.lock().clone();
    beats.iter().map(|beat| beat.status()).collect()
}

/// The status of one serving thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub class: &'static str,
    /// The time that the present turn has taken so far; `None` while the thread is idle.
    pub busy_for: Option<Duration>,
    /// The number of finished turns.
    pub turns: u64,
    /// The longest turn since the thread started, including an unfinished one.
    pub longest: Duration,
    /// The longest turn of the last [`RECENT_SECONDS`], including an unfinished one.
    pub longest_recent: Duration,
}

/// The serving thread's handle to its own heartbeat. Dropping it removes the thread from the list.
#[derive(Debug)]
pub struct Heartbeat(Arc<Beat>);

impl Heartbeat {
    /// Begins a turn. If a turn is running, it ends here.
    pub fn busy(&self) {
        let now = self.0.now();
        self.0.end_turn(now);
        self.0.busy_since.store(now, Relaxed);
    }

    /// Ends the turn: the thread waits for work.
    pub fn idle(&self) {
        self.0.end_turn(self.0.now());
        self.0.busy_since.store(IDLE, Relaxed);
    }

    /// Begins a turn that ends when the returned value is dropped.
    pub fn turn(&self) -> Turn<'_> {
        self.busy();
        Turn(self)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        REGISTRY.lock().retain(|beat| !Arc::ptr_eq(beat, &self.0));
    }
}

/// A running turn; dropping it ends the turn.
#[derive(Debug)]
#[must_use = "the turn ends when the value is dropped"]
pub struct Turn<'a>(&'a Heartbeat);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.idle();
    }
}

const IDLE: u64 = u64::MAX;

/// The figures of one thread, written by that thread and read by any. Readers load the fields one by one, so a listing
/// may show a turn as both finished and running. For a metric that is acceptable.
#[derive(Debug)]
#[repr(align(128))]
struct Beat {
    name: String,
    class: &'static str,
    clock: Arc<dyn Clock>,
    /// The start of the present turn in nanoseconds of the monotonic clock, or [`IDLE`].
    busy_since: AtomicU64,
    turns: AtomicU64,
    longest_ns: AtomicU64,
    /// The longest turn that ended in each recent second. The upper half of a slot is the second, the lower half is
    /// microseconds. They are packed so that a reader cannot pair one second with another's figure.
    slots: [AtomicU64; SLOTS],
}

impl Beat {
    fn now(&self) -> u64 {
        self.clock.monotonic().as_nanos() as u64
    }

    fn end_turn(&self, now: u64) {
        let since = self.busy_since.load(Relaxed);
        if since == IDLE {
            return;
        }
        let took = now.saturating_sub(since);
        // Only this thread writes, so a load and a store are enough.
        self.turns.store(self.turns.load(Relaxed) + 1, Relaxed);
        if took > self.longest_ns.load(Relaxed) {
            self.longest_ns.store(took, Relaxed);
        }
        let second = second_of(now);
        let packed = second << 32 | (took / 1000).min(u64::from(u32::MAX));
        let slot = &self.slots[second as usize % SLOTS];
        // A later second is the larger number, so this replaces the old figure too.
        if packed > slot.load(Relaxed) {
            slot.store(packed, Relaxed);
        }
    }

    fn status(&self) -> Status {
        let now = self.now();
        let since = self.busy_since.load(Relaxed);
        let busy_for = (since != IDLE).then(|| Duration::from_nanos(now.saturating_sub(since)));
        let running = busy_for.unwrap_or_default();
        let recent_us = self
            .slots
            .iter()
            .map(|slot| slot.load(Relaxed))
            .filter(|packed| (packed >> 32) + RECENT_SECONDS >= second_of(now))
            .map(|packed| packed & u64::from(u32::MAX))
            .max()
            .unwrap_or(0);
        Status {
            name: self.name.clone(),
            class: self.class,
            busy_for,
            turns: self.turns.load(Relaxed),
            longest: Duration::from_nanos(self.longest_ns.load(Relaxed)).max(running),
            longest_recent: Duration::from_micros(recent_us).max(running),
        }
    }
}

fn second_of(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000_000_000
}

//! Access to the machine: files, clock and randomness. No other crate touches these directly.
//!
//! Everything below the network reaches the machine through [`Env`]. The real one is [`Env::real`]. The simulator
//! (`crates/sim`) provides another: its disk loses unsynced sectors, tears writes and forgets renames, its clock moves
//! only on request, and its randomness comes from a seed.
//!
//! Not here: buffering, caching, retries, asynchrony. A call does one operation on the machine, at once, and returns
//! the machine's result.
//!
//! Some utilities are here because every crate above needs them:
//! - [`Mutex`]: a lock that counts its waits and checks the lock order;
//! - [`read_path`]: marks code in which no lock may be taken (R1);
//! - [`read_major_faults`]: counts how often a reader waited for the disk;
//! - [`background_reads`]: marks background work, so that the pages it touches are evicted first;
//! - [`heartbeat`]: shows how long each thread has been busy.
//!
//! ## Assumptions about the medium
//! - After [`File::sync`] returns `Ok`, the bytes written to that file before the call survive power loss.
//! - Between syncs any subset of the written 512-byte sectors may survive, each either old or new.
//! - A created, renamed or removed name survives only after [`Disk::sync_dir`] on its directory.
//! - After a failed `sync` nothing may be assumed about any unsynced byte, and the file must not be synced again
//!   in the hope that it works now.

#![deny(unsafe_code)]

mod clock;
mod cold_pages;
mod disk;
mod faults;
pub mod heartbeat;
mod lock;
mod random;
mod real;

pub use clock::{Clock, Micros};
pub use cold_pages::{BackgroundReads, background_reads, in_background_reads, note_background_read};
pub use disk::{Access, Dir, Disk, Entry, File, Lock, WriteBehind};
pub use faults::{READERS_MAX, read_major_faults};
pub use lock::{Condvar, LockStats, Mutex, MutexGuard, Rank, ReadPath, lock_stats, on_read_path, read_path};
pub use random::Random;
pub use real::{RealClock, RealDisk, RealRandom};

use std::sync::Arc;

/// The parts of the machine that a component may use: a disk, a clock, randomness.
#[derive(Clone, Debug)]
pub struct Env {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Env {
    /// The machine this process runs on.
    pub fn real() -> Self {
        Env { disk: Arc::new(RealDisk), clock: Arc::new(RealClock::new()), random: Arc::new(RealRandom) }
    }
}

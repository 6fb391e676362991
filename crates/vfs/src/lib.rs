//! The only door to files, clock and randomness.
//!
//! Everything below the network reaches the machine through [`Env`]. The real one is [`Env::real`]; the
//! simulator (`crates/sim`) brings another whose disk loses unsynced sectors, tears writes and forgets renames,
//! whose clock moves when it is told to, and whose randomness comes from a seed.
//!
//! Not here: buffering, caching, retries, asynchrony. A call does one thing to the machine, at once, and
//! reports what the machine said.
//!
//! Also here, because every crate above needs them: [`Mutex`], the lock that counts its waits and checks its order,
//! [`read_path`], which marks where no lock may be taken (R1), [`read_major_faults`], how often a reader waited for the
//! disk, [`pass_through`], which marks background work so that what it touches makes way first, and [`heartbeat`], which
//! shows what a thread is at.
//!
//! ## What the medium is assumed to do
//! - After [`File::sync`] returns `Ok`, the bytes written to that file before the call survive power loss.
//! - Between syncs any subset of the written 512-byte sectors may survive, each either old or new.
//! - A created, renamed or removed name survives only after [`Disk::sync_dir`] on its directory.
//! - After a failed `sync` nothing may be assumed about any unsynced byte, and the file must not be synced again
//!   in the hope that it works now.

#![deny(unsafe_code)]

mod clock;
mod disk;
mod faults;
pub mod heartbeat;
mod lock;
mod random;
mod real;
mod touched;

pub use clock::{Clock, Micros};
pub use disk::{Access, Dir, Disk, Entry, File, Lock, WriteBehind};
pub use faults::{READERS_MAX, read_major_faults};
pub use lock::{Condvar, LockStats, Mutex, MutexGuard, Rank, ReadPath, lock_stats, on_read_path, read_path};
pub use random::Random;
pub use real::{RealClock, RealDisk, RealRandom};
pub use touched::{Passing, is_passing, pass_through, passed};

use std::sync::Arc;

/// What a component may know of the machine: its disk, its clock, its randomness.
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

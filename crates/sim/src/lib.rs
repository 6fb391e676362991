//! A simulated machine: a disk that forgets unsynced data, a clock that moves only on request, randomness from a seed,
//! and a schedule that decides which actor steps next. Never shipped.
//!
//! The disk does not model one file system. It models the contract that [`vfs`] states for all of them: after a crash,
//! a test sees any state that the contract allows, unlikely ones as often as likely ones.
//!
//! - [`SimDisk`] separates written from durable data, per 512-byte sector and per name. It counts every
//!   call, can stop the process at any of them ([`SimDisk::crash_at`]), and then makes the disk that the next
//!   process finds ([`SimDisk::crash`]).
//! - [`SimClock`], [`SimRandom`]: the other two parts of a [`vfs::Env`]; [`SimEnv`] bundles all three.
//! - [`Schedule`]: selects which of several actors steps next.
//! - [`FileChange`]: damage that a failing disk or a person does to a file.
//! - [`SlowDisk`]: a wrapper that makes the syncs of another disk take longer.
//!
//! As long as one thread makes the calls, the seed determines everything. [`SimEnv::trace_hash`] shows that: it covers
//! every call with its arguments, bytes and outcome, so two runs with equal hashes did the same.
//!
//! Start at [`SimEnv`], whose example is the loop of a crash test.

#![forbid(unsafe_code)]

mod change;
mod clock;
pub mod disk;
mod env;
mod random;
mod schedule;
mod slow;

pub use change::FileChange;
pub use clock::SimClock;
pub use disk::{Crashed, SECTOR_BYTES, SimDisk, is_crash};
pub use env::SimEnv;
pub use random::SimRandom;
pub use schedule::Schedule;
pub use slow::SlowDisk;
pub use testkit::Rng;

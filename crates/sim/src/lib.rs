//! A simulated machine: a disk that forgets what was not synced, a clock that moves when it is told to, randomness
//! from a seed, and a schedule that decides whose turn it is. Never shipped.
//!
//! Not a model of one file system but of what [`vfs`] promises about all of them: after a crash, a test sees any state
//! that its contract allows, the unlikely ones as often as the likely.
//!
//! - [`SimDisk`] keeps apart what was written and what is durable, per 512-byte sector and per name. It counts every
//!   call, can stop the process at any of them ([`SimDisk::crash_at`]), and then builds the disk that the next
//!   process finds ([`SimDisk::crash`]).
//! - [`SimClock`], [`SimRandom`]: the other two thirds of a [`vfs::Env`]; [`SimEnv`] bundles them.
//! - [`Schedule`]: which of several actors steps next.
//! - [`FileChange`]: what a failing disk or a person does to a file.
//! - [`SlowDisk`]: a real disk whose syncs take time.
//!
//! Everything is a function of the seed as long as one thread makes the calls, and [`SimEnv::trace_hash`] shows it:
//! it covers every call with its arguments, bytes and outcome, so two runs that agree in it did the same.
//!
//! Start at [`SimEnv`]; the loop of a crash test is drawn there.

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

//! Utilities for the tests of all crates. Never shipped. Depends on no other crate of Polynya, so every crate may use
//! it.
//!
//! - [`limit`]: a time limit; a test that hangs prints the stacks of all threads and ends the process.
//! - [`package`]: the folder of the tested package.
//! - [`scale`], [`scaled`]: a suitable input size for this machine.
//! - [`seeds`], [`for_each_seed`], [`Rng`]: randomness that can be repeated after a failure.
//! - [`temp_dir`]: a directory that is removed afterwards, and kept if the test fails.
//!
//! | variable | meaning |
//! |---|---|
//! | `POLYNYA_TEST_SCALE` | size of inputs; 1 is a machine with 8 cores and 16 GiB |
//! | `POLYNYA_TEST_SEEDS` | `200`: seeds 0 to 199; `7..8`: only seed 7 |

#![deny(unsafe_code)]

mod limit;
mod package;
mod rng;
mod scale;
mod seed;
mod temp;

pub use limit::{Guard, limit};
pub use package::package;
pub use rng::Rng;
pub use scale::{scale, scaled};
pub use seed::{for_each_seed, seeds};
pub use temp::{TempDir, temp_dir};

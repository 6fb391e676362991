//! What the tests of all crates share. Never shipped; depends on no other crate of Polynya, so every one may use it.
//!
//! - [`limit`]: a test that hangs prints the stacks of all threads and ends the process.
//! - [`package`]: where the files of the repository lie.
//! - [`scale`], [`scaled`]: how large a test's input should be on this machine.
//! - [`seeds`], [`for_each_seed`], [`Rng`]: randomness that a failing run can be repeated with.
//! - [`temp_dir`]: a directory that is removed afterwards, and kept when the test fails.
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

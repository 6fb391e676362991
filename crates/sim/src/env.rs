//! A whole simulated machine.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use testkit::Rng;
use vfs::Env;

use crate::{SimClock, SimDisk, SimRandom};

/// The disk, clock and randomness of one simulated machine.
///
/// A crash test runs its workload once to learn how many calls it makes, then once for each of them:
/// ```
/// # use polynya_sim as sim;
/// use sim::{Rng, SimEnv, is_crash};
/// use std::path::Path;
///
/// fn workload(env: &vfs::Env) -> std::io::Result<()> {
///     let file = env.disk.create(Path::new("a"))?;
///     file.write_at(&[std::io::IoSlice::new(b"kept")], 0)?;
///     file.sync()?;
///     env.disk.sync_dir(Path::new(""))
/// }
///
/// let whole = SimEnv::new(1);
/// workload(&whole.env()).unwrap();
/// for call in 1..=whole.disk.calls() {
///     let machine = SimEnv::new(1);
///     machine.disk.crash_at(call);
///     assert!(is_crash(&workload(&machine.env()).unwrap_err()));
///     let after = machine.crash(&mut Rng::new(call));
///     // Reopen with `after.env()`, perhaps crashing again, and compare with the model.
///     assert!(after.disk.contents(Path::new("a")).is_none_or(|bytes| bytes.len() <= 4));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SimEnv {
    pub disk: SimDisk,
    pub clock: Arc<SimClock>,
    pub random: Arc<SimRandom>,
}

impl SimEnv {
    /// Makes a machine with an empty disk and the clock at 2026-01-01T00:00:00Z.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        SimEnv {
            disk: SimDisk::new(rng.next_u64()),
            clock: Arc::new(SimClock::new()),
            random: Arc::new(SimRandom::new(rng.next_u64())),
        }
    }

    /// Returns the environment for the code under test.
    pub fn env(&self) -> Env {
        Env { disk: Arc::new(self.disk.clone()), clock: self.clock.clone(), random: self.random.clone() }
    }

    /// Simulates a power failure and returns the machine after it, with the surviving data ([`SimDisk::crash`]). The
    /// clock goes on.
    pub fn crash(&self, rng: &mut Rng) -> SimEnv {
        SimEnv { disk: self.disk.crash(rng), ..self.clone() }
    }

    /// Simulates a killed process on a living machine ([`SimDisk::kill`]).
    pub fn kill(&self) -> SimEnv {
        SimEnv { disk: self.disk.kill(), ..self.clone() }
    }

    /// A hash that is equal in two runs that made the same calls on their disks in the same order.
    pub fn trace_hash(&self) -> u64 {
        self.disk.trace_hash()
    }
}

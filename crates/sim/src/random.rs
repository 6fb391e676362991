//! Randomness from a seed.

use parking_lot::Mutex;
use testkit::Rng;
use vfs::Random;

/// A generator that returns the same bytes for the same seed and the same order of calls.
#[derive(Debug)]
pub struct SimRandom(Mutex<Rng>);

impl SimRandom {
    pub fn new(seed: u64) -> Self {
        SimRandom(Mutex::new(Rng::new(seed)))
    }
}

impl Random for SimRandom {
    fn fill(&self, buf: &mut [u8]) {
        self.0.lock().fill(buf);
    }
}

//! All crash tests rely on the simulator, so both halves of its promise are tested: nothing durable is ever lost, and
//! everything that may be lost is lost under some seed.

mod bytes;
mod faults;
mod names;
mod process;
mod protocol;

use super::*;
use std::io::IoSlice;

/// Number of crashes: enough to see every outcome that has odds of one in thirty.
const CRASHES: u64 = 400;

fn at(path: &str) -> &Path {
    Path::new(path)
}

fn write(file: &Arc<dyn File>, bytes: &[u8], offset: u64) {
    file.write_at(&[IoSlice::new(bytes)], offset).unwrap();
}

/// Makes a file whose bytes and name are durable.
fn durable_file(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.create(at(path)).unwrap();
    write(&file, bytes, 0);
    file.sync().unwrap();
    disk.sync_dir(at(path).parent().unwrap()).unwrap();
    file
}

/// Runs `before` on a new disk for each seed, crashes it, and passes the disk after the crash to `check`.
fn after_crashes(mut before: impl FnMut(&SimDisk), mut check: impl FnMut(u64, &SimDisk)) {
    for seed in testkit::seeds(CRASHES) {
        let disk = SimDisk::new(seed);
        before(&disk);
        check(seed, &disk.crash(&mut Rng::new(seed)));
    }
}

/// The outcomes that a test observed, to assert that each possible one occurs.
#[derive(Debug, Default)]
struct Outcomes<T>(BTreeMap<T, u64>);

impl<T: Ord + fmt::Debug> Outcomes<T> {
    fn add(&mut self, outcome: T) {
        *self.0.entry(outcome).or_default() += 1;
    }

    #[track_caller]
    fn assert_exactly(self, expected: impl IntoIterator<Item = T>) {
        let expected: Vec<T> = expected.into_iter().collect();
        // A run of a few chosen seeds cannot show all outcomes.
        if self.0.values().sum::<u64>() >= CRASHES {
            assert!(
                expected.iter().all(|outcome| self.0.contains_key(outcome)),
                "not all of {expected:?}: {self:?}"
            );
        }
        assert!(
            self.0.keys().all(|outcome| expected.contains(outcome)),
            "only {expected:?} may occur: {self:?}"
        );
    }
}

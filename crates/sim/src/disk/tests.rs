//! The simulator is what other tests are believed by, so it is tested for both halves of its promise: nothing that
//! is durable is ever lost, and everything that may be lost sooner or later is.

mod bytes;
mod faults;
mod names;
mod process;
mod protocol;

use super::*;
use std::io::IoSlice;

/// Crashes enough for each outcome of a coin with odds of one in thirty.
const CRASHES: u64 = 400;

fn at(path: &str) -> &Path {
    Path::new(path)
}

fn write(file: &Arc<dyn File>, bytes: &[u8], offset: u64) {
    file.write_at(&[IoSlice::new(bytes)], offset).unwrap();
}

/// A file that is durable in every respect.
fn durable_file(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.create(at(path)).unwrap();
    write(&file, bytes, 0);
    file.sync().unwrap();
    disk.sync_dir(at(path).parent().unwrap()).unwrap();
    file
}

/// Runs `before` on a new disk for each seed, crashes, and hands what is left to `check`.
fn after_crashes(mut before: impl FnMut(&SimDisk), mut check: impl FnMut(u64, &SimDisk)) {
    for seed in testkit::seeds(CRASHES) {
        let disk = SimDisk::new(seed);
        before(&disk);
        check(seed, &disk.crash(&mut Rng::new(seed)));
    }
}

/// The outcomes that a test saw, to assert that each of them occurs.
#[derive(Debug, Default)]
struct Seen<T>(BTreeMap<T, u64>);

impl<T: Ord + fmt::Debug> Seen<T> {
    fn add(&mut self, outcome: T) {
        *self.0.entry(outcome).or_default() += 1;
    }

    #[track_caller]
    fn assert_exactly(self, expected: impl IntoIterator<Item = T>) {
        let expected: Vec<T> = expected.into_iter().collect();
        // A run that repeats single seeds cannot see everything.
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

//! Measures the cost of one fsync in a directory: the lower bound of every durable acknowledgement.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

use crate::latency::{Latency, Summary};
use crate::machine;

const BLOCK: usize = 4096;
/// The number of blocks of the probe's file, which it overwrites again and again, as a recycled log file is overwritten.
const BLOCKS: u64 = 64;

/// Latencies of fsyncs in a directory, measured before and after a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fsync {
    pub file_system: String,
    /// Latency of an `fdatasync` after a write of 4 KiB into space that was written before.
    pub latency: Summary,
}

/// Collects fsync latencies before and after a run.
pub(crate) struct FsyncProbe<'a> {
    directory: &'a Path,
    latency: Latency,
}

impl<'a> FsyncProbe<'a> {
    pub(crate) fn new(directory: &'a Path) -> Self {
        FsyncProbe { directory, latency: Latency::default() }
    }

    /// Measures up to 200 fsyncs, for at most half a second.
    pub(crate) fn measure(&mut self) -> Result<()> {
        let path = self.directory.join(format!(".polynya-bench-fsync-{}", std::process::id()));
        let measured = self.measure_in(&path);
        // The file is removed after a failure too.
        let removed = fs::remove_file(&path);
        measured.and(removed).map_err(|error| {
            Error::io(format_args!("measuring fsync in {}", self.directory.display()), error)
        })
    }

    fn measure_in(&mut self, path: &Path) -> std::io::Result<()> {
        let file = File::create(path)?;
        let block = [0x5a; BLOCK];
        for n in 0..BLOCKS {
            file.write_all_at(&block, n * BLOCK as u64)?;
        }
        file.sync_all()?;
        let started = Instant::now();
        for n in 0..200 {
            file.write_all_at(&block, (n % BLOCKS) * BLOCK as u64)?;
            let before = Instant::now();
            file.sync_data()?;
            self.latency.record(before.elapsed());
            if started.elapsed() > Duration::from_millis(500) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Fsync {
        Fsync { file_system: machine::file_system(self.directory), latency: self.latency.summary() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_measures_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut probe = FsyncProbe::new(directory.path());
        probe.measure().expect("the directory can be written");
        let fsync = probe.finish();
        assert!(fsync.latency.count > 0);
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let error =
            FsyncProbe::new(Path::new("/nonexistent-polynya")).measure().expect_err("no such directory");
        assert!(error.message().contains("/nonexistent-polynya"), "{error}");
    }
}

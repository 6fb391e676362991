//! Checks that the disk has room for a storm, before it begins and while it runs.

use std::path::Path;

use types::{Error, Kind, Result};

use super::options::{EventRate, Options};
use super::writers;

/// Bytes for log files, the initial data, and other programs.
const BASE_BYTES: u64 = 1 << 30;
/// Free bytes below which the storm ends.
const LEFT_BYTES_MIN: u64 = 512 << 20;
/// Bytes of an event of 100 bytes: in segments and in the lake, and once more in both during a merge.
const EVENT_BYTES: f64 = 400.0;
/// Bytes of a row of the archive with its index and its copy in the lake.
const ARCHIVE_ROW_BYTES: u64 = 4_000;
/// Assumed throughput of the machine until it is measured.
const GUESSED_EVENTS_PER_S: f64 = 50_000.0;

/// Refuses a storm that would fill the disk. `alone` is the throughput of the idle machine in events per second.
pub(super) fn check(root: &Path, options: &Options, alone: Option<f64>) -> Result<()> {
    let needed = needed(options, alone);
    let free = free(root)?;
    if free >= needed {
        return Ok(());
    }
    let hint = match options.event_rate {
        EventRate::PerSecond(_) => {
            "free some, name a directory on another disk, or take fewer --seconds or a lower --load"
        }
        EventRate::Full | EventRate::Half => {
            "free some, name a directory on another disk with --root, take fewer --seconds, or a --load of so many events a second"
        }
    };
    Err(Error::new(
        Kind::DiskFull,
        format!(
            "a storm of {:.0} s may need {}, and {} has {} free",
            options.storm.as_secs_f64(),
            size(needed),
            root.display(),
            size(free)
        ),
    )
    .hint(hint))
}

/// Returns an error if the disk has too little room to continue.
pub(super) fn guard(root: &Path) -> Result<()> {
    let free = free(root)?;
    if free >= LEFT_BYTES_MIN {
        return Ok(());
    }
    let message = format!("the storm was ended: {} has only {} free", root.display(), size(free));
    Err(Error::new(Kind::DiskFull, message).hint("take fewer --seconds or a lower --load"))
}

fn needed(options: &Options, alone: Option<f64>) -> u64 {
    let alone = alone.unwrap_or(GUESSED_EVENTS_PER_S);
    let seconds = options.storm.as_secs_f64() + options.kill_after.as_secs_f64();
    let rate = writers::rate(options.event_rate, alone).unwrap_or(alone);
    let archive = options.size.archive * ARCHIVE_ROW_BYTES;
    BASE_BYTES + archive + (rate * seconds * EVENT_BYTES) as u64
}

fn free(root: &Path) -> Result<u64> {
    vfs::Env::real()
        .disk
        .free_bytes(root)
        .map_err(|error| Error::io(format_args!("asking how much room {} has", root.display()), error))
}

fn size(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;

    #[test]
    fn a_storm_that_would_fill_the_disk_is_refused_with_the_figures() {
        let mut options = Options::new(child::Options::new("polynya"));
        options.event_rate = EventRate::PerSecond(1e12);
        let error = check(Path::new("."), &options, None).expect_err("nobody has that much");
        assert_eq!(error.kind(), Kind::DiskFull);
        assert!(error.message().contains("GiB free"), "{error}");
        options.event_rate = EventRate::Half;
        assert!(needed(&options, Some(2e6)) > needed(&options, Some(1e6)), "it grows with the machine");
        assert!(needed(&options, Some(1e6)) > needed(&options, None));
    }
}

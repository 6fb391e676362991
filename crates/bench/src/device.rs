//! Reads from `/sys` how many bytes a block device wrote between two moments.
//!
//! The byte count of a process (`/proc/PID/io`) is useless for a log: file systems keep files in large folios, and the kernel
//! counts a whole folio, up to 2 MiB, for every small write that dirties one. The device's counter holds the bytes that all
//! processes really sent to it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: u64 = 512;

/// The block device that holds a directory.
#[derive(Clone, Debug)]
pub struct Device(PathBuf);

impl Device {
    /// Finds the device. `None` if the directory is on no block device, such as a `tmpfs`, or if `/sys` has no counters of it.
    pub fn of(directory: &Path) -> Option<Device> {
        let number = fs::metadata(directory).ok()?.dev();
        // Splits the number into major and minor like the C library.
        let major = (number >> 8) & 0xfff | (number >> 32) & !0xfff;
        let minor = number & 0xff | (number >> 12) & !0xff;
        let device = Device(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat")));
        device.written_bytes().map(|_| device)
    }

    /// Bytes written since the machine started.
    pub fn written_bytes(&self) -> Option<u64> {
        parse(&fs::read_to_string(&self.0).ok()?)
    }
}

/// Returns the bytes written: the seventh field counts sectors.
fn parse(stat: &str) -> Option<u64> {
    stat.split_ascii_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_counted_as_bytes() {
        let stat = "   35103    11045  2712418    20213  1157208   602104 94402136   985034        0   450924  1010041";
        assert_eq!(parse(stat), Some(94_402_136 * 512));
        assert_eq!(parse("1 2 3"), None);
    }

    #[test]
    fn a_directory_that_is_on_no_device_has_none() {
        assert!(Device::of(Path::new("/proc")).is_none());
    }
}

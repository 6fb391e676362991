//! Figures of the disks from `/proc/diskstats`, and of the file system that holds the data directory.

use std::path::Path;

use super::{Interval, MetricSample, Unit};

/// Counters of one block device since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub ios: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub busy_ms: u64,
}

/// Bytes of a sector in this file. The kernel uses this unit for every device.
const SECTOR_BYTES: u64 = 512;
/// Largest number of disks that are recorded.
const DEVICES_MAX: usize = 8;

/// Parses the counters of all disks. `is_whole` returns true for disks and false for their partitions, which would count
/// everything twice.
pub fn parse(text: &str, is_whole: impl Fn(&str) -> bool) -> Vec<Device> {
    let device = |line: &str| -> Option<Device> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let name = *words.get(2)?;
        let number = |i: usize| words.get(i)?.parse::<u64>().ok();
        if name.starts_with("loop") || name.starts_with("ram") || !is_whole(name) {
            return None;
        }
        Some(Device {
            name: name.to_owned(),
            ios: number(3)?.wrapping_add(number(7)?),
            read_bytes: number(5)?.wrapping_mul(SECTOR_BYTES),
            written_bytes: number(9)?.wrapping_mul(SECTOR_BYTES),
            busy_ms: number(12)?,
        })
    };
    // A device without any I/O since boot is left out.
    text.lines().filter_map(device).filter(|device| device.ios > 0).take(DEVICES_MAX).collect()
}

/// Adds the rates of the disks that are in both readings.
pub fn samples(before: &[Device], now: &[Device], interval: &Interval, out: &mut Vec<MetricSample>) {
    for new in now {
        let Some(old) = before.iter().find(|old| old.name == new.name) else { continue };
        let rate = |old: u64, new: u64| interval.rate(Some(old), Some(new));
        for (name, value, unit) in [
            ("disk_read", rate(old.read_bytes, new.read_bytes), Unit::BytesPerSecond),
            ("disk_write", rate(old.written_bytes, new.written_bytes), Unit::BytesPerSecond),
            ("disk_ios", rate(old.ios, new.ios), Unit::PerSecond),
            // Milliseconds of work per second become percent. The counter is coarse and may exceed one second.
            ("disk_busy", rate(old.busy_ms, new.busy_ms).map(|ms| (ms / 10.0).min(100.0)), Unit::Percent),
        ] {
            out.extend(value.map(|value| MetricSample::of(name, &new.name, value, unit)));
        }
    }
}

/// Adds the size, the used and the free bytes of the file system that holds `dir`. The blocks reserved for root are neither
/// used nor free, so both together are less than the size; `df` computes its percentage of their sum.
pub fn file_system(dir: &Path, out: &mut Vec<MetricSample>) {
    let Ok(stat) = rustix::fs::statvfs(dir) else { return };
    let bytes = |blocks: u64| blocks as f64 * stat.f_frsize as f64;
    out.push(MetricSample::of("filesystem_size", "data", bytes(stat.f_blocks), Unit::Bytes));
    out.push(MetricSample::of(
        "filesystem_used",
        "data",
        bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        Unit::Bytes,
    ));
    out.push(MetricSample::of("filesystem_free", "data", bytes(stat.f_bavail), Unit::Bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
   7       0 loop0 11 0 22 1 0 0 0 0 0 1 1
 259       0 nvme0n1 100 5 2000 30 200 6 4000 50 0 1000 80 0 0 0 0
 259       1 nvme0n1p1 90 5 1900 30 190 6 3900 50 0 990 80 0 0 0 0
   8       0 sda 0 0 0 0 0 0 0 0 0 0 0
";
    const NOW: &str = "\
 259       0 nvme0n1 110 5 2020 30 220 6 4400 50 0 1500 80 0 0 0 0
 259       1 nvme0n1p1 99 5 1999 30 199 6 3999 50 0 999 80 0 0 0 0
 259       2 broken
";

    fn whole(name: &str) -> bool {
        !name.contains('p')
    }

    #[test]
    fn rates_are_per_second_and_per_disk() {
        let mut out = Vec::new();
        samples(&parse(BEFORE, whole), &parse(NOW, whole), &Interval::seconds(2.0), &mut out);
        let found: Vec<(&str, &str, f64)> =
            out.iter().map(|s| (s.name, s.device.as_deref().unwrap_or(""), s.value)).collect();
        let expected = [
            ("disk_read", "nvme0n1", 20.0 * 512.0 / 2.0),
            ("disk_write", "nvme0n1", 400.0 * 512.0 / 2.0),
            ("disk_ios", "nvme0n1", 15.0),
            ("disk_busy", "nvme0n1", 25.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_disk_that_came_or_was_reset_gives_no_rate() {
        let mut out = Vec::new();
        samples(&[], &parse(NOW, whole), &Interval::seconds(1.0), &mut out);
        samples(&parse(NOW, whole), &parse(BEFORE, whole), &Interval::seconds(1.0), &mut out);
        assert_eq!(out, []);
    }

    #[test]
    fn the_room_of_a_real_directory_is_known() {
        let mut out = Vec::new();
        file_system(Path::new("."), &mut out);
        assert!(out[0].value >= out[1].value + out[2].value);
        file_system(Path::new("/nowhere/at/all"), &mut out);
        assert_eq!(out.len(), 3);
    }
}

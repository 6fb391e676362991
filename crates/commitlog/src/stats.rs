//! Counters of the log that any thread can read at any time without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use types::Lsn;

use crate::shared::Entry;

/// Number of buckets per doubling of the duration.
const STEPS: u64 = 8;
/// Number of buckets: durations up to 2^40 microseconds, about 12 days.
const BUCKETS: usize = (40 * STEPS) as usize;

/// A histogram of durations: counts in buckets of at most 1/8 relative width. The difference of two histograms taken at different
/// times describes the interval between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    buckets: Vec<u64>,
}

impl Latency {
    /// Number of measured events.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the histogram of the events after `earlier` was taken.
    #[must_use]
    pub fn since(&self, earlier: &Latency) -> Latency {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Latency { buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect() }
    }

    /// Returns the duration that a share `q` (0 to 1) of the events did not exceed, rounded up to its bucket's end; zero if there
    /// was no event.
    pub fn quantile(&self, q: f64) -> Duration {
        let wanted = ((self.count() as f64 * q.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(bucket_end(i));
            }
        }
        Duration::ZERO
    }

    pub fn max(&self) -> Duration {
        self.quantile(1.0)
    }
}

/// Counters of the log since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The highest lsn appended.
    pub appended_lsn: Lsn,
    /// The highest durable lsn.
    pub durable_lsn: Lsn,
    /// Number of frames appended.
    pub frames: u64,
    /// Bytes of frames appended.
    pub bytes_written: u64,
    /// Number of successful fsyncs of log files.
    pub syncs: u64,
    /// Number of times that the log continued in a new file.
    pub rotations: u64,
    /// Number of log files in use, without spares and without files kept only for an archive.
    pub files: u64,
    /// The last lsn of the oldest file that is not kept only for an archive, if another file follows it; otherwise 0.
    pub oldest_file_lsn: Lsn,
    /// True if the disk had no room for a file the last time one was to be made.
    pub no_room: bool,
    /// Number of log files kept only because an archive does not have them yet, as of the last trim.
    pub archive_files: u64,
    /// Durations of the fsyncs, [`crate::Options::sync_delay`] included.
    pub sync_latency: Latency,
}

/// The counters themselves. They are written with relaxed ordering: they only inform.
#[derive(Debug)]
pub(crate) struct Counters {
    pub frames: AtomicU64,
    pub bytes_written: AtomicU64,
    pub syncs: AtomicU64,
    pub rotations: AtomicU64,
    pub files: AtomicU64,
    pub oldest_file_lsn: AtomicU64,
    pub archive_files: AtomicU64,
    sync_latency: Box<[AtomicU64]>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            frames: AtomicU64::default(),
            bytes_written: AtomicU64::default(),
            syncs: AtomicU64::default(),
            rotations: AtomicU64::default(),
            files: AtomicU64::default(),
            oldest_file_lsn: AtomicU64::default(),
            archive_files: AtomicU64::default(),
            sync_latency: (0..BUCKETS).map(|_| AtomicU64::default()).collect(),
        }
    }
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        Counters::add(&self.syncs, 1);
        Counters::add(&self.sync_latency[bucket(took)], 1);
    }

    /// Updates the counters of files from the list of files in use.
    pub(crate) fn files(&self, files: &[Entry]) {
        self.files.store(files.len() as u64, Ordering::Relaxed);
        let for_archive = self.archive_files.load(Ordering::Relaxed) as usize;
        let oldest = files.split_last().and_then(|(_, older)| older.get(for_archive));
        self.oldest_file_lsn.store(oldest.map_or(0, |entry| entry.last_lsn.0), Ordering::Relaxed);
    }

    pub(crate) fn read(&self, appended_lsn: Lsn, durable_lsn: Lsn, no_room: bool) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            appended_lsn,
            durable_lsn,
            frames: get(&self.frames),
            bytes_written: get(&self.bytes_written),
            syncs: get(&self.syncs),
            rotations: get(&self.rotations),
            files: get(&self.files).saturating_sub(get(&self.archive_files)),
            oldest_file_lsn: Lsn(get(&self.oldest_file_lsn)),
            no_room,
            archive_files: get(&self.archive_files),
            sync_latency: Latency { buckets: self.sync_latency.iter().map(get).collect() },
        }
    }
}

/// Returns the bucket of a duration. The first 16 buckets hold one microsecond each; then each doubling has [`STEPS`].
fn bucket(took: Duration) -> usize {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if us < 2 * STEPS {
        return us as usize;
    }
    let shift = u64::from(us.ilog2()) - 3;
    ((shift * STEPS + (us >> shift)) as usize).min(BUCKETS - 1)
}

/// Returns the longest duration in a bucket, in microseconds.
fn bucket_end(i: usize) -> u64 {
    let i = i as u64;
    if i < 2 * STEPS {
        return i;
    }
    let shift = i / STEPS - 1;
    ((STEPS + i % STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_an_eighth_too_high_and_never_too_low() {
        for us in (0..5000).chain((1..35).map(|p| (1 << p) - 1)).chain((1..35).map(|p| 1 << p)) {
            let end = bucket_end(bucket(Duration::from_micros(us)));
            assert!(end >= us && end - us <= us / 8, "{us} µs reads as {end}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn counts_of_an_interval_are_a_difference() {
        let counters = Counters::default();
        counters.synced(Duration::from_micros(10));
        let before = counters.read(Lsn(1), Lsn(1), false).sync_latency;
        for us in 1..=100 {
            counters.synced(Duration::from_micros(us * 1000));
        }
        let interval = counters.read(Lsn(1), Lsn(1), false).sync_latency.since(&before);
        assert_eq!(interval.count(), 100);
        let p50 = interval.quantile(0.5);
        assert!(p50 >= Duration::from_millis(50) && p50 <= Duration::from_millis(57), "{p50:?}");
        assert!(interval.max() >= Duration::from_millis(100));
        assert_eq!(before.since(&before).quantile(0.99), Duration::ZERO);
    }
}

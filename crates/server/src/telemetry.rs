//! The server's counters: atomics only, so that counting never waits (R1).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Logarithm of the number of sub-buckets of each power of two. With eight, a quantile is at most an eighth too high.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// Number of buckets. They cover microseconds up to about 2^36, which are 19 hours.
const BUCKETS: usize = 34 * SUBS;
const SHARDS: usize = 4;
/// Seconds that the "recent" figures cover.
pub const WINDOW_SECONDS: usize = 10;

/// Durations in buckets. Threads write to different shards, so that they do not share cache lines.
#[derive(Debug)]
pub struct Histogram {
    shards: [Shard; SHARDS],
    /// The longest duration since the last tick, in microseconds.
    longest_us: AtomicU64,
}

#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

fn bucket(us: u64) -> usize {
    if us < SUBS as u64 {
        return us as usize;
    }
    let log = us.ilog2();
    let sub = (us >> (log - SUB_BITS)) as usize & (SUBS - 1);
    (((log - SUB_BITS + 1) as usize) * SUBS + sub).min(BUCKETS - 1)
}

/// Returns the largest duration of a bucket, in microseconds.
fn bucket_end_us(bucket: usize) -> u64 {
    if bucket < SUBS {
        return bucket as u64;
    }
    let (log, sub) = (bucket / SUBS - 1, bucket % SUBS);
    (((SUBS + sub + 1) as u64) << log) - 1
}

fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Relaxed) % SHARDS);
    SHARD.with(|shard| *shard)
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            shards: std::array::from_fn(|_| Shard {
                buckets: std::array::from_fn(|_| AtomicU64::new(0)),
                sum_us: AtomicU64::new(0),
            }),
            longest_us: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let shard = &self.shards[shard()];
        shard.buckets[bucket(us)].fetch_add(1, Relaxed);
        shard.sum_us.fetch_add(us, Relaxed);
        // Reading first keeps the cache line shared while no duration is longer.
        if self.longest_us.load(Relaxed) < us {
            self.longest_us.fetch_max(us, Relaxed);
        }
    }

    /// Returns all counts since the start.
    pub fn counts(&self) -> Counts {
        let mut buckets = vec![0; BUCKETS];
        let mut sum_us = 0;
        for shard in &self.shards {
            for (total, count) in buckets.iter_mut().zip(&shard.buckets) {
                *total += count.load(Relaxed);
            }
            sum_us += shard.sum_us.load(Relaxed);
        }
        Counts { buckets, sum_us }
    }

    /// Returns the longest duration since the last call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Relaxed))
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    buckets: Vec<u64>,
    pub sum_us: u64,
}

impl Counts {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Counts {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
        }
    }

    /// Returns the duration that a share `q` (0 to 1) of all durations did not exceed; zero if there are none.
    pub fn quantile(&self, q: f64) -> Duration {
        let wanted = ((self.count() as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(bucket_end_us(i));
            }
        }
        Duration::ZERO
    }

    /// Returns the number of durations up to `limit`, rounded down to whole buckets.
    pub fn at_most(&self, limit: Duration) -> u64 {
        let us = limit.as_micros() as u64;
        self.buckets.iter().enumerate().take_while(|(i, _)| bucket_end_us(*i) <= us).map(|(_, n)| n).sum()
    }
}

/// The last [`WINDOW_SECONDS`] of a histogram. Ticked once a second.
#[derive(Debug, Default)]
pub struct Window {
    /// One entry for each second, the newest last: the counts, and the longest duration of that second.
    past: std::collections::VecDeque<(Counts, Duration)>,
}

/// The figures of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Window {
    pub fn tick(&mut self, histogram: &Histogram) -> Recent {
        let (now, longest) = (histogram.counts(), histogram.take_longest());
        self.past.push_back((now.clone(), longest));
        if self.past.len() > WINDOW_SECONDS + 1 {
            self.past.pop_front();
        }
        let seconds = self.past.len() - 1;
        if seconds == 0 {
            return Recent::default();
        }
        let recent = now.since(&self.past[0].0);
        // The longest duration of the first entry belongs to the second before the window.
        let max = self.past.iter().skip(1).map(|(_, longest)| *longest).max().unwrap_or_default();
        Recent {
            per_second: recent.count() as f64 / seconds as f64,
            p50: recent.quantile(0.5).min(max),
            p99: recent.quantile(0.99).min(max),
            max,
        }
    }
}

/// Kinds of requests. The requests of one kind share a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Inserts rows or deletes keys.
    Write,
    /// Reads rows or definitions.
    Read,
    Sql,
    Search,
    /// Questions in plain words, and the requests of MCP clients.
    Ask,
    /// Makes, changes or drops tables.
    Define,
    /// Pages of the published site.
    Page,
    /// Health, metrics, the page and its feeds.
    Other,
}

impl Class {
    pub const ALL: [Class; 8] = [
        Class::Write,
        Class::Read,
        Class::Sql,
        Class::Search,
        Class::Ask,
        Class::Define,
        Class::Page,
        Class::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::Write => "write",
            Class::Read => "read",
            Class::Sql => "sql",
            Class::Search => "search",
            Class::Ask => "ask",
            Class::Define => "define",
            Class::Page => "page",
            Class::Other => "other",
        }
    }
}

macro_rules! close_reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal),* $(,)?) => {
        /// The reason why the server closed a connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Close { $($(#[$doc])* $variant),* }

        impl Close {
            pub const ALL: &[Close] = &[$(Close::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Close::$variant => $name),* }
            }
        }
    };
}

close_reasons! {
    /// There was no request for the idle time, so the connection was closed between answers.
    Idle => "idle",
    /// The connection was one more than the limit.
    TooMany => "too_many",
    /// Line and headers did not arrive in time.
    SlowHead => "slow_head",
    /// The body paused or took too long.
    SlowBody => "slow_body",
    /// The body was over the limit.
    LargeBody => "large_body",
    /// The client read nothing of the answer for too long.
    StalledReader => "stalled_reader",
    /// The client took too long to read the whole answer.
    SlowReader => "slow_reader",
    /// The server is stopping.
    Stop => "stop",
    /// The request was not HTTP, or its headers were over their limits.
    BadRequest => "bad_request",
}

/// All counters of a server.
#[derive(Debug, Default)]
pub struct Telemetry {
    latency: [Histogram; Class::ALL.len()],
    /// Answers by class and first digit of the status (2xx … 5xx).
    statuses: [[AtomicU64; 4]; Class::ALL.len()],
    closes: [AtomicU64; Close::ALL.len()],
    pub connections_open: AtomicUsize,
    pub connections_total: AtomicU64,
    pub requests_running: AtomicUsize,
    pub body_bytes_held: AtomicUsize,
    /// Bytes of request bodies that were read.
    pub bytes_in: AtomicU64,
    /// Bytes of answer bodies that were sent.
    pub bytes_out: AtomicU64,
    /// Rows that were committed through requests that insert rows.
    pub rows_in: AtomicU64,
    /// Bytes of the bodies of requests that insert rows, as sent.
    pub ingest_bytes: AtomicU64,
    /// Requests that insert rows.
    pub ingest_requests: AtomicU64,
    /// Requests that were delayed because of debt, lag or the memory of bodies.
    pub paced: AtomicU64,
    /// Requests that were not recorded because the recorder's queue was full.
    pub recorded_dropped: AtomicU64,
    /// Jobs that were given to the work threads.
    pub work_jobs: AtomicU64,
    /// Bodies that were refused because the shared memory of bodies was full.
    pub bodies_refused: AtomicU64,
    /// Rows that were acknowledged in memory and lost.
    pub rows_lost: AtomicU64,
}

impl Telemetry {
    pub fn answered(&self, class: Class, status: u16, duration: Duration) {
        self.latency[class as usize].record(duration);
        let family = usize::from(status / 100).clamp(2, 5) - 2;
        self.statuses[class as usize][family].fetch_add(1, Relaxed);
    }

    pub fn latency(&self, class: Class) -> &Histogram {
        &self.latency[class as usize]
    }

    /// Returns the answers by first digit of the status, 2 to 5.
    pub fn statuses(&self, class: Class) -> [u64; 4] {
        std::array::from_fn(|i| self.statuses[class as usize][i].load(Relaxed))
    }

    pub fn errors(&self) -> u64 {
        Class::ALL.iter().map(|class| self.statuses(*class)[2..].iter().sum::<u64>()).sum()
    }

    pub fn closed(&self, reason: Close) {
        self.closes[reason as usize].fetch_add(1, Relaxed);
    }

    pub fn closes(&self, reason: Close) -> u64 {
        self.closes[reason as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_duration_without_gap() {
        for bucket_index in 0..BUCKETS - 1 {
            let end = bucket_end_us(bucket_index);
            assert_eq!((bucket(end), bucket(end + 1)), (bucket_index, bucket_index + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_high() {
        let histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        let counts = histogram.counts();
        for (q, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = counts.quantile(q).as_micros() as f64;
            assert!(found >= exact && found <= exact * 1.126, "{q}: {found}");
        }
        assert_eq!((counts.count(), counts.sum_us), (10_000, 50_005_000));
    }

    #[test]
    fn a_window_forgets_after_ten_seconds() {
        let (histogram, mut window) = (Histogram::default(), Window::default());
        window.tick(&histogram);
        histogram.record(Duration::from_millis(5));
        let recent = window.tick(&histogram);
        assert_eq!((recent.per_second, recent.max), (1.0, Duration::from_millis(5)));
        for _ in 0..WINDOW_SECONDS {
            window.tick(&histogram);
        }
        assert_eq!(window.tick(&histogram), Recent::default());
    }
}

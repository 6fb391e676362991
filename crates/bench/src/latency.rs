//! Records latencies per thread in high-dynamic-range histograms, which are merged afterwards.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The upper bound of the histogram in nanoseconds: 10 minutes. Longer latencies count as this long, and `longest` stays exact.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Latencies of one thread or one stream, in nanoseconds with three significant digits.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u32>,
    longest: u64,
    total: u128,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("constant bounds are valid");
        Latency { histogram, longest: 0, total: 0 }
    }
}

impl Latency {
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        self.longest = self.longest.max(nanos);
        self.total += u128::from(nanos);
    }

    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("equal bounds");
        self.longest = self.longest.max(other.longest);
        self.total += other.total;
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The number of latencies above `limit`, within the histogram's three digits.
    pub fn count_above(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(LATENCY_MAX_NS).min(LATENCY_MAX_NS);
        self.count() - self.histogram.count_between(0, limit)
    }

    /// The latency that a share `quantile` (0 to 1) of all operations did not exceed.
    pub fn quantile(&self, quantile: f64) -> Duration {
        // A bucket's upper bound may lie above the longest value that fell into it.
        Duration::from_nanos(self.histogram.value_at_quantile(quantile).min(self.longest))
    }

    pub fn summary(&self) -> Summary {
        let ms = |quantile| self.quantile(quantile).as_secs_f64() * 1e3;
        let count = self.count();
        Summary {
            count,
            mean_ms: if count == 0 { 0.0 } else { self.total as f64 / count as f64 / 1e6 },
            p50_ms: ms(0.5),
            p90_ms: ms(0.9),
            p99_ms: ms(0.99),
            p999_ms: ms(0.999),
            longest_ms: self.longest as f64 / 1e6,
        }
    }
}

/// Count, mean and quantiles of a histogram for a report. All fields are zero if nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub count: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub longest_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_three_digits() {
        let mut latency = Latency::default();
        for ms in 1..=1000 {
            latency.record(Duration::from_millis(ms));
        }
        let summary = latency.summary();
        assert_eq!(summary.count, 1000);
        for (got, expected) in [
            (summary.p50_ms, 500.0),
            (summary.p90_ms, 900.0),
            (summary.p99_ms, 990.0),
            (summary.p999_ms, 999.0),
            (summary.mean_ms, 500.5),
            (summary.longest_ms, 1000.0),
        ] {
            assert!((got / expected - 1.0).abs() < 0.002, "{got} for {expected}");
        }
        assert_eq!(latency.count_above(Duration::from_millis(900)), 100);
    }

    #[test]
    fn merged_threads_equal_one_thread() {
        let (mut one, mut left, mut right) = (Latency::default(), Latency::default(), Latency::default());
        for n in 0..10_000u64 {
            let latency = Duration::from_nanos(n * n * 17);
            one.record(latency);
            if n % 3 == 0 { left.record(latency) } else { right.record(latency) }
        }
        left.merge(&right);
        assert_eq!(left.summary(), one.summary());
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_as_the_longest() {
        let mut latency = Latency::default();
        latency.record(Duration::from_secs(7200));
        assert_eq!(latency.summary().longest_ms, 7_200_000.0);
        assert_eq!(latency.count(), 1);
    }
}

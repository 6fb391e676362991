//! The share of time in which tasks waited for CPU, memory or I/O, from `/proc/pressure/*`. Kernels without PSI have no such
//! files.

use super::{Interval, MetricSample, Unit};

/// Microseconds since boot in which some, or all, runnable tasks were stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTotals {
    pub some: Option<u64>,
    pub full: Option<u64>,
}

pub const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];

/// Parses the totals of lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
pub fn parse(text: &str) -> StallTotals {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    StallTotals { some: total("some "), full: total("full ") }
}

pub fn samples(
    resource: &str,
    before: &StallTotals,
    now: &StallTotals,
    interval: &Interval,
    out: &mut Vec<MetricSample>,
) {
    for (name, old, new) in
        [("pressure_some", before.some, now.some), ("pressure_full", before.full, now.full)]
    {
        // Microseconds per second become percent.
        let share = interval.rate(old, new).map(|us| (us / 10_000.0).min(100.0));
        out.extend(share.map(|value| MetricSample::of(name, resource, value, Unit::Percent)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_stalled_time_over_time() {
        let text = |some: u64| format!("some avg10=0.12 avg60=0.00 avg300=0.00 total={some}\n");
        let (before, now) = (parse(&text(1_000_000)), parse(&text(1_500_000)));
        let mut out = Vec::new();
        samples("io", &before, &now, &Interval::seconds(2.0), &mut out);
        assert_eq!(out, [MetricSample::of("pressure_some", "io", 25.0, Unit::Percent)]);
    }

    #[test]
    fn a_kernel_without_pressure_gives_no_rows() {
        assert_eq!(parse(""), StallTotals::default());
        assert_eq!(parse("some total=x"), StallTotals::default());
    }
}

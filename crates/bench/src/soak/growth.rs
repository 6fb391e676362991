//! Judges whether a figure grows, by the slope of its later three quarters. The slope is the Theil–Sen estimator: the median of
//! the slopes between all pairs of samples. A saw-tooth, a spike and the filling of caches do not affect it; a small leak every
//! minute does.

use serde::{Deserialize, Serialize};

/// Fewest samples in the later three quarters that permit a verdict.
const SAMPLES_MIN: usize = 12;

/// Growth, by the slope from the end of the first quarter to the end, up to which a figure still counts as flat. The larger of
/// the two limits applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Share of the figure's median in the second quarter.
    pub part: f64,
    /// Amount in the figure's own unit, independent of its size: one more file than ten is not a leak.
    pub least: f64,
}

/// The growth of one figure over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    pub name: String,
    /// Median of the second quarter.
    pub before: f64,
    /// Median of the last quarter.
    pub after: f64,
    /// Growth by the slope, from the end of the first quarter to the end.
    pub grown: f64,
    pub allowed: f64,
    /// True if there were enough samples for a verdict.
    pub judged: bool,
}

impl Growth {
    pub fn holds(&self) -> bool {
        !self.judged || self.grown <= self.allowed
    }
}

/// Judges a series of pairs of a time and a value, ordered by time, from the start to the end of the run.
pub fn judge(name: &str, series: &[(f64, f64)], tolerance: Tolerance) -> Growth {
    let quarter = |part: usize| series.len() * part / 4;
    let later = &series[quarter(1)..];
    let before = median(series[quarter(1)..quarter(2)].iter().map(|(_, value)| *value).collect());
    let after = median(series[quarter(3)..].iter().map(|(_, value)| *value).collect());
    let span = match (later.first(), later.last()) {
        (Some((first, _)), Some((last, _))) => last - first,
        _ => 0.0,
    };
    Growth {
        name: name.to_owned(),
        before,
        after,
        grown: slope(later) * span,
        allowed: (before.abs() * tolerance.part).max(tolerance.least),
        judged: later.len() >= SAMPLES_MIN,
    }
}

/// Computes the Theil–Sen slope.
fn slope(series: &[(f64, f64)]) -> f64 {
    let pairs = series.iter().enumerate().flat_map(|(i, early)| {
        series[i + 1..].iter().filter_map(move |late| {
            let time = late.0 - early.0;
            (time > 0.0).then(|| (late.1 - early.1) / time)
        })
    });
    median(pairs.collect())
}

/// Returns the median, or 0 of an empty list.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const MEMORY: Tolerance = Tolerance { part: 0.05, least: 8.0 };

    /// Judges an hour of one value per minute.
    fn hour(value: impl Fn(f64) -> f64) -> Growth {
        let series: Vec<(f64, f64)> =
            (0..60).map(|minute| (f64::from(minute) * 60.0, value(f64::from(minute)))).collect();
        judge("memory", &series, MEMORY)
    }

    /// Returns a number between -1 and 1, always the same for the same minute.
    fn noise(minute: f64) -> f64 {
        Random::part(1, minute as u64).below(2001) as f64 / 1000.0 - 1.0
    }

    /// Rises for seven minutes, then drops.
    fn saw_tooth(minute: f64) -> f64 {
        (minute % 7.0) * 6.0
    }

    #[test]
    fn what_stays_holds_however_it_trembles() {
        for (name, flat) in [
            ("constant", hour(|_| 200.0)),
            ("noise", hour(|minute| 200.0 + 15.0 * noise(minute))),
            ("saw-tooth", hour(|minute| 200.0 + saw_tooth(minute))),
            ("caches that fill in the first quarter", hour(|minute| 200.0 + 10.0 * minute.min(14.0))),
            ("a spike at the end", hour(|minute| if minute >= 58.0 { 900.0 } else { 200.0 })),
            ("less and less", hour(|minute| 300.0 - minute)),
            ("zero", hour(|_| 0.0)),
        ] {
            assert!(flat.judged && flat.holds(), "{name}: {flat:?}");
        }
    }

    #[test]
    fn a_leak_is_noticed_in_noise_on_a_saw_tooth_and_in_steps() {
        for (name, leak) in [
            ("half a unit a minute", hour(|minute| 200.0 + 0.5 * minute)),
            ("in noise", hour(|minute| 200.0 + minute + 10.0 * noise(minute))),
            ("on a saw-tooth", hour(|minute| 200.0 + 0.6 * minute + saw_tooth(minute))),
            ("every ten minutes", hour(|minute| 200.0 + 10.0 * (minute / 10.0).floor())),
            ("from the second quarter on", hour(|minute| 200.0 + (minute - 20.0).max(0.0))),
            ("from nothing", hour(|minute| minute)),
        ] {
            assert!(leak.judged && !leak.holds(), "{name}: {leak:?}");
        }
    }

    #[test]
    fn how_much_it_grew_is_told_in_its_unit() {
        let leak = hour(|minute| 100.0 + minute);
        assert!((leak.grown - 44.0).abs() < 1e-9, "{leak:?}");
        assert_eq!((leak.before, leak.after, leak.allowed), (122.0, 152.0, 8.0));
    }

    #[test]
    fn few_samples_are_told_and_not_judged() {
        let series: Vec<(f64, f64)> = (0..14).map(|n| (f64::from(n), f64::from(n) * 100.0)).collect();
        let growth = judge("files", &series, MEMORY);
        assert!(!growth.judged && growth.holds() && growth.grown >= 1000.0, "{growth:?}");
        assert!(judge("files", &[], MEMORY).holds());
    }
}

//! Compares two configurations in one run, interleaved A B B A A B …, so that any drift (heat, neighbours, a growing table)
//! affects both sides alike. The ratios of neighbouring measurements are the result; the absolute figures only inform.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{Error, Result};

/// One of the two configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonSide {
    A,
    B,
}

/// One figure of both sides over all pairs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub figure: String,
    pub a_name: String,
    pub b_name: String,
    pub a: Spread,
    pub b: Spread,
    /// B divided by A, pair by pair.
    pub ratio: Spread,
    /// True if all pairs agree on the side with the higher value. Otherwise there is no difference to report.
    pub clear: bool,
}

/// Median and range of repeated measurements of one figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
    /// All values in the order of their measurement.
    pub values: Vec<f64>,
}

impl Spread {
    pub fn of(values: Vec<f64>) -> Spread {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let Some((lowest, highest)) = sorted.first().copied().zip(sorted.last().copied()) else {
            return Spread::default();
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        } else {
            sorted[middle]
        };
        Spread { median, lowest, highest, values }
    }
}

/// Measures both sides `pairs` times. `measure` returns figures by name, the same names every time.
pub fn compare(
    a_name: &str,
    b_name: &str,
    pairs: usize,
    mut measure: impl FnMut(ComparisonSide) -> Result<BTreeMap<String, f64>>,
) -> Result<Vec<Comparison>> {
    if pairs == 0 {
        return Err(Error::invalid("expected at least one pair to compare, found 0"));
    }
    let mut figures: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for pair in 0..pairs {
        for side in order(pair) {
            for (figure, value) in measure(side)? {
                let (a, b) = figures.entry(figure).or_default();
                if side == ComparisonSide::A { a.push(value) } else { b.push(value) }
            }
        }
    }
    figures
        .into_iter()
        .map(|(figure, (a, b))| {
            if a.len() != pairs || b.len() != pairs {
                return Err(Error::invalid(format!(
                    "expected {figure} from every measurement, found it {} and {} times in {pairs} pairs",
                    a.len(),
                    b.len()
                )));
            }
            Ok(paired(figure, (a_name, a), (b_name, b)))
        })
        .collect()
}

/// Compares one figure that both sides measured the same number of times, in neighbouring pairs.
pub(crate) fn paired(
    figure: String,
    (a_name, a): (&str, Vec<f64>),
    (b_name, b): (&str, Vec<f64>),
) -> Comparison {
    let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b / a).collect();
    let clear = ratios.iter().all(|ratio| *ratio > 1.0) || ratios.iter().all(|ratio| *ratio < 1.0);
    let (a_name, b_name) = (a_name.to_owned(), b_name.to_owned());
    Comparison {
        figure,
        a_name,
        b_name,
        a: Spread::of(a),
        b: Spread::of(b),
        ratio: Spread::of(ratios),
        clear,
    }
}

pub(crate) fn order(pair: usize) -> [ComparisonSide; 2] {
    if pair.is_multiple_of(2) {
        [ComparisonSide::A, ComparisonSide::B]
    } else {
        [ComparisonSide::B, ComparisonSide::A]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_interleaved_so_that_drift_meets_both() {
        let mut seen = Vec::new();
        let mut drift = 0.0;
        let compared = compare("a", "b", 4, |side| {
            seen.push(side);
            drift += 1.0;
            Ok(BTreeMap::from([("x".to_string(), drift)]))
        })
        .expect("figures from both");
        use ComparisonSide::{A, B};
        assert_eq!(seen, [A, B, B, A, A, B, B, A]);
        let sum = |spread: &Spread| spread.values.iter().sum::<f64>();
        assert_eq!(sum(&compared[0].a), sum(&compared[0].b));
        assert!(!compared[0].clear, "drift alone is no difference");
    }

    #[test]
    fn a_true_difference_is_clear_and_has_its_ratio() {
        let mut noise = 0.0;
        let compared = compare("a", "b", 5, |side| {
            noise += 1.0;
            Ok(BTreeMap::from([(
                "x".to_string(),
                if side == ComparisonSide::A { 100.0 + noise } else { 300.0 + noise },
            )]))
        })
        .expect("figures from both");
        assert!(compared[0].clear);
        assert!((compared[0].ratio.median - 2.9).abs() < 0.1, "{compared:?}");
    }

    #[test]
    fn a_figure_that_one_side_lacks_is_an_error() {
        let figures =
            |side| Ok(BTreeMap::from([(if side == ComparisonSide::A { "x" } else { "y" }.to_string(), 1.0)]));
        assert!(compare("a", "b", 2, figures).is_err());
    }

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(vec![]), Spread::default());
    }
}

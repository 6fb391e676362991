use testkit::Rng;

use super::*;

fn sum(values: &[f64]) -> ExactSum {
    let mut sum = ExactSum::default();
    values.iter().for_each(|value| sum.add(*value));
    sum
}

/// Returns a random finite float64.
fn any(rng: &mut Rng) -> f64 {
    loop {
        let value = f64::from_bits(rng.next_u64());
        if value.is_finite() {
            return value;
        }
    }
}

#[test]
fn what_plain_addition_loses_is_kept() {
    assert_eq!(sum(&[1e16, 1.0, -1e16]).value(), 1.0);
    assert_eq!(sum(&[1e308, 1e308, -1e308, -1e308, 5e-324]).value(), 5e-324);
    assert_eq!(sum(&[1.0, 1e100, 1.0, -1e100]).value(), 2.0);
    assert_eq!(sum(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
    assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
    let tenths = vec![0.1; 10_000_000];
    // 10 million times the float64 next to 0.1, which is 0.1 + 5.55e-18, rounded once.
    assert_eq!(sum(&tenths).value(), 1_000_000.0);
    assert_ne!(tenths.iter().sum::<f64>(), 1_000_000.0);
}

#[test]
fn a_sum_is_rounded_once_and_ties_go_to_even() {
    let half = 2f64.powi(-53);
    assert_eq!(sum(&[1.0, half]).value(), 1.0);
    assert_eq!(sum(&[1.0, half, 1e-300]).value(), 1.0 + f64::EPSILON);
    assert_eq!(sum(&[1.0 + f64::EPSILON, half]).value(), 1.0 + 2.0 * f64::EPSILON);
    assert_eq!(sum(&[-1.0, -half, -1e-300]).value(), -1.0 - f64::EPSILON);
}

#[test]
fn numbers_that_are_none_and_infinite_ones_come_and_go() {
    let mut figure = sum(&[1.0, f64::INFINITY]);
    assert_eq!(figure.value(), f64::INFINITY);
    figure.add(f64::NEG_INFINITY);
    assert!(figure.value().is_nan());
    figure.remove(f64::INFINITY);
    assert_eq!(figure.value(), f64::NEG_INFINITY);
    figure.remove(f64::NEG_INFINITY);
    assert_eq!(figure.value(), 1.0);
    figure.add(f64::NAN);
    assert!(figure.value().is_nan() && !figure.is_finite());
}

/// Compares with sums of integers in the common unit of the values.
#[test]
fn sums_of_like_sizes_are_those_of_integers() {
    let mut rng = Rng::new(7);
    for _ in 0..2_000 {
        let unit = rng.below(1_900) as i32 - 1_000;
        let numbers: Vec<i64> = (0..rng.below(60)).map(|_| (rng.next_u64() as i64) >> 11).collect();
        let values: Vec<f64> = numbers.iter().map(|n| scaled(*n as f64, unit)).collect();
        let whole: i128 = numbers.iter().map(|n| i128::from(*n)).sum();
        assert_eq!(sum(&values).value(), scaled(whole as f64, unit), "{values:?}");
    }
}

#[test]
fn no_order_grouping_or_encoding_changes_a_bit() {
    let mut rng = Rng::new(8);
    for round in 0..2_000 {
        let mut values: Vec<f64> = (0..1 + rng.below(40))
            .map(|_| match round % 4 {
                0 => any(&mut rng),
                1 => (rng.below(200_000) as f64 - 100_000.0) / 100.0,
                2 => scaled(any(&mut rng), -1_000),
                _ => (rng.below(2_000) as f64 - 1_000.0) * 10f64.powi(rng.below(40) as i32 - 20),
            })
            .collect();
        let expected = sum(&values);
        let bits = expected.value().to_bits();
        for _ in 0..4 {
            rng.shuffle(&mut values);
            let cut = rng.index(values.len() + 1);
            let (mut left, right) = (sum(&values[..cut]), sum(&values[cut..]));
            let mut bytes = Vec::new();
            right.encode(&mut bytes);
            left.merge(&ExactSum::decode(&bytes).unwrap());
            assert_eq!(left.value().to_bits(), bits, "{values:?}");
            // Removing the added values restores the earlier sum.
            values[cut..].iter().for_each(|value| left.remove(*value));
            assert_eq!(left.value().to_bits(), sum(&values[..cut]).value().to_bits(), "{values:?}");
        }
        let mut again = ExactSum::default();
        expected.components(0).iter().for_each(|value| again.add(*value));
        assert!(!expected.value().is_finite() || again.value().to_bits() == bits, "{values:?}");
    }
}

#[test]
fn foreign_bytes_are_no_sum() {
    assert!(ExactSum::decode(&[]).is_none());
    assert!(ExactSum::decode(&[0; WINDOW_BYTES + 1]).is_none());
}

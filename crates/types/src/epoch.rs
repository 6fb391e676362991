//! Timestamps given as numbers, in a unit that the column declares.

use std::fmt;

use crate::{Error, Micros, Result, name};

/// The unit of a number in a timestamp column, counted since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl EpochUnit {
    const ALL: [EpochUnit; 4] = [EpochUnit::Seconds, EpochUnit::Millis, EpochUnit::Micros, EpochUnit::Nanos];

    /// Parses `epoch_s`, `epoch_ms`, `epoch_us` or `epoch_ns`, the forms that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Result<EpochUnit> {
        let found = EpochUnit::ALL.into_iter().find(|unit| unit.to_string() == text);
        found.ok_or_else(|| {
            Error::invalid(format!("`{}` is not a unit of numbers that mean times", name::printable(text)))
                .hint("units are epoch_s, epoch_ms, epoch_us and epoch_ns")
        })
    }

    /// Converts a decimal number without an exponent to microseconds. Digits below a microsecond are cut off. `None`
    /// if the text is not such a number or the result is out of range.
    pub fn micros(self, number: &str) -> Option<Micros> {
        let (is_negative, digits) = match number.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, number),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let has_point = whole.len() < digits.len();
        if whole.is_empty() || (has_point && fraction.is_empty()) || !is_number(whole) || !is_number(fraction)
        {
            return None;
        }
        let (whole, whole_places): (i128, usize) = (
            whole.parse().ok()?,
            match self {
                EpochUnit::Seconds => 6,
                EpochUnit::Millis => 3,
                EpochUnit::Micros | EpochUnit::Nanos => 0,
            },
        );
        let below = fraction.bytes().chain(std::iter::repeat(b'0')).take(whole_places);
        let below = below.fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
        let micros = whole.checked_mul(10i128.pow(whole_places as u32))?.checked_add(below)?;
        let micros = if is_negative { -micros } else { micros };
        i64::try_from(if self == EpochUnit::Nanos { micros.div_euclid(1_000) } else { micros }).ok()
    }
}

impl fmt::Display for EpochUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EpochUnit::Seconds => "epoch_s",
            EpochUnit::Millis => "epoch_ms",
            EpochUnit::Micros => "epoch_us",
            EpochUnit::Nanos => "epoch_ns",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_a_time_by_its_unit() {
        for (unit, number, micros) in [
            ("epoch_s", "1774926657", Some(1_774_926_657_000_000)),
            ("epoch_s", "1774926657.1234567", Some(1_774_926_657_123_456)),
            ("epoch_s", "-1.5", Some(-1_500_000)),
            ("epoch_ms", "1774926657123", Some(1_774_926_657_123_000)),
            ("epoch_ms", "1.5", Some(1_500)),
            ("epoch_us", "1774926657123456", Some(1_774_926_657_123_456)),
            ("epoch_ns", "1774926657123456789", Some(1_774_926_657_123_456)),
            ("epoch_ns", "-1", Some(-1)),
            ("epoch_s", "9223372036855", None),
            ("epoch_s", "1e9", None),
            ("epoch_s", "1.", None),
            ("epoch_s", ".5", None),
            ("epoch_s", "", None),
            ("epoch_s", "+1", None),
        ] {
            assert_eq!(EpochUnit::parse(unit).unwrap().micros(number), micros, "{number} {unit}");
        }
        assert!(EpochUnit::parse("seconds").unwrap_err().to_string().contains("epoch_ms"));
    }
}

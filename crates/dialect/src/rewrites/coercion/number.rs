//! Number literals with all their digits, and their place among the values of an exact type.

use std::fmt::LowerExp;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::ScalarValue;
use types::{Error, Result, name};

/// Number of digits that a float64 keeps for certain.
const FLOAT_DIGITS: u32 = 15;
/// Number of digits of the longest decimal.
const DIGITS_MAX: u32 = 38;

/// A number `mantissa / 10^scale`, without trailing zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    mantissa: i128,
    scale: i32,
}

/// The place of a number among the values of an exact type.
#[derive(Clone, Debug, PartialEq)]
pub enum NumberPlace {
    At(ScalarValue),
    /// The number lies above this value and below the next one.
    After(ScalarValue),
    BelowAll,
    AboveAll,
}

/// Greatest exponent that is kept: a number beyond it is above every decimal, or closer to zero than any, whatever its digits.
const EXPONENT_MAX: i32 = 100_000;

impl NumberPlace {
    /// Returns the place of a float among decimals; `None` for other types. NaN is above all numbers, as in comparisons of
    /// floats.
    pub fn of_float(float: impl Into<f64> + LowerExp + Copy, data_type: &Arrow) -> Option<NumberPlace> {
        if !matches!(data_type, Arrow::Decimal128(..)) {
            return None;
        }
        match Number::of_float(float) {
            Some(number) => number.place(data_type),
            None if float.into() == f64::NEG_INFINITY => Some(NumberPlace::BelowAll),
            None => Some(NumberPlace::AboveAll),
        }
    }
}

impl Number {
    fn new(mut mantissa: i128, mut scale: i32) -> Self {
        while mantissa != 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            scale -= 1;
        }
        if mantissa == 0 {
            scale = 0;
        }
        Number { mantissa, scale }
    }

    /// Converts a literal of an exact type; `None` for other literals.
    pub fn of(scalar: &ScalarValue) -> Option<Self> {
        Some(match scalar {
            ScalarValue::Decimal128(Some(v), _, scale) => Number::new(*v, i32::from(*scale)),
            ScalarValue::Int8(Some(v)) => Number::new(i128::from(*v), 0),
            ScalarValue::Int16(Some(v)) => Number::new(i128::from(*v), 0),
            ScalarValue::Int32(Some(v)) => Number::new(i128::from(*v), 0),
            ScalarValue::Int64(Some(v)) => Number::new(i128::from(*v), 0),
            ScalarValue::UInt64(Some(v)) => Number::new(i128::from(*v), 0),
            _ => return None,
        })
    }

    /// Converts a float, by the fewest digits that identify it; `None` if it is not finite.
    pub fn of_float(float: impl LowerExp) -> Option<Self> {
        Number::parse(&format!("{float:e}")).ok()
    }

    /// Reads `-12.50` or `1.25e3`.
    pub fn parse(text: &str) -> Result<Self> {
        let no = || Error::invalid(format!("`{}` is not a valid decimal", name::printable(text)));
        let trimmed = text.trim();
        let (written, exponent) = match trimmed.split_once(['e', 'E']) {
            Some((written, exponent)) => {
                (written, exponent.parse::<i32>().map_err(|_| no())?.clamp(-EXPONENT_MAX, EXPONENT_MAX))
            }
            None => (trimmed, 0),
        };
        let (negative, written) = match written.as_bytes().first() {
            Some(b'-') => (true, &written[1..]),
            Some(b'+') => (false, &written[1..]),
            _ => (false, written),
        };
        let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
        let digits = whole.bytes().chain(fraction.bytes());
        if whole.len() + fraction.len() == 0 || !digits.clone().all(|d| d.is_ascii_digit()) {
            return Err(no());
        }
        // Trailing zeros are dropped, so that any number of them is accepted.
        let fraction = fraction.trim_end_matches('0');
        let mut mantissa = 0i128;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa
                .checked_mul(10)
                .and_then(|m| m.checked_add(i128::from(digit - b'0')))
                .ok_or_else(|| no().hint("a decimal has at most 38 digits"))?;
        }
        let scale =
            i32::try_from(fraction.len()).ok().and_then(|s| s.checked_sub(exponent)).ok_or_else(no)?;
        Ok(Number::new(if negative { -mantissa } else { mantissa }, scale))
    }

    pub fn negated(self) -> Self {
        Number { mantissa: -self.mantissa, scale: self.scale }
    }

    fn digits(self) -> u32 {
        self.mantissa.unsigned_abs().checked_ilog10().unwrap_or(0) + 1
    }

    /// Returns true if the number has more digits than a float64 keeps for certain.
    pub fn is_long(self) -> bool {
        self.digits() > FLOAT_DIGITS
    }

    /// Returns the nearest float64, as if it had been parsed from the text.
    pub fn to_f64(self) -> f64 {
        format!("{}e{}", self.mantissa, -i64::from(self.scale)).parse().unwrap_or(f64::NAN)
    }

    /// Returns the decimal with as many digits as the number; `None` if no decimal has so many.
    pub fn to_decimal(self) -> Option<ScalarValue> {
        let (mantissa, scale) = if self.scale < 0 {
            (shift(self.mantissa, self.scale.unsigned_abs())?, 0)
        } else {
            (self.mantissa, self.scale.unsigned_abs())
        };
        let digits = (Number { mantissa, scale: 0 }).digits().max(scale);
        (digits <= DIGITS_MAX)
            .then(|| ScalarValue::Decimal128(Some(mantissa), digits.max(1) as u8, scale as i8))
    }

    /// Returns the nearest decimal of this precision and scale, in units of its scale; ties round away from zero. `None` if it
    /// does not fit.
    pub fn rounded(self, precision: u8, scale: i8) -> Option<i128> {
        let up = i64::from(scale) - i64::from(self.scale);
        let by = u32::try_from(up.unsigned_abs()).ok()?;
        let value = match 10i128.checked_pow(by) {
            _ if up >= 0 => shift(self.mantissa, by)?,
            Some(unit) => {
                let (whole, rest) = (self.mantissa / unit, self.mantissa % unit);
                let away = rest.unsigned_abs() >= unit.unsigned_abs() - rest.unsigned_abs();
                if away { whole + self.mantissa.signum() } else { whole }
            }
            None => 0,
        };
        (value.unsigned_abs() < 10u128.checked_pow(precision.into())?).then_some(value)
    }

    /// Returns the place of the number among the values of `data_type`; `None` if that is neither an integer nor a decimal type.
    pub fn place(self, data_type: &Arrow) -> Option<NumberPlace> {
        let (low, high, scale) = range(data_type)?;
        let out = if self.mantissa < 0 { NumberPlace::BelowAll } else { NumberPlace::AboveAll };
        let up = i64::from(scale) - i64::from(self.scale);
        let (floor, exact) = match u32::try_from(up.unsigned_abs()) {
            Ok(up_by) if up >= 0 => match shift(self.mantissa, up_by) {
                Some(value) => (value, true),
                None => return Some(out),
            },
            Ok(down_by) => match 10i128.checked_pow(down_by) {
                Some(unit) => (self.mantissa.div_euclid(unit), self.mantissa.rem_euclid(unit) == 0),
                None => (if self.mantissa < 0 { -1 } else { 0 }, false),
            },
            Err(_) => return Some(out),
        };
        Some(if floor < low {
            NumberPlace::BelowAll
        } else if floor > high || (floor == high && !exact) {
            NumberPlace::AboveAll
        } else if exact {
            NumberPlace::At(value(floor, data_type)?)
        } else {
            NumberPlace::After(value(floor, data_type)?)
        })
    }
}

fn shift(mantissa: i128, by: u32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    mantissa.checked_mul(10i128.checked_pow(by)?)
}

/// Returns the least and the greatest value of a type, and its scale; the values are in units of the scale.
fn range(data_type: &Arrow) -> Option<(i128, i128, i8)> {
    Some(match data_type {
        Arrow::Int8 => (i8::MIN.into(), i8::MAX.into(), 0),
        Arrow::Int16 => (i16::MIN.into(), i16::MAX.into(), 0),
        Arrow::Int32 => (i32::MIN.into(), i32::MAX.into(), 0),
        Arrow::Int64 => (i64::MIN.into(), i64::MAX.into(), 0),
        Arrow::UInt8 => (0, u8::MAX.into(), 0),
        Arrow::UInt16 => (0, u16::MAX.into(), 0),
        Arrow::UInt32 => (0, u32::MAX.into(), 0),
        Arrow::UInt64 => (0, u64::MAX.into(), 0),
        Arrow::Decimal128(precision, scale) => {
            let high = 10i128.checked_pow(u32::from(*precision))? - 1;
            (-high, high, *scale)
        }
        _ => return None,
    })
}

fn value(v: i128, data_type: &Arrow) -> Option<ScalarValue> {
    Some(match data_type {
        Arrow::Int8 => ScalarValue::Int8(v.try_into().ok()),
        Arrow::Int16 => ScalarValue::Int16(v.try_into().ok()),
        Arrow::Int32 => ScalarValue::Int32(v.try_into().ok()),
        Arrow::Int64 => ScalarValue::Int64(v.try_into().ok()),
        Arrow::UInt8 => ScalarValue::UInt8(v.try_into().ok()),
        Arrow::UInt16 => ScalarValue::UInt16(v.try_into().ok()),
        Arrow::UInt32 => ScalarValue::UInt32(v.try_into().ok()),
        Arrow::UInt64 => ScalarValue::UInt64(v.try_into().ok()),
        Arrow::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(v), *precision, *scale),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_every_digit_it_was_written_with() {
        for (text, mantissa, scale) in [
            ("10.50", 105, 1),
            (" -2.25 ", -225, 2),
            ("+7", 7, 0),
            ("1e3", 1, -3),
            ("0.000", 0, 0),
            (".5", 5, 1),
            ("1234567890123456789.0000000001", 12_345_678_901_234_567_890_000_000_001, 10),
        ] {
            assert_eq!(Number::parse(text).unwrap(), Number { mantissa, scale }, "{text}");
        }
        for text in ["", "x", ".", "1.2.3", "1e", "--1", "NaN", "1 2", &"9".repeat(60)] {
            assert!(Number::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_is_rounded_to_a_decimal_once() {
        let rounded = |text: &str, precision, scale| Number::parse(text).unwrap().rounded(precision, scale);
        assert_eq!(rounded("10.5", 10, 2), Some(1050));
        assert_eq!(rounded("1.005", 10, 2), Some(101));
        assert_eq!(rounded("-1.005", 10, 2), Some(-101));
        assert_eq!(rounded("1.0049", 10, 2), Some(100));
        assert_eq!(rounded("99.995", 4, 2), None);
        assert_eq!(rounded("1e300", 38, 0), None);
        assert_eq!(rounded("1e-300", 38, 10), Some(0));
        assert_eq!(rounded("0.6", 1, 0), Some(1));
    }

    #[test]
    fn a_number_lies_at_a_value_between_two_or_beyond_all() {
        let place = |text: &str, data_type: &Arrow| Number::parse(text).unwrap().place(data_type).unwrap();
        let money = Arrow::Decimal128(10, 2);
        let cents = |v| ScalarValue::Decimal128(Some(v), 10, 2);
        assert_eq!(place("10.5", &money), NumberPlace::At(cents(1050)));
        assert_eq!(place("10.505", &money), NumberPlace::After(cents(1050)));
        assert_eq!(place("-10.505", &money), NumberPlace::After(cents(-1051)));
        assert_eq!(place("100000000", &money), NumberPlace::AboveAll);
        assert_eq!(place("99999999.995", &money), NumberPlace::AboveAll);
        assert_eq!(place("-1e300", &money), NumberPlace::BelowAll);
        assert_eq!(place("1e-300", &money), NumberPlace::After(cents(0)));
        assert_eq!(place("-1e-300", &money), NumberPlace::After(cents(-1)));
        assert_eq!(place("2.5", &Arrow::Int32), NumberPlace::After(ScalarValue::Int32(Some(2))));
        assert_eq!(place("3e9", &Arrow::Int32), NumberPlace::AboveAll);
        assert_eq!(place("-1", &Arrow::UInt64), NumberPlace::BelowAll);
        assert_eq!(Number::parse("1").unwrap().place(&Arrow::Float64), None);
        assert_eq!(NumberPlace::of_float(10.5, &money), Some(NumberPlace::At(cents(1050))));
        assert_eq!(NumberPlace::of_float(0.1f32, &money), Some(NumberPlace::At(cents(10))));
        assert_eq!(NumberPlace::of_float(1e30, &money), Some(NumberPlace::AboveAll));
        assert_eq!(NumberPlace::of_float(f64::NEG_INFINITY, &money), Some(NumberPlace::BelowAll));
        assert_eq!(NumberPlace::of_float(f64::NAN, &money), Some(NumberPlace::AboveAll));
        assert_eq!(NumberPlace::of_float(1.0, &Arrow::Int64), None);
    }
}

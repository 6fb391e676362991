//! Decimal numbers that keep all digits that were written.

use std::cmp::Ordering;
use std::fmt;

/// The number `mantissa` · 10^-`scale`, with the smallest possible scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    mantissa: i128,
    scale: u32,
}

/// The largest number of significant digits.
const DIGITS_MAX: usize = 38;

impl Number {
    pub fn new(mantissa: i128, scale: u32) -> Number {
        let mut number = Number { mantissa, scale };
        while number.scale > 0 && number.mantissa % 10 == 0 {
            number = Number { mantissa: number.mantissa / 10, scale: number.scale - 1 };
        }
        number
    }

    /// Parses `-3`, `1.5`, `1,000` or `1e9`. A comma that does not group three digits is a decimal comma: `50,5`.
    pub fn parse(word: &str) -> Option<Number> {
        let (plain, power) = match word.split_once(['e', 'E']) {
            Some((plain, power)) => (plain, power.parse::<i32>().ok().filter(|p| p.abs() < 40)?),
            None => (word, 0),
        };
        let digits = plain.strip_prefix('-').unwrap_or(plain);
        let (whole, part) = parts(digits)?;
        let all = format!("{whole}{part}");
        let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_digits(&all) {
            return None;
        }
        let significant = all.trim_start_matches('0');
        let scale = part.len() as i32 - power;
        let zeros = usize::try_from(-scale).unwrap_or(0);
        if significant.len() + zeros > DIGITS_MAX || scale > DIGITS_MAX as i32 {
            return None;
        }
        let value = format!("0{significant}{}", "0".repeat(zeros)).parse::<i128>().ok()?;
        let mantissa = if digits.len() < plain.len() { -value } else { value };
        Some(Number::new(mantissa, u32::try_from(scale).unwrap_or(0)))
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Returns the number as an integer, or `None` if it has a fraction or does not fit.
    pub fn to_i64(self) -> Option<i64> {
        (self.scale == 0).then(|| i64::try_from(self.mantissa).ok()).flatten()
    }

    /// Returns true if a float reproduces all digits of the number.
    pub fn fits_in_float(self) -> bool {
        self.mantissa.unsigned_abs() < 1_000_000_000_000_000
    }

    /// Multiplies; returns `None` on overflow.
    pub fn times(self, factor: u64) -> Option<Number> {
        Some(Number::new(self.mantissa.checked_mul(factor.into())?, self.scale))
    }

    pub fn order(self, other: Number) -> Ordering {
        let scale = self.scale.max(other.scale);
        let at = |number: Number| {
            10i128.checked_pow(scale - number.scale).and_then(|power| number.mantissa.checked_mul(power))
        };
        match (at(self), at(other)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // The numbers are so far apart that floats order them correctly.
            _ => self.to_f64().total_cmp(&other.to_f64()),
        }
    }

    /// Returns the number for sentences, with all digits: `1,234.5`.
    pub fn phrase(self) -> String {
        let text = self.to_string();
        let (sign, text) = text.strip_prefix('-').map_or(("", &*text), |text| ("-", text));
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let mut phrase = sign.to_owned();
        for (i, digit) in whole.chars().enumerate() {
            if i > 0 && (whole.len() - i).is_multiple_of(3) {
                phrase.push(',');
            }
            phrase.push(digit);
        }
        if part.is_empty() { phrase } else { format!("{phrase}.{part}") }
    }
}

/// Formats the number as SQL and JSON do: `-1234.5`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = self.scale as usize;
        let digits = format!("{:0>1$}", self.mantissa.unsigned_abs().to_string(), scale + 1);
        let (whole, part) = digits.split_at(digits.len() - scale);
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let point = if part.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{part}")
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number::new(value.into(), 0)
    }
}

/// Returns the digits before and after the decimal point. Thousands separators are removed.
fn parts(digits: &str) -> Option<(String, &str)> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let Some((first, rest)) = whole.split_once(',') else { return Some((whole.to_owned(), part)) };
    let is_grouped = (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && rest.split(',').all(|three| three.len() == 3);
    match is_grouped {
        true => Some((whole.replace(',', ""), part)),
        // `50,5` has a decimal comma; `1,00,5` is ambiguous and refused.
        false => (!digits.contains('.') && !rest.contains(',') && !rest.is_empty())
            .then(|| (first.to_owned(), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        for (text, expected) in [
            ("9007199254740993", "9007199254740993"),
            ("-1.50", "-1.5"),
            ("1,234,567.25", "1234567.25"),
            ("50,5", "50.5"),
            ("0,125", "0.125"),
            ("1e9", "1000000000"),
            ("5e-3", "0.005"),
            ("0.0000000001", "0.0000000001"),
            ("12345678901234567890.1234567891", "12345678901234567890.1234567891"),
        ] {
            assert_eq!(Number::parse(text).map(|n| n.to_string()).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "-", ".5", "1,00,5", "1,5.5", "5,", "inf", "1e99", "v1", "1-2", "10:00", "1.2.3"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        assert_eq!(Number::parse("-1234567.5").unwrap().phrase(), "-1,234,567.5");
        assert!(Number::parse("2.5").unwrap().order(2.into()).is_gt());
        assert_eq!(Number::parse("1.5").unwrap().times(1_000).unwrap().to_i64(), Some(1_500));
    }
}

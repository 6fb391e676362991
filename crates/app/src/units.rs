//! Sizes and lengths of time as people write them: `64 MiB`, `30 s`. Used in settings, in flags and in the output of
//! commands.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes: `65536`, `64 KiB`, `1.5 GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// A length of time: `150 s`, `250 ms`, `5 min`, `24 h`. A bare number is seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A length of time, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanOrOff(pub Option<Duration>);

const SIZES: [(&str, f64); 9] = [
    ("", 1.0),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];

const SPANS: [(&str, f64); 9] = [
    ("", 1.0),
    ("ms", 1e-3),
    ("s", 1.0),
    ("sec", 1.0),
    ("min", 60.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
    ("days", 86_400.0),
];

/// Parses a number with a unit: `"1.5 GB"` is 1.5 times the factor of `GB`. The case of the unit does not matter.
fn parse(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.replace('_', "").parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    let value = number * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse(text, &SIZES).filter(|bytes| *bytes < 1e18);
        bytes
            .map(|bytes| ByteSize(bytes as u64))
            .ok_or_else(|| format!("`{text}` is not a size; write one like `64 MiB`"))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = parse(text, &SPANS).filter(|seconds| *seconds < 1e9);
        let span = seconds.map(|seconds| Span(Duration::from_secs_f64(seconds)));
        span.ok_or_else(|| format!("`{text}` is not a length of time; write one like `30 s` or `5 min`"))
    }
}

impl FromStr for SpanOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "off" {
            return Ok(SpanOrOff(None));
        }
        let span = text.parse().map(|Span(span)| SpanOrOff(Some(span)));
        span.map_err(|_| format!("`{text}` is not a length of time; write one like `7 d`, or `off`"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.iter().find(|(_, shift)| self.0 >> shift > 0) {
            None => write!(f, "{} B", self.0),
            Some((unit, shift)) if self.0.trailing_zeros() >= *shift => {
                write!(f, "{} {unit}", self.0 >> shift)
            }
            Some((unit, shift)) => write!(f, "{:.1} {unit}", self.0 as f64 / (1_u64 << shift) as f64),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            _ if millis > 0 && millis.is_multiple_of(3_600_000) => write!(f, "{} h", millis / 3_600_000),
            _ if millis > 0 && millis.is_multiple_of(60_000) && millis >= 300_000 => {
                write!(f, "{} min", millis / 60_000)
            }
            _ if millis.is_multiple_of(1_000) => write!(f, "{} s", millis / 1_000),
            _ => write!(f, "{millis} ms"),
        }
    }
}

/// A size or time in a settings file: a bare number, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

fn deserialize_text<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    };
    text.parse().map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

impl<'de> Deserialize<'de> for SpanOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Formats a number with grouped digits: `1234567` becomes `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `1 row`, `2 rows`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_and_printed() {
        for (text, bytes, printed) in [
            ("64 MiB", 64 << 20, "64 MiB"),
            ("64mib", 64 << 20, "64 MiB"),
            ("1.5 GB", 1_500_000_000, "1.4 GiB"),
            ("17", 17, "17 B"),
            ("1_000", 1_000, "1000 B"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, printed));
        }
        for (text, millis, printed) in [
            ("150 s", 150_000, "150 s"),
            ("250ms", 250, "250 ms"),
            ("5 min", 300_000, "5 min"),
            ("24h", 86_400_000, "24 h"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_millis(), span.to_string().as_str()), (millis, printed));
        }
        let off: SpanOrOff = "off".parse().unwrap();
        let week: SpanOrOff = "7 d".parse().unwrap();
        assert_eq!((off.0, week.0), (None, Some(Duration::from_secs(7 * 86_400))));
        assert!("of".parse::<SpanOrOff>().unwrap_err().contains("`off`"));
        for bad in ["", "x", "5 parsec", "-1", "1e99", "MiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "row"), "1 row");
    }
}

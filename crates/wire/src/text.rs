//! Single values as text: times, dates, UUIDs, decimals, base64. Input is parsed strictly, output has one fixed form.

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser as _, string_to_datetime};
use arrow::datatypes::Date32Type;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use types::{DATES, EpochUnit, TIMES};

/// The standard alphabet. Padding is written always, and optional in input.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const DAY_SECONDS: i64 = 86_400;

/// Returns the days from 1970-01-01 to a date of the proleptic Gregorian calendar (Howard Hinnant's algorithm).
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Converts days since 1970-01-01 to year, month and day: the inverse of [`days_from_civil`].
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Parses `2026-11-21` as days since 1970-01-01; years 0000 to 9999.
pub fn parse_date(text: &str) -> Option<i32> {
    let (days, rest) = date_prefix(text.as_bytes())?;
    rest.is_empty().then_some(days as i32)
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0u32, |n, b| b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0')))
}

fn date_prefix(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = bytes.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let (year, month, day) = (number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?);
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let days = days_from_civil(year.into(), month, day);
    // A date such as April 31 is converted back to May 1 and therefore rejected.
    (civil_from_days(days) == (year.into(), month, day)).then_some((days, rest))
}

/// Parses a day as people write it: `2026-11-21` or `2026-1-2`.
pub fn parse_day(text: &str) -> Option<i32> {
    let loose = || Date32Type::parse(text).filter(|day| text.len() <= 10 && DATES.contains(day));
    parse_date(text).or_else(loose)
}

/// Parses a time in any usual form as µs since 1970. A day alone is its first moment, a missing offset means UTC, and
/// digits below a microsecond are cut off. Every input path uses this function, so that they all accept the same
/// texts.
pub fn parse_time(text: &str) -> Option<i64> {
    let loose = || {
        let utc: Tz = "+00:00".parse().ok()?;
        let time = string_to_datetime(&utc, text).ok()?.timestamp_micros();
        // A text of digits only is more likely a number than a day.
        (text.contains('-') && TIMES.contains(&time)).then_some(time)
    };
    parse_timestamp(text).or_else(loose)
}

/// Parses a time of RFC 3339 as µs since 1970, with these variants: `T`, `t` or a space in the middle; seconds may be
/// absent; the offset may be `+01`, `+0100`, `+01:00`, `Z` or `UTC`, with a space before it, or absent, which means
/// UTC.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let (days, rest) = date_prefix(text.as_bytes())?;
    if rest.is_empty() {
        return Some(days * DAY_SECONDS * 1_000_000);
    }
    if !matches!(rest[0], b'T' | b't' | b' ') {
        return None;
    }
    let rest = &rest[1..];
    let (clock, mut rest) = rest.split_at_checked(5)?;
    let (hour, minute) = (number(&clock[..2])?, number(&clock[3..])?);
    if clock[2] != b':' || hour > 23 || minute > 59 {
        return None;
    }
    let mut second = 0;
    let mut micros: i64 = 0;
    if rest.first() == Some(&b':') {
        second = number(rest.get(1..3)?)?;
        // A leap second counts as the second after it, as POSIX time does.
        if second > 60 {
            return None;
        }
        rest = &rest[3..];
        if rest.first() == Some(&b'.') {
            let digits = rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            for i in 0..6 {
                micros = micros * 10 + rest[1..=digits].get(i).map_or(0, |b| i64::from(b - b'0'));
            }
            rest = &rest[1 + digits..];
        }
    }
    let offset = offset_minutes(rest)?;
    let seconds = days * DAY_SECONDS + i64::from(hour * 3600 + minute * 60 + second) - offset * 60;
    Some(seconds * 1_000_000 + micros)
}

/// Parses the offset after a time of day, as minutes east of UTC.
fn offset_minutes(behind: &[u8]) -> Option<i64> {
    let zone = match behind {
        [] => return Some(0),
        [b' ', zone @ ..] => zone,
        zone => zone,
    };
    if zone.eq_ignore_ascii_case(b"z") || zone.eq_ignore_ascii_case(b"utc") {
        return Some(0);
    }
    let (sign, digits) = match zone {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        5 if digits[2] == b':' => (number(&digits[..2])?, number(&digits[3..])?),
        4 => (number(&digits[..2])?, number(&digits[2..])?),
        2 => (number(digits)?, 0),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then(|| sign * i64::from(hours * 60 + minutes))
}

/// The seconds of the years 1980 to 2100. Numbers in other units are recognised by this range.
const LIKELY_SECONDS: std::ops::Range<i64> = 315_532_800..4_102_444_800;

/// Checks a number that is given as a time in microseconds since 1970. A number is refused if it is probably in
/// another unit: as seconds, milliseconds or nanoseconds it is between 1980 and 2100, but as microseconds it is in the
/// first weeks of 1970 or beyond the year 9999. The error names that unit.
pub fn micros_of_number(number: i64) -> Result<i64, String> {
    let (unit, input) = if LIKELY_SECONDS.contains(&number) {
        ("seconds", EpochUnit::Seconds)
    } else if LIKELY_SECONDS.contains(&(number / 1_000)) {
        ("milliseconds", EpochUnit::Millis)
    } else if LIKELY_SECONDS.contains(&(number / 1_000_000_000)) {
        ("nanoseconds", EpochUnit::Nanos)
    } else {
        return Ok(number);
    };
    Err(format!(
        "a number for a time is microseconds since 1970, and {number} looks like {unit}: send microseconds or a text like `2026-11-21T08:06:51Z`, or declare the column with \"input\":\"{input}\""
    ))
}

/// Writes `2026-11-21`. Years beyond four digits get a sign, as ISO 8601 requires.
pub fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    if (0..=9999).contains(&year) {
        digits(year as u64, 4, out);
    } else {
        out.push(if year < 0 { b'-' } else { b'+' });
        digits(year.unsigned_abs(), 6, out);
    }
    out.push(b'-');
    digits(month.into(), 2, out);
    out.push(b'-');
    digits(day.into(), 2, out);
}

/// Writes `2026-11-21T08:06:51.000000`, always with six digits and without an offset: the caller adds `Z` for an
/// instant.
pub fn write_timestamp(micros: i64, out: &mut Vec<u8>) {
    write_date(micros.div_euclid(DAY_SECONDS * 1_000_000), out);
    out.push(b'T');
    write_time(micros.rem_euclid(DAY_SECONDS * 1_000_000), out);
}

/// Writes `08:06:51.000000`.
pub fn write_time(micros_of_day: i64, out: &mut Vec<u8>) {
    let seconds = (micros_of_day / 1_000_000) as u64;
    digits(seconds / 3600, 2, out);
    out.push(b':');
    digits(seconds / 60 % 60, 2, out);
    out.push(b':');
    digits(seconds % 60, 2, out);
    out.push(b'.');
    digits((micros_of_day % 1_000_000) as u64, 6, out);
}

/// Writes a number with at least `width` digits.
fn digits(mut value: u64, width: usize, out: &mut Vec<u8>) {
    let mut buf = [b'0'; 20];
    let mut at = buf.len();
    while value > 0 || buf.len() - at < width {
        at -= 1;
        buf[at] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&buf[at..]);
}

/// Parses 32 hexadecimal digits, with hyphens allowed between them.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut count = 0;
    for b in text.bytes() {
        if b == b'-' && count > 0 {
            continue;
        }
        let digit = (b as char).to_digit(16)? as u8;
        *uuid.get_mut(count / 2)? |= if count % 2 == 0 { digit << 4 } else { digit };
        count += 1;
    }
    (count == 32 && text.len() <= 36).then_some(uuid)
}

/// Writes `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` in lower case.
pub fn write_uuid(uuid: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Parses a decimal (`-12.50`, `1.25e3`) as its unscaled number. `None` if it has more than `precision` digits or more
/// than `scale` digits after the point.
pub fn parse_decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || (mantissa.len() > whole.len() && fraction.is_empty()) {
        return None;
    }
    let mut value: i128 = 0;
    for b in whole.bytes().chain(fraction.bytes()) {
        value = value.checked_mul(10)?.checked_add(i128::from((b as char).to_digit(10)?))?;
    }
    if value != 0 {
        // The number of places by which the digits move left to be counted in units of `scale`.
        let shift = i64::from(exponent) + i64::from(scale) - fraction.len() as i64;
        if shift >= 0 {
            value = value.checked_mul(10i128.checked_pow(u32::try_from(shift).ok()?)?)?;
        } else {
            let unit = 10i128.checked_pow(u32::try_from(-shift).ok()?)?;
            if value % unit != 0 {
                return None;
            }
            value /= unit;
        }
    }
    (value < 10i128.pow(precision.into())).then_some(if negative { -value } else { value })
}

/// Writes `-12.50`, with exactly `scale` digits after the point.
pub fn write_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let digits = value.unsigned_abs().to_string();
    match usize::try_from(scale) {
        Ok(0) => out.extend_from_slice(digits.as_bytes()),
        Ok(scale) => {
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            out.extend_from_slice(whole.as_bytes());
            out.push(b'.');
            out.extend_from_slice(fraction.as_bytes());
        }
        // A negative scale counts in tens, hundreds and so on.
        Err(_) => {
            out.extend_from_slice(digits.as_bytes());
            if value != 0 {
                out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
            }
        }
    }
}

/// Appends the bytes that a base64 text encodes. If the text is invalid, returns false and leaves `out` unchanged.
pub fn parse_base64(text: &str, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let ok = BASE64.decode_vec(text, out).is_ok();
    if !ok {
        out.truncate(before);
    }
    ok
}

pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = BASE64.encode_slice(bytes, &mut out[start..]).expect("the room was made");
    out.truncate(start + written);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_day_of_ten_thousand_years_comes_back() {
        let mut days = days_from_civil(0, 1, 1);
        assert_eq!((civil_from_days(0), days_from_civil(2000, 3, 1)), ((1970, 1, 1), 11_017));
        while days < days_from_civil(10_000, 1, 1) {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(days_from_civil(y, m, d), days);
            days += 13;
        }
        assert_eq!(written(|out| write_date(i32::MIN.into(), out)), "-5877641-06-23");
    }

    #[test]
    fn times_are_read_in_every_allowed_form_and_written_in_one() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000"),
            ("2026-11-21T08:06:51.123456789+02:00", "2026-11-21T06:06:51.123456"),
            ("2026-11-21 08:06:51.5", "2026-11-21T08:06:51.500000"),
            ("2024-02-29T23:59:60z", "2024-03-01T00:00:00.000000"),
            ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999"),
            ("2026-11-21T08:06-0130", "2026-11-21T09:36:00.000000"),
            ("2026-11-21", "2026-11-21T00:00:00.000000"),
            ("2026-03-31 03:17:37+00", "2026-03-31T03:17:37.000000"),
            ("2026-03-31 03:17:37 UTC", "2026-03-31T03:17:37.000000"),
            ("2026-03-31 03:17:37.25 -02", "2026-03-31T05:17:37.250000"),
            ("2026-03-31 03:17 utc", "2026-03-31T03:17:00.000000"),
        ] {
            let micros = parse_timestamp(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(written(|out| write_timestamp(micros, out)), expected, "{text}");
        }
        for bad in [
            "",
            "2026-11-31",
            "2026-11-21 ",
            "2026-11-21T08:06:51Z ",
            "2026-11-21T08:06:51  Z",
            "2026-11-21T08:06:51 ",
            "2026-11-21T08:06:51+24",
            "2026-11-31T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T08:06:51.Z",
            "2026-11-21T08:06:51+2",
            "2026-11-21T08:06:51Zx",
            "2026-11-21T08:0é",
            "20é6-11-21T08:06:51Z",
        ] {
            assert_eq!(parse_timestamp(bad), None, "{bad}");
        }
    }

    /// Numbers of seconds silently became times of 1970.
    #[test]
    fn a_number_of_another_unit_is_no_time() {
        for (number, unit) in [
            (1_774_926_657, "seconds"),
            (315_532_800, "seconds"),
            (4_102_444_799, "seconds"),
            (1_774_926_657_123, "milliseconds"),
            (315_532_800_000, "milliseconds"),
            (1_774_926_657_123_456_789, "nanoseconds"),
        ] {
            let refused = micros_of_number(number).unwrap_err();
            assert!(refused.contains(&format!("{number} looks like {unit}")), "{refused}");
        }
        for number in [
            0,
            1,
            -1_774_926_657,
            315_532_799,
            4_102_444_800,
            315_532_799_999,
            4_102_444_800_000,
            1_774_926_657_123_456,
            -1_774_926_657_123_456,
            i64::MIN,
            i64::MAX,
        ] {
            assert_eq!(micros_of_number(number), Ok(number));
        }
    }

    #[test]
    fn decimals_are_exact() {
        for (text, value) in [
            ("12.5", Some(1250)),
            ("-12.50", Some(-1250)),
            ("12.500", Some(1250)),
            ("12.505", None),
            ("1.25e1", Some(1250)),
            ("125e-1", Some(1250)),
            ("0e999999999", Some(0)),
            ("1e999999999", None),
            ("999.99", Some(99_999)),
            ("1000", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("1_0", None),
        ] {
            assert_eq!(parse_decimal(text, 5, 2), value, "{text}");
        }
        assert_eq!(written(|out| write_decimal(-5, 2, out)), "-0.05");
        assert_eq!(written(|out| write_decimal(12_345, 2, out)), "123.45");
        assert_eq!(written(|out| write_decimal(i128::MIN, 0, out)), i128::MIN.to_string());
        assert_eq!(written(|out| write_decimal(7, -2, out)), "700");
    }

    #[test]
    fn uuids_and_bytes_come_back() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        let uuid = parse_uuid(text).unwrap();
        assert_eq!(written(|out| write_uuid(&uuid, out)), text);
        assert_eq!(parse_uuid(&text.replace('-', "").to_uppercase()), Some(uuid));
        for bad in [
            "",
            "0",
            &text[1..],
            "-1234567-89ab-cdef-0123-456789abcdeff",
            "g1234567-89ab-cdef-0123-456789abcdef",
        ] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
        for bytes in [&b""[..], b"a", b"ab", b"abc", &[0, 255, 254]] {
            let text = written(|out| write_base64(bytes, out));
            let mut back = Vec::new();
            assert!(parse_base64(text.trim_end_matches('='), &mut back) && back == bytes);
        }
        let mut out = vec![1];
        assert!(!parse_base64("a*b", &mut out) && out == [1]);
    }
}

//! Dates: parses those that people write into front matter, and formats them for feeds and HTTP. A date without a zone
//! is in UTC.

use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// Parses a date to seconds since 1970, or returns `None`.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return in_range(time.timestamp());
    }
    for format in ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, format) {
            return in_range(time.and_utc().timestamp());
        }
    }
    for format in ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y"] {
        if let Ok(date) = NaiveDate::parse_from_str(text, format) {
            return in_range(date.and_hms_opt(0, 0, 0)?.and_utc().timestamp());
        }
    }
    None
}

/// Accepts the years 1 to 9999, which every format can express.
fn in_range(seconds: i64) -> Option<i64> {
    (-62_135_596_800..=253_402_300_799).contains(&seconds).then_some(seconds)
}

fn time(seconds: i64) -> DateTime<chrono::Utc> {
    in_range(seconds).and_then(|seconds| DateTime::from_timestamp(seconds, 0)).unwrap_or_default()
}

/// Formats a time as `2024-05-01T12:00:00Z`.
pub(crate) fn rfc3339(seconds: i64) -> String {
    time(seconds).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time as `2024-05-01`.
pub(crate) fn day(seconds: i64) -> String {
    time(seconds).format("%Y-%m-%d").to_string()
}

/// Formats a time as `Wed, 01 May 2024 12:00:00 GMT`.
pub(crate) fn http(seconds: i64) -> String {
    time(seconds).format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

//! Parses lines of web server access logs: Apache's and nginx's `common` and `combined` formats.
//!
//! ```text
//! [vhost:port ]client ident user [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326[ "referer" "agent"[ …]]
//! ```
//!
//! Real logs contain more than the format allows: TLS bytes instead of a request, quotes inside quotes, IPv6 clients,
//! sizes of `-`. A line that cannot be parsed at all is kept as text in the column `line`, so that no line of a log is
//! lost. `SELECT line FROM access WHERE line IS NOT NULL` shows these lines.

use types::{DataType, Micros};

/// The columns of the table that a log becomes, in the order of [`Entry`]'s fields.
pub const COLUMNS: [(&str, DataType); 14] = [
    ("time", DataType::Timestamp),
    ("host", DataType::String),
    ("client", DataType::String),
    ("ident", DataType::String),
    ("user", DataType::String),
    ("method", DataType::String),
    ("path", DataType::String),
    ("protocol", DataType::String),
    ("status", DataType::Int64),
    ("bytes", DataType::Int64),
    ("referer", DataType::String),
    ("agent", DataType::String),
    ("extra", DataType::String),
    ("line", DataType::String),
];

/// One parsed line. A field that the log shows as `-` is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub time: Option<Micros>,
    /// The virtual host, if the format begins with one.
    pub host: Option<String>,
    pub client: Option<String>,
    pub ident: Option<String>,
    pub user: Option<String>,
    /// `None` if the client did not send an HTTP request; `path` then holds all bytes that it sent.
    pub method: Option<String>,
    pub path: Option<String>,
    pub protocol: Option<String>,
    pub status: Option<i64>,
    pub bytes: Option<i64>,
    pub referer: Option<String>,
    pub agent: Option<String>,
    /// The rest of the line after the fields above (response times, forwarded-for), unparsed.
    pub extra: Option<String>,
    /// The whole line, only if it could not be parsed.
    pub line: Option<String>,
}

/// Parses a line. A line that cannot be parsed is kept whole in [`Entry::line`].
pub fn parse(line: &str) -> Entry {
    split(line).unwrap_or_else(|| Entry { line: Some(line.to_owned()), ..Entry::default() })
}

/// Returns true if a line can be parsed as one of an access log. Used to recognise a file by its content.
pub fn is_access_log(line: &str) -> bool {
    split(line).is_some()
}

fn split(line: &str) -> Option<Entry> {
    let mut entry = Entry::default();
    // The user's name is typed by the client and may contain spaces, so the bracket is found first.
    let (head, rest) = line.split_at(time_start(line)?);
    let mut words: Vec<&str> = head.split_ascii_whitespace().collect();
    // In the format `vhost_combined` a host precedes the client, so that the client's address is the second word. If there are
    // four words because the user's name has spaces, the second word is `-`.
    if words.len() >= 4 && words[1] != "-" && looks_like_client(words[1]) {
        entry.host = present(words.remove(0));
    }
    if words.len() < 3 {
        return None;
    }
    entry.client = present(words[0]);
    entry.ident = present(words[1]);
    entry.user = present(&words[2..].join(" "));
    let (time, rest) = rest[1..].split_once(']')?;
    entry.time = Some(parse_time(time)?);

    let (request, rest) = quoted(rest.trim_start())?;
    split_request(&request, &mut entry);
    let (status, rest) = word(rest)?;
    entry.status = match status {
        "-" => None,
        digits => Some(digits.parse().ok().filter(|code| (0..=999).contains(code))?),
    };
    let (bytes, rest) = word(rest)?;
    entry.bytes = match bytes {
        "-" => None,
        digits => Some(digits.parse().ok().filter(|count| *count >= 0)?),
    };

    let mut rest = rest.trim();
    if rest.starts_with('"')
        && let Some((referer, after)) = quoted(rest)
    {
        entry.referer = present(&referer);
        rest = after.trim_start();
        if rest.starts_with('"')
            && let Some((agent, after)) = quoted(rest)
        {
            entry.agent = present(&agent);
            rest = after.trim_start();
        }
    }
    entry.extra = (!rest.is_empty()).then(|| rest.to_owned());
    Some(entry)
}

/// Returns the position of the `[` before the time: the first bracket followed by two digits and a slash. An IPv6 literal
/// in brackets may precede it.
fn time_start(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    (0..bytes.len().saturating_sub(4)).find(|&i| {
        bytes[i] == b'['
            && bytes[i + 1].is_ascii_digit()
            && bytes[i + 2].is_ascii_digit()
            && bytes[i + 3] == b'/'
            && (i == 0 || bytes[i - 1] == b' ')
    })
}

fn looks_like_client(word: &str) -> bool {
    let bare = word.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().is_ok()
}

fn present(text: &str) -> Option<String> {
    (text != "-" && !text.is_empty()).then(|| text.to_owned())
}

fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(' ').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Reads `"…"` at the beginning of `text` and returns the text after it too. Resolves `\"` and `\\`; other escapes
/// (`\x16`) stay as the server wrote them.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut out = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            // A server that does not escape leaves quotes inside a field. Only a quote before a space or the end closes it.
            '"' if inner[at + 1..].starts_with(' ') || at + 1 == inner.len() => {
                return Some((out, &inner[at + 1..]));
            }
            '\\' => match chars.next() {
                Some((_, escaped @ ('"' | '\\'))) => out.push(escaped),
                Some((_, other)) => out.extend(['\\', other]),
                None => return None,
            },
            other => out.push(other),
        }
    }
    None
}

fn split_request(request: &str, entry: &mut Entry) {
    let method_end = request.find(' ').unwrap_or(0);
    let method = &request[..method_end];
    let is_method =
        !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-' || b == b'_');
    if !is_method {
        entry.path = present(request);
        return;
    }
    entry.method = Some(method.to_owned());
    let target = request[method_end..].trim();
    // A path may contain unencoded spaces, so the last word is taken as the protocol if it begins with `HTTP/`. HTTP/0.9 has
    // no protocol.
    match target.rsplit_once(' ') {
        Some((path, protocol)) if protocol.starts_with("HTTP/") => {
            entry.path = present(path);
            entry.protocol = Some(protocol.to_owned());
        }
        _ => entry.path = present(target),
    }
}

/// Parses `10/Oct/2000:13:55:36 -0700` into microseconds since 1970.
fn parse_time(text: &str) -> Option<Micros> {
    let (clock, zone) = text.split_once(' ').unwrap_or((text, "+0000"));
    let mut parts = clock.split(['/', ':']);
    let day: i64 = parts.next()?.parse().ok()?;
    let month = parts.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| name.eq_ignore_ascii_case(month))? as i64 + 1;
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    let in_range = (1..=31).contains(&day)
        && (1970..=9999).contains(&year)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    if !in_range || parts.next().is_some() {
        return None;
    }
    let (sign, digits) = match zone.as_bytes().first()? {
        b'+' => (1, &zone[1..]),
        b'-' => (-1, &zone[1..]),
        _ => return None,
    };
    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let offset_minutes = sign * (digits[..2].parse::<i64>().ok()? * 60 + digits[2..].parse::<i64>().ok()?);
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some((seconds - offset_minutes * 60) * 1_000_000)
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar (Howard Hinnant, "chrono-compatible
/// low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests;

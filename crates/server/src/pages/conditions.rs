//! Headers of conditional requests: accepted encodings, known versions and byte ranges.

use http::{HeaderMap, HeaderName, header};

/// Returns the items of a header that holds a list and may be repeated.
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

/// Returns true if gzip is accepted, and with at least the quality of the plain bytes (RFC 9110, 12.5.3).
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut identity, mut others) = (None, None, None);
    for part in list(headers, header::ACCEPT_ENCODING) {
        let (coding, quality) = match part.split_once(';') {
            Some((coding, rest)) => (coding.trim(), quality(rest)),
            None => (part, 1_000),
        };
        match () {
            () if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => {
                gzip = Some(quality);
            }
            () if coding.eq_ignore_ascii_case("identity") => identity = Some(quality),
            () if coding == "*" => others = Some(quality),
            () => {}
        }
    }
    let gzip = gzip.or(others).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// Parses a quality into thousandths. An unreadable one counts as 1, like a missing one.
fn quality(text: &str) -> u32 {
    let value = text.split(';').find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let number = value.and_then(|value| value.parse::<f32>().ok()).filter(|q| (0.0..=1.0).contains(q));
    number.map_or(1_000, |q| (q * 1e3) as u32)
}

/// Returns true if the client already has this version, by `If-None-Match`. It is compared weakly, as RFC 9110 demands.
pub fn is_current(headers: &HeaderMap, etag: &str) -> bool {
    list(headers, header::IF_NONE_MATCH)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
}

/// The requested range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Whole,
    /// Begin and end (exclusive) of the range.
    Part(usize, usize),
    /// The range has no bytes of the file.
    Outside,
}

/// Parses `Range`, which may ask for one range of bytes. Several ranges and other units get the whole file, which is always
/// allowed.
pub fn span(headers: &HeaderMap, etag: &str, size: usize) -> Span {
    let Some(range) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Span::Whole;
    };
    // `If-Range` with a date never matches, because a date is less exact than an ETag.
    let same = headers.get(header::IF_RANGE).is_none_or(|known| known.as_bytes() == etag.as_bytes());
    let parts = range.trim().strip_prefix("bytes=").and_then(|range| range.trim().split_once('-'));
    let (Some((from, to)), true) = (parts, same) else { return Span::Whole };
    let number =
        |text: &str| text.trim().bytes().all(|b| b.is_ascii_digit()).then(|| text.trim().parse::<usize>());
    match (from.trim().is_empty(), number(from), to.trim().is_empty(), number(to)) {
        // `-N` requests the last N bytes.
        (true, _, false, Some(Ok(last))) => match last {
            0 => Span::Outside,
            _ if size == 0 => Span::Outside,
            last => Span::Part(size.saturating_sub(last), size),
        },
        (false, Some(Ok(from)), true, _) if from < size => Span::Part(from, size),
        (false, Some(Ok(from)), false, Some(Ok(to))) if from <= to && from < size => {
            Span::Part(from, to.saturating_add(1).min(size))
        }
        (false, Some(Ok(from)), true, _) if from >= size => Span::Outside,
        (false, Some(Ok(from)), false, Some(Ok(to))) if from <= to && from >= size => Span::Outside,
        _ => Span::Whole,
    }
}

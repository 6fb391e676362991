//! What a request says of encodings, versions and parts.

use http::{HeaderMap, HeaderName, header};

/// The parts of a header that may come several times and holds a list.
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

/// Whether gzip may be sent, and is not less welcome than the plain bytes (RFC 9110, 12.5.3).
pub fn takes_gzip(headers: &HeaderMap) -> bool {
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

/// Thousandths. What cannot be read counts as said without a number.
fn quality(text: &str) -> u32 {
    let value = text.split(';').find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let number = value.and_then(|value| value.parse::<f32>().ok()).filter(|q| (0.0..=1.0).contains(q));
    number.map_or(1_000, |q| (q * 1e3) as u32)
}

/// Whether the client has this version already: `If-None-Match`, compared weakly as it is to be.
pub fn has(headers: &HeaderMap, etag: &str) -> bool {
    list(headers, header::IF_NONE_MATCH)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
}

/// Which of the bytes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Whole,
    Part(usize, usize),
    Outside,
}

/// One range of bytes; of several, or of another unit, everything is sent, which is always right.
pub fn span(headers: &HeaderMap, etag: &str, size: usize) -> Span {
    let Some(range) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Span::Whole;
    };
    // A date says less than an ETag does, so it never matches.
    let same = headers.get(header::IF_RANGE).is_none_or(|known| known.as_bytes() == etag.as_bytes());
    let parts = range.trim().strip_prefix("bytes=").and_then(|range| range.trim().split_once('-'));
    let (Some((from, to)), true) = (parts, same) else { return Span::Whole };
    let number =
        |text: &str| text.trim().bytes().all(|b| b.is_ascii_digit()).then(|| text.trim().parse::<usize>());
    match (from.trim().is_empty(), number(from), to.trim().is_empty(), number(to)) {
        // The last so many.
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

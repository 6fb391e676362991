//! Heads of requests and answers: what is no HTTP, what could be read in two ways, and what every answer of the interface says
//! of itself.
//!
//! hyper refuses a malformed head by itself, with a status and an empty body, and offers no place to say more. Those
//! answers are recognised where they leave and given the error that every other answer of this server has.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, Version};
use serde_json::json;
use types::Error;

use crate::failure::Result;

/// Headers of every answer that is no page: it is what it says it is, it is for who asked as it was asked, and nobody keeps it.
const OF_ANSWERS: [(HeaderName, HeaderValue); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::VARY, HeaderValue::from_static("authorization, accept")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Puts the headers of an answer that is no page, where it does not say otherwise itself.
pub fn complete(headers: &mut HeaderMap) {
    for (name, value) in OF_ANSWERS {
        headers.entry(name).or_insert(value);
    }
}

/// Refuses a head that a proxy before this server may have read in another way: it would answer for another host, or take a
/// part of one request for another one.
pub fn unambiguous(uri: &Uri, version: Version, headers: &HeaderMap) -> Result<()> {
    for (header, name) in [(header::HOST, "Host"), (header::AUTHORIZATION, "Authorization")] {
        if headers.get_all(header).iter().nth(1).is_some() {
            return Err(Error::invalid(format!("the request has two {name} headers"))
                .hint("send one")
                .into());
        }
    }
    let host = headers.get(header::HOST);
    if host.is_none() && version == Version::HTTP_11 {
        return Err(Error::invalid("the request has no Host header").hint("HTTP/1.1 requires one").into());
    }
    if let (Some(authority), Some(host)) = (uri.authority(), host)
        && !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        return Err(Error::invalid("the request's target and its Host header name two hosts")
            .hint("send the path alone as the target")
            .into());
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if is_chunked(value) => Ok(()),
        _ => Err(Error::invalid("Transfer-Encoding is anything but one `chunked`")
            .hint("send `Transfer-Encoding: chunked` once, or Content-Length")
            .into()),
    }
}

/// hyper's own refusals begin like this; ours have a body.
const BEGINS: &[u8] = b"HTTP/1.1 4";
const EMPTY: &[u8] = b"\r\ncontent-length: 0\r\n";

/// What is sent instead of hyper's refusal; `None` if these bytes are none.
pub fn instead_of(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.starts_with(BEGINS) || !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    bytes.windows(EMPTY.len()).find(|window| *window == EMPTY)?;
    let line = bytes.split(|byte| *byte == b'\r').next()?;
    let status = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.1 ")?;
    let (code, message, hint) = match status.split(' ').next()? {
        "414" => ("too_large", "the request's path is too long", "send what is long in the body"),
        "431" => (
            "too_large",
            "the request's line and headers are too long, or too many",
            "send at most 64 headers, of 64 KiB together with the line; what is longer belongs into the body",
        ),
        _ => {
            ("invalid", "the request is no HTTP/1.1", "send a request line and headers as RFC 9112 has them")
        }
    };
    let body = json!({ "error": { "code": code, "message": message, "hint": hint } }).to_string() + "\n";
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n\
        vary: authorization, accept\r\ncache-control: no-store\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Some((head + &body).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_refusal_is_replaced() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let ours = String::from_utf8(instead_of(bare).unwrap()).unwrap();
        let (head, body) = ours.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "too_large");
        for other in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\n{}\n"[..],
            b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
        ] {
            assert_eq!(instead_of(other), None);
        }
    }
}

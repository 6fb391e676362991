//! Heads of requests and answers: refuses input that is not HTTP or that can be read in two ways, and sets the headers that every
//! answer of the API has.
//!
//! hyper refuses a malformed head itself, with a status and an empty body, and offers no hook to say more. Those answers are
//! recognised on their way out and replaced by ones with the error object that all other errors have.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, Version};
use serde_json::json;
use types::Error;

use crate::failure::Result;

/// Headers of every answer that is not a page: its media type is exact, it depends on key and `Accept`, and it may not be stored.
const ANSWER_HEADERS: [(HeaderName, HeaderValue); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::VARY, HeaderValue::from_static("authorization, accept")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Adds the headers of an answer that is not a page, unless the answer has its own values for them.
pub fn add_default_headers(headers: &mut HeaderMap) {
    for (name, value) in ANSWER_HEADERS {
        headers.entry(name).or_insert(value);
    }
}

/// Refuses a head that a proxy in front may have read differently. It could answer for another host, or take a part of one
/// request for a second one.
pub fn refuse_ambiguous(uri: &Uri, version: Version, headers: &HeaderMap) -> Result<()> {
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
        _ => Err(Error::invalid("Transfer-Encoding is not exactly one `chunked`")
            .hint("send `Transfer-Encoding: chunked` once, or Content-Length")
            .into()),
    }
}

/// The first bytes of hyper's own refusals.
const REFUSAL_START: &[u8] = b"HTTP/1.1 4";
/// The header that tells hyper's refusals from ours, which have a body.
const EMPTY: &[u8] = b"\r\ncontent-length: 0\r\n";

/// Returns the bytes to send instead of hyper's refusal; `None` if `bytes` is not such a refusal.
pub fn replacement_of(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.starts_with(REFUSAL_START) || !bytes.ends_with(b"\r\n\r\n") {
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
            "send at most 64 headers, of 64 KiB together with the line; send longer values in the body",
        ),
        _ => (
            "invalid",
            "the request is not HTTP/1.1",
            "send a request line and headers as RFC 9112 defines them",
        ),
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
        let ours = String::from_utf8(replacement_of(bare).unwrap()).unwrap();
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
            assert_eq!(replacement_of(other), None);
        }
    }
}

//! What is no HTTP, answered as everything else is.
//!
//! hyper refuses a malformed head by itself, with a status and an empty body, and offers no place to say more. Those
//! answers are recognised where they leave and given the error that every other answer of this server has.

use serde_json::json;

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
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
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

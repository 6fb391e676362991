use super::*;

/// Feeds an answer in chunks of `step` bytes.
fn feed(answer: &[u8], step: usize) -> Result<Option<HttpAnswer>, String> {
    let mut incoming = Incoming::default();
    for piece in answer.chunks(step) {
        incoming.space()[..piece.len()].copy_from_slice(piece);
        if incoming.received(piece.len())? {
            return Ok(Some(HttpAnswer { status: incoming.status(), body: incoming.body().to_vec() }));
        }
    }
    Ok(None)
}

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    let plain = b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nContent-Length: 5\r\n\r\nhello".as_slice();
    let chunked =
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
            .as_slice();
    for step in 1..80 {
        let answer = feed(plain, step).expect("well formed").expect("whole");
        assert_eq!((answer.status, answer.body.as_slice()), (200, b"hello".as_slice()));
        let answer = feed(chunked, step).expect("well formed").expect("whole");
        assert_eq!((answer.status, answer.body.as_slice()), (201, b"hello".as_slice()));
    }
}

#[test]
fn an_empty_answer_needs_no_body() {
    for head in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"] {
        let answer = feed(head.as_bytes(), 7).expect("well formed").expect("whole");
        assert!(answer.body.is_empty());
    }
}

#[test]
fn what_is_not_http_is_refused() {
    for bad in [
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        assert!(feed(bad.as_bytes(), 1024).is_err(), "{bad:?}");
    }
}

#[test]
fn an_answer_cut_short_by_a_close_is_an_error() {
    let mut incoming = Incoming::default();
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab";
    incoming.space()[..half.len()].copy_from_slice(half);
    assert_eq!(incoming.received(half.len()), Ok(false));
    assert!(incoming.received(0).is_err());
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    let mut incoming = Incoming::default();
    let bytes = b"HTTP/1.0 200 OK\r\n\r\nrest";
    incoming.space()[..bytes.len()].copy_from_slice(bytes);
    assert_eq!(incoming.received(bytes.len()), Ok(false));
    assert_eq!(incoming.received(0), Ok(true));
    assert_eq!(incoming.body(), b"rest");
    assert!(incoming.closes());
}

#[test]
fn a_request_carries_its_key_and_length() {
    let target = LoadTarget::new("127.0.0.1:8484").expect("loopback").key("k");
    let request = render(&target, "POST", "/v1/sql", "application/json", b"{}");
    let text = std::str::from_utf8(&request).expect("UTF-8");
    assert!(
        text.starts_with("POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1:8484\r\nAuthorization: Bearer k\r\n"),
        "{text}"
    );
    assert!(text.ends_with("Content-Length: 2\r\n\r\n{}"), "{text}");
}

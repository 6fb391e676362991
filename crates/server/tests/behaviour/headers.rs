//! Headers of every answer, and request heads that can be read in two ways.

use super::common::TestServer;

/// Answers of the interface were cached by browsers and proxies, and their media types were guessed.
#[test]
fn no_answer_of_the_interface_is_cached_or_sniffed() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("heads-answers");
    let rows = "/v1/tables/t/rows";
    assert_eq!(running.ask("POST", rows, r#"{"a":1}"#).status, 200);
    for (method, path, body) in [
        ("POST", rows, r#"{"a":1}"#),
        ("POST", rows, "no json"),
        ("GET", rows, ""),
        ("HEAD", rows, ""),
        ("GET", "/v1/tables/none", ""),
        ("PATCH", "/v1/tables", ""),
        ("GET", "/v1/nothing", ""),
        ("POST", "/v1/sql", r#"{"sql":"SELECT 1"}"#),
        ("POST", "/v1/sql", r#"{"sql":"SELEC 1"}"#),
        ("GET", "/iceberg/v1/namespaces/none", ""),
        ("GET", "/metrics", ""),
        ("GET", "/health", ""),
        ("GET", "/openapi.json", ""),
    ] {
        let answer = running.ask(method, path, body);
        let header = |name: &str| answer.header(name).unwrap_or("none");
        assert_eq!(header("x-content-type-options"), "nosniff", "{method} {path}");
        assert_eq!(header("cache-control"), "no-store", "{method} {path}");
        assert_eq!(header("vary"), "authorization, accept", "{method} {path}");
    }
    // The page sets its own caching header.
    assert_eq!(running.ask("GET", "/_/", "").header("cache-control"), Some("no-cache"));
    // Bytes that are not HTTP.
    let mut client = running.client();
    client.send(b"no\x00thing\r\n\r\n").unwrap();
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.header("x-content-type-options"), answer.header("cache-control")),
        (400, Some("nosniff"), Some("no-store"))
    );
}

/// A proxy may use the first of two Host headers and a server the last. Two readers may also disagree where a body ends that is
/// declared chunked twice.
#[test]
fn a_head_that_can_be_read_in_two_ways_is_refused_and_its_connection_closed() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("heads-twice");
    let rows = "/v1/tables/t/rows";
    let chunked = "7\r\n{\"a\":1}\r\n0\r\n\r\n";
    for (headers, body) in [
        (&[("Host", "localhost"), ("Host", "localhost"), ("Content-Length", "7")][..], r#"{"a":1}"#),
        (&[("Host", "localhost"), ("Host", "evil.example"), ("Content-Length", "7")], r#"{"a":1}"#),
        (&[("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")], chunked),
        (&[("Transfer-Encoding", "chunked, chunked")], chunked),
        (&[("Transfer-Encoding", "gzip, chunked")], chunked),
        (&[("Transfer-Encoding", "identity"), ("Transfer-Encoding", "chunked")], chunked),
    ] {
        let mut client = running.client();
        client.head("POST", rows, headers);
        let _ = client.send(body.as_bytes());
        let answer = client.answer();
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{headers:?}");
        assert!(client.is_closed(), "{headers:?}");
    }
    for head in [
        "POST /v1/tables/t/rows HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        "POST http://evil.example/v1/tables/t/rows HTTP/1.1\r\nHost: localhost\r\n",
        "POST /v1/tables/t/rows HTTP/1.1\r\n",
    ] {
        let mut client = running.client();
        client.send(format!("{head}Content-Length: 7\r\n\r\n{{\"a\":1}}").as_bytes()).unwrap();
        let answer = client.answer();
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{head}");
        assert_eq!(answer.header("vary"), Some("authorization, accept"), "{head}");
        assert!(client.is_closed(), "{head}");
    }
    assert!(running.engine.root().table("main.t").is_none());
    let mut client = running.client();
    client.send(b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(client.answer().status, 200);
    for coding in ["chunked", "Chunked"] {
        let mut client = running.client();
        client.head("POST", rows, &[("Transfer-Encoding", coding)]);
        client.send(chunked.as_bytes()).unwrap();
        assert_eq!(client.answer().status, 200, "{coding}");
    }
}

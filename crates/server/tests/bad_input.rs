//! Bad input never harms: a clear error, the next request served, memory bounded.

mod common;

use std::time::Duration;

use common::{Client, Running, resident_bytes, wait_until};
use polynya_server::telemetry::{Class, Close};

#[test]
fn malformed_json_is_400_and_points_at_the_place() {
    let _limit = testkit::limit(60);
    let running = Running::start("malformed");
    let mut client = running.client();
    let answer = client.ask("POST", "/v1/tables/t/rows", &[], b"{\"a\":1}\n{\"a\":");
    assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"));
    assert!(
        answer.error().1.contains("row 2 is no JSON: a value expected at byte 13 (line 2)"),
        "{}",
        answer.text()
    );
    // The same connection serves the next request, and nothing of the bad one is there.
    let answer = client.ask("GET", "/v1/tables/t", &[], b"");
    assert_eq!(answer.status, 404);
    for (path, body) in [("/v1/sql", "{\"sql\":"), ("/v1/sql", "[1]"), ("/v1/sql", "")] {
        assert_eq!(client.ask("POST", path, &[], body.as_bytes()).status, 400, "{path} {body}");
    }
    running.works();
}

#[test]
fn a_wrong_type_in_row_57_is_422_and_no_row_is_taken() {
    let _limit = testkit::limit(60);
    let running = Running::start("row57");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"n":0}"#).status, 200);
    let rows: Vec<String> = (1..=100)
        .map(|i| if i == 57 { "{\"n\":\"x\"}".to_owned() } else { format!("{{\"n\":{i}}}") })
        .collect();
    let answer = running.ask("POST", "/v1/tables/t/rows", &rows.join("\n"));
    assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"));
    assert!(answer.error().1.contains("row 57, column `n`: int64 expected"), "{}", answer.text());
    assert_eq!(answer.json()["error"]["rows"][0]["row"], 57);
    assert!(
        answer.json()["error"]["hint"].as_str().unwrap().contains("PUT /v1/tables/t"),
        "{}",
        answer.text()
    );
    assert_eq!(running.ask("GET", "/v1/tables/t", "").json()["rows"], 1);
    running.works();
}

#[test]
fn a_body_of_a_gigabyte_is_refused_early() {
    let _limit = testkit::limit(60);
    let running = Running::start("gigabyte");
    // Announced: refused before a byte of it is sent.
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Content-Length", "1073741824")]);
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"));
    assert!(answer.json()["error"]["hint"].is_string());

    // Streamed without a length: read up to the limit, never kept beyond it.
    let before = resident_bytes();
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Transfer-Encoding", "chunked")]);
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(8 + (1 << 20), b' ');
    chunk.extend_from_slice(b"\r\n");
    let mut sent = 0;
    while sent < 1024 && client.send(&chunk).is_ok() {
        sent += 1;
    }
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"));
    assert!(resident_bytes().saturating_sub(before) < 400 << 20, "grew to {}", resident_bytes());
    assert!(running.telemetry().closes(Close::LargeBody) >= 2);
    wait_until(|| running.telemetry().body_bytes_held.load(std::sync::atomic::Ordering::Relaxed) == 0);
    running.works();
}

#[test]
fn a_small_body_cannot_unpack_into_a_large_one() {
    let _limit = testkit::limit(60);
    let running = Running::start("bomb");
    let bomb = zstd::encode_all(&vec![b' '; 200 << 20][..], 3).unwrap();
    let mut client = running.client();
    let answer = client.ask("POST", "/v1/tables/t/rows", &[("Content-Encoding", "zstd")], &bomb);
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"));
    let answer = client.ask("POST", "/v1/tables/t/rows", &[("Content-Encoding", "br")], b"x");
    assert_eq!((answer.status, answer.error().0.as_str()), (415, "unsupported_media_type"));
    running.works();
}

#[test]
fn deep_nesting_is_refused_and_no_stack_overflows() {
    let _limit = testkit::limit(60);
    let running = Running::start("deep");
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let answer = running.ask("POST", "/v1/tables/t/rows", &deep);
    assert_eq!(answer.status, 400);
    assert!(answer.error().1.contains("at most 64 levels of nesting"), "{}", answer.text());
    let params =
        format!("{{\"sql\":\"SELECT 1\",\"params\":[{}1{}]}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(running.ask("POST", "/v1/sql", &params).status, 400);
    let types = format!("{{\"columns\":[{{\"name\":\"a\",\"type\":\"{}int64\"}}]}}", "list<".repeat(100_000));
    assert_eq!(running.ask("PUT", "/v1/tables/t", &types).status, 400);
    let sql = format!("{{\"sql\":\"SELECT {}1{}\"}}", "(".repeat(20_000), ")".repeat(20_000));
    assert_eq!(running.ask("POST", "/v1/sql", &sql).status, 400);
    running.works();
}

#[test]
fn a_nul_in_a_name_is_refused() {
    let _limit = testkit::limit(60);
    let running = Running::start("nul");
    let answer = running.ask("POST", "/v1/tables/t/rows", r#"{"a\u0000b":1}"#);
    assert_eq!(answer.status, 422);
    assert!(answer.error().1.contains("control character"), "{}", answer.text());
    assert_eq!(running.ask("POST", "/v1/tables/a%00b/rows", r#"{"a":1}"#).status, 400);
    assert_eq!(running.ask("GET", "/v1/tables/a%00b", "").status, 400);
    running.works();
}

#[test]
fn a_path_in_a_table_name_goes_nowhere() {
    let _limit = testkit::limit(60);
    let running = Running::start("path");
    for name in ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "a%2Fb", "%5c..%5cx", "a.b.c"] {
        let answer = running.ask("POST", &format!("/v1/tables/{name}/rows"), r#"{"a":1}"#);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{name}");
    }
    assert_eq!(running.ask("GET", "/v1/tables/../../etc/passwd", "").status, 404);
    assert_eq!(running.ask("GET", "/_/..%2f..%2fetc%2fpasswd", "").status, 404);
    running.works();
}

#[test]
fn twenty_thousand_new_columns_are_refused() {
    let _limit = testkit::limit(60);
    let running = Running::start("columns");
    let fields: Vec<String> = (0..20_000).map(|i| format!("\"c{i}\":1")).collect();
    let answer = running.ask("POST", "/v1/tables/t/rows", &format!("{{{}}}", fields.join(",")));
    assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"));
    assert!(answer.error().1.contains("more than 1000 columns"), "{}", answer.text());
    let columns: Vec<String> = (0..20_000).map(|i| format!(r#"{{"name":"c{i}","type":"int64"}}"#)).collect();
    let answer = running.ask("PUT", "/v1/tables/t", &format!(r#"{{"columns":[{}]}}"#, columns.join(",")));
    assert_eq!(answer.status, 422);
    running.works();
}

#[test]
fn a_limit_of_a_million_millions_is_refused() {
    let _limit = testkit::limit(60);
    let running = Running::start("limit");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    for limit in ["1000000000000", "18446744073709551615", "99999999999999999999999", "0", "-1", "x"] {
        let answer = running.ask("GET", &format!("/v1/tables/t/rows?limit={limit}"), "");
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{limit}");
    }
    assert_eq!(running.ask("GET", "/v1/tables/t/rows?from=18446744073709551615", "").status, 200);
    // A parameter that does nothing would be believed.
    assert_eq!(running.ask("GET", "/v1/tables/t/rows?offset=3", "").status, 400);
    running.works();
}

#[test]
fn a_client_that_stops_in_its_body_is_ended_and_counted() {
    let _limit = testkit::limit(60);
    let running = Running::with("stops", |o| o.body_pause_max = Duration::from_millis(300));
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Content-Length", "100")]);
    client.send(b"{\"a\":1}").unwrap();
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "slow_body"));
    assert!(client.is_closed());
    assert_eq!(running.telemetry().closes(Close::SlowBody), 1);
    // One that hangs up instead leaves nothing behind.
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Content-Length", "100")]);
    client.send(b"{\"a\":1}").unwrap();
    drop(client);
    wait_until(|| running.telemetry().body_bytes_held.load(std::sync::atomic::Ordering::Relaxed) == 0);
    assert_eq!(running.ask("GET", "/v1/tables/t", "").status, 404);
    running.works();
}

#[test]
fn a_client_that_never_finishes_its_headers_is_ended() {
    let _limit = testkit::limit(60);
    let running = Running::with("head", |o| o.head_time_max = Duration::from_millis(200));
    let mut client = running.client();
    client.send(b"GET /health HTTP/1.1\r\nHost: loc").unwrap();
    assert!(client.is_closed());
    assert_eq!(running.telemetry().closes(Close::SlowHead), 1);
    running.works();
}

#[test]
fn headers_over_their_limits_are_refused() {
    let _limit = testkit::limit(60);
    let running = Running::start("headers");
    let long = "x".repeat(100 << 10);
    let mut client = running.client();
    let request = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: {long}\r\n\r\n");
    let _ = client.send(request.as_bytes());
    assert_eq!(client.answer_head().status, 431);
    let mut client = running.client();
    let many: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    let _ = client.send(format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes());
    assert_eq!(client.answer_head().status, 431);
    let mut client = running.client();
    let _ = client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no http at all\r\n\r\n");
    assert_eq!(client.answer_head().status, 400);
    wait_until(|| running.telemetry().closes(Close::BadRequest) >= 3);
    running.works();
}

#[test]
fn ten_thousand_connections_are_served_and_one_more_is_told_so() {
    let _limit = testkit::limit(180);
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let room = files.maximum.unwrap_or(1 << 20).min(40_000);
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(room), maximum: files.maximum },
    );
    // Both ends of each connection are in this process.
    let count = testkit::scaled(10_000).min((room as usize - 500) / 2).min(10_000);
    let running = Running::with("connections", |o| o.connections_max = count);
    let before = resident_bytes();
    let mut clients: Vec<Client> = Vec::with_capacity(count);
    for i in 0..count {
        let mut client = running.client();
        client.head("GET", "/health", &[]);
        if i % 64 == 63 {
            clients.iter_mut().rev().take(63).for_each(|client| assert_eq!(client.answer().status, 200));
            assert_eq!(client.answer().status, 200);
        } else if i >= count - count % 64 {
            assert_eq!(client.answer().status, 200);
        }
        clients.push(client);
    }
    let each = resident_bytes().saturating_sub(before) / count as u64;
    // Ours and the test client's buffers together.
    assert!(each < 64 << 10, "{each} bytes for each connection");
    let mut late = running.client();
    let answer = late.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (503, "too_many_connections"));
    assert!(running.telemetry().closes(Close::TooMany) >= 1);
    // All of them still work.
    for client in clients.iter_mut().step_by(97) {
        assert_eq!(client.ask("GET", "/health", &[], b"").status, 200);
    }
    drop(clients);
    wait_until(|| running.telemetry().connections_open.load(std::sync::atomic::Ordering::Relaxed) < count);
    running.works();
    assert_eq!(running.telemetry().statuses(Class::Other)[3], 0);
}

#[test]
fn an_idle_connection_is_closed_between_answers_only() {
    let _limit = testkit::limit(60);
    let running = Running::with("idle", |o| o.idle_time_max = Duration::from_millis(300));
    let mut client = running.client();
    assert_eq!(client.ask("GET", "/health", &[], b"").status, 200);
    assert!(client.is_closed());
    assert_eq!(running.telemetry().closes(Close::Idle), 1);
    running.works();
}

#[test]
fn arrow_that_lies_is_refused() {
    let _limit = testkit::limit(60);
    let running = Running::start("arrow");
    let media = ("Content-Type", "application/vnd.apache.arrow.stream");
    for body in [&b"not arrow"[..], &[0xff; 64], &[0xff, 0xff, 0xff, 0xff, 0x10, 0, 0, 0, 1, 2, 3]] {
        let answer = running.client().ask("POST", "/v1/tables/t/rows", &[media], body);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{body:?}");
    }
    running.works();
}

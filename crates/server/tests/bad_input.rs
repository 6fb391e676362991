//! Bad input does no harm: it gets a clear error, the next request is served, memory stays bounded.

#[path = "bad_input/bodies.rs"]
mod bodies;
mod common;
#[path = "bad_input/faults.rs"]
mod faults;
#[path = "bad_input/nesting.rs"]
mod nesting;
#[path = "bad_input/values.rs"]
mod values;

use std::time::{Duration, Instant};

use common::{ClientProcess, TestServer, raise_files, resident_bytes, wait_until};
use polynya_server::telemetry::{Class, Close};

#[test]
fn malformed_json_is_400_and_points_at_the_place() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("malformed");
    let mut client = running.client();
    let answer = client.ask("POST", "/v1/tables/t/rows", &[], b"{\"a\":1}\n{\"a\":");
    assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"));
    assert!(
        answer.error().1.contains("row 2 is not JSON: a value expected at byte 13 (line 2)"),
        "{}",
        answer.text()
    );
    // The same connection serves the next request, and no row of the bad body was stored.
    let answer = client.ask("GET", "/v1/tables/t", &[], b"");
    assert_eq!(answer.status, 404);
    for (path, body) in [("/v1/sql", "{\"sql\":"), ("/v1/sql", "[1]"), ("/v1/sql", "")] {
        assert_eq!(client.ask("POST", path, &[], body.as_bytes()).status, 400, "{path} {body}");
    }
    running.assert_works();
}

#[test]
fn a_wrong_type_in_row_57_is_422_and_no_row_is_taken() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("row57");
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
    running.assert_works();
}

#[test]
fn a_body_of_a_gigabyte_is_refused_early() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("gigabyte");
    // A body with an announced length is refused before any of it is sent.
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Content-Length", "1073741824")]);
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"));
    assert!(answer.json()["error"]["hint"].is_string());

    // A body without a length is read up to the limit and not kept beyond it.
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
    running.assert_works();
}

#[test]
fn a_small_body_cannot_unpack_into_a_large_one() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("bomb");
    let bomb = zstd::encode_all(&vec![b' '; 200 << 20][..], 3).unwrap();
    let mut client = running.client();
    let answer = client.ask("POST", "/v1/tables/t/rows", &[("Content-Encoding", "zstd")], &bomb);
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"));
    let answer = client.ask("POST", "/v1/tables/t/rows", &[("Content-Encoding", "br")], b"x");
    assert_eq!((answer.status, answer.error().0.as_str()), (415, "unsupported_media_type"));
    running.assert_works();
}

#[test]
fn deep_nesting_is_refused_and_no_stack_overflows() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("deep");
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
    assert_eq!(running.ask("POST", "/v1/sql", &sql).status, 413);
    running.assert_works();
}

#[test]
fn a_nul_in_a_name_is_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("nul");
    let answer = running.ask("POST", "/v1/tables/t/rows", r#"{"a\u0000b":1}"#);
    assert_eq!(answer.status, 422);
    assert!(answer.error().1.contains("control character"), "{}", answer.text());
    assert_eq!(running.ask("POST", "/v1/tables/a%00b/rows", r#"{"a":1}"#).status, 400);
    assert_eq!(running.ask("GET", "/v1/tables/a%00b", "").status, 400);
    running.assert_works();
}

#[test]
fn a_path_in_a_table_name_goes_nowhere() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("path");
    for name in ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "a%2Fb", "%5c..%5cx", "a.b.c"] {
        let answer = running.ask("POST", &format!("/v1/tables/{name}/rows"), r#"{"a":1}"#);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{name}");
    }
    assert_eq!(running.ask("GET", "/v1/tables/../../etc/passwd", "").status, 404);
    assert_eq!(running.ask("GET", "/_/..%2f..%2fetc%2fpasswd", "").status, 404);
    running.assert_works();
}

#[test]
fn twenty_thousand_new_columns_are_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("columns");
    let fields: Vec<String> = (0..20_000).map(|i| format!("\"c{i}\":1")).collect();
    let answer = running.ask("POST", "/v1/tables/t/rows", &format!("{{{}}}", fields.join(",")));
    assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"));
    assert!(answer.error().1.contains("more than 1000 columns"), "{}", answer.text());
    let columns: Vec<String> = (0..20_000).map(|i| format!(r#"{{"name":"c{i}","type":"int64"}}"#)).collect();
    let answer = running.ask("PUT", "/v1/tables/t", &format!(r#"{{"columns":[{}]}}"#, columns.join(",")));
    assert_eq!(answer.status, 422);
    running.assert_works();
}

#[test]
fn a_limit_of_a_million_millions_is_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("limit");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    for limit in ["1000000000000", "18446744073709551615", "99999999999999999999999", "0", "-1", "x"] {
        let answer = running.ask("GET", &format!("/v1/tables/t/rows?limit={limit}"), "");
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{limit}");
    }
    assert_eq!(running.ask("GET", "/v1/tables/t/rows?from=18446744073709551615", "").status, 200);
    // An unknown parameter must not be ignored: the client would believe that it has an effect.
    assert_eq!(running.ask("GET", "/v1/tables/t/rows?offset=3", "").status, 400);
    running.assert_works();
}

#[test]
fn a_client_that_stops_in_its_body_is_ended_and_counted() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("stops", |o| o.body_pause_max = Duration::from_millis(300));
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Content-Length", "100")]);
    client.send(b"{\"a\":1}").unwrap();
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "slow_body"));
    assert!(client.is_closed());
    assert_eq!(running.telemetry().closes(Close::SlowBody), 1);
    // A client that disconnects instead leaves nothing behind.
    let mut client = running.client();
    client.head("POST", "/v1/tables/t/rows", &[("Content-Length", "100")]);
    client.send(b"{\"a\":1}").unwrap();
    drop(client);
    wait_until(|| running.telemetry().body_bytes_held.load(std::sync::atomic::Ordering::Relaxed) == 0);
    assert_eq!(running.ask("GET", "/v1/tables/t", "").status, 404);
    running.assert_works();
}

#[test]
fn a_client_that_never_finishes_its_headers_is_ended() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("head", |o| o.head_time_max = Duration::from_millis(200));
    let mut client = running.client();
    client.send(b"GET /health HTTP/1.1\r\nHost: loc").unwrap();
    assert!(client.is_closed());
    assert_eq!(running.telemetry().closes(Close::SlowHead), 1);
    running.assert_works();
}

#[test]
fn headers_over_their_limits_are_refused() {
    let _limit = testkit::limit(60);
    // Bytes that are not HTTP get an error like any other.
    let refused = |mut client: common::Client, status: u16, code: &str| {
        let answer = client.answer();
        assert_eq!((answer.status, answer.error().0.as_str()), (status, code), "{}", answer.text());
        assert!(client.is_closed());
    };
    let running = TestServer::start("headers");
    let long = "x".repeat(100 << 10);
    let mut client = running.client();
    let request = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: {long}\r\n\r\n");
    let _ = client.send(request.as_bytes());
    refused(client, 431, "too_large");
    let mut client = running.client();
    let many: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    let _ = client.send(format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes());
    refused(client, 431, "too_large");
    let mut client = running.client();
    let _ = client.send(format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    refused(client, 431, "too_large");
    let mut client = running.client();
    let _ = client
        .send(b"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
    refused(client, 400, "invalid");
    let mut client = running.client();
    let _ = client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no http at all\r\n\r\n");
    refused(client, 400, "invalid");
    wait_until(|| running.telemetry().closes(Close::BadRequest) >= 5);
    running.assert_works();
}

/// `POLYNYA_TEST_CONNECTIONS` sets the number of connections. The long tests set 10,000. By default it depends on the machine.
#[test]
fn many_connections_are_served_at_once_and_one_more_is_refused() {
    const NAME: &str = "many_connections_are_served_at_once_and_one_more_is_refused";
    if ClientProcess::run_if_child() {
        return;
    }
    let _limit = testkit::limit(300);
    let wanted = std::env::var("POLYNYA_TEST_CONNECTIONS").ok().map(|n| n.parse::<usize>().unwrap());
    let files = raise_files();
    let count = wanted.unwrap_or_else(|| testkit::scaled(10_000).min(files / 2));
    // The client ends of the connections are held by another process.
    assert!(files / 4 * 3 >= count, "{count} connections want more than {files} files (ulimit -Hn)");
    let running = TestServer::with_options("connections", |o| o.connections_max = count + 1);
    let before = resident_bytes();
    let mut ours = running.client();
    assert_eq!(ours.ask("GET", "/health", &[], b"").status, 200);
    let mut clients = ClientProcess::spawn(NAME);
    assert_eq!(clients.connect(running.address, count), count);
    let each = || resident_bytes().saturating_sub(before) / count as u64;
    let started = Instant::now();
    // Other tests of this process allocate and free memory meanwhile. The memory of the connections stays.
    while each() >= 64 << 10 {
        assert!(started.elapsed() < Duration::from_secs(20), "{} bytes for each connection", each());
        std::thread::yield_now();
    }
    let mut late = running.client();
    let answer = late.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (503, "too_many_connections"));
    assert!(running.telemetry().closes(Close::TooMany) >= 1);
    // A write succeeds among all those connections, and is read.
    let answer = ours.ask("POST", "/v1/tables/t/rows", &[], b"{\"a\":7}");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = ours.ask("POST", "/v1/sql", &[], br#"{"sql":"SELECT a FROM t"}"#);
    assert_eq!(answer.json()["rows"], serde_json::json!([[7]]), "{}", answer.text());
    let open = || running.telemetry().connections_open.load(std::sync::atomic::Ordering::Relaxed);
    assert!(open() > count, "nobody was cut off");
    drop(clients);
    wait_until(|| open() < count);
    running.assert_works();
    assert_eq!(running.telemetry().statuses(Class::Other)[3], 0);
}

#[test]
fn an_idle_connection_is_closed_between_answers_only() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("idle", |o| o.idle_time_max = Duration::from_millis(300));
    let mut client = running.client();
    assert_eq!(client.ask("GET", "/health", &[], b"").status, 200);
    assert!(client.is_closed());
    assert_eq!(running.telemetry().closes(Close::Idle), 1);
    running.assert_works();
}

#[test]
fn invalid_arrow_is_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("arrow");
    let media = ("Content-Type", "application/vnd.apache.arrow.stream");
    for body in [&b"not arrow"[..], &[0xff; 64], &[0xff, 0xff, 0xff, 0xff, 0x10, 0, 0, 0, 1, 2, 3]] {
        let answer = running.client().ask("POST", "/v1/tables/t/rows", &[media], body);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{body:?}");
    }
    running.assert_works();
}

/// `repeat('x', 1000000000)` built an answer of a gigabyte for a minute, past its deadline of a second.
#[test]
fn functions_with_huge_results_are_refused() {
    let _limit = testkit::limit(300);
    let running = TestServer::start("much");
    assert_eq!(
        running.ask("POST", "/v1/tables/t/rows", r#"[{"n":1000000000,"s":"x"},{"n":1,"s":"y"}]"#).status,
        200
    );
    let before = resident_bytes();
    for sql in [
        "SELECT repeat('x', 1000000000)",
        "SELECT repeat(s, n) FROM t",
        "SELECT lpad('x', 1000000000)",
        "SELECT rpad(s, n, 'ab') FROM t",
        "SELECT replace(repeat('a', 60000000), 'a', 'bcd')",
        "SELECT replace(s, s, repeat('a', 60000000)) FROM t",
        "SELECT array_repeat(1, 1000000000)",
        "SELECT list_repeat(s, n) FROM t",
        "SELECT array_resize([1, 2], 1000000000, 0)",
        "SELECT range(1000000000)",
        "SELECT range(0, n) FROM t",
        "SELECT range(0, -1000000000, -1)",
        "SELECT generate_series(TIMESTAMP '1900-01-01', TIMESTAMP '2100-01-01', INTERVAL '1 second')",
        "SELECT range(DATE '1900-01-01', DATE '2100-01-01', INTERVAL '1 month -30 days')",
        "INSERT INTO t (s) SELECT repeat(s, n) FROM t",
    ] {
        let body = serde_json::json!({ "sql": sql, "deadline_ms": 60_000 }).to_string();
        let answer = running.ask("POST", "/v1/sql", &body);
        assert_eq!(
            (answer.status, answer.error().0.as_str()),
            (413, "too_large"),
            "{sql}: {}",
            answer.text()
        );
    }
    assert!(resident_bytes().saturating_sub(before) < 1 << 30, "grew by {}", resident_bytes() - before);
    // Results of moderate size still work, including nulls and ranges in the wrong direction.
    for (sql, row) in [
        (
            "SELECT repeat('ab', 3), lpad('x', 3, '-'), rpad('x', 3), replace('aXbX', 'X', 'yz')",
            r#"["ababab","--x","x  ","ayzbyz"]"#,
        ),
        (
            "SELECT array_repeat(7, 2), array_resize([1], 3, 0), range(3), range(5, 1, -2)",
            "[[7,7],[1,0,0],[0,1,2],[5,3]]",
        ),
        ("SELECT repeat(NULL, 1000000000) IS NULL, cardinality(range(0, 1000000000, -1))", "[true,0]"),
        (
            "SELECT cardinality(generate_series(DATE '2024-01-01', DATE '2024-12-31', INTERVAL '1 day'))",
            "[366]",
        ),
        ("SELECT sum(length(repeat(s, 10))) FROM t", "[20]"),
    ] {
        let answer = running.ask("POST", "/v1/sql", &serde_json::json!({ "sql": sql }).to_string());
        let expected: serde_json::Value = serde_json::from_str(row).unwrap();
        assert_eq!(answer.json()["rows"][0], expected, "{sql}: {}", answer.text());
    }
    running.assert_works();
}

/// A type of 24 KB that nests 4,000 levels deep ended the process.
#[test]
fn a_type_that_nests_without_end_is_refused_and_the_server_goes_on() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("deep-type");
    for levels in [65, 4_000, 100_000] {
        let sql = format!("SELECT arrow_cast(1, '{}Int8{}')", "List(".repeat(levels), ")".repeat(levels));
        let answer = running.ask("POST", "/v1/sql", &serde_json::json!({ "sql": sql }).to_string());
        assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"), "{levels}");
    }
    running.assert_works();
}

#[test]
fn a_row_that_is_too_large_for_an_answer_is_refused() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("large-row");
    let row = "SELECT repeat('x', 30000000) AS a, repeat('y', 30000000) AS b, repeat('z', 30000000) AS c";
    for accept in
        ["application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"]
    {
        let body = serde_json::json!({ "sql": row }).to_string();
        let answer = running.client().ask("POST", "/v1/sql", &[("Accept", accept)], body.as_bytes());
        assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"), "{accept}");
    }
    // Two of the three columns fit into one piece.
    let body = serde_json::json!({ "sql": row.replace(", repeat('z', 30000000) AS c", "") }).to_string();
    assert_eq!(
        running.ask("POST", "/v1/sql", &body).json()["rows"][0][1].as_str().unwrap().len(),
        30_000_000
    );
    running.assert_works();
}

/// A failed answer ended like a complete one: its last line was the error, and the connection stayed open.
#[test]
fn an_answer_of_lines_that_fails_half_way_breaks_the_connection() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("breaks");
    let body: String = (0..100_000).map(|i| format!("{{\"n\":{i},\"s\":\"row number {i}\"}}\n")).collect();
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", &body).status, 200);
    let sql = r#"{"sql":"SELECT 1 / (n - 99999) AS x, s FROM t","rows_max":1000000}"#;
    for accept in ["application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"] {
        let mut client = running.client();
        let length = sql.len().to_string();
        client.head("POST", "/v1/sql", &[("Accept", accept), ("Content-Length", &length)]);
        client.send(sql.as_bytes()).unwrap();
        assert_eq!(client.answer_head().status, 200, "{accept}");
        let (body, whole) = client.chunks_until_it_breaks();
        assert!(!whole, "{accept}");
        if accept == "application/x-ndjson" {
            let text = String::from_utf8(body).unwrap();
            let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert!(last["error"]["message"].is_string(), "{last}");
        }
    }
    running.assert_works();
}

/// Characters after a key must make it invalid. Ignoring them could let a DELETE remove the wrong row.
#[test]
fn a_key_with_something_behind_it_names_no_row() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("keys-whole");
    for (table, kind, good) in [("k", "int64", "2"), ("i", "int32", "2"), ("b", "bool", "true")] {
        let def = format!(r#"{{"columns":[{{"name":"id","type":"{kind}"}}],"primary_key":["id"]}}"#);
        assert_eq!(running.ask("PUT", &format!("/v1/tables/{table}"), &def).status, 201);
        let row = format!(r#"{{"id":{good}}}"#);
        assert_eq!(running.ask("POST", &format!("/v1/tables/{table}/rows"), &row).status, 200);
        for behind in ["-oops", "abc", ",", ",2", "%202", "%20", "%0A", "]", "%00", ".0", "e0"] {
            for method in ["GET", "DELETE"] {
                let path = format!("/v1/tables/{table}/rows/{good}{behind}");
                let answer = running.ask(method, &path, "");
                assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{method} {path}");
            }
        }
        for before in ["%20", "%2B", "0", "%09"] {
            let answer = running.ask("DELETE", &format!("/v1/tables/{table}/rows/{before}{good}"), "");
            assert_eq!(answer.status, 400, "{before}{good}: {}", answer.text());
        }
        assert_eq!(running.ask("GET", &format!("/v1/tables/{table}"), "").json()["rows"], 1, "{table}");
        assert_eq!(running.ask("DELETE", &format!("/v1/tables/{table}/rows/{good}"), "").status, 200);
    }
    let refused = running.ask("GET", "/v1/tables/k/rows/1abc", "");
    assert_eq!(refused.error().1, "the key does not fit: int64 expected, `1abc` found");
    // Rows of a table without a key are named by their row id.
    assert_eq!(running.ask("POST", "/v1/tables/n/rows", r#"{"a":1}"#).status, 200);
    for bad in ["1x", "%2B1", "1,", "%201", "1.0"] {
        assert_eq!(running.ask("DELETE", &format!("/v1/tables/n/rows/{bad}"), "").status, 400, "{bad}");
    }
    assert_eq!(running.ask("GET", "/v1/tables/n", "").json()["rows"], 1);
}

#[test]
fn a_parameter_that_nobody_reads_is_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("no-parameter");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    for (method, path, body) in [
        ("GET", "/v1/tables", ""),
        ("GET", "/v1/tables/t", ""),
        ("GET", "/v1/tables/t/rows/1", ""),
        ("DELETE", "/v1/tables/t/rows/1", ""),
        ("GET", "/v1/tables/t/rows", ""),
        ("GET", "/v1/tables/t/watermarks", ""),
        ("POST", "/v1/tables/t/commit", ""),
        ("GET", "/health", ""),
        ("GET", "/ready", ""),
        ("GET", "/metrics", ""),
        ("GET", "/openapi.json", ""),
        ("GET", "/_/live", ""),
        ("PUT", "/v1/tables/u", "{}"),
        ("DELETE", "/v1/tables/t", ""),
        ("POST", "/v1/sql", r#"{"sql":"SELECT 1"}"#),
        ("POST", "/v1/ask", r#"{"q":"which tables are there?"}"#),
    ] {
        let answer = running.ask(method, &format!("{path}?wait=1"), body);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{method} {path}");
        assert!(answer.error().1.contains("`wait`"), "{method} {path}: {}", answer.text());
    }
    assert_eq!(running.ask("GET", "/v1/tables/t", "").json()["rows"], 1);
    // The page's own files accept any parameters.
    assert_eq!(running.ask("GET", "/_/?v=1", "").status, 200);
}

#[test]
fn a_deadline_of_zero_is_refused_everywhere() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("no-deadline");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":"x"}"#).status, 200);
    for (method, path, body) in [
        ("POST", "/v1/sql", r#"{"sql":"SELECT 1","deadline_ms":0}"#),
        ("POST", "/v1/ask", r#"{"q":"which tables are there?","deadline_ms":0}"#),
        ("POST", "/v1/ask/stream", r#"{"q":"which tables are there?","deadline_ms":0}"#),
        ("GET", "/v1/tables/t/search?q=x&deadline_ms=0", ""),
        ("POST", "/v1/tables/t/search", r#"{"q":"x","deadline_ms":0}"#),
        ("POST", "/v1/search", r#"{"q":"x","deadline_ms":0}"#),
        ("POST", "/v1/tables/t/commit?deadline_ms=0", ""),
    ] {
        let answer = running.ask(method, path, body);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{method} {path}");
        assert_eq!(answer.error().1, "`deadline_ms` is 1 or more, 0 was given", "{method} {path}");
    }
    for (method, path, body) in [
        ("POST", "/v1/sql", r#"{"sql":"SELECT 1","deadline_ms":86400000}"#),
        ("POST", "/v1/ask", r#"{"q":"which tables are there?","deadline_ms":86400000}"#),
        ("GET", "/v1/tables/t/search?q=x&deadline_ms=86400000", ""),
    ] {
        let answer = running.ask(method, path, body);
        assert_eq!(answer.status, 200, "more than the most is the most, {path}: {}", answer.text());
    }
}

#[test]
fn a_typing_error_is_answered_with_a_suggestion() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("slips");
    assert_eq!(running.ask("POST", "/v1/tables/events/rows", r#"{"kind":"x"}"#).status, 200);
    for (method, path, hint) in [
        ("GET", "/v1/tabels", "did you mean `/v1/tables`?"),
        ("GET", "/v1/tabels/events/row", "did you mean `/v1/tables/events/rows`?"),
        ("GET", "/helth", "did you mean `/health`?"),
        ("GET", "/v2/something/else", "/openapi.json lists what there is"),
        ("GET", "/v1/ask", "POST it"),
        ("PATCH", "/v1/tables/events", "it takes GET, PUT, DELETE"),
        ("GET", "/v1/tables/events/rows?columns=knd", "did you mean `kind`?"),
        ("GET", "/v1/tables/event", "did you mean `events`?"),
    ] {
        let answer = running.ask(method, path, "");
        assert_eq!(answer.json()["error"]["hint"], hint, "{method} {path}: {}", answer.text());
    }
}

#[test]
fn a_definition_creates_neither_a_site_nor_a_second_text_index_of_a_column() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("definitions");
    let columns = r#""columns":[{"name":"path","type":"string"},{"name":"public","type":"bool"},{"name":"t","type":"string"}]"#;
    let put = |table: &str, indexes: &str| {
        running.ask("PUT", &format!("/v1/tables/{table}"), &format!("{{{columns},\"indexes\":[{indexes}]}}"))
    };
    let site = r#"{"kind":"site","columns":["public"]}"#;
    let text = r#"{"kind":"text","columns":["t"],"name":"w_t_idx"}"#;
    assert_eq!(put("v", site).status, 400, "{}", put("v", site).text());
    assert_eq!(put("w", text).status, 201);
    assert_eq!(put("w", &format!("{text},{site}")).status, 400);
    let twice = put("w", &format!(r#"{text},{{"kind":"text","columns":["path","t"],"name":"other"}}"#));
    assert_eq!((twice.status, twice.error().0.as_str()), (422, "schema"), "{}", twice.text());
    assert!(twice.error().1.starts_with("`t` is indexed by `w_t_idx`"), "{}", twice.text());
    let sql = r#"{"sql":"CREATE INDEX more ON w USING text (t)"}"#;
    let twice = running.ask("POST", "/v1/sql", sql);
    assert!(twice.error().1.starts_with("`t` is indexed by `w_t_idx`"), "{}", twice.text());
    let new = put("x", &format!(r#"{text},{{"kind":"text","columns":["path","t"]}}"#));
    assert_eq!((new.status, new.error().0.as_str()), (422, "schema"), "{}", new.text());
    // This is refused at once: no write of another client can make it valid.
    let started = std::time::Instant::now();
    let named = put("w", &format!(r#"{text},{{"kind":"text","columns":["path"],"name":"w_t_idx"}}"#));
    assert_eq!((named.status, named.error().0.as_str()), (409, "exists"), "{}", named.text());
    assert!(named.error().1.contains("there is an index `w_t_idx` already"), "{}", named.text());
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    // Other columns may be indexed too, and a new definition may replace the index.
    assert_eq!(put("w", &format!(r#"{text},{{"kind":"text","columns":["path"]}}"#)).status, 200);
    assert_eq!(put("w", r#"{"kind":"text","columns":["path","t"]}"#).status, 200);
}

/// A note with raw HTML could hold a form whose `text/plain` body is a statement. Any reader who pressed its button would send
/// it.
#[test]
fn html_forms_are_refused_and_programs_may_send_any_media_type() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("forms");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    let host = running.address.to_string();
    let own = format!("http://{host}");
    let forms = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "Multipart/Form-Data; boundary=x",
        "text/plain;charset=UTF-8",
    ];
    let mut client = running.client();
    for (path, body) in [
        ("/v1/sql", r#"{"sql":"DELETE FROM t"}"#),
        ("/v1/ask", r#"{"q":"which tables are there?"}"#),
        ("/v1/search", r#"{"q":"a"}"#),
        ("/v1/tables/t/rows", r#"{"a":2}"#),
    ] {
        for media in forms {
            for browser in
                [("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "navigate")]
            {
                let headers = [("Host", host.as_str()), ("Content-Type", media), browser];
                let answer = client.ask("POST", path, &headers, body.as_bytes());
                let said = (answer.status, answer.error().0);
                assert_eq!(said, (415, "unsupported_media_type".to_owned()), "{path} {media} {browser:?}");
                // The server closes the connection, because it did not read the body.
                client = running.client();
            }
        }
    }
    let count = r#"{"sql":"SELECT count(*) FROM t"}"#;
    // `curl -d`, and the page's own scripts.
    for headers in [
        vec![("Content-Type", "application/x-www-form-urlencoded")],
        vec![("Host", host.as_str()), ("Content-Type", "application/json"), ("Origin", own.as_str())],
    ] {
        let answer = running.client().ask("POST", "/v1/sql", &headers, count.as_bytes());
        assert_eq!((answer.status, &answer.json()["rows"]), (200, &serde_json::json!([[1]])), "{headers:?}");
    }
}

//! JSON bodies with far more values than a request needs. A value is two bytes in the body and hundreds in memory.

use std::sync::atomic::Ordering::Relaxed;

use super::bodies::{rows, state};
use super::common::{Response, TestServer, wait_until};

/// Returns `before`, then `count` zeros separated by commas, then `after`.
fn zeros(before: &str, count: usize, after: &str) -> String {
    format!("{before}{}0{after}", "0,".repeat(count - 1))
}

fn assert_too_large(answer: &Response, said: &str, what: &str) {
    let (code, message) = answer.error();
    assert_eq!((answer.status, code.as_str()), (413, "too_large"), "{what}: {}", answer.text());
    assert!(message.contains(said), "{what}: {message}");
}

fn with_table(name: &str) -> TestServer {
    let running = TestServer::start(name);
    let def = r#"{"columns":[{"name":"id","type":"int64"},{"name":"j","type":"json"}],"primary_key":["id"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", def).status, 201);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"[{"id":1},{"id":2},{"id":3}]"#).status, 200);
    running
}

/// 31 million parameters in a body of 60 MB took 10 GB of memory.
#[test]
fn a_body_of_too_many_values_is_refused_before_it_is_read() {
    let _limit = testkit::limit(120);
    let running = with_table("values-many");
    let before = state(&running);
    const MANY: usize = 1_000_000;
    let op = |begin: &str| zeros(&format!(r#"{{"ops":[{{{begin}:["#), MANY, "]}]}");
    for (method, path, body) in [
        ("POST", "/v1/sql", zeros(r#"{"sql":"SELECT 1","params":["#, MANY, "]}")),
        ("POST", "/v1/sql", zeros(r#"{"sql":"SELECT $1","params":[{"a":["#, MANY, "]}]}")),
        ("POST", "/v1/sql", zeros(r#"{"sql":"SELECT 1","as_of":["#, MANY, "]}")),
        ("POST", "/v1/search", zeros(r#"{"q":"x","params":["#, MANY, "]}")),
        ("POST", "/v1/tables/t/search", zeros(r#"{"q":"x","fields":["#, MANY, "]}")),
        ("POST", "/v1/ask", zeros(r#"{"q":"x","sources":["#, MANY, "]}")),
        ("POST", "/v1/ask/stream", zeros(r#"{"q":"x","sources":["#, MANY, "]}")),
        ("PUT", "/v1/tables/u", zeros(r#"{"retention":["#, MANY, "]}")),
        ("PUT", "/v1/tables/u", format!(r#"{{"columns":[{}]}}"#, "{},".repeat(MANY / 3))),
        ("POST", "/v1/transactions", op(r#""op":"sql","sql":"SELECT 1","params""#)),
        ("POST", "/v1/transactions", op(r#""op":"delete","table":"t","keys""#)),
        ("POST", "/mcp", zeros(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":["#, MANY, "]}")),
    ] {
        let answer = running.ask(method, path, &body);
        assert_too_large(&answer, "at most 1000000 values of JSON", &format!("{path} {}", &body[..40]));
    }
    let params = zeros(r#"{"sql":"SELECT 1","params":["#, 65_536, "]}");
    assert_too_large(&running.ask("POST", "/v1/sql", &params), "65535 parameters, 65536 were sent", "params");
    let params = zeros(r#"{"ops":[{"op":"sql","sql":"SELECT 1","params":["#, 65_536, "]}]}");
    assert_too_large(&running.ask("POST", "/v1/transactions", &params), "65536 were sent", "params of an op");
    for list in ["tables", "columns", "fields"] {
        let names = vec![r#""a""#; 1_001].join(",");
        let body = format!(r#"{{"q":"x","{list}":[{names}]}}"#);
        let said = format!("at most 1000 `{list}`, 1001 were sent");
        assert_too_large(&running.ask("POST", "/v1/search", &body), &said, list);
    }
    let sources = format!(r#"{{"q":"x","sources":[{}]}}"#, vec![r#""notes""#; 51].join(","));
    assert_too_large(&running.ask("POST", "/v1/ask/stream", &sources), "at most 50 sources", "sources");
    let ops = format!(r#"{{"ops":[{}{{}}]}}"#, r#"{"op":"sql"},"#.repeat(1_000_000));
    let said = "at most 10000 operations, 1000001 were sent";
    assert_too_large(&running.ask("POST", "/v1/transactions", &ops), said, "ops");
    let tables = format!(r#"{{"tables":{{{}"a":0}}}}"#, r#""a":0,"#.repeat(1_000_000));
    assert_too_large(
        &running.ask("POST", "/v1/rows", &tables),
        "at most 100 tables, 1000001 were sent",
        "tables",
    );
    assert_eq!(state(&running), before);
    running.assert_works();
}

#[test]
fn as_many_values_as_a_request_needs_are_taken() {
    let _limit = testkit::limit(120);
    let running = with_table("values-good");
    let any = zeros(r#"{"sql":"SELECT id FROM t WHERE id = ANY($1)","params":[[2,"#, 20_000, "]]}");
    let answer = running.ask("POST", "/v1/sql", &any);
    assert_eq!(answer.json()["rows"], serde_json::json!([[2]]), "{}", answer.text());
    // Rows have other bounds.
    let row = zeros(r#"{"id":4,"j":["#, 1_100_000, "]}");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", &row).status, 200);
    let ops = format!(
        r#"{{"ops":[{{"op":"insert","table":"t","rows":{}}},{{"op":"delete","table":"t","keys":{}}}]}}"#,
        row.replace("\"id\":4", "\"id\":5"),
        zeros("[1,2,", 50_000, "]"),
    );
    let answer = running.ask("POST", "/v1/transactions", &ops);
    assert_eq!((answer.status, &answer.json()["ops"][1]["count"]), (200, &2.into()), "{}", answer.text());
    assert_eq!(rows(&running, "t"), 3);
    // The message says that an array is expected.
    for (field, op) in
        [("keys", r#""op":"delete","table":"t""#), ("params", r#""op":"sql","sql":"SELECT 1""#)]
    {
        let body = format!(r#"{{"ops":[{{{op},"{field}":{{"a":1}}}}]}}"#);
        let (code, message) = running.ask("POST", "/v1/transactions", &body).error();
        let said = format!("`{field}` does not fit: an array expected, an object found");
        assert!(code == "invalid" && message.contains(&said), "{message}");
    }
    wait_until(|| running.telemetry().body_bytes_held.load(Relaxed) == 0);
    running.assert_works();
}

/// Parameters belong to their statement once it runs. Otherwise waiting statements would exhaust the share of bodies for each
/// other.
#[test]
fn parameters_are_not_counted_as_bodies_once_their_statement_runs() {
    let _limit = testkit::limit(120);
    let running = with_table("values-held");
    let held = || running.telemetry().body_bytes_held.load(Relaxed);
    let sql = "INSERT INTO t (id) SELECT a * b FROM generate_series(1, 20000) x(a), \
        generate_series(1, 20000000) y(b) WHERE a * b = ANY($1)";
    let body = zeros(&format!(r#"{{"sql":"{sql}","deadline_ms":3000,"params":[["#), 10_000, "]]}");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| running.ask("POST", "/v1/sql", &body));
        wait_until(|| running.sql.status().running > 0);
        assert_eq!(held(), 0);
        // The statement is too long for its deadline.
        let answer = asked.join().unwrap();
        assert_ne!(answer.status, 200, "{}", answer.text());
    });
    // The bound on values shrinks with the share of all bodies.
    let small = TestServer::with_options("values-small", |o| o.body_bytes_total_max = 1 << 20);
    let body = |count| zeros(r#"{"sql":"SELECT 1 WHERE 1 = ANY($1)","params":[["#, count, "]]}");
    assert_too_large(&small.ask("POST", "/v1/sql", &body(8_200)), "at most 8192 values", "small");
    assert_eq!(small.ask("POST", "/v1/sql", &body(8_100)).status, 200);
}

/// A query by a vector of 1,536 numbers was refused where the share of bodies is small.
#[test]
fn a_vector_takes_no_share_beside_its_body() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("values-vector", |o| o.body_bytes_total_max = 1 << 20);
    let held = || running.telemetry().body_bytes_held.load(Relaxed);
    let mut slow = running.client();
    slow.head("POST", "/v1/tables/t/rows", &[("Content-Length", "1000000")]);
    slow.send(&[b' '; 900_000]).unwrap();
    wait_until(|| held() >= 900_000);
    let of = |count| zeros(r#"{"sql":"SELECT 1 WHERE 1 = ANY($1)","params":[["#, count, "]]}");
    assert_eq!(running.ask("POST", "/v1/sql", &of(4_000)).status, 200);
    let answer = running.ask("POST", "/v1/sql", &of(5_000));
    assert_eq!((answer.status, answer.error().0.as_str()), (429, "busy"), "{}", answer.text());
    drop(slow);
    wait_until(|| held() == 0);
    assert_eq!(running.ask("POST", "/v1/sql", &of(5_000)).status, 200);
}

//! Behaviour that single requests and answers do not show: keys, feeds, compression, streams, request records, shutdown.

#[path = "behaviour/bad_rows.rs"]
mod bad_rows;
mod common;
#[path = "behaviour/copy.rs"]
mod copy;
#[path = "behaviour/cursors.rs"]
mod cursors;
#[path = "behaviour/headers.rs"]
mod headers;
#[path = "behaviour/http2.rs"]
mod http2;
#[path = "behaviour/idempotency.rs"]
mod idempotency;
#[path = "behaviour/ingest.rs"]
mod ingest;
#[path = "behaviour/otlp.rs"]
mod otlp;
#[path = "behaviour/pacing.rs"]
mod pacing;
#[path = "behaviour/parameters.rs"]
mod parameters;
#[path = "behaviour/partitions.rs"]
mod partitions;
#[path = "behaviour/revoked_keys.rs"]
mod revoked_keys;
#[path = "behaviour/unread_answers.rs"]
mod unread_answers;
#[path = "behaviour/websocket.rs"]
mod websocket;

use std::io::Write;
use std::time::{Duration, Instant};

use common::{Client, TestServer, wait_until};
use engine::{ApiKey, Op, Transaction};
use polynya_server as server;
use types::{Principal, Scope, TableSet};

fn put_key(running: &TestServer, name: &str, scope: Scope, tables: TableSet) -> String {
    let secret = server::new_secret(&*running.engine.env().random);
    let key = ApiKey { name: name.into(), hash: server::hash_of(&secret), scope, tables, created: 0 };
    running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    secret
}

#[test]
fn a_key_decides_what_may_be_done_and_what_exists() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("keys");
    for table in ["a", "b"] {
        assert_eq!(running.ask("POST", &format!("/v1/tables/{table}/rows"), r#"{"x":1}"#).status, 200);
    }
    let reader = put_key(&running, "reader", Scope::Read, TableSet::Only(vec!["main.a".into()]));
    let writer = put_key(&running, "writer", Scope::Write, TableSet::All);
    let mut client = running.client();
    let mut ask = |secret: Option<&str>, method: &str, path: &str, body: &str| {
        let bearer = secret.map(|secret| format!("Bearer {secret}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        let answer = client.ask(method, path, &headers, body.as_bytes());
        if answer.header("connection") == Some("close") {
            client = running.client();
        }
        answer
    };
    // Once a key exists, requests from this machine need one too.
    assert_eq!(ask(None, "GET", "/v1/tables", "").status, 401);
    assert_eq!(ask(Some("pk_wrong"), "GET", "/v1/tables", "").status, 401);
    // Health checks and pages need no key.
    assert_eq!(ask(None, "GET", "/health", "").status, 200);
    assert_eq!(ask(None, "GET", "/_/", "").status, 200);
    assert_eq!(ask(None, "GET", "/_/live", "").status, 401);

    let tables = ask(Some(&reader), "GET", "/v1/tables", "").json();
    assert_eq!(tables["tables"].as_array().unwrap().len(), 1);
    assert_eq!(ask(Some(&reader), "GET", "/v1/tables/a/rows", "").status, 200);
    // Invariant A1: a hidden table is answered like a missing one.
    let hidden = ask(Some(&reader), "GET", "/v1/tables/b/rows", "");
    let absent = ask(Some(&reader), "GET", "/v1/tables/c/rows", "");
    assert_eq!((hidden.status, absent.status), (404, 404));
    assert_eq!(hidden.text().replace("`b`", "`c`"), absent.text());
    assert_eq!(ask(Some(&reader), "POST", "/v1/sql", r#"{"sql":"SELECT * FROM b"}"#).status, 404);
    assert_eq!(ask(Some(&reader), "POST", "/v1/tables/a/rows", r#"{"x":1}"#).status, 403);
    assert_eq!(ask(Some(&reader), "POST", "/v1/sql", r#"{"sql":"DELETE FROM a"}"#).status, 403);
    assert_eq!(ask(Some(&writer), "POST", "/v1/tables/b/rows", r#"{"x":2}"#).status, 200);
}

/// Returns the next event that has data, as (event, data, id).
fn next_event(client: &mut Client, rest: &mut String) -> (String, String, Option<u64>) {
    loop {
        while let Some(end) = rest.find("\n\n") {
            let block: String = rest.drain(..end + 2).collect();
            let field = |name: &str| {
                block.lines().find_map(|line| line.strip_prefix(name)).map(|v| v.trim().to_owned())
            };
            if let Some(data) = field("data:") {
                return (
                    field("event:").unwrap_or_default(),
                    data,
                    field("id:").map(|id| id.parse().unwrap()),
                );
            }
        }
        rest.push_str(std::str::from_utf8(&client.chunk().expect("the feed goes on")).unwrap());
    }
}

#[test]
fn a_tail_shows_inserts_and_deletes_and_resumes_where_it_was_cut() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("tail");
    running.ask(
        "PUT",
        "/v1/tables/t",
        r#"{"columns":[{"name":"id","type":"int64"},{"name":"v","type":"string"}],"primary_key":["id"]}"#,
    );
    running.ask("POST", "/v1/tables/t/rows", r#"[{"id":1,"v":"a"},{"id":2,"v":"b"}]"#);

    let mut client = running.client();
    client.head("GET", "/v1/tables/t/tail?after=0", &[]);
    let head = client.answer_head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let mut rest = String::new();
    let (kind, data, id) = next_event(&mut client, &mut rest);
    let row: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!((kind.as_str(), &row["id"], &row["v"], id), ("insert", &1.into(), &"a".into(), None));
    let (_, _, first_commit) = next_event(&mut client, &mut rest);
    assert!(first_commit.is_some(), "the last event of a commit carries its lsn");

    // Later commits arrive on the open feed. An update is a delete and an insert in one commit.
    running.ask("POST", "/v1/tables/t/rows", r#"{"id":1,"v":"c"}"#);
    let (kind, data, id) = next_event(&mut client, &mut rest);
    assert_eq!((kind.as_str(), data.as_str(), id), ("delete", r#"{"_row_id":1}"#, None));
    let (kind, _, second_commit) = next_event(&mut client, &mut rest);
    assert_eq!(kind, "insert");
    drop(client);

    let mut client = running.client();
    let last = first_commit.unwrap().to_string();
    client.head("GET", "/v1/tables/t/tail?after=0", &[("Last-Event-ID", &last)]);
    assert_eq!(client.answer_head().status, 200);
    let mut rest = String::new();
    assert_eq!(next_event(&mut client, &mut rest).0, "delete");
    assert_eq!(next_event(&mut client, &mut rest).2, second_commit);

    running.ask("DELETE", "/v1/tables/t", "");
    let (kind, data, _) = next_event(&mut client, &mut rest);
    assert!(kind == "error" && data.contains("was dropped"), "{data}");
    assert_eq!(running.ask("GET", "/v1/tables/t/tail?after=999999", "").status, 404);
}

#[test]
fn compressed_bodies_are_the_same_rows() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("compressed");
    let body = "{\"a\":1}\n".repeat(10_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(body.as_bytes(), 3).unwrap();
    for (encoding, packed) in [("gzip", gzip), ("zstd", zstd)] {
        let answer =
            running.client().ask("POST", "/v1/tables/t/rows", &[("Content-Encoding", encoding)], &packed);
        assert_eq!((answer.status, &answer.json()["count"]), (200, &10_000.into()), "{}", answer.text());
    }
    assert_eq!(running.ask("GET", "/v1/tables/t", "").json()["rows"], 20_000);
}

#[test]
fn an_arrow_stream_goes_in_and_comes_out() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("arrow");
    let batch = arrow::record_batch::RecordBatch::try_from_iter([
        ("a", std::sync::Arc::new(arrow::array::Int64Array::from(vec![1, 2, 3])) as arrow::array::ArrayRef),
        ("s", std::sync::Arc::new(arrow::array::StringArray::from(vec![Some("x"), None, Some("z")])) as _),
    ])
    .unwrap();
    let mut stream = arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    stream.write(&batch).unwrap();
    let body = stream.into_inner().unwrap();
    let media = "application/vnd.apache.arrow.stream";
    let answer = running.client().ask("POST", "/v1/tables/t/rows", &[("Content-Type", media)], &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (method, path, body) in [
        ("GET", "/v1/tables/t/rows?columns=a,s", ""),
        ("POST", "/v1/sql", r#"{"sql":"SELECT a, s FROM t ORDER BY a"}"#),
    ] {
        let answer = running.client().ask(method, path, &[("Accept", media)], body.as_bytes());
        assert_eq!(answer.header("content-type"), Some(media));
        let back: Vec<_> = arrow::ipc::reader::StreamReader::try_new(&answer.body[..], None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let rows: usize = back.iter().map(|b| b.num_rows()).sum();
        assert_eq!(rows, 3);
        assert_eq!(
            arrow::compute::cast(back[0].column(0), &arrow::datatypes::DataType::Int64).unwrap().as_ref(),
            batch.column(0).as_ref()
        );
    }
}

#[test]
fn a_large_answer_is_streamed_whole_and_cancelled_when_its_reader_leaves() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("stream");
    let body: String = (0..20_000).map(|i| format!("{{\"n\":{i},\"s\":\"row number {i}\"}}\n")).collect();
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", &body).status, 200);
    let answer = running.ask("POST", "/v1/sql", r#"{"sql":"SELECT n, s FROM t"}"#);
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let json = answer.json();
    assert_eq!((json["rows"].as_array().unwrap().len(), &json["count"]), (20_000, &20_000.into()));

    let mut client = running.client();
    let sql = r#"{"sql":"SELECT a.s FROM t a, t b, t c"}"#;
    client.head(
        "POST",
        "/v1/sql",
        &[("Accept", "application/x-ndjson"), ("Content-Length", &sql.len().to_string())],
    );
    client.send(sql.as_bytes()).unwrap();
    assert_eq!(client.answer_head().status, 200);
    assert!(client.chunk().is_some());
    assert_eq!(running.sql.status().running, 1);
    drop(client);
    wait_until(|| running.sql.status().running == 0);
    // An error that occurs late stands at the end of the answer.
    let late = running.ask(
        "POST",
        "/v1/sql",
        r#"{"sql":"SELECT 1 / (n - 19999) AS x, s FROM t","rows_max":1000000}"#,
    );
    let error = late.json()["error"].clone();
    assert!(error["message"].is_string(), "{}", late.text().chars().take(200).collect::<String>());
}

#[test]
fn requests_are_recorded_but_not_those_about_the_record() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("record");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    assert_eq!(running.ask("GET", "/v1/tables/nothing", "").status, 404);
    running.ask("GET", "/health", "");
    wait_until(|| running.engine.root().table("polynya.requests").is_some_and(|t| t.rows() >= 2));
    let asked =
        r#"{"sql":"SELECT method, route, status, \"table\", principal FROM polynya.requests ORDER BY time"}"#;
    let rows = running.ask("POST", "/v1/sql", asked).json()["rows"].clone();
    assert_eq!(
        rows,
        serde_json::json!([
            ["POST", "/v1/tables/{table}/rows", 200, "t", "local"],
            ["GET", "/v1/tables/{table}", 404, "nothing", "local"],
        ])
    );
    assert_eq!(running.ask("POST", "/v1/tables/polynya.requests/rows", r#"{"status":1}"#).status, 403);
}

/// A statement that had `polynya.` anywhere in its text was not recorded, nor was a request to an unknown path.
#[test]
fn nobody_can_keep_a_request_out_of_the_record() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("hidden");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    wait_until(|| running.engine.root().table("polynya.requests").is_some_and(|t| t.rows() >= 1));
    for sql in [
        "SELECT a FROM t -- polynya.requests",
        "SELECT 'polynya.'",
        "SELECT count(*) FROM polynya.requests, t",
        "SELECT (SELECT count(*) FROM t) FROM polynya.requests",
        "DELETE FROM t WHERE 'polynya.' = ''",
        "SELECT nothing FROM polynya.requests",
    ] {
        running.ask("POST", "/v1/sql", &serde_json::json!({ "sql": sql }).to_string());
    }
    running.ask("GET", "/nowhere/at/all", "");
    running.ask("DELETE", "/v1/tables/polynya.requests", "");
    // These requests read only the record and are not recorded, so that watching the record does not fill it.
    let count = r#"{"sql":"SELECT route, status FROM polynya.requests ORDER BY time"}"#;
    running.ask("POST", "/v1/sql", count);
    assert_eq!(running.ask("GET", "/v1/tables/polynya.requests/rows", "").status, 200);
    running.ask("POST", "/v1/tables/t/rows", r#"{"a":2}"#);
    wait_until(|| running.engine.root().table("polynya.requests").is_some_and(|t| t.rows() >= 10));
    let rows = running.ask("POST", "/v1/sql", count).json()["rows"].clone();
    let routes: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
    let write = "/v1/tables/{table}/rows";
    let sql = "/v1/sql";
    assert_eq!(
        routes,
        [write, sql, sql, sql, sql, sql, sql, "(none)", "/v1/tables/{table}", write],
        "{rows}"
    );
}

/// A feed kept the rights of a key that was removed or replaced by another of the same name.
#[test]
fn feeds_end_with_the_key_that_they_were_asked_with() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("feeds");
    running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#);
    put_key(&running, "admin", Scope::Admin, TableSet::All);
    let old = format!("Bearer {}", put_key(&running, "watcher", Scope::Read, TableSet::All));
    let mut feeds: Vec<Client> = ["/_/live", "/v1/tables/t/tail"]
        .iter()
        .map(|path| {
            let mut client = running.client();
            client.head("GET", path, &[("Authorization", &old)]);
            assert_eq!(client.answer_head().status, 200, "{path}");
            client
        })
        .collect();
    assert!(feeds[0].chunk().is_some());
    // The new key has the name, the tables and the scope of the old one, and another secret.
    let remove = Op::RemoveKey { name: "watcher".into() };
    running.engine.commit(&Principal::local(), Transaction::new(vec![remove])).unwrap();
    let new = format!("Bearer {}", put_key(&running, "watcher", Scope::Read, TableSet::All));
    for feed in &mut feeds {
        while feed.chunk().is_some() {}
    }
    let mut client = running.client();
    client.head("GET", "/_/live", &[("Authorization", &new)]);
    assert_eq!(client.answer_head().status, 200);
    assert!(client.chunk().is_some());
}

#[test]
fn the_live_feed_shows_what_happens() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("live");
    running.ask("POST", "/v1/tables/t/rows", r#"[{"a":1},{"a":2}]"#);
    let mut client = running.client();
    client.head("GET", "/_/live", &[]);
    assert_eq!(client.answer_head().status, 200);
    let mut rest = String::new();
    let (_, data, _) = next_event(&mut client, &mut rest);
    let sample: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!((&sample["tables"][0]["name"], &sample["tables"][0]["rows"]), (&"t".into(), &2.into()));
    for (part, fields) in [
        ("ingest", &["rows_per_s", "bytes_per_s", "requests_per_s", "p50_ms", "p99_ms", "max_ms"][..]),
        ("reads", &["per_s", "p50_ms", "p99_ms", "max_ms"]),
        ("log", &["lsn", "fsync_p50_ms", "fsync_p99_ms"]),
    ] {
        fields.iter().for_each(|field| assert!(sample[part][field].is_number(), "{part}.{field}"));
    }
}

/// The first reader after an hour saw the errors and rows of that hour as those of one second.
#[test]
fn the_first_sample_covers_a_second_and_not_the_time_since_the_last_watcher() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("live-first");
    for _ in 0..20 {
        assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
        assert_eq!(running.ask("GET", "/v1/tables/none", "").status, 404);
    }
    // The sample may cover only the last of these seconds, in which nothing happened.
    std::thread::sleep(Duration::from_millis(2_500));
    let mut client = running.client();
    client.head("GET", "/_/live", &[]);
    assert_eq!(client.answer_head().status, 200);
    let (_, data, _) = next_event(&mut client, &mut String::new());
    let sample: serde_json::Value = serde_json::from_str(&data).unwrap();
    for field in ["rows_per_s", "bytes_per_s", "requests_per_s"] {
        assert_eq!(sample["ingest"][field], 0.0, "{field}: {sample}");
    }
    assert_eq!(sample["errors_per_s"], 0.0, "{sample}");
}

#[test]
fn the_page_is_compressed_tagged_and_not_sent_twice() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("page");
    let mut client = running.client();
    let plain = client.ask("GET", "/_/", &[], b"");
    let packed = client.ask("GET", "/_/", &[("Accept-Encoding", "gzip, br")], b"");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let unpacked =
        server::content::decompress(server::content::Encoding::Gzip, &packed.body, 1 << 20).unwrap();
    assert_eq!(unpacked, plain.body);
    let etag = packed.header("etag").unwrap().to_owned();
    assert_ne!(Some(etag.as_str()), plain.header("etag"), "two bodies never share a strong tag");
    let again = client.ask("GET", "/_/", &[("Accept-Encoding", "gzip"), ("If-None-Match", &etag)], b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
}

#[test]
fn stopping_lets_an_answer_end_and_ends_feeds() {
    let _limit = testkit::limit(60);
    let mut running = TestServer::start("stop");
    running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#);
    let mut idle = running.client();
    assert_eq!(idle.ask("GET", "/health", &[], b"").status, 200);
    let mut feed = running.client();
    feed.head("GET", "/v1/tables/t/tail", &[]);
    assert_eq!(feed.answer_head().status, 200);
    // A request is half sent when the server is stopped. It is still answered.
    let mut half = running.client();
    half.head("POST", "/v1/tables/t/rows", &[("Content-Length", "7")]);
    half.send(b"{\"a\"").unwrap();
    wait_until(|| running.telemetry().body_bytes_held.load(std::sync::atomic::Ordering::Relaxed) > 0);
    let server = running.server.take().unwrap();
    let started = Instant::now();
    let ended = std::thread::spawn(move || server.stop(Duration::from_secs(20)));
    assert!(feed.chunk().is_none());
    assert!(idle.is_closed());
    half.send(b":2}").unwrap();
    assert_eq!(half.answer().status, 200);
    assert_eq!(ended.join().unwrap(), 0, "no connection was cut");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(std::net::TcpStream::connect(running.address).is_err());
}

/// Each client found the table missing and created it. On a slow disk the losers gave up before the winner's table was durable.
#[test]
fn many_first_events_at_once_make_one_table_however_slow_the_disk() {
    let _limit = testkit::limit(120);
    let running = TestServer::on_a_slow_disk("first-events", std::time::Duration::from_millis(30));
    let clients = 40;
    std::thread::scope(|scope| {
        for n in 0..clients {
            let running = &running;
            scope.spawn(move || {
                // Every other client brings a column that the rest do not have.
                let body =
                    if n % 2 == 0 { format!("{{\"n\":{n}}}") } else { format!("{{\"n\":{n},\"odd\":true}}") };
                let answer = running.ask("POST", "/v1/tables/first/rows", &body);
                assert_eq!(answer.status, 200, "{n}: {}", answer.text());
            });
        }
    });
    let view = running.engine.view(&types::Principal::local()).unwrap();
    assert_eq!(view.table("first").unwrap().rows(), clients);
}

/// Returns the first mismatch between a value and a schema. Supports the part of JSON Schema that `/openapi.json` uses.
fn schema_mismatch(
    api: &serde_json::Value,
    schema: &serde_json::Value,
    value: &serde_json::Value,
) -> Option<String> {
    use serde_json::Value as Json;
    if let Some(name) = schema["$ref"].as_str() {
        return schema_mismatch(api, api.pointer(name.trim_start_matches('#')).unwrap(), value);
    }
    if let Some(several) = schema["oneOf"].as_array() {
        let fits = several.iter().any(|one| schema_mismatch(api, one, value).is_none());
        return (!fits).then(|| format!("{value} matches no schema of {schema}"));
    }
    if schema.get("const").is_some_and(|only| only != value)
        || schema["enum"].as_array().is_some_and(|all| !all.contains(value))
    {
        return Some(format!("{value} does not match {schema}"));
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other} is not a type"),
    };
    let fits = match &schema["type"] {
        Json::String(name) => is(name),
        Json::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => true,
    };
    if !fits {
        return Some(format!("{value} is not of type {}", schema["type"]));
    }
    if let Json::Array(items) = value {
        return items.iter().find_map(|item| schema_mismatch(api, &schema["items"], item));
    }
    let fields = value.as_object()?;
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            return Some(format!("{name} is not in {value}"));
        }
    }
    fields.iter().find_map(|(name, value)| match (schema["properties"].get(name), schema.get("properties")) {
        (Some(known), _) => schema_mismatch(api, known, value),
        (None, Some(_)) => Some(format!("{name} is not described")),
        (None, None) => match &schema["additionalProperties"] {
            known @ Json::Object(_) => schema_mismatch(api, known, value),
            _ => None,
        },
    })
}

#[test]
fn answers_match_their_description() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("described");
    let api = running.ask("GET", "/openapi.json", "").json();
    let docs = r#"{"columns":[{"name":"id","type":"int64"},{"name":"body","type":"string","default":"x"}],
        "primary_key":["id"],"indexes":[{"kind":"text","columns":["body"]}]}"#;
    let steps = [
        ("PUT", "/v1/tables/docs", "/v1/tables/{table}", docs),
        ("PUT", "/v1/tables/docs", "/v1/tables/{table}", docs),
        (
            "POST",
            "/v1/tables/docs/rows",
            "/v1/tables/{table}/rows",
            r#"[{"id":1,"body":"cold water"},{"id":2}]"#,
        ),
        ("POST", "/v1/tables/docs/rows?ack=memory", "/v1/tables/{table}/rows", r#"{"id":3}"#),
        ("POST", "/v1/tables/docs/rows", "/v1/tables/{table}/rows", r#"{"id":"no"}"#),
        ("GET", "/v1/tables/docs/rows?limit=1", "/v1/tables/{table}/rows", ""),
        ("GET", "/v1/tables/docs/rows/1", "/v1/tables/{table}/rows/{key}", ""),
        ("GET", "/v1/tables/docs/rows/1x", "/v1/tables/{table}/rows/{key}", ""),
        ("GET", "/v1/tables/docs/watermarks", "/v1/tables/{table}/watermarks", ""),
        ("GET", "/v1/tables/docs/watermarks?wait=acknowledged", "/v1/tables/{table}/watermarks", ""),
        ("GET", "/v1/tables/docs/watermarks?wait=lake", "/v1/tables/{table}/watermarks", ""),
        ("PUT", "/v1/tables/docs/cursors/a", "/v1/tables/{table}/cursors/{name}", r#"{"row":1}"#),
        ("PUT", "/v1/tables/docs/cursors/a", "/v1/tables/{table}/cursors/{name}", r#"{"row":1,"lsn":1}"#),
        ("GET", "/v1/tables/docs/cursors/a", "/v1/tables/{table}/cursors/{name}", ""),
        ("GET", "/v1/tables/docs/cursors/b", "/v1/tables/{table}/cursors/{name}", ""),
        ("GET", "/v1/tables/docs/cursors", "/v1/tables/{table}/cursors", ""),
        ("DELETE", "/v1/tables/docs/cursors/a", "/v1/tables/{table}/cursors/{name}", ""),
        ("GET", "/v1/tables/docs/rows?cursor=a", "/v1/tables/{table}/rows", ""),
        ("GET", "/v1/tables/docs/search?q=water", "/v1/tables/{table}/search", ""),
        ("POST", "/v1/search", "/v1/search", r#"{"q":"water"}"#),
        ("POST", "/v1/sql", "/v1/sql", r#"{"sql":"SELECT * FROM docs"}"#),
        ("POST", "/v1/sql", "/v1/sql", r#"{"sql":"UPDATE docs SET body = 'y' WHERE id = 2"}"#),
        ("POST", "/v1/sql", "/v1/sql", r#"{"sql":"SELECT * FROM dosc"}"#),
        ("POST", "/v1/ask", "/v1/ask", r#"{"q":"how many docs are there?"}"#),
        ("GET", "/v1/tables", "/v1/tables", ""),
        ("GET", "/v1/tables/docs", "/v1/tables/{table}", ""),
        ("DELETE", "/v1/tables/docs/rows/1", "/v1/tables/{table}/rows/{key}", ""),
        ("GET", "/v1/storm", "/v1/storm", ""),
        ("GET", "/health", "/health", ""),
        ("GET", "/ready", "/ready", ""),
        ("DELETE", "/v1/tables/docs", "/v1/tables/{table}", ""),
        ("GET", "/v1/tables/docs", "/v1/tables/{table}", ""),
    ];
    for (method, path, template, body) in steps {
        let answer = running.ask(method, path, body);
        let responses = &api["paths"][template][method.to_lowercase()]["responses"];
        let mut described = &responses[answer.status.to_string()];
        if described.is_null() {
            assert!(answer.status >= 400, "{method} {path}: {} is not described", answer.status);
            described = &responses["400"];
        }
        if let Some(name) = described["$ref"].as_str() {
            described = api.pointer(name.trim_start_matches('#')).unwrap();
        }
        let schema = &described["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {path}: {} has no schema", answer.status);
        let found = schema_mismatch(&api, schema, &answer.json());
        assert_eq!(found, None, "{method} {path}: {}", answer.text());
    }
}

#[test]
fn a_transaction_has_the_rights_of_its_key_in_all_its_operations() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("transactions");
    for table in ["a", "b"] {
        assert_eq!(running.ask("POST", &format!("/v1/tables/{table}/rows"), r#"{"x":1}"#).status, 200);
    }
    let only_a = || TableSet::Only(vec!["main.a".into()]);
    let reader = put_key(&running, "reader", Scope::Read, only_a());
    let writer = put_key(&running, "writer", Scope::Write, only_a());
    let admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let mut client = running.client();
    let mut ask = |secret: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {secret}");
        let answer = client.ask("POST", path, &[("Authorization", &bearer)], body.as_bytes());
        if answer.header("connection") == Some("close") {
            client = running.client();
        }
        answer
    };
    let insert = |table: &str| format!(r#"{{"op":"insert","table":"{table}","rows":[{{"x":2}}]}}"#);
    let both = format!(r#"{{"ops":[{},{}]}}"#, insert("a"), insert("b"));
    assert_eq!(ask(&reader, "/v1/transactions", &format!(r#"{{"ops":[{}]}}"#, insert("a"))).status, 403);
    assert_eq!(ask("nobody", "/v1/transactions", &both).status, 401);
    assert_eq!(ask(&writer, "/v1/transactions", &both).error().0, "not_found");
    for sql in ["INSERT INTO a SELECT x FROM b", "DELETE FROM b", "UPDATE b SET x = 3"] {
        let body = format!(r#"{{"ops":[{},{{"op":"sql","sql":"{sql}"}}]}}"#, insert("a"));
        assert_eq!(ask(&writer, "/v1/transactions", &body).error().0, "not_found", "{sql}");
    }
    let count = r#"{"sql":"SELECT count(*) FROM a UNION ALL SELECT count(*) FROM b"}"#;
    assert_eq!(ask(&admin, "/v1/sql", count).json()["rows"], serde_json::json!([[1], [1]]));
    assert_eq!(ask(&admin, "/v1/transactions", &both).status, 200);
    assert_eq!(ask(&admin, "/v1/sql", count).json()["rows"], serde_json::json!([[2], [2]]));
    // Only Polynya writes its own tables, and a transaction is no way around that.
    let own = r#"{"ops":[{"op":"sql","sql":"DELETE FROM polynya.requests"}]}"#;
    wait_until(|| running.engine.root().table("polynya.requests").is_some_and(|table| table.rows() > 0));
    assert_eq!(ask(&admin, "/v1/transactions", own).status, 403);
    // The refused statement releases its transaction when its task ends.
    wait_until(|| running.engine.status().transactions_open == 0);
}

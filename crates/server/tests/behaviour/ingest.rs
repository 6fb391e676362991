//! Rows in every kind of body: Protobuf and Arrow, chunked bodies of any size, several tables at once, skipped rows.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::ipc::writer::StreamWriter;
use polynya_server::telemetry::Close;
use serde_json::{Value as Json, json};
use types::{Scope, TableSet};

use crate::common::{Client, Response, TestServer, resident_bytes, wait_until};
use crate::put_key;

const CSV: &str = "text/csv";
const NDJSON: &str = "application/x-ndjson";
const ARROW: &str = "application/vnd.apache.arrow.stream";
const PROTOBUF: &str = "application/x-protobuf";

fn post(running: &TestServer, path: &str, media: &str, body: &[u8]) -> Response {
    running.client().ask("POST", path, &[("Content-Type", media)], body)
}

fn sql(running: &TestServer, text: &str) -> Json {
    let answer = running.ask("POST", "/v1/sql", &json!({ "sql": text }).to_string());
    assert_eq!(answer.status, 200, "{text}: {}", answer.text());
    answer.json()["rows"].clone()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Encodes a length-delimited field of Protobuf.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let (mut out, mut len) = (vec![number << 3 | 2], content.len());
    while len > 127 {
        out.push(len as u8 | 128);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(content);
    out
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Encodes a `Value` that is a number. [`text`] encodes one that is a text.
fn int(value: i64) -> Vec<u8> {
    [vec![3 << 3], varint(value as u64)].concat()
}

fn text(value: &str) -> Vec<u8> {
    field(5, value.as_bytes())
}

fn protobuf(columns: &[&str], rows: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let names = columns.iter().flat_map(|name| field(1, name.as_bytes()));
    let rows = rows.iter().flat_map(|row| {
        let values: Vec<u8> = row.iter().flat_map(|value| field(1, value)).collect();
        field(2, &values)
    });
    names.chain(rows).collect()
}

fn arrow(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

#[test]
fn protobuf_makes_a_table_and_fills_it() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("protobuf");
    let body = protobuf(&["id", "name"], &[vec![int(1), text("one")], vec![int(2)], vec![int(-3), text("")]]);
    for (media, encoding, body) in [
        (PROTOBUF, "identity", body.clone()),
        ("application/protobuf", "gzip", gzip(&body)),
        (
            "application/x-protobuf; messageType=polynya.v1.Rows",
            "zstd",
            zstd::encode_all(&body[..], 1).unwrap(),
        ),
    ] {
        let headers = [("Content-Type", media), ("Content-Encoding", encoding)];
        let answer = running.client().ask("POST", "/v1/tables/p/rows", &headers, &body);
        assert_eq!((answer.status, &answer.json()["count"]), (200, &json!(3)), "{media}: {}", answer.text());
    }
    assert_eq!(
        sql(&running, "SELECT DISTINCT id, name FROM p ORDER BY id"),
        json!([[-3, ""], [1, "one"], [2, null]])
    );
    let bad = protobuf(&["id"], &[vec![int(4)], vec![text("five")], vec![int(6), int(7)]]);
    let answer = post(&running, "/v1/tables/p/rows", PROTOBUF, &bad);
    assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{}", answer.text());
    assert_eq!(
        answer.json()["error"]["rows"],
        json!([
            {"row": 2, "column": "id", "message": "int64 expected, string `\"five\"` found"},
            {"row": 3, "column": null, "message": "1 values at most expected, 2 found"}
        ])
    );
    let answer = post(&running, "/v1/tables/p/rows?on_error=skip", PROTOBUF, &bad);
    assert_eq!((answer.status, &answer.json()["skipped"]), (200, &json!(2)), "{}", answer.text());
    assert_eq!(
        sql(&running, "SELECT at_row, raw FROM p_dead ORDER BY at_row"),
        json!([[2, "{\"id\":\"five\"}"], [3, "{\"id\":6,\"2\":7}"]])
    );
    assert_eq!(sql(&running, "SELECT count(*) FROM p"), json!([[10]]));
    running.assert_works();
}

/// Arrow rows are checked by the table like all others, and bad ones can be skipped.
#[test]
fn rows_of_arrow_can_be_left_out() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("arrow-skip");
    let def = r#"{"columns":[{"name":"id","type":"int64","nullable":false},{"name":"n","type":"int32"},{"name":"at","type":"timestamp"}]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", def).status, 201);
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(5)])) as ArrayRef, true),
        ("n", Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(1 << 40), None, Some(5)])), true),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None, None, Some(i64::MAX), None])),
            true,
        ),
        ("s", Arc::new(StringArray::from(vec![Some("a"), Some("b"), None, None, Some("e")])), true),
    ])
    .unwrap();
    let answer = post(&running, "/v1/tables/t/rows?on_error=skip", ARROW, &arrow(&[batch]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let said = answer.json();
    assert_eq!((&said["count"], &said["skipped"]), (&json!(2), &json!(3)));
    assert_eq!(
        said["reasons"],
        json!([
            {"row": 2, "column": "id", "message": "it is NOT NULL and no value was given"},
            {"row": 3, "column": "n", "message": "`1099511627776` does not fit Int32"},
            {"row": 4, "column": "at", "message": "a time lies beyond the years 1 to 9999"}
        ])
    );
    assert_eq!(sql(&running, "SELECT id, n, s FROM t ORDER BY id"), json!([[1, 1, "a"], [5, 5, "e"]]));
    assert_eq!(
        sql(&running, "SELECT raw FROM t_dead WHERE at_row = 2"),
        json!([["{\"id\":null,\"n\":2,\"at\":null,\"s\":\"b\"}"]])
    );
    // A column of the wrong type in the stream is an error of the whole body.
    let texts = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
        ("n", Arc::new(StringArray::from(vec!["x"]))),
    ])
    .unwrap();
    let answer = post(&running, "/v1/tables/t/rows?on_error=skip", ARROW, &arrow(&[texts]));
    assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{}", answer.text());
    running.assert_works();
}

/// A replayed request reports the skipped rows again and stores nothing twice.
#[test]
fn a_request_that_is_sent_again_says_again_what_was_left_out() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("skip-again");
    let body = "{\"n\":1}\n{\"n\":\"x\"}\n{\"n\":2}\n";
    let send = || {
        let headers = [("Idempotency-Key", "k"), ("Content-Type", NDJSON)];
        running.client().ask("POST", "/v1/tables/t/rows?on_error=skip", &headers, body.as_bytes())
    };
    let (first, again) = (send(), send());
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text());
    assert_eq!(first.text(), again.text());
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(first.json()["skipped"], 1);
    assert_eq!(
        sql(&running, "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM t_dead)"),
        json!([[2, 1]])
    );
}

#[test]
fn a_key_that_may_not_write_the_table_of_bad_rows_cannot_skip_them() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("skip-rights");
    let tables = |names: &[&str]| TableSet::Only(names.iter().map(|name| (*name).to_owned()).collect());
    let admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let narrow = put_key(&running, "narrow", Scope::Write, tables(&["main.t"]));
    let wide = put_key(&running, "wide", Scope::Write, tables(&["main.t", "main.t_dead"]));
    let send = |key: &str, body: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str())];
        running.client().ask("POST", "/v1/tables/t/rows?on_error=skip", &headers, body.as_bytes())
    };
    assert_eq!(send(&narrow, r#"{"a":1}"#).status, 200);
    let refused = send(&narrow, r#"[{"a":2},{"a":"x"}]"#);
    assert_eq!((refused.status, refused.error().0.as_str()), (403, "forbidden"), "{}", refused.text());
    assert_eq!(send(&wide, r#"[{"a":2},{"a":"x"}]"#).status, 200);
    let bearer = format!("Bearer {admin}");
    let answer = running.client().ask("GET", "/v1/tables", &[("Authorization", &bearer)], b"");
    let rows: Vec<_> =
        answer.json()["tables"].as_array().unwrap().iter().map(|t| t["rows"].clone()).collect();
    assert_eq!(rows, [json!(2), json!(1)]);
}

/// A chunked request body, sent piece by piece.
struct ChunkedUpload {
    client: Client,
}

impl ChunkedUpload {
    fn begin(running: &TestServer, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut client = running.client();
        let mut all = vec![("Transfer-Encoding", "chunked")];
        all.extend_from_slice(headers);
        client.head("POST", path, &all);
        ChunkedUpload { client }
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.client.send(&chunk).is_ok()
    }

    fn end(mut self) -> Response {
        let _ = self.client.send(b"0\r\n\r\n");
        self.client.answer()
    }
}

fn lines(from: usize, to: usize) -> String {
    let mut text = String::new();
    for n in from..to {
        writeln!(text, "{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(200)).unwrap();
    }
    text
}

#[test]
fn a_body_of_any_size_is_committed_in_pieces_of_whole_rows() {
    let _limit = testkit::limit(300);
    let running = TestServer::with_options("chunked", |o| o.body_bytes_max = 1 << 20);
    let rows = testkit::scaled(400_000).max(200_000);
    let before = resident_bytes();
    let mut sender =
        ChunkedUpload::begin(&running, "/v1/tables/t/rows?chunked=true", &[("Content-Type", NDJSON)]);
    let mut sent = 0;
    while sent < rows {
        let next = (sent + 997).min(rows);
        assert!(sender.send(lines(sent, next).as_bytes()));
        sent = next;
    }
    let answer = sender.end();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let said = answer.json();
    // A row takes about 220 bytes, a piece 16 MiB.
    let pieces = rows as u64 * 220 / (16 << 20);
    assert!((pieces..pieces + 4).contains(&said["commits"].as_u64().unwrap()), "{said}");
    assert_eq!(
        (&said["count"], &said["first_row_id"], &said["last_row_id"]),
        (&json!(rows), &json!(1), &json!(rows))
    );
    assert!(resident_bytes().saturating_sub(before) < 700 << 20, "grew by {}", resident_bytes() - before);
    assert_eq!(
        sql(&running, "SELECT count(*), count(DISTINCT n), max(n), min(n) FROM t"),
        json!([[rows, rows, rows - 1, 0]])
    );
    assert_eq!(
        sql(&running, "SELECT count(*) FROM t WHERE n <> _row_id - 1"),
        json!([[0]]),
        "in their order"
    );
    // The same body is too large without `chunked=true`.
    let refused = post(&running, "/v1/tables/t/rows", NDJSON, lines(0, 10_000).as_bytes());
    assert_eq!((refused.status, refused.error().0.as_str()), (413, "too_large"));
    running.assert_works();
}

#[test]
fn every_kind_of_body_can_come_in_pieces() {
    let _limit = testkit::limit(300);
    let running = TestServer::start("chunked-kinds");
    let count = 150_000;
    let pad = "y".repeat(120);
    let objects: Vec<String> = (0..count).map(|n| format!("{{\"n\":{n},\"s\":\"{pad}\"}}")).collect();
    let csv: String = (0..count).fold("n,s\r\n".to_owned(), |all, n| all + &format!("{n},\"{pad}\"\r\n"));
    let rows: Vec<_> = (0..count).map(|n| vec![int(n), text(&pad)]).collect();
    let batches: Vec<RecordBatch> = (0..count / 1_000)
        .map(|batch| {
            let n = Int64Array::from_iter_values(batch * 1_000..(batch + 1) * 1_000);
            let s = StringArray::from_iter_values((0..1_000).map(|_| pad.as_str()));
            RecordBatch::try_from_iter([("n", Arc::new(n) as ArrayRef), ("s", Arc::new(s))]).unwrap()
        })
        .collect();
    for (table, media, body) in [
        ("lines", NDJSON, objects.join("\n").into_bytes()),
        ("objects", "application/json", objects.join("\n").into_bytes()),
        ("array", "application/json", format!("[{}]", objects.join(",\n")).into_bytes()),
        ("csv", CSV, csv.into_bytes()),
        ("arrow", ARROW, arrow(&batches)),
        ("protobuf", PROTOBUF, protobuf(&["n", "s"], &rows)),
    ] {
        for (encoding, body) in [
            ("identity", body.clone()),
            ("gzip", gzip(&body)),
            ("zstd", zstd::encode_all(&body[..], 1).unwrap()),
        ] {
            let headers = [("Content-Type", media), ("Content-Encoding", encoding)];
            let path = format!("/v1/tables/{table}_{encoding}/rows?chunked=true&on_error=skip");
            let answer = running.client().ask("POST", &path, &headers, &body);
            assert_eq!(answer.status, 200, "{table} {encoding}: {}", answer.text());
            let said = answer.json();
            assert_eq!((&said["count"], &said["skipped"]), (&json!(count), &json!(0)), "{table} {encoding}");
            assert_eq!(said["commits"].as_u64().unwrap(), 2, "{table} {encoding}: {}", body.len());
            let found =
                sql(&running, &format!("SELECT count(*), sum(n), min(length(s)) FROM {table}_{encoding}"));
            assert_eq!(found, json!([[count, count * (count - 1) / 2, 120]]), "{table} {encoding}");
        }
    }
}

/// A body of few bytes became more memory than a commit may take, and so it did each time the body was sent again.
#[test]
fn rows_of_few_bytes_come_into_a_wide_table_in_as_many_commits_as_it_takes() {
    let _limit = testkit::limit(300);
    let running = TestServer::start("chunked-wide");
    let rows = 8_500;
    let ids = Int64Array::from_iter_values(0..rows);
    let batch = RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef)]).unwrap();
    let lines: String = (0..rows).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    for (media, body) in [(NDJSON, lines.into_bytes()), (ARROW, arrow(&[batch]))] {
        sql(&running, "CREATE TABLE wide (id bigint, v vector(8192))");
        let headers = [("Content-Type", media)];
        let answer = running.client().ask("POST", "/v1/tables/wide/rows", &headers, &body);
        assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"), "{}", answer.text());
        let answer = running.client().ask("POST", "/v1/tables/wide/rows?chunked=true", &headers, &body);
        assert_eq!(answer.status, 200, "{media}: {}", answer.text());
        let said = answer.json();
        assert_eq!((&said["count"], &said["commits"]), (&json!(rows), &json!(2)), "{media}");
        assert_eq!(
            sql(&running, "SELECT count(*), count(DISTINCT id) FROM wide WHERE id = _row_id - 1"),
            json!([[rows, rows]]),
            "{media}"
        );
        sql(&running, "DROP TABLE wide");
    }
}

/// A piece that began with such a line was taken for an array and refused.
#[test]
fn a_line_that_begins_with_a_bracket_is_left_out_wherever_its_piece_is_cut() {
    let _limit = testkit::limit(300);
    let running = TestServer::start("chunked-brackets");
    sql(&running, "CREATE TABLE wide (id bigint, v vector(8192))");
    let rows = 4_250;
    let lines: String = (0..rows).map(|id| format!("{{\"id\":{}}}\n", id + 1_000)).collect();
    let body = [&lines, &"[1,2,3,44]\n".repeat(20), &lines].map(String::as_str).concat();
    let path = "/v1/tables/wide/rows?chunked=true&on_error=skip";
    let answer = running.client().ask("POST", path, &[("Content-Type", NDJSON)], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let said = answer.json();
    assert_eq!((&said["count"], &said["skipped"]), (&json!(rows * 2), &json!(20)));
    let found = sql(&running, "SELECT count(*), count(DISTINCT id) FROM wide");
    assert_eq!(found, json!([[rows * 2, rows]]));
}

#[test]
fn an_error_in_a_later_piece_keeps_the_committed_rows_and_reports_their_number() {
    let _limit = testkit::limit(300);
    let running = TestServer::start("chunked-bad");
    let good = 100_000;
    let tail = |bad: &str| format!("{}{bad}\n{}", lines(0, good), lines(good, good + 10));
    for (at, (bad, code, said)) in [
        (
            "{\"n\":\"x\"}",
            "schema",
            "row 100001, column `n`: int64 expected, string `\"x\"` found (rows committed before ",
        ),
        ("{\"n\":", "invalid", "row 100001 is not JSON: "),
    ]
    .into_iter()
    .enumerate()
    {
        let answer =
            post(&running, &format!("/v1/tables/t{at}/rows?chunked=true"), NDJSON, tail(bad).as_bytes());
        let (found, message) = answer.error();
        assert_eq!(found, code, "{}", answer.text());
        assert!(message.contains(said), "{message}");
        let committed: usize =
            message.rsplit_once("(rows committed before ").unwrap().1.trim_end_matches(')').parse().unwrap();
        assert!(committed > 0 && committed < good);
        assert!(
            answer.json()["error"]["hint"]
                .as_str()
                .unwrap()
                .ends_with("the rows before are committed: send the rest")
        );
        // The committed rows are a prefix without gaps.
        let found = sql(&running, &format!("SELECT count(*), max(n) FROM t{at}"));
        assert_eq!(found, json!([[committed, committed - 1]]));
    }
    // A skipped row does not stop the body, and its number counts from the beginning of the body.
    let answer = post(
        &running,
        "/v1/tables/s/rows?chunked=true&on_error=skip",
        NDJSON,
        tail("{\"n\":\"x\"}").as_bytes(),
    );
    let said = answer.json();
    assert_eq!((&said["count"], &said["skipped"]), (&json!(good + 10), &json!(1)), "{said}");
    assert_eq!(said["reasons"][0]["row"], good + 1);
    assert_eq!(sql(&running, "SELECT at_row, raw FROM s_dead"), json!([[good + 1, "{\"n\":\"x\"}"]]));
    // An error in the first piece leaves nothing behind.
    let answer = post(&running, "/v1/tables/none/rows?chunked=true", NDJSON, b"{\"n\":1}\n{\"n\":\"x\"}\n");
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(!answer.error().1.contains("committed before"));
    assert_eq!(running.ask("GET", "/v1/tables/none", "").status, 404);
}

#[test]
fn a_client_that_leaves_or_stops_leaves_whole_pieces() {
    let _limit = testkit::limit(300);
    let running =
        TestServer::with_options("chunked-leaves", |o| o.body_pause_max = Duration::from_millis(500));
    let path = "/v1/tables/t/rows?chunked=true";
    let mut sender = ChunkedUpload::begin(&running, path, &[("Content-Type", NDJSON)]);
    for piece in 0..10 {
        assert!(sender.send(lines(piece * 10_000, (piece + 1) * 10_000).as_bytes()));
    }
    // The client sends half a row and stops.
    assert!(sender.send(b"{\"n\":1"));
    let answer = sender.client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "slow_body"), "{}", answer.text());
    assert!(answer.error().1.contains("rows committed before"), "{}", answer.text());
    assert_eq!(running.telemetry().closes(Close::SlowBody), 1);
    let count = sql(&running, "SELECT count(*) FROM t")[0][0].as_u64().unwrap();
    assert!(count > 0 && count < 100_000, "{count}");
    assert_eq!(sql(&running, "SELECT max(n) FROM t")[0][0].as_u64().unwrap(), count - 1);
    // A client that disconnects leaves no rows of its incomplete piece.
    let mut sender =
        ChunkedUpload::begin(&running, "/v1/tables/u/rows?chunked=true", &[("Content-Type", NDJSON)]);
    assert!(sender.send(lines(0, 100).as_bytes()));
    drop(sender);
    wait_until(|| running.telemetry().requests_running.load(std::sync::atomic::Ordering::Relaxed) == 0);
    assert_eq!(running.ask("GET", "/v1/tables/u", "").status, 404);
    running.assert_works();
}

#[test]
fn options_that_need_a_single_commit_are_refused_for_chunked_bodies() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("chunked-refused");
    let path = "/v1/tables/t/rows?chunked=true";
    for (path, header) in [
        (path, ("Idempotency-Key", "k")),
        (path, ("If-Match", "\"1\"")),
        ("/v1/tables/t/rows?chunked=true&ack=memory", ("X-None", "1")),
        ("/v1/tables/t/rows?chunked=yes", ("X-None", "1")),
    ] {
        let answer = running.client().ask("POST", path, &[header], b"{\"a\":1}");
        assert_eq!(
            (answer.status, answer.error().0.as_str()),
            (400, "invalid"),
            "{header:?}: {}",
            answer.text()
        );
    }
    let answer = running.ask("POST", path, "");
    assert_eq!((answer.status, answer.error().1.as_str()), (400, "the body is empty"));
    assert_eq!(running.ask("POST", path, "[]").json()["commits"], 0);
    assert_eq!(running.ask("GET", "/v1/tables/t", "").status, 404);
    // The first piece creates the table for the later ones, and rows of a keyed table are upserted.
    let def = r#"{"columns":[{"name":"id","type":"int64"}],"primary_key":["id"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/k", def).status, 201);
    let answer = running.ask("POST", "/v1/tables/k/rows?chunked=true", "{\"id\":1}\n{\"id\":1,\"new\":2}\n");
    assert_eq!((answer.status, &answer.json()["count"]), (200, &json!(1)), "{}", answer.text());
    let answer = running.ask("POST", "/v1/tables/k/rows?chunked=true&mode=insert", "{\"id\":1}");
    assert_eq!((answer.status, answer.error().0.as_str()), (409, "exists"));
}

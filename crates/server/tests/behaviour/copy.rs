//! COPY over HTTP: files out as the answer, files in as the body.

use std::io::Write;
use std::time::Duration;

use polynya_server::telemetry::Close;
use types::{Scope, TableSet};

use crate::common::{Client, Response, TestServer, wait_until};
use crate::put_key;

const COLUMNS: &str = "id bigint primary key, s text, n int, f double, d decimal(20, 4), b boolean, at timestamptz, day date, u uuid, j json";

fn sql(running: &TestServer, text: &str) -> Response {
    running.ask("POST", "/v1/sql", &serde_json::json!({ "sql": text }).to_string())
}

fn execute(running: &TestServer, text: &str) {
    let answer = sql(running, text);
    assert_eq!(answer.status, 200, "{text}: {}", answer.text());
}

fn count(running: &TestServer, query: &str) -> i64 {
    let answer = sql(running, query);
    let value = &answer.json()["rows"][0][0];
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{}", answer.text()))
}

/// Returns the path of a `COPY … FROM STDIN`.
fn copy_path(statement: &str) -> String {
    let escaped: String =
        statement
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
    format!("/v1/copy?sql={escaped}")
}

fn send(running: &TestServer, statement: &str, body: &[u8]) -> Response {
    running.client().ask("POST", &copy_path(statement), &[], body)
}

fn fill(running: &TestServer) {
    execute(running, &format!("CREATE TABLE t ({COLUMNS})"));
    execute(
        running,
        "INSERT INTO t VALUES
         (1, 'plain', 7, 0.1, 1.5, true, '2024-01-02T03:04:05.678901Z', '2024-02-29', '6f9619ff-8b86-d011-b42d-00cf4fc964ff', '{\"a\": [1, null]}'),
         (2, E'comma, \"quote\"\\nline ß 雪', -2147483648, -1e300, -0.0001, false, '1969-12-31T23:59:59Z', '0001-01-01', NULL, '[]'),
         (-9223372036854775808, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    );
}

/// Binary values were base64 in posted rows and hexadecimal in files, and json was a string in files. Each side misread the
/// values that the other had written.
#[test]
fn a_file_of_rows_can_be_posted_and_an_answer_copied_in() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_codec");
    let columns =
        "id bigint primary key, raw bytea, j json, d decimal(20, 4), u uuid, at timestamptz, l list<bigint>";
    for table in ["t", "posted", "copied"] {
        execute(&running, &format!("CREATE TABLE {table} ({columns})"));
    }
    execute(
        &running,
        "INSERT INTO t VALUES
         (9223372036854775807, X'00ff10', '{\"a\": [1, null]}', 1.5, '6f9619ff-8b86-d011-b42d-00cf4fc964ff', '2024-01-02T03:04:05.678901Z', [9007199254740993, -1]),
         (2, X'', '\"text\"', -0.0001, NULL, NULL, NULL)",
    );
    let file = sql(&running, "COPY t TO STDOUT WITH (FORMAT ndjson)");
    let ndjson = [("Content-Type", "application/x-ndjson")];
    let posted = running.client().ask("POST", "/v1/tables/posted/rows", &ndjson, &file.body);
    assert_eq!(posted.status, 200, "{}", posted.text());
    let query = serde_json::json!({ "sql": "SELECT * FROM t" }).to_string();
    let lines = [("Accept", "application/x-ndjson")];
    let rows = running.client().ask("POST", "/v1/sql", &lines, query.as_bytes());
    let copied = send(&running, "COPY copied FROM STDIN WITH (FORMAT ndjson)", &rows.body);
    assert_eq!(copied.status, 200, "{}", copied.text());
    for table in ["posted", "copied"] {
        for (a, b) in [("t", table), (table, "t")] {
            assert_eq!(
                count(
                    &running,
                    &format!("SELECT count(*) FROM (SELECT * FROM {a} EXCEPT SELECT * FROM {b})")
                ),
                0
            );
        }
    }
    running.assert_works();
}

#[test]
fn a_table_goes_out_as_a_file_and_comes_back_the_same() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_round");
    fill(&running);
    for (how, media) in [
        ("", "text/csv; charset=utf-8"),
        ("WITH (FORMAT csv, HEADER, DELIMITER ';', NULL '\\N')", "text/csv; charset=utf-8"),
        ("WITH (FORMAT ndjson)", "application/x-ndjson"),
        ("WITH (FORMAT parquet)", "application/vnd.apache.parquet"),
    ] {
        let out = sql(&running, &format!("COPY t TO STDOUT {how}"));
        assert_eq!((out.status, out.header("content-type")), (200, Some(media)), "{how}: {}", out.text());
        assert!(out.header("polynya-lsn").is_some());
        execute(&running, &format!("CREATE TABLE back ({COLUMNS})"));
        for (encoding, body) in [
            ("identity", out.body.clone()),
            ("zstd", zstd::encode_all(&out.body[..], 3).unwrap()),
            ("gzip", gzip(&out.body)),
        ] {
            let headers = [("Content-Encoding", encoding), ("Content-Type", media)];
            let path = copy_path(&format!("COPY back FROM STDIN {how}"));
            let answer = running.client().ask("POST", &path, &headers, &body);
            assert_eq!(answer.status, 200, "{how} {encoding}: {}", answer.text());
            let said = answer.json();
            assert_eq!(
                (&said["statement"], &said["count"], &said["commits"]),
                (&"COPY".into(), &3.into(), &1.into())
            );
            assert!(said["lsn"].as_u64().unwrap() > 0);
            for (a, b) in [("t", "back"), ("back", "t")] {
                let differ = format!("SELECT count(*) FROM (SELECT * FROM {a} EXCEPT SELECT * FROM {b})");
                assert_eq!(count(&running, &differ), 0, "{how} {encoding}");
            }
            execute(&running, "DELETE FROM back");
        }
        execute(&running, "DROP TABLE back");
    }
    // COPY of the past, and of queries.
    execute(&running, "UPDATE t SET s = 'later' WHERE id = 1");
    let lsn = sql(&running, "SELECT 1").header("polynya-lsn").unwrap().parse::<u64>().unwrap() - 1;
    let body = serde_json::json!({ "sql": "COPY (SELECT s FROM t WHERE id = 1) TO STDOUT", "as_of": lsn });
    assert_eq!(running.ask("POST", "/v1/sql", &body.to_string()).text(), "plain\n");
    assert_eq!(sql(&running, "COPY (SELECT s FROM t WHERE id = 1) TO STDOUT;").text(), "later\n");
    let empty = sql(&running, "COPY (SELECT id, s FROM t WHERE id = 5) TO STDOUT WITH (HEADER)");
    assert_eq!(empty.text(), "id,s\n");
    assert_eq!(send(&running, "COPY t (id, s) FROM STDIN WITH (HEADER)", &empty.body).json()["count"], 0);
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// A trailer after the file states the number of its rows, for clients that accept trailers.
#[test]
fn a_copy_ends_with_the_number_of_its_rows() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("copy_count");
    let body = r#"{"sql":"COPY (SELECT i FROM generate_series(1, 100000) AS g(i)) TO STDOUT"}"#;
    let mut client = running.client();
    client.head("POST", "/v1/sql", &[("TE", "trailers"), ("Content-Length", &body.len().to_string())]);
    client.send(body.as_bytes()).unwrap();
    let head = client.answer_head();
    assert_eq!(head.header("trailer"), Some("polynya-count"));
    let mut bytes = 0;
    loop {
        let size = usize::from_str_radix(&client.line(), 16).unwrap();
        if size == 0 {
            break;
        }
        let mut chunk = vec![0; size + 2];
        std::io::Read::read_exact(&mut client.reader, &mut chunk).unwrap();
        bytes += size;
    }
    assert_eq!(bytes, (1..=100_000).map(|i: u32| i.to_string().len() + 1).sum::<usize>());
    assert_eq!(client.line(), "polynya-count: 100000");
    assert_eq!(client.line(), "");
}

#[test]
fn invalid_rows_are_named_by_line_and_change_nothing() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_bad");
    execute(&running, "CREATE TABLE t (id bigint primary key, n int default 5)");
    execute(&running, "INSERT INTO t VALUES (100, 1)");
    for (how, body, status, wanted) in [
        ("", "1,2\n3\n", 422, "line 2: 2 values expected, 1 found"),
        ("", "1,2\n\"3\",\"a\nb\"\n", 422, "line 2, column `n`"),
        ("", "1,2\n3,x\n", 422, "line 2, column `n`: `x` is not a valid int32"),
        ("", "1,2\n\n,3\n", 422, "line 3, column `id`: NULL"),
        ("", "1,2\n\"3,4\n5,6\n", 400, "line 2: a quote opens here and is never closed"),
        ("WITH (HEADER)", "id,m\n1,2\n", 400, "no column `m`"),
        ("WITH (HEADER)", "id,ID\n1,2\n", 400, "twice"),
        ("", "1,2\n1,3\n", 409, "two rows"),
        ("", "1,2\n100,3\n", 409, "100"),
        ("WITH (FORMAT ndjson)", "{\"id\": 1}\n\n{\"id\": \"x\"}\n", 422, "line 3"),
        ("WITH (FORMAT ndjson)", "{\"id\": 1, \"m\": 2}\n", 422, "line 1"),
        ("WITH (FORMAT ndjson)", "{\"id\": 1}\n{\"id\":\n", 422, "line 2: the last object is not closed"),
        ("WITH (FORMAT ndjson)", "{\"id\": 1}\n{\"n\": 1}\n", 422, "line 2, column `id`: NULL"),
        ("WITH (FORMAT parquet)", "PAR1", 422, "arquet"),
    ] {
        let answer = send(&running, &format!("COPY t FROM STDIN {how}"), body.as_bytes());
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.error().1.contains(wanted), "{body}: {}", answer.text());
    }
    assert_eq!(count(&running, "SELECT count(*) FROM t"), 1);
    // A truncated gzip stream is refused, and none of its rows are copied.
    let packed = gzip("1,2\n3,4\n".repeat(1_000).as_bytes());
    let cut = &packed[..packed.len() / 2];
    let headers = [("Content-Encoding", "gzip")];
    let answer = running.client().ask("POST", &copy_path("COPY t FROM STDIN"), &headers, cut);
    assert_eq!((answer.status, count(&running, "SELECT count(*) FROM t")), (400, 1), "{}", answer.text());
}

#[test]
fn files_of_the_server_and_copies_in_the_wrong_direction_are_refused_with_the_right_way() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("copy_refused");
    execute(&running, "CREATE TABLE t (id bigint)");
    let hint = |answer: &Response| answer.json()["error"]["hint"].as_str().unwrap_or_default().to_owned();
    for text in ["COPY t TO '/no/x.csv'", "COPY t FROM '/etc/passwd'"] {
        let answers = [sql(&running, text), send(&running, text, b"1\n")];
        for answer in &answers {
            let expected = if text.contains(" TO ") && answer.status == 400 { 400 } else { 403 };
            assert_eq!(answer.status, expected, "{text}: {}", answer.text());
            assert!(hint(answer).contains("STDOUT"), "{text}: {}", answer.text());
        }
    }
    for text in ["COPY t FROM STDIN", "COPY t FROM STDIN;\n1\n\\."] {
        let answer = sql(&running, text);
        assert_eq!(
            (answer.status, hint(&answer).contains("POST /v1/copy")),
            (400, true),
            "{}",
            answer.text()
        );
    }
    let answer = send(&running, "COPY t TO STDOUT", b"");
    assert_eq!((answer.status, hint(&answer).contains("POST /v1/sql")), (400, true), "{}", answer.text());
    for (text, status) in [
        ("SELECT 1", 400),
        ("COPY t FROM PROGRAM 'ls'", 400),
        ("COPY nothing FROM STDIN", 404),
        ("COPY t (m) FROM STDIN", 400),
        ("COPY polynya.requests FROM STDIN", 404),
    ] {
        let answer = send(&running, text, b"1\n");
        assert_eq!(answer.status, status, "{text}: {}", answer.text());
    }
    let answer = running.ask("POST", "/v1/copy", "1\n");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let with_params = r#"{"sql":"COPY (SELECT $1) TO STDOUT","params":[1]}"#;
    assert_eq!(running.ask("POST", "/v1/sql", with_params).status, 400);
    let failing = sql(&running, "COPY (SELECT 1 / (id - id) FROM (VALUES (1)) AS v(id)) TO STDOUT");
    assert_eq!(failing.status, 400, "an error before the first byte has a status: {}", failing.text());
    assert_eq!(count(&running, "SELECT count(*) FROM t"), 0);
}

#[test]
fn a_key_copies_what_it_may_read_and_write() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("copy_keys");
    for table in ["a", "b"] {
        execute(&running, &format!("CREATE TABLE {table} (id bigint)"));
        execute(&running, &format!("INSERT INTO {table} VALUES (1)"));
    }
    let only = |table: &str| TableSet::Only(vec![format!("main.{table}")]);
    let reader = put_key(&running, "reader", Scope::Read, only("a"));
    let writer = put_key(&running, "writer", Scope::Write, only("a"));
    let ask = |secret: Option<&str>, path: &str, body: &str| {
        let bearer = secret.map(|secret| format!("Bearer {secret}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        running.client().ask("POST", path, &headers, body.as_bytes()).status
    };
    let (out_a, out_b) = (r#"{"sql":"COPY a TO STDOUT"}"#, r#"{"sql":"COPY b TO STDOUT"}"#);
    let (in_a, in_b) = (copy_path("COPY a FROM STDIN"), copy_path("COPY b FROM STDIN"));
    let delete = r#"{"sql":"COPY (DELETE FROM a RETURNING id) TO STDOUT"}"#;
    for (secret, path, body, status) in [
        (None, "/v1/sql", out_a, 401),
        (None, in_a.as_str(), "2\n", 401),
        (Some(&reader), "/v1/sql", out_a, 200),
        (Some(&reader), "/v1/sql", out_b, 404),
        (Some(&reader), "/v1/sql", delete, 400),
        (Some(&writer), "/v1/sql", delete, 400),
        (Some(&reader), &in_a, "2\n", 403),
        (Some(&writer), &in_a, "2\n", 200),
        (Some(&writer), &in_b, "2\n", 404),
    ] {
        assert_eq!(ask(secret.map(|s| s.as_str()), path, body), status, "{secret:?} {path} {body}");
    }
    let principal = types::Principal::local();
    let root = running.engine.view(&principal).unwrap();
    assert_eq!(root.table("a").unwrap().rows(), 2);
    assert_eq!(root.table("b").unwrap().rows(), 1);
}

fn begin_copy(running: &TestServer, statement: &str) -> Client {
    let mut client = running.client();
    client.head("POST", &copy_path(statement), &[("Transfer-Encoding", "chunked")]);
    client
}

fn chunk(client: &mut Client, bytes: &[u8]) -> std::io::Result<()> {
    client.send(format!("{:x}\r\n", bytes.len()).as_bytes())?;
    client.send(bytes)?;
    client.send(b"\r\n")
}

/// Lines that take about 90 MB in memory, which is two pieces.
fn large(rows: std::ops::Range<u64>) -> Vec<u8> {
    rows.flat_map(|id| format!("{id},{}\n", "x".repeat(200)).into_bytes()).collect()
}

#[test]
fn a_large_file_comes_in_pieces_and_an_error_says_what_is_there() {
    let _limit = testkit::limit(240);
    let running = TestServer::start("copy_large");
    execute(&running, "CREATE TABLE t (id bigint primary key, s text)");
    let mut client = begin_copy(&running, "COPY t FROM STDIN");
    for first in (0..600_000).step_by(10_000) {
        chunk(&mut client, &large(first..first + 10_000)).unwrap();
    }
    client.send(b"0\r\n\r\n").unwrap();
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["count"], 600_000);
    assert!(answer.json()["commits"].as_u64().unwrap() > 1, "{}", answer.text());
    assert_eq!(count(&running, "SELECT count(*) FROM t WHERE length(s) = 200"), 600_000);

    // The whole table is copied out again as a stream.
    let body = r#"{"sql":"COPY (SELECT * FROM t ORDER BY id) TO STDOUT"}"#;
    let out = running.ask("POST", "/v1/sql", body);
    assert!(out.body == large(0..600_000), "{} bytes", out.body.len());

    execute(&running, "TRUNCATE t");
    let mut client = begin_copy(&running, "COPY t FROM STDIN");
    for first in (0..400_000).step_by(10_000) {
        chunk(&mut client, &large(first..first + 10_000)).unwrap();
    }
    // The server answers before the body is complete.
    let _ = chunk(&mut client, b"bad,row\n");
    let _ = client.send(b"0\r\n\r\n");
    let answer = client.answer();
    let (code, message) = answer.error();
    assert_eq!((answer.status, code.as_str()), (422, "schema"), "{message}");
    assert!(message.contains("line 400001, column `id`: `bad` is not a valid int64"), "{message}");
    let there = count(&running, "SELECT count(*) FROM t");
    assert!(there > 0 && message.contains(&format!("rows committed before {there}")), "{there}: {message}");
}

#[test]
fn a_client_that_leaves_half_way_leaves_nothing_of_the_piece() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_cut");
    execute(&running, "CREATE TABLE t (id bigint, s text)");
    for how in ["", "WITH (FORMAT ndjson)", "WITH (FORMAT parquet)"] {
        let mut client = begin_copy(&running, &format!("COPY t FROM STDIN {how}"));
        // The rows end with a complete line, so that they could be taken for a whole file.
        let rows = if how.contains("json") { b"{\"id\":1}\n".to_vec() } else { b"1,x\n".to_vec() };
        chunk(&mut client, &rows.repeat(1_000)).unwrap();
        wait_until(|| running.server.as_ref().unwrap().copies_running() == 1);
        drop(client);
        wait_until(|| running.server.as_ref().unwrap().copies_running() == 0);
    }
    assert_eq!(count(&running, "SELECT count(*) FROM t"), 0);
    // A client that reads a file and disconnects ends its statement.
    let mut client = running.client();
    let body = r#"{"sql":"COPY (SELECT a.i FROM generate_series(1, 100000) AS a(i), generate_series(1, 100000) AS b(i)) TO STDOUT"}"#;
    client.head("POST", "/v1/sql", &[("Content-Length", &body.len().to_string())]);
    client.send(body.as_bytes()).unwrap();
    assert_eq!(client.answer_head().status, 200);
    assert_eq!(running.server.as_ref().unwrap().copies_running(), 1);
    drop(client);
    wait_until(|| {
        running.server.as_ref().unwrap().copies_running() == 0 && running.sql.status().running == 0
    });
    running.assert_works();
}

#[test]
fn a_file_that_breaks_off_is_never_taken_for_whole() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_breaks");
    for how in ["", "WITH (FORMAT ndjson)", "WITH (FORMAT parquet)"] {
        let mut client = running.client();
        let query = "SELECT i, 1 / (900000 - i) AS x, repeat(md5(cast(i AS text)), 4) AS s FROM generate_series(1, 1000000) AS g(i)";
        let body = serde_json::json!({ "sql": format!("COPY ({query}) TO STDOUT {how}") }).to_string();
        client.head("POST", "/v1/sql", &[("Content-Length", &body.len().to_string())]);
        client.send(body.as_bytes()).unwrap();
        let status = client.answer_head().status;
        if status == 400 && how.contains("parquet") {
            // The error came before the first row group was written.
            continue;
        }
        assert_eq!(status, 200, "{how}");
        let (bytes, whole) = client.chunks_until_it_breaks();
        assert!(!whole, "{how}");
        let text = String::from_utf8_lossy(&bytes);
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], "invalid", "{how}: {last}");
    }
}

#[test]
fn a_body_that_stops_is_ended_and_says_so() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("copy_slow", |o| o.body_pause_max = Duration::from_millis(200));
    execute(&running, "CREATE TABLE t (id bigint)");
    let mut client = begin_copy(&running, "COPY t FROM STDIN");
    chunk(&mut client, b"1\n2\n").unwrap();
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "slow_body"), "{}", answer.text());
    assert_eq!(running.telemetry().closes(Close::SlowBody), 1);
    assert_eq!(count(&running, "SELECT count(*) FROM t"), 0);
}

/// The columns that the file lacks took more memory than a commit may, and the copy could not be made at all.
#[test]
fn a_file_of_short_rows_comes_into_a_wide_table() {
    let _limit = testkit::limit(300);
    let running = TestServer::start("copy_wide");
    let lines: String = (0..8_500).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let numbers: String = (0..8_500).map(|id| format!("{id}\n")).collect();
    for (how, body) in [("(id) FROM STDIN", &numbers), ("FROM STDIN (FORMAT ndjson)", &lines)] {
        execute(&running, "CREATE TABLE wide (id bigint, v vector(8192))");
        let answer = send(&running, &format!("COPY wide {how}"), body.as_bytes());
        assert_eq!(answer.status, 200, "{how}: {}", answer.text());
        assert_eq!((&answer.json()["count"], &answer.json()["commits"]), (&8_500.into(), &2.into()), "{how}");
        assert_eq!(count(&running, "SELECT count(DISTINCT id) FROM wide WHERE id = _row_id - 1"), 8_500);
        execute(&running, "DROP TABLE wide");
    }
}

/// Parquet files do not mark JSON, and any text of theirs was stored in json columns.
#[test]
fn parquet_text_that_is_not_json_is_refused_for_json_columns() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_json");
    execute(&running, "CREATE TABLE t (id bigint, j json, l list<json>)");
    for (values, wanted) in [
        ("(1, '{\"a\": [1]}', NULL), (2, NULL, NULL), (3, 'no json', NULL)", Some("row 3, column `j`")),
        ("(1, '{\"a\": [1]}', '[1, 2]'), (2, '', '[1]')", Some("row 2, column `j`")),
        ("(1, '{\"a\": [1]}', NULL), (2, NULL, NULL)", None),
    ] {
        let query = format!(
            "COPY (SELECT column1 AS id, column2 AS j FROM (VALUES {values})) TO STDOUT (FORMAT parquet)"
        );
        let out = sql(&running, &query);
        assert_eq!(out.status, 200, "{values}: {}", out.text());
        let answer = send(&running, "COPY t FROM STDIN (FORMAT parquet)", &out.body);
        let Some(wanted) = wanted else {
            assert_eq!((answer.status, &answer.json()["count"]), (200, &2.into()), "{}", answer.text());
            continue;
        };
        assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{}", answer.text());
        assert!(answer.error().1.contains(wanted), "{}", answer.text());
        assert_eq!(count(&running, "SELECT count(*) FROM t"), 0);
    }
    assert_eq!(count(&running, "SELECT count(*) FROM t WHERE j IS NOT NULL"), 1);
}

#[test]
fn disk_space_for_parquet_is_bounded_and_freed() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("copy_spool", |o| o.spool_bytes_max = 1 << 20);
    execute(&running, "CREATE TABLE t (id bigint)");
    let out = sql(
        &running,
        "COPY (SELECT i AS id FROM generate_series(1, 1000) AS g(i)) TO STDOUT (FORMAT parquet)",
    );
    let statement = "COPY t FROM STDIN (FORMAT parquet)";
    let answer = send(&running, statement, &vec![0; 2 << 20]);
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"), "{}", answer.text());
    for _ in 0..3 {
        assert_eq!(send(&running, statement, &out.body).json()["count"], 1_000);
    }
    // The spill directory of SQL is there and must be empty.
    let is_used = |entry: &std::fs::DirEntry| {
        let path = entry.path();
        !path.is_dir() || std::fs::read_dir(path).unwrap().next().is_some()
    };
    let left = std::fs::read_dir(running.sql.spill_dir()).unwrap().map(Result::unwrap);
    let left: Vec<_> = left.filter(is_used).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_row_without_end_is_refused_in_bounded_memory() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("copy_row");
    execute(&running, "CREATE TABLE t (id bigint, s text)");
    for (how, begin_of_row) in [("", "1,\""), ("WITH (FORMAT ndjson)", "{\"id\":1,\"s\":\"")] {
        let mut client = begin_copy(&running, &format!("COPY t FROM STDIN {how}"));
        chunk(&mut client, begin_of_row.as_bytes()).unwrap();
        let part = vec![b'x'; 1 << 20];
        // The client sends until the server refuses.
        let sent = (0..100).take_while(|_| chunk(&mut client, &part).is_ok()).count();
        let answer = client.answer();
        assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"), "{}", answer.text());
        assert!(answer.error().1.contains("line 1"), "{}", answer.text());
        assert!(sent >= 64, "{sent}");
    }
    assert_eq!(count(&running, "SELECT count(*) FROM t"), 0);
}

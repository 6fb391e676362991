//! Bad bodies in every format: nothing of a bad body is stored and no stored row is lost. With `on_error=skip` every row is in
//! its table or in the table of bad rows.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::StreamWriter;

use super::common::{Response, TestServer, wait_until};

pub const JSON: &str = "application/json";
pub const NDJSON: &str = "application/x-ndjson";
pub const CSV: &str = "text/csv";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";
pub const PROTOBUF: &str = "application/x-protobuf";

/// Returns the clients' tables with their row counts and schema versions. The server's own tables grow by themselves.
pub fn state(running: &TestServer) -> Vec<(String, u64, u32)> {
    let root = running.engine.root();
    let table = |t: &Arc<table::Snapshot>| (t.def().name.clone(), t.rows(), t.def().schema.version.0);
    root.tables().map(table).filter(|(name, ..)| name.starts_with("main.")).collect()
}

pub fn rows(running: &TestServer, table: &str) -> u64 {
    running.engine.root().table(&format!("main.{table}")).map_or(0, |table| table.rows())
}

/// Starts a server with a keyed table that has one row.
pub fn start_with_table(name: &str) -> TestServer {
    let running = TestServer::with_options(name, |o| o.body_bytes_max = 1 << 20);
    let def = r#"{"columns":[{"name":"id","type":"int64"},{"name":"s","type":"string"},{"name":"n","type":"int64"},{"name":"at","type":"timestamp"}],"primary_key":["id"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", def).status, 201);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"id":0,"s":"first"}"#).status, 200);
    running
}

pub fn send(running: &TestServer, query: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
    running.client().ask("POST", &format!("/v1/tables/t/rows{query}"), headers, body)
}

/// Asserts that a body is refused with this status and code, chunked or not, and that nothing has changed.
pub fn assert_refused(running: &TestServer, headers: &[(&str, &str)], body: &[u8], status: u16, code: &str) {
    let before = state(running);
    for query in ["", "?chunked=true", "?mode=insert"] {
        let answer = send(running, query, headers, body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(
            (answer.status, answer.error().0.as_str()),
            (status, code),
            "{query} {headers:?} {shown}: {}",
            answer.text()
        );
        assert!(!answer.error().1.contains("committed before"), "{}", answer.text());
        assert_eq!(state(running), before, "{query} {headers:?} {shown}");
    }
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128, "the length takes one byte");
    [&[number << 3 | 2, content.len() as u8][..], content].concat()
}

pub fn int(value: u8) -> Vec<u8> {
    vec![3 << 3, value]
}

pub fn protobuf(columns: &[&str], rows: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let names = columns.iter().flat_map(|name| field(1, name.as_bytes()));
    let row = |row: &Vec<Vec<u8>>| {
        let values: Vec<u8> = row.iter().flat_map(|value| field(1, value)).collect();
        field(2, &values)
    };
    names.chain(rows.iter().flat_map(row)).collect()
}

pub fn arrow(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

pub fn ints(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Returns a valid body of each media type, with rows 1 and 2.
pub fn valid_bodies() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (JSON, br#"[{"id":1,"s":"a"},{"id":2,"s":"b"}]"#.to_vec()),
        (NDJSON, b"{\"id\":1,\"s\":\"a\"}\n{\"id\":2,\"s\":\"b\"}\n".to_vec()),
        (CSV, b"id,s\n1,a\n2,\"b\"\n".to_vec()),
        (
            ARROW,
            arrow(vec![
                ("id", ints(&[Some(1), Some(2)])),
                ("s", Arc::new(StringArray::from(vec!["a", "b"]))),
            ]),
        ),
        (PROTOBUF, protobuf(&["id", "s"], &[vec![int(1), field(5, b"a")], vec![int(2), field(5, b"b")]])),
    ]
}

#[test]
fn malformed_bodies_change_nothing() {
    let _limit = testkit::limit(120);
    let running = start_with_table("bodies-malformed");
    for (media, body, status, code) in [
        (JSON, &b"{"[..], 400, "invalid"),
        (JSON, b"{\"id\":1,}", 400, "invalid"),
        (JSON, b"[{\"id\":1},{\"id\":2}", 400, "invalid"),
        (JSON, b"[{\"id\":1},{\"id\":2}]]", 400, "invalid"),
        (JSON, b"[{\"id\":1} {\"id\":2}]", 400, "invalid"),
        (JSON, b"{\"id\":1}\n7\n", 400, "invalid"),
        (JSON, b"{\"id\":01}", 400, "invalid"),
        (JSON, b"{\"id\":1,\"s\":\"\\ud800\"}", 400, "invalid"),
        (JSON, b"nothing", 400, "invalid"),
        (NDJSON, b"{\"id\":1}\n{\"id\":2\n{\"id\":3}\n", 400, "invalid"),
        (NDJSON, b"{\"id\":1}\n\"text\"\n", 400, "invalid"),
        (CSV, b"\n\n", 400, "invalid"),
        (CSV, b"id,ID\n1,2\n", 422, "schema"),
        (CSV, b"id,\n1,2\n", 422, "schema"),
        (CSV, b"id,_time\n1,2\n", 422, "schema"),
        (CSV, b"id,s\n1\n", 422, "schema"),
        (CSV, b"id,s\n1,a,b\n", 422, "schema"),
        (CSV, b"id,s\n1,\"a\n2,b\n", 400, "invalid"),
        (ARROW, b"ARROW1", 400, "invalid"),
        (ARROW, &[0xff; 64], 400, "invalid"),
        (ARROW, b"{\"id\":1}", 400, "invalid"),
        (PROTOBUF, b"{\"id\":1}", 400, "invalid"),
        (PROTOBUF, &[0xff; 64], 400, "invalid"),
        (PROTOBUF, &[0x1a, 0x01, 0x00], 400, "invalid"),
        (PROTOBUF, &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], 400, "invalid"),
    ] {
        let mut before = state(&running);
        for query in ["", "?chunked=true", "?mode=insert"] {
            let answer = send(&running, query, &[("Content-Type", media)], body);
            let code_found = answer.error().0;
            // A chunked body is refused with another code if it announces more than a piece may have.
            let is_long =
                query == "?chunked=true" && (answer.status, code_found.as_str()) == (413, "too_large");
            assert!(
                is_long && matches!(media, ARROW | PROTOBUF)
                    || (answer.status, code_found.as_str()) == (status, code),
                "{query} {media} {body:?}: {}",
                answer.text()
            );
            // The pieces before the error are committed, and the answer says so.
            if query == "?chunked=true" && answer.error().1.contains("rows committed before 1") {
                before = state(&running);
            }
            assert_eq!(state(&running), before, "{query} {media} {body:?}");
        }
    }
    // The second of two streams was ignored, and the rows of the first were acknowledged as if they were all.
    let stream = |id| arrow(vec![("id", ints(&[Some(id)]))]);
    assert_refused(&running, &[("Content-Type", ARROW)], &[stream(1), stream(2)].concat(), 400, "invalid");
    // An empty body is refused.
    for (media, _) in valid_bodies() {
        assert_refused(&running, &[("Content-Type", media), ("Content-Length", "0")], b"", 400, "invalid");
    }
    running.assert_works();
}

#[test]
fn rows_that_do_not_fit_the_table_change_nothing_and_can_be_skipped() {
    let _limit = testkit::limit(120);
    let running = start_with_table("bodies-clash");
    for (media, body, column) in [
        (JSON, br#"[{"id":1},{"id":2,"n":"x"},{"id":3}]"#.to_vec(), Some("n")),
        (JSON, br#"[{"id":1},{"id":2,"n":1.5},{"id":3}]"#.to_vec(), Some("n")),
        (JSON, br#"[{"id":1},{"id":2,"s":{}},{"id":3}]"#.to_vec(), Some("s")),
        (JSON, br#"[{"id":1},{"n":2},{"id":3}]"#.to_vec(), Some("id")),
        (JSON, br#"[{"id":1},{"id":null},{"id":3}]"#.to_vec(), Some("id")),
        (JSON, br#"[{"id":1},{"id":"2"},{"id":3}]"#.to_vec(), Some("id")),
        (JSON, br#"[{"id":1},{"id":9223372036854775808},{"id":3}]"#.to_vec(), Some("id")),
        (JSON, br#"[{"id":1},{"id":2,"at":9000000000000000000},{"id":3}]"#.to_vec(), Some("at")),
        (JSON, br#"[{"id":1},{"id":2,"at":"yesterday"},{"id":3}]"#.to_vec(), Some("at")),
        (JSON, br#"[{"id":1},{"id":2,"ID":3},{"id":3}]"#.to_vec(), Some("id")),
        (JSON, br#"[{"id":1},{"id":2,"_row_id":3},{"id":3}]"#.to_vec(), Some("_row_id")),
        (NDJSON, b"{\"id\":1}\n{\"id\":2,\"n\":[]}\n{\"id\":3}\n".to_vec(), Some("n")),
        (CSV, b"id,n\n1,1\n2,x\n3,3\n".to_vec(), Some("n")),
        (CSV, b"id,n\n1,1\n,2\n3,3\n".to_vec(), Some("id")),
        (CSV, b"id,n\n1,1\n2\n3,3\n".to_vec(), None),
        (CSV, b"id,s\n1,a\n2,\xff\n3,c\n".to_vec(), Some("s")),
        (CSV, b"id,at\n1,\n2,2026-02-30T00:00:00Z\n3,\n".to_vec(), Some("at")),
        (ARROW, arrow(vec![("id", ints(&[Some(1), None, Some(3)]))]), Some("id")),
        (
            ARROW,
            arrow(vec![
                ("id", ints(&[Some(1), Some(2), Some(3)])),
                ("at", Arc::new(StringArray::from(vec![None, Some("x"), None]))),
            ]),
            Some("at"),
        ),
        (
            PROTOBUF,
            protobuf(&["id", "n"], &[vec![int(1)], vec![int(2), field(5, b"x")], vec![int(3)]]),
            Some("n"),
        ),
        (PROTOBUF, protobuf(&["id"], &[vec![int(1)], vec![vec![]], vec![int(3)]]), Some("id")),
        (PROTOBUF, protobuf(&["id"], &[vec![int(1)], vec![int(2), int(2)], vec![int(3)]]), None),
    ] {
        let headers = [("Content-Type", media)];
        assert_refused(&running, &headers, &body, 422, "schema");
        for query in ["?on_error=skip", "?on_error=skip&chunked=true", "?on_error=skip&mode=insert_if_absent"]
        {
            // The keys repeat from the second request on: fresh keys each time would hide a row that is written twice.
            let (good, dead) = (rows(&running, "t"), rows(&running, "t_dead"));
            let answer = send(&running, query, &headers, &body);
            let shown = String::from_utf8_lossy(&body).into_owned();
            assert_eq!(answer.status, 200, "{query} {shown}: {}", answer.text());
            let said = answer.json();
            assert_eq!(
                (&said["skipped"], &said["reasons"][0]["row"]),
                (&1.into(), &2.into()),
                "{query} {shown}: {said}"
            );
            assert_eq!(said["reasons"][0]["column"].as_str(), column, "{query} {shown}: {said}");
            assert_eq!(rows(&running, "t_dead"), dead + 1, "{query} {shown}");
            assert!(rows(&running, "t") >= good && rows(&running, "t") <= 3, "{query} {shown}");
        }
    }
    assert_eq!(rows(&running, "t"), 3, "rows 0, 1 and 3 however often they came");
    running.assert_works();
}

#[test]
fn existing_keys_and_wrong_versions_change_nothing() {
    let _limit = testkit::limit(120);
    let running = start_with_table("bodies-keys");
    let before = state(&running);
    for query in [
        "?mode=insert",
        "?mode=insert&on_error=skip",
        "?mode=insert&chunked=true",
        "?mode=insert&chunked=true&on_error=skip",
    ] {
        for (media, body) in [
            (JSON, br#"[{"id":5},{"id":0}]"#.to_vec()),
            (JSON, br#"[{"id":5},{"id":6},{"id":5}]"#.to_vec()),
            (CSV, b"id,s\n5,a\n0,b\n".to_vec()),
            (ARROW, arrow(vec![("id", ints(&[Some(5), Some(0)]))])),
            (PROTOBUF, protobuf(&["id"], &[vec![int(5)], vec![int(0)]])),
        ] {
            let answer = send(&running, query, &[("Content-Type", media)], &body);
            assert_eq!(
                (answer.status, answer.error().0.as_str()),
                (409, "exists"),
                "{query} {media}: {}",
                answer.text()
            );
            assert_eq!(state(&running), before, "{query} {media}");
        }
    }
    for (header, body, status) in [
        (("If-Match", "\"99\""), r#"{"id":0}"#, 409),
        (("If-Match", "\"1\""), r#"[{"id":0},{"id":1}]"#, 400),
        (("If-Match", "one"), r#"{"id":0}"#, 400),
        (("If-None-Match", "*"), r#"[{"id":1},{"id":0}]"#, 409),
        (("If-None-Match", "\"1\""), r#"{"id":1}"#, 400),
    ] {
        let answer = send(&running, "", &[header], body.as_bytes());
        assert_eq!(answer.status, status, "{header:?}: {}", answer.text());
        assert_eq!(state(&running), before, "{header:?}");
    }
    running.assert_works();
}

#[test]
fn a_body_cut_at_any_byte_is_not_half_stored() {
    let _limit = testkit::limit(300);
    let running = start_with_table("bodies-cut");
    let mut client = running.client();
    for (media, body) in valid_bodies() {
        for query in ["", "?chunked=true", "?on_error=skip"] {
            for cut in 0..body.len() {
                let before = (rows(&running, "t"), rows(&running, "t_dead"));
                let mut headers = vec![("Content-Type", media)];
                if cut == 0 {
                    headers.push(("Content-Length", "0"));
                }
                let path = format!("/v1/tables/t/rows{query}");
                let answer = client.ask("POST", &path, &headers, &body[..cut]);
                let after = (rows(&running, "t"), rows(&running, "t_dead"));
                match answer.status {
                    // A body may end after a whole row, and a truncated row of CSV may still be a row.
                    200 => assert!(after.0 <= 3 && after.0 >= before.0, "{media} {query} {cut}"),
                    status => {
                        assert!(
                            matches!(status, 400 | 413 | 422),
                            "{media} {query} {cut}: {}",
                            answer.text()
                        );
                        let told =
                            query == "?chunked=true" && answer.error().1.contains("rows committed before 1");
                        assert!(after == before || told, "{media} {query} {cut}: {}", answer.text());
                    }
                }
                if answer.header("connection") == Some("close") {
                    client = running.client();
                }
            }
        }
    }
    // The body is cut on its way: its announced length is longer.
    let before = state(&running);
    for (media, body) in valid_bodies() {
        for query in ["", "?chunked=true", "?on_error=skip", "?on_error=skip&chunked=true"] {
            let mut client = running.client();
            let length = (body.len() + 10).to_string();
            client.head(
                "POST",
                &format!("/v1/tables/t/rows{query}"),
                &[("Content-Type", media), ("Content-Length", &length)],
            );
            client.send(&body).unwrap();
            client.reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
            let answer = client.answer();
            assert_eq!(
                (answer.status, answer.error().0.as_str()),
                (400, "cut_body"),
                "{media} {query}: {}",
                answer.text()
            );
            assert_eq!(state(&running), before, "{media} {query}");
        }
    }
    running.assert_works();
}

#[test]
fn wrong_encodings_and_media_types_change_nothing() {
    let _limit = testkit::limit(120);
    let running = start_with_table("bodies-encoding");
    for (media, body) in valid_bodies() {
        let packed = gzip(&body);
        let other = zstd::encode_all(&body[..], 1).unwrap();
        for (encoding, sent, status, code) in [
            ("gzip", body.clone(), 400, "invalid"),
            ("zstd", body.clone(), 400, "invalid"),
            ("gzip", packed[..packed.len() - 5].to_vec(), 400, "invalid"),
            ("zstd", other[..other.len() - 3].to_vec(), 400, "invalid"),
            ("gzip", other.clone(), 400, "invalid"),
            ("zstd", packed.clone(), 400, "invalid"),
            ("br", body.clone(), 415, "unsupported_media_type"),
            ("gzip, zstd", packed.clone(), 415, "unsupported_media_type"),
        ] {
            assert_refused(
                &running,
                &[("Content-Type", media), ("Content-Encoding", encoding)],
                &sent,
                status,
                code,
            );
        }
    }
    // Texts that are not UTF-8.
    let utf16: Vec<u8> = "{\"id\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_refused(&running, &[("Content-Type", JSON)], &utf16, 400, "invalid");
    assert_refused(&running, &[("Content-Type", JSON)], b"{\"id\":1,\"s\":\"\xe9\"}", 400, "invalid");
    assert_refused(&running, &[("Content-Type", CSV)], b"id,s\n1,\xe9\n", 422, "schema");
    for media in [
        "application/xml",
        "text/html",
        "multipart/form-data; boundary=x",
        "text/csv; header=absent",
        "application/vnd.apache.parquet",
    ] {
        assert_refused(&running, &[("Content-Type", media)], b"id,s\n1,a\n", 415, "unsupported_media_type");
    }
    running.assert_works();
}

#[test]
fn bodies_that_are_too_large_change_nothing() {
    let _limit = testkit::limit(120);
    let running = start_with_table("bodies-large");
    let pad = "x".repeat(1_200);
    let many = 1_000;
    let mut csv = String::from("id,s\n");
    (1..many).for_each(|id| csv += &format!("{id},{pad}\n"));
    let lines: String = (1..many).map(|id| format!("{{\"id\":{id},\"s\":\"{pad}\"}}\n")).collect();
    let ids: Vec<Option<i64>> = (1..many).map(Some).collect();
    let texts = StringArray::from_iter_values((1..many).map(|_| pad.as_str()));
    let stream = arrow(vec![("id", ints(&ids)), ("s", Arc::new(texts))]);
    let before = state(&running);
    for (media, body) in [(NDJSON, lines.into_bytes()), (CSV, csv.into_bytes()), (ARROW, stream)] {
        let bomb = zstd::encode_all(&body[..], 3).unwrap();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        for (encoding, sent) in [("identity", &body), ("zstd", &bomb), ("gzip", &gzip(&body))] {
            for query in ["", "?on_error=skip"] {
                let answer =
                    send(&running, query, &[("Content-Type", media), ("Content-Encoding", encoding)], sent);
                assert_eq!(
                    (answer.status, answer.error().0.as_str()),
                    (413, "too_large"),
                    "{media} {encoding} {query}"
                );
                assert_eq!(state(&running), before, "{media} {encoding} {query}");
            }
        }
    }
    // Bodies of few bytes that become large columns.
    let def = r#"{"columns":[{"name":"v","type":"vector(65536)"},{"name":"n","type":"int64"}]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/wide", def).status, 201);
    let (many, mut stored) = (1_100, 0);
    for (media, body) in [
        (NDJSON, "{\"n\":1}\n".repeat(many).into_bytes()),
        (CSV, ("n\n".to_owned() + &"1\n".repeat(many)).into_bytes()),
        (PROTOBUF, protobuf(&["n"], &vec![vec![int(1)]; many])),
        (ARROW, arrow(vec![("n", ints(&vec![Some(1); many]))])),
    ] {
        let send = |query: &str| {
            let path = format!("/v1/tables/wide/rows{query}");
            running.client().ask("POST", &path, &[("Content-Type", media)], &body)
        };
        for query in ["", "?on_error=skip"] {
            let answer = send(query);
            assert_eq!(
                (answer.status, answer.error().0.as_str()),
                (413, "too_large"),
                "{media} {query}: {}",
                answer.text()
            );
            assert_eq!(rows(&running, "wide"), stored);
        }
        // A chunked body may become several commits.
        let answer = send("?chunked=true&on_error=skip");
        assert_eq!(
            (answer.status, &answer.json()["count"], &answer.json()["commits"]),
            (200, &many.into(), &2.into()),
            "{media}: {}",
            answer.text()
        );
        stored += many as u64;
        assert_eq!(rows(&running, "wide"), stored);
    }
    // Writes are accepted again once the rows are sealed.
    wait_until(|| running.ask("POST", "/v1/tables/calm/rows", "{\"n\":1}").status == 200);
    running.assert_works();
}

/// A bad table among several leaves the others unchanged.
#[test]
fn one_bad_table_among_several_changes_none() {
    let _limit = testkit::limit(60);
    let running = start_with_table("bodies-several");
    let before = state(&running);
    for (query, body, status) in [
        ("", r#"{"tables":{"new":[{"a":1}],"t":[{"id":"x"}]}}"#, 422),
        ("", r#"{"tables":{"t":[{"id":7}],"new":[{"a":1},{"a":"x"}]}}"#, 422),
        ("", r#"{"tables":{"t":[{"id":7}],"new":[{"a":1}"#, 400),
        ("", r#"{"tables":{"t":[{"id":7}],"9":[{"a":1}]}}"#, 400),
        ("", r#"{"tables":{"t":[{"id":7}],"polynya.x":[{"a":1}]}}"#, 403),
        ("?mode=insert", r#"{"tables":{"new":[{"a":1}],"t":[{"id":0}]}}"#, 409),
        ("?mode=insert&on_error=skip", r#"{"tables":{"new":[{"a":1},{"a":"x"}],"t":[{"id":0}]}}"#, 409),
        ("?create=false", r#"{"tables":{"t":[{"id":7}],"new":[{"a":1}]}}"#, 404),
        ("?mode=upsert", r#"{"tables":{"t":[{"id":7}],"new":[{"a":1}]}}"#, 400),
        ("?chunked=true", r#"{"tables":{"t":[{"id":7}]}}"#, 400),
        ("", r#"{"tables":{"t":[{"id":7}]},"more":1}"#, 400),
    ] {
        let answer = running.ask("POST", &format!("/v1/rows{query}"), body);
        assert_eq!(answer.status, status, "{query} {body}: {}", answer.text());
        assert_eq!(state(&running), before, "{query} {body}");
    }
    let many: Vec<String> = (0..101).map(|n| format!("\"t{n}\":[]")).collect();
    let answer = running.ask("POST", "/v1/rows", &format!("{{\"tables\":{{{}}}}}", many.join(",")));
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "too_large"));
    running.assert_works();
}

/// OTLP logs have their own formats and their own table.
#[test]
fn an_export_that_cannot_be_taken_changes_nothing() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("bodies-otlp", |o| o.body_bytes_max = 8 << 20);
    let send = |media: &str, encoding: &str, body: &[u8]| {
        let headers = [("Content-Type", media), ("Content-Encoding", encoding)];
        running.client().ask("POST", "/v1/logs?table=logs", &headers, body)
    };
    let text = "x".repeat(5 << 20);
    let large = format!(r#"{{"resourceLogs":[{{"resource":{{"attributes":[{{"key":"{text}"}}]}}}}]}}"#);
    let good = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":9}]}]}]}"#;
    let record = field(1, &field(2, &field(2, &[2 << 3, 9])));
    let before = state(&running);
    for (media, encoding, body, status) in [
        (JSON, "identity", &good[..good.len() - 1], 400),
        (JSON, "identity", b"[[]]", 400),
        (JSON, "identity", br#"{"resource_logs":[{"scope_logs":[{"log_records":[{}]}]}]}"#, 400),
        (JSON, "identity", br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}"#, 400),
        (JSON, "identity", br#"{"resourceLogs":{}}"#, 400),
        (JSON, "identity", br#"{"resourceLogs":[[]]}"#, 400),
        (JSON, "identity", br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":{}}]}]}"#, 400),
        (JSON, "identity", b"{\"resourceLogs\":[],\"s\":\"\xe9\"}", 400),
        (JSON, "identity", large.as_bytes(), 413),
        (JSON, "gzip", good, 400),
        (JSON, "zstd", &gzip(good), 400),
        (JSON, "gzip", &gzip(good)[..20], 400),
        (JSON, "gzip", &gzip(&vec![b' '; 9 << 20]), 413),
        (JSON, "br", good, 415),
        (NDJSON, "identity", good, 415),
        (CSV, "identity", b"body\nx\n", 415),
        (PROTOBUF, "identity", &record[..record.len() - 1], 400),
        (PROTOBUF, "identity", &[0xff; 64], 400),
        (PROTOBUF, "identity", &[1 << 3, 7], 400),
        (PROTOBUF, "identity", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], 400),
        (PROTOBUF, "identity", good, 400),
        (PROTOBUF, "gzip", &record, 400),
        (PROTOBUF, "gzip", &gzip(&vec![0; 9 << 20]), 413),
    ] {
        let answer = send(media, encoding, body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(answer.status, status, "{media} {encoding} {shown}: {}", answer.text());
        assert!(!answer.body.is_empty(), "{media} {encoding} {shown}");
        assert_eq!(state(&running), before, "{media} {encoding} {shown}");
    }
    for (media, body) in [(JSON, &good[..]), (PROTOBUF, &record)] {
        for (encoding, body) in [("identity", body.to_vec()), ("gzip", gzip(body))] {
            assert_eq!(send(media, encoding, &body).status, 200, "{media} {encoding}");
        }
    }
    assert_eq!((rows(&running, "logs"), rows(&running, "logs_dead")), (4, 0));
    running.assert_works();
}

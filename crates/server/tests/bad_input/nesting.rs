//! The nesting of input is bounded before anything recurses into it. Columns that no table can hold are refused by every
//! interface.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::StreamWriter;

use super::bodies::{ARROW, JSON, PROTOBUF};
use super::common::{Response, TestServer};

const LEVELS: usize = 10_000;

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns a Parquet file that consists of its footer: nested groups, and an int32 column in the innermost.
fn parquet(groups: usize) -> Vec<u8> {
    let mut footer = [&[0x15, 2, 0x19, 0xfc][..], &varint(groups + 1)].concat();
    footer.extend([0x35, 0, 0x18, 1, b'a', 0x15, 2, 0].repeat(groups));
    footer.extend([0x15, 2, 0x25, 0, 0x18, 1, b'a', 0, 0x16, 0, 0x19, 0x0c, 0]);
    [&b"PAR1"[..], &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

/// Returns an OTLP export of one record whose body is nested arrays.
fn otlp(levels: usize) -> Vec<u8> {
    let within = |field: u8, inner: &[u8]| [&[field << 3 | 2][..], &varint(inner.len()), inner].concat();
    let value = (0..levels).fold(vec![0x10, 1], |inner, _| within(5, &within(1, &inner)));
    within(1, &within(2, &within(2, &within(5, &value))))
}

fn arrow_of(schema: &Schema) -> Vec<u8> {
    StreamWriter::try_new(Vec::new(), schema).and_then(StreamWriter::into_inner).unwrap()
}

/// Returns an Arrow stream whose only column is nested structs. The type is built on a thread with a large stack and leaked,
/// because dropping it recurses.
fn arrow_nested(levels: usize) -> Vec<u8> {
    let made = std::thread::Builder::new().stack_size(1 << 30).spawn(move || {
        let within = |inner, _| DataType::Struct(vec![Field::new("f", inner, true)].into());
        let schema = Schema::new(vec![Field::new("a", (0..levels).fold(DataType::Int64, within), true)]);
        let body = arrow_of(&schema);
        std::mem::forget(schema);
        body
    });
    made.unwrap().join().unwrap()
}

fn rows(running: &TestServer, media: &str, body: &[u8]) -> Response {
    running.client().ask("POST", "/v1/tables/t/rows", &[("Content-Type", media)], body)
}

/// A COPY of Parquet with a footer of 10,000 nested groups, 80 KB sent with a write key, aborted the process.
#[test]
fn ten_thousand_levels_at_any_door_are_an_error_and_the_next_request_is_served() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("levels");
    assert_eq!(
        running.ask("PUT", "/v1/tables/t", r#"{"columns":[{"name":"a","type":"int32"}]}"#).status,
        201
    );
    let copy = |file: &[u8]| {
        let path = "/v1/copy?sql=COPY%20t%20FROM%20STDIN%20(FORMAT%20parquet)";
        running.client().ask("POST", path, &[("Content-Type", "application/vnd.apache.parquet")], file)
    };
    for levels in [65, LEVELS, 1_000_000] {
        let answer = copy(&parquet(levels));
        assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{}", answer.text());
        assert!(answer.error().1.contains("nests more than 64 levels deep"), "{}", answer.text());
    }
    // This footer claims a list of two thousand million items.
    let mut claims = b"PAR1\x15\x02\x19\xfc\xff\xff\xff\xff\x07".to_vec();
    claims.extend([9, 0, 0, 0]);
    claims.extend(b"PAR1");
    assert_eq!(copy(&claims).status, 422);
    running.assert_works();

    let answer = rows(&running, ARROW, &arrow_nested(LEVELS));
    assert_eq!(answer.status, 400, "{}", answer.text());
    let arrays = format!("{}1{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
    let values = "{\"arrayValue\":{\"values\":[".repeat(LEVELS);
    let ends = "]}}".repeat(LEVELS);
    let logs = format!(
        "{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{{\"body\":{values}{ends}}}]}}]}}]}}"
    );
    for (path, media, body) in [
        ("/v1/tables/t/rows", JSON, format!("{{\"a\":{arrays}}}").into_bytes()),
        ("/v1/tables/u", JSON, format!("{{\"columns\":{arrays}}}").into_bytes()),
        ("/v1/sql", JSON, format!("{{\"sql\":\"SELECT 1\",\"params\":{arrays}}}").into_bytes()),
        ("/v1/transactions", JSON, format!("{{\"operations\":{arrays}}}").into_bytes()),
        ("/v1/logs", JSON, logs.into_bytes()),
        ("/v1/logs", PROTOBUF, otlp(LEVELS)),
        ("/mcp", JSON, arrays.clone().into_bytes()),
    ] {
        let method = if path == "/v1/tables/u" { "PUT" } else { "POST" };
        let answer = running.client().ask(method, path, &[("Content-Type", media)], &body);
        // A bad record among others is reported, and the others are stored.
        let is_refused = (400..500).contains(&answer.status)
            || ["rejectedLogRecords", "recursion limit"].iter().any(|said| answer.text().contains(said));
        assert!(is_refused, "{method} {path} {media}: {} {}", answer.status, answer.text());
        running.assert_works();
    }
}

/// `struct<>` was answered 200, and the table's lake stopped for good. Fields without a name, or with a control character in it,
/// made the table unreadable for other engines.
#[test]
fn a_column_that_no_lake_can_hold_is_refused_at_every_door() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("no_lake_holds");
    let of_struct = |fields: Vec<Field>| DataType::Struct(fields.into());
    let list_of = |data_type| DataType::List(Arc::new(Field::new("item", data_type, true)));
    let int = |name: &str| Field::new(name, DataType::Int64, true);
    for (name, data_type) in [
        ("c", of_struct(vec![])),
        ("c", list_of(of_struct(vec![]))),
        ("c", of_struct(vec![Field::new("a", of_struct(vec![]), true)])),
        ("c", of_struct(vec![int("")])),
        ("c", of_struct(vec![int("\0")])),
        ("c", list_of(of_struct(vec![int("a\u{1b}b")]))),
        ("", DataType::Int64),
        ("\0", DataType::Int64),
    ] {
        let schema = Arc::new(Schema::new(vec![Field::new(name, data_type.clone(), true)]));
        let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
        writer.write(&RecordBatch::new_empty(schema)).unwrap();
        let answer = rows(&running, ARROW, &writer.into_inner().unwrap());
        assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{name:?} {data_type}");
    }
    for column in [
        r#"{"name":"","type":"int64"}"#,
        r#"{"name":"\u0000","type":"int64"}"#,
        r#"{"name":"c","type":"struct<\"a\u0007\": int64>"}"#,
        r#"{"name":"c","type":"list<struct<\"\n\": int64>>"}"#,
    ] {
        let answer = running.ask("PUT", "/v1/tables/t", &format!("{{\"columns\":[{column}]}}"));
        assert_eq!(
            (answer.status, answer.error().0.as_str()),
            (422, "schema"),
            "{column}: {}",
            answer.text()
        );
    }
    for sql in [
        "CREATE TABLE t (\"a\u{7}b\" bigint)",
        "CREATE TABLE t (s struct<\"a\u{7}\": bigint>)",
        "CREATE TABLE t AS SELECT [named_struct('a\u{7}', 1)] AS c",
    ] {
        let answer = running.ask("POST", "/v1/sql", &serde_json::json!({ "sql": sql }).to_string());
        assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{sql}: {}", answer.text());
    }
    assert_eq!(running.ask("GET", "/v1/tables/t", "").status, 404);
    running.assert_works();
}

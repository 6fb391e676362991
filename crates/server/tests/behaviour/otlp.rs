//! `/v1/logs`: the requests of OpenTelemetry exporters.

use std::io::Write;

use types::{Scope, TableSet};

use super::common::TestServer;

const EXPORT: &str = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
  "scopeLogs":[{"logRecords":[{"timeUnixNano":"1767323045123456789","severityNumber":13,"body":{"stringValue":"slow"}},
  {"severityNumber":9,"body":{"stringValue":"paid"},"attributes":[{"key":"cents","value":{"intValue":"250"}}]}]}]}]}"#;

/// Returns an export with the first record of [`EXPORT`]: `shop`, WARN, `slow`.
fn protobuf() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let text = |text: &str| field(1, text.as_bytes());
    let attribute = [text("service.name"), field(2, &text("shop"))].concat();
    let resource = field(1, &field(1, &attribute));
    let time = [&[1 << 3 | 1][..], &1_767_323_045_123_456_789_u64.to_le_bytes()].concat();
    let record = [time, vec![2 << 3, 13], field(5, &text("slow"))].concat();
    field(1, &[resource, field(2, &field(2, &record))].concat())
}

fn rows(running: &TestServer, table: &str) -> serde_json::Value {
    let sql =
        format!(r#"{{"sql":"SELECT time, level, service, body, attributes FROM {table} ORDER BY _row_id"}}"#);
    running.ask("POST", "/v1/sql", &sql).json()["rows"].clone()
}

#[test]
fn logs_come_in_as_json_and_protobuf_packed_or_not() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("otlp");
    let send = |path: &str, media: &str, encoding: &str, body: &[u8]| {
        let headers = [("Content-Type", media), ("Content-Encoding", encoding)];
        let headers = if encoding.is_empty() { &headers[..1] } else { &headers[..] };
        running.client().ask("POST", path, headers, body)
    };
    let answer = send("/v1/logs", "application/json", "", EXPORT.as_bytes());
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&protobuf()).unwrap();
    for (encoding, body) in [("", protobuf()), ("gzip", packed.finish().unwrap())] {
        let answer = send("/v1/logs", "application/x-protobuf", encoding, &body);
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    }
    let slow = ["2026-01-02T03:04:05.123456Z", "WARN", "shop", "slow"];
    let slow = serde_json::json!([slow[0], slow[1], slow[2], slow[3], null]);
    let paid = serde_json::json!([null, "INFO", "shop", "paid", {"cents": 250}]);
    assert_eq!(rows(&running, "otel.logs"), serde_json::json!([slow, paid, slow, slow]));

    // Records can go into a table of the user that has other columns too.
    assert_eq!(running.ask("POST", "/v1/tables/mine/rows", r#"{"note":1}"#).status, 200);
    assert_eq!(send("/v1/logs?table=mine", "application/json", "", EXPORT.as_bytes()).status, 200);
    assert_eq!(rows(&running, "mine").as_array().unwrap().len(), 3);
    // An export without records creates no table.
    assert_eq!(send("/v1/logs?table=none", "application/json", "", b"{}").status, 200);
    assert!(running.engine.root().table("main.none").is_none());
}

/// The good records of such an export were lost, since exporters do not resend after a 400.
#[test]
fn a_record_that_cannot_be_read_is_kept_beside_those_that_can() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("otlp-partly");
    let send = |path: &str, media: &str, key: &str, body: &[u8]| {
        let headers = [("Content-Type", media), ("Idempotency-Key", key)];
        running.client().ask("POST", path, &headers[..if key.is_empty() { 1 } else { 2 }], body)
    };
    let body = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a"}},{"traceId":"zz"},
      {"body":{"stringValue":"b"}}]}]}]}"#;
    for replayed in [false, true] {
        let answer = send("/v1/logs", "application/json", "once", body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let partial = answer.json()["partialSuccess"].clone();
        assert_eq!(partial["rejectedLogRecords"], "1", "{partial}");
        let why = partial["errorMessage"].as_str().unwrap().to_owned();
        assert!(why.starts_with("record 2: `traceId`") && why.contains("`otel.logs_dead`"), "{why}");
        assert_eq!(answer.header("idempotency-replayed"), replayed.then_some("true"));
        assert_eq!(rows(&running, "otel.logs").as_array().unwrap().len(), 2);
    }
    let dead = r#"{"sql":"SELECT at_row, raw FROM otel.logs_dead"}"#;
    let dead = running.ask("POST", "/v1/sql", dead).json()["rows"].clone();
    assert_eq!(dead, serde_json::json!([[2, r#"{"traceId":"zz"}"#]]));

    // An export in Protobuf that has only a bad record.
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let broken = field(1, &field(2, &field(2, &field(3, &[0xff]))));
    let answer = send("/v1/logs?table=bare", "application/x-protobuf", "bare", &broken);
    assert_eq!((answer.status, answer.body[0]), (200, 10));
    assert!(answer.body.windows(2).any(|rejected| rejected == [8, 1]), "{:?}", answer.body);
    assert!(running.engine.root().table("main.bare").is_none());
    let again = send("/v1/logs?table=bare", "application/x-protobuf", "bare", &broken);
    assert_eq!((again.header("idempotency-replayed"), &again.body), (Some("true"), &answer.body));
    assert_eq!(running.engine.root().table("main.bare_dead").unwrap().rows(), 1);
}

/// For each spelling of the table's name another table of bad records was made.
#[test]
fn bad_records_go_beside_the_table_that_is_there_in_whatever_case_it_is_asked_for() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("otlp-case");
    let send = |path: &str, body: &str| {
        running.client().ask("POST", path, &[("Content-Type", "application/json")], body.as_bytes())
    };
    assert_eq!(send("/v1/logs", EXPORT).status, 200);
    let body = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{"traceId":"zz"}]}]}]}"#;
    let answer = send("/v1/logs?table=OTEL.Logs", body);
    let why = answer.json()["partialSuccess"]["errorMessage"].as_str().unwrap().to_owned();
    assert!(why.ends_with("(kept in `otel.logs_dead`)"), "{why}");
    let root = running.engine.root();
    let made = |name: &str| root.table(name).map(|table| (table.def().name.clone(), table.rows()));
    assert_eq!(made("otel.logs"), Some(("otel.logs".into(), 3)));
    assert_eq!(made("otel.logs_dead"), Some(("otel.logs_dead".into(), 1)));
}

/// The unpacked size of a body was not counted.
#[test]
fn a_packed_export_takes_its_share_of_the_memory_of_bodies() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("otlp-packed", |options| options.body_bytes_total_max = 1 << 20);
    let send = |spaces: usize| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(EXPORT.as_bytes()).unwrap();
        packed.write_all(&vec![b' '; spaces]).unwrap();
        let headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
        running.client().ask("POST", "/v1/logs", &headers, &packed.finish().unwrap())
    };
    let answer = send(2 << 20);
    assert_eq!((answer.status, answer.error().0.as_str()), (429, "busy"), "{}", answer.text());
    assert_eq!(send(500_000).status, 200);
    let held = || running.telemetry().body_bytes_held.load(std::sync::atomic::Ordering::Relaxed);
    super::common::wait_until(|| held() == 0);
}

/// A record that was already stored made the whole export fail.
#[test]
fn stored_records_are_skipped_if_the_table_says_so() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("otlp-repeats");
    let send = |body: &str| {
        let headers = [("Content-Type", "application/json")];
        running.client().ask("POST", "/v1/logs", &headers, body.as_bytes())
    };
    assert_eq!(send(EXPORT).status, 200);
    let index = r#"{"sql":"CREATE UNIQUE INDEX once ON otel.logs (body) WITH (repeats = 'skip')"}"#;
    let made = running.ask("POST", "/v1/sql", index);
    assert_eq!(made.status, 200, "{}", made.text());
    let answer = send(&EXPORT.replace("paid", "new"));
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    assert_eq!(rows(&running, "otel.logs").as_array().unwrap().len(), 3);
}

#[test]
fn many_exporters_that_begin_at_once_make_one_table() {
    let _limit = testkit::limit(120);
    let running = TestServer::on_a_slow_disk("otlp-at-once", std::time::Duration::from_millis(10));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let headers = [("Content-Type", "application/json")];
                let answer = running.client().ask("POST", "/v1/logs", &headers, EXPORT.as_bytes());
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
    });
    assert_eq!(running.engine.root().table("otel.logs").unwrap().rows(), 24);
}

#[test]
fn an_invalid_export_is_refused_in_the_format_that_it_came_in() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("otlp-bad");
    let send = |path: &str, media: &str, body: &[u8]| {
        running.client().ask("POST", path, &[("Content-Type", media)], body)
    };
    let others = [r#"{"resource_logs":[{}]}"#, r#"{"resourceSpans":[]}"#];
    for body in ["", "[", "[]", r#"{"resourceLogs":7}"#, others[0], others[1]] {
        assert_eq!(send("/v1/logs", "application/json", body.as_bytes()).error().0, "invalid", "{body}");
    }
    let whole = protobuf();
    let cut = send("/v1/logs", "application/x-protobuf", &whole[..whole.len() - 1]);
    assert_eq!(cut.status, 400);
    assert_eq!(cut.header("content-type"), Some("application/x-protobuf"));
    // The answer is a Status whose message (field 2) gives the reason.
    assert_eq!(cut.body[0], 2 << 3 | 2);
    assert!(cut.text().contains("ExportLogsServiceRequest"), "{}", cut.text());
    assert_eq!(send("/v1/logs", "text/csv", b"a,b").status, 415);
    assert_eq!(send("/v1/logs?tabel=x", "application/json", EXPORT.as_bytes()).error().0, "invalid");
    assert_eq!(
        send("/v1/logs?table=polynya.x", "application/json", EXPORT.as_bytes()).error().0,
        "forbidden"
    );
    assert_eq!(running.ask("POST", "/v1/tables/clash/rows", r#"{"body":1}"#).status, 200);
    let clash = send("/v1/logs?table=clash", "application/json", EXPORT.as_bytes());
    assert_eq!(clash.error().0, "schema");
    assert!(running.engine.root().table("otel.logs").is_none(), "nothing of all that was stored");
    assert_eq!(running.engine.root().table("main.clash").unwrap().rows(), 1);

    let reader = super::put_key(&running, "reader", Scope::Read, TableSet::All);
    let headers = [("Content-Type", "application/json"), ("Authorization", &format!("Bearer {reader}"))];
    assert_eq!(running.client().ask("POST", "/v1/logs", &headers, EXPORT.as_bytes()).status, 403);
    let nobody = [("Content-Type", "application/json")];
    assert_eq!(running.client().ask("POST", "/v1/logs", &nobody, EXPORT.as_bytes()).status, 401);
}

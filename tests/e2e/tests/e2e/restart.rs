//! The time from the start of the process to its first answer, with many rows in the directory.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
use bench::{HttpClient, child};
use engine::{Engine, Mode, Op, Options, Transaction};
use polynya_e2e::program;
use serde_json::json;
use testkit::{scaled, temp_dir};
use types::{ColumnId, DataType, Principal, TableDef, TableId};
use vfs::Env;

/// The variable for the rows of the long run in `make test-full`. That run must restart within [`FULL_MAX`].
const VARIABLE: &str = "POLYNYA_TEST_RESTART_ROWS";
const FULL_MAX: Duration = Duration::from_secs(2);
/// The limit of the short run beside other tests on a busy machine. A restart that reads every row would take longer.
const SHORT_MAX: Duration = Duration::from_secs(10);

const TAIL: usize = 20_000;
const BATCH: usize = 50_000;

#[test]
fn a_directory_with_many_rows_serves_soon_after_a_kill() {
    let _limit = testkit::limit(900);
    let (rows, within) = match std::env::var(VARIABLE) {
        Ok(text) => (
            text.parse().unwrap_or_else(|_| panic!("{VARIABLE} should be a number of rows: {text}")),
            FULL_MAX,
        ),
        Err(_) => (scaled(1_000_000), SHORT_MAX),
    };
    let root = temp_dir("restart");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    fill(&home.data(), rows);

    // The last rows come over HTTP, so that after the kill some are only in the log.
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let tail: Vec<_> = (0..TAIL).map(|i| json!({"id": rows + i, "kind": "tail", "value": 0.5})).collect();
    let answer = client.json("POST", "/v1/tables/events/rows", Some(&json!(tail))).unwrap();
    assert_eq!(answer["count"], TAIL, "{answer}");
    server.kill().unwrap();

    let mut server = home.start().unwrap();
    let ready = server.ready_after();
    println!("{} rows: serving {ready:.1?} after the start", rows + TAIL);
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let asked = json!({"sql": "SELECT count(*), count(DISTINCT kind), min(id), max(id) FROM events"});
    let answer = client.json("POST", "/v1/sql", Some(&asked)).unwrap();
    assert_eq!(answer["rows"], json!([[rows + TAIL, 11, 0, rows + TAIL - 1]]), "{answer}");
    server.stop(Duration::from_secs(30)).unwrap();
    assert!(
        ready < within,
        "{} rows: serving only {ready:?} after the start, {within:?} allowed",
        rows + TAIL
    );
}

fn fill(data: &std::path::Path, rows: usize) {
    let engine = Engine::open(Env::real(), data, Options::default()).unwrap();
    let who = Principal::local();
    let mut def = TableDef::new(TableId(0), "main.events");
    for (name, data_type) in [("id", "int64"), ("kind", "string"), ("value", "float64")] {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, true, None).unwrap();
    }
    engine.commit(&who, Transaction::new(vec![Op::CreateTable { def, if_absent: false }])).unwrap();
    for first in (0..rows).step_by(BATCH) {
        let range = first..rows.min(first + BATCH);
        let ids = Int64Array::from_iter_values(range.clone().map(|i| i as i64));
        let kinds = StringArray::from_iter_values(range.clone().map(|i| format!("kind {}", i % 10)));
        let values = Float64Array::from_iter_values(range.map(|i| i as f64));
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(ids) as _),
            ("kind", Arc::new(kinds) as _),
            ("value", Arc::new(values) as _),
        ])
        .unwrap();
        std::thread::sleep(engine.pace());
        engine.commit(&who, Transaction::insert("events", batch, Mode::Append)).unwrap();
    }
    engine.close().unwrap();
}

//! A table whose older rows are only in the lake: statements, row reads, searches and feeds over rows that were evicted.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::TestServer;
use serde_json::{Value as Json, json};
use types::{HotLimit, Lsn};

const ROWS: u64 = 60_000;
/// Number of rows from which a head is sealed.
const SEAL_ROWS: u64 = 10_000;

/// Options that lay the table out in the lake: partitions and sort orders.
const LAYOUTS: [&str; 4] = [
    "",
    r#","partition_by":["bucket(8, who)"]"#,
    r#","partition_by":["days(at)"],"sort_by":["who"]"#,
    r#","sort_by":["who desc"]"#,
];

fn start_with_rows(name: &str, layout: &str) -> (TestServer, Arc<lake::Materializer>) {
    let engine = engine::Options { seal_rows: SEAL_ROWS, ..engine::Options::default() };
    let running = TestServer::with_engine_options(name, engine, |options| options.record_requests = false);
    let warehouse = running.engine.dir().join("lake");
    let mut options = lake::Options::new(&warehouse, warehouse.to_str().unwrap());
    // The sorted layout lands all rows in one file, the others one file a round.
    let at_once = layout == LAYOUTS[3];
    options.commit_wait = Duration::from_secs(if at_once { 600 } else { 1 });
    options.trickle_wait = options.commit_wait;
    let lake = Arc::new(lake::Materializer::new(options));
    running.engine.register(lake.clone()).unwrap();
    let columns = r#"[{"name":"who","type":"int64"},{"name":"region","type":"string"},
        {"name":"amount","type":"decimal(10,2)"},{"name":"at","type":"timestamp"},{"name":"note","type":"string"}]"#;
    let indexes = r#"[{"kind":"text","columns":["note"]}]"#;
    let def = format!(r#"{{"columns":{columns},"time":"at","indexes":{indexes}{layout}}}"#);
    let made = running.ask("PUT", "/v1/tables/events", &def);
    assert_eq!(made.status, 201, "{}", made.text());
    let mut client = running.client();
    for first in (0..ROWS).step_by(SEAL_ROWS as usize) {
        let mut text = String::from("who,region,amount,at,note\n");
        for n in first..first + SEAL_ROWS {
            // The rows are one minute apart.
            let at = time_of_row(n);
            let note = if n % 5_000 == 7 { format!("needle number {n}") } else { String::new() };
            text += &format!("{},r{},{}.25,{at},{note}\n", n * 7 % 50, n % 6, n % 1_000);
        }
        let kind = [("Content-Type", "text/csv")];
        let answer = client.ask("POST", "/v1/tables/events/rows", &kind, text.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        if !at_once || first + SEAL_ROWS == ROWS {
            let landed = client.ask("POST", "/v1/tables/events/commit", &[], b"");
            assert_eq!(landed.status, 200, "{}", landed.text());
        }
    }
    (running, lake)
}

fn time_of_row(n: u64) -> String {
    let (day, minute) = (1 + n / 1_440, n % 1_440);
    let (month, day) = if day > 31 { (2, day - 31) } else { (1, day) };
    let (month, day) = if month == 2 && day > 28 { (3, day - 28) } else { (month, day) };
    format!("2026-{month:02}-{day:02}T{:02}:{:02}:00Z", minute / 60, minute % 60)
}

fn sql(running: &TestServer, text: &str) -> Json {
    let answer = running.ask("POST", "/v1/sql", &json!({ "sql": text }).to_string());
    assert_eq!(answer.status, 200, "{text}: {}", answer.text());
    let mut answer = answer.json();
    answer.as_object_mut().unwrap().retain(|key, _| key == "columns" || key == "rows");
    answer
}

fn table(running: &TestServer) -> Arc<table::Snapshot> {
    running.engine.root().table("main.events").unwrap().clone()
}

/// Evicts all sealed rows and waits until they are only in the lake.
fn evict_rows(running: &TestServer, rows: u64) {
    sql(running, "ALTER TABLE events SET (hot = '0 MB')");
    assert_eq!(table(running).def().options.hot, Some(HotLimit::Bytes(0)));
    for _ in 0..1_000 {
        let root = running.engine.root();
        if root.table("main.events").unwrap().evicted().0 >= rows {
            return;
        }
        let lsn: Lsn = root.lsn();
        drop(root);
        running.engine.wait_for_commit(lsn, Duration::from_secs(2)).unwrap();
    }
    panic!("rows do not leave: {:?}", table(running).evicted());
}

const STATEMENTS: [&str; 16] = [
    "SELECT count(*) FROM events",
    "SELECT count(*), min(at), max(at), sum(amount), count(note) FROM events",
    "SELECT region, count(*), sum(amount), min(who) FROM events GROUP BY region ORDER BY region",
    "SELECT * FROM events WHERE at >= '2026-01-09T00:00:00Z' AND at < '2026-01-09T03:00:00Z' ORDER BY at",
    "SELECT count(*) FROM events WHERE at < '2026-01-02'",
    "SELECT count(*), sum(amount) FROM events WHERE who = 7",
    "SELECT count(*) FROM events WHERE who IN (3, 4) AND region = 'r1'",
    "SELECT count(*) FROM events WHERE amount > 999",
    "SELECT count(*) FROM events WHERE note IS NOT NULL",
    "SELECT _row_id, who, note FROM events WHERE _row_id IN (1, 2, 30000, 59999)",
    "SELECT _row_id, at FROM events WHERE _row_id BETWEEN 19990 AND 20010 ORDER BY _row_id",
    "SELECT _row_id, at FROM events ORDER BY _row_id LIMIT 5",
    "SELECT at, who FROM events ORDER BY at DESC LIMIT 7",
    "SELECT who, amount FROM events ORDER BY amount DESC, at LIMIT 9",
    "SELECT a.who, count(*) FROM events a JOIN events b ON a._row_id = b._row_id + 1 WHERE a.who < 3 GROUP BY a.who ORDER BY 1",
    "SELECT count(DISTINCT who), avg(CAST(amount AS DOUBLE)) FROM events WHERE region <> 'r2'",
];

fn answers(running: &TestServer) -> Vec<Json> {
    let mut all: Vec<Json> = STATEMENTS.iter().map(|text| sql(running, text)).collect();
    let paths = [
        "/v1/tables/events/rows?from=1&limit=3",
        "/v1/tables/events/rows?from=9995&limit=10",
        "/v1/tables/events/rows?from=29999&limit=5000&columns=_row_id,who",
        "/v1/tables/events/rows/1",
        "/v1/tables/events/rows/30000",
        "/v1/tables/events/search?q=needle&limit=20",
    ];
    for path in paths {
        let answer = running.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let mut answer = answer.json();
        if let Some(answer) = answer.as_object_mut() {
            answer.retain(|key, _| !matches!(key.as_str(), "lsn" | "took_ms" | "tables" | "indexed"));
        }
        all.push(answer);
    }
    all
}

#[test]
fn every_answer_is_the_same_after_rows_have_left() {
    let _limit = testkit::limit(600);
    for (nth, layout) in LAYOUTS.iter().enumerate() {
        let (running, _) = start_with_rows(&format!("tiers-{nth}"), layout);
        let before = answers(&running);
        evict_rows(&running, ROWS - SEAL_ROWS);
        let after = answers(&running);
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(before, after, "{layout}: {}", STATEMENTS.get(at).unwrap_or(&"a path"));
        }
        // Deletes reach rows that are only in the lake, both at once and after the deletes have landed.
        let gone = sql(&running, "DELETE FROM events WHERE who = 7 AND at < '2026-01-20'");
        let left = "SELECT count(*), sum(amount) FROM events WHERE who = 7";
        let (at_once, gone_lake) = (sql(&running, left), running.ask("POST", "/v1/tables/events/commit", ""));
        assert_eq!(gone_lake.status, 200, "{}", gone_lake.text());
        assert_eq!(sql(&running, left), at_once, "{gone}");
        let rows = running.ask("GET", "/v1/tables/events", "").json()["rows"].as_u64();
        assert_eq!(gone_lake.json()["rows"].as_u64(), rows, "the lake has lost them too");

        let shown = running.ask("GET", "/v1/tables/events", "").json();
        let tiers = &shown["tiers"];
        assert_eq!(shown["retention"], json!({"hot": {"bytes": 0}}), "{shown}");
        let sum = tiers["hot_rows"].as_u64().unwrap() + tiers["lake_only_rows"].as_u64().unwrap();
        assert_eq!((Some(sum), tiers["lake_only_rows"].as_u64() > Some(40_000)), (rows, true), "{shown}");
        let metrics = running.ask("GET", "/metrics", "").text();
        assert!(metrics.contains("polynya_lake_only_rows{table=\"events\"} "), "{metrics}");
    }
}

/// A feed that resumes at the beginning reads rows that are only in the lake.
#[test]
fn a_feed_is_resumed_in_rows_that_have_left() {
    let _limit = testkit::limit(300);
    let (running, _) = start_with_rows("tiers-feed", "");
    evict_rows(&running, ROWS - SEAL_ROWS);
    let snapshot = table(&running);
    let projection = snapshot.all_columns();
    let (mut after, mut rows) = (Lsn(0), 0);
    while after < snapshot.lsn() {
        let changes = snapshot.changes(after, 2_000, projection).unwrap();
        rows += changes.inserted.iter().map(|inserted| inserted.batch.num_rows() as u64).sum::<u64>();
        after = changes.next;
    }
    assert_eq!(rows, ROWS);
}

#[test]
fn bounds_and_partitions_prune_files_that_a_statement_does_not_need() {
    let _limit = testkit::limit(600);
    let asked = [
        (
            "",
            "SELECT sum(amount) FROM events WHERE at >= '2026-01-09T00:00:00Z' AND at < '2026-01-09T03:00:00Z'",
        ),
        (LAYOUTS[1], "SELECT sum(amount) FROM events WHERE who = 7"),
        (
            LAYOUTS[2],
            "SELECT sum(amount) FROM events WHERE at >= '2026-01-09T00:00:00Z' AND at < '2026-01-10'",
        ),
        (LAYOUTS[3], "SELECT sum(amount) FROM events WHERE who = 49"),
    ];
    for (nth, (layout, statement)) in asked.into_iter().enumerate() {
        let (running, lake) = start_with_rows(&format!("tiers-bounds-{nth}"), layout);
        evict_rows(&running, ROWS - SEAL_ROWS);
        // The least of five counts is taken: a segment that is about to be evicted is compared with the lake, and those reads
        // count too.
        let read = |statement: &str| {
            let one = |_| {
                let before = lake.read_counts();
                sql(&running, statement);
                let after = lake.read_counts();
                (after.parts + after.found) - (before.parts + before.found)
            };
            (0..5).map(one).min().unwrap()
        };
        let whole = read("SELECT sum(amount), max(at), min(who) FROM events");
        let some = read(statement);
        assert!(some * 2 <= whole && some > 0, "{layout}: {some} of {whole} parts for {statement}");
    }
}

#[test]
fn tables_that_cannot_be_evicted_are_refused_with_advice() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("tiers-refused", |options| options.record_requests = false);
    let warehouse = running.engine.dir().join("lake");
    let options = lake::Options::new(&warehouse, warehouse.to_str().unwrap());
    running.engine.register(Arc::new(lake::Materializer::new(options))).unwrap();
    let put = |name: &str, body: &str| running.ask("PUT", &format!("/v1/tables/{name}"), body);
    let columns = r#""columns":[{"name":"k","type":"int64","nullable":false}]"#;
    for (nth, (body, why)) in [
        (
            r#""primary_key":["k"],"retention":{"hot":{"hours":1}}"#,
            "a table with a key keeps all its rows on this machine",
        ),
        (r#""lake":false,"retention":{"hot":{"hours":1}}"#, "it has no lake"),
        (r#""retention":{"hot":{"hours":1,"bytes":2}}"#, "for how long or how much"),
        (r#""retention":{"hot":{"hours":0}}"#, "for how long or how much"),
        (
            r#""indexes":[{"kind":"column","columns":["k"],"unique":true}],"retention":{"hot":{"bytes":1}}"#,
            "unique index",
        ),
        (
            r#""ttl":5,"retention":{"hot":{"bytes":1},"expire":6}"#,
            "are the same setting, but their values differ",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = put(&format!("t{nth}"), &format!("{{{columns},{body}}}"));
        assert!((400..500).contains(&answer.status), "{body}: {} {}", answer.status, answer.text());
        assert!(answer.text().contains(why), "{body}: {}", answer.text());
    }
    let made = put("t", &format!(r#"{{{columns},"retention":{{"hot":{{"hours":24}},"expire":2592000}}}}"#));
    assert_eq!(made.status, 201, "{}", made.text());
    let shown = running.ask("GET", "/v1/tables/t", "").json();
    assert_eq!(shown["retention"], json!({"hot": {"hours": 24.0}, "expire": 2_592_000}), "{shown}");
    assert_eq!((&shown["ttl"], &shown["lake"]), (&json!(2_592_000), &json!(true)), "{shown}");
    // The lake of a table cannot be turned off while some of its rows may be only there.
    let refused = put("t", r#"{"lake":false}"#);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let changed = put("t", r#"{"retention":{"hot":{"bytes":1000000}}}"#);
    assert_eq!(changed.status, 200, "{}", changed.text());
    let shown = running.ask("GET", "/v1/tables/t", "").json();
    assert_eq!(shown["retention"], json!({"hot": {"bytes": 1_000_000}, "expire": 2_592_000}), "{shown}");
    let back = put("t", r#"{"retention":{"hot":null}}"#);
    assert_eq!(back.status, 200, "{}", back.text());
    assert!(running.ask("GET", "/v1/tables/t", "").json().get("retention").is_none());
}

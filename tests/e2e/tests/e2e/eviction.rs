//! Rows that a running server evicts to its lake. They are read as before, across a restart and a kill. After the lake is moved
//! away, reads of them fail with an error.

use std::time::{Duration, Instant};

use bench::{HttpClient, child};
use polynya_e2e::program;
use serde_json::{Value, json};
use testkit::temp_dir;

fn request(client: &mut HttpClient, method: &str, path: &str, body: Option<&Value>) -> Value {
    client.json(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn sql(client: &mut HttpClient, text: &str) -> Value {
    request(client, "POST", "/v1/sql", Some(&json!({ "sql": text })))["rows"].clone()
}

const STATEMENTS: [&str; 4] = [
    "SELECT count(*), sum(n), min(at), max(at), count(DISTINCT place) FROM readings",
    "SELECT place, count(*), sum(n) FROM readings GROUP BY place ORDER BY place",
    "SELECT _row_id, n, at FROM readings WHERE n BETWEEN 995 AND 1005 ORDER BY n",
    "SELECT n FROM readings WHERE place = 'p3' ORDER BY n DESC LIMIT 4",
];

fn answers(client: &mut HttpClient) -> Vec<Value> {
    let mut all: Vec<Value> = STATEMENTS.iter().map(|text| sql(client, text)).collect();
    for path in ["/v1/tables/readings/rows?from=1&limit=5", "/v1/tables/readings/rows?from=2999&limit=700"] {
        all.push(request(client, "GET", path, None)["rows"].clone());
    }
    all.push(request(client, "GET", "/v1/tables/readings/rows/17", None));
    all
}

#[test]
fn rows_that_have_left_answer_over_restarts_and_a_lake_that_is_gone_is_told() {
    let _limit = testkit::limit(280);
    let root = temp_dir("tiers");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    home.env("POLYNYA_BENCH_SEAL_ROWS", "1000");
    home.env("POLYNYA_LAKE_COMMIT_WAIT", "100 ms");
    let data = home.data();
    let data_text = data.to_str().unwrap().to_owned();
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let definition = json!({
        "columns": [{"name": "n", "type": "int64"}, {"name": "place", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "partition_by": ["bucket(4, place)"],
    });
    request(&mut client, "PUT", "/v1/tables/readings", Some(&definition));
    for first in (0..6_000).step_by(1_000) {
        let at = |n: u64| format!("2026-02-02T{:02}:{:02}:{:02}Z", n / 3_600, n / 60 % 60, n % 60);
        let row = |n: u64| json!({"n": n, "place": format!("p{}", n % 7), "at": at(n)});
        let rows: Vec<Value> = (first..first + 1_000).map(row).collect();
        request(&mut client, "POST", "/v1/tables/readings/rows", Some(&json!(rows)));
        request(&mut client, "POST", "/v1/tables/readings/commit", None);
    }
    let before = answers(&mut client);
    sql(&mut client, "ALTER TABLE readings SET (hot = '0 MB')");
    let end = Instant::now() + Duration::from_secs(120);
    let lake_only = |client: &mut HttpClient| {
        request(client, "GET", "/v1/tables/readings", None)["tiers"]["lake_only_rows"].as_u64().unwrap_or(0)
    };
    while lake_only(&mut client) < 4_000 {
        assert!(Instant::now() < end, "rows do not leave");
        // The commit releases the watermark for which the eviction waits.
        request(&mut client, "POST", "/v1/tables/readings/commit", None);
    }
    assert_eq!(answers(&mut client), before, "once they have left");
    let told = program::succeed(root.path(), &["tables", "readings", "--data", &data_text]);
    assert!(told.contains("only in the lake: "), "{told}");

    server.stop(Duration::from_secs(30)).unwrap();
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    assert_eq!(answers(&mut client), before, "after a restart");
    server.kill().unwrap();
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    assert_eq!(answers(&mut client), before, "after a kill");

    // Deletes reach the lake and are visible at once.
    sql(&mut client, "DELETE FROM readings WHERE n < 100");
    let left = sql(&mut client, STATEMENTS[0]);
    request(&mut client, "POST", "/v1/tables/readings/commit", None);
    assert_eq!(sql(&mut client, STATEMENTS[0]), left);
    let verified =
        program::succeed(root.path(), &["lake", "verify", "readings", "--json", "--data", &data_text]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!((&verified["equal"], &verified["rows"]), (&json!(true), &json!(5_900)), "{verified}");

    // A backup lists the rows that it does not contain.
    let backup = root.path().join("backup");
    let taken = program::succeed(root.path(), &["backup", backup.to_str().unwrap(), "--data", &data_text]);
    assert!(taken.contains("\nNot in the backup") && taken.contains("table readings: "), "{taken}");
    let lacks = std::fs::read_to_string(backup.join("LAKE")).unwrap();
    assert!(lacks.starts_with("table readings: ") && lacks.contains("snapshot"), "{lacks}");
    let report = program::succeed(root.path(), &["doctor", backup.to_str().unwrap()]);
    assert!(report.contains("is sound"), "{report}");
    // Rows inserted from here on stay on this machine.
    sql(&mut client, "ALTER TABLE readings SET (hot = none)");
    let more = json!([{"n": 6_998, "place": "p1"}, {"n": 6_999, "place": "p1"}, {"n": 6_999, "place": "p2"}]);
    request(&mut client, "POST", "/v1/tables/readings/rows", Some(&more));
    server.stop(Duration::from_secs(30)).unwrap();
    let report = program::succeed(root.path(), &["doctor", &data_text]);
    assert!(report.contains("are only in the lake") && report.contains("Sound"), "{report}");

    // Local rows stay readable; the others fail, and no lake commit replaces the lost lake.
    std::fs::rename(data.join("lake"), root.path().join("away")).unwrap();
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let hot = request(&mut client, "GET", "/v1/tables/readings", None)["tiers"]["hot_from_row_id"]
        .as_u64()
        .unwrap();
    let here = format!("/v1/tables/readings/rows?from={hot}&limit=3");
    assert_eq!(request(&mut client, "GET", &here, None)["rows"].as_array().unwrap().len(), 3);
    assert!(client.json("GET", "/v1/tables/readings/rows/117", None).is_err());
    assert!(client.json("POST", "/v1/sql", Some(&json!({ "sql": STATEMENTS[0] }))).is_err());
    request(&mut client, "POST", "/v1/tables/readings/rows", Some(&json!([{"n": 7_000, "place": "p1"}])));
    assert!(client.json("POST", "/v1/tables/readings/commit?deadline_ms=2000", None).is_err());
    server.stop(Duration::from_secs(30)).unwrap();
    std::fs::remove_dir_all(data.join("lake")).unwrap_or_default();
    std::fs::rename(root.path().join("away"), data.join("lake")).unwrap();
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let back = sql(&mut client, "SELECT count(*), count(n) FROM readings");
    assert_eq!(
        request(&mut client, "POST", "/v1/tables/readings/commit", None)["rows"],
        json!(5_904),
        "{back}"
    );
    server.stop(Duration::from_secs(30)).unwrap();
}

//! Search over a server that is killed with -9 while it takes rows and indexes them. Afterwards every acknowledged row must be
//! found exactly once, in the order and with the scores of an index built from scratch.

use std::time::{Duration, Instant};

use bench::{HttpClient, child};
use polynya_e2e::program;
use serde_json::{Value, json};
use testkit::temp_dir;

const ROUNDS: u64 = 3;
const BATCH: u64 = 200;

fn request(client: &mut HttpClient, method: &str, path: &str, body: &Value) -> Value {
    client.json(method, path, Some(body)).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn bodies(first: u64) -> Vec<Value> {
    let body = |id: u64| format!("row w{id} of a river {}", "with banks ".repeat((id % 5) as usize));
    (first..first + BATCH).map(|id| json!({ "id": id, "body": body(id) })).collect()
}

#[test]
fn every_acknowledged_row_is_found_once_after_each_of_three_kills() {
    let _limit = testkit::limit(280);
    let root = temp_dir("search-kill9");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    let definition = json!({
        "columns": [{"name": "id", "type": "int64"}, {"name": "body", "type": "string"}],
        "primary_key": ["id"],
        "indexes": [{"kind": "text", "columns": ["body"]}],
    });
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut server = home.start().unwrap();
        let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
        if round == 0 {
            request(&mut client, "PUT", "/v1/tables/docs", &definition);
        }
        // This is long enough for the index to write pieces, and for the kill to meet one.
        let end = Instant::now() + Duration::from_millis(1_500 + 137 * round);
        while Instant::now() < end {
            let sent = json!(bodies(acknowledged));
            match client.json("POST", "/v1/tables/docs/rows", Some(&sent)) {
                Ok(done) => {
                    assert_eq!(done["count"], BATCH);
                    acknowledged += BATCH;
                }
                // Rows came faster than they can be indexed.
                Err(error) => {
                    assert!(error.to_string().contains("429"), "{error}");
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            }
        }
        // Some rows are deleted again.
        let gone = json!({"sql": "DELETE FROM docs WHERE id % 10 = 3 AND id >= $1", "params": [acknowledged - BATCH]});
        request(&mut client, "POST", "/v1/sql", &gone);
        drop(client);
        server.kill().unwrap();

        let mut server = home.start().unwrap();
        let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
        let counted = request(&mut client, "POST", "/v1/sql", &json!({"sql": "SELECT count(*) FROM docs"}));
        let found =
            request(&mut client, "POST", "/v1/tables/docs/search", &json!({"q": "rivers", "limit": 1}));
        let total = if found["exact"] == json!(true) {
            found["total"].clone()
        } else {
            counted["rows"][0][0].clone()
        };
        assert_eq!(total, counted["rows"][0][0], "round {round}: {found}");
        for id in [0, acknowledged / 2 + 1, acknowledged - 1] {
            let query = json!({ "q": format!("w{id}") });
            let found = request(&mut client, "POST", "/v1/tables/docs/search", &query);
            let there = json!({"sql": "SELECT count(*) FROM docs WHERE id = $1", "params": [id]});
            let there = request(&mut client, "POST", "/v1/sql", &there);
            assert_eq!(found["total"], there["rows"][0][0], "w{id}");
        }
        server.stop(Duration::from_secs(30)).unwrap();
    }

    // An index built from scratch gives the same answers.
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let query = json!({"q": "river banks", "limit": 300, "fields": ["id"]});
    let before = request(&mut client, "POST", "/v1/tables/docs/search", &query);
    assert_eq!(before["hits"].as_array().map(Vec::len), Some(300));
    request(&mut client, "POST", "/v1/sql", &json!({"sql": "DROP INDEX docs_body_idx"}));
    request(&mut client, "PUT", "/v1/tables/docs", &definition);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let table: Value = client.json("GET", "/v1/tables/docs", None).unwrap();
        if table["derived"][0]["missing_rows"] == json!(0) || Instant::now() > end {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let after = request(&mut client, "POST", "/v1/tables/docs/search", &query);
    assert_eq!(before["hits"], after["hits"], "row by row, to the last digit of the scores");
    server.stop(Duration::from_secs(30)).unwrap();
}

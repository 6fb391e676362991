//! Searches beside writers find acknowledged rows, do not find deleted ones, stand at one lsn, and show no row that the key may
//! not see.

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Client, TestServer};
use engine::{ApiKey, Op, Transaction};
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

const DOCS: &str = r#"{"columns":[{"name":"id","type":"int64"},{"name":"body","type":"string"}],"primary_key":["id"],
    "indexes":[{"kind":"text","columns":["body"]}]}"#;

fn with_docs(name: &str) -> TestServer {
    let running = TestServer::with_options(name, |options| options.record_requests = false);
    let answer = running.ask("PUT", "/v1/tables/docs", DOCS);
    assert_eq!(answer.status, 201, "{}", answer.text());
    running
}

fn search(client: &mut Client, path: &str) -> Json {
    let answer = client.ask("GET", path, &[], b"");
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

fn write(client: &mut Client, body: &str) -> Json {
    let answer = client.ask("POST", "/v1/tables/docs/rows", &[], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn a_row_is_found_once_it_is_acknowledged_and_not_once_its_end_is() {
    let _limit = testkit::limit(120);
    let running = with_docs("search-ack");
    let mut client = running.client();
    for id in 0..300 {
        let word = format!("w{id}");
        write(&mut client, &json!({"id": id, "body": format!("common {word}")}).to_string());
        let path = format!("/v1/tables/docs/search?q={word}");
        assert_eq!(search(&mut client, &path)["total"], 1, "{word} was acknowledged");
        if id % 3 == 0 {
            write(&mut client, &json!({"id": id, "body": "common changed"}).to_string());
            assert_eq!(search(&mut client, &path)["total"], 0, "{word} was replaced");
        }
        if id % 3 == 1 {
            assert_eq!(client.ask("DELETE", &format!("/v1/tables/docs/rows/{id}"), &[], b"").status, 200);
            assert_eq!(search(&mut client, &path)["total"], 0, "{word} was deleted");
        }
        let all = search(&mut client, "/v1/tables/docs/search?q=common&limit=1");
        assert_eq!(all["total"], json!(id + 1 - (id + 2) / 3), "after {id}");
    }
}

/// Each commit changes the number of rows with the word, so that the total of an answer implies its lsn.
#[test]
fn two_hundred_searches_beside_ingest_are_right_at_their_lsn() {
    let _limit = testkit::limit(280);
    let running = with_docs("search-crowd");
    let mut writer = running.client();
    let first = write(&mut writer, r#"{"id":0,"body":"river zero"}"#);
    // The number of rows with the word, by lsn.
    let known = Mutex::new(BTreeMap::from([(first["lsn"].as_u64().unwrap(), 1u64)]));
    let answers = Mutex::new(Vec::new());
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..200 {
            let (running, stop, asked, answers) = (&running, &stop, &asked, &answers);
            scope.spawn(move || {
                let mut client = running.client();
                while !stop.load(Ordering::Relaxed) {
                    let before = running.engine.root().lsn().0;
                    let limit = 1 + reader % 20;
                    let found =
                        search(&mut client, &format!("/v1/tables/docs/search?q=rivers&limit={limit}"));
                    let hits = found["hits"].as_array().unwrap();
                    let scores: Vec<f64> = hits.iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
                    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
                    for hit in hits {
                        assert!(hit["snippets"]["body"].as_str().unwrap().contains("<mark>river"), "{hit}");
                    }
                    let (lsn, total) = (found["lsn"].as_u64().unwrap(), found["total"].as_u64().unwrap());
                    assert!(lsn >= before, "an answer is at least as new as the root before its request");
                    assert_eq!(hits.len() as u64, total.min(limit));
                    answers.lock().unwrap().push((lsn, total));
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut rows = 1;
        let mut id = 1;
        let end = Instant::now() + Duration::from_secs(60);
        while asked.load(Ordering::Relaxed) < 2_000 && Instant::now() < end {
            let count = 1 + id % 7;
            let batch: Vec<Json> = (0..count)
                .map(|i| json!({"id": id + i, "body": format!("the river {id} and its banks")}))
                .collect();
            let done = write(&mut writer, &Json::from(batch).to_string());
            rows += count;
            let lsn = done["lsn"].as_u64().unwrap();
            known.lock().unwrap().insert(lsn, rows);
            if id % 5 == 0 {
                // This update removes the word from a row.
                let done = write(&mut writer, &json!({"id": id, "body": "a lake"}).to_string());
                rows -= 1;
                known.lock().unwrap().insert(done["lsn"].as_u64().unwrap(), rows);
            }
            id += count;
        }
        stop.store(true, Ordering::Relaxed);
    });
    let known = known.into_inner().unwrap();
    let answers = answers.into_inner().unwrap();
    assert!(answers.len() > 200, "{} answers", answers.len());
    for (lsn, total) in answers {
        let (_, expected) = known.range(..=lsn).next_back().unwrap();
        assert_eq!(total, *expected, "at lsn {lsn}");
    }
}

fn put_key(running: &TestServer, name: &str, tables: TableSet) -> String {
    let secret = polynya_server::new_secret(&*running.engine.env().random);
    let key = ApiKey {
        name: name.into(),
        hash: polynya_server::hash_of(&secret),
        scope: Scope::Read,
        tables,
        created: 0,
    };
    running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    format!("Bearer {secret}")
}

#[test]
fn a_key_finds_what_is_in_its_tables_and_nothing_else() {
    let _limit = testkit::limit(60);
    let running = with_docs("search-keys");
    let mut client = running.client();
    write(&mut client, r#"{"id":1,"body":"a secret river"}"#);
    for (table, body) in [("mine", "an open river"), ("theirs", "a hidden river")] {
        let def = r#"{"columns":[{"name":"t","type":"string"}],"indexes":[{"kind":"text","columns":["t"]}]}"#;
        assert_eq!(client.ask("PUT", &format!("/v1/tables/{table}"), &[], def.as_bytes()).status, 201);
        let row = json!({ "t": body }).to_string();
        let answer = client.ask("POST", &format!("/v1/tables/{table}/rows"), &[], row.as_bytes());
        assert_eq!(answer.status, 200);
    }
    let key = put_key(&running, "reader", TableSet::Only(vec!["main.mine".into()]));
    let mut ask = |path: &str| client.ask("GET", path, &[("authorization", &key)], b"");
    let all = ask("/v1/search?q=river").json();
    assert_eq!(all["total"], 1);
    assert_eq!(all["hits"][0]["table"], "mine");
    assert_eq!(all["tables"].as_array().unwrap().len(), 1);
    assert_eq!(ask("/v1/tables/theirs/search?q=river").status, 404);
    assert_eq!(ask("/v1/search?q=river&tables=mine,theirs").status, 404);
    let metrics = ask("/metrics").text();
    assert!(metrics.contains("table=\"mine\"") && !metrics.contains("theirs"), "{metrics}");
    let ready = ask("/ready").text();
    assert!(ready.contains("missing_rows_max") && !ready.contains("theirs"), "{ready}");
    // A filter cannot read other tables either.
    let path = "/v1/tables/mine/search?q=river&filter=EXISTS%20(SELECT%201%20FROM%20theirs)";
    assert_eq!(ask(path).status, 404);
}

#[test]
fn a_search_during_the_first_build_is_whole_or_says_how_far_the_build_is() {
    let _limit = testkit::limit(280);
    let running = TestServer::with_options("search-building", |options| options.record_requests = false);
    let mut client = running.client();
    let rows: String = (0..10_000)
        .map(|i| format!("{{\"body\":\"the river number {i} with a few more words around it\"}}\n"))
        .collect();
    for _ in 0..15 {
        assert_eq!(client.ask("POST", "/v1/tables/logs/rows", &[], rows.as_bytes()).status, 200);
    }
    let body = br#"{"indexes":[{"kind":"text","columns":["body"]}]}"#;
    assert_eq!(client.ask("PUT", "/v1/tables/logs", &[], body).status, 200);
    let mut refused = 0;
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = client.ask("GET", "/v1/tables/logs/search?q=river&limit=1", &[], b"");
        if answer.status == 409 {
            let (code, _) = answer.error();
            assert_eq!(code, "index_building");
            let hint = answer.json()["error"]["hint"].as_str().unwrap_or_default().to_owned();
            assert!(hint.contains("of 150000 rows are indexed"), "{hint}");
            refused += 1;
            // Meanwhile tables can be written and read.
            let row = br#"{"body":"dry"}"#;
            assert_eq!(client.ask("POST", "/v1/tables/other/rows", &[], row).status, 200);
            assert_eq!(client.ask("GET", "/v1/tables/logs/rows/1", &[], b"").status, 200);
        } else {
            assert_eq!(answer.status, 200, "{}", answer.text());
            let found = answer.json();
            assert!(found["total"].as_u64().unwrap() >= 10_000, "{found}");
            let exact =
                client.ask("GET", "/v1/tables/logs/search?q=%22number%207%22&limit=20", &[], b"").json();
            assert_eq!(exact["total"], 15, "never a part: {exact}");
            let tail = found["index"]["tail_rows"].as_u64().unwrap();
            if tail == 0 || Instant::now() > end {
                break;
            }
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(refused > 0, "150,000 rows are more than a search takes in itself");
    let shown = client.ask("GET", "/v1/tables/logs", &[], b"").json();
    assert_eq!(shown["derived"][0]["name"], "text");
    assert_eq!(shown["derived"][0]["missing_rows"], 0, "{shown}");
}

#[test]
fn a_scan_ends_at_its_deadline() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("search-deadline", |options| options.record_requests = false);
    let mut client = running.client();
    let long = "lorem ipsum dolor sit amet ".repeat(40);
    let rows: String = (0..2_000).map(|_| format!("{{\"body\":\"{long}\"}}\n")).collect();
    for _ in 0..6 {
        assert_eq!(client.ask("POST", "/v1/tables/logs/rows", &[], rows.as_bytes()).status, 200);
    }
    let answer = client.ask("GET", "/v1/tables/logs/search?q=dolor&deadline_ms=20", &[], b"");
    assert_eq!((answer.status, answer.error().0.as_str()), (429, "timeout"), "{}", answer.text());
    running.assert_works();
}

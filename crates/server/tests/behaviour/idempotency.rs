//! `Idempotency-Key`: requests that are sent again.

use std::collections::BTreeSet;

use types::{Scope, TableSet};

use super::common::{Response, TestServer};

fn send(running: &TestServer, key: &str, path: &str, body: &str) -> Response {
    running.client().ask("POST", path, &[("Idempotency-Key", key)], body.as_bytes())
}

const ROWS: &str = "/v1/tables/t/rows";

fn is_replayed(answer: &Response) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

fn count(running: &TestServer, table: &str) -> u64 {
    running.engine.root().table(&format!("main.{table}")).map_or(0, |table| table.rows())
}

#[test]
fn a_request_that_is_sent_again_gets_the_first_answer() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again");
    let body = r#"[{"a":1},{"a":2}]"#;
    let first = send(&running, "k-1", ROWS, body);
    assert_eq!(first.status, 200, "{}", first.text());
    assert!(!is_replayed(&first));
    // Another commit happens in between.
    assert_eq!(running.ask("POST", ROWS, r#"{"a":3,"b":"new"}"#).status, 200);
    let again = send(&running, "k-1", ROWS, body);
    assert_eq!((again.status, again.text()), (200, first.text()));
    assert!(is_replayed(&again));
    assert_eq!(count(&running, "t"), 3);

    // The same body, compressed, is the same request. Other rows or other parameters make another one.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, body.as_bytes()).unwrap();
    let headers = [("Idempotency-Key", "k-1"), ("Content-Encoding", "gzip")];
    let packed = running.client().ask("POST", ROWS, &headers, &packed.finish().unwrap());
    assert_eq!(packed.text(), first.text());
    for (path, body) in [(ROWS, r#"[{"a":1}]"#), ("/v1/tables/t/rows?create=false", body)] {
        let other = send(&running, "k-1", path, body);
        assert_eq!((other.status, other.error().0.as_str()), (422, "idempotency_key_reused"), "{path}");
    }
    // The same key for another table is another key.
    assert_eq!(send(&running, "k-1", "/v1/tables/u/rows", body).status, 200);
    assert_eq!((count(&running, "t"), count(&running, "u")), (3, 2));

    // A refused request is not remembered.
    let misfit = send(&running, "k-2", ROWS, r#"{"a":"text"}"#);
    assert_eq!(misfit.status, 422);
    assert_eq!(send(&running, "k-2", ROWS, r#"{"a":4}"#).status, 200);
    // A request without rows commits nothing, so nothing is remembered.
    assert_eq!(send(&running, "k-3", ROWS, "[]").json()["count"], 0);

    let metrics = running.ask("GET", "/metrics", "").text();
    let figure = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(figure("polynya_idempotency_keys"), 3.0);
    assert!((0.0..60.0).contains(&figure("polynya_idempotency_oldest_seconds")));
}

#[test]
fn a_key_belongs_to_its_sender_and_must_be_plain() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-keys");
    for key in ["", &"x".repeat(256), "caf\u{e9}", "tab\there"] {
        let answer = send(&running, key, ROWS, r#"{"a":1}"#);
        assert_eq!(answer.error().0, "invalid", "{key:?}");
    }
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    assert_eq!(running.client().ask("POST", ROWS, &twice, br#"{"a":1}"#).error().0, "invalid");
    let memory = send(&running, "k", "/v1/tables/t/rows?ack=memory", r#"{"a":1}"#);
    assert_eq!(memory.error().0, "invalid", "an answer that may be lost is not remembered");
    assert_eq!(count(&running, "t"), 0);

    let ann = super::put_key(&running, "ann", Scope::Write, TableSet::All);
    let bob = super::put_key(&running, "bob", Scope::Write, TableSet::All);
    for secret in [&ann, &bob, &ann, &bob] {
        let headers = [("Idempotency-Key", "same"), ("Authorization", &format!("Bearer {secret}"))];
        assert_eq!(running.client().ask("POST", ROWS, &headers, br#"{"a":1}"#).status, 200);
    }
    assert_eq!(count(&running, "t"), 2);
}

/// A key of the same name, made later and for fewer tables, received the answer that was given to the first one.
#[test]
fn an_answer_belongs_to_the_key_that_asked_and_not_to_its_name() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-named");
    let several = r#"{"tables":{"secret.t":[{"a":1}]}}"#;
    let returning = r#"{"ops":[{"op":"sql","sql":"INSERT INTO secret.t (a) VALUES (7) RETURNING a"}]}"#;
    let log = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;
    let requests = [
        ("/v1/tables/secret.t/rows", r#"{"a":1}"#),
        ("/v1/rows", several),
        (TRANSACTIONS, returning),
        ("/v1/logs?table=secret.logs", log),
    ];
    let ask = |secret: &str, path: &str, body: &str| {
        let headers = [
            ("Idempotency-Key", "same"),
            ("Authorization", &format!("Bearer {secret}")),
            ("Content-Type", "application/json"),
        ];
        running.client().ask("POST", path, &headers, body.as_bytes())
    };
    let first = super::put_key(&running, "loader", Scope::Write, TableSet::All);
    for (path, body) in requests {
        let (answer, again) = (ask(&first, path, body), ask(&first, path, body));
        assert_eq!((answer.status, is_replayed(&answer)), (200, false), "{path}: {}", answer.text());
        assert_eq!((again.status, is_replayed(&again)), (200, true), "{path}: {}", again.text());
    }
    let only = TableSet::Only(vec!["main.*".into()]);
    let second = super::put_key(&running, "loader", Scope::Write, only);
    for (path, body) in requests {
        let answer = ask(&second, path, body);
        assert!(!is_replayed(&answer) && matches!(answer.status, 403 | 404), "{path}: {}", answer.text());
    }
    // A new key with the same rights does not receive the old answer either.
    let third = super::put_key(&running, "loader", Scope::Write, TableSet::All);
    let answer = ask(&third, "/v1/tables/secret.t/rows", r#"{"a":1}"#);
    assert_eq!((answer.status, is_replayed(&answer)), (200, false), "{}", answer.text());
}

/// A loader that started over with a new table and the same idempotency keys received only the old answers and wrote no row.
#[test]
fn a_key_does_not_outlive_its_table() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-dropped");
    let several = r#"{"tables":{"a":[{"x":1}],"b":[{"x":1},{"x":2}]}}"#;
    for (table, path, body, rows) in [("t", ROWS, r#"[{"a":1},{"a":2}]"#, 2), ("b", "/v1/rows", several, 2)] {
        for _ in 0..2 {
            let first = send(&running, "k", path, body);
            assert_eq!((first.status, is_replayed(&first)), (200, false), "{}", first.text());
            let again = send(&running, "k", path, body);
            assert_eq!((again.text(), is_replayed(&again)), (first.text(), true));
            assert_eq!(count(&running, table), rows);
            for table in ["t", "a", "b"] {
                running.ask("DELETE", &format!("/v1/tables/{table}"), "");
            }
        }
    }
    // If only one of several tables is gone, the rows of the others must not be written twice.
    send(&running, "k", "/v1/rows", several);
    assert_eq!(running.ask("DELETE", "/v1/tables/a", "").status, 200);
    let again = send(&running, "k", "/v1/rows", several);
    assert_eq!((again.status, again.error().0.as_str()), (409, "conflict"), "{}", again.text());
    assert_eq!((count(&running, "a"), count(&running, "b")), (0, 2));

    create_wallets(&running);
    let transfer = send(&running, "k", TRANSACTIONS, TRANSFER);
    assert_eq!(transfer.status, 200, "{}", transfer.text());
    for table in ["wallets", "log"] {
        assert_eq!(running.ask("DELETE", &format!("/v1/tables/{table}"), "").status, 200);
    }
    create_wallets(&running);
    let again = send(&running, "k", TRANSACTIONS, TRANSFER);
    assert_eq!((again.status, is_replayed(&again)), (200, false), "{}", again.text());
    assert_eq!(cents(&running, "ann"), 400);
}

#[test]
fn a_key_is_the_same_however_its_table_is_written() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-names");
    // The first request creates the table.
    let paths = ["Idem", "idem", "IDEM", "main.Idem", "Main.iDEM"];
    for (at, path) in paths.iter().enumerate() {
        let answer = send(&running, "k", &format!("/v1/tables/{path}/rows"), r#"{"a":1}"#);
        assert_eq!((answer.status, is_replayed(&answer)), (200, at > 0), "{path}: {}", answer.text());
    }
    assert_eq!(count(&running, "Idem"), 1);
}

/// A client that sends an idempotency key relies on being able to send the request again.
#[test]
fn routes_that_do_not_store_keys_refuse_them() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-routes");
    let api = running.ask("GET", "/openapi.json", "").json();
    let mut refused = BTreeSet::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if !["POST", "PUT", "DELETE", "PATCH"].contains(&method.as_str()) {
                continue;
            }
            let asked = path.replace(['{', '}'], "");
            let answer = running.client().ask(&method, &asked, &[("Idempotency-Key", "k")], b"{}");
            let is_refused = answer.text().contains("does not support Idempotency-Key");
            let keeps = ["/v1/tables/{table}/rows", "/v1/rows", "/v1/transactions", "/v1/logs"];
            let may_come = keeps.contains(&path.as_str()) || path.starts_with("/iceberg/v1");
            assert_eq!(is_refused, !may_come, "{method} {path}: {}", answer.text());
            if is_refused {
                assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{method} {path}");
                assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("/v1/transactions"));
                refused.insert(path.clone());
            }
        }
    }
    for path in ["/v1/sql", "/v1/copy", "/v1/tables/{table}", "/v1/tables/{table}/rows/{key}"] {
        assert!(refused.contains(path), "{path}");
    }
    let reads = running.client().ask("GET", "/v1/tables", &[("Idempotency-Key", "k")], b"");
    assert_eq!(reads.status, 200);
}

/// Clients that time out send a request again while the first one still waits for the disk.
#[test]
fn equal_concurrent_requests_commit_once_and_all_get_that_answer() {
    let _limit = testkit::limit(300);
    let slow = std::time::Duration::from_millis(20);
    let running = TestServer::on_a_slow_disk("again-at-once", slow);
    // The first requests create the table, and each key's requests add a column.
    for key in ["first", "second", "third"] {
        let body = format!(r#"[{{"{key}":1}},{{"{key}":2}},{{"{key}":3}}]"#);
        let answers: BTreeSet<(u16, String)> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..12)
                .map(|_| {
                    scope.spawn(|| {
                        let answer = send(&running, key, ROWS, &body);
                        (answer.status, answer.text())
                    })
                })
                .collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers.first().unwrap().0, 200, "{answers:?}");
    }
    assert_eq!(count(&running, "t"), 9);
}

fn create_unique_table(running: &TestServer) {
    let body = r#"{"columns":[{"name":"id","type":"string"},{"name":"n","type":"int64"}],
        "indexes":[{"kind":"column","columns":["id"],"unique":true,"options":{"repeats":"skip"}}]}"#;
    let made = running.ask("PUT", "/v1/tables/t", body);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["indexes"][0]["options"]["repeats"], "skip");
}

fn counts(answer: &Response) -> (u64, u64) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let json = answer.json();
    (json["count"].as_u64().unwrap(), json["repeated"].as_u64().unwrap())
}

#[test]
fn a_row_whose_id_is_there_is_left_out() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-ids");
    create_unique_table(&running);
    // An id that repeats within the body counts once, and the first row wins. Rows without an id are all new.
    let body = r#"[{"id":"a","n":1},{"id":"b","n":2},{"id":"a","n":3},{"n":4},{"n":5}]"#;
    assert_eq!(counts(&running.ask("POST", ROWS, body)), (4, 1));
    let nothing = running.ask("POST", ROWS, r#"[{"id":"a","n":6},{"id":"b","n":7}]"#);
    assert_eq!((counts(&nothing), nothing.json()["first_row_id"].is_null()), ((0, 2), true));
    let mixed = running.ask("POST", ROWS, r#"[{"id":"b","n":8},{"id":"c","n":9}]"#);
    assert_eq!((counts(&mixed), mixed.json()["first_row_id"].as_u64()), ((1, 1), Some(5)));
    let sql = r#"{"sql":"SELECT id, n FROM t ORDER BY n"}"#;
    let rows = serde_json::json!([["a", 1], ["b", 2], [null, 4], [null, 5], ["c", 9]]);
    assert_eq!(running.ask("POST", "/v1/sql", sql).json()["rows"], rows);

    // A request with an idempotency key gets its first answer again, not the counts that a new write would return.
    let body = r#"[{"id":"c","n":1},{"id":"d","n":2}]"#;
    let first = send(&running, "k", ROWS, body);
    assert_eq!(counts(&first), (1, 1));
    let again = send(&running, "k", ROWS, body);
    assert_eq!((again.text(), is_replayed(&again)), (first.text(), true));
    // Ids are also checked in chunked bodies and beside rows that are skipped as bad.
    let pieces = running.ask("POST", "/v1/tables/t/rows?chunked=true", body);
    assert_eq!(counts(&pieces), (0, 2));
    let skips = r#"[{"id":"d","n":"x"},{"id":"e","n":1},{"id":"c","n":1}]"#;
    let skips = running.ask("POST", "/v1/tables/t/rows?on_error=skip", skips);
    assert_eq!((counts(&skips), skips.json()["skipped"].as_u64()), ((1, 1), Some(1)));

    // `mode=insert` and SQL refuse repeated ids instead of leaving them out.
    for (path, body) in [
        ("/v1/tables/t/rows?mode=insert", r#"{"id":"a","n":1}"#),
        ("/v1/sql", r#"{"sql":"INSERT INTO t VALUES ('a', 1)"}"#),
    ] {
        assert_eq!(running.ask("POST", path, body).error().0, "exists", "{path}");
    }
    let op = r#"{"ops":[{"op":"insert_if_absent","table":"t","rows":[{"id":"a"},{"id":"f"}]}]}"#;
    assert_eq!(running.ask("POST", TRANSACTIONS, op).json()["ops"][0]["count"], 1);
    // Without the unique index the table accepts repeated ids.
    assert_eq!(running.ask("PUT", "/v1/tables/t", r#"{"indexes":[]}"#).status, 200);
    let answer = running.ask("POST", ROWS, r#"{"id":"a","n":1}"#);
    assert_eq!((answer.json()["count"].as_u64(), answer.json()["repeated"].is_null()), (Some(1), true));
}

#[test]
fn equal_concurrent_rows_are_stored_once() {
    let _limit = testkit::limit(300);
    let slow = std::time::Duration::from_millis(5);
    let running = TestServer::on_a_slow_disk("again-ids-at-once", slow);
    create_unique_table(&running);
    let (written, repeated) = std::thread::scope(|scope| {
        let one = |client: u64| {
            let (mut written, mut repeated) = (0, 0);
            for part in 0..10 {
                // Each client's requests overlap with those of the others.
                let id = |n: u64| format!(r#"{{"id":"{}","n":{client}}}"#, part * 20 + (n + client * 3) % 25);
                let body = format!("[{}]", (0..20).map(id).collect::<Vec<_>>().join(","));
                let (new, old) = counts(&running.ask("POST", ROWS, &body));
                written += new;
                repeated += old;
            }
            (written, repeated)
        };
        let clients: Vec<_> = (0..8).map(|client| scope.spawn(move || one(client))).collect();
        clients.into_iter().map(|c| c.join().unwrap()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    });
    assert_eq!(written + repeated, 8 * 10 * 20);
    let sql = r#"{"sql":"SELECT count(*), count(DISTINCT id) FROM t"}"#;
    assert_eq!(running.ask("POST", "/v1/sql", sql).json()["rows"], serde_json::json!([[written, written]]));
    assert_eq!(written, 205);
}

const TRANSACTIONS: &str = "/v1/transactions";

/// Returns an answer without the time that it took.
fn without_time(answer: &Response) -> serde_json::Value {
    let mut json = answer.json();
    json.as_object_mut().unwrap().remove("took_ms");
    json
}

fn create_wallets(running: &TestServer) {
    for sql in [
        "CREATE TABLE wallets (owner text PRIMARY KEY, cents bigint)",
        "CREATE TABLE log (text text)",
        "INSERT INTO wallets VALUES ('ann', 500), ('bob', 0)",
    ] {
        let body = serde_json::json!({ "sql": sql }).to_string();
        assert_eq!(running.ask("POST", "/v1/sql", &body).status, 200, "{sql}");
    }
}

fn cents(running: &TestServer, owner: &str) -> serde_json::Value {
    let sql = format!("SELECT cents FROM wallets WHERE owner = '{owner}'");
    let answer = running.ask("POST", "/v1/sql", &serde_json::json!({ "sql": sql }).to_string());
    answer.json()["rows"][0][0].clone()
}

const TRANSFER: &str = r#"{"ops":[
    {"op":"sql","sql":"UPDATE wallets SET cents = cents - 100 WHERE owner = 'ann' RETURNING cents"},
    {"op":"sql","sql":"UPDATE wallets SET cents = cents + 100 WHERE owner = 'bob'"},
    {"op":"upsert","table":"wallets","rows":[{"owner":"cy","cents":0}]},
    {"op":"insert","table":"log","rows":[{"text":"ann to bob"},{"text":"and so on"}]}]}"#;

#[test]
fn a_transaction_that_is_sent_again_gets_the_first_answer() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-transaction");
    create_wallets(&running);
    let first = send(&running, "k-1", TRANSACTIONS, TRANSFER);
    assert_eq!((first.status, is_replayed(&first)), (200, false), "{}", first.text());
    assert_eq!(first.json()["ops"][0]["rows"], serde_json::json!([[400]]));
    assert_eq!(first.json()["ops"][3]["last_row_id"], 2);
    // Another commit happens in between.
    assert_eq!(running.ask("POST", TRANSACTIONS, TRANSFER).status, 200);
    let again = send(&running, "k-1", TRANSACTIONS, TRANSFER);
    assert_eq!((again.status, is_replayed(&again)), (200, true), "{}", again.text());
    assert_eq!(without_time(&again), without_time(&first));
    assert_eq!((cents(&running, "ann"), cents(&running, "bob")), (300.into(), 200.into()));
    assert_eq!(count(&running, "log"), 4);

    let other = send(&running, "k-1", TRANSACTIONS, r#"{"ops":[{"op":"sql","sql":"DELETE FROM wallets"}]}"#);
    assert_eq!((other.status, other.error().0.as_str()), (422, "idempotency_key_reused"));
    // Neither a refused request nor one that changes nothing is remembered.
    let bad = r#"{"ops":[{"op":"insert","table":"wallets","rows":{"owner":"ann","cents":0}}]}"#;
    assert_eq!(send(&running, "k-2", TRANSACTIONS, bad).status, 409);
    let nobody = r#"{"ops":[{"op":"sql","sql":"DELETE FROM wallets WHERE owner = 'dan'"}]}"#;
    for _ in 0..2 {
        let nothing = send(&running, "k-2", TRANSACTIONS, nobody);
        assert_eq!((nothing.status, is_replayed(&nothing)), (200, false));
    }
    assert_eq!(send(&running, "k-2", TRANSACTIONS, TRANSFER).status, 200);
}

/// Three requests whose answers were remembered once left 45 MB behind for a day.
#[test]
fn the_answer_stored_for_a_key_is_small() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-large");
    create_wallets(&running);
    let returning = |what: &str| {
        let sql = format!("INSERT INTO log VALUES ('x') RETURNING {what}");
        serde_json::json!({ "ops": [{ "op": "sql", "sql": sql }] }).to_string()
    };
    let long = format!("1 AS \"{}\"", "n".repeat(70_000));
    for (at, what) in ["repeat(chr(97), 70000)", &long].into_iter().enumerate() {
        let body = returning(what);
        let refused = send(&running, &format!("large-{at}"), TRANSACTIONS, &body);
        assert_eq!((refused.status, refused.error().0.as_str()), (413, "too_large"), "{}", refused.text());
        assert!(
            refused.error().1.contains("64 KiB, which an Idempotency-Key does not keep"),
            "{}",
            refused.text()
        );
        assert_eq!(count(&running, "log"), at as u64);
        // Without an idempotency key no answer is stored, so its size does not matter.
        assert_eq!(running.ask("POST", TRANSACTIONS, &body).status, 200);
    }
    // The bound holds for all operations of a transaction together.
    let one = returning("repeat(chr(97), 40000)");
    let op = one.trim_start_matches(r#"{"ops":["#).trim_end_matches("]}");
    let two = send(&running, "two", TRANSACTIONS, &format!(r#"{{"ops":[{op},{op}]}}"#));
    assert_eq!((two.status, two.error().0.as_str()), (413, "too_large"), "{}", two.text());
    let first = send(&running, "fits", TRANSACTIONS, &one);
    assert_eq!((first.status, is_replayed(&first)), (200, false));
    let again = send(&running, "fits", TRANSACTIONS, &one);
    assert_eq!((without_time(&again), is_replayed(&again)), (without_time(&first), true));
    assert_eq!(count(&running, "log"), 3);
}

/// An idempotency key belongs to the path that it was sent to. It lives as long as the table, even if that is renamed.
#[test]
fn a_key_belongs_to_the_path_that_it_was_sent_to() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("again-renamed");
    let first = send(&running, "k", ROWS, r#"{"a":1}"#);
    let rename = r#"{"sql":"ALTER TABLE t RENAME TO u"}"#;
    assert_eq!(running.ask("POST", "/v1/sql", rename).status, 200);
    let old = send(&running, "k", ROWS, r#"{"a":1}"#);
    assert_eq!((old.text(), is_replayed(&old)), (first.text(), true));
    assert_eq!((count(&running, "u"), count(&running, "t")), (1, 0));
    let new = send(&running, "k", "/v1/tables/u/rows", r#"{"a":1}"#);
    assert_eq!((new.status, is_replayed(&new)), (200, false));
    assert_eq!(count(&running, "u"), 2);
}

/// Each transaction plans its write of the remembered keys, and all but one of them conflict there.
#[test]
fn equal_concurrent_transactions_commit_once_and_all_get_that_answer() {
    let _limit = testkit::limit(300);
    let slow = std::time::Duration::from_millis(20);
    let running = TestServer::on_a_slow_disk("again-transactions", slow);
    create_wallets(&running);
    for key in ["first", "second", "third"] {
        let answers: BTreeSet<(u16, String)> = std::thread::scope(|scope| {
            let one = || {
                let answer = send(&running, key, TRANSACTIONS, TRANSFER);
                (answer.status, without_time(&answer).to_string())
            };
            let asked: Vec<_> = (0..12).map(|_| scope.spawn(one)).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers.first().unwrap().0, 200, "{answers:?}");
    }
    assert_eq!((cents(&running, "ann"), cents(&running, "bob")), (200.into(), 300.into()));
    assert_eq!(count(&running, "log"), 6);
}

/// Half of such requests were refused as conflicts: each had been planned against another definition of the table.
#[test]
fn clients_that_bring_new_columns_at_once_are_all_served() {
    let _limit = testkit::limit(300);
    let slow = std::time::Duration::from_millis(5);
    let running = TestServer::on_a_slow_disk("again-columns", slow);
    assert_eq!(running.ask("POST", ROWS, r#"{"a":1}"#).status, 200);
    std::thread::scope(|scope| {
        for client in 0..12 {
            let running = &running;
            scope.spawn(move || {
                for n in 0..10 {
                    let body = format!(r#"{{"a":{n},"c{client}_{n}":{n},"shared_{n}":"x"}}"#);
                    let answer = running.ask("POST", ROWS, &body);
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
    });
    let root = running.engine.root();
    let table = root.table("main.t").unwrap();
    assert_eq!(table.rows(), 121);
    assert_eq!(table.def().schema.columns.len(), 1 + 12 * 10 + 10);
    let sum = r#"{"sql":"SELECT sum(c3_7), count(shared_4), count(c0_0) FROM t"}"#;
    assert_eq!(running.ask("POST", "/v1/sql", sum).json()["rows"], serde_json::json!([[7, 12, 1]]));
}

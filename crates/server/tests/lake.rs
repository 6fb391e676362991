//! Landing a table on request: the answers, the rights it needs, and its failures.

mod common;
#[path = "lake/erasure.rs"]
mod erasure;
#[path = "lake/status.rs"]
mod status;
#[path = "lake/watermarks.rs"]
mod watermarks;

use common::TestServer;
use engine::{ApiKey, Op, Transaction};
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

fn with_lake(name: &str) -> TestServer {
    let running = TestServer::with_options(name, |options| options.record_requests = false);
    running.engine.register(running.lake.clone()).unwrap();
    running
}

fn ok(running: &TestServer, method: &str, path: &str, body: &str) -> Json {
    let answer = running.ask(method, path, body);
    assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    answer.json()
}

fn code(answer: &Json) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

#[test]
fn everything_acknowledged_has_landed_when_the_commit_is_answered() {
    let _limit = testkit::limit(120);
    let running = with_lake("lake-commit");
    for round in 1..=5u64 {
        let rows: Vec<Json> = (0..200).map(|n| json!({"n": n, "round": round})).collect();
        ok(&running, "POST", "/v1/tables/events/rows", &json!(rows).to_string());
        let landed = ok(&running, "POST", "/v1/tables/events/commit", "");
        assert_eq!((&landed["row"], &landed["rows"]), (&json!(200 * round), &json!(200 * round)));
        let path = landed["metadata"].as_str().unwrap();
        assert!(std::path::Path::new(path).is_absolute() && path.ends_with(".metadata.json"), "{path}");
        let dir = running.engine.dir().join("lake/main/events");
        let reader = lake::reader::Reader::open(&lake::Store::local(&vfs::Env::real()), &dir).unwrap();
        let mut rows = 0;
        reader
            .read(&mut |batch| {
                rows += batch.num_rows() as u64;
                Ok(())
            })
            .unwrap();
        assert_eq!((reader.row.0, rows), (200 * round, 200 * round));
        // Nothing is missing in the lake, so nothing is committed.
        assert_eq!(
            ok(&running, "POST", "/v1/tables/events/commit", "")["snapshot_id"],
            landed["snapshot_id"]
        );
        let marks = ok(&running, "GET", "/v1/tables/events/watermarks", "");
        assert_eq!(marks["lake"], landed);
        assert_eq!(marks["acknowledged"]["row"], 200 * round);
    }
    let shown = ok(&running, "GET", "/v1/tables/events", "");
    assert!(
        shown["derived"].as_array().unwrap().iter().any(|d| d["name"] == "lake" && d["missing_rows"] == 0),
        "{shown}"
    );
}

#[test]
fn an_empty_table_is_there_and_a_table_without_a_lake_is_a_mistake() {
    let _limit = testkit::limit(120);
    let running = with_lake("lake-none");
    let columns = r#"{"columns":[{"name":"n","type":"int64"}]"#;
    assert_eq!(running.ask("PUT", "/v1/tables/empty", &format!("{columns}}}")).status, 201);
    let landed = ok(&running, "POST", "/v1/tables/empty/commit", "");
    assert_eq!((&landed["snapshot_id"], &landed["rows"]), (&Json::Null, &json!(0)));
    assert_eq!(running.ask("PUT", "/v1/tables/dry", &format!("{columns},\"lake\":false}}")).status, 201);
    let refused = running.ask("POST", "/v1/tables/dry/commit", "");
    assert_eq!((refused.status, code(&refused.json())), (400, "invalid"), "{}", refused.text());
    assert!(ok(&running, "GET", "/v1/tables/dry/watermarks", "").get("lake").is_none());
    assert_eq!(running.ask("POST", "/v1/tables/nothing/commit", "").status, 404);
    for bad in ["deadline_ms=0", "deadline_ms=x", "wait=1"] {
        assert_eq!(running.ask("POST", &format!("/v1/tables/empty/commit?{bad}"), "").status, 400, "{bad}");
    }
}

#[test]
fn writers_may_land_a_table_and_only_admins_see_paths() {
    let _limit = testkit::limit(120);
    let running = with_lake("lake-keys");
    ok(&running, "POST", "/v1/tables/events/rows", r#"{"n":1}"#);
    ok(&running, "POST", "/v1/tables/events/commit", "");
    let key = |name: &str, scope| {
        let secret = format!("pk_{name}");
        let hash = polynya_server::hash_of(&secret);
        let key = ApiKey { name: name.into(), hash, scope, tables: TableSet::All, created: 0 };
        let transaction = Transaction::new(vec![Op::PutKey(key)]);
        running.engine.commit(&Principal::local(), transaction).unwrap();
        format!("Bearer {secret}")
    };
    let (reader, writer) = (key("reader", Scope::Read), key("writer", Scope::Write));
    let ask = |key: &str, method: &str, path: &str| {
        let mut client = running.client();
        client.ask(method, path, &[("Authorization", key)], b"")
    };
    assert_eq!(ask(&reader, "POST", "/v1/tables/events/commit").status, 403);
    let landed = ask(&writer, "POST", "/v1/tables/events/commit");
    assert_eq!(landed.status, 200, "{}", landed.text());
    for answer in [landed, ask(&reader, "GET", "/v1/tables/events/watermarks")] {
        assert!(!answer.text().contains("metadata"), "{}", answer.text());
    }
}

/// `watermarks` named the path only to admins, `commit` named it to every writer.
#[test]
fn the_reason_of_a_failed_landing_names_paths_only_to_admins() {
    let _limit = testkit::limit(120);
    let running = with_lake("lake-paths");
    let dir = running.engine.dir().join("lake");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("main"), "in the way").unwrap();
    ok(&running, "POST", "/v1/tables/events/rows", r#"{"n":1}"#);
    let key = |name: &str, scope| {
        let secret = format!("pk_{name}");
        let hash = polynya_server::hash_of(&secret);
        let key = ApiKey { name: name.into(), hash, scope, tables: TableSet::All, created: 0 };
        let transaction = Transaction::new(vec![Op::PutKey(key)]);
        running.engine.commit(&Principal::local(), transaction).unwrap();
        format!("Bearer {secret}")
    };
    let path = running.engine.dir().to_str().unwrap().to_owned();
    for (key, sees) in [(key("writer", Scope::Write), false), (key("admin", Scope::Admin), true)] {
        let commit = "/v1/tables/events/commit?deadline_ms=60000";
        let answer = running.client().ask("POST", commit, &[("Authorization", &key)], b"");
        assert_eq!((answer.status, code(&answer.json())), (503, "io"), "{}", answer.text());
        assert_eq!(answer.text().contains(&path), sees, "{}", answer.text());
        assert_eq!(answer.text().contains("lake/main"), sees, "{}", answer.text());
    }
}

/// Each commit failed until the server was restarted.
#[test]
fn a_lake_that_was_removed_is_made_again() {
    let _limit = testkit::limit(120);
    let running = with_lake("lake-removed");
    ok(&running, "POST", "/v1/tables/events/rows", r#"[{"n":1},{"n":2}]"#);
    assert_eq!(ok(&running, "POST", "/v1/tables/events/commit", "")["rows"], 2);
    std::fs::remove_dir_all(running.engine.dir().join("lake")).unwrap();
    ok(&running, "POST", "/v1/tables/events/rows", r#"{"n":3}"#);
    assert_eq!(ok(&running, "POST", "/v1/tables/events/commit", "")["rows"], 3);
    assert!(ok(&running, "GET", "/v1/tables/events/watermarks", "").get("lake_error").is_none());
    // The loss is also noticed when no row has arrived since.
    std::fs::remove_dir_all(running.engine.dir().join("lake/main")).unwrap();
    let error = ok(&running, "GET", "/v1/tables/events/watermarks", "")["lake_error"].clone();
    assert!(error.as_str().is_some_and(|error| error.contains("is gone")), "{error}");
    let landed = ok(&running, "POST", "/v1/tables/events/commit", "");
    assert_eq!(landed["rows"], 3);
    assert!(std::path::Path::new(landed["metadata"].as_str().unwrap()).exists());
    assert!(ok(&running, "GET", "/v1/tables/events/watermarks", "").get("lake_error").is_none());
}

/// A waiting client gets the reason of the failure, not only a timeout.
#[test]
fn a_lake_that_cannot_land_says_why_and_goes_on_when_it_can() {
    let _limit = testkit::limit(120);
    let running = with_lake("lake-blocked");
    let dir = running.engine.dir().join("lake");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("main"), "in the way").unwrap();
    ok(&running, "POST", "/v1/tables/events/rows", r#"{"n":1}"#);
    let refused = running.ask("POST", "/v1/tables/events/commit?deadline_ms=60000", "");
    assert_eq!(refused.status, 503, "{}", refused.text());
    let marks = ok(&running, "GET", "/v1/tables/events/watermarks", "");
    assert!(marks["lake_error"].is_string(), "{marks}");
    // Writers and readers are not affected.
    ok(&running, "POST", "/v1/tables/events/rows", r#"{"n":2}"#);
    std::fs::remove_file(dir.join("main")).unwrap();
    // The commit succeeds at once: it neither waits for the next retry nor reports the earlier failure.
    assert_eq!(ok(&running, "POST", "/v1/tables/events/commit", "")["rows"], 2);
    assert!(ok(&running, "GET", "/v1/tables/events/watermarks", "").get("lake_error").is_none());
}

//! The status, the snapshots and the files of a lake, and its maintenance on request.

use engine::{ApiKey, Op, Transaction};
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

use crate::common::TestServer;
use crate::{code, ok, with_lake};

/// Creates a partitioned table with several lake commits, deletes among them.
fn events(running: &TestServer) {
    let columns =
        r#"{"columns":[{"name":"n","type":"int64"},{"name":"day","type":"date"}],"partition_by":["day"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/events", columns).status, 201);
    for round in 0..5 {
        let row = |n: i64| json!({ "n": 100 * round + n, "day": format!("2026-01-0{}", 1 + n % 2) });
        let rows: Vec<Json> = (0..40).map(row).collect();
        ok(running, "POST", "/v1/tables/events/rows", &json!(rows).to_string());
        let sql = format!("DELETE FROM events WHERE n = {}", 100 * round);
        ok(running, "POST", "/v1/sql", &json!({ "sql": sql }).to_string());
        ok(running, "POST", "/v1/tables/events/commit", "");
    }
}

#[test]
fn status_snapshots_and_files_add_up() {
    let _limit = testkit::limit(240);
    let running = with_lake("lake-shown");
    events(&running);
    let status = ok(&running, "GET", "/v1/tables/events/lake", "");
    assert_eq!(status["lag"], json!({ "rows": 0, "seconds": 0.0 }), "{status}");
    let lake = &status["lake"];
    assert_eq!(lake["rows"], 195);
    let snapshots = ok(&running, "GET", "/v1/tables/events/lake/snapshots", "");
    let snapshots = snapshots["snapshots"].as_array().unwrap();
    assert_eq!(lake["snapshots"], snapshots.len());
    let current: Vec<&Json> = snapshots.iter().filter(|snapshot| snapshot["current"] == true).collect();
    assert_eq!(current.len(), 1);
    assert_eq!((&current[0]["rows"], &current[0]["snapshot_id"]), (&json!(195), &lake["snapshot_id"]));
    assert_eq!(current[0]["lsn"], lake["lsn"]);

    let files = ok(&running, "GET", "/v1/tables/events/lake/files", "");
    let all = files["files"].as_array().unwrap();
    let sum = |content: &str, field: &str| -> u64 {
        let of = all.iter().filter(|file| file["content"] == content);
        of.map(|file| file[field].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("data", "rows") - sum("data", "deleted_rows"), 195, "{files}");
    assert_eq!(sum("data", "bytes") + sum("deletes", "bytes"), lake["bytes"].as_u64().unwrap());
    for file in all {
        let day = file["partition"]["day"].as_str().unwrap();
        assert!(["2026-01-01", "2026-01-02"].contains(&day), "{file}");
        assert!(std::path::Path::new(file["path"].as_str().unwrap()).exists(), "{file}");
    }
    // Paging returns the same files.
    let mut paged: Vec<Json> = Vec::new();
    let mut from = json!(0);
    while !from.is_null() {
        let page = ok(&running, "GET", &format!("/v1/tables/events/lake/files?limit=3&from={from}"), "");
        paged.extend(page["files"].as_array().unwrap().clone());
        from = page["next"].clone();
    }
    assert_eq!(&paged, all);

    // These rows have not landed.
    ok(
        &running,
        "POST",
        "/v1/tables/events/rows",
        r#"[{"n":1000,"day":"2026-01-03"},{"n":1001,"day":"2026-01-03"}]"#,
    );
    let status = ok(&running, "GET", "/v1/tables/events/lake", "");
    assert_eq!(status["lag"]["rows"], 2, "{status}");
    assert!(status["lag"]["seconds"].as_f64().is_some_and(|seconds| (0.0..100.0).contains(&seconds)));
}

#[test]
fn maintenance_makes_few_files_of_many_and_loses_no_row() {
    let _limit = testkit::limit(240);
    let running = with_lake("lake-maintain");
    events(&running);
    let done = ok(&running, "POST", "/v1/tables/events/maintain", "");
    assert!(done["before"]["data_files"].as_u64() > Some(2), "{done}");
    assert_eq!(
        (&done["after"]["data_files"], &done["after"]["deleted_rows"]),
        (&json!(2), &json!(0)),
        "{done}"
    );
    assert_eq!(done["orphans_left"], 0);
    let status = ok(&running, "GET", "/v1/tables/events/lake", "");
    assert_eq!((&status["lake"]["rows"], &status["lake"]["files"]), (&json!(195), &json!(2)));
    let dir = running.engine.dir().join("lake/main/events");
    let reader = lake::reader::Reader::open(&lake::Store::local(&vfs::Env::real()), &dir).unwrap();
    let mut rows = 0;
    let count = &mut |batch: arrow::array::RecordBatch| {
        rows += batch.num_rows();
        Ok(())
    };
    reader.read(count).unwrap();
    assert_eq!(rows, 195);
    let again = ok(&running, "POST", "/v1/tables/events/maintain", "");
    assert_eq!(again["commits"], 0, "{again}");
}

#[test]
fn a_reader_sees_file_names_without_paths() {
    let _limit = testkit::limit(240);
    let running = with_lake("lake-shown-keys");
    events(&running);
    assert_eq!(
        running
            .ask("PUT", "/v1/tables/dry", r#"{"columns":[{"name":"n","type":"int64"}],"lake":false}"#)
            .status,
        201
    );
    for path in ["lake", "lake/snapshots", "lake/files"] {
        let answer = running.ask("GET", &format!("/v1/tables/dry/{path}"), "");
        assert_eq!((answer.status, code(&answer.json())), (400, "invalid"), "{}", answer.text());
        assert_eq!(running.ask("GET", &format!("/v1/tables/nothing/{path}"), "").status, 404);
    }
    assert_eq!(running.ask("GET", "/v1/tables/events/lake/files?limit=0", "").status, 400);
    let secret = "pk_reader";
    let hash = polynya_server::hash_of(secret);
    let key = ApiKey { name: "reader".into(), hash, scope: Scope::Read, tables: TableSet::All, created: 0 };
    running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    let ask = |method: &str, path: &str| {
        let bearer = format!("Bearer {secret}");
        running.client().ask(method, path, &[("Authorization", &bearer)], b"")
    };
    let place = running.engine.dir().to_str().unwrap().to_owned();
    for path in ["lake", "lake/snapshots", "lake/files"] {
        let answer = ask("GET", &format!("/v1/tables/events/{path}"));
        assert!(answer.status == 200 && !answer.text().contains(&place), "{}", answer.text());
    }
    for path in ["erase", "maintain"] {
        assert_eq!(ask("POST", &format!("/v1/tables/events/{path}")).status, 403);
    }
}

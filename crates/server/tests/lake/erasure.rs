//! Erasure: deleted rows are removed from every file of the lake and of the table, and the answer reports the work.

use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value as Json, json};

use crate::common::TestServer;
use crate::{code, ok, with_lake};

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// Returns all texts of a Parquet file, from any column.
fn texts(path: &Path) -> Vec<String> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    for batch in builder.build().unwrap() {
        for column in batch.unwrap().columns() {
            if let Some(texts) = column.as_string_opt::<i32>() {
                all.extend(
                    (0..texts.len()).filter(|at| texts.is_valid(*at)).map(|at| texts.value(at).to_owned()),
                );
            }
        }
    }
    all
}

/// Returns the files of the data directory that contain a text. Parquet files are decoded, others are searched as bytes.
fn files_with(running: &TestServer, subs: &[&str], text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    subs.iter().for_each(|sub| files_below(&running.engine.dir().join(sub), &mut files));
    let has = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
        is_parquet && texts(path).iter().any(|found| found.contains(text))
            || bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files.into_iter().filter(has).collect()
}

fn sql(running: &TestServer, sql: &str) -> Json {
    ok(running, "POST", "/v1/sql", &json!({ "sql": sql }).to_string())
}

/// Creates a table of people. One of them is to be erased: from a data file of the lake, from older snapshots and from a segment.
fn people(running: &TestServer) {
    let table = json!({
        "columns": [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}],
        "primary_key": ["id"],
        "indexes": [{"kind": "column", "columns": ["name"]}, {"kind": "text", "columns": ["name"]}],
    });
    assert_eq!(running.ask("PUT", "/v1/tables/people", &table.to_string()).status, 201);
    let rows: Vec<Json> = (0..500).map(|id| json!({ "id": id, "name": format!("person {id}") })).collect();
    ok(running, "POST", "/v1/tables/people/rows", &json!(rows).to_string());
    ok(running, "POST", "/v1/tables/people/rows", r#"{"id":7,"name":"Zebediah Secret"}"#);
    ok(running, "POST", "/v1/tables/people/commit", "");
    ok(running, "POST", "/v1/tables/people/rows", r#"{"id":900,"name":"last"}"#);
    ok(running, "POST", "/v1/tables/people/commit", "");
    sql(running, "DELETE FROM people WHERE id = 7");
    ok(running, "POST", "/v1/tables/people/commit", "");
}

const SUBDIRECTORIES: [&str; 3] = ["lake", "tables", "derived"];

#[test]
fn no_file_and_no_snapshot_shows_what_was_erased() {
    let _limit = testkit::limit(240);
    let running = with_lake("erasure");
    people(&running);
    let secret = "Zebediah Secret";
    assert!(!files_with(&running, &["lake"], secret).is_empty(), "a delete alone leaves it in history");
    let snapshots = |running: &TestServer| {
        let all = ok(running, "GET", "/v1/tables/people/lake/snapshots", "");
        all["snapshots"].as_array().unwrap().len()
    };
    assert!(snapshots(&running) >= 3);

    let report = ok(&running, "POST", "/v1/tables/people/erase", "");
    assert_eq!(files_with(&running, &SUBDIRECTORIES, secret), [] as [PathBuf; 0]);
    // The replaced version of the row is erased as well.
    assert_eq!(files_with(&running, &["tables"], "person 7person 8"), [] as [PathBuf; 0]);
    assert!(!files_with(&running, &["tables"], "person 6person 8").is_empty());
    assert!(!files_with(&running, &["lake"], "person 8").is_empty(), "what lives stays");
    assert_eq!(snapshots(&running), 1);
    let lake = &report["lake"];
    assert!(lake["rows"].as_u64() >= Some(1) && lake["files_rewritten"].as_u64() >= Some(1), "{report}");
    assert!(
        lake["snapshots_dropped"].as_u64() >= Some(2) && lake["files_removed"].as_u64() > Some(3),
        "{report}"
    );
    assert!(report["local"]["segments_rewritten"].as_u64() >= Some(1), "{report}");
    let elsewhere = report["elsewhere"].as_array().unwrap();
    for what in ["log", "backups"] {
        assert!(elsewhere.iter().any(|of| of["what"] == what && of["until"].is_string()), "{report}");
    }
    assert_eq!(sql(&running, "SELECT count(*) FROM people")["rows"], json!([[500]]));
    // Snapshots from before the erasure can no longer be read.
    let then = json!({ "sql": "SELECT count(*) FROM people", "as_of": report["lsn"].as_u64().unwrap() - 1 });
    assert_ne!(running.ask("POST", "/v1/sql", &then.to_string()).status, 200);

    // The same request again returns the same report and does nothing.
    let marks = ok(&running, "GET", "/v1/tables/people/lake", "")["lake"]["snapshot_id"].clone();
    let same = format!("/v1/tables/people/erase?lsn={}", report["lsn"]);
    let again = ok(&running, "POST", &same, "");
    assert_eq!(
        (&again["lsn"], &again["lake"], &again["local"]),
        (&report["lsn"], &report["lake"], &report["local"])
    );
    assert_eq!(ok(&running, "GET", "/v1/tables/people/lake", "")["lake"]["snapshot_id"], marks);

    // After a restart the report is forgotten. A new erasure finds nothing to do.
    let running = running.restart();
    running.engine.register(running.lake.clone()).unwrap();
    let anew = ok(&running, "POST", "/v1/tables/people/erase", "");
    assert_eq!(
        (&anew["lake"]["rows"], &anew["local"]["segments_rewritten"]),
        (&json!(0), &json!(0)),
        "{anew}"
    );
    assert_eq!(files_with(&running, &SUBDIRECTORIES, secret), [] as [PathBuf; 0]);
    assert_eq!(sql(&running, "SELECT count(*) FROM people")["rows"], json!([[500]]));
}

#[test]
fn a_table_without_a_lake_is_erased_here() {
    let _limit = testkit::limit(240);
    let running = with_lake("erasure-dry");
    let columns = r#"{"columns":[{"name":"n","type":"int64"},{"name":"what","type":"string"}],"lake":false}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/dry", columns).status, 201);
    ok(
        &running,
        "POST",
        "/v1/tables/dry/rows",
        r#"[{"n":1,"what":"Zebediah Secret"},{"n":2,"what":"stays"}]"#,
    );
    sql(&running, "DELETE FROM dry WHERE n = 1");
    let report = ok(&running, "POST", "/v1/tables/dry/erase", "");
    assert_eq!(report["lake"], Json::Null);
    assert_eq!(report["local"]["segments_rewritten"], 1, "the head is sealed without it: {report}");
    assert_eq!(files_with(&running, &["tables"], "Zebediah"), [] as [PathBuf; 0]);
    assert!(!files_with(&running, &["tables"], "stays").is_empty(), "what lives stays");
    assert_eq!(sql(&running, "SELECT what FROM dry")["rows"], json!([["stays"]]));
    // A table without deletes.
    assert_eq!(running.ask("PUT", "/v1/tables/calm", columns).status, 201);
    let report = ok(&running, "POST", "/v1/tables/calm/erase", "");
    assert_eq!(report["local"]["segments_rewritten"], 0, "{report}");
}

/// Segments that an erasure seals are evicted at once, while the lake is being rewritten. The eviction compared them with the old
/// files, and the erasure waited for it for ever.
#[test]
fn an_erasure_ends_though_rows_leave_for_the_lake_meanwhile() {
    let _limit = testkit::limit(240);
    let running = with_lake("erasure-hot");
    for nth in 0..3 {
        let made = format!("CREATE TABLE hot{nth} (n bigint, s text) WITH (hot = '1 kB')");
        sql(&running, &made);
        let text = |n| if n == 77 { "Zebediah Secret".to_owned() } else { format!("text {n}") };
        let rows: Vec<Json> = (0..5_000).map(|n| json!({ "n": n, "s": text(n) })).collect();
        ok(&running, "POST", &format!("/v1/tables/hot{nth}/rows"), &json!(rows).to_string());
        ok(&running, "POST", &format!("/v1/tables/hot{nth}/commit"), "");
        sql(&running, &format!("DELETE FROM hot{nth} WHERE n = 77"));
        let report = ok(&running, "POST", &format!("/v1/tables/hot{nth}/erase?deadline_ms=60000"), "");
        assert_eq!(report["lake"]["rows"], 1, "{report}");
        assert_eq!(sql(&running, &format!("SELECT count(*) FROM hot{nth}"))["rows"], json!([[4_999]]));
        assert_eq!(files_with(&running, &["lake"], "Zebediah"), [] as [PathBuf; 0], "{nth}");
    }
}

#[test]
fn mistakes_are_told_and_a_deadline_does_not_end_it() {
    let _limit = testkit::limit(240);
    let running = with_lake("erasure-mistakes");
    people(&running);
    for (path, status) in [
        ("/v1/tables/nobody/erase", 404),
        ("/v1/tables/people/erase?lsn=99999", 400),
        ("/v1/tables/people/erase?deadline_ms=0", 400),
        ("/v1/tables/people/erase?what=all", 400),
        ("/v1/tables/nobody/maintain", 404),
        ("/v1/tables/people/maintain?deadline_ms=x", 400),
    ] {
        let answer = running.ask("POST", path, "");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    // A reader holds the replaced segments, so the erasure cannot finish.
    ok(&running, "POST", "/v1/tables/people/erase", "");
    sql(&running, "DELETE FROM people WHERE id = 8");
    let held = running.engine.root();
    let late = running.ask("POST", "/v1/tables/people/erase?deadline_ms=1000", "");
    assert_eq!((late.status, code(&late.json())), (429, "timeout"), "{}", late.text());
    let text = late.text();
    let lsn = text.split("ask again with lsn=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    drop(held);
    let report = ok(&running, "POST", &format!("/v1/tables/people/erase?lsn={lsn}&deadline_ms=60000"), "");
    assert!(report["local"]["segments_removed"].as_u64() >= Some(1), "{report}");
    assert_eq!(files_with(&running, &["tables"], "person 8person 9"), [] as [PathBuf; 0]);
    assert_eq!(files_with(&running, &SUBDIRECTORIES, "Zebediah"), [] as [PathBuf; 0]);
}

/// The client gets the reason why the lake cannot be changed. Once it is repaired, the next request erases the rows.
#[test]
fn a_lake_that_cannot_be_changed_says_why() {
    let _limit = testkit::limit(240);
    let running = with_lake("erasure-blocked");
    people(&running);
    let data = running.engine.dir().join("lake/main/people/data");
    let away = running.engine.dir().join("lake/main/people/away");
    std::fs::rename(&data, &away).unwrap();
    let refused = running.ask("POST", "/v1/tables/people/erase", "");
    assert_eq!(refused.status, 503, "{}", refused.text());
    std::fs::rename(&away, &data).unwrap();
    ok(&running, "POST", "/v1/tables/people/erase", "");
    assert_eq!(files_with(&running, &SUBDIRECTORIES, "Zebediah"), [] as [PathBuf; 0]);
}

/// After the lake had moved, an erasure did not mention the old copy, which still had the rows.
#[test]
fn a_copy_that_was_written_before_the_lake_was_elsewhere_is_named() {
    let _limit = testkit::limit(240);
    let former = testkit::temp_dir("erasure-former");
    let running = TestServer::with_options("erasure-moved", |options| {
        options.record_requests = false;
        // This object store cannot be reached.
        let objects = lake::objects::Objects::without_key("s3://bucket/lake", &Default::default(), "");
        let lake = lake::Options::remote(objects.unwrap());
        let lake = lake::Materializer::new(lake::Options { former: Some(former.path().into()), ..lake });
        options.lake = Some(std::sync::Arc::new(lake));
    });
    let made = r#"{"columns":[{"name":"n","type":"int64"}],"lake":false}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/people", made).status, 201);
    // The old copy was written for the first table of a database, so its table has the same id.
    let before = with_lake("erasure-before");
    people(&before);
    let mut files = Vec::new();
    files_below(&before.engine.dir().join("lake"), &mut files);
    // The table had another name when the copy was written.
    let dir = former.path().join("main/persons");
    for file in files {
        let to = dir.join(file.strip_prefix(before.engine.dir().join("lake/main/people")).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&file, to).unwrap();
    }
    let named = |report: &Json| -> Vec<Json> {
        let all = report["elsewhere"].as_array().unwrap().iter();
        all.filter(|of| of["what"].as_str().unwrap().contains("on this machine")).cloned().collect()
    };
    let report = ok(&running, "POST", "/v1/tables/people/erase", "");
    assert_eq!(report["local"]["old_lake_removed"], false, "others may read it, and there is no other");
    let [copy] = &named(&report)[..] else { panic!("{report}") };
    assert_eq!(copy["path"].as_str(), dir.to_str(), "{report}");
    // A table that only has the same name does not own the copy.
    sql(&running, "DROP TABLE people");
    assert_eq!(running.ask("PUT", "/v1/tables/people", made).status, 201);
    let report = ok(&running, "POST", "/v1/tables/people/erase", "");
    assert_eq!(named(&report), [] as [Json; 0], "{report}");
}

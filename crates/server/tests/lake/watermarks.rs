//! `GET …/watermarks?wait=` waits until rows are durable, sealed or in the lake, without speeding that up.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use engine::{ApiKey, Op, Transaction};
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

use crate::common::{Client, Response, TestServer, wait_until};
use crate::{code, ok, with_lake};

/// A request that waits on its own thread.
struct PendingRequest {
    answered: mpsc::Receiver<Response>,
    thread: JoinHandle<()>,
}

impl PendingRequest {
    /// Sends the request and returns once the server handles it, beside `others` other requests.
    fn start(running: &TestServer, others: usize, path: &str, headers: &[(&str, &str)]) -> PendingRequest {
        let are_running = |count: usize| {
            wait_until(|| running.telemetry().requests_running.load(Relaxed) == count);
        };
        are_running(others);
        let mut client: Client = running.client();
        client.head("GET", path, headers);
        are_running(others + 1);
        let (sender, answered) = mpsc::channel();
        let thread = thread::spawn(move || sender.send(client.answer()).unwrap());
        PendingRequest { answered, thread }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.answered.try_recv(), Err(mpsc::TryRecvError::Empty))
    }

    fn answer(self) -> Response {
        let answer = self.answered.recv().unwrap();
        self.thread.join().unwrap();
        answer
    }
}

fn put_key(running: &TestServer, name: &str, scope: Scope) -> String {
    let secret = format!("pk_{name}");
    let hash = polynya_server::hash_of(&secret);
    let key = ApiKey { name: name.into(), hash, scope, tables: TableSet::All, created: 0 };
    running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    format!("Bearer {secret}")
}

#[test]
fn a_row_to_come_is_waited_for() {
    let _limit = testkit::limit(120);
    let running = with_lake("wait-row");
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":1}"#);
    // Rows that are already there are answered at once, by row id and by lsn.
    for passed in ["", "&row=0", "&row=1", "&lsn=0", "&lsn=1"] {
        let marks = ok(&running, "GET", &format!("/v1/tables/t/watermarks?wait=acknowledged{passed}"), "");
        assert_eq!(marks["acknowledged"]["row"], 1, "{passed}");
    }
    let waiting = PendingRequest::start(&running, 0, "/v1/tables/t/watermarks?wait=acknowledged&row=3", &[]);
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":2}"#);
    // Commits of another table do not count, although they take lsns.
    ok(&running, "POST", "/v1/tables/u/rows", r#"[{"n":1},{"n":2},{"n":3}]"#);
    assert!(waiting.is_waiting());
    let lsn = ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":3}"#)["lsn"].clone();
    let answer = waiting.answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["acknowledged"], json!({"row": 3, "lsn": lsn}));
    // Edits take lsns too, at any time, so the lsn to wait for is well ahead.
    let next = lsn.as_u64().unwrap() + 20;
    let path = format!("/v1/tables/t/watermarks?wait=acknowledged&lsn={next}");
    let waiting = PendingRequest::start(&running, 0, &path, &[]);
    // A commit of any table passes the lsn, since this table's part of it is then known.
    while running.engine.root().lsn().0 < next {
        ok(&running, "POST", "/v1/tables/u/rows", r#"{"n":4}"#);
    }
    assert_eq!(waiting.answer().json()["acknowledged"]["row"], 3);
}

#[test]
fn the_lake_is_waited_for_and_not_hurried() {
    let _limit = testkit::limit(120);
    let running = with_lake("wait-lake");
    ok(&running, "POST", "/v1/tables/t/rows", r#"[{"n":1},{"n":2}]"#);
    let late = running.ask("GET", "/v1/tables/t/watermarks?wait=lake&deadline_ms=300", "");
    assert_eq!((late.status, code(&late.json())), (429, "timeout"), "{}", late.text());
    let hint = late.json()["error"]["hint"].to_string();
    assert!(hint.contains("so far: acknowledged row 2, sealed row 0"), "{hint}");
    // The wait did not speed up landing: rows land ten seconds after the first of them arrived.
    let marks = ok(&running, "GET", "/v1/tables/t/watermarks", "");
    assert_eq!(marks["lake"]["row"].as_u64().unwrap_or(0), 0, "{marks}");

    let now = PendingRequest::start(&running, 0, "/v1/tables/t/watermarks?wait=lake", &[]);
    let second = PendingRequest::start(&running, 1, "/v1/tables/t/watermarks?wait=lake&row=2", &[]);
    let third = PendingRequest::start(&running, 2, "/v1/tables/t/watermarks?wait=lake&row=3", &[]);
    assert!(now.is_waiting() && second.is_waiting());
    let landed = ok(&running, "POST", "/v1/tables/t/commit", "");
    for waiting in [now, second] {
        let answer = waiting.answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["lake"], landed);
    }
    assert!(third.is_waiting());
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":3}"#);
    ok(&running, "POST", "/v1/tables/t/commit", "");
    assert_eq!(third.answer().json()["lake"]["row"], 3);
}

/// A delete has no row id and an update has two, so a wait by lsn is the way to wait for them.
#[test]
fn updates_and_deletes_have_passed_with_their_commit() {
    let _limit = testkit::limit(120);
    let running = with_lake("wait-keyed");
    let columns =
        r#"{"columns":[{"name":"k","type":"string"},{"name":"n","type":"int64"}],"primary_key":["k"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", columns).status, 201);
    let write = |body: &str| ok(&running, "POST", "/v1/tables/t/rows", body);
    let first = write(r#"[{"k":"a","n":1},{"k":"b","n":1}]"#)["lsn"].as_u64().unwrap();
    ok(&running, "POST", "/v1/tables/t/commit", "");
    let update = write(r#"{"k":"a","n":2}"#);
    let delete = ok(&running, "DELETE", "/v1/tables/t/rows/b", "")["lsn"].as_u64().unwrap();
    let wait = |what: &str| running.ask("GET", &format!("/v1/tables/t/watermarks?wait=lake&{what}"), "");
    for there in ["row=1".to_owned(), "row=2".to_owned(), format!("lsn={first}")] {
        assert_eq!(wait(&there).status, 200, "{there}");
    }
    for missing in ["row=3".to_owned(), format!("lsn={}", update["lsn"]), format!("lsn={delete}")] {
        assert_eq!(wait(&format!("{missing}&deadline_ms=100")).status, 429, "{missing}");
    }
    let path = format!("/v1/tables/t/watermarks?wait=lake&lsn={delete}");
    let waiting = PendingRequest::start(&running, 0, &path, &[]);
    ok(&running, "POST", "/v1/tables/t/commit", "");
    let marks = waiting.answer().json();
    assert_eq!((&marks["lake"]["row"], &marks["lake"]["rows"]), (&json!(3), &json!(1)));
    assert!(marks["lake"]["lsn"].as_u64().unwrap() >= delete);
    let dir = running.engine.dir().join("lake/main/t");
    let mut values = Vec::new();
    lake::reader::Reader::open(&lake::Store::local(&vfs::Env::real()), &dir)
        .unwrap()
        .read(&mut |batch| {
            let column = batch.column_by_name("n").unwrap();
            let column = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(column);
            values.extend(column.values().iter().copied());
            Ok(())
        })
        .unwrap();
    assert_eq!(values, [2]);
}

/// A commit that changes no rows does not move the lake, and a wait for it must not hang.
#[test]
fn a_lake_that_lacks_nothing_has_passed_every_commit() {
    let _limit = testkit::limit(120);
    let running = with_lake("wait-nothing");
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"text":"open water"}"#);
    let landed = ok(&running, "POST", "/v1/tables/t/commit", "");
    let index = r#"{"columns":[],"indexes":[{"kind":"text","columns":["text"]}]}"#;
    let defined = running.ask("PUT", "/v1/tables/t", index);
    assert_eq!(defined.status, 200, "{}", defined.text());
    let lsn = running.engine.root().lsn();
    assert!(lsn.0 > landed["lsn"].as_u64().unwrap());
    for what in [format!("&lsn={lsn}"), String::new()] {
        let marks = ok(&running, "GET", &format!("/v1/tables/t/watermarks?wait=lake{what}"), "");
        assert_eq!(marks["lake"]["snapshot_id"], landed["snapshot_id"], "{what}");
    }
}

#[test]
fn segments_are_waited_for() {
    let _limit = testkit::limit(120);
    let options = engine::Options { seal_rows: 50, ..engine::Options::default() };
    let running =
        TestServer::with_engine_options("wait-sealed", options, |options| options.record_requests = false);
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":1}"#);
    let late = running.ask("GET", "/v1/tables/t/watermarks?wait=sealed&deadline_ms=50", "");
    assert_eq!((late.status, code(&late.json())), (429, "timeout"), "{}", late.text());
    let by_row = PendingRequest::start(&running, 0, "/v1/tables/t/watermarks?wait=sealed&row=1", &[]);
    let by_lsn = PendingRequest::start(&running, 1, "/v1/tables/t/watermarks?wait=sealed&lsn=1", &[]);
    let rows: Vec<Json> = (0..200).map(|n| json!({"n": n})).collect();
    ok(&running, "POST", "/v1/tables/t/rows", &json!(rows).to_string());
    for waiting in [by_row, by_lsn] {
        let marks = waiting.answer().json();
        assert!(marks["sealed"]["row"].as_u64().unwrap() >= 1, "{marks}");
    }
    // A server without a lake refuses to wait for it.
    let refused = running.ask("GET", "/v1/tables/t/watermarks?wait=lake", "");
    assert_eq!((refused.status, code(&refused.json())), (400, "invalid"), "{}", refused.text());
}

#[test]
fn a_wait_ends_at_once_when_its_table_key_or_server_goes() {
    let _limit = testkit::limit(120);
    let mut running = with_lake("wait-ends");
    for table in ["t", "dropped"] {
        ok(&running, "POST", &format!("/v1/tables/{table}/rows"), r#"{"n":1}"#);
    }
    let started = Instant::now();
    let dropped =
        PendingRequest::start(&running, 0, "/v1/tables/dropped/watermarks?wait=acknowledged&row=9", &[]);
    ok(&running, "DELETE", "/v1/tables/dropped", "");
    let dropped = dropped.answer();
    assert_eq!((dropped.status, dropped.error().1.as_str()), (404, "table `dropped` was dropped"));

    let reader = put_key(&running, "reader", Scope::Read);
    let path = "/v1/tables/t/watermarks?wait=acknowledged&row=9";
    let barred = PendingRequest::start(&running, 0, path, &[("Authorization", &reader)]);
    let remove = Op::RemoveKey { name: "reader".into() };
    running.engine.commit(&Principal::local(), Transaction::new(vec![remove])).unwrap();
    assert_eq!(barred.answer().status, 401);

    let stopped = PendingRequest::start(&running, 0, path, &[]);
    let server = running.server.take().unwrap();
    assert_eq!(server.stop(Duration::from_secs(20)), 0, "no connection was cut");
    let stopped = stopped.answer();
    assert_eq!((stopped.status, stopped.error().0.as_str()), (503, "closed"));
    assert!(started.elapsed() < Duration::from_secs(30), "nobody waited for a deadline");
}

#[test]
fn a_lake_that_cannot_land_ends_waits_and_names_paths_only_to_admins() {
    let _limit = testkit::limit(120);
    let running = with_lake("wait-blocked");
    let dir = running.engine.dir().join("lake");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("main"), "in the way").unwrap();
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":1}"#);
    let waiting = PendingRequest::start(&running, 0, "/v1/tables/t/watermarks?wait=lake", &[]);
    // The failure is reported both to the client that requested the commit and to the one that only waits.
    assert_eq!(running.ask("POST", "/v1/tables/t/commit", "").status, 503);
    let told = waiting.answer();
    assert_eq!((told.status, told.error().0.as_str()), (503, "io"), "{}", told.text());
    let path = running.engine.dir().to_str().unwrap().to_owned();
    assert!(told.text().contains(&path), "{}", told.text());
    // `/ready` said `"ok":true` beside `"failing":1`. Rows are still accepted.
    let ready = running.ask("GET", "/ready", "");
    let derived = &ready.json()["parts"]["derived"];
    assert_eq!(
        (ready.status, &derived["ok"], &derived["detail"]["failing"]),
        (200, &false.into(), &1.into())
    );
    let reader = put_key(&running, "reader", Scope::Read);
    let told =
        running.client().ask("GET", "/v1/tables/t/watermarks?wait=lake", &[("Authorization", &reader)], b"");
    assert_eq!(told.status, 503, "{}", told.text());
    assert!(!told.text().contains(&path) && !told.text().contains("lake/main"), "{}", told.text());
    // The other watermarks do not depend on the lake.
    let admin = put_key(&running, "admin", Scope::Admin);
    let ask = |path: &str| running.client().ask("GET", path, &[("Authorization", &admin)], b"");
    assert_eq!(ask("/v1/tables/t/watermarks?wait=acknowledged").status, 200);
    std::fs::remove_file(dir.join("main")).unwrap();
    let landed = running.client().ask("POST", "/v1/tables/t/commit", &[("Authorization", &admin)], b"");
    assert_eq!(landed.status, 200, "{}", landed.text());
    assert_eq!(ask("/v1/tables/t/watermarks?wait=lake").json()["lake"], landed.json());
    // The landed files were removed, so no reader could open the table.
    std::fs::remove_dir_all(dir.join("main")).unwrap();
    let gone = ask("/v1/tables/t/watermarks?wait=lake");
    assert_eq!((gone.status, gone.error().0.as_str()), (503, "damaged"), "{}", gone.text());
}

#[test]
fn invalid_waits_are_refused() {
    let _limit = testkit::limit(60);
    let running = with_lake("wait-mistakes");
    ok(&running, "POST", "/v1/tables/t/rows", r#"{"n":1}"#);
    for (query, why) in [
        ("row=1", "`row`, `lsn` and `deadline_ms` belong to `wait`"),
        ("deadline_ms=5", "`row`, `lsn` and `deadline_ms` belong to `wait`"),
        ("wait=lake&row=1&lsn=1", "`row` and `lsn` exclude each other"),
        ("wait=landed", "`wait` is `acknowledged`, `sealed` or `lake`, `landed` was given"),
        ("wait=lake&row=-1", "`row` is a whole number, `-1` was given"),
        ("wait=lake&row=1&deadline_ms=0", "`deadline_ms` is 1 or more"),
        ("wait=lake&rows=1", "unknown field `rows`"),
    ] {
        let refused = running.ask("GET", &format!("/v1/tables/t/watermarks?{query}"), "");
        assert_eq!((refused.status, code(&refused.json())), (400, "invalid"), "{query}: {}", refused.text());
        assert!(refused.error().1.contains(why), "{query}: {}", refused.text());
    }
    assert_eq!(running.ask("GET", "/v1/tables/none/watermarks?wait=lake", "").status, 404);
    // The largest row id is waited for like any other.
    let most = format!("wait=acknowledged&row={}&deadline_ms=20", u64::MAX);
    assert_eq!(running.ask("GET", &format!("/v1/tables/t/watermarks?{most}"), "").status, 429);
}

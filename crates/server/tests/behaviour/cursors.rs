//! Cursors of consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Mode, Transaction};
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

use crate::common::{Client, Response, TestServer};
use crate::put_key;

fn put(running: &TestServer, path: &str, body: &str, headers: &[(&str, &str)]) -> Response {
    running.client().ask("PUT", path, headers, body.as_bytes())
}

fn stored_cursors(running: &TestServer) -> Json {
    let sql = r#"{"sql":"SELECT count(*) FROM polynya.cursors"}"#;
    running.ask("POST", "/v1/sql", sql).json()["rows"][0][0].clone()
}

#[test]
fn a_key_that_may_read_may_be_a_consumer_of_its_tables_alone() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("cursors-keys");
    for table in ["a", "b"] {
        assert_eq!(running.ask("POST", &format!("/v1/tables/{table}/rows"), r#"{"x":1}"#).status, 200);
        assert_eq!(put(&running, &format!("/v1/tables/{table}/cursors/c"), r#"{"row":1}"#, &[]).status, 201);
    }
    let bearer = |name: &str, scope, tables| format!("Bearer {}", put_key(&running, name, scope, tables));
    let reader = bearer("reader", Scope::Read, TableSet::Only(vec!["main.a".into()]));
    let writer = bearer("writer", Scope::Write, TableSet::All);
    let ask = |key: &str, method: &str, path: &str, body: &str| {
        running.client().ask(method, path, &[("Authorization", key)], body.as_bytes())
    };
    let moved = ask(&reader, "PUT", "/v1/tables/a/cursors/c", r#"{"row":0}"#);
    assert_eq!(moved.status, 200, "{}", moved.text());
    assert_eq!(ask(&reader, "GET", "/v1/tables/a/cursors", "").json()["cursors"][0]["row"], 0);
    assert_eq!(ask(&reader, "GET", "/v1/tables/a/rows?cursor=c", "").json()["rows"][0]["x"], 1);
    // Invariant A1: a hidden table answers like a missing one, whether or not it has cursors.
    for (method, path, body) in [
        ("GET", "cursors/c", ""),
        ("GET", "cursors", ""),
        ("PUT", "cursors/c", r#"{"row":0}"#),
        ("DELETE", "cursors/c", ""),
        ("GET", "rows?cursor=c", ""),
        ("GET", "tail?cursor=c", ""),
    ] {
        let hidden = ask(&reader, method, &format!("/v1/tables/b/{path}"), body);
        let absent = ask(&reader, method, &format!("/v1/tables/c/{path}"), body);
        assert_eq!((hidden.status, absent.status), (404, 404), "{method} {path}: {}", hidden.text());
        assert_eq!(hidden.text().replace("`b`", "`c`"), absent.text(), "{method} {path}");
    }
    let sql = r#"{"sql":"SELECT * FROM polynya.cursors"}"#;
    assert_eq!(ask(&reader, "POST", "/v1/sql", sql).status, 404);
    // The table is Polynya's own: keys read it and write it only through its routes.
    assert_eq!(ask(&writer, "POST", "/v1/sql", sql).json()["rows"].as_array().unwrap().len(), 2);
    let sql = r#"{"sql":"DELETE FROM polynya.cursors"}"#;
    assert_eq!(ask(&writer, "POST", "/v1/sql", sql).status, 403);
    let none = ask("Bearer pk_none", "PUT", "/v1/tables/a/cursors/c", r#"{"row":0}"#);
    assert_eq!(none.status, 401);
}

/// Consumers with the same cursor name compare before they move it: no move is lost and none is made twice.
#[test]
fn two_consumers_with_one_name_notice_each_other() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("cursors-compare");
    let rows: Vec<Json> = (0..200).map(|n| json!({"n": n})).collect();
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", &json!(rows).to_string()).status, 200);
    let path = "/v1/tables/t/cursors/both";
    let first = put(&running, path, r#"{"row":0}"#, &[("If-None-Match", "*")]);
    assert_eq!(first.status, 201);
    let again = put(&running, path, r#"{"row":0}"#, &[("If-None-Match", "*")]);
    assert_eq!((again.status, again.error().0.as_str()), (409, "conflict"), "{}", again.text());
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(running.address);
                let mut moves = 0;
                while moves < 25 {
                    let cursor = client.ask("GET", path, &[], b"");
                    let etag = cursor.header("etag").unwrap().to_owned();
                    let next = json!({"row": cursor.json()["row"].as_u64().unwrap() + 1}).to_string();
                    let moved = client.ask("PUT", path, &[("If-Match", &etag)], next.as_bytes());
                    match moved.status {
                        200 => moves += 1,
                        409 => drop(refused.fetch_add(1, Relaxed)),
                        _ => panic!("{}", moved.text()),
                    }
                }
            });
        }
    });
    let cursor = running.ask("GET", path, "");
    assert_eq!(cursor.json()["row"], 100, "{} were refused", refused.load(Relaxed));
    // An old version neither moves nor removes a cursor, nor does the version of a removed one.
    let old = first.header("etag").unwrap();
    for (method, body) in [("PUT", r#"{"row":1}"#), ("DELETE", "")] {
        let refused = running.client().ask(method, path, &[("If-Match", old)], body.as_bytes());
        assert_eq!((refused.status, refused.error().0.as_str()), (409, "conflict"), "{}", refused.text());
    }
    let now = cursor.header("etag").unwrap();
    assert_eq!(running.client().ask("DELETE", path, &[("If-Match", now)], b"").status, 200);
    assert_eq!(put(&running, path, r#"{"row":1}"#, &[("If-Match", now)]).status, 409);
    assert_eq!(running.ask("GET", path, "").status, 404);
}

#[test]
fn cursors_survive_a_restart_and_end_with_their_table() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("cursors-restart");
    for table in ["t", "u"] {
        assert_eq!(
            running.ask("POST", &format!("/v1/tables/{table}/rows"), r#"[{"n":1},{"n":2}]"#).status,
            200
        );
    }
    assert_eq!(put(&running, "/v1/tables/t/cursors/c", r#"{"row":1,"lsn":1}"#, &[]).status, 201);
    assert_eq!(put(&running, "/v1/tables/t/cursors/c", r#"{"row":2}"#, &[]).status, 200);
    assert_eq!(put(&running, "/v1/tables/u/cursors/c", r#"{"lsn":1}"#, &[]).status, 201);
    let before = running.ask("GET", "/v1/tables/t/cursors/c", "");
    let running = running.restart();
    let after = running.ask("GET", "/v1/tables/t/cursors/c", "");
    assert_eq!((after.json(), after.header("etag")), (before.json(), before.header("etag")));
    assert_eq!((&after.json()["row"], &after.json()["lsn"]), (&json!(2), &Json::Null));
    assert_eq!(stored_cursors(&running), 2);
    // A new table of the same name does not inherit the cursors.
    assert_eq!(running.ask("DELETE", "/v1/tables/t", "").status, 200);
    assert_eq!(running.ask("GET", "/v1/tables/t/cursors/c", "").status, 404);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"n":1}"#).status, 200);
    let gone = running.ask("GET", "/v1/tables/t/cursors/c", "");
    assert_eq!(gone.error(), ("not_found".into(), "there is no cursor `c` (table t)".into()));
    assert_eq!(running.ask("GET", "/v1/tables/t/cursors", "").json(), json!({"cursors": []}));
    // The next cursor that is made removes the rows of the dropped table's cursors, and nothing else.
    let made = put(&running, "/v1/tables/t/cursors/d", r#"{"row":1}"#, &[]);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(stored_cursors(&running), 2);
    assert_eq!(running.ask("GET", "/v1/tables/u/cursors/c", "").json()["lsn"], 1);
}

#[test]
fn reading_begins_after_the_cursor_and_does_not_move_it() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("cursors-read");
    let write = |n: u64| {
        let answer = running.ask("POST", "/v1/tables/t/rows", &json!({"n": n}).to_string());
        answer.json()["lsn"].as_u64().unwrap()
    };
    let lsns: Vec<u64> = (1..=5).map(write).collect();
    let path = "/v1/tables/t/cursors/c";
    assert_eq!(put(&running, path, &json!({"row": 2, "lsn": lsns[2]}).to_string(), &[]).status, 201);
    for _ in 0..2 {
        let page = running.ask("GET", "/v1/tables/t/rows?cursor=c&limit=2&columns=n", "").json();
        assert_eq!((&page["rows"], &page["next"]), (&json!([{"n": 3}, {"n": 4}]), &json!(5)));
    }
    let mut client = running.client();
    client.head("GET", "/v1/tables/t/tail?cursor=c", &[]);
    assert_eq!(client.answer_head().status, 200);
    let told = String::from_utf8(client.chunk().unwrap()).unwrap();
    assert!(told.contains("\"n\":4") && !told.contains("\"n\":3"), "{told}");
    // A reconnecting browser sends the lsn where it stopped, which overrides the cursor.
    let mut client = running.client();
    let last = lsns[3].to_string();
    client.head("GET", "/v1/tables/t/tail?cursor=c", &[("Last-Event-ID", &last)]);
    assert_eq!(client.answer_head().status, 200);
    let told = String::from_utf8(client.chunk().unwrap()).unwrap();
    assert!(told.contains("\"n\":5") && !told.contains("\"n\":4"), "{told}");
    assert_eq!(running.ask("GET", path, "").json()["row"], 2);
    // Reading at the end returns no rows and is not an error.
    assert_eq!(put(&running, path, r#"{"row":5}"#, &[]).status, 200);
    assert_eq!(running.ask("GET", "/v1/tables/t/rows?cursor=c", "").json()["rows"], json!([]));
    let refused = running.ask("GET", "/v1/tables/t/tail?cursor=c", "");
    assert!(refused.error().1.contains("has a row and no lsn"), "{}", refused.text());
    assert_eq!(put(&running, path, r#"{"lsn":0}"#, &[]).status, 200);
    let refused = running.ask("GET", "/v1/tables/t/rows?cursor=c", "");
    assert!(refused.error().1.contains("has an lsn and no row"), "{}", refused.text());
}

#[test]
fn a_cursor_that_makes_no_sense_is_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("cursors-mistakes");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"n":1}"#).status, 200);
    let good = r#"{"row":1}"#;
    let long = "x".repeat(129);
    for (name, body, status, why) in [
        (long.as_str(), good, 400, "is not a valid cursor name"),
        ("a%20b", good, 400, "`a b` is not a valid cursor name"),
        ("a%2Fb", good, 400, "`a/b` is not a valid cursor name"),
        ("%2E%2E", good, 400, "`..` is not a valid cursor name"),
        ("a%00", good, 400, "is not a valid cursor name"),
        ("c", "", 400, "the body is not a valid cursor"),
        ("c", "{", 400, "the body is not a valid cursor"),
        ("c", "{}", 400, "the cursor has neither `row` nor `lsn`"),
        ("c", "[1]", 400, "the body is not a valid cursor"),
        ("c", r#"{"row":-1}"#, 400, "a whole number from 0 on expected"),
        ("c", r#"{"row":1.5}"#, 400, "a whole number from 0 on expected"),
        ("c", r#"{"row":"1"}"#, 400, "a whole number from 0 on expected"),
        ("c", r#"{"rows":1}"#, 400, "unknown field `rows`"),
        ("c", r#"{"row":2}"#, 400, "row 2 is not there yet; the newest is 1"),
        ("c", r#"{"row":18446744073709551615}"#, 400, "is not there yet"),
        ("c", r#"{"lsn":99}"#, 400, "lsn 99 is not there yet"),
    ] {
        let refused = put(&running, &format!("/v1/tables/t/cursors/{name}"), body, &[]);
        assert_eq!(refused.status, status, "{name} {body}: {}", refused.text());
        assert!(refused.error().1.contains(why), "{name} {body}: {}", refused.text());
    }
    let large = format!("{{\"row\":1{}}}", " ".repeat(5_000));
    assert_eq!(put(&running, "/v1/tables/t/cursors/c", &large, &[]).status, 413);
    for (header, value) in [("If-Match", "x"), ("If-Match", "*"), ("If-None-Match", "\"1\"")] {
        let refused = put(&running, "/v1/tables/t/cursors/c", good, &[(header, value)]);
        assert_eq!((refused.status, refused.error().0.as_str()), (400, "invalid"), "{header}: {value}");
    }
    let both = [("If-Match", "\"1\""), ("If-None-Match", "*")];
    assert_eq!(put(&running, "/v1/tables/t/cursors/c", good, &both).status, 400);
    assert_eq!(put(&running, "/v1/tables/none/cursors/c", good, &[]).status, 404);
    assert_eq!(running.ask("GET", "/v1/tables/t/cursors", "").json(), json!({"cursors": []}));
    for path in
        ["rows?cursor=c&from=1", "rows?cursor=c&since=1", "tail?cursor=c&after=1", "rows?cursor=a%20b"]
    {
        assert_eq!(running.ask("GET", &format!("/v1/tables/t/{path}"), "").status, 400, "{path}");
    }
    for path in ["rows?cursor=c", "tail?cursor=c", "cursors/c"] {
        assert_eq!(running.ask("GET", &format!("/v1/tables/t/{path}"), "").status, 404, "{path}");
    }
    assert_eq!(running.ask("DELETE", "/v1/tables/t/cursors/c", "").status, 404);
    // Other names are accepted.
    for name in ["x".repeat(128).as_str(), "a.b-c_d:e@f", "%C3%A4", "1"] {
        assert_eq!(put(&running, &format!("/v1/tables/t/cursors/{name}"), good, &[]).status, 201, "{name}");
    }
    running.assert_works();
}

#[test]
fn the_number_of_cursors_of_a_table_is_bounded() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("cursors-many");
    for table in ["t", "u"] {
        assert_eq!(running.ask("POST", &format!("/v1/tables/{table}/rows"), r#"{"n":1}"#).status, 200);
    }
    assert_eq!(put(&running, "/v1/tables/t/cursors/first", r#"{"row":1}"#, &[]).status, 201);
    let id = running.engine.root().table("main.t").unwrap().def().id;
    let more = 9_998;
    let numbers = |number: i64| -> ArrayRef { Arc::new(Int64Array::from_value(number, more)) };
    let names = (0..more).map(|n| format!("more{n}"));
    let batch = RecordBatch::try_from_iter([
        ("table_id", numbers(id.0.into())),
        ("name", Arc::new(StringArray::from_iter_values(names)) as ArrayRef),
        ("table", Arc::new(StringArray::from(vec!["t"; more]))),
        ("row", numbers(0)),
    ]);
    let transaction = Transaction::insert("polynya.cursors", batch.unwrap(), Mode::Append).internal();
    running.engine.commit(&Principal::local(), transaction).unwrap();
    // There is room for one more cursor, and only one of several concurrent requests gets it.
    let made: Vec<u16> = std::thread::scope(|scope| {
        let ask =
            |n: i32| put(&running, &format!("/v1/tables/t/cursors/last{n}"), r#"{"row":1}"#, &[]).status;
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || ask(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|status| **status == 201).count(), 1, "{made:?}");
    let refused = put(&running, "/v1/tables/t/cursors/another", r#"{"row":1}"#, &[]);
    assert_eq!((refused.status, refused.error().0.as_str()), (413, "too_large"), "{}", refused.text());
    let list = running.ask("GET", "/v1/tables/t/cursors", "").json();
    let names: Vec<_> =
        list["cursors"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(names.len() == 10_000 && names.is_sorted());
    // Existing cursors can move, another table has its own bound, and removing a cursor makes room.
    assert_eq!(put(&running, "/v1/tables/t/cursors/more7", r#"{"row":1}"#, &[]).status, 200);
    assert_eq!(put(&running, "/v1/tables/u/cursors/first", r#"{"row":1}"#, &[]).status, 201);
    assert_eq!(running.ask("DELETE", "/v1/tables/t/cursors/more8", "").status, 200);
    assert_eq!(put(&running, "/v1/tables/t/cursors/another", r#"{"row":1}"#, &[]).status, 201);
}

//! Bad rows are named by their numbers in the body, and names that can never be used are refused at once.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::TestServer;

const NDJSON: &str = "application/x-ndjson";

/// Rows that the table refused were counted from the beginning of their piece, and only one of them was named.
#[test]
fn rows_that_the_table_refuses_are_all_named_and_counted_from_the_beginning_of_the_body() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("bad-rows");
    let def =
        r#"{"columns":[{"name":"at","type":"timestamp","nullable":false},{"name":"pad","type":"string"}]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", def).status, 201);
    let pad = "x".repeat(400);
    let body = |bad: &dyn Fn(usize) -> Option<&'static str>| {
        let mut body = String::new();
        for row in 1..=60_000 {
            let at = bad(row).unwrap_or("\"at\":1,");
            writeln!(body, "{{{at}\"pad\":\"{pad}\"}}").unwrap();
        }
        body
    };
    let late = "\"at\":9000000000000000000,";
    let bodies = [
        ("?chunked=true", body(&|row| (row == 55_000).then_some(late)), vec![55_000]),
        ("?chunked=true", body(&|row| (row == 55_000).then_some("")), vec![55_000]),
        (
            "",
            body(&|row| match row {
                7 => Some(late),
                9_000 => Some(""),
                _ => None,
            }),
            vec![7, 9_000],
        ),
    ];
    for (query, body, wanted) in bodies {
        let path = format!("/v1/tables/t/rows{query}");
        let answer = running.client().ask("POST", &path, &[("Content-Type", NDJSON)], body.as_bytes());
        assert_eq!((answer.status, answer.error().0.as_str()), (422, "schema"), "{}", answer.text());
        let shown = answer.json()["error"].clone();
        let named: Vec<_> = shown["rows"].as_array().unwrap().iter().map(|bad| bad["row"].clone()).collect();
        assert_eq!(json!(named), json!(wanted), "{shown}");
        let begins = format!("row {}, column `at`: ", wanted[0]);
        assert!(answer.error().1.starts_with(&begins), "{shown}");
    }
    let several = r#"{"tables":{"t":[{"at":1},{"pad":"a"},{"pad":"b"}]}}"#;
    let shown = running.ask("POST", "/v1/rows", several).json()["error"].clone();
    assert_eq!((&shown["rows"][0]["row"], &shown["rows"][1]["row"]), (&json!(2), &json!(3)), "{shown}");
}

/// These conflicts were taken for races and retried for 15 s.
#[test]
fn a_name_that_stays_in_the_way_is_refused_at_once() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("in-the-way");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    for view in ["vv", "t_dead"] {
        let sql = json!({ "sql": format!("CREATE VIEW {view} AS SELECT a FROM t") }).to_string();
        assert_eq!(running.ask("POST", "/v1/sql", &sql).status, 200);
    }
    let started = Instant::now();
    let bad = r#"[{"a":1},{"a":"x"}]"#;
    let dead = r#"{"tables":{"y2":[{"a":1},{"a":"x"}],"Y2_dead":[{"b":1}]}}"#;
    for (method, path, body, told) in [
        ("POST", "/v1/tables/vv/rows", r#"{"a":1}"#, "`vv` is a view, not a table"),
        ("POST", "/v1/tables/VV/rows?chunked=true", r#"{"a":1}"#, "`vv` is a view, not a table"),
        ("POST", "/v1/tables/vv/rows?create=false", r#"{"a":1}"#, "`vv` is a view, not a table"),
        ("POST", "/v1/tables/t/rows?on_error=skip", bad, "`t_dead` is a view, not a table"),
        ("POST", "/v1/rows?on_error=skip", dead, "`y2_dead` takes the bad rows of `y2`"),
        (
            "PUT",
            "/v1/tables/vv",
            r#"{"columns":[{"name":"a","type":"int64"}]}"#,
            "there is a view `vv` already",
        ),
    ] {
        let answer = running.ask(method, path, body);
        assert!(matches!(answer.status, 400 | 409), "{path}: {}", answer.text());
        assert!(answer.error().1.contains(told), "{path}: {}", answer.text());
        assert!(answer.json()["error"]["hint"].is_string(), "{path}: {}", answer.text());
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

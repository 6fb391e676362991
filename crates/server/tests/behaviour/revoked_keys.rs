//! Removing a key ends the work that was begun with it: statements, answers that are read slowly, uploads.

use engine::{Op, Transaction};
use types::{Principal, Scope, TableSet};

use super::common::{Client, TestServer, wait_until};
use super::put_key;

fn remove(running: &TestServer, name: &str) {
    let op = Op::RemoveKey { name: name.into() };
    running.engine.commit(&Principal::local(), Transaction::new(vec![op])).unwrap();
}

fn post(running: &TestServer, secret: &str, path: &str, headers: &[(&str, &str)]) -> Client {
    let bearer = format!("Bearer {secret}");
    let mut client = running.client();
    let all = [&[("Authorization", bearer.as_str())], headers].concat();
    client.head("POST", path, &all);
    client
}

/// A statement that began before its key was removed ran to its end, up to an hour if its deadline allowed that.
#[test]
fn a_statement_ends_soon_after_its_key_was_removed() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("revoked-statement");
    let _admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let secret = put_key(&running, "reader", Scope::Read, TableSet::All);
    // The statement runs so long that only the removal of the key can end it.
    let sql = r#"{"sql":"SELECT count(*) FROM generate_series(1, 10000000000) AS a(x) WHERE x % 7 = 3","deadline_ms":3600000}"#;
    let length = sql.len().to_string();
    let mut client = post(&running, &secret, "/v1/sql", &[("Content-Length", &length)]);
    client.send(sql.as_bytes()).unwrap();
    wait_until(|| running.sql.status().running > 0);
    remove(&running, "reader");
    let answer = client.answer();
    assert_eq!((answer.status, answer.error().0.as_str()), (401, "unauthorized"), "{}", answer.text());
    wait_until(|| running.sql.status().running == 0);
}

#[test]
fn an_answer_that_is_being_read_breaks_off_soon_after_its_key_was_removed() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("revoked-answer");
    let _admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let secret = put_key(&running, "reader", Scope::Read, TableSet::All);
    let sql = r#"{"sql":"SELECT x, repeat('a', 100) AS t FROM generate_series(1, 100000000) AS a(x)","deadline_ms":3600000}"#;
    let length = sql.len().to_string();
    let headers = [("Content-Length", length.as_str()), ("Accept", "application/x-ndjson")];
    let mut client = post(&running, &secret, "/v1/sql", &headers);
    client.send(sql.as_bytes()).unwrap();
    let head = client.answer_head();
    assert_eq!(head.status, 200);
    remove(&running, "reader");
    let (_, is_whole) = client.chunks_until_it_breaks();
    assert!(!is_whole, "10 GB were sent to a client whose key was removed");
    wait_until(|| running.sql.status().running == 0);
}

#[test]
fn an_upload_ends_soon_after_its_key_was_removed() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("revoked-upload");
    let _admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let secret = put_key(&running, "writer", Scope::Write, TableSet::All);
    for path in ["/v1/tables/t/rows", "/v1/tables/t/rows?chunked=true", "/v1/rows"] {
        let secret = match path {
            "/v1/tables/t/rows" => secret.clone(),
            _ => put_key(&running, "writer", Scope::Write, TableSet::All),
        };
        let headers = [("Content-Length", "1000000"), ("Content-Type", "application/x-ndjson")];
        let mut client = match path {
            "/v1/rows" => post(&running, &secret, path, &[("Content-Length", "1000000")]),
            _ => post(&running, &secret, path, &headers),
        };
        client.send(b"{\"a\":1}\n").unwrap();
        remove(&running, "writer");
        let answer = client.answer();
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
        assert!(client.is_closed(), "{path}");
    }
    assert!(running.engine.root().table("main.t").is_none());
}

/// An answer ends when its own key changes, not when another one does.
#[test]
fn keys_of_others_come_and_go_without_ending_anything() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("revoked-others");
    let secret = put_key(&running, "writer", Scope::Write, TableSet::All);
    let mut client = post(&running, &secret, "/v1/tables/t/rows", &[("Content-Length", "7")]);
    let mut other = String::new();
    for _ in 0..3 {
        other = put_key(&running, "other", Scope::Read, TableSet::All);
    }
    remove(&running, "other");
    // The refusal shows that the server has seen the removal.
    let sql = r#"{"sql":"SELECT 1"}"#;
    let length = sql.len().to_string();
    let mut refused = post(&running, &other, "/v1/sql", &[("Content-Length", &length)]);
    refused.send(sql.as_bytes()).unwrap();
    assert_eq!(refused.answer().status, 401);
    client.send(b"{\"a\":1}").unwrap();
    assert_eq!(client.answer().status, 200);
}

//! Tests who may start a storm, and from where. The storm itself is tested in the crate of the program.

mod common;

use std::net::SocketAddr;

use common::TestServer;
use engine::{ApiKey, Op, Transaction};
use polynya_server as server;
use types::{Principal, Scope, TableSet};

#[test]
fn only_an_admin_at_this_machine_starts_and_watches_a_storm() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("storm-rights", |options| {
        options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        options.storm = Some(server::StormSettings {
            program: "/does/not/exist".into(),
            root: "/does/not/exist/either".into(),
        });
    });
    let only = TableSet::Only(vec!["main.*".into()]);
    for (name, scope, tables) in [
        ("reader", Scope::Read, TableSet::All),
        ("writer", Scope::Write, TableSet::All),
        ("limited", Scope::Admin, only),
        ("admin", Scope::Admin, TableSet::All),
    ] {
        let hash = server::hash_of(name);
        let key = ApiKey { name: name.into(), hash, scope, tables, created: 0 };
        running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    }
    let ask = |method: &str, key: &str, more: &[(&str, &str)], body: &str| {
        let authorization = format!("Bearer {key}");
        let headers = [&[("Authorization", authorization.as_str())], more].concat();
        running.client().ask(method, "/v1/storm", &headers, body.as_bytes())
    };
    for method in ["GET", "POST", "DELETE"] {
        for key in ["reader", "writer"] {
            assert_eq!(ask(method, key, &[], "").status, 403, "{method} {key}");
        }
        // A storm loads the machine that serves all tables, so a key for some tables may not start one.
        let limited = ask(method, "limited", &[], "");
        assert_eq!((limited.status, limited.error().0.as_str()), (403, "forbidden"), "{method}");
        assert!(limited.error().1.contains("all tables"), "{method}: {}", limited.text());
        assert_eq!(ask(method, "nobody", &[], "").status, 401, "{method}");
        for header in ["X-Forwarded-For", "Via", "Forwarded"] {
            let answer = ask(method, "admin", &[(header, "192.0.2.1")], "");
            assert_eq!((answer.status, answer.error().0.as_str()), (403, "forbidden"), "{method} {header}");
        }
    }
    assert_eq!(ask("GET", "admin", &[], "").json()["state"], "none");
    assert_eq!(ask("DELETE", "admin", &[], "").error().0, "not_found");
    for body in ["{\"seconds\":0}", "{\"load\":\"-x\"}", "{\"root\":\"/\"}", "x"] {
        assert_eq!(ask("POST", "admin", &[], body).status, 400, "{body}");
    }
    let answer = ask("POST", "admin", &[], "");
    assert_eq!(answer.status, 503, "{}", answer.text());
    let shown = ask("GET", "admin", &[], "").json();
    assert_eq!(shown["state"], "failed", "{shown}");
    assert!(shown["error"]["message"].as_str().unwrap().contains("/does/not/exist"), "{shown}");
}

#[test]
fn a_server_without_a_program_starts_none_and_says_where_one_is() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("storm-none");
    let answer = running.ask("POST", "/v1/storm", "");
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("polynya storm"), "{}", answer.text());
    running.assert_works();
}

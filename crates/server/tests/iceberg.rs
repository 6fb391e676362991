//! The Iceberg REST catalog: every route, its answers, and its refusals.

#[path = "iceberg/commits.rs"]
mod commits;
mod common;
#[path = "iceberg/own_tables.rs"]
mod own_tables;
#[path = "iceberg/replaced_files.rs"]
mod replaced_files;
#[path = "iceberg/structure.rs"]
mod structure;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Response, TestServer};
use engine::{ApiKey, Op, Transaction};
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

const ROOT: &str = "/iceberg/v1/namespaces";

/// A server with a lake and a catalog.
struct Catalog(TestServer);

impl Catalog {
    fn start(name: &str) -> Catalog {
        Catalog::with(name, |options| options.record_requests = false)
    }

    fn with(name: &str, change: impl FnOnce(&mut polynya_server::Options)) -> Catalog {
        let running = TestServer::with_options(name, change);
        let warehouse = running.engine.dir().join("lake");
        let options = lake::Options::new(&warehouse, warehouse.to_str().unwrap());
        running.engine.register(Arc::new(lake::Materializer::new(options))).unwrap();
        Catalog(running)
    }

    fn ask(&self, method: &str, path: &str, body: Json) -> Response {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.0.ask(method, path, &text)
    }

    fn ask_as(&self, key: &str, method: &str, path: &str, body: Json) -> Response {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let key = format!("Bearer {key}");
        self.0.client().ask(method, path, &[("Authorization", &key)], text.as_bytes())
    }

    fn ok(&self, method: &str, path: &str, body: Json) -> Json {
        let answer = self.ask(method, path, body);
        match answer.status {
            200 => answer.json(),
            204 => {
                assert!(answer.body.is_empty());
                Json::Null
            }
            status => panic!("{method} {path}: {status} {}", answer.text()),
        }
    }

    /// Returns the status, type and message of a refusal, which has the form of Iceberg's errors.
    fn refused(&self, method: &str, path: &str, body: Json) -> (u16, String, String) {
        refusal(&self.ask(method, path, body))
    }

    fn namespace(&self, name: &str) {
        self.ok("POST", ROOT, json!({ "namespace": [name] }));
    }

    fn table(&self, namespace: &str, name: &str) -> Json {
        self.ok("POST", &format!("{ROOT}/{namespace}/tables"), json!({ "name": name, "schema": schema() }))
    }

    fn tables(&self, namespace: &str) -> Vec<String> {
        let found = self.ok("GET", &format!("{ROOT}/{namespace}/tables"), Json::Null);
        let names = found["identifiers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    fn load(&self, namespace: &str, name: &str) -> Json {
        self.ok("GET", &table(namespace, name), Json::Null)
    }

    fn commit(&self, namespace: &str, name: &str, requirements: Json, updates: Json) -> Response {
        let body = json!({ "requirements": requirements, "updates": updates });
        self.ask("POST", &table(namespace, name), body)
    }

    fn key(&self, name: &str, scope: Scope, tables: TableSet) -> String {
        let secret = format!("pk_{name}");
        let hash = polynya_server::hash_of(&secret);
        let key = ApiKey { name: name.into(), hash, scope, tables, created: 0 };
        self.0.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
        secret
    }

    /// Returns a path below the directory outside of the data directory in which tables may be.
    fn outside_path(&self, rest: &str) -> String {
        let path = self.0.engine.dir().parent().unwrap().join("elsewhere").join(rest);
        path.to_str().unwrap().to_owned()
    }
}

fn refusal(answer: &Response) -> (u16, String, String) {
    let error = &answer.json()["error"];
    assert_eq!(error["code"], answer.status, "{}", answer.text());
    let text = |key: &str| error[key].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned();
    (answer.status, text("type"), text("message"))
}

fn table(namespace: &str, name: &str) -> String {
    format!("{ROOT}/{namespace}/tables/{name}")
}

fn schema() -> Json {
    json!({ "type": "struct", "fields": [
        { "id": 1, "name": "id", "required": true, "type": "long" },
        { "id": 2, "name": "text", "required": false, "type": "string" } ] })
}

fn snapshot(id: i64, sequence: i64, location: &str) -> Json {
    json!({ "action": "add-snapshot", "snapshot": { "snapshot-id": id, "sequence-number": sequence,
        "timestamp-ms": 1_800_000_000_000_i64 + sequence, "schema-id": 0, "summary": { "operation": "append" },
        "manifest-list": format!("{location}/metadata/snap-{id}.avro") } })
}

fn set_main(id: i64) -> Json {
    json!({ "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id })
}

fn file(location: &Json) -> PathBuf {
    Path::new(location.as_str().unwrap()).to_owned()
}

#[test]
fn a_client_is_told_of_every_route_and_the_key_is_its_own_token() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-config");
    let config = catalog.ok("GET", "/iceberg/v1/config?warehouse=any", Json::Null);
    let endpoints: Vec<&str> =
        config["endpoints"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    for wanted in [
        "GET /v1/{prefix}/namespaces",
        "HEAD /v1/{prefix}/namespaces/{namespace}",
        "POST /v1/{prefix}/namespaces/{namespace}/register",
        "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "POST /v1/{prefix}/tables/rename",
        "POST /v1/{prefix}/transactions/commit",
        "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    ] {
        assert!(endpoints.contains(&wanted), "{wanted}: {endpoints:?}");
    }
    assert!(!endpoints.iter().any(|endpoint| endpoint.contains("oauth") || endpoint.contains("/config")));

    let secret = catalog.key("reader", Scope::Read, TableSet::All);
    let tokens = "/iceberg/v1/oauth/tokens";
    let ask = |form: &str, headers: &[(&str, &str)]| {
        let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
        all.extend(headers);
        catalog.0.client().ask("POST", tokens, &all, form.as_bytes())
    };
    let granted =
        ask(&format!("grant_type=client_credentials&client_id=me&client_secret={secret}&scope=catalog"), &[]);
    assert_eq!(granted.status, 200, "{}", granted.text());
    assert_eq!(
        (&granted.json()["access_token"], &granted.json()["token_type"]),
        (&json!(secret), &json!("bearer"))
    );
    // The encoded credentials are "me:pk_reader".
    let basic = ask("grant_type=client_credentials", &[("Authorization", "Basic bWU6cGtfcmVhZGVy")]);
    assert_eq!(basic.json()["access_token"], json!(secret));
    let exchange = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=";
    assert_eq!(ask(&format!("{exchange}{secret}"), &[]).status, 200);
    for (form, status, error) in [
        ("grant_type=client_credentials&client_secret=pk_no", 401, "invalid_client"),
        ("grant_type=client_credentials", 400, "invalid_request"),
        ("grant_type=password&client_secret=pk_reader", 400, "unsupported_grant_type"),
        ("", 400, "unsupported_grant_type"),
    ] {
        let answer = ask(form, &[]);
        assert_eq!((answer.status, &answer.json()["error"]), (status, &json!(error)), "{form}");
    }
    // Refusals that precede any route have the same form.
    let (status, kind, _) = refusal(&catalog.ask("GET", ROOT, Json::Null));
    assert_eq!((status, kind.as_str()), (401, "NotAuthorizedException"));
    let (status, kind, _) = refusal(&catalog.ask_as(&secret, "POST", ROOT, json!({ "namespace": ["a"] })));
    assert_eq!((status, kind.as_str()), (403, "ForbiddenException"));
    assert_eq!(refusal(&catalog.ask_as(&secret, "GET", "/iceberg/v1/nothing", Json::Null)).0, 404);
    assert_eq!(refusal(&catalog.ask_as(&secret, "PUT", ROOT, Json::Null)).0, 405);
}

#[test]
fn without_a_lake_there_is_no_catalog() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("iceberg-none", |options| options.catalog = None);
    for path in [ROOT, "/iceberg/v1/config"] {
        assert_eq!(refusal(&running.ask("GET", path, "")).0, 404, "{path}");
    }
    running.assert_works();
}

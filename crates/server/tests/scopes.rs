//! Tests what a key may do at each route, for every spelling of a name. The requests are generated from the table of routes: a
//! route without a request here fails the tests.

mod common;
#[path = "scopes/requests.rs"]
mod requests;
#[path = "scopes/statements.rs"]
mod statements;

use std::collections::BTreeMap;

use common::{Client, Response, TestServer};
use engine::{ApiKey, Op, Transaction};
use polynya_server as server;
use requests::{Name, RouteRequest};
use serde_json::json;
use types::{Principal, Scope, TableSet, name};

/// A server with keys, tables, and a row in each of Polynya's own tables.
struct World {
    running: TestServer,
    client: Client,
}

/// Keys that see only the namespace `main`.
const LIMITED: [(&str, Scope); 3] =
    [("some_read", Scope::Read), ("some_write", Scope::Write), ("some_admin", Scope::Admin)];
/// Keys that see all tables.
const UNLIMITED: [(&str, Scope); 2] = [("all_write", Scope::Write), ("all_admin", Scope::Admin)];

/// Names that limited keys do not see: a table, and another that an Iceberg client made.
const HIDDEN: [&str; 2] = ["secret.plums", "secret.pears"];
/// Names of the same lengths that do not exist.
const MISSING: [&str; 2] = ["absent.plums", "secret.grape"];

impl World {
    fn new(name: &str) -> World {
        let running = TestServer::with_options(name, |options| options.record_requests = false);
        let client = running.client();
        let mut world = World { running, client };
        for (name, scope) in LIMITED {
            world.key(name, scope, TableSet::Only(vec!["main.*".into()]));
        }
        for (name, scope) in UNLIMITED {
            world.key(name, scope, TableSet::All);
        }
        for table in ["main.open", "secret.plums"] {
            let rows = format!("/v1/tables/{table}/rows");
            assert_eq!(world.ask("all_admin", "POST", &rows, &[], r#"{"a":1,"text":"word"}"#).status, 200);
        }
        let namespaces = "/iceberg/v1/namespaces";
        let made = world.ask("all_admin", "POST", namespaces, &[], r#"{"namespace":["secret"]}"#);
        assert_eq!(made.status, 200, "{}", made.text());
        let pears = requests::iceberg_table("pears");
        let made = world.ask("all_admin", "POST", "/iceberg/v1/namespaces/secret/tables", &[], &pears);
        assert_eq!(made.status, 200, "{}", made.text());
        let cursor = world.ask("all_admin", "PUT", "/v1/tables/open/cursors/c", &[], r#"{"row":1}"#);
        assert_eq!(cursor.status, 201, "{}", cursor.text());
        assert!(!world.is_remembered());
        world
    }

    fn key(&self, name: &str, scope: Scope, tables: TableSet) {
        let key = ApiKey { name: name.into(), hash: server::hash_of(name), scope, tables, created: 0 };
        let put = Transaction::new(vec![Op::PutKey(key)]);
        self.running.engine.commit(&Principal::local(), put).unwrap();
    }

    /// Sends one request with a key, whose secret is its name. Only the head of a feed's answer is read.
    fn ask(&mut self, key: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let bearer = format!("Bearer {key}");
        let mut all = vec![("Authorization", bearer.as_str())];
        all.extend(headers);
        let length = body.len().to_string();
        if !body.is_empty() {
            all.push(("Content-Length", &length));
        }
        self.client.head(method, path, &all);
        self.client.send(body.as_bytes()).unwrap();
        let is_feed = path.ends_with("/tail");
        let answer =
            if method == "HEAD" || is_feed { self.client.answer_head() } else { self.client.answer() };
        if is_feed || answer.header("connection") == Some("close") {
            self.client = self.running.client();
        }
        answer
    }

    fn send(&mut self, key: &str, request: &RouteRequest) -> Response {
        let headers: Vec<_> = request.headers.to_vec();
        self.ask(key, request.method.as_str(), &request.path, &headers, &request.body)
    }

    /// Sends a request with an idempotency key and returns true if the server had seen it before.
    fn is_remembered(&mut self) -> bool {
        let headers = [("Idempotency-Key", "k")];
        let answer = self.ask("all_admin", "POST", "/v1/tables/open/rows", &headers, r#"{"a":2}"#);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.header("idempotency-replayed") == Some("true")
    }

    /// Describes the tables and views whose names pass `counts`: id, columns, indexes, number of rows and next row id of each
    /// table, the query of each view.
    fn contents(&self, counts: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let root = self.running.engine.root();
        let tables = root.tables().filter(|table| counts(&table.def().name)).map(|table| {
            let def = table.def();
            let columns: Vec<_> = def.schema.columns.iter().map(|column| &column.name).collect();
            let rows = (table.rows(), table.next_row());
            (def.name.clone(), format!("{} {columns:?} {:?} {rows:?}", def.id, def.indexes))
        });
        let views = root.views().filter(|view| counts(&view.name));
        tables.chain(views.map(|view| (view.name.clone(), view.query.clone()))).collect()
    }
}

/// Returns an answer with everything removed that differs between equal requests: the requested name, numbers, and the flag of a
/// cached answer.
fn normalized(answer: &Response, name: &Name) -> (u16, String) {
    let mut text = answer.text().replace("\"cached\":true", "\"cached\":false");
    for part in [&name.full(), &name.namespace, &name.table] {
        text = text.replace(part, "NAME");
    }
    let parts = text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty());
    (answer.status, parts.collect::<Vec<_>>().join("#"))
}

/// Returns true if an answer contains a hidden name that its request did not contain.
fn leaks_hidden_name(request: &RouteRequest, text: &str) -> bool {
    let asked = [&request.path, &request.body].iter().any(|part| part.contains("secret"));
    !asked && (text.contains("secret") || text.contains("pears"))
}

#[test]
fn a_route_asks_for_its_scope_before_anything_else() {
    let _limit = testkit::limit(240);
    let mut world = World::new("scopes-asked");
    let before = world.contents(|_| true);
    for (method, path, scope) in server::routes() {
        let Some(scope) = scope else { continue };
        for text in ["main.open", "secret.plums", "polynya.catalog", "absent.plums"] {
            let request = requests::request_for(method, path, &Name::parse(text));
            assert_eq!(world.send("nobody", &request).status, 401, "{request:?}");
            for (key, has) in LIMITED {
                // Admin routes concern the whole process, so they refuse admins of some tables.
                if has < scope || scope == Scope::Admin {
                    let answer = world.send(key, &request);
                    assert_eq!(answer.status, 403, "{key} {request:?}: {}", answer.text());
                }
            }
        }
    }
    assert_eq!(world.contents(|_| true), before);
}

/// Invariant A1.
#[test]
fn hidden_objects_are_answered_like_missing_ones() {
    let _limit = testkit::limit(240);
    let mut world = World::new("scopes-hidden");
    let before = world.contents(|_| true);
    for (method, path, scope) in server::routes().filter(|(_, path, _)| requests::contains_name(path)) {
        for (key, has) in LIMITED {
            if scope.is_some_and(|scope| has < scope || scope == Scope::Admin) {
                continue;
            }
            for text in HIDDEN {
                let asked = |world: &mut World, text: &str| {
                    let name = Name::parse(text);
                    let request = requests::request_for(method, path, &name);
                    let answer = world.send(key, &request);
                    assert!(!leaks_hidden_name(&request, &answer.text()), "{request:?}: {}", answer.text());
                    normalized(&answer, &name)
                };
                let hidden = asked(&mut world, text);
                for missing in MISSING {
                    assert_eq!(
                        hidden,
                        asked(&mut world, missing),
                        "{key} {method} {path}: {text}, {missing}"
                    );
                }
                let upper = text.to_uppercase();
                let missing = asked(&mut world, "ABSENT.PLUMS");
                assert_eq!(asked(&mut world, &upper), missing, "{key} {method} {path}: {upper}");
            }
        }
    }
    assert_eq!(world.contents(|_| true), before);
}

/// `DELETE /v1/tables/POLYNYA.catalog` was answered 200.
#[test]
fn no_route_changes_reserved_tables_in_any_spelling() {
    let _limit = testkit::limit(400);
    let mut world = World::new("scopes-reserved");
    let mut before = world.contents(name::is_reserved);
    for (method, path, _) in server::routes().filter(|(_, path, _)| requests::contains_name(path)) {
        for table in ["idempotency", "catalog", "cursors", "new"] {
            for spelled in requests::spellings(table) {
                let request = requests::request_for(method, path, &spelled);
                for key in ["some_write", "some_admin", "all_write", "all_admin"] {
                    let answer = world.send(key, &request);
                    assert!(answer.status < 500, "{key} {request:?}: {}", answer.text());
                    let now = world.contents(name::is_reserved);
                    // Cursors on Polynya's own tables are allowed. They are stored like all others in `polynya.cursors`.
                    if let (true, Some(cursors)) = (path.contains("/cursors/"), now.get("polynya.cursors")) {
                        before.insert("polynya.cursors".into(), cursors.clone());
                    }
                    // An Iceberg client may create a table whose name only resembles a reserved one.
                    let is_free = path.starts_with("/iceberg/") && !name::is_reserved(&spelled.full());
                    if let (true, Some(catalog)) = (is_free, now.get("polynya.catalog")) {
                        before.insert("polynya.catalog".into(), catalog.clone());
                    }
                    assert_eq!(now, before, "{key} {request:?}: {}", answer.text());
                }
            }
        }
    }
    assert!(world.is_remembered(), "a request is still known when it comes again");
    let pears = world.ask("all_admin", "GET", "/iceberg/v1/namespaces/secret/tables/pears", &[], "");
    assert_eq!(pears.status, 200, "{}", pears.text());
}

#[test]
fn no_statement_changes_reserved_tables_in_any_spelling() {
    let _limit = testkit::limit(400);
    let mut world = World::new("scopes-statements");
    let before = world.contents(name::is_reserved);
    for table in ["idempotency", "catalog", "cursors", "indexes", "new"] {
        for spelled in statements::spellings(table) {
            for statement in statements::all(&spelled) {
                for key in ["some_write", "all_write", "all_admin"] {
                    let sql = json!({ "sql": statement }).to_string();
                    let answer = world.ask(key, "POST", "/v1/sql", &[], &sql);
                    assert!(answer.status < 500, "{key} {statement}: {}", answer.text());
                    assert_eq!(
                        world.contents(name::is_reserved),
                        before,
                        "{key} {statement}: {}",
                        answer.text()
                    );
                    let ops = json!({ "ops": [{ "op": "sql", "sql": statement }] }).to_string();
                    let answer = world.ask(key, "POST", "/v1/transactions", &[], &ops);
                    assert!(answer.status < 500, "{key} {statement}: {}", answer.text());
                    assert_eq!(
                        world.contents(name::is_reserved),
                        before,
                        "{key} {statement}: {}",
                        answer.text()
                    );
                }
            }
        }
    }
    assert!(world.is_remembered());
}

/// `polynya.idempotency` stores answers to other keys, among them rows that RETURNING returned.
#[test]
fn a_key_for_the_records_does_not_read_answers_to_others() {
    let _limit = testkit::limit(120);
    let mut world = World::new("scopes-records");
    world.key("records", Scope::Admin, TableSet::Only(vec!["polynya.*".into()]));
    world.key("all_read", Scope::Read, TableSet::All);
    for key in ["records", "all_read"] {
        for table in ["idempotency", "IDEMPOTENCY", "catalog"] {
            let sql = json!({ "sql": format!("SELECT * FROM polynya.{table}") }).to_string();
            let answer = world.ask(key, "POST", "/v1/sql", &[], &sql);
            assert_eq!((answer.status, answer.error().0.as_str()), (404, "not_found"), "{key} {table}");
            let rows = world.ask(key, "GET", &format!("/v1/tables/polynya.{table}/rows"), &[], "");
            assert_eq!(rows.status, 404, "{key} {table}: {}", rows.text());
        }
        let listed = world.ask(key, "GET", "/v1/tables", &[], "").text();
        assert!(listed.contains("polynya.cursors") && !listed.contains("polynya.idempotency"), "{listed}");
    }
    let sql = json!({ "sql": "SELECT note FROM polynya.idempotency" }).to_string();
    assert_eq!(world.ask("all_admin", "POST", "/v1/sql", &[], &sql).status, 200);
}

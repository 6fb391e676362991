//! Polynya's own tables in the catalog: who sees them, and that no other program changes them or takes their names.

use super::*;

fn insert_and_land(catalog: &Catalog, table: &str, rows: Json) {
    let answer = catalog.ask("POST", &format!("/v1/tables/{table}/rows"), rows);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(catalog.ask("POST", &format!("/v1/tables/{table}/commit"), Json::Null).status, 200);
}

#[test]
fn polynyas_tables_are_there_with_their_newest_metadata() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-own");
    insert_and_land(&catalog, "events", json!([{ "n": 1 }, { "n": 2 }]));
    insert_and_land(&catalog, "sensors.readings", json!([{ "c": 1.5 }]));
    let dry = json!({ "columns": [{ "name": "a", "type": "int64" }], "lake": false });
    assert_eq!(catalog.ask("PUT", "/v1/tables/dry", dry).status, 201);
    assert_eq!(catalog.ok("GET", ROOT, Json::Null)["namespaces"], json!([["main"], ["sensors"]]));
    assert_eq!(catalog.tables("main"), ["events"], "a table without a lake is not an Iceberg table");
    assert_eq!(catalog.refused("GET", &table("main", "dry"), Json::Null).0, 404);
    let loaded = catalog.load("main", "events");
    assert!(file(&loaded["metadata-location"]).exists());
    let stored: Json =
        serde_json::from_slice(&std::fs::read(file(&loaded["metadata-location"])).unwrap()).unwrap();
    assert_eq!(loaded["metadata"]["current-snapshot-id"], stored["current-snapshot-id"]);
    assert_eq!(loaded["metadata"]["schemas"], stored["schemas"]);
    insert_and_land(&catalog, "events", json!([{ "n": 3 }]));
    let newer = catalog.load("main", "events");
    assert_ne!(newer["metadata-location"], loaded["metadata-location"]);
    assert_eq!(newer["metadata"]["snapshots"].as_array().unwrap().len(), 2);
    let refs = catalog.ok("GET", &format!("{}?snapshots=refs", table("main", "events")), Json::Null);
    assert_eq!(refs["metadata"]["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(catalog.ask("HEAD", &table("main", "events"), Json::Null).status, 204);
    assert_eq!(catalog.ask("HEAD", &table("main", "Events"), Json::Null).status, 404);
    // A table is in the catalog before it has rows.
    assert_eq!(
        catalog
            .ask("PUT", "/v1/tables/empty", json!({ "columns": [{ "name": "a", "type": "int64" }] }))
            .status,
        201
    );
    assert_eq!(catalog.load("main", "empty")["metadata"].get("current-snapshot-id"), None);
}

/// The metadata of a recreated table begins at the same path as that of the old one. A client that knew the old one was told that
/// nothing had changed.
#[test]
fn the_etag_of_a_dropped_table_does_not_match_the_next_one_of_its_name() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-anew");
    insert_and_land(&catalog, "events", json!([{ "a": 1 }]));
    let knows = |etag: &str| {
        let headers = [("If-None-Match", etag)];
        catalog.0.client().ask("GET", &table("main", "events"), &headers, b"")
    };
    let first = catalog.ask("GET", &table("main", "events"), Json::Null);
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(knows(&etag).status, 304);
    assert_eq!(catalog.ask("POST", "/v1/sql", json!({ "sql": "DROP TABLE events" })).status, 200);
    insert_and_land(&catalog, "events", json!([{ "b": 2 }]));
    let second = knows(&etag);
    assert_eq!(second.status, 200, "{}", second.text());
    let of = |answer: &Response, key: &str| answer.json()[key].clone();
    assert_eq!(
        of(&second, "metadata-location"),
        of(&first, "metadata-location"),
        "otherwise the test proves nothing"
    );
    assert_ne!(of(&second, "metadata")["table-uuid"], of(&first, "metadata")["table-uuid"]);
    assert_ne!(second.header("etag").unwrap(), etag);
}

#[test]
fn nobody_else_commits_to_polynyas_tables_or_drops_them() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-own-commits");
    insert_and_land(&catalog, "events", json!([{ "n": 1 }]));
    let loaded = catalog.load("main", "events");
    let location = loaded["metadata"]["location"].as_str().unwrap();
    let sequence = loaded["metadata"]["last-sequence-number"].as_i64().unwrap() + 1;
    for operation in ["append", "overwrite", "delete"] {
        let mut add = snapshot(7, sequence, location);
        add["snapshot"]["summary"]["operation"] = json!(operation);
        let (status, kind, message) =
            refusal(&catalog.commit("main", "events", json!([]), json!([add, set_main(7)])));
        // The answer is not a conflict: PyIceberg and Spark would retry without showing the reason.
        assert_eq!((status, kind.as_str()), (403, "ForbiddenException"));
        assert!(message.contains("a table that Polynya writes") && message.contains(operation), "{message}");
    }
    for updates in [
        json!([{ "action": "set-properties", "updates": { "polynya.row": "9" } }]),
        json!([{ "action": "remove-snapshots", "snapshot-ids": [loaded["metadata"]["current-snapshot-id"]] }]),
        json!([{ "action": "set-location", "location": "/tmp" }]),
        json!([{ "action": "add-schema", "schema": schema() }]),
    ] {
        assert_eq!(
            refusal(&catalog.commit("main", "events", json!([]), updates.clone())).0,
            403,
            "{updates}"
        );
    }
    // Updates that change nothing are accepted, but their requirements are checked.
    let same = json!([{ "action": "assign-uuid", "uuid": loaded["metadata"]["table-uuid"] }]);
    assert_eq!(catalog.commit("main", "events", json!([]), same.clone()).json(), loaded);
    let wrong = json!([{ "type": "assert-table-uuid", "uuid": "x" }]);
    assert_eq!(catalog.commit("main", "events", wrong, same).status, 409);
    let change = json!({ "identifier": { "namespace": ["main"], "name": "events" }, "requirements": [],
        "updates": [{ "action": "set-properties", "updates": { "a": "b" } }] });
    let (status, ..) =
        catalog.refused("POST", "/iceberg/v1/transactions/commit", json!({ "table-changes": [change] }));
    assert_eq!(status, 403);

    for (method, path) in [
        ("DELETE", table("main", "events")),
        ("DELETE", format!("{}?purgeRequested=true", table("main", "events"))),
    ] {
        let (status, _, message) = catalog.refused(method, &path, Json::Null);
        assert_eq!(status, 403);
        assert!(message.contains("is a table of Polynya"), "{message}");
    }
    let rename = |from: (&str, &str), to: (&str, &str)| {
        let body = json!({ "source": { "namespace": [from.0], "name": from.1 }, "destination": { "namespace": [to.0], "name": to.1 } });
        refusal(&catalog.ask("POST", "/iceberg/v1/tables/rename", body))
    };
    assert_eq!(rename(("main", "events"), ("main", "other")).0, 403);
    catalog.table("main", "theirs");
    assert_eq!(rename(("main", "theirs"), ("main", "events")).1, "AlreadyExistsException");
    assert_eq!(
        catalog.refused("DELETE", &format!("{ROOT}/main"), Json::Null).1,
        "NamespaceNotEmptyException"
    );
    // None of the refused changes reached the table.
    insert_and_land(&catalog, "events", json!([{ "n": 2 }]));
    assert_eq!(catalog.load("main", "events")["metadata"]["table-uuid"], loaded["metadata"]["table-uuid"]);
    // Its files cannot be registered as another table.
    let body = json!({ "name": "mine", "metadata-location": loaded["metadata-location"] });
    assert_eq!(catalog.refused("POST", &format!("{ROOT}/main/register"), body).0, 400);
}

#[test]
fn a_name_belongs_to_polynya_or_to_others_and_never_to_both() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-names");
    let new = |name: &str| json!({ "name": name, "schema": schema() });
    let tables = format!("{ROOT}/main/tables");
    insert_and_land(&catalog, "events", json!([{ "n": 1 }]));
    let dry = json!({ "columns": [{ "name": "a", "type": "int64" }], "lake": false });
    assert_eq!(catalog.ask("PUT", "/v1/tables/dry", dry).status, 201);
    for taken in ["events", "dry"] {
        let (status, kind, _) = catalog.refused("POST", &tables, new(taken));
        assert_eq!((status, kind.as_str()), (409, "AlreadyExistsException"), "{taken}");
        let mut staged = new(taken);
        staged["stage-create"] = json!(true);
        assert_eq!(catalog.refused("POST", &tables, staged).0, 409);
    }
    // The reverse also holds, for every way to create a table.
    let made = catalog.ok("POST", &tables, new("theirs"));
    let body = json!({ "columns": [{ "name": "a", "type": "int64" }] });
    for (method, path, body) in [
        ("PUT", "/v1/tables/theirs", body),
        ("POST", "/v1/tables/theirs/rows", json!([{ "a": 1 }])),
        ("POST", "/v1/sql", json!({ "sql": "CREATE TABLE theirs (a BIGINT)" })),
        ("POST", "/v1/sql", json!({ "sql": "ALTER TABLE dry RENAME TO theirs" })),
    ] {
        let refused = catalog.ask(method, path, body);
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
        assert!(refused.text().contains("of another program"), "{}", refused.text());
    }
    assert_eq!(catalog.load("main", "theirs"), made);
    assert!(!catalog.0.engine.dir().join("lake/main/theirs").exists());
    // A failed attempt reserves no name, and dropping a table frees its name.
    assert_eq!(catalog.refused("POST", &tables, json!({ "name": "free", "schema": {} })).0, 400);
    insert_and_land(&catalog, "free", json!([{ "a": 1 }]));
    catalog.ok("DELETE", &table("main", "theirs"), Json::Null);
    insert_and_land(&catalog, "theirs", json!([{ "a": 1 }]));
    assert_eq!(catalog.tables("main"), ["events", "free", "theirs"]);
    assert!(file(&made["metadata-location"]).exists(), "dropped without purge");
    assert_eq!(catalog.ask("DELETE", "/v1/tables/theirs", Json::Null).status, 200);
    let body = json!({ "name": "theirs", "metadata-location": made["metadata-location"] });
    assert_eq!(catalog.ok("POST", &format!("{ROOT}/main/register"), body), made);
}

#[test]
fn a_key_sees_what_it_may_and_nothing_else() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-keys");
    insert_and_land(&catalog, "events", json!([{ "n": 1 }]));
    insert_and_land(&catalog, "sensors.secret", json!([{ "n": 1 }]));
    catalog.namespace("lab");
    for name in ["open", "closed"] {
        catalog.table("lab", name);
    }
    let only = |names: &[&str]| TableSet::Only(names.iter().map(|name| (*name).to_owned()).collect());
    let admin = catalog.key("admin", Scope::Admin, TableSet::All);
    let key = catalog.key("some", Scope::Write, only(&["main.events", "lab.open", "own.*"]));
    let ask = |method: &str, path: &str, body: Json| catalog.ask_as(&key, method, path, body);
    assert_eq!(ask("GET", ROOT, Json::Null).json()["namespaces"], json!([["lab"], ["main"]]));
    let listed = ask("GET", &format!("{ROOT}/lab/tables"), Json::Null).json();
    assert_eq!(listed["identifiers"], json!([{ "namespace": ["lab"], "name": "open" }]));
    assert_eq!(ask("GET", &table("main", "events"), Json::Null).status, 200);
    assert_eq!(ask("GET", &table("lab", "open"), Json::Null).status, 200);
    // A hidden table is answered like a missing one at every route.
    let missing = refusal(&ask("GET", &table("lab", "nothing"), Json::Null));
    for (method, path, body) in [
        ("GET", table("lab", "closed"), Json::Null),
        ("DELETE", table("lab", "closed"), Json::Null),
        ("POST", table("lab", "closed"), json!({ "requirements": [], "updates": [] })),
        ("POST", format!("{}/metrics", table("lab", "closed")), json!({ "report-type": "x" })),
        ("GET", table("sensors", "secret"), Json::Null),
        ("DELETE", table("sensors", "secret"), Json::Null),
    ] {
        let (status, kind, _) = refusal(&ask(method, &path, body));
        assert_eq!((status, kind), (missing.0, missing.1.clone()), "{method} {path}");
    }
    assert_eq!(ask("HEAD", &table("sensors", "secret"), Json::Null).status, 404);
    assert_eq!(refusal(&ask("GET", &format!("{ROOT}/sensors"), Json::Null)).1, "NoSuchNamespaceException");
    // A key cannot take names that it may not see, and the answer does not tell if they are taken.
    let new = |name: &str| json!({ "name": name, "schema": schema() });
    let of = |answer: Response| (answer.status, answer.text().replace("closed", "…").replace("nothing", "…"));
    let taken = of(ask("POST", &format!("{ROOT}/lab/tables"), new("closed")));
    assert_eq!(taken, of(ask("POST", &format!("{ROOT}/lab/tables"), new("nothing"))));
    assert_eq!(taken.0, 403);
    let rename = json!({ "source": { "namespace": ["lab"], "name": "open" }, "destination": { "namespace": ["lab"], "name": "closed" } });
    assert_eq!(ask("POST", "/iceberg/v1/tables/rename", rename).status, 403);
    assert_eq!(ask("POST", ROOT, json!({ "namespace": ["sensors"] })).status, 403);
    // The key may create and drop tables in its own namespace.
    assert_eq!(ask("POST", ROOT, json!({ "namespace": ["own"] })).status, 200);
    assert_eq!(ask("POST", &format!("{ROOT}/own/tables"), new("t")).status, 200);
    assert_eq!(ask("DELETE", &table("own", "t"), Json::Null).status, 204);
    // Only admins see the rows of a vault, and so its files.
    let mut vault = site::definition("main.notes").unwrap();
    vault.options.lake = Some(true);
    let create = Transaction::new(vec![Op::CreateTable { def: vault, if_absent: false }]);
    catalog.0.engine.commit(&Principal::local(), create).unwrap();
    let reader = catalog.key("reader", Scope::Read, TableSet::All);
    let writer = catalog.key("writer", Scope::Write, TableSet::All);
    assert_eq!(catalog.ask_as(&admin, "GET", &table("main", "notes"), Json::Null).status, 200);
    assert_eq!(catalog.ask_as(&reader, "GET", &table("main", "notes"), Json::Null).status, 404);
    assert!(
        !catalog.ask_as(&reader, "GET", &format!("{ROOT}/main/tables"), Json::Null).text().contains("notes")
    );
    let hidden = catalog.ask_as(&writer, "POST", &format!("{ROOT}/main/tables"), new("notes"));
    assert_eq!(hidden.status, 403, "{}", hidden.text());
    assert_eq!(catalog.ask_as(&reader, "DELETE", &table("lab", "open"), Json::Null).status, 403);
    assert_eq!(catalog.ask_as(&reader, "GET", &table("sensors", "secret"), Json::Null).status, 200);
}

//! Namespaces, tables and views are created, listed, renamed and dropped.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::*;

#[test]
fn namespaces_have_properties_and_parts_and_go_when_they_are_empty() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-namespaces");
    assert_eq!(catalog.ok("GET", ROOT, Json::Null)["namespaces"], json!([["main"]]));
    let made =
        catalog.ok("POST", ROOT, json!({ "namespace": ["lab"], "properties": { "owner": "me", "a": "1" } }));
    assert_eq!(made, json!({ "namespace": ["lab"], "properties": { "owner": "me", "a": "1" } }));
    assert_eq!(
        catalog.refused("POST", ROOT, json!({ "namespace": ["lab"] })),
        (409, "AlreadyExistsException".into(), "Namespace already exists: lab".into())
    );
    assert_eq!(catalog.refused("POST", ROOT, json!({ "namespace": ["main"] })).0, 409);
    let lab = format!("{ROOT}/lab");
    assert_eq!(catalog.ask("HEAD", &lab, Json::Null).status, 204);
    assert_eq!(catalog.ask("HEAD", &format!("{ROOT}/no"), Json::Null).status, 404);
    let (status, kind, message) = catalog.refused("GET", &format!("{ROOT}/no"), Json::Null);
    assert_eq!(
        (status, kind.as_str(), message.as_str()),
        (404, "NoSuchNamespaceException", "Namespace does not exist: no")
    );

    let told = catalog.ok(
        "POST",
        &format!("{lab}/properties"),
        json!({ "removals": ["a", "b"], "updates": { "c": "3" } }),
    );
    assert_eq!(told, json!({ "updated": ["c"], "removed": ["a"], "missing": ["b"] }));
    // A namespace without a location shows the default one, and new tables may be placed there.
    let place = |of: &str| format!("{}/_catalog/{of}", catalog.0.engine.dir().join("lake").to_str().unwrap());
    assert_eq!(
        catalog.ok("GET", &lab, Json::Null)["properties"],
        json!({ "owner": "me", "c": "3", "location": place("lab") })
    );
    let put = json!({ "name": "put", "schema": schema(), "location": format!("{}/put-1", place("lab")) });
    catalog.ok("POST", &format!("{lab}/tables"), put);
    catalog.ok("DELETE", &format!("{lab}/tables/put"), Json::Null);
    catalog.ok("POST", &format!("{lab}/properties"), json!({ "updates": { "location": "/else" } }));
    assert_eq!(catalog.ok("GET", &lab, Json::Null)["properties"]["location"], "/else");
    catalog.ok("POST", &format!("{lab}/properties"), json!({ "removals": ["location"] }));
    assert_eq!(catalog.ok("GET", &lab, Json::Null)["properties"]["location"], place("lab").as_str());
    let both = json!({ "removals": ["c"], "updates": { "c": "4" } });
    assert_eq!(catalog.refused("POST", &format!("{lab}/properties"), both).0, 422);
    assert_eq!(
        catalog.refused("POST", &format!("{lab}/properties"), json!({ "updates": { "c": 4 } })).0,
        400
    );
    // The namespace `main`, which always exists, has properties too.
    catalog.ok("POST", &format!("{ROOT}/main/properties"), json!({ "updates": { "x": "y" } }));
    assert_eq!(
        catalog.ok("GET", &format!("{ROOT}/main"), Json::Null)["properties"],
        json!({ "x": "y", "location": place("main") })
    );
    assert_eq!(catalog.refused("DELETE", &format!("{ROOT}/main"), Json::Null).0, 400);

    // Nested namespaces.
    assert_eq!(catalog.refused("POST", ROOT, json!({ "namespace": ["up", "down"] })).0, 404);
    catalog.ok("POST", ROOT, json!({ "namespace": ["lab", "deep"] }));
    assert_eq!(catalog.ok("GET", ROOT, Json::Null)["namespaces"], json!([["lab"], ["main"]]));
    assert_eq!(
        catalog.ok("GET", &format!("{ROOT}?parent=lab"), Json::Null)["namespaces"],
        json!([["lab", "deep"]])
    );
    assert_eq!(catalog.refused("GET", &format!("{ROOT}?parent=no"), Json::Null).0, 404);
    catalog.table("lab%1Fdeep", "t");
    assert_eq!(catalog.tables("lab%1Fdeep"), ["t"]);
    assert!(catalog.tables("lab").is_empty());
    for full in ["lab", "lab%1Fdeep"] {
        let (status, kind, message) = catalog.refused("DELETE", &format!("{ROOT}/{full}"), Json::Null);
        assert_eq!((status, kind.as_str()), (409, "NamespaceNotEmptyException"));
        assert!(message.contains("is not empty"), "{message}");
    }
    catalog.ok("DELETE", &table("lab%1Fdeep", "t"), Json::Null);
    catalog.ok("DELETE", &format!("{ROOT}/lab%1Fdeep"), Json::Null);
    catalog.ok("DELETE", &lab, Json::Null);
    assert_eq!(catalog.refused("DELETE", &lab, Json::Null).0, 404);

    for bad in
        [json!([]), json!([""]), json!(["a.b"]), json!(["a\nb"]), json!([" a"]), json!(["x".repeat(129)])]
    {
        assert_eq!(catalog.refused("POST", ROOT, json!({ "namespace": bad })).0, 400, "{bad}");
    }
    assert_eq!(catalog.refused("POST", ROOT, json!({ "namespace": ["Polynya"] })).0, 403);
    for bad in ["", "{", "[]", "{\"namespace\":\"a\"}"] {
        assert_eq!(refusal(&catalog.0.ask("POST", ROOT, bad)).0, 400, "{bad}");
    }
}

#[test]
fn long_lists_come_in_pages() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-pages");
    catalog.namespace("lab");
    for n in 0..7 {
        catalog.table("lab", &format!("t{n}"));
        catalog.namespace(&format!("n{n}"));
    }
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = catalog.ok("GET", &format!("{ROOT}/lab/tables?pageToken={token}&pageSize=3"), Json::Null);
        let names = page["identifiers"].as_array().unwrap();
        assert!(names.len() <= 3);
        found.extend(names.iter().map(|one| one["name"].as_str().unwrap().to_owned()));
        match page["next-page-token"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, catalog.tables("lab"));
    assert_eq!(found.len(), 7);
    // A request without a page token gets everything.
    let all = catalog.ok("GET", &format!("{ROOT}?pageSize=2"), Json::Null);
    assert_eq!((all["namespaces"].as_array().unwrap().len(), &all["next-page-token"]), (9, &Json::Null));
    let page = catalog.ok("GET", &format!("{ROOT}?pageToken=&pageSize=8"), Json::Null);
    assert_eq!(page["namespaces"].as_array().unwrap().len(), 8);
    for bad in ["0", "-1", "many"] {
        assert_eq!(catalog.refused("GET", &format!("{ROOT}?pageToken=&pageSize={bad}"), Json::Null).0, 400);
    }
}

#[test]
fn a_table_is_made_loaded_renamed_and_dropped() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-tables");
    let missing =
        catalog.refused("POST", &format!("{ROOT}/lab/tables"), json!({ "name": "t", "schema": schema() }));
    assert_eq!((missing.0, missing.1.as_str()), (404, "NoSuchNamespaceException"));
    catalog.namespace("lab");
    let made = catalog.table("lab", "t");
    assert_eq!(made["config"], json!({}));
    assert!(file(&made["metadata-location"]).exists());
    let loaded = catalog.ask("GET", &table("lab", "t"), Json::Null);
    assert_eq!(loaded.json(), made);
    // An unchanged table is not sent twice.
    let etag = loaded.header("etag").unwrap().to_owned();
    let again = catalog.0.client().ask("GET", &table("lab", "t"), &[("If-None-Match", &etag)], b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(catalog.ask("HEAD", &table("lab", "t"), Json::Null).status, 204);
    assert_eq!(catalog.ask("HEAD", &table("lab", "u"), Json::Null).status, 404);
    let (status, kind, message) = catalog.refused("GET", &table("lab", "u"), Json::Null);
    assert_eq!(
        (status, kind.as_str(), message.as_str()),
        (404, "NoSuchTableException", "Table does not exist: lab.u")
    );
    assert_eq!(catalog.refused("GET", &table("no", "t"), Json::Null).1, "NoSuchTableException");
    let twice =
        catalog.refused("POST", &format!("{ROOT}/lab/tables"), json!({ "name": "t", "schema": schema() }));
    assert_eq!(twice, (409, "AlreadyExistsException".into(), "Table already exists: lab.t".into()));
    assert_eq!(catalog.refused("GET", &format!("{}?snapshots=some", table("lab", "t")), Json::Null).0, 400);

    let rename = |from: (&str, &str), to: (&str, &str)| {
        let body = json!({ "source": { "namespace": [from.0], "name": from.1 },
            "destination": { "namespace": [to.0], "name": to.1 } });
        catalog.ask("POST", "/iceberg/v1/tables/rename", body)
    };
    catalog.namespace("attic");
    catalog.table("attic", "there");
    assert_eq!(refusal(&rename(("lab", "u"), ("lab", "v"))).1, "NoSuchTableException");
    assert_eq!(refusal(&rename(("lab", "t"), ("no", "t"))).1, "NoSuchNamespaceException");
    assert_eq!(refusal(&rename(("lab", "t"), ("attic", "there"))).1, "AlreadyExistsException");
    assert_eq!(refusal(&rename(("lab", "t"), ("attic", "a.b"))).0, 400);
    assert_eq!(rename(("lab", "t"), ("attic", "t")).status, 204);
    assert_eq!(catalog.load("attic", "t"), made, "its files stay where they are");
    assert!(catalog.tables("lab").is_empty());
    // Names may hold characters that paths may not.
    catalog.namespace("a/b");
    let odd = catalog.table("a%2Fb", "x/y\\z");
    let location = odd["metadata"]["location"].as_str().unwrap();
    assert!(
        location.starts_with(catalog.0.engine.dir().join("lake/_catalog").to_str().unwrap()),
        "{location}"
    );
    assert!(location.contains("/_catalog/a_b~"), "{location}");
    // A new table of the old name has its own files.
    let other = catalog.table("lab", "t");
    assert_ne!(other["metadata"]["location"], made["metadata"]["location"]);

    catalog.ok("POST", &format!("{}/metrics", table("attic", "t")), json!({ "report-type": "scan-report" }));
    assert_eq!(catalog.refused("POST", &format!("{}/metrics", table("attic", "t")), json!({})).0, 400);
    assert_eq!(
        catalog.refused("POST", &format!("{}/metrics", table("no", "t")), json!({ "report-type": "x" })).0,
        404
    );

    catalog.ok("DELETE", &table("attic", "t"), Json::Null);
    assert_eq!(catalog.refused("DELETE", &table("attic", "t"), Json::Null).1, "NoSuchTableException");
    assert!(file(&made["metadata-location"]).exists(), "dropped without purge, its files stay");
    // The table can be registered again.
    let body = json!({ "name": "back", "metadata-location": made["metadata-location"] });
    assert_eq!(catalog.ok("POST", &format!("{ROOT}/attic/register"), body.clone()), made);
    assert_eq!(
        catalog.refused("POST", &format!("{ROOT}/attic/register"), body.clone()).1,
        "AlreadyExistsException"
    );
    let mut twice = body;
    twice["name"] = json!("twice");
    assert!(catalog.refused("POST", &format!("{ROOT}/attic/register"), twice).2.contains("of another table"));
    catalog.ok("DELETE", &format!("{}?purgeRequested=true", table("attic", "back")), Json::Null);
    assert!(!file(&made["metadata"]["location"]).exists());
    assert!(file(&other["metadata-location"]).exists());
    assert_eq!(
        catalog.refused("DELETE", &format!("{}?purgeRequested=yes", table("lab", "t")), Json::Null).0,
        400
    );
}

/// Iceberg's Java library omits sequence numbers of snapshots that a table got while it was in format 1, and also their
/// summaries.
#[test]
fn a_table_that_was_upgraded_from_format_1_is_registered_and_committed_to() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-upgraded");
    catalog.namespace("lab");
    let made = catalog.table("lab", "t");
    let location = made["metadata"]["location"].as_str().unwrap().to_owned();
    let first = catalog.commit("lab", "t", json!([]), json!([snapshot(1, 1, &location), set_main(1)]));
    let mut metadata = first.json()["metadata"].clone();
    catalog.ok("DELETE", &table("lab", "t"), Json::Null);
    let upgraded = metadata["snapshots"][0].as_object_mut().unwrap();
    ["sequence-number", "summary"].iter().for_each(|gone| drop(upgraded.remove(*gone)));
    metadata["last-sequence-number"] = json!(0);
    let path = format!("{location}/metadata/00009-upgraded.metadata.json");
    std::fs::write(&path, metadata.to_string()).unwrap();
    let body = json!({ "name": "t", "metadata-location": path });
    let found = catalog.ok("POST", &format!("{ROOT}/lab/register"), body);
    assert_eq!(found["metadata"]["current-snapshot-id"], 1);
    assert_eq!(catalog.load("lab", "t")["metadata"]["snapshots"].as_array().unwrap().len(), 1);
    let second = catalog.commit("lab", "t", json!([]), json!([snapshot(2, 1, &location), set_main(2)]));
    assert_eq!(second.json()["metadata"]["current-snapshot-id"], 2);
}

/// One flipped bit made a column `id` a column `kd`, and it was served.
#[test]
fn a_flipped_bit_in_the_metadata_of_a_table_is_never_served() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-flipped");
    catalog.namespace("lab");
    let made = catalog.table("lab", "t");
    let path = file(&made["metadata-location"]);
    let whole = std::fs::read(&path).unwrap();
    let mut said = 0;
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, flipped).unwrap();
        let answer = catalog.ask("GET", &table("lab", "t"), Json::Null);
        // If the flip hits the name of the checksum, the file counts as one without a checksum.
        let mut found = answer.json();
        if answer.status == 200 {
            let others = found["metadata"].as_object_mut().unwrap();
            others.retain(|name, _| made["metadata"].get(name).is_some());
            assert_eq!(found, made, "byte {at}");
        } else {
            said += 1;
        }
    }
    assert!(said > whole.len() - 20, "{said} of {}", whole.len());
}

#[test]
fn files_are_written_and_read_nowhere_but_where_tables_may_be() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-places");
    catalog.namespace("lab");
    let dir = catalog.0.engine.dir().to_owned();
    let dir = dir.to_str().unwrap();
    let made = catalog.table("lab", "t");
    let taken = made["metadata"]["location"].as_str().unwrap();
    let new = |location: &str| {
        let body = json!({ "name": "new", "schema": schema(), "location": location });
        catalog.ask("POST", &format!("{ROOT}/lab/tables"), body)
    };
    for bad in [
        "/etc".to_owned(),
        "relative".to_owned(),
        "s3://bucket/t".to_owned(),
        format!("{dir}/lake/main/events"),
        format!("{dir}/lake/_catalog/../main/events"),
        format!("{dir}/log"),
        format!("{dir}/lake/_catalog"),
        taken.to_owned(),
        format!("{taken}/inside"),
        format!("file://{taken}"),
        Path::new(taken).parent().unwrap().to_str().unwrap().to_owned(),
    ] {
        let (status, kind, _) = refusal(&new(&bad));
        assert_eq!(status, 400, "{bad}: {kind}");
    }
    assert!(!Path::new(dir).join("lake/main").exists());
    let elsewhere = catalog.outside_path("t");
    assert_eq!(new(&elsewhere).json()["metadata"]["location"], json!(elsewhere));
    // A commit may move a table only to a place where a client may create one.
    let moved = |to: &str| {
        catalog.commit("lab", "new", json!([]), json!([{ "action": "set-location", "location": to }]))
    };
    assert_eq!(moved("/etc").status, 400);
    assert_eq!(moved(taken).status, 400);
    let further = catalog.outside_path("further");
    assert_eq!(moved(&format!("file://{further}")).status, 200);
    assert!(catalog.load("lab", "new")["metadata-location"].as_str().unwrap().contains(&further));
    // A registered metadata file must lie in such a place, and so must all files that it names.
    let register = |location: &str| {
        let body = json!({ "name": "found", "metadata-location": location });
        refusal(&catalog.ask("POST", &format!("{ROOT}/lab/register"), body))
    };
    for bad in [
        "/etc/passwd",
        "/etc/x.metadata.json",
        &format!("{dir}/MANIFEST"),
        &catalog.outside_path("none.metadata.json"),
    ] {
        assert_eq!(register(bad).0, 400, "{bad}");
    }
    let text = made["metadata"].to_string().replace(taken, &format!("{dir}/lake/main/events"));
    let path = catalog.outside_path("evil.metadata.json");
    std::fs::write(&path, text).unwrap();
    assert_eq!(register(&path).0, 400);
    std::fs::write(&path, "{}").unwrap();
    assert_eq!(register(&path).0, 400);
}

#[test]
fn views_are_kept_beside_tables_under_names_of_their_own() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-views");
    catalog.namespace("lab");
    let version = |sql: &str| {
        json!({ "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": ["lab"],
            "representations": [{ "type": "sql", "dialect": "spark", "sql": sql }] })
    };
    let new = |name: &str| json!({ "name": name, "schema": schema(), "properties": { "a": "b" }, "view-version": version("select 1") });
    let views = format!("{ROOT}/lab/views");
    let view = |name: &str| format!("{views}/{name}");
    let made = catalog.ok("POST", &views, new("v"));
    assert_eq!(made["metadata"]["current-version-id"], 1);
    assert_eq!(catalog.ok("GET", &view("v"), Json::Null), made);
    assert_eq!(catalog.ask("HEAD", &view("v"), Json::Null).status, 204);
    assert_eq!(catalog.ask("HEAD", &view("w"), Json::Null).status, 404);
    assert_eq!(catalog.refused("GET", &view("w"), Json::Null).1, "NoSuchViewException");
    let listed = catalog.ok("GET", &views, Json::Null);
    assert_eq!(listed["identifiers"], json!([{ "namespace": ["lab"], "name": "v" }]));
    assert!(catalog.tables("lab").is_empty());
    // Tables and views share one set of names.
    assert_eq!(catalog.refused("POST", &views, new("v")).2, "View already exists: lab.v");
    let as_table =
        catalog.refused("POST", &format!("{ROOT}/lab/tables"), json!({ "name": "v", "schema": schema() }));
    assert_eq!((as_table.0, as_table.2.as_str()), (409, "View with same name already exists: lab.v"));
    catalog.table("lab", "t");
    assert_eq!(catalog.refused("POST", &views, new("t")).2, "Table with same name already exists: lab.t");
    assert_eq!(catalog.refused("GET", &view("t"), Json::Null).0, 404);
    assert_eq!(catalog.refused("GET", &table("lab", "v"), Json::Null).0, 404);

    let uuid = made["metadata"]["view-uuid"].clone();
    let replace = |uuid: Json, sql: &str| {
        let updates = json!([
            { "action": "add-schema", "schema": schema() },
            { "action": "add-view-version", "view-version": version(sql) },
            { "action": "set-current-view-version", "view-version-id": -1 } ]);
        let body =
            json!({ "requirements": [{ "type": "assert-view-uuid", "uuid": uuid }], "updates": updates });
        catalog.ask("POST", &view("v"), body)
    };
    let second = replace(uuid.clone(), "select 2");
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!(second.json()["metadata"]["current-version-id"], 2);
    assert!(!file(&made["metadata-location"]).exists(), "no view names it any more");
    assert_eq!(refusal(&replace(json!("x"), "select 3")).1, "CommitFailedException");
    assert_eq!(refusal(&catalog.ask("POST", &view("w"), json!({ "updates": [] }))).1, "NoSuchViewException");
    assert_eq!(
        refusal(&catalog.ask("POST", &view("v"), json!({ "updates": [{ "action": "add-snapshot" }] }))).0,
        400
    );

    let rename = |from: &str, to: &str| {
        let body = json!({ "source": { "namespace": ["lab"], "name": from }, "destination": { "namespace": ["lab"], "name": to } });
        catalog.ask("POST", "/iceberg/v1/views/rename", body)
    };
    assert_eq!(refusal(&rename("v", "t")).2, "Cannot rename lab.v to lab.t. Table already exists");
    assert_eq!(refusal(&rename("t", "u")).1, "NoSuchViewException");
    assert_eq!(rename("v", "w").status, 204);
    let kept = catalog.ok("GET", &view("w"), Json::Null);
    assert_eq!(catalog.refused("DELETE", &format!("{ROOT}/lab"), Json::Null).1, "NamespaceNotEmptyException");
    catalog.ok("DELETE", &view("w"), Json::Null);
    assert!(!file(&kept["metadata-location"]).exists());
    assert_eq!(catalog.refused("DELETE", &view("w"), Json::Null).1, "NoSuchViewException");
}

/// The compressed size of a body was counted, the unpacked one was not.
#[test]
fn a_packed_body_takes_its_share_of_the_memory_of_bodies() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::with("iceberg-packed", |options| options.body_bytes_total_max = 1 << 20);
    let send = |spaces: usize| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(br#"{"namespace":["lab"]}"#).unwrap();
        packed.write_all(&vec![b' '; spaces]).unwrap();
        let headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
        catalog.0.client().ask("POST", ROOT, &headers, &packed.finish().unwrap())
    };
    let answer = send(2 << 20);
    assert_eq!(answer.status, 429, "{}", answer.text());
    let answer = send(500_000);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(catalog.0.telemetry().body_bytes_held.load(Relaxed), 0);
}

/// A key for `lab.*` placed a table in another namespace's directory. No table could be created there any more, and the refusals
/// revealed the contents of a namespace that the key may not see.
#[test]
fn a_key_puts_tables_nowhere_but_below_its_own_namespace_or_where_the_owner_said() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-own-places");
    catalog.namespace("lab");
    catalog.namespace("finance");
    let hidden = catalog.table("finance", "pay");
    let hidden_metadata = hidden["metadata-location"].as_str().unwrap();
    let hidden = hidden["metadata"]["location"].as_str().unwrap();
    let below = |of: &str| format!("{}/lake/_catalog/{of}", catalog.0.engine.dir().to_str().unwrap());
    let lab = TableSet::Only(vec!["lab.*".into()]);
    let key = catalog.key("lab", Scope::Write, lab);
    let ask = |path: &str, body: Json| catalog.ask_as(&key, "POST", &format!("{ROOT}/lab{path}"), body);
    let create = |name: &str, location: &str, staged: bool| {
        let body = json!({ "name": name, "schema": schema(), "location": location, "stage-create": staged });
        ask("/tables", body)
    };
    let view = |location: &str| {
        let version = json!({ "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": ["lab"],
            "representations": [{ "type": "sql", "dialect": "spark", "sql": "select 1" }] });
        ask(
            "/views",
            json!({ "name": "v", "schema": schema(), "view-version": version, "location": location }),
        )
    };
    assert_eq!(ask("/tables", json!({ "name": "t", "schema": schema() })).status, 200);
    let moved = |location: &str| {
        let updates = json!([{ "action": "set-location", "location": location }]);
        ask("/tables/t", json!({ "requirements": [], "updates": updates }))
    };
    let made_by_commit = |location: &str| {
        let updates = json!([{ "action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1" },
            { "action": "upgrade-format-version", "format-version": 2 },
            { "action": "add-schema", "schema": schema() }, { "action": "set-current-schema", "schema-id": -1 },
            { "action": "add-spec", "spec": { "fields": [] } }, { "action": "set-default-spec", "spec-id": -1 },
            { "action": "add-sort-order", "sort-order": { "fields": [] } },
            { "action": "set-default-sort-order", "sort-order-id": -1 },
            { "action": "set-location", "location": location }]);
        ask("/tables/new", json!({ "requirements": [{ "type": "assert-create" }], "updates": updates }))
    };
    let bad = [
        below("finance"),
        below("finance/mine"),
        hidden.to_owned(),
        below("nobody/x"),
        below("lab"),
        below("labs/x"),
    ];
    for location in &bad {
        for answer in [
            create("x", location, false),
            create("x", location, true),
            view(location),
            moved(location),
            made_by_commit(location),
        ] {
            let (status, _, message) = refusal(&answer);
            assert_eq!(status, 400, "{location}: {message}");
            // The message is the same for every place and its contents.
            let (_, why) = message.split_once("cannot hold a table of this namespace").expect(&message);
            assert!(!why.contains("finance"), "{message}");
        }
    }
    let register = |location: &str| {
        refusal(&ask("/register", json!({ "name": "taken", "metadata-location": location }))).2
    };
    let missing = format!("{hidden_metadata}.metadata.json");
    assert_eq!(
        register(hidden_metadata).replace(hidden_metadata, "…"),
        register(&missing).replace(&missing, "…")
    );

    assert_eq!(create("below", &below("lab/chosen"), false).status, 200);
    assert_eq!(create("listed", &catalog.outside_path("listed"), false).status, 200);
}

#[test]
fn namespaces_whose_names_look_alike_in_paths_have_places_of_their_own() {
    let _limit = testkit::limit(60);
    let catalog = Catalog::start("iceberg-alike");
    // The directories of these namespaces would have the same name.
    for namespace in ["a b", "a_b"] {
        catalog.namespace(namespace);
    }
    let place = |namespace: &str| {
        let told = catalog.ok("GET", &format!("{ROOT}/{namespace}"), Json::Null);
        told["properties"]["location"].as_str().unwrap().to_owned()
    };
    assert_ne!(place("a%20b"), place("a_b"));
}

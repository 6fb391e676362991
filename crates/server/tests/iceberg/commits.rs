//! Commits to other programs' tables: each replaces a pointer to metadata, one at a time and completely.

use super::*;

#[test]
fn a_commit_that_was_overtaken_is_refused_and_leaves_nothing() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-overtaken");
    catalog.namespace("lab");
    let made = catalog.table("lab", "t");
    let location = made["metadata"]["location"].as_str().unwrap().to_owned();
    let at = |id: Json| {
        json!([
        { "type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"] },
        { "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": id } ])
    };
    let first = catalog.commit("lab", "t", at(Json::Null), json!([snapshot(1, 1, &location), set_main(1)]));
    assert_eq!(first.status, 200, "{}", first.text());
    let late = catalog.commit("lab", "t", at(Json::Null), json!([snapshot(2, 1, &location), set_main(2)]));
    let (status, kind, message) = refusal(&late);
    assert_eq!((status, kind.as_str()), (409, "CommitFailedException"));
    assert!(message.starts_with("Requirement failed: branch main was created concurrently"), "{message}");
    let second = catalog.commit("lab", "t", at(json!(1)), json!([snapshot(2, 2, &location), set_main(2)]));
    assert_eq!(second.json()["metadata"]["current-snapshot-id"], 2);
    assert_eq!(second.json(), catalog.load("lab", "t"));
    // A client that lost the answer sends the commit again and succeeds, because its snapshot is there.
    let again = catalog.commit("lab", "t", at(json!(1)), json!([snapshot(2, 2, &location), set_main(2)]));
    assert_eq!((again.status, again.json()), (200, second.json()));
    // A commit that changes nothing writes nothing.
    let nothing = catalog.commit("lab", "t", at(json!(2)), json!([set_main(2)]));
    assert_eq!(nothing.json()["metadata-location"], second.json()["metadata-location"]);
    let files = std::fs::read_dir(Path::new(&location).join("metadata")).unwrap().count();
    assert_eq!(files, 3, "one of each commit that was taken");
    let refs = catalog.ok("GET", &format!("{}?snapshots=refs", table("lab", "t")), Json::Null);
    let ids: Vec<&Json> =
        refs["metadata"]["snapshots"].as_array().unwrap().iter().map(|s| &s["snapshot-id"]).collect();
    assert_eq!(ids, [&json!(2)]);
    for bad in [
        json!({ "requirements": [{ "type": "assert-mood" }], "updates": [] }),
        json!({ "requirements": {}, "updates": [] }),
        json!({ "requirements": [], "updates": [{ "action": "turn" }] }),
        json!({ "requirements": [], "updates": 3 }),
        json!({ "requirements": [{ "type": "assert-create" }, { "type": "assert-table-uuid", "uuid": "x" }], "updates": [] }),
    ] {
        assert_eq!(catalog.refused("POST", &table("lab", "t"), bad.clone()).0, 400, "{bad}");
    }
    assert_eq!(refusal(&catalog.commit("lab", "no", json!([]), json!([]))).1, "NoSuchTableException");
}

#[test]
fn a_staged_table_is_there_from_its_first_commit_on() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-staged");
    catalog.namespace("lab");
    let body = json!({ "name": "t", "schema": schema(), "stage-create": true });
    let staged = catalog.ok("POST", &format!("{ROOT}/lab/tables"), body);
    assert_eq!(staged["metadata-location"], Json::Null);
    assert_eq!(catalog.refused("GET", &table("lab", "t"), Json::Null).0, 404);
    let metadata = &staged["metadata"];
    let location = metadata["location"].as_str().unwrap();
    // The directories of the table exist and are empty.
    let is_empty = |sub: &str| Path::new(location).join(sub).read_dir().unwrap().next().is_none();
    assert!(is_empty("data") && is_empty("metadata"));
    let updates = json!([
        { "action": "assign-uuid", "uuid": metadata["table-uuid"] },
        { "action": "upgrade-format-version", "format-version": 2 },
        { "action": "add-schema", "schema": metadata["schemas"][0] },
        { "action": "set-current-schema", "schema-id": -1 },
        { "action": "add-spec", "spec": metadata["partition-specs"][0] },
        { "action": "set-default-spec", "spec-id": -1 },
        { "action": "add-sort-order", "sort-order": metadata["sort-orders"][0] },
        { "action": "set-default-sort-order", "sort-order-id": -1 },
        { "action": "set-location", "location": location },
        snapshot(1, 1, location), set_main(1) ]);
    let create = json!([{ "type": "assert-create" }]);
    let missing = catalog.commit("no", "t", create.clone(), updates.clone());
    assert_eq!(refusal(&missing).1, "NoSuchNamespaceException");
    let made = catalog.commit("lab", "t", create.clone(), updates.clone());
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(made.json()["metadata"]["table-uuid"], metadata["table-uuid"]);
    assert_eq!(made.json()["metadata"]["metadata-log"], json!([]));
    assert_eq!(catalog.load("lab", "t"), made.json());
    // A client that lost the answer sends the commit again and succeeds, because the table is the same. That holds after other
    // commits too.
    let again = catalog.commit("lab", "t", create.clone(), updates.clone());
    assert_eq!((again.status, again.json()), (200, made.json()));
    let next = catalog.commit("lab", "t", json!([]), json!([snapshot(2, 2, location), set_main(2)]));
    assert_eq!(next.status, 200, "{}", next.text());
    let again = catalog.commit("lab", "t", create.clone(), updates.clone());
    assert_eq!((again.status, again.json()), (200, next.json()));
    assert_eq!(catalog.load("lab", "t"), next.json());
    // A commit for another table of that name is refused, and so is one with a snapshot that the table lacks.
    for (at, change) in [
        (0, json!({ "action": "assign-uuid", "uuid": "00000000-0000-4000-8000-000000000001" })),
        (0, json!({ "action": "upgrade-format-version", "format-version": 2 })),
        (9, snapshot(3, 1, location)),
    ] {
        let mut other = updates.clone();
        other[at] = change;
        let (status, _, message) = refusal(&catalog.commit("lab", "t", create.clone(), other));
        assert_eq!((status, message.as_str()), (409, "Requirement failed: table already exists"), "{at}");
    }
    // The same location under another name is refused.
    assert_eq!(catalog.commit("lab", "u", create, updates).status, 400);
}

#[test]
fn a_transaction_changes_all_of_its_tables_or_none() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-transaction");
    catalog.namespace("lab");
    let made: Vec<Json> = ["a", "b", "c"].iter().map(|name| catalog.table("lab", name)).collect();
    let change = |name: &str, value: &str, requirements: Json| {
        json!({ "identifier": { "namespace": ["lab"], "name": name }, "requirements": requirements,
            "updates": [{ "action": "set-properties", "updates": { "round": value } }] })
    };
    let all = |changes: Vec<Json>| {
        catalog.ask("POST", "/iceberg/v1/transactions/commit", json!({ "table-changes": changes }))
    };
    let rounds = || -> Vec<Json> {
        let round = |name: &&str| catalog.load("lab", name)["metadata"]["properties"]["round"].clone();
        ["a", "b", "c"].iter().map(round).collect()
    };
    assert_eq!(all(["a", "b", "c"].map(|name| change(name, "1", json!([]))).to_vec()).status, 204);
    assert_eq!(rounds(), ["1", "1", "1"]);
    let wrong = json!([{ "type": "assert-table-uuid", "uuid": "x" }]);
    let failed = all(vec![change("a", "2", json!([])), change("b", "2", json!([])), change("c", "2", wrong)]);
    assert_eq!(refusal(&failed).1, "CommitFailedException");
    assert_eq!(rounds(), ["1", "1", "1"]);
    assert_eq!(
        refusal(&all(vec![change("a", "2", json!([])), change("no", "2", json!([]))])).1,
        "NoSuchTableException"
    );
    assert_eq!(rounds(), ["1", "1", "1"]);
    // The files of failed transactions are removed.
    for one in &made {
        let dir = Path::new(one["metadata"]["location"].as_str().unwrap()).join("metadata");
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 2);
    }
    assert_eq!(refusal(&all(vec![change("a", "2", json!([])), change("a", "3", json!([]))])).0, 400);
    assert_eq!(catalog.refused("POST", "/iceberg/v1/transactions/commit", json!({})).0, 400);
    assert_eq!(
        catalog.refused("POST", "/iceberg/v1/transactions/commit", json!({ "table-changes": [{}] })).0,
        400
    );
}

/// Each writer adds a snapshot to the newest one that it read. A lost commit would be missing at the end.
#[test]
fn each_commit_of_many_writers_counts_once() {
    let _limit = testkit::limit(240);
    let catalog = Catalog::start("iceberg-many");
    catalog.namespace("lab");
    let made = catalog.table("lab", "t");
    let location = made["metadata"]["location"].as_str().unwrap().to_owned();
    const WRITERS: i64 = 4;
    const COMMITS: i64 = 10;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (catalog, location) = (&catalog, &location);
            scope.spawn(move || {
                let mut done = 0;
                while done < COMMITS {
                    let now = catalog.load("lab", "t")["metadata"].clone();
                    let at = now["current-snapshot-id"].clone();
                    let sequence = now["last-sequence-number"].as_i64().unwrap() + 1;
                    let id = 1_000 * (writer + 1) + done;
                    let mut add = snapshot(id, sequence, location);
                    if !at.is_null() {
                        add["snapshot"]["parent-snapshot-id"] = at.clone();
                    }
                    let requirement =
                        json!([{ "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": at }]);
                    let answer = catalog.commit("lab", "t", requirement, json!([add, set_main(id)]));
                    match answer.status {
                        200 => done += 1,
                        409 => {}
                        _ => panic!("{}", answer.text()),
                    }
                }
            });
        }
    });
    let found = catalog.load("lab", "t");
    let snapshots = found["metadata"]["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len() as i64, WRITERS * COMMITS);
    assert_eq!(found["metadata"]["last-sequence-number"], WRITERS * COMMITS);
    for pair in snapshots.windows(2) {
        assert_eq!(pair[1]["parent-snapshot-id"], pair[0]["snapshot-id"]);
    }
    // There is one file for each commit and the first: the files of failed commits are removed.
    let files = std::fs::read_dir(Path::new(&location).join("metadata")).unwrap().count();
    assert_eq!(files as i64, WRITERS * COMMITS + 1);
}

#[test]
fn old_metadata_files_go_where_the_table_says_so() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-old");
    catalog.namespace("lab");
    let made = catalog.table("lab", "t");
    let dir = Path::new(made["metadata"]["location"].as_str().unwrap()).join("metadata");
    let set = |updates: Json| {
        let answer = catalog.commit(
            "lab",
            "t",
            json!([]),
            json!([{ "action": "set-properties", "updates": updates }]),
        );
        assert_eq!(answer.status, 200, "{}", answer.text());
        std::fs::read_dir(&dir).unwrap().count()
    };
    assert_eq!(set(json!({ "write.metadata.previous-versions-max": "2" })), 2);
    for n in 0..3 {
        assert_eq!(set(json!({ "n": n.to_string() })), 3 + n, "they stay unless the table says otherwise");
    }
    set(json!({ "write.metadata.delete-after-commit.enabled": "true" }));
    for n in 3..6 {
        let before = std::fs::read_dir(&dir).unwrap().count();
        assert_eq!(set(json!({ "n": n.to_string() })), before, "one comes, one goes");
    }
    // Only files in the table's own directory are removed: its metadata may name files of other tables.
    let other = catalog.table("lab", "u");
    let mut evil = catalog.load("lab", "t")["metadata"].clone();
    evil["location"] = json!(catalog.outside_path("evil"));
    evil["metadata-log"] = json!([{ "timestamp-ms": 1, "metadata-file": other["metadata-location"] },
        { "timestamp-ms": 2, "metadata-file": other["metadata-location"] }]);
    let path = catalog.outside_path("evil.metadata.json");
    std::fs::write(&path, evil.to_string()).unwrap();
    catalog.ok("POST", &format!("{ROOT}/lab/register"), json!({ "name": "evil", "metadata-location": path }));
    for n in 0..3 {
        let updates = json!([{ "action": "set-properties", "updates": { "n": format!("e{n}") } }]);
        assert_eq!(catalog.commit("lab", "evil", json!([]), updates).status, 200);
    }
    catalog.ok("DELETE", &format!("{}?purgeRequested=true", table("lab", "evil")), Json::Null);
    assert!(file(&other["metadata-location"]).exists());
    catalog.load("lab", "u");
}

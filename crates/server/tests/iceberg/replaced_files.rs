//! Other programs may commit only one change to Polynya's own tables: other files with the same rows.

use std::collections::BTreeMap;

use iceberg::manifest::{self, Content, Entry, Status};
use iceberg::metadata::Metadata;
use iceberg::spec::{find, specs_of};

use super::*;

/// Creates a table with several files and deleted rows, all landed.
fn events(catalog: &Catalog) {
    let keyed = json!({ "columns": [{ "name": "k", "type": "int64" }, { "name": "v", "type": "int64" }], "primary_key": ["k"] });
    assert_eq!(catalog.ask("PUT", "/v1/tables/events", keyed).status, 201);
    for round in 0..3 {
        let rows: Json = (0..100).map(|k| json!({ "k": k + 50 * round, "v": round })).collect();
        insert_and_land(catalog, rows);
    }
}

fn insert_and_land(catalog: &Catalog, rows: Json) {
    let answer = catalog.ask("POST", "/v1/tables/events/rows", rows);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(catalog.ask("POST", "/v1/tables/events/commit", Json::Null).status, 200);
}

fn sums_by_sql(catalog: &Catalog) -> Json {
    let sql = json!({ "sql": "SELECT count(*), sum(k), sum(v) FROM events" });
    catalog.ok("POST", "/v1/sql", sql)["rows"].clone()
}

/// Reads the lake's files and returns the number of rows and the sum of each column.
fn sums_in_lake(catalog: &Catalog) -> (u64, BTreeMap<String, Option<i128>>) {
    let dir = catalog.0.engine.dir().join("lake/main/events");
    let reader = lake::reader::Reader::open(&lake::Store::local(&vfs::Env::real()), &dir).unwrap();
    let mut digest = lake::digest::Digest::of_columns(reader.schema());
    reader.read(&mut |batch| digest.add(&batch, u64::MAX)).unwrap();
    (digest.rows, digest.columns.into_iter().map(|(name, column)| (name, column.sum)).collect())
}

/// Builds a commit that renames the table's data files, as a program would that rewrites them. `change` edits the list of files.
fn rewrite_commit(catalog: &Catalog, id: i64, change: impl FnOnce(&mut Vec<Entry>)) -> Json {
    let loaded = catalog.load("main", "events");
    let metadata = Metadata::parse(loaded["metadata"].to_string().as_bytes()).unwrap();
    let (specs, current) = (specs_of(&metadata).unwrap(), metadata.current().unwrap());
    let list = manifest::read_list(&std::fs::read(&current.manifest_list).unwrap()).unwrap();
    let (mut data, mut listed) = (Vec::new(), Vec::new());
    for file in list {
        match file.content {
            Content::Deletes => listed.push(file),
            Content::Data => {
                data.extend(manifest::read(&std::fs::read(&file.path).unwrap(), &file, &specs).unwrap());
            }
        }
    }
    data.retain(|entry| entry.status != Status::Deleted);
    change(&mut data);
    let of = manifest::ManifestHeader {
        path: format!("{}/metadata/{id}-m0.avro", metadata.location),
        content: Content::Data,
        spec: find(&specs, 0).unwrap(),
        schema: "{}",
        schema_id: 0,
        snapshot_id: id,
        sequence: metadata.last_sequence_number + 1,
    };
    let path = of.path.clone();
    let (bytes, file) = manifest::write(of, &data);
    std::fs::write(path, bytes).unwrap();
    listed.push(file);
    let (parent, sequence) = (current.snapshot_id, metadata.last_sequence_number + 1);
    let list = format!("{}/metadata/snap-{id}-1.avro", metadata.location);
    std::fs::write(&list, manifest::write_list(&listed, id, Some(parent), sequence)).unwrap();
    json!({
        "requirements": [
            { "type": "assert-table-uuid", "uuid": metadata.table_uuid },
            { "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent },
        ],
        "updates": [
            { "action": "add-snapshot", "snapshot": { "snapshot-id": id, "parent-snapshot-id": parent,
                "sequence-number": sequence, "timestamp-ms": 1_800_000_000_000_i64, "schema-id": 0,
                "summary": { "operation": "replace", "engine-name": "test" }, "manifest-list": list } },
            set_main(id),
        ],
    })
}

/// Returns the newest file, none of whose rows was replaced later.
fn newest_entry(entries: &mut [Entry]) -> &mut Entry {
    entries.iter_mut().max_by_key(|entry| entry.sequence).unwrap()
}

/// Renames the newest file.
#[expect(clippy::ptr_arg, reason = "one of several changes, some of which add entries")]
fn rename_newest(entries: &mut Vec<Entry>) {
    let entry = newest_entry(entries);
    let file = Arc::make_mut(&mut entry.file);
    let new = file.path.replace(".parquet", "-anew.parquet");
    std::fs::copy(&file.path, &new).unwrap();
    file.path = new;
    entry.status = Status::Added;
}

#[test]
fn files_of_the_same_rows_are_taken_and_shown_at_once() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-replaced");
    events(&catalog);
    let before = (sums_by_sql(&catalog), sums_in_lake(&catalog));
    assert_eq!(before.1.0, 200);
    let old = catalog.load("main", "events");
    let body = rewrite_commit(&catalog, 77, rename_newest);
    let path = table("main", "events");
    let reader = catalog.key("reader", Scope::Read, TableSet::All);
    let writer = catalog.key("writer", Scope::Write, TableSet::All);
    assert_eq!(catalog.ask_as(&reader, "POST", &path, body.clone()).status, 403);
    let answer = catalog.ask_as(&writer, "POST", &path, body.clone());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let metadata = &answer.json()["metadata"];
    assert_eq!(metadata["current-snapshot-id"], 77);
    let snapshots = metadata["snapshots"].as_array().unwrap();
    let taken = snapshots.iter().find(|s| s["snapshot-id"] == 77).unwrap();
    assert_eq!(taken["parent-snapshot-id"], old["metadata"]["current-snapshot-id"]);
    assert_eq!(taken["summary"]["operation"], "replace");
    assert_eq!(taken["summary"]["engine-name"], "test");
    for position in ["polynya.row", "polynya.lsn"] {
        assert_eq!(taken["summary"][position], old["metadata"]["properties"][position]);
        assert_eq!(metadata["properties"][position], old["metadata"]["properties"][position]);
    }
    let admin = |method: &str, path: &str, body: Json| catalog.ask_as(&writer, method, path, body);
    assert_eq!(admin("GET", &path, Json::Null).json(), answer.json(), "whoever asks next sees it");
    // The client lost the answer and sends the commit again. That works after rows have landed too.
    assert_eq!(admin("POST", &path, body.clone()).json(), answer.json());
    assert_eq!(
        admin("POST", "/v1/tables/events/rows", json!([{ "k": 1_000, "v": 1 }, { "k": 149, "v": 9 }])).status,
        200
    );
    assert_eq!(admin("POST", "/v1/tables/events/commit", Json::Null).status, 200);
    let again = admin("POST", &path, body);
    assert_eq!(again.status, 200, "{}", again.text());
    assert_ne!(again.json()["metadata"]["current-snapshot-id"], 77);
    let (rows, sums) = sums_in_lake(&catalog);
    assert_eq!(rows, 201);
    assert_eq!(sums["k"], Some((0..200).sum::<i128>() + 1_000));
    assert_ne!(sums_in_lake(&catalog), before.1);
}

#[test]
fn other_rows_and_other_changes_are_refused_with_the_reason() {
    let _limit = testkit::limit(120);
    let catalog = Catalog::start("iceberg-replaced-not");
    events(&catalog);
    let (before, rows) = (catalog.load("main", "events"), sums_in_lake(&catalog));
    let refused = |body: &Json, why: &str| {
        let (status, kind, message) =
            refusal(&catalog.commit("main", "events", body["requirements"].clone(), body["updates"].clone()));
        // A commit that may be valid later is a conflict, one that never is valid is forbidden.
        let expected = if message.contains("a table that Polynya writes") {
            (403, "ForbiddenException")
        } else {
            (409, "CommitFailedException")
        };
        assert_eq!((status, kind.as_str()), expected, "{message}");
        assert!(message.contains("main.events") && message.contains(why), "{message}");
        assert_eq!(catalog.load("main", "events"), before);
    };
    // Cases: a file is missing, listed twice, does not exist, lies elsewhere.
    refused(&rewrite_commit(&catalog, 71, |files| drop(files.pop())), "rows instead of");
    refused(&rewrite_commit(&catalog, 72, |files| files.push(files[0].clone())), "twice");
    refused(
        &rewrite_commit(&catalog, 73, |files| {
            let file = Arc::make_mut(&mut newest_entry(files).file);
            file.path = file.path.replace(".parquet", "-not.parquet");
        }),
        "is not there",
    );
    refused(
        &rewrite_commit(&catalog, 74, |files| {
            Arc::make_mut(&mut files[0].file).path = catalog.outside_path("x.parquet")
        }),
        "is not in",
    );
    let mut good = rewrite_commit(&catalog, 75, rename_newest);
    for operation in ["append", "overwrite", "delete"] {
        let mut body = good.clone();
        body["updates"][0]["snapshot"]["summary"]["operation"] = json!(operation);
        refused(&body, &format!("`{operation}` cannot be committed"));
    }
    let mut more = good.clone();
    more["updates"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "action": "set-properties", "updates": { "a": "b" } }));
    refused(&more, "`set-properties`");
    // A transaction with another table is refused as a whole.
    catalog.namespace("lab");
    catalog.table("lab", "t");
    let own = json!({ "identifier": { "namespace": ["main"], "name": "events" },
        "requirements": good["requirements"], "updates": good["updates"] });
    let theirs = json!({ "identifier": { "namespace": ["lab"], "name": "t" }, "requirements": [],
        "updates": [{ "action": "set-properties", "updates": { "a": "b" } }] });
    let both = json!({ "table-changes": [theirs, own] });
    let (status, _, message) = catalog.refused("POST", "/iceberg/v1/transactions/commit", both);
    assert!(status == 403 && message.contains("by itself"), "{message}");
    assert_eq!(catalog.load("lab", "t")["metadata"]["properties"].get("a"), None);
    assert_eq!(sums_in_lake(&catalog), rows);
    // The commit replaces a snapshot that is no longer the newest.
    insert_and_land(&catalog, json!([{ "k": 1_000, "v": 1 }]));
    let (status, kind, message) =
        refusal(&catalog.commit("main", "events", good["requirements"].take(), good["updates"].take()));
    assert_eq!((status, kind.as_str()), (409, "CommitFailedException"), "{message}");
    assert!(message.contains("Requirement failed"), "{message}");
    // A transaction with this one table is an ordinary commit.
    let good = rewrite_commit(&catalog, 76, rename_newest);
    let alone = json!({ "table-changes": [{ "identifier": { "namespace": ["main"], "name": "events" },
        "requirements": good["requirements"], "updates": good["updates"] }] });
    catalog.ok("POST", "/iceberg/v1/transactions/commit", alone);
    assert_eq!(catalog.load("main", "events")["metadata"]["current-snapshot-id"], 76);
    assert_eq!(sums_in_lake(&catalog).0, rows.0 + 1);
}

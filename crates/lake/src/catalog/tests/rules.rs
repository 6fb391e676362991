use serde_json::{Value as Json, json};
use types::Kind;

use crate::catalog::{NewTable, TableChange, TableMetadata, create, requirement};

const UUID: &str = "6a5a4c2e-0c4f-4f0e-9d4b-111111111111";
const NOW: i64 = 1_800_000_000_000;

fn schema() -> Json {
    json!({ "type": "struct", "schema-id": 7, "identifier-field-ids": [30], "fields": [
        { "id": 30, "name": "id", "required": true, "type": "long" },
        { "id": 40, "name": "at", "required": false, "type": "timestamptz", "doc": "when" },
        { "id": 50, "name": "parts", "required": false, "type": { "type": "list", "element-id": 51,
            "element-required": true, "element": { "type": "struct", "fields": [
                { "id": 52, "name": "x", "required": false, "type": "decimal(9, 2)" } ] } } },
        { "id": 60, "name": "tags", "required": false, "type": { "type": "map", "key-id": 61, "key": "string",
            "value-id": 62, "value": "double", "value-required": false } },
    ] })
}

fn wanted<'a>(schema: &'a Json, spec: &'a Json, order: &'a Json, format: &str) -> NewTable<'a> {
    let properties = [("format-version", format), ("owner", "me")];
    let properties = properties.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    NewTable { schema, partition_spec: spec, write_order: order, properties }
}

fn table_of(format: &str) -> TableMetadata {
    create(wanted(&schema(), &Json::Null, &Json::Null, format), UUID, "/w/t", NOW).unwrap()
}

fn snapshot(id: i64, parent: Option<i64>, sequence: i64) -> Json {
    json!({ "snapshot-id": id, "parent-snapshot-id": parent, "sequence-number": sequence,
        "timestamp-ms": NOW + sequence, "manifest-list": format!("/w/t/metadata/snap-{id}.avro"), "schema-id": 0,
        "summary": { "operation": "append" }, "first-row-id": 10 * (sequence - 1), "added-rows": 10 })
}

fn main_is(id: i64) -> Json {
    json!({ "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id })
}

fn added(snapshot: Json) -> Json {
    json!({ "action": "add-snapshot", "snapshot": snapshot })
}

fn changed(table: &TableMetadata, updates: &[Json]) -> types::Result<TableMetadata> {
    let mut change = TableChange::of(table.clone(), NOW + 1_000);
    change.apply_all(updates)?;
    Ok(change
        .finish(Some("/w/t/metadata/00000-a.metadata.json"))?
        .map_or_else(|| table.clone(), |made| made.table))
}

fn refused(table: &TableMetadata, updates: &[Json]) -> String {
    let error = changed(table, updates).expect_err("it is taken");
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    error.message().to_owned()
}

#[test]
fn a_new_table_gets_ids_of_its_own_in_the_usual_order() {
    let spec = json!({ "fields": [{ "source-id": 40, "field-id": 7, "name": "day", "transform": "day" }] });
    let order = json!({ "order-id": 9, "fields": [
        { "source-id": 30, "transform": "identity", "direction": "asc", "null-order": "nulls-first" }] });
    let schema = schema();
    let table = create(wanted(&schema, &spec, &order, "2"), UUID, "/w/t", NOW).unwrap();
    let fields = table.schema()["fields"].as_array().unwrap();
    let ids: Vec<&Json> = fields.iter().map(|field| &field["id"]).collect();
    assert_eq!(json!(ids), json!([1, 2, 3, 4]), "all of a struct before what is inside its fields");
    assert_eq!(fields[2]["type"]["element-id"], 5);
    assert_eq!(fields[2]["type"]["element"]["fields"][0]["id"], 6);
    assert_eq!((&fields[3]["type"]["key-id"], &fields[3]["type"]["value-id"]), (&json!(7), &json!(8)));
    assert_eq!(table.schema()["identifier-field-ids"], json!([1]));
    assert_eq!((table.last_column_id, table.last_partition_id), (8, 1000));
    assert_eq!(table.partition_specs[0]["fields"][0]["source-id"], 2);
    assert_eq!(table.sort_orders[0]["order-id"], 1);
    assert_eq!(table.sort_orders[0]["fields"][0]["source-id"], 1);
    assert_eq!(table.properties.get("owner").unwrap(), "me");
    assert!(!table.properties.contains_key("format-version"));
    assert_eq!(fields[1]["doc"], "when", "what is not understood is kept");
    let from_zero =
        json!({ "type": "struct", "fields": [{ "id": 0, "name": "a", "required": false, "type": "int" }] });
    let zero = create(wanted(&from_zero, &Json::Null, &Json::Null, "2"), UUID, "/w/t", NOW).unwrap();
    assert_eq!(zero.schema()["fields"][0]["id"], 1);
    // The metadata are parsed as they were written.
    let text = table.to_json().unwrap().to_string();
    assert_eq!(TableMetadata::parse(text.as_bytes()).unwrap(), table);
}

#[test]
fn each_format_version_is_written_as_its_readers_want_it() {
    let first = table_of("1").to_json().unwrap();
    assert_eq!(first["schema"]["fields"], first["schemas"][0]["fields"]);
    assert_eq!(first["partition-spec"], json!([]));
    assert!(first.get("last-sequence-number").is_none());
    assert_eq!(table_of("3").to_json().unwrap()["next-row-id"], 0);
    let schema = schema();
    for format in ["0", "4", "two"] {
        let error = create(wanted(&schema, &Json::Null, &Json::Null, format), UUID, "/w/t", NOW).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
    // Members that version 1 leaves out are filled in.
    let old = json!({ "format-version": 1, "table-uuid": UUID, "location": "/w/t", "last-updated-ms": 1,
        "last-column-id": 1, "schema": { "type": "struct", "fields": [
            { "id": 1, "name": "a", "required": false, "type": "int" }] },
        "partition-spec": [{ "source-id": 1, "name": "a", "transform": "identity" }],
        "current-snapshot-id": -1, "snapshots": [] });
    let table = TableMetadata::parse(old.to_string().as_bytes()).unwrap();
    assert_eq!((table.current_schema_id, table.last_partition_id), (0, 1000));
    assert_eq!(table.partition_specs[0]["fields"][0]["field-id"], 1000);
    assert_eq!(table.current_snapshot_id, None);
}

#[test]
fn a_commit_moves_a_branch_and_logs_the_current_snapshots() {
    let table = table_of("2");
    let one = changed(&table, &[added(snapshot(11, None, 1)), main_is(11)]).unwrap();
    assert_eq!(one.current_snapshot_id, Some(11));
    assert_eq!(one.last_sequence_number, 1);
    assert_eq!(one.metadata_log.len(), 1);
    assert_eq!(one.snapshot_log.len(), 1);
    // Of two snapshots in one commit, the first was never current for any reader.
    let updates =
        [added(snapshot(12, Some(11), 2)), main_is(12), added(snapshot(13, Some(12), 3)), main_is(13)];
    let two = changed(&one, &updates).unwrap();
    let logged: Vec<i64> = two.snapshot_log.iter().map(|entry| entry.snapshot_id).collect();
    assert_eq!(logged, [11, 13]);
    assert!(two.last_updated_ms >= one.last_updated_ms);
    // Without a main branch no snapshot is current. The log keeps the former ones.
    let none = changed(&two, &[json!({ "action": "remove-snapshot-ref", "ref-name": "main" })]).unwrap();
    assert_eq!((none.current_snapshot_id, none.snapshot_log.len()), (None, 2));
    // A removed snapshot takes its refs and statistics along, and the log entries before the gap.
    let statistics = json!({ "action": "set-statistics", "statistics": { "snapshot-id": 11, "statistics-path": "/w/t/s" } });
    let tag = json!({ "action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": 11 });
    let tagged = changed(&two, &[statistics, tag]).unwrap();
    let expired =
        changed(&tagged, &[json!({ "action": "remove-snapshots", "snapshot-ids": [11, 12] })]).unwrap();
    assert_eq!(expired.snapshots.len(), 1);
    assert!(expired.statistics.is_empty() && !expired.refs.contains_key("old"));
    assert_eq!(expired.snapshot_log.iter().map(|entry| entry.snapshot_id).collect::<Vec<_>>(), [13]);
    // A commit that changes nothing makes no new metadata.
    let mut change = TableChange::of(expired.clone(), NOW);
    change.apply_all(&[main_is(13), json!({ "action": "assign-uuid", "uuid": UUID })]).unwrap();
    assert!(change.finish(Some("x")).unwrap().is_none());
}

#[test]
fn snapshots_that_do_not_fit_are_refused() {
    let table = changed(&table_of("2"), &[added(snapshot(11, None, 5)), main_is(11)]).unwrap();
    for (update, said) in [
        (added(snapshot(11, None, 6)), "has a snapshot 11 already"),
        (added(snapshot(12, Some(11), 5)), "is not above the table's"),
        (added(json!({ "snapshot-id": 12 })), "has no `timestamp-ms`"),
        (added(json!({ "snapshot-id": 12, "timestamp-ms": 1 })), "has no `manifest-list`"),
        (main_is(99), "which the table does not have"),
        (
            json!({ "action": "set-snapshot-ref", "ref-name": "main", "type": "tag", "snapshot-id": 11 }),
            "cannot be a branch or tag",
        ),
        (
            json!({ "action": "set-snapshot-ref", "ref-name": "b", "type": "twig", "snapshot-id": 11 }),
            "cannot be a branch or tag",
        ),
        (json!({ "action": "upgrade-format-version", "format-version": 1 }), "cannot go back"),
        (json!({ "action": "upgrade-format-version", "format-version": 4 }), "is not supported"),
        (
            json!({ "action": "assign-uuid", "uuid": "6a5a4c2e-0c4f-4f0e-9d4b-222222222222" }),
            "has a UUID already",
        ),
        (json!({ "action": "remove-schemas", "schema-ids": [0] }), "current schema"),
        (json!({ "action": "remove-partition-specs", "spec-ids": [0] }), "default partition spec"),
        (json!({ "action": "set-current-schema", "schema-id": -1 }), "no schema was added"),
        (json!({ "action": "set-current-schema", "schema-id": 9 }), "no schema 9"),
        (json!({ "action": "set-default-spec", "spec-id": 9 }), "no partition spec 9"),
        (json!({ "action": "set-default-sort-order", "sort-order-id": 9 }), "no sort order 9"),
        (json!({ "action": "set-properties", "updates": { "a": 1 } }), "must be a text"),
        (json!({ "action": "turn-around" }), "`turn-around` is not a change"),
        (json!({ "no": "action" }), "has no `action`"),
        (json!({ "action": "set-location" }), "has no text `location`"),
    ] {
        let found = refused(&table, std::slice::from_ref(&update));
        assert!(found.contains(said), "{update}: {found}");
    }
    // In format version 3 row ids continue from snapshot to snapshot.
    let table = changed(&table_of("3"), &[added(snapshot(1, None, 1)), main_is(1)]).unwrap();
    assert_eq!(table.next_row_id, Some(10));
    assert!(refused(&table, &[added(snapshot(2, None, 1))]).contains("below the table's next one"));
    let without = json!({ "snapshot-id": 3, "timestamp-ms": 1, "sequence-number": 2, "manifest-list": "x" });
    assert!(refused(&table, &[added(without)]).contains("first-row-id"));
}

#[test]
fn schemas_and_specs_that_are_there_already_keep_their_ids() {
    let table = table_of("2");
    let mut wider = table.schema().clone();
    wider["fields"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "id": 9, "name": "new", "required": false, "type": "int" }));
    let add = |schema: &Json| json!({ "action": "add-schema", "schema": schema });
    let last = json!({ "action": "set-current-schema", "schema-id": -1 });
    let two = changed(&table, &[add(&wider), last.clone()]).unwrap();
    assert_eq!((two.current_schema_id, two.last_column_id, two.schemas.len()), (1, 9, 2));
    let back = changed(&two, &[add(table.schema()), last]).unwrap();
    assert_eq!((back.current_schema_id, back.schemas.len(), back.last_column_id), (0, 2, 9));
    let spec = |name: &str| {
        json!({ "action": "add-spec", "spec": { "fields": [
            { "source-id": 1, "name": name, "transform": "bucket[16]" }] } })
    };
    let default = json!({ "action": "set-default-spec", "spec-id": -1 });
    let one = changed(&table, &[spec("b"), default.clone()]).unwrap();
    assert_eq!((one.default_spec_id, one.last_partition_id), (1, 1000));
    let renamed = changed(&one, &[spec("c"), default.clone()]).unwrap();
    assert_eq!(renamed.default_spec_id, 2);
    assert_eq!(renamed.partition_specs[2]["fields"][0]["field-id"], 1000, "the same division keeps its id");
    let again = changed(&renamed, &[spec("b"), default]).unwrap();
    assert_eq!((again.default_spec_id, again.partition_specs.len()), (1, 3));
    // A column that the partition spec needs cannot be dropped.
    let mut without = table.schema().clone();
    without["fields"].as_array_mut().unwrap().remove(0);
    without["identifier-field-ids"] = json!([]);
    let drop = [add(&without), json!({ "action": "set-current-schema", "schema-id": -1 })];
    assert!(refused(&one, &drop).contains("needs the field 1"));
}

#[test]
fn schemas_that_no_reader_could_read_are_refused() {
    let table = table_of("2");
    let of =
        |fields: Json| json!([{ "action": "add-schema", "schema": { "type": "struct", "fields": fields } }]);
    let field = |id: i64, name: &str, field_type: Json| json!({ "id": id, "name": name, "required": true, "type": field_type });
    for (fields, said) in [
        (json!([field(1, "a", json!("int")), field(1, "b", json!("int"))]), "the id 1"),
        (json!([field(1, "a", json!("int")), field(2, "a", json!("int"))]), "are called `a`"),
        (json!([field(1, "a", json!("number"))]), "`number` is not a type"),
        (json!([field(1, "a", json!("decimal(39,2)"))]), "is not a type"),
        (json!([field(1, "a", json!("decimal(5,6)"))]), "is not a type"),
        (json!([field(1, "a", json!("variant"))]), "is not a type of format version 2"),
        (json!([field(-1, "a", json!("int"))]), "has no id"),
        (json!([field(1, "", json!("int"))]), "no name"),
        (json!([field(1, "a", json!({ "type": "tree" }))]), "has no type"),
        (json!([field(1, "a", json!({ "type": "list", "element": "int" }))]), "no id"),
        (
            json!([{ "id": 1, "name": "a", "required": true, "type": "int", "initial-default": 1 }]),
            "format version 3",
        ),
    ] {
        let found = refused(&table, of(fields.clone()).as_array().unwrap());
        assert!(found.contains(said), "{fields}: {found}");
    }
    let deep = json!([{ "action": "add-schema", "schema": { "type": "struct", "identifier-field-ids": [2], "fields": [
        field(1, "a", json!({ "type": "list", "element-id": 2, "element": "int", "element-required": true }))] } }]);
    assert!(refused(&table, deep.as_array().unwrap()).contains("identifier field 2"));
    changed(&table_of("3"), of(json!([field(1, "a", json!("variant"))])).as_array().unwrap()).unwrap();
}

#[test]
fn requirements_report_changes_in_the_wording_that_clients_expect() {
    let table = changed(&table_of("2"), &[added(snapshot(11, None, 1)), main_is(11)]).unwrap();
    let holds = |requirement: Json| requirement::check(&[requirement], &table);
    for good in [
        json!({ "type": "assert-table-uuid", "uuid": UUID.to_uppercase() }),
        json!({ "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 11 }),
        json!({ "type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": null }),
        json!({ "type": "assert-last-assigned-field-id", "last-assigned-field-id": 8 }),
        json!({ "type": "assert-current-schema-id", "current-schema-id": 0 }),
        json!({ "type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999 }),
        json!({ "type": "assert-default-spec-id", "default-spec-id": 0 }),
        json!({ "type": "assert-default-sort-order-id", "default-sort-order-id": 0 }),
    ] {
        holds(good).unwrap();
    }
    for (bad, said) in [
        (json!({ "type": "assert-create" }), "Requirement failed: table already exists"),
        (json!({ "type": "assert-table-uuid", "uuid": "x" }), "Requirement failed: UUID does not match"),
        (
            json!({ "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12 }),
            "branch main has changed",
        ),
        (
            json!({ "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": null }),
            "branch main was created concurrently",
        ),
        (
            json!({ "type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": 1 }),
            "branch or tag b is missing",
        ),
        (
            json!({ "type": "assert-current-schema-id", "current-schema-id": 3 }),
            "Requirement failed: current schema changed",
        ),
    ] {
        let error = holds(bad).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.message().contains(said), "{error}");
    }
    assert_eq!(holds(json!({ "type": "assert-mood" })).unwrap_err().kind(), Kind::Invalid);
    let create = json!({ "type": "assert-create" });
    assert!(requirement::is_create(std::slice::from_ref(&create)).unwrap());
    let both = [create, json!({ "type": "assert-table-uuid", "uuid": UUID })];
    assert_eq!(requirement::is_create(&both).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn the_metadata_log_keeps_as_many_files_as_the_table_says() {
    let set = |n: i64| json!({ "action": "set-properties", "updates": { "n": n.to_string() } });
    let limit =
        json!({ "action": "set-properties", "updates": { "write.metadata.previous-versions-max": "2" } });
    let mut table = changed(&table_of("2"), &[limit]).unwrap();
    let mut forgotten = Vec::new();
    for n in 1..=4 {
        let mut change = TableChange::of(table, NOW + n);
        change.apply(&set(n)).unwrap();
        let made = change.finish(Some(&format!("/w/t/metadata/{n:05}-a.metadata.json"))).unwrap().unwrap();
        forgotten.extend(made.forgotten);
        table = made.table;
        assert!(table.metadata_log.len() <= 2);
    }
    assert_eq!(
        forgotten,
        [
            "/w/t/metadata/00000-a.metadata.json",
            "/w/t/metadata/00001-a.metadata.json",
            "/w/t/metadata/00002-a.metadata.json"
        ]
    );
}

#[test]
fn invalid_metadata_is_refused() {
    let good =
        changed(&table_of("2"), &[added(snapshot(11, None, 1)), main_is(11)]).unwrap().to_json().unwrap();
    TableMetadata::parse(good.to_string().as_bytes()).unwrap();
    let broken = |key: &str, value: Json| {
        let mut broken = good.clone();
        broken[key] = value;
        TableMetadata::parse(broken.to_string().as_bytes()).unwrap_err()
    };
    for (key, value) in [
        ("format-version", json!(9)),
        ("format-version", json!("2")),
        ("current-schema-id", json!(5)),
        ("default-spec-id", json!(5)),
        ("default-sort-order-id", json!(5)),
        ("current-snapshot-id", json!(5)),
        ("snapshots", json!([])),
        ("schemas", json!([{ "type": "struct" }])),
        ("location", json!(null)),
        ("properties", json!({ "a": 1 })),
    ] {
        assert_eq!(broken(key, value.clone()).kind(), Kind::Invalid, "{key} {value}");
    }
    for text in ["", "{}", "[]", "null", "\u{1f}\u{8b}"] {
        assert_eq!(TableMetadata::parse(text.as_bytes()).unwrap_err().kind(), Kind::Invalid);
    }
}

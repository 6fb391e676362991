use serde_json::{Value as Json, json};
use types::Kind;

use crate::catalog::{ViewChange, ViewMetadata, requirement};

const UUID: &str = "6a5a4c2e-0c4f-4f0e-9d4b-333333333333";
const NOW: i64 = 1_800_000_000_000;

fn version(id: i64, queries: &[(&str, &str)]) -> Json {
    let queries: Vec<Json> = queries
        .iter()
        .map(|(dialect, sql)| json!({ "type": "sql", "dialect": dialect, "sql": sql }))
        .collect();
    json!({ "version-id": id, "timestamp-ms": NOW + id, "schema-id": -1, "summary": {}, "representations": queries,
        "default-namespace": ["ns"] })
}

fn updates(version: Json) -> [Json; 3] {
    let schema =
        json!({ "type": "struct", "fields": [{ "id": 1, "name": "n", "required": false, "type": "long" }] });
    [
        json!({ "action": "add-schema", "schema": schema }),
        json!({ "action": "add-view-version", "view-version": version }),
        json!({ "action": "set-current-view-version", "view-version-id": -1 }),
    ]
}

fn made() -> ViewMetadata {
    let mut change = ViewChange::new(UUID.into(), "/w/v".into(), NOW);
    change.apply_all(&updates(version(1, &[("spark", "select 1"), ("trino", "select 1")]))).unwrap();
    change.finish().unwrap().unwrap()
}

fn changed(view: &ViewMetadata, updates: &[Json]) -> types::Result<ViewMetadata> {
    let mut change = ViewChange::of(view.clone(), NOW);
    change.apply_all(updates)?;
    Ok(change.finish()?.unwrap_or_else(|| view.clone()))
}

#[test]
fn a_view_keeps_its_versions_and_lets_old_ones_go() {
    let view = made();
    assert_eq!((view.current_version_id, view.version_log.len()), (1, 1));
    assert_eq!(ViewMetadata::parse(view.to_json().unwrap().to_string().as_bytes()).unwrap(), view);
    let mut newest = view.clone();
    for n in 2..=12 {
        let query = format!("select {n}");
        newest = changed(&newest, &updates(version(1, &[("spark", &query), ("trino", &query)]))).unwrap();
        assert_eq!(newest.current_version_id, n, "a version's number is given here");
    }
    assert_eq!((newest.versions.len(), newest.version_log.len()), (10, 10));
    assert!(newest.versions.iter().all(|one| one["version-id"].as_i64().unwrap() > 2));
    // An equal query is the same version.
    let same =
        changed(&newest, &updates(version(1, &[("spark", "select 11"), ("trino", "select 11")]))).unwrap();
    assert_eq!((same.current_version_id, same.versions.len()), (11, 10));
    assert_eq!(same.schemas.len(), 1);
}

#[test]
fn a_dialect_is_lost_only_where_the_view_allows_it() {
    let view = made();
    let fewer = updates(version(2, &[("spark", "select 2")]));
    let error = changed(&view, &fewer).unwrap_err();
    assert!(error.message().contains("loss of view dialects: trino"), "{error}");
    let allow = json!({ "action": "set-properties", "updates": { "replace.drop-dialect.allowed": "true" } });
    let allowed = changed(&view, &[allow]).unwrap();
    assert_eq!(changed(&allowed, &fewer).unwrap().current_version_id, 2);
}

#[test]
fn changes_that_do_not_fit_a_view_are_refused() {
    let view = made();
    for (update, said) in [
        (json!({ "action": "assign-uuid", "uuid": "6a5a4c2e-0c4f-4f0e-9d4b-444444444444" }), "UUID already"),
        (json!({ "action": "assign-uuid", "uuid": "x" }), "is not a UUID"),
        (json!({ "action": "upgrade-format-version", "format-version": 2 }), "format version 1"),
        (json!({ "action": "set-current-view-version", "view-version-id": 9 }), "no version 9"),
        (json!({ "action": "set-current-view-version", "view-version-id": -1 }), "no version was added"),
        (
            json!({ "action": "add-view-version", "view-version": version(2, &[("a", "x"), ("A", "y")]) }),
            "no schema was added",
        ),
        (json!({ "action": "add-snapshot", "snapshot": {} }), "is not a change of a view"),
        (
            json!({ "action": "set-properties", "updates": { "version.history.num-entries": "0" } }),
            "from 1 on",
        ),
    ] {
        let error = changed(&view, std::slice::from_ref(&update)).expect_err("it is taken");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains(said), "{update}: {error}");
    }
    let twice = updates(version(2, &[("a", "x"), ("A", "y")]));
    let error = changed(&view, &twice).unwrap_err();
    assert_eq!(error.message(), "Invalid view version: Cannot add multiple queries for dialect a");
    requirement::check_view(&[json!({ "type": "assert-view-uuid", "uuid": UUID })], &view.view_uuid).unwrap();
    let other = [json!({ "type": "assert-view-uuid", "uuid": "x" })];
    assert_eq!(requirement::check_view(&other, &view.view_uuid).unwrap_err().kind(), Kind::Conflict);
}

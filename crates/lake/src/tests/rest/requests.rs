//! Tests of the requests to a catalog, and of the messages about unsuitable catalogs.

use serde_json::json;
use types::{Kind, Value};

use super::super::crashes::{self, Layouts, States};
use super::super::support::{LAYOUTS, small};
use super::fake_catalog::{FakeCatalog, Fate, URI};
use super::{begin, catalog_in, check, land, options_in};
use crate::Options;
use crate::rest::Catalog;

#[test]
fn a_table_lands_in_a_catalog_as_in_files() {
    let _limit = testkit::limit(120);
    for layout in 0..LAYOUTS.len() {
        let layouts: Layouts = [&[0][..], &[1], &[2], &[3, 1], &[4, 0], &[5], &[6, 2], &[7]][layout];
        let (mut bench, fake) = begin(layouts);
        let mut states = States::new();
        crashes::run(&mut bench, &mut states, layouts).unwrap();
        check(&bench, &fake, &states, "at the end");
        land(&mut bench, &fake);
        let lake = bench.lake();
        assert!(lake.metadata_location().starts_with(&format!("{}/metadata/0", lake.metadata.location)));
        // A new process continues from there.
        bench.restart();
        assert!(bench.position.is_some());
        bench.insert(&[vec![Value::Int64(100), Value::Null, Value::Int32(1)]]);
        land(&mut bench, &fake);
        // G1: snapshots expire in the catalog, and the files that no kept one names are removed.
        let told = fake.metadata("main.t").unwrap();
        assert!(told.snapshots.len() <= small().snapshots_max, "{}", told.snapshots.len());
        let lake = bench.lake();
        let unnamed = lake.unnamed_files().unwrap();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }
}

#[test]
fn a_commit_is_one_request_made_for_the_state_before() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..10);
    bench.land();
    let asked = fake.log();
    let posts: Vec<&String> = asked.iter().filter(|line| line.starts_with("POST")).collect();
    assert_eq!(posts[0], "POST p/namespaces");
    assert_eq!(posts[1], "POST p/namespaces/main/tables");
    assert!(posts[2..].iter().all(|post| *post == "POST p/namespaces/main/tables/t"), "{posts:?}");
    bench.keys(10..20);
    bench.land();
    assert_eq!(fake.log(), ["POST p/namespaces/main/tables/t"]);
}

/// A catalog that assigns field ids of its own when it creates a table gets ours before the first row.
#[test]
fn fields_have_our_ids_whatever_a_catalog_gave_them_at_first() {
    let _limit = testkit::limit(60);
    let fake = FakeCatalog::default();
    fake.reassigns_ids(false);
    let mut bench = crashes::begin_in(&[2], options_in(&fake));
    crashes::run(&mut bench, &mut States::new(), &[2]).unwrap();
    land(&mut bench, &fake);
    let told = fake.metadata("main.t").unwrap();
    let first = told.snapshots.first().unwrap().schema_id;
    assert_ne!(first, Some(0), "the schema with other ids was never that of a snapshot");
}

#[test]
fn a_catalog_that_gives_other_ids_to_later_schemas_too_gets_no_row() {
    let _limit = testkit::limit(60);
    let fake = FakeCatalog::default();
    fake.reassigns_ids(true);
    let mut bench = crashes::begin_in(&[0], options_in(&fake));
    bench.keys(0..10);
    let error = bench.try_land().unwrap_err();
    assert!(error.to_string().contains("assigns other ids"), "{error}");
    assert!(bench.try_land().is_err());
    assert!(fake.metadata("main.t").unwrap().snapshots.is_empty());
}

/// The name belongs to another database's table, which is left untouched.
#[test]
fn a_table_of_another_database_is_refused() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..10);
    bench.land();
    let before = fake.metadata("main.t").unwrap().table_uuid;
    let theirs = Options { catalog: Some(catalog_in(&fake, "another database")), ..small() };
    let mut second = crashes::begin_in(&[0], theirs);
    second.keys(0..3);
    for _ in 0..2 {
        let error = second.try_land().unwrap_err();
        assert_eq!(error.kind(), Kind::Exists, "{error}");
        assert!(error.to_string().contains("another Polynya database"), "{error}");
    }
    fake.change(
        "main.t",
        &[json!({ "action": "remove-properties", "removals": ["polynya.database", "polynya.table-id"] })],
    );
    let error = second.try_land().unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(fake.metadata("main.t").unwrap().table_uuid, before);
}

/// After another program's append or compaction the table lands no more, and the error names the program. After a rollback
/// there it lands again.
#[test]
fn commits_of_other_programs_stop_a_table_until_they_are_rolled_back() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    let ours = lake.metadata.current().unwrap().clone();
    let mut snapshot = serde_json::to_value(&ours).unwrap();
    snapshot["snapshot-id"] = json!(77);
    snapshot["parent-snapshot-id"] = json!(ours.snapshot_id);
    snapshot["sequence-number"] = json!(ours.sequence_number + 1);
    snapshot["summary"] = json!({ "operation": "append", "engine-name": "Spark", "engine-version": "4.0" });
    let to = |id: i64| json!({ "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id });
    fake.change("main.t", &[json!({ "action": "add-snapshot", "snapshot": snapshot }), to(77)]);
    bench.keys(10..20);
    let first = bench.try_land().unwrap_err();
    assert_eq!(first.kind(), Kind::Conflict, "{first}");
    for _ in 0..3 {
        let error = bench.try_land().unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        assert!(error.to_string().contains("snapshot 77 is a `append` by Spark 4.0"), "{error}");
        assert!(error.hint_text().unwrap().contains(&ours.snapshot_id.to_string()), "{error:?}");
    }
    assert_eq!(fake.metadata("main.t").unwrap().current_snapshot_id, Some(77));
    fake.change("main.t", &[to(ours.snapshot_id)]);
    land(&mut bench, &fake);
}

/// A table that was dropped in the catalog lands again with the next rows. The files of the dropped one stay, since they may be
/// in use under another name.
#[test]
fn a_table_that_was_dropped_there_lands_anew() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..10);
    let old = bench.land();
    let named = old.data[0].path.clone();
    fake.drop_table("main.t");
    bench.keys(10..20);
    let mut tries = 0;
    while bench.try_land().is_err() {
        tries += 1;
        assert!(tries < 3);
    }
    land(&mut bench, &fake);
    let new = bench.lake();
    assert_ne!(old.dir, new.dir);
    assert!(bench.store().exists(&old.local(&named).unwrap()).unwrap());
}

/// A table dropped here is dropped in the catalog too, with its files; a request that fails is repeated.
#[test]
fn a_dropped_table_leaves_the_catalog_with_its_files() {
    let _limit = testkit::limit(60);
    for (call, fate) in [(0, Fate::Well), (1, Fate::Before(503)), (2, Fate::Before(500)), (2, Fate::Lost)] {
        let (mut bench, fake) = begin(&[0]);
        bench.keys(0..10);
        let lake = bench.land();
        fake.fail(call, false, fate);
        let materializer: &dyn table::materializer::Materializer = &*bench.materializer;
        let done = materializer.dropped(&bench.place());
        assert_eq!(done.is_ok(), call == 0);
        if done.is_err() {
            materializer.dropped(&bench.place()).unwrap();
        }
        assert!(fake.metadata("main.t").is_none());
        for sub in ["data", "metadata"] {
            assert!(bench.store().list(&lake.dir.join(sub)).unwrap().is_empty());
        }
        assert!(bench.sim.env().disk.list(&bench.place().dir).unwrap().is_empty());
    }
}

/// A table that had been renamed in the catalog, and was then dropped here before the next rows, lost its files.
#[test]
fn a_table_that_is_not_there_any_more_keeps_its_files_when_it_is_dropped_here() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    let files = |sub: &str| bench.store().list(&lake.dir.join(sub)).unwrap().len();
    let before = (files("data"), files("metadata"));
    let materializer: &dyn table::materializer::Materializer = &*bench.materializer;
    // The catalog refuses to drop the table; then somebody renames it.
    fake.fail(2, false, Fate::Before(403));
    assert!(materializer.dropped(&bench.place()).is_err() && fake.metadata("main.t").is_some());
    fake.drop_table("main.t");
    materializer.dropped(&bench.place()).unwrap();
    assert_eq!((files("data"), files("metadata")), before);
    assert!(bench.sim.env().disk.list(&bench.place().dir).unwrap().is_empty());
}

/// A proxy's error page does not come from the catalog, so that no table counts as dropped.
#[test]
fn a_404_from_a_proxy_does_not_mean_that_a_table_is_gone() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    fake.fail(1, true, Fate::Before(404));
    bench.keys(10..20);
    for _ in 0..3 {
        assert!(bench.try_land().is_err());
    }
    let materializer: &dyn table::materializer::Materializer = &*bench.materializer;
    assert!(materializer.dropped(&bench.place()).is_err());
    bench.restart();
    assert!(bench.try_land().is_err());
    fake.works_again();
    land(&mut bench, &fake);
    assert_eq!(bench.lake().metadata.table_uuid, lake.metadata.table_uuid);
}

#[test]
fn a_token_is_obtained_for_a_credential_and_renewed_when_it_expires() {
    let _limit = testkit::limit(60);
    let fake = FakeCatalog::default();
    fake.wants_a_new_token();
    let with = |credential: &str| {
        let options = crate::rest::Options {
            uri: URI.into(),
            credential: Some(credential.into()),
            ..Default::default()
        };
        Catalog::new(Box::new(fake.clone()), &options, "database").unwrap()
    };
    let error = with("me:wrong").ensure_usable().unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden);
    assert!(error.to_string().contains("who are you?") && !error.to_string().contains("wrong"), "{error}");
    let mut bench = crashes::begin_in(&[0], Options { catalog: Some(with("me:secret&+")), ..small() });
    bench.keys(0..10);
    bench.land();
    let asked = fake.log().iter().filter(|line| line.contains("oauth")).count();
    assert_eq!(asked, 2, "one for the wrong secret, one that is kept");
    fake.wants_a_new_token();
    bench.keys(10..20);
    land(&mut bench, &fake);
    let asked = fake.log();
    let wanted = ["POST p/namespaces/main/tables/t", "POST oauth/tokens", "POST p/namespaces/main/tables/t"];
    assert_eq!(asked, wanted);
}

#[test]
fn errors_about_a_catalog_tell_the_cure() {
    let fake = FakeCatalog::default();
    let at = |uri: &str, token: Option<&str>| {
        let options =
            crate::rest::Options { uri: uri.into(), token: token.map(str::to_owned), ..Default::default() };
        Catalog::new(Box::new(fake.clone()), &options, "database")
    };
    let says = |error: types::Error| format!("{error} ({})", error.hint_text().unwrap_or_default());
    for wrong in ["", "catalog:8181", "ftp://host", "http://", "http://host/?q=1", "http://a b/"] {
        assert!(says(at(wrong, None).unwrap_err()).contains("before /v1"), "{wrong}");
    }
    let said = says(at("https://me:hush@host/", None).unwrap_err());
    assert!(said.contains("catalog_credential") && !said.contains("hush"), "{said}");
    assert_eq!(at("http://host/catalog/v1/", None).unwrap().uri(), "http://host/catalog");
    // The page is not a catalog's.
    fake.fail(1, false, Fate::Before(404));
    let said = says(at(URI, None).unwrap().ensure_usable().unwrap_err());
    assert!(said.contains("no Iceberg REST catalog") && said.contains("before /v1"), "{said}");
    fake.fail(1, false, Fate::Before(200));
    let said = says(at(URI, None).unwrap().ensure_usable().unwrap_err());
    assert!(said.contains("no Iceberg REST catalog"), "{said}");
    fake.works_again();
    fake.wants_a_new_token();
    let said = says(at(URI, Some("hush")).unwrap().ensure_usable().unwrap_err());
    assert!(said.contains("401") && said.contains("lake.catalog_token") && !said.contains("hush"), "{said}");
    let catalog = at(URI, Some("token-1")).unwrap();
    assert!(!format!("{catalog:?}").contains("token-1"));
    let read_only = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"];
    fake.offers(&read_only);
    let said = says(catalog.ensure_usable().unwrap_err());
    assert!(
        said.contains("does not offer `POST /v1/{prefix}/namespaces/{namespace}/tables/{table}`"),
        "{said}"
    );
}

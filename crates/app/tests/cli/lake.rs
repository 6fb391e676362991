//! Reading the lake back: every table gets its line, whatever the others come to.

use crate::polynya::Place;

#[test]
fn a_table_that_cannot_be_compared_is_named_and_the_others_are() {
    let _limit = testkit::limit(120);
    let place = Place::new();
    let server = place.serve(&["serve"]);
    for table in ["a", "b", "c"] {
        place.ok(&["sql", &format!("create table {table} as select 7 as n")]);
    }
    assert_eq!(place.ok(&["lake", "verify"]).matches(": equal.").count(), 3);
    // Half a file, as a copy that was broken off leaves it.
    let data = place.path("polynya-data/lake/main/b/data");
    let file = std::fs::read_dir(data).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let output = place.run(&["lake", "verify"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said.matches(": equal.").count(), 2, "{said}");
    assert!(said.contains("b: NOT COMPARED\n"), "{said}");
    let json = String::from_utf8(place.run(&["lake", "verify", "b", "--json"]).stdout).unwrap();
    let report: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert!(report["equal"] == false && report["error"].is_string(), "{report}");
    assert!(server.stop().success());
}

/// A table of two days with several commits, from which rows are deleted.
fn events(place: &Place) {
    place.ok(&["sql", "create table events (n bigint, day date, what text) with (partition_by = 'day')"]);
    for round in 0..4 {
        let insert = format!(
            "insert into events select value + {}, case value % 2 when 0 then date '2026-01-01' else date '2026-01-02' end, 'word ' || value from generate_series(0, 49) as t(value)",
            100 * round
        );
        place.ok(&["sql", &insert]);
        place.ok(&["lake", "commit", "events"]);
        place.ok(&["sql", &format!("delete from events where n in ({}, {})", 100 * round, 100 * round + 7)]);
        place.ok(&["lake", "commit", "events"]);
    }
}

#[test]
fn the_lake_is_shown_maintained_and_erased_by_commands() {
    let _limit = testkit::limit(240);
    let place = Place::new();
    let server = place.serve(&["serve"]);
    events(&place);
    for args in [&["lake"][..], &["lake", "status"], &["lake", "status", "events"]] {
        let shown = place.ok(args);
        assert!(shown.contains("snapshots") && shown.contains(".metadata.json"), "{args:?}: {shown}");
        assert!(shown.lines().any(|line| line.contains("events") && line.contains("192")), "{shown}");
    }
    let json = place.ok(&["lake", "--json"]);
    let status: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((&status["lake"]["rows"], &status["lag"]["rows"]), (&192.into(), &0.into()), "{status}");
    let snapshots = place.ok(&["lake", "snapshots", "events"]);
    assert_eq!(snapshots.matches("current").count(), 1, "{snapshots}");
    let files = place.ok(&["lake", "files", "events"]);
    assert!(
        files.contains("day=2026-01-01") && files.contains("day=2026-01-02") && files.contains("deletes"),
        "{files}"
    );
    let json: serde_json::Value =
        serde_json::from_str(place.ok(&["lake", "files", "events", "--json"]).trim()).unwrap();
    let count = json["files"].as_array().unwrap().len();
    assert_eq!(files.lines().count(), count + 2, "{files}");

    let done = place.ok(&["lake", "maintain", "events"]);
    assert!(done.starts_with("events: data files ") && done.contains("→ 2"), "{done}");
    assert_eq!(place.ok(&["lake", "verify", "events"]).matches(": equal.").count(), 1);

    let done = place.ok(&["lake", "erase", "events"]);
    for said in ["erased what was deleted", "snapshot", "AS OF", "log: ", "backups: "] {
        assert!(done.contains(said), "{said}: {done}");
    }
    let json: serde_json::Value =
        serde_json::from_str(place.ok(&["lake", "snapshots", "events", "--json"]).trim()).unwrap();
    assert_eq!(json["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(place.ok(&["lake", "verify", "events"]).matches(": equal.").count(), 1);
    assert!(place.fails(&["lake", "erase", "nobody"]).contains("nobody"));
    assert!(place.fails(&["lake", "files", "nobody"]).contains("nobody"));
    assert!(server.stop().success());
    // Without a server the commands open the directory.
    assert!(place.ok(&["lake", "erase", "events"]).contains("erased"));
    assert!(place.ok(&["lake"]).contains("192"));
    assert_eq!(place.number("select count(*) from events"), 192);
}

#[test]
fn a_table_of_the_catalog_and_a_directory_are_imported_once() {
    let _limit = testkit::limit(240);
    let place = Place::new();
    let server = place.serve(&["serve"]);
    events(&place);
    // By its name in this server's catalog, rows that are deleted by position among them.
    let said = place.ok(&["lake", "import", "events", "copied"]);
    assert!(said.contains("copied: 192 rows"), "{said}");
    let same =
        "select count(*) from events e join copied c on e.n = c.n and e.day = c.day and e.what = c.what";
    assert_eq!((place.number("select count(*) from copied"), place.number(same)), (192, 192));
    assert!(place.ok(&["lake", "import", "events", "copied"]).contains("nothing new"));
    assert_eq!(place.number("select count(*) from copied"), 192);
    // The table went on, and an import knows no more than what is there.
    place.ok(&["sql", "insert into events (n) values (1000)"]);
    place.ok(&["lake", "commit", "events"]);
    let refused = place.fails(&["lake", "import", "events", "copied"]);
    assert!(refused.contains("another one by now") && refused.contains("--again"), "{refused}");
    assert!(server.stop().success());

    let dir = "polynya-data/lake/main/events";
    let json = place.ok(&["lake", "import", dir, "by_path", "--rename", "what=kind", "--json"]);
    let done: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((&done["rows"], &done["table"]), (&193.into(), &"by_path".into()), "{done}");
    assert_eq!(place.number("select count(kind) from by_path"), 192);
    assert!(place.fails(&["lake", "import", "nowhere", "x"]).contains("nowhere"));
    assert!(place.fails(&["lake", "import", dir, "y", "--rename", "nothing=x"]).contains("nothing"));
    assert!(place.fails(&["tables", "y"]).contains('y'), "nothing was made");
    // A table that cannot hold what would come says so first.
    place.ok(&["sql", "create table narrow (n text, day date)"]);
    let refused = place.fails(&["lake", "import", dir, "narrow"]);
    assert!(refused.contains("`n` is int64, and string in the table"), "{refused}");
    assert_eq!(place.number("select count(*) from narrow"), 0);
}

#[test]
fn parquet_files_are_imported_each_once_and_what_does_not_fit_is_told_before() {
    let _limit = testkit::limit(240);
    let place = Place::new();
    std::fs::create_dir_all(place.path("files/deeper")).unwrap();
    let rows: String = (1..=100).map(|n| format!("{{\"n\":{n},\"word\":\"a\"}}\n")).collect();
    std::fs::write(place.path("a.ndjson"), rows).unwrap();
    place.ok(&["ingest", "a.ndjson"]);
    place.ok(&["sql", "copy a to 'files/1.parquet'"]);
    place.ok(&["sql", "copy a to 'files/deeper/2.parquet'"]);
    let said = place.ok(&["lake", "import", "files", "b"]);
    assert_eq!(said.matches("b: 100 rows from").count(), 2, "{said}");
    place.ok(&["sql", "copy (select 7 as n, 'late' as word) to 'files/3.parquet'"]);
    let said = place.ok(&["lake", "import", "files", "b"]);
    assert_eq!(
        (said.matches("nothing new").count(), said.matches("b: 1 row from").count()),
        (2, 1),
        "{said}"
    );
    assert_eq!(place.number("select count(*) from b"), 201);
    place.ok(&["lake", "import", "files/*.parquet", "c", "--rename", "word=term"]);
    assert_eq!(place.number("select count(term) from c"), 101);
    place.ok(&["sql", "copy (select 'x' as n, 'y' as word) to 'files/odd.parquet'"]);
    let refused = place.fails(&["lake", "import", "files", "d"]);
    assert!(refused.contains("column `n` is") && refused.contains("odd.parquet"), "{refused}");
    assert!(place.fails(&["tables", "d"]).contains('d'), "nothing was made");
}

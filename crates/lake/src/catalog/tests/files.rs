use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iceberg::layout::Layout;
use iceberg::manifest::{self, Content, DataFile, Entry, Status};
use iceberg::metadata::Metadata;
use iceberg::spec::specs_of;
use serde_json::{Value as Json, json};
use types::Kind;

use crate::catalog::{NewTable, PurgeCounts, TableChange, TableStore, create, overlaps};
use crate::options::Options;

struct TestStore {
    dir: testkit::TempDir,
    store: TableStore,
}

impl TestStore {
    fn new(name: &str) -> TestStore {
        let dir = testkit::temp_dir(name);
        std::fs::create_dir_all(dir.path().join("data")).unwrap();
        std::fs::create_dir_all(dir.path().join("else")).unwrap();
        let warehouse = dir.path().join("data/lake");
        let options = Options::new(&warehouse, warehouse.to_str().unwrap());
        let others = vec![dir.path().join("else")];
        let store = TableStore::new(vfs::Env::real(), &options, others).unwrap();
        TestStore { dir, store }
    }

    fn at(&self, rest: &str) -> String {
        self.dir.path().join(rest).to_str().unwrap().to_owned()
    }
}

fn no_properties() -> BTreeMap<String, String> {
    BTreeMap::new()
}

#[test]
fn a_location_must_be_where_tables_may_be() {
    let test = TestStore::new("catalog-locations");
    for good in ["data/lake/_catalog/ns/t", "else/t", "else/a/b/"] {
        let found = test.store.path_of(&test.at(good)).unwrap();
        assert_eq!(found, test.dir.path().join(good.trim_end_matches('/')));
        for scheme in ["file:", "file://", "FILE://"] {
            assert_eq!(test.store.path_of(&format!("{scheme}{}", test.at(good))).unwrap(), found);
        }
    }
    for bad in [
        "data/lake/main/events",
        "data/lake",
        "data/lake/_catalog",
        "data/lake/_catalog/../main/events",
        "data/lake/_catalog/./t",
        "data/lake/_catalog//t",
        "data/log",
        "else",
        "elsewhere/t",
        "else/../data/log",
    ] {
        let error = test.store.path_of(&test.at(bad)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{bad}");
    }
    for bad in
        ["", "/", "relative/t", "s3://bucket/t", "file://host/t", "file:t", "/etc/passwd", "/a\0b", "/\n"]
    {
        assert_eq!(test.store.path_of(bad).unwrap_err().kind(), Kind::Invalid, "{bad:?}");
    }
    // Directories that contain the data directory, or lie in it, are refused for tables of other engines.
    let warehouse = test.dir.path().join("data/lake");
    let options = Options::new(&warehouse, warehouse.to_str().unwrap());
    for other in [
        test.dir.path().to_owned(),
        test.dir.path().join("data/x"),
        PathBuf::from("else"),
        PathBuf::from("/"),
    ] {
        assert!(
            TableStore::new(vfs::Env::real(), &options, vec![other.clone()]).is_err(),
            "{}",
            other.display()
        );
    }
}

#[test]
fn locations_of_two_tables_never_meet() {
    let test = TestStore::new("catalog-new-locations");
    let hostile = ["..".to_owned(), "a/b\\c".to_owned(), "ü".repeat(90)];
    let one = test.store.new_location(&hostile, "../../main/events");
    let other = test.store.new_location(&hostile, "../../main/events");
    for location in [&one, &other] {
        let path = test.store.path_of(location).unwrap();
        assert!(path.starts_with(test.dir.path().join("data/lake/_catalog")), "{}", path.display());
    }
    assert!(!overlaps(&one, &other));
    assert!(
        overlaps("/a/b", "file:///a/b/") && overlaps("/a/b", "/a/b/c") && overlaps("/a/b/c", "file:/a/b")
    );
    assert!(!overlaps("/a/b", "/a/bc"));
}

#[test]
fn a_metadata_file_is_there_whole_or_not_at_all() {
    let test = TestStore::new("catalog-write");
    let location = test.store.new_location(&["ns".into()], "t");
    let first = test.store.next_metadata(&location, &no_properties(), None).unwrap();
    assert!(first.contains("/metadata/00000-"), "{first}");
    test.store.write(&first, b"{}", None).unwrap();
    assert_eq!(&test.store.read(&first).unwrap()[..], b"{}");
    let second = test.store.next_metadata(&location, &no_properties(), Some(&first)).unwrap();
    assert!(second.contains("/metadata/00001-"), "{second}");
    test.store.write(&second, b"[]", Some(&first)).unwrap();
    let names = |dir: &Path| -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let dir = test.store.path_of(&first).unwrap().parent().unwrap().to_owned();
    assert_eq!(names(&dir).len(), 2, "{:?}", names(&dir));
    // A table may name another directory for its metadata, as long as it lies in the table's own.
    let said = |dir: String| BTreeMap::from([("write.metadata.path".to_owned(), dir)]);
    let inside = test.store.next_metadata(&location, &said(format!("file://{location}/meta")), None).unwrap();
    test.store.write(&inside, b"{}", None).unwrap();
    test.store.adopt(&inside).unwrap();
    assert!(inside.contains("/meta/00000-"), "{inside}");
    for outside in
        [test.at("else/t"), format!("{location}/../x"), "s3://b".to_owned(), format!("{location}x")]
    {
        assert_eq!(
            test.store.next_metadata(&location, &said(outside), None).unwrap_err().kind(),
            Kind::Invalid
        );
    }
    // Other programs compress their metadata files.
    let packed = dir.join("00002-x.gz.metadata.json");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, b"{\"a\":1}").unwrap();
    std::fs::write(&packed, encoder.finish().unwrap()).unwrap();
    assert_eq!(&test.store.read(packed.to_str().unwrap()).unwrap()[..], b"{\"a\":1}");
    // A table's metadata may name any path. A file that is not a metadata file of this table stays.
    let other = test.store.new_location(&["ns".into()], "u");
    let other = test.store.next_metadata(&other, &no_properties(), None).unwrap();
    test.store.write(&other, b"{}", None).unwrap();
    test.store.remove_old(&location, &other);
    std::fs::write(dir.join("snap.avro"), "x").unwrap();
    test.store.remove_old(&location, dir.join("snap.avro").to_str().unwrap());
    test.store.remove_old(&location, &first);
    assert!(test.store.read(&other).is_ok());
    assert_eq!(names(&dir).len(), 3, "{:?}", names(&dir));
}

#[test]
fn purging_removes_the_files_of_a_table_and_no_others() {
    let test = TestStore::new("catalog-purge");
    let location = test.store.new_location(&["ns".into()], "t");
    let dir = test.store.path_of(&location).unwrap();
    let metadata = test.store.next_metadata(&location, &no_properties(), None).unwrap();
    test.store.write(&metadata, b"{}", None).unwrap();
    std::fs::create_dir_all(dir.join("data/day=1")).unwrap();
    let foreign = test.dir.path().join("else/precious.parquet");
    for path in [&dir.join("data/day=1/a.parquet"), &dir.join("data/b.parquet"), &foreign] {
        std::fs::write(path, "rows").unwrap();
    }
    // Hadoop's file system leaves such checksum files beside the files that it writes.
    std::fs::create_dir_all(dir.join("data/day=2")).unwrap();
    for beside in ["data/day=1/.a.parquet.crc", "data/day=2/.gone.parquet.crc", "metadata/.m.avro.crc"] {
        std::fs::write(dir.join(beside), "sums").unwrap();
    }
    let entry = |path: &str| Entry {
        status: Status::Added,
        snapshot_id: 1,
        sequence: 1,
        file_sequence: 1,
        file: std::sync::Arc::new(DataFile {
            content: Content::Data,
            path: path.to_owned(),
            spec: 0,
            partition: Default::default(),
            rows: 1,
            bytes: 4,
            metrics: Default::default(),
            split_offsets: Vec::new(),
            sort_order: None,
            checksums: None,
        }),
    };
    let entries = [
        entry(&format!("file://{location}/data/day=1/a.parquet")),
        entry(&format!("{location}/data/b.parquet")),
        entry(foreign.to_str().unwrap()),
    ];
    let empty = json!({ "type": "struct", "fields": [] });
    let table = Metadata::new("u".into(), "/t".into(), &empty, 100, &Layout::default(), 1);
    let spec = specs_of(&table).unwrap().remove(&0).unwrap();
    let of = manifest::ManifestHeader {
        path: format!("{location}/metadata/m.avro"),
        content: Content::Data,
        spec: &spec,
        schema: "{}",
        schema_id: 0,
        snapshot_id: 1,
        sequence: 1,
    };
    let (bytes, file) = manifest::write(of, &entries);
    std::fs::write(dir.join("metadata/m.avro"), bytes).unwrap();
    std::fs::write(dir.join("metadata/l.avro"), manifest::write_list(&[file], 1, None, 1)).unwrap();
    let schema =
        json!({ "type": "struct", "fields": [{ "id": 1, "name": "a", "required": false, "type": "int" }] });
    let wanted = NewTable {
        schema: &schema,
        partition_spec: &Json::Null,
        write_order: &Json::Null,
        properties: Default::default(),
    };
    let table = create(wanted, "6a5a4c2e-0c4f-4f0e-9d4b-111111111111", &location, 1).unwrap();
    let mut change = TableChange::of(table, 2);
    let snapshot = |id: i64, list: &str| {
        json!({ "action": "add-snapshot", "snapshot": { "snapshot-id": id,
        "sequence-number": id, "timestamp-ms": 1, "manifest-list": format!("{location}/metadata/{list}"),
        "summary": { "operation": "append" } } })
    };
    change.apply_all(&[snapshot(1, "l.avro"), snapshot(2, "gone.avro")]).unwrap();
    let table = change.finish(Some(&metadata)).unwrap().unwrap().table;
    let newest = test.store.next_metadata(&location, &no_properties(), Some(&metadata)).unwrap();
    test.store.write(&newest, b"{}", Some(&metadata)).unwrap();
    std::fs::write(dir.join("notes.txt"), "not named by anything").unwrap();

    let purged = test.store.purge(&table, &newest).unwrap();
    // Two manifest lists, one of them missing, a manifest, two data files and two metadata files.
    assert_eq!(purged, PurgeCounts { removed: 7, failed: 1, elsewhere: 1 });
    assert!(foreign.exists());
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
    std::fs::remove_file(dir.join("notes.txt")).unwrap();
    assert_eq!(test.store.purge(&table, &newest).unwrap().failed, 2, "nothing is there to be read any more");
    assert!(!dir.exists());
}

/// Counts the metadata files that were written and are missing or incomplete after a power failure, over a failure at every
/// call. Syncs of the paths for which `loses` returns true are lost.
fn lost_after_power_failures(loses: fn(&str) -> bool) -> usize {
    let store_on = |sim: &sim::SimEnv| {
        let options = Options::new("db/lake", "/db/lake");
        TableStore::new(sim.env(), &options, Vec::new()).unwrap()
    };
    let (mut lost, mut call) = (0, 0);
    loop {
        call += 1;
        let sim = sim::SimEnv::new(7);
        sim.env().disk.create_dir_all(Path::new("db")).unwrap();
        sim.env().disk.sync_dir(Path::new("")).unwrap();
        sim.disk.lose_syncs(move |path| loses(&path.to_string_lossy()));
        sim.disk.crash_at(sim.disk.calls() + call);
        let store = store_on(&sim);
        let location = store.new_location(&["ns".into()], "t");
        let mut written: Vec<(String, String)> = Vec::new();
        for round in 0..3 {
            let previous = written.last().map(|(name, _)| name.clone());
            let name = store.next_metadata(&location, &no_properties(), previous.as_deref()).unwrap();
            let text = format!("{{\"round\":{round}}}");
            if store.write(&name, text.as_bytes(), previous.as_deref()).is_err() {
                break;
            }
            written.push((name, text));
        }
        let is_whole = !sim.disk.is_dead();
        let after = store_on(&sim.crash(&mut sim::Rng::new(call)));
        lost += written
            .iter()
            .filter(|(name, text)| after.read(name).ok().as_deref() != Some(text.as_bytes()))
            .count();
        if is_whole {
            assert_eq!(written.len(), 3);
            return lost;
        }
    }
}

/// A catalog names a metadata file only after it was written. From then on the file survives a power failure.
#[test]
fn a_metadata_file_that_was_written_survives_a_power_failure() {
    let _limit = testkit::limit(120);
    assert_eq!(lost_after_power_failures(|_| false), 0);
    // Canaries: each sync is needed.
    for loses in [
        (|path: &str| path.ends_with(".tmp")) as fn(&str) -> bool,
        |path| path.ends_with("/metadata"),
        |path| path.ends_with("_catalog/ns"),
    ] {
        assert!(lost_after_power_failures(loses) > 0);
    }
}

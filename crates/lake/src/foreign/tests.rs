//! Tests with tables that look as if other programs had written them: Polynya's own, changed. Tables that PyIceberg wrote are
//! read in `tests/lake`.

mod equality;
mod format_3;
mod remote;
mod table_builder;
mod vectors;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use iceberg::avro::Body;
use serde_json::{Value as Json, json};
use types::{DataType, Error, Kind, Result, Value};

use super::{ForeignTable, TableVersion, schema};
use crate::tests::support::{Bench, LAYOUTS};
use crate::{Lake, Options};

/// A table's rows in reading order: the key and the text of each.
type KeyedTexts = Vec<(i64, Option<String>)>;

fn bench(nth: usize) -> Bench {
    let mut bench = Bench::new(Options::new("lake", "lake"));
    let (partition_by, sort_by) = LAYOUTS[nth];
    bench.lay_out(partition_by, sort_by);
    bench.keys(0..40).delete([3, 9, 40]);
    bench.land();
    bench.keys(40..80).delete([5, 6, 41]);
    bench.land();
    bench.insert(&[vec![Value::Int64(-1), Value::Null]]);
    bench.land();
    bench
}

fn rows_in(batch: &RecordBatch) -> KeyedTexts {
    let keys = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>();
    let texts = batch.column_by_name("s").unwrap().as_string::<i32>();
    let text = |at: usize| texts.is_valid(at).then(|| texts.value(at).to_owned());
    (0..batch.num_rows()).map(|at| (keys.value(at), text(at))).collect()
}

fn read(table: &Arc<ForeignTable>, from: u64) -> Result<KeyedTexts> {
    let mut rows = table.read(from);
    let mut all = KeyedTexts::new();
    while let Some(batch) = rows.next_batch()? {
        all.extend(rows_in(&batch.rows));
    }
    Ok(all)
}

fn open(bench: &Bench) -> Result<Arc<ForeignTable>> {
    ForeignTable::open(&bench.store(), &bench.lake().metadata_path(), None).map(Arc::new)
}

fn expected(bench: &Bench) -> KeyedTexts {
    let table = bench.snapshot();
    let mut rows = rows_in(&table.scan_from(types::RowId(1), usize::MAX, table.all_columns()).unwrap());
    rows.sort_unstable();
    rows
}

/// Edits the newest metadata file.
fn edit(bench: &Bench, change: impl FnOnce(&mut Json)) {
    let lake = bench.lake();
    let mut json: Json = serde_json::from_slice(&bench.store().read(&lake.metadata_path()).unwrap()).unwrap();
    change(&mut json);
    bench.store().replace(&lake.metadata_path(), json.to_string().as_bytes()).unwrap();
}

#[test]
fn rows_are_read_once_each_from_any_of_them_on() {
    for (nth, layout) in LAYOUTS.iter().enumerate() {
        let bench = bench(nth);
        let table = open(&bench).unwrap();
        table.check().unwrap();
        // Polynya's internal columns are left out: the importing table assigns its own.
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["k", "s"]);
        let all = read(&table, 0).unwrap();
        assert_eq!(table.end_offset(), all.len() as u64);
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected(&bench), "{layout:?}");
        for from in (0..=all.len()).step_by(7).chain([all.len(), all.len() + 5]) {
            let rest = all.get(from..).unwrap_or_default();
            assert_eq!(read(&table, from as u64).unwrap(), rest, "from {from}");
        }
    }
}

#[test]
fn added_and_renamed_columns_are_found_by_their_ids() {
    let mut bench = bench(1);
    bench.alter(|def| {
        def.add_column("more", &DataType::Int32, true, None).unwrap();
    });
    bench.alter(|def| def.schema.columns[1].name = "text".into());
    bench.insert(&[vec![Value::Int64(500), Value::String("new".into()), Value::Int32(7)]]);
    bench.land();
    let table = open(&bench).unwrap();
    let mut rows = table.read(0);
    let mut seen = 0;
    while let Some(batch) = rows.next_batch().unwrap() {
        let batch = batch.rows;
        assert_eq!(batch.schema().field(1).name(), "text");
        assert!(batch.column(1).null_count() <= 1);
        seen += batch.num_rows();
    }
    assert_eq!(seen as u64, table.end_offset());
    // An older snapshot has the columns of its time.
    let lake = bench.lake();
    let first = lake.metadata.snapshots[0].snapshot_id;
    let at = |snapshot, schema| {
        ForeignTable::open(&bench.store(), &lake.metadata_path(), Some(TableVersion { snapshot, schema }))
    };
    let old = at(first, None).unwrap();
    assert_eq!((old.columns.len(), old.columns[1].name.as_str(), old.end_offset()), (2, "s", 37));
    // It may also be read with the columns of another time.
    let named = at(first, Some(table.schema)).unwrap();
    assert_eq!((named.columns.len(), named.columns[1].name.as_str(), named.end_offset()), (3, "text", 37));
    assert_eq!(at(1, None).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(at(first, Some(999)).unwrap_err().kind(), Kind::NotFound);
}

/// A column was renamed and no row was added afterwards. An import that began with the new name continued with the name at the
/// snapshot's time, and the values went into two columns.
#[test]
fn an_import_that_began_with_newer_columns_than_its_snapshot_keeps_them() {
    let bench = bench(0);
    edit(&bench, |json| {
        let mut schema = json["schemas"].as_array().unwrap().last().unwrap().clone();
        schema["schema-id"] = json!(77);
        schema["fields"].as_array_mut().unwrap().last_mut().unwrap()["name"] = json!("renamed");
        json["schemas"].as_array_mut().unwrap().push(schema);
        json["current-schema-id"] = json!(77);
    });
    let path = bench.dir().join("metadata");
    let newest = super::newest_metadata(&bench.store(), &bench.dir()).unwrap();
    assert!(newest.starts_with(path));
    let now = ForeignTable::open(&bench.store(), &newest, None).unwrap();
    let at = TableVersion { snapshot: now.snapshot.unwrap(), schema: Some(now.schema) };
    let later = ForeignTable::open(&bench.store(), &newest, Some(at)).unwrap();
    assert_eq!((now.schema, later.schema), (77, 77));
    assert_eq!(later.columns, now.columns);
    assert_eq!(later.columns.last().unwrap().name, "renamed");
}

/// Format 1 has fewer members; the missing ones follow from the rest.
#[test]
fn format_1_is_read_as_well() {
    let bench = bench(0);
    let wanted = read(&open(&bench).unwrap(), 0).unwrap();
    edit(&bench, |json| {
        let schema = json["schemas"].as_array().unwrap().last().unwrap().clone();
        let map = json.as_object_mut().unwrap();
        map.insert("format-version".into(), json!(1));
        map.insert("schema".into(), schema);
        map.insert("partition-spec".into(), json!([]));
        for gone in [
            "schemas",
            "current-schema-id",
            "partition-specs",
            "default-spec-id",
            "last-partition-id",
            "sort-orders",
            "default-sort-order-id",
            "last-sequence-number",
            "table-uuid",
            "refs",
        ] {
            map.remove(gone);
        }
        for snapshot in map["snapshots"].as_array_mut().unwrap() {
            let snapshot = snapshot.as_object_mut().unwrap();
            ["sequence-number", "schema-id"].iter().for_each(|gone| drop(snapshot.remove(*gone)));
        }
    });
    assert_eq!(read(&open(&bench).unwrap(), 0).unwrap(), wanted);
}

/// Iceberg's Java library writes no sequence numbers for snapshots from the time when a table had format 1, and some snapshots
/// have no summary.
#[test]
fn a_table_that_was_upgraded_from_format_1_is_read() {
    let bench = bench(0);
    let wanted = read(&open(&bench).unwrap(), 0).unwrap();
    edit(&bench, |json| {
        assert_eq!(json["format-version"], 2);
        for snapshot in json["snapshots"].as_array_mut().unwrap() {
            let snapshot = snapshot.as_object_mut().unwrap();
            ["sequence-number", "summary"].iter().for_each(|gone| drop(snapshot.remove(*gone)));
        }
    });
    assert_eq!(read(&open(&bench).unwrap(), 0).unwrap(), wanted);
}

/// A manifest list of format 1 tells only each manifest's path and length.
#[test]
fn a_list_of_format_1_is_read() {
    const SCHEMA: &str = r#"{"type":"record","name":"manifest_file","fields":[
        {"name":"manifest_path","type":"string","field-id":500},
        {"name":"manifest_length","type":"long","field-id":501},
        {"name":"partition_spec_id","type":"int","field-id":502}]}"#;
    let mut body = Body::new();
    body.blob(b"/t/metadata/m.avro");
    body.long(77);
    body.long(0);
    body.end_record();
    let found = iceberg::manifest::read_list(&body.into_file(SCHEMA, &[])).unwrap();
    assert_eq!((found[0].path.as_str(), found[0].bytes, found[0].sequence), ("/t/metadata/m.avro", 77, 0));
}

/// A moved table's metadata name its former location. Files that lie neither there nor in the present directory are reported.
#[test]
fn missing_files_of_a_moved_table_are_reported() {
    let bench = bench(2);
    let wanted = read(&open(&bench).unwrap(), 0).unwrap();
    let location = bench.lake().metadata.location.clone();
    let moved = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        text.replace(&format!("\"location\":\"{location}\""), "\"location\":\"s3://bucket/elsewhere/\"")
            .replace(&format!("{location}/metadata"), "s3://bucket/elsewhere/metadata")
    };
    let path = bench.lake().metadata_path();
    let text = moved(&bench.store().read(&path).unwrap());
    bench.store().replace(&path, text.as_bytes()).unwrap();
    // The manifests still contain the old paths. They do not exist, and they are not below the new location.
    let error = open(&bench).map(|table| read(&table, 0)).unwrap_err();
    assert!(error.to_string().contains("names a file that is not there"), "{error}");
    assert_ne!(wanted.len(), 0);
}

/// Returns a manifest with one entry: content, format, path, rows and bytes as given.
fn manifest_of(content: i64, format: &str, path: &str, rows: i64, bytes: i64) -> Vec<u8> {
    const SCHEMA: &str = r#"{"type":"record","name":"manifest_entry","fields":[
        {"name":"status","type":"int","field-id":0},
        {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
            {"name":"content","type":"int","field-id":134},
            {"name":"file_path","type":"string","field-id":100},
            {"name":"file_format","type":"string","field-id":101},
            {"name":"record_count","type":"long","field-id":103},
            {"name":"file_size_in_bytes","type":"long","field-id":104}]}}]}"#;
    let mut body = Body::new();
    body.long(1);
    body.long(content);
    body.blob(path.as_bytes());
    body.blob(format.as_bytes());
    body.long(rows);
    body.long(bytes);
    body.end_record();
    body.into_file(SCHEMA, &[])
}

/// Impala and older versions of Spark write such times. Those outside the range of nanoseconds since 1970 were silently
/// changed.
#[test]
fn int96_times_of_all_years_are_read() {
    use arrow::datatypes::TimestampMicrosecondType;
    use parquet::data_type::{Int96, Int96Type};
    use parquet::file::writer::SerializedFileWriter;
    let bench = bench(0);
    let message =
        parquet::schema::parser::parse_message_type("message m { optional int96 at = 50; }").unwrap();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(message), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // Julian day numbers in the years 1, 1970 and 9999.
    let days = [1_721_426, 2_440_588, 5_373_484];
    let times: Vec<Int96> = days.iter().map(|day| Int96::from(vec![5_000, 0, *day])).collect();
    column.typed::<Int96Type>().write_batch(&times, Some(&[1; 3]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let lake = bench.lake();
    let path = lake.local(&lake.data[0].path).unwrap();
    let manifest = manifest_of(0, "PARQUET", &lake.data[0].path, 3, file.len() as i64);
    bench.store().replace(&path, &file).unwrap();
    for of in &lake.manifests {
        bench.store().replace(&lake.local(&of.file.path).unwrap(), &manifest).unwrap();
    }
    edit(&bench, |json| {
        json["schemas"][0]["fields"] = json!([{ "id": 50, "name": "at", "type": "timestamptz" }]);
    });
    let table = open(&bench).unwrap();
    table.check().unwrap();
    let batch = table.read(0).next_batch().unwrap().unwrap().rows;
    let micros = days.map(|day| (i64::from(day) - 2_440_588) * 86_400_000_000 + 5);
    assert_eq!(*batch.column(0).as_primitive::<TimestampMicrosecondType>().values(), micros);
}

#[test]
fn a_table_that_cannot_be_read_completely_is_refused_before_the_first_row() {
    let refuse = |change: &dyn Fn(&Bench, &Lake)| -> Error {
        let bench = bench(0);
        change(&bench, &bench.lake());
        open(&bench).and_then(|table| table.check()).unwrap_err()
    };
    let manifest = |content: i64, format: &'static str| {
        move |bench: &Bench, lake: &Lake| {
            let path = lake.local(&lake.manifests[0].file.path).unwrap();
            bench.store().replace(&path, &manifest_of(content, format, "lake/x", 1, 100)).unwrap();
        }
    };
    for (content, format, why) in [
        (2, "AVRO", "deletes of format `avro`"),
        (1, "ORC", "deletes of format `orc`"),
        (0, "ORC", "format `orc`"),
    ] {
        let error = refuse(&manifest(content, format));
        assert!(error.kind() == Kind::Invalid && error.to_string().contains(why), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("rewrite")), "{error}");
    }
    let error = refuse(&|bench, _| edit(bench, |json| json["format-version"] = json!(4)));
    assert!(error.kind() == Kind::Newer && error.to_string().contains("format 4"), "{error}");
    let error = refuse(&|bench, _| {
        edit(bench, |json| json["schemas"][0]["fields"][2]["type"] = json!("timestamptz_ns"));
    });
    assert!(error.to_string().contains("timestamptz_ns"), "{error}");
    // A required column that no file contains.
    let error = refuse(&|bench, _| {
        edit(bench, |json| {
            let fields = json["schemas"][0]["fields"].as_array_mut().unwrap();
            fields.push(json!({ "id": 900, "name": "lacking", "type": "int", "required": true }));
        });
    });
    assert!(error.to_string().contains("required column `lacking`"), "{error}");
    let error = refuse(&|bench, lake| {
        let path = lake.local(&lake.data[0].path).unwrap();
        let bytes = bench.store().read(&path).unwrap();
        bench.store().replace(&path, &bytes[..bytes.len() / 2]).unwrap();
    });
    assert!(error.kind() == Kind::Damaged && error.to_string().contains("not as long"), "{error}");
}

#[test]
fn bytes_that_are_no_metadata_are_an_error_and_nothing_else() {
    let bench = bench(0);
    let path = bench.lake().metadata_path();
    for text in [
        &b""[..],
        b"{}",
        b"[]",
        b"{\"format-version\":1}",
        b"{\"format-version\":1,\"schema\":[],\"partition-spec\":[7]}",
        b"{\"format-version\":2}",
        b"\x1f\x8b\x00",
    ] {
        bench.store().replace(&path, text).unwrap();
        assert!(open(&bench).is_err(), "{text:?}");
    }
}

#[test]
fn the_newest_metadata_is_found_by_the_hint_or_the_file_names() {
    let bench = bench(0);
    let (store, dir) = (bench.store(), bench.dir());
    let newest = super::newest_metadata(&store, &dir).unwrap();
    assert_eq!(newest, bench.lake().metadata_path());
    let put = |name: &str, bytes: &[u8]| {
        crate::files::replace(&bench.sim.env(), &PathBuf::from("other/metadata").join(name), bytes).unwrap();
    };
    bench.sim.env().disk.create_dir_all(&PathBuf::from("other/metadata")).unwrap();
    let other = PathBuf::from("other");
    assert_eq!(super::newest_metadata(&store, &other).unwrap_err().kind(), Kind::NotFound);
    put("00001-aa.metadata.json", b"{}");
    put("00010-bb.metadata.json", b"{}");
    put("snap-1.avro", b"");
    let found = |wanted: &str| {
        let found = super::newest_metadata(&store, &other).unwrap();
        assert!(found.ends_with(wanted), "{}", found.display());
    };
    found("00010-bb.metadata.json");
    // Of two files with the same number, only a catalog knows which one is current.
    put("00010-cc.metadata.json", b"{}");
    assert_eq!(super::newest_metadata(&store, &other).unwrap_err().kind(), Kind::Conflict);
    put("version-hint.text", b"00001-aa\n");
    found("00001-aa.metadata.json");
}

#[test]
fn types_that_no_table_here_holds_are_converted_and_reported() {
    let schema = json!({ "fields": [
        { "id": 1, "name": "a", "type": "time" },
        { "id": 2, "name": "b", "type": { "type": "map", "key-id": 3, "key": "string", "value-id": 4, "value": "long" } },
        { "id": 5, "name": "c", "type": { "type": "list", "element-id": 6, "element": "fixed[4]" } },
        { "id": 7, "name": "d", "type": "timestamp" },
        { "id": 8, "name": "e", "type": { "type": "struct", "fields": [
            { "id": 9, "name": "x", "type": "decimal(9, 2)" }, { "id": 10, "name": "y", "type": "uuid" } ] } },
    ]});
    let (_, columns) = schema::columns_of(&schema, false).unwrap();
    let types: Vec<String> = columns.iter().map(|column| column.data_type.to_string()).collect();
    assert_eq!(types, ["string", "json", "list<binary>", "timestamp", "struct<x: decimal(9,2), y: uuid>"]);
    assert!(columns[1].conversion.as_ref().is_some_and(|conversion| conversion.contains("JSON")));
    for bad in ["decimal(39,2)", "geometry", "variant", "decimal(2,3)"] {
        let schema = json!({ "fields": [{ "id": 1, "name": "a", "type": bad }] });
        assert_eq!(schema::columns_of(&schema, false).unwrap_err().kind(), Kind::Invalid, "{bad}");
    }
    let names = schema::name_mapping(
        r#"[{"field-id":1,"names":["a","old"],"fields":[{"field-id":2,"names":["b"]}]},{"names":["c"]}]"#,
    );
    let names = names.unwrap();
    assert_eq!((names[&1].len(), names[&2][0].as_str(), names.len()), (2, "b", 2));
}

use super::*;
use crate::single_value::SingleValue;

/// Returns two specs: number 0 without fields, number 4 by a day and a text.
fn specs() -> Specs {
    let schema = serde_json::json!({ "type": "struct", "fields": [
        { "id": 16, "name": "at", "required": false, "type": "timestamptz" },
        { "id": 17, "name": "s", "required": false, "type": "string" },
    ]});
    let layout = crate::layout::Layout::default();
    let mut metadata = crate::metadata::Metadata::new("u".into(), "/t".into(), &schema, 17, &layout, 1);
    metadata.partition_specs.push(serde_json::json!({ "spec-id": 4, "fields": [
        { "source-id": 16, "field-id": 1000, "name": "at_day", "transform": "day" },
        { "source-id": 17, "field-id": 1001, "name": "s", "transform": "identity" },
    ]}));
    spec::specs_of(&metadata).unwrap()
}

fn of<'a>(path: &str, content: Content, spec: &'a Spec) -> ManifestHeader<'a> {
    let path = path.to_owned();
    ManifestHeader { path, content, spec, schema: "{}", schema_id: 0, snapshot_id: 9, sequence: 5 }
}

fn file(n: u64, content: Content) -> Arc<DataFile> {
    Arc::new(DataFile {
        content,
        path: format!("/lake/data/{n}.parquet"),
        spec: 0,
        partition: Arc::default(),
        rows: n,
        bytes: n * 10,
        metrics: Metrics {
            column_bytes: vec![(1, 5), (16, 7)],
            values: vec![(1, n as i64)],
            nulls: Vec::new(),
            nans: vec![(18, 2)],
            lower: vec![(1, 3i64.to_le_bytes().to_vec()), (17, b"a".to_vec())],
            upper: vec![(1, 9i64.to_le_bytes().to_vec())],
        },
        split_offsets: vec![4, 400],
        sort_order: n.is_multiple_of(20).then_some(3),
        checksums: n.is_multiple_of(2).then(|| Arc::new(Checksums::of(&[n as u8]))),
    })
}

fn entry(status: Status, snapshot_id: i64, sequence: i64, n: u64) -> Entry {
    Entry { status, snapshot_id, sequence, file_sequence: sequence, file: file(n, Content::Data) }
}

#[test]
fn a_manifest_is_read_back_with_inherited_numbers() {
    let specs = specs();
    let entries =
        [entry(Status::Existing, 3, 2, 10), entry(Status::Added, 9, 5, 20), entry(Status::Deleted, 9, 1, 30)];
    let (bytes, written) = write(of("/lake/m.avro", Content::Data, &specs[&0]), &entries);
    assert_eq!((written.files, written.rows), ([1, 1, 1], [10, 20, 30]));
    assert_eq!((written.sequence, written.min_sequence, written.live_files()), (5, 2, 2));
    assert_eq!(written.bytes, bytes.len() as u64);
    let found = read(&bytes, &written, &specs).unwrap();
    assert_eq!(found[..2], entries[..2]);
    // A deleted entry keeps nothing of the file's statistics and checksums.
    let gone = DataFile { metrics: Metrics::default(), checksums: None, ..(*entries[2].file).clone() };
    assert_eq!(found[2], Entry { file: Arc::new(gone), ..entries[2].clone() });

    let deletes = [Entry { file: file(4, Content::Deletes), ..entry(Status::Added, 9, 5, 4) }];
    let (bytes, written_deletes) = write(of("/lake/d.avro", Content::Deletes, &specs[&0]), &deletes);
    assert_eq!(read(&bytes, &written_deletes, &specs).unwrap()[0].file.content, Content::Deletes);
    let list = write_list(&[written.clone(), written_deletes.clone()], 9, Some(3), 5);
    assert_eq!(read_list(&list).unwrap(), [written, written_deletes]);
}

fn partitioned(n: u64, day: Option<i64>, text: &str) -> Entry {
    let mut entry = entry(Status::Added, 9, 5, n);
    let values = vec![day.map(SingleValue::Int), Some(SingleValue::Bytes(text.into()))];
    let file = DataFile { spec: 4, partition: Arc::new(Partition::new(values)), ..(*entry.file).clone() };
    entry.file = Arc::new(file);
    entry
}

#[test]
fn files_are_read_back_with_their_partitions_and_the_list_tells_the_bounds_of_those() {
    let specs = specs();
    let entries = [partitioned(1, Some(-3), "b"), partitioned(2, None, "a"), partitioned(3, Some(7), "ä")];
    let (bytes, written) = write(of("/lake/m.avro", Content::Data, &specs[&4]), &entries);
    assert_eq!(read(&bytes, &written, &specs).unwrap(), entries);
    let bound = |day: i32| Some(day.to_le_bytes().to_vec());
    let expected = [
        FieldSummary { contains_null: true, contains_nan: false, lower: bound(-3), upper: bound(7) },
        FieldSummary { lower: Some(b"a".to_vec()), upper: Some("ä".into()), ..FieldSummary::default() },
    ];
    let list = write_list(std::slice::from_ref(&written), 9, None, 5);
    let found = read_list(&list).unwrap();
    assert_eq!((found[0].spec, &found[0].partitions[..]), (4, &expected[..]));
    assert_eq!(found[0], written);
    let unknown = ManifestFile { spec: 5, ..written };
    assert_eq!(read(&bytes, &unknown, &specs).unwrap_err().kind(), types::Kind::Damaged);
}

#[test]
fn changed_bytes_never_panic() {
    let specs = specs();
    let (bytes, written) = write(of("m", Content::Data, &specs[&4]), &[partitioned(20, Some(1), "x")]);
    let list = write_list(std::slice::from_ref(&written), 9, None, 5);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x15;
        drop(read(&changed, &written, &specs));
    }
    for at in 0..list.len() {
        let mut changed = list.clone();
        changed[at] ^= 0x15;
        drop(read_list(&changed));
    }
}

/// Readers find fields by their id. Schemas without ids once made another gateway's tables unreadable.
#[test]
fn every_field_of_the_schemas_has_an_id() {
    fn check(json: &serde_json::Value, seen: &mut Vec<i64>) {
        for field in json["fields"].as_array().into_iter().flatten() {
            let id = field["field-id"].as_i64().unwrap_or_else(|| panic!("no field id: {field}"));
            assert!(!seen.contains(&id), "{id} twice");
            seen.push(id);
            check(&field["type"], seen);
        }
        for option in json.as_array().into_iter().flatten() {
            check(option, seen);
        }
        if json["items"].is_object() {
            check(&json["items"], seen);
        }
    }
    let partitioned = specs()[&4].entry_schema.clone();
    for (text, wanted) in [
        (ENTRY_SCHEMA, vec![0, 1, 2, 3, 4, 100, 102, 134]),
        (&partitioned, vec![0, 102, 134, 137, 140, 1000, 1001]),
        (LIST_SCHEMA, vec![500, 502, 517, 515]),
    ] {
        let mut seen = Vec::new();
        check(&serde_json::from_str(text).unwrap(), &mut seen);
        assert!(wanted.iter().all(|id| seen.contains(id)), "{seen:?}");
    }
}

use super::*;

fn file(n: u64, content: Content) -> Arc<DataFile> {
    Arc::new(DataFile {
        content,
        path: format!("/lake/data/{n}.parquet"),
        rows: n,
        bytes: n * 10,
        metrics: Metrics {
            column_bytes: vec![(1, 5), (16, 7)],
            values: vec![(1, n as i64)],
            nulls: Vec::new(),
            lower: vec![(1, 3i64.to_le_bytes().to_vec()), (17, b"a".to_vec())],
            upper: vec![(1, 9i64.to_le_bytes().to_vec())],
        },
        split_offsets: vec![4, 400],
    })
}

fn entry(status: Status, snapshot_id: i64, sequence: i64, n: u64) -> Entry {
    Entry { status, snapshot_id, sequence, file_sequence: sequence, file: file(n, Content::Data) }
}

#[test]
fn a_manifest_is_read_back_with_inherited_numbers() {
    let entries =
        [entry(Status::Existing, 3, 2, 10), entry(Status::Added, 9, 5, 20), entry(Status::Deleted, 9, 1, 30)];
    let (bytes, of) = write("/lake/m.avro".into(), Content::Data, &entries, "{}", 0, 9, 5);
    assert_eq!((of.files, of.rows), ([1, 1, 1], [10, 20, 30]));
    assert_eq!((of.sequence, of.min_sequence, of.live_files()), (5, 2, 2));
    assert_eq!(of.bytes, bytes.len() as u64);
    assert_eq!(read(&bytes, &of).unwrap(), entries);

    let (deletes, of_deletes) = write(
        "/lake/d.avro".into(),
        Content::Deletes,
        &[Entry { file: file(4, Content::Deletes), ..entry(Status::Added, 9, 5, 4) }],
        "{}",
        0,
        9,
        5,
    );
    assert_eq!(read(&deletes, &of_deletes).unwrap()[0].file.content, Content::Deletes);
    let list = write_list(&[of.clone(), of_deletes.clone()], 9, Some(3), 5);
    assert_eq!(read_list(&list).unwrap(), [of, of_deletes]);
}

#[test]
fn changed_bytes_never_panic() {
    let (bytes, of) = write("m".into(), Content::Data, &[entry(Status::Added, 9, 5, 20)], "{}", 0, 9, 5);
    let list = write_list(std::slice::from_ref(&of), 9, None, 5);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x15;
        drop(read(&changed, &of));
    }
    for at in 0..list.len() {
        let mut changed = list.clone();
        changed[at] ^= 0x15;
        drop(read_list(&changed));
    }
}

/// What readers look for by field id: a schema without one is what made another gateway's tables unreadable.
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
    for (text, wanted) in
        [(ENTRY_SCHEMA, vec![0, 1, 2, 3, 4, 100, 102, 134]), (LIST_SCHEMA, vec![500, 517, 515])]
    {
        let mut seen = Vec::new();
        check(&serde_json::from_str(text).unwrap(), &mut seen);
        assert!(wanted.iter().all(|id| seen.contains(id)), "{seen:?}");
    }
}

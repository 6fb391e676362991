use super::*;

fn metadata() -> Metadata {
    let schema =
        json!({ "type": "struct", "fields": [{ "id": 1, "name": "a", "required": true, "type": "long" }] });
    let mut metadata =
        Metadata::new("u".into(), "/lake/main/t".into(), &schema, 1, &Layout::default(), 1_000);
    metadata.set_position(RowId(0), Lsn(3));
    metadata
}

fn snapshot(id: i64, parent: Option<i64>, position: Option<(u64, u64)>) -> Snapshot {
    let mut summary = BTreeMap::from([("operation".to_owned(), "append".to_owned())]);
    if let Some((row, lsn)) = position {
        summary.insert(ROW.into(), row.to_string());
        summary.insert(LSN.into(), lsn.to_string());
    }
    Snapshot {
        snapshot_id: id,
        parent_snapshot_id: parent,
        sequence_number: id,
        timestamp_ms: 1_000 + id,
        manifest_list: format!("/lake/main/t/metadata/{id}.list.avro"),
        summary,
        schema_id: Some(0),
        other: Map::new(),
    }
}

#[test]
fn what_is_written_is_read_back_with_what_others_put_in() {
    let mut metadata = metadata();
    metadata.add_snapshot(snapshot(7, None, Some((4, 5))));
    metadata.set_position(RowId(4), Lsn(5));
    metadata.other.insert("statistics".into(), json!([{ "snapshot-id": 7 }]));
    let text = metadata.to_bytes().unwrap();
    let read = Metadata::parse(&text).unwrap();
    assert_eq!(read.to_bytes().unwrap(), text);
    assert_eq!(read.other["statistics"][0]["snapshot-id"], 7);
    assert_eq!(read.refs["main"]["snapshot-id"], 7);
    assert_eq!(read.position().unwrap(), (RowId(4), Lsn(5)));
    let json: Json = serde_json::from_slice(&text).unwrap();
    for (key, value) in [
        ("format-version", json!(2)),
        ("last-sequence-number", json!(7)),
        ("last-partition-id", json!(999)),
        ("current-snapshot-id", json!(7)),
        ("last-column-id", json!(1)),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
}

#[test]
fn the_newest_ancestor_that_says_where_it_stands_wins() {
    let mut metadata = metadata();
    assert_eq!(metadata.position().unwrap(), (RowId(0), Lsn(3)));
    metadata.add_snapshot(snapshot(7, None, Some((4, 5))));
    metadata.set_position(RowId(4), Lsn(5));
    // Another program rewrote files, twice.
    metadata.add_snapshot(snapshot(8, Some(7), None));
    metadata.add_snapshot(snapshot(9, Some(8), None));
    assert_eq!(metadata.position().unwrap(), (RowId(4), Lsn(5)));
}

/// K1: a table that contradicts itself is not written to, because rows could land twice.
#[test]
fn a_table_that_disagrees_with_itself_is_refused() {
    let mut changed = metadata();
    changed.add_snapshot(snapshot(7, None, Some((4, 5))));
    assert!(changed.position().is_err(), "its property still says row 0");
    changed.set_position(RowId(4), Lsn(6));
    assert!(changed.position().is_err(), "another lsn");
    changed.properties.remove(LSN);
    assert!(changed.position().is_err(), "only a row");
    changed.properties.remove(ROW);
    assert!(changed.position().is_err(), "no property");
    let mut foreign = metadata();
    foreign.add_snapshot(snapshot(7, None, None));
    assert!(foreign.position().is_err(), "no snapshot says anything");
    let mut text = metadata();
    text.properties.insert(ROW.into(), "many".into());
    assert!(text.position().is_err());
}

#[test]
fn a_schema_that_was_there_before_keeps_its_id() {
    let mut metadata = metadata();
    let field = |id: i32| json!({ "id": id, "name": format!("c{id}"), "required": false, "type": "int" });
    let first = metadata.schema().unwrap().clone();
    let second = json!({ "type": "struct", "fields": [field(1), field(2)] });
    metadata.set_schema(&second, 2);
    assert_eq!((metadata.current_schema_id, metadata.last_column_id), (1, 2));
    assert!(metadata.has_schema(&second) && !metadata.has_schema(&first));
    metadata.set_schema(&first, 1);
    assert_eq!((metadata.current_schema_id, metadata.last_column_id, metadata.schemas.len()), (0, 2, 2));
}

#[test]
fn damage_is_refused_and_never_panics() {
    let text = metadata().to_bytes().unwrap();
    for cut in 0..text.len() {
        assert!(Metadata::parse(&text[..cut]).is_err());
    }
    let mut newer = metadata();
    newer.format_version = 3;
    assert_eq!(Metadata::parse(&newer.to_bytes().unwrap()).unwrap_err().kind(), Kind::Newer);
}

#[test]
fn the_text_of_a_part_that_never_changes_is_made_once() {
    let mut metadata = metadata();
    let made = texts_made();
    for id in 1..=20 {
        metadata.add_snapshot(snapshot(id, None, Some((1, 4))));
        // Each commit does the same: it copies the metadata and writes the copy.
        metadata = metadata.clone();
        metadata.to_bytes().unwrap();
    }
    assert_eq!(texts_made() - made, 21, "of twenty snapshots and a schema");
    let read = Metadata::parse(&metadata.to_bytes().unwrap()).unwrap();
    assert_eq!(read.to_bytes().unwrap(), metadata.to_bytes().unwrap());
    let text: Json = serde_json::from_str(metadata.current_schema().unwrap().text().unwrap()).unwrap();
    assert_eq!(Some(&text), metadata.schema());
}

use super::*;
use types::{ColumnId, DataType, ViewColumn, ViewRead};

fn samples() -> Vec<Edit> {
    let mut def = TableDef::new(TableId(3), "main.events");
    def.add_column("id", &DataType::Int64, true, None).unwrap();
    def.add_column("body", &DataType::Json, true, None).unwrap();
    def.set_primary_key(&["id".into()]).unwrap();
    let segment = SegmentMeta {
        id: SegmentId(9),
        first_row: RowId(1),
        last_row: RowId(u64::MAX >> 1),
        rows: 17,
        bytes: 1 << 40,
        schema_version: SchemaVersion(2),
        first_time: -5,
        last_time: i64::MAX,
        first_lsn: Lsn(1),
        last_lsn: Lsn(300),
        crc: 0xdead_beef,
    };
    let kept = RetainedRowsMeta { floor: Lsn(7), last_end: Lsn(290), segment: Some(segment.clone()) };
    let key = |tables| ApiKey { name: "ci".into(), hash: [7; 32], scope: Scope::Write, tables, created: 12 };
    vec![
        Edit::CreateTable(def.clone()),
        Edit::AlterTable(def),
        Edit::DropTable(TableId(u32::MAX)),
        Edit::Seal { table: TableId(3), segment: segment.clone(), kept: None },
        Edit::Seal { table: TableId(3), segment: segment.clone(), kept: Some(kept.clone()) },
        Edit::Forget { table: TableId(3), segments: vec![SegmentId(9)], floor: Lsn(8) },
        Edit::Compact { table: TableId(3), inputs: vec![SegmentId(1)], output: None, kept: Some(kept) },
        Edit::Compact {
            table: TableId(3),
            inputs: vec![SegmentId(1), SegmentId(2)],
            output: Some(segment),
            kept: None,
        },
        Edit::Compact { table: TableId(3), inputs: vec![], output: None, kept: None },
        Edit::Checkpoint {
            materializer: "lake".into(),
            table: TableId(3),
            row: RowId(4),
            lsn: Lsn(5),
            state: vec![1, 2, 3],
        },
        Edit::PutKey(key(TableSet::All)),
        Edit::PutKey(key(TableSet::Only(vec!["main.events".into(), "sensors.*".into()]))),
        Edit::RemoveKey { name: "ci".into() },
        Edit::PutView(ViewDef {
            name: "main.v".into(),
            query: "SELECT 1 AS one".into(),
            columns: vec![ViewColumn { from: "one".into(), name: "first".into() }],
            reads: vec![],
        }),
        Edit::PutView(ViewDef {
            name: "main.w".into(),
            query: "SELECT id FROM main.events".into(),
            columns: vec![ViewColumn { from: "id".into(), name: "id".into() }],
            reads: vec![ViewRead {
                table: TableId(3),
                name: "main.events".into(),
                columns: vec![(ColumnId(16), "id".into())],
            }],
        }),
        Edit::DropView { name: "main.v".into() },
    ]
}

#[test]
fn every_edit_survives_storage_and_no_prefix_of_one_is_taken_for_it() {
    for edit in samples() {
        let mut e = Encoder::new();
        edit.encode(&mut e);
        let mut d = Decoder::new(&e.bytes);
        assert_eq!(Edit::decode(&mut d).unwrap(), edit);
        d.finish().unwrap();
        for cut in 0..e.bytes.len() {
            assert!(Edit::decode(&mut Decoder::new(&e.bytes[..cut])).is_err(), "{edit:?} cut at {cut}");
        }
    }
}

#[test]
fn an_unknown_edit_is_from_a_newer_version() {
    assert_eq!(Edit::decode(&mut Decoder::new(&[200])).unwrap_err().kind(), Kind::Newer);
}

#[test]
fn a_segment_with_more_rows_than_row_ids_is_damage() {
    let Edit::Seal { mut segment, .. } = samples().swap_remove(3) else { panic!("a seal") };
    segment.last_row = RowId(5);
    let mut e = Encoder::new();
    segment.encode(&mut e);
    assert_eq!(SegmentMeta::decode(&mut Decoder::new(&e.bytes)).unwrap_err().kind(), Kind::Damaged);
}

//! Tests of consecutive commits: their contents, the number of files that they keep, and the commits that are refused.

use std::time::Duration;

use iceberg::metadata::{LSN, ROW};
use table::materializer::{Materializer as _, Progress};
use types::{DataType, Kind, TableId, Value};

use super::support::{Bench, def, read, rows_of, small};
use crate::{MissingChanges, Options, newest_version};

fn plain() -> Options {
    Options::new("lake", "lake")
}

#[test]
fn a_snapshot_says_where_it_stands_and_so_does_the_table() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100);
    let lake = bench.land();
    let snapshot = lake.metadata.current().unwrap();
    assert_eq!(snapshot.summary[ROW], "100");
    assert_eq!(snapshot.summary[LSN], bench.lsn.to_string());
    assert_eq!(snapshot.summary["operation"], "append");
    assert_eq!(snapshot.summary["total-records"], "100");
    assert_eq!(lake.metadata.properties[ROW], "100");
    bench.delete([3, 4, 50]);
    let lake = bench.land();
    let snapshot = lake.metadata.current().unwrap();
    assert_eq!(snapshot.summary["operation"], "delete");
    assert_eq!(snapshot.summary["total-position-deletes"], "3");
    bench.keys(0..10).delete([5]);
    let lake = bench.land();
    assert_eq!(lake.metadata.current().unwrap().summary["operation"], "overwrite");
    assert_eq!((lake.rows(), lake.data.len(), lake.deletes.len()), (106, 2, 2));
}

/// A row's position is its rank in the file. Row ids may have gaps, where rows never landed.
#[test]
fn rows_with_gaps_between_their_ids_are_deleted_by_their_rank() {
    let mut bench = Bench::new(plain());
    bench.keys(0..200).delete((1..=200).filter(|row| row % 3 == 0));
    bench.land();
    bench.delete((1..=200).filter(|row| row % 7 == 0)).keys(0..50);
    bench.land();
    bench.restart();
    bench.delete([2, 100, 101, 230]);
    bench.land();
}

/// A data file is in row-id order, even if the rows in the table's segments are not.
#[test]
fn rows_stored_by_time_land_in_the_order_of_their_ids() {
    let _limit = testkit::limit(200);
    let mut def = def();
    def.time = Some(def.add_column("at", &DataType::Timestamp, true, None).unwrap());
    let mut bench = Bench::of(def, plain());
    let mut rng = testkit::Rng::new(4);
    for part in 0..3 {
        let row = |k: i64, rng: &mut testkit::Rng| {
            vec![Value::Int64(k), Value::String(format!("{k}")), Value::Timestamp(rng.below(1 << 40) as i64)]
        };
        let rows: Vec<_> = (part * 10_000..(part + 1) * 10_000).map(|k| row(k, &mut rng)).collect();
        bench.insert(&rows);
    }
    let written = rows_of(&bench.snapshot()).unwrap();
    bench.delete((1..30_000).step_by(11));
    let (env, dir) = (bench.sim.env(), table::segment::table_dir("data".as_ref(), bench.tip.def().id));
    let sealed = table::seal(
        &bench.snapshot(),
        &env,
        &dir,
        types::SegmentId(1),
        bench.tip.next_row(),
        &mut |_| Ok(()),
    );
    let segment = table::Segment::open(&env, &dir, bench.tip.def(), sealed.unwrap());
    assert!(!segment.is_in_row_order());
    bench.tip.apply_seal(segment, None).unwrap();
    bench.delete((5..30_000).step_by(13));
    for round in 0..2 {
        while !matches!(bench.step(true).unwrap(), Progress::UpToDate) {}
        let mut expected = written.clone();
        expected.retain(|row, _| row % 11 != 1 && row % 13 != 5 && (round == 0 || row % 17 != 3));
        assert!(read(&bench.store(), &bench.lake().dir).unwrap() == expected, "K1, round {round}");
        bench.delete((3..30_000).step_by(17));
    }
}

#[test]
fn a_thousand_small_commits_leave_few_files() {
    let _limit = testkit::limit(300);
    let commits = testkit::scaled(1_000).clamp(100, 1_000);
    let mut bench = Bench::new(plain());
    for n in 0..commits as i64 {
        bench.keys(n * 3..n * 3 + 3);
        if n > 5 {
            bench.delete([n as u64 * 2]);
        }
        bench.sim.clock.advance(Duration::from_secs(60));
        let lake = bench.try_land().unwrap();
        assert!(lake.manifests.len() <= 40, "{} manifests", lake.manifests.len());
        assert!(lake.data.len() <= 60, "{} data files after {n} commits", lake.data.len());
        assert!(lake.deletes.len() <= 30, "{} files of positions", lake.deletes.len());
        assert!(lake.metadata.snapshots.len() <= 20, "{} snapshots", lake.metadata.snapshots.len());
        assert!(lake.metadata.metadata_log.len() <= 20);
    }
    let lake = bench.land();
    let snapshots = lake.metadata.snapshots.len();
    // Manifest lists, manifests and data of the kept snapshots, and metadata files.
    let files = bench.files();
    assert!(files.len() < 40 + snapshots * 12, "{} files", files.len());
    bench.restart();
    assert_eq!(bench.files(), files, "a restart finds nothing to remove");
    bench.keys(0..1);
    bench.land();
}

#[test]
fn files_go_when_no_kept_snapshot_names_them_and_not_before() {
    let _limit = testkit::limit(120);
    let mut bench = Bench::new(small());
    let mut past = Vec::new();
    for n in 0..60i64 {
        bench.keys(n * 10..n * 10 + 10).delete([n as u64 * 7 + 1, n as u64 * 7 + 2]);
        bench.sim.clock.advance(Duration::from_secs(n as u64 % 9));
        let lake = bench.land();
        past.push((lake.snapshot_id().unwrap(), lake.version, rows_of(&bench.snapshot()).unwrap()));
        for (snapshot, version, rows) in &past {
            // G1: a reader that opened the table at a kept snapshot can still read it.
            let kept = lake.metadata.snapshot(*snapshot).is_some();
            let named = format!("metadata/v{version}.metadata.json");
            if kept && bench.files().contains(&named) {
                let reader =
                    crate::reader::Reader::open_version(&bench.store(), &lake.dir, *version).unwrap();
                let mut found = super::support::RowHashes::new();
                reader.read(&mut |batch| crate::digest::Digest::by_row(&batch, &mut found)).unwrap();
                assert_eq!(&found, rows, "snapshot {snapshot}");
            }
        }
    }
    let gone = past.iter().filter(|(id, ..)| bench.lake().metadata.snapshot(*id).is_none()).count();
    assert!(gone > 30, "{gone} snapshots expired");
}

#[test]
fn a_file_that_is_mostly_deleted_is_written_anew() {
    let mut bench = Bench::new(plain());
    bench.keys(0..1_000);
    bench.land();
    bench.delete(1..=200);
    assert_eq!((bench.land().data.len(), bench.lake().deletes.len()), (1, 1));
    bench.delete(201..=400);
    let lake = bench.land();
    assert_eq!((lake.data.len(), lake.deletes.len()), (1, 0), "nothing is deleted by position any more");
    assert_eq!((lake.data[0].first.0, lake.data[0].entry.file.rows), (401, 600));
    bench.delete(401..=1_000);
    let lake = bench.land();
    assert_eq!((lake.data.len(), lake.deletes.len(), lake.rows()), (0, 0, 0));
    bench.keys(0..5);
    bench.land();
}

#[test]
fn a_backlog_lands_in_pieces_that_each_are_the_table_at_their_row() {
    let mut bench = Bench::new(small());
    bench.keys(0..20_000).delete([5, 6, 19_000]);
    let mut pieces = 0;
    while !matches!(bench.step(true).unwrap(), Progress::UpToDate) {
        pieces += 1;
        let lake = bench.lake();
        let mut expected = rows_of(&bench.snapshot()).unwrap();
        expected.retain(|row, _| *row <= lake.row.0);
        assert_eq!(read(&bench.store(), &lake.dir).unwrap(), expected);
    }
    assert!(pieces > 3, "{pieces}");
    assert_eq!(bench.lake().rows(), 19_997);
}

#[test]
fn added_renamed_dropped_and_widened_columns_are_changes_of_the_iceberg_schema() {
    let mut definition = def();
    definition.add_column("n", &DataType::Int32, true, None).unwrap();
    definition.add_column("f", &DataType::Float32, true, None).unwrap();
    definition.add_column("d", &DataType::Decimal { precision: 9, scale: 2 }, true, None).unwrap();
    let mut bench = Bench::of(definition, plain());
    let row = |n: i64| {
        vec![
            Value::Int64(n),
            Value::String(n.to_string()),
            Value::Int32(n as i32),
            Value::Float32(n as f32),
            Value::Decimal(n.into()),
        ]
    };
    bench.insert(&(0..50).map(row).collect::<Vec<_>>());
    let before = bench.land();
    bench.alter(|def| {
        def.schema.columns[1].name = "text".into();
        def.schema.columns[2].data_type = DataType::Int64;
        def.schema.columns[3].data_type = DataType::Float64;
        def.schema.columns[4].data_type = DataType::Decimal { precision: 20, scale: 2 };
        def.add_column("later", &DataType::String, true, None).unwrap();
    });
    let lake = bench.land();
    // The data file is the same; its manifest tells that the new column is null in it.
    assert_eq!(lake.metadata.current().unwrap().summary["operation"], "replace");
    assert_eq!(lake.data[0].path, before.data[0].path);
    let metrics = &lake.manifests[0].entries[0].file.metrics;
    assert!(metrics.nulls.contains(&(21, 50)) && metrics.values.contains(&(21, 50)));
    assert_eq!(lake.metadata.current_schema_id, 1);
    let ids = |lake: &crate::Lake| {
        let schema = lake.metadata.schema().unwrap();
        let fields = schema["fields"].as_array().unwrap().iter();
        fields
            .map(|f| (f["id"].as_u64().unwrap(), f["name"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&lake)[3], (17, "text".into()), "the same field under another name");
    let renamed = bench.alter(|def| def.schema.columns[1].name = "words".into()).land();
    assert_eq!(renamed.snapshot_id(), lake.snapshot_id(), "another name needs no snapshot");
    bench.alter(|def| def.schema.columns[1].name = "text".into());
    bench.alter(|def| drop(def.schema.columns.remove(3)));
    bench.insert(&[vec![
        Value::Int64(50),
        Value::Null,
        Value::Int64(1 << 40),
        Value::Decimal(10i128.pow(19)),
        Value::String("new".into()),
    ]]);
    let lake = bench.land();
    assert!(ids(&lake).iter().all(|(id, _)| *id != 19), "dropped");
    assert_eq!(lake.metadata.last_column_id, 21);
    bench.restart();
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
}

#[test]
fn a_table_that_lands_keeps_its_name() {
    let bench = Bench::new(plain());
    let mut before = def();
    let mut after = before.clone();
    after.name = "main.other".into();
    let error = bench.materializer.check_change(&before, &after).unwrap_err();
    assert!(error.message().contains("keeps its name"), "{error}");
    before.options.lake = Some(false);
    bench.materializer.check_change(&before, &after).unwrap();
}

/// Format 2 has no defaults: the values are written into the files, since other readers would see nulls.
#[test]
fn a_column_with_a_value_for_older_rows_is_written_into_their_files() {
    let mut bench = Bench::new(plain());
    bench.keys(0..500).keys(500..600);
    bench.land();
    bench.keys(600..700);
    bench.land();
    bench.alter(|def| {
        def.add_column("level", &DataType::Int32, false, Some(Value::Int32(7))).unwrap();
    });
    let lake = bench.land();
    assert_eq!(lake.metadata.current().unwrap().summary["operation"], "replace");
    bench.insert(&[vec![Value::Int64(1), Value::Null, Value::Int32(9)]]);
    bench.land();
}

#[test]
fn deletes_that_the_table_forgot_are_found_row_by_row() {
    let _limit = testkit::limit(300);
    let mut bench = Bench::new(plain());
    bench.keys(0..300_000);
    bench.land();
    bench.delete([1, 2, 3]);
    bench.land();
    bench.delete((4..=280_000).filter(|row| row % 1_000 != 0));
    let from = &bench.position.as_ref().unwrap().checkpoint;
    assert_eq!(
        bench.snapshot().deleted_since(from).unwrap_err().kind(),
        Kind::NotFound,
        "the test needs that"
    );
    bench.land();
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
}

#[test]
fn a_lake_that_disagrees_with_itself_or_is_ahead_of_its_table_is_not_written_to() {
    for fault in ["property", "ahead", "table", "cut"] {
        let mut bench = Bench::new(plain());
        bench.keys(0..10);
        let lake = bench.land();
        let env = bench.sim.env();
        let path = lake.metadata_path();
        let mut metadata = lake.metadata.clone();
        match fault {
            "property" => drop(metadata.properties.insert(ROW.into(), "9".into())),
            "ahead" => {
                let lsn = (bench.lsn + 100).to_string();
                metadata.properties.insert(LSN.into(), lsn.clone());
                for kept in &mut metadata.snapshots {
                    let mut snapshot = iceberg::metadata::Snapshot::clone(kept);
                    snapshot.summary.insert(LSN.into(), lsn.clone());
                    *kept = snapshot.into();
                }
            }
            "table" => drop(metadata.properties.insert("polynya.table-id".into(), "8".into())),
            _ => {}
        }
        let mut bytes = metadata.to_bytes().unwrap();
        if fault == "cut" {
            bytes.truncate(bytes.len() / 2);
        }
        crate::files::replace(&env, &path, &bytes).unwrap();
        let files = bench.files();
        bench.keys(10..20);
        bench.restart();
        assert!(bench.position.is_none(), "{fault}: it does not open");
        for _ in 0..3 {
            let error = bench.step(true).unwrap_err();
            assert_eq!(error.kind(), Kind::Damaged, "{fault}: {error}");
        }
        assert_eq!(bench.files(), files, "{fault}: nothing was touched");
        // Once it is moved away, as the hint says, the table lands again.
        crate::lake_files::remove_dir(&bench.store(), &lake.dir).unwrap();
        bench.land();
    }
}

/// A database that was restored to an earlier state took the lake of the later one for its own, as soon as it had reached the
/// same position again.
#[test]
fn a_lake_of_another_history_is_not_taken_over() {
    let mut bench = Bench::new(plain());
    bench.keys(0..10).keys(10..20);
    let files = bench.land().data.len();
    for was_put_back in [false, true] {
        let mut other = Bench::new(plain());
        other.sim = bench.sim.clone();
        if was_put_back {
            other.keys(0..10);
        }
        other.begin_at(1_000, 100).keys(0..100);
        assert_eq!(other.step(true).unwrap_err().kind(), Kind::Damaged, "{was_put_back}");
    }
    bench.restart();
    assert_eq!(bench.lake().data.len(), files, "its own is");
}

#[test]
fn a_dropped_table_takes_its_lake_along_and_its_name_is_free_again() {
    let mut bench = Bench::new(plain());
    bench.keys(0..10);
    bench.land();
    bench.materializer.dropped(&bench.place()).unwrap();
    assert!(newest_version(&bench.store(), &bench.dir()).unwrap().is_none());
    assert!(!bench.sim.env().disk.exists(&bench.dir()).unwrap());

    // A table of the same name is created before the old one's lake is removed.
    let mut bench = Bench::new(plain());
    bench.keys(0..10);
    bench.land();
    let old = bench.place();
    let mut new = def();
    new.id = TableId(8);
    let mut second = Bench::of(new, plain());
    second.sim = bench.sim.clone();
    second.sim.env().disk.create_dir_all(&second.place().dir).unwrap();
    second.keys(100..105);
    assert_eq!(second.land().rows(), 5);
    bench.materializer.dropped(&old).unwrap();
    assert_eq!(read(&second.store(), &second.dir()).unwrap().len(), 5, "it is the new table's by then");
}

/// The paths in a moved lake would lead other programs to its former place, or to nothing.
#[test]
fn a_lake_that_was_moved_lands_anew_where_it_is() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100).delete([4]);
    bench.land();
    bench.materializer = super::support::materializer(Options::new("lake", "elsewhere/lake"));
    bench.restart();
    assert!(bench.position.is_none());
    let lake = bench.land();
    assert_eq!(lake.metadata.location, "elsewhere/lake/main/t");
    assert!(lake.data.iter().all(|live| live.path.starts_with("elsewhere/lake/main/t/data/")));
}

#[test]
fn a_full_disk_keeps_the_lake_as_it_was_and_it_goes_on_when_there_is_room() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100);
    bench.land();
    bench.keys(100..5_000).delete([1]);
    for free in [0, 4 << 10, 12 << 10, 40 << 10] {
        bench.sim.disk.set_free_bytes(Some(free));
        if let Err(error) = bench.step(true) {
            assert_eq!(error.kind(), Kind::DiskFull, "{error}");
        }
        bench.sim.disk.set_free_bytes(None);
        let lake = bench.lake();
        assert_eq!(read(&bench.store(), &lake.dir).unwrap().len() as u64, lake.rows());
    }
    bench.land();
    let files = bench.files();
    bench.restart();
    assert_eq!(bench.files(), files, "failed commits left nothing behind");
}

/// Rows beyond the write buffer reach the disk through the Parquet writer, which wraps the disk's error.
#[test]
fn a_disk_that_fills_up_within_a_data_file_is_reported_as_full() {
    let mut bench = Bench::new(plain());
    let mut state = 7u64;
    let mut noise = || {
        let word = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", state ^ (state >> 29))
        };
        (0..64).map(word).collect::<String>()
    };
    let rows: Vec<Vec<Value>> = (0..6_000).map(|k| vec![Value::Int64(k), Value::String(noise())]).collect();
    bench.insert(&rows);
    let before = bench.step(true).map(|_| bench.lake().rows()).unwrap();
    bench.sim.disk.set_free_bytes(Some(64 << 10));
    let error = bench.step(true).unwrap_err();
    assert_eq!(error.kind(), Kind::DiskFull, "{error}");
    bench.sim.disk.set_free_bytes(None);
    assert_eq!(bench.lake().rows(), before);
    bench.land();
}

/// Each commit failed until the server was restarted.
#[test]
fn a_lake_whose_directory_was_removed_lands_anew_with_the_next_rows() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100).delete([4]);
    let old = bench.land();
    crate::lake_files::remove_dir(&bench.store(), &bench.dir()).unwrap();
    assert_eq!(newest_version(&bench.store(), &bench.dir()).unwrap(), None);
    bench.keys(100..200);
    let lake = bench.land();
    assert_eq!(lake.rows(), 199);
    assert_ne!(lake.metadata.table_uuid, old.metadata.table_uuid);
    bench.keys(200..300).delete([150]);
    bench.restart();
    assert_eq!(bench.land().rows(), 298);
}

/// The remainder must not be taken for a complete lake, and the server must not remove it.
#[test]
fn a_lake_without_its_data_directory_tells_the_cure() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100);
    bench.land();
    let (env, data) = (bench.sim.env(), bench.dir().join("data"));
    for entry in env.disk.list(&data).unwrap() {
        env.disk.remove(&data.join(entry.name)).unwrap();
    }
    env.disk.remove_dir(&data).unwrap();
    bench.keys(100..200);
    let error = bench.try_land().unwrap_err();
    assert_eq!(error.kind(), Kind::Io, "{error}");
    let hint = error.hint_text().unwrap_or_default();
    assert!(hint.contains("move `lake/main/t` away"), "{hint}");
    // The cure that the hint tells.
    crate::lake_files::remove_dir(&bench.store(), &bench.dir()).unwrap();
    assert_eq!(bench.land().rows(), 200);
}

/// A wait for a former state of the table never ended if columns were added meanwhile.
#[test]
fn an_earlier_state_of_a_table_has_landed_once_later_changes_have() {
    let mut bench = Bench::new(plain());
    bench.keys(0..10);
    bench.land();
    let add = |bench: &mut Bench, name: &str| {
        bench.alter(|def| def.add_column(name, &DataType::Int64, true, None).map(drop).unwrap());
        bench.snapshot()
    };
    let wanted = add(&mut bench, "a");
    assert!(MissingChanges::at(bench.position.as_ref().unwrap(), &wanted).unwrap().schema);
    add(&mut bench, "b");
    bench.land();
    assert!(!MissingChanges::at(bench.position.as_ref().unwrap(), &wanted).unwrap().any());
}

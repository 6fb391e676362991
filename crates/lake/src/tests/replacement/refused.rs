//! Tests of commits that do not replace files by the same rows: refused with the reason, and without effect.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use iceberg::manifest::{DataFile, Metrics};
use iceberg::spec::Partition;
use serde_json::json;
use types::{Kind, Result};

use super::begin;
use super::writer::Writer;
use crate::data_file::FilePartition;
use crate::tests::support::{Bench, read, rows_of};
use crate::{Replacement, delete_file};

/// Checks that the commit that `make` builds on a lake of layout `layout` is refused with the reason `why`.
pub fn refuses(layout: usize, why: &str, make: impl FnOnce(&Bench) -> Replacement) {
    let mut bench = begin(super::plain(), layout);
    let replace = make(&bench);
    let (before, files) = (bench.lake(), bench.all_files());
    let error = bench.offer(&replace).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{why}: {error}");
    assert!(error.message().contains(why), "`{}` does not say `{why}`", error.message());
    assert_eq!(bench.lake().version, before.version, "{why}");
    assert_eq!(bench.all_files(), files, "{why}: files are left for whoever wrote them");
    assert_eq!(read(&bench.store(), &bench.dir()).unwrap(), rows_of(&bench.snapshot()).unwrap(), "{why}");
    // The lake continues.
    bench.keys(90..95).delete([12]);
    bench.land();
}

/// Commits all rows in one file, after `change`.
fn with_rows(bench: &Bench, change: impl FnOnce(RecordBatch) -> RecordBatch) -> Replacement {
    with_files(bench, |rows| vec![change(rows)])
}

/// Commits all rows in the files that `change` returns.
fn with_files(bench: &Bench, change: impl FnOnce(RecordBatch) -> Vec<RecordBatch>) -> Replacement {
    let mut writer = Writer::new(bench, 77);
    let batches: Vec<_> = writer.lake.data.iter().map(|live| writer.rows_of(live)).collect();
    let all = concat_batches(&writer.columns.arrow, &batches).unwrap();
    (writer.data, writer.deletes) = (Vec::new(), Vec::new());
    change(all).iter().for_each(|rows| writer.add(rows, FilePartition::default()));
    writer.finish()
}

fn pick(rows: &RecordBatch, which: impl IntoIterator<Item = u32>) -> RecordBatch {
    take_record_batch(rows, &UInt32Array::from_iter_values(which)).unwrap()
}

fn with_column(rows: &RecordBatch, at: usize, column: ArrayRef) -> RecordBatch {
    let mut columns = rows.columns().to_vec();
    columns[at] = column;
    RecordBatch::try_new(rows.schema(), columns).unwrap()
}

#[test]
fn other_rows_are_refused() {
    let count = |rows: &RecordBatch| rows.num_rows() as u32;
    refuses(0, "rows instead of", |bench| with_rows(bench, |rows| pick(&rows, 1..count(&rows))));
    refuses(0, "rows instead of", |bench| {
        with_files(bench, |rows| vec![pick(&rows, 0..count(&rows)), pick(&rows, [3])])
    });
    // The number of rows is right, but one occurs twice.
    refuses(0, "is in it twice", |bench| {
        with_files(bench, |rows| vec![pick(&rows, 1..count(&rows)), pick(&rows, [3])])
    });
    let with_id = |rows: RecordBatch, id: i64| {
        let mut ids: Vec<i64> = crate::row_ids::ids_of(rows.column(0)).unwrap().to_vec();
        *ids.last_mut().unwrap() = id;
        with_column(&rows, 0, Arc::new(Int64Array::from(ids)))
    };
    // One deleted row, and one that never existed.
    for id in [3, 1_000] {
        refuses(0, &format!("row {id} is in it twice, or was in none"), |bench| {
            with_rows(bench, |rows| with_id(rows, id))
        });
    }
    refuses(0, "column `s`", |bench| {
        with_rows(bench, |rows| {
            let texts = (0..rows.num_rows()).map(|n| format!("other {n}"));
            with_column(&rows, 3, Arc::new(StringArray::from_iter_values(texts)))
        })
    });
    // The values are the same, but belong to other rows.
    refuses(0, "column `s` has other values", |bench| {
        with_rows(bench, |rows| {
            let moved = pick(&rows, (1..count(&rows)).chain([0]));
            with_column(&rows, 3, moved.column(3).clone())
        })
    });
    refuses(0, "column `k`", |bench| {
        with_rows(bench, |rows| {
            let numbers = (0..rows.num_rows() as i64).map(|n| n / 2);
            with_column(&rows, 2, Arc::new(Int64Array::from_iter_values(numbers)))
        })
    });
    // One file is missing.
    refuses(0, "rows instead of", |bench| {
        let mut writer = Writer::new(bench, 77);
        writer.data.pop();
        writer.finish()
    });
}

#[test]
fn other_deleted_rows_are_refused() {
    // A lost delete, which would bring its rows back.
    refuses(0, "deletes other rows", |bench| {
        let mut writer = Writer::new(bench, 77);
        writer.deletes.pop();
        writer.finish()
    });
    let with_positions = |bench: &Bench, change: fn(&mut Vec<u64>)| {
        let mut writer = Writer::new(bench, 77);
        let lake = writer.lake.clone();
        writer.deletes.clear();
        for deletes in &lake.deletes {
            let mut positions = lake.positions(deletes).unwrap();
            positions.iter_mut().for_each(|of| change(&mut of.positions));
            writer.delete(FilePartition::default(), positions);
        }
        writer.finish()
    };
    refuses(0, "deletes other rows", |bench| with_positions(bench, |p| p[0] += 5));
    refuses(0, "delete more rows than", |bench| with_positions(bench, |p| p.push(p[0] + 5)));
    refuses(0, "which it adds itself", |bench| {
        let mut writer = Writer::new(bench, 77).rewrite_all();
        let path: Arc<str> = writer.data[0].path.as_str().into();
        writer.delete(FilePartition::default(), vec![delete_file::Positions { path, positions: vec![0] }]);
        writer.finish()
    });
}

#[test]
fn invalid_files_are_refused() {
    let changed = |bench: &Bench, change: &dyn Fn(&mut DataFile)| {
        let mut writer = Writer::new(bench, 77).rewrite_all();
        change(&mut writer.data[0]);
        writer.finish()
    };
    for (why, change) in [
        (
            "is not in lake/main/t/data",
            (|f| f.path = "lake/main/other/data/x.parquet".into()) as fn(&mut DataFile),
        ),
        ("is not in lake/main/t/data", |f| f.path = "lake/main/t/data/../../../x.parquet".into()),
        ("is not in lake/main/t/data", |f| f.path = "/etc/passwd".into()),
        ("does not end with .parquet", |f| f.path = f.path.replace(".parquet", ".orc")),
        ("is not there", |f| f.path = f.path.replace(".parquet", "-not.parquet")),
        ("not as long as", |f| f.bytes += 1),
        ("rows instead of", |f| f.rows += 1),
    ] {
        refuses(0, why, |bench| changed(bench, &change));
    }
    refuses(0, "another number of them", |bench| {
        let mut writer = Writer::new(bench, 77);
        let lake = writer.lake.clone();
        (writer.data, writer.deletes) = (Vec::new(), Vec::new());
        let rows: Vec<_> = lake.data.iter().map(|live| writer.rows_of(live)).collect();
        rows.iter().for_each(|rows| writer.add(rows, FilePartition::default()));
        writer.data[0].rows += 1;
        writer.data[1].rows -= 1;
        writer.finish()
    });
    refuses(0, "not a Parquet file", |bench| {
        let mut writer = Writer::new(bench, 77).rewrite_all();
        let name = writer.next_name();
        writer.put(&name, b"PAR1 and then nothing");
        (writer.data[0].path, writer.data[0].bytes) = (name, 21);
        writer.finish()
    });
    refuses(0, "names a data file twice", |bench| {
        let mut writer = Writer::new(bench, 77).rewrite_all();
        writer.data.push(writer.data[0].clone());
        writer.finish()
    });
    refuses(0, "is not there", |bench| {
        let mut replace = Writer::new(bench, 77).rewrite_all().finish();
        replace.manifest_list = replace.manifest_list.replace("snap-", "not-");
        replace
    });
    // A file is assigned to another partition, in which readers would not find its rows.
    refuses(1, "not in the partition that it claims", |bench| {
        let mut writer = Writer::new(bench, 77).rewrite_all();
        let others: Vec<Arc<Partition>> = writer.data.iter().map(|f| f.partition.clone()).collect();
        writer.data[0].partition = others[1].clone();
        writer.finish()
    });
    refuses(0, "partition spec 9", |bench| {
        let mut replace = Writer::new(bench, 77).rewrite_all();
        let mut manifest = replace.lake.manifests[0].file.clone();
        let bytes = replace.lake.store.read(&replace.lake.local(&manifest.path).unwrap()).unwrap();
        (manifest.spec, manifest.path) = (9, format!("{}x.avro", manifest.path));
        replace.put(&manifest.path, &bytes);
        replace.manifests = vec![manifest];
        replace.finish()
    });
}

/// Parquet columns without field ids cannot be identified.
#[test]
fn columns_without_field_ids() {
    refuses(0, "does not fit", |bench| {
        let mut writer = Writer::new(bench, 77).rewrite_all();
        let name = writer.next_name();
        let batches: Vec<_> = writer.lake.data.iter().map(|live| writer.rows_of(live)).collect();
        let rows = concat_batches(&writer.columns.arrow, &batches).unwrap();
        let fields: Vec<_> = rows
            .schema()
            .fields()
            .iter()
            .map(|f| f.as_ref().clone().with_metadata(Default::default()))
            .collect();
        let bare =
            RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), rows.columns().to_vec())
                .unwrap();
        let mut bytes = Vec::new();
        let mut parquet = parquet::arrow::ArrowWriter::try_new(&mut bytes, bare.schema(), None).unwrap();
        parquet.write(&bare).unwrap();
        parquet.close().unwrap();
        writer.put(&name, &bytes);
        (writer.data[0].path, writer.data[0].bytes) = (name, bytes.len() as u64);
        writer.finish()
    });
}

#[test]
fn commits_with_wrong_claims_are_refused() {
    for (why, change) in [
        ("parent is 5", (|r| r.parent = Some(5)) as fn(&mut Replacement)),
        ("parent is none", |r| r.parent = None),
        ("sequence number", |r| r.sequence += 1),
        ("sequence number", |r| r.sequence -= 1),
        ("the id -7", |r| r.snapshot_id = -7),
        ("Requirement failed", |r| {
            r.requirements = vec![json!({ "type": "assert-current-schema-id", "current-schema-id": 9 })];
        }),
    ] {
        refuses(0, why, |bench| {
            let mut replace = Writer::new(bench, 77).rewrite_all().finish();
            change(&mut replace);
            replace
        });
    }
}

/// Files of an older snapshot are removed with it, so that they must not become the newest snapshot's again.
#[test]
fn files_of_older_snapshots() {
    let mut bench = begin(super::plain(), 0);
    let old: Vec<DataFile> = bench.lake().data.iter().map(|live| (*live.entry.file).clone()).collect();
    let gone: Vec<DataFile> = bench.lake().deletes.iter().map(|d| (*d.entry.file).clone()).collect();
    bench.offer(&Writer::new(&bench, 77).rewrite_all().finish()).unwrap();
    let mut writer = Writer::new(&bench, 78);
    (writer.data, writer.deletes) = (old, gone);
    let replace = writer.finish();
    let error = bench.offer(&replace).unwrap_err();
    assert!(error.message().contains("a file of an older snapshot"), "{error}");
    bench.land();
}

/// Readers skip files by the bounds in manifests, so that the bounds are computed again and not taken from the other program.
#[test]
fn wrong_bounds_are_not_believed() {
    let mut bench = begin(super::plain(), 0);
    let mut writer = Writer::new(&bench, 77).rewrite_all();
    for file in &mut writer.data {
        file.metrics =
            Metrics { lower: vec![(1, vec![0; 8])], upper: vec![(1, vec![0; 8])], ..Metrics::default() };
        file.sort_order = Some(1);
    }
    let replace = writer.finish();
    bench.offer(&replace).unwrap();
    let lake = bench.lake();
    crate::tests::files::check(&lake, bench.tip.def());
    assert!(lake.data.iter().all(|live| live.entry.file.sort_order.is_none()));
    assert!(lake.data.iter().all(|live| live.last.0 > 0 && live.entry.file.metrics.values.len() > 3));
    bench.delete([1, 50]);
    bench.land();
}

#[test]
fn commits_that_do_more_than_replace_files_are_refused() {
    let parse = |updates: serde_json::Value| Replacement::parse(&[], updates.as_array().unwrap());
    let snapshot = |operation: &str| {
        json!({ "action": "add-snapshot", "snapshot": { "snapshot-id": 7, "parent-snapshot-id": 3, "sequence-number": 4,
            "timestamp-ms": 1, "manifest-list": "x.avro", "summary": { "operation": operation, "engine-name": "spark" } } })
    };
    let main =
        json!({ "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7 });
    let replace = parse(json!([snapshot("replace"), main])).unwrap().unwrap();
    assert_eq!((replace.snapshot_id, replace.parent, replace.sequence), (7, Some(3), 4));
    assert_eq!(replace.summary["engine-name"], "spark");
    assert_eq!(parse(json!([{ "action": "assign-uuid", "uuid": "x" }])).unwrap(), None);
    let refused = |updates: serde_json::Value| -> Result<()> {
        let error = parse(updates.clone()).expect_err(&updates.to_string());
        assert!(matches!(error.kind(), Kind::Conflict | Kind::Invalid), "{error}");
        Err(error)
    };
    for operation in ["append", "overwrite", "delete", ""] {
        let error = refused(json!([snapshot(operation), main])).unwrap_err();
        assert!(error.message().contains(&format!("`{operation}`")), "{error}");
    }
    let other =
        json!({ "action": "set-snapshot-ref", "ref-name": "audit", "type": "branch", "snapshot-id": 7 });
    let kept = json!({ "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7, "max-ref-age-ms": 1 });
    let properties = json!({ "action": "set-properties", "updates": { "polynya.row": "9" } });
    let mut third = snapshot("replace");
    third["snapshot"]["first-row-id"] = json!(0);
    for updates in [
        json!([snapshot("replace")]),
        json!([snapshot("replace"), other]),
        json!([snapshot("replace"), kept]),
        json!([snapshot("replace"), main, properties]),
        json!([snapshot("replace"), snapshot("replace"), main]),
        json!([third, main]),
        json!([{ "action": "add-snapshot", "snapshot": { "summary": { "operation": "replace" } } }, main]),
    ] {
        refused(updates).unwrap_err();
    }
}

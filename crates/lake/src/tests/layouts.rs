//! Tests of partitioned and sorted tables: which rows are in which file, and that nothing else changes.

use std::collections::BTreeMap;
use std::time::Duration;

use iceberg::single_value::SingleValue;
use table::materializer::Progress;
use testkit::Rng;
use types::{DataType, Value};

use super::support::{Bench, LAYOUTS, def, lay_out, read, rows_of, small};
use crate::{Lake, Options};

fn plain() -> Options {
    Options::new("lake", "lake")
}

/// Counts the data files by the text of their partition values.
fn files(lake: &Lake) -> BTreeMap<String, usize> {
    let mut files = BTreeMap::new();
    for live in &lake.data {
        let file = &live.entry.file;
        *files.entry(format!("{}: {:?}", file.spec, file.partition.values)).or_default() += 1;
    }
    files
}

#[test]
fn a_commit_writes_one_file_for_each_partition_and_late_rows_go_where_they_belong() {
    const DAY: i64 = 86_400_000_000;
    let mut def = def();
    def.add_column("at", &DataType::Timestamp, true, None).unwrap();
    lay_out(&mut def, &["days(at)"], &[]);
    let mut bench = Bench::of(def, plain());
    let row = |n: i64, at: Option<i64>| {
        vec![Value::Int64(n), Value::Null, at.map_or(Value::Null, Value::Timestamp)]
    };
    // Rows of three days, and without a day, in mixed order.
    let rows: Vec<_> = (0..400).map(|n| row(n, (n % 4 > 0).then_some(n % 4 * DAY + n))).collect();
    bench.insert(&rows);
    let lake = bench.land();
    let day = |n: i64| format!("0: {:?}", [Some(SingleValue::Int(n))]);
    let expected = [(day(1), 1), (day(2), 1), (day(3), 1), ("0: [None]".into(), 1)];
    assert_eq!(files(&lake), expected.clone().into());
    assert_eq!(lake.metadata.default_spec_id, 0);
    assert!(lake.data.iter().all(|live| live.entry.file.rows == 100));
    // The files' ranges of row ids overlap, and still each row is found in its own file.
    bench.delete([1, 2, 7, 399]).insert(&[row(0, Some(2 * DAY)), row(1, Some(-1))]);
    let lake = bench.land();
    let mut expected = BTreeMap::from(expected);
    expected.insert(day(2), 2);
    expected.insert(day(-1), 1);
    assert_eq!(files(&lake), expected);
    assert_eq!(lake.deletes.len(), 3, "a file of positions for each partition");
    let summary = &lake.metadata.current().unwrap().summary;
    assert_eq!(summary["changed-partition-count"], "4");
    assert_eq!(summary["added-position-delete-files"], "3");
    bench.restart();
    bench.delete([3, 4, 401]);
    bench.land();
}

#[test]
fn files_are_merged_within_their_partition_only_and_stay_few() {
    let _limit = testkit::limit(300);
    let mut bench = Bench::new(plain());
    bench.lay_out(&["bucket(5, k)"], &["s desc"]);
    for n in 0..120i64 {
        bench.keys(n * 10..n * 10 + 10);
        bench.sim.clock.advance(Duration::from_secs(5));
        let lake = bench.try_land().unwrap();
        let most = files(&lake).into_values().max().unwrap_or(0);
        assert!(most <= 14, "{most} files of one partition after {n} commits");
    }
    let lake = bench.land();
    assert_eq!(files(&lake).len(), 5);
    let order = lake.metadata.default_sort_order_id;
    assert!(order > 0 && lake.data.iter().all(|live| live.entry.file.sort_order == Some(order)));
}

#[test]
fn another_layout_is_for_files_to_come_and_old_ones_keep_theirs() {
    let mut bench = Bench::new(plain());
    bench.keys(0..300);
    let before = bench.land();
    bench.lay_out(&["bucket(2, k)"], &["k desc"]);
    let lake = bench.land();
    assert_eq!(lake.snapshot_id(), before.snapshot_id(), "a layout alone needs no snapshot");
    assert_eq!((lake.metadata.default_spec_id, lake.metadata.default_sort_order_id), (1, 1));
    bench.keys(300..600).delete([5, 250]);
    let lake = bench.land();
    let specs: Vec<i32> = lake.data.iter().map(|live| live.entry.file.spec).collect();
    assert_eq!(specs, [0, 1, 1]);
    let lists: Vec<(i32, u64)> = lake.manifests.iter().map(|m| (m.file.spec, m.file.live_files())).collect();
    assert_eq!(lists, [(0, 1), (1, 2), (0, 1)], "a manifest is of one spec");
    // A file of the former layout that is rewritten gets the present one.
    bench.delete(1..=200);
    let lake = bench.land();
    assert!(lake.data.iter().all(|live| live.entry.file.spec == 1), "{:?}", files(&lake));
    assert!(lake.deletes.is_empty());
    // A layout that the table had before gets its former number.
    bench.lay_out(&[], &[]).keys(0..5);
    let lake = bench.land();
    assert_eq!((lake.metadata.default_spec_id, lake.metadata.default_sort_order_id), (0, 0));
    assert_eq!(lake.metadata.partition_specs.len(), 2);
    bench.restart();
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
}

#[test]
fn many_partitions_land_a_bounded_number_at_a_time() {
    let mut bench = Bench::new(Options { partitions_max: 20, ..plain() });
    bench.lay_out(&["k"], &[]);
    bench.keys((0..300).map(|n| n % 50));
    let mut commits = 0;
    while !matches!(bench.step(true).unwrap(), Progress::UpToDate) {
        let lake = bench.lake();
        let mut expected = rows_of(&bench.snapshot()).unwrap();
        expected.retain(|row, _| *row <= lake.row.0);
        assert_eq!(read(&bench.store(), &lake.dir).unwrap(), expected, "K1");
        commits += 1;
    }
    assert!(commits > 10, "{commits}");
    assert_eq!(files(&bench.land()).len(), 50);
}

#[test]
fn changes_of_columns_keep_the_layout_right() {
    let mut definition = def();
    definition.add_column("n", &DataType::Int32, true, None).unwrap();
    definition.add_column("f", &DataType::Float32, true, None).unwrap();
    definition.add_column("d", &DataType::Decimal { precision: 9, scale: 2 }, true, None).unwrap();
    lay_out(&mut definition, &["n", "f", "truncate(100, d)"], &["s"]);
    let mut bench = Bench::of(definition, plain());
    let rows: Vec<_> = (0..60i32)
        .map(|n| {
            let f = [1.5, f32::NAN, -0.0, 0.0][n as usize % 4];
            vec![
                Value::Int64(n.into()),
                Value::String(format!("{}", n % 7)),
                if n % 5 == 0 { Value::Null } else { Value::Int32(n % 3 - 1) },
                Value::Float32(f),
                Value::Decimal((n - 30).into()),
            ]
        })
        .collect();
    bench.insert(&rows);
    let before = files(&bench.land()).len();
    bench.alter(|def| {
        def.schema.columns[2].data_type = DataType::Int64;
        def.schema.columns[3].data_type = DataType::Float64;
        def.schema.columns[4].data_type = DataType::Decimal { precision: 20, scale: 2 };
        // The name that a partition field would have.
        def.add_column("d_trunc_100", &DataType::String, true, Some(Value::String("x".into()))).unwrap();
    });
    let lake = bench.land();
    assert_eq!(lake.metadata.current().unwrap().summary["operation"], "replace");
    bench.insert(&[vec![
        Value::Int64(1),
        Value::Null,
        Value::Int64(1),
        Value::Float64(1.5),
        Value::Decimal(1),
        Value::Null,
    ]]);
    bench.delete([3, 17]);
    let lake = bench.land();
    assert_eq!(files(&lake).len(), before, "values of a wider type are the same partition");
    // A column is dropped by which files are partitioned.
    bench.lay_out(&["bucket(2, k)"], &[]);
    bench.alter(|def| {
        def.alter(&types::AlterAction::DropColumn { name: "n".into(), if_exists: false }).unwrap();
    });
    bench.delete([20, 21, 22]);
    let lake = bench.land();
    // Other programs cannot read files that are partitioned by a missing column.
    assert!(lake.data.iter().all(|live| live.entry.file.spec == 1), "{:?}", files(&lake));
    assert!(lake.manifests.iter().all(|m| m.file.spec == 1) && lake.emptied_manifests.is_empty());
    bench.restart();
    bench.delete([23]);
    rows_with(&mut bench, 100..110);
    bench.land();
    for _ in 0..30 {
        bench.sim.clock.advance(Duration::from_secs(100));
        rows_with(&mut bench, 0..3);
        bench.land();
    }
    bench.restart();
    bench.delete([24, 25]);
    bench.land();
}

/// Adds rows with these keys and nulls in all other columns.
fn rows_with(bench: &mut Bench, keys: std::ops::Range<i64>) {
    let nulls = bench.tip.def().schema.columns.len() - 1;
    let row = |k| [Value::Int64(k)].into_iter().chain(vec![Value::Null; nulls]).collect();
    bench.insert(&keys.map(row).collect::<Vec<_>>());
}

/// Random operations in random order, under changing layouts.
#[test]
fn a_lake_equals_its_table_after_random_operations() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let mut options = small();
        options.partitions_max = 3 + rng.below(20) as usize;
        options.arrange_bytes = 1 << (9 + rng.below(6));
        options.rewrite_bytes_max = 1 << (10 + rng.below(8));
        let mut bench = Bench::new(options);
        let mut layout = LAYOUTS[rng.below(LAYOUTS.len() as u64) as usize];
        bench.lay_out(layout.0, layout.1);
        for _ in 0..40 {
            match rng.below(20) {
                0 => {
                    layout = LAYOUTS[rng.below(LAYOUTS.len() as u64) as usize];
                    bench.lay_out(layout.0, layout.1);
                }
                1 => bench.restart(),
                2 => bench.position = None,
                3 => drop(bench.erase().unwrap()),
                4..=8 => {
                    let last = bench.tip.next_row().0.max(2);
                    let first = 1 + rng.below(last - 1);
                    let count = [1, 3, 40][rng.below(3) as usize];
                    let gone: Vec<u64> = (0..count).map(|n| first + n * (1 + rng.below(3))).collect();
                    bench.delete(gone.into_iter().filter(|row| *row < last));
                }
                _ => {
                    let count = [1, 5, 60, 400][rng.below(4) as usize];
                    let keys: Vec<i64> = (0..count).map(|_| rng.below(60) as i64 - 30).collect();
                    bench.keys(keys);
                }
            }
            bench.sim.clock.advance(Duration::from_secs(rng.below(20)));
            if rng.below(2) == 0 {
                bench.land();
            } else {
                bench.step(rng.below(2) == 0).unwrap();
            }
        }
        bench.land();
    });
}

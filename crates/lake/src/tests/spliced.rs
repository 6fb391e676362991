//! Tests of files that are merged into one by copying their row groups, without decoding.

use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use types::{DataType, TableDef, TableId, Value};

use super::support::{Bench, read, rows_of};
use super::upkeep::maintain;
use super::{files, support};
use crate::{Lake, Options};

/// Returns a bench with the columns `k int64`, `n float64` and `s string`, whose texts compress badly: a commit of 300 rows is
/// large enough to be copied.
fn bench(keyed: bool) -> Bench {
    let mut def = TableDef::new(TableId(7), "main.t");
    def.add_column("k", &DataType::Int64, false, None).unwrap();
    def.add_column("n", &DataType::Float64, true, None).unwrap();
    def.add_column("s", &DataType::String, true, None).unwrap();
    if keyed {
        def.set_primary_key(&["k".into()]).unwrap();
    }
    Bench::of(def, Options::new("lake", "lake"))
}

fn commit(bench: &mut Bench, first: i64, count: i64) {
    let text = |k: i64| format!("{:016x}", (k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(3);
    let number = |k: i64| if k % 50 == 0 { f64::NAN } else { k as f64 / 7.0 };
    let row = |k: i64| vec![Value::Int64(k), Value::Float64(number(k)), Value::String(text(k))];
    bench.insert(&(first..first + count).map(row).collect::<Vec<_>>());
    bench.land();
}

fn footer(lake: &Lake, nth: usize) -> ParquetMetaData {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.parse_and_finish(&lake.data_file(&lake.data[nth]).unwrap()).unwrap()
}

fn check(bench: &Bench, lake: &Lake) {
    files::check(lake, bench.tip.def());
    assert_eq!(read(&bench.store(), &lake.dir).unwrap(), rows_of(&bench.snapshot()).unwrap());
}

#[test]
fn complete_files_in_row_order_are_concatenated() {
    for keyed in [false, true] {
        let mut bench = bench(keyed);
        (0..5).for_each(|n| commit(&mut bench, n * 300, 300));
        let nans = |lake: &Lake| {
            let all = lake.data.iter().flat_map(|live| &live.entry.file.metrics.nans);
            all.map(|(_, nans)| *nans).sum::<i64>()
        };
        let before = bench.lake();
        assert_eq!((before.data.len(), nans(&before)), (5, 30));
        maintain(&mut bench).unwrap();
        let lake = bench.lake();
        assert_eq!((lake.data.len(), nans(&lake)), (1, 30));
        let (whole, first) = (footer(&lake, 0), footer(&before, 0));
        assert_eq!(whole.num_row_groups(), 5, "they were not unpacked");
        let group = |of: &ParquetMetaData, nth: usize| {
            let column = of.row_group(nth).column(4);
            (
                column.compressed_size(),
                column.statistics().cloned(),
                column.page_encoding_stats_mask().copied().expect("it is told how its pages are packed"),
                of.column_index().unwrap()[nth][4].clone(),
            )
        };
        assert_eq!(group(&whole, 0), group(&first, 0), "what says where to look is taken along");
        assert_eq!(lake.data[0].entry.file.split_offsets.len(), 5);
        check(&bench, &lake);
        // Rows are found by their position in the file, which is known from the merge, and after a restart read from the file.
        bench.delete([1, 301, 1_500]);
        bench.land();
        assert_eq!(bench.lake().data[0].deleted, 3);
        check(&bench, &bench.lake());
        bench.restart();
        bench.delete([2, 302, 1_499]);
        bench.land();
        check(&bench, &bench.lake());
    }
}

#[test]
fn files_that_lack_rows_or_columns_or_are_small_are_decoded() {
    type Change = fn(&mut Bench);
    let changes: [(&str, Change); 4] = [
        ("deleted rows", |bench| {
            bench.delete([310]);
            bench.land();
        }),
        ("a column more", |bench| {
            bench.alter(|def| {
                def.add_column("x", &DataType::Int64, true, None).unwrap();
            });
            bench.land();
        }),
        ("a small file", |bench| {
            commit(bench, 10_000, 3);
            commit(bench, 20_000, 3);
        }),
        ("another order", |bench| {
            bench.alter(|def| support::lay_out(def, &[], &["s"]));
            bench.land();
        }),
    ];
    for (what, change) in changes {
        let mut bench = bench(false);
        (0..3).for_each(|n| commit(&mut bench, n * 300, 300));
        change(&mut bench);
        maintain(&mut bench).unwrap();
        let lake = bench.lake();
        assert_eq!((lake.data.len(), footer(&lake, 0).num_row_groups()), (1, 1), "{what}");
        check(&bench, &lake);
    }
}

/// Each file ends between two of the source files, once it is full.
#[test]
fn concatenated_files_fill_several_files() {
    let mut bench = bench(false);
    bench.materializer =
        support::materializer(Options { file_bytes: 32 << 10, ..Options::new("lake", "lake") });
    (0..7).for_each(|n| commit(&mut bench, n * 400, 400));
    let bytes = bench.lake().data.iter().map(|live| live.entry.file.bytes).max().unwrap();
    assert!(bytes < 16 << 10, "{bytes}: they are small enough to be merged");
    maintain(&mut bench).unwrap();
    let lake = bench.lake();
    assert!((2..6).contains(&lake.data.len()), "{} files", lake.data.len());
    let groups: usize = (0..lake.data.len()).map(|nth| footer(&lake, nth).num_row_groups()).sum();
    assert_eq!(groups, 7);
    check(&bench, &lake);
}

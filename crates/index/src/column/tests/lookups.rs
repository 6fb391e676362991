//! Tests of M1 and M2: readers find the same rows as a scan, however far an index has come and however its rows are
//! divided into runs.

use std::sync::Arc;

use engine::contract::ContractTest;
use table::materializer::Materializer;
use types::{DataType, Kind, RowId, TableDef, TableId, Value};

use super::support::{IndexBench, goods, index, observe, random_rows};
use crate::column::{ColumnCondition, ColumnMaterializer, EntryRange, check};

#[test]
fn an_index_killed_at_any_step_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(600);
    for keyed in [true, false] {
        let make = || -> Arc<dyn Materializer> { ColumnMaterializer::new() };
        ContractTest {
            make: &make,
            table: goods(keyed),
            rows: &|rng, count| random_rows(rng, count, 60),
            observe: &|table, position| observe(table, Some(position)),
            keeps_old_positions: true,
        }
        .run(testkit::seeds(12));
    }
}

#[test]
fn index_and_tail_find_what_a_scan_finds_on_random_rows_deletes_and_positions() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(8, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let mut bench = IndexBench::new(seed, goods(false));
        let mut held = Vec::new();
        for _ in 0..30 {
            let most = if rng.below(4) == 0 { 500 } else { 20 };
            let count = 1 + rng.below(most);
            bench.append(&random_rows(&mut rng, count as usize, 10_000));
            let last = bench.table().next_row().0;
            let dead: Vec<RowId> = (0..rng.below(1 + count)).map(|_| RowId(1 + rng.below(last))).collect();
            bench.delete(&dead);
            for _ in 0..rng.below(4) {
                bench.step(1 + rng.below(400) as usize).unwrap();
            }
            let table = bench.table();
            let seen = observe(&table, bench.position.as_deref()).unwrap();
            held.push((table, bench.position.clone(), seen));
            let (table, position, seen) = &held[rng.below(held.len() as u64) as usize];
            assert_eq!(&observe(table, position.as_deref()).unwrap(), seen, "S1");
        }
    });
}

#[test]
fn runs_stay_few_and_what_is_dead_goes_with_merges() {
    let _limit = testkit::limit(240);
    let mut rng = testkit::Rng::new(1);
    let mut bench = IndexBench::new(1, goods(false));
    for _ in 0..600 {
        bench.append(&random_rows(&mut rng, 20, 1_000_000));
        let first = bench.table().next_row().0 - 20;
        bench.delete(&(first..first + 10).map(RowId).collect::<Vec<_>>());
        bench.catch_up(1_000);
    }
    let indexes = bench.indexes();
    assert_eq!(indexes.list().len(), 3, "an index that is declared twice is built once");
    for index in indexes.list() {
        assert!(index.runs().len() < 32, "{} runs", index.runs().len());
        assert!(index.runs()[0].rows > 1_000, "{:?}", index.runs());
    }
    let named: usize = indexes.list().iter().map(|index| index.runs().len()).sum();
    assert_eq!(bench.files(), named, "no file is left that nobody names");
    let table = bench.table();
    observe(&table, bench.position.as_deref()).unwrap();
    // If all rows are dead, a merge leaves none of them.
    bench.delete(&(1..table.next_row().0).map(RowId).collect::<Vec<_>>());
    for _ in 0..200 {
        bench.append(&random_rows(&mut rng, 30, 1_000_000));
        bench.catch_up(1_000);
    }
    let rows: u64 = bench.indexes().list()[0].runs().iter().map(|run| run.rows).sum();
    assert!(rows < 9_000, "{rows} rows of {} that live", bench.table().rows());
}

#[test]
fn a_new_index_is_built_beside_the_others_and_a_dropped_one_goes() {
    let _limit = testkit::limit(120);
    let mut rng = testkit::Rng::new(2);
    let mut bench = IndexBench::new(2, goods(false));
    bench.append(&random_rows(&mut rng, 900, 100_000));
    bench.catch_up(100);
    let stock = types::ColumnId(19);
    let changed = |bench: &IndexBench, change: &dyn Fn(&mut TableDef)| {
        let mut def = TableDef::clone(bench.table().def());
        def.schema.version = types::SchemaVersion(def.schema.version.0 + 1);
        change(&mut def);
        def
    };
    let files = bench.files();
    let def = changed(&bench, &|def| def.indexes.push(index("stocks", &[stock])));
    bench.tip.set_def(def).unwrap();
    bench.append(&random_rows(&mut rng, 50, 100_000));
    assert!(bench.step(100).unwrap());
    let reached: Vec<u64> = bench.indexes().list().iter().map(|index| index.reached().0).collect();
    assert_eq!(reached[3], 100, "the new one is furthest behind, and goes first");
    assert!(reached[..3].iter().all(|row| *row > 800), "{reached:?}");
    observe(&bench.table(), bench.position.as_deref()).unwrap();
    bench.catch_up(100);
    assert!(bench.files() > files);
    let def = changed(&bench, &|def| def.indexes.retain(|index| index.name == "names"));
    bench.tip.set_def(def).unwrap();
    bench.catch_up(100);
    assert_eq!(bench.indexes().list().len(), 1);
    assert_eq!(bench.files(), bench.indexes().list()[0].runs().len());
}

#[test]
fn a_damaged_run_is_never_believed_and_is_built_anew() {
    let _limit = testkit::limit(240);
    testkit::for_each_seed(10, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let mut bench = IndexBench::new(seed, goods(false));
        bench.append(&random_rows(&mut rng, 3_000, 1_000_000));
        bench.catch_up(10_000);
        let entries = bench.place.env.disk.list(&bench.place.dir).unwrap();
        let entry = &entries[rng.below(entries.len() as u64) as usize];
        bench.machine.disk.flip_bit(&bench.place.dir.join(&entry.name), rng.below(entry.len));
        // A new process knows of the files only their contents.
        let position = bench.position.clone().unwrap();
        bench.column = ColumnMaterializer::new();
        match bench.column.open(&bench.place, &bench.table(), &position.checkpoint) {
            Err(e) => assert!(matches!(e.kind(), Kind::Damaged | Kind::Newer), "{e}"),
            Ok(published) => {
                let checkpoint = position.checkpoint.clone();
                let opened = Arc::new(table::materializer::Position::new(checkpoint, published));
                observe(&bench.table(), Some(&opened)).unwrap();
                let is_damaged = opened.published::<crate::column::Indexes>().unwrap();
                let touched = is_damaged.list().iter().any(|index| index.is_damaged());
                bench.position = Some(opened);
                let stepped = bench.step(10_000);
                assert_eq!(stepped.is_err_and(|e| e.kind() == Kind::Damaged), touched);
            }
        }
    });
}

#[test]
fn counting_reads_few_blocks_and_agrees_with_the_rows() {
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("n", &DataType::Int64, false, None).unwrap();
    def.indexes.push(index("n", &[types::ColumnId(16)]));
    let mut bench = IndexBench::new(3, def);
    let n: arrow::array::ArrayRef =
        Arc::new(arrow::array::Int64Array::from_iter_values((0..50_000).map(|i| i * 7_919 % 50_000)));
    bench.append(&arrow::array::RecordBatch::try_from_iter([("n", n)]).unwrap());
    bench.catch_up(1 << 20);
    let indexes = bench.indexes();
    let index = &indexes.list()[0];
    let columns = index.columns();
    for (low, high) in
        [(0, 50_000), (-5, 3), (100, 101), (100, 100), (49_999, 60_000), (700, 20), (12_345, 45_678)]
    {
        let bounds =
            (std::ops::Bound::Included(&Value::Int64(low)), std::ops::Bound::Excluded(&Value::Int64(high)));
        let range = columns.range(&[], ColumnCondition::Between(bounds.0, bounds.1)).unwrap();
        let wanted = (high.min(50_000) - low.max(0)).max(0) as u64;
        assert_eq!(index.count(std::slice::from_ref(&range)).unwrap(), wanted, "{low} {high}");
        assert_eq!(index.rows(&[range]).unwrap().len() as u64, wanted);
    }
    assert_eq!(index.count(&[EntryRange::all()]).unwrap(), 50_000);
    let bytes: u64 = index.runs().iter().map(|run| run.bytes).sum();
    assert!(bytes < 50_000 * 18, "{bytes} bytes for 50,000 numbers");
}

#[test]
fn what_cannot_be_indexed_is_refused_with_a_reason() {
    let mut def = goods(true);
    let list = DataType::parse("list<string>", &mut types::ColumnId(90)).unwrap();
    def.add_column("tags", &list, true, None).unwrap();
    let tags = def.schema.columns[4].id;
    let error = check(&def, &index("t", &[tags])).unwrap_err();
    assert!(error.to_string().contains("`tags` is list<string>"), "{error}");
    let mut with_option = index("n", &[types::ColumnId(17)]);
    with_option.options.push(("speed".into(), "high".into()));
    assert!(check(&def, &with_option).is_err());
    def.indexes.iter().try_for_each(|index| check(&def, index)).unwrap();
}

//! Tests that the lake fulfils the contract of all materializers, with a crash at any call.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::contract::ContractTest;
use table::materializer::Materializer;
use types::{DataType, TableDef, TableId};

use super::support::{LAYOUTS, RowHashes, lay_out, materializer, observe, small};

fn table(keyed: bool, layout: usize) -> TableDef {
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("k", &DataType::Int64, false, None).unwrap();
    def.add_column("s", &DataType::String, true, None).unwrap();
    if keyed {
        def.set_primary_key(&["k".into()]).unwrap();
    }
    lay_out(&mut def, LAYOUTS[layout].0, LAYOUTS[layout].1);
    def
}

fn trial(
    make: &dyn Fn() -> Arc<dyn Materializer>,
    keyed: bool,
    layout: usize,
) -> ContractTest<'_, RowHashes> {
    ContractTest {
        make,
        table: table(keyed, layout),
        rows: &|rng, count| {
            let keys = Int64Array::from_iter_values((0..count).map(|_| rng.below(40) as i64));
            let texts: StringArray =
                (0..count).map(|_| (rng.below(5) > 0).then(|| "x".repeat(rng.below(30) as usize))).collect();
            let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("s", Arc::new(texts))];
            RecordBatch::try_from_iter(columns).unwrap()
        },
        observe: &observe,
        // Snapshots expire by their own rules.
        keeps_old_positions: false,
    }
}

#[test]
fn a_lake_killed_at_any_call_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(600);
    trial(&|| materializer(small()), true, 0).run(testkit::seeds(40));
}

#[test]
fn a_lake_of_a_table_without_a_key_killed_at_any_call_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(600);
    trial(&|| materializer(small()), false, 0).run(testkit::seeds(20));
}

#[test]
fn a_partitioned_or_sorted_lake_killed_at_any_call_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(900);
    for (layout, _) in LAYOUTS.iter().enumerate().skip(1) {
        let seeds = testkit::seeds(6);
        let first = 1_000 * layout as u64;
        trial(&|| materializer(small()), layout % 3 > 0, layout).run(first + seeds.start..first + seeds.end);
    }
}

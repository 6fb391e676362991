//! The contract of all materializers, the crash at any call included.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::contract::Trial;
use table::materializer::Materializer;
use types::{DataType, TableDef, TableId};

use super::support::{Rows, materializer, observe, small};

fn table(keyed: bool) -> TableDef {
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("k", &DataType::Int64, false, None).unwrap();
    def.add_column("s", &DataType::String, true, None).unwrap();
    if keyed {
        def.set_primary_key(&["k".into()]).unwrap();
    }
    def
}

fn trial(make: &dyn Fn() -> Arc<dyn Materializer>, keyed: bool) -> Trial<'_, Rows> {
    Trial {
        make,
        table: table(keyed),
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
    trial(&|| materializer(small()), true).run(testkit::seeds(40));
}

#[test]
fn so_does_one_of_a_table_without_a_key() {
    let _limit = testkit::limit(600);
    trial(&|| materializer(small()), false).run(testkit::seeds(20));
}

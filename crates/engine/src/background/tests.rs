use std::path::Path;

use types::{DataType, Principal, TableDef};

use super::*;
use crate::{Engine, Mode, Op, Options, Step, Transaction};

/// Debt fell only when a seal ended, by a hundred MiB at once: writers were slowed too much before and too little after.
#[test]
fn what_a_seal_has_written_is_no_debt_any_more() {
    let machine = sim::SimEnv::new(1);
    let options = Options { seal_rows: 100, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("x", &DataType::Int64, true, None).unwrap();
    let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..100));
    let batch = arrow::array::RecordBatch::try_from_iter([("x", values)]).unwrap();
    let create = Op::CreateTable { def, if_absent: false };
    let insert = Op::Insert { table: "t".into(), batch, mode: Mode::Append };
    engine.submit(&Principal::local(), Transaction::new(vec![create, insert]), |result| {
        assert!(result.is_ok(), "{result:?}");
    });
    engine.step(Step::Commit);
    engine.step(Step::Sync);
    let shared = engine.shared_weak().upgrade().unwrap();
    let head = shared.debt_bytes();
    assert!(head > 0);

    let mut sealing = Sealing { shared: shared.clone(), bytes: 0, bytes_max: head };
    sealing.add(head / 4);
    assert_eq!(shared.debt_bytes(), head - head / 4);
    // A segment may be larger than its rows were in memory.
    sealing.add(3 * head);
    assert_eq!(shared.debt_bytes(), 0);
    drop(sealing);
    assert_eq!(shared.debt_bytes(), head, "a seal that failed has paid nothing");

    while engine.step(Step::Background) {
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    }
    assert_eq!(engine.root().table("main.t").unwrap().segments().count(), 1);
    assert_eq!((shared.counters.sealing_bytes.get(), shared.debt_bytes()), (0, 0));
}

//! Tests of erasure: on request, the values of deleted rows leave the runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use engine::{Engine, Mode, Op, Options, Step, Transaction};
use sim::SimEnv;
use types::{ColumnId, DataType, Lsn, Principal, RowId, TableDef, TableId};

use super::support::index;
use crate::column::{ColumnMaterializer, NAME};

const SECRET: &str = "Zebediah Secret";

struct Machine {
    sim: SimEnv,
    engine: Engine,
}

impl Machine {
    /// Opens an engine with a table of names in two indexes: one over the names alone, one over the city and then the
    /// name.
    fn new(seed: u64) -> Machine {
        let sim = SimEnv::new(seed);
        let engine = Engine::open_stepped(sim.env(), "db".as_ref(), Options::default()).unwrap();
        engine.register(ColumnMaterializer::new()).unwrap();
        let mut def = TableDef::new(TableId(0), "main.people");
        def.add_column("name", &DataType::String, true, None).unwrap();
        def.add_column("city", &DataType::String, true, None).unwrap();
        def.indexes.push(index("names", &[ColumnId(16)]));
        def.indexes.push(index("cities", &[ColumnId(17), ColumnId(16)]));
        let machine = Machine { sim, engine };
        machine.write(Op::CreateTable { def, if_absent: false });
        machine
    }

    fn write(&self, op: Op) -> Lsn {
        self.engine.submit(&Principal::local(), Transaction::new(vec![op]), |done| {
            done.unwrap();
        });
        self.settle();
        self.engine.root().lsn()
    }

    fn settle(&self) {
        for _ in 0..10 {
            while self.engine.step(Step::Commit)
                | self.engine.step(Step::Sync)
                | self.engine.step(Step::Background)
            {}
            self.sim.clock.advance(Duration::from_millis(200));
        }
    }

    fn insert(&self, names: impl Iterator<Item = String>) {
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
        let cities: ArrayRef = Arc::new(StringArray::from_iter_values((0..names.len()).map(|_| "Ulm")));
        let batch = RecordBatch::try_from_iter([("name", names), ("city", cities)]).unwrap();
        self.write(Op::Insert { table: "people".into(), batch, mode: Mode::Append });
    }

    fn table(&self) -> TableId {
        self.engine.root().table("main.people").unwrap().def().id
    }

    /// Returns the run files that contain a text, and the number of all run files.
    fn files(&self, text: &str) -> (Vec<PathBuf>, usize) {
        let of_runs = |path: &PathBuf| path.starts_with(Path::new("/db/derived").join(NAME));
        let all: Vec<PathBuf> = self.sim.disk.files().into_iter().filter(of_runs).collect();
        let has = |path: &PathBuf| {
            let bytes = self.sim.disk.contents(path).unwrap();
            text.is_empty() || bytes.windows(text.len()).any(|window| window == text.as_bytes())
        };
        let count = all.len();
        (all.into_iter().filter(has).collect(), count)
    }
}

#[test]
fn no_run_has_a_value_of_a_row_that_was_erased() {
    let _limit = testkit::limit(60);
    for is_held in [false, true] {
        let machine = Machine::new(7);
        machine.insert((0..100).map(|n| if n == 40 { SECRET.to_owned() } else { format!("person {n}") }));
        machine.insert((100..200).map(|n| format!("person {n}")));
        let lsn =
            machine.write(Op::Delete { table: "people".into(), rows: vec![RowId(41)], must_exist: true });
        let (with, files) = machine.files(SECRET);
        assert_eq!((with.len(), files), (2, 4), "a delete writes nothing");
        let held = is_held.then(|| machine.engine.root().derived(NAME, machine.table()).cloned());
        let erasure = machine.engine.erase(machine.table(), lsn).unwrap();
        machine.settle();
        if is_held {
            assert_eq!(erasure.state().indexes_left, [NAME]);
            assert_eq!((machine.files(SECRET).0.len(), machine.files("").1), (2, 6));
            drop(held);
            machine.settle();
        }
        let state = erasure.state();
        assert!(state.ended.clone().is_some_and(|ended| ended.is_ok()), "{state:?}");
        assert_eq!(machine.files(SECRET), (Vec::new(), 4));
        assert_eq!(machine.files("person 41").0.len(), 2, "what lives stays");
        // The runs that held the secret were replaced, and no other run was rewritten.
        assert!(with.iter().all(|path| !machine.sim.disk.files().contains(path)));
    }
}

/// An erasure does not wait for an index that was dropped.
#[test]
fn what_is_not_followed_any_more_is_not_waited_for() {
    let _limit = testkit::limit(60);
    let machine = Machine::new(8);
    machine.insert((0..100).map(|n| format!("person {n}")));
    let lsn = machine.write(Op::Delete { table: "people".into(), rows: vec![RowId(41)], must_exist: true });
    let held = machine.engine.root().derived(NAME, machine.table()).cloned();
    let erasure = machine.engine.erase(machine.table(), lsn).unwrap();
    machine.settle();
    assert_eq!(erasure.state().indexes_left, [NAME]);
    let drop_both = vec!["names".to_owned(), "cities".to_owned()];
    machine.write(Op::AlterIndexes { table: "people".into(), drop: drop_both, add: Vec::new() });
    drop(held);
    machine.settle();
    assert!(erasure.state().ended.is_some_and(|ended| ended.is_ok()));
    assert_eq!(machine.files("").1, 0);
}

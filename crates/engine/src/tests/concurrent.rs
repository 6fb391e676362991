use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use types::{DataType, Kind, Principal, RowId, Value, key};
use vfs::Env;

use super::support::{batch, by_id, contents, keyed, plain};
use crate::{Engine, Mode, Op, Options, Transaction};

/// Small heads, so that seals and compactions run beside the test.
fn busy_options() -> Options {
    Options {
        seal_bytes: 32 << 10,
        log: commitlog::Options { file_bytes: 256 << 10, ..Default::default() },
        ..Options::default()
    }
}

fn insert(engine: &Engine, table: &str, rows: &[(i64, i64)], mode: Mode) -> types::Result<crate::Committed> {
    engine.commit(&Principal::local(), Transaction::insert(table, batch(rows), mode))
}

#[test]
fn compare_and_set_from_many_threads_loses_no_increment() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), busy_options()).unwrap();
    let create = Op::CreateTable { def: keyed("t"), if_absent: false };
    engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    insert(&engine, "t", &[(7, 0)], Mode::Append).unwrap();
    let bytes = key::encode_values(&[DataType::Int64], &[Value::Int64(7)]).unwrap();
    let (threads, rounds) = (4, 50);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut done = 0;
                while done < rounds {
                    let root = engine.root();
                    let table = root.table("main.t").unwrap();
                    let row = table.get_row(&bytes).unwrap().unwrap();
                    let Value::Int64(v) = row.value(table.def().schema.columns[1].id).unwrap() else {
                        panic!("v is an int64");
                    };
                    match insert(&engine, "t", &[(7, v + 1)], Mode::CompareAndSet(vec![Some(row.row_id())])) {
                        Ok(_) => done += 1,
                        Err(error) => assert_eq!(error.kind(), Kind::Conflict),
                    }
                }
            });
        }
    });
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(7, threads * rounds)].into());
}

/// A root, the number of rows in `p` and the rows of `k` when it was taken.
type Held = (Arc<crate::Root>, usize, BTreeMap<RowId, (i64, i64)>);

#[test]
fn a_held_root_never_changes_while_writers_seal_and_compact_under_it() {
    let _limit = testkit::limit(180);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), busy_options()).unwrap();
    for def in [keyed("k"), plain("p")] {
        let create = Op::CreateTable { def, if_absent: false };
        engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    }
    let stop = AtomicBool::new(false);
    let written = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2i64 {
            let (engine, stop, written) = (&engine, &stop, &written);
            scope.spawn(move || {
                for round in 0i64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let rows: Vec<(i64, i64)> =
                        (0..50).map(|i| (writer + 2 * ((round + i) % 500), round)).collect();
                    // Both tables in one commit: readers see equal counts of rounds in both or S2 is broken.
                    let ops = vec![
                        Op::Insert { table: "k".into(), batch: batch(&rows), mode: Mode::Upsert },
                        Op::Insert { table: "p".into(), batch: batch(&rows[..1]), mode: Mode::Append },
                    ];
                    engine.commit(&Principal::local(), Transaction::new(ops)).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (engine, stop, written) = (&engine, &stop, &written);
        scope.spawn(move || {
            let mut held: Vec<Held> = Vec::new();
            let target = testkit::scaled(4_000).max(600) as i64;
            // The pool is shared by all databases of the process: the first seal may have to wait for its turn.
            while written.load(Ordering::Relaxed) < target || engine.status().seals == 0 {
                let _read = vfs::read_path();
                let root = engine.root();
                let (k, p) = (root.table("main.k").unwrap(), root.table("main.p").unwrap());
                let newest = contents(p).into_values().next_back();
                if let Some((id, round)) = newest {
                    // The last commit's row in `p` has its twin in `k`, at this or (by the same writer) no later round.
                    let twin = by_id(k).get(&id).copied();
                    assert!(twin.is_some_and(|v| v >= round - 1), "{twin:?} for round {round}");
                }
                if held.len() < 20 {
                    held.push((root.clone(), contents(p).len(), contents(k)));
                }
                for (root, p, k) in &held {
                    assert_eq!(contents(root.table("main.p").unwrap()).len(), *p, "S1");
                    assert_eq!(&contents(root.table("main.k").unwrap()), k, "S1");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    let status = engine.status();
    assert!(status.seals > 0, "the test means to run beside seals: {status:?}");
    assert_eq!(status.background_errors, 0);
}

//! Tests of a power failure, a kill or a failure at every call of a commit.

use std::collections::BTreeMap;

use sim::Rng;
use types::{DataType, Result, Value};

use super::support::{Bench, LAYOUTS, RowHashes, lay_out, materializer, read, rows_of, small};
use crate::reader::Reader;
use crate::{Options, Store};

/// The numbers of the layouts that a table has, one after the other.
pub type Layouts = &'static [usize];

/// Changes the table in the way that belongs to the step. The table lands after each step.
pub fn changes(bench: &mut Bench, step: usize, layouts: Layouts) {
    if let [_, .., then] = layouts
        && step == 6
    {
        let (partition_by, sort_by) = LAYOUTS[*then];
        bench.alter(|def| lay_out(def, partition_by, sort_by));
    }
    match step {
        0 => drop(bench.keys(0..30)),
        1 => drop(bench.delete([1, 5, 6]).keys(30..40)),
        2 => drop(bench.alter(|def| {
            def.add_column("level", &DataType::Int32, true, Some(Value::Int32(7))).unwrap();
        })),
        3 => drop(bench.delete(7..=20)),
        // These steps merge files, manifests and positions, and expire snapshots.
        _ => {
            let n = step as i64;
            bench.delete([20 + n as u64]);
            bench.insert(&[vec![Value::Int64(n), Value::Null, Value::Int32(1)]]);
        }
    }
    bench.sim.clock.advance(std::time::Duration::from_secs(7));
}

pub const STEPS: usize = 14;

/// The table's rows after each change, by the row and lsn that the lake then tells.
pub type States = BTreeMap<(u64, u64), RowHashes>;

fn begin(layouts: Layouts) -> Bench {
    begin_in(layouts, small())
}

pub fn begin_in(layouts: Layouts, options: Options) -> Bench {
    let mut bench = Bench::new(options);
    let (partition_by, sort_by) = LAYOUTS[layouts[0]];
    bench.lay_out(partition_by, sort_by);
    bench
}

pub fn run(bench: &mut Bench, states: &mut States, layouts: Layouts) -> Result<()> {
    states.insert((0, bench.lsn), RowHashes::new());
    bench.try_land()?;
    for step in 0..STEPS {
        changes(bench, step, layouts);
        states.insert((bench.tip.next_row().0 - 1, bench.lsn), rows_of(&bench.snapshot())?);
        bench.try_land()?;
    }
    Ok(())
}

/// Continues after a failure: makes the remaining changes, and compares the lake with the table.
pub fn finish(bench: &mut Bench, done: &States, layouts: Layouts) {
    bench.land();
    for step in done.len().saturating_sub(1)..STEPS {
        changes(bench, step, layouts);
        bench.land();
    }
}

/// K1: checks that a reader of the files finds the table's rows at the position that the lake tells.
pub fn check(store: &Store, dir: &std::path::Path, states: &States, what: &str) {
    if crate::newest_version(store, dir).unwrap().is_none() {
        return;
    }
    let reader = Reader::open(store, dir).unwrap_or_else(|e| panic!("{what}: {e}"));
    let at = (reader.row.0, reader.lsn.0);
    let mut found = read(store, dir).unwrap_or_else(|e| panic!("{what}: {e}"));
    match states.get(&at) {
        // A schema change without rows does not move the position, and may change the values that older rows show.
        Some(expected) if expected.keys().eq(found.keys()) => {}
        Some(expected) => {
            found.retain(|row, _| !expected.contains_key(row));
            panic!("{what}: at {at:?} rows {found:?} too many, or others are missing");
        }
        None => panic!("{what}: the lake stands at {at:?}, where the table never was"),
    }
}

enum End {
    PowerFailure,
    Kill,
}

fn ends_at_every_call(end: &End, layouts: Layouts, stride: usize) {
    let mut whole = begin(layouts);
    run(&mut whole, &mut States::new(), layouts).unwrap();
    let calls = whole.sim.disk.calls();
    assert!(calls > 400, "{calls}");
    let stride = if testkit::scale() >= 1.0 { 1 } else { stride };
    for call in (1..=calls).step_by(stride) {
        let what = format!("call {call} of {calls}");
        let mut bench = begin(layouts);
        bench.sim.disk.crash_at(call);
        let mut states = States::new();
        if run(&mut bench, &mut states, layouts).is_ok() {
            continue;
        }
        let after = match end {
            End::PowerFailure => bench.sim.crash(&mut Rng::new(call)),
            End::Kill => bench.sim.kill(),
        };
        let dir = bench.dir();
        check(&Store::local(&after.env()), &dir, &states, &what);
        bench.sim = after;
        bench.sim.env().disk.create_dir_all(&bench.place().dir).unwrap();
        bench.restart();
        finish(&mut bench, &states, layouts);
    }
}

#[test]
fn a_power_failure_at_every_call_leaves_the_lake_at_a_commit() {
    let _limit = testkit::limit(600);
    ends_at_every_call(&End::PowerFailure, &[0], 3);
}

#[test]
fn a_kill_at_every_call_leaves_the_lake_at_a_commit() {
    let _limit = testkit::limit(600);
    ends_at_every_call(&End::Kill, &[0], 3);
}

#[test]
fn a_failure_at_every_call_leaves_a_partitioned_or_sorted_lake_at_a_commit() {
    let _limit = testkit::limit(900);
    ends_at_every_call(&End::PowerFailure, &[1], 13);
    ends_at_every_call(&End::Kill, &[3], 7);
    // The layout changes while failures happen.
    ends_at_every_call(&End::PowerFailure, &[0, 2], 11);
    ends_at_every_call(&End::Kill, &[4, 7], 11);
}

/// A commit found on the disk must be durable before a checkpoint refers to it. Otherwise a power failure after a kill leaves
/// the checkpoint ahead of the lake.
#[test]
fn a_commit_that_a_kill_left_unsynced_is_durable_once_it_was_found() {
    let _limit = testkit::limit(300);
    let layouts = &[0, 2];
    let mut whole = begin(layouts);
    run(&mut whole, &mut States::new(), layouts).unwrap();
    for call in (1..=whole.sim.disk.calls()).step_by(5) {
        let mut bench = begin(layouts);
        bench.sim.disk.crash_at(call);
        if run(&mut bench, &mut States::new(), layouts).is_ok() || bench.position.is_none() {
            continue;
        }
        bench.sim = bench.sim.kill();
        bench.restart();
        if bench.position.is_none() {
            bench.step(true).unwrap();
        }
        let found = (bench.lake().row, bench.lake().lsn, bench.lake().version);
        bench.sim = bench.sim.crash(&mut Rng::new(call));
        bench.restart();
        let lake = bench.position.as_ref().map(|_| bench.lake());
        let lake = lake.unwrap_or_else(|| panic!("call {call}: the checkpoint opens after a power failure"));
        assert_eq!((lake.row, lake.lsn, lake.version), found);
    }
}

/// A call fails and the machine lives on: the next step continues from the present state.
#[test]
fn failing_writes_and_syncs_are_survived() {
    let _limit = testkit::limit(600);
    for seed in testkit::seeds(150) {
        let mut rng = Rng::new(seed);
        let layouts: Layouts = [&[0][..], &[2, 3], &[6, 1]][(seed % 3) as usize];
        let mut bench = begin(layouts);
        bench.land();
        for step in 0..STEPS {
            changes(&mut bench, step, layouts);
            if rng.below(2) == 0 {
                bench.sim.disk.fail_write(1 + rng.below(12));
            } else {
                bench.sim.disk.fail_sync(1 + rng.below(12));
            }
            if bench.step(true).is_err() && rng.below(3) == 0 {
                bench.materializer = materializer(small());
                bench.position = None;
            }
            // A fault that has not occurred yet occurs somewhere below.
            let mut tries = 0;
            while bench.try_land().is_err() {
                tries += 1;
                assert!(tries < 5, "seed {seed}");
            }
            bench.land();
        }
    }
}

/// Canaries: each sync is needed. The tests above must notice a disk that drops one kind of them.
#[test]
fn a_lake_that_skips_a_kind_of_sync_is_caught() {
    let _limit = testkit::limit(600);
    for kind in ["data/", ".avro", ".metadata.json", "metadata"] {
        let caught = std::panic::catch_unwind(|| {
            let mut whole = begin(&[0]);
            run(&mut whole, &mut States::new(), &[0]).unwrap();
            for call in 1..=whole.sim.disk.calls() {
                let mut bench = begin(&[0]);
                bench.sim.disk.lose_syncs(move |path| {
                    let path = path.to_string_lossy();
                    match kind {
                        "metadata" => path.ends_with("/metadata"),
                        "data/" => path.contains("/data/"),
                        ending => path.contains(ending),
                    }
                });
                bench.sim.disk.crash_at(call);
                let mut states = States::new();
                if run(&mut bench, &mut states, &[0]).is_ok() {
                    continue;
                }
                let dir = bench.dir();
                bench.sim = bench.sim.crash(&mut Rng::new(call));
                check(&bench.store(), &dir, &states, "canary");
                bench.sim.env().disk.create_dir_all(&bench.place().dir).unwrap();
                bench.restart();
                finish(&mut bench, &states, &[0]);
            }
        });
        assert!(caught.is_err(), "a lake that never syncs {kind} passes");
    }
}

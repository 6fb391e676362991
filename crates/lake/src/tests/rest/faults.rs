//! Tests of failures of every kind at every call, of machines that die, and of requests that arrive after their sender gave up.

use std::time::Duration;

use sim::Rng;
use types::Value;

use super::super::crashes::{self, Layouts, STEPS, States};
use super::super::support::Bench;
use super::fake_catalog::{FakeCatalog, Fate};
use super::{begin, check, land, note};

const FATES: [Fate; 8] = [
    Fate::Refused,
    Fate::Dropped,
    Fate::Lost,
    Fate::Late,
    Fate::Before(500),
    Fate::Before(503),
    Fate::After(500),
    Fate::After(502),
];

fn finish(bench: &mut Bench, fake: &FakeCatalog, done: &States, layouts: Layouts) {
    land(bench, fake);
    for step in done.len().saturating_sub(1)..STEPS {
        crashes::changes(bench, step, layouts);
        land(bench, fake);
    }
}

fn calls_of(layouts: Layouts) -> u64 {
    let (mut whole, fake) = begin(layouts);
    crashes::run(&mut whole, &mut States::new(), layouts).unwrap();
    assert!(fake.calls() > 15, "{}", fake.calls());
    fake.calls()
}

/// One process continues after each failure, and no rows are lost.
#[test]
fn a_failure_at_every_call_is_survived() {
    let _limit = testkit::limit(600);
    for layouts in [&[0][..], &[2, 3], &[6, 1]] as [Layouts; 3] {
        for call in 1..=calls_of(layouts) {
            for fate in FATES {
                let (mut bench, fake) = begin(layouts);
                fake.fail(call, false, fate);
                let mut states = States::new();
                for step in 0..STEPS {
                    crashes::changes(&mut bench, step, layouts);
                    note(&bench, &mut states).unwrap();
                    let mut tries = 0;
                    while let Err(error) = bench.try_land() {
                        check(&bench, &fake, &states, &format!("call {call}, {fate:?}: {error}"));
                        tries += 1;
                        assert!(tries < 4, "call {call}, {fate:?}: {error}");
                    }
                    check(&bench, &fake, &states, &format!("call {call}, {fate:?}"));
                }
                fake.works_again();
                fake.deliver();
                check(&bench, &fake, &states, &format!("call {call}, {fate:?}, delivered"));
                land(&mut bench, &fake);
            }
        }
    }
}

/// K1 between machines: wherever the network or the process fails, and whichever requests arrive afterwards, the catalog's
/// readers find the table at some commit, and a new process continues from there.
#[test]
fn an_end_at_every_call_leaves_the_lake_at_a_commit() {
    let _limit = testkit::limit(600);
    for layouts in [&[0][..], &[0, 2]] as [Layouts; 2] {
        for call in 1..=calls_of(layouts) {
            for fate in FATES {
                let what = format!("call {call}, {fate:?}");
                let (mut bench, fake) = begin(layouts);
                fake.fail(call, true, fate);
                let mut states = States::new();
                if crashes::run(&mut bench, &mut states, layouts).is_ok() {
                    continue;
                }
                fake.works_again();
                check(&bench, &fake, &states, &what);
                bench.restart();
                // Late requests arrive before the new process has done anything, or afterwards.
                if call % 2 == 0 {
                    fake.deliver();
                    check(&bench, &fake, &states, &what);
                }
                let mut tries = 0;
                while bench.try_land().is_err() {
                    tries += 1;
                    assert!(tries < 4, "{what}");
                }
                fake.deliver();
                finish(&mut bench, &fake, &states, layouts);
            }
        }
    }
}

/// A power failure or a kill at each call of this machine's disk.
#[test]
fn a_machine_that_dies_at_every_call_leaves_the_lake_at_a_commit() {
    let _limit = testkit::limit(600);
    let layouts: Layouts = &[0, 2];
    let (mut whole, _) = begin(layouts);
    crashes::run(&mut whole, &mut States::new(), layouts).unwrap();
    let calls = whole.sim.disk.calls();
    assert!(calls > 300, "{calls}");
    for call in (1..=calls).step_by(if testkit::scale() >= 1.0 { 1 } else { 3 }) {
        let (mut bench, fake) = begin(layouts);
        bench.sim.disk.crash_at(call);
        let mut states = States::new();
        if crashes::run(&mut bench, &mut states, layouts).is_ok() {
            continue;
        }
        bench.sim = if call % 2 == 0 { bench.sim.kill() } else { bench.sim.crash(&mut Rng::new(call)) };
        check(&bench, &fake, &states, &format!("call {call}"));
        bench.sim.env().disk.create_dir_all(&bench.place().dir).unwrap();
        bench.restart();
        finish(&mut bench, &fake, &states, layouts);
    }
}

/// Random failures at every call, kills and power failures in between, and requests that arrive at random times. After each
/// step the catalog's readers find the table at some commit, and in the end all of it.
#[test]
fn the_lake_ends_equal_to_the_table_after_random_failures() {
    let _limit = testkit::limit(900);
    let (mut kills, mut lates, mut failures) = (0, 0, 0);
    let seeds = testkit::seeds(150);
    let count = (seeds.end - seeds.start) as usize;
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let layouts: Layouts = [&[0][..], &[2, 3], &[6, 1], &[0, 5]][(seed % 4) as usize];
        let (mut bench, fake) = begin(layouts);
        let mut states = States::new();
        for step in 0..STEPS {
            let what = format!("seed {seed}, step {step}");
            crashes::changes(&mut bench, step, layouts);
            note(&bench, &mut states).unwrap();
            fake.fail_at_random(rng.below(u64::MAX), 2 + rng.below(8));
            for _ in 0..rng.below(5) {
                failures += usize::from(bench.try_land().is_err());
                check(&bench, &fake, &states, &what);
                if rng.below(4) == 0 {
                    lates += fake.deliver();
                    check(&bench, &fake, &states, &what);
                }
            }
            if rng.below(3) == 0 {
                kills += 1;
                bench.sim = match rng.below(2) {
                    0 => bench.sim.kill(),
                    _ => bench.sim.crash(&mut Rng::new(seed)),
                };
                bench.sim.env().disk.create_dir_all(&bench.place().dir).unwrap();
                bench.restart();
                check(&bench, &fake, &states, &what);
            }
            bench.sim.clock.advance(Duration::from_secs(rng.below(10)));
        }
        fake.works_again();
        let mut tries = 0;
        while let Err(error) = bench.try_land() {
            tries += 1;
            assert!(tries < 5, "seed {seed}: {error}");
        }
        lates += fake.deliver();
        check(&bench, &fake, &states, &format!("seed {seed}, delivered"));
        land(&mut bench, &fake);
        // G1: once the table has moved on, no file of the failed tries is left.
        let row = |key: i64| vec![Value::Int64(key), Value::Null, Value::Int32(1)];
        bench.insert(&[row(1_000)]);
        land(&mut bench, &fake);
        bench.restart();
        bench.insert(&[row(1_001)]);
        land(&mut bench, &fake);
        let unnamed = bench.lake().unnamed_files().unwrap();
        assert!(unnamed.is_empty(), "seed {seed}: {unnamed:?}");
    }
    // Single seeds may meet few failures.
    let is_met = kills > 2 * count && lates > count / 4 && failures > 3 * count;
    assert!(is_met || count < 10, "{kills} kills, {lates} late, {failures} failures in {count} seeds");
}

/// An erasure is complete only when no file with deleted rows is left, including those of a commit in doubt.
#[test]
fn an_erasure_also_removes_the_files_of_a_commit_in_doubt() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = begin(&[0]);
    bench.keys(0..30);
    land(&mut bench, &fake);
    bench.keys(30..40);
    fake.fail(1, false, Fate::Dropped);
    assert!(bench.try_land().is_err());
    fake.works_again();
    // The process is killed, and the new one finds files that a late request may still name.
    bench.restart();
    bench.delete(31..=40);
    bench.erase().unwrap();
    let lake = bench.lake();
    let unnamed = lake.unnamed_files().unwrap();
    assert!(unnamed.is_empty(), "{unnamed:?}");
    land(&mut bench, &fake);
}

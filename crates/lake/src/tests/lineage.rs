//! Tests of lakes that belong to another state of the database.

use std::path::Path;

use types::{Kind, Lsn};
use vfs::Env;

use super::support::{Bench, def, materializer, read};
use crate::{Lineage, Options};

const DATA: &str = "data";

/// Opens the data directory as a new process, at the bench's present lsn.
fn begin(bench: &mut Bench) {
    let env = bench.sim.env();
    env.disk.create_dir_all(Path::new(DATA)).unwrap();
    let lineage = Some(Lineage::open(&env, Path::new(DATA), Some(Lsn(bench.lsn))));
    bench.materializer = materializer(Options { lineage, ..Options::new("lake", "lake") });
}

/// Returns another state of the same table, with these keys.
fn state(of: &Bench, keys: std::ops::Range<i64>) -> Bench {
    let mut state = Bench::of(def(), Options::new("lake", "lake"));
    state.sim = of.sim.clone();
    state.keys(keys);
    state
}

fn runs(env: &Env) -> Vec<u8> {
    crate::files::read(env, &Path::new(DATA).join("lake-runs")).unwrap().to_vec()
}

fn put_back(env: &Env, runs: &[u8]) {
    crate::files::replace(env, &Path::new(DATA).join("lake-runs"), runs).unwrap();
}

fn refused(bench: &mut Bench) {
    let error = bench.try_land().unwrap_err();
    assert_eq!(error.kind(), Kind::Damaged, "{error}");
    assert!(error.hint_text().unwrap().contains("another state"), "{error}");
}

/// Deletes leave no rows to compare, and a restored directory eventually reaches the same numbers: the lake was then taken for
/// its own, and lacked acknowledged rows.
#[test]
fn a_lake_that_was_ahead_once_is_never_taken_for_its_own() {
    for is_run_known in [true, false] {
        let mut lost = Bench::new(Options::new("lake", "lake"));
        let env = lost.sim.env();
        lost.keys(0..10);
        begin(&mut lost);
        let before = runs(&env);
        lost.land();
        let kept = if is_run_known { runs(&env) } else { before };
        lost.delete(1..=5);
        lost.land();

        put_back(&env, &kept);
        let mut back = state(&lost, 0..10);
        begin(&mut back);
        refused(&mut back);
        for turn in 0..3 {
            back.keys(100 * turn..100 * turn + 20);
            refused(&mut back);
        }
        // Another process refuses the lake too.
        begin(&mut back);
        refused(&mut back);
        assert_eq!(read(&lost.store(), &lost.dir()).unwrap().len(), 5, "nothing of it is touched");
        // The cure that the error tells.
        crate::lake_files::remove_dir(&lost.store(), &lost.dir()).unwrap();
        assert_eq!(back.land().rows(), 70);
    }
}

#[test]
fn a_lake_of_an_earlier_run_is_its_own() {
    let mut bench = Bench::new(Options::new("lake", "lake"));
    for turn in 0..4 {
        bench.keys(turn * 10..turn * 10 + 10);
        begin(&mut bench);
        bench.position = None;
        bench.land();
        bench.keys(turn * 10..turn * 10 + 1);
        bench.land();
    }
    let text = String::from_utf8(runs(&bench.sim.env())).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
    // Runs during which nothing was committed leave no line.
    for _ in 0..3 {
        begin(&mut bench);
    }
    let text = String::from_utf8(runs(&bench.sim.env())).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
    bench.restart();
    bench.land();
    // A run that never existed, or another end of one, would be accepted silently, so that every changed byte must be an error.
    let env = bench.sim.env();
    let (path, whole) = (Path::new(DATA).join("lake-runs"), runs(&env));
    assert!(crate::check_runs(&env, Path::new(DATA)).is_ok());
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        crate::files::replace(&env, &path, &changed).unwrap();
        assert_eq!(crate::check_runs(&env, Path::new(DATA)).unwrap_err().kind(), Kind::Damaged, "byte {at}");
    }
}

/// A backup does not contain the runs: a restored database takes a lake for its own if that is not ahead of it.
#[test]
fn a_restored_database_continues_a_lake_that_is_not_ahead() {
    for is_ahead in [false, true] {
        let mut lost = Bench::new(Options::new("lake", "lake"));
        lost.keys(0..10);
        begin(&mut lost);
        lost.land();
        if is_ahead {
            lost.delete(1..=5);
            lost.land();
        }
        let env = lost.sim.env();
        crate::files::remove(&env, &Path::new(DATA).join("lake-runs")).unwrap();
        let mut restored = state(&lost, 0..10);
        begin(&mut restored);
        restored.keys(50..90);
        if is_ahead {
            refused(&mut restored)
        } else {
            assert_eq!(restored.land().rows(), 50)
        }
        begin(&mut restored);
        restored.position = None;
        if is_ahead { refused(&mut restored) } else { assert_eq!(restored.land().rows(), 50) }
    }
}

#[test]
fn unreadable_runs_stop_the_lake_with_an_error() {
    let mut bench = Bench::new(Options::new("lake", "lake"));
    let env = bench.sim.env();
    bench.keys(0..10);
    begin(&mut bench);
    bench.land();
    let kept = runs(&env);
    for damaged in ["", "before x\n", "before 3\na b\n", "later 3\n"] {
        put_back(&env, damaged.as_bytes());
        begin(&mut bench);
        bench.position = None;
        let error = bench.try_land().unwrap_err();
        assert_eq!(error.kind(), Kind::Damaged, "{damaged}");
        assert!(error.message().contains("lake-runs cannot be read"), "{error}");
    }
    put_back(&env, &kept);
    begin(&mut bench);
    bench.land();
}

/// A damaged log was read up to the damage and then repaired. The run had been recorded with too early an end, for good.
#[test]
fn a_log_that_is_damaged_for_a_while_ends_no_run() {
    let mut bench = Bench::new(Options::new("lake", "lake"));
    let env = bench.sim.env();
    bench.keys(0..10);
    begin(&mut bench);
    bench.land();
    bench.keys(10..20);
    bench.land();
    let kept = runs(&env);
    let lineage = Some(Lineage::open(&env, Path::new(DATA), None));
    bench.materializer = materializer(Options { lineage, ..Options::new("lake", "lake") });
    bench.position = None;
    bench.keys(20..30);
    let error = bench.try_land().unwrap_err();
    assert!(error.message().contains("the log is damaged"), "{error}");
    assert_eq!(runs(&env), kept);
    begin(&mut bench);
    bench.position = None;
    assert_eq!(bench.land().rows(), 30);
}

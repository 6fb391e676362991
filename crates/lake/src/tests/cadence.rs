//! Tests of the time at which a commit is made.

use std::time::Duration;

use table::materializer::{Materializer as _, Progress};
use types::{TableDef, TableId};

use super::support::{Bench, materializer};
use crate::Options;

fn bench() -> Bench {
    let mut bench = Bench::new(Options::new("lake", "lake"));
    // A clock that stands at zero does not count as a clock.
    pass(&bench, 1);
    // The empty table is in the lake at once.
    assert!(matches!(bench.step(false).unwrap(), Progress::Advanced(_)));
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
    bench
}

fn pass(bench: &Bench, seconds: u64) {
    bench.sim.clock.advance(Duration::from_secs(seconds));
}

fn waits(bench: &mut Bench) -> bool {
    match bench.step(false).unwrap() {
        Progress::Later(pause) => {
            assert!(!pause.is_zero() && pause <= Duration::from_secs(1), "{pause:?}");
            true
        }
        Progress::Advanced(_) => false,
        Progress::UpToDate => panic!("rows are missing"),
    }
}

#[test]
fn many_rows_land_ten_seconds_after_the_first_of_them() {
    let mut bench = bench();
    bench.keys(0..500);
    assert!(waits(&mut bench));
    pass(&bench, 9);
    bench.keys(500..1_100);
    assert!(waits(&mut bench));
    pass(&bench, 1);
    assert!(!waits(&mut bench));
    assert_eq!(bench.lake().rows(), 1_100);
    // The wait begins again with the first row after the commit.
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
    pass(&bench, 100);
    bench.keys(0..2_000);
    assert!(waits(&mut bench));
}

/// Rows waited the same time again for each further commit: 5,000 rows in as many partitions took more than a minute.
#[test]
fn rows_beyond_one_commit_land_with_the_next_at_once() {
    let mut bench =
        Bench::new(Options { partitions_max: 10, trickle_rows: 10, ..Options::new("lake", "lake") });
    pass(&bench, 1);
    bench.lay_out(&["k"], &[]);
    bench.land();
    bench.keys(0..25);
    assert!(waits(&mut bench));
    pass(&bench, 10);
    // The last rows are only a trickle, but have waited as long as the others.
    for rows in [10, 20, 25] {
        assert!(!waits(&mut bench), "{rows}");
        assert_eq!(bench.lake().rows(), rows);
    }
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
    bench.keys(0..25);
    assert!(waits(&mut bench), "from the first row after that on, the wait begins anew");
}

#[test]
fn a_trickle_lands_after_a_minute_and_nothing_is_committed_without_rows() {
    let mut bench = bench();
    bench.keys(0..3);
    assert!(waits(&mut bench));
    pass(&bench, 59);
    assert!(waits(&mut bench));
    pass(&bench, 1);
    assert!(!waits(&mut bench));
    let version = bench.lake().version;
    pass(&bench, 1_000);
    assert!(matches!(bench.step(false).unwrap(), Progress::UpToDate));
    // Rows came and went before they landed: the position moves, the lake does not change.
    bench.keys(0..3).delete(4..=6);
    assert!(matches!(bench.step(true).unwrap(), Progress::Advanced(_)));
    assert!(matches!(bench.step(true).unwrap(), Progress::UpToDate));
    assert_eq!(bench.lake().version, version);
    // Deletes alone cause a commit too.
    bench.delete([1]);
    assert!(waits(&mut bench));
    pass(&bench, 60);
    assert!(!waits(&mut bench));
    assert_eq!((bench.lake().rows(), bench.lake().version), (2, version + 1));
}

#[test]
fn many_bytes_land_at_once_and_so_do_rows_that_a_client_waits_for() {
    let mut bench = Bench::new(Options { commit_bytes: 4 << 10, ..Options::new("lake", "lake") });
    assert!(matches!(bench.step(false).unwrap(), Progress::Advanced(_)));
    bench.keys(0..10);
    assert!(waits(&mut bench));
    bench.keys(0..400);
    assert!(!waits(&mut bench));
    bench.keys(0..1);
    assert!(waits(&mut bench));
    assert!(matches!(bench.step(true).unwrap(), Progress::Advanced(_)));
    assert_eq!(bench.lake().rows(), 411);
}

#[test]
fn writers_are_slowed_by_a_lake_that_is_far_behind_and_not_by_one_that_cannot_land() {
    let mut bench = Bench::new(Options { lag_bytes_max: 64 << 10, ..Options::new("lake", "lake") });
    bench.land();
    let lag =
        |bench: &Bench| bench.materializer.lag(&bench.snapshot(), bench.position.as_ref().expect("landed"));
    assert!(lag(&bench) == 0.0);
    bench.keys(0..10_000);
    assert!(lag(&bench) > 1.0, "{}", lag(&bench));
    bench.sim.disk.fail_write(1);
    assert!(bench.step(true).is_err());
    assert!(lag(&bench) == 0.0);
    bench.land();
    assert!(lag(&bench) == 0.0);
}

/// The bytes of dead rows were attributed to the live ones: a few keys that were overwritten repeatedly landed all the time,
/// and their writers were refused.
#[test]
fn keys_that_are_written_again_and_again_wait_as_other_rows_do() {
    let mut bench = Bench::new(Options {
        commit_bytes: 256 << 10,
        lag_bytes_max: 512 << 10,
        ..Options::new("lake", "lake")
    });
    bench.keys(0..2_000).delete(1..=2_000);
    bench.land();
    for n in 0..100 {
        bench.keys([n]);
        let newest = bench.tip.next_row().0 - 1;
        bench.delete([newest - 1]);
    }
    assert!(waits(&mut bench));
    let lag = bench.materializer.lag(&bench.snapshot(), bench.position.as_ref().unwrap());
    assert!(lag < 0.1, "{lag}");
}

#[test]
fn the_table_decides_whether_it_lands_and_then_the_server() {
    let table = |name: &str, lake: Option<bool>| {
        let mut def = TableDef::new(TableId(1), name);
        def.options.lake = lake;
        def
    };
    let server = materializer(Options::new("lake", "lake"));
    let library = materializer(Options { by_default: false, ..Options::new("lake", "lake") });
    for (name, lake, on_server, in_library) in [
        ("main.t", None, true, false),
        ("main.t", Some(false), false, false),
        ("main.t", Some(true), true, true),
        ("polynya.requests", None, false, false),
        ("polynya.requests", Some(true), true, true),
    ] {
        let def = table(name, lake);
        assert_eq!((server.follows(&def), library.follows(&def)), (on_server, in_library), "{name} {lake:?}");
    }
}

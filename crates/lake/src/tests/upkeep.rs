//! Tests of the work beside commits: complete merges, expiry of old snapshots, removal of unnamed files.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use types::{Kind, Result};

use super::support::{Bench, LAYOUTS, read, rows_of, small};
use crate::upkeep::Depth;
use crate::{Lake, MaintenanceReport, Options};

fn plain() -> Options {
    Options::new("lake", "lake")
}

/// Requests maintenance, and steps until its outcome is known.
pub(super) fn maintain(bench: &mut Bench) -> Result<MaintenanceReport> {
    let told: Arc<Mutex<Option<Result<MaintenanceReport>>>> = Arc::default();
    let tell = told.clone();
    let id = bench.tip.def().id;
    bench.materializer.maintain(id, Box::new(move |outcome| *tell.lock().unwrap() = Some(outcome)));
    for _ in 0..200 {
        let stepped = bench.step(true);
        if let Some(outcome) = told.lock().unwrap().take() {
            return outcome;
        }
        stepped?;
    }
    panic!("maintenance does not end in 200 steps");
}

fn check_same_rows(bench: &Bench, lake: &Lake) {
    let rows = read(&bench.store(), &lake.dir).unwrap();
    assert_eq!(rows, rows_of(&bench.snapshot()).unwrap());
}

/// Makes seven small commits with deletes, one fewer than a commit merges by itself.
fn pieces(bench: &mut Bench) {
    for n in 0..7i64 {
        bench.keys(10 * n..10 * n + 10);
        if n > 0 {
            bench.delete([10 * n as u64 - 3]);
        }
        bench.land();
    }
}

#[test]
fn maintenance_merges_small_files_positions_and_manifests_completely() {
    for (partition_by, sort_by) in LAYOUTS {
        let mut bench = Bench::new(plain());
        bench.lay_out(partition_by, sort_by);
        pieces(&mut bench);
        let before = bench.lake();
        let done = maintain(&mut bench).unwrap();
        let lake = bench.lake();
        assert_eq!(done.before, before.extent(), "{partition_by:?}");
        assert_eq!(done.after, lake.extent(), "{partition_by:?}");
        let partitions: HashSet<_> =
            lake.data.iter().map(|live| (live.entry.file.spec, &*live.entry.file.partition)).collect();
        // If each row has a partition of its own, a delete removes its whole file and there is nothing to merge.
        let is_tidy = before.data.len() == partitions.len() && before.deletes.is_empty();
        assert_eq!((is_tidy, done.commits == 0), (partition_by == ["s"], is_tidy), "{done:?}");
        assert_eq!(lake.data.len(), partitions.len(), "one file for each partition: {partition_by:?}");
        assert!(lake.deletes.len() <= partitions.len() && lake.manifests.len() <= 2, "{done:?}");
        check_same_rows(&bench, &lake);
        // Old snapshots are kept as long as without maintenance.
        let snapshots = |lake: &Lake| lake.metadata.snapshots.len();
        assert_eq!(snapshots(&lake), snapshots(&before) + done.commits as usize);
        let version = lake.version;
        let again = maintain(&mut bench).unwrap();
        assert_eq!((again.commits, again.files_removed, bench.lake().version), (0, 0, version));
        bench.keys(500..510).delete([1]);
        bench.land();
        bench.restart();
        bench.land();
    }
}

#[test]
fn a_large_table_is_maintained_in_several_commits() {
    let mut bench = Bench::new(Options { rewrite_bytes_max: 2 << 10, ..plain() });
    bench.lay_out(&["bucket(8, k)"], &[]);
    pieces(&mut bench);
    let done = maintain(&mut bench).unwrap();
    assert!(done.commits > 2, "{done:?}");
    assert_eq!(bench.lake().data.len(), 8);
    check_same_rows(&bench, &bench.lake());
}

/// Snapshots expired only with commits: a table that got no more rows kept everything for ever.
#[test]
fn old_snapshots_expire_without_new_rows() {
    let mut bench = Bench::new(small());
    for n in 0..6i64 {
        bench.keys(10 * n..10 * n + 10);
        bench.land();
    }
    let count = bench.lake().metadata.snapshots.len();
    assert!(count > 3, "{count}");
    let env = bench.sim.env();
    let (id, position) = (bench.tip.def().id, bench.position.clone().unwrap());
    assert!(!bench.materializer.request_due_maintenance(&env, id, &position), "it is young");
    bench.sim.clock.advance(Duration::from_secs(300));
    assert!(bench.materializer.request_due_maintenance(&env, id, &position));
    for _ in 0..3 {
        bench.step(true).unwrap();
    }
    let lake = bench.lake();
    assert_eq!(lake.metadata.snapshots.len(), 3);
    assert!(!lake.data.is_empty());
    check_same_rows(&bench, &lake);
    super::files::check(&lake, bench.tip.def());
    let position = bench.position.clone().unwrap();
    assert!(!bench.materializer.request_due_maintenance(&env, id, &position), "there is nothing more to do");
    // After a long quiet time small files are merged as well.
    bench.sim.clock.advance(Duration::from_secs(3_700));
    assert!(bench.materializer.request_due_maintenance(&env, id, &position));
    assert_eq!(bench.materializer.depth(id), Some(Depth::Full));
    for _ in 0..3 {
        bench.step(true).unwrap();
    }
    assert_eq!(bench.lake().data.len(), 1);
    check_same_rows(&bench, &bench.lake());
}

#[test]
fn unnamed_files_are_removed_and_those_of_other_programs_only_when_old() {
    let mut bench = Bench::new(Options { orphans_after: Duration::from_secs(1_000), ..plain() });
    bench.keys(0..10);
    bench.land();
    let put = |bench: &Bench, name: &str| {
        crate::files::write(&bench.sim.env(), &bench.dir().join(name), b"left over").unwrap();
    };
    // A failed commit leaves such a file, and another program writes such files before it commits.
    let ours = "data/00112233445566aa-1.parquet";
    let others = [
        "data/00000-0-7b0b1a9c.parquet",
        "data/.00000-0-7b0b1a9c.parquet.crc",
        "metadata/7b0b1a9c-m0.avro",
        "metadata/20260102_030405_00006_abcde-7b0b1a9c.stats",
    ];
    let live = bench.lake().data[0].path.rsplit('/').next().unwrap().to_owned();
    let beside_live = format!("data/.{live}.crc");
    put(&bench, ours);
    others.iter().for_each(|name| put(&bench, name));
    put(&bench, &beside_live);
    put(&bench, "data/notes.txt");
    let done = maintain(&mut bench).unwrap();
    assert_eq!((done.orphans_removed, done.orphans_left), (1, 4), "{done:?}");
    let is_there = |bench: &Bench, name: &str| bench.files().iter().any(|file| file == name);
    assert!(!is_there(&bench, ours) && others.iter().all(|name| is_there(&bench, name)));
    bench.sim.clock.advance(Duration::from_secs(900));
    assert_eq!(maintain(&mut bench).unwrap().orphans_left, 4, "they are not old enough");
    // A new process does not know when the files were first seen.
    bench.restart();
    bench.sim.clock.advance(Duration::from_secs(200));
    bench.land();
    assert_eq!(maintain(&mut bench).unwrap().orphans_left, 4);
    bench.sim.clock.advance(Duration::from_secs(1_000));
    let done = maintain(&mut bench).unwrap();
    assert_eq!((done.orphans_removed, done.orphans_left), (4, 0), "{done:?}");
    assert!(is_there(&bench, &beside_live), "the checksums of a file stay as long as it does");
    assert!(others.iter().all(|name| !is_there(&bench, name)));
    assert!(is_there(&bench, "data/notes.txt"), "what is no file of a table is nobody's business here");
    check_same_rows(&bench, &bench.lake());
}

#[test]
fn a_failure_of_maintenance_is_reported_to_the_client() {
    let mut bench = Bench::new(plain());
    pieces(&mut bench);
    bench.sim.disk.fail_write(1);
    assert_eq!(maintain(&mut bench).unwrap_err().kind(), Kind::Io);
    maintain(&mut bench).unwrap();
    check_same_rows(&bench, &bench.lake());
}

/// After a power failure at any call the lake is at a commit with exactly the table's rows.
#[test]
fn interrupted_maintenance_loses_and_doubles_no_row() {
    let _limit = testkit::limit(600);
    let begin = || {
        let mut bench = Bench::new(small());
        bench.lay_out(&["bucket(2, k)"], &["s"]);
        for n in 0..4i64 {
            bench.keys(10 * n..10 * n + 10).delete([10 * n as u64 + 2]);
            bench.try_land().unwrap();
            bench.sim.clock.advance(Duration::from_secs(9));
        }
        bench
    };
    let mut whole = begin();
    let first = whole.sim.disk.calls();
    assert!(maintain(&mut whole).unwrap().commits > 0);
    let calls = whole.sim.disk.calls();
    assert!(calls > first + 20, "{}", calls - first);
    for call in first + 1..=calls {
        let mut bench = begin();
        bench.sim.disk.crash_at(call);
        if maintain(&mut bench).is_ok() {
            continue;
        }
        bench.sim = bench.sim.crash(&mut sim::Rng::new(call));
        bench.sim.env().disk.create_dir_all(&bench.place().dir).unwrap();
        bench.restart();
        bench.land();
        maintain(&mut bench).unwrap();
        bench.land();
    }
}

/// Each step of a requested maintenance or erasure also landed new rows, and so it never completed.
#[test]
fn maintenance_and_erasure_end_while_rows_arrive() {
    let mut bench = Bench::new(plain());
    pieces(&mut bench);
    let id = bench.tip.def().id;
    let done = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (first, second) = (done.clone(), done.clone());
    let count = std::sync::atomic::Ordering::Relaxed;
    bench.materializer.maintain(
        id,
        Box::new(move |outcome| {
            outcome.unwrap();
            first.fetch_add(1, count);
        }),
    );
    let mut next = 1_000i64;
    let mut steps = |bench: &mut Bench, wanted: u64| {
        for _ in 0..10 {
            bench.keys(next..next + 5);
            bench.delete([bench.tip.next_row().0 - 2]);
            next += 5;
            bench.step(true).unwrap();
            if done.load(count) == wanted {
                return;
            }
        }
        panic!("not done in ten steps");
    };
    steps(&mut bench, 1);
    let lsn = types::Lsn(bench.lsn);
    bench.materializer.erase(
        id,
        lsn,
        Box::new(move |outcome| {
            assert!(outcome.unwrap().files_removed > 0);
            second.fetch_add(1, count);
        }),
    );
    steps(&mut bench, 2);
    bench.land();
}

/// A column of a struct without fields failed with an internal error. A client that asked for maintenance or an erasure waited
/// for ever.
#[test]
fn a_column_that_the_lake_cannot_hold_is_named_in_the_error() {
    let _limit = testkit::limit(60);
    let mut bench = Bench::new(small());
    bench.keys(0..10);
    bench.land();
    bench.alter(|def| {
        // An earlier version accepted such a column.
        def.add_column("void", &types::DataType::Int64, true, None).unwrap();
        def.schema.columns.last_mut().unwrap().data_type = types::DataType::Struct(Vec::new());
    });
    bench.delete([3]);
    let error = bench.erase().unwrap_err();
    assert!(error.to_string().contains("column `void`") && error.to_string().contains("main.t"), "{error}");
    assert!(bench.step(true).unwrap_err().to_string().contains("column `void`"));
    bench.alter(|def| {
        def.alter(&types::AlterAction::DropColumn { name: "void".into(), if_exists: false }).unwrap();
    });
    bench.erase().unwrap();
    bench.land();
}

/// A flipped bit in a file that was to be merged would have been copied under a correct checksum. The merge is refused, and
/// must not keep new rows from landing.
#[test]
fn rows_land_beside_a_damaged_file_which_stays_as_it_is() {
    let _limit = testkit::limit(60);
    let mut bench = Bench::new(small());
    bench.keys(0..10);
    let first = bench.land().data[0].path.clone();
    let path = bench.lake().local(&first).unwrap();
    bench.sim.disk.flip_bit(&path, 500);
    for round in 1..30 {
        bench.keys(round * 10..round * 10 + 10);
        bench.try_land().unwrap();
    }
    let lake = bench.lake();
    assert_eq!((lake.row.0, lake.rows()), (300, 300));
    assert!(lake.data.iter().any(|live| live.path == first) && lake.data.len() < 20, "{}", lake.data.len());
    let error = read(&bench.store(), &bench.dir()).unwrap_err();
    assert!(error.kind() == Kind::Damaged && error.to_string().contains(&*first), "{error}");
    // Once the file is repaired it is merged like the others.
    bench.sim.disk.flip_bit(&path, 500);
    bench.restart();
    for round in 30..60 {
        bench.keys(round * 10..round * 10 + 10);
        bench.land();
    }
    assert!(bench.lake().data.iter().all(|live| live.path != first));
}

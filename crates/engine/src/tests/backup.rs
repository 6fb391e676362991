//! Backups on a simulated machine: taken at any moment, beside writers, seals and compactions, and cut short at any call. A
//! restored database is in the model's state at exactly the backup's lsn.

use std::path::Path;
use std::sync::atomic::Ordering;

use sim::{Rng, SimEnv};
use types::{Kind, Lsn, Principal};

use super::simulated::{DIR, SimulatedRun, State, check, options, reopen};
use super::support::{batch, plain};
use crate::backup::{self, Restore, RestorePoint};
use crate::{Engine, Mode, Op, Step, Transaction};

const DEST: &str = "backups/one";
const RESTORED: &str = "restored";

/// A database with some tables, segments and a head.
fn database(machine: &SimEnv, rng: &mut Rng, steps: usize) -> SimulatedRun {
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    let mut run = SimulatedRun::new(engine, 0, State::new());
    (0..steps).for_each(|_| run.step(rng));
    run
}

/// Restores and opens the backup, and compares it with the model's state at the backup's lsn. It can be written to.
fn check_restored(machine: &SimEnv, states: &[State], what: &str) -> Lsn {
    let env = machine.env();
    let backup = backup::describe(&env, Path::new(DEST)).unwrap();
    let restored =
        backup::restore(&env, Path::new(DEST), Path::new(RESTORED), &Restore::default(), &mut |_| Ok(()))
            .unwrap();
    assert_eq!((restored.lsn, restored.rows), (backup.lsn, backup.rows), "{what}");
    let engine = Engine::open_stepped(env, Path::new(RESTORED), options()).unwrap();
    let root = engine.root();
    assert_eq!((root.lsn(), root.time()), (backup.lsn, backup.time), "{what}");
    assert!(engine.status().write_error.is_none(), "{what}: {:?}", engine.status().write_error);
    let state = &states[backup.lsn.0 as usize];
    check(&root, state, what);
    let rows: usize = state.values().map(|table| table.rows.len()).sum();
    assert_eq!(backup.rows, rows as u64, "{what}");
    // The database goes on from there.
    let mut later = SimulatedRun::new(engine, backup.lsn.0, state.clone());
    let mut rng = Rng::new(backup.lsn.0);
    (0..60).for_each(|_| later.step(&mut rng));
    later.engine.step(Step::Sync);
    let root = later.engine.root();
    check(&root, later.at(root.lsn()), what);
    backup.lsn
}

#[test]
fn a_backup_at_any_moment_restores_to_exactly_its_lsn() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(120, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let steps = rng.range(0..600) as usize;
        let mut run = database(&machine, &mut rng, steps);
        let engine = run.engine.clone();
        let started = engine.root().lsn();
        // The database goes on meanwhile: each step of the backup is followed by some steps of the run.
        let taken = engine
            .backup(Path::new(DEST), &mut |_| {
                (0..rng.below(25)).for_each(|_| run.step(&mut rng));
                Ok(())
            })
            .unwrap();
        assert_eq!(taken.lsn, started, "seed {seed}: it stands where it was begun");
        run.check_held();
        check_restored(&machine, &run.states, &format!("seed {seed}"));
    });
}

#[test]
fn a_backup_cut_short_at_any_call_is_whole_or_none() {
    let _limit = testkit::limit(600);
    let seed = 7;
    let begin = |crash: Option<u64>| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let run = database(&machine, &mut rng, 500);
        let before = machine.disk.calls();
        if let Some(call) = crash {
            machine.disk.crash_at(before + call);
        }
        let taken = run.engine.backup(Path::new(DEST), &mut |_| Ok(()));
        (machine, run, taken, before)
    };
    let (machine, run, taken, before) = begin(None);
    taken.unwrap();
    assert!(run.engine.status().compactions > 0 && run.engine.status().head_bytes > 0);
    let calls = machine.disk.calls() - before;
    let (mut whole, mut none) = (0, 0);
    for call in 1..=calls {
        let (machine, run, taken, _) = begin(Some(call));
        assert!(taken.is_err(), "call {call} crashed");
        let acknowledged = run.acknowledged.load(Ordering::Relaxed);
        let SimulatedRun { engine, states, .. } = run;
        drop(engine);
        let mut rng = Rng::new(call);
        let (machine, engine) = reopen(machine.crash(&mut rng), &mut rng);
        let lsn = engine.root().lsn();
        assert!(lsn.0 >= acknowledged, "crash at call {call}");
        check(&engine.root(), &states[lsn.0 as usize], &format!("crash at call {call}"));
        match backup::describe(&machine.env(), Path::new(DEST)) {
            Ok(_) => {
                check_restored(&machine, &states, &format!("crash at call {call}"));
                whole += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "crash at call {call}: {error}");
                none += 1;
                let options = Restore::default();
                let dest = Path::new(RESTORED);
                let refused =
                    backup::restore(&machine.env(), Path::new(DEST), dest, &options, &mut |_| Ok(()));
                assert_eq!(refused.unwrap_err().kind(), Kind::NotFound);
                assert!(!machine.env().disk.exists(dest).unwrap());
            }
        }
    }
    assert!(none > 0 && whole <= 3, "{whole} whole, {none} none");
}

#[test]
fn a_restore_cut_short_at_any_call_is_never_opened_as_a_whole() {
    let _limit = testkit::limit(600);
    let seed = 11;
    let begin = |crash: Option<u64>| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let run = database(&machine, &mut rng, 300);
        run.engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
        let before = machine.disk.calls();
        if let Some(call) = crash {
            machine.disk.crash_at(before + call);
        }
        let options = Restore::default();
        let restored =
            backup::restore(&machine.env(), Path::new(DEST), Path::new(RESTORED), &options, &mut |_| Ok(()));
        (machine, run.states, restored, before)
    };
    let (machine, _, restored, before) = begin(None);
    let lsn = restored.unwrap().lsn;
    for call in 1..=machine.disk.calls() - before {
        let (machine, states, _, _) = begin(Some(call));
        let machine = machine.crash(&mut Rng::new(call));
        match Engine::open_stepped(machine.env(), Path::new(RESTORED), options()) {
            Ok(engine) if engine.root().lsn() == Lsn(0) => {
                assert_eq!(engine.root().table_count(), 0, "crash at call {call}: nothing was there yet");
            }
            Ok(engine) => {
                assert_eq!(engine.root().lsn(), lsn, "crash at call {call}");
                check(&engine.root(), &states[lsn.0 as usize], &format!("crash at call {call}"));
            }
            Err(error) => assert_eq!(error.kind(), Kind::Damaged, "crash at call {call}: {error}"),
        }
    }
}

#[test]
fn a_backup_that_fails_leaves_nothing_and_the_database_goes_on() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let mut run = database(&machine, &mut rng, 400);
        match seed % 4 {
            0 => machine.disk.fail_write(rng.range(1..10)),
            1 => machine.disk.fail_sync(rng.range(1..10)),
            2 => machine.disk.fail_read(rng.range(1..10)),
            _ => machine.disk.set_free_bytes(Some(rng.below(2) * 4096)),
        }
        let engine = run.engine.clone();
        let failed = engine.backup(Path::new(DEST), &mut |_| Ok(()));
        if let Err(error) = &failed {
            let wanted = if seed % 4 == 3 { Kind::DiskFull } else { Kind::Io };
            assert_eq!(error.kind(), wanted, "seed {seed}: {error}");
            let left: Vec<_> = machine.disk.files();
            assert!(!left.iter().any(|path| path.starts_with(DEST)), "seed {seed}: {left:?}");
            assert!(!machine.env().disk.exists(Path::new(DEST)).unwrap(), "seed {seed}");
        }
        assert!(failed.is_err() || seed % 4 != 3, "seed {seed}: there was no room");
        machine.disk.set_free_bytes(None);
        (0..100).for_each(|_| run.step(&mut rng));
        run.check_held();
        assert!(run.engine.status().write_error.is_none(), "seed {seed}: nothing of it concerns the log");
        if failed.is_err() {
            engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
        }
        check_restored(&machine, &run.states, &format!("seed {seed}"));
    });
}

#[test]
fn damage_is_noticed_when_a_backup_is_taken_and_when_it_is_restored() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(40, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let run = database(&machine, &mut rng, 400);
        let hit = |under: &str, ending: &str, rng: &mut Rng| {
            let of = |path: &Path| {
                path.to_string_lossy().trim_start_matches('/').starts_with(under)
                    && path.to_string_lossy().ends_with(ending)
            };
            let files: Vec<_> = machine.disk.files().into_iter().filter(|path| of(path)).collect();
            let path = (!files.is_empty()).then(|| rng.pick(&files).clone())?;
            let offset = rng.below(machine.disk.contents(&path).unwrap().len() as u64);
            machine.disk.flip_bit(&path, offset);
            Some((path, offset))
        };
        run.engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
        let ending = if seed % 2 == 0 { "" } else { ".arrow" };
        // There are no segments without rows.
        let Some((path, offset)) = hit(DEST, ending, &mut rng) else { return };
        let env = machine.env();
        let restored =
            backup::restore(&env, Path::new(DEST), Path::new(RESTORED), &Restore::default(), &mut |_| Ok(()));
        if path.ends_with("BACKUP") && restored.is_ok() {
            // A hexadecimal digit changed its case.
            return;
        }
        let error = restored.expect_err(&format!("seed {seed}: {} at {offset}", path.display()));
        assert!(matches!(error.kind(), Kind::Damaged | Kind::Newer), "seed {seed}: {error}");
        assert!(error.to_string().contains(path.to_str().unwrap().trim_start_matches('/')), "{error}");
        assert!(!env.disk.exists(Path::new(RESTORED)).unwrap());

        // A segment that was whole when the database was opened is damaged now.
        let live: Vec<String> = run
            .engine
            .root()
            .tables()
            .flat_map(|t| t.segments().map(|s| format!("{DIR}/tables/{}/{}.arrow", t.def().id, s.id())))
            .collect();
        if let Some(path) = live.first() {
            let path = Path::new(path);
            let middle = machine.disk.contents(path).unwrap().len() as u64 / 2;
            machine.disk.flip_bit(path, middle);
            let error = run.engine.backup(Path::new("backups/two"), &mut |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), Kind::Damaged, "seed {seed}: {error}");
            assert!(error.to_string().contains("no backup was taken"), "{error}");
            assert!(!env.disk.exists(Path::new("backups/two")).unwrap());
        }
    });
}

#[test]
fn a_folder_that_holds_something_is_no_place_for_a_backup() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let run = database(&machine, &mut Rng::new(1), 100);
    let env = machine.env();
    let mut ignore = |_| Ok(());
    run.engine.backup(Path::new(DEST), &mut ignore).unwrap();
    let before = machine.disk.files();
    let error = run.engine.backup(Path::new(DEST), &mut ignore).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists);
    let error = run.engine.backup(&Path::new(DIR).join("backup"), &mut ignore).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    let into = |dest: &str| {
        backup::restore(&env, Path::new(DEST), Path::new(dest), &Restore::default(), &mut |_| Ok(()))
    };
    assert_eq!(into(DIR).unwrap_err().kind(), Kind::Exists);
    assert_eq!(into("backups/one/inside").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(machine.disk.files(), before, "nothing was touched");
    // A backup is not a data directory: opening would change it.
    let opened = Engine::open_stepped(env.clone(), Path::new(DEST), options());
    assert_eq!(opened.err().map(|error| error.kind()), Some(Kind::Damaged));
    // An empty folder is accepted.
    env.disk.create_dir_all(Path::new("backups/empty")).unwrap();
    run.engine.backup(Path::new("backups/empty"), &mut ignore).unwrap();
    // A target that cannot be reached is refused before anything is copied.
    let lsn = backup::describe(&env, Path::new(DEST)).unwrap().lsn;
    for to in [
        RestorePoint::Lsn(lsn.next()),
        RestorePoint::Lsn(Lsn(lsn.0 - 1)),
        RestorePoint::Time(i64::MAX),
        RestorePoint::Time(0),
    ] {
        let options = Restore { to: Some(to), archive: None };
        let dest = Path::new(RESTORED);
        let refused = backup::restore(&env, Path::new(DEST), dest, &options, &mut |_| Ok(()));
        assert_eq!(refused.unwrap_err().kind(), Kind::Invalid, "{to:?}");
        assert!(!env.disk.exists(dest).unwrap());
    }
}

#[test]
fn what_a_held_root_keeps_is_counted() {
    let _limit = testkit::limit(120);
    let mut rng = Rng::new(9);
    let machine = SimEnv::new(9);
    let mut run = database(&machine, &mut rng, 400);
    let files = |root: &crate::DatabaseRoot| -> std::collections::BTreeMap<_, _> {
        let of = |table: &std::sync::Arc<table::Snapshot>| {
            table.segments().map(|s| (s.id(), s.meta().bytes)).collect::<Vec<_>>()
        };
        root.tables().flat_map(of).collect()
    };
    let held = run.engine.root();
    let kept = files(&held);
    assert!(!kept.is_empty());
    (0..3_000).for_each(|_| run.step(&mut rng));
    let now = files(&run.engine.root());
    let replaced: u64 = kept.iter().filter(|(id, _)| !now.contains_key(id)).map(|(_, bytes)| bytes).sum();
    assert!(replaced > 0, "something was compacted meanwhile");
    assert!(run.engine.status().held_bytes >= replaced);
    drop(held);
}

/// One backup after another on a real machine, beside writers and all background work.
#[test]
fn backups_beside_writers_hold_a_prefix_of_what_was_written() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine-backup");
    let options = crate::Options { seal_rows: 500, ..crate::Options::default() };
    let engine = Engine::open(vfs::Env::real(), &dir.path().join("data"), options.clone()).unwrap();
    let local = Principal::local();
    let create = Op::CreateTable { def: plain("t"), if_absent: false };
    engine.commit(&local, Transaction::new(vec![create])).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0i64;
            while !stop.load(Ordering::Relaxed) {
                let rows: Vec<(i64, i64)> = (written..written + 50).map(|id| (id, id)).collect();
                engine.commit(&local, Transaction::insert("t", batch(&rows), Mode::Append)).unwrap();
                written += 50;
            }
            written
        });
        for round in 0..4 {
            let dest = dir.path().join(format!("backup-{round}"));
            // Each backup holds more than the one before.
            while engine.status().seals < round {
                std::thread::yield_now();
            }
            let taken = engine.backup(&dest, &mut |_| Ok(())).unwrap();
            let restored = dir.path().join(format!("restored-{round}"));
            backup::restore(&vfs::Env::real(), &dest, &restored, &Restore::default(), &mut |_| Ok(()))
                .unwrap();
            let again = Engine::open(vfs::Env::real(), &restored, options.clone()).unwrap();
            let root = again.root();
            assert_eq!(root.lsn(), taken.lsn);
            let rows = super::support::by_id(root.table("main.t").unwrap());
            assert_eq!(rows.len() as u64 % 50, 0, "whole commits");
            assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (0..rows.len() as i64).collect::<Vec<_>>());
            drop(root);
            again.close().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
    engine.close().unwrap();
}

/// A database of one keyed table in one segment, and the segment's files without their endings.
fn one_segment(machine: &SimEnv) -> (Engine, String) {
    let options = crate::Options { seal_rows: 100, zstd_after: None, ..options() };
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options).unwrap();
    let write = |op| {
        let transaction = crate::Transaction::new(vec![op]);
        engine.submit(&types::Principal::local(), transaction, |result| assert!(result.is_ok()));
        settle(&engine);
    };
    write(crate::Op::CreateTable { def: super::support::keyed("t"), if_absent: false });
    let rows: Vec<(i64, i64)> = (0..500).map(|id| (id, id)).collect();
    let batch = super::support::batch(&rows);
    write(crate::Op::Insert { table: "t".into(), batch, mode: crate::Mode::Append });
    let root = engine.root();
    let table = root.table("main.t").unwrap();
    assert_eq!((table.segments().count(), table.head_rows()), (1, 0));
    let segment = table.segments().next().unwrap().id();
    (engine.clone(), format!("{DIR}/tables/{}/{segment}", table.def().id))
}

fn settle(engine: &Engine) {
    use crate::Step;
    while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
}

/// The error said that the table had to be restored or dropped, and named the file of the backup.
#[test]
fn a_backup_that_meets_a_damaged_key_run_has_it_made_anew() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(4);
    let (engine, segment) = one_segment(&machine);
    let sidecar = Path::new(&segment).with_extension("meta");
    let bytes = machine.disk.contents(&sidecar).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The entries of the directory have 24 bytes: tag, checksum, offset, length.
    let entry = (0..bytes[12] as usize).map(|i| 16 + 24 * i).find(|at| bytes[*at] == 6).unwrap();
    machine.disk.flip_bit(&sidecar, number(entry + 8) + number(entry + 16) / 2);
    let error = engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap_err();
    let said = error.to_string();
    assert_eq!(error.kind(), Kind::Damaged, "{said}");
    assert!(said.contains("the checksum of the key run does not match"), "{said}");
    assert!(said.contains(sidecar.to_str().unwrap()) && !said.contains(DEST), "{said}");
    assert!(said.contains("being rebuilt") && !said.contains("drop it"), "{said}");
    settle(&engine);
    let taken = engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
    assert_eq!(taken.rows, 500);
}

#[test]
fn a_copy_that_is_not_what_was_read_is_not_blamed_on_the_database() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(5);
    let (engine, segment) = one_segment(&machine);
    let copied = Path::new(DEST).join(Path::new(&segment).strip_prefix(DIR).unwrap()).with_extension("arrow");
    let mut hit = false;
    let error = engine.backup(Path::new(DEST), &mut |_| {
        if !hit && let Some(bytes) = machine.disk.contents(&copied) {
            machine.disk.flip_bit(&copied, bytes.len() as u64 / 2);
            hit = true;
        }
        Ok(())
    });
    let said = error.unwrap_err().to_string();
    assert!(said.contains(copied.to_str().unwrap()) && said.contains("own file is whole"), "{said}");
    assert!(!said.contains("drop it"), "{said}");
}

#[test]
fn a_folder_in_a_data_directory_is_no_place_for_a_backup() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(6);
    let (engine, _) = one_segment(&machine);
    let other = Engine::open_stepped(machine.env(), Path::new("dbs/other"), options()).unwrap();
    let mut ignore = |_| Ok(());
    for dest in ["dbs/other/backup", "dbs/other/tables/1/backup"] {
        let error = engine.backup(Path::new(dest), &mut ignore).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("lies in a data directory, dbs/other"), "{error}");
    }
    engine.backup(Path::new("dbs/backup"), &mut ignore).unwrap();
    drop(other);
}

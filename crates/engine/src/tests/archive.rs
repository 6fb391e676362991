//! The log's archive on a simulated machine: a backup is carried forward to any commit after it, whatever crashes. An
//! archive that cannot be written to stops nothing and reports its gaps.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sim::{Rng, SimEnv};
use types::{Kind, Lsn, Micros};

use super::simulated::{DIR, SimulatedRun, State, check, options};
use crate::backup::{self, Restore, RestorePoint, Restored};
use crate::{Engine, Options, Step};

const ARCHIVE: &str = "archive";
const DEST: &str = "backups/one";

fn archiving() -> Options {
    Options { archive: Some(ARCHIVE.into()), ..options() }
}

fn open(machine: &SimEnv) -> Engine {
    Engine::open_stepped(machine.env(), Path::new(DIR), archiving()).unwrap()
}

/// Does a random step of the database or its archive.
fn step(run: &mut SimulatedRun, machine: &SimEnv, rng: &mut Rng) {
    machine.clock.advance(Duration::from_micros(50));
    run.step(rng);
    if rng.one_in(6) {
        run.engine.step(Step::Archive);
    }
}

/// Writes, syncs and archives everything that is queued. Returns the last archived lsn.
fn settle(run: &mut SimulatedRun) -> Lsn {
    run.engine.step(Step::Sync);
    run.commit();
    run.engine.step(Step::Sync);
    while run.engine.step(Step::Archive) {}
    run.engine.status().archive.unwrap().lsn
}

fn restore(machine: &SimEnv, dest: &str, to: Option<RestorePoint>) -> types::Result<Restored> {
    let options = Restore { to, archive: Some(ARCHIVE.into()) };
    backup::restore(&machine.env(), Path::new(DEST), Path::new(dest), &options, &mut |_| Ok(()))
}

/// Opens a database restored to an lsn, and compares it with the model's state there.
fn check_restored(machine: &SimEnv, dest: &str, lsn: Lsn, states: &[State], what: &str) {
    let engine = Engine::open_stepped(machine.env(), Path::new(dest), archiving()).unwrap();
    assert!(engine.status().write_error.is_none(), "{what}");
    let root = engine.root();
    assert_eq!(root.lsn(), lsn, "{what}");
    check(&root, &states[lsn.0 as usize], what);
}

/// An unusable archive was noticed when the first piece was to be written, and reported only on request.
#[test]
fn what_cannot_be_an_archive_is_refused_at_once() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let data = dir.path().join("data");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (archive, why) in
        [(file, "this is a file"), (data.join("log"), "its own database"), (data.clone(), "its own")]
    {
        let options = Options { archive: Some(archive), ..Options::default() };
        let error = Engine::open(vfs::Env::real(), &data, options).err().unwrap();
        assert!(error.kind() == Kind::Invalid && error.to_string().contains(why), "{error}");
    }
    // A disk that is not mounted now may be mounted later.
    let options = Options { archive: Some(dir.path().join("not/there")), ..Options::default() };
    Engine::open(vfs::Env::real(), &data, options).unwrap().close().unwrap();
}

#[test]
fn a_backup_is_carried_forward_to_every_commit_after_it() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(6, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let mut run = SimulatedRun::new(open(&machine), 0, State::new());
        (0..rng.below(300)).for_each(|_| step(&mut run, &machine, &mut rng));
        let engine = run.engine.clone();
        let taken = engine
            .backup(Path::new(DEST), &mut |_| {
                (0..rng.below(6)).for_each(|_| step(&mut run, &machine, &mut rng));
                Ok(())
            })
            .unwrap();
        drop(engine);
        let mut times: Vec<(Micros, Lsn)> = Vec::new();
        for _ in 0..400 {
            step(&mut run, &machine, &mut rng);
            let root = run.engine.root();
            if root.lsn() > taken.lsn && times.last().is_none_or(|(time, _)| *time < root.time()) {
                times.push((root.time(), root.lsn()));
            }
        }
        let last = settle(&mut run);
        assert_eq!(last.0, run.last(), "seed {seed}: everything durable is in the archive");
        assert_eq!(run.engine.status().archive.unwrap().gaps, 0, "seed {seed}");
        assert!(last > taken.lsn && run.engine.status().manifests > 0, "seed {seed}");
        // All lsns of the first seed are restored, which takes its time, and some of the others.
        for lsn in (taken.lsn.0..=last.0).step_by(if seed == 0 { 1 } else { 13 }) {
            let dest = format!("at-{lsn}");
            let restored = restore(&machine, &dest, Some(RestorePoint::Lsn(Lsn(lsn)))).unwrap();
            assert_eq!((restored.lsn, restored.replayed), (Lsn(lsn), lsn - taken.lsn.0));
            check_restored(&machine, &dest, Lsn(lsn), &run.states, &format!("seed {seed}, lsn {lsn}"));
        }
        let all = restore(&machine, "all", None).unwrap();
        assert_eq!(all.lsn, last);
        // The target is the last commit made at or before a time.
        let (time, lsn) = *rng.pick(&times);
        let restored = restore(&machine, "then", Some(RestorePoint::Time(time))).unwrap();
        assert!(restored.lsn >= lsn && restored.time == time, "seed {seed}: {restored:?}, {lsn} wanted");
        let between = restore(&machine, "between", Some(RestorePoint::Time(time + 1))).unwrap();
        assert_eq!(between.lsn, restored.lsn);
        // A time beyond the archive may be meant, so it is accepted.
        let late = restore(&machine, "late", Some(RestorePoint::Time(i64::MAX))).unwrap();
        assert_eq!((late.lsn, late.is_short, restored.is_short), (last, true, restored.lsn == last));
        let error = restore(&machine, "beyond", Some(RestorePoint::Lsn(last.next()))).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.to_string().contains(&format!("reaches lsn {last} only")), "{error}");
        assert!(!machine.env().disk.exists(Path::new("beyond")).unwrap());
    });
}

#[test]
fn an_archive_has_no_gap_after_crashes_at_any_call() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let mut machine = SimEnv::new(seed);
        let mut run = SimulatedRun::new(open(&machine), 0, State::new());
        run.engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
        // The state after every lsn, over all runs of the process.
        let mut states = vec![State::new()];
        for _ in 0..3 {
            machine.disk.crash_at(machine.disk.calls() + rng.range(1..500));
            for _ in 0..500 {
                step(&mut run, &machine, &mut rng);
                if machine.disk.is_dead() {
                    break;
                }
            }
            let acknowledged = run.acknowledged.load(Ordering::Relaxed);
            let SimulatedRun { engine, states: lived, base, .. } = run;
            drop(engine);
            machine = machine.crash(&mut rng);
            let engine = open(&machine);
            let lsn = engine.root().lsn();
            assert!(lsn.0 >= acknowledged, "L1");
            states.extend(lived.into_iter().skip(1).take((lsn.0 - base) as usize));
            run = SimulatedRun::new(engine, lsn.0, states.last().unwrap().clone());
        }
        let last = settle(&mut run);
        states.extend(run.states.iter().skip(1).cloned());
        assert_eq!(last.0 as usize, states.len() - 1, "seed {seed}");
        for _ in 0..8 {
            let lsn = Lsn(rng.below(last.0 + 1));
            let dest = format!("at-{lsn}-{}", rng.next_u64());
            restore(&machine, &dest, Some(RestorePoint::Lsn(lsn))).unwrap();
            check_restored(&machine, &dest, lsn, &states, &format!("seed {seed}, lsn {lsn}"));
        }
        assert_eq!(restore(&machine, "all", None).unwrap().lsn, last);
        check_restored(&machine, "all", last, &states, &format!("seed {seed}"));
    });
}

/// A file stands where the archive's folder should be: nothing can be written to it until somebody removes it.
#[test]
fn an_archive_that_is_away_stops_nothing_and_its_gap_is_named() {
    let _limit = testkit::limit(300);
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let options =
            Options { log: commitlog::Options { archive_files_max: 3, ..options().log }, ..archiving() };
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options).unwrap();
        let mut run = SimulatedRun::new(engine, 0, State::new());
        run.engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
        (0..100).for_each(|_| step(&mut run, &machine, &mut rng));
        let before = settle(&mut run);
        let disk = machine.env().disk;
        let folder = run.engine.status().archive.unwrap().dir;
        disk.rename(&folder, Path::new("away")).unwrap();
        disk.create(&folder).unwrap();
        let mut most = 0;
        for _ in 0..6_000 {
            step(&mut run, &machine, &mut rng);
            let status = run.engine.status();
            assert!(status.write_error.is_none());
            most = most.max(status.log.archive_files);
            assert!(status.log.archive_files <= 3, "the log's disk is not filled for the archive's sake");
        }
        assert_eq!(most, 3, "the log waits a while");
        run.engine.step(Step::Sync);
        run.engine.step(Step::Archive);
        let status = run.engine.status().archive.unwrap();
        assert!(status.error.is_some() && status.lsn == before, "{status:?}");
        disk.remove(&folder).unwrap();
        disk.rename(Path::new("away"), &folder).unwrap();
        let last = settle(&mut run);
        let status = run.engine.status().archive.unwrap();
        assert!(status.error.is_none() && status.gaps == 1, "{status:?}");
        let (first_lost, last_lost) = status.gap.unwrap();
        assert_eq!(first_lost, before.next());
        // A restore goes up to the gap and not beyond it; the message names the gap.
        restore(&machine, "below", Some(RestorePoint::Lsn(before))).unwrap();
        check_restored(&machine, "below", before, &run.states, &format!("seed {seed}"));
        for to in [None, Some(RestorePoint::Lsn(last)), Some(RestorePoint::Lsn(last_lost))] {
            let error = restore(&machine, "beyond", to).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound);
            assert!(error.to_string().contains(&format!("lacks lsn {first_lost} to {last_lost}")), "{error}");
        }
        // A new backup goes on from behind the gap.
        machine.env().disk.rename(Path::new("backups/one/BACKUP"), Path::new("backups/one/OLD")).unwrap();
        let again = run.engine.backup(Path::new("backups/two"), &mut |_| Ok(())).unwrap();
        (0..100).for_each(|_| step(&mut run, &machine, &mut rng));
        let last = settle(&mut run);
        let options = Restore { to: None, archive: Some(ARCHIVE.into()) };
        let (from, dest) = (Path::new("backups/two"), Path::new("later"));
        let restored = backup::restore(&machine.env(), from, dest, &options, &mut |_| Ok(())).unwrap();
        assert!(restored.lsn == last && last > again.lsn);
        check_restored(&machine, "later", last, &run.states, &format!("seed {seed}"));
    }
}

#[test]
fn damage_in_the_archive_is_named_and_two_histories_never_mix() {
    let _limit = testkit::limit(120);
    let mut rng = Rng::new(3);
    let machine = SimEnv::new(3);
    let mut run = SimulatedRun::new(open(&machine), 0, State::new());
    run.engine.backup(Path::new(DEST), &mut |_| Ok(())).unwrap();
    (0..300).for_each(|_| step(&mut run, &machine, &mut rng));
    let last = settle(&mut run);
    // The restored database writes an archive of its own.
    restore(&machine, "other", None).unwrap();
    let other = Engine::open_stepped(machine.env(), Path::new("other"), archiving()).unwrap();
    while other.step(Step::Archive) {}
    let (mine, its) = (run.engine.status().archive.unwrap(), other.status().archive.unwrap());
    assert_ne!(mine.dir, its.dir);
    let mut other = SimulatedRun::new(other, last.0, run.states.last().unwrap().clone());
    (0..100).for_each(|_| step(&mut other, &machine, &mut rng));
    settle(&mut other);
    assert_eq!(restore(&machine, "mine", None).unwrap().lsn, last);
    check_restored(&machine, "mine", last, &run.states, "of two");

    let of_mine = |path: &std::path::PathBuf| {
        path.to_string_lossy().contains(mine.dir.file_name().unwrap().to_str().unwrap())
    };
    for round in 0..30 {
        let pieces: Vec<_> = machine.disk.files().into_iter().filter(of_mine).collect();
        let path = rng.pick(&pieces).clone();
        let offset = rng.below(machine.disk.contents(&path).unwrap().len() as u64);
        machine.disk.flip_bit(&path, offset);
        let error = restore(&machine, "damaged", None).unwrap_err();
        assert!(matches!(error.kind(), Kind::Damaged | Kind::Newer), "round {round}: {error}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(error.to_string().contains(name), "round {round}: {name} at {offset}: {error}");
        machine.disk.flip_bit(&path, offset);
    }
    restore(&machine, "whole", None).unwrap();
}

/// Files that waited for an archive took the room that writes needed.
#[test]
fn a_log_that_finds_no_room_lets_go_of_what_waits_for_the_archive() {
    let _limit = testkit::limit(120);
    let mut rng = Rng::new(5);
    let machine = SimEnv::new(5);
    let mut run = SimulatedRun::new(open(&machine), 0, State::new());
    (0..60).for_each(|_| run.step(&mut rng));
    settle(&mut run);
    while run.engine.status().log.archive_files < 4 {
        // This step archives nothing.
        run.step(&mut rng);
    }
    // A seal finds no room any more; the log finds it in its own files.
    machine.disk.set_free_bytes(Some(0));
    let rotated = run.engine.status().log.rotations;
    let refused = |run: &mut SimulatedRun, rng: &mut Rng| {
        let before = run.engine.status().commits;
        (0..12).for_each(|_| run.write(rng));
        run.commit();
        run.engine.step(Step::Sync);
        run.engine.status().commits == before
    };
    let mut commits = 0;
    while !refused(&mut run, &mut rng) {
        commits += 1;
        assert!(commits < 100_000, "the disk is full, and the log takes more and more");
    }
    // The last file is an exception: it is kept for requests that make room.
    assert!(run.engine.status().log.rotations >= rotated + 3, "the files that waited were used first");
    assert!(run.engine.status().write_error.is_none());
    machine.disk.set_free_bytes(None);
    assert!(!refused(&mut run, &mut rng), "writes resume by themselves");
    settle(&mut run);
    assert!(run.engine.status().archive.unwrap().gaps > 0, "and the archive says what it lacks");
    check(&run.engine.root(), run.at(run.engine.root().lsn()), "after a full disk");
}

/// A damaged id passed for another id, of an archive that does not exist, so no backup could be carried forward any more.
#[test]
fn an_archive_id_that_is_not_what_was_written_is_refused_and_old_ones_are_read() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let folder = |machine: &SimEnv| open(machine).status().archive.unwrap().dir;
    let engine = open(&machine);
    let made = engine.status().archive.unwrap().dir;
    engine.close().unwrap();
    drop(engine);
    let path = Path::new(DIR).join("archive-id");
    let file = machine.disk.files().into_iter().find(|file| file.ends_with("archive-id")).unwrap();
    let text = machine.disk.contents(&file).unwrap();
    for byte in 0..text.len() as u64 {
        let copy = machine.kill();
        copy.disk.flip_bit(&file, byte);
        let error = Engine::open_stepped(copy.env(), Path::new(DIR), archiving()).err();
        let error = error.unwrap_or_else(|| panic!("byte {byte} is not missed"));
        assert_eq!(error.kind(), Kind::Damaged, "byte {byte}: {error}");
        assert!(error.to_string().contains("archive-id") && error.hint_text().is_some(), "{error}");
    }
    // The id without a checksum, as earlier versions wrote it.
    let copy = machine.kill();
    let disk = copy.env().disk;
    disk.remove(&path).unwrap();
    let old = disk.create(&path).unwrap();
    old.write_at(&[std::io::IoSlice::new(&text[..17])], 0).unwrap();
    assert_eq!(folder(&copy), made);
}

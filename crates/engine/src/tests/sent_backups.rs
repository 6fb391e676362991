//! Backups that are not made in a folder: the store fails calls, loses answers, spoils its files, or is cut off at any call
//! together with the machine. A restored database is in the model's state at exactly the backup's lsn, or there is none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use sim::{Rng, SimEnv};
use types::{Error, Kind, Result};
use vfs::{Entry, Env};

use super::simulated::{DIR, SimulatedRun, State, check, options, reopen};
use crate::backup::{
    self, BackupSource, BackupStore, RestorePoint, RestoreSources, Restored, SentBackup, SourceFile,
};
use crate::{Engine, Options, Step};

const RESTORED: &str = "restored";
const MARK: &str = "mark";

/// A store in memory, which its clones share.
#[derive(Clone, Debug)]
struct MemoryStore {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    trouble: Arc<Mutex<Trouble>>,
    owner: &'static str,
}

#[derive(Debug, Default)]
struct Trouble {
    calls: u64,
    fault: Option<StoreFault>,
    /// Number of the next files that the store spoils.
    spoils: u32,
    puts: u32,
}

#[derive(Clone, Copy, Debug)]
struct StoreFault {
    /// Number of the call that fails, from 1 on.
    call: u64,
    /// True if the call does its work and only its answer is lost.
    is_done: bool,
    /// True if all later calls fail too.
    ends: bool,
}

fn broken() -> Error {
    Error::io("asking the store", std::io::Error::other("503"))
}

impl MemoryStore {
    fn new(owner: &'static str) -> MemoryStore {
        MemoryStore { files: Arc::default(), trouble: Arc::default(), owner }
    }

    /// Sets the fault. Calls are counted from now.
    fn fail(&self, fault: Option<StoreFault>) {
        let mut trouble = self.trouble.lock().unwrap();
        (trouble.calls, trouble.fault) = (0, fault);
    }

    fn calls(&self) -> u64 {
        self.trouble.lock().unwrap().calls
    }

    fn names(&self) -> Vec<String> {
        self.files.lock().unwrap().keys().cloned().collect()
    }

    /// Returns the bytes of a file as they arrive at the store.
    fn arriving(&self, mut whole: Vec<u8>) -> Vec<u8> {
        let mut trouble = self.trouble.lock().unwrap();
        trouble.puts += 1;
        if trouble.spoils > 0 && !whole.is_empty() {
            trouble.spoils -= 1;
            let middle = whole.len() / 2;
            whole[middle] ^= 1;
        }
        whole
    }

    fn call<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> Result<T>) -> Result<T> {
        let mut trouble = self.trouble.lock().unwrap();
        trouble.calls += 1;
        let (call, fault) = (trouble.calls, trouble.fault);
        drop(trouble);
        let mut files = self.files.lock().unwrap();
        match fault {
            Some(fault) if call == fault.call && fault.is_done => work(&mut files).and(Err(broken())),
            Some(fault) if call == fault.call || fault.ends && call > fault.call => Err(broken()),
            _ => work(&mut files),
        }
    }
}

impl BackupSource for MemoryStore {
    fn display_name(&self, name: &str) -> String {
        format!("store://{name}")
    }

    fn open(&self, name: &str) -> Result<SourceFile<'_>> {
        let len = self.call(|files| Ok(files.get(name).map(|bytes| bytes.len() as u64)))?;
        let len = len.ok_or_else(|| Error::not_found("no such file"))?;
        let name = name.to_owned();
        let read_at = move |buffer: &mut [u8], offset: u64| {
            self.call(|files| {
                let gone = || Error::damaged("shorter").with("file", self.display_name(&name));
                let bytes = files.get(&name).and_then(|bytes| bytes.get(offset as usize..));
                let bytes = bytes.and_then(|bytes| bytes.get(..buffer.len())).ok_or_else(gone)?;
                buffer.copy_from_slice(bytes);
                Ok(())
            })
        };
        Ok(SourceFile { len, block_bytes: 700, read_at: Box::new(read_at) })
    }

    fn is_begun(&self) -> Result<bool> {
        self.call(|files| Ok(files.contains_key(MARK)))
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>> {
        self.call(|files| {
            let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
            let mut found = BTreeMap::new();
            for (name, bytes) in files.iter() {
                let Some(rest) = name.strip_prefix(&prefix) else { continue };
                let (first, is_dir) = rest.split_once('/').map_or((rest, false), |(first, _)| (first, true));
                let len = if is_dir { 0 } else { bytes.len() as u64 };
                found.insert(first.to_owned(), Entry { name: first.to_owned(), len, is_dir });
            }
            Ok(found.into_values().collect())
        })
    }
}

impl BackupStore for MemoryStore {
    fn claim(&self, _env: &Env) -> Result<()> {
        self.call(|files| {
            let found = files.entry(MARK.to_owned()).or_insert_with(|| self.owner.into());
            if found == self.owner.as_bytes() { Ok(()) } else { Err(Error::new(Kind::InUse, "another's")) }
        })
    }

    fn is_claim_file(&self, name: &str) -> bool {
        name == MARK
    }

    fn put(&self, name: &str, next: &mut dyn FnMut() -> Result<Option<Vec<u8>>>) -> Result<()> {
        let mut whole = Vec::new();
        while let Some(block) = next()? {
            self.call(|_| Ok(()))?;
            whole.extend(block);
        }
        let whole = self.arriving(whole);
        self.call(|files| {
            files.insert(name.to_owned(), whole);
            Ok(())
        })
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let arriving = self.arriving(bytes.to_vec());
        self.call(|files| match files.get(name) {
            Some(found) if found != bytes => Err(Error::new(Kind::Exists, "another one")),
            _ => {
                files.insert(name.to_owned(), arriving);
                Ok(())
            }
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.call(|files| {
            files.remove(name);
            Ok(())
        })
    }
}

fn database(machine: &SimEnv, rng: &mut Rng, steps: usize) -> SimulatedRun {
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    let mut run = SimulatedRun::new(engine, 0, State::new());
    (0..steps).for_each(|_| run.step(rng));
    run
}

fn send(engine: &Engine, store: &MemoryStore) -> Result<SentBackup> {
    engine.send_backup(store, &mut |_| Ok(()))
}

fn restore(env: &Env, store: &MemoryStore) -> Result<Restored> {
    let from = RestoreSources { backup: store, archive: None };
    backup::restore_from(env, from, Path::new(RESTORED), None, &mut |_| Ok(()))
}

/// Restores on a new machine, and compares with the model's state at the backup's lsn.
fn check_restored(store: &MemoryStore, states: &[State], what: &str) {
    store.fail(None);
    let machine = SimEnv::new(3);
    let restored = restore(&machine.env(), store).unwrap_or_else(|e| panic!("{what}: {e}"));
    let engine = Engine::open_stepped(machine.env(), Path::new(RESTORED), options()).unwrap();
    let root = engine.root();
    assert_eq!(root.lsn(), restored.lsn, "{what}");
    check(&root, &states[restored.lsn.0 as usize], what);
    let rows: usize = states[restored.lsn.0 as usize].values().map(|table| table.rows.len()).sum();
    assert_eq!(restored.rows, rows as u64, "{what}");
}

/// Checks that nothing passes for a backup, and that the error says so.
fn check_none(store: &MemoryStore, what: &str) {
    store.fail(None);
    let machine = SimEnv::new(3);
    let error = restore(&machine.env(), store).expect_err(what);
    assert_eq!(error.kind(), Kind::NotFound, "{what}: {error}");
    assert!(error.to_string().contains("is not a backup"), "{what}: {error}");
    assert!(!machine.env().disk.exists(Path::new(RESTORED)).unwrap());
}

fn outgoing(machine: &SimEnv) -> bool {
    let path = Path::new(DIR).join(backup::OUTGOING);
    machine.env().disk.exists(&path).unwrap()
}

#[test]
fn a_backup_that_is_sent_at_any_moment_restores_to_exactly_its_lsn() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let steps = rng.range(0..600) as usize;
        let mut run = database(&machine, &mut rng, steps);
        let (engine, store) = (run.engine.clone(), MemoryStore::new("ours"));
        let started = engine.root().lsn();
        let sent = engine
            .send_backup(&store, &mut |_| {
                (0..rng.below(25)).for_each(|_| run.step(&mut rng));
                Ok(())
            })
            .unwrap();
        assert_eq!((sent.backup.lsn, sent.found_files), (started, 0), "seed {seed}");
        run.check_held();
        assert!(!outgoing(&machine), "seed {seed}");
        check_restored(&store, &run.states, &format!("seed {seed}"));
        let names = store.names();
        assert_eq!(names.len(), sent.backup.files + 2, "seed {seed}: {names:?}");
        // A place holds only one backup.
        let error = send(&engine, &store).unwrap_err();
        assert_eq!(error.kind(), Kind::Exists, "{error}");
        assert_eq!(store.names(), names);
    });
}

/// A backup must never look whole without being so.
#[test]
fn a_store_that_is_cut_off_at_any_call_holds_a_whole_backup_or_none_and_the_next_attempt_goes_on() {
    let _limit = testkit::limit(600);
    let seed = 7;
    let begin = |fault: Option<StoreFault>| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let run = database(&machine, &mut rng, 500);
        let store = MemoryStore::new("ours");
        store.fail(fault);
        let outcome = send(&run.engine, &store);
        (machine, run, store, outcome)
    };
    let (_, _, store, outcome) = begin(None);
    let files = outcome.unwrap().backup.files;
    let calls = store.calls();
    assert!(files > 4 && calls > 40, "{files} files, {calls} calls");
    let (mut whole, mut went_on) = (0, 0);
    for (call, is_done) in (1..=calls).flat_map(|call| [(call, false), (call, true)]) {
        let what = format!("call {call} of {calls}, done: {is_done}");
        let (machine, run, store, outcome) = begin(Some(StoreFault { call, is_done, ends: true }));
        assert!(!outgoing(&machine), "{what}");
        store.fail(None);
        let is_whole = store.names().iter().any(|name| name == "BACKUP");
        // A failure to read back or to sweep does not fail the backup: it is there.
        assert!(is_whole || outcome.is_err(), "{what}");
        if is_whole {
            whole += 1;
            check_restored(&store, &run.states, &what);
            assert_eq!(send(&run.engine, &store).unwrap_err().kind(), Kind::Exists, "{what}");
            continue;
        }
        assert_eq!(outcome.unwrap_err().kind(), Kind::Io, "{what}");
        check_none(&store, &what);
        let sent = send(&run.engine, &store).unwrap_or_else(|e| panic!("{what}: {e}"));
        went_on += sent.found_files;
        check_restored(&store, &run.states, &what);
        // Leftovers of the first attempt are gone: only the named files and the mark remain.
        assert_eq!(store.names().len(), sent.backup.files + 2, "{what}: {:?}", store.names());
    }
    assert!(whole > 0 && went_on > files, "{whole} whole, {went_on} not sent again");
}

#[test]
fn a_call_that_fails_or_whose_answer_is_lost_is_made_again() {
    let _limit = testkit::limit(300);
    let mut rng = Rng::new(5);
    let machine = SimEnv::new(5);
    let run = database(&machine, &mut rng, 300);
    let store = MemoryStore::new("ours");
    send(&run.engine, &store).unwrap();
    let calls = store.calls();
    for (call, is_done) in (1..=calls).flat_map(|call| [(call, false), (call, true)]) {
        let store = MemoryStore::new("ours");
        store.fail(Some(StoreFault { call, is_done, ends: false }));
        send(&run.engine, &store).unwrap_or_else(|e| panic!("call {call}, done: {is_done}: {e}"));
        check_restored(&store, &run.states, &format!("call {call}"));
    }
    // The faults are repeated while the backup is read.
    store.fail(None);
    restore(&SimEnv::new(1).env(), &store).unwrap();
    for call in 1..=store.calls() {
        store.fail(Some(StoreFault { call, is_done: false, ends: false }));
        restore(&SimEnv::new(1).env(), &store).unwrap_or_else(|e| panic!("call {call}: {e}"));
        store.fail(Some(StoreFault { call, is_done: false, ends: true }));
        let machine = SimEnv::new(1);
        let error = restore(&machine.env(), &store).expect_err("the store is away");
        assert_eq!(error.kind(), Kind::Io, "call {call}: {error}");
        assert!(!machine.env().disk.exists(Path::new(RESTORED)).unwrap(), "call {call}: half of it is left");
    }
}

/// The process dies while it sends, at any call of its own disk: the contents of `outgoing` go when the database is opened
/// again.
#[test]
fn a_machine_that_dies_while_it_sends_goes_on_after_it() {
    let _limit = testkit::limit(600);
    let seed = 9;
    let begin = |crash: Option<u64>| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let run = database(&machine, &mut rng, 400);
        let before = machine.disk.calls();
        if let Some(call) = crash {
            machine.disk.crash_at(before + call);
        }
        let store = MemoryStore::new("ours");
        let outcome = send(&run.engine, &store);
        (machine, run, store, outcome, before)
    };
    let (machine, _, _, outcome, before) = begin(None);
    outcome.unwrap();
    let calls = machine.disk.calls() - before;
    let mut whole = 0;
    for call in 1..=calls {
        let what = format!("crash at call {call} of {calls}");
        let (machine, run, store, _, _) = begin(Some(call));
        let SimulatedRun { engine, mut states, .. } = run;
        drop(engine);
        let mut rng = Rng::new(call);
        let (machine, engine) = reopen(machine.crash(&mut rng), &mut rng);
        assert!(!outgoing(&machine), "{what}");
        if store.names().iter().any(|name| name == "BACKUP") {
            whole += 1;
        } else {
            check_none(&store, &what);
            // Commits that were not durable may be gone; nothing is written from there on.
            let lsn = engine.root().lsn();
            states.truncate(lsn.0 as usize + 1);
            send(&engine, &store).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        check_restored(&store, &states, &what);
    }
    assert!(whole < calls, "{whole} of {calls}");
}

#[test]
fn two_backups_to_one_place_never_mix() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(40, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let mut run = database(&machine, &mut rng, 300);
        let (engine, store) = (run.engine.clone(), MemoryStore::new("ours"));
        // The second backup begins at any moment of the first, later in the database's life, and is finished before it.
        let mut left = rng.below(30);
        let mut second = None;
        let first = engine.send_backup(&store, &mut |_| {
            if left == 0 && second.is_none() {
                (0..100).for_each(|_| run.step(&mut rng));
                second = Some(send(&engine, &store).unwrap());
            }
            left = left.saturating_sub(1);
            Ok(())
        });
        match second {
            Some(second) => {
                let error = first.unwrap_err();
                assert_eq!(error.kind(), Kind::Exists, "seed {seed}: {error}");
                let found = restore(&SimEnv::new(3).env(), &store).unwrap();
                assert_eq!(found.lsn, second.backup.lsn, "seed {seed}");
            }
            None => drop(first.unwrap()),
        }
        check_restored(&store, &run.states, &format!("seed {seed}"));
        // Another database is refused, with or without a whole backup there.
        let theirs = MemoryStore { owner: "theirs", ..store.clone() };
        assert_eq!(send(&engine, &theirs).unwrap_err().kind(), Kind::Exists);
        store.files.lock().unwrap().remove("BACKUP");
        assert_eq!(send(&engine, &theirs).unwrap_err().kind(), Kind::InUse);
    });
}

#[test]
fn what_does_not_arrive_as_it_was_sent_is_sent_again_and_then_told() {
    let _limit = testkit::limit(60);
    let mut rng = Rng::new(2);
    let machine = SimEnv::new(2);
    let run = database(&machine, &mut rng, 300);
    let spoiled = |times: u32| {
        let store = MemoryStore::new("ours");
        store.trouble.lock().unwrap().spoils = times;
        let outcome = send(&run.engine, &store);
        (store, outcome)
    };
    let (store, outcome) = spoiled(3);
    let files = outcome.unwrap().backup.files as u32;
    assert_eq!(store.trouble.lock().unwrap().puts, files + 3 + 1, "and `BACKUP`");
    check_restored(&store, &run.states, "spoiled three times");
    let (store, outcome) = spoiled(u32::MAX);
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("differ from those sent"), "{error}");
    check_none(&store, "spoiled always");
    // A spoiled file is not taken for a good one.
    store.trouble.lock().unwrap().spoils = 0;
    let sent = send(&run.engine, &store).unwrap();
    assert_eq!(sent.found_files, 0);
    check_restored(&store, &run.states, "sent again");
}

#[test]
fn damage_in_the_store_is_noticed_when_it_is_restored() {
    let _limit = testkit::limit(120);
    let mut rng = Rng::new(4);
    let machine = SimEnv::new(4);
    let run = database(&machine, &mut rng, 400);
    let store = MemoryStore::new("ours");
    send(&run.engine, &store).unwrap();
    let whole = store.files.lock().unwrap().clone();
    for name in whole.keys().filter(|name| *name != MARK) {
        let mut damages: Vec<Option<Vec<u8>>> = vec![Some(whole[name][..whole[name].len() - 1].to_vec())];
        for _ in 0..8 {
            let mut bytes = whole[name].clone();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            damages.push(Some(bytes));
        }
        if name != "BACKUP" {
            damages.push(None);
        }
        for damage in damages {
            let mut files = whole.clone();
            match damage {
                Some(bytes) => drop(files.insert(name.clone(), bytes)),
                None => drop(files.remove(name)),
            }
            *store.files.lock().unwrap() = files;
            let machine = SimEnv::new(1);
            let error = match restore(&machine.env(), &store) {
                // A hexadecimal digit changed its case.
                Ok(_) if name == "BACKUP" => continue,
                restored => restored.expect_err(name),
            };
            assert!(matches!(error.kind(), Kind::Damaged | Kind::Newer), "{name}: {error}");
            assert!(error.to_string().contains(name.as_str()), "{name}: {error}");
            assert!(!machine.env().disk.exists(Path::new(RESTORED)).unwrap());
        }
    }
}

#[test]
fn a_place_that_holds_something_else_is_refused_untouched() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(6);
    let run = database(&machine, &mut Rng::new(6), 100);
    for name in ["photo.jpg", "main/t/metadata/v1.json", "tables2/1/3.arrow", "polynya-warehouse.json"] {
        let store = MemoryStore::new("ours");
        store.files.lock().unwrap().insert(name.to_owned(), vec![1]);
        let error = send(&run.engine, &store).unwrap_err();
        assert_eq!(error.kind(), Kind::Exists, "{name}: {error}");
        assert_eq!(store.names(), [name]);
    }
    let nothing = restore(&machine.env(), &MemoryStore::new("ours")).unwrap_err();
    assert!(
        nothing.to_string().contains("is not a backup") && !nothing.to_string().contains("begun"),
        "{nothing}"
    );
    // The caller of this backup has gone.
    let store = MemoryStore::new("ours");
    let error = run.engine.send_backup(&store, &mut |_| Err(Error::new(Kind::Closed, "gone"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    assert!(!outgoing(&machine));
    let begun = restore(&machine.env(), &store).unwrap_err();
    assert!(begun.to_string().contains("begun there and not finished"), "{begun}");
}

/// The log's archive is in the same kind of place: whatever fails there, a sent backup is carried forward to the last
/// commit.
#[test]
fn an_archive_elsewhere_carries_a_backup_forward_whatever_fails() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(12, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let (store, logs) = (MemoryStore::new("ours"), MemoryStore::new("ours"));
        let with_archive = || Options { archive_store: Some(Arc::new(logs.clone())), ..options() };
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), with_archive()).unwrap();
        let mut run = SimulatedRun::new(engine, 0, State::new());
        (0..100).for_each(|_| run.step(&mut rng));
        let taken = send(&run.engine, &store).unwrap();
        for _ in 0..300 {
            run.step(&mut rng);
            if rng.one_in(6) {
                let fault =
                    StoreFault { call: rng.range(1..8), is_done: rng.chance(0.5), ends: rng.chance(0.3) };
                logs.fail(rng.chance(0.6).then_some(fault));
                logs.trouble.lock().unwrap().spoils = u32::from(rng.one_in(4));
                run.engine.step(Step::Archive);
            }
        }
        logs.fail(None);
        logs.trouble.lock().unwrap().spoils = 0;
        run.engine.step(Step::Sync);
        run.commit();
        run.engine.step(Step::Sync);
        while run.engine.step(Step::Archive) {}
        let status = run.engine.status().archive.unwrap();
        assert!(status.error.is_none() && status.gaps == 0, "seed {seed}: {:?}", status.error);
        assert_eq!(status.lsn.0, run.last(), "seed {seed}: everything durable is there");
        assert!(status.lsn > taken.backup.lsn);
        let lsns = [taken.backup.lsn.next(), types::Lsn((taken.backup.lsn.0 + status.lsn.0) / 2), status.lsn];
        for lsn in lsns {
            let machine = SimEnv::new(3);
            let from = RestoreSources { backup: &store, archive: Some(&logs) };
            let to = Some(RestorePoint::Lsn(lsn));
            let dest = Path::new(RESTORED);
            let restored = backup::restore_from(&machine.env(), from, dest, to, &mut |_| Ok(())).unwrap();
            assert_eq!(restored.lsn, lsn, "seed {seed}");
            let engine = Engine::open_stepped(machine.env(), dest, options()).unwrap();
            check(&engine.root(), &run.states[lsn.0 as usize], &format!("seed {seed}, lsn {lsn}"));
        }
        // One piece is removed, another one is damaged.
        let name = logs.names().pop().unwrap();
        let bytes = logs.files.lock().unwrap()[&name].clone();
        let mut spoiled = bytes.clone();
        let middle = spoiled.len() / 2;
        spoiled[middle] ^= 1;
        logs.files.lock().unwrap().insert(name.clone(), spoiled);
        let machine = SimEnv::new(3);
        let from = RestoreSources { backup: &store, archive: Some(&logs) };
        let to = Some(RestorePoint::Lsn(status.lsn));
        let again = |machine: &SimEnv| {
            backup::restore_from(&machine.env(), from, Path::new(RESTORED), to, &mut |_| Ok(()))
        };
        let error = again(&machine).unwrap_err();
        assert_eq!(error.kind(), Kind::Damaged, "{error}");
        assert!(error.to_string().contains(&name), "{error}");
        logs.files.lock().unwrap().remove(&name);
        assert_eq!(again(&machine).unwrap_err().kind(), Kind::NotFound, "seed {seed}");
        assert!(!machine.env().disk.exists(Path::new(RESTORED)).unwrap());
    });
}

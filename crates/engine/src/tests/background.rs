//! Background work that fails, panics, or is still under way when the database closes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use types::{Kind, Principal};
use vfs::{Clock, Env, Micros};

use super::hooked_disk;
use super::support::{batch, by_id, contents, plain};
use crate::{Engine, Mode, Op, Options, Step, Transaction};

const DIR: &str = "db";

/// Options with which any forty rows are sealed.
fn options() -> Options {
    Options {
        seal_rows: 40,
        log: commitlog::Options { file_bytes: 64 << 10, ..Default::default() },
        ..Options::default()
    }
}

fn create() -> Transaction {
    Transaction::new(vec![Op::CreateTable { def: plain("t"), if_absent: false }])
}

fn insert(from: i64) -> Transaction {
    let rows: Vec<(i64, i64)> = (from..from + 50).map(|id| (id, id)).collect();
    Transaction::insert("t", batch(&rows), Mode::Append)
}

fn is_segment(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".arrow.tmp")
}

fn segment_files(machine: &sim::SimEnv) -> usize {
    let in_tables = |path: &&std::path::PathBuf| path.to_string_lossy().contains("tables/");
    machine.disk.files().iter().filter(in_tables).count()
}

/// A failing seal was retried in a tight loop, and each attempt could leave its files under a new name.
#[test]
fn a_seal_that_fails_waits_longer_each_time_and_leaves_no_file() {
    let _limit = testkit::limit(60);
    for nth in 1..=4 {
        let machine = sim::SimEnv::new(nth);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        let write = |transaction| {
            engine.submit(&Principal::local(), transaction, |result| assert!(result.is_ok()));
            while engine.step(Step::Commit) | engine.step(Step::Sync) {}
        };
        write(create());
        while engine.step(Step::Background) {}
        write(insert(0));
        let attempt = |nth| {
            let before = engine.status().background_errors;
            machine.disk.fail_sync(nth);
            while engine.step(Step::Background) {}
            engine.status().background_errors - before
        };
        assert_eq!(attempt(nth), 1, "sync {nth} fails");
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(segment_files(&machine), 0, "sync {nth}: nothing is left of a failed attempt");
            assert!(!engine.step(Step::Background), "it is not tried again at once");
            machine.clock.advance(Duration::from_millis(seconds * 1000 - 1));
            assert!(!engine.step(Step::Background), "nor before {seconds} s");
            machine.clock.advance(Duration::from_millis(1));
            // The first sync is that of the table's directory, unless that exists by now.
            assert_eq!(attempt(nth.saturating_sub(1).max(1)), 1, "sync {nth} fails again");
        }
        machine.disk.fail_sync(u64::MAX);
        machine.clock.advance(Duration::from_secs(60));
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
        assert_eq!((engine.status().seals, engine.root().table("main.t").unwrap().head_rows()), (1, 0));
    }
}

/// A panic left the table marked as being worked on, and it was never sealed again.
#[test]
fn a_panic_in_a_seal_or_a_manifest_does_not_end_that_work_for_good() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let (segment, manifest) = (AtomicBool::new(false), AtomicUsize::new(0));
    let env = hooked_disk::env(move |call, path| {
        if call != "create" {
            return;
        }
        if is_segment(path) && !segment.swap(true, Ordering::Relaxed) {
            panic!("a segment, as the test wants it");
        }
        // The first manifest is made by opening.
        let is_manifest = path.to_string_lossy().contains("manifest-");
        if is_manifest && manifest.fetch_add(1, Ordering::Relaxed) == 1 {
            panic!("a manifest, as the test wants it");
        }
    });
    let engine = Engine::open(env, dir.path(), options()).unwrap();
    engine.commit(&Principal::local(), create()).unwrap();
    let mut rows = 0;
    while engine.status().background_errors < 2
        || engine.status().seals == 0
        || engine.status().manifests == 0
    {
        engine.commit(&Principal::local(), insert(rows)).unwrap();
        rows += 50;
    }
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), options()).unwrap();
    assert_eq!(by_id(engine.root().table("main.t").unwrap()).len() as i64, rows);
}

/// A clock that does something when it is read for the n-th time from now.
struct Alarm {
    clock: Arc<dyn Clock>,
    left: AtomicUsize,
    ring: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alarm")
    }
}

impl Clock for Alarm {
    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if let (Ok(1), Some(ring)) = (left, self.ring.get()) {
            ring();
        }
        self.clock.monotonic()
    }
}

/// A worker read the root before another worker's seal was published, found work after it, and sealed the same rows again.
/// The commit thread took that for a bug and refused all writes from then on.
#[test]
fn a_worker_that_is_overtaken_by_anothers_seal_does_not_seal_the_same_rows() {
    let _limit = testkit::limit(60);
    // The other worker overtakes before each time that this one reads the clock.
    for nth in 1..=4 {
        let machine = sim::SimEnv::new(nth as u64);
        let env = machine.env();
        let alarm = Arc::new(Alarm { clock: env.clock.clone(), left: 0.into(), ring: OnceLock::new() });
        let env = Env { clock: alarm.clone(), ..env };
        let engine = Engine::open_stepped(env, Path::new(DIR), options()).unwrap();
        let write = |transaction| {
            engine.submit(&Principal::local(), transaction, |result| assert!(result.is_ok(), "{result:?}"));
            while engine.step(Step::Commit) | engine.step(Step::Sync) {}
        };
        write(create());
        while engine.step(Step::Background) {}
        write(insert(0));
        let other = engine.clone();
        let overtakes = move || {
            other.step(Step::Background);
            while other.step(Step::Commit) | other.step(Step::Sync) {}
        };
        assert!(alarm.ring.set(Box::new(overtakes)).is_ok());
        alarm.left.store(nth, Ordering::SeqCst);
        engine.step(Step::Background);
        assert!(
            alarm.left.swap(0, Ordering::SeqCst) == 0 || nth > 2,
            "a worker looks at the clock {nth} times"
        );
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
        assert_eq!(engine.status().seals, 1);
        write(insert(50));
        assert_eq!(by_id(engine.root().table("main.t").unwrap()).len(), 100);
    }
}

/// Deleted rows of a table, and a dropped table, stayed on the disk until something else was written.
#[test]
fn deletes_alone_and_a_dropped_table_give_their_room_back() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(1);
    let options = Options { history: Duration::ZERO, ..options() };
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options).unwrap();
    let write = |transaction| {
        engine.submit(&Principal::local(), transaction, |result| assert!(result.is_ok(), "{result:?}"));
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    let rest = || {
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
        machine.clock.advance(Duration::from_secs(6));
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    let stored = || {
        let files = machine.disk.files();
        let name = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
        let of_rows =
            files.iter().map(name).filter(|name| name.contains("tables/") && name.ends_with(".arrow"));
        of_rows.count()
    };
    write(create());
    write(insert(0));
    rest();
    assert_eq!((stored(), engine.status().compactions), (1, 0));
    let rows = contents(engine.root().table("main.t").unwrap());
    let ended = rows.keys().copied().take(40).collect();
    write(Transaction::new(vec![Op::Delete { table: "t".into(), rows: ended, must_exist: true }]));
    rest();
    assert_eq!(
        (stored(), engine.status().compactions),
        (1, 1),
        "one of ten rows in the place of one of fifty"
    );
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 10);
    write(Transaction::new(vec![Op::DropTable { table: "t".into(), if_exists: false }]));
    rest();
    assert_eq!((stored(), engine.status().held_bytes), (0, 0));
}

/// A point at which a thread waits for the test.
struct Gate {
    reached: mpsc::Receiver<()>,
    open: mpsc::Sender<()>,
}

/// Returns an environment that waits at the first call that `picks` selects.
fn gate(picks: impl Fn(&str, &Path) -> bool + Send + Sync + 'static) -> (Env, Gate) {
    let (tell, reached) = mpsc::channel();
    let (open, wait) = mpsc::channel();
    let once = Mutex::new(Some((tell, wait)));
    let env = hooked_disk::env(move |call, path| {
        let here = if picks(call, path) { once.lock().unwrap().take() } else { None };
        if let Some((tell, wait)) = here {
            tell.send(()).unwrap();
            // The wait ends when the test ends, too.
            let _ = wait.recv();
        }
    });
    (env, Gate { reached, open })
}

/// Closing released the directory while a worker still wrote into it.
#[test]
fn a_directory_stays_locked_until_the_last_worker_has_left_it() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let (env, gate) = gate(|call, path| call == "create" && is_segment(path));
    let engine = Engine::open(env, dir.path(), options()).unwrap();
    engine.commit(&Principal::local(), create()).unwrap();
    engine.commit(&Principal::local(), insert(0)).unwrap();
    gate.reached.recv().unwrap();
    engine.close().unwrap();
    let open = || Engine::open(Env::real(), dir.path(), options());
    assert_eq!(open().err().unwrap().kind(), Kind::InUse);
    gate.open.send(()).unwrap();
    let started = Instant::now();
    let again = loop {
        match open() {
            Ok(engine) => break engine,
            Err(error) => assert_eq!(error.kind(), Kind::InUse),
        }
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    };
    assert_eq!(by_id(again.root().table("main.t").unwrap()).len(), 50);
}

/// The closing thread wrote its manifest into the file that a worker was about to rename.
#[test]
fn closing_waits_for_the_manifest_that_is_being_written() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let renamed = Arc::new(AtomicUsize::new(0));
    let made = Arc::new(AtomicUsize::new(0));
    let is_manifest = |path: &Path| path.to_string_lossy().contains("manifest-");
    let (count, creates) = (renamed.clone(), made.clone());
    // The first manifest is made by opening.
    let (env, gate) = gate(move |call, path| {
        if call == "create" && is_manifest(path) {
            creates.fetch_add(1, Ordering::SeqCst);
        }
        call == "rename" && is_manifest(path) && count.fetch_add(1, Ordering::SeqCst) == 1
    });
    let engine = Engine::open(env, dir.path(), options()).unwrap();
    engine.commit(&Principal::local(), create()).unwrap();
    let mut rows = 0;
    while gate.reached.try_recv().is_err() {
        engine.commit(&Principal::local(), insert(rows)).unwrap();
        rows += 50;
    }
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| engine.close());
        // This is longer than closing waits for background work.
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(2_500) {
            assert_eq!(made.load(Ordering::SeqCst), 2, "the closer makes no file while one is being written");
            std::thread::yield_now();
        }
        gate.open.send(()).unwrap();
        closing.join().unwrap().unwrap();
    });
    // Closing may have ended before: then the writer of the manifest releases the directory.
    let again = loop {
        match Engine::open(Env::real(), dir.path(), options()) {
            Err(error) if error.kind() == Kind::InUse => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(by_id(again.root().table("main.t").unwrap()).len() as i64, rows);
}

/// The pool was woken before the root that had work for it was published, and could be woken between its check of a database
/// and its sleep. A seal then waited for a commit that might never come.
#[test]
fn work_that_comes_while_the_pool_falls_asleep_is_done() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), options()).unwrap();
    engine.commit(&Principal::local(), create()).unwrap();
    for round in 0..testkit::scaled(300) as u64 {
        engine.commit(&Principal::local(), insert(50 * round as i64)).unwrap();
        let started = Instant::now();
        while engine.status().seals <= round {
            assert!(started.elapsed() < Duration::from_secs(20), "round {round}: nobody seals");
            std::hint::spin_loop();
        }
    }
    engine.close().unwrap();
}

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sim::{Rng, SlowDisk};
use types::{DataType, Kind, Micros, Principal, RowId, Value, key};
use vfs::{Clock, Env};

use super::support::{batch, by_id, contents, keyed, plain};
use crate::{Engine, Mode, Op, Options, Transaction};

/// Options with small heads, so that seals and compactions run beside the test.
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

/// A root with the number of rows of `p` and the rows of `k` when it was taken.
type HeldRoot = (Arc<crate::DatabaseRoot>, usize, BTreeMap<RowId, (i64, i64)>);

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
                    // Both tables change in one commit: if readers see different numbers of rounds in them, S2 is broken.
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
            let mut held: Vec<HeldRoot> = Vec::new();
            let target = testkit::scaled(4_000).max(600) as i64;
            // All databases of the process share the pool: the first seal may have to wait for its turn.
            while written.load(Ordering::Relaxed) < target || engine.status().seals == 0 {
                let _read = vfs::read_path();
                let root = engine.root();
                let (k, p) = (root.table("main.k").unwrap(), root.table("main.p").unwrap());
                let newest = contents(p).into_values().next_back();
                if let Some((id, round)) = newest {
                    // The last commit's row in `p` has its twin in `k`, which the same writer wrote.
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

/// A clock that records the threads that read it. On request it panics once, in a thread that commits.
#[derive(Debug)]
struct WatchedClock {
    real: Arc<dyn Clock>,
    asked: Mutex<BTreeSet<String>>,
    fails: AtomicBool,
}

impl Clock for WatchedClock {
    fn now(&self) -> Micros {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        self.asked.lock().unwrap().insert(name.to_owned());
        let may_fail = !name.starts_with("pn-background");
        assert!(!(may_fail && self.fails.swap(false, Ordering::Relaxed)), "as the test wants");
        self.real.now()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}

fn watched(dir: &testkit::TempDir) -> (Engine, Arc<WatchedClock>) {
    let real = Env::real();
    let watch = Arc::new(WatchedClock {
        real: real.clock.clone(),
        asked: Mutex::new(BTreeSet::new()),
        fails: AtomicBool::new(false),
    });
    let engine = Engine::open(Env { clock: watch.clone(), ..real }, dir.path(), Options::default()).unwrap();
    let create = Op::CreateTable { def: keyed("t"), if_absent: false };
    engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    (engine, watch)
}

/// Returns true if the commit thread made the last groups: it reads the clock for each of them.
fn commits_by_the_commit_thread(watch: &WatchedClock) -> bool {
    std::mem::take(&mut *watch.asked.lock().unwrap()).contains("pn-commit")
}

#[test]
fn a_lone_writer_commits_in_its_own_thread_and_whoever_does_not_wait_does_not() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let (engine, watch) = watched(&dir);
    // The commit thread may still be on its way to sleep.
    let mut tries = 0;
    while tries < 100 && {
        insert(&engine, "t", &[(1, tries)], Mode::Upsert).unwrap();
        commits_by_the_commit_thread(&watch)
    } {
        tries += 1;
    }
    assert!(tries < 100, "no commit was made by the thread that waited for it");
    let (sender, receiver) = mpsc::channel();
    let transaction = Transaction::insert("t", batch(&[(2, 2)]), Mode::Append);
    engine.submit(&Principal::local(), transaction, move |result| sender.send(result).unwrap());
    receiver.recv().unwrap().unwrap();
    assert!(commits_by_the_commit_thread(&watch));
    // A thread that others should not wait for does not commit itself.
    let background = crate::threads::Class::Background;
    let of_another = engine.clone();
    let nice = background.spawn("nice", move || insert(&of_another, "t", &[(3, 3)], Mode::Append));
    nice.unwrap().join().unwrap().unwrap();
    assert!(commits_by_the_commit_thread(&watch));
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, tries), (2, 2), (3, 3)].into());
}

/// A sync that did not wait for the threads just answered would serve only every other one.
#[test]
fn threads_that_come_back_at_once_share_a_sync() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let real = Env::real();
    let disk = Arc::new(SlowDisk::new(real.disk.clone()));
    let engine = Engine::open(Env { disk: disk.clone(), ..real }, dir.path(), Options::default()).unwrap();
    let create = Op::CreateTable { def: plain("t"), if_absent: false };
    engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    disk.let_syncs_take(Duration::from_millis(8));
    let (threads, rounds) = (2, 25);
    let groups = || {
        let before = engine.status().groups;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let write = || {
                    (0..rounds).for_each(|n| {
                        insert(&engine, "t", &[(n, n)], Mode::Append).unwrap();
                    })
                };
                scope.spawn(write);
            }
        });
        engine.status().groups - before
    };
    // Other tests may keep both cores busy for a while.
    let mut tries = Vec::new();
    while tries.len() < 100 && tries.last().is_none_or(|groups| *groups >= 35) {
        tries.push(groups());
    }
    assert!(
        tries.last().is_some_and(|groups| *groups < 35),
        "{tries:?} groups for {} commits",
        threads * rounds
    );
}

#[test]
fn what_is_acknowledged_to_any_kind_of_writer_is_there_after_closing_under_them() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    for round in 0..testkit::scaled(20) {
        let engine = Engine::open(Env::real(), dir.path(), busy_options()).unwrap();
        let create = Op::CreateTable { def: plain("t"), if_absent: true };
        engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
        let before = engine.root().table("main.t").unwrap().rows();
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            // There are so many of each kind that a sync waits for them.
            for writer in 0..20 {
                let (engine, acknowledged) = (&engine, &acknowledged);
                scope.spawn(move || {
                    for i in 0.. {
                        let written = if writer % 5 == 0 {
                            insert(engine, "t", &[(writer, i)], Mode::Append)
                        } else {
                            let (sender, receiver) = mpsc::channel();
                            let transaction = Transaction::insert("t", batch(&[(writer, i)]), Mode::Append);
                            let done = move |result| sender.send(result).unwrap();
                            engine.submit(&Principal::local(), transaction, done);
                            receiver.recv().unwrap()
                        };
                        match written {
                            Ok(_) => acknowledged.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::Closed, "{error}");
                                break;
                            }
                        };
                    }
                });
            }
            while acknowledged.load(Ordering::Relaxed) < 40 + round as u64 {
                std::thread::yield_now();
            }
            engine.close().unwrap();
        });
        drop(engine);
        let engine = Engine::open(Env::real(), dir.path(), busy_options()).unwrap();
        let there = engine.root().table("main.t").unwrap().rows();
        assert_eq!(there - before, acknowledged.load(Ordering::Relaxed), "L1");
    }
}

/// They were answered only when the database closed.
#[test]
fn a_bug_met_in_the_commit_thread_is_told_to_all_who_wait() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let (engine, watch) = watched(&dir);
    insert(&engine, "t", &[(1, 1)], Mode::Append).unwrap();
    let (sender, receiver) = mpsc::channel();
    let submit = |id: i64| {
        let sender = sender.clone();
        let transaction = Transaction::insert("t", batch(&[(id, id)]), Mode::Append);
        engine.submit(&Principal::local(), transaction, move |result| {
            sender.send((id, result.map_err(|error| error.kind()).err())).unwrap();
        });
    };
    for id in 2..2_000 {
        if id == 1_000 {
            watch.fails.store(true, Ordering::Relaxed);
        }
        submit(id);
    }
    drop(sender);
    // The writers of the group in which the panic happened, which may be all the rest, get no answer: their senders are
    // dropped. All others get one.
    let answers: BTreeMap<i64, Option<Kind>> = receiver.iter().collect();
    let kept = answers.values().take_while(|error| error.is_none()).count() as i64;
    assert!(answers.values().skip(kept as usize).all(|error| *error == Some(Kind::Latched)), "{answers:?}");
    assert!(kept < 1_998, "the bug was met elsewhere");
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let there = by_id(engine.root().table("main.t").unwrap());
    assert!((1..kept + 2).all(|id| there.contains_key(&id)), "L1");
}

#[test]
fn a_bug_met_in_a_callers_thread_ends_writing_and_nothing_else() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let (engine, watch) = watched(&dir);
    insert(&engine, "t", &[(1, 1)], Mode::Append).unwrap();
    watch.fails.store(true, Ordering::Relaxed);
    // The panic may happen in any thread that commits.
    assert!(insert(&engine, "t", &[(2, 2)], Mode::Append).is_err());
    assert!(!watch.fails.load(Ordering::Relaxed));
    for _ in 0..2 {
        let error = insert(&engine, "t", &[(3, 3)], Mode::Append).unwrap_err();
        assert_eq!(error.kind(), Kind::Latched, "{error}");
    }
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, 1)].into());
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, 1)].into());
}

/// All writers are told, both those of the failed sync and those that came meanwhile.
#[test]
fn when_a_sync_fails_all_are_told_and_what_was_acknowledged_is_there() {
    let _limit = testkit::limit(120);
    let mut failed = 0;
    for nth in 1..=testkit::scaled(16) as u64 {
        let machine = sim::SimEnv::new(nth);
        let env = || Env { disk: machine.env().disk, ..Env::real() };
        let engine = Engine::open(env(), Path::new("db"), Options::default()).unwrap();
        let create = Op::CreateTable { def: plain("t"), if_absent: false };
        engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
        machine.disk.fail_sync(nth);
        let acknowledged = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for writer in 0..16 {
                let (engine, acknowledged) = (&engine, &acknowledged);
                scope.spawn(move || {
                    // The failed sync may be another one, for example that of a file made ahead.
                    for i in 0..100 {
                        let id = 1_000_000 * writer + i;
                        let (sender, receiver) = mpsc::channel();
                        let transaction = Transaction::insert("t", batch(&[(id, id)]), Mode::Append);
                        engine.submit(&Principal::local(), transaction, move |result| {
                            sender.send(result).unwrap();
                        });
                        match receiver.recv().unwrap() {
                            Ok(_) => drop(acknowledged.lock().unwrap().insert(id)),
                            Err(error) => {
                                assert!(matches!(error.kind(), Kind::Latched | Kind::Io), "{error}");
                                break;
                            }
                        }
                    }
                });
            }
        });
        failed += u64::from(engine.status().write_error.is_some());
        let _ = engine.close();
        drop(engine);
        let after = machine.crash(&mut Rng::new(nth));
        let engine = Engine::open_stepped(after.env(), Path::new("db"), Options::default()).unwrap();
        let there = by_id(engine.root().table("main.t").unwrap());
        let acknowledged = acknowledged.into_inner().unwrap();
        assert!(acknowledged.iter().all(|id| there.contains_key(id)), "L1, sync {nth}");
    }
    assert!(failed > 0);
}

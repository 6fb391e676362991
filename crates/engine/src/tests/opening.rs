//! Opening a directory with foreign files in it, or with a damaged log after a manifest.

use std::path::Path;

use types::{Kind, Principal};
use vfs::Env;

use super::support::{batch, by_id, plain};
use crate::{Engine, Mode, Op, Options, Step, Transaction};

/// A copy that somebody had put beside a table's directory was removed.
#[test]
fn opening_removes_what_it_left_behind_itself_and_nothing_else() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let open = || Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let engine = open();
    let create = Op::CreateTable { def: plain("t"), if_absent: false };
    engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    engine.close().unwrap();
    drop(engine);
    let foreign = [
        "tables/5.bak/00.arrow",
        "tables/5.bak/7.arrow",
        "tables/backup-of-7/notes.txt",
        "tables/05/7.arrow",
        "tables/+5/7.arrow",
        "tables/1/notes.txt",
        "tables/1/007.arrow",
        "tables/1/7.arrow.bak",
        "tables/1/7.tmp",
        "tables/9/notes.txt",
        "manifest-of-old.tmp",
    ];
    let own = [
        "tables/1/7.arrow",
        "tables/1/7.meta",
        "tables/1/8.arrow.tmp",
        "tables/1/8.meta.tmp",
        "tables/9/7.arrow",
        "tables/10/7.arrow",
        "manifest.tmp",
        "manifest-0000000000000007.tmp",
    ];
    for file in foreign.iter().chain(&own) {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    drop(open());
    for file in foreign {
        assert!(dir.path().join(file).exists(), "{file} is not Polynya's");
    }
    for file in own {
        assert!(!dir.path().join(file).exists(), "{file} belongs to nothing");
    }
    assert!(!dir.path().join("tables/10").exists());
}

/// One bad sector in the last frames of the log, after a clean stop, kept the whole database from opening.
#[test]
fn damage_behind_a_manifest_is_named_and_reads_are_served() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let options = || Options {
        log: commitlog::Options { file_bytes: 8 << 10, spare_files: 0, ..Default::default() },
        ..Options::default()
    };
    let dir = Path::new("db");
    let engine = Engine::open_stepped(machine.env(), dir, options()).unwrap();
    let write = |op| {
        engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| assert!(result.is_ok()));
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    write(Op::CreateTable { def: plain("t"), if_absent: false });
    let commits = 3;
    for id in 0..commits {
        write(Op::Insert { table: "t".into(), batch: batch(&[(id, id)]), mode: Mode::Append });
    }
    engine.close().unwrap();
    drop(engine);
    let logs: Vec<_> = machine
        .disk
        .files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    let (mut damaged, mut partly) = (0, 0);
    for path in &logs {
        let len = machine.disk.contents(path).unwrap().len() as u64;
        for offset in (0..len).step_by(11) {
            let copy = machine.kill();
            copy.disk.flip_bit(path, offset);
            let engine = Engine::open_stepped(copy.env(), dir, options());
            let engine = engine.unwrap_or_else(|e| panic!("{}: {offset}: {e}", path.display()));
            let rows = by_id(engine.root().table("main.t").unwrap()).len() as i64;
            let status = engine.status();
            match status.write_error {
                None => assert_eq!((rows, status.lsn.0), (commits, 1 + commits as u64), "at {offset}"),
                Some(error) => {
                    assert_eq!(error.kind(), Kind::Damaged);
                    damaged += 1;
                    partly += i64::from(rows > 0);
                    let op = Op::Insert { table: "t".into(), batch: batch(&[(9, 9)]), mode: Mode::Append };
                    let refused = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
                    let told = refused.clone();
                    engine.submit(&Principal::local(), Transaction::new(vec![op]), move |result| {
                        told.store(result.is_err(), std::sync::atomic::Ordering::Relaxed);
                    });
                    assert!(refused.load(std::sync::atomic::Ordering::Relaxed), "writes are refused");
                }
            }
        }
    }
    assert!(damaged > 10 && partly > 5, "{damaged} flips were damage, {partly} left rows to read");
}

/// A lake begins a new state with it, so it must not count the commits of this process.
#[test]
fn where_it_was_opened_stays_while_commits_go_on() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let open = || Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let commit =
        |engine: &Engine, op: Op| engine.commit(&Principal::local(), Transaction::new(vec![op])).unwrap();
    let engine = open();
    let begun = engine.opened_at();
    commit(&engine, Op::CreateTable { def: plain("t"), if_absent: false });
    let last =
        commit(&engine, Op::Insert { table: "t".into(), batch: batch(&[(1, 1)]), mode: Mode::Append }).lsn;
    assert!(engine.opened_at() == begun && begun < last);
    engine.close().unwrap();
    drop(engine);
    let engine = open();
    let begun = engine.opened_at();
    assert!(begun >= last);
    let next =
        commit(&engine, Op::Insert { table: "t".into(), batch: batch(&[(2, 2)]), mode: Mode::Append }).lsn;
    assert!(engine.opened_at() == begun && begun < next && engine.root().lsn() >= next);
}

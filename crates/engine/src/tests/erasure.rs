//! Erasures: deleted rows leave the files of their table on request.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sim::SimEnv;
use types::{Kind, Lsn, Principal, RowId};

use super::support::{batch, by_id, commit, keyed, settle};
use crate::{Engine, ErasureProgress, Mode, Op, Options, Step, Transaction};

fn open(machine: &SimEnv) -> Engine {
    let options = Options { seal_rows: 100, ..Options::default() };
    Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap()
}

fn upsert(rows: &[(i64, i64)]) -> Op {
    Op::Insert { table: "t".into(), batch: batch(rows), mode: Mode::Upsert }
}

fn delete(engine: &Engine, ids: &[i64]) -> Lsn {
    let table = engine.root().table("main.t").unwrap().clone();
    let rows: Vec<RowId> = super::support::contents(&table)
        .into_iter()
        .filter(|(_, (id, _))| ids.contains(id))
        .map(|(row, _)| row)
        .collect();
    commit(engine, Op::Delete { table: "t".into(), rows, must_exist: true })
}

/// Files of the table that have this text in them.
fn files_with(machine: &SimEnv, text: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        let bytes = machine.disk.contents(path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    let of_table = |path: &PathBuf| path.starts_with("/db/tables");
    machine.disk.files().into_iter().filter(of_table).filter(has).collect()
}

/// Writes rows to a table that is sealed, merged, and has a history and a head; some rows end in each of them.
fn busy(engine: &Engine) -> Lsn {
    commit(engine, Op::CreateTable { def: keyed("t"), if_absent: false });
    for round in 0..5i64 {
        let rows: Vec<(i64, i64)> = (0..70).map(|id| (1000 * round + id, 770_000 + round)).collect();
        commit(engine, upsert(&rows));
    }
    // These rows replace others, so that the old ones are history once they are merged.
    let rows: Vec<(i64, i64)> = (0..60).map(|id| (id, 880_000)).collect();
    commit(engine, upsert(&rows));
    delete(engine, &[1_001, 2_001, 4_001])
}

fn erase(engine: &Engine, lsn: Lsn) -> ErasureProgress {
    let table = engine.root().table("main.t").unwrap().def().id;
    let erasure = engine.erase(table, lsn).unwrap();
    for _ in 0..50 {
        settle(engine);
        if erasure.state().ended.is_some() {
            return erasure.state();
        }
    }
    panic!("an erasure does not end: {:?}", erasure.state());
}

#[test]
fn neither_segments_nor_history_hold_what_was_deleted() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(3);
    let engine = open(&machine);
    let lsn = busy(&engine);
    for gone in ["1001/770001", "2001/770002", "57/770000"] {
        assert!(!files_with(&machine, gone).is_empty(), "{gone} is where it was");
    }
    let before = by_id(engine.root().table("main.t").unwrap());
    let done = erase(&engine, lsn);
    done.ended.clone().unwrap().unwrap();
    assert!(done.segments_rewritten > 0 && done.segments_removed > 0 && done.bytes_removed > 0, "{done:?}");
    assert_eq!((done.segments_held, done.segments_damaged), (0, 0));
    for gone in ["1001/770001", "2001/770002", "4001/770004", "57/770000", "59/770000"] {
        assert_eq!(files_with(&machine, gone), [] as [PathBuf; 0], "{gone}");
    }
    let table = engine.root().table("main.t").unwrap().clone();
    assert_eq!(by_id(&table), before);
    assert!(!files_with(&machine, "1002/770001").is_empty(), "what lives stays");
    assert_eq!((table.head_deleted(), table.segments_with_deletes().count(), table.past_bytes()), (0, 0, 0));
    // The past begins with the erasure, and a restart knows that.
    let past = |engine: &Engine| {
        let view = engine.view(&Principal::local()).unwrap();
        view.at(Lsn(lsn.0 - 1)).and_then(|then| then.table("t")).unwrap_err().kind()
    };
    assert_eq!(past(&engine), Kind::NotFound);
    drop(engine);
    let engine = open(&machine);
    settle(&engine);
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), before);
    assert_eq!(past(&engine), Kind::NotFound);
    // A second erasure finds nothing to do.
    let again = erase(&engine, lsn);
    again.ended.clone().unwrap().unwrap();
    assert_eq!((again.segments_rewritten, again.history_segments), (0, 0), "{again:?}");
}

/// A merge that began between an erasure's first piece and its commit retained rows that were to be dropped.
#[test]
fn nothing_is_merged_while_the_past_is_being_forgotten() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(5);
    let engine = open(&machine);
    commit(&engine, Op::CreateTable { def: keyed("t"), if_absent: false });
    let rows: Vec<(i64, i64)> = (0..200).map(|id| (id, 770_000 + id)).collect();
    commit(&engine, upsert(&rows));
    settle(&engine);
    // These deletes make a merge due as well, once background work looks.
    let table = engine.root().table("main.t").unwrap().def().id;
    let rows =
        super::support::contents(engine.root().table("main.t").unwrap()).into_keys().take(120).collect();
    let op = Op::Delete { table: "t".into(), rows, must_exist: true };
    engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
        result.unwrap();
    });
    while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    let lsn = engine.root().lsn();
    let erasure = engine.erase(table, lsn).unwrap();
    for _ in 0..50 {
        while engine.step(Step::Background) {}
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    }
    settle(&engine);
    erasure.state().ended.unwrap().unwrap();
    for id in 0..120 {
        let text = format!("{id}/{}", 770_000 + id);
        assert_eq!(files_with(&machine, &text), [] as [PathBuf; 0], "{text}");
    }
}

#[test]
fn files_that_a_reader_holds_are_waited_for() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(4);
    let engine = open(&machine);
    let lsn = busy(&engine);
    let held = engine.root();
    let table = held.table("main.t").unwrap().def().id;
    let erasure = engine.erase(table, lsn).unwrap();
    for _ in 0..5 {
        settle(&engine);
        machine.clock.advance(Duration::from_secs(2));
    }
    let state = erasure.state();
    assert!(state.ended.is_none() && state.segments_held > 0, "{state:?}");
    assert!(!files_with(&machine, "1001/770001").is_empty());
    assert!(std::sync::Arc::ptr_eq(&erasure, &engine.erase(table, lsn).unwrap()), "it is joined");
    drop(held);
    assert!(erase(&engine, lsn).ended.unwrap().is_ok());
    assert_eq!(files_with(&machine, "1001/770001"), [] as [PathBuf; 0]);
}

/// Each erasure that went further replaced the running one and began at its start: with frequent requests none ended.
#[test]
fn whoever_asks_for_more_waits_for_what_is_under_way() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(7);
    let engine = open(&machine);
    let lsn = busy(&engine);
    let held = engine.root();
    let table = held.table("main.t").unwrap().def().id;
    let first = engine.erase(table, lsn).unwrap();
    settle(&engine);
    let later = delete(&engine, &[2_002]);
    let second = engine.erase(table, later).unwrap();
    let last = delete(&engine, &[2_003]);
    let third = engine.erase(table, last).unwrap();
    assert!(
        std::sync::Arc::ptr_eq(&third, &engine.erase(table, later).unwrap()),
        "the one that waits is joined"
    );
    settle(&engine);
    assert!(first.state().ended.is_none() && third.state().segments_rewritten == 0);
    drop(held);
    for _ in 0..20 {
        machine.clock.advance(Duration::from_secs(2));
        settle(&engine);
    }
    for erasure in [&first, &second, &third] {
        assert!(erasure.state().ended.unwrap().is_ok());
    }
    for gone in ["1001/770001", "2002/770002", "2003/770002"] {
        assert_eq!(files_with(&machine, gone), [] as [PathBuf; 0], "{gone}");
    }
}

#[test]
fn an_erasure_ends_with_its_table_and_with_the_database() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(5);
    let engine = open(&machine);
    let lsn = busy(&engine);
    let held = engine.root();
    let table = held.table("main.t").unwrap().def().id;
    let erasure = engine.erase(table, lsn).unwrap();
    commit(&engine, Op::DropTable { table: "t".into(), if_exists: false });
    settle(&engine);
    assert_eq!(erasure.state().ended.unwrap().unwrap_err().kind(), Kind::NotFound);
    let erasure = engine.erase(table, lsn).unwrap();
    engine.close().unwrap();
    assert!(erasure.state().ended.unwrap().is_err());
    assert_eq!(engine.erase(table, lsn).unwrap_err().kind(), Kind::Closed);
}

/// The power fails at some call of the disk. The repeated erasure ends as if nothing had happened.
#[test]
fn an_erasure_that_was_cut_short_is_done_when_it_is_asked_again() {
    let _limit = testkit::limit(600);
    let begin = || {
        let machine = SimEnv::new(6);
        let engine = open(&machine);
        let lsn = busy(&engine);
        (machine, engine, lsn)
    };
    let (machine, engine, lsn) = begin();
    let first = machine.disk.calls();
    let rows = by_id(engine.root().table("main.t").unwrap());
    erase(&engine, lsn);
    let calls = machine.disk.calls();
    assert!(calls > first + 20, "{}", calls - first);
    for call in (first + 1..=calls).step_by(3) {
        let (machine, engine, lsn) = begin();
        machine.disk.crash_at(call);
        let table = engine.root().table("main.t").unwrap().def().id;
        let _ = engine.erase(table, lsn);
        // A machine without power does nothing more, however often it is stepped.
        for _ in 0..300 {
            let _ = engine.step(Step::Commit) | engine.step(Step::Sync) | engine.step(Step::Background);
        }
        drop(engine);
        let machine = machine.crash(&mut sim::Rng::new(call));
        let engine = open(&machine);
        settle(&engine);
        assert_eq!(by_id(engine.root().table("main.t").unwrap()), rows, "call {call}");
        erase(&engine, lsn).ended.unwrap().unwrap();
        assert_eq!(by_id(engine.root().table("main.t").unwrap()), rows, "call {call}");
        for gone in ["1001/770001", "57/770000"] {
            assert_eq!(files_with(&machine, gone), [] as [PathBuf; 0], "call {call}");
        }
    }
}

/// An erasure did not ask a dropped index about its files, and did not wait for their removal.
#[test]
fn what_was_derived_once_is_waited_for_until_its_files_are_removed() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(6);
    let engine = open(&machine);
    engine.register(std::sync::Arc::new(super::derived::Listing::default())).unwrap();
    let lsn = busy(&engine);
    machine.clock.advance(Duration::from_secs(1));
    settle(&engine);
    let held = engine.root();
    let table = held.table("main.t").unwrap().def().id;
    assert!(held.derived("listing", table).is_some());
    let rename = types::AlterAction::RenameTable { to: "other".into() };
    commit(&engine, Op::AlterTable { table: "t".into(), changes: vec![rename] });
    // A listing does not follow the table under that name, which is checked when its indexes change.
    let index =
        types::NewIndex { kind: "column".into(), columns: vec!["v".into()], ..types::NewIndex::default() };
    commit(&engine, Op::AlterIndexes { table: "other".into(), drop: Vec::new(), add: vec![index] });
    let dir = format!("/db/derived/listing/{table}");
    let files = || machine.disk.files().into_iter().filter(|path| path.starts_with(&dir)).count();
    assert!(files() > 0, "a reader holds them");
    // The segments are released; the position still holds the files.
    let position = held.derived("listing", table).unwrap().clone();
    drop(held);
    let erasure = engine.erase(table, lsn).unwrap();
    let work = || {
        for _ in 0..10 {
            settle(&engine);
            machine.clock.advance(Duration::from_secs(2));
        }
        erasure.state()
    };
    let state = work();
    assert!(state.ended.is_none() && state.segments_held == 0, "{state:?}");
    assert_eq!(state.indexes_left, ["listing"]);
    drop(position);
    let state = work();
    assert!(state.ended.is_some_and(|outcome| outcome.is_ok()) && state.indexes_left.is_empty());
    assert_eq!(files(), 0);
}

/// Files that could not be removed stayed until the database was opened again, and nothing reported it. Erasures of their
/// table failed for as long.
#[test]
fn what_was_derived_and_cannot_be_removed_is_tried_again() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(7);
    let engine = open(&machine);
    let listing = std::sync::Arc::new(super::derived::Listing::default());
    engine.register(listing.clone()).unwrap();
    let lsn = busy(&engine);
    machine.clock.advance(Duration::from_secs(1));
    settle(&engine);
    let table = engine.root().table("main.t").unwrap().def().id;
    let dir = format!("/db/derived/listing/{table}");
    let files = || machine.disk.files().into_iter().filter(|path| path.starts_with(&dir)).count();
    assert!(files() > 0);
    let stays = |times| listing.stays.store(times, std::sync::atomic::Ordering::Relaxed);
    stays(u64::MAX);
    let rename = types::AlterAction::RenameTable { to: "other".into() };
    commit(&engine, Op::AlterTable { table: "t".into(), changes: vec![rename] });
    let index =
        types::NewIndex { kind: "column".into(), columns: vec!["v".into()], ..types::NewIndex::default() };
    commit(&engine, Op::AlterIndexes { table: "other".into(), drop: Vec::new(), add: vec![index] });
    let erasure = engine.erase(table, lsn).unwrap();
    let work = |times| {
        for _ in 0..times {
            settle(&engine);
            machine.clock.advance(Duration::from_secs(60));
        }
        erasure.state()
    };
    let state = work(5);
    assert!(state.ended.is_none() && files() > 0, "{state:?}");
    assert_eq!((state.indexes_left, state.error.unwrap().kind()), (vec!["listing"], Kind::Io));
    stays(1);
    let state = work(5);
    assert!(state.ended.is_some_and(|outcome| outcome.is_ok()) && state.error.is_none());
    assert_eq!(files(), 0);

    // Files of a dropped table are retried too, although no erasure waits for them.
    let rename = types::AlterAction::RenameTable { to: "t".into() };
    commit(&engine, Op::AlterTable { table: "other".into(), changes: vec![rename] });
    work(2);
    assert!(files() > 0, "followed again");
    stays(2);
    commit(&engine, Op::DropTable { table: "t".into(), if_exists: false });
    settle(&engine);
    assert!(files() > 0);
    work(4);
    assert_eq!(files(), 0);
}

/// A thread that looked for work while another one tried reset the back-off of that one to the shortest wait, which then
/// came once a second for ever.
#[test]
fn what_cannot_be_removed_is_tried_less_and_less_often_whoever_looks_for_work_meanwhile() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(7);
    let engine = std::sync::Arc::new(open(&machine));
    let listing = std::sync::Arc::new(super::derived::Listing::default());
    engine.register(listing.clone()).unwrap();
    busy(&engine);
    machine.clock.advance(Duration::from_secs(1));
    settle(&engine);
    let another = std::sync::Arc::downgrade(&engine);
    let look = move || {
        let _ = another.upgrade().map(|engine| engine.step(crate::Step::Background));
    };
    assert!(listing.beside.set(Box::new(look)).is_ok());
    listing.stays.store(1_000, std::sync::atomic::Ordering::Relaxed);
    commit(&engine, Op::DropTable { table: "t".into(), if_exists: false });
    for _ in 0..120 {
        settle(&engine);
        machine.clock.advance(Duration::from_secs(1));
    }
    let tries = 1_000 - listing.stays.load(std::sync::atomic::Ordering::Relaxed);
    assert!((5..=9).contains(&tries), "{tries}");
}

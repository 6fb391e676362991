//! A request that is too large, too deep or finds no room is refused before any of it happens, and the next write is served.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch};
use arrow::buffer::{Buffer, OffsetBuffer};
use types::{DataType, Field, Kind, Principal, Result, TableDef, TableId, Value};
use vfs::Env;

use super::support::{batch, keyed, plain};
use crate::{Committed, Engine, Mode, NewColumn, Op, Options, Transaction};

fn commit(engine: &Engine, ops: Vec<Op>) -> Result<Committed> {
    engine.commit(&Principal::local(), Transaction::new(ops))
}

fn create(def: TableDef) -> Op {
    Op::CreateTable { def, if_absent: false }
}

fn insert(table: &str, batch: RecordBatch, mode: Mode) -> Op {
    Op::Insert { table: table.into(), batch, mode }
}

fn one_column(name: &str, array: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter([(name, array)]).unwrap()
}

/// `INT[][]…` beyond the depth that storage reads back was accepted: after a clean close the database did not open again,
/// and after a kill it lost later acknowledged commits.
#[test]
fn a_type_that_could_not_be_read_back_is_refused_and_the_database_opens_again() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let deep = (0..17).fold(DataType::Int32, |data_type, _| {
        let id = types::ColumnId(0);
        DataType::List(Box::new(Field { id, name: "element".into(), data_type, nullable: true }))
    });
    let mut def = plain("deep");
    def.schema.columns[1].data_type = deep.clone();
    assert_eq!(commit(&engine, vec![create(def)]).unwrap_err().kind(), Kind::Invalid);
    commit(&engine, vec![create(plain("t"))]).unwrap();
    let column = NewColumn { name: "deep".into(), data_type: deep, nullable: true, default: None };
    let add = Op::AddColumns { table: "t".into(), columns: vec![column] };
    assert_eq!(commit(&engine, vec![add]).unwrap_err().kind(), Kind::Invalid);
    commit(&engine, vec![insert("t", batch(&[(1, 1)]), Mode::Append)]).unwrap();
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 1);
}

/// Each of these was refused only after the tips had changed, and every later write with it until a restart.
#[test]
fn a_transaction_beyond_a_frame_is_refused_and_the_next_write_is_served() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("a", &DataType::Int64, true, None).unwrap();
    def.add_column("text", &DataType::String, true, Some(Value::String("x".repeat(1_000)))).unwrap();
    def.add_column("bytes", &DataType::Binary, true, None).unwrap();
    commit(&engine, vec![create(def)]).unwrap();

    let served = |what: &str| {
        let one = one_column("a", Arc::new(Int64Array::from(vec![1])));
        commit(&engine, vec![insert("t", one, Mode::Append)]).unwrap_or_else(|e| panic!("after {what}: {e}"));
    };
    let too_large = |what: &str, ops: Vec<Op>| {
        assert_eq!(commit(&engine, ops).unwrap_err().kind(), Kind::TooLarge, "{what}");
        served(what);
    };
    let rows = |count: usize| one_column("a", Arc::new(Int64Array::from(vec![1; count])));
    too_large("defaults", vec![insert("t", rows(300_000), Mode::Append)]);
    let halves = vec![insert("t", rows(150_000), Mode::Append), insert("t", rows(150_000), Mode::Append)];
    too_large("defaults in two operations", halves);
    let blob = BinaryArray::new(
        OffsetBuffer::from_lengths([250 << 20]),
        Buffer::from_vec(vec![0u8; 250 << 20]),
        None,
    );
    too_large("one large value", vec![insert("t", one_column("bytes", Arc::new(blob)), Mode::Append)]);
    let columns = vec![NewColumn {
        name: "large".into(),
        data_type: DataType::String,
        nullable: true,
        default: Some(Value::String("x".repeat(250 << 20))),
    }];
    too_large("a large default", vec![Op::AddColumns { table: "t".into(), columns }]);
    let ids = (1..30_000_000).map(types::RowId).collect();
    too_large("deletes", vec![Op::Delete { table: "t".into(), rows: ids, must_exist: false }]);
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 5);
}

/// Two requests that fit one by one but not together must not meet in one frame, whatever the options say.
#[test]
fn a_group_never_adds_up_beyond_a_frame() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let options = Options { group_bytes_max: u64::MAX, inbox_bytes_max: u64::MAX, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let submit = |ops| {
        engine.submit(&Principal::local(), Transaction::new(ops), |result| assert!(result.is_ok()));
    };
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("bytes", &DataType::Binary, true, None).unwrap();
    submit(vec![create(def)]);
    let all = || while engine.step(crate::Step::Commit) | engine.step(crate::Step::Sync) {};
    all();
    for _ in 0..2 {
        let len = 130 << 20;
        let blob =
            BinaryArray::new(OffsetBuffer::from_lengths([len]), Buffer::from_vec(vec![0u8; len]), None);
        submit(vec![insert("t", one_column("bytes", Arc::new(blob)), Mode::Append)]);
    }
    all();
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 2);
    assert!(engine.status().write_error.is_none());
}

/// The reserved room left out the deletes of an upsert, so a disk that was full just there latched the log.
#[test]
fn an_upsert_that_deletes_much_on_a_full_disk_is_refused_and_let_in_later() {
    let _limit = testkit::limit(120);
    let rows = 6_000;
    let ids = |seed: u64| -> RecordBatch {
        let mut ids: Vec<i32> = (0..rows).collect();
        testkit::Rng::new(seed).shuffle(&mut ids);
        one_column("id", Arc::new(Int32Array::from(ids)))
    };
    let mut refused = 0;
    for free in (0..160u64).map(|step| step << 11) {
        let machine = sim::SimEnv::new(free);
        let options = Options {
            log: commitlog::Options { file_bytes: 8 << 10, spare_files: 0, ..Default::default() },
            ..Options::default()
        };
        let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
        let outcome = Arc::new(std::sync::Mutex::new(None));
        let commit = |ops| {
            let answer = outcome.clone();
            engine.submit(&Principal::local(), Transaction::new(ops), move |result| {
                *answer.lock().unwrap() = Some(result.map_err(|e| e.kind()));
            });
            engine.step(crate::Step::Commit);
            engine.step(crate::Step::Sync);
            outcome.lock().unwrap().take().expect("answered")
        };
        let mut def = TableDef::new(TableId(0), "main.t");
        def.add_column("id", &DataType::Int32, true, None).unwrap();
        def.set_primary_key(&["id".into()]).unwrap();
        commit(vec![create(def)]).unwrap();
        commit(vec![insert("t", ids(1), Mode::Append)]).unwrap();
        machine.disk.set_free_bytes(Some(free));
        match commit(vec![insert("t", ids(2), Mode::Upsert)]) {
            Ok(committed) => assert_eq!(committed.deleted, rows as u64),
            Err(kind) => {
                assert_eq!(kind, Kind::DiskFull, "{free} bytes free");
                refused += 1;
            }
        }
        assert!(engine.status().write_error.is_none(), "{free} bytes free: not latched");
        machine.disk.set_free_bytes(None);
        commit(vec![insert("t", ids(3), Mode::Upsert)]).unwrap();
        assert_eq!(engine.root().table("main.t").unwrap().rows(), rows as u64);
    }
    assert!((1..160).contains(&refused), "the disk was full at some sizes: {refused}");
}

/// Deletes and drops were refused like other writes, and so were the seals that let the log be trimmed: a full disk stayed
/// full.
#[test]
fn a_full_disk_takes_what_makes_room_and_nothing_else() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let log = commitlog::Options { file_bytes: 32 << 10, spare_files: 2, ..Default::default() };
    let options = Options { log, seal_rows: 1_000, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options.clone()).unwrap();
    let settle = |engine: &Engine| {
        use crate::Step::{Background, Commit, Sync};
        while engine.step(Background) | engine.step(Commit) | engine.step(Sync) {}
    };
    let commit = |ops| {
        let outcome = Arc::new(std::sync::Mutex::new(None));
        let answer = outcome.clone();
        engine.submit(&Principal::local(), Transaction::new(ops), move |result| {
            *answer.lock().unwrap() = Some(result.map_err(|e| e.kind()));
        });
        settle(&engine);
        outcome.lock().unwrap().take().expect("answered")
    };
    let rows = |first: i64, count: i64| batch(&(first..first + count).map(|id| (id, id)).collect::<Vec<_>>());
    for table in ["t", "u"] {
        commit(vec![create(keyed(table))]).unwrap();
        for first in (0..5_000).step_by(500) {
            commit(vec![insert(table, rows(first, 500), Mode::Append)]).unwrap();
        }
    }
    machine.disk.set_free_bytes(Some(0));
    let mut next = 10_000;
    // Writes until not even one row finds room in the log's files.
    for count in [100, 10, 1] {
        let refused = loop {
            match commit(vec![insert("u", rows(next, count), Mode::Append)]) {
                Ok(_) => next += count,
                Err(kind) => break kind,
            }
        };
        assert_eq!(refused, Kind::DiskFull);
    }
    let delete = |first: u64| {
        let rows = (first..first + 10).map(types::RowId).collect();
        commit(vec![Op::Delete { table: "u".into(), rows, must_exist: true }])
    };
    assert_eq!(delete(1).unwrap().deleted, 10);
    let more = || commit(vec![insert("u", rows(next, 1), Mode::Append)]);
    assert_eq!(more().unwrap_err(), Kind::DiskFull, "what is kept is for such alone");
    commit(vec![Op::DropTable { table: "t".into(), if_exists: false }]).unwrap();
    assert_eq!(delete(11).unwrap().deleted, 10);
    assert_eq!(more().unwrap_err(), Kind::DiskFull);
    // This is less than a log file takes, and enough for a manifest, which lets the files of the table be removed.
    machine.disk.set_free_bytes(Some(16 << 10));
    for _ in 0..10 {
        machine.clock.advance(std::time::Duration::from_secs(60));
        settle(&engine);
    }
    more().unwrap();
    let count = engine.root().table("main.u").unwrap().rows();
    assert_eq!(count as i64, 5_000 + (next - 10_000) - 20 + 1);
    assert!(engine.status().write_error.is_none());
    drop(engine);
    let engine = Engine::open_stepped(machine.kill().env(), Path::new("db"), options).unwrap();
    assert_eq!(engine.root().table("main.u").unwrap().rows(), count);
    assert!(engine.root().table("main.t").is_none());
}

/// The table was dropped while all its rows were in the head. No file was left that a manifest could have released, so none
/// was written, and the log kept the disk full. The same happened after a clean stop, whose manifest needed none of that
/// log.
#[test]
fn a_disk_that_the_log_alone_fills_has_room_again_once_its_rows_are_gone() {
    let _limit = testkit::limit(120);
    for restart in [false, true] {
        let machine = sim::SimEnv::new(2);
        let log = commitlog::Options { file_bytes: 32 << 10, spare_files: 2, ..Default::default() };
        let options = Options { log, ..Options::default() };
        let mut engine = Engine::open_stepped(machine.env(), Path::new("db"), options.clone()).unwrap();
        let settle = |engine: &Engine| {
            use crate::Step::{Background, Commit, Sync};
            for _ in 0..10 {
                while engine.step(Background) | engine.step(Commit) | engine.step(Sync) {}
                machine.clock.advance(std::time::Duration::from_secs(60));
            }
        };
        let commit = |engine: &Engine, ops| {
            let outcome = Arc::new(std::sync::Mutex::new(None));
            let answer = outcome.clone();
            engine.submit(&Principal::local(), Transaction::new(ops), move |result| {
                *answer.lock().unwrap() = Some(result.map_err(|e| e.kind()));
            });
            settle(engine);
            outcome.lock().unwrap().take().expect("answered")
        };
        let rows = |first: i64| batch(&(first..first + 100).map(|id| (id, id)).collect::<Vec<_>>());
        // Its first row is older than all of the log that fills the disk.
        commit(&engine, vec![create(plain("old")), create(plain("t"))]).unwrap();
        commit(&engine, vec![insert("old", rows(0), Mode::Append)]).unwrap();
        machine.disk.set_free_bytes(Some(256 << 10));
        let refused = (0..).find_map(|i| commit(&engine, vec![insert("t", rows(i), Mode::Append)]).err());
        assert_eq!(refused, Some(Kind::DiskFull));
        commit(&engine, vec![Op::DropTable { table: "t".into(), if_exists: false }]).unwrap();
        if restart {
            engine.close().unwrap();
            drop(engine);
            engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
        }
        settle(&engine);
        for i in 0..20 {
            commit(&engine, vec![insert("old", rows(100 * i), Mode::Append)]).unwrap();
        }
        assert!(engine.status().log.files <= 3, "{:?}", engine.status().log);
    }
}

/// Each opening begins a new log file, and none of them was removed before 64 MiB were written.
#[test]
fn opening_and_closing_again_and_again_leaves_few_log_files() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let log_bytes = || -> u64 {
        let files = std::fs::read_dir(dir.path().join("log")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    let log = commitlog::Options { file_bytes: 64 << 10, spare_files: 1, ..Default::default() };
    let options = || Options { log: log.clone(), log_files_max: 3, ..Options::default() };
    for round in 0..30 {
        let engine = Engine::open(Env::real(), dir.path(), options()).unwrap();
        if round == 0 {
            commit(&engine, vec![create(plain("t"))]).unwrap();
        }
        commit(&engine, vec![insert("t", batch(&[(round, round)]), Mode::Append)]).unwrap();
        engine.close().unwrap();
        assert!(log_bytes() <= 8 * (64 << 10), "{} bytes of log after {} rounds", log_bytes(), round + 1);
    }
    let engine = Engine::open(Env::real(), dir.path(), options()).unwrap();
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 30);
}

/// A restart gave the file that is kept for requests that make room to any request.
#[test]
fn a_restart_on_a_full_disk_keeps_what_is_left_for_what_makes_room() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(2);
    let log = commitlog::Options { file_bytes: 32 << 10, spare_files: 2, ..Default::default() };
    let options = Options { log, ..Options::default() };
    let commit = |engine: &Engine, ops| {
        use crate::Step::{Background, Commit, Sync};
        let outcome = Arc::new(std::sync::Mutex::new(None));
        let answer = outcome.clone();
        engine.submit(&Principal::local(), Transaction::new(ops), move |result| {
            *answer.lock().unwrap() = Some(result.map_err(|e| e.kind()));
        });
        while engine.step(Commit) | engine.step(Sync) | engine.step(Background) {}
        outcome.lock().unwrap().take().expect("answered")
    };
    let more = |engine: &Engine, id: i64| commit(engine, vec![insert("t", batch(&[(id, id)]), Mode::Append)]);
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options.clone()).unwrap();
    commit(&engine, vec![create(keyed("t"))]).unwrap();
    let mut next = 0;
    more(&engine, next).unwrap();
    machine.disk.set_free_bytes(Some(0));
    let refused = loop {
        next += 1;
        if let Err(kind) = more(&engine, next) {
            break kind;
        }
    };
    assert_eq!(refused, Kind::DiskFull);
    drop(engine);
    let machine = machine.kill();
    machine.disk.set_free_bytes(Some(0));
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    assert_eq!(engine.root().table("main.t").unwrap().rows() as i64, next);
    assert_eq!(more(&engine, next).unwrap_err(), Kind::DiskFull);
    let delete = |id: u64| Op::Delete { table: "t".into(), rows: vec![types::RowId(id)], must_exist: true };
    for id in 1..100 {
        assert_eq!(commit(&engine, vec![delete(id)]).unwrap().deleted, 1);
    }
    machine.disk.set_free_bytes(None);
    more(&engine, next).unwrap();
    assert_eq!(engine.root().table("main.t").unwrap().rows() as i64, next - 99 + 1);
}

/// While a manifest was being written on a slow disk, the other thread sealed the rows that came meanwhile, over and over:
/// thousands of segments of a few rows.
#[test]
fn a_long_log_that_no_head_holds_back_seals_nothing() {
    use crate::Step::{Background, Commit, Sync};
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(3);
    let log = commitlog::Options { file_bytes: 8 << 10, ..Default::default() };
    let options = Options { log, log_files_max: 2, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let more = |ops| {
        engine.submit(&Principal::local(), Transaction::new(ops), |result| {
            result.unwrap();
        });
        while engine.step(Commit) | engine.step(Sync) {}
    };
    more(vec![create(plain("t"))]);
    let mut id = 0;
    let mut row = || {
        id += 1;
        more(vec![insert("t", batch(&[(id, id)]), Mode::Append)]);
    };
    while engine.status().log.files <= 2 {
        row();
    }
    let (before, manifests) = (engine.status().seals, engine.status().manifests);
    // Each piece of background work meets rows that came after the one before it.
    let mut pieces = 0;
    while engine.status().log.files > 2 {
        assert!(engine.step(Background), "the log stays long");
        row();
        pieces += 1;
        assert!(pieces < 20, "{:?}", engine.status().log);
    }
    let status = engine.status();
    assert_eq!((status.seals - before, status.manifests > manifests), (1, true), "{pieces} pieces of work");
}

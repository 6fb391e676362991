//! TTL on a simulated machine: the deleted rows, the time of their deletion, and a crash in between.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use sim::{Rng, SimEnv};
use types::{AlterAction, DataType, Principal, RowId, TableDef, TableId, Value};

use crate::{Engine, Mode, Op, Options, Step, Transaction};

const DIR: &str = "db";
const SECOND: i64 = 1_000_000;

fn options() -> Options {
    Options {
        log: commitlog::Options { file_bytes: 32 << 10, spare_files: 1, ..Default::default() },
        seal_rows: 50,
        log_files_max: 3,
        ..Options::default()
    }
}

/// Creates `k (id int64 primary key, at timestamp)` with its time in `at`, and `p (id int64)` with the time of arrival.
fn create(engine: &Engine) {
    let mut keyed = TableDef::new(TableId(0), "main.k");
    keyed.add_column("id", &DataType::Int64, true, None).unwrap();
    let at = keyed.add_column("at", &DataType::Timestamp, true, None).unwrap();
    keyed.set_primary_key(&["id".into()]).unwrap();
    (keyed.time, keyed.options.ttl) = (Some(at), Some(100 * SECOND));
    let mut plain = TableDef::new(TableId(0), "main.p");
    plain.add_column("id", &DataType::Int64, true, None).unwrap();
    plain.options.ttl = Some(30 * SECOND);
    let ops = [keyed, plain].map(|def| Op::CreateTable { def, if_absent: false }).to_vec();
    submit(engine, ops);
    settle(engine);
}

fn submit(engine: &Engine, ops: Vec<Op>) {
    engine.submit(&Principal::local(), Transaction::new(ops), |result| assert!(result.is_ok(), "{result:?}"));
}

fn commit(engine: &Engine) {
    engine.step(Step::Commit);
    engine.step(Step::Sync);
}

/// Does everything that is due now.
fn settle(engine: &Engine) {
    commit(engine);
    while engine.step(Step::Background) {
        commit(engine);
    }
}

/// The times by which rows expire, by row id.
fn live(engine: &Engine, table: &str) -> BTreeMap<RowId, Option<i64>> {
    let root = engine.root();
    let snapshot = root.table(table).unwrap();
    let time = if table == "main.k" { "at" } else { "_time" };
    let mut found = BTreeMap::new();
    for piece in snapshot.pieces() {
        let batch = piece.read(snapshot.all_columns()).unwrap();
        for row in 0..batch.num_rows() {
            let Value::Int64(id) = Value::from_array(batch.column(0), &DataType::Int64, row) else {
                panic!()
            };
            let times = batch.column_by_name(time).unwrap();
            let time = match Value::from_array(times, &DataType::Timestamp, row) {
                Value::Timestamp(time) => Some(time),
                _ => None,
            };
            found.insert(RowId(id as u64), time);
        }
    }
    found
}

fn write(engine: &Engine, rng: &mut Rng, now: i64) {
    let count = rng.range(1..30) as usize;
    let ids: Vec<Value> =
        (0..count).map(|n| Value::Int64((rng.below(500) * 100) as i64 + n as i64)).collect();
    let time = |rng: &mut Rng| match rng.below(8) {
        0 => Value::Null,
        _ => Value::Timestamp(now - rng.below(200) as i64 * SECOND + 50 * SECOND),
    };
    let times: Vec<Value> = (0..count).map(|_| time(rng)).collect();
    let ids: ArrayRef = Value::to_array(&ids, &DataType::Int64).unwrap();
    let times: ArrayRef = Value::to_array(&times, &DataType::Timestamp).unwrap();
    let keyed = RecordBatch::try_from_iter([("id", ids.clone()), ("at", times)]).unwrap();
    let plain = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    submit(
        engine,
        vec![
            Op::Insert { table: "k".into(), batch: keyed, mode: Mode::Upsert },
            Op::Insert { table: "p".into(), batch: plain, mode: Mode::Append },
        ],
    );
}

/// Rows never go before their time, not even in a crash; old rows go soon after it; the change feed shows the deletes.
#[test]
fn old_rows_are_deleted_and_no_others() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(20, |seed| {
        let mut rng = Rng::new(seed);
        let mut machine = SimEnv::new(seed);
        let mut engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        create(&engine);
        let mut gone = 0;
        for _ in 0..60 {
            write(&engine, &mut rng, machine.env().clock.now());
            commit(&engine);
            let before: Vec<_> = ["main.k", "main.p"].map(|table| live(&engine, table)).into();
            let from = engine.root().lsn();
            machine.clock.advance(Duration::from_secs(rng.below(20)));
            if rng.one_in(8) {
                drop(engine);
                machine = machine.crash(&mut rng);
                engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
            }
            settle(&engine);
            // A table waits for its turn at most a tenth of the longest time to live.
            machine.clock.advance(Duration::from_secs(10));
            settle(&engine);
            let now = machine.env().clock.now();
            for (table, before, ttl) in [("main.k", &before[0], 100), ("main.p", &before[1], 30)] {
                let after = live(&engine, table);
                let cutoff = now - ttl * SECOND;
                for (row, time) in before {
                    let is_old = time.is_some_and(|time| time < cutoff);
                    assert_eq!(after.contains_key(row), !is_old, "{table}: row {row} of {time:?} at {now}");
                }
                let deleted: Vec<RowId> =
                    before.keys().filter(|row| !after.contains_key(row)).copied().collect();
                let snapshot = engine.root().table(table).unwrap().clone();
                let last = RowId(snapshot.next_row().0 - 1);
                let checkpoint = table::materializer::Checkpoint { row: last, lsn: from, state: Vec::new() };
                assert_eq!(snapshot.deleted_since(&checkpoint).unwrap(), deleted, "the change feed");
                gone += deleted.len();
            }
        }
        assert!(gone > 100, "{gone} rows expired");
    });
}

/// Blocks that are ordered by time are not in the order of their row ids, on which nothing here may rely.
#[test]
fn old_rows_are_found_where_rows_lie_by_their_time() {
    let _limit = testkit::limit(200);
    let mut rng = Rng::new(3);
    let machine = SimEnv::new(3);
    let log = commitlog::Options { file_bytes: 4 << 20, spare_files: 1, ..Default::default() };
    let options = || Options { log: log.clone(), seal_rows: 36_000, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    create(&engine);
    let start = machine.env().clock.now();
    for part in 0..3i64 {
        let ids: Vec<Value> = (0..12_000).map(|n| Value::Int64(part * 12_000 + n)).collect();
        let time = |rng: &mut Rng| match rng.below(50) {
            0 => Value::Null,
            _ => Value::Timestamp(start + rng.below(2_000) as i64 * SECOND),
        };
        let times: Vec<Value> = (0..12_000).map(|_| time(&mut rng)).collect();
        let columns = [
            ("id", Value::to_array(&ids, &DataType::Int64).unwrap()),
            ("at", Value::to_array(&times, &DataType::Timestamp).unwrap()),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        submit(&engine, vec![Op::Insert { table: "k".into(), batch, mode: Mode::Upsert }]);
        commit(&engine);
    }
    settle(&engine);
    let all = live(&engine, "main.k");
    let by_time = |engine: &Engine| {
        let snapshot = engine.root().table("main.k").unwrap().clone();
        assert_eq!((snapshot.head_rows(), all.len()), (0, 36_000));
        snapshot.segments().all(|segment| !segment.is_in_row_order())
    };
    assert!(by_time(&engine), "its times are in no order");

    drop(engine);
    let machine = machine.crash(&mut rng);
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    assert!(by_time(&engine) && live(&engine, "main.k") == all, "L1");
    machine.clock.advance(Duration::from_secs(600));
    for _ in 0..10 {
        machine.clock.advance(Duration::from_secs(10));
        settle(&engine);
    }
    let cutoff = machine.env().clock.now() - 100 * SECOND;
    let young: BTreeMap<_, _> =
        all.into_iter().filter(|(_, time)| time.is_none_or(|time| time >= cutoff)).collect();
    assert!(young.len() > 15_000 && young.len() < 30_000);
    assert!(live(&engine, "main.k") == young, "the old ones go, and no others");
}

#[test]
fn a_time_to_live_may_come_and_go() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(1);
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    create(&engine);
    let alter = |change| {
        submit(&engine, vec![Op::AlterTable { table: "p".into(), changes: vec![change] }]);
        settle(&engine);
    };
    let mut rng = Rng::new(1);
    alter(AlterAction::SetTtl { to: None });
    write(&engine, &mut rng, machine.env().clock.now());
    commit(&engine);
    let all = live(&engine, "main.p");
    machine.clock.advance(Duration::from_secs(1_000));
    settle(&engine);
    assert_eq!(live(&engine, "main.p"), all, "nothing is too old");
    assert!(live(&engine, "main.k").values().all(Option::is_none), "those without a time stay");
    alter(AlterAction::SetTtl { to: Some(1_001 * SECOND) });
    assert_eq!(live(&engine, "main.p"), all);
    alter(AlterAction::SetTtl { to: Some(999 * SECOND) });
    machine.clock.advance(Duration::from_secs(60));
    settle(&engine);
    assert!(live(&engine, "main.p").is_empty());
}

/// A user who was told that rows are kept for longer, or by another time, keeps them.
#[test]
fn nothing_is_deleted_by_a_time_to_live_that_is_gone() {
    let _limit = testkit::limit(60);
    let changes = [
        AlterAction::SetTtl { to: None },
        AlterAction::SetTtl { to: Some(1_000 * SECOND) },
        AlterAction::SetTime { to: None },
    ];
    for change in changes.map(Some).into_iter().chain([None]) {
        let machine = SimEnv::new(1);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        create(&engine);
        let old = machine.env().clock.now() - 500 * SECOND;
        let ids = Value::to_array(&[Value::Int64(1)], &DataType::Int64).unwrap();
        let times = Value::to_array(&[Value::Timestamp(old)], &DataType::Timestamp).unwrap();
        let batch = RecordBatch::try_from_iter([("id", ids), ("at", times)]).unwrap();
        submit(&engine, vec![Op::Insert { table: "k".into(), batch, mode: Mode::Upsert }]);
        commit(&engine);
        machine.clock.advance(Duration::from_secs(20));
        if let Some(change) = &change {
            submit(&engine, vec![Op::AlterTable { table: "k".into(), changes: vec![change.clone()] }]);
        }
        // The work reads the table as it was before, and reaches the commit thread after the change.
        while engine.step(Step::Background) {}
        commit(&engine);
        let left = engine.root().table("main.k").unwrap().rows();
        assert_eq!(left, u64::from(change.is_some()), "{change:?}");
    }
}

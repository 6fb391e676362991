//! Requests with an idempotency key: committed once, however often and whenever they come.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sim::{Rng, SimEnv};
use types::{Kind, Principal, RowId};
use vfs::Env;

use super::support::{batch, by_id, contents, keyed, plain};
use crate::{Committed, Engine, IdempotentRequest, Mode, Op, Options, Step, Transaction, idempotency};

type Answers = Vec<(u64, types::Result<Committed>)>;

fn key(number: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn request(number: u64, table: &str, rows: &[(i64, i64)], mode: Mode) -> Transaction {
    let note = number.is_multiple_of(2).then(|| format!("note {number}"));
    Transaction::insert(table, batch(rows), mode).remember(IdempotentRequest {
        key: key(number),
        request: number,
        tables: vec![format!("main.{table}")],
        note,
    })
}

/// Submits a request by an open transaction. Its note has the ids of its rows within the transaction.
fn submit_open(
    engine: &Engine,
    number: u64,
    rows: &[(i64, i64)],
    done: impl FnOnce(types::Result<Committed>) + Send + 'static,
) {
    let transaction = engine.begin(&Principal::local()).unwrap();
    let op = Op::Insert { table: "t".into(), batch: batch(rows), mode: Mode::Append };
    let written = transaction.apply(vec![op]).unwrap()[0];
    let note = format!("{} {}", written.first_row.unwrap(), written.last_row.unwrap());
    let remember =
        IdempotentRequest { key: key(number), request: number, tables: Vec::new(), note: Some(note) };
    transaction.submit_commit(Some(remember), |result| done(result.map(|outcome| outcome.committed)));
}

fn is_open(number: u64) -> bool {
    number % 3 == 1
}

fn is_repeated(error: &types::Error) -> bool {
    error.kind() == Kind::Conflict && error.context().iter().any(|(key, _)| *key == idempotency::REPEATED)
}

fn create(engine: &Engine, def: types::TableDef) {
    let op = Op::CreateTable { def, if_absent: false };
    engine.commit(&Principal::local(), Transaction::new(vec![op])).unwrap();
}

#[test]
fn a_request_that_comes_again_is_refused_and_its_answer_is_that_of_the_first_time() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    create(&engine, plain("t"));
    create(&engine, keyed("k"));
    let local = Principal::local();
    assert_eq!(engine.recorded_request(&key(1)).unwrap(), None);

    let first = engine.commit(&local, request(1, "t", &[(1, 1), (2, 2)], Mode::Append)).unwrap();
    let upsert = engine.commit(&local, request(2, "k", &[(5, 1)], Mode::Append)).unwrap();
    let replaced = engine.commit(&local, request(3, "k", &[(5, 2)], Mode::Upsert)).unwrap();
    let check = |engine: &Engine| {
        for (number, committed) in [(1, first), (2, upsert), (3, replaced)] {
            let again = engine.commit(&local, request(number, "t", &[(9, 9)], Mode::Append)).unwrap_err();
            assert!(is_repeated(&again), "{again}");
            let known = engine.recorded_request(&key(number)).unwrap().unwrap();
            assert_eq!(known.committed, committed, "request {number}");
            assert_eq!(known.request, number);
            assert_eq!(known.note, number.is_multiple_of(2).then(|| format!("note {number}")));
        }
        let root = engine.root();
        assert_eq!(by_id(root.table("main.t").unwrap()), [(1, 1), (2, 2)].into());
        assert_eq!(by_id(root.table("main.k").unwrap()), [(5, 2)].into());
        assert_eq!(engine.idempotency_stats().unwrap().requests, 3);
        assert_eq!(engine.idempotency_stats().unwrap().oldest, Some(first.time));
    };
    check(&engine);
    assert_eq!((replaced.count, replaced.deleted), (1, 1));

    // Repeated unchanged, the second request would find its own row in the way, but that is not the error it gets.
    let again = engine.commit(&local, request(2, "k", &[(5, 1)], Mode::Append)).unwrap_err();
    assert!(is_repeated(&again), "{again}");
    // A refused request is not remembered, so that it may be sent again once it fits.
    let refused = engine.commit(&local, request(4, "k", &[(5, 7)], Mode::Append)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Exists);
    assert_eq!(engine.recorded_request(&key(4)).unwrap(), None);

    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    check(&engine);
    engine.commit(&local, request(4, "k", &[(6, 7)], Mode::Append)).unwrap();
}

#[test]
fn of_equal_requests_that_come_at_once_one_is_committed() {
    let _limit = testkit::limit(120);
    const KEYS: u64 = 60;
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    create(&engine, plain("t"));
    let committed: Mutex<BTreeMap<u64, Committed>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for number in 0..KEYS {
                    // The first requests also create the table of requests, all at once.
                    let result = loop {
                        let rows = [(number as i64, 1), (number as i64 + 1_000, 1)];
                        match engine.commit(&Principal::local(), request(number, "t", &rows, Mode::Append)) {
                            Err(e) if e.context().iter().any(|(key, _)| *key == "schema") => {}
                            other => break other,
                        }
                    };
                    match result {
                        Ok(done) => {
                            let before = committed.lock().unwrap().insert(number, done);
                            assert_eq!(before, None, "request {number} was committed twice");
                        }
                        Err(error) => assert!(is_repeated(&error), "{error}"),
                    }
                }
            });
        }
    });
    let committed = committed.into_inner().unwrap();
    assert_eq!(committed.len() as u64, KEYS);
    for (number, done) in committed {
        assert_eq!(engine.recorded_request(&key(number)).unwrap().unwrap().committed, done);
    }
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 2 * KEYS);
}

fn options() -> Options {
    Options {
        log: commitlog::Options { file_bytes: 24 << 10, spare_files: 1, ..Default::default() },
        seal_rows: 30,
        log_files_max: 3,
        ..Options::default()
    }
}

fn settle(engine: &Engine, machine: &SimEnv) {
    for _ in 0..100 {
        let worked = [Step::Commit, Step::Sync, Step::Background].map(|step| engine.step(step));
        if machine.disk.is_dead() || worked == [false; 3] {
            return;
        }
    }
}

/// Clients send each request until they hear that it is committed, across crashes at any call. Whatever a crash took, the
/// rows of a request are there exactly if it is remembered, and once. An answered request stays.
#[test]
fn requests_are_committed_once_across_crashes() {
    let _limit = testkit::limit(600);
    for seed in testkit::seeds(40) {
        let mut rng = Rng::new(seed);
        let mut machine = SimEnv::new(seed);
        let mut answers: BTreeMap<u64, Committed> = BTreeMap::new();
        let mut next = 0;
        for life in 0..6 {
            if life > 0 {
                machine = machine.crash(&mut rng);
            }
            let calls = machine.disk.calls();
            if life < 5 {
                machine.disk.crash_at(calls + rng.range(5..400));
            }
            let Ok(engine) = Engine::open_stepped(machine.env(), Path::new("db"), options()) else {
                continue;
            };
            let answers_so_far = Arc::<Mutex<Answers>>::default();
            let create = Transaction::new(vec![Op::CreateTable { def: plain("t"), if_absent: true }]);
            engine.submit(&Principal::local(), create, |_| ());
            settle(&engine, &machine);
            for _ in 0..40 {
                if machine.disk.is_dead() || engine.root().table("main.t").is_none() {
                    break;
                }
                for _ in 0..rng.range(1..4) {
                    // Most requests are new; some are repeated, also from earlier runs of the process.
                    let number = if next > 0 && rng.below(2) == 0 { rng.below(next) } else { next };
                    next = next.max(number + 1);
                    let rows = [(number as i64, seed as i64), (number as i64 + 10_000, 1)];
                    let answers_so_far = answers_so_far.clone();
                    let done = move |result| answers_so_far.lock().unwrap().push((number, result));
                    if is_open(number) {
                        submit_open(&engine, number, &rows, done);
                    } else {
                        engine.submit(&Principal::local(), request(number, "t", &rows, Mode::Append), done);
                    }
                    if rng.below(3) == 0 {
                        engine.step(Step::Commit);
                    }
                }
                settle(&engine, &machine);
            }
            for (number, result) in answers_so_far.lock().unwrap().drain(..) {
                match result {
                    Ok(done) => {
                        assert_eq!(
                            answers.insert(number, done),
                            None,
                            "request {number} was committed twice"
                        );
                    }
                    // It was refused as repeated, by a disk that died, or because another request created the table.
                    Err(error) => assert!(
                        is_repeated(&error) || machine.disk.is_dead() || error.kind() == Kind::Conflict,
                        "{error}"
                    ),
                }
            }
            if machine.disk.is_dead() {
                continue;
            }
            check(&engine, next, &answers);
        }
        let engine = Engine::open_stepped(machine.crash(&mut rng).env(), Path::new("db"), options()).unwrap();
        check(&engine, next, &answers);
        assert!(next > 5, "seed {seed} sent next to nothing");
    }
}

fn check(engine: &Engine, next: u64, answers: &BTreeMap<u64, Committed>) {
    let root = engine.root();
    let Some(table) = root.table("main.t") else { return assert!(answers.is_empty()) };
    let rows = contents(table);
    for number in 0..next {
        let of_request: Vec<RowId> = rows
            .iter()
            .filter(|(_, (id, _))| *id == number as i64 || *id == number as i64 + 10_000)
            .map(|(row, _)| *row)
            .collect();
        match engine.recorded_request(&key(number)).unwrap() {
            None => {
                assert_eq!(of_request, [], "rows of request {number}, which is not remembered");
                assert_eq!(answers.get(&number), None, "request {number} was acknowledged and is forgotten");
            }
            Some(known) => {
                assert_eq!(of_request.len(), 2, "request {number}");
                assert_eq!(known.committed.first_row, of_request.first().copied());
                assert_eq!(known.committed.last_row, of_request.last().copied());
                assert_eq!(table.lsn_of(of_request[0]).unwrap(), Some(known.committed.lsn));
                if let Some(answer) = answers.get(&number) {
                    assert_eq!(known.committed, *answer);
                }
                if is_open(number) {
                    let (outcome, note) = known.outcome().unwrap();
                    let own: Vec<u64> = note.split(' ').map(|id| id.parse().unwrap()).collect();
                    let rows = outcome.rows(table.def().id, RowId(own[0]), RowId(own[1]));
                    assert_eq!(rows, Some((of_request[0], of_request[1])), "request {number}");
                }
            }
        }
    }
}

/// The transaction writes to several tables; one of them has no row left in the end.
#[test]
fn a_transaction_that_was_open_is_remembered_with_where_its_rows_lie() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    for def in [plain("t"), keyed("k"), keyed("l")] {
        create(&engine, def);
    }
    let local = Principal::local();
    let remember = |number| {
        let note = Some("a\nb".into());
        Some(IdempotentRequest { key: key(number), request: number, tables: Vec::new(), note })
    };
    let insert = |table: &str, rows: &[(i64, i64)]| Op::Insert {
        table: table.into(),
        batch: batch(rows),
        mode: Mode::Append,
    };
    let commit = |transaction: &crate::OpenTransaction, number| {
        let (sender, receiver) = std::sync::mpsc::channel();
        transaction.submit_commit(remember(number), move |result| sender.send(result).unwrap());
        receiver.recv().unwrap()
    };
    engine.commit(&local, Transaction::new(vec![insert("t", &[(0, 0), (1, 0)])])).unwrap();

    let transaction = engine.begin(&local).unwrap();
    let ops = vec![
        insert("t", &[(2, 1), (3, 1), (4, 1)]),
        insert("k", &[(2, 1)]),
        insert("l", &[(9, 9)]),
        Op::DeleteKeys { table: "l".into(), keys: vec![vec![types::Value::Int64(9)]] },
    ];
    let written = transaction.apply(ops).unwrap();
    // Rows of another writer are placed before them.
    engine.commit(&local, Transaction::new(vec![insert("t", &[(5, 0), (6, 0)])])).unwrap();
    let twin = engine.begin(&local).unwrap();
    twin.apply(vec![insert("t", &[(2, 1)])]).unwrap();
    let first = commit(&transaction, 1).unwrap();
    assert!(is_repeated(&commit(&twin, 1).unwrap_err()));
    // A transaction without changes is not remembered.
    let idle = engine.begin(&local).unwrap();
    commit(&idle, 2).unwrap();
    assert_eq!(engine.recorded_request(&key(2)).unwrap(), None);

    let check = |engine: &Engine| {
        let known = engine.recorded_request(&key(1)).unwrap().unwrap();
        let (outcome, note) = known.outcome().unwrap();
        assert_eq!((outcome.committed, note), (first.committed, "a\nb"));
        let rows = |written: &crate::WrittenRows| {
            let (of, last) = (written.first_row.unwrap(), written.last_row.unwrap());
            let now = outcome.rows(written.table, of, last);
            assert_eq!(now, first.rows(written.table, of, last));
            now
        };
        assert_eq!(rows(&written[0]), Some((RowId(5), RowId(7))));
        assert_eq!(rows(&written[1]), Some((RowId(1), RowId(1))));
        assert_eq!(rows(&written[2]), None);
        assert_eq!(by_id(engine.root().table("main.k").unwrap()), [(2, 1)].into());
        assert_eq!(engine.root().table("main.t").unwrap().rows(), 7);
    };
    check(&engine);
    engine.close().unwrap();
    drop(engine);
    check(&Engine::open(Env::real(), dir.path(), Options::default()).unwrap());
}

#[test]
fn requests_are_forgotten_after_their_time_and_beyond_their_number_oldest_first() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(1);
    let limits = Options { remember_for: Duration::from_secs(600), remember_max: 10, ..options() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), limits).unwrap();
    let submit = |transaction| {
        engine.submit(&Principal::local(), transaction, |result| assert!(result.is_ok(), "{result:?}"))
    };
    submit(Transaction::new(vec![Op::CreateTable { def: plain("t"), if_absent: true }]));
    settle(&engine, &machine);
    for number in 0..25 {
        submit(request(number, "t", &[(number as i64, 0)], Mode::Append));
        settle(&engine, &machine);
        machine.clock.advance(Duration::from_secs(20));
    }
    // Old requests are looked for once a minute.
    machine.clock.advance(Duration::from_secs(60));
    settle(&engine, &machine);
    let kept =
        || (0..25).filter(|n| engine.recorded_request(&key(*n)).unwrap().is_some()).collect::<Vec<u64>>();
    assert_eq!(kept(), (15..25).collect::<Vec<_>>());
    // Request 20 came 600 s before.
    machine.clock.advance(Duration::from_secs(600 - 60 - 5 * 20));
    settle(&engine, &machine);
    assert_eq!(kept(), (20..25).collect::<Vec<_>>());
    assert_eq!(engine.idempotency_stats().unwrap().requests, 5);
    // It was forgotten, so it counts as new.
    submit(request(3, "t", &[(3, 0)], Mode::Append));
    settle(&engine, &machine);
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 26);
}

/// The limit holds also while nothing else happens for a minute: there were three times as many.
#[test]
fn there_are_never_many_more_requests_than_are_to_be_remembered() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(1);
    let limits = Options { remember_max: 1_000, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), limits).unwrap();
    super::support::commit(&engine, Op::CreateTable { def: plain("t"), if_absent: true });
    for number in 0..3_000 {
        engine.submit(
            &Principal::local(),
            request(number, "t", &[(number as i64, 0)], Mode::Append),
            |result| assert!(result.is_ok(), "{result:?}"),
        );
        super::support::settle(&engine);
        machine.clock.advance(Duration::from_millis(1));
        // A hundredth more may be there, and those that came just after the last check.
        let requests = engine.idempotency_stats().unwrap().requests;
        assert!(requests <= 1_000 + 10 + 25, "{requests} after {number}");
    }
    // There is no commit for each surplus request.
    let commits = engine.root().lsn().0;
    assert!(commits < 3_000 + 2_000 / 10 + 10, "{commits}");
}

/// The clock plays no part here: the commit that brings too many wakes the background work.
#[test]
fn what_is_too_much_to_remember_goes_at_once() {
    let _limit = testkit::limit(50);
    let dir = testkit::temp_dir("engine");
    let limits = Options { remember_max: 100, ..Options::default() };
    let engine = Engine::open(Env::real(), dir.path(), limits).unwrap();
    create(&engine, plain("t"));
    let started = std::time::Instant::now();
    for number in 0..300 {
        engine.commit(&Principal::local(), request(number, "t", &[(1, 1)], Mode::Append)).unwrap();
    }
    while engine.idempotency_stats().unwrap().requests > 101 {
        std::thread::yield_now();
    }
    assert!(started.elapsed() < Duration::from_secs(40), "as late as the next look without a reason");
}

#[test]
fn a_request_counts_as_long_as_its_table_is_there() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let local = Principal::local();
    let rename = |from: &str, to: &str| {
        let changes = vec![types::AlterAction::RenameTable { to: to.into() }];
        engine
            .commit(&local, Transaction::new(vec![Op::AlterTable { table: from.into(), changes }]))
            .unwrap();
    };
    let drop_table = |table: &str| {
        let op = Op::DropTable { table: table.into(), if_exists: false };
        engine.commit(&local, Transaction::new(vec![op])).unwrap();
    };
    let known = |number| engine.recorded_request(&key(number)).unwrap().map(|known| known.committed);
    // The request itself creates the table, whose id it does not know.
    let make = || {
        let mut first = request(1, "t", &[(1, 1)], Mode::Append);
        first.ops.insert(0, Op::CreateTable { def: plain("t"), if_absent: false });
        engine.commit(&local, first)
    };
    let first = make().unwrap();
    assert_eq!(known(1), Some(first));
    rename("t", "T");
    assert_eq!(known(1), Some(first), "the same table, as any case of its name finds it");
    rename("T", "u");
    assert_eq!(known(1), Some(first), "its rows are there, under another name");
    assert!(is_repeated(&make().unwrap_err()));
    drop_table("u");
    assert_eq!(known(1), None, "there is no such table");
    let second = make().unwrap();
    assert_eq!(known(1), Some(second), "it took the place of the first");
    assert_eq!(engine.idempotency_stats().unwrap().requests, 1);
    let again = engine.commit(&local, request(1, "t", &[(1, 1)], Mode::Append)).unwrap_err();
    assert!(is_repeated(&again), "{again}");
    drop_table("t");
    assert_eq!(known(1), None);
    create(&engine, plain("t"));
    assert_eq!(known(1), None, "another table of its name");
    let third = engine.commit(&local, request(1, "t", &[(1, 1)], Mode::Append)).unwrap();

    // An open transaction counts with the tables that it wrote to, or only deleted from.
    create(&engine, keyed("k"));
    engine.commit(&local, Transaction::insert("k", batch(&[(1, 1), (2, 2)]), Mode::Append)).unwrap();
    let open = |number| {
        let transaction = engine.begin(&local).unwrap();
        let keys = vec![vec![types::Value::Int64(number as i64)]];
        transaction.apply(vec![Op::DeleteKeys { table: "k".into(), keys }]).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let remember = IdempotentRequest { key: key(number), request: 2, tables: Vec::new(), note: None };
        transaction.submit_commit(Some(remember), move |result| sender.send(result).unwrap());
        receiver.recv().unwrap().unwrap().committed
    };
    let deleted = open(2);
    assert_eq!(known(2), Some(deleted));

    // Neither answer is right if one of several tables is gone.
    let mut both = request(4, "t", &[(4, 4)], Mode::Append);
    both.remember.as_mut().unwrap().tables.push("main.k".into());
    engine.commit(&local, both.clone()).unwrap();
    drop_table("k");
    assert_eq!(known(2), None);
    let partly = engine.recorded_request(&key(4)).unwrap_err();
    assert_eq!(partly.kind(), Kind::Conflict);
    assert!(!is_repeated(&partly) && partly.to_string().contains("(table k)"), "{partly}");
    assert!(is_repeated(&engine.commit(&local, both).unwrap_err()));

    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    assert_eq!(engine.recorded_request(&key(1)).unwrap().unwrap().committed, third);
    assert_eq!(engine.recorded_request(&key(2)).unwrap(), None);
}

/// A directory of an earlier version, whose requests did not name their tables.
#[test]
fn requests_that_an_earlier_version_remembered_still_count() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let local = Principal::local();
    create(&engine, plain("t"));
    let mut def = types::TableDef::new(types::TableId(0), idempotency::TABLE);
    let numbers = ["request", "lsn", "first_row", "last_row", "count", "deleted"];
    def.add_column("key", &types::DataType::Binary, false, None).unwrap();
    for name in numbers {
        def.add_column(name, &types::DataType::Int64, name.ends_with("_row"), None).unwrap();
    }
    def.add_column("note", &types::DataType::String, true, None).unwrap();
    def.set_primary_key(&["key".into()]).unwrap();
    def.options.lake = Some(false);
    let mut columns: Vec<(&str, arrow::array::ArrayRef)> =
        vec![("key", Arc::new(arrow::array::BinaryArray::from_vec(vec![&key(1)])))];
    for name in numbers {
        columns.push((name, Arc::new(arrow::array::Int64Array::from(vec![1]))));
    }
    columns.push(("note", Arc::new(arrow::array::StringArray::from(vec![None::<&str>]))));
    let nullable = |name: &str| name.ends_with("_row") || name == "note";
    let row = arrow::array::RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, values)| (name, values, nullable(name))),
    );
    let ops = vec![
        Op::CreateTable { def, if_absent: false },
        Op::Insert { table: idempotency::TABLE.into(), batch: row.unwrap(), mode: Mode::Append },
    ];
    engine.commit(&local, Transaction::new(ops).internal()).unwrap();

    let check = |engine: &Engine| {
        assert_eq!(engine.recorded_request(&key(1)).unwrap().unwrap().request, 1);
        let again = engine.commit(&local, request(1, "t", &[(1, 1)], Mode::Append)).unwrap_err();
        assert!(is_repeated(&again), "{again}");
    };
    check(&engine);
    // They come at once: each of them would add the column.
    std::thread::scope(|scope| {
        for number in 2..8 {
            let (engine, local) = (&engine, &local);
            scope.spawn(move || {
                engine.commit(local, request(number, "t", &[(1, 1)], Mode::Append)).unwrap();
            });
        }
    });
    check(&engine);
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    check(&engine);
    assert_eq!(engine.idempotency_stats().unwrap().requests, 7);
    let op = Op::DropTable { table: "t".into(), if_exists: false };
    engine.commit(&local, Transaction::new(vec![op])).unwrap();
    assert!(engine.recorded_request(&key(1)).unwrap().is_some(), "it is not known which table that was for");
    assert!((2..8).all(|number| engine.recorded_request(&key(number)).unwrap().is_none()));
}

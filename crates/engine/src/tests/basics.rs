use std::path::Path;
use std::time::Duration;

use types::{DataType, Kind, Lsn, Principal, RowId, Scope, TableSet, Value, key};
use vfs::Env;

use super::support::{batch, by_id, contents, keyed, plain};
use crate::{Ack, Engine, Mode, NewColumn, Op, Options, Transaction};

fn open(dir: &Path) -> Engine {
    Engine::open(Env::real(), dir, Options::default()).unwrap()
}

fn commit(engine: &Engine, ops: Vec<Op>) -> crate::Committed {
    engine.commit(&Principal::local(), Transaction::new(ops)).unwrap()
}

fn refused(engine: &Engine, ops: Vec<Op>) -> types::Error {
    engine.commit(&Principal::local(), Transaction::new(ops)).unwrap_err()
}

fn create(def: types::TableDef) -> Op {
    Op::CreateTable { def, if_absent: false }
}

fn insert(table: &str, rows: &[(i64, i64)], mode: Mode) -> Op {
    Op::Insert { table: table.into(), batch: batch(rows), mode }
}

#[test]
fn a_committed_row_is_there_for_the_next_reader_and_after_reopening() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(plain("t"))]);
    let committed = commit(&engine, vec![insert("t", &[(1, 10), (2, 20)], Mode::Append)]);
    assert_eq!((committed.lsn, committed.count), (Lsn(2), 2));
    assert_eq!((committed.first_row, committed.last_row), (Some(RowId(1)), Some(RowId(2))));
    let view = engine.view(&Principal::local()).unwrap();
    assert_eq!(by_id(&view.table("t").unwrap()), [(1, 10), (2, 20)].into());
    engine.close().unwrap();
    assert_eq!(refused(&engine, vec![insert("t", &[(3, 3)], Mode::Append)]).kind(), Kind::Closed);
    drop(engine);

    let engine = open(dir.path());
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, 10), (2, 20)].into());
    let next = commit(&engine, vec![insert("t", &[(3, 30)], Mode::Append)]);
    assert_eq!((next.lsn, next.first_row), (Lsn(3), Some(RowId(3))));
}

#[test]
fn one_directory_serves_one_process_at_a_time() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let first = open(dir.path());
    let second = Engine::open(Env::real(), dir.path(), Options::default()).err().unwrap();
    assert_eq!(second.kind(), Kind::InUse);
    drop(first);
    open(dir.path());
}

#[test]
fn each_insert_mode_treats_a_taken_key_as_it_says() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(keyed("t"))]);
    commit(&engine, vec![insert("t", &[(1, 10), (2, 20)], Mode::Append)]);
    let table = || engine.root().table("main.t").unwrap().clone();

    let error = refused(&engine, vec![insert("t", &[(3, 30), (2, 21)], Mode::Append)]);
    assert_eq!(error.kind(), Kind::Exists);
    assert!(error.message().contains("id = 2"), "{error}");
    assert_eq!(by_id(&table()), [(1, 10), (2, 20)].into(), "refused whole");

    let committed = commit(&engine, vec![insert("t", &[(2, 21), (3, 30), (3, 31)], Mode::Upsert)]);
    assert_eq!((committed.count, committed.deleted), (2, 1));
    assert_eq!(by_id(&table()), [(1, 10), (2, 21), (3, 31)].into(), "the last of equal keys counts");

    let committed = commit(&engine, vec![insert("t", &[(3, 0), (4, 40), (4, 41)], Mode::InsertIfAbsent)]);
    assert_eq!((committed.count, committed.deleted), (1, 0));
    assert_eq!(
        by_id(&table()),
        [(1, 10), (2, 21), (3, 31), (4, 40)].into(),
        "the first of equal keys counts"
    );

    let find = |id: i64| {
        let bytes = key::encode_values(&[DataType::Int64], &[Value::Int64(id)]).unwrap();
        table().find(&bytes).unwrap()
    };
    let current = find(4);
    let swap = |expected, v| vec![insert("t", &[(4, v)], Mode::CompareAndSet(vec![expected]))];
    commit(&engine, swap(current, 42));
    for stale in [current, None] {
        assert_eq!(refused(&engine, swap(stale, 43)).kind(), Kind::Conflict);
    }
    assert_eq!(by_id(&table())[&4], 42);
    assert_eq!(refused(&engine, vec![insert("t", &[(9, 9), (9, 9)], Mode::Append)]).kind(), Kind::Exists);
}

#[test]
fn an_update_replaces_live_versions_only_and_keeps_keys_unique() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(keyed("t")), insert("t", &[(1, 10), (2, 20), (3, 30)], Mode::Append)]);
    let update = |old: &[u64], rows: &[(i64, i64)]| {
        let old = old.iter().copied().map(RowId).collect();
        vec![Op::Update { table: "t".into(), old, batch: batch(rows) }]
    };
    // Keys may be exchanged within one update.
    commit(&engine, update(&[1, 2], &[(2, 10), (1, 20)]));
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, 20), (2, 10), (3, 30)].into());
    assert_eq!(refused(&engine, update(&[1], &[(1, 0)])).kind(), Kind::Conflict, "version 1 is gone");
    assert_eq!(refused(&engine, update(&[3], &[(1, 0)])).kind(), Kind::Exists, "key 1 is taken");
    let gone = Op::Delete { table: "t".into(), rows: vec![RowId(3), RowId(1)], must_exist: true };
    assert_eq!(refused(&engine, vec![gone]).kind(), Kind::Conflict);
    let any = Op::Delete { table: "t".into(), rows: vec![RowId(3), RowId(1)], must_exist: false };
    assert_eq!(commit(&engine, vec![any]).deleted, 1);
    let keys = vec![vec![Value::Int64(1)], vec![Value::Int64(7)]];
    assert_eq!(commit(&engine, vec![Op::DeleteKeys { table: "t".into(), keys }]).deleted, 1);
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(2, 10)].into());
}

#[test]
fn a_transaction_over_several_tables_happens_or_does_not() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(keyed("a")), create(plain("b"))]);
    commit(&engine, vec![insert("a", &[(1, 1)], Mode::Append), insert("b", &[(1, 1)], Mode::Append)]);
    let both = vec![insert("b", &[(2, 2)], Mode::Append), insert("a", &[(1, 2)], Mode::Append)];
    assert_eq!(refused(&engine, both).kind(), Kind::Exists);
    let root = engine.root();
    assert_eq!(by_id(root.table("main.b").unwrap()).len(), 1);
    // One commit creates the table, fills it and adds a column.
    let columns =
        vec![NewColumn { name: "x".into(), data_type: DataType::Bool, nullable: true, default: None }];
    commit(
        &engine,
        vec![
            create(plain("c")),
            insert("c", &[(1, 1)], Mode::Append),
            Op::AddColumns { table: "c".into(), columns },
            insert("c", &[(2, 2)], Mode::Append),
        ],
    );
    drop(root);
    engine.close().unwrap();
    drop(engine);
    let root = open(dir.path()).root();
    let c = root.table("main.c").unwrap();
    assert_eq!(by_id(c), [(1, 1), (2, 2)].into());
    assert_eq!(c.def().schema.columns.len(), 4);
}

#[test]
fn tables_are_found_by_exact_name_else_by_the_only_one_that_differs_by_case() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(plain("Events"))]);
    assert_eq!(refused(&engine, vec![create(plain("events"))]).kind(), Kind::Exists);
    commit(&engine, vec![insert("EVENTS", &[(1, 1)], Mode::Append)]);
    let view = engine.view(&Principal::local()).unwrap();
    assert_eq!(view.table("events").unwrap().rows(), 1);
    let error = view.table("evnts").unwrap_err();
    assert!(error.hint_text().unwrap().contains("`Events`"), "{error}");
    assert_eq!(refused(&engine, vec![insert("../x", &[(1, 1)], Mode::Append)]).kind(), Kind::Invalid);
}

#[test]
fn a_principal_sees_and_writes_its_tables_only() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(plain("mine")), create(plain("theirs"))]);
    let principal =
        Principal { name: "k".into(), scope: Scope::Write, tables: TableSet::Only(vec!["main.mine".into()]) };
    let names: Vec<String> =
        engine.view(&principal).unwrap().tables().iter().map(|t| t.def().name.clone()).collect();
    assert_eq!(names, ["main.mine"]);
    let write = |table: &str, scope| {
        let principal = Principal { scope, ..principal.clone() };
        engine.commit(&principal, Transaction::new(vec![insert(table, &[(1, 1)], Mode::Append)]))
    };
    write("mine", Scope::Write).unwrap();
    assert_eq!(write("theirs", Scope::Write).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(write("mine", Scope::Read).unwrap_err().kind(), Kind::Forbidden);
    let reserved = types::TableDef { name: "polynya.x".into(), ..plain("x") };
    assert_eq!(refused(&engine, vec![create(reserved.clone())]).kind(), Kind::Forbidden);
    engine.commit(&Principal::local(), Transaction::new(vec![create(reserved)]).internal()).unwrap();
}

fn named(full_name: &str) -> types::TableDef {
    types::TableDef { name: full_name.into(), ..keyed("x") }
}

/// `DELETE /v1/tables/POLYNYA.catalog` dropped the table: the reserved namespace was compared exactly, and the table was
/// then found regardless of case.
#[test]
fn nothing_reserved_is_written_in_any_spelling_of_its_name() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    let own = vec![create(named("polynya.catalog")), insert("polynya.catalog", &[(1, 1)], Mode::Append)];
    engine.commit(&Principal::local(), Transaction::new(own).internal()).unwrap();
    commit(&engine, vec![create(keyed("t"))]);
    let before = engine.root().lsn();
    let view = |name: &str| types::ViewDef {
        name: name.into(),
        query: "SELECT 1 AS a".into(),
        columns: vec![types::ViewColumn { from: "a".into(), name: "a".into() }],
        reads: Vec::new(),
    };
    let renamed = |name: &str| types::AlterAction::RenameTable { to: name.into() };
    for name in ["polynya.catalog", "POLYNYA.catalog", "Polynya.CATALOG", "pOlYnYa.new"] {
        let table = || name.to_owned();
        let ops = [
            create(named(name)),
            Op::CreateTable { def: named(name), if_absent: true },
            Op::DropTable { table: table(), if_exists: false },
            Op::DropTable { table: table(), if_exists: true },
            Op::AddColumns { table: table(), columns: Vec::new() },
            Op::AlterTable { table: table(), changes: vec![renamed("main.free")] },
            Op::AlterTable { table: "t".into(), changes: vec![renamed(name)] },
            Op::AlterIndexes { table: table(), drop: Vec::new(), add: Vec::new() },
            insert(name, &[(2, 2)], Mode::Append),
            insert(name, &[(1, 2)], Mode::Upsert),
            Op::Update { table: table(), old: vec![RowId(1)], batch: batch(&[(1, 3)]) },
            Op::Delete { table: table(), rows: vec![RowId(1)], must_exist: false },
            Op::DeleteKeys { table: table(), keys: vec![vec![Value::Int64(1)]] },
            Op::PutView { view: view(name), replace: true },
            Op::DropView { name: table(), if_exists: true },
        ];
        for op in ops {
            let what = format!("{op:?}");
            assert_eq!(refused(&engine, vec![op]).kind(), Kind::Forbidden, "{what}");
        }
    }
    assert_eq!(engine.root().lsn(), before);
    assert_eq!(by_id(engine.root().table("polynya.catalog").unwrap()), [(1, 1)].into());
}

/// Earlier versions let anybody create a table `POLYNYA.idempotency`. It kept every request with a key from being
/// remembered.
#[test]
fn who_sees_all_tables_drops_one_that_stands_in_the_reserved_namespace_by_mistake() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    let made = vec![create(named("POLYNYA.idempotency")), create(named("polynya.catalog"))];
    engine.commit(&Principal::local(), Transaction::new(made).internal()).unwrap();
    let drop = |table: &str| Op::DropTable { table: table.into(), if_exists: false };
    let some = Principal { tables: TableSet::Only(vec!["POLYNYA.*".into()]), ..Principal::local() };
    let error = engine.commit(&some, Transaction::new(vec![drop("POLYNYA.idempotency")])).unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden);
    assert_eq!(refused(&engine, vec![drop("POLYNYA.catalog")]).kind(), Kind::Forbidden);
    commit(&engine, vec![drop("polynya.idempotency")]);
    assert!(engine.root().table("POLYNYA.idempotency").is_none());
}

/// Names treat namespaces that differ by case as one: a key for one namespace learned of a table in another.
#[test]
fn a_name_that_hidden_things_have_in_another_case_is_refused_like_any_that_is_hidden() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(named("LAB.secret"))]);
    let lab =
        Principal { name: "k".into(), scope: Scope::Write, tables: TableSet::Only(vec!["lab.*".into()]) };
    let make = |name: &str| engine.commit(&lab, Transaction::new(vec![create(named(name))]));
    let (taken, hidden) = (make("lab.secret").unwrap_err(), make("other.secret").unwrap_err());
    assert_eq!(taken.message(), hidden.message().replace("other", "lab"));
    assert_eq!((taken.kind(), hidden.kind()), (Kind::Forbidden, Kind::Forbidden));
    make("lab.open").unwrap();
}

#[test]
fn rows_acknowledged_from_memory_become_visible_once_durable() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(plain("t"))]);
    let lazy = Transaction::new(vec![insert("t", &[(1, 1)], Mode::Append)]).ack(Ack::Memory);
    assert_eq!(engine.commit(&Principal::local(), lazy).unwrap().lsn, Lsn(0));
    // A durable commit after it in the queue carries it along.
    commit(&engine, vec![insert("t", &[(2, 2)], Mode::Append)]);
    assert_eq!(by_id(engine.root().table("main.t").unwrap()).len(), 2);
}

#[test]
fn heads_are_sealed_segments_merged_and_old_files_removed() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let options = Options {
        seal_bytes: 64 << 10,
        log: commitlog::Options { file_bytes: 256 << 10, ..Default::default() },
        ..Options::default()
    };
    let engine = Engine::open(Env::real(), dir.path(), options.clone()).unwrap();
    commit(&engine, vec![create(keyed("t"))]);
    let mut expected = std::collections::BTreeMap::new();
    for round in 0..400i64 {
        let rows: Vec<(i64, i64)> = (0..100).map(|i| ((round * 37 + i) % 5_000, round)).collect();
        expected.extend(rows.iter().copied());
        commit(&engine, vec![insert("t", &rows, Mode::Upsert)]);
    }
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), expected);
    let started = std::time::Instant::now();
    let are_few = |status: &crate::Status| status.removed_segments == 0 || status.seals <= 3;
    while are_few(&engine.status()) {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", engine.status());
        commit(&engine, vec![insert("t", &[(1, 1)], Mode::Upsert)]);
        expected.insert(1, 1);
    }
    let status = engine.status();
    assert!(status.seals > 3 && status.compactions > 0 && status.manifests > 0, "{status:?}");
    assert_eq!(status.background_errors, 0);
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), expected);
}

#[test]
fn a_dropped_table_is_gone_and_its_name_free() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(plain("t")), insert("t", &[(1, 1)], Mode::Append)]);
    let held = engine.root();
    commit(&engine, vec![Op::DropTable { table: "t".into(), if_exists: false }]);
    assert!(engine.root().table("main.t").is_none());
    assert_eq!(contents(held.table("main.t").unwrap()).len(), 1, "a held root keeps it (S1)");
    commit(&engine, vec![Op::DropTable { table: "t".into(), if_exists: true }]);
    assert_eq!(
        refused(&engine, vec![Op::DropTable { table: "t".into(), if_exists: false }]).kind(),
        Kind::NotFound
    );
    commit(&engine, vec![create(keyed("t")), insert("t", &[(5, 5)], Mode::Append)]);
    drop((engine, held));
    assert_eq!(by_id(open(dir.path()).root().table("main.t").unwrap()), [(5, 5)].into());
}

#[test]
fn a_full_disk_refuses_writes_and_lets_them_in_again() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(1);
    let options = Options {
        log: commitlog::Options { file_bytes: 32 << 10, spare_files: 1, ..Default::default() },
        ..Options::default()
    };
    let engine = Engine::open(machine.env(), Path::new("db"), options).unwrap();
    commit(&engine, vec![create(keyed("t"))]);
    machine.disk.set_free_bytes(Some(0));
    let mut acknowledged = 0;
    let error = loop {
        let op = insert("t", &[(acknowledged, 1)], Mode::Append);
        match engine.commit(&Principal::local(), Transaction::new(vec![op])) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::DiskFull);
    assert_eq!(by_id(engine.root().table("main.t").unwrap()).len() as i64, acknowledged, "reads go on");
    machine.disk.set_free_bytes(None);
    commit(&engine, vec![insert("t", &[(acknowledged, 1)], Mode::Append)]);
    assert_eq!(by_id(engine.root().table("main.t").unwrap()).len() as i64, acknowledged + 1);
}

#[test]
fn a_failed_sync_refuses_writes_for_good_and_reads_go_on() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(1);
    let engine = Engine::open(machine.env(), Path::new("db"), Options::default()).unwrap();
    commit(&engine, vec![create(keyed("t")), insert("t", &[(1, 1)], Mode::Append)]);
    let mut acknowledged = vec![(1, 1)];
    let error = loop {
        // The next sync may be that of a file that is made ahead; its failure does no harm.
        machine.disk.fail_sync(1);
        let row = (acknowledged.len() as i64 + 1, 2);
        match engine.commit(&Principal::local(), Transaction::new(vec![insert("t", &[row], Mode::Append)])) {
            Ok(_) => acknowledged.push(row),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Latched);
    assert_eq!(refused(&engine, vec![insert("t", &[(-3, 3)], Mode::Append)]).kind(), Kind::Latched);
    let shown = by_id(engine.root().table("main.t").unwrap());
    assert_eq!(shown, acknowledged.into_iter().collect(), "nothing unsynced is shown");
}

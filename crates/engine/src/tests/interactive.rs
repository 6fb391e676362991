//! Open transactions on a real disk: isolation, conflicts, savepoints and limits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use types::{DataType, Error, Kind, Principal, Result, RowId, Scope, TableSet, Value, key};
use vfs::Env;

use super::support::{batch, by_id, contents, keyed, plain};
use crate::{Engine, Mode, NewColumn, Op, OpenTransaction, Options, Transaction, TransactionLimits};

fn open(dir: &testkit::TempDir) -> Engine {
    open_with(dir, TransactionLimits::default())
}

/// Keyed tables `k` and `l` and the keyless `p`.
fn open_with(dir: &testkit::TempDir, transactions: TransactionLimits) -> Engine {
    // Small heads, so that seals and compactions run beside the test.
    let log = commitlog::Options { file_bytes: 256 << 10, ..Default::default() };
    let options = Options { seal_bytes: 32 << 10, log, transactions, ..Options::default() };
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    for def in [keyed("k"), keyed("l"), plain("p")] {
        alone(&engine, Op::CreateTable { def, if_absent: false });
    }
    engine
}

fn begin(engine: &Engine) -> OpenTransaction {
    engine.begin(&Principal::local()).unwrap()
}

/// Commits a transaction of one operation.
fn alone(engine: &Engine, op: Op) -> crate::Committed {
    engine.commit(&Principal::local(), Transaction::new(vec![op])).unwrap()
}

fn insert(table: &str, rows: &[(i64, i64)]) -> Op {
    Op::Insert { table: table.into(), batch: batch(rows), mode: Mode::Append }
}

fn upsert(table: &str, rows: &[(i64, i64)]) -> Op {
    Op::Insert { table: table.into(), batch: batch(rows), mode: Mode::Upsert }
}

fn delete(table: &str, id: i64) -> Op {
    Op::DeleteKeys { table: table.into(), keys: vec![vec![Value::Int64(id)]] }
}

fn seen(transaction: &OpenTransaction, table: &str) -> BTreeMap<i64, i64> {
    by_id(&transaction.view().unwrap().table(table).unwrap())
}

fn newest(engine: &Engine, table: &str) -> BTreeMap<i64, i64> {
    by_id(engine.root().table(&format!("main.{table}")).unwrap())
}

/// Returns the value that a key lookup finds.
fn looked_up(transaction: &OpenTransaction, table: &str, id: i64) -> Option<i64> {
    let table = transaction.view().unwrap().table(table).unwrap();
    let bytes = key::encode_values(&[DataType::Int64], &[Value::Int64(id)]).unwrap();
    let row = table.get_row(&bytes).unwrap()?;
    match row.value(table.def().schema.columns[1].id).unwrap() {
        Value::Int64(v) => Some(v),
        other => panic!("v is {other:?}"),
    }
}

fn conflict(result: Result<crate::TransactionOutcome>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    error.to_string()
}

#[test]
fn own_writes_are_seen_inside_at_once_and_outside_after_the_commit() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 10), (2, 20), (3, 30)]));
    alone(&engine, insert("p", &[(1, 1)]));
    let before = engine.root();

    let t = begin(&engine);
    t.apply(vec![upsert("k", &[(2, 21), (4, 40)]), delete("k", 1), insert("p", &[(2, 2), (3, 3)])]).unwrap();
    let inside = BTreeMap::from([(2, 21), (3, 30), (4, 40)]);
    assert_eq!(seen(&t, "k"), inside);
    assert_eq!([1, 2, 3, 4, 5].map(|id| looked_up(&t, "k", id)), [None, Some(21), Some(30), Some(40), None]);
    assert_eq!(seen(&t, "p"), [(1, 1), (2, 2), (3, 3)].into());
    assert_eq!(newest(&engine, "k"), [(1, 10), (2, 20), (3, 30)].into());
    assert_eq!(newest(&engine, "p"), [(1, 1)].into());
    // A value written in the transaction may be changed and read again, any number of times.
    t.apply(vec![upsert("k", &[(4, 41)])]).unwrap();
    t.apply(vec![upsert("k", &[(4, 42)]), delete("k", 2)]).unwrap();
    assert_eq!(seen(&t, "k"), [(3, 30), (4, 42)].into());

    let committed = t.commit().unwrap().committed;
    assert_eq!(committed.lsn, before.lsn().next());
    assert_eq!((committed.count, committed.deleted), (3, 2), "what came and went in here is not counted");
    assert_eq!(newest(&engine, "k"), [(3, 30), (4, 42)].into());
    assert_eq!(newest(&engine, "p"), [(1, 1), (2, 2), (3, 3)].into());
    assert_eq!(by_id(before.table("main.k").unwrap()), [(1, 10), (2, 20), (3, 30)].into(), "S1");
    assert_eq!(t.apply(vec![delete("k", 3)]).unwrap_err().kind(), Kind::Invalid, "it has ended");
    assert_eq!(t.commit().unwrap_err().kind(), Kind::Invalid);
    drop(t);
    assert_eq!(engine.status().transactions_open, 0);
    assert_eq!(engine.status().transactions_bytes, 0);
    engine.close().unwrap();
}

#[test]
fn what_others_commit_is_not_seen_inside() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 10)]));
    let (untouched, touched) = (begin(&engine), begin(&engine));
    touched.apply(vec![upsert("k", &[(5, 50)])]).unwrap();
    alone(&engine, upsert("k", &[(1, 11), (2, 22)]));
    alone(&engine, Op::CreateTable { def: plain("new"), if_absent: false });
    assert_eq!(seen(&untouched, "k"), [(1, 10)].into());
    assert_eq!(seen(&touched, "k"), [(1, 10), (5, 50)].into());
    assert_eq!(looked_up(&touched, "k", 2), None);
    assert_eq!(untouched.view().unwrap().table("new").unwrap_err().kind(), Kind::NotFound);
    // This transaction wrote nothing, so it commits nothing.
    assert_eq!(untouched.commit().unwrap().committed.count, 0);
    // It wrote keys that nobody else wrote.
    touched.commit().unwrap();
    assert_eq!(newest(&engine, "k"), [(1, 11), (2, 22), (5, 50)].into());
}

#[test]
fn the_first_committer_wins_and_the_conflict_names_table_and_key() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    let run = |first: Op, second: Op| {
        alone(&engine, upsert("k", &[(1, 10), (2, 20)]));
        alone(&engine, delete("k", 7));
        let (a, b) = (begin(&engine), begin(&engine));
        a.apply(vec![first]).unwrap();
        b.apply(vec![upsert("l", &[(99, 0)]), second]).unwrap();
        a.commit().unwrap();
        let text = conflict(b.commit());
        assert!(newest(&engine, "l").is_empty(), "nothing of a transaction that lost is there");
        assert!(text.contains("table k"), "{text}");
        text
    };
    assert!(run(upsert("k", &[(2, 21)]), upsert("k", &[(2, 22)])).contains("id = 2"));
    assert!(run(delete("k", 2), upsert("k", &[(2, 22)])).contains("id = 2"));
    assert!(run(upsert("k", &[(1, 11)]), delete("k", 1)).contains("id = 1"));
    assert!(run(delete("k", 1), delete("k", 1)).contains("id = 1"));
    assert!(run(insert("k", &[(7, 1)]), insert("k", &[(7, 2)])).contains("id = 7"));
    assert!(run(upsert("k", &[(7, 1)]), upsert("k", &[(7, 2)])).contains("id = 7"));
    // A writer that is not an open transaction wins as well.
    let t = begin(&engine);
    t.apply(vec![upsert("k", &[(2, 5)])]).unwrap();
    alone(&engine, upsert("k", &[(2, 6)]));
    assert!(conflict(t.commit()).contains("id = 2"));

    // The row is in conflict if the table has no key.
    alone(&engine, insert("p", &[(1, 1)]));
    let row = *contents(engine.root().table("main.p").unwrap()).first_key_value().unwrap().0;
    let (a, b) = (begin(&engine), begin(&engine));
    for (t, v) in [(&a, 2), (&b, 3)] {
        t.apply(vec![Op::Update { table: "p".into(), old: vec![row], batch: batch(&[(1, v)]) }]).unwrap();
    }
    a.commit().unwrap();
    let text = conflict(b.commit());
    assert!(text.contains("table p") && text.contains(&format!("row id {row}")), "{text}");
    assert_eq!(newest(&engine, "p"), [(1, 2)].into());
    assert!(engine.status().conflicts >= 8);
}

#[test]
fn a_conflict_shows_keys_of_any_type_as_people_write_them() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    let types = ["uuid", "decimal(10,2)", "timestamp", "date"];
    let mut def = types::TableDef::new(types::TableId(0), "main.m");
    for (at, name) in types.iter().enumerate() {
        let data_type = DataType::parse(name, &mut types::ColumnId(0)).unwrap();
        def.add_column(&format!("c{at}"), &data_type, false, None).unwrap();
    }
    def.set_primary_key(&["c0", "c1", "c2", "c3"].map(String::from)).unwrap();
    alone(&engine, Op::CreateTable { def: def.clone(), if_absent: false });
    let values =
        [Value::Uuid([0xab; 16]), Value::Decimal(150), Value::Timestamp(1_500_000), Value::Date(20_778)];
    let columns = def.schema.columns.iter().zip(&values).map(|(column, value)| {
        let array = Value::to_array(std::slice::from_ref(value), &column.data_type).unwrap();
        (column.name.clone(), array)
    });
    let rows = arrow::array::RecordBatch::try_from_iter(columns).unwrap();
    let put = || Op::Insert { table: "m".into(), batch: rows.clone(), mode: Mode::Upsert };
    alone(&engine, put());
    let t = begin(&engine);
    t.apply(vec![put()]).unwrap();
    alone(&engine, put());
    let text = conflict(t.commit());
    let key = format!("c0 = {}, c1 = 1.50, c2 = 1970-01-01T00:00:01.500Z, c3 = 2026-11-21", "ab".repeat(16));
    assert!(text.contains(&key), "{text}");
}

/// Each transaction read a key that the other wrote, and none wrote a key of the other: snapshot isolation lets both commit.
#[test]
fn write_skew_is_allowed() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 1), (2, 1)]));
    let (a, b) = (begin(&engine), begin(&engine));
    for (t, mine) in [(&a, 1), (&b, 2)] {
        // Each believes that "at least one stays on duty".
        assert_eq!(seen(t, "k").values().sum::<i64>(), 2);
        t.apply(vec![upsert("k", &[(mine, 0)])]).unwrap();
    }
    a.commit().unwrap();
    b.commit().unwrap();
    assert_eq!(newest(&engine, "k"), [(1, 0), (2, 0)].into());
}

#[test]
fn a_savepoint_brings_back_what_was_there() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 10), (2, 20)]));
    let t = begin(&engine);
    t.apply(vec![upsert("k", &[(1, 11)])]).unwrap();
    t.savepoint("a").unwrap();
    t.apply(vec![delete("k", 1), delete("k", 2), upsert("k", &[(3, 30)])]).unwrap();
    t.savepoint("b").unwrap();
    t.apply(vec![upsert("k", &[(3, 31)])]).unwrap();
    t.rollback_to("b").unwrap();
    assert_eq!(seen(&t, "k"), [(3, 30)].into());
    t.rollback_to("a").unwrap();
    assert_eq!(seen(&t, "k"), [(1, 11), (2, 20)].into());
    assert_eq!([1, 2, 3].map(|id| looked_up(&t, "k", id)), [Some(11), Some(20), None]);
    assert_eq!(t.rollback_to("b").unwrap_err().kind(), Kind::NotFound, "it came after");
    // The savepoint stays, so the transaction can go back to it again.
    t.apply(vec![upsert("k", &[(4, 40)])]).unwrap();
    t.rollback_to("a").unwrap();
    t.apply(vec![upsert("k", &[(5, 50)])]).unwrap();
    // The newest savepoint of a name counts until it is released.
    t.savepoint("a").unwrap();
    t.apply(vec![upsert("k", &[(6, 60)])]).unwrap();
    t.rollback_to("a").unwrap();
    assert_eq!(seen(&t, "k"), [(1, 11), (2, 20), (5, 50)].into());
    t.release("a").unwrap();
    t.rollback_to("a").unwrap();
    assert_eq!(seen(&t, "k"), [(1, 11), (2, 20)].into());
    t.release("a").unwrap();
    assert_eq!(t.release("a").unwrap_err().kind(), Kind::NotFound);
    t.apply(vec![upsert("k", &[(5, 51)])]).unwrap();
    t.commit().unwrap();
    assert_eq!(newest(&engine, "k"), [(1, 11), (2, 20), (5, 51)].into());
}

#[test]
fn an_operation_that_fails_changes_nothing_and_the_transaction_goes_on() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 10)]));
    let t = begin(&engine);
    t.apply(vec![insert("k", &[(2, 20)])]).unwrap();
    let error = t.apply(vec![upsert("k", &[(3, 30)]), insert("k", &[(2, 21)])]).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists);
    assert!(error.message().contains("id = 2"), "{error}");
    assert_eq!(seen(&t, "k"), [(1, 10), (2, 20)].into());
    let stale = t.view().unwrap();
    t.apply_read(&stale, vec![upsert("k", &[(4, 40)])]).unwrap();
    let error = t.apply_read(&stale, vec![upsert("k", &[(4, 41)])]).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "it follows from what is not so any more");
    for op in [
        Op::CreateTable { def: plain("q"), if_absent: true },
        Op::DropTable { table: "k".into(), if_exists: false },
        Op::AddColumns { table: "k".into(), columns: Vec::new() },
        Op::RemoveKey { name: "key".into() },
    ] {
        let error = t.apply(vec![op]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains("outside of transactions"), "{error}");
    }
    t.commit().unwrap();
    assert_eq!(newest(&engine, "k"), [(1, 10), (2, 20), (4, 40)].into());
}

#[test]
fn what_an_insert_does_about_a_key_is_the_same_as_outside() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 10), (2, 20)]));
    let t = begin(&engine);
    let with = |mode: Mode, rows: &[(i64, i64)]| Op::Insert { table: "k".into(), batch: batch(rows), mode };
    t.apply(vec![with(Mode::InsertIfAbsent, &[(1, 99), (3, 30)])]).unwrap();
    assert_eq!(seen(&t, "k"), [(1, 10), (2, 20), (3, 30)].into());
    let own = t.apply(vec![with(Mode::Upsert, &[(3, 31), (3, 32)])]).unwrap()[0].first_row;
    t.apply(vec![with(Mode::CompareAndSet(vec![own]), &[(3, 33)])]).unwrap();
    let error = t.apply(vec![with(Mode::CompareAndSet(vec![own]), &[(3, 34)])]).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    t.apply(vec![with(Mode::CompareAndSet(vec![None]), &[(4, 40)])]).unwrap();
    // The update takes a key from one row and gives it to another.
    let view = t.view().unwrap();
    let rows = contents(&view.table("k").unwrap());
    let of = |id: i64| *rows.iter().find(|(_, row)| row.0 == id).unwrap().0;
    let swap = Op::Update { table: "k".into(), old: vec![of(1), of(2)], batch: batch(&[(2, 10), (1, 20)]) };
    t.apply(vec![swap]).unwrap();
    t.commit().unwrap();
    assert_eq!(newest(&engine, "k"), [(1, 20), (2, 10), (3, 33), (4, 40)].into());
}

#[test]
fn what_a_key_may_not_see_does_not_exist_inside_either() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    let tables = TableSet::Only(vec!["main.k".into()]);
    let writer = Principal { name: "w".into(), scope: Scope::Write, tables: tables.clone() };
    let t = engine.begin(&writer).unwrap();
    assert_eq!(t.view().unwrap().table("l").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(t.apply(vec![upsert("l", &[(1, 1)])]).unwrap_err().kind(), Kind::NotFound);
    t.apply(vec![upsert("k", &[(1, 1)])]).unwrap();
    let reader = Principal { name: "r".into(), scope: Scope::Read, tables };
    let t = engine.begin(&reader).unwrap();
    assert_eq!(t.apply(vec![upsert("k", &[(1, 1)])]).unwrap_err().kind(), Kind::Forbidden);
    assert!(seen(&t, "k").is_empty());
    t.commit().unwrap();
}

#[test]
fn definitions_that_others_change_meanwhile_are_minded() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    let (a, b) = (begin(&engine), begin(&engine));
    a.apply(vec![upsert("k", &[(1, 1)])]).unwrap();
    b.apply(vec![upsert("l", &[(1, 1)])]).unwrap();
    let column = |nullable: bool, default: Option<Value>| NewColumn {
        name: format!("added_{nullable}"),
        data_type: DataType::Int64,
        nullable,
        default,
    };
    alone(&engine, Op::AddColumns { table: "k".into(), columns: vec![column(true, None)] });
    a.commit().unwrap();
    assert_eq!(newest(&engine, "k"), [(1, 1)].into());
    alone(&engine, Op::DropTable { table: "l".into(), if_exists: false });
    alone(&engine, Op::CreateTable { def: keyed("l"), if_absent: false });
    assert!(conflict(b.commit()).contains("`l`"), "it is another table");
    assert!(newest(&engine, "l").is_empty());
}

#[test]
fn the_answer_tells_where_the_rows_of_each_operation_are() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(1, 0), (2, 0), (3, 0)]));
    alone(&engine, insert("p", &[(0, 0)]));
    let t = begin(&engine);
    // Others take the row ids that were given provisionally.
    alone(&engine, insert("k", &[(50, 0), (51, 0)]));
    alone(&engine, insert("p", &[(9, 9); 5]));
    let written = t
        .apply(vec![
            upsert("k", &[(10, 1), (11, 1), (12, 1)]),
            insert("p", &[(20, 2), (21, 2)]),
            upsert("k", &[(11, 3), (13, 3)]),
            delete("k", 13),
            upsert("k", &[(14, 4)]),
            delete("k", 14),
        ])
        .unwrap();
    let outcome = t.commit().unwrap();
    let root = engine.root();
    let mut places = Vec::new();
    for one in &written {
        let (Some(first), Some(last)) = (one.first_row, one.last_row) else {
            places.push(Vec::new());
            continue;
        };
        let table = root.tables().find(|table| table.def().id == one.table).unwrap();
        let Some((first, last)) = outcome.rows(one.table, first, last) else {
            places.push(Vec::new());
            continue;
        };
        let rows = contents(table);
        places.push(rows.range(first..=last).map(|(_, row)| *row).collect());
    }
    assert_eq!(
        places,
        [vec![(10, 1), (12, 1)], vec![(20, 2), (21, 2)], vec![(11, 3)], vec![], vec![], vec![]]
    );
    assert_eq!(outcome.committed.count, 5);
    assert_eq!(outcome.rows(written[0].table, RowId(1), RowId(3)), None, "they were not written in there");
}

#[test]
fn increments_of_many_threads_are_all_there() {
    let _limit = testkit::limit(180);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    alone(&engine, insert("k", &[(7, 0)]));
    let (threads, rounds) = (4, 40);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut done = 0;
                while done < rounds {
                    let t = begin(&engine);
                    let v = looked_up(&t, "k", 7).unwrap();
                    t.apply(vec![upsert("k", &[(7, v + 1)])]).unwrap();
                    match t.commit() {
                        Ok(_) => done += 1,
                        Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(newest(&engine, "k"), [(7, threads * rounds)].into());
    assert_eq!(engine.status().transactions_open, 0);
}

/// Accounts are in two tables; readers of roots and of open transactions must never see money on its way.
#[test]
fn transfers_between_tables_are_atomic_to_readers() {
    let _limit = testkit::limit(180);
    const ACCOUNTS: i64 = 10;
    const SUM: i64 = 2 * ACCOUNTS * 100;
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    let start: Vec<(i64, i64)> = (0..ACCOUNTS).map(|id| (id, 100)).collect();
    let both = vec![insert("k", &start), insert("l", &start)];
    engine.commit(&Principal::local(), Transaction::new(both)).unwrap();
    let stop = AtomicBool::new(false);
    let sum =
        |k: &BTreeMap<i64, i64>, l: &BTreeMap<i64, i64>| k.values().sum::<i64>() + l.values().sum::<i64>();
    std::thread::scope(|scope| {
        let (engine, stop) = (&engine, &stop);
        let writers: Vec<_> = (0..3u64)
            .map(|seed| {
                scope.spawn(move || {
                    let mut rng = sim::Rng::new(seed);
                    let mut moved = 0;
                    while moved < testkit::scaled(150).max(60) {
                        let (from, to) = (rng.below(10) as i64, rng.below(10) as i64);
                        let amount = rng.below(50) as i64;
                        let (a, b) = if rng.chance(0.5) { ("k", "l") } else { ("l", "k") };
                        let t = begin(engine);
                        let (x, y) = (looked_up(&t, a, from).unwrap(), looked_up(&t, b, to).unwrap());
                        t.apply(vec![upsert(a, &[(from, x - amount)])]).unwrap();
                        t.apply(vec![upsert(b, &[(to, y + amount)])]).unwrap();
                        assert_eq!(sum(&seen(&t, "k"), &seen(&t, "l")), SUM);
                        match t.commit() {
                            Ok(_) => moved += 1,
                            Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let root = engine.root();
                    let of = |name: &str| by_id(root.table(name).unwrap());
                    assert_eq!(sum(&of("main.k"), &of("main.l")), SUM, "at lsn {}", root.lsn());
                    let t = begin(engine);
                    let k = seen(&t, "k");
                    std::thread::yield_now();
                    assert_eq!(sum(&k, &seen(&t, "l")), SUM);
                    assert_eq!(k, seen(&t, "k"), "what was read once is read again");
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert_eq!(sum(&newest(&engine, "k"), &newest(&engine, "l")), SUM);
}

#[test]
fn what_one_and_all_may_write_is_bounded() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let limits = TransactionLimits {
        bytes_max: 1 << 20,
        bytes_of_all_max: 3 << 20,
        open_max: 5,
        ..TransactionLimits::default()
    };
    let engine = open_with(&dir, limits);
    let some = |from: i64| -> Vec<(i64, i64)> { (from..from + 5_000).map(|id| (id, id)).collect() };
    let fill = |t: &OpenTransaction| {
        for from in 0.. {
            if let Err(error) = t.apply(vec![insert("k", &some(from * 5_000))]) {
                return (from, error);
            }
        }
        unreachable!("it ends at a bound")
    };
    let t = begin(&engine);
    let (times, error) = fill(&t);
    assert_eq!(error.kind(), Kind::TooLarge);
    assert!(error.message().contains("at most 1 MiB"), "{error}");
    assert!((1..=5).contains(&times), "{times} times 5,000 rows of about 30 bytes and 32 more each");
    // The transaction stays usable: the rows that fitted are there.
    assert_eq!(seen(&t, "k").len() as i64, times * 5_000);
    t.apply(vec![upsert("k", &[(1, 2)])]).unwrap();
    // Savepoints hold undone writes, so they are bounded too.
    let mut kept = 0;
    let error = loop {
        match t.savepoint("s") {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!((1..6).contains(&kept), "{kept} savepoints of nearly a MiB");
    assert!(matches!(error.kind(), Kind::TooLarge | Kind::Busy), "{error}");
    t.rollback();
    assert_eq!(engine.status().transactions_bytes, 0);

    let all: Vec<_> = (0..5).map(|_| begin(&engine)).collect();
    let error = engine.begin(&Principal::local()).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.message().contains("5 transactions are open"), "{error}");
    let refusals: Vec<Error> = all.iter().map(|t| fill(t).1).collect();
    assert_eq!(refusals[0].kind(), Kind::TooLarge);
    assert_eq!(refusals[4].kind(), Kind::Busy, "{}", refusals[4]);
    assert!(engine.status().transactions_bytes <= 3 << 20);
    drop(all);
    assert_eq!((engine.status().transactions_open, engine.status().transactions_bytes), (0, 0));
    let t = begin(&engine);
    t.apply(vec![insert("k", &some(0))]).unwrap();
    t.commit().unwrap();
    assert_eq!(newest(&engine, "k").len(), 5_000);
}

/// Its client never comes back, and yet its memory and its root are released.
#[test]
fn a_transaction_that_is_left_alone_is_rolled_back_on_time() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open_with(
        &dir,
        TransactionLimits { time_max: Duration::from_millis(300), ..TransactionLimits::default() },
    );
    let (left, later) = (begin(&engine), begin(&engine));
    left.apply(vec![insert("k", &[(1, 1)])]).unwrap();
    let base = std::sync::Arc::downgrade(&engine.root());
    alone(&engine, insert("l", &[(1, 1)]));
    assert!(base.strong_count() > 0, "the beginning is held");
    while engine.status().transactions_open > 0 || base.strong_count() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(engine.status().transactions_bytes, 0);
    assert_eq!(engine.status().transactions_expired, 2);
    for error in [
        left.apply(vec![insert("k", &[(2, 2)])]).unwrap_err(),
        left.view().unwrap_err(),
        left.commit().unwrap_err(),
        later.savepoint("a").unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(error.message().contains("rolled back"), "{error}");
    }
    assert!(newest(&engine, "k").is_empty());
    // The next transaction is watched too.
    let next = begin(&engine);
    while next.is_open() {
        std::thread::yield_now();
    }
    assert_eq!(engine.status().transactions_expired, 3);
}

#[test]
fn closing_the_database_ends_what_is_open() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(&dir);
    let t = begin(&engine);
    t.apply(vec![insert("k", &[(1, 1)])]).unwrap();
    engine.close().unwrap();
    assert_eq!(t.view().unwrap_err().kind(), Kind::Closed);
    assert_eq!(t.commit().unwrap_err().kind(), Kind::Closed);
    assert_eq!(engine.begin(&Principal::local()).unwrap_err().kind(), Kind::Closed);
    drop((t, engine));
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    assert!(newest(&engine, "k").is_empty());
}

/// The end of a transaction may be counted before its last change: the open ones then seemed to hold all the memory there
/// is.
#[test]
fn what_ends_at_once_leaves_room_for_others() {
    let registry = crate::interactive::Registry::default();
    registry.resize(1_000, 0);
    assert_eq!(registry.bytes(), 0);
    registry.check_room(1_000, &crate::TransactionLimits::default()).unwrap();
    registry.resize(0, 1_000);
    assert_eq!(registry.bytes(), 0);
    registry.resize(0, 7);
    assert_eq!(registry.bytes(), 7);
}

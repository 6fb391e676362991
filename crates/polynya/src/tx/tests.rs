use std::collections::BTreeMap;

use types::{DataType, Kind, Value};

use crate::{Answer, Database, NewTable, Session, Tx};

fn open(dir: &testkit::TempDir) -> Database {
    let db = Database::open(dir.path()).unwrap();
    let people = NewTable::new("people")
        .column("name", DataType::String)
        .column("town", DataType::String)
        .column("age", DataType::Int64)
        .primary_key(["name"])
        .index(["town"]);
    db.create_table(people).unwrap();
    db.create_table(NewTable::new("notes").column("text", DataType::String)).unwrap();
    db
}

/// Returns `name → age` from an answer of two columns.
fn ages(answer: &Answer) -> BTreeMap<String, i64> {
    let mut ages = BTreeMap::new();
    for batch in &answer.batches {
        for row in 0..batch.num_rows() {
            let name = Value::from_array(batch.column(0), &DataType::String, row);
            let age = Value::from_array(batch.column(1), &DataType::Int64, row);
            match (name, age) {
                (Value::String(name), Value::Int64(age)) => drop(ages.insert(name, age)),
                other => panic!("{other:?}"),
            }
        }
    }
    ages
}

fn map<const N: usize>(of: [(&str, i64); N]) -> BTreeMap<String, i64> {
    of.into_iter().map(|(name, age)| (name.to_owned(), age)).collect()
}

const ALL: &str = "SELECT name, age FROM people";
const TOWN: &str = "SELECT name, age FROM people WHERE town = $1";
const ONE: &str = "SELECT name, age FROM people WHERE name = $1";

#[test]
fn statements_in_a_transaction_see_what_was_written_in_it() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    db.sql("INSERT INTO people VALUES ('ann', 'ulm', 30), ('bob', 'ulm', 40), ('cy', 'rom', 50)", &[])
        .unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.sql("UPDATE people SET age = age + 1 WHERE town = 'ulm'", &[]).unwrap().count, 2);
    assert_eq!(tx.sql("DELETE FROM people WHERE name = $1", &["cy".into()]).unwrap().count, 1);
    tx.sql("INSERT INTO people VALUES ('dan', 'rom', 1)", &[]).unwrap();
    // This updates rows that the transaction has already changed.
    tx.sql("UPDATE people SET age = age * 2 WHERE age < 40", &[]).unwrap();
    tx.insert_rows("people", &["name", "town", "age"], [["eve".into(), "rom".into(), Value::Int64(7)]])
        .unwrap();
    let inside = map([("ann", 62), ("bob", 41), ("dan", 2), ("eve", 7)]);
    assert_eq!(ages(&tx.sql(ALL, &[]).unwrap()), inside);
    assert_eq!(ages(&tx.sql(TOWN, &["rom".into()]).unwrap()), map([("dan", 2), ("eve", 7)]));
    assert_eq!(tx.get("people", &["ann".into()]).unwrap().unwrap().get("age").unwrap(), Value::Int64(62));
    assert!(tx.get("people", &["cy".into()]).unwrap().is_none());
    // A plan made outside the transaction serves inside, and the other way round.
    for _ in 0..3 {
        assert_eq!(ages(&db.sql(ONE, &["ann".into()]).unwrap()), map([("ann", 30)]));
        assert_eq!(ages(&tx.sql(ONE, &["ann".into()]).unwrap()), map([("ann", 62)]));
        assert_eq!(ages(&tx.sql(ONE, &["cy".into()]).unwrap()), map([]));
    }
    assert_eq!(tx.sql("SELECT count(*) FROM people", &[]).unwrap().value().unwrap(), Value::Int64(4));
    assert_eq!(db.sql("SELECT count(*) FROM people", &[]).unwrap().value().unwrap(), Value::Int64(3));
    tx.commit().unwrap();
    assert_eq!(ages(&db.sql(ALL, &[]).unwrap()), inside);
}

/// A transaction's own rows lie past the indexed position. This holds for an index built before, and for one built meanwhile from
/// rows of others.
#[test]
fn a_column_index_finds_own_rows_and_no_rows_of_others() {
    let _limit = testkit::limit(180);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let towns = ["ulm", "rom", "bari", "lund"];
    let rows = |from: i64| -> Vec<[Value; 3]> {
        (from..from + 20_000)
            .map(|i| {
                [
                    format!("p{i}").into(),
                    format!("{}{}", towns[i as usize % 4], i / 40).into(),
                    Value::Int64(i),
                ]
            })
            .collect()
    };
    db.insert_rows("people", &["name", "town", "age"], rows(0)).unwrap();
    let table = db.snapshot().table("people").unwrap().def().id;
    let built = |db: &Database, rows: u64| {
        db.engine().hurry("column", table);
        let root = db.engine().root();
        root.derived("column", table).is_some_and(|position| position.checkpoint.row.0 >= rows)
    };
    while !built(&db, 20_000) {
        std::thread::yield_now();
    }
    let explain = |tx: &mut Tx| {
        format!("{:?}", tx.sql(&format!("EXPLAIN {}", TOWN.replace("$1", "'ulm7'")), &[]).unwrap().batches)
    };
    let mut tx = db.begin().unwrap();
    let before = ages(&tx.sql(TOWN, &["ulm7".into()]).unwrap());
    assert_eq!(before.len(), 10);
    tx.sql("UPDATE people SET town = 'ulm7' WHERE name = 'p2'", &[]).unwrap();
    tx.sql("UPDATE people SET town = 'away' WHERE name = 'p280'", &[]).unwrap();
    tx.sql("INSERT INTO people VALUES ('new', 'ulm7', -1)", &[]).unwrap();
    tx.savepoint("s").unwrap();
    tx.sql("INSERT INTO people VALUES ('newer', 'ulm7', -2)", &[]).unwrap();
    tx.sql("DELETE FROM people WHERE town = 'ulm7' AND age > 300", &[]).unwrap();
    // Others write to the same town, and the index covers their rows.
    db.insert_rows("people", &["name", "town", "age"], [["other".into(), "ulm7".into(), Value::Int64(-3)]])
        .unwrap();
    db.insert_rows("people", &["name", "town", "age"], rows(20_000)).unwrap();
    while !built(&db, 40_001) {
        std::thread::yield_now();
    }
    assert!(explain(&mut tx).contains("index"), "{}", explain(&mut tx));
    let mut expected = before.clone();
    expected.remove("p280");
    expected.insert("p2".into(), 2);
    expected.insert("new".into(), -1);
    let at_savepoint = expected.clone();
    expected.insert("newer".into(), -2);
    expected.retain(|_, age| *age <= 300);
    assert!(expected.len() < at_savepoint.len());
    for _ in 0..2 {
        assert_eq!(ages(&tx.sql(TOWN, &["ulm7".into()]).unwrap()), expected);
    }
    tx.rollback_to("s").unwrap();
    for _ in 0..2 {
        assert_eq!(ages(&tx.sql(TOWN, &["ulm7".into()]).unwrap()), at_savepoint);
    }
    tx.commit().unwrap();
    expected = at_savepoint;
    expected.insert("other".into(), -3);
    assert_eq!(ages(&db.sql(TOWN, &["ulm7".into()]).unwrap()), expected);
}

#[test]
fn a_statement_that_lost_says_so_and_is_not_run_again() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    db.sql("INSERT INTO people VALUES ('ann', 'ulm', 30)", &[]).unwrap();
    let mut tx = db.begin().unwrap();
    tx.sql("UPDATE people SET age = age + 1", &[]).unwrap();
    tx.sql("INSERT INTO notes VALUES ('birthday')", &[]).unwrap();
    db.sql("UPDATE people SET age = 99", &[]).unwrap();
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let text = error.to_string();
    assert!(text.contains("name = 'ann'") && text.contains("table people"), "{text}");
    assert_eq!(db.sql("SELECT count(*) FROM notes", &[]).unwrap().value().unwrap(), Value::Int64(0));
    assert_eq!(db.sql("SELECT age FROM people", &[]).unwrap().value().unwrap(), Value::Int64(99));
}

#[test]
fn a_transaction_goes_from_thread_to_thread_and_through_async_code() {
    let _limit = testkit::limit(120);
    fn check_send<T: Send>(value: T) -> T {
        value
    }
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let mut tx = check_send(db.begin().unwrap());
    tx.sql("INSERT INTO notes VALUES ('here')", &[]).unwrap();
    let mut tx = std::thread::spawn(move || {
        tx.sql("INSERT INTO notes VALUES ('there')", &[]).unwrap();
        tx
    })
    .join()
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let task = runtime.spawn(async move {
        tx.sql_async("INSERT INTO notes VALUES ('elsewhere')", &[]).await.unwrap();
        tx.commit_async().await
    });
    let outcome = runtime.block_on(task).unwrap().unwrap();
    assert_eq!(outcome.committed.count, 3);
    assert_eq!(db.sql("SELECT count(*) FROM notes", &[]).unwrap().value().unwrap(), Value::Int64(3));
    // A statement's future that is dropped before its end leaves nothing half done.
    let mut tx = db.begin().unwrap();
    {
        // The statement would take days.
        let text = "INSERT INTO notes SELECT max(CAST(a.v * b.v AS text)) \
            FROM generate_series(1, 10000000) a(v), generate_series(1, 10000000) b(v)";
        let mut future = std::pin::pin!(tx.sql_async(text, &[]));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(tx.commit().unwrap_err().kind(), Kind::Invalid, "it was rolled back");
    // A dropped transaction leaves nothing either.
    let mut tx = db.begin().unwrap();
    tx.sql("DELETE FROM notes", &[]).unwrap();
    drop(tx);
    assert_eq!(db.status().transactions_open, 0);
    assert_eq!(db.sql("SELECT count(*) FROM notes", &[]).unwrap().value().unwrap(), Value::Int64(3));
}

fn run(session: &mut Session, text: &str) -> Answer {
    session.sql(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(session: &mut Session, text: &str) -> String {
    let error = session.sql(text, &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{text}: {error}");
    error.to_string()
}

#[test]
fn a_session_has_begin_and_commit() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let (mut a, mut b) = (db.session().unwrap(), db.session().unwrap());
    assert!(refused(&mut a, "COMMIT").contains("no transaction is open"));
    run(&mut a, "INSERT INTO notes VALUES ('by itself')");
    run(&mut a, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert!(refused(&mut a, "BEGIN").contains("open already"));
    run(&mut a, "INSERT INTO notes VALUES ('one')");
    run(&mut a, "SAVEPOINT s");
    run(&mut a, "INSERT INTO notes VALUES ('two')");
    assert_eq!(run(&mut a, "SELECT * FROM notes").count, 3);
    assert_eq!(run(&mut b, "SELECT * FROM notes").count, 1);
    run(&mut a, "ROLLBACK TO SAVEPOINT S");
    run(&mut a, "RELEASE s");
    assert_eq!(run(&mut a, "SELECT * FROM notes").count, 2);
    run(&mut a, "COMMIT");
    assert!(!a.is_open());
    assert_eq!(run(&mut b, "SELECT * FROM notes").count, 2);
    run(&mut a, "START TRANSACTION");
    run(&mut a, "DELETE FROM notes");
    assert_eq!(run(&mut a, "SELECT * FROM notes").count, 0);
    run(&mut a, "ROLLBACK");
    assert_eq!(run(&mut a, "SELECT * FROM notes").count, 2);
    run(&mut a, "BEGIN READ ONLY");
    assert_eq!(a.sql("DELETE FROM notes", &[]).unwrap_err().kind(), Kind::Forbidden);
    run(&mut a, "ROLLBACK");
    run(&mut a, "BEGIN READ ONLY");
    run(&mut b, "DELETE FROM notes");
    assert_eq!(run(&mut a, "SELECT * FROM notes").count, 2);
    run(&mut a, "COMMIT");
    assert_eq!(run(&mut a, "SELECT * FROM notes").count, 0);
    assert!(refused(&mut a, "BEGIN ISOLATION LEVEL SERIALIZABLE").contains("SERIALIZABLE"));
    drop((a, b));
    assert_eq!(db.status().transactions_open, 0);
}

#[test]
fn a_statement_that_fails_makes_the_sessions_transaction_fail() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let mut s = db.session().unwrap();
    run(&mut s, "BEGIN");
    run(&mut s, "INSERT INTO people VALUES ('ann', 'ulm', 30)");
    run(&mut s, "SAVEPOINT s");
    run(&mut s, "INSERT INTO people VALUES ('bob', 'ulm', 30)");
    assert_eq!(s.sql("INSERT INTO people VALUES ('ann', 'rom', 1)", &[]).unwrap_err().kind(), Kind::Exists);
    assert!(refused(&mut s, "SELECT 1").contains("has failed"));
    assert!(refused(&mut s, "SAVEPOINT t").contains("has failed"));
    run(&mut s, "ROLLBACK TO s");
    assert_eq!(ages(&run(&mut s, ALL)), map([("ann", 30)]));
    refused(&mut s, "CREATE TABLE q (a INT)");
    // COMMIT of a failed transaction does not look like success.
    assert!(refused(&mut s, "COMMIT").contains("was rolled back"));
    assert!(!s.is_open());
    assert_eq!(run(&mut s, ALL).count, 0);
    run(&mut s, "BEGIN");
    assert!(s.sql("SELECT nothing FROM nowhere", &[]).is_err());
    run(&mut s, "ROLLBACK");
    run(&mut s, "BEGIN");
    assert_eq!(s.sql("ROLLBACK TO nowhere", &[]).unwrap_err().kind(), Kind::NotFound);
    assert!(refused(&mut s, "SELECT 1").contains("has failed"));
    run(&mut s, "ROLLBACK");
    // An answer that fails while it is read counts as a failure too.
    run(&mut s, "BEGIN");
    run(&mut s, "INSERT INTO people VALUES ('cy', 'ulm', 0)");
    assert!(s.sql("SELECT 1 / age FROM people", &[]).is_err());
    assert!(refused(&mut s, "COMMIT").contains("was rolled back"));
    // COMMIT reports a conflict with another writer, and ends the transaction.
    run(&mut s, "BEGIN");
    run(&mut s, "INSERT INTO people VALUES ('dan', 'ulm', 0)");
    db.sql("INSERT INTO people VALUES ('dan', 'rom', 1)", &[]).unwrap();
    let error = s.sql("COMMIT", &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("name = 'dan'"), "{error}");
    assert!(!s.is_open());
}

#[test]
fn begin_without_a_session_says_where_there_is_one() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let mut tx = db.begin().unwrap();
    for text in ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "RELEASE a"] {
        for error in [db.sql(text, &[]).unwrap_err(), tx.sql(text, &[]).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains("Database::session"), "{error}");
        }
    }
    // The transaction continued all the same.
    tx.sql("INSERT INTO notes VALUES ('a')", &[]).unwrap();
    tx.commit().unwrap();
}

#[test]
fn rows_go_into_a_session_as_batches_inside_its_transaction_or_by_themselves() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let batch =
        |name: &str| db.to_batch("people", &["name", "age"], [[name.into(), Value::Int64(1)]]).unwrap();
    let (mut a, mut b) = (db.session().unwrap(), db.session().unwrap());
    assert_eq!(a.insert("people", batch("ann")).unwrap(), 1);
    assert_eq!(run(&mut b, ALL).count, 1);
    run(&mut a, "BEGIN");
    assert_eq!(a.insert("people", batch("bob")).unwrap(), 1);
    assert_eq!(a.upsert("people", batch("ann")).unwrap(), 1);
    assert_eq!((run(&mut a, ALL).count, run(&mut b, ALL).count), (2, 1));
    // A failed batch counts as a failed statement.
    assert_eq!(a.insert("people", batch("bob")).unwrap_err().kind(), Kind::Exists);
    assert_eq!(a.insert("people", batch("cy")).unwrap_err().kind(), Kind::Invalid);
    assert!(refused(&mut a, "COMMIT").contains("was rolled back"));
    assert_eq!(run(&mut b, ALL).count, 1);
    run(&mut a, "BEGIN READ ONLY");
    assert_eq!(a.insert("people", batch("dan")).unwrap_err().kind(), Kind::Forbidden);
    run(&mut a, "ROLLBACK");
    run(&mut a, "BEGIN");
    a.insert("people", batch("eve")).unwrap();
    run(&mut a, "COMMIT");
    assert_eq!(run(&mut b, ALL).count, 2);
}

#[test]
fn the_rows_of_a_session_are_a_stream_and_one_that_breaks_off_can_fail_the_transaction() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    let mut s = db.session().unwrap();
    run(&mut s, "BEGIN");
    run(&mut s, "INSERT INTO notes SELECT 'n' FROM generate_series(1, 20000)");
    let reply = crate::block_on(s.query("SELECT text FROM notes", &[])).unwrap();
    let crate::Reply::Rows(mut rows) = reply else { panic!("{reply:?}") };
    // The transaction goes on while its rows are read.
    run(&mut s, "DELETE FROM notes");
    let batches = crate::block_on(rows.collect()).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 20_000);
    s.fail();
    assert!(refused(&mut s, "COMMIT").contains("was rolled back"));
    // Without a transaction `fail` has no effect.
    s.fail();
    run(&mut s, "INSERT INTO notes VALUES ('x')");
}

#[test]
fn statements_over_a_held_snapshot_stand_at_its_lsn() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("tx");
    let db = open(&dir);
    db.sql("INSERT INTO people VALUES ('ann', 'ulm', 30), ('bob', 'rom', 40)", &[]).unwrap();
    let held = db.snapshot();
    db.sql("UPDATE people SET age = 0", &[]).unwrap();
    db.sql("CREATE TABLE later (a int)", &[]).unwrap();
    let read = |snapshot: &crate::Snapshot, text: &str, params: &[Value]| {
        crate::block_on(async {
            let mut rows = db.query_in(snapshot, text, params).await?;
            assert_eq!(rows.lsn(), snapshot.lsn());
            let batches = rows.collect().await?;
            Ok::<_, types::Error>(Answer {
                count: batches.iter().map(|b| b.num_rows() as u64).sum(),
                batches,
            })
        })
    };
    let before = db.snapshot_at(held.lsn()).unwrap();
    for snapshot in [&held, &before] {
        // From the second run on there is a cached plan of the newest state.
        for _ in 0..2 {
            assert_eq!(ages(&db.sql(ALL, &[]).unwrap()), map([("ann", 0), ("bob", 0)]));
            assert_eq!(ages(&read(snapshot, ALL, &[]).unwrap()), map([("ann", 30), ("bob", 40)]));
            assert_eq!(ages(&read(snapshot, ONE, &["bob".into()]).unwrap()), map([("bob", 40)]));
            assert_eq!(ages(&read(snapshot, TOWN, &["ulm".into()]).unwrap()), map([("ann", 30)]));
        }
        assert_eq!(read(snapshot, "SELECT * FROM later", &[]).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(read(snapshot, "DELETE FROM people", &[]).unwrap_err().kind(), Kind::Forbidden);
    }
    db.close().unwrap();
    assert_eq!(read(&held, ALL, &[]).unwrap_err().kind(), Kind::Closed);
}

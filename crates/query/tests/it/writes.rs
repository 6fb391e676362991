//! Statements beside writers: all reads of a statement at one lsn, and no lost update.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use query::{Answer, Limits};
use types::{Kind, Principal, Scope, TableSet, Value};

use crate::database::open;

/// S2: both tables are written in one transaction, so their counts agree at every lsn.
#[test]
fn all_parts_of_a_statement_stand_at_one_lsn() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table a (id bigint)");
    database.execute("create table b (id bigint)");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            use arrow::array::{ArrayRef, Int64Array, RecordBatch};
            use engine::{Mode, Op, Transaction};
            let mut commits = 0i64;
            while !stop.load(Ordering::Relaxed) {
                let ids: ArrayRef = std::sync::Arc::new(Int64Array::from(vec![commits]));
                let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
                let insert = |table: &str| Op::Insert {
                    table: table.into(),
                    batch: batch.clone(),
                    mode: Mode::Append,
                };
                let transaction = Transaction::new(vec![insert("a"), insert("b")]);
                database.engine.commit(&Principal::local(), transaction).unwrap();
                commits += 1;
            }
            commits
        });
        let mut seen = 0;
        for _ in 0..testkit::scaled(200).max(50) {
            let text = "select (select count(*) from a), (select count(*) from b), (select count(*) from a where id >= 0),
                        (select count(*) from a join b using (id))";
            let row = database.query(text).remove(0);
            assert!(row.iter().all(|cell| *cell == row[0]), "{row:?}");
            let count: u64 = row[0].parse().unwrap();
            assert!(count >= seen, "a later statement sees an earlier lsn");
            seen = count;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
}

/// Some of these would be lost or fail without the retry, and without the engine's check that the row read is still live.
#[test]
fn updates_of_one_row_from_many_sides_all_count() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table counter (id bigint primary key, n bigint)");
    database.execute("insert into counter values (1, 0)");
    let rounds = 10;
    let refused: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let principal = Principal::local();
                    let mut refused = 0;
                    let mut done = 0;
                    while done < rounds {
                        let text = "update counter set n = n + 1 where id = 1";
                        match runtime.block_on(database.sql.run(&principal, text, vec![], Limits::default()))
                        {
                            Ok(Answer::Done(d)) => {
                                assert_eq!(d.count, 1);
                                done += 1;
                            }
                            Ok(other) => panic!("{other:?}"),
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::Conflict, "{error}");
                                refused += 1;
                            }
                        }
                    }
                    refused
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(database.query("select n from counter"), [[(3 * rounds).to_string()]]);
    assert!(refused < 10, "{refused} statements gave up although each loses to at most two others at a time");
}

#[test]
fn a_change_shows_at_the_lsn_it_answers() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key)");
    let Answer::Done(done) =
        database.run("insert into t values (1), (2)", vec![], Limits::default()).unwrap()
    else {
        panic!("an insert")
    };
    assert_eq!(done.count, 2);
    assert!(database.engine.root().lsn() >= done.lsn);
    let rows = database.rows("select * from t", vec![], Limits::default()).unwrap();
    assert!(rows.lsn() >= done.lsn);
}

/// A1: tables that a principal may not see do not exist for it, not even in a plan cached from another principal.
#[test]
fn a_principal_sees_and_changes_only_what_is_its_own() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table mine (id bigint)");
    database.execute("create table other (id bigint)");
    let reader = Principal {
        name: "reader".into(),
        scope: Scope::Read,
        tables: TableSet::Only(vec!["main.mine".into()]),
    };
    let run = |text: &str| {
        let answer = database.runtime.block_on(database.sql.run(&reader, text, vec![], Limits::default()));
        answer.map(|answer| match answer {
            Answer::Rows(mut rows) => {
                database.runtime.block_on(rows.collect()).unwrap().iter().map(|b| b.num_rows()).sum()
            }
            Answer::Done(_) => 0usize,
        })
    };
    database.query("select * from other");
    assert_eq!(run("select * from other").unwrap_err().kind(), Kind::NotFound);
    assert!(run("select * from mine").is_ok());
    assert_eq!(run("show tables").unwrap(), 1);
    assert_eq!(run("select * from information_schema.tables").unwrap(), 1);
    for text in
        ["insert into mine values (1)", "create table x (id int)", "drop table mine", "delete from mine"]
    {
        assert_eq!(run(text).unwrap_err().kind(), Kind::Forbidden, "{text}");
    }
    let error = database.try_query("select * from nothing where x = $1", vec![Value::Null]).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

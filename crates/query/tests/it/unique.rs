//! Unique indexes beside other writers, over large tables, and in open transactions.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use query::{Answer, Limits};
use types::{Kind, Principal, Value};

use crate::database::{Database, open, open_engine};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// A database that checks unique indexes in the background, like those of large tables.
fn in_background() -> Database {
    open_engine(engine::Options { unique_at_once_rows: 0, ..engine::Options::default() }, |_| ())
}

fn refusal(database: &Database, text: &str) -> types::Error {
    database.run(text, Vec::new(), Limits::default()).expect_err(text)
}

fn wait_for_state(database: &Database, index: &str) -> Vec<String> {
    let start = Instant::now();
    let id = |view: &engine::View| view.table("n").unwrap().def().id;
    loop {
        database.engine.hurry(index::column::NAME, id(&database.engine.view(&Principal::local()).unwrap()));
        let text = format!("select state, error from polynya.indexes where index_name = '{index}'");
        let row = database.query(&text).remove(0);
        if row[0] == "failed" || row[0] == "ready" {
            return row;
        }
        assert!(start.elapsed() < Duration::from_secs(100), "{row:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn writers_at_once_never_make_two_rows_equal() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table n (who bigint, v bigint unique, w bigint)");
    let balance: Vec<AtomicI64> = (0..12).map(|_| AtomicI64::new(0)).collect();
    thread::scope(|scope| {
        for who in 0..4u64 {
            let (database, balance) = (&database, &balance);
            scope.spawn(move || {
                let (mut rng, runtime) = (testkit::Rng::new(who), runtime());
                let run = |text: String| {
                    let params: Vec<Value> = Vec::new();
                    runtime.block_on(database.sql.run(&Principal::local(), &text, params, Limits::default()))
                };
                for _ in 0..150 {
                    let v = rng.below(12);
                    let outcome = match rng.below(4) {
                        0 | 1 => run(format!("insert into n values ({who}, {v}, 0)")).map(|_| 1),
                        2 => run(format!("delete from n where v = {v}")).map(|answer| match answer {
                            Answer::Done(done) => -(done.count as i64),
                            Answer::Rows(_) => panic!("rows"),
                        }),
                        _ => run(format!(
                            "insert into n values ({who}, {v}, 1) on conflict (v) do update set w = n.w + 1"
                        ))
                        .map(|_| 0),
                    };
                    match outcome {
                        Ok(change) => drop(balance[v as usize].fetch_add(change, Ordering::Relaxed)),
                        Err(e) => assert!(matches!(e.kind(), Kind::Exists | Kind::Conflict), "{e}"),
                    }
                    let twice = "select v from n group by v having count(*) > 1";
                    let rows = runtime.block_on(async {
                        match database.sql.run(&Principal::local(), twice, vec![], Limits::default()).await? {
                            Answer::Rows(mut rows) => rows.collect().await,
                            Answer::Done(done) => panic!("{done:?}"),
                        }
                    });
                    assert_eq!(rows.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(), 0);
                }
            });
        }
    });
    // Upserts may insert or update, so only inserts and deletes of values that no upsert touched add up.
    assert!(balance.iter().all(|balance| balance.load(Ordering::Relaxed) <= 1));
}

#[test]
fn an_index_over_many_rows_is_enforced_once_they_are_known_to_differ() {
    let _limit = testkit::limit(240);
    let database = in_background();
    database.numbers("n", 30_000, false);
    database.execute("create unique index by_id on n (id)");
    database.execute("create unique index by_both on n (kind, x, id)");
    // Writers do not wait meanwhile.
    database.execute("insert into n values (-1, 'new', 0)");
    assert_eq!(wait_for_state(&database, "by_id"), ["ready", "NULL"]);
    assert_eq!(wait_for_state(&database, "by_both"), ["ready", "NULL"]);
    for id in [-1, 0, 17_000, 29_999] {
        let error = refusal(&database, &format!("insert into n values ({id}, 'other', 1)"));
        assert_eq!(error.kind(), Kind::Exists, "{error}");
        assert!(error.message().contains(&format!("id = {id}")), "{error}");
    }
    database.execute("insert into n values (30000, 'other', 1)");
    database.execute("update n set id = id + 1000000 where id < 100");
    database.execute("insert into n values (99, 'again', 1)");
    let error = refusal(&database, "insert into n values (1000099, 'other', 1)");
    assert_eq!(error.kind(), Kind::Exists);
}

#[test]
fn an_index_over_rows_that_are_equal_fails_and_says_which() {
    let _limit = testkit::limit(240);
    let database = in_background();
    database.numbers("n", 20_000, true);
    database.execute("create unique index by_x on n (x)");
    let [state, error] = wait_for_state(&database, "by_x").try_into().unwrap();
    assert_eq!(state, "failed");
    assert!(error.contains("two rows have x = "), "{error}");
    // A failed index guarantees nothing: rows are accepted as if it did not exist.
    database.execute("insert into n values (20000, 'k', 7)");
    let error = refusal(&database, "insert into n values (20001, 'k', 7) on conflict (x) do nothing");
    assert!(error.message().contains("is not unique"), "{error}");
    database.execute("drop index by_x");
    database.execute("delete from n where id >= 1000");
    database.execute("create unique index by_x on n (x)");
    assert_eq!(wait_for_state(&database, "by_x"), ["ready", "NULL"]);
    assert_eq!(refusal(&database, "insert into n values (20001, 'k', 7)").kind(), Kind::Exists);
}

#[test]
fn an_open_transaction_is_checked_when_it_writes_and_when_it_commits() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table n (id bigint primary key, v bigint unique)");
    database.execute("insert into n values (1, 1), (2, 2)");
    let runtime = runtime();
    let me = Principal::local();
    let begin = || database.engine.begin(&me).unwrap();
    let run = |transaction: &engine::OpenTransaction, text: &str| {
        let answer = database.sql.run_in(transaction, text, Vec::new(), Limits::default());
        runtime.block_on(answer).map(drop)
    };
    let (first, second, third) = (begin(), begin(), begin());
    run(&first, "insert into n values (3, 3)").unwrap();
    assert_eq!(run(&first, "insert into n values (4, 3)").unwrap_err().kind(), Kind::Exists, "its own row");
    assert_eq!(run(&first, "insert into n values (4, 1)").unwrap_err().kind(), Kind::Exists);
    // A transaction may reuse the values that it has freed.
    run(&first, "delete from n where v = 1").unwrap();
    run(&first, "insert into n values (5, 1)").unwrap();
    run(&first, "update n set v = 4 - v where v in (1, 3)").unwrap();
    // Other transactions do not see that yet.
    run(&second, "insert into n values (6, 3)").unwrap();
    run(&third, "insert into n values (7, 7)").unwrap();
    first.commit().unwrap();
    let error = second.commit().unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert!(error.message().contains("v = 3"), "{error}");
    third.commit().unwrap();
    assert_eq!(
        database.query("select id, v from n order by id"),
        [["2", "2"], ["3", "1"], ["5", "3"], ["7", "7"]]
    );
    assert_eq!(refusal(&database, "insert into n values (8, 3)").kind(), Kind::Exists);
}

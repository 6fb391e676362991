//! Rows that are read on the caller's thread, without a plan.

use query::{Answer, Limits, Prepared};
use types::{Principal, Value};

use crate::database::{Database, open, texts};

/// Runs a lookup on the caller's thread, or else as a statement; returns true in the first case.
fn run(database: &Database, prepared: &Prepared, values: &[Value]) -> (Vec<Vec<String>>, bool) {
    if let Some(batch) = prepared.lookup(values, true).unwrap() {
        return (texts(&[batch]), true);
    }
    let rows = database.runtime.block_on(async {
        match prepared.run(values, Limits::default()).await.unwrap() {
            Answer::Rows(mut rows) => texts(&rows.collect().await.unwrap()),
            Answer::Done(_) => panic!("rows"),
        }
    });
    (rows, false)
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

/// Small tables are scanned on the caller's thread, with the statement's answer: with deleted rows, nulls, rows of segments and
/// of the head, with and without an index, with conditions on columns that are not selected.
#[test]
fn a_small_table_is_read_by_the_thread_that_waits() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table t (id bigint primary key, category text, price double, stock int)");
    database.execute(
        "insert into t select i, case when i % 11 = 0 then null else 'c' || (i % 5) end, \
         case when i % 7 = 0 then null else (i % 97) - 20.5 end, i % 13 from generate_series(0, 19999) as g(i)",
    );
    database.execute("delete from t where id % 17 = 3");
    let prepare =
        |text: &str| database.runtime.block_on(database.sql.prepare(&Principal::local(), text)).unwrap();
    // The numbers select the statement's parameters among the values.
    let statements: [(&str, &[usize]); 6] = [
        ("select id, price from t where category = $1", &[0]),
        ("select id, category, stock from t where price between $1 and $2", &[1, 2]),
        (
            "select stock from t where category = $1 and price > $2 and price < $3 and stock >= $4",
            &[0, 1, 2, 3],
        ),
        ("select id from t where price < $1 limit 7", &[1]),
        ("select id from t where price < $1 limit 0", &[1]),
        ("select * from t where category = $1 and stock = $2", &[0, 3]),
    ];
    for indexed in [false, true] {
        if indexed {
            database.execute("create index on t (category)");
            database.execute("create index on t (price)");
            database.wait_for_indexes("t");
        }
        let mut here = 0;
        for (text, parameters) in statements {
            let prepared = prepare(text);
            for round in 0..40i64 {
                let low = (round * 7 % 110) as f64 - 25.0;
                let values = [
                    Value::String(format!("c{}", round % 6)),
                    Value::Float64(low),
                    Value::Float64(low + (round % 30) as f64 - 3.0),
                    Value::Int32((round % 14) as i32),
                ];
                let values: Vec<Value> = parameters.iter().map(|at| values[*at].clone()).collect();
                let (found, was_here) = run(&database, &prepared, &values);
                let expected = database.try_query(text, values.clone()).unwrap();
                if text.contains(" limit 7") {
                    assert_eq!(found.len(), expected.len(), "{text} {values:?}");
                    let of_all = database.try_query(&text.replace(" limit 7", ""), values.clone()).unwrap();
                    assert!(found.iter().all(|row| of_all.contains(row)), "{text} {values:?}");
                } else {
                    assert_eq!(sorted(found), sorted(expected), "{text} {values:?}");
                }
                here += u32::from(was_here);
            }
        }
        assert!(here > 80, "{here} were read here, indexed: {indexed}");
    }
}

/// Larger reads go to the threads that have time, and give the same answer there.
#[test]
fn a_large_table_is_not_read_by_the_thread_that_waits_unless_an_index_finds_its_rows() {
    let _limit = testkit::limit(240);
    let database = open();
    database.numbers("n", 100_000, true);
    let text = "select id from n where id + 0 >= 0 and id < $1";
    let prepared = database.runtime.block_on(database.sql.prepare(&Principal::local(), text)).unwrap();
    for _ in 0..2 {
        assert!(!run(&database, &prepared, &[Value::Int64(10)]).1, "a condition that is none of one column");
    }
    database.execute("create table large (id bigint primary key, x bigint not null)");
    database.execute("insert into large select i, i % 1000 from generate_series(0, 99999) as g(i)");
    let text = "select id from large where x = $1";
    let prepared = database.runtime.block_on(database.sql.prepare(&Principal::local(), text)).unwrap();
    for _ in 0..2 {
        let (rows, here) = run(&database, &prepared, &[Value::Int64(10)]);
        assert!(rows.len() == 100 && !here, "{} rows, here: {here}", rows.len());
    }
    database.execute("create index on large (x)");
    database.wait_for_indexes("large");
    let (rows, here) = run(&database, &prepared, &[Value::Int64(10)]);
    assert!(rows.len() == 100 && here, "{} rows, here: {here}", rows.len());
}

//! RETURNING and ON CONFLICT beside other writers, within limits and rights; prepared statements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use query::{Answer, Limits, Overflow};
use types::{DataType, Kind, Principal, Scope, TableSet, Value};

use crate::database::{open, open_with, texts};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// A statement runs again if another writer inserted or updated its row first.
#[test]
fn upserts_of_one_key_from_many_sides_all_count() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table counter (id bigint primary key, n bigint)");
    let (rounds, keys) = (8, 3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let text = "insert into counter values ($1, 1) on conflict (id) do update set n = counter.n + 1 returning n";
                for round in 0..rounds * keys {
                    loop {
                        let key = vec![Value::Int64(round % keys)];
                        let answer = runtime().block_on(database.sql.run(&Principal::local(), text, key, Limits::default()));
                        match answer {
                            Ok(Answer::Rows(_)) => break,
                            Ok(other) => panic!("{other:?}"),
                            Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                        }
                    }
                }
            });
        }
    });
    let row = |key: i64| vec![key.to_string(), (3 * rounds).to_string()];
    assert_eq!(database.query("select * from counter order by id"), [row(0), row(1), row(2)]);
}

/// Exactly one of the statements counts a row as inserted.
#[test]
fn a_key_is_inserted_by_one_of_the_statements_that_do_nothing_otherwise() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table once (id bigint primary key, who bigint)");
    let counted = AtomicU64::new(0);
    thread::scope(|scope| {
        for who in 0..4i64 {
            let (counted, database) = (&counted, &database);
            scope.spawn(move || {
                for first in (0..60).step_by(3) {
                    let values: Vec<String> = (first..first + 6).map(|id| format!("({id}, {who})")).collect();
                    let returning = if who % 2 == 0 { " returning id" } else { "" };
                    let text = format!(
                        "insert into once values {} on conflict do nothing{returning}",
                        values.join(", ")
                    );
                    loop {
                        let answer = runtime().block_on(async {
                            match database
                                .sql
                                .run(&Principal::local(), &text, vec![], Limits::default())
                                .await?
                            {
                                Answer::Done(done) => Ok(done.count),
                                Answer::Rows(mut rows) => {
                                    Ok(rows.collect().await?.iter().map(|b| b.num_rows() as u64).sum())
                                }
                            }
                        });
                        match answer {
                            Ok(count) => {
                                counted.fetch_add(count, Ordering::Relaxed);
                                break;
                            }
                            Err::<u64, types::Error>(error) => {
                                assert_eq!(error.kind(), Kind::Conflict, "{error}")
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(counted.load(Ordering::Relaxed), 63);
    assert_eq!(database.query("select count(*) from once"), [["63"]]);
}

#[test]
fn returning_gives_row_ids_and_times_as_they_are_committed() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table log (id bigint, line text)");
    for (text, and) in [
        ("insert into log values (1, 'a'), (2, 'b') returning _row_id, _time, line", ""),
        (
            "insert into log values (3, 'c') returning _row_id + 0 as r, _time + interval '0 s' as at, line",
            " where id = 3",
        ),
        ("update log set line = line || '!' where id < 3 returning _row_id, _time, line", " where id < 3"),
        ("update log set line = 'x' where id = 3 returning (_row_id), (_time), lower(line)", " where id = 3"),
    ] {
        let returned = database.query(text);
        let stored = database.query(&format!("select _row_id, _time, line from log{and} order by _row_id"));
        assert_eq!(returned, stored, "{text}");
    }
    let Answer::Rows(rows) =
        database.run("delete from log returning _row_id", vec![], Limits::default()).unwrap()
    else {
        panic!("rows")
    };
    assert!(rows.lsn() >= database.rows("select 1", vec![], Limits::default()).unwrap().lsn());
}

/// The refusal must come before the commit: afterwards it would be too late.
#[test]
fn returning_more_rows_than_an_answer_may_have_changes_nothing() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 10_000, true);
    let limits = |overflow| Limits { rows_max: Some(9_000), overflow, ..Limits::default() };
    let text = "update n set x = -1 returning id";
    let error = database.run(text, vec![], limits(Overflow::Error)).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    assert_eq!(database.query("select count(*) from n where x = -1"), [["0"]]);
    let Answer::Rows(mut rows) = database.run(text, vec![], limits(Overflow::Truncate)).unwrap() else {
        panic!("rows")
    };
    assert!(database.sql.status().memory_bytes > 0, "what is returned is counted while it is read");
    let batches = database.runtime.block_on(rows.collect()).unwrap();
    assert!(rows.truncated() && batches.iter().all(|batch| batch.num_rows() <= 8_192));
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 9_000);
    assert_eq!(database.query("select count(*) from n where x = -1"), [["10000"]]);
    drop((rows, batches));
    assert_eq!(database.sql.status().memory_bytes, 0);
}

#[test]
fn what_an_upsert_and_returning_hold_counts_towards_the_memory_of_all_statements() {
    let _limit = testkit::limit(120);
    let database = open_with(|options| options.memory_bytes = 8 << 20);
    database.numbers("n", 100_000, true);
    for text in [
        "delete from n returning *, repeat(kind, 30)",
        "insert into n select * from n on conflict (id) do update set kind = repeat(excluded.kind, 30)",
    ] {
        let error = database.run(text, vec![], Limits::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge, "{text}: {error}");
        // The statement's threads end a little later.
        let refused = Instant::now();
        while database.sql.status().memory_bytes > 0 {
            assert!(refused.elapsed() < Duration::from_secs(20), "{text}: {:?}", database.sql.status());
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(database.query("select count(*), max(kind) from n"), [["100000", "kind 9"]]);
}

/// A1 and rights: neither the write nor its RETURNING crosses them.
#[test]
fn returning_and_conflicts_show_and_change_only_what_is_ones_own() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table mine (id bigint primary key)");
    database.execute("create table other (id bigint primary key)");
    database.execute("insert into other values (1)");
    let run = |scope: Scope, text: &str| {
        let who = Principal { name: "some".into(), scope, tables: TableSet::Only(vec!["main.mine".into()]) };
        database.runtime.block_on(database.sql.run(&who, text, vec![], Limits::default())).map(|_| ())
    };
    for text in [
        "delete from other returning id",
        "insert into other values (1) on conflict do nothing",
        "insert into mine values (1) on conflict (id) do update set id = (select max(id) from other)",
        "insert into mine values (2) returning (select max(id) from other)",
        "update mine set id = other.id from other",
        "delete from mine using other",
        "truncate other",
        "with o as (select * from other) insert into mine select * from o",
    ] {
        assert_eq!(run(Scope::Write, text).unwrap_err().kind(), Kind::NotFound, "{text}");
    }
    for text in [
        "delete from mine returning id",
        "truncate mine",
        "insert into mine values (1) on conflict do nothing returning id",
        "with o as (select 1) insert into mine select * from o",
    ] {
        assert_eq!(run(Scope::Read, text).unwrap_err().kind(), Kind::Forbidden, "{text}");
    }
    // A principal that may only read a view cannot write through it by any statement.
    let view = database.engine.view(&Principal::local()).unwrap();
    for text in [
        "delete from mine returning id",
        "with o as (select 1) delete from mine returning id",
        "truncate mine",
    ] {
        let outcome =
            database.runtime.block_on(database.sql.read(view.clone(), text, vec![], Limits::default()));
        assert_eq!(outcome.unwrap_err().kind(), Kind::Forbidden, "{text}");
    }
    assert_eq!(database.query("select count(*) from mine"), [["0"]]);
    assert_eq!(database.query("select count(*) from other"), [["1"]]);
}

/// A join may find several rows for one row: the same one is taken each time.
#[test]
fn update_from_chooses_the_same_row_each_time() {
    let _limit = testkit::limit(240);
    let database = open();
    database.numbers("n", 40_000, false);
    database.execute("create table t (id bigint primary key, x bigint)");
    database.execute("insert into t select i, null from generate_series(0, 9) as g(i)");
    for _ in 0..5 {
        assert_eq!(database.execute("update t set x = n.id from n where n.id % 10 = t.id"), 10);
        assert_eq!(database.query("select count(*) from t where x = id"), [["10"]]);
    }
}

#[test]
fn a_prepared_statement_knows_its_parameters_and_outlives_its_tables() {
    let _limit = testkit::limit(240);
    let database = open();
    let run = |prepared: &query::Prepared, values: &[Value]| {
        if let Some(batch) = prepared.lookup(values, true)? {
            return Ok(texts(&[batch]));
        }
        database.runtime.block_on(async {
            match prepared.run(values, Limits::default()).await? {
                Answer::Rows(mut rows) => rows.collect().await.map(|batches| texts(&batches)),
                Answer::Done(done) => Ok(vec![vec![done.count.to_string()]]),
            }
        })
    };
    let prepare = |text: &str| database.runtime.block_on(database.sql.prepare(&Principal::local(), text));
    database.execute("create table t (id int primary key, s text, f double)");
    assert_eq!(prepare("select nothing from t").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(prepare("select * from nothing").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(prepare("selec 1").unwrap_err().kind(), Kind::Invalid);

    let insert = prepare("insert into t values ($1, $2, $3) returning id").unwrap();
    for id in 0..3 {
        let values = [Value::Int64(id), Value::String(format!("row {id}")), Value::Float64(0.5)];
        assert_eq!(run(&insert, &values).unwrap(), [[id.to_string()]]);
    }
    let by_key = prepare("select s as what, id from t where id = $1").unwrap();
    assert_eq!(by_key.parameter_types(), [Some(DataType::Int32)]);
    // An int64 or a text with the value of an int32 is accepted like one.
    for value in [Value::Int32(1), Value::Int64(1), Value::String("1".into()), Value::Float64(1.0)] {
        assert_eq!(run(&by_key, &[value]).unwrap(), [["row 1", "1"]]);
    }
    assert!(run(&by_key, &[Value::Int32(9)]).unwrap().is_empty());
    assert!(run(&by_key, &[Value::Null]).unwrap().is_empty());
    for value in [Value::Float64(1.5), Value::String("one".into()), Value::Int64(1 << 40), Value::Bool(true)]
    {
        let error = run(&by_key, std::slice::from_ref(&value)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{value:?}: {error}");
        assert!(error.to_string().contains("$1"), "{error}");
    }
    let error = run(&by_key, &[]).unwrap_err();
    assert!(error.message().contains("1 parameter, 0 values"), "{error}");

    // The row is found without a plan, and in the current table.
    assert!(by_key.lookup(&[Value::Int32(2)], true).unwrap().is_some());
    let direct = database.sql.status().direct;
    assert_eq!(run(&by_key, &[Value::Int32(2)]).unwrap(), [["row 2", "2"]]);
    assert_eq!(database.sql.status().direct, direct + 1);
    database.execute("update t set s = 'new' where id = 2");
    assert_eq!(run(&by_key, &[Value::Int32(2)]).unwrap(), [["new", "2"]]);

    // Another table of the same name, whose key has another type.
    database.execute("drop table t");
    assert_eq!(run(&by_key, &[Value::Int32(2)]).unwrap_err().kind(), Kind::NotFound);
    database.execute("create table t (id text primary key, s text, f double)");
    assert_eq!(run(&insert, &[Value::String("2".into()), "text".into(), Value::Null]).unwrap(), [["2"]]);
    assert_eq!(run(&by_key, &[Value::String("2".into())]).unwrap(), [["text", "2"]]);
    assert_eq!(run(&by_key, &[Value::String("2".into())]).unwrap(), [["text", "2"]]);

    // The type of a parameter that stands beside two types is not inferred.
    database.execute("create table two (a int, b text)");
    database.execute("insert into two values (1, '1')");
    let either = prepare("select count(*) from two where a = $1 and b = $1").unwrap();
    assert_eq!(run(&either, &["1".into()]).unwrap(), [["1"]]);

    // No type is guessed for a parameter that accepts any.
    let echo = prepare("select $1").unwrap();
    assert_eq!(run(&echo, &[Value::Int64(7)]).unwrap(), [["7"]]);
    assert_eq!(run(&echo, &["seven".into()]).unwrap(), [["seven"]]);
}

/// A lookup by key answers like the statement, for keys of each type and of several columns.
#[test]
fn prepared_lookups_answer_as_statements_do() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table k (a text, b bigint, c timestamptz, v double, primary key (b, a))");
    database.execute("insert into k select 'x' || (i % 7), i, to_timestamp(i), i / 4.0 from generate_series(0, 499) as g(i)");
    database.execute("delete from k where b % 5 = 0");
    let text = "select v, c, a from k where a = $1 and $2 = b";
    let prepared = database.runtime.block_on(database.sql.prepare(&Principal::local(), text)).unwrap();
    for id in 0..500i64 {
        let values = vec![Value::String(format!("x{}", id % 7)), Value::Int64(id)];
        let expected = database.try_query(text, values.clone()).unwrap();
        assert_eq!(expected.len(), usize::from(id % 5 != 0));
        let found = match prepared.lookup(&values, true).unwrap() {
            Some(batch) => texts(&[batch]),
            None => database.runtime.block_on(async {
                let Answer::Rows(mut rows) = prepared.run(&values, Limits::default()).await.unwrap() else {
                    panic!("rows")
                };
                texts(&rows.collect().await.unwrap())
            }),
        };
        assert_eq!(found, expected, "{id}");
    }
    assert!(prepared.lookup(&[Value::String("x1".into()), Value::Int64(1)], true).unwrap().is_some());
}

//! Reads of the past by AS OF.

use std::collections::BTreeMap;
use std::time::Duration;

use query::{Answer, Limits};
use testkit::Rng;
use types::{Kind, Lsn, Principal, Scope, TableSet, Value};

use crate::database::{Database, open, open_engine, texts};

fn now(database: &Database) -> Lsn {
    database.engine.root().lsn()
}

fn refused(database: &Database, text: &str) -> types::Error {
    match database.run(text, Vec::new(), Limits::default()) {
        Err(error) => error,
        Ok(_) => panic!("{text} was answered"),
    }
}

#[test]
fn a_mistake_is_undone_by_what_was_there_before() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, name text)");
    database.execute("insert into t values (1, 'one'), (2, 'two'), (3, 'three')");
    let before = now(&database);
    let when = database.query("select now()")[0][0].clone();
    database.execute("update t set name = 'wrong' where id < 3");
    database.execute("delete from t where id = 3");
    let then = [["1", "one"], ["2", "two"], ["3", "three"]];
    for point in [
        format!("AS OF LSN {before}"),
        format!("as of lsn({before})"),
        format!("FOR SYSTEM_TIME AS OF LSN {before}"),
        format!("FOR SYSTEM_TIME AS OF TIMESTAMP '{when}'"),
        format!("VERSION AS OF {before}"),
        format!("AS OF TIMESTAMP '{when}'"),
        format!("AS OF '{when}'"),
        format!("AS OF CAST('{when}' AS TIMESTAMP)"),
    ] {
        assert_eq!(database.query(&format!("select id, name from t {point} order by id")), then, "{point}");
        assert_eq!(database.query(&format!("select name from t {point} where id = 2")), [["two"]]);
        assert_eq!(database.query(&format!("select count(*) from t {point} as old")), [["3"]]);
        assert_eq!(database.query(&format!("select t.* from t {point} where t.id = 3")), [["3", "three"]]);
    }
    let at = |text: &str, value: Value| database.try_query(text, vec![value]).unwrap();
    assert_eq!(at("select count(*) from t as of lsn $1", Value::Int64(before.0 as i64)), [["3"]]);
    assert_eq!(at("select count(*) from t as of $1", Value::String(when)), [["3"]]);
    assert_eq!(database.query("select count(*) from t as of now()"), [["2"]]);
    assert_eq!(database.query("select id from t as of"), [["1"], ["2"]], "a name like any other");

    // The rows that have changed since.
    let changed = format!(
        "select old.id, old.name, t.name from t as of lsn {before} old left join t on t.id = old.id
         where t.name is distinct from old.name order by 1"
    );
    assert_eq!(
        database.query(&changed),
        [["1", "one", "wrong"], ["2", "two", "wrong"], ["3", "three", "NULL"]]
    );
    let undo = format!(
        "insert into t select * from t as of lsn {before} on conflict (id) do update set name = excluded.name"
    );
    assert_eq!(database.execute(&undo), 3);
    assert_eq!(database.query("select * from t order by id"), then);
    database.execute("truncate t");
    let before = Lsn(now(&database).0 - 1);
    assert_eq!(database.execute(&format!("insert into t select * from t as of lsn {before}")), 3);
    assert_eq!(database.query("select * from t order by id"), then);
    database.execute(&format!("create table copy as select * from t as of lsn {before}"));
    assert_eq!(database.query("select * from copy order by id"), then);
}

#[test]
fn what_cannot_be_read_is_refused_and_says_how_far_back_it_goes() {
    let _limit = testkit::limit(120);
    let history = engine::Options { history: Duration::from_millis(1), ..Default::default() };
    let database = open_engine(history, |_| ());
    database.execute("create table t (id bigint primary key, x bigint)");
    let made = now(&database);
    database.execute("insert into t select value, 0 from generate_series(1, 10) as g(value)");
    for (text, kind, said) in [
        (format!("select * from t as of lsn {}", now(&database).0 + 1), Kind::Invalid, "is yet to come"),
        (format!("select * from t as of lsn {}", made.0 - 1), Kind::NotFound, "did not exist at lsn"),
        ("select * from t as of '1999-01-01'".into(), Kind::NotFound, "is known since"),
        ("select * from t as of date '1999-01-01'".into(), Kind::NotFound, "is known since"),
        ("select * from t as of 'yesterday'".into(), Kind::Invalid, "not a time"),
        ("select * from t for system_time as of 17".into(), Kind::Invalid, "write AS OF LSN"),
        ("select * from t as of lsn -1".into(), Kind::Invalid, ""),
        ("select * from t for system_time as of (select max(x) from t)".into(), Kind::Invalid, ""),
        ("select * from nowhere as of lsn 1".into(), Kind::NotFound, "no table `nowhere`"),
        ("select * from polynya.indexes as of lsn 1".into(), Kind::Invalid, "no past"),
        ("with c as (select 1) select * from c as of lsn 1".into(), Kind::Invalid, "inside the WITH"),
        ("update t as of lsn 1 set x = 1".into(), Kind::Invalid, ""),
        ("delete from t as of lsn 1".into(), Kind::Invalid, "written to the present"),
        ("create view v as select * from t as of lsn 1".into(), Kind::Invalid, "point in time"),
        ("select * from generate_series(1, 2) as of lsn 1".into(), Kind::Invalid, ""),
    ] {
        let error = refused(&database, &text);
        assert_eq!(error.kind(), kind, "{text}: {error}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    // More deletes than the history keeps while nobody reads the past.
    database.execute("create table big as select value as id from generate_series(1, 600000) as g(value)");
    let before = now(&database);
    database.execute("delete from big where id % 2 = 0");
    std::thread::sleep(Duration::from_millis(5));
    database.execute("delete from big where id = 1");
    let error = refused(&database, &format!("select * from big as of lsn {before}"));
    assert!(error.message().contains("can be read back to lsn"), "{error}");
    assert_eq!(database.query(&format!("select count(*) from big as of lsn {}", before.0 + 1)), [["300000"]]);
}

#[test]
fn nobody_sees_by_the_past_what_it_may_not_see_now() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table open (id bigint)");
    database.execute("create table secret (id bigint)");
    database.execute("insert into secret values (7)");
    let before = now(&database);
    database.execute("alter table open rename to other");
    database.execute("alter table secret rename to open");
    let web = Principal {
        name: "web".into(),
        scope: Scope::Read,
        tables: TableSet::Only(vec!["main.open".into()]),
    };
    let ask = |text: &str| {
        let answer = database.runtime.block_on(database.sql.run(&web, text, Vec::new(), Limits::default()));
        let Answer::Rows(mut rows) = answer? else { panic!("{text} did something") };
        database.runtime.block_on(rows.collect()).map(|batches| texts(&batches))
    };
    assert_eq!(ask("select id from open").unwrap(), [["7"]], "it is called so now");
    for name in ["open", "secret", "other"] {
        let error = ask(&format!("select id from {name} as of lsn {before}")).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{name}: {error}");
    }
    let mine = database.query(&format!("select id from secret as of lsn {before}"));
    assert_eq!(mine, [["7"]], "the name of then");
}

#[test]
fn columns_are_those_of_then_and_views_those_of_now() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, a text)");
    database.execute("insert into t values (1, 'x')");
    let before = now(&database);
    database.execute("alter table t add column b bigint default 5");
    database.execute("alter table t rename column a to c");
    database.execute("update t set c = 'y'");
    database.execute("create view v as select id, c from t");
    let later = now(&database);
    database.execute("update t set c = 'z', b = 6");
    assert_eq!(database.query(&format!("select * from t as of lsn {before}")), [["1", "x"]]);
    assert_eq!(database.query(&format!("select a from t as of lsn {before}")), [["x"]]);
    assert_eq!(database.query(&format!("select * from t as of lsn {later}")), [["1", "y", "5"]]);
    assert_eq!(database.query(&format!("select * from v as of lsn {later} where id = 1")), [["1", "y"]]);
    let both = format!("select v.c, o.c from v join v as of lsn {later} o on o.id = v.id");
    assert_eq!(database.query(&both), [["z", "y"]]);
    let error = refused(&database, &format!("select * from v as of lsn {before}"));
    assert!(error.message().contains("`c`"), "{error}");
    // At that lsn the name meant another column.
    database.execute("create table u (x bigint, y bigint)");
    database.execute("insert into u values (1, 2)");
    let swapped = now(&database);
    database.execute("alter table u rename column x to z, rename column y to x");
    database.execute("create view w as select x from u");
    assert_eq!(database.query("select x from w"), [["2"]]);
    let error = refused(&database, &format!("select x from w as of lsn {swapped}"));
    assert!(error.message().contains("column `x` of table `u`, which it reads, is called `y`"), "{error}");
    // A dropped column can be read for as long as its values are kept.
    database.execute("alter table t drop column b");
    assert_eq!(database.query(&format!("select b from t as of lsn {later}")), [["5"]]);
}

#[test]
fn explain_says_the_point_and_a_plan_is_not_used_for_another() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, x bigint)");
    database.execute("create index on t (x)");
    database.execute("insert into t select value, 0 from generate_series(1, 1000) as g(value)");
    let (first, mut points) = (now(&database), Vec::new());
    database.wait_for_indexes("t");
    for x in 1..4 {
        database.execute(&format!("update t set x = {x} where id <= 10"));
        points.push((now(&database), x));
        database.wait_for_indexes("t");
    }
    let plan = database.query(&format!("explain select * from t as of lsn {first} where x = 0"));
    assert!(plan.iter().any(|row| row[1].contains(&format!("as of lsn {first}"))), "{plan:?}");
    for _ in 0..3 {
        for (lsn, x) in &points {
            let of = |filter: String| {
                database.query(&format!("select count(*) from t as of lsn {lsn} where {filter}"))
            };
            assert_eq!(of(format!("x = {x}")), [["10"]]);
            assert_eq!(of(format!("id = 3 and x = {x}")), [["1"]]);
            let at = vec![Value::Int64(lsn.0 as i64), Value::Int64(*x)];
            let found = database.try_query("select count(*) from t as of lsn $1 where x = $2", at);
            assert_eq!(found.unwrap(), [["10"]]);
            // The whole statement over a view of the past, planned once.
            let view = database.engine.view(&Principal::local()).unwrap().at(*lsn).unwrap();
            let read = database.sql.read(view, "select x from t where id = 3", Vec::new(), Limits::default());
            let mut rows = database.runtime.block_on(read).unwrap();
            let batches = database.runtime.block_on(rows.collect()).unwrap();
            assert_eq!((texts(&batches), rows.lsn()), (vec![vec![x.to_string()]], *lsn));
        }
        assert_eq!(database.query("select x from t where id = 3"), [["3"]]);
    }
}

#[test]
fn the_past_is_what_it_was_while_rows_are_sealed_merged_and_streamed() {
    let _limit = testkit::limit(300);
    let options = engine::Options { seal_rows: 3_000, ..Default::default() };
    let database = open_engine(options, |_| ());
    database.execute("create table t (id bigint primary key, x bigint)");
    let mut model: BTreeMap<i64, i64> = BTreeMap::new();
    let mut points: Vec<(Lsn, BTreeMap<i64, i64>)> = Vec::new();
    let mut rng = Rng::new(7);
    let mut streams = Vec::new();
    let is_enough = |round: i64| {
        let status = database.engine.status();
        round >= 60 && status.seals > 3 && status.compactions > 0 && status.past_bytes > 0
    };
    // Seals and merges happen when the machine has time for them.
    for round in (0i64..).take_while(|round| !is_enough(*round)) {
        let (first, count) = (rng.below(20_000) as i64, 1 + rng.below(2_000) as i64);
        match rng.below(4) {
            0 => {
                database.execute(&format!("delete from t where id >= {first} and id < {}", first + count));
                model.retain(|id, _| !(first..first + count).contains(id));
            }
            1 => {
                database.execute(&format!("update t set x = x + {round} where id % 7 = {}", round % 7));
                model.iter_mut().filter(|(id, _)| **id % 7 == round % 7).for_each(|(_, x)| *x += round);
            }
            _ => {
                database.execute(&format!(
                    "insert into t select value, {round} from generate_series({first}, {}) as g(value)
                     on conflict (id) do update set x = excluded.x",
                    first + count - 1
                ));
                model.extend((first..first + count).map(|id| (id, round)));
            }
        }
        points.push((now(&database), model.clone()));
        let (lsn, then) = rng.pick(&points).clone();
        let found = database.query(&format!("select count(*), sum(x), sum(id * x) from t as of lsn {lsn}"));
        let sum = |of: &dyn Fn(i64, i64) -> i64| match then.is_empty() {
            true => "NULL".to_owned(),
            false => then.iter().map(|(id, x)| of(*id, *x)).sum::<i64>().to_string(),
        };
        assert_eq!(found, [[then.len().to_string(), sum(&|_, x| x), sum(&|id, x| id * x)]], "lsn {lsn}");
        if let Some((id, x)) = then.iter().nth(then.len() / 2) {
            let found = database.query(&format!("select x from t as of lsn {lsn} where id = {id}"));
            assert_eq!(found, [[x.to_string()]], "id {id} at lsn {lsn}");
        }
        if round % 15 == 0 && round < 60 {
            let text = format!("select id, x from t as of lsn {lsn} order by _row_id");
            streams.push((database.rows(&text, Vec::new(), Limits::default()).unwrap(), lsn, then));
        }
    }
    for (mut rows, lsn, then) in streams {
        let batches = database.runtime.block_on(rows.collect()).unwrap();
        let read = texts(&batches).into_iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap()));
        assert_eq!(read.collect::<BTreeMap<i64, i64>>(), then, "a stream of lsn {lsn}");
    }
}

#[test]
fn an_open_transaction_reads_the_past_without_what_it_wrote_itself() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, x bigint)");
    database.execute("insert into t values (1, 1), (2, 2)");
    let before = now(&database);
    database.execute("update t set x = 10 where id = 1");
    let transaction = database.sql.begin(&Principal::local()).unwrap();
    let run = |text: &str| {
        let ran = database.sql.run_in(&transaction, text, Vec::new(), Limits::default());
        match database.runtime.block_on(ran).unwrap() {
            Answer::Done(done) => vec![vec![done.count.to_string()]],
            Answer::Rows(mut rows) => texts(&database.runtime.block_on(rows.collect()).unwrap()),
        }
    };
    assert_eq!(run("update t set x = 20 where id = 2"), [["1"]]);
    assert_eq!(run("delete from t where id = 1"), [["1"]]);
    assert_eq!(run("insert into t values (3, 3)"), [["1"]]);
    assert_eq!(run(&format!("select * from t as of lsn {before} order by id")), [["1", "1"], ["2", "2"]]);
    let newest = now(&database);
    assert_eq!(run(&format!("select * from t as of lsn {newest} order by id")), [["1", "10"], ["2", "2"]]);
    assert_eq!(run("select * from t order by id"), [["2", "20"], ["3", "3"]]);
    assert_eq!(run(&format!("insert into t select * from t as of lsn {before} where id = 1")), [["1"]]);
    transaction.commit().unwrap();
    assert_eq!(database.query("select * from t order by id"), [["1", "1"], ["2", "20"], ["3", "3"]]);
}

#[test]
fn how_far_back_a_table_can_be_read_is_shown() {
    let _limit = testkit::limit(120);
    let options = engine::Options { seal_rows: 100, ..Default::default() };
    let database = open_engine(options, |_| ());
    database.execute("create table t (id bigint primary key, x bigint)");
    let made = now(&database);
    database.execute("insert into t select value, 0 from generate_series(1, 90) as g(value)");
    for _ in 0..4 {
        database.execute("update t set x = x + 1");
    }
    let start = std::time::Instant::now();
    // The background seals, and moves ended rows to the history.
    while database.query("select bytes > 0 from polynya.history where table_name = 't'") != [["true"]] {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let shown = database.query("select table_schema, oldest_lsn, oldest_time <= now() from polynya.history");
    assert_eq!(shown, [["main", &made.to_string(), "true"]]);
}

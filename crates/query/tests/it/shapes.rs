//! Forms of valid SQL that DataFusion refuses, or for which it reads all rows.

use types::Value;

use crate::database::{Database, open};
use crate::index_advice::{analyzed, figure};

fn names(database: &Database, text: &str) -> Vec<String> {
    let rows =
        database.rows(text, vec![], query::Limits::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
    rows.schema().fields().iter().map(|field| field.name().clone()).collect()
}

#[test]
fn two_columns_of_one_name_are_numbered() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint, n bigint)");
    database.execute("create table u (id bigint, m bigint)");
    database.execute("insert into t values (1, 10), (2, 20)");
    database.execute("insert into u values (1, 30), (2, 5)");
    let is = |text: &str, columns: &[&str], rows: &[&str]| {
        assert_eq!(names(&database, text), columns, "{text}");
        let found: Vec<String> = database.query(text).into_iter().map(|row| row.join(" ")).collect();
        assert_eq!(found, rows, "{text}");
    };
    is("select id, id, ID from t order by 1", &["id", "id_2", "id_3"], &["1 1 1", "2 2 2"]);
    is("select id as x, n as x from t order by 1", &["x", "x_2"], &["1 10", "2 20"]);
    is("select t.id, u.id from t join u on t.id = u.id order by u.id desc", &["id", "id_2"], &["2 2", "1 1"]);
    is("select distinct t.id, u.id from t, u order by u.id, t.id limit 1", &["id", "id_2"], &["1 1"]);
    is("select *, id from t order by n", &["id", "n", "id_2"], &["1 10 1", "2 20 2"]);
    is("select *, n + 1 as n from t order by t.n", &["id", "n", "n_2"], &["1 10 11", "2 20 21"]);
    is("select id, * from t order by 1", &["id_2", "id", "n"], &["1 1 10", "2 2 20"]);
    is("select t.*, u.id from t join u using (id) order by m", &["id", "n", "id_2"], &["2 20 2", "1 10 1"]);
    is("select id, n as id_2, id from t order by 1", &["id", "id_2", "id_3"], &["1 10 1", "2 20 2"]);
    // The names are not visible in the answer here.
    is("select count(*) from (select id as x, n as x from t) s", &["count(*)"], &["2"]);
    is(
        "select * from (select t.id, u.id from t join u on t.n < u.m) s order by 1",
        &["id", "id_2"],
        &["1 1", "2 1"],
    );
    is(
        "select x from (select id as x, n as x from t union all select 7, 8) s order by x",
        &["x"],
        &["1", "2", "7"],
    );
    is(
        "select id from t where exists (select u.id, u.id from u where u.m > t.n) order by id",
        &["id"],
        &["1", "2"],
    );
    assert_eq!(database.execute("insert into u select id as x, n as x from t"), 2);
    // A given name stays.
    is("select max(m) as m from u group by id order by m", &["m"], &["20", "30"]);
}

#[test]
fn an_interval_is_multiplied_and_divided() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (i bigint, s int, f double, at timestamp)");
    database.execute(
        "insert into t values (90, 2, 0.5, '2024-01-31 00:00:00'), (-1, 0, -1.5, '2024-01-31 00:00:00'), (null, null, null, '2024-01-31 00:00:00')",
    );
    let at = |expr: &str| {
        let rows =
            database.query(&format!("select cast(at + {expr} as text) from t order by i desc nulls last"));
        rows.into_iter().map(|row| row[0].replace('T', " ").replace('Z', "")).collect::<Vec<_>>()
    };
    let is = |expr: &str, first: &str, second: &str| {
        assert_eq!(at(expr), [first, second, "NULL"], "{expr}");
    };
    is("i * interval '1 minute'", "2024-01-31 01:30:00", "2024-01-30 23:59:00");
    is("interval '1 hour' * s", "2024-01-31 02:00:00", "2024-01-31 00:00:00");
    is("s * interval '1 month'", "2024-03-31 00:00:00", "2024-01-31 00:00:00");
    is("f * interval '1 day'", "2024-01-31 12:00:00", "2024-01-29 12:00:00");
    is("interval '1 month' * f", "2024-02-15 00:00:00", "2023-12-16 00:00:00");
    is("(interval '1 day' / 4) * s", "2024-01-31 12:00:00", "2024-01-31 00:00:00");
    is("interval '1 minute' * 1.5 * s", "2024-01-31 00:03:00", "2024-01-31 00:00:00");
    let counted = database.try_query(
        "select count(*) from t where at < timestamp '2024-01-31' + $1 * interval '1 second'",
        vec![Value::Int64(1)],
    );
    assert_eq!(counted.unwrap(), [["3"]]);
    for (text, why) in [
        ("select interval '1 day' / s from t", "divided by zero"),
        ("select i * interval '2000000000 days' from t", "an interval is out of range"),
    ] {
        let error = database.try_query(text, vec![]).unwrap_err();
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}

#[test]
fn good_statements_are_not_refused() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (a bigint, b bigint, c bigint)");
    database.execute("insert into t values (1, 2, 3), (1, 2, 1), (2, 1, 5), (1, 1, 7), (2, 1, 4)");
    let is = |text: &str, rows: &[&str]| {
        let found: Vec<String> = database.query(text).into_iter().map(|row| row.join(" ")).collect();
        assert_eq!(found, rows, "{text}");
    };
    // Both columns are the same one.
    is(
        "select a as x, a as y from t where c > 4 union all select b, b from t where c < 3 order by 1, 2 desc",
        &["1 1", "2 2", "2 2"],
    );
    is(
        "select c as x, c as y from t union all select a, b from t where c = 3 order by 2 desc, 1",
        &["7 7", "5 5", "4 4", "3 3", "1 2", "1 1"],
    );
    is("select distinct on (a, b) a, b, c from t order by b, a, c desc", &["1 1 7", "2 1 5", "1 2 3"]);
    is(
        "select distinct on (b, a) a as x, b as y, c from t order by x desc, 2, c",
        &["2 1 4", "1 1 7", "1 2 1"],
    );
    is("select count(*) from t as of (now() + interval '1 hour')", &["5"]);
    is("select count(*) from t as of (timestamptz '2300-01-01T00:00:00Z') x", &["5"]);
    is("select of.y, of.x from t as of (y, x, z) where of.z = 7", &["1 1"]);
    let asked =
        database.try_query("select count(*) from t as of ($1)", vec![Value::String("2300-01-01".into())]);
    assert_eq!(asked.unwrap(), [["5"]]);
    // The function by which an ASOF JOIN is passed to DataFusion cannot be called by users.
    let text = "select * from t x left join t y on \"nearest in time\"(x.a >= y.a)";
    let error = database.try_query(text, vec![]).unwrap_err();
    assert!(error.to_string().contains("there is no function"), "{error}");
}

#[test]
fn conditions_in_other_words_ask_the_same_index() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, x bigint, f double, ok boolean)");
    database.execute(
        "insert into t select value, value % 1000, case when value % 500 = 0 then 0.0 when value % 500 = 1 then -0.0 else value end, value % 2000 = 7 from generate_series(1, 20000)",
    );
    database.execute("insert into t values (20001, null, null, null), (20002, null, 'NaN', true)");
    for index in ["x", "f", "ok"] {
        database.execute(&format!("create index on t ({index})"));
    }
    database.wait_for_indexes("t");
    let is = |filter: &str, count: &str, read: f64| {
        let text = format!("select count(id), sum(id) > 0 from t where {filter}");
        assert_eq!(database.query(&text)[0][0], count, "{filter}");
        let plan = analyzed(&database, &text);
        assert!(figure(&plan, "rows_looked_up") <= read, "{filter}: {plan}");
        assert!(figure(&plan, "rows_scanned") < 20.0, "{filter}: {plan}");
    };
    is("f in (0, 7)", "81", 81.0);
    is("f in (-0.0, 7, 12.5)", "81", 81.0);
    is("f in (0.0, 'NaN')", "81", 81.0);
    is("x is not distinct from 5", "20", 20.0);
    is("5 is not distinct from x", "20", 20.0);
    is("x is not distinct from null", "2", 2.0);
    is("f is not distinct from 0", "80", 80.0);
    is("ok", "11", 11.0);
    is("ok is true", "11", 11.0);
    is("case when x = 5 then true else false end", "20", 20.0);
    is("case when x = 5 then true when x = 6 then false when x = 7 then id > 10000 end", "30", 60.0);
    is("case when x = 5 then id % 2 = 1 else x = 8 end", "40", 40.0);
    is("(case when x = 5 then 1 else 0 end) is not distinct from 1 and x < 9", "20", 20_002.0);
    // A branch that accepts other rows keeps them.
    let all = "select count(*) from t where case when x = 5 then false else true end";
    assert_eq!(database.query(all), [["19982"]]);
    let some = "select count(*) from t where not (x is not distinct from 5)";
    assert_eq!(database.query(some), [["19982"]]);
    let given =
        database.try_query("select count(*) from t where x is not distinct from $1", vec![Value::Int64(5)]);
    assert_eq!(given.unwrap(), [["20"]]);
}

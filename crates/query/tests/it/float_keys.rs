//! Zeros and NaN in cached plans, in lookups without a plan and in indexes; and lookups that must stay fast nevertheless.

use types::Value;

use crate::database::{Database, open};

fn filled() -> Database {
    let database = open();
    database.execute("create table f (id bigint primary key, x double precision, n int)");
    // Sixteen zeros of both signs, four NaNs, and other values.
    let rows = "select i, case when i % 500 = 1 then 0.0::float8 when i % 500 = 2 then -0.0::float8 \
        when i % 2000 = 3 then float8 'NaN' else (i % 7001) - 3000.5 end, (i * 7) % 11 \
        from generate_series(1, 4000) g(i)";
    database.execute(&format!("insert into f {rows}"));
    database
}

const ORDERED: [&str; 9] = [
    "select id from f where x = 0 order by id",
    "select id from f where x >= -0.0 and x < 1 order by id",
    "select id from f where x in (0, 499.5) order by id",
    "select id from f where x >= 'NaN' order by id",
    "select x + 0.0 as x, n from f order by x, n, id limit 2610",
    "select id, n from f where x between -1 and 1 order by x, n, id limit 5",
    "select id, n from f where x between -1 and 1 order by x desc, n desc, id limit 5",
    "select x, count(*) from f where n = 3 group by x order by x, 2 limit 500",
    "select min(x), max(x) from f",
];

#[test]
fn an_index_knows_which_floats_are_equal() {
    let _limit = testkit::limit(240);
    let database = filled();
    let plain: Vec<_> = ORDERED.iter().map(|text| database.query(text)).collect();
    assert_eq!(plain[0].len(), 16);
    assert_eq!(plain[3].len(), 2);
    for index in ["create index f_x on f (x)", "create index f_x_n on f (x, n, id)"] {
        database.execute(index);
        database.wait_for_indexes("f");
        for (text, plain) in ORDERED.iter().zip(&plain) {
            assert_eq!(&database.query(text), plain, "{index}: {text}");
        }
    }
    // Zeros of one sign leave the index in order.
    database.execute("create table p (x double precision, n int)");
    database.execute("insert into p select (i % 100) * 1.0::float8, i from generate_series(1, 4000) g(i)");
    database.execute("create index p_x_n on p (x, n)");
    database.wait_for_indexes("p");
    let first = database.query("explain select n from p order by x, n limit 3").concat().join("\n");
    assert!(first.contains("index=p_x_n"), "{first}");
    assert_eq!(database.query("select n from p order by x, n limit 3"), [["100"], ["200"], ["300"]]);
}

#[test]
fn a_kept_plan_takes_either_zero_and_what_is_no_number() {
    let _limit = testkit::limit(240);
    let database = filled();
    let count =
        |text: &str, value: f64| database.try_query(text, vec![Value::Float64(value)]).unwrap()[0][0].clone();
    let ids = |text: &str, value: f64| database.try_query(text, vec![Value::Float64(value)]).unwrap().len();
    let check = || {
        for _ in 0..3 {
            for zero in [0.0, -0.0] {
                assert_eq!(ids("select id from f where x = $1", zero), 16);
                assert_eq!(count("select count(*) from f where x <> $1", zero), "3984");
                assert_eq!(count("select count(*) from f where x < $1 or x > $1", zero), "3984");
                assert_eq!(count("select count(*) from f where x in ($1, 499.5)", zero), "17");
                assert_eq!(count("select count(*) from f where x is not distinct from $1", zero), "16");
                assert_eq!(count("select 0.0::float8 = $1", zero), "true");
                assert_eq!(count("select count(*) from f where x = $1 and $1 = 0", zero), "16");
                // The scan's pruning sees the parameter too.
                let either = "select count(*) from f where ($1 = 0 and x = 499.5) or x = 1e301";
                assert_eq!(count(either, zero), "1");
                let case = "select count(*) from f where case when $1 = 0 then x = 499.5 else x = 1e301 end";
                assert_eq!(count(case, zero), "1");
            }
            for nan in [f64::NAN, -f64::NAN] {
                assert_eq!(ids("select id from f where x = $1", nan), 2);
                assert_eq!(count("select count(*) from f where x < $1", nan), "3998");
                assert_eq!(count("select count(*) from f where x <= $1", nan), "4000");
                assert_eq!(count("select count(*) from f where x > $1", nan), "0");
            }
            assert_eq!(ids("select id from f where x = $1", 499.5), 1);
        }
    };
    check();
    database.execute("create index f_x on f (x)");
    database.wait_for_indexes("f");
    check();
}

#[test]
fn a_column_beside_a_number_is_compared_as_it_is() {
    let _limit = testkit::limit(120);
    let database = filled();
    let plan = |text: &str| database.query(&format!("explain {text}")).concat().join("\n");
    for text in [
        "select id from f where x > 2.5 and x < 7 and x <> 4",
        "select id from f where x >= 0 and 3 > x",
        "select sum(x), min(x), max(x), avg(x) from f",
        "select id from f order by n, x limit 3",
        "select n, sum(x) from f group by n",
    ] {
        assert!(!plan(text).contains("float_key("), "{text}: {}", plan(text));
    }
    assert!(plan("select x, count(*) from f group by x").contains("float_key("));
    // Output keeps the sign of zero.
    assert_eq!(database.query("select x from f where id = 2"), [["-0.0"]]);
    assert_eq!(
        database.query("select x from f where x = 0 and id in (1, 2) order by id"),
        [["0.0"], ["-0.0"]]
    );
}

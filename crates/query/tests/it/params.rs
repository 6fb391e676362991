//! `$1`: typed values, and untyped ones as JSON has them.

use types::{Kind, Value};

use crate::database::open;

#[test]
fn a_parameter_stands_wherever_a_value_does() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 1_000, true);
    let one = |text: &str, params: Vec<Value>| {
        database.try_query(text, params).unwrap_or_else(|e| panic!("{text}: {e}")).concat().join(",")
    };
    let text = |t: &str| Value::String(t.into());
    assert_eq!(one("select kind from n where id = $1", vec![Value::Int64(7)]), "kind 7");
    assert_eq!(one("select kind from n where id = $1", vec![Value::Int32(7)]), "kind 7");
    assert_eq!(one("select kind from n where id = $1", vec![text("7")]), "kind 7");
    assert_eq!(one("select kind from n where id = $1", vec![Value::Float64(7.0)]), "kind 7");
    assert_eq!(one("select kind from n where id = $1", vec![Value::Null]), "");
    assert_eq!(
        one("select count(*) from n where kind = $2 and x < $1", vec![Value::Int64(500), text("kind 3")]),
        "50"
    );
    assert_eq!(
        one("select id from n where id in ($1, $2) order by id", vec![Value::Int64(1), Value::Int64(2)]),
        "1,2"
    );
    assert_eq!(
        one("select id from n order by id limit $1 offset $2", vec![Value::Int64(2), Value::Int64(5)]),
        "5,6"
    );
    assert_eq!(one("select $1 || 'x'", vec![text("a")]), "ax");
    assert_eq!(one("select $1 + 1", vec![Value::Int64(1)]), "2");
    assert_eq!(one("select $1", vec![Value::Null]), "NULL");
    assert_eq!(
        one("select array_length($1)", vec![Value::List(vec![Value::Int64(1), Value::Int64(2)])]),
        "2"
    );
    assert_eq!(one("select date '2024-01-02' > $1", vec![text("2024-01-01")]), "true");
    assert_eq!(one("select count(*) from n where _time > $1", vec![text("2020-01-01T00:00:00Z")]), "1000");
    assert_eq!(one("select count(*) from n where _time > $1", vec![Value::Timestamp(0)]), "1000");
    assert_eq!(one("select (select max(id) from n where id < $1)", vec![Value::Int64(10)]), "9");
    // The number of parameters must agree.
    for (text, params) in
        [("select $1", vec![]), ("select 1", vec![Value::Null]), ("select $2", vec![Value::Null])]
    {
        assert_eq!(database.try_query(text, params).unwrap_err().kind(), Kind::Invalid);
    }
}

/// Drivers pass lists over HTTP as JSON, and others as PostgreSQL's text.
#[test]
fn a_list_of_values_is_given_as_one_parameter() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 1_000, true);
    let rows = |text: &str, list: Value| {
        database.try_query(text, vec![list]).unwrap_or_else(|e| panic!("{text}: {e}")).concat().join(",")
    };
    let text = |t: &str| Value::String(t.into());
    let numbers = Value::List(vec![Value::Int64(5), Value::Int64(7), Value::Null]);
    for list in [numbers.clone(), Value::Json("[5,\"7\",null]".into()), text("{5,7,NULL}"), text("[5,7]")] {
        assert_eq!(rows("select id from n where id = any($1) order by id", list), "5,7");
    }
    // Other values, and other lengths, with the same text.
    let other = Value::Json("[1]".into());
    assert_eq!(rows("select id from n where id = any($1) order by id", other.clone()), "1");
    assert_eq!(rows("select id from n where id = any($1)", Value::List(vec![])), "");
    assert_eq!(rows("select id from n where id = any($1)", Value::Null), "");
    assert_eq!(rows("select count(*) from n where id <> all($1)", other.clone()), "999");
    assert_eq!(rows("select count(*) from n where id <> all($1)", numbers.clone()), "0");
    assert_eq!(rows("select count(*) from n where id < any($1)", numbers.clone()), "7");
    assert_eq!(rows("select count(*) from n where id = any($1::bigint[])", numbers.clone()), "2");
    assert_eq!(
        rows(
            "select id from n where kind = any($1) and id < 9",
            Value::List(vec![text("kind 7"), text("x")])
        ),
        "7"
    );
    let two = Value::Json("[5,7]".into());
    let plan = rows("explain select kind from n where id = any($1)", two);
    assert!(plan.contains("lookup=2 rows"), "{plan}");
    for wrong in [text("5"), Value::Json("[[5]]".into()), Value::Json("{\"a\":5}".into())] {
        let error = database.try_query("select id from n where id = any($1)", vec![wrong]).unwrap_err();
        assert!(matches!(error.kind(), Kind::Invalid | Kind::Schema), "{error}");
    }
}

#[test]
fn the_same_text_with_other_values_gives_other_rows() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 1_000, true);
    for id in [3i64, 500, 999, 1_000, -1] {
        let rows = database.try_query("select id from n where id = $1", vec![Value::Int64(id)]).unwrap();
        let expected: Vec<Vec<String>> =
            (0..1_000).contains(&id).then(|| vec![id.to_string()]).into_iter().collect();
        assert_eq!(rows, expected);
    }
    // Values of another type, with the same text.
    let rows = database.try_query("select id from n where id = $1", vec![Value::String("4".into())]).unwrap();
    assert_eq!(rows, [["4"]]);
}

#[test]
fn rows_are_written_from_parameters() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute(
        "create table t (id bigint primary key, d decimal(10,2), u uuid, at timestamptz, j json, v vector(2), p point,
         l text[], f double precision)",
    );
    let text = |t: &str| Value::String(t.into());
    // Values as the JSON interface sends them: numbers, text and lists.
    let untyped = vec![
        Value::Int64(1),
        text("1.25"),
        text("0190a2b3-c4d5-7e6f-8899-aabbccddeeff"),
        text("2024-01-01T00:00:00Z"),
        Value::Json("{\"a\":1}".into()),
        Value::List(vec![Value::Int64(1), Value::Float64(2.5)]),
        Value::List(vec![Value::Float64(13.4), Value::Float64(52.5)]),
        Value::List(vec![text("x"), Value::Null]),
        Value::Int64(2),
    ];
    let typed = vec![
        Value::Int32(2),
        Value::Decimal(125),
        Value::Uuid([1; 16]),
        Value::Timestamp(1_704_067_200_000_000),
        text("[1]"),
        Value::Vector(vec![1.0, 2.5]),
        Value::Point([13.4, 52.5]),
        Value::List(vec![]),
        Value::Float64(0.5),
    ];
    for params in [untyped, typed] {
        let insert = "insert into t values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        database.run(insert, params, query::Limits::default()).unwrap();
    }
    assert_eq!(database.query("select id, d, at, v[2], p['lat'], f from t order by id").len(), 2);
    assert_eq!(database.query("select count(*) from t where d = 1.25 and at = '2024-01-01'"), [["2"]]);
    let rows = database
        .try_query("select id from t where u = $1", vec![text("0190A2B3-c4d5-7e6f-8899-aabbccddeeff")])
        .unwrap();
    assert_eq!(rows, [["1"]]);
    let update = "update t set j = $1, f = f + $2 where id = $3";
    let params = vec![text("{\"b\": 2}"), Value::Float64(1.0), Value::Int64(1)];
    database.run(update, params, query::Limits::default()).unwrap();
    assert_eq!(database.query("select j, f from t where id = 1"), [["{\"b\": 2}", "3.0"]]);
    let wrong =
        database.run("insert into t (id, u) values (9, $1)", vec![text("x")], query::Limits::default());
    let error = wrong.unwrap_err();
    assert_eq!(error.kind(), Kind::Schema, "{error}");
    assert!(error.to_string().contains("$1"), "{error}");
}

/// `[12345678901234567.89]` came as the nearest float64, and a decimal column got all the digits of that one's bits.
#[test]
fn a_float_fills_a_decimal_or_an_integer_only_with_digits_that_were_sent() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, d decimal(30,10), n bigint)");
    let run =
        |sql: &str, value: f64| database.run(sql, vec![Value::Float64(value)], query::Limits::default());
    for (sql, value, what) in [
        ("insert into t (id, d) values (1, $1)", 12_345_678_901_234_567.89, "decimal"),
        ("insert into t (id, d) values (1, $1)", 0.1 + 0.2, "decimal"),
        ("insert into t (id, n) values (1, $1)", 9_007_199_254_740_993.0, "int64"),
        ("insert into t (id, n) values (1, $1)", 0.5, "int64"),
        ("insert into t (id) values (2) on conflict (id) do update set d = $1", 0.1 + 0.2, "decimal"),
        ("update t set d = $1 where id = 2", 0.1 + 0.2, "decimal"),
        ("update t set (n, d) = (-($1), 1) where id = 2", 1e18, "int64"),
    ] {
        database
            .run("insert into t (id) values (2) on conflict do nothing", vec![], Default::default())
            .unwrap();
        let error = run(sql, value).unwrap_err();
        assert_eq!(error.kind(), Kind::Schema, "{sql}: {error}");
        assert!(error.to_string().contains(what), "{sql}: {error}");
    }
    run("insert into t values (3, $1, 1)", 0.3).unwrap();
    run("insert into t values (4, 1, $1)", -9_007_199_254_740_991.0).unwrap();
    run("insert into t values (5, $1, 1)", 1e18).unwrap();
    run("update t set d = $1 where id = 2", 1234567890.12345).unwrap();
    assert_eq!(
        database.query("select id, d, n from t order by id"),
        [
            ["2", "1234567890.1234500000", "NULL"],
            ["3", "0.3000000000", "1"],
            ["4", "1.0000000000", "-9007199254740991"],
            ["5", "1000000000000000000.0000000000", "1"],
        ]
    );
}

/// JSON has no decimals, dates or uuids: they come as text, and take the type of the other operand. The second run of each
/// statement uses the cached plan.
#[test]
fn a_text_parameter_is_read_as_what_it_is_compared_with() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute(
        "create table t (id bigint primary key, d decimal(10,2), f double precision, b bool, day date, bin bytea,
         u uuid, s text)",
    );
    database.execute(
        "insert into t values
         (1, 5.00, -2.25, true, '2024-01-01', '\\xdeadbeef', '0190a2b3-c4d5-7e6f-8899-aabbccddeeff', '5'),
         (2, 10.50, 10.5, false, '2024-10-01', '\\x00', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '10'),
         (10, -3.25, 0.1, null, null, null, null, null)",
    );
    for (filter, given, found) in [
        ("d > $1", "5", "2"),
        ("d > $1", "-3.255", "1,2,10"),
        ("d = $1", "10.5", "2"),
        ("d = $1", "10.505", ""),
        ("d in ($1, '5')", "10.5", "1,2"),
        ("d between $1 and '100'", "5", "1,2"),
        ("f = $1", "-2.250", "1"),
        ("f = $1", "0.1", "10"),
        ("id > $1", "5", "10"),
        ("$1 >= id", "2", "1,2"),
        ("id in ($1, '11')", "10", "10"),
        ("id between $1 and 100", "2", "2,10"),
        ("id + $1 = 3", "1", "2"),
        ("b = $1", "true", "1"),
        ("day > $1", "2024-09-30", "2"),
        ("bin = $1", "\\xdeadbeef", "1"),
        ("u = $1", "0190A2B3C4D57E6F8899AABBCCDDEEFF", "1"),
        ("s = $1", "5", "1"),
        ("case id when $1 then true end", "1", "1"),
        ("id in (select id from t where d = $1)", "10.5", "2"),
    ] {
        let text = format!("select id from t where {filter} order by id");
        for run in ["planned", "kept"] {
            let rows = database.try_query(&text, vec![Value::String(given.into())]);
            let rows = rows.unwrap_or_else(|e| panic!("{filter} with {given}: {e}"));
            assert_eq!(rows.concat().join(","), found, "{filter} with {given}, {run}");
        }
        // Every text is a valid text, and the bytes of one.
        if filter.starts_with("s ") || filter.starts_with("bin ") {
            continue;
        }
        // The cached plan must refuse it too.
        let error = database.try_query(&text, vec![Value::String("so".into())]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{filter}: {error}");
        assert!(error.to_string().contains("`so` is no"), "{filter}: {error}");
    }
    let five = || vec![Value::String("5".into())];
    database.run("update t set f = 1 where d > $1", five(), query::Limits::default()).unwrap();
    assert_eq!(database.query("select id from t where f = 1"), [["2"]]);
    database.run("delete from t where d > $1", five(), query::Limits::default()).unwrap();
    assert_eq!(database.query("select id from t order by id"), [["1"], ["10"]]);
    let error = database.try_query("select id from t where s = $1", vec![Value::Int64(5)]).unwrap_err();
    assert!(error.to_string().contains("cannot be compared"), "{error}");
}

/// Beside a decimal a float stays a float: no decimal column holds 1e30.
#[test]
fn a_float_parameter_is_compared_with_decimals_wherever_it_stands() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, d decimal(10,2), f double precision)");
    database.execute("insert into t values (1, 5.00, 5), (2, 10.50, 1e30), (10, -3.25, -1e300)");
    for (filter, given, found) in [
        ("d < $1", 1e30, "1,2,10"),
        ("d > $1", -1e300, "1,2,10"),
        ("d = $1", 10.5, "2"),
        ("d = $1", 10.505, ""),
        ("d > $1", -3.255, "1,2,10"),
        ("d <= $1", f64::INFINITY, "1,2,10"),
        ("d <= $1", f64::NEG_INFINITY, ""),
        ("d in ($1, 5)", 1e30, "1"),
        ("d in ($1, f)", 10.5, "1,2"),
        ("d not in ($1)", 1e30, "1,2,10"),
        ("d between $1 and 7", -1e30, "1,10"),
        ("d between 0 and $1", 1e30, "1,2"),
        ("d between $1 and f", -1e30, "1,2"),
        ("case d when $1 then false else true end", 1e30, "1,2,10"),
        ("case d when $1 then true end", 5.0, "1"),
        ("case $1 when d then true when f then true end", 1e30, "2"),
        ("id < $1", 1e30, "1,2,10"),
    ] {
        let text = format!("select id from t where {filter} order by id");
        for run in ["planned", "again"] {
            let rows = database.try_query(&text, vec![Value::Float64(given)]);
            let rows = rows.unwrap_or_else(|e| panic!("{filter} with {given}: {e}"));
            assert_eq!(rows.concat().join(","), found, "{filter} with {given}, {run}");
        }
    }
}

#[test]
fn a_text_parameter_is_read_in_a_select_list_as_in_where() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint, d decimal(10,2), ok bool)");
    database.execute("insert into t values (1, 10.50, true), (2, 0, false)");
    let text = |t: &str| Value::String(t.into());
    for (expr, given, found) in [
        ("id + $1", "1", "2,3"),
        ("id = $1", "1", "true,false"),
        ("d = $1", "10.5", "true,false"),
        ("d > $1", "10.495", "true,false"),
        ("d + $1 = 11.5", "1", "true,false"),
        ("ok = $1", "false", "false,true"),
        ("ok is distinct from $1", "false", "true,false"),
        ("case $1 when id then 'id' when 2 then 'two' else 'none' end", "2", "two,id"),
        ("$1 in (id, 7)", "2", "false,true"),
    ] {
        for sql in [
            format!("select {expr} from t order by id"),
            format!("select {expr} from t group by id, d, ok, {expr} order by id, {expr}"),
        ] {
            for given in [given, given] {
                let rows = database.try_query(&sql, vec![text(given)]);
                let rows = rows.unwrap_or_else(|e| panic!("{sql} with {given}: {e}"));
                assert_eq!(rows.concat().join(","), found, "{sql} with {given}");
            }
            let wrong = database.try_query(&sql, vec![text("so")]);
            assert_eq!(wrong.unwrap_err().kind(), Kind::Invalid, "{sql}");
        }
    }
    let update = "update t set id = id + $1, ok = (d = $2)";
    database.run(update, vec![text("1"), text("0.0")], query::Limits::default()).unwrap();
    assert_eq!(database.query("select id, ok from t order by id"), [["2", "false"], ["3", "true"]]);
}

/// A cached plan gets its values later.
#[test]
fn the_least_and_the_greatest_integer_are_bounds_like_others() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table b (id bigint, x bigint)");
    database.execute(
        "insert into b values (-9223372036854775808, 1), (9223372036854775807, 2), (null, 3), (0, 4)",
    );
    let ends = vec![Value::Int64(i64::MIN), Value::Int64(i64::MAX)];
    for _ in 0..3 {
        for text in [
            "select count(*) from b where id >= $1 and id <= $2",
            "select count(*) from b where id between $1 and $2",
            "select count(*) from b where $1 <= id and $2 >= id and x < 9",
        ] {
            assert_eq!(database.try_query(text, ends.clone()).unwrap(), [["3"]], "{text}");
        }
        let ends_of = "select count(*) from (select $1 as n union all select $2 limit 2) q where n > 7";
        assert_eq!(database.try_query(ends_of, ends.clone()).unwrap(), [["1"]]);
        let within = "select count(*) from b where id > $1 and id < $2";
        assert_eq!(database.try_query(within, ends.clone()).unwrap(), [["1"]]);
    }
}

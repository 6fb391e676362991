//! Statements that were made to stop the server: each gets an error, its threads are free again soon after, and the next
//! statement is answered.

use std::time::{Duration, Instant};

use query::Limits;
use types::{Error, Kind};

use crate::database::{Database, alone, open};

fn run_within(database: &Database, text: &str, deadline: Duration) -> Result<(), Error> {
    run_with(database, text, vec![], deadline)
}

fn run_with(
    database: &Database,
    text: &str,
    params: Vec<types::Value>,
    deadline: Duration,
) -> Result<(), Error> {
    let limits = Limits { deadline: Some(deadline), ..Limits::default() };
    match database.run(text, params, limits)? {
        query::Answer::Rows(mut rows) => database.runtime.block_on(rows.collect()).map(drop),
        query::Answer::Done(_) => Ok(()),
    }
}

/// Fails unless a statement is refused with an error of one of these kinds, in time.
fn assert_refused(database: &Database, text: &str, params: Vec<types::Value>, kinds: &[Kind]) {
    let shown: String = text.chars().take(90).collect();
    let start = Instant::now();
    let error = run_with(database, text, params, Duration::from_secs(20)).expect_err(&shown);
    assert!(kinds.contains(&error.kind()), "{shown}: {error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{shown} took {:?}", start.elapsed());
}

/// Waits until no thread works for a statement any more.
fn wait_until_idle(database: &Database, within: Duration, what: &str) {
    let start = Instant::now();
    while database.sql.status().running > 0 {
        assert!(start.elapsed() < within, "{what}: {:?}", database.sql.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A read key ended the process with 24 KB: the text of a type was parsed by a function that calls itself for each bracket.
#[test]
fn a_type_that_nests_without_end_is_refused_and_the_process_goes_on() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (a bigint)");
    database.execute("insert into t values (1)");
    let lists = |levels: usize| format!("{}Int8{}", "List(".repeat(levels), ")".repeat(levels));
    let nested = |levels: usize| format!("{}x{}", "[".repeat(levels), "]".repeat(levels));
    let ctes = |first: &str, each: &dyn Fn(usize) -> String, levels: usize| {
        let more: String =
            (1..levels).map(|i| format!(", a{i} as (select {} as x from a{})", each(i), i - 1)).collect();
        format!("with a0 as ({first}){more} select x from a{}", levels - 1)
    };
    let hostile = [
        format!("select arrow_cast(1, '{}')", lists(4_000)),
        format!("select arrow_cast(a, '{}') from t", lists(100_000)),
        format!("select arrow_cast(1, '{}')", "List(".repeat(100_000)),
        format!("select arrow_cast(1, '{}Int8{}')", "Dictionary(Int8, ".repeat(4_000), ")".repeat(4_000)),
        ctes("select a as x from t", &|_| nested(50), 900),
        ctes("select 1 as x", &|_| nested(50), 900),
        ctes("select a as x from t", &|_| "struct(x, x)".into(), 60),
        ctes("select a as x from t", &|_| "make_array(x, x)".into(), 60),
        ctes("select a as x from t", &|_| "array_agg(x)".into(), 400),
        ctes("select a as x from t", &|_| "named_struct('a', x, 'b', x)".into(), 60),
    ];
    for text in hostile {
        assert_refused(&database, &text, vec![], &[Kind::TooLarge, Kind::Invalid]);
    }
    assert_eq!(database.query("select arrow_cast(1, 'List(List(Int8))')").len(), 1);
    assert_eq!(database.query("select arrow_cast('a', 'Dictionary(Int32, Utf8)')"), [["a"]]);
}

/// Four of the first held both threads of SQL until the server was restarted, while `/ready` said that nothing ran.
#[test]
fn a_function_ends_at_the_deadline_of_its_statement() {
    let _limit = testkit::limit(580);
    let _alone = alone();
    let database = open();
    database.execute("create table t (a bigint, s text)");
    database.execute("insert into t select value, 'x' || value from generate_series(1, 20000)");
    for text in [
        "select regexp_count(repeat('a', 10000000), 'a[^z]*z|a')",
        "select regexp_replace(repeat('a', 10000000), 'a[^z]*z|a', 'b', 'g')",
        "select regexp_instr(repeat('a', 10000000), 'a[^z]*z|a', 1, 9000000)",
        "select sum(regexp_count(repeat(s, 1000), '[a-z]+.*b|x')) from t",
        "select max(length(initcap(repeat(s, 1000)))) from t, (select * from generate_series(1, 1000)) g",
        "select count(*) from t where repeat(s, 1000) ~ '(x[0-9]+)+y'",
        "select count(*) from t where 'aaaa' ~ ('(a{' || a % 900 || '}){300}')",
        "select repeat('a', 5000000) like repeat('%a', 2000) || 'b'",
        "select repeat('a', 5000000) ~ '(a?){1000}b'",
        "select case when true then repeat('a', 5000000) else s end like repeat('%a', 100) || 'b' from t",
        "select count(*) from t where repeat(s, 20000) ilike '%x%1%x%1%x%1%y'",
        "select count(regexp_match('aaaa', 'a{' || (a % 900 + 1) || '}{100}')) from t",
        "select count(regexp_count('b', 'a{' || (a % 900 + 1) || '}{100}')) from t",
        "select max(m) from (select median(a) over (order by a rows between 1000000 preceding and unbounded following) m from t)",
        "select count(x) from (select array_agg(a) over (order by a) x from t)",
        "select count(x) from (select string_agg(s, ',') over (order by a) x from t)",
        "select sum(length(case when a % 2 = 0 then repeat('x', 6000000) else repeat('y', 6000000) end)) from t",
        "select count(*) from t where length(case when a % 2 = 0 then repeat('x', 6000000) else s end) > 7",
        "select count(*) filter (where length(case when a > 2 then repeat('x', 6000000) else s end) > 7) from t",
        "select sum(length(left(repeat('x', 6000000), -a))) from t",
        "select sum(cardinality(array_slice(range(0, 1000000), 1, 900000 + a))) from t",
        "select count(*) from t where regexp_match(repeat(s, 1000), '(x?){200}y')[1] is null",
        "select sum(cardinality(array_intersect(range(1, 200000), array[a]))) from t",
        "select sum(cardinality(array_sort(range(1, 200000)))) from t where a > 0",
        "select sum(strpos(repeat('x', 1000000), s)) from t",
        "select count(*) from t where strpos(repeat('x', 60000000), s) > 0",
        "select sum(strpos(repeat('x', 100000), s)) from t",
        "select count(*) from t where strpos(repeat('x', 60000000), left(s, 0)) > 1",
        "select count(*) from t where strpos(left(s, 0), repeat('x', 60000000)) > 1",
        "select count(*) from t where repeat('a', 60000000) ~ s",
        "select count(*) from t where repeat('a', 60000000) like s || '%b%'",
        "select count(regexp_match(repeat('a', 60000000), s)) from t",
        "select count(*) from t where s like repeat('%a_', 20000)",
        "select count(*) from t where btrim(repeat('ab', 1000000), repeat('b', 1000) || 'a') = s",
    ] {
        let deadline = Duration::from_millis(1_000);
        let start = Instant::now();
        let outcome = run_within(&database, text, deadline);
        let took = start.elapsed();
        if let Err(error) = outcome {
            assert!(matches!(error.kind(), Kind::Timeout | Kind::TooLarge), "{text}: {error}");
        }
        assert!(took < Duration::from_secs(3), "{text} took {took:?}");
        // No thread goes on after the answer.
        wait_until_idle(&database, Duration::from_millis(1_500), text);
    }
    assert_eq!(database.query("select regexp_count('abcabc', 'b')"), [["2"]]);
}

/// A read key ended the process: Arrow's parser of decimals calls itself once for each 38 digits.
#[test]
fn a_long_text_is_no_decimal_by_any_way() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (v decimal(38, 2), s text)");
    let digits = "repeat('1', 40000000)";
    database.execute(&format!("insert into t (s) values ({digits})"));
    for text in [
        format!("select cast({digits} as decimal(38, 2))"),
        format!("select try_cast({digits} as decimal(38, 2)) from t"),
        format!("select {digits}::numeric(10, 2) = 5"),
        format!("select ('{{' || {digits} || '}}')::decimal(20, 4)[]"),
        format!("select arrow_cast({digits}, 'Decimal128(38, 2)')"),
        format!("select arrow_cast(arrow_cast({digits}, 'Dictionary(Int32, Utf8)'), 'Decimal256(76, 2)')"),
        "select arrow_cast(make_array(s), 'List(Decimal128(38, 2))') from t".into(),
        format!("select * from generate_series(1, {digits}::decimal(38, 0)::bigint)"),
        format!("insert into t (v) select {digits}"),
        "select s::decimal(20, 4) from t".into(),
        "select s::decimal(20, 4) + 1 from t where v is null".into(),
        "insert into t (v) select s from t".into(),
        "update t set v = s::decimal(38, 2)".into(),
        "select count(*) from t where v = s".into(),
        "select coalesce(v, s::decimal(38, 2)) from t".into(),
    ] {
        assert_refused(&database, &text, vec![], &[Kind::TooLarge, Kind::Invalid, Kind::Schema]);
    }
    for text in
        ["select $1::decimal(20, 4)", "insert into t (v) values ($1)", "select count(*) from t where v = $1"]
    {
        let params = vec![types::Value::String("1".repeat(40_000_000))];
        assert_refused(&database, text, params, &[Kind::TooLarge, Kind::Invalid, Kind::Schema]);
    }
    assert_eq!(
        database.query("select '0012.50'::decimal(10, 2), try_cast('x' as decimal(10, 2))"),
        [["12.50", "NULL"]]
    );
    assert_eq!(
        database
            .query("select arrow_cast('1.5', 'Decimal128(10, 2)'), arrow_cast(2.7, 'Int64'), 2.7::bigint"),
        [["1.50", "2", "3"]]
    );
}

/// Each took gigabytes: 30 MB of a pattern, or of a list in a text.
#[test]
fn long_patterns_and_lists_in_texts_are_refused() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (s text)");
    database.execute("insert into t values ('a')");
    for text in [
        "select 'a' like repeat('%a_', 10000000)",
        "select s ilike repeat('a', 10000000) from t",
        "select 'a' ~ repeat('a.*', 3000000)",
        "select regexp_like(s, repeat('a', 20000000)) from t",
        "select regexp_count('a', repeat('(a)', 2000000))",
        "select ('{' || repeat('1,', 30000000) || '1}')::bigint[]",
        "select ('[' || repeat('1,', 30000000) || '1]')::text[]",
        "select to_char(now(), repeat('%c', 20000000))",
    ] {
        assert_refused(&database, text, vec![], &[Kind::TooLarge]);
        wait_until_idle(&database, Duration::from_secs(2), text);
    }
    assert_eq!(
        database.query("select 'xay' like '%a_', strpos('käse', 'se'), strpos('a', 'b')"),
        [["true", "3", "0"]]
    );
    assert_eq!(
        database.query("select position('' in 'ab'), strpos(null, 'a'), instr(s, 'a') from t"),
        [["1", "NULL", "1"]]
    );
}

/// Arrow's kernels panicked for them.
#[test]
fn a_type_that_no_value_has_is_refused() {
    let _limit = testkit::limit(60);
    let database = open();
    for text in [
        "select arrow_cast(make_array(1), 'FixedSizeList(-1, Int64)')",
        "select arrow_cast('a'::bytea, 'FixedSizeBinary(-1)')",
        "select arrow_cast(null, 'FixedSizeBinary(-5)') from generate_series(1, 3)",
        "select arrow_cast(null, 'RunEndEncoded(\"r\": Int8, \"v\": Utf8)')",
        "select arrow_cast(null, 'Union(Sparse, 0: (\"a\": Int32))')",
    ] {
        assert_refused(&database, text, vec![], &[Kind::Invalid]);
    }
}

/// 5,000 of each kept a thread for minutes beyond the deadline, in optimizer rules that process one node.
#[test]
fn a_statement_wider_than_can_be_planned_in_time_is_refused() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table t (a bigint, s text)");
    let list = |count: usize, each: &dyn Fn(usize) -> String| -> String {
        (0..count).map(each).collect::<Vec<_>>().join(", ")
    };
    for text in [
        format!("select a from t order by {}", list(257, &|i| format!("a * {i}"))),
        format!("select count(*) over (partition by {}) from t", list(257, &|i| format!("a + {i}"))),
        format!("select {} from t", list(257, &|i| format!("sum(a) over (order by a + {i})"))),
        format!("select {} from t", list(1_001, &|i| format!("sum(a + {i})"))),
        format!("select {} from t", list(1_665, &|i| format!("a + {i} as c{i}"))),
        format!("select {} from t", list(100_000, &|_| "a x".into())),
        format!(
            "select {} from t",
            (0..1_001).map(|i| format!("sum(a + {i})")).collect::<Vec<_>>().join(" + ")
        ),
        format!("select {} from t", list(5_000, &|i| format!("unnest([a, {i}])"))),
        format!("values ({})", list(80_000, &|i| i.to_string())),
        format!("update t set a = 1 returning {}", list(60_000, &|i| format!("a + {i}"))),
        format!("select count(*) from t group by {}", list(1_665, &|i| format!("a + {i}"))),
        format!("select count(*) from t group by cube ({})", list(10, &|i| format!("a % {}", i + 2))),
        format!("select t.a from t{}", " natural join (select * from t)".repeat(129)),
        "select arrow_cast(null, 'FixedSizeBinary(2000000000)') from t".to_owned(),
        "select arrow_cast(null, 'FixedSizeList(300, FixedSizeList(300, Int64))') from t".to_owned(),
    ] {
        let start = Instant::now();
        let outcome = run_within(&database, &text, Duration::from_secs(30));
        let error = outcome.expect_err(&text);
        assert_eq!(error.kind(), Kind::TooLarge, "{text}: {error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{text}: {:?}", start.elapsed());
    }
    for text in [
        format!("select a from t order by {}", list(200, &|i| format!("a * {i}"))),
        format!("select count(*) from t group by cube ({})", list(8, &|i| format!("a % {}", i + 2))),
        vec!["select count(*) over (order by a) from t natural join (select * from t)"; 200].join(" union all "),
        "select array_agg(a) over (order by a), sum(a) over (order by a rows 1 preceding), count(distinct s) over () from t"
            .to_owned(),
    ] {
        database.query(&text);
    }
}

/// A batch that Arrow's offsets cannot count was reported as a bug of Polynya, and a shorter one took up to 2 GiB.
#[test]
fn a_cross_join_repeats_a_long_row_for_a_few_rows_at_once() {
    let _limit = testkit::limit(120);
    let _alone = alone();
    let database = open();
    let text = "select count(*), sum(length(s)), sum(v) from (select repeat('x', 4000000 + value) s from \
        generate_series(1, 1)) a, (select value v from generate_series(1, 1000)) b";
    assert_eq!(database.query(text), [["1000", "4000001000", "500500"]]);
}

/// One kilobyte of text took gigabytes in the planner, which went on after the statement had been answered with a timeout.
#[test]
fn a_plan_that_doubles_with_every_query_below_is_refused() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (x bigint, s text)");
    database.execute("insert into t values (1, 'x')");
    let chain = |levels: usize, each: &dyn Fn(usize) -> String| {
        let more: String = (1..=levels).map(|i| format!(", a{i} as ({})", each(i))).collect();
        format!("with a0 as (select x, s from t){more} select * from a{levels}")
    };
    let from = |i: usize| format!("a{}", i - 1);
    let hostile = [
        chain(22, &|i| format!("select x + x as x from {} where x > {i}", from(i))),
        chain(60, &|i| format!("select x + x as x from {} where x > {i}", from(i))),
        chain(60, &|i| {
            format!("select x * x + x as x from (select * from {} order by x) o where x > 0", from(i))
        }),
        chain(60, &|i| format!("select s || s as s from {} where s > 'a'", from(i))),
        chain(60, &|i| format!("select x + x as x from {} group by x having x > {i}", from(i))),
        chain(60, &|i| {
            format!("select case when x > {i} then x else -x end as x from {} where x > 0", from(i))
        }),
        chain(600, &|i| format!("select {} as x from {}", ["x"; 200].join(" + "), from(i))),
        chain(900, &|i| format!("select x{} as x from {}", " + 1".repeat(200), from(i))),
        chain(900, &|i| format!("select x{} as x from {} where x > 0", " + 1".repeat(200), from(i))),
    ];
    for text in hostile {
        let shown: String = text.chars().take(120).collect();
        let start = Instant::now();
        let outcome = run_within(&database, &text, Duration::from_secs(5));
        println!(
            "{:?} {shown}: {:?}",
            start.elapsed(),
            outcome.as_ref().err().map(|e| e.message().to_owned())
        );
        let error = outcome.expect_err(&shown);
        assert!(matches!(error.kind(), Kind::TooLarge | Kind::Timeout), "{shown}: {error}");
        assert!(start.elapsed() < Duration::from_secs(8), "{shown} took {:?}", start.elapsed());
        wait_until_idle(&database, Duration::from_secs(2), &shown);
    }
    // Reasonable statements are still accepted.
    let six = chain(6, &|i| format!("select x + x as x from {} where x > {i}", from(i)));
    assert!(database.query(&six).is_empty());
}

/// `nth_value(id, -9223372036854775808)` was reported as a bug of Polynya. This test calls every function with numbers at the
/// ends of their types.
#[test]
fn numbers_at_the_ends_of_their_types_are_answered_or_refused_by_every_function() {
    let _limit = testkit::limit(580);
    let _alone = alone();
    let database = open();
    database.execute(
        "create table t (i bigint, f double precision, s text, at timestamp, d date, n decimal(38, 10))",
    );
    database.execute("insert into t values (1, 1.5, 'abc', '2026-01-01', '2026-01-01', 1), (2, -2.5, 'dé', '1969-12-31', '1969-12-31', -1), (null, null, null, null, null, null)");
    let numbers = [
        "-9223372036854775808",
        "9223372036854775807",
        "-9223372036854775807",
        "-2147483648",
        "2147483647",
        "4294967296",
        "18446744073709551615",
        "-1",
        "0",
        "1",
        "null",
        "1e308",
        "-1e308",
        "'nan'::float8",
        "1e400",
    ];
    let windows = [
        "nth_value(i, {})",
        "lag(i, {})",
        "lead(i, {})",
        "lag(i, {}, 5)",
        "lead(s, {}, 'x')",
        "ntile({})",
        "nth_value(i, {}) ignore nulls",
        "lag(i, {}) ignore nulls",
        "lead(i, {}) ignore nulls",
    ];
    let frames = [
        "order by i",
        "order by i desc",
        "order by i rows between unbounded preceding and unbounded following",
        "",
        "order by i desc rows between 1 preceding and 1 following",
    ];
    let framed = [
        "sum(i) over (order by i rows between {} preceding and {} following)",
        "max(i) over (order by i rows between {} following and {} following)",
        "count(*) over (order by i range between {} preceding and current row)",
        "sum(i) over (order by i groups between {} preceding and {} following)",
        "first_value(i) over (order by i rows {} preceding)",
        "min(f) over (order by f range between {} preceding and {} following)",
    ];
    let values = [
        "substr(s, {})",
        "substr(s, {}, {})",
        "substring(s from {} for {})",
        "left(s, {})",
        "right(s, {})",
        "lpad(s, {})",
        "rpad(s, {}, 'xy')",
        "repeat(s, {})",
        "split_part(s, 'b', {})",
        "chr({})",
        "to_hex({})",
        "overlay(s placing 'x' from {})",
        "overlay(s placing 'x' from {} for {})",
        "substr_index(s, 'b', {})",
        "round(f, {})",
        "round(n, {})",
        "round({})",
        "trunc(f, {})",
        "trunc({})",
        "power(f, {})",
        "power({}, {})",
        "abs({})",
        "sign({})",
        "sqrt({})",
        "exp({})",
        "ln({})",
        "log(2, {})",
        "log({}, {})",
        "factorial({})",
        "gcd({}, {})",
        "lcm({}, {})",
        "{} % {}",
        "{} / {}",
        "{} * {}",
        "{} + {}",
        "{} - {}",
        "i % {}",
        "i / {}",
        "- ({})",
        "{} << {}",
        "{} >> {}",
        "{} & {}",
        "{} | {}",
        "{} # {}",
        "i << {}",
        "i >> {}",
        "cast({} as int)",
        "cast({} as smallint)",
        "cast({} as decimal(38, 10))",
        "cast({} as bigint)",
        "cast({} as timestamp)",
        "cast({} as date)",
        "cast({} as real)",
        "cast({} as text)",
        "cast({} as boolean)",
        "to_timestamp({})",
        "to_timestamp_seconds({})",
        "to_timestamp_millis({})",
        "to_timestamp_micros({})",
        "to_timestamp_nanos({})",
        "from_unixtime({})",
        "to_date({})",
        "make_date({}, {}, {})",
        "to_unixtime({})",
        "at + interval '1 day' * {}",
        "at + interval '1 month' * {}",
        "at - interval '1 second' * {}",
        "d + {}",
        "d - {}",
        "d + interval '1 year' * {}",
        "at + make_interval(days => {})",
        "age(at, at)",
        "date_bin(interval '1 day' * {}, at)",
        "date_trunc('day', to_timestamp({}))",
        "extract(year from to_timestamp({}))",
        "to_char(to_timestamp({}), 'YYYY')",
        "to_char(at, '{}')",
        "array_element(array[1, 2], {})",
        "(array[1, 2])[{}]",
        "(array[1, 2])[{}:{}]",
        "array_slice(array[1, 2], {}, {})",
        "array_slice(array[1, 2], {}, {}, {})",
        "array_repeat(1, {})",
        "array_resize(array[1], {}, 0)",
        "array_position(array[1, 2], 1, {})",
        "array_remove_n(array[1, 2], 1, {})",
        "array_replace_n(array[1, 2], 1, 2, {})",
        "range({}, {}, {})",
        "generate_series({}, {}, {})",
        "array_sort(array[{}, {}])",
        "array_length(array[1], {})",
        "regexp_count(s, 'b', {})",
        "regexp_instr(s, 'b', {})",
        "regexp_instr(s, 'b', {}, {})",
        "regexp_instr(s, 'b', 1, 1, '', {})",
        "width_bucket({}, {}, {}, 5)",
        "width_bucket(f, 0, 10, {})",
        "random() * {}",
        "date_part('epoch', to_timestamp({}))",
        "greatest({}, {})",
        "least({}, i)",
        "nullif({}, {})",
        "coalesce({}, i)",
        "i in ({}, {})",
        "i between {} and {}",
        "bit_length(s) + {}",
        "iszero({})",
        "isnan({})",
        "nanvl({}, {})",
        "degrees({})",
        "radians({})",
        "cot({})",
        "acosh({})",
        "atan2({}, {})",
        "cbrt({})",
    ];
    let filled = |form: &str, first: &str, more: &str| match form.split_once("{}") {
        Some((before, rest)) => format!("{before}{first}{}", rest.replace("{}", more)),
        None => form.to_owned(),
    };
    let mut texts = Vec::new();
    for number in numbers {
        for form in windows {
            for frame in frames {
                texts.push(format!("select {} over ({frame}) from t", filled(form, number, number)));
            }
        }
        for other in ["1", number] {
            for form in framed.iter().chain(&values) {
                texts.push(format!("select {} from t", filled(form, number, other)));
                texts.push(format!("select {} from t", filled(form, other, number)));
            }
        }
        for form in [
            "sum({})",
            "avg({})",
            "stddev({})",
            "percentile_cont({}) within group (order by f)",
            "approx_percentile_cont({}) within group (order by f)",
            "nth_value(i, {} order by i)",
            "string_agg(s, '{}')",
        ] {
            texts.push(format!("select {} from t", filled(form, number, number)));
        }
        texts.push(format!("select * from t order by i limit {number} offset {number}"));
        texts.push(format!(
            "select count(*) from (select * from generate_series({number}, {number}) limit 5)"
        ));
        texts.push(format!(
            "select count(*) from (select * from generate_series(1, {number}, {number}) limit 5)"
        ));
    }
    texts.sort();
    texts.dedup();
    let mut bugs = Vec::new();
    for text in &texts {
        let start = Instant::now();
        if let Err(error) = run_within(&database, text, Duration::from_secs(5))
            && (matches!(error.kind(), Kind::Internal | Kind::Closed) || error.message().contains("bug"))
        {
            bugs.push(format!("{text}: {error}"));
        }
        if start.elapsed() > Duration::from_secs(1) {
            bugs.push(format!("{text} took {:?}", start.elapsed()));
        }
    }
    assert!(bugs.is_empty(), "{} of {}:\n{}", bugs.len(), texts.len(), bugs.join("\n"));
}

/// A hundred columns of 60 MB each were gigabytes that no limit counted.
#[test]
fn what_functions_make_comes_out_of_the_memory_of_statements() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (s text)");
    database.execute("insert into t values ('x')");
    let columns = |each: &str, count: usize| {
        let column =
            |i: usize| format!("{} as a{i}", each.replace("40000000", &(40_000_000 + i).to_string()));
        (0..count).map(column).collect::<Vec<_>>().join(", ")
    };
    let constant = "repeat('x', 40000000)";
    let of_rows = "repeat(s, 40000000)";
    assert_eq!(database.query(&format!("select length({constant})")), [["40000000"]]);
    assert_eq!(database.query(&format!("select {} from t", columns(of_rows, 2)))[0].len(), 2);
    for text in [
        format!("select {}", columns(constant, 100)),
        format!("select {} from t", columns(of_rows, 100)),
        format!("select {} from t", columns("s || repeat(s, 40000000)", 100)),
        format!("select {} from t", columns("upper(repeat(s, 40000000))", 100)),
        format!("select count(*) from t group by {}", columns(of_rows, 100).replace(" as a", " || 0")),
        format!("select count(*) from t group by {}", columns("length(s)", 5_000).replace(" as a", " + ")),
    ] {
        let shown: String = text.chars().take(80).collect();
        let error = run_within(&database, &text, Duration::from_secs(60)).expect_err(&shown);
        assert_eq!(error.kind(), Kind::TooLarge, "{shown}: {error}");
        wait_until_idle(&database, Duration::from_secs(2), &shown);
        assert_eq!(database.sql.status().memory_bytes, 0, "{shown}");
    }
}

//! Deeply nested statements: at any depth the process survives, and the next statement is answered.

use std::time::{Duration, Instant};

use query::Limits;
use types::{Error, Kind};

use crate::database::{Database, alone, open};

fn repeated(first: &str, more: &str, terms: usize) -> String {
    format!("{first}{}", more.repeat(terms - 1))
}

fn around(open: &str, inner: &str, close: &str, levels: usize) -> String {
    format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
}

fn differing(n: usize) -> String {
    (0..n).map(|i| format!("a + {i}")).collect::<Vec<_>>().join(", ")
}

fn grouped_by(kind: &str, columns: &str) -> String {
    format!("select count(*) from t group by {kind} ({columns})")
}

/// Every form in which a statement can nest, `n` times.
fn forms(n: usize) -> Vec<(&'static str, String)> {
    let select = |expr: String| format!("select {expr} from t");
    vec![
        ("sum", select(repeated("a", "+a", n))),
        ("product of literals", select(repeated("1", "*1", n))),
        ("and", format!("select a from t where {}", repeated("a=1", " and a=1", n))),
        ("or", format!("select a from t where {}", repeated("a=1", " or a=2", n))),
        ("differing ors", {
            let terms: Vec<String> = (0..n).map(|i| format!("a={i}")).collect();
            format!("select a from t where {}", terms.join(" or "))
        }),
        ("concatenation", select(repeated("s", "||s", n))),
        ("cast", select(repeated("a", "::int", n))),
        ("union all", repeated("select a from t", " union all select a from t", n)),
        ("union", repeated("select 1", " union select 2", n)),
        ("except", repeated("select a from t", " except select 2", n)),
        ("values", format!("values ({})", repeated("1", "+1", n))),
        ("insert values", format!("insert into t values ({}, 's')", repeated("1", "-1", n))),
        ("insert select", format!("insert into t select {}, 's' from t", repeated("0", "*0", n))),
        ("update", format!("update t set a={}", repeated("a", "+a", n))),
        ("update where", format!("update t set a=1 where {}", repeated("a=7", " or a=7", n))),
        ("delete", format!("delete from t where {}", repeated("a=7", " or a=7", n))),
        ("parentheses", select(around("(", "a", ")", n))),
        ("open parentheses", select("(".repeat(n))),
        ("functions", select(around("abs(", "a", ")", n))),
        ("case", select(around("case when a=1 then ", "a", " end", n))),
        ("case else", select(around("case when a=1 then 1 else ", "a", " end", n))),
        ("case operand", select(around("case ", "a", " when 1 then 2 else 3 end", n))),
        ("coalesce", select(around("coalesce(null, ", "a", ", 1)", n))),
        ("first of coalesce", select(around("coalesce(", "a", ", 1)", n))),
        ("nullif", select(around("nullif(", "a", ", 1)", n))),
        ("greatest", select(around("greatest(", "a", ", 1)", n))),
        (
            "not in",
            format!("select a from t where {}", repeated("a not in (1, 2)", " and a not in (1, 2)", n)),
        ),
        ("casts in brackets", select(around("cast(", "a", " as bigint)", n))),
        ("structs", select(around("struct(", "a", ")", n))),
        ("lists in functions", select(around("make_array(", "a", ")", n))),
        ("windows of windows", select(around("sum(", "a", ") over ()", n.min(3)))),
        ("open case", select("case when ".repeat(n))),
        ("scalar subqueries", around("select (", "select 1", ")", n)),
        ("derived tables", around("select * from (", "select a from t", ") x", n)),
        ("in subqueries", around("select a from t where a in (", "select 1", ")", n)),
        ("exists", around("select a from t where exists (", "select 1", ")", n)),
        ("coalesce in case", select(around("coalesce(case when a=1 then ", "a", " end, 1)", n))),
        ("distinct from", select(repeated("a", " is distinct from a", n))),
        ("distinct without columns", repeated("select distinct from t", ", t", n)),
        ("not", format!("select a from t where {} a=1", "not ".repeat(n))),
        ("minus", select(format!("{}a", "- ".repeat(n)))),
        ("arrays", select(around("array[", "1", "]", n))),
        ("brackets", select(around("[", "1", "]", n))),
        ("subscripts", select(repeated("array[a]", "[1]", n))),
        ("is null", select(format!("a{}", " is null".repeat(n)))),
        ("like", select(repeated("s", " like s", n))),
        ("collate", select(repeated("s", " at time zone 'UTC'", n))),
        ("between", format!("select a from t where {}", repeated("a", " between 1 and a", n))),
        ("joins", repeated("select 1 from t t0", " cross join (select 1)", n)),
        ("commas", repeated("select 1 from t t0", ", (select 1)", n)),
        ("names", select(repeated("a", ".a", n))),
        ("keywords as names", select(repeated("t.join", "+join", n))),
        ("cast to lists", select(format!("cast(null as int{})", "[]".repeat(n)))),
        ("columns", format!("create table u{n} (a int{})", "[]".repeat(n))),
        ("explain", format!("{} select 1", "explain ".repeat(n))),
        ("with", around("with x as (", "select 1", ") select 1", n)),
        ("grouped", format!("select {} from t group by 1", repeated("a", "+1", n))),
        ("ordered", format!("select a from t order by {}", repeated("a", "+1", n))),
        (
            "windows",
            format!("select {} from t", repeated("sum(a) over (order by a)", "+sum(a) over (order by a)", n)),
        ),
        ("default", format!("create table v{n} (a int default {})", repeated("1", "+1", n))),
        ("cube", grouped_by("cube", &differing(n))),
        ("rollup", grouped_by("rollup", &differing(n))),
        ("grouping sets", grouped_by("grouping sets", &repeated("(a, s)", ", (s)", n))),
    ]
}

fn run(database: &Database, text: &str) -> Result<(), Error> {
    let limits = Limits { deadline: Some(Duration::from_secs(20)), ..Limits::default() };
    match database.run(text, vec![], limits)? {
        query::Answer::Rows(mut rows) => database.runtime.block_on(rows.collect()).map(|_| ()),
        query::Answer::Done(_) => Ok(()),
    }
}

/// Each of these ended the process by a stack overflow, or held a thread for minutes.
#[test]
fn no_statement_is_too_deep_for_the_process() {
    let _limit = testkit::limit(580);
    let _alone = alone();
    let database = open();
    database.execute("create table t (a int, s text)");
    database.execute("insert into t values (1, 'x')");
    for terms in [10, 15, 62, 120, 500, 5_000, 100_000] {
        for (name, text) in forms(terms) {
            let start = Instant::now();
            let result = run(&database, &text);
            let took = start.elapsed();
            let kind = result.as_ref().err().map(|e| e.kind());
            if took > Duration::from_millis(500) {
                let said = result.as_ref().err().map(|e| e.message().chars().take(90).collect::<String>());
                println!("{name} x {terms}: {took:?} {kind:?} {said:?}");
            }
            assert!(took < Duration::from_secs(20), "{name} x {terms} took {took:?}: {result:?}");
            if let Err(error) = result {
                // Some of the forms do not fit the columns' types; it only matters that they are answered.
                assert!(
                    error.kind() != Kind::Closed && !error.message().contains("bug"),
                    "{name} x {terms}: {error}"
                );
            }
            assert_eq!(database.query("select 1"), [["1"]], "after {name} x {terms}");
        }
    }
}

#[test]
fn long_chains_of_one_operator_work() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (a int, s text)");
    database.execute("insert into t values (1, 'x')");
    for (name, text) in forms(400) {
        let chain = [
            "sum",
            "and",
            "or",
            "differing ors",
            "concatenation",
            "cast",
            "union all",
            "values",
            "update",
            "delete",
        ];
        if chain.contains(&name) {
            run(&database, &text).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
    // IS DISTINCT FROM does not count as a FROM, nor UNION as a SELECT; a COALESCE inside another counts once.
    let distinct = repeated("a is distinct from 1", ", a is not distinct from a", 1_500);
    run(&database, &format!("select {distinct} from t")).unwrap();
    run(&database, &repeated("select 1", " union all select 2", 590)).unwrap();
    let coalesce = around("coalesce(null, ", "a", ")", 40);
    let twice = format!("select {coalesce} + coalesce({coalesce}) from t");
    assert_eq!(database.query(&twice), database.query("select a + a from t"));
    let listed: Vec<String> = (0..50_000).map(|i| i.to_string()).collect();
    run(&database, &format!("select a from t where a in ({})", listed.join(","))).unwrap();
    let rows: Vec<String> = (0..20_000).map(|i| format!("({i}, -{i}.5)")).collect();
    run(&database, &format!("values {}", rows[..5_000].join(","))).unwrap();
    database.execute("create table many (a int, b float)");
    assert_eq!(database.execute(&format!("insert into many values {}", rows.join(","))), 20_000);
}

/// CUBE of thirty columns has a billion groups, and the planner would write all of them out.
#[test]
fn groups_without_number_are_refused_before_they_are_planned() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    let columns = |n: usize| (0..n).map(|i| format!("c{i}")).collect::<Vec<_>>().join(", ");
    database.execute(&format!("create table t ({} int)", columns(300).replace(',', " int,")));
    database.execute("insert into t (c0) values (1)");
    let groups = |kind: &str, n: usize| {
        let text = grouped_by(kind, &columns(n));
        database.query(&format!("select count(*) from ({text}) g"))[0][0].clone()
    };
    assert_eq!(groups("cube", 9), "512");
    assert_eq!(groups("rollup", 60), "61");
    for (kind, n) in [("cube", 10), ("cube", 40), ("cube", 70), ("rollup", 300), ("rollup", 50_000)] {
        let start = Instant::now();
        let error = run(&database, &grouped_by(kind, &columns(n))).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge, "{kind} of {n}: {error}");
        assert!(start.elapsed() < Duration::from_secs(2), "{kind} of {n}: {:?}", start.elapsed());
    }
}

#[test]
fn a_wrong_statement_is_refused_in_bounded_time_however_it_nests() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    for levels in [20, 40, 62] {
        for open in [
            "array[",
            "cast(",
            "abs(",
            "(",
            "case when ",
            "coalesce(1, ",
            "interval ",
            "not ",
            "extract(year from ",
            "[",
            "(select ",
            "position(",
            "trim(",
            "struct(",
        ] {
            let start = Instant::now();
            let error = run(&database, &format!("select {} @@", open.repeat(levels))).unwrap_err();
            assert!(matches!(error.kind(), Kind::Invalid | Kind::TooLarge), "{error}");
            assert!(start.elapsed() < Duration::from_secs(4), "{open} x {levels}: {:?}", start.elapsed());
        }
    }
}

/// Planning does not yield, so another task enforces the deadline.
#[test]
fn the_deadline_holds_while_a_statement_is_planned() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.execute("create table t (a int, s text)");
    let text = |last: &str| format!("select {}{last} from t group by 1", repeated("a", "+1", 590));
    let start = Instant::now();
    run(&database, &text("+2")).unwrap();
    let whole = start.elapsed();
    let limits = Limits { deadline: Some(whole / 20), ..Limits::default() };
    let start = Instant::now();
    let error = database.run(&text("+3"), vec![], limits).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(start.elapsed() < whole / 2, "{:?} of {whole:?}", start.elapsed());
}

//! Counts of EXPLAIN ANALYZE: joins and sorts with a limit read less, and the advice names the index that would have helped.

use query::{Answer, Limits};
use types::{Principal, Scope, TableSet};

use crate::database::{Database, open, texts};

pub fn analyzed(database: &Database, text: &str) -> String {
    let rows = database.query(&format!("explain analyze {text}"));
    rows.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The sum of a metric in an analyzed plan; thousands are written as K, millions as M.
pub fn figure(plan: &str, name: &str) -> f64 {
    let name = format!("{name}=");
    let parts = plan.split(name.as_str()).skip(1);
    let number = |part: &str| {
        let (number, rest) =
            part.split_at(part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len()));
        let unit = match rest.trim_start().chars().next() {
            Some('K') => 1e3,
            Some('M') => 1e6,
            _ => 1.0,
        };
        number.parse::<f64>().unwrap_or(0.0) * unit
    };
    parts.map(number).sum()
}

#[test]
fn a_statement_by_an_index_reads_what_it_returns_and_the_tail() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    let text = "select * from n where x = 5 and id >= 0";
    let all = analyzed(&database, text);
    assert_eq!(figure(&all, "rows_scanned"), 60_000.0, "{all}");
    assert!(figure(&all, "bytes_scanned") > 100.0, "{all}");
    database.execute("create index on n (x)");
    database.wait_for_indexes("n");
    let found = analyzed(&database, text);
    assert!(found.contains("index=n_x_idx"), "{found}");
    assert_eq!(figure(&found, "rows_looked_up"), 60.0, "{found}");
    assert_eq!(figure(&found, "rows_scanned"), 0.0, "{found}");
    database.execute("insert into n values (60000, 'new', 5), (60001, 'new', 6)");
    let found = analyzed(&database, text);
    let read = figure(&found, "rows_looked_up") + figure(&found, "rows_scanned");
    assert!((61.0..=62.0).contains(&read), "{found}");
}

#[test]
fn a_join_with_a_small_side_looks_the_other_up() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    database.execute("create index on n (x)");
    database.wait_for_indexes("n");
    database.execute("create table few (id bigint, want bigint)");
    database.execute("insert into few values (1, 5), (2, 7), (3, null), (4, 99999), (5, 5)");
    database.execute("insert into n values (70000, 'new', 7)");
    let join = |on: &str| {
        format!("select few.id, count(*), max(n.id) from few join n on {on} group by few.id order by 1")
    };
    let (text, scanned) = (join("n.x = few.want"), join("n.x + 0 = few.want"));
    let expected = [["1", "60", "59858"], ["2", "61", "70000"], ["5", "60", "59858"]];
    let found = database.query(&scanned);
    assert_eq!(found.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), expected.map(|row| row[1]));
    assert_eq!(database.query(&text), found);
    let plan = analyzed(&database, &text);
    assert!(plan.contains("while joining: index=n_x_idx"), "{plan}");
    assert!(figure(&plan, "rows_looked_up") <= 130.0 && figure(&plan, "rows_scanned") < 10.0, "{plan}");
    // With IS NOT DISTINCT FROM, rows with null match too, although the collected keys do not include null.
    database.execute("insert into n values (80000, 'new', null), (80001, 'new', null)");
    let text = "select few.id, n.id from few join n on n.x is not distinct from few.want where n.id > 60000 order by 1, 2";
    assert_eq!(database.query(text), [["2", "70000"], ["3", "80000"], ["3", "80001"]]);
    // Nothing is read of the other side if the small one is empty.
    assert_eq!(
        database.query("select * from few join n on n.x = few.want where few.id > 9"),
        Vec::<Vec<String>>::new()
    );
    // The other side is scanned if there are many keys.
    let all = "select count(*) from (select id as want from n where id < 900) f join n on n.x = f.want";
    assert_eq!(database.query(all), [["54001"]]);
}

#[test]
fn what_cannot_be_among_the_first_is_not_read() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    let plan = analyzed(&database, "select id, x from n order by id, x limit 5");
    assert!(figure(&plan, "pieces_skipped") >= 1.0, "{plan}");
    assert!(figure(&plan, "rows_scanned") < 60_000.0, "{plan}");
    let rows = database.query("select id from n order by id, x limit 3");
    assert_eq!(rows, [["0"], ["1"], ["2"]]);
}

#[test]
fn advice_names_the_index_that_would_have_helped_to_those_who_may_see_its_table() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    let text = "select table_schema, table_name, columns, queries, rows_scanned, rows_returned, statement from polynya.advice";
    assert_eq!(database.query(text), Vec::<Vec<String>>::new());
    for x in [5, 6] {
        assert_eq!(
            database.query(&format!("select id from n where kind = 'kind 5' and x = {x}")).len(),
            [60, 0][x - 5]
        );
        // These return most of the rows that they read, or read no table.
        database.query(&format!("select count(*) from n where x < 90{x}"));
        database.query("select 1");
    }
    let statement = "CREATE INDEX ON n (kind, x)";
    let expected = [["main", "n", "kind, x", "2", "120000", "60", statement]];
    assert_eq!(database.query(text), expected);
    let stranger = Principal {
        name: "stranger".into(),
        scope: Scope::Read,
        tables: TableSet::Only(vec!["main.other".into()]),
    };
    let answer = database.sql.run(&stranger, text, vec![], Limits::default());
    let Answer::Rows(mut rows) = database.runtime.block_on(answer).unwrap() else { panic!("{text}") };
    assert!(texts(&database.runtime.block_on(rows.collect()).unwrap()).is_empty(), "A1");
    database.execute(statement);
    assert_eq!(database.query(text), Vec::<Vec<String>>::new());
}

#[test]
fn first_rows_and_joins_are_advised_for_too() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    database.execute("create table few (want bigint)");
    database.execute("insert into few values (5), (7)");
    let advised = || {
        let rows =
            database.query("select columns, statement from polynya.advice where table_name = 'n' order by 1");
        rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    // `kind` follows in the other direction, so no block can be left out.
    database.query("select id from n order by x, kind desc limit 3");
    assert_eq!(advised(), ["x"]);
    database.query("select id from n where kind = 'kind 3' order by x, id limit 3");
    assert_eq!(advised(), ["kind, x, id", "x"]);
    database.query("select max(x) from n where kind = 'kind 3'");
    assert_eq!(advised(), ["kind, x", "kind, x, id", "x"]);
    database.execute("create index on n (x)");
    database.execute("create index on n (kind, x, id)");
    database.wait_for_indexes("n");
    assert_eq!(advised(), [""; 0]);
    database.execute("drop index n_x_idx");
    database.execute("create table m (x bigint, id bigint)");
    database.execute("insert into m select id % 1000, id from n");
    let joined = database.query("select count(*) from few join m on m.x = few.want");
    assert_eq!(joined, [["120"]]);
    let rows = database
        .query("select columns, rows_scanned, rows_returned from polynya.advice where table_name = 'm'");
    assert_eq!(rows, [["x", "60000", "120"]]);
}

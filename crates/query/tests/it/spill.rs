//! Queries over ten times the memory that they may take.

use crate::database::{Database, alone, open_with};

const MEMORY_BYTES: usize = 16 << 20;
/// About 120 bytes each.
const ROWS: i64 = 1_500_000;

fn open() -> Database {
    let database = open_with(|options| options.memory_bytes = MEMORY_BYTES);
    database.numbers("n", ROWS, false);
    database
}

/// The only value of an answer.
fn one(database: &Database, text: &str) -> String {
    database.query(text).concat().concat()
}

#[test]
fn sorts_groups_and_joins_of_ten_times_the_memory_are_answered() {
    let _limit = testkit::limit(500);
    let _alone = alone();
    let database = open();
    let wide = "(select id, repeat(kind, 12) || id as k, x from n)";
    // All in another order.
    let sorted = format!(
        "select count(*), sum(case when id > before then 1 else 0 end) \
         from (select id, lag(id) over (order by x, id) as before from {wide})"
    );
    let within = ROWS - 1000;
    assert_eq!(database.query(&sorted), [[ROWS.to_string(), within.to_string()]]);
    // As many groups as rows.
    let grouped = format!("select count(*), sum(c) from (select k, count(*) as c from {wide} group by k)");
    assert_eq!(database.query(&grouped), [[ROWS.to_string(), ROWS.to_string()]]);
    assert_eq!(
        one(&database, &format!("select count(*) from (select distinct k, x from {wide})")),
        ROWS.to_string()
    );
    // Both sides are too much.
    let joined = format!("select count(*), sum(a.x - b.x) from {wide} a join {wide} b on a.k = b.k");
    assert_eq!(database.query(&joined), [[ROWS.to_string(), "0".to_string()]]);
    // Each row is the nearest to itself.
    let nearest = format!(
        "select count(*), sum(a.id - b.id), count(b.k) from {wide} a asof join {wide} b match_condition (a.id >= b.id) on a.x = b.x"
    );
    assert_eq!(database.query(&nearest), [[ROWS.to_string(), "0".to_string(), ROWS.to_string()]]);
    // Statements that write read in their own way.
    database.execute(&format!("create table j as {joined}"));
    assert_eq!(database.query("select * from j"), [[ROWS.to_string(), "0".to_string()]]);
}

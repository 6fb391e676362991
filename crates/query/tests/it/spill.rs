//! Queries over ten times the memory that they may take.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use engine::{Mode, Transaction};
use types::Principal;

use crate::database::{Database, alone, open_with};

const MEMORY_BYTES: usize = 16 << 20;
/// Number of rows, of about 120 bytes each.
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
    // A sort of all rows in another order.
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
    // Each side of the join exceeds the memory.
    let joined = format!("select count(*), sum(a.x - b.x) from {wide} a join {wide} b on a.k = b.k");
    assert_eq!(database.query(&joined), [[ROWS.to_string(), "0".to_string()]]);
    // Each row is the nearest to itself.
    let nearest = format!(
        "select count(*), sum(a.id - b.id), count(b.k) from {wide} a asof join {wide} b match_condition (a.id >= b.id) on a.x = b.x"
    );
    assert_eq!(database.query(&nearest), [[ROWS.to_string(), "0".to_string(), ROWS.to_string()]]);
    // Statements that write collect rows in a different way.
    database.execute(&format!("create table j as {joined}"));
    assert_eq!(database.query("select * from j"), [[ROWS.to_string(), "0".to_string()]]);
}

/// Makes a table `m(id bigint, k bigint, pad text)` whose texts of 190 bytes are all different and unordered.
fn stored(memory_bytes: usize, rows: i64) -> Database {
    let database = open_with(|options| options.memory_bytes = memory_bytes);
    database.execute("create table m (id bigint, k bigint, pad text)");
    // Rows that are not sealed yet are slices of the batches of their commits.
    for first in (0..rows).step_by(100_000) {
        let ids: Vec<i64> = (first..(first + 100_000).min(rows)).collect();
        let text = |id: &i64| {
            format!("{:016x}{}", (*id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), "-".repeat(174))
        };
        let pads: ArrayRef = Arc::new(StringArray::from_iter_values(ids.iter().map(text)));
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| id % 1000)));
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("k", DataType::Int64, true),
            Field::new("pad", pads.data_type().clone(), true),
        ]);
        let columns = vec![Arc::new(Int64Array::from(ids)) as ArrayRef, k, pads];
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        let insert = Transaction::insert("m", batch, Mode::Append);
        database.engine.commit(&Principal::local(), insert).unwrap();
    }
    database
}

/// The hash join's plan was kept because its reads were to be recorded, and with it the memory that the sorting plan waited for.
#[test]
fn sets_and_not_in_beyond_the_memory_are_answered() {
    let _limit = testkit::limit(300);
    let _alone = alone();
    let database = stored(64 << 20, 600_000);
    for text in [
        "select count(*) from (select pad from m intersect select pad from m where id % 2 = 0) q",
        "select count(*) from (select pad from m except select pad from m where id % 2 = 0) q",
        "select count(*) from m where pad not in (select pad from m where id % 2 = 0)",
        "select count(*) from m a where exists (select 1 from m b where b.pad = a.pad and b.id % 2 = 0)",
    ] {
        assert_eq!(one(&database, text), "300000", "{text}");
    }
    // Nulls on both sides, and a subquery without rows.
    database.execute("insert into m values (-1, 1, null), (-2, 1, 'x')");
    for (text, expected) in [
        ("select count(*) from m where pad not in (select pad from m where id % 2 = 0)", "300000"),
        ("select count(*) from m where pad not in (select pad from m where id % 2 = 0 or id = -1)", "0"),
        ("select count(*) from m where pad not in (select pad || 'y' from m where id >= 0)", "600001"),
        ("select count(*) from m where pad not in (select pad from m where k < 0)", "600002"),
    ] {
        assert_eq!(one(&database, text), expected, "{text}");
    }
}

/// A batch of stored texts was counted with all of the buffers that it is a slice of.
#[test]
fn stored_texts_beyond_the_memory_are_sorted_and_grouped() {
    let _limit = testkit::limit(300);
    let _alone = alone();
    let database = stored(64 << 20, 600_000);
    for (text, expected) in [
        (
            "select count(*) from (select row_number() over (order by pad) as n from m) q where n > 0",
            "600000",
        ),
        ("select count(*) from (select pad, count(*) as n from m group by pad) q where n = 1", "600000"),
        ("select count(distinct pad) from m", "600000"),
        ("select count(*) from (select distinct pad, k from m) q", "600000"),
        ("select count(*) from (select distinct on (pad) pad, id from m order by pad, id) q", "600000"),
        ("select count(*) from m a join m b on a.pad = b.pad", "600000"),
    ] {
        assert_eq!(one(&database, text), expected, "{text}");
    }
    let last = one(&database, "select pad from m order by pad desc limit 1 offset 450000");
    let all = database.query("select pad from m order by pad");
    assert_eq!(all[600_000 - 1 - 450_000][0], last);
}

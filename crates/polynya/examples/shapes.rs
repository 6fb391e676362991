//! `cargo run --release -p polynya --example shapes -- DIR [ROWS [explain]]`: times one query of each shape over one table, first
//! without and then with indexes. All rows of each answer are fetched, and both answers are compared.

use std::time::{Duration, Instant};

use arrow::array::AsArray;
use polynya::{DataType, Database, NewTable, Result, Value};

const CUSTOMERS: i64 = 30_000;
const BATCH: i64 = 50_000;
const ROUNDS: usize = 15;

/// The name and the text of each query.
const SHAPES: [(&str, &str); 22] = [
    ("row by key", "SELECT * FROM sales WHERE id = 4711"),
    ("rows of one customer", "SELECT * FROM sales WHERE customer = 'cust_17'"),
    ("rows of some customers", "SELECT * FROM sales WHERE customer IN ('cust_17', 'cust_18', 'cust_29000')"),
    ("either of two columns", "SELECT * FROM sales WHERE customer = 'cust_17' OR amount = 41.5"),
    ("all of a region", "SELECT * FROM sales WHERE region = 'EU'"),
    ("range of 30,000", "SELECT * FROM sales WHERE id >= 100000 AND id < 130000"),
    ("first of an order", "SELECT * FROM sales ORDER BY amount DESC LIMIT 10"),
    ("first of two columns", "SELECT * FROM sales ORDER BY amount, id LIMIT 10 OFFSET 20"),
    ("first of a region", "SELECT * FROM sales WHERE region = 'US' ORDER BY amount LIMIT 10"),
    (
        "figures of a region",
        "SELECT count(*), sum(amount), min(amount), max(amount) FROM sales WHERE region = 'US'",
    ),
    ("figures of all", "SELECT count(*), sum(amount), min(amount), max(amount) FROM sales"),
    ("least and greatest", "SELECT min(amount), max(amount) FROM sales"),
    ("how many", "SELECT count(*) FROM sales"),
    ("how many of a region", "SELECT count(*) FROM sales WHERE region = 'US'"),
    ("by customer", "SELECT customer, count(*), sum(amount) FROM sales GROUP BY customer"),
    ("by region", "SELECT region, count(*), sum(amount) FROM sales GROUP BY region"),
    ("regions", "SELECT DISTINCT region FROM sales"),
    ("customers", "SELECT DISTINCT customer FROM sales"),
    ("how many customers", "SELECT count(DISTINCT customer) FROM sales"),
    ("like", "SELECT * FROM sales WHERE customer LIKE 'cust_1%'"),
    ("all rows", "SELECT * FROM sales"),
    (
        "in a subquery",
        "SELECT * FROM sales WHERE customer IN (SELECT customer FROM sales WHERE amount > 999.5)",
    ),
];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "shapes-data".into());
    let rows: i64 = args.next().and_then(|rows| rows.parse().ok()).unwrap_or(300_000);
    let db = Database::open(dir)?;
    let sales = NewTable::new("sales").column("id", DataType::Int64).column("customer", DataType::String);
    let sales = sales.column("amount", DataType::Float64).column("region", DataType::String);
    db.create_table(sales.primary_key(["id"]).if_absent())?;
    for first in (0..rows).step_by(BATCH as usize) {
        let batch = (first..(first + BATCH).min(rows)).map(|id| {
            let region = if id % 3 == 0 { "US" } else { "EU" };
            let amount = (id as f64 * 1.7 + 42.0) % 1_000.0;
            [
                Value::Int64(id),
                format!("cust_{}", id % CUSTOMERS).into(),
                Value::Float64(amount),
                region.into(),
            ]
        });
        db.upsert("sales", db.to_batch("sales", &["id", "customer", "amount", "region"], batch)?)?;
    }
    let without = times(&db)?;
    for columns in [&["customer"][..], &["amount"], &["region", "amount"], &["id"]] {
        db.create_index("sales", columns)?;
    }
    db.wait_for_indexes("sales", Duration::from_secs(600))?;
    let with = times(&db)?;
    if args.next().is_some_and(|arg| arg == "explain") {
        for (name, text) in SHAPES {
            println!("-- {name}: {text}");
            for batch in db.sql(&format!("EXPLAIN ANALYZE {text}"), &[])?.batches {
                let plans = batch.column(1).as_string::<i32>();
                plans.iter().flatten().for_each(|plan| println!("{plan}"));
            }
        }
    }
    println!("{:24} {:>9} {:>12} {:>12}", "", "rows", "no index", "indexed");
    for (((name, _), without), with) in SHAPES.iter().zip(&without).zip(&with) {
        assert_eq!(without.0, with.0, "{name}");
        println!("{name:24} {:>9} {:>12.2?} {:>12.2?}", without.0, without.1, with.1);
    }
    db.close()
}

/// Returns the number of rows and the median time of each query.
fn times(db: &Database) -> Result<Vec<(u64, Duration)>> {
    let time = |(_, text): &(&str, &str)| {
        let (mut took, mut rows) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            rows = db.sql(text, &[])?.count;
            took.push(start.elapsed());
        }
        took.sort_unstable();
        Ok((rows, took[ROUNDS / 2]))
    };
    SHAPES.iter().map(time).collect()
}

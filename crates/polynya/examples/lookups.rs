//! `cargo run --release -p polynya --example lookups -- DIR [ROWS]`: finds rows by key, by an index and by a scan, compares the
//! answers and prints their times.

use std::time::{Duration, Instant};

use polynya::{DataType, Database, NewTable, Result, Value};

const CUSTOMERS: i64 = 30_000;
const BATCH: i64 = 50_000;
const ROUNDS: usize = 2_000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "lookups-data".into());
    let rows: i64 = args.next().and_then(|rows| rows.parse().ok()).unwrap_or(300_000);
    let db = Database::open(dir)?;
    let sales = NewTable::new("sales").column("id", DataType::Int64).column("customer", DataType::String);
    db.create_table(sales.column("amount", DataType::Int64).primary_key(["id"]).if_absent())?;
    let columns = ["id", "customer", "amount"];
    let start = Instant::now();
    for first in (0..rows).step_by(BATCH as usize) {
        let batch = (first..(first + BATCH).min(rows)).map(|id| {
            [Value::Int64(id), format!("cust_{}", id % CUSTOMERS).into(), Value::Int64(id * 7_919 % rows)]
        });
        db.upsert("sales", db.to_batch("sales", &columns, batch)?)?;
    }
    println!("{rows} rows written in {:.2?}", start.elapsed());

    // Returns at once. Until the index is built every answer is the same, but slower.
    db.create_index("sales", &["customer"])?;
    let start = Instant::now();
    db.wait_for_indexes("sales", Duration::from_secs(600))?;
    println!("indexed in {:.2?}: {:?}", start.elapsed(), db.indexes("sales")?);

    let id = |round: usize| Value::Int64(round as i64 * 7_919 % rows);
    let customer = |round: usize| Value::String(format!("cust_{}", round as i64 * 101 % CUSTOMERS));
    time("row by key", ROUNDS, |round| Ok(u64::from(db.get("sales", &[id(round)])?.is_some())))?;
    let by_key = "SELECT customer, amount FROM sales WHERE id = $1";
    time("SQL by key", ROUNDS, |round| Ok(db.sql(by_key, &[id(round)])?.count))?;
    let prepared = db.prepare(by_key)?;
    time("prepared SQL by key", ROUNDS, |round| Ok(prepared.run(&[id(round)])?.count))?;
    let by_index = "SELECT id, amount FROM sales WHERE customer = $1";
    time("SQL by index", ROUNDS, |round| Ok(db.sql(by_index, &[customer(round)])?.count))?;
    // No index serves this condition, so all rows are read.
    let by_scan = "SELECT id, amount FROM sales WHERE lower(customer) = $1";
    time("SQL by reading all", ROUNDS / 100, |round| Ok(db.sql(by_scan, &[customer(round)])?.count))?;
    for round in 0..20 {
        let customer = [customer(round)];
        assert_eq!(db.sql(by_index, &customer)?.count, db.sql(by_scan, &customer)?.count);
    }
    db.close()
}

fn time(what: &str, rounds: usize, mut look: impl FnMut(usize) -> Result<u64>) -> Result<()> {
    let (mut took, mut found) = (Vec::with_capacity(rounds), 0);
    for round in 0..rounds {
        let start = Instant::now();
        found += look(round)?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    let (median, p99) = (took[rounds / 2], took[rounds * 99 / 100]);
    println!("{what}: {:.1} rows each, median {median:.2?}, p99 {p99:.2?}", found as f64 / rounds as f64);
    Ok(())
}

//! Measures the bytes that compressing cold segments saves, and the time that it adds to reads.
//!
//! `cargo run --release -p polynya --example cold -- DIR [ROWS]` writes the same rows into two new databases below DIR, one of
//! them compressed.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polynya::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use polynya::{DataType, Database, NewTable, Options, Result, Value};

const PART: i64 = 10_000;
const SEAL_ROWS: u64 = 100_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("where to put the databases");
    let rows: i64 = arguments.next().map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    for (name, after) in [("plain", None), ("zstd", Some(Duration::ZERO))] {
        let mut options = Options::default();
        options.engine.zstd_after = after;
        options.engine.seal_rows = SEAL_ROWS;
        let db = Database::open_with(Path::new(&dir).join(name), options)?;
        fill(&db, rows)?;
        let table = || db.engine().root().table("main.orders").expect("it was just made").clone();
        // Every sealed segment is cold here. Rows still in the head are left out.
        let is_done = || {
            let table = table();
            let as_wanted = table.segments().all(|segment| segment.is_compressed() == after.is_some());
            table.head_rows() < SEAL_ROWS && as_wanted
        };
        let patience = Instant::now() + Duration::from_secs(600);
        while !is_done() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
        let sealed: u64 = table().segments().map(|segment| segment.meta().rows).sum();
        let bytes: u64 = table().segments().map(|segment| segment.meta().bytes).sum();
        println!("{name}: {sealed} rows in segments, {:.1} bytes a row", bytes as f64 / sealed as f64);
        measure(&db, sealed as i64)?;
        db.close()?;
    }
    Ok(())
}

/// Inserts the rows of `polynya bench tables`.
fn fill(db: &Database, rows: i64) -> Result<()> {
    let table = NewTable::new("orders")
        .column("id", DataType::Int64)
        .column("customer", DataType::String)
        .column("amount", DataType::Float64)
        .column("region", DataType::String);
    db.create_table(table.primary_key(["id"]))?;
    let regions = ["north", "east", "south", "west", "abroad"];
    for from in (0..rows).step_by(PART as usize) {
        let ids = from..rows.min(from + PART);
        let columns: [(&str, ArrayRef); 4] = [
            ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
            (
                "customer",
                Arc::new(StringArray::from_iter_values(ids.clone().map(|i| format!("cust_{}", i % 30_000)))),
            ),
            (
                "amount",
                Arc::new(Float64Array::from_iter_values(
                    ids.clone().map(|i| (i as f64 * 1.7 + 42.0) % 1000.0),
                )),
            ),
            ("region", Arc::new(StringArray::from_iter_values(ids.map(|i| regions[(i * 7 % 5) as usize])))),
        ];
        db.insert("orders", RecordBatch::try_from_iter(columns).expect("columns of one length"))?;
    }
    Ok(())
}

/// Returns the CPU time of this thread in nanoseconds; 0 if it is unknown.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn measure(db: &Database, rows: i64) -> Result<()> {
    let snapshot = db.snapshot();
    let timed = |what: &str, times: i64, one: &mut dyn FnMut(i64) -> Result<()>| -> Result<()> {
        let (since, cpu) = (Instant::now(), cpu_nanos());
        (0..times).try_for_each(&mut *one)?;
        let each = since.elapsed().as_secs_f64() * 1e6 / times as f64;
        let cpu = (cpu_nanos() - cpu) as f64 / 1e3 / times as f64;
        println!("  {what}: {each:.1} µs, of which this thread ran {cpu:.1}");
        Ok(())
    };
    let key = |at: i64| at.wrapping_mul(7_919_317).rem_euclid(rows);
    timed("one row by key, all columns", 5_000, &mut |at| {
        let row = snapshot.get("orders", &[Value::Int64(key(at))])?.expect("it is there");
        black_box(row.values()?);
        Ok(())
    })?;
    timed("100 neighbours by row id, of a few blocks", 1_000, &mut |at| {
        let from = key(at).min(rows - 100) + 1;
        let ids: Vec<_> = (from..from + 100).map(|row| polynya::RowId(row as u64)).collect();
        let table = db.engine().root().table("main.orders").expect("it is there").clone();
        black_box(table.fetch(&ids, table.user_columns())?);
        Ok(())
    })?;
    timed("1,000 rows here and there by row id", 20, &mut |at| {
        let ids: Vec<_> = (0..1_000).map(|i| polynya::RowId(key(at * 1_000 + i) as u64 + 1)).collect();
        let table = db.engine().root().table("main.orders").expect("it is there").clone();
        black_box(table.fetch(&ids, table.user_columns())?);
        Ok(())
    })?;
    timed("a scan of all columns", 5, &mut |_| {
        let read: usize = snapshot.scan("orders")?.map(|batch| batch.map_or(0, |b| b.num_rows())).sum();
        assert!(read as i64 >= rows);
        Ok(())
    })?;
    #[cfg(feature = "sql")]
    for statement in [
        "SELECT sum(amount) FROM orders",
        "SELECT region, count(*), avg(amount) FROM orders GROUP BY region",
        "SELECT count(*) FROM orders WHERE customer LIKE '%777'",
    ] {
        db.sql(statement, &[])?;
        timed(statement, 10, &mut |_| db.sql(statement, &[]).map(|answer| drop(black_box(answer))))?;
    }
    Ok(())
}

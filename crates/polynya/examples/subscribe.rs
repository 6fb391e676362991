//! `cargo run -p polynya --example subscribe -- DIR`: one thread writes while another follows the table, keeps a copy of it and
//! resumes from its last position.

use std::collections::BTreeMap;
use std::time::Duration;

use polynya::arrow::array::AsArray;
use polynya::arrow::datatypes::Int64Type;
use polynya::{DataType, Database, Lsn, NewTable, Page, Result, Value};

const COLUMNS: [&str; 2] = ["item", "count"];

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "subscribe-data".into());
    let db = Database::open(dir)?;
    let table = NewTable::new("stock").column("item", DataType::String).column("count", DataType::Int64);
    db.create_table(table.primary_key(["item"]).if_absent())?;

    // Starts from the first commit. A program stores `position` with the result of the changes and resumes from it.
    let mut changes = db.changes("stock", Lsn(0))?;
    let mut copy = BTreeMap::new();
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || -> Result<Lsn> {
            for count in 0..100 {
                let rows =
                    [["bolt".into(), Value::Int64(count)], [format!("nut {count}").into(), Value::Int64(1)]];
                db.upsert("stock", db.to_batch("stock", &COLUMNS, rows)?)?;
            }
            Ok(db.delete("stock", &["nut 7".into()])?.lsn)
        })
    };
    while changes.position() < Lsn(102) || copy.len() != 100 {
        match changes.wait(Duration::from_secs(1))? {
            Some(page) => apply(&mut copy, &page),
            None if writer.is_finished() => break,
            None => {}
        }
    }
    let last = writer.join().expect("the writer does not panic")?;
    while let Some(page) = changes.poll()? {
        apply(&mut copy, &page);
    }
    println!("followed up to lsn {} of {last}: {} items", changes.position(), copy.len());
    assert_eq!(copy.len() as u64, db.snapshot().rows("stock")?);
    assert!(copy.values().any(|(item, count)| item == "bolt" && *count == 99));
    db.close()
}

/// Applies a page to the copy, which is keyed by row id: an update removes one row id and inserts another.
fn apply(copy: &mut BTreeMap<u64, (String, i64)>, page: &Page) {
    for (row, _) in &page.deleted {
        copy.remove(&row.0);
    }
    for inserted in &page.inserted {
        // The columns `_row_id` and `_time` come first.
        let ids = inserted.batch.column(0).as_primitive::<Int64Type>();
        let items = inserted.batch.column(2).as_string::<i32>();
        let counts = inserted.batch.column(3).as_primitive::<Int64Type>();
        for row in 0..inserted.batch.num_rows() {
            copy.insert(ids.value(row) as u64, (items.value(row).to_owned(), counts.value(row)));
        }
    }
}

//! `cargo run -p polynya --example inventory -- DIR`: a table, rows, a lookup, SQL.

use polynya::{DataType, Database, NewTable, Result, Value};

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "inventory-data".into());
    let db = Database::open(dir)?;
    let table = NewTable::new("stock").column("item", DataType::String).column("count", DataType::Int64);
    db.create_table(table.primary_key(["item"]).if_absent())?;

    let rows = [["bolt".into(), Value::Int64(40)], ["nut".into(), Value::Int64(55)]];
    db.upsert("stock", db.to_batch("stock", &["item", "count"], rows)?)?; // returns once it survives a crash

    let bolt = db.get("stock", &["bolt".into()])?.expect("it was just written");
    println!("bolts: {:?}", bolt.get("count")?);
    println!("all: {:?}", db.sql("SELECT sum(count) FROM stock", &[])?.value()?);
    db.close()
}

//! `cargo run -p polynya --example backup -- DIR`: takes a backup and restores it twice, as taken and carried forward by the
//! archived log.

use std::path::PathBuf;

use polynya::{DataType, Database, NewTable, Options, Restore, RestorePoint, Result, Value, restore};

fn main() -> Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "backup-example".into()));
    let mut options = Options::default();
    // The archive is off by default. With it a backup can be carried forward to any later commit.
    options.engine.archive = Some(dir.join("archive"));
    let db = Database::open_with(dir.join("data"), options)?;
    db.create_table(NewTable::new("log").column("n", DataType::Int64))?;
    let put = |n: i64| db.insert_rows("log", &["n"], [[Value::Int64(n)]]);
    (0..10).try_for_each(|n| put(n).map(drop))?;
    let taken = db.backup(dir.join("monday"))?;
    println!("backed up lsn {}: {} rows in {} bytes", taken.lsn, taken.rows, taken.bytes);

    put(10)?;
    let wanted = put(11)?;
    put(12)?;
    // Closing archives the rest of the log, which otherwise happens within a minute.
    db.close()?;

    restore(dir.join("monday"), dir.join("as-backed-up"), &Restore::default())?;
    let then = Restore { to: Some(RestorePoint::Lsn(wanted.lsn)), archive: Some(dir.join("archive")) };
    let restored = restore(dir.join("monday"), dir.join("carried-forward"), &then)?;
    println!(
        "restored lsn {}: {} rows, {} commits of them archived",
        restored.lsn, restored.rows, restored.replayed
    );
    for (name, rows) in [("as-backed-up", 10), ("carried-forward", 12)] {
        let again = Database::open(dir.join(name))?;
        assert_eq!(again.snapshot().rows("log")?, rows);
        again.close()?;
    }
    Ok(())
}

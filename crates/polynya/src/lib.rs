//! Polynya as a library: one directory, one process, any thread, any runtime.
//!
//! ```
//! use polynya::{Database, DataType, NewTable, Value};
//!
//! # fn main() -> polynya::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("polynya-doc-{}", std::process::id()));
//! let db = Database::open(&dir)?;
//! let stock = NewTable::new("stock").column("item", DataType::String).column("count", DataType::Int64);
//! db.create_table(stock.primary_key(["item"]))?;
//! db.insert_rows("stock", &["item", "count"], [["bolt".into(), Value::Int64(40)], ["nut".into(), Value::Int64(55)]])?;
//!
//! let bolt = db.get("stock", &["bolt".into()])?.expect("it was just inserted");
//! assert_eq!(bolt.get("count")?, Value::Int64(40));
//! # #[cfg(feature = "sql")]
//! assert_eq!(db.sql("SELECT sum(count) FROM stock WHERE item <> $1", &["nut".into()])?.value()?, Value::Int64(40));
//! db.close()?;
//! # std::fs::remove_dir_all(&dir).ok();
//! # Ok(())
//! # }
//! ```
//!
//! A write returns once it survives a crash (L1). A read takes the newest [`Snapshot`], which never changes (S1), and waits for
//! no writer and no background work (R1). Background work of all databases of the process shares a few threads of the lowest
//! priority.
//!
//! This crate is a facade. The work is done by `engine` (commits, snapshots, recovery), `table` (rows and keys), `query` (SQL)
//! and `index` (keyword search). Start at [`Database`].

#![forbid(unsafe_code)]

mod changes;
#[cfg(feature = "sql")]
mod copy;
mod database;
mod indexes;
mod json;
mod lease;
mod new_table;
#[cfg(feature = "sql")]
mod prepared;
mod row;
#[cfg(feature = "text")]
mod search;
mod snapshot;
#[cfg(feature = "sql")]
mod sql;
mod tx;

pub use arrow;
pub use changes::Changes;
pub use database::{Database, Options};
pub use engine::backup::{Backup, Restore, RestorePoint, Restored};
pub use engine::{
    Ack, Committed, Mode, Op, Status, Transaction, TransactionLimits, TransactionOutcome, WrittenRows,
};
pub use indexes::IndexStatus;
pub use new_table::NewTable;
#[cfg(feature = "sql")]
pub use prepared::Statement;
#[cfg(feature = "sql")]
pub use query::{Answer as Reply, AnswerRows, Completion, CompletionKind, Options as SqlOptions};
pub use row::Row;
#[cfg(feature = "text")]
pub use search::{Hit, Search, SearchResults};
pub use snapshot::{Scan, Snapshot};
#[cfg(feature = "sql")]
pub use sql::{Answer, block_on};
pub use table::{Changes as Page, Inserted};
#[cfg(feature = "sql")]
pub use tx::Session;
pub use tx::Tx;
pub use types::{DataType, Error, Field, Kind, Lsn, Result, RowId, TableDef, Value};

/// Restores a backup into the directory `dest`, which must be empty or missing. Every file is checked against its checksum.
/// [`Restore`] gives the target lsn and the log archive to continue from.
pub fn restore(
    backup: impl AsRef<std::path::Path>,
    dest: impl AsRef<std::path::Path>,
    options: &Restore,
) -> Result<Restored> {
    let env = vfs::Env::real();
    engine::backup::restore(&env, backup.as_ref(), dest.as_ref(), options, &mut |_| Ok(()))
}

#[cfg(test)]
mod tests;

//! The interface through which the workloads use a database, so that Polynya and its peers do the same work and are checked
//! alike.
//!
//! It uses only features that all of them share: tables of integers, floats and strings whose first column is the key, and
//! statements with `?` for parameters. Every value of every row of an answer is read ([`Digest`]).

mod digest;
mod polynya_store;

use std::path::Path;
use std::sync::Arc;

use types::Result;

pub(crate) use digest::same_value;
pub use digest::{Cell, Digest, hash_float, hash_int, hash_text};
pub use polynya_store::{Polynya, read_batch};

/// A kind of database.
pub trait Peer: Sync {
    /// The database's name in reports.
    fn name(&self) -> &'static str;

    /// Creates a database in an empty directory, durable at each commit.
    fn open(&self, dir: &Path) -> Result<Arc<dyn Store>>;

    /// Creates a database that is set up for `rows` rows: once [`Store::settle`] has returned, few of them remain in a log or in
    /// memory.
    fn open_to_settle(&self, dir: &Path, rows: u64) -> Result<Arc<dyn Store>> {
        let _ = rows;
        self.open(dir)
    }
}

/// An open database.
pub trait Store: Send + Sync {
    /// Opens a session for one thread.
    fn session(&self) -> Result<Box<dyn Session>>;

    fn create(&self, table: &Table) -> Result<()>;

    /// Builds one index for each of the columns and returns when all are built.
    fn build_indexes(&self, table: &Table, columns: &[&str]) -> Result<()>;

    fn drop_indexes(&self, table: &Table, columns: &[&str]) -> Result<()>;

    /// Completes work that the database would otherwise leave to a later statement or postpone for long.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the bytes of the loaded data, and the bytes of everything else, such as a log that is reused.
    fn disk(&self) -> Result<(u64, u64)>;

    fn close(&self) -> Result<()>;
}

/// A connection, or another handle that a thread needs.
pub trait Session: Send {
    /// Reads every value of every row of the answer into `answer`.
    fn select(&mut self, statement: &PeerStatement, params: &[Cell], answer: &mut Digest) -> Result<()>;

    /// Reads the row of a key by the shortest way that the library offers.
    fn get(&mut self, table: &Table, key: i64, answer: &mut Digest) -> Result<()>;

    /// Inserts one row, which is durable when this returns.
    fn insert(&mut self, table: &Table, row: &[Cell]) -> Result<()>;

    /// Inserts many rows in one commit.
    fn load(&mut self, table: &Table, rows: &ColumnBatch) -> Result<()>;
}

/// A table; its first column is the key.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Type)],
}

impl Table {
    /// Lists the columns: `id, customer, amount`.
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the statement that inserts one row, and the one that finds a row by its key.
    pub fn statements(&self) -> (String, String) {
        let marks = vec!["?"; self.columns.len()].join(", ");
        let (name, columns) = (self.name, self.column_list());
        let insert = format!("INSERT INTO {name} ({columns}) VALUES ({marks})");
        (insert, format!("SELECT {columns} FROM {name} WHERE {} = ?", self.columns[0].0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int,
    Float,
    Text,
}

/// A SELECT in two notations: with unnumbered and with numbered parameters.
#[derive(Clone, Debug)]
pub struct PeerStatement {
    /// The text with `?` for each parameter.
    pub text: String,
    /// The text with `$1`, `$2` and so on.
    pub numbered: String,
}

impl PeerStatement {
    /// Numbers the parameters of `text`, in which every `?` must be a parameter.
    pub fn new(text: &str) -> PeerStatement {
        let mut parts = text.split('?');
        let mut numbered = parts.next().unwrap_or_default().to_owned();
        for (number, part) in parts.enumerate() {
            numbered.push_str(&format!("${}{part}", number + 1));
        }
        PeerStatement { text: text.to_owned(), numbered }
    }
}

/// Rows to load, column by column.
#[derive(Clone, Debug)]
pub struct ColumnBatch(pub Vec<ColumnValues>);

#[derive(Clone, Debug)]
pub enum ColumnValues {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Vec<String>),
}

impl ColumnBatch {
    pub fn rows(&self) -> usize {
        match self.0.first() {
            Some(ColumnValues::Ints(values)) => values.len(),
            Some(ColumnValues::Floats(values)) => values.len(),
            Some(ColumnValues::Texts(values)) => values.len(),
            None => 0,
        }
    }
}

/// Counts the bytes of all files below a directory.
pub fn directory_bytes(dir: &Path) -> Result<u64> {
    let read = |error| types::Error::io(format_args!("reading {}", dir.display()), error);
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        // A file may disappear during the walk.
        let Ok(found) = entry.metadata() else { continue };
        bytes += if found.is_dir() { directory_bytes(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_in_order() {
        let statement = PeerStatement::new("SELECT a FROM t WHERE b = ? AND c < ?");
        assert_eq!(statement.numbered, "SELECT a FROM t WHERE b = $1 AND c < $2");
        assert_eq!(PeerStatement::new("SELECT 1").numbered, "SELECT 1");
    }
}

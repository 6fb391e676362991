//! A database as the workloads see it, so that Polynya and its peers do the same work and are checked alike.
//!
//! Everything is said in the words that all of them share: tables of integers, floats and strings whose first column is the
//! key, statements with `?` for parameters, answers of which every value of every row is read ([`Digest`]).

mod digest;
mod ours;

use std::path::Path;
use std::sync::Arc;

use types::Result;

pub(crate) use digest::same;
pub use digest::{Cell, Digest, float, int, text};
pub use ours::{Polynya, read_batch};

/// A kind of database.
pub trait Peer: Sync {
    /// As reports call it.
    fn name(&self) -> &'static str;

    /// A new database in an empty directory, durable at each commit.
    fn open(&self, dir: &Path) -> Result<Arc<dyn Store>>;

    /// The same, set up so that of so many rows little stays in a log or in memory once [`Store::settle`] returned.
    fn open_to_settle(&self, dir: &Path, rows: u64) -> Result<Arc<dyn Store>> {
        let _ = rows;
        self.open(dir)
    }
}

/// An open database.
pub trait Store: Send + Sync {
    /// What one thread works with.
    fn session(&self) -> Result<Box<dyn Session>>;

    fn create(&self, table: &Table) -> Result<()>;

    /// Builds one index for each of the columns and returns when all are built.
    fn build_indexes(&self, table: &Table, columns: &[&str]) -> Result<()>;

    fn drop_indexes(&self, table: &Table, columns: &[&str]) -> Result<()>;

    /// Does what the database would otherwise leave for a later statement or put off for long.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes of what was loaded, and bytes besides, such as a log that is used again.
    fn disk(&self) -> Result<(u64, u64)>;

    fn close(&self) -> Result<()>;
}

/// A connection, or whatever a thread needs.
pub trait Session: Send {
    /// Reads every value of every row of the answer into `answer`.
    fn select(&mut self, statement: &Statement, params: &[Cell], answer: &mut Digest) -> Result<()>;

    /// The row of a key, by the shortest way that the library has.
    fn get(&mut self, table: &Table, key: i64, answer: &mut Digest) -> Result<()>;

    /// One row, durable when this returns.
    fn insert(&mut self, table: &Table, row: &[Cell]) -> Result<()>;

    /// Many rows in one commit.
    fn load(&mut self, table: &Table, rows: &Columns) -> Result<()>;
}

/// A table; its first column is the key.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Type)],
}

impl Table {
    /// `id, customer, amount`.
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// The statement that inserts one row, and the one that finds a row by its key.
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

/// A SELECT, as those write it who number parameters and as those do who do not.
#[derive(Clone, Debug)]
pub struct Statement {
    /// With `?`.
    pub text: String,
    /// With `$1`, `$2` and so on.
    pub numbered: String,
}

impl Statement {
    /// No `?` may stand in `text` but for parameters.
    pub fn new(text: &str) -> Statement {
        let mut parts = text.split('?');
        let mut numbered = parts.next().unwrap_or_default().to_owned();
        for (number, part) in parts.enumerate() {
            numbered.push_str(&format!("${}{part}", number + 1));
        }
        Statement { text: text.to_owned(), numbered }
    }
}

/// Rows to be loaded, column by column.
#[derive(Clone, Debug)]
pub struct Columns(pub Vec<Column>);

#[derive(Clone, Debug)]
pub enum Column {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Vec<String>),
}

impl Columns {
    pub fn rows(&self) -> usize {
        match self.0.first() {
            Some(Column::Ints(values)) => values.len(),
            Some(Column::Floats(values)) => values.len(),
            Some(Column::Texts(values)) => values.len(),
            None => 0,
        }
    }
}

/// Bytes of all files below a directory.
pub fn directory_bytes(dir: &Path) -> Result<u64> {
    let read = |error| types::Error::io(format_args!("reading {}", dir.display()), error);
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        // A file may go while it is looked at.
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
        let statement = Statement::new("SELECT a FROM t WHERE b = ? AND c < ?");
        assert_eq!(statement.numbered, "SELECT a FROM t WHERE b = $1 AND c < $2");
        assert_eq!(Statement::new("SELECT 1").numbered, "SELECT 1");
    }
}

//! The two databases, which get the same statements.

use std::path::Path;

use bench::peer::{Cell, Digest, read_batch};
use polynya::Database;
use rusqlite::Connection;
use types::{Error, Result};

use crate::sqlite;

pub struct DatabasePair {
    pub polynya: Database,
    sqlite: Connection,
}

/// The result of comparing both answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Same,
    /// The rows of Polynya and those of SQLite.
    Different(Vec<Vec<Cell>>, Vec<Vec<Cell>>),
    /// Polynya refuses a statement that SQLite answers.
    Refused(String),
    /// SQLite refuses the statement, so the generator is wrong.
    InvalidStatement(String),
}

impl DatabasePair {
    pub fn new(dir: &Path) -> Result<DatabasePair> {
        let sqlite = Connection::open_in_memory().map_err(sqlite::failed)?;
        sqlite.execute_batch("PRAGMA case_sensitive_like = ON").map_err(sqlite::failed)?;
        Ok(DatabasePair { polynya: Database::open(dir)?, sqlite })
    }

    /// Runs a statement that writes on both sides. Fails unless both change the same number of rows.
    pub fn write(&self, texts: [&str; 2]) -> Result<()> {
        let ours = self.polynya.sql(texts[0], &[]).map_err(|error| error.with("statement", texts[0]))?.count;
        let theirs = self.sqlite.execute(texts[1], []).map_err(sqlite::failed)? as u64;
        let is_change = ["insert", "update", "delete"].iter().any(|word| texts[0].starts_with(word));
        if is_change && ours != theirs {
            return Err(Error::internal(format!(
                "Polynya changed {ours} rows, SQLite {theirs}, by: {}",
                texts[0]
            )));
        }
        Ok(())
    }

    pub fn compare(&self, text: &str, ordered: bool) -> Verdict {
        let theirs = match self.theirs(text) {
            Ok(rows) => rows,
            Err(error) => return Verdict::InvalidStatement(error.to_string()),
        };
        let ours = match self.ours(text) {
            Ok(rows) => rows,
            Err(error) => return Verdict::Refused(error.message().to_owned()),
        };
        let (mut a, mut b) = (ours.clone(), theirs.clone());
        if !ordered {
            a.sort_by_cached_key(|row| key(row));
            b.sort_by_cached_key(|row| key(row));
        }
        let equal = a.len() == b.len()
            && a.iter().zip(&b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)));
        if equal { Verdict::Same } else { Verdict::Different(ours, theirs) }
    }

    /// Returns true if Polynya's plan uses an index.
    pub fn uses_index(&self, text: &str) -> bool {
        let plan = self.ours(&format!("explain {text}"));
        plan.is_ok_and(|rows| {
            rows.iter().flatten().any(|cell| matches!(cell, Cell::Text(t) if t.contains("index=")))
        })
    }

    fn ours(&self, text: &str) -> Result<Vec<Vec<Cell>>> {
        let mut rows = Digest::with_rows();
        self.polynya.sql(text, &[])?.batches.iter().try_for_each(|batch| read_batch(batch, &mut rows))?;
        Ok(rows.into_rows())
    }

    fn theirs(&self, text: &str) -> rusqlite::Result<Vec<Vec<Cell>>> {
        let mut statement = self.sqlite.prepare_cached(text)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(
                (0..columns).map(|at| row.get_ref(at).map(sqlite::cell)).collect::<rusqlite::Result<_>>()?,
            );
        }
        Ok(all)
    }
}

/// Returns the sort key of a row, which is equal on both sides for equal values.
fn key(row: &[Cell]) -> Vec<String> {
    row.iter()
        .map(|cell| match cell {
            Cell::Null => "null".into(),
            Cell::Int(value) => format!("{:.9e}", *value as f64) + &format!(" {value}"),
            Cell::Float(value) => {
                // 0.0 and -0.0 are one value; a whole number may be a float on one side.
                let value = value + 0.0;
                let whole = value.fract() == 0.0 && value.abs() < 9e15;
                format!("{value:.9e}") + &if whole { format!(" {}", value as i64) } else { String::new() }
            }
            Cell::Text(value) => format!("'{}", moment(value)),
        })
        .collect()
}

/// Compares two values. Floats may differ in their last digits, because averages are computed in different ways. An integer may
/// equal a whole float: SQLite's type is that of the value, Polynya's that of the column.
fn same(ours: &Cell, theirs: &Cell) -> bool {
    match (ours, theirs) {
        (Cell::Float(a), Cell::Float(b)) => a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        (Cell::Int(int), Cell::Float(float)) | (Cell::Float(float), Cell::Int(int)) => *int as f64 == *float,
        (Cell::Text(a), Cell::Text(b)) => moment(a) == moment(b),
        _ => ours == theirs,
    }
}

/// Returns a time in SQLite's form, which is the literal's: `2024-02-29 12:00:00`.
fn moment(text: &str) -> String {
    let is_time = text.len() >= 19 && text.as_bytes()[10] == b'T' && text.as_bytes()[4] == b'-';
    if is_time { text[..19].replace('T', " ") } else { text.to_owned() }
}

/// Formats the first rows of an answer for the report, sorted if they have no order of their own.
pub fn shown(rows: &[Vec<Cell>], ordered: bool) -> String {
    let line = |row: &Vec<Cell>| {
        let cells = row.iter().map(|cell| match cell {
            Cell::Null => "null".to_owned(),
            Cell::Int(value) => value.to_string(),
            Cell::Float(value) => format!("{value:?}"),
            Cell::Text(value) => format!("{value:?}"),
        });
        cells.collect::<Vec<_>>().join(" | ")
    };
    let mut text: Vec<String> = rows.iter().map(line).collect();
    if !ordered {
        text.sort();
    }
    text.truncate(12);
    format!("{} rows\n    {}", rows.len(), text.join("\n    "))
}

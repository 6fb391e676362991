//! SQLite with WAL, `synchronous=FULL`, cached prepared statements and one connection per thread.
//!
//! Each connection has 64 MiB of cache, so that it reads its own pages rather than the kernel's. LIKE distinguishes upper and
//! lower case, as in Polynya.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bench::peer::{
    Cell, ColumnBatch, ColumnValues, Digest, Peer, PeerStatement, Session, Store, Table, Type,
    directory_bytes, hash_float, hash_int, hash_text,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ToSql};
use types::{Error, Result};

pub struct Sqlite;

impl Peer for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn open(&self, dir: &Path) -> Result<Arc<dyn Store>> {
        SqliteStore::open(dir, false)
    }

    fn open_to_settle(&self, dir: &Path, _rows: u64) -> Result<Arc<dyn Store>> {
        SqliteStore::open(dir, true)
    }
}

struct SqliteStore {
    path: PathBuf,
    /// True if `settle` analyses and checkpoints the file.
    settles: bool,
}

pub fn failed(error: rusqlite::Error) -> Error {
    Error::internal(format!("SQLite: {error}"))
}

/// Applies the settings that all connections share.
pub fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; PRAGMA case_sensitive_like = ON",
    )
}

impl SqliteStore {
    fn open(dir: &Path, settles: bool) -> Result<Arc<dyn Store>> {
        let file = SqliteStore { path: dir.join("data.sqlite"), settles };
        file.connect()?;
        Ok(Arc::new(file))
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path).map_err(failed)?;
        set_up(&connection).map_err(failed)?;
        Ok(connection)
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.connect()?.execute_batch(sql).map_err(failed)
    }
}

impl Store for SqliteStore {
    fn session(&self) -> Result<Box<dyn Session>> {
        let connection = self.connect()?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Box::new(SqliteSession(connection)))
    }

    fn create(&self, table: &Table) -> Result<()> {
        let column = |(at, (name, column)): (usize, &(&str, Type))| {
            let data_type = match column {
                Type::Int => "INTEGER",
                Type::Float => "REAL",
                Type::Text => "TEXT",
            };
            format!("{name} {data_type} {}", if at == 0 { "PRIMARY KEY" } else { "NOT NULL" })
        };
        let columns: Vec<String> = table.columns.iter().enumerate().map(column).collect();
        self.execute(&format!("CREATE TABLE {} ({})", table.name, columns.join(", ")))
    }

    fn build_indexes(&self, table: &Table, columns: &[&str]) -> Result<()> {
        let name = table.name;
        columns.iter().try_for_each(|column| {
            self.execute(&format!("CREATE INDEX {name}_{column} ON {name} ({column})"))
        })
    }

    fn drop_indexes(&self, table: &Table, columns: &[&str]) -> Result<()> {
        columns.iter().try_for_each(|column| self.execute(&format!("DROP INDEX {}_{column}", table.name)))
    }

    fn settle(&self) -> Result<()> {
        if self.settles { self.execute("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)") } else { Ok(()) }
    }

    fn disk(&self) -> Result<(u64, u64)> {
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        Ok((directory_bytes(dir)?, 0))
    }

    /// Does nothing: the sessions hold the connections and close themselves.
    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct SqliteSession(Connection);

struct Parameter<'a>(&'a Cell);

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self.0 {
            Cell::Null => Ok(rusqlite::types::Null.into()),
            Cell::Int(value) => value.to_sql(),
            Cell::Float(value) => value.to_sql(),
            Cell::Text(value) => value.to_sql(),
        }
    }
}

impl SqliteSession {
    fn read(&mut self, sql: &str, params: &[Cell], answer: &mut Digest) -> rusqlite::Result<()> {
        let mut statement = self.0.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(params.iter().map(Parameter)))?;
        let keeps = answer.keeps_rows();
        while let Some(row) = rows.next()? {
            if keeps {
                answer.add_row(
                    (0..columns).map(|at| row.get_ref(at).map(cell)).collect::<rusqlite::Result<_>>()?,
                );
                continue;
            }
            let mut hash = Digest::initial_hash();
            for at in 0..columns {
                hash = match row.get_ref(at)? {
                    ValueRef::Integer(value) => hash_int(hash, value),
                    ValueRef::Real(value) => hash_float(hash, value),
                    ValueRef::Text(value) => hash_text(hash, std::str::from_utf8(value).unwrap_or_default()),
                    // No column of these tables has other types.
                    ValueRef::Null | ValueRef::Blob(_) => hash_int(hash, 0),
                };
            }
            answer.add_row_hash(hash);
        }
        Ok(())
    }

    fn write(&mut self, table: &Table, rows: &ColumnBatch) -> rusqlite::Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut insert = transaction.prepare_cached(&table.statements().0)?;
            for row in 0..rows.rows() {
                for (at, column) in rows.0.iter().enumerate() {
                    match column {
                        ColumnValues::Ints(values) => insert.raw_bind_parameter(at + 1, values[row])?,
                        ColumnValues::Floats(values) => insert.raw_bind_parameter(at + 1, values[row])?,
                        ColumnValues::Texts(values) => {
                            insert.raw_bind_parameter(at + 1, values[row].as_str())?
                        }
                    }
                }
                insert.raw_execute()?;
            }
        }
        transaction.commit()
    }
}

/// Converts a value of SQLite.
pub fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Int(value),
        ValueRef::Real(value) => Cell::Float(value),
        ValueRef::Text(value) => Cell::Text(String::from_utf8_lossy(value).into_owned()),
        ValueRef::Blob(value) => Cell::Text(format!("{value:?}")),
    }
}

impl Session for SqliteSession {
    fn select(&mut self, statement: &PeerStatement, params: &[Cell], answer: &mut Digest) -> Result<()> {
        self.read(&statement.text, params, answer).map_err(failed)
    }

    fn get(&mut self, table: &Table, key: i64, answer: &mut Digest) -> Result<()> {
        self.read(&table.statements().1, &[Cell::Int(key)], answer).map_err(failed)
    }

    fn insert(&mut self, table: &Table, row: &[Cell]) -> Result<()> {
        let mut insert = self.0.prepare_cached(&table.statements().0).map_err(failed)?;
        insert.execute(rusqlite::params_from_iter(row.iter().map(Parameter))).map_err(failed).map(drop)
    }

    fn load(&mut self, table: &Table, rows: &ColumnBatch) -> Result<()> {
        self.write(table, rows).map_err(failed)
    }
}

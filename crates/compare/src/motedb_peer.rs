//! motedb 0.16: group commit, every answer materialised, no limit on rows, no time limit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bench::peer::{
    Cell, ColumnBatch, ColumnValues, Digest, Peer, PeerStatement, Session, Store, Table, Type,
    directory_bytes, hash_float, hash_int, hash_text,
};
use motedb::types::Value;
use motedb::{DBConfig, Database, DurabilityLevel, QueryResult};
use types::{Error, Result};

pub struct Motedb;

impl Peer for Motedb {
    fn name(&self) -> &'static str {
        "motedb"
    }

    fn open(&self, dir: &Path) -> Result<Arc<dyn Store>> {
        let mut config = DBConfig { max_result_rows: None, query_timeout_secs: None, ..DBConfig::default() };
        config.wal_config.durability_level = DurabilityLevel::group_commit();
        let path = dir.join("data");
        let db = Database::create_with_config(&path, config).map_err(failed)?;
        Ok(Arc::new(MotedbStore { db: Arc::new(db), dir: dir.to_owned() }))
    }
}

struct MotedbStore {
    db: Arc<Database>,
    dir: PathBuf,
}

fn failed(error: motedb::MoteDBError) -> Error {
    Error::internal(format!("motedb: {error}"))
}

impl MotedbStore {
    fn execute(&self, sql: &str) -> Result<()> {
        self.db.execute(sql).map_err(failed)?.materialize().map_err(failed).map(drop)
    }
}

impl Store for MotedbStore {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(MotedbSession(self.db.clone())))
    }

    fn create(&self, table: &Table) -> Result<()> {
        let column = |(at, (name, column)): (usize, &(&str, Type))| {
            let data_type = match column {
                Type::Int => "INTEGER",
                Type::Float => "FLOAT",
                Type::Text => "TEXT",
            };
            format!("{name} {data_type}{}", if at == 0 { " PRIMARY KEY" } else { "" })
        };
        let columns: Vec<String> = table.columns.iter().enumerate().map(column).collect();
        self.execute(&format!("CREATE TABLE {} ({})", table.name, columns.join(", ")))
    }

    fn build_indexes(&self, table: &Table, columns: &[&str]) -> Result<()> {
        let name = table.name;
        columns.iter().try_for_each(|column| {
            self.execute(&format!("CREATE INDEX {name}_{column} ON {name}({column})"))
        })?;
        self.db.wait_for_indexes_ready();
        Ok(())
    }

    fn drop_indexes(&self, table: &Table, columns: &[&str]) -> Result<()> {
        let name = table.name;
        columns.iter().try_for_each(|column| self.execute(&format!("DROP INDEX {name}_{column} ON {name}")))
    }

    /// Flushes now, since otherwise the next SELECT does it.
    fn settle(&self) -> Result<()> {
        self.db.flush().map_err(failed)
    }

    fn disk(&self) -> Result<(u64, u64)> {
        self.db.checkpoint_full().map_err(failed)?;
        Ok((directory_bytes(&self.dir)?, 0))
    }

    fn close(&self) -> Result<()> {
        self.db.close().map_err(failed)
    }
}

struct MotedbSession(Arc<Database>);

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(value) => Value::Integer(*value),
        Cell::Float(value) => Value::Float(*value),
        Cell::Text(value) => Value::Text(value.as_str().into()),
    }
}

fn cell(value: Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::Integer(value) => Cell::Int(value),
        Value::Float(value) => Cell::Float(value),
        Value::Bool(value) => Cell::Int(i64::from(value)),
        Value::Text(value) => Cell::Text(value.as_str().to_owned()),
        other => Cell::Text(format!("{other:?}")),
    }
}

impl MotedbSession {
    fn read(&self, sql: &str, params: Vec<Value>, answer: &mut Digest) -> Result<()> {
        let found = self.0.execute_prepared(sql, params).map_err(failed)?.materialize().map_err(failed)?;
        let QueryResult::Select { rows, .. } = found else {
            return Err(Error::internal(format!("motedb: no rows for {sql}")));
        };
        if answer.keeps_rows() {
            rows.into_iter().for_each(|row| answer.add_row(row.into_iter().map(cell).collect()));
            return Ok(());
        }
        for row in &rows {
            let hash = row.iter().fold(Digest::initial_hash(), |hash, value| match value {
                Value::Integer(value) => hash_int(hash, *value),
                Value::Float(value) => hash_float(hash, *value),
                Value::Text(value) => hash_text(hash, value.as_str()),
                _ => hash_int(hash, 0),
            });
            answer.add_row_hash(hash);
        }
        Ok(())
    }
}

impl Session for MotedbSession {
    fn select(&mut self, statement: &PeerStatement, params: &[Cell], answer: &mut Digest) -> Result<()> {
        self.read(&statement.text, params.iter().map(value).collect(), answer)
    }

    fn get(&mut self, table: &Table, key: i64, answer: &mut Digest) -> Result<()> {
        self.read(&table.statements().1, vec![Value::Integer(key)], answer)
    }

    fn insert(&mut self, table: &Table, row: &[Cell]) -> Result<()> {
        let insert = table.statements().0;
        let done = self.0.execute_prepared(&insert, row.iter().map(value).collect()).map_err(failed)?;
        done.materialize().map_err(failed).map(drop)
    }

    fn load(&mut self, table: &Table, rows: &ColumnBatch) -> Result<()> {
        let row = |at: usize| {
            let value = |column: &ColumnValues| match column {
                ColumnValues::Ints(values) => Value::Integer(values[at]),
                ColumnValues::Floats(values) => Value::Float(values[at]),
                ColumnValues::Texts(values) => Value::Text(values[at].as_str().into()),
            };
            rows.0.iter().map(value).collect()
        };
        self.0.batch_insert(table.name, (0..rows.rows()).map(row).collect()).map_err(failed).map(drop)
    }
}

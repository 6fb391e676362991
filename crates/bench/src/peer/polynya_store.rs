//! Polynya as one of the peers, used through its library.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polynya::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray,
};
use polynya::arrow::datatypes::{DataType as Arrow, Float64Type, Int64Type};
use polynya::{DataType, Database, NewTable, Options, Statement as PreparedStatement, Value};
use types::{Error, Result};

use super::digest::{self, Cell, Digest};
use super::{ColumnBatch, ColumnValues, Peer, PeerStatement, Session, Store, Table, Type, directory_bytes};

/// The time that a build of indexes or a seal may take. For these tables either takes seconds at most.
const BUILD_WITHIN: Duration = Duration::from_secs(600);

/// Polynya as a library, each commit durable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Polynya;

impl Peer for Polynya {
    fn name(&self) -> &'static str {
        "Polynya"
    }

    fn open(&self, dir: &Path) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(PolynyaStore { db: Database::open(dir)?, dir: dir.to_owned(), seal_rows: None }))
    }

    fn open_to_settle(&self, dir: &Path, rows: u64) -> Result<Arc<dyn Store>> {
        let mut options = Options::default();
        options.engine.seal_rows = (rows / 3).max(1);
        let seal_rows = Some(options.engine.seal_rows);
        Ok(Arc::new(PolynyaStore { db: Database::open_with(dir, options)?, dir: dir.to_owned(), seal_rows }))
    }
}

struct PolynyaStore {
    db: Database,
    dir: PathBuf,
    /// The number of rows at which a head is sealed early, if set.
    seal_rows: Option<u64>,
}

impl Store for PolynyaStore {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(PolynyaSession { db: self.db.clone(), prepared: HashMap::new() }))
    }

    fn create(&self, table: &Table) -> Result<()> {
        let mut new = NewTable::new(table.name);
        for (name, column) in table.columns {
            let data_type = match column {
                Type::Int => DataType::Int64,
                Type::Float => DataType::Float64,
                Type::Text => DataType::String,
            };
            new = new.required(*name, data_type);
        }
        self.db.create_table(new.primary_key([table.columns[0].0])).map(drop)
    }

    fn build_indexes(&self, table: &Table, columns: &[&str]) -> Result<()> {
        for column in columns {
            self.db.create_index(table.name, &[column])?;
        }
        self.db.wait_for_indexes(table.name, BUILD_WITHIN)
    }

    fn drop_indexes(&self, table: &Table, columns: &[&str]) -> Result<()> {
        for column in columns {
            let indexes = self.db.indexes(table.name)?;
            let Some(index) = indexes.iter().find(|index| index.columns == [*column]) else { continue };
            self.db.drop_index(table.name, &index.name)?;
        }
        Ok(())
    }

    /// Waits until every head of at least `seal_rows` rows is sealed.
    fn settle(&self) -> Result<()> {
        let Some(seal_rows) = self.seal_rows else { return Ok(()) };
        let until = Instant::now() + BUILD_WITHIN;
        let waiting = || self.db.engine().root().tables().any(|table| table.head_rows() >= seal_rows);
        while waiting() {
            if Instant::now() > until {
                return Err(Error::internal("a head was not sealed within ten minutes"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Returns the bytes of segments and indexes, and of the log and all other files. Rows of a head are in the log only, so the
    /// first figure includes an estimate for them, from the mean size of sealed rows.
    fn disk(&self) -> Result<(u64, u64)> {
        let bytes_of = |part: &str| {
            let dir = self.dir.join(part);
            if dir.is_dir() { directory_bytes(&dir) } else { Ok(0) }
        };
        let (segments, derived) = (bytes_of("tables")?, bytes_of("derived")?);
        let (mut rows, mut in_heads) = (0, 0);
        for table in self.db.engine().root().tables() {
            rows += table.rows();
            in_heads += table.head_rows();
        }
        let sealed = rows.saturating_sub(in_heads);
        if sealed == 0 {
            return Err(Error::invalid("no row is in a segment, so their size cannot be told"));
        }
        let whole = (segments as f64 * rows as f64 / sealed as f64) as u64;
        Ok((whole + derived, directory_bytes(&self.dir)?.saturating_sub(segments + derived)))
    }

    fn close(&self) -> Result<()> {
        self.db.close()
    }
}

struct PolynyaSession {
    db: Database,
    /// Prepared statements by their text; SQLite's sessions cache theirs too.
    prepared: HashMap<String, PreparedStatement>,
}

impl Session for PolynyaSession {
    fn select(&mut self, statement: &PeerStatement, params: &[Cell], answer: &mut Digest) -> Result<()> {
        let params: Vec<Value> = params.iter().map(value).collect();
        let prepared = match self.prepared.get(&statement.numbered) {
            Some(prepared) => prepared,
            None => {
                let prepared = self.db.prepare(&statement.numbered)?;
                self.prepared.entry(statement.numbered.clone()).or_insert(prepared)
            }
        };
        let found = prepared.run(&params)?;
        found.batches.iter().try_for_each(|batch| read_batch(batch, answer))
    }

    fn get(&mut self, table: &Table, key: i64, answer: &mut Digest) -> Result<()> {
        let Some(row) = self.db.get(table.name, &[Value::Int64(key)])? else { return Ok(()) };
        let mut hash = Digest::initial_hash();
        let keeps = answer.keeps_rows();
        let values = row.values()?;
        if keeps {
            answer.add_row(values.into_iter().map(cell).collect::<Result<_>>()?);
            return Ok(());
        }
        for value in &values {
            hash = match value {
                Value::Int64(value) => digest::hash_int(hash, *value),
                Value::Float64(value) => digest::hash_float(hash, *value),
                Value::String(value) => digest::hash_text(hash, value),
                other => return Err(Error::internal(format!("expected a plain value, found {other:?}"))),
            };
        }
        answer.add_row_hash(hash);
        Ok(())
    }

    fn insert(&mut self, table: &Table, row: &[Cell]) -> Result<()> {
        let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        let row: Vec<Value> = row.iter().map(value).collect();
        self.db.insert_rows(table.name, &columns, [row]).map(drop)
    }

    fn load(&mut self, table: &Table, rows: &ColumnBatch) -> Result<()> {
        let arrays = table.columns.iter().zip(&rows.0).map(|((name, _), column)| {
            let array: ArrayRef = match column {
                ColumnValues::Ints(values) => Arc::new(Int64Array::from_iter_values(values.iter().copied())),
                ColumnValues::Floats(values) => {
                    Arc::new(Float64Array::from_iter_values(values.iter().copied()))
                }
                ColumnValues::Texts(values) => Arc::new(StringArray::from_iter_values(values)),
            };
            (*name, array)
        });
        let batch = RecordBatch::try_from_iter(arrays)
            .map_err(|error| Error::invalid(format!("these rows make no batch: {error}")))?;
        self.db.insert(table.name, batch).map(drop)
    }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(value) => Value::Int64(*value),
        Cell::Float(value) => Value::Float64(*value),
        Cell::Text(value) => Value::String(value.clone()),
    }
}

fn cell(value: Value) -> Result<Cell> {
    Ok(match value {
        Value::Null => Cell::Null,
        Value::Bool(value) => Cell::Int(i64::from(value)),
        Value::Int32(value) => Cell::Int(i64::from(value)),
        Value::Int64(value) => Cell::Int(value),
        Value::Float32(value) => Cell::Float(f64::from(value)),
        Value::Float64(value) => Cell::Float(value),
        Value::String(value) => Cell::Text(value),
        other => return Err(Error::internal(format!("expected a plain value, found {other:?}"))),
    })
}

/// Reads every value of a batch, column by column, in the order of memory.
pub fn read_batch(batch: &RecordBatch, answer: &mut Digest) -> Result<()> {
    let has_nulls = batch.columns().iter().any(|column| column.null_count() > 0);
    if answer.keeps_rows() || has_nulls {
        return read_cells(batch, answer);
    }
    let mut hashes = vec![Digest::initial_hash(); batch.num_rows()];
    for column in batch.columns() {
        match column.data_type() {
            Arrow::Int64 => {
                let values = column.as_primitive::<Int64Type>().values();
                hashes
                    .iter_mut()
                    .zip(values)
                    .for_each(|(hash, value)| *hash = digest::hash_int(*hash, *value));
            }
            Arrow::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                hashes
                    .iter_mut()
                    .zip(values)
                    .for_each(|(hash, value)| *hash = digest::hash_float(*hash, *value));
            }
            Arrow::Utf8 => {
                let values: &StringArray = column.as_string();
                hash_texts(&mut hashes, (0..values.len()).map(|row| values.value(row)));
            }
            Arrow::Utf8View => {
                let values: &StringViewArray = column.as_string_view();
                hash_texts(&mut hashes, (0..values.len()).map(|row| values.value(row)));
            }
            _ => return read_cells(batch, answer),
        }
    }
    hashes.into_iter().for_each(|hash| answer.add_row_hash(hash));
    Ok(())
}

fn hash_texts<'a>(hashes: &mut [u64], values: impl Iterator<Item = &'a str>) {
    hashes.iter_mut().zip(values).for_each(|(hash, value)| *hash = digest::hash_text(*hash, value));
}

fn read_cells(batch: &RecordBatch, answer: &mut Digest) -> Result<()> {
    let cast = |column: &ArrayRef| -> Result<(ArrayRef, DataType)> {
        let data_type = match column.data_type() {
            Arrow::Boolean => DataType::Bool,
            a if a.is_integer() => DataType::Int64,
            a if a.is_floating() || matches!(a, Arrow::Decimal128(..)) => DataType::Float64,
            _ => DataType::String,
        };
        let cast = polynya::arrow::compute::cast(column, &data_type.to_arrow());
        Ok((cast.map_err(|error| Error::internal(format!("an answer's column: {error}")))?, data_type))
    };
    let columns: Vec<_> = batch.columns().iter().map(cast).collect::<Result<_>>()?;
    for row in 0..batch.num_rows() {
        let cells = columns.iter().map(|(column, data_type)| cell(Value::from_array(column, data_type, row)));
        answer.add_row(cells.collect::<Result<_>>()?);
    }
    Ok(())
}

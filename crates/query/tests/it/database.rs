//! A database with SQL over it, and answers as text.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use engine::{Engine, Mode, Transaction};
use query::{Answer, AnswerRows, Limits, Options, Sql};
use testkit::TempDir;
use tokio::runtime::Runtime;
use types::{Principal, Result, Value};

pub struct Database {
    pub sql: Sql,
    pub engine: Engine,
    /// The caller's runtime, which is not SQL's.
    pub runtime: Runtime,
    _dir: TempDir,
}

/// A lock for tests that keep SQL's threads busy for long, and for tests that measure how busy this process's threads are.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that panicked while it held the lock has reported that itself.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn open() -> Database {
    open_with(|_| ())
}

pub fn open_with(change: impl FnOnce(&mut Options)) -> Database {
    open_engine(engine::Options::default(), change)
}

pub fn open_engine(engine: engine::Options, change: impl FnOnce(&mut Options)) -> Database {
    open_on(vfs::Env::real(), engine, change)
}

pub fn open_on(env: vfs::Env, engine: engine::Options, change: impl FnOnce(&mut Options)) -> Database {
    let dir = testkit::temp_dir("query");
    let engine = Engine::open(env, &dir.join("data"), engine).unwrap();
    engine.register(index::column::ColumnMaterializer::new()).unwrap();
    let mut options = Options::new(dir.join("spill"));
    options.threads = 2;
    change(&mut options);
    let sql = Sql::new(engine.clone(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    Database { sql, engine, runtime, _dir: dir }
}

impl Database {
    pub fn run(&self, text: &str, params: Vec<Value>, limits: Limits) -> Result<Answer> {
        self.runtime.block_on(self.sql.run(&Principal::local(), text, params, limits))
    }

    /// Runs a statement that must succeed; returns the number of rows that it changed.
    pub fn execute(&self, text: &str) -> u64 {
        match self.run(text, Vec::new(), Limits::default()).unwrap_or_else(|e| panic!("{text}: {e}")) {
            Answer::Done(done) => done.count,
            Answer::Rows(_) => panic!("{text} answered with rows"),
        }
    }

    /// Returns the rows of a query as text.
    pub fn query(&self, text: &str) -> Vec<Vec<String>> {
        self.try_query(text, Vec::new()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    pub fn try_query(&self, text: &str, params: Vec<Value>) -> Result<Vec<Vec<String>>> {
        let mut rows = self.rows(text, params, Limits::default())?;
        self.runtime.block_on(rows.collect()).map(|batches| texts(&batches))
    }

    pub fn rows(&self, text: &str, params: Vec<Value>, limits: Limits) -> Result<AnswerRows> {
        match self.run(text, params, limits)? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(done) => panic!("{text} answered {done:?}"),
        }
    }

    /// Makes a table `name(id bigint, kind text, x bigint)` of `count` rows: `kind` has 10 values, `x` is `id * 7 % 1000`.
    pub fn numbers(&self, name: &str, count: i64, keyed: bool) {
        let key = if keyed { " primary key" } else { "" };
        self.execute(&format!("create table {name} (id bigint{key}, kind text, x bigint)"));
        for first in (0..count).step_by(50_000) {
            let ids: Vec<i64> = (first..(first + 50_000).min(count)).collect();
            let kinds: ArrayRef =
                Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("kind {}", id % 10))));
            let x: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| id * 7 % 1000)));
            let schema = Schema::new(vec![
                Field::new("id", DataType::Int64, false),
                Field::new("kind", DataType::Utf8, false),
                Field::new("x", DataType::Int64, false),
            ]);
            let batch =
                RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(ids)), kinds, x])
                    .unwrap();
            self.engine.commit(&Principal::local(), Transaction::insert(name, batch, Mode::Append)).unwrap();
        }
    }
}

impl Database {
    /// Waits, at most a hundred seconds, until the indexes of a table hold all of its rows: they are built with spare time.
    pub fn wait_for_indexes(&self, table: &str) {
        let start = std::time::Instant::now();
        let principal = Principal::local();
        loop {
            let view = self.engine.view(&principal).unwrap();
            let snapshot = view.table(table).unwrap();
            self.engine.hurry(index::column::NAME, snapshot.def().id);
            let standing = self.engine.materializer_progress(&snapshot);
            // A position published before an index was declared has all rows, but not that index.
            let position = view.derived(index::column::NAME, &snapshot);
            let reached = |index| {
                let progress = index::progress(snapshot.def(), index, position.as_deref());
                progress.map_or(types::RowId(0), |progress| progress.reached)
            };
            if snapshot.def().indexes.iter().all(|index| reached(index).next() >= snapshot.next_row()) {
                return;
            }
            assert!(start.elapsed() < std::time::Duration::from_secs(100), "{standing:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.sql.close();
        self.engine.close().unwrap();
    }
}

/// Cells as text; NULL for null, uuids with hyphens.
pub fn texts(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let schema = batch.schema();
        let columns: Vec<Vec<String>> = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(array, field)| column(array, field, &options))
            .collect();
        rows.extend((0..batch.num_rows()).map(|i| columns.iter().map(|c| c[i].clone()).collect::<Vec<_>>()));
    }
    rows
}

fn column(array: &ArrayRef, field: &Field, options: &FormatOptions) -> Vec<String> {
    let formatter = ArrayFormatter::try_new(array, options).unwrap();
    let is_uuid = field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.uuid");
    (0..array.len())
        .map(|i| {
            let text = formatter.value(i).to_string();
            if is_uuid && array.is_valid(i) {
                return format!(
                    "{}-{}-{}-{}-{}",
                    &text[..8],
                    &text[8..12],
                    &text[12..16],
                    &text[16..20],
                    &text[20..]
                );
            }
            text
        })
        .collect()
}

//! A small database with every kind of file, at rest after a kill, and questions that together read all of the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use engine::{Engine, Mode, Op, Step, Transaction};
use query::{Answer, Limits, Search, Sql, search};
use sim::SimEnv;
use types::{DataType, HotLimit, IndexDef, Principal, Result, RowId, TableDef, TableId};

const DIR: &str = "db";

/// The tables: rows that leave for the lake, rows with a key and an index, rows with a text index, rows only in the head.
const TABLES: [&str; 4] = ["main.hot", "main.keyed", "main.notes", "main.late"];

#[derive(Debug)]
pub enum Question {
    Sql(String),
    Search(&'static str),
}

pub struct Sample {
    pub machine: SimEnv,
    /// Files that once had other contents, each with its most recent earlier contents.
    pub older: Vec<(PathBuf, Vec<u8>)>,
    /// Every question with its correct answer.
    pub answers: Vec<(Question, String)>,
}

/// An open database whose engine has no threads: the test steps it.
pub struct Database {
    pub engine: Engine,
    sql: Sql,
    search: Search,
    machine: SimEnv,
    runtime: tokio::runtime::Runtime,
}

fn questions() -> Vec<Question> {
    let all = TABLES.map(|table| format!("SELECT _row_id, k, s FROM {table} ORDER BY _row_id"));
    let more = [
        "SELECT count(*), sum(k), max(_row_id) FROM hot",
        "SELECT s FROM hot WHERE _row_id = 7",
        "SELECT s FROM keyed WHERE k = 11",
        "SELECT k FROM keyed WHERE s = 'word 12 twelve' ORDER BY k",
        "SELECT k FROM keyed WHERE s > 'word 2' ORDER BY k",
    ];
    let sql = all.into_iter().chain(more.map(str::to_owned)).map(Question::Sql);
    sql.chain([Question::Search("twelve"), Question::Search("word seven")]).collect()
}

fn definition(name: &str) -> TableDef {
    let mut def = TableDef::new(TableId(0), name);
    def.add_column("k", &DataType::Int64, false, None).unwrap();
    let s = def.add_column("s", &DataType::String, true, None).unwrap();
    def.options.lake = Some(false);
    let index = |name: &str, kind: &str| IndexDef {
        name: name.into(),
        kind: kind.into(),
        columns: vec![s],
        options: Vec::new(),
        unique: None,
    };
    match name {
        "main.hot" => {
            def.options.lake = None;
            def.set_hot(Some(HotLimit::Bytes(0)));
        }
        "main.keyed" => {
            def.set_primary_key(&["k".into()]).unwrap();
            def.indexes.push(index("by_s", index::column::KIND));
        }
        "main.notes" => def.indexes.push(index("words", index::text::KIND)),
        _ => {}
    }
    def
}

fn rows(first: i64, count: i64) -> RecordBatch {
    const WORDS: [&str; 6] = ["seven", "eleven", "twelve", "thirteen", "twenty", "forty"];
    let text = |k: i64| format!("word {k} {}", WORDS[k as usize % WORDS.len()]);
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((first..first + count).map(text)));
    RecordBatch::try_from_iter([("k", keys), ("s", texts)]).unwrap()
}

impl Sample {
    pub fn make() -> Sample {
        let machine = SimEnv::new(1);
        let database = Database::open(&machine).unwrap();
        for table in TABLES {
            database.write(Op::CreateTable { def: definition(table), if_absent: false });
        }
        let mut earlier = Vec::new();
        for round in 0..3 {
            for table in &TABLES[..3] {
                database.insert(table, 40 * round, 40);
            }
            database.work();
            earlier.push(machine.disk.files_with_contents());
        }
        for table in &TABLES[..2] {
            let rows = [3, 50, 90].map(RowId).to_vec();
            database.write(Op::Delete { table: (*table).into(), rows, must_exist: false });
        }
        database.work();
        database.engine.close().unwrap();
        drop(database);

        let database = Database::open(&machine).unwrap();
        database.insert("main.late", 0, 5);
        earlier.push(machine.disk.files_with_contents());
        for table in TABLES {
            database.insert(table, 200, 10);
        }
        let machine = machine.kill();
        let older = newest_other(&machine.disk.files_with_contents(), &earlier);
        let reopened = Database::open(&machine.kill()).unwrap();
        reopened.work();
        let table = reopened.engine.root().table("main.hot").unwrap().clone();
        assert!(table.has_evicted(), "no rows are only in the lake");
        let with_answer = |question: Question| {
            let answer = reopened.ask(&question).unwrap_or_else(|e| panic!("{question:?}: {e}"));
            (question, answer)
        };
        let answers = questions().into_iter().map(with_answer).collect();
        Sample { machine, older, answers }
    }
}

/// Returns, for each file that was changed, the last contents that differ from the current ones.
fn newest_other(now: &[(PathBuf, Vec<u8>)], earlier: &[Vec<(PathBuf, Vec<u8>)>]) -> Vec<(PathBuf, Vec<u8>)> {
    let other = |(path, bytes): &(PathBuf, Vec<u8>)| {
        let held = earlier.iter().rev().flatten().find(|(known, held)| known == path && held != bytes);
        held.cloned()
    };
    now.iter().filter_map(other).collect()
}

impl Database {
    pub fn open(machine: &SimEnv) -> Result<Database> {
        let mut options = engine::Options { seal_rows: 30, log_files_max: 3, ..engine::Options::default() };
        (options.log.file_bytes, options.log.spare_files) = (16 << 10, 1);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options)?;
        let text = index::text::TextMaterializer::new();
        engine.register(index::column::ColumnMaterializer::new())?;
        engine.register(text.clone())?;
        let opened_at = engine.status().write_error.is_none().then(|| engine.opened_at());
        let lineage = lake::Lineage::open(engine.env(), Path::new(DIR), opened_at);
        let lake = lake::Options {
            commit_bytes: 2 << 10,
            lineage: Some(lineage),
            ..lake::Options::new("db/lake", "db/lake")
        };
        engine.register(Arc::new(lake::Materializer::new(lake)))?;
        let mut options = query::Options::new(std::env::temp_dir().join("polynya-changed-files-spill"));
        options.threads = 1;
        let sql = Sql::new(engine.clone(), options)?;
        let search = Search::new(engine.clone(), text, sql.clone())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let database = Database { engine, sql, search, machine: machine.clone(), runtime };
        database.settle();
        Ok(database)
    }

    fn write(&self, op: Op) {
        self.engine.submit(&Principal::local(), Transaction::new(vec![op]), |done| {
            done.unwrap();
        });
        self.settle();
    }

    fn insert(&self, table: &str, first: i64, count: i64) {
        self.write(Op::Insert { table: table.into(), batch: rows(first, count), mode: Mode::Append });
    }

    fn settle(&self) {
        while self.engine.step(Step::Commit) || self.engine.step(Step::Sync) {}
    }

    /// Runs background work until none is due, while the machine's clock advances by two minutes.
    pub fn work(&self) {
        for _ in 0..4 {
            for _ in 0..100 {
                if !self.engine.step(Step::Background) {
                    break;
                }
                self.settle();
            }
            self.machine.clock.advance(Duration::from_secs(31));
        }
        self.settle();
    }

    /// Returns the answer as text.
    pub fn ask(&self, question: &Question) -> Result<String> {
        match question {
            Question::Sql(text) => self.runtime.block_on(async {
                let local = Principal::local();
                let run = self.sql.run(&local, text, Vec::new(), Limits::default());
                let Answer::Rows(mut rows) = run.await? else { panic!("{text} does not return rows") };
                let batches = rows.collect().await?;
                Ok(batches.iter().map(text_of).collect())
            }),
            Question::Search(text) => {
                let mut request = search::Request::new(*text);
                request.tables = vec!["notes".into()];
                let found = self.runtime.block_on(self.search.run(&Principal::local(), request))?;
                let hits: Vec<_> = found.hits.iter().map(|hit| (hit.row, hit.score.to_bits())).collect();
                Ok(format!("{hits:?} of {}", found.total))
            }
        }
    }
}

/// Formats a batch as text, one line a row.
fn text_of(batch: &RecordBatch) -> String {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let row = |row: usize| columns.iter().map(|column| format!("{} ", column.value(row))).collect::<String>();
    (0..batch.num_rows()).map(|at| row(at) + "\n").collect()
}

impl Drop for Database {
    fn drop(&mut self) {
        self.search.close();
        self.sql.close();
    }
}

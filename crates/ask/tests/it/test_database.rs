//! A database that tests fill at times of their choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use ask::{Answer, Ask, Options, Question, State};
use engine::{Engine, Mode, Op, Transaction};
use query::Sql;
use testkit::TempDir;
use types::{DataType, Principal, TableDef, TableId};

pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;

/// 2026-11-21T14:30:00Z.
pub const NOON: i64 = 1_795_271_400 * SECOND;

/// Path, title, text, whether published.
type Note<'a> = (&'a str, &'a str, &'a str, bool);

/// Time, method, route, status, microseconds, table.
type Request<'a> = (i64, &'a str, &'a str, i32, i64, Option<&'a str>);

/// A clock that stands still until it is set.
#[derive(Debug)]
pub struct Clock {
    now: AtomicI64,
    real: vfs::RealClock,
}

impl vfs::Clock for Clock {
    fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}

pub struct TestDatabase {
    pub engine: Engine,
    pub sql: Sql,
    pub search: query::Search,
    pub ask: Ask,
    pub clock: Arc<Clock>,
    _dir: TempDir,
    _limit: testkit::Guard,
}

impl TestDatabase {
    pub fn new(name: &str) -> TestDatabase {
        TestDatabase::with(name, Options::default())
    }

    pub fn with(name: &str, options: Options) -> TestDatabase {
        let limit = testkit::limit(300);
        let dir = testkit::temp_dir(name);
        let clock = Arc::new(Clock { now: AtomicI64::new(NOON), real: vfs::RealClock::new() });
        let env = vfs::Env { clock: clock.clone(), ..vfs::Env::real() };
        let mut engine_options = engine::Options::default();
        engine_options.log.file_bytes = 4 << 20;
        let engine = Engine::open(env, &dir.path().join("data"), engine_options).unwrap();
        let text = index::text::TextMaterializer::new();
        engine.register(text.clone()).unwrap();
        let sql = Sql::new(engine.clone(), query::Options::new(dir.path().join("spill"))).unwrap();
        let search = query::Search::new(engine.clone(), text, sql.clone()).unwrap();
        let ask = Ask::new(engine.clone(), sql.clone(), Some(search.clone()), options);
        TestDatabase { engine, sql, search, ask, clock, _dir: dir, _limit: limit }
    }

    /// Sets the clock.
    pub fn at(&self, now: i64) {
        self.clock.now.store(now, Ordering::SeqCst);
    }

    pub async fn run(&self, sql: &str) {
        self.sql
            .run(&Principal::local(), sql, Vec::new(), query::Limits::default())
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    pub async fn ask(&self, q: &str) -> Answer {
        self.ask.ask(&Principal::local(), &Question::new(q)).await.unwrap_or_else(|e| panic!("{q}: {e}"))
    }

    fn create(&self, table: &str, columns: &[(&str, DataType)]) {
        let mut def = TableDef::new(TableId(0), table);
        for (name, data_type) in columns {
            let id = def.add_column(name, data_type, true, None).unwrap();
            if *name == "time" && table != "polynya.requests" {
                def.time = Some(id);
            }
        }
        let op = Op::CreateTable { def, if_absent: true };
        self.engine.commit(&Principal::local(), Transaction::new(vec![op]).internal()).unwrap();
    }

    fn insert(&self, table: &str, columns: Vec<(&str, ArrayRef)>) {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )
        .unwrap();
        let op = Op::Insert { table: table.into(), batch, mode: Mode::Append };
        self.engine.commit(&Principal::local(), Transaction::new(vec![op]).internal()).unwrap();
    }

    /// Inserts metrics as the recorder writes them: time, name, device, value.
    pub fn metrics(&self, rows: &[(i64, &str, Option<&str>, f64)]) {
        use DataType::{Float64, String, Timestamp};
        let columns =
            [("time", Timestamp), ("name", String), ("device", String), ("value", Float64), ("unit", String)];
        self.create("polynya.metrics", &columns);
        let unit = |name: &str| if name.ends_with("_busy") { "%" } else { "bytes" };
        self.insert(
            "polynya.metrics",
            vec![
                ("time", times(rows.iter().map(|r| r.0))),
                ("name", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1)))),
                ("device", Arc::new(StringArray::from_iter(rows.iter().map(|r| r.2)))),
                ("value", Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.3)))),
                ("unit", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| unit(r.1))))),
            ],
        );
    }

    /// Inserts processes as the recorder writes them: time, name, share of a core, bytes.
    pub fn processes(&self, rows: &[(i64, &str, f64, i64)]) {
        use DataType::{Float64, Int64, String, Timestamp};
        let columns = [("time", Timestamp), ("name", String), ("cpu_percent", Float64), ("rss_bytes", Int64)];
        self.create("polynya.processes", &columns);
        self.insert(
            "polynya.processes",
            vec![
                ("time", times(rows.iter().map(|r| r.0))),
                ("name", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1)))),
                ("cpu_percent", Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.2)))),
                ("rss_bytes", Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.3)))),
            ],
        );
    }

    /// Inserts requests as the server records them: time, method, route, status, microseconds, table.
    pub fn requests(&self, rows: &[Request<'_>]) {
        use DataType::{Int32, Int64, String, Timestamp};
        let columns = [
            ("time", Timestamp),
            ("method", String),
            ("route", String),
            ("status", Int32),
            ("duration_us", Int64),
            ("bytes_in", Int64),
            ("bytes_out", Int64),
            ("principal", String),
            ("table", String),
            ("others", Int64),
        ];
        self.create("polynya.requests", &columns);
        self.insert(
            "polynya.requests",
            vec![
                ("time", times(rows.iter().map(|r| r.0))),
                ("method", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1)))),
                ("route", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.2)))),
                ("status", Arc::new(Int32Array::from_iter_values(rows.iter().map(|r| r.3)))),
                ("duration_us", Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.4)))),
                ("table", Arc::new(StringArray::from_iter(rows.iter().map(|r| r.5)))),
            ],
        );
    }

    /// Inserts notes into a vault: path, title, text, and true if published.
    pub fn notes(&self, notes: &[Note<'_>]) {
        let mut def = TableDef::new(TableId(0), "main.vault");
        for (name, data_type, nullable) in [
            ("path", DataType::String, false),
            ("title", DataType::String, true),
            ("text", DataType::String, true),
            ("published", DataType::Bool, false),
            ("modified", DataType::Timestamp, true),
        ] {
            def.add_column(name, &data_type, nullable, None).unwrap();
        }
        def.set_primary_key(&["path".into()]).unwrap();
        let ids = |names: &[&str]| {
            names.iter().map(|name| def.schema.column_named(name).unwrap().id).collect::<Vec<_>>()
        };
        let index = |name: &str, kind: &str, columns| types::IndexDef {
            name: name.into(),
            kind: kind.into(),
            columns,
            options: Vec::new(),
            unique: None,
        };
        let open = ids(&["path", "title", "text", "modified"]);
        let searched = ids(&["title", "text"]);
        def.indexes = vec![index("site", types::INDEX_SITE, open), index("text", "text", searched)];
        let create = Op::CreateTable { def, if_absent: true };
        let strings = |of: &dyn Fn(&Note<'_>) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(notes.iter().map(of)))
        };
        let now = vfs::Clock::now(&*self.clock);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("path", strings(&|n| n.0.into()), true),
            ("title", strings(&|n| n.1.into()), true),
            ("text", strings(&|n| n.2.into()), true),
            (
                "published",
                Arc::new(arrow::array::BooleanArray::from_iter(notes.iter().map(|n| Some(n.3)))) as ArrayRef,
                true,
            ),
            ("modified", times(notes.iter().map(|_| now)), true),
        ])
        .unwrap();
        let insert = Op::Insert { table: "main.vault".into(), batch, mode: Mode::Upsert };
        self.engine.commit(&Principal::local(), Transaction::new(vec![create, insert])).unwrap();
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        self.search.close();
        self.sql.close();
        let _ = self.engine.close();
    }
}

fn times(times: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
}

/// Returns the sources with their states, as `name state`.
pub fn states(answer: &Answer) -> Vec<String> {
    let state = |state: State| serde_json::to_value(state).unwrap().as_str().unwrap().to_owned();
    answer.sources.iter().map(|source| format!("{} {}", source.name, state(source.state))).collect()
}

/// Asserts that the answer contains all of these texts.
#[track_caller]
pub fn says(answer: &Answer, texts: &[&str]) {
    for text in texts {
        assert!(
            answer.answer.contains(text),
            "“{text}” is missing in the answer to “{}”:\n{}",
            answer.q,
            answer.answer
        );
    }
}

#[track_caller]
pub fn never_says(answer: &Answer, texts: &[&str]) {
    for text in texts {
        assert!(
            !answer.answer.contains(text),
            "“{text}” is in the answer to “{}”:\n{}",
            answer.q,
            answer.answer
        );
    }
}

/// Returns the values of a column of the first section that has rows.
pub fn column(answer: &Answer, name: &str) -> Vec<serde_json::Value> {
    let Some(section) = answer.sections.iter().find(|section| !section.rows.is_empty()) else {
        return Vec::new();
    };
    let at = section
        .columns
        .iter()
        .position(|column| column.name == name)
        .unwrap_or_else(|| panic!("no column {name} in {section:?}"));
    section.rows.iter().map(|row| row[at].clone()).collect()
}

pub fn reader(tables: &[&str]) -> Principal {
    Principal {
        name: "reader".into(),
        scope: types::Scope::Read,
        tables: types::TableSet::Only(tables.iter().map(|t| (*t).to_owned()).collect()),
    }
}

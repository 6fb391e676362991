//! Test support: a table of notes, random rows of few words, and an engine that is stepped by hand.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Engine, Mode as Write, Op, Options, Step, Transaction};
use sim::{Rng, SimEnv};
use table::Snapshot;
use table::materializer::{Budget, Materializer, MaterializerDir, Position, Progress};
use types::{ColumnId, DataType, IndexDef, Principal, Result, RowId, TableDef, TableId};

use crate::text::{self, Hits, Query, TextMaterializer};

pub const TITLE: ColumnId = ColumnId(17);
pub const BODY: ColumnId = ColumnId(18);

/// `(id int64, title string, body string)`, with `title` and `body` indexed.
pub fn notes() -> TableDef {
    let mut def = TableDef::new(TableId(0), "main.notes");
    def.add_column("id", &DataType::Int64, true, None).unwrap();
    def.add_column("title", &DataType::String, true, None).unwrap();
    def.add_column("body", &DataType::String, true, None).unwrap();
    def.indexes.push(declared(&[TITLE, BODY], &[]));
    def
}

pub fn keyed() -> TableDef {
    let mut def = notes();
    def.set_primary_key(&["id".into()]).unwrap();
    def
}

pub fn declared(columns: &[ColumnId], options: &[(&str, &str)]) -> IndexDef {
    let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    IndexDef {
        name: "words".into(),
        kind: text::KIND.into(),
        columns: columns.to_vec(),
        options,
        unique: None,
    }
}

pub fn batch(rows: &[(i64, Option<String>, Option<String>)]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
    let titles: ArrayRef = Arc::new(StringArray::from_iter(rows.iter().map(|r| r.1.clone())));
    let bodies: ArrayRef = Arc::new(StringArray::from_iter(rows.iter().map(|r| r.2.clone())));
    RecordBatch::try_from_iter([("id", ids), ("title", titles), ("body", bodies)]).unwrap()
}

const WORDS: [&str; 24] = [
    "river",
    "rivers",
    "bank",
    "banks",
    "banking",
    "stone",
    "stones",
    "bridge",
    "Brücke",
    "naïve",
    "index",
    "indexes",
    "tail",
    "row",
    "rows",
    "the",
    "of",
    "a",
    "c++",
    "don't",
    "日本語",
    "東京",
    "running",
    "run",
];

/// Returns at most `most` random words. Words at the start of the list are more frequent.
pub fn words(rng: &mut Rng, most: u64) -> String {
    let count = rng.below(most + 1);
    let word = |rng: &mut Rng| {
        let at = rng.below(WORDS.len() as u64).min(rng.below(WORDS.len() as u64));
        WORDS[at as usize]
    };
    let words: Vec<&str> = (0..count).map(|_| word(rng)).collect();
    words.join(if rng.below(5) == 0 { ", " } else { " " })
}

pub fn random_rows(rng: &mut Rng, count: usize, ids: u64) -> RecordBatch {
    let mut rows: HashMap<i64, (Option<String>, Option<String>)> = HashMap::new();
    for _ in 0..count {
        let title = (rng.below(6) > 0).then(|| words(rng, 3));
        rows.insert(rng.below(ids) as i64, (title, Some(words(rng, 30))));
    }
    let mut rows: Vec<_> = rows.into_iter().map(|(id, (title, body))| (id, title, body)).collect();
    rows.sort();
    batch(&rows)
}

pub const QUERIES: [&str; 14] = [
    "river",
    "banks running",
    "the of a",
    "the river of stones",
    "\"river bank\"",
    "+stone -bridge tail",
    "brucke",
    "title:row index",
    "ind*",
    "run* +the",
    "日本",
    "\"東京\" c++",
    "body:\"the of\" rows rows",
    "naive don't nothing",
];

/// The answer to a query: rows with the bits of their scores, and the number of matching rows.
pub type QueryAnswer = (Vec<(RowId, u32)>, u64);

/// Runs all queries as a reader does, and returns their answers with scores to the last bit.
pub fn observe(
    text: &TextMaterializer,
    table: &Arc<Snapshot>,
    position: Option<&Position>,
) -> Result<Vec<QueryAnswer>> {
    // In debug builds, any lock of ours on the read path would panic (R1).
    let _reads = vfs::read_path();
    let searcher = text.searcher(table, position)?;
    let mut seen = Vec::new();
    for query in QUERIES {
        for (mode, limit) in [(text::Mode::Any, 10_000), (text::Mode::Any, 3), (text::Mode::All, 5)] {
            let hits = searcher.search(&Query { mode, limit, ..Query::new(query) })?;
            assert!(hits.exact);
            seen.push((hits.hits.iter().map(|hit| (hit.row, hit.score.to_bits())).collect(), hits.total));
        }
    }
    Ok(seen)
}

/// An engine whose background work runs only when the test steps it.
pub struct Machine {
    pub sim: SimEnv,
    pub engine: Engine,
    pub text: Arc<TextMaterializer>,
}

impl Machine {
    pub fn new(seed: u64, def: TableDef) -> Machine {
        Machine::open(SimEnv::new(seed), def)
    }

    pub fn open(sim: SimEnv, def: TableDef) -> Machine {
        let engine = Engine::open_stepped(sim.env(), "db".as_ref(), Options::default()).unwrap();
        let text = TextMaterializer::new();
        engine.register(text.clone()).unwrap();
        let machine = Machine { sim, engine, text };
        machine.write(Op::CreateTable { def, if_absent: true });
        machine
    }

    pub fn write(&self, op: Op) {
        self.engine.submit(&Principal::local(), Transaction::new(vec![op]), |done| {
            done.unwrap();
        });
        while self.engine.step(Step::Commit) || self.engine.step(Step::Sync) {}
    }

    pub fn insert(&self, batch: RecordBatch) {
        let table = self.table();
        let mode = if table.def().is_keyed() { Write::Upsert } else { Write::Append };
        self.write(Op::Insert { table: "notes".into(), batch, mode });
    }

    pub fn insert_bodies(&self, bodies: &[&str]) {
        let rows: Vec<_> = bodies.iter().map(|body| (0, None, Some((*body).to_owned()))).collect();
        self.insert(batch(&rows));
    }

    pub fn delete(&self, rows: Vec<RowId>) {
        self.write(Op::Delete { table: "notes".into(), rows, must_exist: false });
    }

    pub fn table(&self) -> Arc<Snapshot> {
        self.engine.root().table("main.notes").unwrap().clone()
    }

    pub fn position(&self) -> Option<Arc<Position>> {
        self.engine.root().derived(text::NAME, self.table().def().id).cloned()
    }

    pub fn search(&self, query: &Query<'_>) -> Hits {
        self.text.searcher(&self.table(), self.position().as_deref()).unwrap().search(query).unwrap()
    }

    pub fn rows(&self, query: &str) -> Vec<u64> {
        self.search(&Query::new(query)).hits.iter().map(|hit| hit.row.0).collect()
    }

    pub fn background(&self) -> bool {
        let did = self.engine.step(Step::Background);
        while self.engine.step(Step::Commit) || self.engine.step(Step::Sync) {}
        did
    }

    fn place(&self) -> MaterializerDir {
        let dir = format!("db/derived/text/{}", self.table().def().id);
        MaterializerDir { env: self.sim.env(), dir: dir.into() }
    }

    /// Removes unneeded files. The background thread does so after a step, but a stepped engine does not.
    pub fn clean(&self) {
        self.text.clean(&self.place(), &self.position().unwrap()).unwrap();
    }

    /// Returns the files in the directory of the index.
    pub fn files(&self) -> Vec<std::path::PathBuf> {
        let place = self.place();
        let entries = place.env.disk.list(&place.dir).unwrap();
        entries.into_iter().map(|entry| place.dir.join(entry.name)).collect()
    }

    /// Returns the files that a materializer keeps for the table, or none if it has no directory.
    pub fn files_of(&self, materializer: &str) -> Vec<std::path::PathBuf> {
        let dir = std::path::PathBuf::from(format!("db/derived/{materializer}/{}", self.table().def().id));
        let env = self.sim.env();
        let entries = env.disk.list(&dir).unwrap_or_default();
        entries.into_iter().map(|entry| dir.join(entry.name)).collect()
    }

    /// Runs background steps until none is left.
    pub fn catch_up(&self) {
        for _ in 0..1_000 {
            let table = self.table();
            self.engine.hurry(text::NAME, table.def().id);
            if !self.background() {
                return;
            }
        }
        panic!("the background does not end");
    }
}

/// Builds an index in a directory of its own, with at most `steps` steps of at most `rows` rows each.
pub fn built(
    text: &TextMaterializer,
    table: &Arc<Snapshot>,
    rows: usize,
    steps: usize,
) -> (MaterializerDir, Option<Arc<Position>>) {
    let place = MaterializerDir { env: SimEnv::new(0).env(), dir: table.def().id.to_string().into() };
    place.env.disk.create_dir_all(&place.dir).unwrap();
    let position = carry_on(text, &place, table, None, rows, steps);
    (place, position)
}

pub fn carry_on(
    text: &TextMaterializer,
    place: &MaterializerDir,
    table: &Arc<Snapshot>,
    mut position: Option<Arc<Position>>,
    rows: usize,
    steps: usize,
) -> Option<Arc<Position>> {
    for _ in 0..steps {
        let tick: &mut dyn FnMut(u64) -> Result<()> = &mut |_| Ok(());
        let mut budget = Budget { rows, urgent: true, tick };
        match text.step(place, table, position.as_ref(), &mut budget).unwrap() {
            Progress::Advanced(next) => {
                let next = Arc::new(next);
                text.clean(place, &next).unwrap();
                position = Some(next);
            }
            Progress::UpToDate => break,
            Progress::Later(_) => panic!("an urgent step does not wait"),
        }
    }
    position
}

/// Appends rows to a table as one commit.
pub fn append(tip: &mut table::Tip, rows: RecordBatch, lsn: u64) {
    let count = rows.num_rows() as u64;
    tip.append(tip.next_row(), 0, &[(types::Lsn(lsn), count)], &rows).unwrap();
}

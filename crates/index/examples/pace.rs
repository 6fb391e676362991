//! Benchmark of keyword search: building an index, and answering from index and tail.
//!
//! `pace [ROWS]` indexes `ROWS` documents (default 100,000) of 10 to 70 words, with the word frequencies of a natural
//! language. It prints the rows per second of the first build, and the latency of queries of one to four words in three
//! cases: all rows in the index; no index at all, so that all rows are in the tail; and both, while each search is
//! preceded by 20 new rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Engine, Mode as Write, Op, Options, Transaction};
use polynya_index::text::{self, Query, TextMaterializer};
use testkit::Rng;
use types::{DataType, NewIndex, Principal, TableDef, TableId};

type Failure = Box<dyn std::error::Error>;

const VOCABULARY: u64 = 50_000;
const BATCH: u64 = 2_000;
const TAIL_ROWS: u64 = 2_000;
const SEARCHES: usize = 2_000;

/// Returns a random word. The word of rank r has a probability of about 1/r.
fn word(rng: &mut Rng) -> String {
    let exponent = rng.below(1 << 20) as f64 / f64::from(1 << 20);
    format!("w{}", (VOCABULARY as f64).powf(exponent) as u64)
}

fn texts(rng: &mut Rng, rows: u64) -> RecordBatch {
    let text = |rng: &mut Rng| (0..10 + rng.below(61)).map(|_| word(rng)).collect::<Vec<_>>().join(" ");
    let bodies = StringArray::from_iter_values((0..rows).map(|_| text(rng)));
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("body", Arc::new(bodies))];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

struct SearchBench {
    engine: Engine,
    text: Arc<TextMaterializer>,
    rng: Rng,
}

impl SearchBench {
    fn insert(&mut self, rows: u64) -> types::Result<()> {
        let batch = texts(&mut self.rng, rows);
        self.engine.commit(&Principal::local(), Transaction::insert("docs", batch, Write::Append)).map(|_| ())
    }

    /// Makes one search as a server does. Returns its time and the number of rows in the tail.
    fn search(&mut self) -> types::Result<(Duration, u64)> {
        let words: Vec<String> = (0..1 + self.rng.below(4)).map(|_| word(&mut self.rng)).collect();
        let words = words.join(" ");
        let start = Instant::now();
        let root = self.engine.root();
        let table = root.table("main.docs").ok_or_else(|| types::Error::internal("the table is gone"))?;
        let position = root.derived(text::NAME, table.def().id);
        let searcher = self.text.searcher(table, position.map(|p| &**p))?;
        searcher.search(&Query::new(&words))?;
        Ok((start.elapsed(), searcher.tail_rows()))
    }

    fn searches(
        &mut self,
        what: &str,
        mut before: impl FnMut(&mut Self) -> types::Result<()>,
    ) -> Result<(), Failure> {
        let mut took = Vec::with_capacity(SEARCHES);
        let mut tail = 0;
        for _ in 0..SEARCHES {
            before(self)?;
            let (time, rows) = self.search()?;
            took.push(time);
            tail = rows.max(tail);
        }
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: p50 {:?}, p99 {:?}, longest {:?}; {tail} rows in the tail at most",
            at(0.5),
            at(0.99),
            at(1.0)
        );
        Ok(())
    }

    fn missing(&self) -> u64 {
        let root = self.engine.root();
        let standing = root.table("main.docs").map(|table| self.engine.materializer_progress(table));
        standing.and_then(|all| all.first().map(|s| s.missing)).unwrap_or_default()
    }
}

fn main() -> Result<(), Failure> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(100_000), |rows| rows.parse())?;
    let home = testkit::temp_dir("pace");
    let engine = Engine::open(vfs::Env::real(), home.path(), Options::default())?;
    let text = TextMaterializer::new();
    engine.register(text.clone())?;
    let me = Principal::local();
    let mut def = TableDef::new(TableId(0), "main.docs");
    def.add_column("id", &DataType::Int64, true, None)?;
    def.add_column("body", &DataType::String, true, None)?;
    engine.commit(&me, Transaction::new(vec![Op::CreateTable { def, if_absent: false }]))?;
    let mut bench = SearchBench { engine: engine.clone(), text, rng: Rng::new(1) };
    for _ in 0..rows / BATCH {
        bench.insert(BATCH)?;
    }

    let index = NewIndex { kind: text::KIND.into(), columns: vec!["body".into()], ..NewIndex::default() };
    let add = Op::AlterIndexes { table: "docs".into(), drop: Vec::new(), add: vec![index] };
    engine.commit(&me, Transaction::new(vec![add]))?;
    let start = Instant::now();
    while bench.missing() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = start.elapsed();
    println!(
        "first build: {:.0} rows a second ({rows} rows in {took:.2?})",
        rows as f64 / took.as_secs_f64()
    );

    bench.searches("from the index", |_| Ok(()))?;

    // A reader without a position has all rows in its tail.
    let root = engine.root();
    let table = root.table("main.docs").ok_or("the table is gone")?;
    let alone = TextMaterializer::new();
    let start = Instant::now();
    match alone.searcher(table, None) {
        Ok(searcher) => {
            searcher.search(&Query::new("w9 w99"))?;
            println!("all {} rows in the tail, first search: {:?}", searcher.tail_rows(), start.elapsed());
            let mut took: Vec<Duration> = (0..SEARCHES)
                .map(|_| {
                    let words = format!("{} {}", word(&mut bench.rng), word(&mut bench.rng));
                    let start = Instant::now();
                    let searcher = alone.searcher(table, None)?;
                    searcher.search(&Query::new(&words))?;
                    Ok(start.elapsed())
                })
                .collect::<types::Result<_>>()?;
            took.sort_unstable();
            println!("then: p50 {:?}, p99 {:?}", took[SEARCHES / 2], took[SEARCHES * 99 / 100]);
        }
        Err(error) => println!("all rows in the tail: {error}"),
    }
    bench.insert(TAIL_ROWS)?;
    bench.searches("while 20 rows come with each search", |bench| bench.insert(20))?;
    engine.close()?;
    Ok(())
}

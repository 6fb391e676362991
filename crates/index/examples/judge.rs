//! Measures the ranking quality of keyword search on a judged collection.
//!
//! `judge DIR [any|all] [WEIGHTS] [LANGUAGE]`, where `DIR` holds `corpus.jsonl.gz` (`_id`, `title`, `text`),
//! `queries.jsonl` (`_id`, `text`) and `qrels.tsv` (query, document, grade). It prints the mean nDCG@10 over the
//! queries that have a judged document.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use engine::{Engine, Mode as Write, Op, Options, Transaction};
use polynya_index::text::{self, Mode, Query, TextMaterializer};
use types::{DataType, IndexDef, Principal, TableDef, TableId};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("judge DIR [any|all] [WEIGHTS] [LANGUAGE]")?;
    let mode = if arguments.next().as_deref() == Some("all") { Mode::All } else { Mode::Any };
    let weights = arguments.next().unwrap_or_else(|| "1,1".into());
    let language = arguments.next().unwrap_or_else(|| "english".into());
    let dir = Path::new(&dir);

    let mut corpus = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(dir.join("corpus.jsonl.gz"))?)
        .read_to_string(&mut corpus)?;
    let documents = lines(&corpus)?;
    let column = |name: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter(documents.iter().map(|d| d.get(name).and_then(|v| v.as_str()))))
    };
    let batch = RecordBatch::try_from_iter([
        ("id", column("_id")),
        ("title", column("title")),
        ("text", column("text")),
    ])?;

    let home = testkit::temp_dir("judge");
    let engine = Engine::open(vfs::Env::real(), home.path(), Options::default())?;
    let index = TextMaterializer::new();
    engine.register(index.clone())?;
    let mut def = TableDef::new(TableId(0), "main.documents");
    for name in ["id", "title", "text"] {
        def.add_column(name, &DataType::String, true, None)?;
    }
    let columns = def.schema.columns[1..].iter().map(|column| column.id).collect();
    let options = vec![("weights".to_owned(), weights), ("language".to_owned(), language)];
    def.indexes.push(IndexDef {
        name: "text".into(),
        kind: text::KIND.into(),
        columns,
        options,
        unique: None,
    });
    text::check(&def, &def.indexes[0])?;
    let me = Principal::local();
    engine.commit(&me, Transaction::new(vec![Op::CreateTable { def, if_absent: false }]))?;
    engine.commit(&me, Transaction::insert("documents", batch, Write::Append))?;

    let mut judged: HashMap<String, HashMap<String, f64>> = HashMap::new();
    for line in std::fs::read_to_string(dir.join("qrels.tsv"))?.lines().skip(1) {
        let mut parts = line.split('\t');
        let mut part = || parts.next().ok_or("a line of qrels.tsv has three columns");
        let (query, document, grade) = (part()?, part()?, part()?.trim().parse::<f64>()?);
        judged.entry(query.into()).or_default().insert(document.into(), grade);
    }

    let root = engine.root();
    let table =
        root.table("documents").or_else(|| root.table("main.documents")).ok_or("the table is gone")?;
    let position = root.derived(text::NAME, table.def().id);
    let searcher = index.searcher(table, position.map(|p| &**p))?;
    let ids = table.projection(&[table.def().schema.columns[0].id])?;
    let (mut sum, mut count) = (0.0, 0);
    let start = Instant::now();
    for query in lines(&std::fs::read_to_string(dir.join("queries.jsonl"))?)? {
        let field = |name: &str| query.get(name).and_then(|v| v.as_str()).unwrap_or_default();
        let Some(grades) = judged.get(field("_id")) else { continue };
        // The queries are sentences for people, so a hyphen does not mean an exclusion.
        let words: String =
            field("text").chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
        let hits = searcher.search(&Query { mode, ..Query::new(&words) })?.hits;
        let rows: Vec<_> = hits.iter().map(|hit| hit.row).collect();
        let found = table.fetch(&rows, &ids)?;
        let found = found.column(0).as_any().downcast_ref::<StringArray>().ok_or("ids are strings")?;
        let discount = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        let gained: f64 = found
            .iter()
            .enumerate()
            .map(|(rank, id)| id.and_then(|id| grades.get(id)).copied().unwrap_or(0.0) * discount(rank))
            .sum();
        let mut ideal: Vec<f64> = grades.values().copied().collect();
        ideal.sort_by(|a, b| b.total_cmp(a));
        let possible: f64 =
            ideal.iter().take(10).enumerate().map(|(rank, grade)| grade * discount(rank)).sum();
        if possible > 0.0 {
            sum += gained / possible;
            count += 1;
        }
    }
    println!("nDCG@10 {:.4} over {count} queries, {:?}", sum / f64::from(count), start.elapsed());
    engine.close()?;
    Ok(())
}

fn lines(text: &str) -> Result<Vec<serde_json::Value>, Failure> {
    Ok(text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

//! Keyword search over text indexes.

use std::sync::Arc;

use engine::DatabaseRoot;
use index::text::{self, Marker, Query, Searcher};
use table::materializer::Position;
use types::{Error, Lsn, Result, Value, name};

use crate::snapshot::table_of;
use crate::{Database, Row};

/// The length of a snippet, in characters.
const SNIPPET_CHARS: usize = 200;

/// A search request. [`Search::new`] asks for the ten best rows.
#[derive(Clone, Debug)]
pub struct Search {
    text: String,
    columns: Vec<String>,
    limit: usize,
    offset: usize,
}

impl Search {
    /// Parses words, `"a phrase"`, `+must`, `-must_not`, `prefix*` and `column:word`. No text is a syntax error.
    pub fn new(text: impl Into<String>) -> Self {
        Search { text: text.into(), columns: Vec::new(), limit: 10, offset: 0 }
    }

    /// Restricts the search to these of the indexed columns.
    #[must_use]
    pub fn columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.columns = columns.into_iter().map(Into::into).collect();
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    #[must_use]
    pub fn offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }
}

impl From<&str> for Search {
    fn from(text: &str) -> Self {
        Search::new(text)
    }
}

/// The result of a search, all of it at one lsn.
#[derive(Clone, Debug)]
pub struct SearchResults {
    /// Hits, best first.
    pub hits: Vec<Hit>,
    /// The number of matching rows.
    pub total: u64,
    /// False if `total` is a lower bound.
    pub exact: bool,
    pub lsn: Lsn,
}

/// One matching row.
#[derive(Clone, Debug)]
pub struct Hit {
    pub row: Row,
    /// The BM25 score.
    pub score: f32,
    /// The columns with matches, each with an excerpt of its text as escaped HTML. Matching words are in `<mark>`.
    pub snippets: Vec<(String, String)>,
}

impl Database {
    /// Returns the best rows of a table for some words. All acknowledged rows are found, deleted ones are not. The table needs a
    /// text index ([`crate::NewTable::text_index`], [`Database::create_text_index`]).
    ///
    /// Fails with [`crate::Kind::IndexBuilding`] if so many rows are missing from the index that the answer would take too long.
    /// The hint gives the progress.
    pub fn search(&self, table: &str, search: impl Into<Search>) -> Result<SearchResults> {
        let search = search.into();
        self.engine.view(&self.principal)?;
        let root = self.engine.root();
        let snapshot = table_of(&root, table)?;
        let searcher = self.text.searcher(&snapshot, position(&root, &snapshot).as_deref())?;
        let def = snapshot.def();
        let columns = search
            .columns
            .iter()
            .map(|wanted| {
                let found = def.schema.column_named(wanted).map(|column| column.id);
                found.ok_or_else(|| {
                    Error::not_found(format!("there is no column `{}`", name::printable(wanted)))
                        .with("table", name::short_table_name(&def.name))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let Search { text, limit, offset, .. } = &search;
        let query = Query { columns: &columns, limit: *limit, offset: *offset, ..Query::new(text) };
        let found = searcher.search(&query)?;
        let mut marker = searcher.marker(&query)?;
        marker.share(*limit * searcher.fields().iter().count());
        let mut hits = Vec::with_capacity(found.hits.len());
        for hit in found.hits {
            let missing = || Error::internal("a row that was found is not in the table");
            let row = Row::new(snapshot.row(hit.row)?.ok_or_else(missing)?);
            let snippets = snippets(&searcher, &marker, &row)?;
            hits.push(Hit { row, score: hit.score, snippets });
        }
        Ok(SearchResults { hits, total: found.total, exact: found.exact, lsn: snapshot.lsn() })
    }
}

fn position(root: &DatabaseRoot, table: &table::Snapshot) -> Option<Arc<Position>> {
    root.derived(text::NAME, table.def().id).cloned()
}

fn snippets(searcher: &Searcher, marker: &Marker, row: &Row) -> Result<Vec<(String, String)>> {
    let mut snippets = Vec::new();
    for field in searcher.fields().iter() {
        let Value::String(text) = row.get(&field.name)? else { continue };
        let snippet = marker.snippet(field.column, &text, SNIPPET_CHARS);
        if !snippet.marks.is_empty() {
            snippets.push((field.name.clone(), snippet.html()));
        }
    }
    Ok(snippets)
}

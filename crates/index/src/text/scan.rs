//! Keyword search without an index, by reading every live row.
//!
//! A row matches if an index with default options would find it: words, stems and signs are the same. The ranking is
//! simpler, since nothing is known of rows that were not read yet. Each word of the query that a row contains adds one
//! to its score, and each doubling of its occurrences adds a half. So rows with more different words come first. The
//! cost grows with the size of the table. The caller must limit the time ([`Query::check`]) and must not run the scan
//! on a thread that other readers wait for.

use std::collections::HashMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use table::Snapshot;
use tantivy::tokenizer::TextAnalyzer;
use types::{ColumnId, DataType, Error, Result, RowId, TableDef};

use super::analyzer::{self, Language, Word};
use super::compile::{self, LeafPattern, QueryGroup};
use super::evaluate::TopHits;
use super::fields::{Field, Fields};
use super::parse::Sign;
use super::postings::text_of;
use super::query::{Hit, Hits, Query};
use super::search::check_window;
use super::snippet::Marker;
use crate::rows;

/// Number of rows between two calls of [`Query::check`].
const READ_ROWS: usize = 512;

/// A search without an index over string columns of a table.
pub struct Scanner {
    fields: Fields,
}

impl Scanner {
    /// Makes a scanner over these columns, or over all string columns of the table if `columns` is empty. Fails with
    /// [`types::Kind::Invalid`] if a column does not hold strings, or if there is no string column.
    pub fn new(def: &TableDef, columns: &[ColumnId]) -> Result<Scanner> {
        let mut list = Vec::new();
        for column in &def.schema.columns {
            let is_string = column.data_type == DataType::String;
            if columns.contains(&column.id) && !is_string {
                return Err(Error::invalid(format!(
                    "column `{}` is not a string, but {}",
                    column.name, column.data_type
                ))
                .hint("search in string columns"));
            }
            if is_string && (columns.is_empty() || columns.contains(&column.id)) {
                list.push(Field {
                    column: column.id,
                    name: column.name.clone(),
                    language: Language::default(),
                    weight: 1.0,
                });
            }
        }
        if list.is_empty() {
            return Err(Error::invalid("the table has no string column to search in"));
        }
        list.sort_by_key(|field| field.column);
        Ok(Scanner { fields: Fields { list: list.into() } })
    }

    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Returns the best rows of a query. Reads every row of the table.
    pub fn search(&self, table: &Snapshot, query: &Query<'_>) -> Result<Hits> {
        let wanted = check_window(query)?;
        let groups = compile::compile_query(query, &self.fields)?;
        let mut best = TopHits::new(wanted, u64::MAX);
        if groups.iter().all(|group| group.sign == Sign::MustNot) {
            return Ok(best.finish(query.offset));
        }
        let projection = table.projection(&self.fields.columns())?;
        let mut analyzer = Language::default().analyzer();
        let mut next = RowId(1);
        loop {
            query.check.map_or(Ok(()), |check| check())?;
            let batch = table.scan_from(next, READ_ROWS, &projection)?;
            let Some(last) = rows::last(&batch) else { break };
            self.rows(&batch, &groups, &mut analyzer, query, &mut best);
            next = last.next();
        }
        Ok(best.finish(query.offset))
    }

    /// Returns a marker for the words of a query in texts.
    pub fn marker(&self, query: &Query<'_>) -> Result<Marker> {
        Ok(Marker::new(&self.fields, &compile::compile_query(query, &self.fields)?))
    }

    fn rows(
        &self,
        batch: &RecordBatch,
        groups: &[QueryGroup],
        analyzer: &mut TextAnalyzer,
        query: &Query<'_>,
        best: &mut TopHits,
    ) {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let texts: Vec<_> =
            (1..=self.fields.list.len()).map(|at| batch.column(at).as_string::<i32>()).collect();
        for at in 0..batch.num_rows() {
            let row = RowId(ids.value(at) as u64);
            if query.filter.is_some_and(|filter| !filter(row)) {
                continue;
            }
            let columns: Vec<TextWords> = texts
                .iter()
                .map(|texts| {
                    if texts.is_valid(at) {
                        TextWords::of(analyzer::analyze(analyzer, texts.value(at)))
                    } else {
                        TextWords::default()
                    }
                })
                .collect();
            if let Some(score) = score(groups, &columns) {
                best.add(Hit { row, score });
            }
        }
    }
}

/// The words of one text, with an index by term.
#[derive(Default)]
struct TextWords {
    list: Vec<Word>,
    /// Positions in `list` of each term.
    places: HashMap<String, Vec<usize>>,
}

impl TextWords {
    fn of(list: Vec<Word>) -> TextWords {
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, word) in list.iter().enumerate() {
            match places.get_mut(&word.term) {
                Some(known) => known.push(at),
                None => drop(places.insert(word.term.clone(), vec![at])),
            }
        }
        TextWords { list, places }
    }

    fn places(&self, term: &str) -> &[usize] {
        self.places.get(term).map_or(&[], Vec::as_slice)
    }

    fn count(&self, pattern: &LeafPattern) -> usize {
        match pattern {
            LeafPattern::Term(term) => self.places(text_of(term)).len(),
            LeafPattern::Phrase(terms) => {
                let Some(first) = terms.first() else { return 0 };
                let follows = |start: &&usize| {
                    let rest = terms.iter().enumerate().skip(1);
                    rest.into_iter().all(|(nth, term)| {
                        self.list.get(**start + nth).is_some_and(|word| word.term == text_of(term))
                    })
                };
                self.places(text_of(first)).iter().filter(follows).count()
            }
            LeafPattern::Prefix { prefix, stem } => {
                let stem = stem.as_ref().map_or("", text_of);
                let fits = |word: &&Word| {
                    word.term == stem || !prefix.is_empty() && word.term.starts_with(prefix.as_str())
                };
                self.list.iter().filter(fits).count()
            }
        }
    }
}

/// Returns the score of a row, or `None` if it does not match.
fn score(groups: &[QueryGroup], columns: &[TextWords]) -> Option<f32> {
    let (mut score, mut found) = (0.0, false);
    for group in groups {
        let count: usize = group.leaves.iter().map(|leaf| columns[leaf.column].count(&leaf.pattern)).sum();
        match (group.sign, count) {
            (Sign::MustNot, 0) => {}
            (Sign::MustNot, _) | (Sign::Must, 0) => return None,
            (Sign::Should, 0) => {}
            (Sign::Must | Sign::Should, count) => {
                found = true;
                score += group.times * (1.0 + 0.5 * (count as f32).log2());
            }
        }
    }
    found.then_some(score)
}

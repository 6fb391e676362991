//! Keyword search in a table at one lsn.

use std::sync::Arc;

use table::Snapshot;
use table::materializer::Position;
use tantivy::schema::Term;
use tantivy::{BitSet, TERMINATED};
use types::{Error, Kind, Result, RowId};

use super::compile::{self, LeafPattern, QueryGroup};
use super::dead_docs::{DeletedRows, PieceView};
use super::evaluate::{self, K1, QueryStatistic, TopHits};
use super::fields::{Fields, fields};
use super::parse::Sign;
use super::postings::{ColumnPostings, Postings, PostingsDetail};
use super::query::{Hits, Query};
use super::snippet::Marker;
use super::state::Index;
use super::tail::Tails;

/// The largest sum of limit and offset of a query, in rows.
const WINDOW_MAX: usize = 10_000;
/// Fixed cost of searching a piece, counted in steps from document to document.
const PIECE_WORK: u32 = 256;
/// Cost of finding one term with a prefix, counted in steps from document to document.
const CHECK_TERM: u32 = 64;

/// The text of a table at one lsn: index and tail. A searcher is made for each root or each query; sharing one saves
/// little.
pub struct Searcher {
    fields: Fields,
    /// The pieces of index and tail, in row-id order.
    views: Vec<PieceView>,
    /// Number of live rows.
    rows: u64,
    /// Number of words in the live rows, for each column.
    tokens: Vec<u64>,
    /// Number of live rows that the index does not hold yet.
    tail_rows: u64,
}

impl Searcher {
    pub(super) fn new(
        tails: &Tails,
        snapshot: &Arc<Snapshot>,
        position: Option<&Position>,
    ) -> Result<Searcher> {
        let fields = fields(snapshot.def()).ok_or_else(|| {
            Error::not_found("the table has no text index")
                .with("table", &snapshot.def().name)
                .hint("declare one over its string columns")
        })?;
        let index = usable_index(snapshot, &fields, position);
        let mut views = Vec::new();
        let mut reached = RowId(0);
        if let Some((position, index)) = index {
            let deaths = DeletedRows::since(snapshot, &position.checkpoint)?;
            for view in &index.pieces {
                views.push(deaths.apply(snapshot, view.clone())?);
            }
            reached = position.checkpoint.row;
        }
        let tail = tails.views(snapshot, reached, &fields)?;
        let tail_rows = tail.iter().map(PieceView::live).sum();
        views.extend(tail);
        views.retain(|view| view.live() > 0);
        let mut searcher = Searcher { fields, views, rows: 0, tokens: Vec::new(), tail_rows };
        searcher.count_rows_and_words();
        Ok(searcher)
    }

    /// Computes the numbers of rows and words over all pieces.
    fn count_rows_and_words(&mut self) {
        let views = &self.views;
        let words = |column: usize| {
            let live = |view: &PieceView| view.piece.columns[column].tokens - view.dead.tokens(column);
            views.iter().map(live).sum()
        };
        self.tokens = (0..self.fields.list.len()).map(words).collect();
        self.rows = views.iter().map(PieceView::live).sum();
    }

    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Restricts the search to rows for which `may_see` returns true, as if the table had no others. It serves readers
    /// who must not learn of other rows, not even from the rarity of a word. It visits every row once.
    #[must_use]
    pub fn restricted_to(mut self, may_see: &dyn Fn(RowId) -> bool) -> Searcher {
        for view in &mut self.views {
            let piece = view.piece.clone();
            let hidden = (0..piece.docs()).filter(|doc| !may_see(piece.row(*doc)));
            *view = view.clone().without(hidden);
        }
        self.views.retain(|view| view.live() > 0);
        self.count_rows_and_words();
        self
    }

    /// Returns the number of live rows that a search covers.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of those rows that the index does not hold yet.
    pub fn tail_rows(&self) -> u64 {
        self.tail_rows
    }

    /// Returns the number of pieces of index and tail.
    pub fn pieces(&self) -> usize {
        self.views.len()
    }

    /// Returns the best rows of a query.
    ///
    /// Fails with [`Kind::TooLarge`] if the query is too long or its offset too large, and with [`Kind::NotFound`] if
    /// it names a column without an index.
    pub fn search(&self, query: &Query<'_>) -> Result<Hits> {
        let wanted = check_window(query)?;
        let indexed = |id| self.fields.list.iter().any(|field| field.column == id);
        if let Some(other) = query.columns.iter().find(|id| !indexed(**id)) {
            return Err(Error::not_found(format!("column {other} has no text index")));
        }
        let groups = compile::compile_query(query, &self.fields)?;
        let mut best = TopHits::new(wanted, query.count_max);
        // A query that only excludes words finds nothing.
        if groups.iter().all(|group| group.sign == Sign::MustNot) {
            return Ok(best.finish(query.offset));
        }
        let statistic = self.statistic(&groups)?;
        query.check.map_or(Ok(()), |check| check())?;
        for view in &self.views {
            best.count_steps(PIECE_WORK, query)?;
            evaluate::search_piece(view, &groups, &statistic, query, &mut best)?;
        }
        Ok(best.finish(query.offset))
    }

    /// Returns a marker for the words of a query in texts.
    pub fn marker(&self, query: &Query<'_>) -> Result<Marker> {
        Ok(Marker::new(&self.fields, &compile::compile_query(query, &self.fields)?))
    }

    /// Computes the statistic of a query over the live rows of all pieces, so that the division into pieces does not
    /// show in a score.
    fn statistic(&self, groups: &[QueryGroup]) -> Result<QueryStatistic> {
        let average = |tokens: &u64| (*tokens as f32 / self.rows.max(1) as f32).max(f32::MIN_POSITIVE);
        let norms = self.tokens.iter().map(|tokens| evaluate::norms(average(tokens))).collect();
        let mut weights = Vec::with_capacity(groups.len());
        for group in groups {
            let mut of_group = Vec::with_capacity(group.leaves.len());
            for leaf in &group.leaves {
                let rarity = match &leaf.pattern {
                    LeafPattern::Term(term) => self.idf(leaf.column, term)?,
                    LeafPattern::Phrase(terms) => terms
                        .iter()
                        .try_fold(0.0, |sum, term| Ok::<_, Error>(sum + self.idf(leaf.column, term)?))?,
                    // All terms with the prefix count the same, however rare they are.
                    LeafPattern::Prefix { .. } => 1.0 / (K1 + 1.0),
                };
                of_group.push(rarity * (K1 + 1.0) * self.fields.list[leaf.column].weight * group.times);
            }
            weights.push(of_group);
        }
        Ok(QueryStatistic { norms, weights })
    }

    fn idf(&self, column: usize, term: &Term) -> Result<f32> {
        let mut df = 0;
        for view in &self.views {
            df += view.dead.live_df(&view.piece, column, term)?;
        }
        let (rows, df) = (self.rows as f32, df as f32);
        Ok((1.0 + (rows - df + 0.5) / (df + 0.5)).ln())
    }
}

/// Returns the index at a position if a reader of `snapshot` can use it: it was built for the current definition, and
/// it knows of no deletes after the lsn of the snapshot.
pub(super) fn usable_index<'p>(
    snapshot: &Snapshot,
    fields: &Fields,
    position: Option<&'p Position>,
) -> Option<(&'p Position, Arc<Index>)> {
    let position = position?;
    let index = position.published::<Index>()?;
    (index.fingerprint == fields.fingerprint() && index.lsn <= snapshot.lsn()).then_some((position, index))
}

/// Returns the number of best rows that a query needs (limit and offset). Fails if it exceeds [`WINDOW_MAX`].
pub(super) fn check_window(query: &Query<'_>) -> Result<usize> {
    let wanted = query.limit.saturating_add(query.offset);
    if wanted > WINDOW_MAX {
        return Err(Error::new(
            Kind::TooLarge,
            format!("a search returns at most the best {WINDOW_MAX} rows"),
        )
        .hint("ask for fewer, or make the query narrower"));
    }
    Ok(wanted)
}

/// Returns the documents in which the terms follow each other, each with the number of occurrences.
pub(super) fn phrase_documents(
    column: &ColumnPostings,
    terms: &[Term],
    query: &Query<'_>,
) -> Result<Vec<(u32, u32)>> {
    let mut lists: Vec<Postings<'_>> = Vec::with_capacity(terms.len());
    for term in terms {
        let Some(postings) = column.postings(term, PostingsDetail::Positions)? else { return Ok(Vec::new()) };
        lists.push(postings);
    }
    let mut found = Vec::new();
    let (mut starts, mut places) = (Vec::new(), Vec::new());
    let mut doc = lists[0].doc();
    let mut since_check = 0;
    'docs: while doc != TERMINATED {
        since_check += terms.len() as u32;
        if since_check >= evaluate::CHECK_EVERY {
            since_check = 0;
            query.check.map_or(Ok(()), |check| check())?;
        }
        for list in &mut lists {
            let at = list.seek(doc);
            if at > doc {
                doc = at;
                continue 'docs;
            }
        }
        lists[0].positions(&mut starts);
        for (nth, list) in lists.iter_mut().enumerate().skip(1) {
            if starts.is_empty() {
                break;
            }
            list.positions(&mut places);
            starts.retain(|start| places.binary_search(&(start + nth as u32)).is_ok());
        }
        if !starts.is_empty() {
            found.push((doc, starts.len() as u32));
        }
        doc = lists[0].advance();
    }
    Ok(found)
}

/// Returns the documents with a term that begins with `prefix`, or with the term `stem`.
pub(super) fn prefix_documents(
    column: &ColumnPostings,
    docs: u32,
    prefix: &str,
    stem: Option<&Term>,
    query: &Query<'_>,
) -> Result<Vec<u32>> {
    let mut found = BitSet::with_max_value(docs);
    let mut since_check = 0;
    let mut add = |mut postings: Postings<'_>| {
        since_check += postings.df() + CHECK_TERM;
        if since_check >= evaluate::CHECK_EVERY {
            since_check = 0;
            query.check.map_or(Ok(()), |check| check())?;
        }
        let mut doc = postings.doc();
        while doc != TERMINATED {
            found.insert(doc);
            doc = postings.advance();
        }
        Ok::<_, Error>(())
    };
    if let Some(stem) = stem
        && let Some(postings) = column.postings(stem, PostingsDetail::Documents)?
    {
        add(postings)?;
    }
    if !prefix.is_empty() {
        column.beginning_with(prefix, add)?;
    }
    Ok((0..docs).filter(|doc| found.contains(*doc)).collect())
}

//! Evaluation of a query on one piece, document by document.
//!
//! The score of a document is the sum of the scores of its groups in the order of the query. So it has the same bits in
//! whichever piece the document is. Pruning follows MaxScore: once enough rows were counted, a group no longer proposes
//! documents if its best possible score, added to those of all smaller groups, does not exceed the worst of the best
//! rows. The bound of a group is the best score that any term frequency can give. That bound always holds; the bounds
//! stored in segments do not, because they were computed with the averages of an earlier time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tantivy::TERMINATED;
use tantivy::fieldnorm::FieldNormReader;
use types::Result;

use super::compile::{LeafPattern, QueryGroup};
use super::dead_docs::PieceView;
use super::parse::Sign;
use super::piece::PieceColumn;
use super::postings::{ColumnPostings, Postings, PostingsDetail};
use super::query::{Hit, Hits, Query};

/// The length part of BM25 for each value of the byte that stands for a text's length.
pub(super) type Norms = [f32; 256];

pub(super) const K1: f32 = 1.2;
pub(super) const B: f32 = 0.75;

/// Number of steps from document to document between two calls of [`Query::check`].
pub(super) const CHECK_EVERY: u32 = 1 << 14;

/// The statistic of a query, the same for all pieces.
pub(super) struct QueryStatistic {
    /// The length parts, for each column.
    pub norms: Vec<Norms>,
    /// The factor of a term's frequency, for each group and leaf.
    pub weights: Vec<Vec<f32>>,
}

/// The best rows so far. Pieces are visited in row-id order, so a later row must have a greater score to displace an
/// earlier one.
pub(super) struct TopHits {
    wanted: usize,
    heap: BinaryHeap<WorstFirst>,
    total: u64,
    count_max: u64,
    exact: bool,
    since_check: u32,
}

#[derive(Clone, Copy, PartialEq)]
struct WorstFirst(Hit);

impl Eq for WorstFirst {}

impl PartialOrd for WorstFirst {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WorstFirst {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.score.total_cmp(&self.0.score).then(self.0.row.cmp(&other.0.row))
    }
}

impl TopHits {
    pub fn new(wanted: usize, count_max: u64) -> Self {
        TopHits { wanted, heap: BinaryHeap::new(), total: 0, count_max, exact: true, since_check: 0 }
    }

    /// Returns the score that a row must exceed to be among the best.
    fn threshold(&self) -> f32 {
        match self.heap.peek() {
            _ if self.wanted == 0 => f32::INFINITY,
            Some(worst) if self.heap.len() == self.wanted => worst.0.score,
            _ => f32::NEG_INFINITY,
        }
    }

    /// Counts a row, and keeps it if it is among the best.
    pub fn add(&mut self, hit: Hit) {
        self.total += 1;
        self.offer(hit);
    }

    fn offer(&mut self, hit: Hit) {
        if self.heap.len() < self.wanted {
            self.heap.push(WorstFirst(hit));
        } else if hit.score > self.threshold() {
            self.heap.pop();
            self.heap.push(WorstFirst(hit));
        }
    }

    /// Records that `steps` steps were made. Calls [`Query::check`] once in [`CHECK_EVERY`] steps, and fails if it
    /// does.
    pub fn count_steps(&mut self, steps: u32, query: &Query<'_>) -> Result<()> {
        self.since_check += steps;
        if self.since_check >= CHECK_EVERY {
            self.since_check = 0;
            query.check.map_or(Ok(()), |check| check())?;
        }
        Ok(())
    }

    /// Tells whether rows may be skipped without being counted.
    fn may_prune(&self) -> bool {
        self.total >= self.count_max
    }

    pub fn finish(self, offset: usize) -> Hits {
        let best = self.heap.into_sorted_vec();
        let hits = best.into_iter().skip(offset).map(|worst| worst.0).collect();
        Hits { hits, total: self.total, exact: self.exact }
    }
}

/// Adds the matching rows of a piece to the best.
pub(super) fn search_piece(
    view: &PieceView,
    groups: &[QueryGroup],
    statistic: &QueryStatistic,
    query: &Query<'_>,
    best: &mut TopHits,
) -> Result<()> {
    let mut must = Vec::new();
    let mut not = Vec::new();
    let mut should = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let cursor = GroupCursor::open(view, group, &statistic.weights[at], statistic, query)?;
        match group.sign {
            Sign::Must if cursor.doc == TERMINATED => return Ok(()),
            Sign::Must => must.push((at, cursor)),
            Sign::MustNot => not.push(cursor),
            Sign::Should => should.push((at, cursor)),
        }
    }
    let mut walk = DocumentWalk { view, query, not, scores: vec![0.0; groups.len()] };
    if must.is_empty() { walk.visit_any(should, best) } else { walk.visit_all(must, should, best) }
}

struct DocumentWalk<'a, 'q> {
    view: &'a PieceView,
    query: &'a Query<'q>,
    not: Vec<GroupCursor<'a>>,
    /// Score of the current document in each group.
    scores: Vec<f32>,
}

impl DocumentWalk<'_, '_> {
    /// Visits each document that all groups in `must` contain.
    fn visit_all<'c>(
        &mut self,
        mut must: Vec<(usize, GroupCursor<'c>)>,
        mut should: Vec<(usize, GroupCursor<'c>)>,
        best: &mut TopHits,
    ) -> Result<()> {
        // The group with the fewest documents leads.
        must.sort_by_key(|(_, cursor)| cursor.size);
        let mut doc = must[0].1.doc;
        'docs: while doc != TERMINATED {
            for (_, cursor) in &mut must {
                let found = cursor.seek(doc);
                if found > doc {
                    doc = found;
                    continue 'docs;
                }
            }
            self.check(best)?;
            if self.accepts(doc) {
                best.total += 1;
                self.scores.fill(0.0);
                for (at, cursor) in must.iter_mut().chain(&mut should) {
                    if cursor.seek(doc) == doc {
                        self.scores[*at] = cursor.score();
                    }
                }
                self.offer(doc, best);
            }
            doc = must[0].1.seek(doc + 1);
        }
        Ok(())
    }

    /// Visits each document that at least one of `groups` contains.
    fn visit_any(&mut self, mut groups: Vec<(usize, GroupCursor<'_>)>, best: &mut TopHits) -> Result<()> {
        groups.retain(|(_, cursor)| cursor.doc != TERMINATED);
        groups.sort_by(|a, b| a.1.max.total_cmp(&b.1.max));
        let mut sum = 0.0;
        // Upper bound on the score from a group and all smaller ones together. It is a little larger than their sum,
        // since sums are rounded.
        let bounds: Vec<f32> = groups
            .iter()
            .map(|(_, cursor)| {
                sum += cursor.max * 1.0001;
                sum
            })
            .collect();
        // Groups before this one no longer propose documents.
        let mut leaders = 0;
        loop {
            while leaders < groups.len() && best.may_prune() && bounds[leaders] <= best.threshold() {
                best.exact = false;
                leaders += 1;
            }
            let doc = groups[leaders..].iter().map(|(_, cursor)| cursor.doc).min().unwrap_or(TERMINATED);
            if doc == TERMINATED {
                return Ok(());
            }
            self.check(best)?;
            let prunes = leaders > 0;
            if prunes || self.accepts(doc) {
                best.total += u64::from(!prunes);
                if self.compute_scores(doc, &mut groups, leaders, &bounds, best.threshold())
                    && (!prunes || self.accepts(doc))
                {
                    best.total += u64::from(prunes);
                    self.offer(doc, best);
                }
            }
            for (_, cursor) in &mut groups[leaders..] {
                if cursor.doc == doc {
                    cursor.seek(doc + 1);
                }
            }
        }
    }

    /// Computes the scores of a document. Returns false as soon as it cannot exceed the threshold.
    fn compute_scores(
        &mut self,
        doc: u32,
        groups: &mut [(usize, GroupCursor<'_>)],
        leaders: usize,
        bounds: &[f32],
        threshold: f32,
    ) -> bool {
        self.scores.fill(0.0);
        let mut sum = 0.0;
        for (at, cursor) in &groups[leaders..] {
            if cursor.doc == doc {
                self.scores[*at] = cursor.score();
                sum += self.scores[*at];
            }
        }
        for small in (0..leaders).rev() {
            if sum * 1.0001 + bounds[small] <= threshold {
                return false;
            }
            let (at, cursor) = &mut groups[small];
            if cursor.seek(doc) == doc {
                self.scores[*at] = cursor.score();
                sum += self.scores[*at];
            }
        }
        true
    }

    fn offer(&self, doc: u32, best: &mut TopHits) {
        let score = self.scores.iter().sum();
        if score > best.threshold() {
            best.offer(Hit { row: self.view.piece.row(doc), score });
        }
    }

    /// Returns true if a document is alive, not excluded by the query, and not refused by its filter.
    fn accepts(&mut self, doc: u32) -> bool {
        !self.view.dead.contains(doc)
            && self.not.iter_mut().all(|cursor| cursor.seek(doc) != doc)
            && self.query.filter.is_none_or(|filter| filter(self.view.piece.row(doc)))
    }

    fn check(&self, best: &mut TopHits) -> Result<()> {
        best.count_steps(self.scores.len() as u32, self.query)
    }
}

/// A cursor over the documents of one group.
struct GroupCursor<'a> {
    leaves: Vec<LeafCursor<'a>>,
    /// The smallest current document of its leaves.
    doc: u32,
    /// Upper bound on the score of any document.
    max: f32,
    /// Approximate number of documents.
    size: u64,
}

enum LeafCursor<'a> {
    Term {
        postings: Postings<'a>,
        column: &'a ColumnPostings,
        norms: &'a Norms,
        weight: f32,
    },
    /// Documents with their scores, computed when the cursor was opened.
    List {
        docs: Vec<(u32, f32)>,
        at: usize,
    },
}

impl<'a> GroupCursor<'a> {
    fn open(
        view: &'a PieceView,
        group: &QueryGroup,
        weights: &[f32],
        statistic: &'a QueryStatistic,
        query: &Query<'_>,
    ) -> Result<GroupCursor<'a>> {
        let mut cursor = GroupCursor { leaves: Vec::new(), doc: TERMINATED, max: 0.0, size: 0 };
        for (leaf, weight) in group.leaves.iter().zip(weights) {
            let PieceColumn { column, .. } = &view.piece.columns[leaf.column];
            let norms = &statistic.norms[leaf.column];
            let opened = match &leaf.pattern {
                LeafPattern::Term(term) => {
                    let Some(postings) = column.postings(term, PostingsDetail::Frequencies)? else {
                        continue;
                    };
                    cursor.max += weight;
                    LeafCursor::Term { postings, column, norms, weight: *weight }
                }
                LeafPattern::Phrase(terms) => {
                    let docs = super::search::phrase_documents(column, terms, query)?;
                    let score = |(doc, times)| (doc, weight * saturated_frequency(times, norms, column, doc));
                    cursor.open_list(docs.into_iter().map(score).collect())
                }
                LeafPattern::Prefix { prefix, stem } => {
                    let docs = super::search::prefix_documents(
                        column,
                        view.piece.docs(),
                        prefix,
                        stem.as_ref(),
                        query,
                    )?;
                    cursor.open_list(docs.into_iter().map(|doc| (doc, *weight)).collect())
                }
            };
            cursor.size += opened.size();
            cursor.doc = cursor.doc.min(opened.doc());
            cursor.leaves.push(opened);
        }
        Ok(cursor)
    }

    fn open_list(&mut self, docs: Vec<(u32, f32)>) -> LeafCursor<'a> {
        self.max += docs.iter().map(|(_, score)| *score).fold(0.0, f32::max);
        LeafCursor::List { docs, at: 0 }
    }

    /// Moves to the first document that is at least `target`, and returns it.
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc < target {
            self.doc = self.leaves.iter_mut().map(|leaf| leaf.seek(target)).min().unwrap_or(TERMINATED);
        }
        self.doc
    }

    /// Returns the score of the current document.
    fn score(&self) -> f32 {
        self.leaves.iter().filter(|leaf| leaf.doc() == self.doc).map(LeafCursor::score).sum()
    }
}

impl LeafCursor<'_> {
    fn doc(&self) -> u32 {
        match self {
            LeafCursor::Term { postings, .. } => postings.doc(),
            LeafCursor::List { docs, at } => docs.get(*at).map_or(TERMINATED, |(doc, _)| *doc),
        }
    }

    fn seek(&mut self, target: u32) -> u32 {
        match self {
            LeafCursor::Term { postings, .. } => postings.seek(target),
            LeafCursor::List { docs, at } => {
                *at += docs[*at..].partition_point(|(doc, _)| *doc < target);
                self.doc()
            }
        }
    }

    fn score(&self) -> f32 {
        match self {
            LeafCursor::Term { postings, column, norms, weight } => {
                weight * saturated_frequency(postings.frequency(), norms, column, postings.doc())
            }
            LeafCursor::List { docs, at } => docs.get(*at).map_or(0.0, |(_, score)| *score),
        }
    }

    fn size(&self) -> u64 {
        match self {
            LeafCursor::Term { postings, .. } => postings.df().into(),
            LeafCursor::List { docs, .. } => docs.len() as u64,
        }
    }
}

/// Returns the saturated frequency of BM25, below 1.
fn saturated_frequency(times: u32, norms: &Norms, column: &ColumnPostings, doc: u32) -> f32 {
    let times = times as f32;
    times / (times + norms[usize::from(column.length_id(doc))])
}

/// Computes the length part of BM25 for one column, once for each query. `average` is the average number of words.
pub(super) fn norms(average: f32) -> Norms {
    std::array::from_fn(|id| {
        let length = FieldNormReader::id_to_fieldnorm(id as u8) as f32;
        K1 * (1.0 - B + B * length / average)
    })
}

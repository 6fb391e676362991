//! A query against one piece, document by document.
//!
//! A document's score is the sum of its groups' in the order of the query, so that it has the same bits in whatever
//! piece the document is. Once enough rows were counted, a group whose best possible score, with those of all smaller
//! groups, is no better than the worst of the best rows no longer proposes documents (MaxScore). Only the best score that
//! any term frequency can give is used for that: it is exact, where the bounds that segments store are made with the
//! averages of their time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tantivy::TERMINATED;
use tantivy::fieldnorm::FieldNormReader;
use types::Result;

use super::dead::View;
use super::leaf::{Group, What};
use super::parse::Sign;
use super::piece::Indexed;
use super::postings::{Column, Need, Postings};
use super::query::{Hit, Hits, Query};

/// What BM25 makes of the length of a text, by the byte that stands for the length.
pub(super) type Norms = [f32; 256];

pub(super) const K1: f32 = 1.2;
pub(super) const B: f32 = 0.75;

/// Steps of terms from document to document between two questions whether to go on.
pub(super) const CHECK_EVERY: u32 = 1 << 14;

/// The statistic of a query: the same for all pieces.
pub(super) struct Statistic {
    /// By column.
    pub norms: Vec<Norms>,
    /// By group and leaf: what a term's frequency is multiplied by.
    pub weights: Vec<Vec<f32>>,
}

/// The best rows so far. Pieces come in row-id order, so a later row must be better, not as good.
pub(super) struct Best {
    wanted: usize,
    heap: BinaryHeap<Worst>,
    total: u64,
    count_max: u64,
    exact: bool,
    since_check: u32,
}

#[derive(Clone, Copy, PartialEq)]
struct Worst(Hit);

impl Eq for Worst {}

impl PartialOrd for Worst {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Worst {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.score.total_cmp(&self.0.score).then(self.0.row.cmp(&other.0.row))
    }
}

impl Best {
    pub fn new(wanted: usize, count_max: u64) -> Self {
        Best { wanted, heap: BinaryHeap::new(), total: 0, count_max, exact: true, since_check: 0 }
    }

    /// A row must be better to be among the best.
    fn threshold(&self) -> f32 {
        match self.heap.peek() {
            _ if self.wanted == 0 => f32::INFINITY,
            Some(worst) if self.heap.len() == self.wanted => worst.0.score,
            _ => f32::NEG_INFINITY,
        }
    }

    /// Counts a row and keeps it if it is good enough.
    pub fn add(&mut self, hit: Hit) {
        self.total += 1;
        self.offer(hit);
    }

    fn offer(&mut self, hit: Hit) {
        if self.heap.len() < self.wanted {
            self.heap.push(Worst(hit));
        } else if hit.score > self.threshold() {
            self.heap.pop();
            self.heap.push(Worst(hit));
        }
    }

    /// After so many steps; asks now and then whether to go on.
    pub fn worked(&mut self, steps: u32, query: &Query<'_>) -> Result<()> {
        self.since_check += steps;
        if self.since_check >= CHECK_EVERY {
            self.since_check = 0;
            query.check.map_or(Ok(()), |check| check())?;
        }
        Ok(())
    }

    /// Whether rows may be passed over.
    fn prunes(&self) -> bool {
        self.total >= self.count_max
    }

    pub fn finish(self, offset: usize) -> Hits {
        let best = self.heap.into_sorted_vec();
        let hits = best.into_iter().skip(offset).map(|worst| worst.0).collect();
        Hits { hits, total: self.total, exact: self.exact }
    }
}

/// Adds a piece's rows to the best.
pub(super) fn run(
    view: &View,
    groups: &[Group],
    statistic: &Statistic,
    query: &Query<'_>,
    best: &mut Best,
) -> Result<()> {
    let mut must = Vec::new();
    let mut not = Vec::new();
    let mut should = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let cursor = Cursor::open(view, group, &statistic.weights[at], statistic, query)?;
        match group.sign {
            Sign::Must if cursor.doc == TERMINATED => return Ok(()),
            Sign::Must => must.push((at, cursor)),
            Sign::MustNot => not.push(cursor),
            Sign::Should => should.push((at, cursor)),
        }
    }
    let mut walk = Walk { view, query, not, scores: vec![0.0; groups.len()] };
    if must.is_empty() { walk.any(should, best) } else { walk.all(must, should, best) }
}

struct Walk<'a, 'q> {
    view: &'a View,
    query: &'a Query<'q>,
    not: Vec<Cursor<'a>>,
    /// By group, of the document at hand.
    scores: Vec<f32>,
}

impl Walk<'_, '_> {
    /// Each document that all of `must` contain.
    fn all<'c>(
        &mut self,
        mut must: Vec<(usize, Cursor<'c>)>,
        mut should: Vec<(usize, Cursor<'c>)>,
        best: &mut Best,
    ) -> Result<()> {
        // The rarest leads.
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
            if self.is_wanted(doc) {
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

    /// Each document that one of `groups` contains.
    fn any(&mut self, mut groups: Vec<(usize, Cursor<'_>)>, best: &mut Best) -> Result<()> {
        groups.retain(|(_, cursor)| cursor.doc != TERMINATED);
        groups.sort_by(|a, b| a.1.max.total_cmp(&b.1.max));
        let mut sum = 0.0;
        // The best that a group and all smaller ones can give; a little more, since sums are rounded.
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
            while leaders < groups.len() && best.prunes() && bounds[leaders] <= best.threshold() {
                best.exact = false;
                leaders += 1;
            }
            let doc = groups[leaders..].iter().map(|(_, cursor)| cursor.doc).min().unwrap_or(TERMINATED);
            if doc == TERMINATED {
                return Ok(());
            }
            self.check(best)?;
            let prunes = leaders > 0;
            if prunes || self.is_wanted(doc) {
                best.total += u64::from(!prunes);
                if self.scored(doc, &mut groups, leaders, &bounds, best.threshold())
                    && (!prunes || self.is_wanted(doc))
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

    /// Fills the scores of a document; false as soon as it cannot be better than the threshold.
    fn scored(
        &mut self,
        doc: u32,
        groups: &mut [(usize, Cursor<'_>)],
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

    fn offer(&self, doc: u32, best: &mut Best) {
        let score = self.scores.iter().sum();
        if score > best.threshold() {
            best.offer(Hit { row: self.view.piece.row(doc), score });
        }
    }

    /// Live, not excluded, not refused.
    fn is_wanted(&mut self, doc: u32) -> bool {
        !self.view.dead.contains(doc)
            && self.not.iter_mut().all(|cursor| cursor.seek(doc) != doc)
            && self.query.filter.is_none_or(|filter| filter(self.view.piece.row(doc)))
    }

    fn check(&self, best: &mut Best) -> Result<()> {
        best.worked(self.scores.len() as u32, self.query)
    }
}

/// Where one group stands.
struct Cursor<'a> {
    leaves: Vec<LeafCursor<'a>>,
    /// The least of its leaves' documents.
    doc: u32,
    /// No document scores more.
    max: f32,
    /// About how many documents there are.
    size: u64,
}

enum LeafCursor<'a> {
    Term {
        postings: Postings<'a>,
        column: &'a Column,
        norms: &'a Norms,
        weight: f32,
    },
    /// Found out beforehand.
    List {
        docs: Vec<(u32, f32)>,
        at: usize,
    },
}

impl<'a> Cursor<'a> {
    fn open(
        view: &'a View,
        group: &Group,
        weights: &[f32],
        statistic: &'a Statistic,
        query: &Query<'_>,
    ) -> Result<Cursor<'a>> {
        let mut cursor = Cursor { leaves: Vec::new(), doc: TERMINATED, max: 0.0, size: 0 };
        for (leaf, weight) in group.leaves.iter().zip(weights) {
            let Indexed { column, .. } = &view.piece.columns[leaf.column];
            let norms = &statistic.norms[leaf.column];
            let opened = match &leaf.what {
                What::Term(term) => {
                    let Some(postings) = column.postings(term, Need::Frequencies)? else { continue };
                    cursor.max += weight;
                    LeafCursor::Term { postings, column, norms, weight: *weight }
                }
                What::Phrase(terms) => {
                    let docs = super::search::phrase(column, terms, query)?;
                    let score = |(doc, times)| (doc, weight * saturated(times, norms, column, doc));
                    cursor.list(docs.into_iter().map(score).collect())
                }
                What::Prefix { prefix, stem } => {
                    let docs =
                        super::search::prefixed(column, view.piece.docs(), prefix, stem.as_ref(), query)?;
                    cursor.list(docs.into_iter().map(|doc| (doc, *weight)).collect())
                }
            };
            cursor.size += opened.size();
            cursor.doc = cursor.doc.min(opened.doc());
            cursor.leaves.push(opened);
        }
        Ok(cursor)
    }

    fn list(&mut self, docs: Vec<(u32, f32)>) -> LeafCursor<'a> {
        self.max += docs.iter().map(|(_, score)| *score).fold(0.0, f32::max);
        LeafCursor::List { docs, at: 0 }
    }

    /// The first document from `target` on.
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc < target {
            self.doc = self.leaves.iter_mut().map(|leaf| leaf.seek(target)).min().unwrap_or(TERMINATED);
        }
        self.doc
    }

    /// Of the document where it stands.
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
                weight * saturated(postings.frequency(), norms, column, postings.doc())
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

/// BM25's share of a frequency, below 1.
fn saturated(times: u32, norms: &Norms, column: &Column, doc: u32) -> f32 {
    let times = times as f32;
    times / (times + norms[usize::from(column.length_id(doc))])
}

/// The lengths' part of BM25, once for each query and column.
pub(super) fn norms(average: f32) -> Norms {
    std::array::from_fn(|id| {
        let length = FieldNormReader::id_to_fieldnorm(id as u8) as f32;
        K1 * (1.0 - B + B * length / average)
    })
}

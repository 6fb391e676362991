//! A piece built in memory from rows that no segment holds yet: the terms of a column in order, each with its documents
//! and positions.
//!
//! It gives the same answers as a tantivy segment of the same rows, to the last bit. For that it stores the length of a
//! text as tantivy does ([`Terms::length_id`]). It is not a tantivy segment because a reader builds it while a user
//! waits: tantivy's writer sets up tables of megabytes before it takes the first word, which costs more than the words
//! of a hundred rows.
//!
//! The data lies in a few flat lists, about twice as large as the text. So two neighbours are joined by copying, and
//! dropping the last reference to a piece frees only a few allocations.

use std::collections::HashMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use tantivy::TERMINATED;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::tokenizer::{TextAnalyzer, TokenStream};
use types::{Error, Result};

use super::fields::Fields;

/// The terms of one column.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Terms {
    /// All terms, concatenated in ascending order.
    text: String,
    /// For each term: its start offset in `text`, and the index in `docs` of its first document.
    terms: Vec<(u32, u32)>,
    /// The documents of each term, ascending within a term: the document, and the index in `positions` of its first
    /// position.
    docs: Vec<(u32, u32)>,
    positions: Vec<u32>,
    /// Length of each document's text as tantivy stores it: one byte that stands for the number of words, rounded down.
    lengths: Vec<u8>,
}

/// Iterates over the documents of a term.
pub(super) struct TermCursor<'a> {
    of: &'a Terms,
    /// The current index in [`Terms::docs`]; the documents of the term are those from `from` to `to`.
    at: usize,
    from: usize,
    to: usize,
}

/// Builds the terms of all columns from rows in row-id order.
pub(super) struct Builder {
    columns: Vec<ColumnBuilder>,
    rows: Vec<u64>,
    bytes: usize,
}

/// The terms of one column under construction.
struct ColumnBuilder {
    analyzer: TextAnalyzer,
    /// Number of each term, in order of first appearance.
    known: HashMap<Box<str>, u32>,
    /// Term, document and position of each word.
    words: Vec<(u32, u32, u32)>,
    lengths: Vec<u8>,
}

impl Builder {
    pub fn new(fields: &Fields) -> Builder {
        let column = |language: super::Language| ColumnBuilder {
            analyzer: language.analyzer(),
            known: HashMap::new(),
            words: Vec::new(),
            lengths: Vec::new(),
        };
        let columns = fields.list.iter().map(|field| column(field.language)).collect();
        Builder { columns, rows: Vec::new(), bytes: 0 }
    }

    /// Adds rows with the columns [`Fields::columns`], all later than those before. Returns false as soon as the total
    /// exceeds `bytes_max` bytes of text; the remaining rows are then left out.
    pub fn add(&mut self, batch: &RecordBatch, bytes_max: usize) -> Result<bool> {
        let no_such = || Error::internal("a text index was given columns that it did not request");
        let rows = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(no_such)?;
        let texts = (1..=self.columns.len()).map(|at| batch.column(at).as_string_opt::<i32>());
        let texts = texts.collect::<Option<Vec<_>>>().ok_or_else(no_such)?;
        for at in 0..batch.num_rows() {
            for (column, texts) in self.columns.iter_mut().zip(&texts) {
                let text = if texts.is_valid(at) { texts.value(at) } else { "" };
                self.bytes += text.len();
                if self.bytes > bytes_max {
                    return Ok(false);
                }
                column.add(self.rows.len() as u32, text);
            }
            self.rows.push(rows.value(at) as u64);
        }
        Ok(true)
    }

    pub fn docs(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of text added so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the row ids, and the terms of each column.
    pub fn finish(self) -> (Vec<u64>, Vec<Terms>) {
        (self.rows, self.columns.into_iter().map(ColumnBuilder::finish).collect())
    }
}

impl ColumnBuilder {
    /// Adds the text of the next document.
    fn add(&mut self, doc: u32, text: &str) {
        let mut count = 0;
        let mut stream = self.analyzer.token_stream(text);
        while stream.advance() {
            let token = stream.token();
            let term = match self.known.get(token.text.as_str()) {
                Some(term) => *term,
                None => {
                    let term = self.known.len() as u32;
                    self.known.insert(token.text.as_str().into(), term);
                    term
                }
            };
            self.words.push((term, doc, token.position as u32));
            count += 1;
        }
        self.lengths.push(FieldNormReader::fieldnorm_to_id(count));
    }

    fn finish(mut self) -> Terms {
        let mut order: Vec<(Box<str>, u32)> = self.known.into_iter().collect();
        order.sort_unstable();
        let mut ranks = vec![0; order.len()];
        order.iter().zip(0u32..).for_each(|((_, term), rank)| ranks[*term as usize] = rank);
        // The sort is stable, so the words of a term keep their order.
        self.words.sort_by_key(|(term, ..)| ranks[*term as usize]);
        let mut terms = Terms { lengths: self.lengths, ..Terms::default() };
        terms.positions.reserve_exact(self.words.len());
        let mut words = self.words.into_iter().peekable();
        for (term, number) in &order {
            terms.begin(term);
            let mut last = None;
            while let Some((_, doc, position)) = words.next_if(|(of, ..)| of == number) {
                if last.replace(doc) != Some(doc) {
                    terms.docs.push((doc, terms.positions.len() as u32));
                }
                terms.positions.push(position);
            }
        }
        terms
    }
}

impl Terms {
    /// Starts a term: the documents that are added next belong to it.
    fn begin(&mut self, term: &str) {
        self.terms.push((self.text.len() as u32, self.docs.len() as u32));
        self.text.push_str(term);
    }

    /// Joins neighbouring parts into one.
    pub fn join(parts: &[&Terms]) -> Terms {
        let mut firsts = Vec::with_capacity(parts.len());
        let mut joined = Terms::default();
        for part in parts {
            firsts.push(joined.lengths.len() as u32);
            joined.lengths.extend_from_slice(&part.lengths);
        }
        joined.docs.reserve_exact(parts.iter().map(|part| part.docs.len()).sum());
        joined.positions.reserve_exact(parts.iter().map(|part| part.positions.len()).sum());
        // The index of the next term of each part.
        let mut next = vec![0; parts.len()];
        loop {
            let term = parts.iter().zip(&next).filter_map(|(part, at)| part.term(*at)).min();
            let Some(term) = term else { return joined };
            joined.begin(term);
            for ((part, at), first) in parts.iter().zip(&mut next).zip(&firsts) {
                if part.term(*at) == Some(term) {
                    joined.append(part, *at, *first);
                    *at += 1;
                }
            }
        }
    }

    /// Appends the documents of a term of `other`. `first` is the number in `self` of the first document of `other`.
    fn append(&mut self, other: &Terms, term: usize, first: u32) {
        let docs = other.docs_of(term);
        let from = other.positions_from(docs.start);
        let before = self.positions.len() as u32;
        let moved = other.docs[docs.clone()].iter().map(|(doc, at)| (first + doc, before + at - from as u32));
        self.docs.extend(moved);
        self.positions.extend_from_slice(&other.positions[from..other.positions_from(docs.end)]);
    }

    fn term(&self, at: usize) -> Option<&str> {
        let from = self.terms.get(at)?.0 as usize;
        let to = self.terms.get(at + 1).map_or(self.text.len(), |(next, _)| *next as usize);
        Some(&self.text[from..to])
    }

    fn docs_of(&self, term: usize) -> std::ops::Range<usize> {
        let to = self.terms.get(term + 1).map_or(self.docs.len(), |(_, next)| *next as usize);
        self.terms[term].1 as usize..to
    }

    /// Returns the index in `positions` of the first position of `docs[at]`, or the end of `positions` for the index
    /// after the last.
    fn positions_from(&self, at: usize) -> usize {
        self.docs.get(at).map_or(self.positions.len(), |(_, from)| *from as usize)
    }

    /// Returns the index of the first term that is not less than `wanted`.
    fn lower_bound(&self, wanted: &str) -> usize {
        let (mut low, mut high) = (0, self.terms.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.term(middle).is_some_and(|term| term < wanted) { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn cursor_at(&self, term: usize) -> TermCursor<'_> {
        let docs = self.docs_of(term);
        TermCursor { of: self, at: docs.start, from: docs.start, to: docs.end }
    }

    pub fn length_id(&self, doc: u32) -> u8 {
        self.lengths.get(doc as usize).copied().unwrap_or_default()
    }

    pub fn cursor(&self, term: &str) -> Option<TermCursor<'_>> {
        let at = self.lower_bound(term);
        (self.term(at) == Some(term)).then(|| self.cursor_at(at))
    }

    /// Returns a cursor for each term with this prefix.
    pub fn beginning_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = TermCursor<'a>> {
        let fits = move |at: &usize| self.term(*at).is_some_and(|term| term.starts_with(prefix));
        (self.lower_bound(prefix)..self.terms.len()).take_while(fits).map(|at| self.cursor_at(at))
    }
}

impl<'a> TermCursor<'a> {
    pub fn doc(&self) -> u32 {
        if self.at < self.to { self.of.docs[self.at].0 } else { TERMINATED }
    }

    pub fn advance(&mut self) -> u32 {
        self.at = (self.at + 1).min(self.to);
        self.doc()
    }

    /// Moves to the first document that is at least `target`, and returns it.
    pub fn seek(&mut self, target: u32) -> u32 {
        self.at += self.of.docs[self.at..self.to].partition_point(|(doc, _)| *doc < target);
        self.doc()
    }

    /// Returns the positions of the term in the current document, ascending.
    pub fn positions(&self) -> &'a [u32] {
        if self.at == self.to {
            return &[];
        }
        &self.of.positions[self.of.positions_from(self.at)..self.of.positions_from(self.at + 1)]
    }

    /// Returns the number of documents with the term.
    pub fn df(&self) -> u32 {
        (self.to - self.from) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn terms(texts: &[&str]) -> Terms {
        let mut column = ColumnBuilder {
            analyzer: Language::English.analyzer(),
            known: HashMap::new(),
            words: Vec::new(),
            lengths: Vec::new(),
        };
        texts.iter().zip(0..).for_each(|(text, doc)| column.add(doc, text));
        column.finish()
    }

    #[test]
    fn a_term_has_its_documents_and_positions_and_beginnings() {
        let terms = terms(&["a river, two rivers", "", "the bank of a river"]);
        let mut cursor = terms.cursor("river").expect("it is there");
        assert_eq!((cursor.doc(), cursor.positions(), cursor.df()), (0, &[1, 3][..], 2));
        assert_eq!((cursor.seek(1), cursor.positions()), (2, &[4][..]));
        assert_eq!((cursor.advance(), cursor.seek(9), cursor.positions()), (TERMINATED, TERMINATED, &[][..]));
        assert!(terms.cursor("rive").is_none() && terms.cursor("").is_none() && terms.cursor("z").is_none());
        assert_eq!(terms.beginning_with("r").map(|cursor| cursor.df()).collect::<Vec<_>>(), [2]);
        assert_eq!(terms.beginning_with("").count(), 6, "a, bank, of, river, the, two");
        assert_eq!([0, 1, 2].map(|doc| terms.length_id(doc)), [4, 0, 5]);
    }

    #[test]
    fn neighbours_joined_are_what_is_made_of_all() {
        let texts = ["one river", "", "two banks of one river", "stones", "one one one", "river"];
        for cut in 0..=texts.len() {
            for again in cut..=texts.len() {
                let parts = [terms(&texts[..cut]), terms(&texts[cut..again]), terms(&texts[again..])];
                let joined = Terms::join(&parts.each_ref());
                assert_eq!(joined, terms(&texts), "cut at {cut} and {again}");
            }
        }
    }
}

//! Postings: the documents of a term, read from a tantivy segment or from a piece in memory.

use std::sync::Arc;

use tantivy::DocSet;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::InvertedIndexReader;
use tantivy::postings::{Postings as _, SegmentPostings};
use tantivy::schema::{IndexRecordOption, Term};
use types::Result;

use super::fresh;
use super::internal;

/// One column of a piece.
pub(super) enum Column {
    Stored { terms: Arc<InvertedIndexReader>, norms: FieldNormReader },
    Fresh(fresh::Terms),
}

/// A cursor over the documents of one term. It stands at [`tantivy::TERMINATED`] after the last document.
pub(super) enum Postings<'a> {
    Stored(Box<SegmentPostings>),
    Fresh(fresh::Cursor<'a>),
}

/// The data that a caller needs for each document of a term.
#[derive(Clone, Copy)]
pub(super) enum Need {
    Documents,
    Frequencies,
    Positions,
}

impl Need {
    fn option(self) -> IndexRecordOption {
        match self {
            Need::Documents => IndexRecordOption::Basic,
            Need::Frequencies => IndexRecordOption::WithFreqs,
            Need::Positions => IndexRecordOption::WithFreqsAndPositions,
        }
    }
}

impl Column {
    /// Returns the byte that stands for the number of words in a document's text.
    pub fn length_id(&self, doc: u32) -> u8 {
        match self {
            Column::Stored { norms, .. } => norms.fieldnorm_id(doc),
            Column::Fresh(terms) => terms.length_id(doc),
        }
    }

    /// Returns the number of documents that contain a term.
    pub fn df(&self, term: &Term) -> Result<u32> {
        Ok(match self {
            Column::Stored { terms, .. } => {
                terms.get_term_info(term).map_err(failed)?.map_or(0, |i| i.doc_freq)
            }
            Column::Fresh(terms) => terms.cursor(text_of(term)).map_or(0, |cursor| cursor.df()),
        })
    }

    /// Returns the postings of a term, or `None` if no document contains it.
    pub fn postings(&self, term: &Term, need: Need) -> Result<Option<Postings<'_>>> {
        Ok(match self {
            Column::Stored { terms, .. } => {
                let postings = terms.read_postings(term, need.option()).map_err(failed)?;
                postings.map(|postings| Postings::Stored(Box::new(postings)))
            }
            Column::Fresh(terms) => terms.cursor(text_of(term)).map(Postings::Fresh),
        })
    }

    /// Calls `take` with the postings of each term that begins with `prefix`. Stops if `take` fails.
    pub fn beginning_with(
        &self,
        prefix: &str,
        mut take: impl FnMut(Postings<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Column::Stored { terms, .. } => {
                let mut found = terms.terms().range().ge(prefix).into_stream().map_err(failed)?;
                while found.advance() && found.key().starts_with(prefix.as_bytes()) {
                    let postings = terms.read_postings_from_terminfo(found.value(), Need::Documents.option());
                    take(Postings::Stored(Box::new(postings.map_err(failed)?)))?;
                }
                Ok(())
            }
            Column::Fresh(terms) => {
                terms.beginning_with(prefix).try_for_each(|cursor| take(Postings::Fresh(cursor)))
            }
        }
    }
}

impl Postings<'_> {
    pub fn doc(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.doc(),
            Postings::Fresh(cursor) => cursor.doc(),
        }
    }

    pub fn advance(&mut self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.advance(),
            Postings::Fresh(cursor) => cursor.advance(),
        }
    }

    /// Moves to the first document that is at least `target`, and returns it.
    pub fn seek(&mut self, target: u32) -> u32 {
        match self.doc() {
            doc if doc >= target => doc,
            doc if doc + 1 == target => self.advance(),
            _ => match self {
                Postings::Stored(postings) => postings.seek(target),
                Postings::Fresh(cursor) => cursor.seek(target),
            },
        }
    }

    /// Returns the number of occurrences of the term in the current document.
    pub fn frequency(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.term_freq(),
            Postings::Fresh(cursor) => cursor.positions().len() as u32,
        }
    }

    /// Replaces the content of `into` with the positions of the term in the current document, ascending.
    pub fn positions(&mut self, into: &mut Vec<u32>) {
        match self {
            Postings::Stored(postings) => postings.positions(into),
            Postings::Fresh(cursor) => {
                into.clear();
                into.extend_from_slice(cursor.positions());
            }
        }
    }

    /// Returns the number of documents with the term.
    pub fn df(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.doc_freq(),
            Postings::Fresh(cursor) => cursor.df(),
        }
    }
}

/// Returns the text of a term. All terms in this module are text.
pub(super) fn text_of(term: &Term) -> &str {
    std::str::from_utf8(term.serialized_value_bytes()).unwrap_or_default()
}

fn failed(error: impl std::fmt::Display) -> types::Error {
    internal("reading a term", error)
}

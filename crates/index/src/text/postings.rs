//! Postings: the documents of a term, read from a tantivy segment or from a piece in memory.

use std::sync::Arc;

use tantivy::DocSet;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::InvertedIndexReader;
use tantivy::postings::{Postings as _, SegmentPostings};
use tantivy::schema::{IndexRecordOption, Term};
use types::Result;

use super::in_memory;
use super::internal;

/// One column of a piece.
pub(super) enum ColumnPostings {
    Stored { terms: Arc<InvertedIndexReader>, norms: FieldNormReader },
    InMemory(in_memory::Terms),
}

/// A cursor over the documents of one term. It stands at [`tantivy::TERMINATED`] after the last document.
pub(super) enum Postings<'a> {
    Stored(Box<SegmentPostings>),
    InMemory(in_memory::TermCursor<'a>),
}

/// The data that a caller needs for each document of a term.
#[derive(Clone, Copy)]
pub(super) enum PostingsDetail {
    Documents,
    Frequencies,
    Positions,
}

impl PostingsDetail {
    fn option(self) -> IndexRecordOption {
        match self {
            PostingsDetail::Documents => IndexRecordOption::Basic,
            PostingsDetail::Frequencies => IndexRecordOption::WithFreqs,
            PostingsDetail::Positions => IndexRecordOption::WithFreqsAndPositions,
        }
    }
}

impl ColumnPostings {
    /// Returns the byte that stands for the number of words in a document's text.
    pub fn length_id(&self, doc: u32) -> u8 {
        match self {
            ColumnPostings::Stored { norms, .. } => norms.fieldnorm_id(doc),
            ColumnPostings::InMemory(terms) => terms.length_id(doc),
        }
    }

    /// Returns the number of documents that contain a term.
    pub fn df(&self, term: &Term) -> Result<u32> {
        Ok(match self {
            ColumnPostings::Stored { terms, .. } => {
                terms.get_term_info(term).map_err(failed)?.map_or(0, |i| i.doc_freq)
            }
            ColumnPostings::InMemory(terms) => terms.cursor(text_of(term)).map_or(0, |cursor| cursor.df()),
        })
    }

    /// Returns the postings of a term, or `None` if no document contains it.
    pub fn postings(&self, term: &Term, detail: PostingsDetail) -> Result<Option<Postings<'_>>> {
        Ok(match self {
            ColumnPostings::Stored { terms, .. } => {
                let postings = terms.read_postings(term, detail.option()).map_err(failed)?;
                postings.map(|postings| Postings::Stored(Box::new(postings)))
            }
            ColumnPostings::InMemory(terms) => terms.cursor(text_of(term)).map(Postings::InMemory),
        })
    }

    /// Calls `take` with the postings of each term that begins with `prefix`. Stops if `take` fails.
    pub fn beginning_with(
        &self,
        prefix: &str,
        mut take: impl FnMut(Postings<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            ColumnPostings::Stored { terms, .. } => {
                let mut found = terms.terms().range().ge(prefix).into_stream().map_err(failed)?;
                while found.advance() && found.key().starts_with(prefix.as_bytes()) {
                    let postings =
                        terms.read_postings_from_terminfo(found.value(), PostingsDetail::Documents.option());
                    take(Postings::Stored(Box::new(postings.map_err(failed)?)))?;
                }
                Ok(())
            }
            ColumnPostings::InMemory(terms) => {
                terms.beginning_with(prefix).try_for_each(|cursor| take(Postings::InMemory(cursor)))
            }
        }
    }
}

impl Postings<'_> {
    pub fn doc(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.doc(),
            Postings::InMemory(cursor) => cursor.doc(),
        }
    }

    pub fn advance(&mut self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.advance(),
            Postings::InMemory(cursor) => cursor.advance(),
        }
    }

    /// Moves to the first document that is at least `target`, and returns it.
    pub fn seek(&mut self, target: u32) -> u32 {
        match self.doc() {
            doc if doc >= target => doc,
            doc if doc + 1 == target => self.advance(),
            _ => match self {
                Postings::Stored(postings) => postings.seek(target),
                Postings::InMemory(cursor) => cursor.seek(target),
            },
        }
    }

    /// Returns the number of occurrences of the term in the current document.
    pub fn frequency(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.term_freq(),
            Postings::InMemory(cursor) => cursor.positions().len() as u32,
        }
    }

    /// Replaces the content of `into` with the positions of the term in the current document, ascending.
    pub fn positions(&mut self, into: &mut Vec<u32>) {
        match self {
            Postings::Stored(postings) => postings.positions(into),
            Postings::InMemory(cursor) => {
                into.clear();
                into.extend_from_slice(cursor.positions());
            }
        }
    }

    /// Returns the number of documents with the term.
    pub fn df(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.doc_freq(),
            Postings::InMemory(cursor) => cursor.df(),
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

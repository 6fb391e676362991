//! The documents of a term, from wherever a piece holds them: a segment of tantivy's, or memory.

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

/// Where one term stands. At [`tantivy::TERMINATED`] behind the last document.
pub(super) enum Postings<'a> {
    Stored(Box<SegmentPostings>),
    Fresh(fresh::Cursor<'a>),
}

/// What is asked of a term beside its documents.
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
    /// The byte that stands for the number of words of a document's text.
    pub fn length_id(&self, doc: u32) -> u8 {
        match self {
            Column::Stored { norms, .. } => norms.fieldnorm_id(doc),
            Column::Fresh(terms) => terms.length_id(doc),
        }
    }

    /// How many documents contain a term.
    pub fn df(&self, term: &Term) -> Result<u32> {
        Ok(match self {
            Column::Stored { terms, .. } => {
                terms.get_term_info(term).map_err(failed)?.map_or(0, |i| i.doc_freq)
            }
            Column::Fresh(terms) => terms.cursor(text_of(term)).map_or(0, |cursor| cursor.df()),
        })
    }

    /// `None` if no document contains the term.
    pub fn postings(&self, term: &Term, need: Need) -> Result<Option<Postings<'_>>> {
        Ok(match self {
            Column::Stored { terms, .. } => {
                let postings = terms.read_postings(term, need.option()).map_err(failed)?;
                postings.map(|postings| Postings::Stored(Box::new(postings)))
            }
            Column::Fresh(terms) => terms.cursor(text_of(term)).map(Postings::Fresh),
        })
    }

    /// The documents of each term that begins so, until `take` fails.
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

    /// The first document from `target` on.
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

    /// How often the term stands in the document at hand.
    pub fn frequency(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.term_freq(),
            Postings::Fresh(cursor) => cursor.positions().len() as u32,
        }
    }

    /// Where, ascending.
    pub fn positions(&mut self, into: &mut Vec<u32>) {
        match self {
            Postings::Stored(postings) => postings.positions(into),
            Postings::Fresh(cursor) => {
                into.clear();
                into.extend_from_slice(cursor.positions());
            }
        }
    }

    /// Documents in all.
    pub fn df(&self) -> u32 {
        match self {
            Postings::Stored(postings) => postings.doc_freq(),
            Postings::Fresh(cursor) => cursor.df(),
        }
    }
}

/// Terms are made of text alone here.
pub(super) fn text_of(term: &Term) -> &str {
    std::str::from_utf8(term.serialized_value_bytes()).unwrap_or_default()
}

fn failed(error: impl std::fmt::Display) -> types::Error {
    internal("reading a term", error)
}

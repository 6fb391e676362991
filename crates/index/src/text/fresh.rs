//! A piece made in memory, of rows that no segment holds yet: words in order, each with its documents and places.
//!
//! It answers as a segment of tantivy's does, to the last bit ([`Words::length_id`] is its measure of a text's length).
//! It is not one because a reader makes it while somebody waits: tantivy's writer sets up tables of megabytes before it
//! takes the first word, which costs more than the words of a hundred rows.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use tantivy::TERMINATED;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::tokenizer::{TextAnalyzer, TokenStream};
use types::{Error, Result};

use super::fields::Fields;

/// One column's words.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Words {
    lists: BTreeMap<Box<str>, List>,
    /// Of each document's text, as tantivy stores it: one byte that stands for the number of words, rounded down.
    lengths: Vec<u8>,
}

/// Where a word stands.
#[derive(Debug, Default, PartialEq)]
pub(super) struct List {
    /// Ascending; with each, where its places begin.
    docs: Vec<(u32, u32)>,
    places: Vec<u32>,
}

/// The documents of a word, one after the other.
pub(super) struct Cursor<'a> {
    list: &'a List,
    at: usize,
}

/// Takes rows in row-id order.
pub(super) struct Builder {
    analyzers: Vec<TextAnalyzer>,
    rows: Vec<u64>,
    columns: Vec<Words>,
    bytes: usize,
}

impl Builder {
    pub fn new(fields: &Fields) -> Builder {
        Builder {
            analyzers: fields.list.iter().map(|field| field.language.analyzer()).collect(),
            rows: Vec::new(),
            columns: fields.list.iter().map(|_| Words::default()).collect(),
            bytes: 0,
        }
    }

    /// Rows of [`Fields::columns`], later than all before.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let no_such = || Error::internal("a text index was given columns that it did not ask for");
        let rows = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(no_such)?;
        for (nth, (words, analyzer)) in self.columns.iter_mut().zip(&mut self.analyzers).enumerate() {
            let texts = batch.column(nth + 1).as_string_opt::<i32>().ok_or_else(no_such)?;
            for at in 0..batch.num_rows() {
                let text = if texts.is_valid(at) { texts.value(at) } else { "" };
                words.add((self.rows.len() + at) as u32, text, analyzer);
                self.bytes += text.len();
            }
        }
        self.rows.extend(rows.values().iter().map(|row| *row as u64));
        Ok(())
    }

    pub fn docs(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of text taken in.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The row ids, and each column's words.
    pub fn finish(self) -> (Vec<u64>, Vec<Words>) {
        (self.rows, self.columns)
    }
}

impl Words {
    /// The next document's text.
    fn add(&mut self, doc: u32, text: &str, analyzer: &mut TextAnalyzer) {
        let mut count = 0;
        let mut stream = analyzer.token_stream(text);
        while stream.advance() {
            let token = stream.token();
            let place = token.position as u32;
            match self.lists.get_mut(token.text.as_str()) {
                Some(list) => list.add(doc, place),
                None => self.lists.entry(token.text.as_str().into()).or_default().add(doc, place),
            }
            count += 1;
        }
        self.lengths.push(FieldNormReader::fieldnorm_to_id(count));
    }

    /// Neighbours as one. `docs`: how many documents each of them has.
    pub fn join<'a>(parts: impl Iterator<Item = (&'a Words, u32)>) -> Words {
        let mut joined = Words::default();
        let mut first = 0;
        for (part, docs) in parts {
            for (word, list) in &part.lists {
                match joined.lists.get_mut(word) {
                    Some(known) => known.append(list, first),
                    None => joined.lists.entry(word.clone()).or_default().append(list, first),
                }
            }
            joined.lengths.extend_from_slice(&part.lengths);
            first += docs;
        }
        joined
    }

    pub fn length_id(&self, doc: u32) -> u8 {
        self.lengths.get(doc as usize).copied().unwrap_or_default()
    }

    pub fn list(&self, word: &str) -> Option<&List> {
        self.lists.get(word)
    }

    /// The lists of all words that begin so.
    pub fn beginning_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a List> {
        let from = std::ops::Bound::Included(prefix);
        let words = self.lists.range::<str, _>((from, std::ops::Bound::Unbounded));
        words.take_while(move |(word, _)| word.starts_with(prefix)).map(|(_, list)| list)
    }
}

impl List {
    fn add(&mut self, doc: u32, place: u32) {
        if self.docs.last().is_none_or(|(last, _)| *last != doc) {
            self.docs.push((doc, self.places.len() as u32));
        }
        self.places.push(place);
    }

    fn append(&mut self, other: &List, first: u32) {
        let before = self.places.len() as u32;
        self.docs.extend(other.docs.iter().map(|(doc, at)| (first + doc, before + at)));
        self.places.extend_from_slice(&other.places);
    }

    pub fn docs(&self) -> u32 {
        self.docs.len() as u32
    }

    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { list: self, at: 0 }
    }
}

impl Cursor<'_> {
    pub fn doc(&self) -> u32 {
        self.list.docs.get(self.at).map_or(TERMINATED, |(doc, _)| *doc)
    }

    pub fn advance(&mut self) -> u32 {
        self.at += 1;
        self.doc()
    }

    /// The first document from `target` on.
    pub fn seek(&mut self, target: u32) -> u32 {
        let left = self.list.docs.get(self.at..).unwrap_or_default();
        self.at += left.partition_point(|(doc, _)| *doc < target);
        self.doc()
    }

    /// Ascending.
    pub fn places(&self) -> &[u32] {
        let Some((_, from)) = self.list.docs.get(self.at) else { return &[] };
        let to = self.list.docs.get(self.at + 1).map_or(self.list.places.len(), |(_, next)| *next as usize);
        &self.list.places[*from as usize..to]
    }

    pub fn docs(&self) -> u32 {
        self.list.docs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn words(texts: &[&str]) -> Words {
        let (mut words, mut analyzer) = (Words::default(), Language::English.analyzer());
        texts.iter().zip(0..).for_each(|(text, doc)| words.add(doc, text, &mut analyzer));
        words
    }

    #[test]
    fn a_word_has_its_documents_and_places_and_beginnings() {
        let words = words(&["a river, two rivers", "", "the bank of a river"]);
        let mut cursor = words.list("river").expect("it is there").cursor();
        assert_eq!((cursor.doc(), cursor.places(), cursor.docs()), (0, &[1, 3][..], 2));
        assert_eq!((cursor.seek(1), cursor.places()), (2, &[4][..]));
        assert_eq!((cursor.advance(), cursor.seek(9), cursor.places()), (TERMINATED, TERMINATED, &[][..]));
        assert!(words.list("rive").is_none());
        assert_eq!(words.beginning_with("r").map(List::docs).collect::<Vec<_>>(), [2]);
        assert_eq!([0, 1, 2].map(|doc| words.length_id(doc)), [4, 0, 5]);
    }

    #[test]
    fn neighbours_joined_are_what_is_made_of_all() {
        let texts = ["one river", "", "two banks of one river", "stones", "one one one", "river"];
        for cut in 0..=texts.len() {
            let (before, after) = texts.split_at(cut);
            let parts = [words(before), words(after)];
            let joined = Words::join(parts.iter().zip([before.len() as u32, after.len() as u32]));
            assert_eq!(joined, words(&texts), "cut at {cut}");
        }
    }
}

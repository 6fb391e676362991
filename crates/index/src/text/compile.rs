//! Compiles a query into groups of terms.

use tantivy::schema::{Field as TantivyField, Term};
use tantivy::tokenizer::TextAnalyzer;
use types::{Error, Kind, Result};

use super::analyzer::{self, Language, Word};
use super::fields::Fields;
use super::parse::{self, ClauseKind, Sign};
use super::query::{Mode, Query};
use super::stop;

/// The largest number of different groups in a query. Each group costs a lookup in every piece.
const GROUPS_MAX: usize = 256;
/// The longest query, in bytes.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// One word, phrase or prefix, with a leaf for each column in which it is searched. A row matches the group if it
/// matches one leaf.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QueryGroup {
    pub sign: Sign,
    /// The number of times that it occurs in the query.
    pub times: f32,
    pub leaves: Vec<Leaf>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leaf {
    pub column: usize,
    pub pattern: LeafPattern,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeafPattern {
    Term(Term),
    Phrase(Vec<Term>),
    /// All terms with this prefix, and the stem of the whole word, so that `databases*` finds all that `databases`
    /// does.
    Prefix {
        prefix: String,
        stem: Option<Term>,
    },
}

/// Compiles a query into groups, in the order of the query. Stop words without a sign are left out if the query has any
/// other word.
pub(super) fn compile_query(query: &Query<'_>, fields: &Fields) -> Result<Vec<QueryGroup>> {
    if query.text.len() > TEXT_BYTES_MAX {
        return Err(Error::new(Kind::TooLarge, format!("a query has at most {TEXT_BYTES_MAX} bytes")));
    }
    let mut analyzers: Vec<(Language, TextAnalyzer)> = Vec::new();
    let mut groups: Vec<QueryGroup> = Vec::new();
    // For each group: true if it is a stop word that may be left out.
    let mut is_stop_word_group: Vec<bool> = Vec::new();
    for clause in parse::parse(query.text, &fields.list) {
        let sign =
            if query.mode == Mode::All && clause.sign == Sign::Should { Sign::Must } else { clause.sign };
        let asked = |at: &usize| {
            let column = fields.list[*at].column;
            clause.column.is_none_or(|only| only == *at)
                && (query.columns.is_empty() || query.columns.contains(&column))
        };
        let mut words: Vec<(usize, Vec<Word>)> = Vec::new();
        for column in (0..fields.list.len()).filter(asked) {
            let language = fields.list[column].language;
            let at = analyzers.iter().position(|(known, _)| *known == language).unwrap_or_else(|| {
                analyzers.push((language, language.analyzer()));
                analyzers.len() - 1
            });
            words.push((column, analyzer::analyze(&mut analyzers[at].1, clause.text)));
        }
        // The boundaries of words do not depend on the language.
        let Some(places) = words.first().map(|(_, words)| words.clone()) else { continue };
        for range in ranges(&places, clause.kind, sign) {
            let is_prefix = clause.kind == ClauseKind::Prefix && range.end == places.len();
            let leaf = |(column, words): &(usize, Vec<Word>)| {
                let field = TantivyField::from_field_id(*column as u32 + 1);
                let term = |word: &Word| Term::from_field_text(field, &word.term);
                let pattern = match &words[range.clone()] {
                    [word] if is_prefix => {
                        let prefix = analyzer::fold(&clause.text[word.from..word.to]);
                        LeafPattern::Prefix { prefix, stem: Some(term(word)) }
                    }
                    [word] => LeafPattern::Term(term(word)),
                    several => LeafPattern::Phrase(several.iter().map(term).collect()),
                };
                Leaf { column: *column, pattern }
            };
            let group = QueryGroup { sign, times: 1.0, leaves: words.iter().map(leaf).collect() };
            let word = &places[range.start];
            let is_stop =
                clause.kind == ClauseKind::Words && clause.sign == Sign::Should && range.len() == 1 && {
                    let word = analyzer::fold(&clause.text[word.from..word.to]);
                    let language = |leaf: &Leaf| fields.list[leaf.column].language;
                    group.leaves.iter().all(|leaf| stop::is_stop_word(language(leaf), &word))
                };
            match groups.iter().position(|known| known.sign == group.sign && known.leaves == group.leaves) {
                Some(at) => {
                    groups[at].times += 1.0;
                    is_stop_word_group[at] &= is_stop;
                }
                None => {
                    groups.push(group);
                    is_stop_word_group.push(is_stop);
                }
            }
        }
        if groups.len() > GROUPS_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!("a query has at most {GROUPS_MAX} different words"),
            ));
        }
    }
    let says_something = |(group, is_stop): (&QueryGroup, &bool)| group.sign != Sign::MustNot && !is_stop;
    if groups.iter().zip(&is_stop_word_group).any(says_something) {
        let mut is_stop = is_stop_word_group.iter();
        groups.retain(|_| is_stop.next() == Some(&false));
    }
    Ok(groups)
}

/// Divides the words of a clause into ranges that are searched together.
fn ranges(words: &[Word], kind: ClauseKind, sign: Sign) -> Vec<std::ops::Range<usize>> {
    if words.is_empty() {
        return Vec::new();
    }
    // Excluding `time-sharing` must not exclude `time`, so the words are one phrase.
    if kind == ClauseKind::Phrase || (kind == ClauseKind::Words && sign == Sign::MustNot) {
        return std::iter::once(0..words.len()).collect();
    }
    let mut ranges = Vec::new();
    let mut first = 0;
    for at in 1..=words.len() {
        // Adjacent terms without a gap are characters of a script without spaces. Only together do they make a word.
        let touches = at < words.len() && words[at - 1].to == words[at].from;
        let is_prefix = kind == ClauseKind::Prefix && at + 1 == words.len();
        if !touches || is_prefix {
            ranges.push(first..at);
            first = at;
        }
    }
    ranges
}

//! Snippets: the part of a text that shows why it matches a query.

use std::ops::Range;

use tantivy::schema::Term;
use types::ColumnId;

use super::analyzer::{self, Language, Word};
use super::compile::{LeafPattern, QueryGroup};
use super::fields::Fields;
use super::parse::Sign;

/// Bytes of a text that are searched for a snippet. Only the beginning of a longer text is searched.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Bytes of each text that are searched even if an answer has many texts.
const TEXT_BYTES_MIN: usize = 4 << 10;
/// Bytes of text that are searched for the snippets of one answer.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Finds and marks the words of one query in texts.
pub struct Marker {
    columns: Vec<MarkedColumn>,
    text_bytes_max: usize,
}

struct MarkedColumn {
    id: ColumnId,
    language: Language,
    terms: Vec<String>,
    prefixes: Vec<String>,
}

/// A part of a text, with the words of the query marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet<'a> {
    pub text: &'a str,
    /// Byte ranges within `text`, ascending.
    pub marks: Vec<Range<usize>>,
    /// True if the text continues before the snippet.
    pub before: bool,
    /// True if the text continues after the snippet.
    pub behind: bool,
}

impl Marker {
    pub(super) fn new(fields: &Fields, groups: &[QueryGroup]) -> Marker {
        let mut columns: Vec<MarkedColumn> = fields
            .iter()
            .map(|field| MarkedColumn {
                id: field.column,
                language: field.language,
                terms: Vec::new(),
                prefixes: Vec::new(),
            })
            .collect();
        let text = |term: &Term| term.value().as_str().unwrap_or_default().to_owned();
        let wanted = groups.iter().filter(|group| group.sign != Sign::MustNot);
        for leaf in wanted.flat_map(|group| &group.leaves) {
            let column = &mut columns[leaf.column];
            match &leaf.pattern {
                LeafPattern::Term(term) => column.terms.push(text(term)),
                LeafPattern::Phrase(terms) => column.terms.extend(terms.iter().map(text)),
                LeafPattern::Prefix { prefix, stem } => {
                    column.prefixes.push(prefix.clone());
                    column.terms.extend(stem.as_ref().map(text));
                }
            }
        }
        columns.iter_mut().for_each(|column| {
            column.terms.sort_unstable();
            column.terms.dedup();
        });
        Marker { columns, text_bytes_max: TEXT_BYTES_MAX }
    }

    /// Divides the work for an answer among its texts: with many texts, less of each is searched, so that the total
    /// time is bounded.
    pub fn share(&mut self, texts: usize) {
        self.text_bytes_max = (ANSWER_BYTES_MAX / texts.max(1)).clamp(TEXT_BYTES_MIN, TEXT_BYTES_MAX);
    }

    /// Returns the part of a column's text, of at most `max_chars` characters, with the most different words of the
    /// query. Returns the beginning if it contains none of them.
    pub fn snippet<'a>(&self, column: ColumnId, text: &'a str, max_chars: usize) -> Snippet<'a> {
        let whole = text;
        let text = &text[..text.floor_char_boundary(self.text_bytes_max)];
        let found = self.marked_words(column, text);
        let window = window(text, &found, max_chars.max(1));
        let marks = found.iter().map(|(word, _)| word.clone());
        let marks = marks.filter(|mark| mark.start >= window.start && mark.end <= window.end);
        let marks = marks.map(|mark| mark.start - window.start..mark.end - window.start).collect();
        Snippet {
            text: &text[window.clone()],
            marks,
            before: !whole[..window.start].trim().is_empty(),
            behind: !whole[window.end..].trim().is_empty(),
        }
    }

    /// Returns the byte ranges of the query's words in a text, each with the number of the word.
    fn marked_words(&self, column: ColumnId, text: &str) -> Vec<(Range<usize>, usize)> {
        let Some(column) = self.columns.iter().find(|c| c.id == column) else { return Vec::new() };
        if column.terms.is_empty() && column.prefixes.is_empty() {
            return Vec::new();
        }
        let which = |word: &Word| match column.terms.binary_search(&word.term) {
            Ok(at) => Some(at),
            Err(_) => {
                let folded =
                    (!column.prefixes.is_empty()).then(|| analyzer::fold(&text[word.from..word.to]))?;
                let at = column.prefixes.iter().position(|prefix| folded.starts_with(prefix.as_str()))?;
                Some(column.terms.len() + at)
            }
        };
        let words = analyzer::analyze(&mut column.language.analyzer(), text);
        words.iter().filter_map(|word| Some((word.from..word.to, which(word)?))).collect()
    }
}

/// Chooses the byte range to show.
fn window(text: &str, found: &[(Range<usize>, usize)], max_chars: usize) -> Range<usize> {
    // The byte offsets of all characters, and of the end.
    let offsets: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let chars = offsets.len() - 1;
    if chars <= max_chars {
        return 0..text.len();
    }
    let char_at = |byte: usize| offsets.partition_point(|at| *at < byte);
    let places: Vec<(usize, usize, usize)> =
        found.iter().map(|(word, which)| (char_at(word.start), char_at(word.end), *which)).collect();
    let (mut best, mut best_worth) = ((0, 0), (0, 0));
    let mut last = 0;
    let mut counts: std::collections::BTreeMap<usize, usize> = Default::default();
    for (at, (start, _, which)) in places.iter().enumerate() {
        while last < places.len() && (places[last].1 <= start + max_chars || last < at + 1) {
            *counts.entry(places[last].2).or_default() += 1;
            last += 1;
        }
        let worth = (counts.len(), last - at);
        if worth > best_worth {
            (best, best_worth) = ((*start, places[last - 1].1), worth);
        }
        match counts.get_mut(which) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(which)),
        }
    }
    // A third of the remaining room goes before the words.
    let room = max_chars.saturating_sub(best.1.saturating_sub(best.0));
    let from = best.0.saturating_sub(room / 3).min(chars - max_chars);
    let (from, to) = (from, from + max_chars);
    let is_space = |at: usize| text[offsets[at]..].starts_with(char::is_whitespace);
    // The range shrinks to word boundaries, unless that would cut a word of the query or leave nothing.
    let start = if from == 0 {
        0
    } else {
        let upto = if best_worth.0 > 0 { best.0 } else { to };
        (from..upto.min(to)).find(|at| is_space(*at)).map_or(from, |at| at + 1)
    };
    let end = if to == chars {
        chars
    } else {
        let downto = best.1.max(start + 1);
        (downto.min(to)..=to).rev().find(|at| is_space(*at)).unwrap_or(to)
    };
    offsets[start]..offsets[end]
}

impl Snippet<'_> {
    /// Formats the snippet as HTML: the query's words in `<mark>`, everything else escaped, `…` where text is left out.
    pub fn html(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 16 * self.marks.len() + 8);
        out.push_str(if self.before { "… " } else { "" });
        let mut at = 0;
        for mark in &self.marks {
            escape(&self.text[at..mark.start], &mut out);
            out.push_str("<mark>");
            escape(&self.text[mark.clone()], &mut out);
            out.push_str("</mark>");
            at = mark.end;
        }
        escape(&self.text[at..], &mut out);
        out.push_str(if self.behind { " …" } else { "" });
        out
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

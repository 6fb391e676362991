//! The parser of the query language. It is lenient, so that any text that a person types has a meaning.

use super::fields::Field;

/// One clause of a query, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clause<'a> {
    pub sign: Sign,
    /// Index of the column that the clause names, if it names one.
    pub column: Option<usize>,
    pub kind: ClauseKind,
    pub text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Should,
    Must,
    MustNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClauseKind {
    Words,
    Phrase,
    Prefix,
}

const QUOTES: [char; 4] = ['"', '“', '”', '„'];

pub(super) fn parse<'a>(text: &'a str, fields: &[Field]) -> Vec<Clause<'a>> {
    let mut clauses = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (sign, after) = sign(rest);
        let (column, after) = column(after, fields);
        let (kind, text, after) = body(after);
        if !text.is_empty() {
            clauses.push(Clause { sign, column, kind, text });
        }
        rest = after.trim_start();
    }
    clauses
}

/// Splits off a sign. It counts as a sign only directly before a word.
fn sign(text: &str) -> (Sign, &str) {
    let sign = match text.as_bytes()[0] {
        b'+' => Sign::Must,
        b'-' => Sign::MustNot,
        _ => return (Sign::Should, text),
    };
    let after = &text[1..];
    if after.starts_with(|c: char| !c.is_whitespace()) { (sign, after) } else { (Sign::Should, text) }
}

/// Splits off a column name. A colon is special only after the name of an indexed column: `https://…` and `12:30` are
/// words.
fn column<'a>(text: &'a str, fields: &[Field]) -> (Option<usize>, &'a str) {
    let named = text.split_once(':').filter(|(_, after)| after.starts_with(|c: char| !c.is_whitespace()));
    let Some((name, after)) = named else { return (None, text) };
    let exact = fields.iter().position(|field| field.name == name);
    let at =
        exact.or_else(|| fields.iter().position(|field| field.name.to_lowercase() == name.to_lowercase()));
    match at {
        Some(at) => (Some(at), after),
        None => (None, text),
    }
}

/// Splits off a phrase, prefix or word. It consumes at least one character of a text that is not empty.
fn body(text: &str) -> (ClauseKind, &str, &str) {
    if let Some(quote) = text.chars().next().filter(|c| QUOTES.contains(c)) {
        let inside = &text[quote.len_utf8()..];
        // A phrase without a closing quote extends to the end.
        let end = inside.find(QUOTES).unwrap_or(inside.len());
        let after = inside[end..].trim_start_matches(QUOTES);
        return (ClauseKind::Phrase, &inside[..end], after);
    }
    let end = text.find(|c: char| c.is_whitespace() || QUOTES.contains(&c)).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    match word.strip_suffix('*') {
        Some(prefix) => (ClauseKind::Prefix, prefix.trim_end_matches('*'), after),
        None => (ClauseKind::Words, word, after),
    }
}

#[cfg(test)]
mod tests {
    use types::ColumnId;

    use super::*;
    use crate::text::Language;

    fn parsed(text: &str) -> Vec<(Sign, Option<usize>, ClauseKind, &str)> {
        let field = |name: &str| Field {
            column: ColumnId(16),
            name: name.into(),
            language: Language::None,
            weight: 1.0,
        };
        let fields = [field("title"), field("Body")];
        parse(text, &fields).iter().map(|c| (c.sign, c.column, c.kind, c.text)).collect()
    }

    #[test]
    fn each_mark_means_what_the_manual_says() {
        use ClauseKind::{Phrase, Prefix, Words};
        use Sign::{Must, MustNot, Should};
        assert_eq!(
            parsed(r#"cat +dog -"big bird" body:na* Title:x "open end"#),
            [
                (Should, None, Words, "cat"),
                (Must, None, Words, "dog"),
                (MustNot, None, Phrase, "big bird"),
                (Should, Some(1), Prefix, "na"),
                (Should, Some(0), Words, "x"),
                (Should, None, Phrase, "open end"),
            ]
        );
    }

    #[test]
    fn what_looks_like_syntax_and_is_none_is_words() {
        for text in ["https://x.org/a?b=c", "12:30", "c++", "a- b", "title:", "(x", "AND", "~2"] {
            let words: Vec<&str> = text.split(' ').collect();
            let found: Vec<&str> = parsed(text).iter().map(|c| c.3).collect();
            assert_eq!(found, words);
            assert!(parsed(text).iter().all(|c| c.0 == Sign::Should && c.2 == ClauseKind::Words), "{text}");
        }
        for text in ["", "  ", "*", "\"", "\"\"", "+", "-", "+\"", "“”", "-*", "title:\""] {
            assert!(parsed(text).iter().all(|c| matches!(c.3, "+" | "-")), "{text:?}: {:?}", parsed(text));
        }
    }
}

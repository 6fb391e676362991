//! Scans statements without parsing them: finds the first word, and each `?` that stands for a value.

use std::borrow::Cow;

use polynya::{Error, Result};

/// A token of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Quoted texts, quoted names and comments. A `?` inside them is literal.
    Quoted,
    /// A numbered parameter: `$1`.
    Number,
    Mark,
    Other,
}

/// Splits a statement into tokens with their ranges. An unclosed token reaches to the end; the parser reports it.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
    /// True if the character before belongs to a word.
    in_word: bool,
}

impl Iterator for Tokens<'_> {
    type Item = (Token, std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let rest = &self.text[start..];
        let first = rest.chars().next()?;
        let was_in_word = std::mem::replace(&mut self.in_word, first.is_alphanumeric() || first == '_');
        let (token, len) = match first {
            // `E'…'` has backslash escapes; no other prefix changes the end of a quotation.
            '\'' => (Token::Quoted, quoted(rest, b'\'', was_in_word && self.is_escaped(start))),
            '"' => (Token::Quoted, quoted(rest, b'"', false)),
            '-' if rest.starts_with("--") => (Token::Quoted, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (Token::Quoted, comment(rest)),
            '$' if !was_in_word => dollar(rest),
            '?' => (Token::Mark, 1),
            other => (Token::Other, other.len_utf8()),
        };
        self.at += len;
        Some((token, start..self.at))
    }
}

impl Tokens<'_> {
    /// Returns true if the word before a quote is a single E.
    fn is_escaped(&self, quote: usize) -> bool {
        let before = &self.text[..quote];
        let word = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        before[word.len()..].eq_ignore_ascii_case("e")
    }
}

fn tokens(text: &str) -> Tokens<'_> {
    Tokens { text, at: 0, in_word: false }
}

/// Returns the length of a quoted text. A doubled quote does not end it.
fn quoted(text: &str, quote: u8, backslash: bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if backslash => at += 2,
            byte if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the length of a comment. Comments nest.
fn comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Parses `$1`, or a text between `$tag$` and the same tag again.
fn dollar(text: &str) -> (Token, usize) {
    let digits = text[1..].bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        return (Token::Number, 1 + digits);
    }
    let is_tag = |c: char| c.is_alphanumeric() || c == '_';
    let tag = text[1..].find(|c| !is_tag(c)).filter(|end| text[1 + end..].starts_with('$'));
    let Some(tag) = tag else { return (Token::Other, 1) };
    let mark = &text[..tag + 2];
    let end = text[mark.len()..].find(mark).map_or(text.len(), |end| 2 * mark.len() + end);
    (Token::Quoted, end)
}

/// Replaces each `?` by `$1`, `$2`, …, the only form that the engine knows. Fails if the statement has both forms.
pub fn numbered(text: &str) -> Result<Cow<'_, str>> {
    if !text.contains('?') {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut marks, mut numbers) = (String::with_capacity(text.len() + 16), 0, false);
    for (token, range) in tokens(text) {
        match token {
            Token::Mark => {
                marks += 1;
                out.push('$');
                out.push_str(&marks.to_string());
                // `?` may be followed directly by a digit or a letter, `$1` may not.
                if text[range.end..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                    out.push(' ');
                }
                continue;
            }
            Token::Number => numbers = true,
            Token::Quoted | Token::Other => {}
        }
        out.push_str(&text[range]);
    }
    match (marks, numbers) {
        (0, _) => Ok(Cow::Borrowed(text)),
        (_, true) => {
            Err(Error::invalid("a statement has both `?` and `$1` for its values")
                .hint("write one or the other"))
        }
        _ => Ok(Cow::Owned(out)),
    }
}

/// Returns the first word in lower case, after comments and brackets; empty if there is none.
pub fn first_word(text: &str) -> String {
    let mut word = String::new();
    for (token, range) in tokens(text) {
        let is_comment = || text[range.clone()].starts_with(['-', '/']);
        match text[range.clone()].chars().next() {
            Some(c) if token == Token::Other && c.is_alphanumeric() => word.extend(c.to_lowercase()),
            Some(c) if word.is_empty() && (c.is_whitespace() || c == '(') => {}
            _ if word.is_empty() && token == Token::Quoted && is_comment() => {}
            _ => break,
        }
    }
    word
}

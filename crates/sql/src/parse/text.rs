//! Turns statements back into text.

use std::convert::Infallible;
use std::fmt::Display;
use std::ops::ControlFlow;

use sqlparser::ast::{Value, VisitMut, VisitorMut};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, Tokenizer, Word};

use super::dialect::BoundedDialect;

/// Returns a part of a statement as text that parses to the same tree.
///
/// The parser's own text takes `''` in a literal's value for a quote that was doubled already, and `\'` for an escaped one: the
/// value `a''b` would come back as `a'b`, and a literal with `\'` in it would end there. It leaves pairs of quotes alone, so this
/// function doubles all quotes first.
pub fn text_of<T: Clone + Display + VisitMut>(part: &T) -> String {
    struct Double;
    impl VisitorMut for Double {
        type Break = Infallible;
        fn pre_visit_value(&mut self, value: &mut Value) -> ControlFlow<Infallible> {
            if let Value::SingleQuotedString(text) | Value::NationalStringLiteral(text) = value
                && text.contains('\'')
            {
                *text = text.replace('\'', "''");
            }
            ControlFlow::Continue(())
        }
    }
    let mut part = part.clone();
    let _ = part.visit(&mut Double);
    part.to_string()
}

/// Returns the text of the statement inside a PREPARE, as it is written; `None` for any other text.
pub fn prepared(text: &str) -> Option<&str> {
    let tokens = Tokenizer::new(&BoundedDialect::new(0), text).tokenize_with_location().ok()?;
    let mut depth = 0usize;
    // Skips PREPARE and the name, which may be `as`.
    let mut tokens = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).skip(2);
    let behind = tokens.find(|token| {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(Word { quote_style: None, keyword: Keyword::AS, .. }) => return depth == 0,
            _ => {}
        }
        false
    })?;
    Some(&text[offset(text, behind.span.end)..])
}

/// Returns the byte offset of a location that the tokenizer reports.
fn offset(text: &str, place: Location) -> usize {
    let (mut line, mut column) = (1, 1);
    for (at, sign) in text.char_indices() {
        if (line, column) == (place.line, place.column) {
            return at;
        }
        (line, column) = if sign == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    text.len()
}

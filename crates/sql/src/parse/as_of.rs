//! Turns `AS OF …` after a table into the form that the parser knows.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::as_of::LSN;

/// Turns `AS OF x` into `FOR SYSTEM_TIME AS OF x`, and `LSN n` in it into `lsn(n)`. Returns `None` if the text has no point in
/// time; the parser then need not look for one, and takes `at` and `before` for names.
///
/// `of` may be a name too (`SELECT 1 AS of`), so the next token must begin a point.
pub(super) fn rewritten(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let seen: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let word = |at: usize| seen.get(at).and_then(|at| plain(&tokens[*at].token));
    let is = |at: usize, wanted: &str| word(at).is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    let mut rewritten = Vec::with_capacity(tokens.len() + 8);
    let (mut copied, mut found, mut at) = (0, false, 0);
    while at < seen.len() {
        if !(is(at, "as") && is(at + 1, "of")) {
            at += 1;
            continue;
        }
        let before = at.checked_sub(1).and_then(word).unwrap_or_default();
        let is_complete =
            ["system_time", "timestamp", "version"].iter().any(|word| before.eq_ignore_ascii_case(word));
        if !is_complete && !is(at + 2, LSN) && !begins_point(&seen, tokens, at + 2) {
            at += 1;
            continue;
        }
        found = true;
        let span = tokens[seen[at]].span;
        let token = |token| TokenWithSpan { token, span };
        rewritten.extend_from_slice(&tokens[copied..seen[at]]);
        if !is_complete {
            rewritten.extend([keyword("FOR", Keyword::FOR), space()].map(token));
            rewritten.extend([keyword("SYSTEM_TIME", Keyword::SYSTEM_TIME), space()].map(token));
        }
        copied = seen[at];
        at += 2;
        let token_at = |at: usize| seen.get(at).map(|at| &tokens[*at].token);
        if is(at, LSN) && token_at(at + 1) != Some(&Token::LParen) {
            rewritten.extend_from_slice(&tokens[copied..=seen[at]]);
            let sign = token_at(at + 1).filter(|token| matches!(token, Token::Minus | Token::Plus));
            let value = at + 1 + usize::from(sign.is_some());
            rewritten.push(token(Token::LParen));
            match token_at(value).filter(|token| is_operand(token)) {
                Some(operand) => {
                    rewritten.extend(sign.into_iter().chain([operand]).cloned().map(token));
                    at = value;
                }
                // [`crate::as_of`] refuses NULL with the message for every value that is not an lsn.
                None => rewritten.push(token(keyword("NULL", Keyword::NULL))),
            }
            rewritten.push(token(Token::RParen));
            copied = seen[at] + 1;
            at += 1;
        }
    }
    rewritten.extend_from_slice(&tokens[copied..]);
    found.then_some(rewritten)
}

/// Returns true if a user may have meant the token as an lsn.
fn is_operand(token: &Token) -> bool {
    match token {
        Token::Number(..) | Token::Placeholder(_) | Token::SingleQuotedString(_) => true,
        Token::Word(word) => {
            matches!(word.keyword, Keyword::NoKeyword | Keyword::NULL | Keyword::TRUE | Keyword::FALSE)
        }
        _ => false,
    }
}

/// Returns the text of an unquoted word.
fn plain(token: &Token) -> Option<&str> {
    match token {
        Token::Word(Word { value, quote_style: None, .. }) => Some(value),
        _ => None,
    }
}

fn begins_point(seen: &[usize], tokens: &[TokenWithSpan], at: usize) -> bool {
    let token = |at: usize| seen.get(at).map(|at| &tokens[*at].token);
    match token(at) {
        Some(Token::SingleQuotedString(_) | Token::Placeholder(_)) => true,
        // The alias `of` may be followed by column names in brackets, which are single words.
        Some(Token::LParen) => match (token(at + 1).and_then(plain), token(at + 2)) {
            (Some(_), Some(Token::Comma | Token::RParen)) => false,
            _ => begins_point(seen, tokens, at + 1),
        },
        Some(first) => {
            let is = |wanted: &str| plain(first).is_some_and(|word| word.eq_ignore_ascii_case(wanted));
            let is_value = |token: &Token| {
                matches!(token, Token::Number(..) | Token::Placeholder(_) | Token::SingleQuotedString(_))
            };
            match token(at + 1) {
                Some(next) if is_value(next) => [LSN, "timestamp", "timestamptz", "date"].into_iter().any(is),
                Some(Token::LParen) => [LSN, "now", "cast", "to_timestamp"].into_iter().any(is),
                _ => ["current_timestamp", "now"].into_iter().any(is),
            }
        }
        None => false,
    }
}

fn keyword(text: &str, keyword: Keyword) -> Token {
    Token::Word(Word { value: text.into(), quote_style: None, keyword })
}

fn space() -> Token {
    Token::Whitespace(sqlparser::tokenizer::Whitespace::Space)
}

//! Splits operators as PostgreSQL does: `a <-1` is `a < -1`. The tokenizer takes the longest run of operator characters for one
//! operator.

use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};

use super::dialect::BoundedDialect;

/// Characters that allow an operator of several characters to end in a plus or minus.
const SPECIAL: [char; 10] = ['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'];

pub(super) fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    let dialect = BoundedDialect::new(0);
    // The tokenizer splits at these characters only if the dialect has no operators of geometric shapes.
    let dialect = if text.contains("<-") { dialect.without_shapes() } else { dialect };
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location()?;
    if !tokens.iter().any(|token| split(&token.token).is_some()) {
        return Ok(tokens);
    }
    let mut all = Vec::with_capacity(tokens.len() + 8);
    for token in tokens {
        match split(&token.token) {
            Some(parts) => all.extend(parts.into_iter().map(|part| TokenWithSpan::new(part, token.span))),
            None => all.push(token),
        }
    }
    Ok(all)
}

/// Splits a token into an operator and the signs of the number after it, if it is such a combination.
fn split(token: &Token) -> Option<Vec<Token>> {
    let Token::CustomBinaryOperator(signs) = token else { return None };
    // A comment begins within the token.
    if signs.contains(SPECIAL) || signs.contains("--") || signs.contains("/*") {
        return None;
    }
    // A single character cannot be split.
    let operator = &signs[..1] != signs;
    let end = signs.trim_end_matches(['+', '-']).len().max(1);
    let known = match &signs[..end] {
        "<" => Token::Lt,
        "<=" => Token::LtEq,
        ">" => Token::Gt,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "<=>" => Token::Spaceship,
        "<<" => Token::ShiftLeft,
        ">>" => Token::ShiftRight,
        "->" => Token::Arrow,
        "->>" => Token::LongArrow,
        "-" => Token::Minus,
        "+" => Token::Plus,
        _ => return None,
    };
    let sign = |sign| if sign == '-' { Token::Minus } else { Token::Plus };
    operator.then(|| std::iter::once(known).chain(signs[end..].chars().map(sign)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_behind_an_operator_belongs_to_the_number() {
        let read = |text: &str| {
            let tokens = tokens(text).unwrap().into_iter().map(|token| token.token);
            tokens.filter(|t| !matches!(t, Token::Whitespace(_))).map(|t| t.to_string()).collect::<Vec<_>>()
        };
        for (text, parts) in [
            ("a<-1", "a < - 1"),
            ("a <-1", "a < - 1"),
            ("a>-1", "a > - 1"),
            ("a<=-1", "a <= - 1"),
            ("a>=+1", "a >= + 1"),
            ("a<>-1", "a <> - 1"),
            ("a=-1", "a = - 1"),
            ("a<-+1", "a < - + 1"),
            ("a-+1", "a - + 1"),
            ("a->-1", "a -> - 1"),
            ("'a<-1'", "'a<-1'"),
            // Other operators of several characters stay whole.
            ("a <-> b", "a <-> b"),
        ] {
            assert_eq!(read(text), parts.split(' ').collect::<Vec<_>>(), "{text}");
        }
    }
}

//! Text to one statement: PostgreSQL's dialect, with Polynya's nested types where a column is declared. Whatever the
//! text is, time and the depth of the tree are bounded.

mod bounds;
mod dialect;
mod growth;

use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use types::{Error, Kind, Result};

use dialect::Bounded;

pub(crate) use growth::merge_coalesce;

/// Brackets, and whatever else the parser recurses for, nest at most this deep.
const NESTING_MAX: usize = 64;
/// Beginnings of expressions that the parser reads again because it guessed wrong, beyond a few for each token. About
/// a tenth of a second.
const STEPS_WASTED_MAX: usize = 50_000;

/// Parses exactly one statement. Errors are `Invalid` and end in the line and column.
pub(crate) fn statement(text: &str, bytes_max: usize) -> Result<Statement> {
    if text.len() > bytes_max {
        return Err(Error::new(
            Kind::TooLarge,
            format!("a statement of {} bytes; at most {bytes_max} are read", text.len()),
        )
        .hint("send rows through the ingest interface, or in several statements"));
    }
    let tokens = Tokenizer::new(&Bounded::new(0), text)
        .tokenize_with_location()
        .map_err(|e| syntax(&e.to_string()))?;
    bounds::check(&tokens)?;
    let dialect = Bounded::new(STEPS_WASTED_MAX + tokens.len() * 4);
    let tokens = if creates_table(&tokens) { fold_nested_types(tokens) } else { tokens };
    let mut statements = Parser::new(&dialect)
        .with_recursion_limit(NESTING_MAX)
        .with_tokens_with_locations(tokens)
        .parse_statements()
        .map_err(|e| match e {
            _ if dialect.exhausted() => Error::invalid(
                "a syntax error, or too much nesting: the statement cannot be read in bounded time",
            )
            .hint("look for what is wrong inside the innermost brackets"),
            ParserError::RecursionLimitExceeded => {
                Error::new(Kind::TooLarge, format!("the statement nests deeper than {NESTING_MAX} levels"))
                    .hint("split it with WITH")
            }
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => syntax(&text),
        })?;
    match (statements.pop(), statements.len()) {
        (Some(statement), 0) => {
            growth::check(&statement)?;
            Ok(statement)
        }
        (None, _) => Err(Error::invalid("the statement is empty")),
        (Some(_), others) => {
            Err(Error::invalid(format!("one statement is expected, {} were found", others + 1))
                .hint("send them one at a time"))
        }
    }
}

fn syntax(text: &str) -> Error {
    let text = text.trim_start_matches("sql parser error: ");
    let mut cut: String = text.chars().take(300).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    Error::invalid(format!("syntax error: {cut}"))
}

/// Whether this is a query that DataFusion answers as it stands: reads only.
pub(crate) fn reads_only(query: &Query) -> bool {
    fn body(set: &SetExpr) -> bool {
        match set {
            SetExpr::Select(select) => select.into.is_none(),
            SetExpr::Query(query) => reads_only(query),
            SetExpr::SetOperation { left, right, .. } => body(left) && body(right),
            SetExpr::Values(_) | SetExpr::Table(_) => true,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => false,
        }
    }
    let ctes = query.with.as_ref().map(|with| with.cte_tables.as_slice()).unwrap_or_default();
    body(&query.body) && ctes.iter().all(|cte| reads_only(&cte.query))
}

fn creates_table(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens.iter().find(|t| !matches!(t.token, Token::Whitespace(_)));
    matches!(first.map(|t| &t.token), Some(Token::Word(Word { keyword: Keyword::CREATE, .. })))
}

/// The dialect knows no `struct<…>` and no `list<…>`. Each becomes one quoted word, which the parser takes for the
/// name of a custom type and `sql_type` reads with `types::DataType::parse`.
fn fold_nested_types(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut folded = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        match nested_type_end(&tokens, i) {
            Some(end) => {
                let text: String = tokens[i..end].iter().map(|t| t.token.to_string()).collect();
                let word = Word { value: text, quote_style: Some('"'), keyword: Keyword::NoKeyword };
                folded.push(TokenWithSpan { token: Token::Word(word), span: tokens[i].span });
                i = end;
            }
            None => {
                folded.push(tokens[i].clone());
                i += 1;
            }
        }
    }
    folded
}

/// Where the nested type that starts at `start` ends, if one does.
fn nested_type_end(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let Token::Word(word) = &tokens[start].token else { return None };
    let is_nested = ["struct", "list", "array"].iter().any(|name| word.value.eq_ignore_ascii_case(name));
    if word.quote_style.is_some() || !is_nested {
        return None;
    }
    let mut depth = 0i32;
    for (i, token) in tokens.iter().enumerate().skip(start + 1) {
        match &token.token {
            Token::Lt => depth += 1,
            Token::Gt => depth -= 1,
            Token::ShiftRight => depth -= 2,
            Token::Whitespace(_) => continue,
            Token::SemiColon | Token::EOF => return None,
            _ => {}
        }
        if depth <= 0 {
            let closed = depth == 0 && matches!(token.token, Token::Gt | Token::ShiftRight);
            return closed.then_some(i + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Statement> {
        statement(text, 10_000)
    }

    #[test]
    fn exactly_one_statement_is_taken() {
        assert!(parse("select 1;").is_ok());
        assert_eq!(
            parse("select 1; select 2").unwrap_err().message(),
            "one statement is expected, 2 were found"
        );
        assert_eq!(parse("  -- nothing\n").unwrap_err().message(), "the statement is empty");
        assert_eq!(parse(&"x".repeat(10_001)).unwrap_err().kind(), Kind::TooLarge);
    }

    #[test]
    fn a_syntax_error_says_where() {
        let message = parse("select *\nfrom t where )").unwrap_err().to_string();
        assert!(message.contains("Line: 2, Column: "), "{message}");
    }

    #[test]
    fn nesting_without_end_is_refused() {
        for (levels, why) in [(100, "deeper"), (3_000, "are allowed")] {
            let deep = format!("select {}1{}", "(".repeat(levels), ")".repeat(levels));
            let error = parse(&deep).unwrap_err();
            assert!(error.message().contains(why) && error.kind() == Kind::TooLarge, "{error}");
        }
    }

    #[test]
    fn nested_types_are_read_as_types() {
        let text = r#"create table t (a struct<x: int64, "y z": list<string>>, b list<list<int32>> not null, c int)"#;
        let Statement::CreateTable(table) = parse(text).unwrap() else { panic!("a table") };
        let types: Vec<String> = table.columns.iter().map(|c| c.data_type.to_string()).collect();
        assert_eq!(types[1], r#""list<list<int32>>""#);
        assert_eq!(types[2], "INT");
    }

    #[test]
    fn a_query_that_writes_is_seen() {
        let reads = |text: &str| match parse(text).unwrap() {
            Statement::Query(query) => reads_only(&query),
            _ => false,
        };
        assert!(reads("with a as (select 1) select * from a union all (values (2))"));
        assert!(!reads("select 1 into t"));
        assert!(!reads("with a as (delete from t returning x) select * from a"));
    }
}

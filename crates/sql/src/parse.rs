//! Parses text into one statement: PostgreSQL's dialect, with Polynya's nested types in declarations of columns. For any text,
//! the time and the depth of the tree are bounded.

mod as_of;
mod bounds;
mod dialect;
mod explain;
mod growth;
mod operators;
mod standard_forms;
mod text;
mod unsupported;

use dialect::BoundedDialect;
use sqlparser::ast::{Expr, Query, SetExpr, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use types::{Error, Kind, Result, name};

pub use growth::merge_coalesce;
pub use text::{prepared, text_of};

/// Levels of nesting that the parser accepts: brackets and every other form for which it recurses.
const NESTING_MAX: usize = 64;
/// Beginnings of expressions that the parser may read again because it guessed wrong, in addition to four for each token. About a
/// tenth of a second.
const STEPS_WASTED_MAX: usize = 50_000;

/// Parses exactly one statement. Errors are `Invalid` and end in the line and column.
pub fn statement(text: &str, bytes_max: usize) -> Result<Statement> {
    if text.len() > bytes_max {
        return Err(Error::new(
            Kind::TooLarge,
            format!("a statement of {} bytes; at most {bytes_max} are read", text.len()),
        )
        .hint("send rows through the ingest interface, or in several statements"));
    }
    let tokens = operators::tokens(text).map_err(|e| syntax(&e.to_string()))?;
    bounds::check(&tokens)?;
    let points = as_of::rewritten(&tokens);
    let dialect = BoundedDialect::new(STEPS_WASTED_MAX + tokens.len() * 4).with_versions(points.is_some());
    let mut tokens = points.unwrap_or(tokens);
    standard_forms::table_as_query(&mut tokens);
    let tokens = if defines_table(&tokens) { fold_nested_types(tokens) } else { tokens };
    let nameless = nameless_index(&tokens);
    let tokens = match &nameless {
        Some(words) => remove_tokens(tokens, words),
        None => tokens,
    };
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
        (Some(mut statement), 0) => {
            if let Statement::CreateIndex(create) = &mut statement {
                create.if_not_exists |= nameless.is_some();
            }
            explain::apply_options(&mut statement)?;
            standard_forms::rewrite(&mut statement);
            unsupported::refuse(&statement)?;
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

/// Checks that a statement could have been written with its views expanded: its time and depth are bounded like those of any
/// other.
pub fn check_size(statement: &Statement, bytes_max: usize) -> Result<()> {
    self::statement(&text_of(statement), bytes_max)
        .map(drop)
        .map_err(|error| Error::new(error.kind(), format!("with its views expanded: {}", error.message())))
}

/// Returns the words of a text: names, quoted or not, and keywords.
pub fn words(text: &str) -> Result<Vec<Word>> {
    let tokens = operators::tokens(text).map_err(|e| syntax(&e.to_string()))?;
    let word = |token: TokenWithSpan| match token.token {
        Token::Word(word) => Some(word),
        _ => None,
    };
    Ok(tokens.into_iter().filter_map(word).collect())
}

/// Parses an expression that may follow WHERE. Anything after the expression is an error.
pub fn predicate(text: &str, bytes_max: usize) -> Result<Expr> {
    // The brackets turn a text that ends the expression early into an error, instead of the beginning of something else.
    let whole = statement(&format!("SELECT 1 WHERE (\n{text}\n)"), bytes_max)?;
    let wrong = || {
        Error::invalid("the filter is not a predicate")
            .hint("write a condition as after WHERE, such as `lang = 'en' AND year > 2000`")
    };
    let text = whole.to_string();
    let Statement::Query(query) = whole else { return Err(wrong()) };
    let SetExpr::Select(select) = *query.body else { return Err(wrong()) };
    let Some(Expr::Nested(inner)) = select.selection else { return Err(wrong()) };
    // Anything else in the text (a GROUP BY, a UNION) makes the two texts differ.
    if text == format!("SELECT 1 WHERE ({inner})") { Ok(*inner) } else { Err(wrong()) }
}

fn syntax(text: &str) -> Error {
    let text = text.trim_start_matches("sql parser error: ");
    // The parser's message shows its whole token structure.
    let word = text.strip_prefix("No infix parser for token ").and_then(|rest| rest.split_once("value: \""));
    if let Some((word, rest)) = word.and_then(|(_, rest)| rest.split_once('"')) {
        let place = rest.rfind(" at Line: ").map_or("", |at| &rest[at..]);
        return Error::invalid(format!(
            "syntax error: `{}` is not an operator{place}",
            name::printable(word)
        ));
    }
    let mut cut: String = text.chars().take(300).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    let error = Error::invalid(format!("syntax error: {cut}"));
    if cut.contains("SYSTEM_TIME") {
        error.hint("write AS OF before the alias of the table: `FROM t AS OF LSN 5 AS x`")
    } else {
        error
    }
}

/// Returns true if a query only reads: it has no SELECT INTO and no statement that writes.
pub fn reads_only(query: &Query) -> bool {
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

/// Returns the positions of IF NOT EXISTS in CREATE INDEX IF NOT EXISTS ON …: the parser expects a name after it and would take
/// ON for one, while Polynya's indexes need no name.
fn nameless_index(tokens: &[TokenWithSpan]) -> Option<[usize; 3]> {
    let mut words = tokens.iter().enumerate().filter_map(|(at, t)| match &t.token {
        Token::Whitespace(_) => None,
        Token::Word(word) if word.quote_style.is_none() => Some((at, word.keyword)),
        _ => Some((at, Keyword::NoKeyword)),
    });
    let mut take = |wanted: Keyword| words.next().filter(|(_, found)| *found == wanted).map(|(at, _)| at);
    take(Keyword::CREATE)?;
    take(Keyword::INDEX)?;
    let places = [take(Keyword::IF)?, take(Keyword::NOT)?, take(Keyword::EXISTS)?];
    take(Keyword::ON)?;
    // Two ONs: the index is called `on`.
    (words.next()?.1 != Keyword::ON).then_some(places)
}

fn remove_tokens(tokens: Vec<TokenWithSpan>, places: &[usize]) -> Vec<TokenWithSpan> {
    tokens.into_iter().enumerate().filter(|(at, _)| !places.contains(at)).map(|(_, token)| token).collect()
}

fn defines_table(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens.iter().find(|t| !matches!(t.token, Token::Whitespace(_)));
    let first = first.map(|t| &t.token);
    matches!(first, Some(Token::Word(Word { keyword: Keyword::CREATE | Keyword::ALTER, .. })))
}

/// Turns each `struct<…>` and `list<…>`, which the dialect does not know, into one quoted word. The parser takes the word for the
/// name of a custom type, and `sql_type` reads it with `types::DataType::parse`.
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

/// Returns the position after the nested type that starts at `start`, if one does.
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
    fn a_predicate_is_an_expression_and_nothing_else() {
        for text in ["a = 1 AND b LIKE 'x%'", "a IN (SELECT b FROM t)", "true -- why not", "(a)"] {
            predicate(text, 1_000).unwrap();
        }
        for text in [
            "",
            "a = 1) OR (b = 2",
            "a) GROUP BY (b",
            "a) LIMIT (1",
            "a) UNION SELECT (b",
            "a); DROP TABLE t; SELECT (1",
            "a = 1 ORDER BY a",
            "a /*",
        ] {
            assert!(predicate(text, 1_000).is_err(), "{text}");
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
    fn an_index_that_need_not_be_there_needs_no_name() {
        for (text, name, if_not_exists) in [
            ("create index if not exists on t using text (a)", None, true),
            ("CREATE INDEX\nIF NOT /* so */ EXISTS ON t USING text (a)", None, true),
            ("create index if not exists w on t using text (a)", Some("w"), true),
            ("create index if not exists \"on\" on t using text (a)", Some("\"on\""), true),
            ("create index on t using text (a)", None, false),
        ] {
            let Statement::CreateIndex(create) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(create.name.map(|n| n.to_string()).as_deref(), name, "{text}");
            assert_eq!(create.if_not_exists, if_not_exists, "{text}");
            assert_eq!(create.table_name.to_string(), "t");
        }
        for text in
            ["create index if not exists", "create index if not exists on", "create index if exists on t (a)"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
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

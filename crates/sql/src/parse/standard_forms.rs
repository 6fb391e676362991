//! Rewrites forms of standard SQL that DataFusion does not read: `FETCH FIRST 5 ROWS ONLY` becomes LIMIT 5, `TABLE t` becomes
//! `SELECT * FROM t`, and `GROUP BY ()` makes one group of all rows.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Fetch, GroupByExpr, LimitClause, Query, Select, SetExpr, Statement, Value,
    VisitMut, VisitorMut,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::ast::{binary, call};

/// Turns a statement that begins with TABLE into a SELECT.
pub(super) fn table_as_query(tokens: &mut Vec<TokenWithSpan>) {
    let Some(at) = tokens.iter().position(|token| !matches!(token.token, Token::Whitespace(_))) else {
        return;
    };
    let Token::Word(Word { keyword: Keyword::TABLE, quote_style: None, .. }) = tokens[at].token else {
        return;
    };
    let span = tokens[at].span;
    let select = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
    tokens.splice(at..=at, select.map(|token| TokenWithSpan::new(token, span)));
}

pub(super) fn rewrite(statement: &mut Statement) {
    struct Rewriter;
    impl VisitorMut for Rewriter {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            fetch(query);
            body(&mut query.body);
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut Rewriter);
}

fn fetch(query: &mut Query) {
    let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch else { return };
    let rows = quantity.clone().unwrap_or_else(|| number("1"));
    match &mut query.limit_clause {
        None => {
            let limit = Some(rows);
            query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        // Together with a LIMIT it is refused later.
        Some(_) => return,
    }
    query.fetch = None;
}

fn body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => one_group(select),
        SetExpr::SetOperation { left, right, .. } => {
            self::body(left);
            self::body(right);
        }
        _ => {}
    }
}

/// Turns `GROUP BY ()` into a HAVING that is always true: its aggregate makes one group of all rows.
fn one_group(select: &mut Select) {
    let GroupByExpr::Expressions(by, _) = &mut select.group_by else { return };
    let before = by.len();
    by.retain(|expr| !matches!(expr, Expr::Tuple(values) if values.is_empty()));
    if before == 0 || !by.is_empty() {
        return;
    }
    let counted = binary(call("count", vec![number("1")]), BinaryOperator::GtEq, number("0"));
    select.having = Some(match select.having.take() {
        Some(having) => binary(having, BinaryOperator::And, counted),
        None => counted,
    });
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

//! Builds expressions and queries of the syntax tree.

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Statement, TableWithJoins, UnaryOperator,
    Value,
};
use types::{Error, Result};

use crate::parse;

pub fn call(name: &str, args: Vec<Expr>) -> Expr {
    let arg = |arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg));
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(arg).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Joins `parts` by `op` into a balanced tree, so that a long list does not become a deep tree. No parts give `true`.
pub fn joined(mut parts: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if parts.len() > 1 {
        let right = parts.split_off(parts.len() / 2);
        return binary(joined(parts, op), op.clone(), joined(right, op));
    }
    parts.pop().unwrap_or_else(|| bool(true))
}

pub fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let (left, right) = (Box::new(bracketed(left)), Box::new(bracketed(right)));
    Expr::BinaryOp { left, op, right }
}

pub fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(bracketed(expr)) }
}

/// Puts an expression in brackets unless it needs none, so that its text parses to the same tree again.
pub fn bracketed(expr: Expr) -> Expr {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Nested(_) => expr,
        other => Expr::Nested(Box::new(other)),
    }
}

pub fn bool(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// Builds `SELECT projection [FROM from] [WHERE selection]`.
pub fn select(
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Statement> {
    let mut query = empty_query()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = projection;
        select.from = from;
        select.selection = selection;
    }
    Ok(Statement::Query(Box::new(query)))
}

/// Builds `SELECT 1`, whose parts the caller replaces.
pub fn empty_query() -> Result<Query> {
    // Parsing is the safest way to fill the many fields of an empty SELECT.
    match parse::statement("SELECT 1", 64)? {
        Statement::Query(query) => Ok(*query),
        _ => Err(Error::internal("a SELECT is not a query")),
    }
}

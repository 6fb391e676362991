//! Rewrites expressions about lists into forms that DataFusion supports and plans well.
//!
//! PostgreSQL has ANY and ALL over any list; DataFusion supports them only in part. If the items of the list are known, they
//! become IN, NOT IN, or a comparison with each item, which key lookups, indexes and zone maps can use. That includes
//! `= ANY($1)`, by which drivers pass lists. A subscript below 1 is null in PostgreSQL, while DataFusion counts from the end;
//! here such subscripts become null.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, CastKind, DataType as SqlType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Statement, Subscript, UnaryOperator, Value,
    VisitMut, VisitorMut,
};
use sql::ast::{binary, bool, bracketed, call, joined, not};
use sql::not_yet;
use types::{Error, Kind, Result, name};

use super::functions::EQUALS_ANY;
use super::text::{self, ListItem};
use crate::values::convert;

/// Number of items with which a value may be compared by operators other than `=` and `<>`.
const COMPARED_MAX: usize = 1_000;
/// Bytes of the longest expression that may be written twice, for lack of a function.
const TWICE_BYTES_MAX: usize = 1_000;

/// Rewrites a statement after names are bound. Returns true if it now contains values of parameters, so that the plan depends on
/// them.
pub fn rewrite(statement: &mut Statement, params: &[types::Value]) -> Result<bool> {
    let mut rewriter = ListRewriter { params, by_values: false };
    match statement.visit(&mut rewriter) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(rewriter.by_values),
    }
}

struct ListRewriter<'a> {
    params: &'a [types::Value],
    by_values: bool,
}

impl VisitorMut for ListRewriter<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.rewrite_expr(expr).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

impl ListRewriter<'_> {
    fn rewrite_expr(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::AnyOp { left, compare_op, right, .. } if !matches!(**right, Expr::Subquery(_)) => {
                *expr = self.compared(left, compare_op, right, false)?;
            }
            Expr::AllOp { left, compare_op, right } if !matches!(**right, Expr::Subquery(_)) => {
                *expr = self.compared(left, compare_op, right, true)?;
            }
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    if let AccessExpr::Subscript(subscript) = access {
                        counted_from_one(subscript)?;
                    }
                }
            }
            Expr::Function(function) => {
                if let Some(spelled) = function_of_lists(function) {
                    *expr = spelled;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn compared(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr, all: bool) -> Result<Expr> {
        use BinaryOperator::{And, Eq, NotEq, Or};
        let quantifier = if all { "ALL" } else { "ANY" };
        let Some(list) = self.items(right)? else {
            let any = || call(EQUALS_ANY, vec![right.clone(), left.clone()]);
            return match (op, all) {
                (Eq, false) => Ok(any()),
                (NotEq, true) => Ok(not(any())),
                _ => Err(not_yet(&format!("`{op} {quantifier}` of a list that is not written out"))
                    .hint("compare with array_min(list) or array_max(list)")),
            };
        };
        if list.is_empty() {
            return Ok(bool(all));
        }
        if matches!((op, all), (Eq, false) | (NotEq, true)) {
            let expr = Box::new(bracketed(left.clone()));
            return Ok(Expr::Nested(Box::new(Expr::InList { expr, list, negated: all })));
        }
        let bytes = left.to_string().len().saturating_mul(list.len());
        if list.len() > COMPARED_MAX || bytes > COMPARED_MAX * TWICE_BYTES_MAX {
            let message = format!("`{op} {quantifier}` of a list of {} items is too long", list.len());
            return Err(
                Error::new(Kind::TooLarge, message).hint("compare with its least or its greatest item")
            );
        }
        let each = list.into_iter().map(|item| binary(left.clone(), op.clone(), item));
        Ok(bracketed(joined(each.collect(), if all { &And } else { &Or })))
    }

    /// Returns the items of a list that is written out or given as a parameter.
    fn items(&mut self, list: &Expr) -> Result<Option<Vec<Expr>>> {
        Ok(match list {
            Expr::Nested(inner) => self.items(inner)?,
            Expr::Array(array) => {
                let is_flat = !array.elem.iter().any(|item| matches!(item, Expr::Array(_)));
                is_flat.then(|| array.elem.clone())
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type: SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _)),
                array: false,
                format: None,
            } if !matches!(**item, SqlType::Array(_)) => {
                let cast = |expr: Expr| Expr::Cast {
                    kind: CastKind::Cast,
                    expr: Box::new(expr),
                    data_type: (**item).clone(),
                    array: false,
                    format: None,
                };
                self.items(expr)?.map(|items| items.into_iter().map(cast).collect())
            }
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => Some(of_text(text)?),
                Value::Placeholder(called) => {
                    let at = called.strip_prefix('$').and_then(|at| at.parse::<usize>().ok());
                    let given = at.and_then(|at| self.params.get(at.checked_sub(1)?));
                    let items = given.map(of_value).transpose().map_err(|e| e.with("parameter", called))?;
                    let items = items.flatten();
                    self.by_values |= items.is_some();
                    items
                }
                _ => None,
            },
            _ => None,
        })
    }
}

/// Converts a list written as text to literals: texts without a type, which are read as the type of the value they are compared
/// with.
fn of_text(text: &str) -> Result<Vec<Expr>> {
    if !text::is_braced(text) {
        return of_json(text);
    }
    let one = |item: ListItem| match item {
        ListItem::Null => Ok(Expr::Value(Value::Null.into())),
        ListItem::Text(text) => Ok(quoted(text)),
        ListItem::List(_) => Err(nested()),
    };
    text::items(text)?.into_iter().map(one).collect()
}

fn of_json(text: &str) -> Result<Vec<Expr>> {
    use serde_json::Value as Json;
    let items: Vec<Json> = serde_json::from_str(text).map_err(|_| {
        Error::invalid(format!("`{}` is not a list", name::printable(text)))
            .hint("write it as '{1,2}', or give a list as a parameter")
    })?;
    let one = |item: Json| match item {
        Json::Null => Ok(Expr::Value(Value::Null.into())),
        Json::Bool(value) => Ok(bool(value)),
        Json::Number(number) => Ok(self::number(&number.to_string())),
        Json::String(text) => Ok(quoted(text)),
        Json::Array(_) | Json::Object(_) => Err(nested()),
    };
    items.into_iter().map(one).collect()
}

/// Converts a parameter to literals; `None` if it is not a list.
fn of_value(value: &types::Value) -> Result<Option<Vec<Expr>>> {
    use types::Value as Param;
    let one = |item: &Param| match item {
        Param::Null => Ok(Expr::Value(Value::Null.into())),
        Param::Bool(value) => Ok(bool(*value)),
        Param::Int32(value) => Ok(number(&value.to_string())),
        Param::Int64(value) => Ok(number(&value.to_string())),
        Param::Float64(value) if value.is_finite() => Ok(number(&value.to_string())),
        Param::Float32(value) if value.is_finite() => Ok(number(&value.to_string())),
        Param::Float64(value) => Ok(quoted(value.to_string())),
        Param::Float32(value) => Ok(quoted(value.to_string())),
        Param::String(text) | Param::Json(text) => Ok(quoted(text.clone())),
        Param::Uuid(uuid) => Ok(quoted(crate::functions::uuid::format(uuid))),
        Param::Binary(_) => Ok(quoted(shown(item, &types::DataType::Binary))),
        Param::Date(_) => Ok(quoted(shown(item, &types::DataType::Date))),
        Param::Timestamp(_) => Ok(quoted(shown(item, &types::DataType::Timestamp))),
        _ => Err(nested()),
    };
    match value {
        Param::List(items) => items.iter().map(one).collect::<Result<_>>().map(Some),
        Param::String(text) | Param::Json(text) => of_text(text).map(Some),
        _ => Ok(None),
    }
}

fn shown(value: &types::Value, data_type: &types::DataType) -> String {
    convert::literal_text(value, data_type).trim_matches('\'').to_owned()
}

fn quoted(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

fn number(digits: &str) -> Expr {
    let number = |digits: &str| Expr::Value(Value::Number(digits.to_owned(), false).into());
    match digits.strip_prefix('-') {
        Some(digits) => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number(digits)) },
        None => number(digits),
    }
}

fn nested() -> Error {
    Error::invalid("ANY and ALL take a list of numbers, texts, times and the like, not of lists or objects")
}

/// Makes a subscript below 1 null, and makes a slice begin at the first item.
fn counted_from_one(subscript: &mut Subscript) -> Result<()> {
    let whole = |digits: &str| Expr::Value(Value::Number(digits.to_owned(), false).into());
    match subscript {
        Subscript::Index { index } => {
            if !is_known(index) {
                let least = call("greatest", vec![index.clone(), whole("0")]);
                *index = call("nullif", vec![least, whole("0")]);
            }
        }
        Subscript::Slice { lower_bound, upper_bound, stride: _ } => {
            for (bound, least, missing) in [(lower_bound, "1", "1"), (upper_bound, "0", "2147483647")] {
                match bound {
                    None => *bound = Some(whole(missing)),
                    Some(bound) if is_known(bound) => {}
                    Some(bound) => {
                        if bound.to_string().len() > TWICE_BYTES_MAX {
                            return Err(Error::new(Kind::TooLarge, "a bound of `list[a:b]` is too long")
                                .hint("work it out in a query below"));
                        }
                        let at_least = call("greatest", vec![bound.clone(), whole(least)]);
                        // The product is 0, or null if the bound is null.
                        let nothing = binary(bound.clone(), BinaryOperator::Multiply, whole("0"));
                        *bound = binary(at_least, BinaryOperator::Plus, nothing);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns true for a literal other than a parameter: a number that is not negative, the name of a field, or null.
fn is_known(index: &Expr) -> bool {
    match index {
        Expr::Value(value) => !matches!(value.value, Value::Placeholder(_)),
        _ => false,
    }
}

/// Makes `array_replace` replace all equal items, and makes the length of an empty list null.
fn function_of_lists(function: &mut Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(called)] = function.name.0.as_mut_slice() else { return None };
    match called.value.to_ascii_lowercase().as_str() {
        "array_replace" | "list_replace" => {
            *called = Ident::new("array_replace_all");
            None
        }
        "array_length" | "list_length" => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(_))] = list.args.as_slice() else {
                return None;
            };
            let length = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Function(function.clone())),
                data_type: SqlType::BigInt(None),
                array: false,
                format: None,
            };
            Some(call("nullif", vec![length, number("0")]))
        }
        _ => None,
    }
}

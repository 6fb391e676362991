//! Converts literals to column values without a planner. INSERT … VALUES and DEFAULT mostly consist of them.

use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value as SqlValue};
use types::{DataType, Error, Kind, Result, Value};

use crate::values::convert;

/// Returns the value of an expression that is a literal or a parameter; `None` for expressions that have to be evaluated.
pub fn value(expr: &Expr, data_type: &DataType, params: &[Value]) -> Option<Result<Value>> {
    match expr {
        Expr::Nested(inner) => value(inner, data_type, params),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(literal) => match &literal.value {
                SqlValue::Number(digits, _) => Some(number(&format!("-{digits}"), data_type)),
                _ => None,
            },
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => value(expr, data_type, params),
        Expr::Value(literal) => match &literal.value {
            SqlValue::Null => Some(Ok(Value::Null)),
            SqlValue::Boolean(v) => Some(match data_type {
                DataType::Bool => Ok(Value::Bool(*v)),
                DataType::String => Ok(Value::String(v.to_string())),
                DataType::Json => Ok(Value::Json(v.to_string())),
                other => Err(misfit(other, "bool")),
            }),
            SqlValue::Number(digits, _) => Some(number(digits, data_type)),
            SqlValue::SingleQuotedString(text) | SqlValue::EscapedStringLiteral(text) => {
                Some(convert::text_to_value(text, data_type))
            }
            SqlValue::DollarQuotedString(text) => Some(convert::text_to_value(&text.value, data_type)),
            SqlValue::Placeholder(text) => {
                let given = given(text, params)?;
                Some(convert::value_to_column(given, data_type).map_err(|e| e.with("parameter", text)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the value of a parameter; `None` if there is none.
fn given<'p>(placeholder: &str, params: &'p [Value]) -> Option<&'p Value> {
    let index: usize = placeholder.strip_prefix('$')?.parse().ok()?;
    params.get(index.checked_sub(1)?)
}

/// Fails if an expression is a float parameter that [may have lost digits](convert::keeps_digits) for a column of this type.
pub fn keeps_digits(expr: &Expr, data_type: &DataType, params: &[Value]) -> Result<()> {
    match expr {
        Expr::Nested(inner)
        | Expr::UnaryOp { op: UnaryOperator::Plus | UnaryOperator::Minus, expr: inner } => {
            keeps_digits(inner, data_type, params)
        }
        Expr::Value(literal) => match &literal.value {
            SqlValue::Placeholder(text) => match given(text, params) {
                Some(value) => convert::keeps_digits(value, data_type).map_err(|e| e.with("parameter", text)),
                None => Ok(()),
            },
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn number(digits: &str, data_type: &DataType) -> Result<Value> {
    match data_type {
        DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal { .. }
        | DataType::String
        | DataType::Json => convert::text_to_value(digits, data_type),
        other => Err(misfit(other, "a number")),
    }
}

fn misfit(expected: &DataType, found: &str) -> Error {
    Error::new(Kind::Schema, format!("{expected} expected, {found} found"))
}

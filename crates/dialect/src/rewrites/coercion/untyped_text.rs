//! Reads untyped text that meets a typed expression, and refuses to compare types that must not be mixed.

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Statement, visit_expressions_mut};
use types::Error;

use super::{ReadAsFunction, dates, external, text_value};
use crate::functions::byte_lengths::is_binary;
use crate::functions::interval;
use crate::functions::result_limits::concat;
use crate::values::convert::with_seconds;

/// A planner extension that reads text while a statement is planned, before anything asks for the type of an operation: `n + '1'`
/// has none. It also plans an interval times a number, which has none either.
#[derive(Debug)]
pub struct UntypedTextPlanner;

impl ExprPlanner for UntypedTextPlanner {
    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if let BinaryOperator::Multiply | BinaryOperator::Divide = &raw.op {
            let divides = raw.op == BinaryOperator::Divide;
            if let Some(product) = interval::multiply_or_divide(&raw.left, divides, &raw.right, schema) {
                return Ok(PlannerResult::Planned(product));
            }
        }
        let compares = compares(&raw.op);
        let spelled = distinct_operator(&raw.op);
        if (compares || calculates(&raw.op)) && is_untyped(&raw.left) != is_untyped(&raw.right) {
            let RawBinaryExpr { op, left, right } = raw;
            let meets = |other: &Expr| {
                other.get_type(schema).ok().filter(|t| !is_untyped(other) && (compares || t.is_numeric()))
            };
            let (left_type, right_type) = (meets(&left), meets(&right));
            let left = read_as(left, right_type.as_ref())?;
            let right = read_as(right, left_type.as_ref())?;
            return Ok(planned(RawBinaryExpr { op, left, right }, spelled));
        }
        if raw.op == BinaryOperator::StringConcat {
            return concatenated(raw, schema);
        }
        let mut raw = raw;
        match raw.op {
            BinaryOperator::Plus => {
                dates::coerce_operands(&mut raw.left, Operator::Plus, &mut raw.right, schema)?
            }
            BinaryOperator::Minus => {
                dates::coerce_operands(&mut raw.left, Operator::Minus, &mut raw.right, schema)?
            }
            _ => {}
        }
        Ok(planned(raw, spelled))
    }
}

/// Plans `||` between bytes, of which one side may be an untyped literal.
fn concatenated(raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    let RawBinaryExpr { op, left, right } = raw;
    let is_bytes = |side: &Expr| side.get_type(schema).is_ok_and(|own| is_binary(&own));
    match (is_bytes(&left), is_bytes(&right)) {
        (true, _) if is_bytes(&right) || is_untyped(&right) => {}
        (_, true) if is_untyped(&left) => {}
        _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
    }
    let bytes = Some(&Arrow::Binary);
    let args = vec![read_as(left, bytes)?, read_as(right, bytes)?];
    Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(concat::function(), args))))
}

fn planned(raw: RawBinaryExpr, spelled: Option<Operator>) -> PlannerResult<RawBinaryExpr> {
    match spelled {
        Some(op) => PlannerResult::Planned(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(raw.left),
            op,
            Box::new(raw.right),
        ))),
        None => PlannerResult::Original(raw),
    }
}

const DISTINCT: &str = "IS DISTINCT FROM";
const NOT_DISTINCT: &str = "IS NOT DISTINCT FROM";

/// Turns these two operators into custom binary operators: the planner calls [`UntypedTextPlanner`] only for binary operators.
pub fn rewrite_distinct(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        let sign = match expr {
            ast::Expr::IsDistinctFrom(..) => DISTINCT,
            ast::Expr::IsNotDistinctFrom(..) => NOT_DISTINCT,
            _ => return std::ops::ControlFlow::<()>::Continue(()),
        };
        let null = ast::Expr::Value(ast::Value::Null.into());
        if let ast::Expr::IsDistinctFrom(left, right) | ast::Expr::IsNotDistinctFrom(left, right) =
            std::mem::replace(expr, null)
        {
            *expr = ast::Expr::BinaryOp { left, op: BinaryOperator::Custom(sign.into()), right };
        }
        std::ops::ControlFlow::Continue(())
    });
}

fn distinct_operator(op: &BinaryOperator) -> Option<Operator> {
    match op {
        BinaryOperator::Custom(sign) if sign == DISTINCT => Some(Operator::IsDistinctFrom),
        BinaryOperator::Custom(sign) if sign == NOT_DISTINCT => Some(Operator::IsNotDistinctFrom),
        _ => None,
    }
}

fn compares(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) || distinct_operator(op).is_some()
}

fn calculates(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

/// Reads an untyped text as a value of `data_type`; returns any other expression unchanged.
pub(super) fn read_as(expr: Expr, data_type: Option<&Arrow>) -> Result<Expr> {
    let Some(data_type) = data_type.filter(|t| is_untyped(&expr) && text_value::reads(t)) else {
        return Ok(expr);
    };
    Ok(match expr {
        Expr::Literal(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
            metadata,
        ) => Expr::Literal(text_value::read(&text, data_type).map_err(external)?, metadata),
        parameter => ReadAsFunction::call(parameter, data_type),
    })
}

/// Returns true if an expression is a text literal or a text parameter, to which no CAST gives a type.
pub(super) fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(scalar, _) => is_text(&scalar.data_type()),
        Expr::Placeholder(placeholder) => placeholder.field.as_ref().is_some_and(|f| is_text(f.data_type())),
        _ => false,
    }
}

/// Plans a CAST of text. A cast to bytes or to a list reads the text as it is read where it is stored; DataFusion would take its
/// characters for the bytes, and the whole text for the only item. A literal may have spaces around it, and a timestamp may lack
/// seconds.
pub(super) fn cast(mut cast: Cast, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if is_read(&cast.data_type) && cast.expr.get_type(schema).is_ok_and(|own| is_text(&own)) {
        return Ok(Transformed::yes(match cast.expr.as_ref() {
            Expr::Literal(scalar, metadata) => match scalar.try_as_str().flatten() {
                Some(text) => Expr::Literal(
                    text_value::read(text, &cast.data_type).map_err(external)?,
                    metadata.clone(),
                ),
                None => Expr::Literal(ScalarValue::try_from(&cast.data_type)?, metadata.clone()),
            },
            _ => ReadAsFunction::call(*cast.expr, &cast.data_type),
        }));
    }
    let text = match cast.expr.as_ref() {
        Expr::Literal(scalar, _) => scalar.try_as_str().flatten(),
        _ => None,
    };
    let whole = text.and_then(|text| match &cast.data_type {
        Arrow::Timestamp(..) => with_seconds(text),
        number if number.is_numeric() && text.trim() != text => Some(text.trim().to_owned()),
        _ => None,
    });
    let changed = whole.is_some();
    if let Some(text) = whole {
        *cast.expr = Expr::Literal(ScalarValue::Utf8(Some(text)), None);
    }
    Ok(Transformed::new_transformed(Expr::Cast(cast), changed))
}

/// Plans a TRY_CAST of text. Only literals are supported: a column would need a cast that fails for single rows.
pub(super) fn try_cast(cast: TryCast, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_read(&cast.data_type) || !cast.expr.get_type(schema).is_ok_and(|own| is_text(&own)) {
        return Ok(Transformed::no(Expr::TryCast(cast)));
    }
    match cast.expr.as_ref() {
        Expr::Literal(scalar, metadata) => {
            let read =
                scalar.try_as_str().flatten().and_then(|text| text_value::read(text, &cast.data_type).ok());
            let value = read.map_or_else(|| ScalarValue::try_from(&cast.data_type), Ok)?;
            Ok(Transformed::yes(Expr::Literal(value, metadata.clone())))
        }
        _ => Err(external(Error::invalid("TRY_CAST of a text to binary or to a list").hint("write CAST"))),
    }
}

/// Returns true for types as which a text is read differently from DataFusion's cast.
fn is_read(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Binary | Arrow::List(_))
}

fn is_text(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::Utf8View | Arrow::LargeUtf8)
}

pub(super) fn refuse_mixed_operands(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<()> {
    if is_untyped(left) && is_untyped(right) {
        return Ok(());
    }
    match (left.get_type(schema), right.get_type(schema)) {
        (Ok(left), Ok(right)) => refuse_mixed_types(&left, &right),
        // The planner reports the error in the operand.
        _ => Ok(()),
    }
}

pub(super) fn refuse_mixed_types(left: &Arrow, right: &Arrow) -> Result<()> {
    let is_bool = |t: &Arrow| *t == Arrow::Boolean;
    let differ =
        |a: &Arrow, b: &Arrow| is_text(a) && (b.is_numeric() || is_bool(b)) || is_bool(a) && b.is_numeric();
    if !differ(left, right) && !differ(right, left) {
        return dates::refuse_zones(left, right);
    }
    let name = |t: &Arrow| sql::sql_type::field_type_name(&arrow::datatypes::Field::new("", t.clone(), true));
    let (left, right) = (name(left), name(right));
    Err(external(
        Error::invalid(format!("{left} and {right} cannot be compared"))
            .hint(format!("say what is meant: CAST the {left} to {right}, or the {right} to {left}")),
    ))
}

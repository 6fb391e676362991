//! Decides which numbers with a point are exact decimals, and which are floats.

use std::ops::ControlFlow;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::{
    self, CastKind, DataType as SqlType, ExactNumberInfo, Query, SetExpr, Statement, Value, VisitMut,
    VisitorMut, visit_expressions_mut,
};

use super::number::Number;
use super::{calculates, compares};

/// Prefix of the column names of a query whose values are written to the cells of a table.
pub const CELL_PREFIX: &str = "polynya ";

/// The meaning of a number literal, decided by the expression around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LiteralMode {
    /// The meaning is not decided yet.
    Open,
    /// In a calculation without decimals and floats.
    Plain,
    Exact,
    Float,
}

/// The types that take part in a calculation besides the literals.
#[derive(Default)]
struct OperandKinds {
    decimal: bool,
    float: bool,
}

/// Gives the literals of an expression the type that fits the expressions around them.
pub(super) fn assign_types(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    // A bare literal of a statement that writes keeps all its digits until it reaches its column.
    let mode = match &expr {
        Expr::Alias(alias)
            if alias.name.starts_with(CELL_PREFIX) && matches!(alias.expr.as_ref(), Expr::Literal(..)) =>
        {
            LiteralMode::Exact
        }
        _ => LiteralMode::Open,
    };
    expr.rewrite(&mut LiteralTyper { schema, around: vec![(mode, false)] }).map(|settled| settled.data)
}

/// The visitor that settles literals on the way down. `rewrite` grows the stack for deep expressions; plain recursion would not.
struct LiteralTyper<'a> {
    schema: &'a DFSchema,
    /// The mode of each expression around the current one, and true if it is a division.
    around: Vec<(LiteralMode, bool)>,
}

impl TreeNodeRewriter for LiteralTyper<'_> {
    type Node = Expr;

    fn f_down(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let (mode, divides) = self.around.last().copied().unwrap_or((LiteralMode::Open, false));
        let inner = match &expr {
            Expr::Literal(scalar, _) => {
                self.around.push((mode, false));
                // A quotient of decimals would have few digits after the point.
                let mode = if divides && !is_long(scalar) { LiteralMode::Float } else { mode };
                return Ok(match literal(scalar, mode) {
                    Some(scalar) => Transformed::yes(Expr::Literal(scalar, None)),
                    None => Transformed::no(expr),
                });
            }
            // A literal in a CAST keeps its digits, because the cast says its type.
            Expr::Cast(Cast { expr: inner, .. }) if matches!(inner.as_ref(), Expr::Literal(..)) => {
                LiteralMode::Exact
            }
            // A cast to an integer rounds a half of a decimal differently from a half of a float.
            Expr::Cast(Cast { data_type, .. }) if data_type.is_integer() => {
                match calculated(&expr, self.schema)? {
                    LiteralMode::Plain => LiteralMode::Exact,
                    known => known,
                }
            }
            Expr::BinaryExpr(BinaryExpr { op, .. }) if compares(*op) => compared(&expr, self.schema)?,
            Expr::Between(_) | Expr::InList(_) => compared(&expr, self.schema)?,
            Expr::BinaryExpr(BinaryExpr { op, .. }) if calculates(*op) => match mode {
                LiteralMode::Open => calculated(&expr, self.schema)?,
                known => known,
            },
            Expr::Negative(_) | Expr::Alias(_) => mode,
            Expr::Case(_) | Expr::ScalarFunction(_) => calculated(&expr, self.schema)?,
            _ => LiteralMode::Open,
        };
        let divides = matches!(&expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Divide, .. }));
        self.around.push((inner, divides));
        Ok(Transformed::no(expr))
    }

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        self.around.pop();
        Ok(Transformed::no(expr))
    }
}

/// Returns the mode of a comparison: exact, unless a float is compared.
fn compared(expr: &Expr, schema: &DFSchema) -> Result<LiteralMode> {
    let operands = survey(expr, schema)?;
    Ok(if operands.float { LiteralMode::Float } else { LiteralMode::Exact })
}

fn calculated(expr: &Expr, schema: &DFSchema) -> Result<LiteralMode> {
    let operands = survey(expr, schema)?;
    Ok(match operands {
        OperandKinds { float: true, .. } => LiteralMode::Float,
        OperandKinds { decimal: true, .. } => LiteralMode::Exact,
        _ => LiteralMode::Plain,
    })
}

fn survey(expr: &Expr, schema: &DFSchema) -> Result<OperandKinds> {
    let mut operands = OperandKinds::default();
    let mut look = |part: &Expr| -> Result<TreeNodeRecursion> {
        match part {
            Expr::Literal(scalar, _) => {
                operands.decimal |= is_long(scalar);
                operands.float |= matches!(scalar, ScalarValue::Float32(_) | ScalarValue::Float64(_));
                return Ok(TreeNodeRecursion::Jump);
            }
            Expr::BinaryExpr(BinaryExpr { op, .. }) if calculates(*op) => {
                return Ok(TreeNodeRecursion::Continue);
            }
            Expr::Negative(_) | Expr::Alias(_) => return Ok(TreeNodeRecursion::Continue),
            _ => {}
        }
        match part.get_type(schema) {
            Ok(Arrow::Decimal128(..) | Arrow::Decimal256(..)) if !from_literals(part) => {
                operands.decimal = true;
            }
            Ok(Arrow::Float16 | Arrow::Float32 | Arrow::Float64) => operands.float = true,
            _ => {}
        }
        Ok(TreeNodeRecursion::Jump)
    };
    expr.apply_children(|child| child.apply(&mut look).map(|_| TreeNodeRecursion::Continue))?;
    Ok(operands)
}

/// Returns true for an expression that is a decimal only because its literals were read as decimals, as in `abs(1.5)`.
fn from_literals(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(_) | Expr::Case(_) => {}
        _ => return false,
    }
    let mut only = true;
    let _ = expr.apply(|part| {
        only &=
            !matches!(part, Expr::Column(_) | Expr::Cast(_) | Expr::ScalarSubquery(_) | Expr::Placeholder(_));
        Ok(if only { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    only
}

fn is_long(scalar: &ScalarValue) -> bool {
    match scalar {
        ScalarValue::Decimal128(..) => Number::of(scalar).is_some_and(Number::is_long),
        ScalarValue::Decimal256(..) => true,
        ScalarValue::UInt64(Some(v)) => i64::try_from(*v).is_err(),
        _ => false,
    }
}

/// Returns the new value of a literal; `None` if it stays.
fn literal(scalar: &ScalarValue, mode: LiteralMode) -> Option<ScalarValue> {
    match scalar {
        ScalarValue::Decimal128(Some(_), ..) => {}
        ScalarValue::UInt64(Some(_)) if is_long(scalar) => {}
        _ => return None,
    }
    let number = Number::of(scalar)?;
    let float = || Some(ScalarValue::Float64(Some(number.to_f64())));
    match mode {
        LiteralMode::Float => float(),
        LiteralMode::Open | LiteralMode::Plain if !number.is_long() => float(),
        _ => match scalar {
            // The number of digits after the point counts in arithmetic, as in PostgreSQL, so the literal stays as it was
            // written.
            ScalarValue::Decimal128(_, _, 0..) => None,
            _ => number.to_decimal().or_else(float),
        },
    }
}

/// Returns the number that [`floats_that_no_decimal_holds`] turned into a float.
pub(super) fn beyond_decimals(expr: &Expr) -> Option<Number> {
    match expr {
        Expr::Negative(inner) if matches!(inner.as_ref(), Expr::Cast(_)) => {
            beyond_decimals(inner).map(Number::negated)
        }
        Expr::Cast(Cast { expr, data_type: Arrow::Float64 }) => match expr.as_ref() {
            Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Number::parse(text).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Turns numbers that no decimal holds, such as `1e300`, into float64 in the statement: the planner would refuse them.
pub(super) fn floats_that_no_decimal_holds(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        if let Some(digits) = point_number(expr)
            && Number::parse(digits).ok().and_then(Number::to_decimal).is_none()
        {
            *expr = float_of(digits);
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Turns numbers with a point in VALUES into float64 in the statement, if the column has only numbers that need not be exact. The
/// planner derives the type of a column of VALUES from all its rows, before [`assign_types`] sees them.
pub(super) fn floats_in_values(statement: &mut Statement) {
    struct ValuesVisitor;
    impl VisitorMut for ValuesVisitor {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            let mut bodies = vec![query.body.as_mut()];
            while let Some(body) = bodies.pop() {
                match body {
                    SetExpr::SetOperation { left, right, .. } => {
                        bodies.extend([left.as_mut(), right.as_mut()])
                    }
                    SetExpr::Values(values) => floats_in_rows(&mut values.rows),
                    _ => {}
                }
            }
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut ValuesVisitor);
}

fn floats_in_rows(rows: &mut [Vec<ast::Expr>]) {
    for column in 0..rows.first().map_or(0, Vec::len) {
        read_texts(rows, column);
        if !rows.iter().all(|row| row.get(column).is_some_and(need_not_be_exact)) {
            continue;
        }
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            let _ = visit_expressions_mut(cell, |expr| {
                if let Some(digits) = point_number(expr) {
                    *expr = float_of(digits);
                }
                ControlFlow::<()>::Continue(())
            });
        }
    }
}

/// Casts untyped texts in a column of VALUES to the type of the typed values.
fn read_texts(rows: &mut [Vec<ast::Expr>], column: usize) {
    let mut typed = rows.iter().filter_map(|row| match row.get(column) {
        Some(ast::Expr::TypedString(typed)) => Some(&typed.data_type),
        Some(ast::Expr::Cast { data_type, array: false, .. }) => Some(data_type),
        _ => None,
    });
    let Some(data_type) = typed.next().cloned() else { return };
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
        let ast::Expr::Value(value) = &*cell else { continue };
        if let Value::SingleQuotedString(text) = &value.value {
            *cell = cast_of(text, data_type.clone());
        }
    }
}

/// Returns true for an expression of parameters, nulls, texts, floats and numbers that a float64 keeps.
fn need_not_be_exact(expr: &ast::Expr) -> bool {
    use ast::BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    match expr {
        ast::Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Number::parse(digits).is_ok_and(|number| !number.is_long()),
            Value::Null | Value::Placeholder(_) | Value::SingleQuotedString(_) => true,
            _ => false,
        },
        ast::Expr::TypedString(typed) => is_float(&typed.data_type),
        ast::Expr::Cast { data_type, array: false, .. } => is_float(data_type),
        ast::Expr::UnaryOp { expr, .. } | ast::Expr::Nested(expr) => need_not_be_exact(expr),
        ast::Expr::BinaryOp { left, op: Plus | Minus | Multiply | Divide | Modulo, right } => {
            need_not_be_exact(left) && need_not_be_exact(right)
        }
        _ => false,
    }
}

fn is_float(data_type: &SqlType) -> bool {
    use SqlType::{Double, DoublePrecision, Float, Float4, Float8, Float32, Float64, Real};
    matches!(data_type, Double(_) | DoublePrecision | Float(_) | Float4 | Float8 | Float32 | Float64 | Real)
}

/// Returns the digits of a number with a point or an exponent.
fn point_number(expr: &ast::Expr) -> Option<&str> {
    let ast::Expr::Value(literal) = expr else { return None };
    match &literal.value {
        Value::Number(digits, _) if digits.contains(['.', 'e', 'E']) => Some(digits),
        _ => None,
    }
}

fn float_of(digits: &str) -> ast::Expr {
    cast_of(digits, SqlType::Double(ExactNumberInfo::None))
}

fn cast_of(text: &str, data_type: SqlType) -> ast::Expr {
    let text = Value::SingleQuotedString(text.to_owned());
    ast::Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(ast::Expr::Value(text.into())),
        data_type,
        array: false,
        format: None,
    }
}

//! Derives tests from a physical predicate.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
};
use dialect::rules::float_keys;
use types::{ColumnId, TableDef};

use super::{ColumnTest, NEVER, value_of};

/// Returns tests that exactly the rows pass that the predicate accepts; `None` if it cannot be expressed as tests. `columns` are
/// those of the rows.
pub(crate) fn exact_tests(
    predicate: &Arc<dyn PhysicalExpr>,
    columns: &[ColumnId],
    def: &TableDef,
) -> Option<Vec<ColumnTest>> {
    split_conjunction(predicate).into_iter().map(|part| test(part, columns, def)).collect()
}

/// Returns tests that every row passes that the predicate accepts.
pub(crate) fn possible_tests(
    predicate: &Arc<dyn PhysicalExpr>,
    columns: &[ColumnId],
    def: &TableDef,
) -> Vec<ColumnTest> {
    let mut all = Vec::new();
    // Tests do not distinguish the two zeros.
    let Ok(predicate) = float_keys::without_keys(predicate.clone()) else { return all };
    for part in split_conjunction(&predicate) {
        super::flatten(possible(part, columns, def), &mut all);
    }
    all
}

fn possible(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId], def: &TableDef) -> ColumnTest {
    let any = expr.as_any();
    if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        let sides = || [binary.left(), binary.right()].map(|side| possible(side, columns, def)).to_vec();
        match binary.op() {
            Operator::And => return ColumnTest::And(sides()),
            Operator::Or => return ColumnTest::Or(sides()),
            _ => {}
        }
    }
    let is_false = |literal: &Literal| *literal.value() == ScalarValue::Boolean(Some(false));
    if any.downcast_ref::<Literal>().is_some_and(is_false) {
        return NEVER;
    }
    match test(expr, columns, def).or_else(|| widened(expr, columns, def)) {
        Some(ColumnTest::IsNull(id)) if def.schema.column(id).is_some_and(|column| !column.nullable) => NEVER,
        known => known.unwrap_or(ColumnTest::Unknown),
    }
}

/// Returns the test of a column that is compared as a wider type, if that type keeps the column's values distinct.
fn widened(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId], def: &TableDef) -> Option<ColumnTest> {
    let any = expr.as_any();
    if let Some(list) = any.downcast_ref::<InListExpr>().filter(|list| !list.negated()) {
        let (id, own) = wider(list.expr(), columns, def)?;
        let literals = list.list().iter().map(|item| item.as_any().downcast_ref::<Literal>());
        let literals = literals.collect::<Option<Vec<_>>>()?;
        // A value that no value of the column equals is left out.
        let values = literals.into_iter().filter_map(|literal| narrowed(literal.value(), &own));
        let values = values.map(|value| value_of(&value, id, def)).collect::<Option<_>>()?;
        return Some(ColumnTest::OneOf { column: id, values });
    }
    let binary = any.downcast_ref::<BinaryExpr>()?;
    if !matches!(binary.op(), Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
        return None;
    }
    let (id, own) = wider(binary.left(), columns, def)?;
    let value = narrowed(binary.right().as_any().downcast_ref::<Literal>()?.value(), &own)?;
    Some(ColumnTest::Compare { column: id, op: *binary.op(), value: value_of(&value, id, def)? })
}

/// Returns the column under a cast that keeps all values distinct and in order, and its own type.
fn wider(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId], def: &TableDef) -> Option<(ColumnId, Arrow)> {
    let cast = expr.as_any().downcast_ref::<CastExpr>()?;
    let id = column(cast.expr(), columns)?;
    let own = def.schema.column(id)?.data_type.to_arrow();
    let keeps = match (&own, cast.cast_type()) {
        (Arrow::Int32, Arrow::Int64 | Arrow::Float64) => true,
        (Arrow::Float32, Arrow::Float64) => true,
        (Arrow::Date32, Arrow::Timestamp(TimeUnit::Microsecond, _)) => true,
        (Arrow::Int32, Arrow::Decimal128(digits, scale)) => i16::from(*digits) - i16::from(*scale) >= 10,
        (Arrow::Int64, Arrow::Decimal128(digits, scale)) => i16::from(*digits) - i16::from(*scale) >= 19,
        (Arrow::Decimal128(digits, scale), Arrow::Decimal128(more, finer)) => {
            let whole = |digits: &u8, scale: &i8| i16::from(*digits) - i16::from(*scale);
            finer >= scale && whole(more, finer) >= whole(digits, scale)
        }
        _ => false,
    };
    keeps.then_some((id, own))
}

/// Returns the value of the column's type that the cast turns into `value`; `None` if there is none.
fn narrowed(value: &ScalarValue, own: &Arrow) -> Option<ScalarValue> {
    let narrow = value.cast_to(own).ok().filter(|narrow| !narrow.is_null())?;
    let back = narrow.cast_to(&value.data_type()).ok()?;
    // The two zeros are equal.
    (back.partial_cmp(value) == Some(Ordering::Equal) || is_zero(&back) && is_zero(value)).then_some(narrow)
}

fn is_zero(value: &ScalarValue) -> bool {
    matches!(value, ScalarValue::Float64(Some(v)) if *v == 0.0)
}

fn test(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId], def: &TableDef) -> Option<ColumnTest> {
    let any = expr.as_any();
    if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        let (id, op, literal) = match column(binary.left(), columns) {
            Some(id) => (id, *binary.op(), binary.right()),
            None => (column(binary.right(), columns)?, binary.op().swap()?, binary.left()),
        };
        if !matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
            return None;
        }
        let literal = literal.as_any().downcast_ref::<Literal>()?;
        return Some(ColumnTest::Compare { column: id, op, value: value_of(literal.value(), id, def)? });
    }
    if let Some(list) = any.downcast_ref::<InListExpr>().filter(|list| !list.negated()) {
        let id = column(list.expr(), columns)?;
        let value = |item: &Arc<dyn PhysicalExpr>| {
            value_of(item.as_any().downcast_ref::<Literal>()?.value(), id, def)
        };
        // Null equals no value.
        let is_null = |item: &&Arc<dyn PhysicalExpr>| {
            item.as_any().downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null())
        };
        let values = list.list().iter().filter(|item| !is_null(item)).map(value).collect::<Option<_>>()?;
        return Some(ColumnTest::OneOf { column: id, values });
    }
    if let Some(is_null) = any.downcast_ref::<IsNullExpr>() {
        return Some(ColumnTest::IsNull(column(is_null.arg(), columns)?));
    }
    if let Some(is_not_null) = any.downcast_ref::<IsNotNullExpr>() {
        return Some(ColumnTest::IsNotNull(column(is_not_null.arg(), columns)?));
    }
    None
}

fn column(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId]) -> Option<ColumnId> {
    columns.get(expr.as_any().downcast_ref::<Column>()?.index()).copied()
}

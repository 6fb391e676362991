//! The tests of a predicate as it will be evaluated.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
};
use types::{ColumnId, TableDef};

use super::{Test, value_of};
use crate::float_keys;

/// Tests that are passed by exactly those rows that the predicate takes; `None` if there are no such. `columns` are those of the
/// rows.
pub(crate) fn exact_tests(
    predicate: &Arc<dyn PhysicalExpr>,
    columns: &[ColumnId],
    def: &TableDef,
) -> Option<Vec<Test>> {
    split_conjunction(predicate).into_iter().map(|part| test(part, columns, def)).collect()
}

/// Tests that every row passes that the predicate takes.
pub(crate) fn possible_tests(
    predicate: &Arc<dyn PhysicalExpr>,
    columns: &[ColumnId],
    def: &TableDef,
) -> Vec<Test> {
    let mut all = Vec::new();
    // Tests do not tell one zero from the other.
    let Ok(predicate) = float_keys::without_keys(predicate.clone()) else { return all };
    for part in split_conjunction(&predicate) {
        super::flatten(possible(part, columns, def), &mut all);
    }
    all
}

fn possible(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId], def: &TableDef) -> Test {
    let any = expr.as_any();
    if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        let sides = || [binary.left(), binary.right()].map(|side| possible(side, columns, def)).to_vec();
        match binary.op() {
            Operator::And => return Test::And(sides()),
            Operator::Or => return Test::Or(sides()),
            _ => {}
        }
    }
    let is_false = |literal: &Literal| *literal.value() == ScalarValue::Boolean(Some(false));
    if any.downcast_ref::<Literal>().is_some_and(is_false) {
        return Test::Or(Vec::new());
    }
    test(expr, columns, def).unwrap_or(Test::Unknown)
}

fn test(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId], def: &TableDef) -> Option<Test> {
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
        return Some(Test::Compare { column: id, op, value: value_of(literal.value(), id, def)? });
    }
    if let Some(list) = any.downcast_ref::<InListExpr>().filter(|list| !list.negated()) {
        let id = column(list.expr(), columns)?;
        let value = |item: &Arc<dyn PhysicalExpr>| {
            value_of(item.as_any().downcast_ref::<Literal>()?.value(), id, def)
        };
        // Nothing is equal to null.
        let is_null = |item: &&Arc<dyn PhysicalExpr>| {
            item.as_any().downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null())
        };
        let values = list.list().iter().filter(|item| !is_null(item)).map(value).collect::<Option<_>>()?;
        return Some(Test::OneOf { column: id, values });
    }
    if let Some(is_null) = any.downcast_ref::<IsNullExpr>() {
        return Some(Test::IsNull(column(is_null.arg(), columns)?));
    }
    if let Some(is_not_null) = any.downcast_ref::<IsNotNullExpr>() {
        return Some(Test::IsNotNull(column(is_not_null.arg(), columns)?));
    }
    None
}

fn column(expr: &Arc<dyn PhysicalExpr>, columns: &[ColumnId]) -> Option<ColumnId> {
    columns.get(expr.as_any().downcast_ref::<Column>()?.index()).copied()
}

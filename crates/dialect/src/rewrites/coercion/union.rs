//! Finds a common type for the columns of a UNION. For decimals and floats no type holds all values of both, and for dates and
//! timestamps DataFusion's common type has nanoseconds, which do not hold all of them.

use std::sync::Arc;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Union};

use super::comparison::{as_float, is_decimal, is_float};
use super::dates;
use super::number::Number;

/// Builds a UNION. A float literal beside a decimal column becomes a decimal, and a decimal column beside a float column becomes
/// a float64.
pub(super) fn union(inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    let width = inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    let mut changed: Vec<Vec<(usize, Expr)>> = vec![Vec::new(); inputs.len()];
    for column in 0..width {
        let of = |input: &LogicalPlan| input.schema().field(column).data_type().clone();
        if let Some(time) = inputs.iter().find_map(|input| dates::timestamp_beside_date(&of(input))) {
            for (input, changed) in inputs.iter().zip(&mut changed) {
                if of(input) == Arrow::Date32 {
                    let mut date = Expr::from(input.schema().qualified_field(column));
                    dates::cast(&mut date, &time);
                    changed.push((column, date));
                }
            }
        }
        if !inputs.iter().any(|input| is_decimal(&of(input))) {
            continue;
        }
        let floats = || inputs.iter().filter(|input| is_float(&of(input)));
        let varies = floats().any(|input| literal(input, column).is_none());
        for (input, changed) in inputs.iter().zip(&mut changed) {
            if varies && is_decimal(&of(input)) {
                changed.push((column, as_float(Expr::from(input.schema().qualified_field(column)))));
            } else if !varies && let Some(value) = literal(input, column) {
                changed.push((column, Expr::Literal(value, None)));
            }
        }
    }
    let inputs = inputs.into_iter().zip(changed).map(|(input, changed)| with_columns(input, changed));
    // The schema is computed again, because the types of the inputs have changed.
    Union::try_new_with_loose_types(inputs.collect::<Result<_>>()?).map(LogicalPlan::Union)
}

/// Returns the float literal that a query selects in a column, as a decimal.
fn literal(input: &LogicalPlan, column: usize) -> Option<ScalarValue> {
    let LogicalPlan::Projection(projection) = input else { return None };
    match projection.expr.get(column)?.clone().unalias() {
        Expr::Literal(ScalarValue::Float64(Some(v)), _) => Number::of_float(v)?.to_decimal(),
        _ => None,
    }
}

fn with_columns(input: Arc<LogicalPlan>, changed: Vec<(usize, Expr)>) -> Result<Arc<LogicalPlan>> {
    if changed.is_empty() {
        return Ok(input);
    }
    let schema = input.schema().clone();
    let mut columns: Vec<Expr> = schema.iter().map(Expr::from).collect();
    for (column, expr) in changed {
        columns[column] = expr.alias(schema.field(column).name());
    }
    Ok(Arc::new(LogicalPlanBuilder::from(input).project(columns)?.build()?))
}

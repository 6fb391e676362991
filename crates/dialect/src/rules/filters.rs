//! Checks that the condition of an aggregate's FILTER is a condition: DataFusion coerces it to nothing and takes any
//! column for booleans when it runs, which ends the statement as a bug.

use arrow::datatypes::DataType as Arrow;
use datafusion::common::{DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, ExprSchemable};

/// Fails where `expr` is an aggregate whose FILTER is not of type boolean.
pub fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let filter = match expr {
        Expr::AggregateFunction(function) => function.params.filter.as_deref(),
        Expr::WindowFunction(function) => function.params.filter.as_deref(),
        _ => None,
    };
    let Some(filter) = filter else { return Ok(()) };
    match filter.get_type(schema)? {
        Arrow::Boolean | Arrow::Null => Ok(()),
        other => Err(DataFusionError::Plan(format!(
            "FILTER (WHERE …) takes a condition, and `{filter}` is of type {other}; compare it with something"
        ))),
    }
}

//! Checks that the FILTER of an aggregate is a condition, as PostgreSQL does. DataFusion does not check or coerce its type: it
//! assumes a boolean column at run time, and the statement fails with an internal error.

use arrow::datatypes::DataType as Arrow;
use datafusion::common::{DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, ExprSchemable};

/// Fails if `expr` is an aggregate whose FILTER is not a boolean.
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

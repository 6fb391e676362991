//! Checks the deadline at every operator while DataFusion plans a statement's syntax tree. Planning takes time quadratic in the
//! depth of the tree and of nested queries.

use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};

/// A planner extension that comes before all others and leaves all planning to them.
#[derive(Debug)]
pub struct DeadlinePlanner;

impl ExprPlanner for DeadlinePlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, _: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        super::check_statement()?;
        Ok(PlannerResult::Original(expr))
    }
}

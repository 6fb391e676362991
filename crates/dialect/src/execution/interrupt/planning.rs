//! Looks at the deadline while DataFusion makes a plan of a statement's tree, which takes the square of its depth and of the queries
//! above one another: at every operator.

use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};

/// Comes before all other planners, and leaves everything to them.
#[derive(Debug)]
pub struct DeadlinePlanner;

impl ExprPlanner for DeadlinePlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, _: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        super::check_statement()?;
        Ok(PlannerResult::Original(expr))
    }
}

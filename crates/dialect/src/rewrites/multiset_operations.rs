//! INTERSECT ALL and EXCEPT ALL count duplicates: for a row that occurs m times on the left and n times on the right they return
//! min(m, n) copies, and max(m - n, 0) copies.
//!
//! DataFusion returns every left row that has an equal row on the right, or every one that has none. Here equal rows of each side
//! are numbered, and the join also compares the numbers.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder};

const LEFT: &str = "polynya left number";
const RIGHT: &str = "polynya right number";

/// Rewrites a plan as the SQL planner made it, in which only these operators join nulls. Without ALL their left side is a
/// DISTINCT. With ALL it is not, unless the query itself says DISTINCT; then it has no duplicates to count.
pub fn count_duplicates(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) if is_multiset_join(&join) => {
            let columns = columns(&join.left);
            let join = Join {
                left: Arc::new(numbered(&join.left, LEFT)?),
                right: Arc::new(numbered(&join.right, RIGHT)?),
                on: join.on.into_iter().chain([(column(LEFT), column(RIGHT))]).collect(),
                ..join
            };
            let joined = LogicalPlan::Join(join).recompute_schema()?;
            LogicalPlanBuilder::from(joined).project(columns)?.build().map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(counted.data)
}

fn is_multiset_join(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(*join.left, LogicalPlan::Distinct(_))
}

/// Adds a column to a plan: the number of a row among the rows equal to it.
fn numbered(plan: &LogicalPlan, name: &str) -> Result<LogicalPlan> {
    let columns = columns(plan);
    let number = row_number().partition_by(columns.clone()).build()?;
    let numbered = LogicalPlanBuilder::from(plan.clone()).window([number])?;
    let (qualifier, field) = numbered.schema().qualified_field(columns.len());
    let number = Expr::Column(Column::from((qualifier, field))).alias(name);
    numbered.project(columns.into_iter().chain([number]))?.build()
}

fn columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().iter().map(|field| Expr::Column(Column::from(field))).collect()
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

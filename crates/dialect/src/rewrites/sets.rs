//! INTERSECT ALL and EXCEPT ALL count: of a row that stands m times on the left and n times on the right they give
//! min(m, n), and m - n if that is more than none.
//!
//! DataFusion gives every left row that has, or has not, an equal one on the right. Here the rows of each side that are equal
//! are numbered, and the numbers have to be equal as well.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder};

const LEFT: &str = "polynya left number";
const RIGHT: &str = "polynya right number";

/// A plan as SQL was planned, where only these operators join nulls. Their left side is DISTINCT without ALL; if it is that with
/// ALL, no row stands there twice, and either way there is nothing to count.
pub fn counted(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) if counts(&join) => {
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

fn counts(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(*join.left, LogicalPlan::Distinct(_))
}

/// A plan with one more column: the number of a row among its equals.
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

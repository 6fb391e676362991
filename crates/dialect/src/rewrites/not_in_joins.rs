//! NOT IN works for a query with more rows than fit in memory.
//!
//! DataFusion has one join that handles nulls, and it holds a whole side in memory. Here it is split into three joins that can
//! sort and spill: no row of the query is equal to the value, none of them is null, and if the value itself is null, the query
//! has no rows at all. The second and the third join read only one row of the query.

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

/// Replaces such joins in an optimized plan, if they have a single key and no other condition.
pub fn split(plan: LogicalPlan) -> Result<LogicalPlan> {
    let stepped = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) if is_plain(&join) => steps(join).map(Transformed::yes),
        other => Ok(Transformed::no(other)),
    });
    stepped.data()
}

fn is_plain(join: &Join) -> bool {
    join.null_aware && join.join_type == JoinType::LeftAnti && join.filter.is_none() && join.on.len() == 1
}

fn steps(join: Join) -> Result<LogicalPlan> {
    let Some((value, met)) = join.on.first().cloned() else { return Ok(LogicalPlan::Join(join)) };
    let query = join.right.clone();
    let one = |null_only: bool| -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::new_from_arc(query.clone());
        let rows = if null_only { rows.filter(met.clone().is_null())? } else { rows };
        rows.limit(0, Some(1))?.build()
    };
    // A join reads its left side first, and here that side has one row.
    let without = |rows: LogicalPlan, others: LogicalPlan, on: Option<Expr>| -> Result<LogicalPlan> {
        LogicalPlanBuilder::from(others).join_on(rows, JoinType::RightAnti, on)?.build()
    };
    let unequal = LogicalPlan::Join(Join { null_aware: false, ..join });
    let known = without(unequal, one(true)?, None)?;
    without(known, one(false)?, Some(value.is_null()))
}

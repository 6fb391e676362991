//! NOT IN of more rows than memory holds.
//!
//! DataFusion has one join that looks at nulls, which holds a whole side in memory. Said in three steps it sorts as others do: no
//! row of the query is equal, none of them is null, and where the value itself is null, the query has no rows at all. The second
//! and third each read one row of the query that matters.

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

/// An optimized plan without such joins, as far as it can do without them.
pub fn in_steps(plan: LogicalPlan) -> Result<LogicalPlan> {
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
    // The side that is read first is that of one row.
    let without = |rows: LogicalPlan, others: LogicalPlan, on: Option<Expr>| -> Result<LogicalPlan> {
        LogicalPlanBuilder::from(others).join_on(rows, JoinType::RightAnti, on)?.build()
    };
    let unequal = LogicalPlan::Join(Join { null_aware: false, ..join });
    let known = without(unequal, one(true)?, None)?;
    without(known, one(false)?, Some(value.is_null()))
}

//! Two aggregates that differ only in a cast are two columns, as in PostgreSQL: `SELECT max(id), max(id::text)`.
//!
//! DataFusion leaves casts out of column names, so both of them were `max(t.id)`, and it refuses a plan with two columns of one
//! name. This planner extension gives an argument that contains a cast an alias that spells the cast out.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr, RawWindowExpr};
use types::Error;

#[derive(Debug)]
pub struct CastNamePlanner;

impl ExprPlanner for CastNamePlanner {
    fn plan_aggregate(&self, mut raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        refuse_several_arguments(raw.func.name(), &raw.args)?;
        // GROUPING looks its arguments up in GROUP BY, and a call with ORDER BY looks them up there: an alias would hide them.
        if raw.func.name() != "grouping" && raw.order_by.is_empty() {
            raw.args = with_cast_names(raw.args)?;
        }
        Ok(PlannerResult::Original(raw))
    }

    fn plan_window(&self, mut raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        refuse_several_arguments(raw.func_def.name(), &raw.args)?;
        raw.args = with_cast_names(raw.args)?;
        Ok(PlannerResult::Original(raw))
    }
}

/// Refuses `count(a, b)`, which DataFusion accepts and SQL does not have.
fn refuse_several_arguments(name: &str, args: &[Expr]) -> Result<()> {
    if name != "count" || args.len() < 2 {
        return Ok(());
    }
    let hint = "write `count(DISTINCT (a, b))`, or `count(*) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL)`";
    let error = Error::invalid(format!("`count` takes 1 argument, {} were given", args.len())).hint(hint);
    Err(DataFusionError::External(Box::new(error)))
}

fn with_cast_names(args: Vec<Expr>) -> Result<Vec<Expr>> {
    let with_name = |arg: Expr| {
        let has_cast = arg.exists(|part| Ok(matches!(part, Expr::Cast(_) | Expr::TryCast(_))))?;
        let name = has_cast.then(|| arg.to_string());
        Ok(match name {
            Some(name) => arg.alias(name),
            None => arg,
        })
    };
    args.into_iter().map(with_name).collect()
}

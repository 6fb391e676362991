//! Aggregates that differ only in a cast have names of their own.
//!
//! DataFusion leaves casts out of the names of columns: `max(id)` and `max(id::text)` were two columns `max(t.id)`, which no plan
//! may have. So a cast in an argument is named as it is written.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr, RawWindowExpr};
use types::Error;

#[derive(Debug)]
pub struct NamedCasts;

impl ExprPlanner for NamedCasts {
    fn plan_aggregate(&self, mut raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        refuse_several(raw.func.name(), &raw.args)?;
        // These arguments are looked for in GROUP BY, and in ORDER BY of the call.
        if raw.func.name() != "grouping" && raw.order_by.is_empty() {
            raw.args = named(raw.args)?;
        }
        Ok(PlannerResult::Original(raw))
    }

    fn plan_window(&self, mut raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        refuse_several(raw.func_def.name(), &raw.args)?;
        raw.args = named(raw.args)?;
        Ok(PlannerResult::Original(raw))
    }
}

/// `count(a, b)`, which DataFusion has and SQL has not.
fn refuse_several(name: &str, args: &[Expr]) -> Result<()> {
    if name != "count" || args.len() < 2 {
        return Ok(());
    }
    let hint = "write `count(DISTINCT (a, b))`, or `count(*) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL)`";
    let error = Error::invalid(format!("`count` takes 1 argument, {} were given", args.len())).hint(hint);
    Err(DataFusionError::External(Box::new(error)))
}

fn named(args: Vec<Expr>) -> Result<Vec<Expr>> {
    let named = |arg: Expr| {
        let has_cast = arg.exists(|part| Ok(matches!(part, Expr::Cast(_) | Expr::TryCast(_))))?;
        let name = has_cast.then(|| arg.to_string());
        Ok(match name {
            Some(name) => arg.alias(name),
            None => arg,
        })
    };
    args.into_iter().map(named).collect()
}

//! DISTINCT as the grouping that it is.
//!
//! DataFusion leaves DISTINCT out where the columns hold a key of a table. Behind a join that is wrong: a row of the table comes
//! once for each row that it meets. This rule stands before DataFusion's and leaves nothing out.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

#[derive(Debug)]
pub(crate) struct DistinctIsGrouping;

impl OptimizerRule for DistinctIsGrouping {
    fn name(&self) -> &str {
        "distinct_is_grouping"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Distinct(Distinct::All(input)) = plan else { return Ok(Transformed::no(plan)) };
        let columns: Vec<Expr> =
            input.schema().iter().map(|field| Expr::Column(Column::from(field))).collect();
        if columns.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
        }
        Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(input, columns, Vec::new())?)))
    }
}

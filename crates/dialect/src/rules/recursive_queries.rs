//! Recursive queries keep all their columns.
//!
//! DataFusion 53 removes unused columns from both parts of a recursive query, as it does elsewhere. But the recursive part reads
//! the rows of the previous iteration by position, and UNION compares whole rows, including unused columns. So such a query
//! fails, or loses rows. Here DataFusion's rule sees a recursive query as a node of unknown kind, and runs over each of its parts
//! as over a separate query, all of whose columns are needed.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, RecursiveQuery, UserDefinedLogicalNodeCore};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Replaces DataFusion's rule that removes unused columns.
pub fn keep_columns(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    let rule = rules.iter_mut().find(|rule| rule.name() == "optimize_projections");
    let rule = rule.expect("DataFusion has this rule");
    *rule = Arc::new(KeepRecursiveColumns(rule.clone()));
}

#[derive(Debug)]
struct KeepRecursiveColumns(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepRecursiveColumns {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let hidden = plan.transform_down_with_subqueries(|plan| match plan {
            LogicalPlan::RecursiveQuery(query) => {
                let whole = self.parts(query, config)?;
                let node = Arc::new(HiddenPlan { plan: LogicalPlan::RecursiveQuery(whole) });
                let plan = LogicalPlan::Extension(Extension { node });
                Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })?;
        if !hidden.transformed {
            return self.0.rewrite(hidden.data, config);
        }
        self.0.rewrite(hidden.data, config)?.transform_data(|plan| {
            plan.transform_down_with_subqueries(|plan| match &plan {
                LogicalPlan::Extension(extension) => {
                    match extension.node.as_any().downcast_ref::<HiddenPlan>() {
                        Some(hidden) => {
                            Ok(Transformed::new(hidden.plan.clone(), true, TreeNodeRecursion::Jump))
                        }
                        None => Ok(Transformed::no(plan)),
                    }
                }
                _ => Ok(Transformed::no(plan)),
            })
        })
    }
}

impl KeepRecursiveColumns {
    fn parts(&self, query: RecursiveQuery, config: &dyn OptimizerConfig) -> Result<RecursiveQuery> {
        let part = |plan: Arc<LogicalPlan>| -> Result<Arc<LogicalPlan>> {
            Ok(Arc::new(self.rewrite(Arc::unwrap_or_clone(plan), config)?.data))
        };
        Ok(RecursiveQuery {
            static_term: part(query.static_term)?,
            recursive_term: part(query.recursive_term)?,
            ..query
        })
    }
}

/// A plan that shows only its columns to other rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Hash)]
struct HiddenPlan {
    plan: LogicalPlan,
}

impl UserDefinedLogicalNodeCore for HiddenPlan {
    fn name(&self) -> &str {
        "Hidden"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        self.plan.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }
}

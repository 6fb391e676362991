//! Keeps DataFusion's physical filter pushdown from moving a condition to another column of the same name.
//!
//! DataFusion's rules follow a column by its name. Two columns of a node may have the same name: both sides of a join have an `id`,
//! and the sides were swapped, or the join is below another one. Then a condition on one column moves to the other, and rows go
//! missing. The same happens if a name means another column below: in a UNION whose queries name their columns differently, or in
//! a semi join whose other side has a column named like the key. In these places a `PushdownFence` node is inserted while the
//! rule runs, which no condition passes.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Names of DataFusion's two rules: one runs before the distribution of rows is planned, the other one after.
const RULES: [&str; 2] = ["FilterPushdown", "FilterPushdown(Post)"];

/// Wraps these rules.
pub fn add_fences(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| RULES.contains(&rule.name())) {
        *rule = Arc::new(FencedRule { rule: rule.clone() });
    }
}

/// A pushdown rule that runs over a plan with fences.
#[derive(Debug)]
struct FencedRule {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for FencedRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !needs_fence(&plan, false) {
            return self.rule.optimize(plan, config);
        }
        let fenced = plan.transform_up(|plan| {
            if !plan.children().into_iter().any(|child| goes_astray(&plan, child)) {
                return Ok(Transformed::no(plan));
            }
            let fence = |child: &Arc<dyn ExecutionPlan>| match goes_astray(&plan, child) {
                true => Arc::new(PushdownFence { inner: child.clone() }),
                false => child.clone(),
            };
            let children = plan.children().into_iter().map(fence).collect();
            plan.with_new_children(children).map(Transformed::yes)
        });
        let pushed = self.rule.optimize(fenced.data()?, config)?;
        let bare = pushed.transform_up(|plan| {
            Ok(match plan.as_any().downcast_ref::<PushdownFence>() {
                Some(fence) => Transformed::yes(fence.inner.clone()),
                None => Transformed::no(plan),
            })
        });
        bare.data()
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// Returns true if a condition could move to a wrong column somewhere in the plan; `above` tells if there is a condition above
/// it.
fn needs_fence(plan: &Arc<dyn ExecutionPlan>, above: bool) -> bool {
    let above = above || has_condition(plan);
    plan.children().into_iter().any(|child| above && goes_astray(plan, child) || needs_fence(child, above))
}

fn has_condition(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let any = plan.as_any();
    // A sort with a limit, and an aggregate without keys, filter their input by the values found so far.
    any.is::<FilterExec>()
        || any.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_some())
        || any
            .downcast_ref::<AggregateExec>()
            .is_some_and(|aggregate| aggregate.group_expr().expr().is_empty())
}

/// Returns true if a condition that comes from `plan` may move to another column in or below its child.
fn goes_astray(plan: &Arc<dyn ExecutionPlan>, child: &Arc<dyn ExecutionPlan>) -> bool {
    !passes_rightly(child) || !names_rightly(plan, &child.schema())
}

/// Returns true if the columns of a node have the same names as the columns of its inputs at the same positions.
fn passes_rightly(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let any = plan.as_any();
    let schema = plan.schema();
    if any.is::<ProjectionExec>() {
        return has_unique_names(&schema);
    }
    if !plan.children().into_iter().all(|child| has_unique_names(&child.schema())) {
        return false;
    }
    if any.is::<UnionExec>() {
        let names =
            |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        return plan.children().into_iter().all(|child| names(&child.schema()) == names(&schema));
    }
    if let Some(join) = any.downcast_ref::<HashJoinExec>() {
        return finds_keys(join);
    }
    if let Some(aggregate) = any.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr().expr();
        let is_plain = |(expr, name): &(Arc<dyn PhysicalExpr>, String)| {
            expr.as_any().downcast_ref::<Column>().is_some_and(|column| column.name() == name)
        };
        return !groups.is_empty() && groups.iter().all(is_plain);
    }
    true
}

/// Returns true if the name of each join key is unambiguous: a condition on the key of one side of a semi join also moves to the
/// other side, by that name.
fn finds_keys(join: &HashJoinExec) -> bool {
    let (on_left, other) = match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti => (true, join.right().schema()),
        JoinType::RightSemi | JoinType::RightAnti => (false, join.left().schema()),
        _ => return true,
    };
    join.on().iter().all(|(left, right)| {
        let (key, met) = if on_left { (left, right) } else { (right, left) };
        let Some(key) = key.as_any().downcast_ref::<Column>() else { return true };
        let met = met.as_any().downcast_ref::<Column>().map(Column::index);
        other.index_of(key.name()).is_ok_and(|at| Some(at) == met) || other.index_of(key.name()).is_err()
    })
}

/// Returns true if the columns in a node's own conditions have the same names as in its input.
fn names_rightly(plan: &Arc<dyn ExecutionPlan>, input: &Schema) -> bool {
    let is_named = |expr: &Arc<dyn PhysicalExpr>| {
        let is_named =
            |column: &Column| input.fields().get(column.index()).is_some_and(|f| f.name() == column.name());
        collect_columns(expr).iter().all(is_named)
    };
    let any = plan.as_any();
    if let Some(filter) = any.downcast_ref::<FilterExec>() {
        return is_named(filter.predicate());
    }
    if let Some(sort) = any.downcast_ref::<SortExec>() {
        return sort.expr().iter().all(|by| is_named(&by.expr));
    }
    if let Some(aggregate) = any.downcast_ref::<AggregateExec>() {
        return aggregate.aggr_expr().iter().all(|figure| figure.expressions().iter().all(is_named));
    }
    true
}

fn has_unique_names(schema: &Schema) -> bool {
    let mut names = HashSet::with_capacity(schema.fields().len());
    schema.fields().iter().all(|field| names.insert(field.name()))
}

/// A node that lets no condition through, because it keeps the defaults of [`ExecutionPlan`], which refuse all.
#[derive(Debug)]
struct PushdownFence {
    inner: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for PushdownFence {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fence")
    }
}

impl ExecutionPlan for PushdownFence {
    fn name(&self) -> &str {
        "Fence"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = children.pop().ok_or_else(|| DataFusionError::Internal("one child expected".into()))?;
        Ok(Arc::new(PushdownFence { inner }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.inner.execute(partition, context)
    }
}

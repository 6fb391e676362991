//! EXISTS and IN within a larger condition leave no marks behind.
//!
//! DataFusion joins the rows to those of the subquery by a mark join, which adds a column that marks the rows with a match; the
//! condition reads the marks. The mark columns stay in the rows above the condition, although nothing reads them any more. A
//! window function above finds more columns than it was planned for, and fails. Here a projection removes the marks above the
//! condition.
//!
//! Marks are distinguished by the name of their subquery. For a subquery without any rows DataFusion loses that name, and its
//! mark is confused with others. Here such a mark is replaced by its value, false.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, Projection, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

const RULE: &str = "decorrelate_predicate_subquery";

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// Wraps the rule that makes marks, so that they are removed, and adds a rule about empty subqueries after the one that finds
/// them.
pub fn remove_marks(rules: &mut Vec<Rule>) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == RULE) {
        *rule = Arc::new(RemoveMarks { rule: rule.clone() });
    }
    let at = rules.iter().position(|rule| rule.name() == "propagate_empty_relation");
    rules.insert(at.map_or(rules.len(), |at| at + 1), Arc::new(EmptyMarkJoin));
}

/// The rule that replaces the mark of an empty subquery by false.
#[derive(Debug)]
struct EmptyMarkJoin;

impl OptimizerRule for EmptyMarkJoin {
    fn name(&self) -> &str {
        "marks_of_nothing"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        let is_empty = |plan: &LogicalPlan| {
            matches!(plan, LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, .. }))
        };
        if join.join_type != JoinType::LeftMark || !is_empty(&join.right) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let mut columns: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
        let (query, mark) = join.schema.qualified_field(columns.len());
        columns.push(lit(false).alias_qualified(query.cloned(), mark.name()));
        let marked = Projection::try_new_with_schema(columns, join.left, join.schema.clone())?;
        Ok(Transformed::yes(LogicalPlan::Projection(marked)))
    }
}

/// DataFusion's rule that makes marks, followed by the removal of the marks.
#[derive(Debug)]
struct RemoveMarks {
    rule: Rule,
}

impl OptimizerRule for RemoveMarks {
    fn name(&self) -> &str {
        RULE
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // Subqueries come first: DataFusion's rule would rewrite them by itself and leave their marks.
        let plan = plan.map_subqueries(|query| query.transform_down(|plan| self.rewrite(plan, config)))?;
        let LogicalPlan::Filter(filter) = &plan.data else { return Ok(plan) };
        let columns = filter.input.schema().columns();
        let joined = self.rule.rewrite(plan.data, config)?;
        if joined.data.schema().fields().len() == columns.len() {
            return Ok(joined);
        }
        let columns = columns.into_iter().map(Expr::Column).collect();
        let ended = Projection::try_new(columns, Arc::new(joined.data))?;
        Ok(Transformed::yes(LogicalPlan::Projection(ended)))
    }
}

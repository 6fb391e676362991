//! What making a plan may take: time, and how large its expressions may become.
//!
//! The optimizer moves conditions below the expressions that they read, and writes those out: of
//! `SELECT x + x AS x FROM (SELECT x + x AS x FROM …) WHERE x > 1` each level doubles what the condition above it says, so a text of a
//! kilobyte became gigabytes. No text tells how often that happens. So every rule of the planner is asked within a [`Budgeted`] rule,
//! which looks at the statement's deadline and at the size of what goes in and comes out, at each node that the rule is given.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use types::{Error, Kind};

use crate::{interrupt, type_text};

/// What the expressions of a node may weigh, and those of a whole plan where a rule is given all of it: about 16 MiB, which is a second
/// of the slowest rules. The longest text of literals stays below.
const WEIGHT_MAX: usize = 1 << 19;
/// How deep an expression may become where the expressions of queries above one another are written out in one. SQL's threads
/// have stacks for a multiple of it.
const DEPTH_MAX: usize = 5_000;
/// Columns that rows are grouped by: each is reckoned for a whole batch before any of them is stored. As many as PostgreSQL takes.
const GROUPED_MAX: usize = 1_664;
/// A literal weighs 1: it stands in the text, and is moved along with others seldom.
const WEIGHT: usize = 8;

/// Puts every rule of the optimizer within its budget.
pub(crate) fn of_rules(
    optimizer: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    physical: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) {
    for rule in optimizer {
        *rule = Arc::new(Budgeted(rule.clone()));
    }
    for rule in physical {
        *rule = Arc::new(Budgeted(rule.clone()));
    }
}

/// The rules of the analyzer within their budget.
pub(crate) fn of_analyzer(
    rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let budgeted = |rule: Arc<dyn AnalyzerRule + Send + Sync>| {
        Arc::new(Budgeted(rule)) as Arc<dyn AnalyzerRule + Send + Sync>
    };
    rules.into_iter().map(budgeted).collect()
}

/// Fails where the statement is to end, or a plan has become too large.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    interrupt::check_statement()?;
    let mut whole = Whole { left: WEIGHT_MAX, deep: 0, depths: Vec::new() };
    plan.visit_with_subqueries(&mut whole).map(drop)
}

/// A plan that is no more than that.
pub(crate) fn kept(plan: LogicalPlan) -> Result<LogicalPlan> {
    check(&plan)?;
    Ok(plan)
}

/// The same of one node.
fn check_node(plan: &LogicalPlan) -> Result<()> {
    interrupt::check_statement()?;
    weigh(plan, &mut WEIGHT_MAX.clone()).map(drop)
}

/// Goes over a plan: what its expressions weigh, and how deep one becomes where those of all nodes above one another are written out.
struct Whole {
    left: usize,
    deep: usize,
    depths: Vec<usize>,
}

impl<'n> TreeNodeVisitor<'n> for Whole {
    type Node = LogicalPlan;

    fn f_down(&mut self, plan: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        let depth = weigh(plan, &mut self.left)?;
        plan.schema().fields().iter().try_for_each(|field| type_text::check_depth(field.data_type()))?;
        self.depths.push(depth);
        self.deep += depth;
        if self.deep > DEPTH_MAX {
            return Err(too_deep());
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, _: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        self.deep -= self.depths.pop().unwrap_or_default();
        Ok(TreeNodeRecursion::Continue)
    }
}

/// Takes what a node's expressions weigh from what is left, and says how deep the deepest is.
fn weigh(plan: &LogicalPlan, left: &mut usize) -> Result<usize> {
    if let LogicalPlan::Aggregate(aggregate) = plan
        && aggregate.group_expr.len() > GROUPED_MAX
    {
        let grouped = aggregate.group_expr.len();
        let error = Error::new(
            Kind::TooLarge,
            format!("GROUP BY or DISTINCT over {grouped} columns; {GROUPED_MAX} are the most"),
        );
        return Err(DataFusionError::External(Box::new(
            error.hint("group by a key, and join the rest to it"),
        )));
    }
    let mut expressions = Expressions { left: *left, depth: 0, deepest: 0 };
    plan.apply_expressions(|expr| expr.visit(&mut expressions))?;
    *left = expressions.left;
    Ok(expressions.deepest)
}

struct Expressions {
    left: usize,
    depth: usize,
    deepest: usize,
}

impl<'n> TreeNodeVisitor<'n> for Expressions {
    type Node = Expr;

    fn f_down(&mut self, expr: &'n Expr) -> Result<TreeNodeRecursion> {
        // `-1` is two of them.
        let weight = if matches!(expr, Expr::Literal(..) | Expr::Negative(_)) { 1 } else { WEIGHT };
        self.left = self.left.checked_sub(weight).ok_or_else(too_large)?;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        if self.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, _: &'n Expr) -> Result<TreeNodeRecursion> {
        self.depth -= 1;
        Ok(TreeNodeRecursion::Continue)
    }
}

/// What the literals of a plan take.
pub(crate) fn literal_bytes(plan: &LogicalPlan) -> Result<usize> {
    let mut bytes = 0;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Literal(value, _) = expr {
                    bytes += value.size();
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(bytes)
}

fn too_deep() -> DataFusionError {
    let message = format!("expressions over expressions of queries below become more than {DEPTH_MAX} deep");
    let error = Error::new(Kind::TooLarge, message)
        .hint("keep what a query below computes in a table: CREATE TABLE … AS");
    DataFusionError::External(Box::new(error))
}

fn too_large() -> DataFusionError {
    let message = "the plan becomes too large: conditions are written out down to the tables, through every expression that they read";
    let error = Error::new(Kind::TooLarge, message)
        .hint("keep what a query below computes in a table (CREATE TABLE … AS), or ask for it fewer times");
    DataFusionError::External(Box::new(error))
}

#[derive(Debug)]
struct Budgeted<T: ?Sized>(Arc<T>);

impl OptimizerRule for Budgeted<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // A rule without an order goes over the plan by itself.
        let check = if self.apply_order().is_some() { check_node } else { check };
        check(&plan)?;
        let rewritten = self.0.rewrite(plan, config)?;
        if rewritten.transformed {
            check(&rewritten.data)?;
        }
        Ok(rewritten)
    }
}

impl AnalyzerRule for Budgeted<dyn AnalyzerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check(&plan)?;
        self.0.analyze(plan, config)
    }
}

impl PhysicalOptimizerRule for Budgeted<dyn PhysicalOptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        interrupt::check_statement()?;
        self.0.optimize(plan, config)
    }
}

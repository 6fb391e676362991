//! Bounds the time that planning takes, and the size of the expressions in a plan.
//!
//! DataFusion's optimizer has no such bounds. It moves conditions below the expressions that they read, and substitutes those: in
//! `SELECT x + x AS x FROM (SELECT x + x AS x FROM …) WHERE x > 1` each level doubles the condition, so that a text of a kilobyte
//! became gigabytes. The text does not show how often that happens. So every rule of the planner is wrapped in a `BudgetedRule`
//! rule, which checks the statement's deadline and the size of its input and output, for each node that the rule is called with.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::{
    self, Function, OrderByKind, Query, SetExpr, Statement, Visit, Visitor, WindowType,
};
use types::{Error, Kind};

use crate::execution::interrupt;
use crate::values::type_depth;

/// Weight of the expressions of one node, or of a whole plan if a rule gets the whole plan: about 16 MiB, which takes the slowest
/// rules a second. The longest text of literals stays below it.
const WEIGHT_MAX: usize = 1 << 19;
/// Depth of an expression after the expressions of nested queries were substituted. SQL's threads have stacks for a multiple of
/// it.
const DEPTH_MAX: usize = 5_000;
/// Number of columns to group by, which are all computed for a whole batch before any is stored. PostgreSQL has the same limit.
const GROUPED_MAX: usize = 1_664;
/// Number of columns of all grouping sets together, which are the same arrays with nulls: CUBE of nine columns has as many.
const SETS_COLUMNS_MAX: usize = 4_608;
/// Number of expressions to sort by, in ORDER BY or in one window.
const SORTED_MAX: usize = 256;
/// Number of window functions.
const WINDOWS_MAX: usize = 256;
/// Number of columns of a SELECT or VALUES. PostgreSQL has the same limit.
const COLUMNS_MAX: usize = 1_664;
/// Number of aggregates of one query.
const AGGREGATES_MAX: usize = 1_000;
/// Description of a window's expressions, which [`SORTED_MAX`] limits.
const WINDOW_WIDTH: &str = "expressions in PARTITION BY or ORDER BY of a window";
/// Number of joins that are nested in one another.
const JOINS_MAX: usize = 128;
/// Weight of an expression. A literal weighs 1, because it comes from the text and is seldom copied.
const WEIGHT: usize = 8;

/// Wraps every rule of the logical and the physical optimizer.
pub fn wrap_rules(
    optimizer: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    physical: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) {
    for rule in optimizer {
        *rule = Arc::new(BudgetedRule(rule.clone()));
    }
    for rule in physical {
        *rule = Arc::new(BudgetedRule(rule.clone()));
    }
}

/// Wraps every rule of the analyzer.
pub fn wrap_analyzer(
    rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let budgeted = |rule: Arc<dyn AnalyzerRule + Send + Sync>| {
        Arc::new(BudgetedRule(rule)) as Arc<dyn AnalyzerRule + Send + Sync>
    };
    rules.into_iter().map(budgeted).collect()
}

/// Fails if a SELECT is wider than its plan may be (`check_width`), because making the plan takes time quadratic in the width
/// too. `is_aggregate` tells if a name is that of an aggregate.
pub fn check_statement(statement: &Statement, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    struct Queries<'a>(&'a dyn Fn(&str) -> bool);
    impl Visitor for Queries<'_> {
        type Break = DataFusionError;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<DataFusionError> {
            check_query(query, self.0).map_or_else(ControlFlow::Break, ControlFlow::Continue)
        }
    }
    into_result(statement.visit(&mut Queries(is_aggregate)))
}

fn check_query(query: &Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    if let Some(OrderByKind::Expressions(sorted)) = query.order_by.as_ref().map(|order| &order.kind) {
        check_count("expressions in ORDER BY", sorted.len(), SORTED_MAX)?;
    }
    let mut bodies = vec![&*query.body];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => bodies.extend([&**left, &**right]),
            SetExpr::Select(select) => {
                let joins = select.from.iter().map(|table| table.joins.len());
                check_count("joins", joins.max().unwrap_or_default(), JOINS_MAX)?;
                check_count("columns in SELECT", select.projection.len(), COLUMNS_MAX)?;
                into_result(select.visit(&mut CallCounter { is_aggregate, aggregates: 0, windows: 0 }))?;
            }
            SetExpr::Values(values) => {
                let columns = values.rows.iter().map(Vec::len).max().unwrap_or_default();
                check_count("columns in VALUES", columns, COLUMNS_MAX)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Counts the aggregates and the window functions of a SELECT.
struct CallCounter<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
    aggregates: usize,
    windows: usize,
}

impl Visitor for CallCounter<'_> {
    type Break = DataFusionError;

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<DataFusionError> {
        let ast::Expr::Function(Function { name, over, .. }) = expr else {
            return ControlFlow::Continue(());
        };
        let Some(over) = over else {
            let name = name.to_string().to_lowercase();
            self.aggregates += usize::from((self.is_aggregate)(&name));
            return check_count("aggregates", self.aggregates, AGGREGATES_MAX)
                .map_or_else(ControlFlow::Break, ControlFlow::Continue);
        };
        self.windows += 1;
        let width = match over {
            WindowType::WindowSpec(spec) => spec.partition_by.len().max(spec.order_by.len()),
            WindowType::NamedWindow(_) => 0,
        };
        check_count("window functions", self.windows, WINDOWS_MAX)
            .and_then(|()| check_count(WINDOW_WIDTH, width, SORTED_MAX))
            .map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

fn into_result(visited: ControlFlow<DataFusionError>) -> Result<()> {
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Fails if the statement should end, or if a plan has become too large.
pub fn check(plan: &LogicalPlan) -> Result<()> {
    interrupt::check_statement()?;
    let mut visitor = PlanVisitor { left: WEIGHT_MAX, deep: 0, depths: Vec::new(), joins: 0, windows: 0 };
    plan.visit_with_subqueries(&mut visitor).map(drop)
}

/// Returns a plan that is within the budget, else fails.
pub fn within_budget(plan: LogicalPlan) -> Result<LogicalPlan> {
    check(&plan)?;
    Ok(plan)
}

/// Fails if the statement should end, or if one node has become too large.
fn check_node(plan: &LogicalPlan) -> Result<()> {
    interrupt::check_statement()?;
    weigh(plan, &mut WEIGHT_MAX.clone()).map(drop)
}

/// A traversal that sums the weight of a plan's expressions, and the depth that an expression reaches if those of all nodes above
/// one another are substituted.
struct PlanVisitor {
    left: usize,
    deep: usize,
    depths: Vec<usize>,
    /// The number of joins from the current node up to the top, and of window functions.
    joins: usize,
    windows: usize,
}

impl<'n> TreeNodeVisitor<'n> for PlanVisitor {
    type Node = LogicalPlan;

    fn f_down(&mut self, plan: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        let depth = weigh(plan, &mut self.left)?;
        self.joins += joins(plan);
        self.windows += windows(plan);
        check_count("joins", self.joins, JOINS_MAX)?;
        check_count("window functions", self.windows, WINDOWS_MAX)?;
        plan.schema().fields().iter().try_for_each(|field| type_depth::check_depth(field.data_type()))?;
        self.depths.push(depth);
        self.deep += depth;
        if self.deep > DEPTH_MAX {
            return Err(too_deep());
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, plan: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        self.joins -= joins(plan);
        self.windows -= windows(plan);
        self.deep -= self.depths.pop().unwrap_or_default();
        Ok(TreeNodeRecursion::Continue)
    }
}

fn joins(plan: &LogicalPlan) -> usize {
    usize::from(matches!(plan, LogicalPlan::Join(_)))
}

fn windows(plan: &LogicalPlan) -> usize {
    if let LogicalPlan::Window(window) = plan { window.window_expr.len() } else { 0 }
}

/// Subtracts the weight of a node's expressions from `left`, and returns the depth of the deepest one.
fn weigh(plan: &LogicalPlan, left: &mut usize) -> Result<usize> {
    check_width(plan)?;
    let mut expressions = ExpressionVisitor { left: *left, depth: 0, deepest: 0 };
    plan.apply_expressions(|expr| expr.visit(&mut expressions))?;
    *left = expressions.left;
    Ok(expressions.deepest)
}

/// Fails if a node has more expressions than DataFusion plans or executes in reasonable time: its work for each of them is linear
/// in their number.
fn check_width(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let columns = aggregate.group_expr.iter().map(grouped_columns).fold(0, usize::saturating_add);
            check_count("columns in GROUP BY or DISTINCT", aggregate.group_expr.len(), GROUPED_MAX)?;
            check_count("columns in all grouping sets", columns, SETS_COLUMNS_MAX)?;
            check_count("aggregates", aggregate.aggr_expr.len(), AGGREGATES_MAX)
        }
        LogicalPlan::Sort(sort) => check_count("expressions in ORDER BY", sort.expr.len(), SORTED_MAX),
        LogicalPlan::Window(window) => window.window_expr.iter().try_for_each(|expr| {
            let mut expr = expr;
            while let Expr::Alias(alias) = expr {
                expr = &alias.expr;
            }
            let Expr::WindowFunction(window) = expr else { return Ok(()) };
            let width = window.params.partition_by.len().max(window.params.order_by.len());
            check_count(WINDOW_WIDTH, width, SORTED_MAX)
        }),
        _ => Ok(()),
    }
}

fn check_count(what: &str, count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let error = Error::new(Kind::TooLarge, format!("{count} {what} in one query; {most} are the most"))
        .hint("keep what a part of it finds in a table (CREATE TABLE … AS), and go on from there");
    Err(DataFusionError::External(Box::new(error)))
}

/// Returns the number of columns that a grouping expression computes, over all of its sets.
fn grouped_columns(expr: &Expr) -> usize {
    let power = |columns: usize| 1usize.checked_shl(columns as u32).unwrap_or(usize::MAX);
    match expr {
        Expr::GroupingSet(GroupingSet::Cube(columns)) => columns.len().saturating_mul(power(columns.len())),
        Expr::GroupingSet(GroupingSet::Rollup(columns)) => columns.len() * (columns.len() + 1),
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            let widest = sets.iter().map(Vec::len).max().unwrap_or(1).max(1);
            sets.len().saturating_mul(widest)
        }
        _ => 1,
    }
}

struct ExpressionVisitor {
    left: usize,
    depth: usize,
    deepest: usize,
}

impl<'n> TreeNodeVisitor<'n> for ExpressionVisitor {
    type Node = Expr;

    fn f_down(&mut self, expr: &'n Expr) -> Result<TreeNodeRecursion> {
        // `-1` is a negation and a literal, and weighs like a literal.
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

/// Returns the bytes of all literals of a plan.
pub fn literal_bytes(plan: &LogicalPlan) -> Result<usize> {
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
struct BudgetedRule<T: ?Sized>(Arc<T>);

impl OptimizerRule for BudgetedRule<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // DataFusion calls a rule with an order for each node; other rules traverse the plan by themselves.
        let check = if self.apply_order().is_some() { check_node } else { check };
        check(&plan)?;
        let rewritten = self.0.rewrite(plan, config)?;
        if rewritten.transformed {
            check(&rewritten.data)?;
        }
        Ok(rewritten)
    }
}

impl AnalyzerRule for BudgetedRule<dyn AnalyzerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check(&plan)?;
        self.0.analyze(plan, config)
    }
}

impl PhysicalOptimizerRule for BudgetedRule<dyn PhysicalOptimizerRule + Send + Sync> {
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

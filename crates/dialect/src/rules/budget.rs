//! What making a plan may take: time, and how large its expressions may become.
//!
//! The optimizer moves conditions below the expressions that they read, and writes those out: of
//! `SELECT x + x AS x FROM (SELECT x + x AS x FROM …) WHERE x > 1` each level doubles what the condition above it says, so a text of a
//! kilobyte became gigabytes. No text tells how often that happens. So every rule of the planner is asked within a [`Budgeted`] rule,
//! which looks at the statement's deadline and at the size of what goes in and comes out, at each node that the rule is given.

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
use crate::values::type_text;

/// What the expressions of a node may weigh, and those of a whole plan where a rule is given all of it: about 16 MiB, which is a second
/// of the slowest rules. The longest text of literals stays below.
const WEIGHT_MAX: usize = 1 << 19;
/// How deep an expression may become where the expressions of queries above one another are written out in one. SQL's threads
/// have stacks for a multiple of it.
const DEPTH_MAX: usize = 5_000;
/// Columns that rows are grouped by: each is computed for a whole batch before any of them is stored. As many as PostgreSQL takes.
const GROUPED_MAX: usize = 1_664;
/// The same of all grouping sets together, whose columns are the same arrays with nulls: CUBE of nine columns has as many.
const SETS_COLUMNS_MAX: usize = 4_608;
/// Expressions that rows are sorted by, or those of one window.
const SORTED_MAX: usize = 256;
const WINDOWS_MAX: usize = 256;
/// Columns that a SELECT or VALUES writes out. As many as PostgreSQL takes.
const COLUMNS_MAX: usize = 1_664;
const AGGREGATES_MAX: usize = 1_000;
/// Names what [`SORTED_MAX`] counts of a window.
const WINDOW_WIDTH: &str = "expressions in PARTITION BY or ORDER BY of a window";
/// Joins of which each has the one before below it.
const JOINS_MAX: usize = 128;
/// A literal weighs 1: it stands in the text, and is moved along with others seldom.
const WEIGHT: usize = 8;

/// Puts every rule of the optimizer within its budget.
pub fn of_rules(
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
pub fn of_analyzer(
    rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let budgeted = |rule: Arc<dyn AnalyzerRule + Send + Sync>| {
        Arc::new(Budgeted(rule)) as Arc<dyn AnalyzerRule + Send + Sync>
    };
    rules.into_iter().map(budgeted).collect()
}

/// Fails where a SELECT is wider than its plan may be ([`check_width`]): making the plan takes the square of that, too.
/// `is_aggregate` tells the names of aggregates.
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
                into_result(select.visit(&mut Calls { is_aggregate, aggregates: 0, windows: 0 }))?;
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
struct Calls<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
    aggregates: usize,
    windows: usize,
}

impl Visitor for Calls<'_> {
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

/// Fails where the statement is to end, or a plan has become too large.
pub fn check(plan: &LogicalPlan) -> Result<()> {
    interrupt::check_statement()?;
    let mut whole = Whole { left: WEIGHT_MAX, deep: 0, depths: Vec::new(), joins: 0, windows: 0 };
    plan.visit_with_subqueries(&mut whole).map(drop)
}

/// A plan that is no more than that.
pub fn kept(plan: LogicalPlan) -> Result<LogicalPlan> {
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
    /// Joins from the node that is looked at up to the top, and window functions.
    joins: usize,
    windows: usize,
}

impl<'n> TreeNodeVisitor<'n> for Whole {
    type Node = LogicalPlan;

    fn f_down(&mut self, plan: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        let depth = weigh(plan, &mut self.left)?;
        self.joins += joins(plan);
        self.windows += windows(plan);
        check_count("joins", self.joins, JOINS_MAX)?;
        check_count("window functions", self.windows, WINDOWS_MAX)?;
        plan.schema().fields().iter().try_for_each(|field| type_text::check_depth(field.data_type()))?;
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

/// Takes what a node's expressions weigh from what is left, and says how deep the deepest is.
fn weigh(plan: &LogicalPlan, left: &mut usize) -> Result<usize> {
    check_width(plan)?;
    let mut expressions = Expressions { left: *left, depth: 0, deepest: 0 };
    plan.apply_expressions(|expr| expr.visit(&mut expressions))?;
    *left = expressions.left;
    Ok(expressions.deepest)
}

/// Fails where a node has more expressions than DataFusion plans or executes in reasonable time: what it does with each it does
/// within all of them.
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

/// The columns of a grouping, those of each of its sets.
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

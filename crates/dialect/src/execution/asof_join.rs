//! `ASOF JOIN` finds for each row of the left side the row of the right side that is nearest in time, before or after it.
//!
//! DataFusion has no such join, nor has PostgreSQL; the syntax is Snowflake's:
//! `FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.at >= q.at) ON t.sym = q.sym`. [`rewrite`] rewrites the statement to a
//! LEFT JOIN whose condition contains a marker function, so that names and types are resolved as in any join. [`plan_nodes`]
//! turns the marked join of the logical plan into a node of its own ([`AsOfJoin`]). `exec` executes it: it merges both sides,
//! sorted by the equal columns and by time. The sorts are DataFusion's and can spill.
//!
//! - Each left row appears once; without a match the columns of the right side are null. Nulls match nothing.
//! - If several right rows have the same time, the one that was written last wins if the right side is a table; of a query's
//!   rows, any.

mod exec;
mod merge;

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, JoinType, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Extension, Filter, Join, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, UserDefinedLogicalNodeCore, Volatility, build_join_schema,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, SetExpr,
    Statement, TableFactor, TableWithJoins, VisitMut, VisitorMut, visit_expressions,
};
use types::{Error, ROW_ID_NAME};

pub use exec::{AsOfExec, AsOfPlanner};

/// Name of the function that marks a match condition between the statement and the plan. No statement would use this name by
/// itself.
const MARKER: &str = "nearest in time";

/// Rewrites each ASOF JOIN to a LEFT JOIN with a marker. Runs after names are bound.
pub fn rewrite(statement: &mut Statement) -> types::Result<()> {
    let called = visit_expressions(statement, |expr| match expr {
        SqlExpr::Function(call) if call.name.to_string().contains(MARKER) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    if called.is_break() {
        return Err(Error::invalid(format!("there is no function `{MARKER}`"))
            .hint("the nearest row in time is found by ASOF JOIN … MATCH_CONDITION (a.at >= b.at)"));
    }
    struct AsOfRewriter;
    impl VisitorMut for AsOfRewriter {
        type Break = Error;
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
            match body(&mut query.body) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        }
    }
    fn body(set: &mut SetExpr) -> types::Result<()> {
        match set {
            SetExpr::Select(select) => select.from.iter_mut().try_for_each(joins),
            SetExpr::SetOperation { left, right, .. } => body(left).and_then(|()| body(right)),
            _ => Ok(()),
        }
    }
    fn joins(from: &mut TableWithJoins) -> types::Result<()> {
        nested(&mut from.relation)?;
        for join in &mut from.joins {
            nested(&mut join.relation)?;
            let JoinOperator::AsOf { match_condition, constraint } = &join.join_operator else { continue };
            let marked = marked(match_condition.clone());
            let condition = match constraint {
                JoinConstraint::On(on) => SqlExpr::BinaryOp {
                    left: Box::new(SqlExpr::Nested(Box::new(on.clone()))),
                    op: BinaryOperator::And,
                    right: Box::new(marked),
                },
                JoinConstraint::None => marked,
                JoinConstraint::Using(_) | JoinConstraint::Natural => {
                    return Err(Error::invalid("ASOF JOIN takes ON, not USING")
                        .hint("write ON a.x = b.x AND a.y = b.y, or nothing"));
                }
            };
            join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(condition));
        }
        Ok(())
    }
    fn nested(factor: &mut TableFactor) -> types::Result<()> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => joins(table_with_joins),
            _ => Ok(()),
        }
    }
    match statement.visit(&mut AsOfRewriter) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn marked(condition: SqlExpr) -> SqlExpr {
    SqlExpr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', MARKER))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(condition))],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Returns the marker function, which [`rewrite`] writes and [`plan_nodes`] removes.
pub fn marker() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Marker { signature: Signature::any(1, Volatility::Volatile) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        MARKER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(Arrow::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(external(Error::invalid("MATCH_CONDITION stands in an ASOF JOIN")))
    }
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Replaces each marked join of the plan by an [`AsOfJoin`] node.
pub fn plan_nodes(plan: LogicalPlan) -> Result<LogicalPlan> {
    let found = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(is_marked) => {
            let node = Arc::new(AsOfJoin::from_join(join)?);
            Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(found.data)
}

fn is_marked(filter: &Expr) -> bool {
    filter.exists(|expr| Ok(condition(expr).is_some())).unwrap_or(false)
}

fn condition(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == MARKER => call.args.first(),
        _ => None,
    }
}

/// The logical node of an ASOF JOIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOfJoin {
    left: Arc<LogicalPlan>,
    right: Arc<LogicalPlan>,
    /// Equalities between an expression of the left side and one of the right side.
    on: Vec<Expr>,
    /// The match condition: `left >= right`, or another comparison.
    matched: Expr,
    /// The column of the right side that decides between rows of the same time: the greatest value wins.
    tie: Option<Expr>,
    schema: DFSchemaRef,
}

impl AsOfJoin {
    fn from_join(join: Join) -> Result<AsOfJoin> {
        let on = join.on.into_iter().map(|(left, right)| left.eq(right));
        let mut matched = None;
        let mut equal = Vec::new();
        for part in on.chain(join.filter.into_iter().flat_map(split_conjunction_owned)) {
            match condition(&part) {
                Some(condition) if matched.is_none() => matched = Some(condition.clone()),
                _ => equal.push(part),
            }
        }
        let sides = |expr| sides(expr, &join.left, &join.right);
        let equal = equal.into_iter().map(|part| match sides(part) {
            Some((left, Operator::Eq, right)) => Ok(left.eq(right)),
            _ => Err(external(
                Error::invalid("the ON of an ASOF JOIN compares the two sides by `=`, joined by AND")
                    .hint("other conditions belong into WHERE, or into a query in place of the table"),
            )),
        });
        let on = equal.collect::<Result<Vec<_>>>()?;
        let ordered = [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];
        let matched = match matched.and_then(sides) {
            Some((left, op, right)) if ordered.contains(&op) => {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
            }
            _ => {
                return Err(external(
                    Error::invalid(
                        "MATCH_CONDITION compares a value of the left side with one of the right, by >=, >, <= or <",
                    )
                    .hint("write ASOF JOIN quotes q MATCH_CONDITION (t.at >= q.at)"),
                ));
            }
        };
        let ids = join.right.schema().iter().filter(|(_, field)| field.name() == ROW_ID_NAME);
        let ids: Vec<Column> = ids.map(Column::from).collect();
        let tie = if let [id] = &ids[..] { Some(Expr::Column(id.clone())) } else { None };
        Self::with_sides(join.left, join.right, on, matched, tie)
    }

    fn with_sides(
        left: Arc<LogicalPlan>,
        right: Arc<LogicalPlan>,
        on: Vec<Expr>,
        matched: Expr,
        tie: Option<Expr>,
    ) -> Result<AsOfJoin> {
        let schema = Arc::new(build_join_schema(left.schema(), right.schema(), &JoinType::Left)?);
        Ok(AsOfJoin { left, right, on, matched, tie, schema })
    }
}

/// Splits a comparison into the expression of the left side, the operator, and the expression of the right side.
fn sides(expr: Expr, left: &LogicalPlan, right: &LogicalPlan) -> Option<(Expr, Operator, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = expr.unalias_nested().data else {
        return None;
    };
    let of = |expr: &Expr, plan: &LogicalPlan| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.into_iter().all(|column| plan.schema().has_column(column))
    };
    if of(&a, left) && of(&b, right) {
        Some((*a, op, *b))
    } else if of(&b, left) && of(&a, right) {
        Some((*b, op.swap()?, *a))
    } else {
        None
    }
}

impl PartialOrd for AsOfJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.on, &self.matched).partial_cmp(&(&other.on, &other.matched))
    }
}

impl Hash for AsOfJoin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.left, &self.right, &self.on, &self.matched, &self.tie).hash(state);
    }
}

impl UserDefinedLogicalNodeCore for AsOfJoin {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.on.iter().chain([&self.matched]).chain(&self.tie).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsOfJoin: {}", self.matched)?;
        self.on.iter().try_for_each(|on| write!(f, ", {on}"))
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let lost = || external(Error::internal("an ASOF JOIN lost one of its sides or conditions"));
        let tie = match &self.tie {
            Some(_) => Some(exprs.pop().ok_or_else(lost)?),
            None => None,
        };
        let matched = exprs.pop().ok_or_else(lost)?;
        let [left, right]: [LogicalPlan; 2] = inputs.try_into().map_err(|_| lost())?;
        Self::with_sides(Arc::new(left), Arc::new(right), exprs, matched, tie)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let (left, right): (Vec<usize>, Vec<usize>) = output_columns.iter().partition(|at| **at < width);
        Some(vec![left, right.into_iter().map(|at| at - width).collect()])
    }
}

/// Moves conditions on the left side below the join: the match of a left row does not depend on other left rows.
#[derive(Debug)]
pub struct FilterLeftOfAsOf;

impl OptimizerRule for FilterLeftOfAsOf {
    fn name(&self) -> &str {
        "filter_left_of_asof"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
        let node = match filter.input.as_ref() {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<AsOfJoin>(),
            _ => None,
        };
        let Some(node) = node else { return Ok(Transformed::no(LogicalPlan::Filter(filter))) };
        let schema = node.left.schema();
        let of_left = |part: &Expr| {
            let columns = part.column_refs();
            let is_plain = !part.is_volatile() && !part.exists(|e| Ok(is_subquery(e))).unwrap_or(true);
            is_plain && !columns.is_empty() && columns.into_iter().all(|column| schema.has_column(column))
        };
        let (before, after): (Vec<Expr>, Vec<Expr>) =
            split_conjunction_owned(filter.predicate.clone()).into_iter().partition(of_left);
        let Some(before) = conjunction(before) else {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        };
        let left = LogicalPlan::Filter(Filter::try_new(before, node.left.clone())?);
        let node = Arc::new(AsOfJoin { left: Arc::new(left), ..node.clone() });
        let joined = LogicalPlan::Extension(Extension { node });
        Ok(Transformed::yes(match conjunction(after) {
            Some(after) => LogicalPlan::Filter(Filter::try_new(after, Arc::new(joined))?),
            None => joined,
        }))
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::OuterReferenceColumn(..)
    )
}

//! Subqueries may read columns from further outside than the query directly around them.
//!
//! DataFusion joins a subquery to the query around it and knows no columns from further out. So the query in between gets the
//! distinct values of those columns as an additional table, restricted to the values of the current outer row. The inner subquery
//! reads them from there.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, TableReference};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery,
    binary_expr,
};
use types::Error;

use super::{is_dependent, query_of, subquery_of};

/// Adds to a query, whose outer rows are `outside`, the columns of `outside` that its subqueries read.
pub(super) fn lift(
    query: LogicalPlan,
    outside: Option<&LogicalPlan>,
    count: &mut usize,
) -> Result<LogicalPlan> {
    let Some(outside) = outside else { return Ok(query) };
    let lifted = query.transform_up(|plan| {
        let mut columns = OuterColumns { outside: outside.schema(), found: Vec::new(), number: 0 };
        columns.look(&plan, &mut Vec::new())?;
        if columns.found.is_empty() {
            return Ok(Transformed::no(plan));
        }
        *count += 1;
        columns.number = *count;
        columns.lift(plan, outside).map(Transformed::yes)
    })?;
    if !lifted.transformed {
        return Ok(lifted.data);
    }
    lifted.data.transform_up(collapsed).map(|plan| plan.data)
}

/// The columns of the outer rows that subqueries further inside read.
struct OuterColumns<'a> {
    outside: &'a DFSchema,
    found: Vec<Column>,
    /// The number of the table that holds their values, which makes its name unique.
    number: usize,
}

impl OuterColumns<'_> {
    fn lift(&mut self, plan: LogicalPlan, outside: &LogicalPlan) -> Result<LogicalPlan> {
        let deep = self.found[0].clone();
        let (input, condition) = match &plan {
            LogicalPlan::Filter(filter) => (filter.input.clone(), Some(filter.predicate.clone())),
            LogicalPlan::Projection(projection) => (projection.input.clone(), None),
            _ => return Err(too_far(&deep)),
        };
        // The condition reads these columns from the table too, so that it joins the values to the rows.
        if let Some(condition) = &condition {
            condition.apply(|expr| {
                self.add(expr, &[]);
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let Some(source) = source(outside, &self.found) else { return Err(too_far(&deep)) };
        let values = (0..self.found.len())
            .map(|at| Expr::Column(self.found[at].clone()).alias(self.column(at).name))
            .collect::<Vec<_>>();
        let values = LogicalPlanBuilder::from(source.clone())
            .project(values)?
            .distinct()?
            .alias(self.table())?
            .build()?;
        let rows = LogicalPlanBuilder::new_from_arc(input.clone()).cross_join(values)?;
        let own = match condition.clone() {
            Some(condition) => Some(self.own(condition)?),
            None => None,
        };
        let shadows = &mut vec![input.schema().as_ref().clone()];
        let mut all = Vec::new();
        for (at, column) in self.found.iter().enumerate() {
            let (qualifier, field) = self.outside.qualified_field_from_column(column)?;
            let outer = Expr::OuterReferenceColumn(field.clone(), Column::from((qualifier, field)));
            let is_null = field.is_nullable() && !condition.as_ref().is_some_and(|all| is_equal(all, column));
            let op = if is_null { Operator::IsNotDistinctFrom } else { Operator::Eq };
            all.push(binary_expr(Expr::Column(self.column(at)), op, outer));
        }
        if let Some(own) = own {
            all.push(self.expr(own, shadows)?);
        }
        let rows = match all.into_iter().reduce(Expr::and) {
            Some(all) => rows.filter(all)?,
            None => rows,
        };
        let columns = match plan {
            LogicalPlan::Projection(projection) => {
                let names = NamePreserver::new_for_projection();
                let column = |expr: Expr| {
                    let name = names.save(&expr);
                    Ok(name.restore(self.expr(expr, shadows)?))
                };
                projection.expr.into_iter().map(column).collect::<Result<Vec<_>>>()?
            }
            _ => input.schema().columns().into_iter().map(Expr::Column).collect(),
        };
        rows.project(columns)?.build()
    }

    fn table(&self) -> TableReference {
        TableReference::bare(format!("rows outside {}", self.number))
    }

    /// Returns a column whose name is unique: DataFusion identifies the columns of a subquery by their names alone.
    fn column(&self, at: usize) -> Column {
        Column::new(Some(self.table()), format!("value {at} of rows outside {}", self.number))
    }

    fn add(&mut self, expr: &Expr, shadows: &[DFSchema]) {
        if let Expr::OuterReferenceColumn(_, column) = expr
            && !shadows.iter().any(|schema| schema.has_column(column))
            && self.outside.has_column(column)
            && !self.found.contains(column)
        {
            self.found.push(column.clone());
        }
    }

    /// Collects the outer columns that the subqueries in a plan's expressions read. `shadows` are the schemas in between, whose
    /// columns hide outer columns of the same name.
    fn look(&mut self, plan: &LogicalPlan, shadows: &mut Vec<DFSchema>) -> Result<()> {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                // At the top level the query reads its own outer rows directly.
                if !shadows.is_empty() {
                    self.add(expr, shadows);
                }
                self.carried_into(expr, plan, shadows)
            })
        })?;
        Ok(())
    }

    fn carried_into(
        &mut self,
        expr: &Expr,
        plan: &LogicalPlan,
        shadows: &mut Vec<DFSchema>,
    ) -> Result<TreeNodeRecursion> {
        if let Some(query) = query_of(expr) {
            shadows.push(merge_schema(&plan.inputs()));
            query.subquery.apply(|plan| {
                self.look(plan, shadows)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            shadows.pop();
        }
        Ok(TreeNodeRecursion::Continue)
    }

    /// Replaces the outer columns in an expression of the query itself by the values in the additional table.
    fn own(&self, expr: Expr) -> Result<Expr> {
        let own = expr.transform_up(|expr| {
            Ok(match self.place(&expr) {
                Some(at) => Transformed::yes(Expr::Column(self.column(at))),
                None => Transformed::no(expr),
            })
        })?;
        Ok(own.data)
    }

    /// Replaces the outer columns in the subqueries of an expression by references to the additional table.
    fn expr(&self, expr: Expr, shadows: &mut Vec<DFSchema>) -> Result<Expr> {
        let read = expr.transform_up(|expr| self.query(expr, shadows))?;
        Ok(read.data)
    }

    fn query(&self, expr: Expr, shadows: &mut Vec<DFSchema>) -> Result<Transformed<Expr>> {
        Ok(Transformed::yes(match expr {
            Expr::Exists(Exists { subquery, negated }) => {
                Expr::Exists(Exists { subquery: self.plan(&subquery, shadows)?, negated })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Expr::InSubquery(InSubquery { expr, subquery: self.plan(&subquery, shadows)?, negated })
            }
            Expr::ScalarSubquery(query) => Expr::ScalarSubquery(self.plan(&query, shadows)?),
            other => return Ok(Transformed::no(other)),
        }))
    }

    fn plan(&self, query: &Subquery, shadows: &mut Vec<DFSchema>) -> Result<Subquery> {
        let plan = query.subquery.as_ref().clone().transform_up(|plan| {
            let between = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let read = expr.transform_up(|expr| match self.place(&expr) {
                    Some(at) if !shadows.iter().any(|schema| schema.has_column(&self.found[at])) => {
                        let Expr::OuterReferenceColumn(field, _) = expr else {
                            return Ok(Transformed::no(expr));
                        };
                        Ok(Transformed::yes(Expr::OuterReferenceColumn(field, self.column(at))))
                    }
                    _ if query_of(&expr).is_none() => Ok(Transformed::no(expr)),
                    _ => {
                        shadows.push(between.clone());
                        let query = self.query(expr, shadows);
                        shadows.pop();
                        query
                    }
                })?;
                Ok(if read.transformed { read.update_data(|expr| name.restore(expr)) } else { read })
            })
        })?;
        Ok(subquery_of(plan.data.into()))
    }

    fn place(&self, expr: &Expr) -> Option<usize> {
        let Expr::OuterReferenceColumn(_, column) = expr else { return None };
        self.found.iter().position(|found| found == column)
    }
}

/// Returns the smallest part of the outer plan that has all columns; `None` if it might return other rows when it is read again.
fn source<'a>(outside: &'a LogicalPlan, columns: &[Column]) -> Option<&'a LogicalPlan> {
    let has_all = |plan: &LogicalPlan| columns.iter().all(|column| plan.schema().has_column(column));
    let mut plan = outside;
    loop {
        let below = match plan {
            LogicalPlan::Filter(filter) => Some(filter.input.as_ref()),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => Some(sort.input.as_ref()),
            LogicalPlan::Distinct(Distinct::All(input)) => Some(input.as_ref()),
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                [&join.left, &join.right].into_iter().map(|side| side.as_ref()).find(|side| has_all(side))
            }
            _ => None,
        };
        match below {
            Some(below) if has_all(below) => plan = below,
            _ => break,
        }
    }
    (!is_dependent(plan) && is_steady(plan)).then_some(plan)
}

fn is_steady(plan: &LogicalPlan) -> bool {
    use LogicalPlan::{
        Distinct as DistinctRows, EmptyRelation, Filter, Join, Projection, SubqueryAlias, TableScan, Union,
        Values,
    };
    let reads_rows = match plan {
        DistinctRows(Distinct::On(_)) => false,
        DistinctRows(_) | EmptyRelation(_) | Filter(_) | Join(_) | Projection(_) | SubqueryAlias(_)
        | TableScan(_) | Union(_) | Values(_) => true,
        _ => false,
    };
    let varies = plan
        .expressions()
        .iter()
        .any(|expr| expr.is_volatile() || expr.exists(|expr| Ok(query_of(expr).is_some())).unwrap_or(true));
    reads_rows && !varies && plan.inputs().into_iter().all(is_steady)
}

/// Returns true if the condition excludes rows in which that column is null.
fn is_equal(condition: &Expr, column: &Column) -> bool {
    let is_it = |expr: &Expr| matches!(expr, Expr::OuterReferenceColumn(_, outer) if outer == column);
    split_conjunction(condition).into_iter().any(|part| match part {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => is_it(left) || is_it(right),
        _ => false,
    })
}

/// Merges a projection with a projection of plain columns below it, because later rewrites look at the expressions of the top
/// projection.
fn collapsed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Projection(projection) = &plan
        && let LogicalPlan::Projection(below) = projection.input.as_ref()
        && below.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
    {
        let one = Projection::try_new(projection.expr.clone(), below.input.clone())?;
        return Ok(Transformed::yes(LogicalPlan::Projection(one)));
    }
    Ok(Transformed::no(plan))
}

fn too_far(column: &Column) -> DataFusionError {
    let column = types::name::printable(&column.flat_name());
    DataFusionError::External(Box::new(
        Error::invalid(format!(
            "`{column}` is read by a query within a query further in, which is not supported yet"
        ))
        .hint("join its table in the query between, or write one query with a join"),
    ))
}

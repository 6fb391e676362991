//! `IN (SELECT …)` inside a larger condition is true, false, or null if a null decides.
//!
//! DataFusion evaluates it there by a mark column that is true or false, and null counts as false. That is right where only
//! "true" matters, as in `a OR x IN (…)`. Under NOT, in `a OR x NOT IN (…)` and inside other expressions it returns wrong rows.
//! Here such a predicate is written as a CASE over marks: true if a value of the query is equal; else null if one of the values
//! is null, or if `x` is null and there are any; else false.
//!
//! A predicate that is a conjunct of WHERE by itself needs the CASE only under NOT: DataFusion has a join that handles nulls, but
//! does not use it for a query inside another. If neither side can be null, its joins are right and cost less.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, exists,
    lit, when,
};

/// The value for which null may be mistaken without harm.
#[derive(Clone, Copy, PartialEq)]
enum NullMeaning {
    /// Null counts as false: only "true" matters to the condition.
    False,
    /// Null counts as true: only "false" matters, because the predicate is under NOT.
    True,
}

impl NullMeaning {
    fn not(self) -> NullMeaning {
        match self {
            NullMeaning::False => NullMeaning::True,
            NullMeaning::True => NullMeaning::False,
        }
    }
}

/// Writes out the predicates of a plan, as described for the module.
pub fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let exact = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
        if !has_membership(&filter.predicate)? {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let parts = split_conjunction_owned(filter.predicate).into_iter();
        let schema = filter.input.schema();
        let parts = parts.map(|part| match plan_conjunct(&part, schema)? {
            Some(ConjunctPlan::Join) => Ok(part),
            Some(ConjunctPlan::Exists(found)) => match as_exists(&found, schema)? {
                Some(exists) => Ok(Expr::Not(Box::new(exists))),
                None => as_case(found, schema),
            },
            None => condition(part, NullMeaning::False, schema),
        });
        let predicate = conjunction(parts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
    })?;
    Ok(exact.data)
}

/// Gives the value of an uncorrelated query a unique name, if it has no table name: DataFusion identifies the columns of a mark
/// join by their names alone.
fn with_unique_name(found: InSubquery) -> Result<Expr> {
    let query = &found.subquery;
    let head = query.subquery.head_output_expr()?;
    let schema = query.subquery.schema();
    let is_bare = |column: &&Column| column.relation.is_none() && schema.has_column(column);
    let bare = head.as_ref().is_some_and(|head| head.column_refs().iter().any(is_bare));
    if !bare || !query.outer_ref_columns.is_empty() {
        return Ok(Expr::InSubquery(found));
    }
    let value = Expr::Column(Column::from(schema.qualified_field(0))).alias("value of the query");
    let plan = LogicalPlanBuilder::new_from_arc(query.subquery.clone()).project([value])?.build()?;
    let subquery = query.with_plan(Arc::new(plan));
    Ok(Expr::InSubquery(InSubquery { subquery, ..found }))
}

fn has_membership(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_))))
}

/// The plan for a predicate that is a conjunct by itself.
enum ConjunctPlan {
    /// DataFusion's join for the predicate is right.
    Join,
    /// NOT IN of a correlated query in which nothing is null becomes NOT EXISTS: DataFusion's join that handles nulls has only
    /// one key.
    Exists(InSubquery),
}

/// Returns the plan for a predicate that is a conjunct by itself; `None` if it has to be written out.
fn plan_conjunct(expr: &Expr, schema: &DFSchema) -> Result<Option<ConjunctPlan>> {
    let (expr, not) = match expr {
        Expr::Not(inner) => (inner.as_ref(), true),
        other => (other, false),
    };
    let Expr::InSubquery(found) = expr else { return Ok(None) };
    let may_be_null = || -> Result<bool> {
        let inside = found.subquery.subquery.schema().field(0).is_nullable();
        Ok(inside || found.expr.nullable(schema)?)
    };
    if selects_outer(&found.subquery)? {
        return Ok(None);
    }
    // Written out over a UNION, the predicate would have two columns of one name, which DataFusion refuses.
    if found.negated == not || has_union(&found.subquery.subquery) {
        return Ok(Some(ConjunctPlan::Join));
    }
    if may_be_null()? {
        return Ok(None);
    }
    let is_correlated = !found.subquery.outer_ref_columns.is_empty();
    Ok(Some(if is_correlated { ConjunctPlan::Exists(found.clone()) } else { ConjunctPlan::Join }))
}

/// Returns true if the query's result columns read outer columns. DataFusion only joins by conditions.
fn selects_outer(query: &Subquery) -> Result<bool> {
    let LogicalPlan::Projection(projection) = query.subquery.as_ref() else { return Ok(false) };
    let is_outer = |expr: &Expr| Ok(matches!(expr, Expr::OuterReferenceColumn(..)));
    projection.expr.iter().try_fold(false, |found, expr| Ok(found || expr.exists(is_outer)?))
}

fn has_union(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Union(_)) || plan.inputs().into_iter().any(has_union)
}

fn condition(expr: Expr, null_is: NullMeaning, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, right) = (condition(*left, null_is, schema)?, condition(*right, null_is, schema)?);
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        Expr::Not(inner) => Ok(Expr::Not(Box::new(condition(*inner, null_is.not(), schema)?))),
        Expr::InSubquery(found) => {
            // A mark is false for null, so its negation is true.
            let mark = if found.negated { NullMeaning::True } else { NullMeaning::False };
            if null_is == mark && !selects_outer(&found.subquery)? {
                with_unique_name(found)
            } else {
                as_case(found, schema)
            }
        }
        // In other expressions true, false and null all matter.
        other => {
            let exact = other.transform_up(|expr| match expr {
                Expr::InSubquery(found) => Ok(Transformed::yes(as_case(found, schema)?)),
                other => Ok(Transformed::no(other)),
            });
            Ok(exact?.data)
        }
    }
}

/// Rewrites IN of a correlated query as EXISTS with an equality. Returns `None` if that is not possible.
fn as_exists(found: &InSubquery, schema: &DFSchema) -> Result<Option<Expr>> {
    let rows = QueryRows::of(&found.subquery);
    if found.expr.is_volatile() || !rows.is_selected || !rows.is_correlated() {
        return Ok(None);
    }
    let Some((outer, columns)) = as_outer(&found.expr, schema)? else { return Ok(None) };
    rows.exists_where(Some(rows.value.clone().eq(outer)), &columns).map(Some)
}

fn as_case(found: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let is_in = as_exists(&found, schema)?;
    let InSubquery { expr, subquery, negated } = found;
    if expr.is_volatile() {
        return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }));
    }
    let rows = QueryRows::of(&subquery);
    let any = rows.exists_where(None, &[])?;
    let any_null = rows.exists_where(Some(rows.value.clone().is_null()), &[])?;
    let unknown = any_null.or(expr.as_ref().clone().is_null().and(any));
    // NOT IN would be a join with several keys, and DataFusion's join that handles nulls has only one.
    let is_in = match is_in {
        Some(is_in) => is_in,
        None => with_unique_name(InSubquery { expr, subquery, negated: false })?,
    };
    when(is_in, lit(!negated)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(negated))
}

/// Rewrites an expression over the outer rows so that it can be used within the query; also returns its columns. Returns `None`
/// if it contains a subquery or columns from further outside.
fn as_outer(expr: &Expr, schema: &DFSchema) -> Result<Option<(Expr, Vec<Expr>)>> {
    let is_deeper = |expr: &Expr| {
        let is_query = matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
        Ok(is_query || matches!(expr, Expr::OuterReferenceColumn(..)))
    };
    if expr.exists(is_deeper)? {
        return Ok(None);
    }
    let mut columns = Vec::new();
    let outer = expr.clone().transform_up(|expr| match expr {
        Expr::Column(column) => {
            let (qualifier, field) = schema.qualified_field_from_column(&column)?;
            let column = Expr::OuterReferenceColumn(field.clone(), Column::from((qualifier, field)));
            columns.push(column.clone());
            Ok(Transformed::yes(column))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Some((outer.data, columns)))
}

/// The rows and the value of a query.
struct QueryRows {
    plan: Arc<LogicalPlan>,
    value: Expr,
    /// True if the value is an expression over the plan's rows; false if it is a column of the query's result.
    is_selected: bool,
    outer_ref_columns: Vec<Expr>,
}

impl QueryRows {
    fn of(query: &Subquery) -> QueryRows {
        let outer_ref_columns = query.outer_ref_columns.clone();
        match query.subquery.as_ref() {
            // The selected value may read outer columns too, and then it can only stand in a condition.
            LogicalPlan::Projection(projection)
                if !outer_ref_columns.is_empty() && projection.expr.len() == 1 =>
            {
                let value = projection.expr[0].clone().unalias();
                QueryRows { plan: projection.input.clone(), value, is_selected: true, outer_ref_columns }
            }
            plan => {
                let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
                QueryRows { plan: query.subquery.clone(), value, is_selected: false, outer_ref_columns }
            }
        }
    }

    fn is_correlated(&self) -> bool {
        !self.outer_ref_columns.is_empty()
    }

    /// Returns a condition that is true if the query has a row for which `filter` holds. The query is limited to one row, else
    /// each outer row would be joined to all of them.
    fn exists_where(&self, filter: Option<Expr>, columns: &[Expr]) -> Result<Expr> {
        let mut plan = match (self.plan.as_ref(), &filter) {
            // DataFusion loses the outer columns of the first of two adjacent filters.
            (LogicalPlan::Filter(first), Some(_)) if self.is_selected => {
                LogicalPlanBuilder::new_from_arc(first.input.clone())
            }
            _ => LogicalPlanBuilder::new_from_arc(self.plan.clone()),
        };
        if let Some(filter) = filter {
            plan = plan.filter(match self.plan.as_ref() {
                LogicalPlan::Filter(first) if self.is_selected => first.predicate.clone().and(filter),
                _ => filter,
            })?;
        }
        if !self.is_correlated() {
            plan = plan.limit(0, Some(1))?;
        } else if self.is_selected {
            // Select a constant, because two columns of a join may have the same name, and DataFusion identifies them by name.
            plan = plan.project([lit(true).alias("found row")])?;
        }
        let mut any = exists(Arc::new(plan.build()?));
        if let Expr::Exists(exists) = &mut any {
            let all = self.outer_ref_columns.iter().chain(columns);
            all.for_each(|column| {
                if !exists.subquery.outer_ref_columns.contains(column) {
                    exists.subquery.outer_ref_columns.push(column.clone());
                }
            });
        }
        Ok(any)
    }
}

//! `IN (SELECT …)` inside a larger condition: true, false, or neither where a null stands in the way.
//!
//! DataFusion answers it there by a mark, which is true or false: null counts as false. That does no harm where only "true" is
//! asked for, as in `a OR x IN (…)`. Under NOT, in `a OR x NOT IN (…)` and inside other expressions it gives rows that do not
//! belong there. Here such a predicate is written out, so that marks suffice:
//! true where one is equal; else unknown where one of them is null, or `x` is and there are any; else false.
//!
//! A predicate that stands alone in a WHERE needs this only under NOT: there DataFusion has a join that looks at nulls, which
//! forgets to where one query stands within another. Where neither side can be null its joins are right and cost less.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, exists,
    lit, when,
};

/// What may be mistaken for null without harm.
#[derive(Clone, Copy, PartialEq)]
enum For {
    /// Only whether the condition is true matters.
    False,
    /// Only whether it is false matters: it stands under NOT.
    True,
}

impl For {
    fn not(self) -> For {
        match self {
            For::False => For::True,
            For::True => For::False,
        }
    }
}

/// The plan, with what is said above written out.
pub fn exact(plan: LogicalPlan) -> Result<LogicalPlan> {
    let exact = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
        if !has_membership(&filter.predicate)? {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let parts = split_conjunction_owned(filter.predicate).into_iter();
        let schema = filter.input.schema();
        let parts = parts.map(|part| match stands_alone(&part, schema)? {
            Some(Alone::Joins) => Ok(part),
            Some(Alone::Exists(found)) => match as_exists(&found, schema)? {
                Some(exists) => Ok(Expr::Not(Box::new(exists))),
                None => written_out(found, schema),
            },
            None => condition(part, For::False, schema),
        });
        let predicate = conjunction(parts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
    })?;
    Ok(exact.data)
}

/// The query with a name for its value that nothing else has, if it is called by no table: DataFusion finds a mark's columns by
/// their names alone.
fn named(found: InSubquery) -> Result<Expr> {
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

/// A predicate that stands by itself in a condition.
enum Alone {
    /// DataFusion's join for it is right.
    Joins,
    /// NOT IN of a query that depends on the rows outside, and no null anywhere: DataFusion joins by several keys only where no
    /// null is looked at, as for NOT EXISTS.
    Exists(InSubquery),
}

/// How such a predicate may be answered, if it need not be written out.
fn stands_alone(expr: &Expr, schema: &DFSchema) -> Result<Option<Alone>> {
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
    // What is written out over a UNION has two columns of one name, and DataFusion refuses it.
    if found.negated == not || has_union(&found.subquery.subquery) {
        return Ok(Some(Alone::Joins));
    }
    if may_be_null()? {
        return Ok(None);
    }
    let is_correlated = !found.subquery.outer_ref_columns.is_empty();
    Ok(Some(if is_correlated { Alone::Exists(found.clone()) } else { Alone::Joins }))
}

/// Whether what a query selects depends on the rows outside: DataFusion joins by conditions only.
fn selects_outer(query: &Subquery) -> Result<bool> {
    let LogicalPlan::Projection(projection) = query.subquery.as_ref() else { return Ok(false) };
    let is_outer = |expr: &Expr| Ok(matches!(expr, Expr::OuterReferenceColumn(..)));
    projection.expr.iter().try_fold(false, |found, expr| Ok(found || expr.exists(is_outer)?))
}

fn has_union(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Union(_)) || plan.inputs().into_iter().any(has_union)
}

fn condition(expr: Expr, null_is: For, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, right) = (condition(*left, null_is, schema)?, condition(*right, null_is, schema)?);
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        Expr::Not(inner) => Ok(Expr::Not(Box::new(condition(*inner, null_is.not(), schema)?))),
        Expr::InSubquery(found) => {
            // The mark is false for null, and its opposite true.
            let mark = if found.negated { For::True } else { For::False };
            if null_is == mark && !selects_outer(&found.subquery)? {
                named(found)
            } else {
                written_out(found, schema)
            }
        }
        // All three matter.
        other => {
            let exact = other.transform_up(|expr| match expr {
                Expr::InSubquery(found) => Ok(Transformed::yes(written_out(found, schema)?)),
                other => Ok(Transformed::no(other)),
            });
            Ok(exact?.data)
        }
    }
}

/// IN of a query that depends on the rows outside, as EXISTS: whether one is equal. `None` where it cannot be said so.
fn as_exists(found: &InSubquery, schema: &DFSchema) -> Result<Option<Expr>> {
    let rows = Rows::of(&found.subquery);
    if found.expr.is_volatile() || !rows.is_selected || !rows.is_correlated() {
        return Ok(None);
    }
    let Some((outer, columns)) = as_outer(&found.expr, schema)? else { return Ok(None) };
    rows.any(Some(rows.value.clone().eq(outer)), &columns).map(Some)
}

fn written_out(found: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let is_in = as_exists(&found, schema)?;
    let InSubquery { expr, subquery, negated } = found;
    if expr.is_volatile() {
        return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }));
    }
    let rows = Rows::of(&subquery);
    let any = rows.any(None, &[])?;
    let any_null = rows.any(Some(rows.value.clone().is_null()), &[])?;
    let unknown = any_null.or(expr.as_ref().clone().is_null().and(any));
    // NOT of IN would be a join by several keys: DataFusion has none that looks at nulls.
    let is_in = match is_in {
        Some(is_in) => is_in,
        None => named(InSubquery { expr, subquery, negated: false })?,
    };
    when(is_in, lit(!negated)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(negated))
}

/// An expression over the rows outside, as it is written within a query; and the columns that it is about. `None` if it cannot be.
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

/// What a query selects a value of.
struct Rows {
    plan: Arc<LogicalPlan>,
    value: Expr,
    /// Whether the value is an expression over the plan's rows, which have no other name yet.
    is_selected: bool,
    outer_ref_columns: Vec<Expr>,
}

impl Rows {
    fn of(query: &Subquery) -> Rows {
        let outer_ref_columns = query.outer_ref_columns.clone();
        match query.subquery.as_ref() {
            // What it selects may depend on the rows outside too: then it can only stand in a condition.
            LogicalPlan::Projection(projection)
                if !outer_ref_columns.is_empty() && projection.expr.len() == 1 =>
            {
                let value = projection.expr[0].clone().unalias();
                Rows { plan: projection.input.clone(), value, is_selected: true, outer_ref_columns }
            }
            plan => {
                let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
                Rows { plan: query.subquery.clone(), value, is_selected: false, outer_ref_columns }
            }
        }
    }

    fn is_correlated(&self) -> bool {
        !self.outer_ref_columns.is_empty()
    }

    /// Whether the query has a row, of which that holds. One is enough: without the limit each row outside meets all inside.
    fn any(&self, filter: Option<Expr>, columns: &[Expr]) -> Result<Expr> {
        let mut plan = match (self.plan.as_ref(), &filter) {
            // Of two filters one behind the other DataFusion forgets which columns the first one is about.
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
            // Nothing but what it is joined by goes up: two columns of a join may have one name, by which DataFusion finds them.
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

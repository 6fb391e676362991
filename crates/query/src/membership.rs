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
pub(crate) fn exact(plan: LogicalPlan) -> Result<LogicalPlan> {
    let exact = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
        if !has_membership(&filter.predicate)? {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let parts = split_conjunction_owned(filter.predicate).into_iter();
        let parts = parts.map(|part| match stands_alone(&part, filter.input.schema())? {
            true => Ok(part),
            false => condition(part, For::False),
        });
        let predicate = conjunction(parts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
    })?;
    Ok(exact.data)
}

fn has_membership(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_))))
}

/// Whether it is a predicate by itself, and DataFusion's join for it is right.
fn stands_alone(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let (expr, not) = match expr {
        Expr::Not(inner) => (inner.as_ref(), true),
        other => (other, false),
    };
    let Expr::InSubquery(found) = expr else { return Ok(false) };
    let may_be_null = || -> Result<bool> {
        let inside = found.subquery.subquery.schema().field(0).is_nullable();
        Ok(inside || found.expr.nullable(schema)?)
    };
    // What is written out over a UNION has two columns of one name, and DataFusion refuses it.
    Ok(found.negated == not || has_union(&found.subquery.subquery) || !may_be_null()?)
}

fn has_union(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Union(_)) || plan.inputs().into_iter().any(has_union)
}

fn condition(expr: Expr, null_is: For) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, right) = (condition(*left, null_is)?, condition(*right, null_is)?);
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        Expr::Not(inner) => Ok(Expr::Not(Box::new(condition(*inner, null_is.not())?))),
        Expr::InSubquery(found) => {
            // The mark is false for null, and its opposite true.
            let mark = if found.negated { For::True } else { For::False };
            if null_is == mark { Ok(Expr::InSubquery(found)) } else { written_out(found) }
        }
        // All three matter.
        other => {
            let exact = other.transform_up(|expr| match expr {
                Expr::InSubquery(found) => Ok(Transformed::yes(written_out(found)?)),
                other => Ok(Transformed::no(other)),
            });
            Ok(exact?.data)
        }
    }
}

fn written_out(found: InSubquery) -> Result<Expr> {
    let InSubquery { expr, subquery, negated } = found;
    if expr.is_volatile() {
        return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }));
    }
    let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
    let value = Expr::Column(Column::from((qualifier, field)));
    let any = any_of(&subquery, None)?;
    let any_null = any_of(&subquery, Some(value.is_null()))?;
    let unknown = any_null.or(expr.as_ref().clone().is_null().and(any));
    let is_in = Expr::InSubquery(InSubquery { expr, subquery, negated: false });
    when(is_in, lit(!negated)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(negated))
}

/// Whether the query has a row, of which that holds. One is enough: without the limit each row outside meets all inside.
fn any_of(query: &Subquery, filter: Option<Expr>) -> Result<Expr> {
    let mut plan = LogicalPlanBuilder::new_from_arc(query.subquery.clone());
    if let Some(filter) = filter {
        plan = plan.filter(filter)?;
    }
    if query.outer_ref_columns.is_empty() {
        plan = plan.limit(0, Some(1))?;
    }
    let mut any = exists(Arc::new(plan.build()?));
    if let Expr::Exists(exists) = &mut any {
        exists.subquery.outer_ref_columns.clone_from(&query.outer_ref_columns);
    }
    Ok(any)
}

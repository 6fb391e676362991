//! An aggregate without GROUP BY returns exactly one row, also if its input is empty.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, lit, when};

use super::subquery_of;

/// Aggregates that are 0 for no rows. DataFusion handles `count` itself.
const ZERO_OF_NONE: [&str; 2] = ["approx_distinct", "regr_count"];

/// A query over an aggregate without GROUP BY.
pub(super) struct GlobalAggregate {
    aggregate: Arc<LogicalPlan>,
    /// The columns of the query, as expressions over the columns of the aggregate.
    columns: Vec<(Column, Expr)>,
    /// The condition under which the row is returned; `None` if it always is.
    having: Option<Expr>,
}

impl GlobalAggregate {
    /// Returns `None` if the plan is not such a query.
    pub fn of(plan: &Arc<LogicalPlan>) -> Result<Option<GlobalAggregate>> {
        let input = match plan.as_ref() {
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                let columns = zeros(aggregate)?;
                return Ok(Some(GlobalAggregate { aggregate: plan.clone(), columns, having: None }));
            }
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Limit(limit) => &limit.input,
            _ => return Ok(None),
        };
        let Some(mut total) = GlobalAggregate::of(input)? else { return Ok(None) };
        let values: Vec<Expr> = match plan.as_ref() {
            LogicalPlan::Projection(projection) => {
                let values = projection.expr.iter().map(|expr| total.over_aggregate(expr));
                let Some(values) = values.collect::<Result<Option<Vec<_>>>>()? else { return Ok(None) };
                values
            }
            _ => total.columns.iter().map(|(_, value)| value.clone()).collect(),
        };
        let condition = match plan.as_ref() {
            LogicalPlan::Filter(filter) => {
                let Some(condition) = total.over_aggregate(&filter.predicate)? else { return Ok(None) };
                Some(condition)
            }
            LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
                (SkipType::Literal(0), FetchType::Literal(None | Some(1..))) => None,
                (SkipType::Literal(_), FetchType::Literal(_)) => Some(lit(false)),
                _ => return Ok(None),
            },
            _ => None,
        };
        total.having = match (total.having, condition) {
            (Some(before), Some(condition)) => Some(before.and(condition)),
            (before, condition) => before.or(condition),
        };
        total.columns = plan.schema().columns().into_iter().zip(values).collect();
        Ok(Some(total))
    }

    /// Rewrites an expression of the query over the columns of the aggregate. Returns `None` if it contains a subquery that
    /// prevents that.
    fn over_aggregate(&self, expr: &Expr) -> Result<Option<Expr>> {
        let stays = |expr: &Expr| {
            Ok(match expr {
                Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => true,
                Expr::ScalarSubquery(query) => !query.outer_ref_columns.is_empty(),
                _ => false,
            })
        };
        if expr.is_volatile() || expr.exists(stays)? {
            return Ok(None);
        }
        let mut whole = true;
        let over = expr.clone().unalias().transform_up(|expr| match &expr {
            Expr::Column(column) => {
                let found = self.columns.iter().find(|(name, _)| name == column);
                whole &= found.is_some();
                Ok(found.map_or(Transformed::no(expr.clone()), |(_, value)| Transformed::yes(value.clone())))
            }
            _ => Ok(Transformed::no(expr)),
        })?;
        Ok(whole.then_some(over.data))
    }

    /// Returns the only value as an expression, which is null if there is no row.
    pub fn value(&self, name: &str) -> Result<Expr> {
        let (_, value) = &self.columns[0];
        match &self.having {
            Some(having) => self.query(when(having.clone(), value.clone()).end()?, name),
            None => self.query(value.clone(), name),
        }
    }

    pub fn exists(&self) -> Result<Expr> {
        match &self.having {
            Some(having) => Ok(Expr::IsTrue(Box::new(self.query(having.clone(), "having")?))),
            None => Ok(lit(true)),
        }
    }

    pub fn is_in(&self, value: Expr, negated: bool) -> Result<Expr> {
        let (column, own) = &self.columns[0];
        let mut found = value.eq(self.query(own.clone(), &column.name)?);
        if self.having.is_some() {
            found = self.exists()?.and(found);
        }
        Ok(if negated { !found } else { found })
    }

    /// Returns a value over the aggregate as a scalar subquery. Outer columns are read outside of it.
    fn query(&self, value: Expr, name: &str) -> Result<Expr> {
        if !value.contains_outer() {
            return if value.any_column_refs() { self.one(value, name) } else { Ok(value) };
        }
        let outside = value.transform_up(|expr| match expr {
            Expr::Column(column) => {
                let name = column.name.clone();
                self.one(Expr::Column(column), &name).map(Transformed::yes)
            }
            Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(outside.data)
    }

    fn one(&self, value: Expr, name: &str) -> Result<Expr> {
        let plan = LogicalPlanBuilder::new_from_arc(self.aggregate.clone()).project([value.alias(name)])?;
        Ok(Expr::ScalarSubquery(subquery_of(Arc::new(plan.build()?))))
    }
}

/// Returns the columns of an aggregate, with the value 0 where it is due for no rows.
fn zeros(aggregate: &Aggregate) -> Result<Vec<(Column, Expr)>> {
    let columns = aggregate.schema.columns().into_iter().zip(&aggregate.aggr_expr);
    let value = |(column, expr): (Column, &Expr)| {
        let own = Expr::Column(column.clone());
        let is_zero = matches!(expr.clone().unalias(), Expr::AggregateFunction(f) if ZERO_OF_NONE.contains(&f.func.name()));
        if !is_zero {
            return Ok((column, own));
        }
        let (_, field) = aggregate.schema.qualified_field_from_column(&column)?;
        let zero = ScalarValue::new_zero(field.data_type())?;
        let value = when(own.clone().is_null(), lit(zero)).otherwise(own)?;
        Ok((column, value))
    };
    columns.map(value).collect()
}

//! Prepares a correlated subquery for DataFusion's join to the outer rows.
//!
//! DataFusion pulls the conditions that name outer columns out of the subquery, and carries the inner columns of those conditions
//! to its top, where it identifies them by their names alone. A query in FROM hides such columns, so that they get lost there.
//! Here columns that could be confused get unique names, and queries in FROM pass them on. An operator that looks at several
//! rows, such as a window function or LIMIT, would see the rows of all outer rows before the join separates them, so it is
//! refused.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias,
};

use super::{is_dependent, refused};

/// Returns a correlated query in a form that DataFusion can join.
pub(super) fn prepare(
    query: Arc<LogicalPlan>,
    is_value: bool,
    count: &mut usize,
) -> Result<Arc<LogicalPlan>> {
    let plan = Arc::unwrap_or_clone(query).transform_up(move_outer_conditions)?.data;
    check(&plan, is_value)?;
    let mut mixes = false;
    collect_join_columns(&plan, &mut mixes);
    if !mixes {
        return Ok(Arc::new(plan));
    }
    let named = UniqueNames { count }.rename(&plan, false)?.0;
    if named.schema().fields().len() == plan.schema().fields().len() {
        return Ok(Arc::new(named));
    }
    let own = plan.schema().columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(named).project(own)?.build().map(Arc::new)
}

/// Moves conditions on outer rows from an inner join to a filter above it, and removes sorts, because joined rows need no order.
fn move_outer_conditions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(mut join)
            if join.join_type == JoinType::Inner
                && join.filter.as_ref().is_some_and(Expr::contains_outer) =>
        {
            let parts = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
            let (outer, own): (Vec<_>, Vec<_>) = parts.into_iter().partition(Expr::contains_outer);
            join.filter = conjunction(own);
            let rows = LogicalPlanBuilder::from(LogicalPlan::Join(join));
            let rows = match conjunction(outer) {
                Some(outer) => rows.filter(outer)?,
                None => rows,
            };
            rows.build().map(Transformed::yes)
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() && is_dependent(&sort.input) => {
            Ok(Transformed::yes(Arc::unwrap_or_clone(sort.input)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Refuses plans that the join would make wrong. `top` is true at the top of a scalar subquery.
fn check(plan: &LogicalPlan, top: bool) -> Result<()> {
    let below: Vec<&LogicalPlan> = plan.inputs().into_iter().filter(|input| is_dependent(input)).collect();
    if below.is_empty() {
        return Ok(());
    }
    let what = match plan {
        LogicalPlan::Projection(_) => return check(below[0], top),
        LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Unnest(_) => return check(below[0], false),
        LogicalPlan::Aggregate(aggregate) if top || !aggregate.group_expr.is_empty() => {
            return check(below[0], false);
        }
        LogicalPlan::Join(join) => {
            let (left, right) = match join.join_type {
                JoinType::Inner => (false, false),
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                    (false, true)
                }
                JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    (true, false)
                }
                JoinType::Full => (true, true),
            };
            if !(left && is_dependent(&join.left) || right && is_dependent(&join.right)) {
                return below.into_iter().try_for_each(|side| check(side, false));
            }
            "an outer join, EXCEPT or INTERSECT whose other side is correlated"
        }
        LogicalPlan::Aggregate(_) => "an aggregate without GROUP BY within a correlated query",
        LogicalPlan::Window(_) => "a window function in a correlated query",
        LogicalPlan::Limit(_) => "LIMIT or OFFSET in a correlated query",
        LogicalPlan::Distinct(_) => "DISTINCT ON in a correlated query",
        LogicalPlan::Union(_) => "a correlated UNION, except in EXISTS and IN,",
        _ => "a correlated query of this kind",
    };
    Err(refused(
        what,
        "write a join; the first rows of each are those with row_number() OVER (PARTITION BY … ORDER BY …) <= n",
    ))
}

/// Returns the columns by which the subquery is joined, as they are named above `plan`. Sets `mixes` if one of them could be
/// confused with another column.
fn collect_join_columns(plan: &LogicalPlan, mixes: &mut bool) -> Vec<Column> {
    let mut columns = Vec::new();
    for input in plan.inputs().into_iter().filter(|input| is_dependent(input)) {
        columns.extend(collect_join_columns(input, mixes));
    }
    match plan {
        LogicalPlan::Filter(filter) => {
            for column in own_columns(&filter.predicate) {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
        }
        LogicalPlan::SubqueryAlias(alias) => {
            *mixes |= columns.iter().any(|column| !alias.input.schema().has_column(column));
            let called = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
            columns = columns.into_iter().map(called).collect();
        }
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => {
            for (column, expr) in plan.schema().columns().iter().zip(plan.expressions()) {
                let is_other = |one: &Column| one.name == column.name && expr.try_as_col() != Some(one);
                *mixes |= columns.iter().any(is_other);
            }
        }
        _ => {}
    }
    for (at, column) in columns.iter().enumerate() {
        *mixes |= columns[..at].iter().any(|other| other.name == column.name);
    }
    columns
}

/// Returns the query's own columns in the conditions that name outer columns.
fn own_columns(predicate: &Expr) -> Vec<Column> {
    let mut columns = Vec::new();
    for part in split_conjunction(predicate).into_iter().filter(|part| part.contains_outer()) {
        let mut own: Vec<Column> = part.column_refs().into_iter().cloned().collect();
        own.sort();
        columns.extend(own);
    }
    let mut seen = std::collections::HashSet::new();
    columns.retain(|column| seen.insert(column.clone()));
    columns
}

struct UniqueNames<'a> {
    count: &'a mut usize,
}

impl UniqueNames<'_> {
    /// Gives the join columns of a plan unique names, and returns those too. A query in FROM also selects them.
    fn rename(&mut self, plan: &LogicalPlan, in_from: bool) -> Result<(LogicalPlan, Vec<Column>)> {
        if !is_dependent(plan) {
            return Ok((plan.clone(), Vec::new()));
        }
        let in_from = in_from || matches!(plan, LogicalPlan::SubqueryAlias(_));
        let (mut inputs, mut columns) = (Vec::new(), Vec::new());
        for input in plan.inputs() {
            let (input, joined) = self.rename(input, in_from)?;
            inputs.push(input);
            columns.extend(joined);
        }
        let carry = |mut exprs: Vec<Expr>, columns: &[Column]| {
            if in_from {
                exprs.extend(columns.iter().cloned().map(Expr::Column));
            }
            exprs
        };
        let named = match plan {
            LogicalPlan::Filter(filter) => self.filter(filter, only(inputs), &mut columns)?,
            LogicalPlan::Projection(projection) => {
                let exprs = carry(projection.expr.clone(), &columns);
                LogicalPlan::Projection(Projection::try_new(exprs, only(inputs))?)
            }
            LogicalPlan::Aggregate(aggregate) => {
                let groups = carry(aggregate.group_expr.clone(), &columns);
                LogicalPlan::Aggregate(Aggregate::try_new(only(inputs), groups, aggregate.aggr_expr.clone())?)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let called = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
                columns = columns.into_iter().map(called).collect();
                LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(only(inputs), alias.alias.clone())?)
            }
            LogicalPlan::Distinct(Distinct::All(_)) => LogicalPlan::Distinct(Distinct::All(only(inputs))),
            other => other.with_new_exprs(other.expressions(), inputs)?,
        };
        Ok((named, columns))
    }

    fn filter(
        &mut self,
        filter: &Filter,
        mut input: Arc<LogicalPlan>,
        columns: &mut Vec<Column>,
    ) -> Result<LogicalPlan> {
        let own: Vec<Column> = own_columns(&filter.predicate);
        let names = own.iter().map(|_| {
            *self.count += 1;
            Column::new_unqualified(format!("joined column {}", self.count))
        });
        let names: Vec<Column> = names.collect();
        if !own.is_empty() {
            let all = input.schema().columns().into_iter().map(Expr::Column);
            let more = own.iter().zip(&names).map(|(own, name)| Expr::Column(own.clone()).alias(&name.name));
            let exprs = all.chain(more).collect();
            input = Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?));
        }
        let parts = split_conjunction_owned(filter.predicate.clone()).into_iter().map(|part| {
            if !part.contains_outer() {
                return Ok(part);
            }
            let named = part.transform_up(|expr| {
                let at = expr.try_as_col().and_then(|column| own.iter().position(|own| own == column));
                Ok(at.map_or(Transformed::no(expr), |at| Transformed::yes(Expr::Column(names[at].clone()))))
            })?;
            Ok(named.data)
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        columns.extend(names);
        let rows = LogicalPlanBuilder::new_from_arc(input);
        match conjunction(parts) {
            Some(parts) => rows.filter(parts)?.build(),
            None => rows.build(),
        }
    }
}

fn only(inputs: Vec<LogicalPlan>) -> Arc<LogicalPlan> {
    let mut inputs = inputs.into_iter();
    Arc::new(inputs.next().expect("this plan has an input"))
}

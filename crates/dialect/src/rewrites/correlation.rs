//! Correlated subqueries return PostgreSQL's results. This module rewrites them to a form for which DataFusion's joins are right.
//!
//! DataFusion joins a correlated subquery to the outer rows by the conditions of its WHERE, and groups its aggregates by the
//! columns of those conditions. So an aggregate over no rows has no group and returns no row. OFFSET counts the rows of all outer
//! rows together. HAVING is evaluated before the join. Two columns of one name are confused. Here, from the outermost query
//! inwards:
//!
//! - `outer_columns` passes columns from further outside through the query in between.
//! - `GlobalAggregate` represents an aggregate without GROUP BY, which always has one row; each of its values becomes a scalar
//!   subquery.
//! - EXISTS keeps only the parts of its query that decide if there are rows, and tests each part of a UNION separately, as IN
//!   does.
//! - `join_columns` gives columns of equal names unique names, and refuses queries for which the joins would be wrong.

mod global_aggregate;
mod join_columns;
mod outer_columns;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, Spans};
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{FetchType, Limit, SkipType};
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Subquery, lit};
use types::Error;

use global_aggregate::GlobalAggregate;

/// Rewrites the correlated subqueries of a plan, except for the last step, which is [`prepare_joins`].
pub fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    CorrelationRewriter { count: 0 }.plan(plan)
}

/// Prepares the correlated subqueries of a plan for DataFusion's joins. Runs after all other rewrites of subqueries.
pub fn prepare_joins(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut count = 0;
    let joined = plan.transform_up_with_subqueries(|plan| {
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let joined = expr.transform_up(|mut expr| {
                let is_value = matches!(expr, Expr::ScalarSubquery(_));
                let query = match &mut expr {
                    Expr::Exists(exists) => &mut exists.subquery,
                    Expr::InSubquery(within) => &mut within.subquery,
                    Expr::ScalarSubquery(query) => query,
                    _ => return Ok(Transformed::no(expr)),
                };
                if !is_dependent(&query.subquery) {
                    return Ok(Transformed::no(expr));
                }
                *query = subquery_of(join_columns::prepare(query.subquery.clone(), is_value, &mut count)?);
                Ok(Transformed::yes(expr))
            })?;
            Ok(if joined.transformed { joined.update_data(|expr| name.restore(expr)) } else { joined })
        })
    })?;
    Ok(joined.data)
}

struct CorrelationRewriter {
    /// Number of names given so far.
    count: usize,
}

impl CorrelationRewriter {
    fn plan(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let spelled = plan.transform_up(|plan| {
            if !has_query(&plan)? {
                return Ok(Transformed::no(plan));
            }
            let outside = match plan.inputs()[..] {
                [input] => Some(input.clone()),
                _ => None,
            };
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let spelled = expr.transform_up(|expr| self.expr(expr, outside.as_ref()))?;
                Ok(if spelled.transformed { spelled.update_data(|expr| name.restore(expr)) } else { spelled })
            })
        })?;
        Ok(spelled.data)
    }

    fn expr(&mut self, expr: Expr, outside: Option<&LogicalPlan>) -> Result<Transformed<Expr>> {
        let spelled = match expr {
            Expr::Exists(Exists { subquery, negated }) => {
                let query = self.rewrite_inner(&subquery, outside)?;
                if is_dependent(&query) {
                    match exists(&query)? {
                        Expr::Exists(Exists { subquery, .. }) => Expr::Exists(Exists { subquery, negated }),
                        found if negated => !found,
                        found => found,
                    }
                } else {
                    Expr::Exists(Exists { subquery: subquery_of(query), negated })
                }
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let query = self.rewrite_inner(&subquery, outside)?;
                if is_dependent(&query) {
                    is_in(*expr, query, negated)?
                } else {
                    Expr::InSubquery(InSubquery { expr, subquery: subquery_of(query), negated })
                }
            }
            Expr::ScalarSubquery(subquery) => {
                let query = self.rewrite_inner(&subquery, outside)?;
                match global_aggregate_of(&query)? {
                    Some(aggregate) => aggregate.value(query.schema().field(0).name())?,
                    None => Expr::ScalarSubquery(subquery_of(query)),
                }
            }
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::yes(spelled))
    }

    /// Returns the plan of a query, after its own subqueries were freed from columns further outside and rewritten.
    fn rewrite_inner(&mut self, query: &Subquery, outside: Option<&LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let plan = outer_columns::lift(query.subquery.as_ref().clone(), outside, &mut self.count)?;
        self.plan(plan).map(Arc::new)
    }
}

/// Returns a condition that is true if the query has a row.
fn exists(query: &Arc<LogicalPlan>) -> Result<Expr> {
    // Projections, sorts and groupings with keys have a row exactly if their input has one, so they are skipped.
    let (mut plan, mut selects_only) = (query, true);
    loop {
        plan = match plan.as_ref() {
            LogicalPlan::Projection(projection) => {
                selects_only &= !projection.expr.iter().any(Expr::contains_outer);
                &projection.input
            }
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            LogicalPlan::Window(window) => &window.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Distinct(Distinct::On(distinct)) => &distinct.input,
            LogicalPlan::Aggregate(aggregate) if is_grouped(aggregate) => &aggregate.input,
            _ => break,
        };
        selects_only &= matches!(plan.as_ref(), LogicalPlan::Projection(_) | LogicalPlan::Filter(_));
    }
    if let Some(aggregate) = global_aggregate_of(plan)? {
        return aggregate.exists();
    }
    match plan.as_ref() {
        LogicalPlan::Limit(limit) => match rows_of(limit)? {
            (_, Some(0)) => Ok(lit(false)),
            (0, _) => exists(&limit.input),
            (skip, _) => has_more_rows(&limit.input, skip),
        },
        LogicalPlan::Union(union) => {
            let parts = union.inputs.iter().map(exists).collect::<Result<Vec<_>>>()?;
            Ok(disjunction(parts).unwrap_or_else(|| lit(false)))
        }
        LogicalPlan::EmptyRelation(empty) => Ok(lit(empty.produce_one_row)),
        LogicalPlan::Values(values) => Ok(lit(!values.values.is_empty())),
        _ => {
            let rows = if selects_only { query.clone() } else { one_of_each(plan)? };
            Ok(Expr::Exists(Exists { subquery: subquery_of(rows), negated: false }))
        }
    }
}

/// Returns true if every group has at least one input row. A grouping set may be empty, and makes a row from no rows.
fn is_grouped(aggregate: &Aggregate) -> bool {
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    !aggregate.group_expr.is_empty() && !aggregate.group_expr.iter().any(is_set)
}

fn has_more_rows(query: &Arc<LogicalPlan>, than: usize) -> Result<Expr> {
    if GlobalAggregate::of(query)?.is_some() {
        return Ok(lit(false));
    }
    let mut plan = query;
    while let LogicalPlan::Projection(_) | LogicalPlan::Sort(_) = plan.as_ref() {
        plan = match plan.as_ref() {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            _ => break,
        };
    }
    let count = count_all();
    let own = Expr::Column(Column::new_unqualified(count.schema_name().to_string()));
    let more = own.gt(lit(than as i64));
    let rows = LogicalPlanBuilder::new_from_arc(plan.clone())
        .aggregate(Vec::<Expr>::new(), vec![count])?
        .project([more])?
        .build()?;
    Ok(Expr::ScalarSubquery(subquery_of(Arc::new(rows))))
}

fn is_in(value: Expr, query: Arc<LogicalPlan>, negated: bool) -> Result<Expr> {
    if !value.is_volatile() {
        if let Some(aggregate) = global_aggregate_of(&query)? {
            return aggregate.is_in(value, negated);
        }
        let mut plan = &query;
        while let LogicalPlan::Distinct(Distinct::All(input)) = plan.as_ref() {
            plan = input;
        }
        if let LogicalPlan::Union(union) = plan.as_ref() {
            let parts = union.inputs.iter().map(|part| {
                if is_dependent(part) {
                    is_in(value.clone(), part.clone(), negated)
                } else {
                    let (expr, subquery) = (Box::new(value.clone()), subquery_of(part.clone()));
                    Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }))
                }
            });
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let all = if negated { conjunction(parts) } else { disjunction(parts) };
            return Ok(all.unwrap_or_else(|| lit(negated)));
        }
    }
    Ok(Expr::InSubquery(InSubquery { expr: Box::new(value), subquery: subquery_of(query), negated }))
}

/// Returns the aggregate without GROUP BY if the query is one and is correlated.
fn global_aggregate_of(query: &Arc<LogicalPlan>) -> Result<Option<GlobalAggregate>> {
    if is_dependent(query) { GlobalAggregate::of(query) } else { Ok(None) }
}

fn has_query(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found = found || expr.exists(|expr| Ok(query_of(expr).is_some()))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn query_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(within) => Some(&within.subquery),
        Expr::ScalarSubquery(query) => Some(query),
        _ => None,
    }
}

/// Replaces the columns of a query by a constant.
fn one_of_each(plan: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    LogicalPlanBuilder::new_from_arc(plan.clone()).project([lit(1_i64)])?.build().map(Arc::new)
}

/// Returns the OFFSET and the LIMIT of a query.
fn rows_of(limit: &Limit) -> Result<(usize, Option<usize>)> {
    match (limit.get_skip_type()?, limit.get_fetch_type()?) {
        (SkipType::Literal(skip), FetchType::Literal(fetch)) => Ok((skip, fetch)),
        _ => Err(refused(
            "EXISTS of a correlated query whose LIMIT or OFFSET is not a number",
            "write the number, or leave LIMIT out: EXISTS looks for one row only",
        )),
    }
}

fn subquery_of(plan: Arc<LogicalPlan>) -> Subquery {
    Subquery { outer_ref_columns: plan.all_out_ref_exprs(), subquery: plan, spans: Spans::new() }
}

/// Returns true if a query itself reads columns of outer rows, apart from its own subqueries.
fn is_dependent(plan: &LogicalPlan) -> bool {
    plan.contains_outer_reference() || plan.inputs().into_iter().any(is_dependent)
}

fn refused(what: &str, hint: &str) -> DataFusionError {
    DataFusionError::External(Box::new(Error::invalid(format!("{what} is not supported yet")).hint(hint)))
}

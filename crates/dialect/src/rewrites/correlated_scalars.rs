//! Several correlated scalar subqueries may stand in one condition or list, each with its own value.
//!
//! DataFusion joins such subqueries to the outer rows. It finds their values in the join by the name of their column alone, and
//! it marks the rows that had a match by a column of a fixed name. So `x > 1 AND (SELECT count(*) AS x FROM …) > 0` compared the
//! count instead of the column, and two counts were ambiguous. Here each value gets a unique name, and several subqueries of one
//! node are joined one after the other, each in a projection of its own.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Projection, Subquery};

/// Gives the correlated scalar subqueries of a plan unique names, and separates those that share a node.
pub fn separate(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut count = 0;
    let separated = plan.transform_up_with_subqueries(|plan| {
        let names = NamePreserver::new(&plan);
        let named = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let named = expr.transform_up(|expr| match expr {
                Expr::ScalarSubquery(query) if is_correlated(&query) => {
                    count += 1;
                    Ok(Transformed::yes(Expr::ScalarSubquery(with_unique_name(query, count)?)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(if named.transformed { named.update_data(|expr| name.restore(expr)) } else { named })
        })?;
        if !named.transformed {
            return Ok(named);
        }
        match named.data {
            LogicalPlan::Filter(filter) if has_several([&filter.predicate])? => separate_filter(filter),
            LogicalPlan::Projection(projection) if has_several(&projection.expr)? => {
                let names: Vec<_> = projection.expr.iter().map(|expr| names.save(expr)).collect();
                let mut values = Vec::new();
                let exprs =
                    projection.expr.into_iter().zip(names).map(|(expr, name)| {
                        extract_subqueries(expr, &mut values).map(|expr| name.restore(expr))
                    });
                let exprs = exprs.collect::<Result<_>>()?;
                let input = with_values(projection.input, values)?;
                Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
            }
            other => Ok(Transformed::yes(other)),
        }
    })?;
    Ok(separated.data)
}

fn is_correlated(query: &Subquery) -> bool {
    !query.outer_ref_columns.is_empty()
}

/// Returns the query with a unique name for its value.
fn with_unique_name(query: Subquery, number: usize) -> Result<Subquery> {
    let LogicalPlan::Projection(projection) = query.subquery.as_ref() else { return Ok(query) };
    let [value] = &projection.expr[..] else { return Ok(query) };
    let value = value.clone().unalias().alias(format!("value of query {number}"));
    let plan = LogicalPlan::Projection(Projection::try_new(vec![value], projection.input.clone())?);
    Ok(query.with_plan(Arc::new(plan)))
}

fn has_several<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Result<bool> {
    let mut count = 0;
    for expr in exprs {
        expr.exists(|expr| {
            count += usize::from(matches!(expr, Expr::ScalarSubquery(query) if is_correlated(query)));
            Ok(count > 1)
        })?;
    }
    Ok(count > 1)
}

fn separate_filter(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let columns: Vec<Expr> = filter.input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut values = Vec::new();
    let predicate = extract_subqueries(filter.predicate, &mut values)?;
    let input = with_values(filter.input, values)?;
    let filter = LogicalPlan::Filter(Filter::try_new(predicate, input)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(filter))?)))
}

/// Replaces the subqueries of an expression by columns, and moves them to `values`.
fn extract_subqueries(expr: Expr, values: &mut Vec<Expr>) -> Result<Expr> {
    let taken = expr.transform_up(|expr| match expr {
        Expr::ScalarSubquery(query) if is_correlated(&query) => {
            let name = query.subquery.schema().field(0).name().clone();
            values.push(Expr::ScalarSubquery(query).alias(&name));
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(taken.data)
}

fn with_values(mut input: Arc<LogicalPlan>, values: Vec<Expr>) -> Result<Arc<LogicalPlan>> {
    for value in values {
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let columns = columns.chain([value]).collect();
        input = Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?));
    }
    Ok(input)
}

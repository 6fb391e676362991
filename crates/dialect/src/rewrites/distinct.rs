//! DISTINCT keeps one of several equal rows, and DISTINCT ON the whole first row of each group.
//!
//! DataFusion drops DISTINCT if the columns contain a key of a table. Above a join that is wrong, because a row of the table
//! appears once for each row that it matches. This rule runs before DataFusion's and turns each DISTINCT into a grouping.
//!
//! For DISTINCT ON, DataFusion computes an aggregate for each column. These may take their values from different rows of equal
//! order, and cannot take lists. Here the rows are numbered within their group, and the first is kept.

use std::ops::ControlFlow;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, lit,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::{
    self, OrderBy, OrderByKind, Query, SelectItem, SetExpr, Statement, VisitMut, VisitorMut,
};

#[derive(Debug)]
pub struct DistinctAsGrouping;

impl OptimizerRule for DistinctAsGrouping {
    fn name(&self) -> &str {
        "distinct_is_grouping"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let input = match plan {
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Distinct(Distinct::On(on)) => return first_of_each(on).map(Transformed::yes),
            other => return Ok(Transformed::no(other)),
        };
        let columns: Vec<Expr> =
            input.schema().iter().map(|field| Expr::Column(Column::from(field))).collect();
        if columns.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
        }
        Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(input, columns, Vec::new())?)))
    }
}

/// Orders the expressions of DISTINCT ON as ORDER BY has them, and replaces column numbers and aliases in both: DataFusion
/// requires it, PostgreSQL does not.
pub fn order_distinct_on(statement: &mut Statement) {
    struct DistinctOnOrderer;
    impl VisitorMut for DistinctOnOrderer {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            if let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &mut query.order_by
                && let SetExpr::Select(select) = query.body.as_mut()
                && let Some(ast::Distinct::On(on)) = &mut select.distinct
            {
                let projection = &select.projection;
                on.iter_mut().for_each(|on| *on = resolve(on, projection).clone());
                order.iter_mut().for_each(|by| by.expr = resolve(&by.expr, projection).clone());
                let place = |on: &ast::Expr| order.iter().position(|by| by.expr == *on).unwrap_or(usize::MAX);
                on.sort_by_cached_key(place);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut DistinctOnOrderer);
}

/// Returns the expression of the SELECT list with this number or alias, else the expression itself.
fn resolve<'a>(expr: &'a ast::Expr, projection: &'a [SelectItem]) -> &'a ast::Expr {
    let item = match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => {
                digits.parse::<usize>().ok().and_then(|number| projection.get(number.checked_sub(1)?))
            }
            _ => None,
        },
        ast::Expr::Identifier(ident) => projection.iter().find(
            |item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value == ident.value),
        ),
        _ => None,
    };
    match item {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ => expr,
    }
}

fn first_of_each(on: DistinctOn) -> Result<LogicalPlan> {
    let DistinctOn { on_expr, select_expr, sort_expr, input, schema } = on;
    // The first expressions of ORDER BY are those of ON, which are equal within a group.
    let mut order = sort_expr.unwrap_or_default();
    let within = order.split_off(on_expr.len().min(order.len()));
    let number = row_number().partition_by(on_expr).order_by(within).build()?;
    let numbered = LogicalPlanBuilder::new_from_arc(input).window([number])?;
    let (qualifier, field) = numbered.schema().qualified_field(numbered.schema().fields().len() - 1);
    let number = Expr::Column(Column::from((qualifier, field)));
    let first = numbered.filter(number.eq(lit(1u64)))?;
    let first = if order.is_empty() { first } else { first.sort(order)? };
    let named = select_expr.into_iter().zip(schema.iter());
    let named =
        named.map(|(expr, (qualifier, field))| expr.alias_qualified(qualifier.cloned(), field.name()));
    first.project(named)?.build()
}

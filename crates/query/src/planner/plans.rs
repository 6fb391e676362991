//! Looks at statements and plans, and rewrites of finished plans.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{DefaultTableSource, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::sql::sqlparser::ast::{Query, Statement, Visit, Visitor};
use dialect::functions::regexes;
use dialect::rules::{float_keys, optimization_barrier};

use crate::provider::{SnapshotProvider, Table};

/// Returns true if a statement has a WITH RECURSIVE.
pub(super) fn is_recursive(statement: &Statement) -> bool {
    struct Look;
    impl Visitor for Look {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let recursive = query.with.as_ref().is_some_and(|with| with.recursive);
            if recursive { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    statement.visit(&mut Look).is_break()
}

/// Returns true if a plan calls a function whose value depends on the statement's time, such as `now()`. Such a plan is not
/// cached.
pub(super) fn depends_on_time(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr {
                    found |= function.func.signature().volatility == Volatility::Stable;
                }
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Replaces the tables of a plan by other snapshots of the same definitions.
pub(super) fn replace_tables(
    plan: LogicalPlan,
    other: &dyn Fn(&Table) -> Result<Table>,
) -> Result<LogicalPlan> {
    let bound = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
        let source = scan.source.as_any().downcast_ref::<DefaultTableSource>();
        let provider = source.and_then(|s| s.table_provider.as_any().downcast_ref::<SnapshotProvider>());
        let Some(provider) = provider else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
        let table = other(provider.table())?;
        scan.source = provider_as_source(Arc::new(provider.at(table)));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(bound.data)
}

/// Rewrites an optimized plan where DataFusion would otherwise execute it with another meaning.
pub(super) fn keep_meaning(plan: LogicalPlan) -> Result<LogicalPlan> {
    regexes::plan_with_calls(optimization_barrier::insert(float_keys::insert_keys(plan, |table| {
        table.as_any().is::<SnapshotProvider>()
    })?)?)
}

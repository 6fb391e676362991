//! A physical rule: swaps the sides of a semi join if that allows an index lookup.
//!
//! DataFusion reads first the side that it takes for the smaller one. It can only guess how many rows a filter leaves, so it may
//! read all of an indexed table of which the filter would have selected a handful. This rule reads the semi join's inner side
//! first if, by that guess, it is not much larger.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

use crate::index_advice::column_source_at;

/// Rows of the smallest side for which a lookup pays.
const ROWS_MIN: usize = 8_192;
/// Factor by which the other side may be estimated to be larger.
const SIZE_FACTOR: usize = 8;

/// The rule; see the module.
#[derive(Debug)]
pub(crate) struct ChooseBuildSide;

impl PhysicalOptimizerRule for ChooseBuildSide {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let turned = plan.transform_up(|plan| {
            Ok(match plan.as_any().downcast_ref::<HashJoinExec>() {
                Some(join) if would_look_up(join)? => {
                    Transformed::yes(join.swap_inputs(*join.partition_mode())?)
                }
                _ => Transformed::no(plan),
            })
        });
        turned.data()
    }

    fn name(&self) -> &str {
        "choose_build_side"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn would_look_up(join: &HashJoinExec) -> Result<bool> {
    if *join.join_type() != JoinType::LeftSemi || join.null_aware {
        return Ok(false);
    }
    let Some(rows) = join.on().iter().find_map(|(key, _)| lookup_rows(join.left(), key)) else {
        return Ok(false);
    };
    let other = join.right().partition_statistics(None)?.num_rows;
    Ok(rows >= ROWS_MIN
        && match other {
            Precision::Exact(_) => false,
            Precision::Inexact(other) => other <= rows.saturating_mul(SIZE_FACTOR),
            Precision::Absent => true,
        })
}

/// Returns the number of rows that a scan reads, if a key, a row id or an index could look them up instead.
fn lookup_rows(plan: &Arc<dyn ExecutionPlan>, key: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let columns = collect_columns(key);
    let column = columns.iter().next().filter(|_| columns.len() == 1)?;
    let (scan, column) = column_source_at(plan, column.index())?;
    (scan.coverage().is_some() && !scan.is_lookup() && scan.can_look_up(column)).then(|| scan.rows(None))
}

//! A physical rule: pushes the join keys of the side that is read first into the scan of the other side.
//!
//! It applies to `WHERE x IN (SELECT …)`, EXISTS and NOT EXISTS with an equality, and inner and outer joins: wherever a row of
//! the side that is read last is useless unless it meets one of the side that is read first. The keys of the first side are
//! [collected](key_collector) as its rows pass, and the scan of the other side [receives](join_keys) them before it reads
//! anything. If they are few, the scan looks its rows up by key, row id or index; else it leaves out the pieces whose bounds
//! contain none of them. The join itself is unchanged, so the answer is that of a full scan (M2).
//!
//! DataFusion has such a rule, but only for inner joins, and it finds the column in the nodes between by its name, which another
//! column may share. This rule follows columns by their position.

mod build_side;
pub(crate) mod join_keys;
mod key_collector;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use dialect::rules::property_barrier::PropertyBarrier;

use crate::scan::Scan;
pub(crate) use build_side::ChooseBuildSide;
use join_keys::{CollectedKeys, JoinKeyFilter};
pub(crate) use key_collector::KeyCollectorExec;

/// Nodes between a join and the scan that receives its keys. Each of them copies the plan above the scan, so without a bound the
/// cost of a statement with many joins would be quadratic.
const NODES_MAX: usize = 32;

/// The rule; see the module. It must be the last: it connects nodes of the plan through shared state.
#[derive(Debug)]
pub(crate) struct JoinKeyPushdown;

impl PhysicalOptimizerRule for JoinKeyPushdown {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let connected = plan.transform_up(|plan| {
            let join = plan.as_any().downcast_ref::<HashJoinExec>();
            Ok(match join.map(connect_sides).transpose()?.flatten() {
                Some(children) => Transformed::yes(plan.with_new_children(children)?),
                None => Transformed::no(plan),
            })
        });
        connected.data()
    }

    fn name(&self) -> &str {
        "join_key_pushdown"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the sides of a join with the filter in place; `None` if the right side cannot use the left side's keys.
fn connect_sides(join: &HashJoinExec) -> Result<Option<Vec<Arc<dyn ExecutionPlan>>>> {
    let is_of_use = match join.join_type() {
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftMark | JoinType::RightSemi => {
            true
        }
        // The join asks whether the other side has any row, or a null.
        JoinType::LeftAnti => !join.null_aware,
        JoinType::Right | JoinType::Full | JoinType::RightAnti | JoinType::RightMark => false,
    };
    if !is_of_use || join.on().is_empty() {
        return Ok(None);
    }
    let nulls_equal = join.null_equality() == NullEquality::NullEqualsNull;
    let (keys, right_keys): (Vec<_>, Vec<_>) = join.on().iter().cloned().unzip();
    let collected = Arc::new(CollectedKeys::new(nulls_equal, keys.len()));
    let mut targets = Vec::new();
    let wanted = right_keys.into_iter().map(Some).collect();
    let Some(right) = push_filter(join.right(), wanted, &collected, &mut targets, NODES_MAX)? else {
        return Ok(None);
    };
    let left = collect_keys(join.left(), keys, &collected, &targets)?;
    Ok(Some(vec![left, right]))
}

/// Collects keys below the repartitioning of the left side: a partition of the join has its rows when all collecting partitions
/// have ended.
fn collect_keys(
    plan: &Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    collected: &Arc<CollectedKeys>,
    targets: &[String],
) -> Result<Arc<dyn ExecutionPlan>> {
    let any = plan.as_any();
    if any.is::<RepartitionExec>() || any.is::<CoalescePartitionsExec>() {
        let input = collect_keys(plan.children()[0], keys, collected, targets)?;
        return plan.clone().with_new_children(vec![input]);
    }
    Ok(Arc::new(KeyCollectorExec::new(plan.clone(), keys, collected.clone(), targets)))
}

/// The columns of a plan's rows that each join key is computed from; `None` for a key that is not known here.
type KeyColumns = Vec<Option<Arc<dyn PhysicalExpr>>>;

/// Returns the plan with the filter in a scan at most `nodes_left` nodes below; `None` if no scan can take it.
fn push_filter(
    plan: &Arc<dyn ExecutionPlan>,
    wanted: KeyColumns,
    collected: &Arc<CollectedKeys>,
    targets: &mut Vec<String>,
    nodes_left: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // Under a limit, other rows would take the place of those that the filter leaves out.
    if wanted.iter().all(Option::is_none) || plan.fetch().is_some() || nodes_left == 0 {
        return Ok(None);
    }
    let any = plan.as_any();
    if let Some(scan) = any.downcast_ref::<Scan>() {
        let filter = Arc::new(JoinKeyFilter::new(wanted, collected.clone()));
        let Some(scan) = scan.with_dynamic_filter(filter.clone()) else { return Ok(None) };
        let table = &scan.snapshot().def().name;
        targets.extend(filter.keys().map(|key| format!("{}.{key}", types::name::short_table_name(table))));
        return Ok(Some(Arc::new(scan)));
    }
    let children = plan.children();
    let mut push_to_child = |at: usize, wanted: KeyColumns| -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(child) = push_filter(children[at], wanted, collected, targets, nodes_left - 1)? else {
            return Ok(None);
        };
        let mut all: Vec<_> = children.iter().copied().cloned().collect();
        all[at] = child;
        plan.clone().with_new_children(all).map(Some)
    };
    if let Some(projection) = any.downcast_ref::<ProjectionExec>() {
        return push_to_child(0, rewrite_keys(wanted, |at| Some(projection.expr().get(at)?.expr.clone()))?);
    }
    if let Some(filter) = any.downcast_ref::<FilterExec>() {
        let schema = filter.input().schema();
        let column = |at: usize| {
            let at = match filter.projection() {
                Some(columns) => *columns.get(at)?,
                None => at,
            };
            Some(Arc::new(Column::new(schema.fields().get(at)?.name(), at)) as Arc<dyn PhysicalExpr>)
        };
        return push_to_child(0, rewrite_keys(wanted, column)?);
    }
    if let Some(aggregate) = any.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        if groups.has_grouping_set() || aggregate.limit_options().is_some() {
            return Ok(None);
        }
        return push_to_child(0, rewrite_keys(wanted, |at| Some(groups.expr().get(at)?.0.clone()))?);
    }
    if let Some(join) = any.downcast_ref::<HashJoinExec>() {
        for side in [0, 1] {
            let of_side = rewrite_keys(wanted.clone(), |at| column_of(join, at, side))?;
            if let Some(plan) = push_to_child(side, of_side)? {
                return Ok(Some(plan));
            }
        }
        return Ok(None);
    }
    if any.is::<UnionExec>() {
        let mut all: Vec<_> = children.iter().copied().cloned().collect();
        let mut is_pushed = false;
        for child in &mut all {
            if let Some(pushed) = push_filter(child, wanted.clone(), collected, targets, nodes_left - 1)? {
                (*child, is_pushed) = (pushed, true);
            }
        }
        return if is_pushed { plan.clone().with_new_children(all).map(Some) } else { Ok(None) };
    }
    let passes = any.is::<CoalescePartitionsExec>()
        || any.is::<CooperativeExec>()
        || any.is::<PropertyBarrier>()
        || any.is::<RepartitionExec>()
        || any.is::<SortExec>()
        || any.is::<SortPreservingMergeExec>()
        || any.is::<KeyCollectorExec>();
    if passes { push_to_child(0, wanted) } else { Ok(None) }
}

/// Returns a column of a join's rows as a column of one side, if each row of the join has a row of that side.
fn column_of(join: &HashJoinExec, at: usize, side: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let at = match &join.projection {
        Some(columns) => *columns.get(at)?,
        None => at,
    };
    let (left, right) = (join.left().schema(), join.right().schema());
    let width = left.fields().len();
    let (schema, at) = match (join.join_type(), side) {
        (JoinType::Inner | JoinType::Left, 0) if at < width => (left, at),
        (JoinType::Inner | JoinType::Right, 1) => (right, at.checked_sub(width)?),
        (JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark, 0) => (left, at),
        (JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark, 1) => (right, at),
        _ => return None,
    };
    // The mark follows the columns.
    let field = schema.fields().get(at)?;
    Some(Arc::new(Column::new(field.name(), at)))
}

/// Rewrites the keys over the columns of an input.
fn rewrite_keys(
    wanted: KeyColumns,
    column: impl Fn(usize) -> Option<Arc<dyn PhysicalExpr>>,
) -> Result<KeyColumns> {
    let one = |key: Option<Arc<dyn PhysicalExpr>>| {
        let Some(key) = key else { return Ok(None) };
        let mut is_known = true;
        let rewritten = key.transform_up(|expr| {
            let Some(at) = expr.as_any().downcast_ref::<Column>().map(Column::index) else {
                return Ok(Transformed::no(expr));
            };
            Ok(match column(at) {
                Some(column) => Transformed::yes(column),
                None => {
                    is_known = false;
                    Transformed::no(expr)
                }
            })
        })?;
        Ok(is_known.then_some(rewritten.data))
    };
    wanted.into_iter().map(one).collect()
}

//! A physical rule: a sort with a very large limit becomes a full sort and a limit.
//!
//! `ORDER BY x LIMIT 10` keeps ten rows and compares each further one with them. The kept rows cannot spill, so a statement with
//! `LIMIT 1 OFFSET 400000` runs out of memory where a sort of all rows succeeds. This rule lets such a sort spill like any other,
//! and puts the limit above it.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::cost::newest_first_scan;

/// Bytes of a kept row and its key, counted twice: the sort copies its best rows now and then.
const ROW_BYTES: usize = 1 << 10;

/// The rule; see the module.
#[derive(Debug)]
pub(crate) struct LargeLimit {
    /// Greatest limit of a sort that keeps its rows in memory.
    rows_max: usize,
}

impl LargeLimit {
    /// Makes the rule. A thread may keep at most a quarter of its share of `memory_bytes`.
    pub fn for_memory(memory_bytes: usize, threads: usize) -> LargeLimit {
        LargeLimit { rows_max: (memory_bytes / threads.max(1) / 4 / ROW_BYTES).clamp(1 << 10, 1 << 16) }
    }
}

impl PhysicalOptimizerRule for LargeLimit {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let all = plan.transform_up(|plan| {
            let Some(sort) = plan.as_any().downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(plan));
            };
            let Some(wanted) = sort.fetch().filter(|wanted| *wanted > self.rows_max) else {
                return Ok(Transformed::no(plan));
            };
            // A sort over this scan stops reading early.
            if newest_first_scan(sort.input()).is_some() {
                return Ok(Transformed::no(plan));
            }
            let sorted = Arc::new(sort.with_fetch(None));
            Ok(Transformed::yes(if sort.preserve_partitioning() {
                Arc::new(LocalLimitExec::new(sorted, wanted)) as Arc<dyn ExecutionPlan>
            } else {
                Arc::new(GlobalLimitExec::new(sorted, 0, Some(wanted)))
            }))
        });
        all.data()
    }

    fn name(&self) -> &str {
        "large_limit"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

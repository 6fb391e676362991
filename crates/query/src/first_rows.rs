//! A physical rule: the first very many rows of an order are sorted like all.
//!
//! `ORDER BY x LIMIT 10` keeps ten rows and looks whether each further one comes before them. What is kept cannot spill, so with
//! `LIMIT 1 OFFSET 400000` a statement ends for want of memory that sorts all rows without a limit. Here such a sort spills as any
//! other, and the limit stands behind it.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::weight::newest_first;

/// What a row may come to with its key, twice: the best so far are copied now and then.
const ROW_BYTES: usize = 1 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct FirstRows {
    /// Kept without sorting all.
    rows_max: usize,
}

impl FirstRows {
    /// A thread keeps no more than a quarter of its share of this memory.
    pub fn within(memory_bytes: usize, threads: usize) -> FirstRows {
        FirstRows { rows_max: (memory_bytes / threads.max(1) / 4 / ROW_BYTES).clamp(1 << 10, 1 << 16) }
    }
}

impl PhysicalOptimizerRule for FirstRows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let all = plan.transform_up(|plan| {
            let Some(sort) = plan.as_any().downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(plan));
            };
            let Some(wanted) = sort.fetch().filter(|wanted| *wanted > self.rows_max) else {
                return Ok(Transformed::no(plan));
            };
            // What comes in this order is not read to its end.
            if newest_first(sort.input()).is_some() {
                return Ok(Transformed::no(plan));
            }
            let sorted = Arc::new(sort.with_fetch(None));
            Ok(Transformed::yes(match sort.preserve_partitioning() {
                true => Arc::new(LocalLimitExec::new(sorted, wanted)) as Arc<dyn ExecutionPlan>,
                false => Arc::new(GlobalLimitExec::new(sorted, 0, Some(wanted))),
            }))
        });
        all.data()
    }

    fn name(&self) -> &str {
        "first_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

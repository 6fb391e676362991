//! A physical rule: a UNION ALL is in an order if each of its inputs is.
//!
//! If an input has one column under two names, DataFusion sorts it by one of them, because the other is equal to it. For the
//! union it forgets that, and refuses its own plan for `ORDER BY` both. Each input yields its rows in partitions of its own, so
//! an order that holds in every input holds in every partition of the union, which is all that is required.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

/// The rule. It runs before DataFusion checks that all required orders are there.
#[derive(Debug)]
pub struct UnionOrder;

impl PhysicalOptimizerRule for UnionOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let ordered = plan.transform_up(|plan| {
            let wanted = plan.required_input_ordering();
            let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
            let mut changed = false;
            for (child, wanted) in children.iter_mut().zip(wanted) {
                let Some(wanted) = wanted.map(|wanted| wanted.into_single()) else { continue };
                if let Some(ordered) = ordered(child, &wanted)? {
                    (*child, changed) = (ordered, true);
                }
            }
            Ok(if changed {
                Transformed::yes(plan.with_new_children(children)?)
            } else {
                Transformed::no(plan)
            })
        });
        ordered.data()
    }

    fn name(&self) -> &str {
        "union_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the union with the required order declared, if its inputs are in that order and the union does not know it.
fn ordered(plan: &Arc<dyn ExecutionPlan>, wanted: &LexRequirement) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_in_order = |plan: &Arc<dyn ExecutionPlan>| {
        plan.equivalence_properties().ordering_satisfy_requirement(wanted.clone())
    };
    if !plan.as_any().is::<UnionExec>() || is_in_order(plan)? {
        return Ok(None);
    }
    for part in plan.children() {
        if !is_in_order(part)? {
            return Ok(None);
        }
    }
    Ok(Some(Arc::new(OrderedUnionExec::new(plan.clone(), wanted.clone().into()))))
}

/// A node that passes its rows on and declares their order.
#[derive(Debug)]
pub struct OrderedUnionExec {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    properties: Arc<PlanProperties>,
}

impl OrderedUnionExec {
    fn new(input: Arc<dyn ExecutionPlan>, order: LexOrdering) -> OrderedUnionExec {
        let mut equivalence = input.equivalence_properties().clone();
        equivalence.add_ordering(order.clone());
        let properties = PlanProperties::new(
            equivalence,
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        OrderedUnionExec { input, order, properties: Arc::new(properties) }
    }
}

impl DisplayAs for OrderedUnionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ordered: [{}]", self.order)
    }
}

impl ExecutionPlan for OrderedUnionExec {
    fn name(&self) -> &str {
        "Ordered"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(input) => Arc::new(OrderedUnionExec::new(input, self.order.clone())),
            None => self,
        })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        self.input.partition_statistics(partition)
    }
}

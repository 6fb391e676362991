//! A physical rule that keeps DataFusion from using properties of rows where they do not hold.
//!
//! A plan knows which columns are constant or equal, and how rows are ordered. By these properties DataFusion drops sorts, and
//! ends groups early. In four places it derives properties that are false:
//!
//! | where | the property that DataFusion assumes |
//! |---|---|
//! | the side of an outer join that is filled with nulls | constants of that side stay constant |
//! | grouping sets, with a null for each column that a set leaves out | constants, equalities and orders are preserved |
//! | a hash join of two ordered sides | the other side's rows, which start again for each row of one side, stay in order |
//! | a window function whose own order is constant | any order required above it is there |
//!
//! In these places the rule inserts a [`PropertyBarrier`] node, which passes its rows on and hides the properties.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};

/// The rule. It runs after the sides of joins are chosen, and before sorts are inserted.
#[derive(Debug)]
pub struct InsertPropertyBarriers;

impl PhysicalOptimizerRule for InsertPropertyBarriers {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let hiding = plan.transform_up(|plan| {
            let sides = sides_to_hide(&plan);
            if sides.contains(&true) {
                let wrap = |(input, hides): (&Arc<dyn ExecutionPlan>, bool)| {
                    if hides {
                        PropertyBarrier::wrap(input.clone(), HiddenProperties::All)
                    } else {
                        input.clone()
                    }
                };
                let inputs = plan.children().into_iter().zip(sides).map(wrap).collect();
                return plan.with_new_children(inputs).map(Transformed::yes);
            }
            Ok(if has_grouping_sets(&plan) {
                Transformed::yes(PropertyBarrier::wrap(plan, HiddenProperties::AllAndPartitioning))
            } else if is_of_constant_order(&plan) {
                Transformed::yes(PropertyBarrier::wrap(plan, HiddenProperties::RequiredOrder))
            } else {
                Transformed::no(plan)
            })
        });
        hiding.data()
    }

    fn name(&self) -> &str {
        "forgets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns for each side of a join if its properties have to be hidden.
fn sides_to_hide(plan: &Arc<dyn ExecutionPlan>) -> [bool; 2] {
    let any = plan.as_any();
    let hash = any.downcast_ref::<HashJoinExec>();
    let kind = hash
        .map(HashJoinExec::join_type)
        .or_else(|| any.downcast_ref::<NestedLoopJoinExec>().map(NestedLoopJoinExec::join_type))
        .or_else(|| any.downcast_ref::<SortMergeJoinExec>().map(|join| &join.join_type));
    let nullable = match kind {
        Some(JoinType::Left) => [false, true],
        Some(JoinType::Right) => [true, false],
        Some(JoinType::Full) => [true, true],
        _ => [false, false],
    };
    let children = plan.children();
    let changes = |side: usize| nullable[side] && changes_with_nulls(children[side].equivalence_properties());
    // Rows of the left side are found by the rows of the right side, whose order is preserved.
    let begins_anew = hash.is_some_and(|join| {
        let keeps_order = matches!(join.join_type(), JoinType::Inner | JoinType::Right);
        keeps_order && !join.left().equivalence_properties().oeq_class().is_empty()
    });
    [begins_anew || changes(0), changes(1)]
}

/// Returns true if the properties include more than equal columns, which stay equal where all of them are null.
fn changes_with_nulls(known: &EquivalenceProperties) -> bool {
    let has_expression =
        known.eq_group().iter().any(|equal| equal.iter().any(|expr| !expr.as_any().is::<Column>()));
    has_expression || !known.constants().is_empty()
}

/// Returns true for an aggregate with grouping sets. Only the first of two aggregate stages has them: the last one groups its
/// result by plain columns, including the nulls.
fn has_grouping_sets(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.as_any().downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| aggregate.group_expr().has_grouping_set())
}

/// Returns true if a window function requires an order of which only constants are left.
fn is_of_constant_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if !plan.as_any().is::<BoundedWindowAggExec>() && !plan.as_any().is::<WindowAggExec>() {
        return false;
    }
    let mut inputs = plan.children().into_iter().zip(plan.required_input_ordering());
    inputs.any(|(input, wanted)| {
        let known = input.equivalence_properties();
        wanted.is_some_and(|wanted| known.normalize_sort_requirements(wanted.into_single()).is_none())
    })
}

/// The properties that a node hides.
#[derive(Debug, Clone, Copy)]
enum HiddenProperties {
    /// Constants, equal columns and the order of rows.
    All,
    /// The properties that [`HiddenProperties::All`] hides, and the partitioning of the rows.
    AllAndPartitioning,
    /// None; but an order that is required above is not passed on to the node below.
    RequiredOrder,
}

/// A node that passes its rows on and hides properties of them.
#[derive(Debug)]
pub struct PropertyBarrier {
    input: Arc<dyn ExecutionPlan>,
    hidden: HiddenProperties,
    properties: Arc<PlanProperties>,
}

impl PropertyBarrier {
    fn wrap(input: Arc<dyn ExecutionPlan>, hidden: HiddenProperties) -> Arc<dyn ExecutionPlan> {
        let known = match hidden {
            HiddenProperties::All | HiddenProperties::AllAndPartitioning => {
                EquivalenceProperties::new(input.schema())
            }
            HiddenProperties::RequiredOrder => input.equivalence_properties().clone(),
        };
        let parts = match (hidden, input.output_partitioning()) {
            (HiddenProperties::AllAndPartitioning, parts) => {
                Partitioning::UnknownPartitioning(parts.partition_count())
            }
            (_, parts) => parts.clone(),
        };
        let properties = PlanProperties::new(known, parts, input.pipeline_behavior(), input.boundedness());
        Arc::new(PropertyBarrier { input, hidden, properties: Arc::new(properties) })
    }
}

impl DisplayAs for PropertyBarrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forget: ")?;
        f.write_str(match self.hidden {
            HiddenProperties::All => "constants, equal columns, order",
            HiddenProperties::AllAndPartitioning => "constants, equal columns, order, parts",
            HiddenProperties::RequiredOrder => "the order wanted above",
        })
    }
}

impl ExecutionPlan for PropertyBarrier {
    fn name(&self) -> &str {
        "Forget"
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

    // Keeps DataFusion from moving a sort from above to below this node.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().ok_or_else(|| DataFusionError::Internal("one child expected".into()))?;
        Ok(PropertyBarrier::wrap(input, self.hidden))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        self.input.partition_statistics(partition)
    }
}

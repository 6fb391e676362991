//! A physical rule: what is known of the rows of a node, and does not hold above it.
//!
//! A plan knows which columns are constant, which are equal, and in which order rows come; by that DataFusion leaves out what
//! need not be sorted, and ends groups early. In four places it knows too much:
//!
//! | where | what it takes for true |
//! |---|---|
//! | the side of an outer join that is filled with nulls | what is constant on that side stays constant |
//! | grouping sets, with a null for each column that a set leaves out | what is constant, equal or in order stays so |
//! | a hash join of two sides that are in order | for each row of one side, the other one's begin anew, and yet go on in order |
//! | a window function whose own order is constant | whatever order is wanted above it is there too |
//!
//! There a [`Forget`] stands. It gives its rows on as they are.

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

/// See the module. Where the sides of joins are settled, and before anything is sorted.
#[derive(Debug)]
pub struct Forgets;

impl PhysicalOptimizerRule for Forgets {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let forgetting = plan.transform_up(|plan| {
            let sides = forgetting_sides(&plan);
            if sides.contains(&true) {
                let wrap = |(input, forgets): (&Arc<dyn ExecutionPlan>, bool)| match forgets {
                    true => Forget::wrap(input.clone(), What::All),
                    false => input.clone(),
                };
                let inputs = plan.children().into_iter().zip(sides).map(wrap).collect();
                return plan.with_new_children(inputs).map(Transformed::yes);
            }
            Ok(if has_grouping_sets(&plan) {
                Transformed::yes(Forget::wrap(plan, What::AllAndParts))
            } else if is_of_constant_order(&plan) {
                Transformed::yes(Forget::wrap(plan, What::Wishes))
            } else {
                Transformed::no(plan)
            })
        });
        forgetting.data()
    }

    fn name(&self) -> &str {
        "forgets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Of which sides of a join too much is known.
fn forgetting_sides(plan: &Arc<dyn ExecutionPlan>) -> [bool; 2] {
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
    // The rows of the left side are found by those of the right one, whose order stays.
    let begins_anew = hash.is_some_and(|join| {
        let keeps_order = matches!(join.join_type(), JoinType::Inner | JoinType::Right);
        keeps_order && !join.left().equivalence_properties().oeq_class().is_empty()
    });
    [begins_anew || changes(0), changes(1)]
}

/// Whether there is more than columns that are equal: these still are where all are null.
fn changes_with_nulls(known: &EquivalenceProperties) -> bool {
    let has_expression =
        known.eq_group().iter().any(|equal| equal.iter().any(|expr| !expr.as_any().is::<Column>()));
    has_expression || !known.constants().is_empty()
}

/// Only the first grouping has: the last one groups by what came of the sets, nulls and all.
fn has_grouping_sets(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.as_any().downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| aggregate.group_expr().has_grouping_set())
}

/// Whether nothing is left of the order that a window function wants, once constants are left out.
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

/// What is forgotten.
#[derive(Debug, Clone, Copy)]
enum What {
    /// Which columns are constant or equal, and the order of rows.
    All,
    /// And by what the rows were dealt out to parts.
    AllAndParts,
    /// Nothing that is known; but what is wanted above is not asked of what is below.
    Wishes,
}

/// See the module.
#[derive(Debug)]
pub struct Forget {
    input: Arc<dyn ExecutionPlan>,
    what: What,
    properties: Arc<PlanProperties>,
}

impl Forget {
    fn wrap(input: Arc<dyn ExecutionPlan>, what: What) -> Arc<dyn ExecutionPlan> {
        let known = match what {
            What::All | What::AllAndParts => EquivalenceProperties::new(input.schema()),
            What::Wishes => input.equivalence_properties().clone(),
        };
        let parts = match (what, input.output_partitioning()) {
            (What::AllAndParts, parts) => Partitioning::UnknownPartitioning(parts.partition_count()),
            (_, parts) => parts.clone(),
        };
        let properties = PlanProperties::new(known, parts, input.pipeline_behavior(), input.boundedness());
        Arc::new(Forget { input, what, properties: Arc::new(properties) })
    }
}

impl DisplayAs for Forget {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forget: ")?;
        f.write_str(match self.what {
            What::All => "constants, equal columns, order",
            What::AllAndParts => "constants, equal columns, order, parts",
            What::Wishes => "the order wanted above",
        })
    }
}

impl ExecutionPlan for Forget {
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

    // No sort is moved from above to below.
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
        Ok(Forget::wrap(input, self.what))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        self.input.partition_statistics(partition)
    }
}

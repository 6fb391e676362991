//! The physical plan of an ASOF JOIN: both sides are sorted by their equal columns and time, and hash-partitioned by the equal
//! columns.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::context::{QueryPlanner, SessionState};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions::core::r#struct;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, UserDefinedLogicalNode};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, LexRequirement, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
    ScalarFunctionExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use types::Error;

use super::merge::{AsOfMerge, SortedSide};
use super::{AsOfJoin, external, sides};

/// DataFusion's planner, extended by the node of an ASOF JOIN.
#[derive(Debug)]
pub struct AsOfPlanner;

#[async_trait]
impl QueryPlanner for AsOfPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(AsOfPlanner)]);
        planner.create_physical_plan(plan, state).await
    }
}

#[async_trait]
impl ExtensionPlanner for AsOfPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        state: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<AsOfJoin>() else { return Ok(None) };
        let lost = || external(Error::internal("an ASOF JOIN lost one of its sides or conditions"));
        let [left, right] = inputs else { return Err(lost()) };
        let physical =
            |expr: &Expr, plan: &LogicalPlan| planner.create_physical_expr(expr, plan.schema(), state);
        let mut keys = [Vec::new(), Vec::new()];
        for on in &node.on {
            let (a, _, b) = sides(on.clone(), &node.left, &node.right).ok_or_else(lost)?;
            keys[0].push(physical(&a, &node.left)?);
            keys[1].push(physical(&b, &node.right)?);
        }
        let (a, op, b) = sides(node.matched.clone(), &node.left, &node.right).ok_or_else(lost)?;
        let times = [physical(&a, &node.left)?, physical(&b, &node.right)?];
        let tie = node.tie.as_ref().map(|tie| physical(tie, &node.right)).transpose()?;
        let schema: SchemaRef = node.schema.inner().clone();
        let exec = AsOfExec::new(left.clone(), right.clone(), keys, times, op, tie, schema)?;
        Ok(Some(Arc::new(exec)))
    }
}

/// Executes an ASOF JOIN. In each pair the left side comes first.
#[derive(Debug)]
pub struct AsOfExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    keys: [Vec<Arc<dyn PhysicalExpr>>; 2],
    times: [Arc<dyn PhysicalExpr>; 2],
    op: Operator,
    tie: Option<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    orders: [LexOrdering; 2],
    /// The hash-partitioning expression of each side; empty without keys.
    hashed: Vec<Arc<dyn PhysicalExpr>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl AsOfExec {
    fn new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        keys: [Vec<Arc<dyn PhysicalExpr>>; 2],
        times: [Arc<dyn PhysicalExpr>; 2],
        op: Operator,
        tie: Option<Arc<dyn PhysicalExpr>>,
        schema: SchemaRef,
    ) -> Result<Self> {
        let schemas = [left.schema(), right.schema()];
        let pairs = keys[0].iter().zip(&keys[1]).chain([(&times[0], &times[1])]);
        for (a, b) in pairs {
            let (a, b) = (a.data_type(&schemas[0])?, b.data_type(&schemas[1])?);
            if a != b {
                let what = format!("an ASOF JOIN cannot compare {a} with {b}");
                return Err(external(Error::invalid(what).hint("CAST one of them")));
            }
        }
        let sort = |expr: &Arc<dyn PhysicalExpr>, options| PhysicalSortExpr::new(expr.clone(), options);
        let order = |side: usize, tie: Option<&Arc<dyn PhysicalExpr>>| {
            let keys = keys[side].iter().map(|key| sort(key, SortOptions::default()));
            let time = sort(&times[side], time_order(op));
            let tie = tie.map(|tie| sort(tie, SortOptions::default()));
            LexOrdering::new(keys.chain([time]).chain(tie))
                .ok_or_else(|| external(Error::internal("an ASOF JOIN without an order")))
        };
        let orders = [order(0, None)?, order(1, tie.as_ref())?];
        let hashed = keys.iter().zip(&schemas).filter_map(|(keys, schema)| hashed(keys, schema).transpose());
        let hashed = hashed.collect::<Result<_>>()?;
        let equivalence = EquivalenceProperties::new(schema.clone());
        let partitioning = datafusion::physical_plan::Partitioning::UnknownPartitioning(
            left.output_partitioning().partition_count(),
        );
        let properties =
            PlanProperties::new(equivalence, partitioning, EmissionType::Incremental, Boundedness::Bounded);
        let metrics = ExecutionPlanMetricsSet::new();
        let properties = Arc::new(properties);
        Ok(AsOfExec { left, right, keys, times, op, tie, schema, orders, hashed, metrics, properties })
    }
}

/// Returns the keys as one value. With several keys, DataFusion would accept a side that is partitioned by some of them only, and
/// a row would not meet its match in its partition of the other side: DataFusion avoids that for its own joins only.
fn hashed(keys: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    Ok(match keys {
        [] => None,
        [key] => Some(key.clone()),
        keys => {
            let options = Arc::new(ConfigOptions::default());
            Some(Arc::new(ScalarFunctionExpr::try_new(r#struct(), keys.to_vec(), schema, options)?))
        }
    })
}

/// Sorts right rows so that each is nearer to a left row than the one before: the last one that satisfies the condition is the
/// match.
pub(super) fn time_order(op: Operator) -> SortOptions {
    SortOptions { descending: matches!(op, Operator::Lt | Operator::LtEq), nulls_first: true }
}

impl DisplayAs for AsOfExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsOfJoin: {} {} {}", self.times[0], self.op, self.times[1])?;
        let mut pairs = self.keys[0].iter().zip(&self.keys[1]);
        pairs.try_for_each(|(a, b)| write!(f, ", {a} = {b}"))
    }
}

impl ExecutionPlan for AsOfExec {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        if self.keys[0].is_empty() {
            vec![Distribution::SinglePartition, Distribution::SinglePartition]
        } else {
            self.hashed.iter().map(|key| Distribution::HashPartitioned(vec![key.clone()])).collect()
        }
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let required = |order: &LexOrdering| OrderingRequirements::new(LexRequirement::from(order.clone()));
        self.orders.iter().map(|order| Some(required(order))).collect()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [left, right]: [Arc<dyn ExecutionPlan>; 2] =
            children.try_into().map_err(|_| external(Error::internal("an ASOF JOIN has two sides")))?;
        let (keys, times, tie) = (self.keys.clone(), self.times.clone(), self.tie.clone());
        Ok(Arc::new(Self::new(left, right, keys, times, self.op, tie, self.schema.clone())?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let side = |plan: &Arc<dyn ExecutionPlan>, at: usize| {
            let stream = plan.execute(partition, context.clone())?;
            SortedSide::new(stream, self.keys[at].clone(), self.times[at].clone(), self.op)
        };
        let (left, right) = (side(&self.left, 0)?, side(&self.right, 1)?);
        let inclusive = matches!(self.op, Operator::GtEq | Operator::LtEq);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let merge = AsOfMerge::new(left, right, inclusive, self.schema.clone(), metrics)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), merge.into_stream())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

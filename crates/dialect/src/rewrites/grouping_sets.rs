//! GROUPING SETS, CUBE and ROLLUP: the empty set returns a row also for no input rows, and a set that is listed twice returns its
//! rows twice. GROUP BY a constant returns no row for no input rows.
//!
//! DataFusion groups each row once for each set, under the number of the set. So no input rows give no result, and equal sets,
//! which have the same number, become one set that counts every row twice. Here each distinct set is computed once, and a node
//! above adds the missing rows.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::DataType as Arrow;
use datafusion::common::cast::as_uint64_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use types::Error;

/// Returns true if an aggregate has the empty grouping set.
fn has_total(aggregate: &Aggregate) -> bool {
    match aggregate.group_expr.as_slice() {
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_))] => true,
        _ => false,
    }
}

/// Refuses grand totals in correlated subqueries: these become joins, which return no row for an empty input.
pub fn refuse_correlated_totals(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                let query = match expr {
                    Expr::Exists(exists) => &exists.subquery,
                    Expr::InSubquery(within) => &within.subquery,
                    Expr::ScalarSubquery(query) => query,
                    Expr::SetComparison(set) => &set.subquery,
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                refuse_dependent(query)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(plan)
}

/// Computes the expressions of grouping sets in a projection below the aggregate. A set refers to its expressions by name, and
/// the names change when checked arithmetic is inserted.
pub fn compute_keys_below(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => compute_below(aggregate),
        other => Ok(Transformed::no(other)),
    })
    .data()
}

fn compute_below(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let is_made =
        |expr: &&Expr| !matches!(expr, Expr::Column(_) | Expr::Literal(..) | Expr::OuterReferenceColumn(..));
    let mut made: Vec<Expr> = Vec::new();
    for expr in sets.distinct_expr().into_iter().filter(is_made) {
        if !made.contains(expr) {
            made.push(expr.clone());
        }
    }
    if made.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let name = |expr: &Expr| expr.schema_name().to_string();
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let values = columns.chain(made.iter().map(|expr| expr.clone().alias(name(expr))));
    let input = LogicalPlanBuilder::new_from_arc(aggregate.input).project(values)?.build()?;
    let read = |expr: Expr| {
        let read = expr.transform_down(|expr| {
            if !made.contains(&expr) {
                return Ok(Transformed::no(expr));
            }
            let column = Expr::Column(Column::new_unqualified(name(&expr)));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        });
        read.data()
    };
    let group_expr = aggregate.group_expr.into_iter().map(read).collect::<Result<_>>()?;
    let aggr_expr = aggregate.aggr_expr.into_iter().map(read).collect::<Result<_>>()?;
    let aggregate = Aggregate::try_new(Arc::new(input), group_expr, aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

fn refuse_dependent(query: &Subquery) -> Result<()> {
    if query.outer_ref_columns.is_empty() {
        return Ok(());
    }
    let is_total =
        |plan: &LogicalPlan| matches!(plan, LogicalPlan::Aggregate(aggregate) if has_total(aggregate));
    if !query.subquery.exists(|plan| Ok(is_total(plan)))? {
        return Ok(());
    }
    let what = "a grand total of ROLLUP, CUBE or GROUPING SETS in a correlated query";
    let error =
        Error::invalid(what).hint("leave the empty set out, or join with a query that groups by itself");
    Err(DataFusionError::External(Box::new(error)))
}

/// Keeps DataFusion from replacing a grand total over no rows by an empty result.
pub fn keep_totals(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    let rule = rules.iter_mut().find(|rule| rule.name() == "propagate_empty_relation");
    let rule = rule.expect("DataFusion has this rule");
    *rule = Arc::new(KeepTotals(rule.clone()));
}

#[derive(Debug)]
struct KeepTotals(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepTotals {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate) if has_total(aggregate) => Ok(Transformed::no(plan)),
            _ => self.0.rewrite(plan, config),
        }
    }
}

/// Keeps DataFusion from removing constants from GROUP BY if there are no other keys: without keys the aggregate would return a
/// row for no input rows.
pub fn keep_constants(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    let rule = rules.iter_mut().find(|rule| rule.name() == "eliminate_group_by_constant");
    let rule = rule.expect("DataFusion has this rule");
    *rule = Arc::new(KeepConstants(rule.clone()));
}

#[derive(Debug)]
struct KeepConstants(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepConstants {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return self.0.rewrite(plan, config) };
        let varies = aggregate.group_expr.iter().any(Expr::any_column_refs);
        if varies { self.0.rewrite(plan, config) } else { Ok(Transformed::no(plan)) }
    }
}

/// A physical rule, which runs before DataFusion plans the distribution of rows.
#[derive(Debug)]
pub struct GroupingSets;

impl PhysicalOptimizerRule for GroupingSets {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match with_missing_rows(&plan)? {
                Some(filled) => Transformed::yes(filled),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn with_missing_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(last) = plan.as_any().downcast_ref::<AggregateExec>() else { return Ok(None) };
    let first = match last.mode() {
        AggregateMode::Partial | AggregateMode::PartialReduce => return Ok(None),
        AggregateMode::Single | AggregateMode::SinglePartitioned => last,
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            match last.input().as_any().downcast_ref::<AggregateExec>() {
                Some(first) => first,
                None => return Ok(None),
            }
        }
    };
    let by = first.group_expr();
    if !by.has_grouping_set() {
        return Ok(None);
    }
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    let mut sets = Vec::new();
    for set in by.groups() {
        let count = times.entry(number(set)).or_default();
        *count += 1;
        if *count == 1 {
            sets.push(set.clone());
        }
    }
    let total = by.groups().iter().find(|set| set.iter().all(|is_null| *is_null));
    let total = total.map(|set| total_of_nothing(last, by.expr().len(), number(set)));
    let total = total.transpose()?;
    times.retain(|_, count| *count > 1);
    if total.is_none() && times.is_empty() {
        return Ok(None);
    }
    let place = by.expr().len();
    let grouped = if times.is_empty() {
        plan.clone()
    } else {
        let by = PhysicalGroupBy::new(by.expr().to_vec(), by.null_expr().to_vec(), sets, true);
        let once: Arc<dyn ExecutionPlan> = Arc::new(AggregateExec::try_new(
            *first.mode(),
            by,
            first.aggr_expr().to_vec(),
            first.filter_expr().to_vec(),
            first.input().clone(),
            first.input_schema(),
        )?);
        if std::ptr::eq(first, last) { once } else { plan.clone().with_new_children(vec![once])? }
    };
    Ok(Some(Arc::new(GroupingSetsExec::new(grouped, place, times, total))))
}

/// Returns the number that DataFusion gives to the rows of a set.
fn number(set: &[bool]) -> u64 {
    set.iter().fold(0, |number, is_null| number << 1 | u64::from(*is_null))
}

/// Returns the row of the empty set over no input rows.
fn total_of_nothing(aggregate: &AggregateExec, keys: usize, number: u64) -> Result<RecordBatch> {
    let schema = aggregate.schema();
    let mut values = Vec::with_capacity(schema.fields().len());
    for field in &schema.fields()[..keys] {
        values.push(ScalarValue::try_from(field.data_type())?);
    }
    values.push(ScalarValue::UInt64(Some(number)).cast_to(schema.field(keys).data_type())?);
    for function in aggregate.aggr_expr() {
        values.push(function.create_accumulator()?.evaluate()?);
    }
    let columns = values.iter().map(|value| value.to_array()).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

#[derive(Debug)]
/// Repeats the rows of duplicate grouping sets, and adds the grand total over no rows.
struct GroupingSetsExec {
    input: Arc<dyn ExecutionPlan>,
    /// The index of the column that holds the number of the grouping set.
    place: usize,
    /// The number of occurrences of each set that is listed more than once.
    times: BTreeMap<u64, usize>,
    /// The row to return if there is no other.
    total: Option<RecordBatch>,
    properties: Arc<PlanProperties>,
}

impl GroupingSetsExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        place: usize,
        times: BTreeMap<u64, usize>,
        total: Option<RecordBatch>,
    ) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partitions),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        GroupingSetsExec { input, place, times, total, properties: Arc::new(properties) }
    }
}

impl DisplayAs for GroupingSetsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupingSets: total={}, repeated={}", self.total.is_some(), self.times.len())
    }
}

impl ExecutionPlan for GroupingSetsExec {
    fn name(&self) -> &str {
        "GroupingSets"
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

    fn required_input_distribution(&self) -> Vec<Distribution> {
        match self.total {
            // The node has to see all rows to know that there are none.
            Some(_) => vec![Distribution::SinglePartition],
            None => vec![Distribution::UnspecifiedDistribution],
        }
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.remove(0);
        Ok(Arc::new(Self::new(input, self.place, self.times.clone(), self.total.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?.fuse();
        let rows = stream::try_unfold((input, self.total.clone()), |(mut input, mut total)| async move {
            let next = match input.try_next().await? {
                Some(batch) => {
                    total.take_if(|_| batch.num_rows() > 0);
                    Some(batch)
                }
                None => total.take(),
            };
            Ok::<_, DataFusionError>(next.map(|batch| (batch, (input, total))))
        });
        let (place, times) = (self.place, self.times.clone());
        let repeated =
            rows.map_ok(move |batch| stream::iter(repeat_rows(batch, place, &times))).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), repeated)))
    }
}

/// Returns all rows, then the rows of sets that are listed at least twice, then of those listed three times, and so on.
fn repeat_rows(
    batch: RecordBatch,
    place: usize,
    times: &BTreeMap<u64, usize>,
) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
    let counted = if times.is_empty() { Ok(Vec::new()) } else { counts(&batch, place, times) };
    let (counts, error) = match counted {
        Ok(counts) => (counts, None),
        Err(error) => (Vec::new(), Some(Err(error))),
    };
    let further = 1..counts.iter().copied().max().unwrap_or(1);
    let first = error.unwrap_or(Ok(batch.clone()));
    std::iter::once(first).chain(further.map(move |round| {
        let stays: BooleanArray = counts.iter().map(|count| Some(*count > round)).collect();
        Ok(filter_record_batch(&batch, &stays)?)
    }))
}

/// Returns how often each row has to be returned.
fn counts(batch: &RecordBatch, place: usize, times: &BTreeMap<u64, usize>) -> Result<Vec<usize>> {
    let numbers = cast(batch.column(place), &Arrow::UInt64)?;
    let numbers = as_uint64_array(&numbers)?;
    Ok(numbers.values().iter().map(|number| times.get(number).copied().unwrap_or(1)).collect())
}

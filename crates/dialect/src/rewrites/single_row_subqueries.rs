//! A scalar subquery is null for no row, and fails for more than one row. DataFusion would return a result for each row.
//!
//! A plan that does not visibly have exactly one row is put under an aggregate that accepts one row and refuses a second. That
//! also turns a correlated query into one that DataFusion can join, whatever it selects.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef, UInt64Type};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    Signature, Subquery, Volatility,
};
use types::Error;

/// Makes every scalar subquery of a plan return exactly one row.
pub fn ensure_single_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|plan| {
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let guarded = expr.transform_up(|expr| match expr {
                Expr::ScalarSubquery(query) if !is_left_unchanged(&query) => {
                    Ok(Transformed::yes(Expr::ScalarSubquery(with_single_value(query)?)))
                }
                Expr::ScalarSubquery(query) if !query.outer_ref_columns.is_empty() => {
                    let plan = query.subquery.as_ref().clone().transform_down(cast_columns)?.data;
                    Ok(Transformed::yes(Expr::ScalarSubquery(query.with_plan(Arc::new(plan)))))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(if guarded.transformed { guarded.update_data(|expr| name.restore(expr)) } else { guarded })
        })
    })?;
    if !guarded.transformed {
        return Ok(guarded.data);
    }
    // A column that can now be null may make the columns computed from it nullable too.
    let known = guarded.data.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Values(_) => Ok(Transformed::no(plan)),
        other => other.recompute_schema().map(Transformed::yes),
    })?;
    Ok(known.data)
}

/// Casts each column in the projections of a correlated query to its own type. To find the query's value for no row, DataFusion
/// replaces the aggregates by NULL; without a type it cannot evaluate `max(x) - min(x)`.
fn cast_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = plan else {
        let goes_on = matches!(plan, LogicalPlan::SubqueryAlias(_));
        let next = if goes_on { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop };
        return Ok(Transformed::new(plan, false, next));
    };
    let schema = projection.input.schema().clone();
    let plan = LogicalPlan::Projection(projection);
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        if matches!(expr, Expr::Column(_))
            || matches!(&expr, Expr::Alias(alias) if matches!(*alias.expr, Expr::Column(_)))
        {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let typed = expr.transform_up(|expr| match expr {
            Expr::Column(_) => {
                let own = expr.get_type(&schema)?;
                Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), own))))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(typed.update_data(|expr| name.restore(expr)))
    })
}

/// Returns true for a query that is left as it is: it returns exactly one row, or DataFusion reports by itself that it cannot
/// plan it.
///
/// A query of at most one row is not enough. DataFusion takes its value for never null if the column never is; and if the outer
/// query has no other relation, it joins the row instead of the value, so that without a row the outer query returns none either.
fn is_left_unchanged(query: &Subquery) -> bool {
    let plan = &query.subquery;
    if query.outer_ref_columns.is_empty() {
        return gives_exactly_one(plan);
    }
    // A query by a key returns one row for each outer row, but DataFusion requires an aggregate all the same. It refuses the
    // queries that it cannot join, such as a correlated query with LIMIT.
    is_aggregated(plan) || has_limit(plan)
}

fn gives_exactly_one(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => gives_exactly_one(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => gives_exactly_one(&alias.input),
        _ => false,
    }
}

fn is_aggregated(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => is_aggregated(&projection.input),
        LogicalPlan::Filter(filter) => is_aggregated(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregated(&alias.input),
        _ => false,
    }
}

fn has_limit(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Limit(_)) || plan.inputs().into_iter().any(has_limit)
}

fn with_single_value(query: Subquery) -> Result<Subquery> {
    let (qualifier, field) = query.subquery.schema().qualified_field(0);
    let value = Expr::Column(Column::from((qualifier, field)));
    let value = FUNCTION.call(vec![value]).alias(field.name());
    let plan = LogicalPlanBuilder::new_from_arc(query.subquery.clone())
        .aggregate(Vec::<Expr>::new(), vec![value])?
        .build()?;
    Ok(query.with_plan(Arc::new(plan)))
}

static FUNCTION: LazyLock<AggregateUDF> =
    LazyLock::new(|| AggregateUDF::new_from_impl(SingleValue::default()));

/// The aggregate that returns the only value of its input.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl Default for SingleValue {
    fn default() -> Self {
        SingleValue { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for SingleValue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        Ok(types[0].clone())
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        // The metadata of the field stay, such as the mark of a uuid. The result is nullable, because there may be no row.
        Ok(Arc::new(fields[0].as_ref().clone().with_name(self.name()).with_nullable(true)))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let value = ScalarValue::try_from(args.return_field.data_type())?;
        Ok(Box::new(SingleValueAccumulator { value, count: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let value = args.return_field.as_ref().clone().with_name(format_state_name(args.name, "value"));
        let count = ArrowField::new(format_state_name(args.name, "count"), Arrow::UInt64, false);
        Ok(vec![Arc::new(value), Arc::new(count)])
    }
}

#[derive(Debug)]
struct SingleValueAccumulator {
    /// The value; null until there is one.
    value: ScalarValue,
    count: u64,
}

impl SingleValueAccumulator {
    fn take(&mut self, values: &ArrayRef, at: usize, count: u64) -> Result<()> {
        if self.count + count > 1 {
            return Err(more_than_one_row());
        }
        if count == 1 {
            self.value = ScalarValue::try_from_array(values, at)?.compacted();
            self.count = 1;
        }
        Ok(())
    }
}

impl Accumulator for SingleValueAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take(&values[0], 0, values[0].len() as u64)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::UInt64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let counts = states[1].as_primitive::<UInt64Type>();
        (0..counts.len()).try_for_each(|at| self.take(&states[0], at, counts.value(at)))
    }
}

fn more_than_one_row() -> DataFusionError {
    DataFusionError::External(Box::new(
        Error::invalid("a scalar subquery returned more than one row")
            .hint("take one of them with LIMIT 1 or an aggregate, or compare with IN (SELECT …)"),
    ))
}

//! `b <> 0 AND a / b > 1` does not fail where `b` is 0.
//!
//! SQL promises no order of conditions, and DataFusion asks each of them about a whole batch; its optimizer joins the
//! conditions of several queries in an order of its own, and makes AND and OR of what was written as CASE. This rule,
//! the last of all, lets a condition that may fail be asked only about the rows that the condition before it leaves
//! open. In a filter, those that cannot fail come first, wherever they were written.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::{DataType as Arrow, Schema};
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;

/// Puts [`Guarded`] in the place of AND and OR, in filters and in what is selected.
#[derive(Debug)]
pub(crate) struct Guards;

impl PhysicalOptimizerRule for Guards {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if let Some(filter) = plan.as_any().downcast_ref::<FilterExec>() {
                let predicate = reordered(filter.predicate(), &filter.input().schema());
                let guarded = guarded(predicate.data, &filter.input().schema())?;
                if guarded.transformed || predicate.transformed {
                    let filter = FilterExecBuilder::from(filter).with_predicate(guarded.data).build()?;
                    return Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>));
                }
            } else if let Some(projection) = plan.as_any().downcast_ref::<ProjectionExec>() {
                let mut changed = false;
                let mut exprs = Vec::with_capacity(projection.expr().len());
                for ProjectionExpr { expr, alias } in projection.expr().iter().cloned() {
                    let guarded = guarded(expr, &projection.input().schema())?;
                    changed |= guarded.transformed;
                    exprs.push(ProjectionExpr { expr: guarded.data, alias });
                }
                if changed {
                    let projection = ProjectionExec::try_new(exprs, projection.input().clone())?;
                    return Ok(Transformed::yes(Arc::new(projection) as Arc<dyn ExecutionPlan>));
                }
            }
            Ok(Transformed::no(plan))
        })
        .data()
    }

    fn name(&self) -> &str {
        "guards"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The parts of a condition, those that cannot fail first.
fn reordered(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Transformed<Arc<dyn PhysicalExpr>> {
    let parts = split_conjunction(predicate).into_iter().cloned();
    let (fail, safe): (Vec<_>, Vec<_>) = parts.partition(|part| may_fail(part, schema));
    if fail.is_empty() || safe.is_empty() {
        return Transformed::no(predicate.clone());
    }
    let and = |left, right| Arc::new(BinaryExpr::new(left, Operator::And, right)) as Arc<dyn PhysicalExpr>;
    match safe.into_iter().chain(fail).reduce(and) {
        Some(whole) => Transformed::yes(whole),
        None => Transformed::no(predicate.clone()),
    }
}

fn guarded(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.transform_up(|expr| {
        let Some(binary) = expr.as_any().downcast_ref::<BinaryExpr>() else {
            return Ok(Transformed::no(expr));
        };
        let both = match binary.op() {
            Operator::And => true,
            Operator::Or => false,
            _ => return Ok(Transformed::no(expr)),
        };
        if !may_fail(binary.right(), schema) {
            return Ok(Transformed::no(expr));
        }
        let (left, right) = (binary.left().clone(), binary.right().clone());
        Ok(Transformed::yes(Arc::new(Guarded { both, left, right })))
    })
}

/// AND or OR, whose right side is asked only about the rows that the left side does not decide.
#[derive(Debug, Eq)]
struct Guarded {
    /// AND.
    both: bool,
    left: Arc<dyn PhysicalExpr>,
    right: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.both == other.both && self.left.eq(&other.left) && self.right.eq(&other.right)
    }
}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.both.hash(state);
        self.left.hash(state);
        self.right.hash(state);
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.left, if self.both { "AND" } else { "OR" }, self.right)
    }
}

impl PhysicalExpr for Guarded {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn data_type(&self, _: &Schema) -> Result<Arrow> {
        Ok(Arrow::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        Ok(self.left.nullable(schema)? || self.right.nullable(schema)?)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let left = self.left.evaluate(batch)?.into_array(rows)?;
        let decided = as_boolean_array(&left)?;
        // False decides AND, true decides OR; null neither.
        let open: BooleanArray = decided.iter().map(|value| Some(value != Some(!self.both))).collect();
        let right = match open.true_count() {
            0 => return Ok(ColumnarValue::Array(left)),
            all if all == rows => self.right.evaluate(batch)?,
            _ => self.right.evaluate_selection(batch, &open)?,
        };
        let right = right.into_array(rows)?;
        let right = as_boolean_array(&right)?;
        let whole = if self.both { and_kleene(decided, right) } else { or_kleene(decided, right) };
        Ok(ColumnarValue::Array(Arc::new(whole?)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.left, &self.right]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let [left, right] = <[_; 2]>::try_from(children).map_err(|children| {
            DataFusionError::Internal(format!("two conditions expected, {} found", children.len()))
        })?;
        Ok(Arc::new(Guarded { both: self.both, left, right }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a value may have no answer. What is not known here may.
fn may_fail(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let any = expr.as_any();
    let safe = if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        is_safe(*binary.op()) || expr.data_type(schema).is_ok_and(|t| t.is_floating())
    } else if let Some(cast) = any.downcast_ref::<CastExpr>() {
        cast.expr().data_type(schema).is_ok_and(|from| widens(&from, cast.cast_type()))
    } else {
        any.is::<Column>()
            || any.is::<Literal>()
            || any.is::<NotExpr>()
            || any.is::<IsNullExpr>()
            || any.is::<IsNotNullExpr>()
            || any.is::<InListExpr>()
            || any.is::<LikeExpr>()
    };
    !safe || expr.children().into_iter().any(|child| may_fail(child, schema))
}

fn is_safe(op: Operator) -> bool {
    use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
    matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether a cast has an answer for every value.
fn widens(from: &Arrow, to: &Arrow) -> bool {
    let is_text = |t: &Arrow| matches!(t, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View);
    let longer = from.primitive_width() <= to.primitive_width();
    from == to
        || is_text(to) && (is_text(from) || from.is_primitive())
        || from.is_numeric() && to.is_floating()
        || from.is_signed_integer() && to.is_signed_integer() && longer
}

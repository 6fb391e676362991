//! Hides the computations of a filter from DataFusion's interval arithmetic.
//!
//! DataFusion assumes that every operation is invertible: from `id / 7 = 23` it concludes that `id` is 161, from
//! `cast(f AS int) = 3` that `f` is 3, from `f + 1e16 = 1e16` that `f` is 0; and it drops columns from ORDER BY that seem to have
//! one value. Here, in the optimized plan, each value that a filter computes from columns before it compares it is wrapped in
//! `as_is(x)`: the same value, about which DataFusion knows nothing. Columns that are compared directly stay as they are.
//!
//! DataFusion's simplifier moves a cast from one side of a comparison to the other, also one that loses digits or may fail:
//! `1.996::numeric(9, 2) = 2` became `1.996 = 2.000`. So such casts are wrapped before the simplifier sees them.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::rewrites::coercion::compares;

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(OptimizationBarrier {
        signature: Signature::any(1, Volatility::Immutable),
    }))
});

/// Returns true for `as_is`, which cannot fail.
pub fn is_function(function: &ScalarUDF) -> bool {
    function.inner().as_any().is::<OptimizationBarrier>()
}

/// Wraps the computed values in the filters of an optimized plan.
pub fn insert(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Filter(mut filter) => {
            let predicate = compared(filter.predicate);
            filter.predicate = predicate.data;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), predicate.transformed))
        }
        other => hide_greatest(other),
    })
    .map(|exact| exact.data)
}

/// Wraps the greatest integers among the constants of a projection. If the least and the greatest 64-bit integer are the bounds
/// of a column, as in `SELECT -9223372036854775808 AS n UNION ALL SELECT 9223372036854775807`, DataFusion counts the integers
/// between them, and that count overflows.
pub fn hide_greatest(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Projection(_)) {
        return Ok(Transformed::no(plan));
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let inner = if let Expr::Alias(alias) = &expr { &alias.expr } else { &expr };
        let is_greatest = matches!(
            inner,
            Expr::Literal(ScalarValue::Int64(Some(i64::MAX)) | ScalarValue::UInt64(Some(u64::MAX)), _)
        );
        if !is_greatest {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let hidden = ScalarFunction::new_udf(FUNCTION.clone(), vec![expr.unalias()]);
        Ok(Transformed::yes(name.restore(Expr::ScalarFunction(hidden))))
    })
}

/// Wraps a cast that may lose digits or fail.
pub fn wrap_lossy_cast(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let loses = match &expr {
        Expr::Cast(Cast { expr: of, data_type: to }) | Expr::TryCast(TryCast { expr: of, data_type: to }) => {
            // A cast of a literal is evaluated at once.
            !matches!(**of, Expr::Literal(..)) && of.get_type(schema).is_ok_and(|from| loses(&from, to))
        }
        _ => false,
    };
    if !loses {
        return Transformed::no(expr);
    }
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(FUNCTION.clone(), vec![expr])))
}

/// Returns true if the cast may map two values to one, or if a value may not fit. Considers only the types from which the
/// simplifier moves casts. For timestamps any change of unit counts, because the simplifier truncates a literal to the unit.
fn loses(from: &Arrow, to: &Arrow) -> bool {
    if let (Arrow::Timestamp(own, _), Arrow::Timestamp(unit, _)) = (from, to) {
        return own != unit;
    }
    match (digits(from), digits(to)) {
        (Some((before, after)), Some((most_before, most_after))) => {
            // Decimals and integers with as many digits do not hold the same numbers, nor do signed and unsigned integers.
            let others = from.is_decimal() || from.is_signed_integer() != to.is_signed_integer();
            before > most_before || after > most_after || to.is_integer() && others
        }
        _ => false,
    }
}

/// Returns the number of digits before and after the decimal point of a type's numbers.
fn digits(data_type: &Arrow) -> Option<(i16, i16)> {
    Some(match data_type {
        Arrow::Int8 | Arrow::UInt8 => (3, 0),
        Arrow::Int16 | Arrow::UInt16 => (5, 0),
        Arrow::Int32 | Arrow::UInt32 => (10, 0),
        Arrow::Int64 => (19, 0),
        Arrow::UInt64 => (20, 0),
        Arrow::Decimal32(precision, scale)
        | Arrow::Decimal64(precision, scale)
        | Arrow::Decimal128(precision, scale)
        | Arrow::Decimal256(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        _ => return None,
    })
}

/// Wraps the operands of a condition's comparisons. DataFusion concludes nothing from comparisons below other operators than AND.
fn compared(condition: Expr) -> Transformed<Expr> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == Operator::And || compares(op) => {
            let of = if op == Operator::And { compared } else { operand };
            let (left, right) = (of(*left), of(*right));
            let changed = left.transformed || right.transformed;
            let both = BinaryExpr { left: Box::new(left.data), op, right: Box::new(right.data) };
            Transformed::new_transformed(Expr::BinaryExpr(both), changed)
        }
        other => Transformed::no(other),
    }
}

fn operand(expr: Expr) -> Transformed<Expr> {
    let computes = match &expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            !compares(*op) && !matches!(op, Operator::And | Operator::Or)
        }
        Expr::Cast(_) | Expr::TryCast(_) | Expr::Negative(_) => true,
        _ => false,
    };
    if !computes || !expr.any_column_refs() {
        return Transformed::no(expr);
    }
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(FUNCTION.clone(), vec![expr])))
}

/// The function `as_is(x)`. It is not registered, so that statements cannot call it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OptimizationBarrier {
    signature: Signature,
}

impl ScalarUDFImpl for OptimizationBarrier {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "as_is"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        types.first().cloned().ok_or_else(nothing)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = args.arg_fields.first().ok_or_else(nothing)?;
        Ok(Arc::new(Field::clone(of).with_name(self.name())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.args.into_iter().next().ok_or_else(nothing)
    }
}

fn nothing() -> DataFusionError {
    DataFusionError::Internal("as_is takes a value".into())
}

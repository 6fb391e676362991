//! `lag`, `lead` and `nth_value` take a 32-bit distance in rows, as in PostgreSQL. DataFusion's calculate with 64 bits, and panic
//! near their ends.

use std::any::Any;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType as Arrow, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::nth_value_udwf;
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowFunctionSimplification, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use types::Error;

/// Returns the functions that replace DataFusion's.
pub fn functions() -> [Arc<WindowUDF>; 3] {
    [lag_udwf(), lead_udwf(), nth_value_udwf()].map(within_bounds)
}

fn within_bounds(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::new_from_impl(BoundedOffset { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedOffset {
    inner: Arc<WindowUDF>,
}

/// Returns the distance in rows of a call, if it is given as a number.
fn offset(arguments: &[Arc<dyn PhysicalExpr>]) -> Option<i64> {
    let literal = arguments.get(1)?.as_any().downcast_ref::<Literal>()?;
    match literal.value().cast_to(&Arrow::Int64) {
        Ok(ScalarValue::Int64(offset)) => offset,
        _ => None,
    }
}

fn is_bounded(offset: i64) -> bool {
    i32::try_from(offset).is_ok_and(|offset| offset != i32::MIN)
}

impl WindowUDFImpl for BoundedOffset {
    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        match offset(args.input_exprs()) {
            Some(offset) if !is_bounded(offset) => {
                let (name, most) = (self.name(), i32::MAX);
                let message = format!("`{name}` looks at most {most} rows away, not {offset}");
                Err(DataFusionError::External(Box::new(Error::invalid(message))))
            }
            _ => self.inner.partition_evaluator_factory(args),
        }
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        match offset(args) {
            Some(offset) if !is_bounded(offset) => LimitEffect::Unknown,
            _ => self.inner.inner().limit_effect(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(inner) => ReversedUDWF::Reversed(within_bounds(inner)),
            other => other,
        }
    }

    // All other methods call the wrapped function.

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn simplify(&self) -> Option<WindowFunctionSimplification> {
        self.inner.simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

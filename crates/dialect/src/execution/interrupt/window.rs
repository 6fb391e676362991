//! Aggregates over windows that end with their statement.
//!
//! DataFusion processes a whole partition at once and computes a value for each of its rows. `median(x) OVER (…)` takes time
//! quadratic in the rows, and the lists of `array_agg(x) OVER (…)` take quadratic memory. Here each accumulator checks the
//! deadline and the memory.

use std::any::Any;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType as Arrow, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ReversedUDAF, SetMonotonicity, Signature,
    StatisticsArgs, WindowFunctionDefinition,
};

/// Bytes of results between two checks of the memory that is left.
const STEP_BYTES: usize = 1 << 20;

/// Rows that an accumulator may process between two checks of the deadline, which takes at most a tenth of a millisecond.
const ROWS_BETWEEN_CHECKS: usize = 8_192;

/// Rows that each call counts at least.
const ROWS_OF_CALL: usize = 16;

/// Wraps the aggregates of a window expression.
pub fn interruptible(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::WindowFunction(window) => Ok(match &window.fun {
            WindowFunctionDefinition::AggregateUDF(fun) => {
                let fun = WindowFunctionDefinition::AggregateUDF(of(fun.clone()));
                Transformed::yes(Expr::WindowFunction(Box::new(WindowFunction { fun, ..*window })))
            }
            WindowFunctionDefinition::WindowUDF(_) => Transformed::no(Expr::WindowFunction(window)),
        }),
        expr => Ok(Transformed::no(expr)),
    })
}

fn of(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Interruptible { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Interruptible {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Interruptible {
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args).map(interruptible_accumulator)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args).map(interruptible_accumulator)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(reversed) => ReversedUDAF::Reversed(of(reversed)),
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

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        self.inner.coerce_types(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn default_value(&self, data_type: &Arrow) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn set_monotonicity(&self, data_type: &Arrow) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

fn interruptible_accumulator(inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
    Box::new(InterruptibleAccumulator {
        inner,
        frame_rows: 0,
        unchecked_rows: 0,
        bytes: 0,
        next_look: STEP_BYTES,
    })
}

#[derive(Debug)]
struct InterruptibleAccumulator {
    inner: Box<dyn Accumulator>,
    /// Rows of the frame, which `evaluate` may process.
    frame_rows: usize,
    /// Rows that calls may have processed since the last check of the deadline.
    unchecked_rows: usize,
    /// Bytes on the heap of all values returned so far.
    bytes: usize,
    /// The value of `bytes` at which the memory is checked next.
    next_look: usize,
}

impl InterruptibleAccumulator {
    /// Checks the deadline before a call that may process so many rows, unless the calls since the last check were little work.
    fn check(&mut self, rows: usize) -> Result<()> {
        self.unchecked_rows = self.unchecked_rows.saturating_add(rows).saturating_add(ROWS_OF_CALL);
        if self.unchecked_rows < ROWS_BETWEEN_CHECKS {
            return Ok(());
        }
        self.unchecked_rows = 0;
        super::check()
    }
}

fn rows(values: &[ArrayRef]) -> usize {
    values.first().map_or(0, |values| values.len())
}

impl Accumulator for InterruptibleAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.check(rows(values))?;
        self.frame_rows = self.frame_rows.saturating_add(rows(values));
        self.inner.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.check(rows(values))?;
        self.frame_rows = self.frame_rows.saturating_sub(rows(values));
        self.inner.retract_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.check(self.frame_rows)?;
        let value = self.inner.evaluate()?;
        self.bytes += value.size().saturating_sub(size_of::<ScalarValue>());
        if self.bytes > self.next_look {
            self.next_look = self.bytes + STEP_BYTES;
            // The values and the array built from them exist at the same time.
            super::check_memory(2 * self.bytes as u128 + self.inner.size() as u128)?;
        }
        Ok(value)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }
}

//! Aggregates over windows that end with their statement. DataFusion goes over a whole partition at once, with a value for each of
//! its rows: that of `median(x) OVER (…)` takes the square of the rows, and the lists of `array_agg(x) OVER (…)` hold as much.

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

/// Values of so many bytes are made between two looks at the memory that is left.
const STEP_BYTES: usize = 1 << 20;

/// Rows that an accumulator may go over between two looks at the deadline: a tenth of a millisecond at most.
const ROWS_BETWEEN_CHECKS: usize = 8_192;

/// Rows that a call costs at least.
const ROWS_OF_CALL: usize = 16;

/// An expression of a window, whose aggregates end with the statement.
pub(crate) fn interruptible(expr: Expr) -> Result<Transformed<Expr>> {
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
        self.inner.accumulator(args).map(watched)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args).map(watched)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(reversed) => ReversedUDAF::Reversed(of(reversed)),
            other => other,
        }
    }

    // Everything else is the function's own.

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

fn watched(inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
    Box::new(Watched { inner, frame_rows: 0, unchecked_rows: 0, bytes: 0, next_look: STEP_BYTES })
}

#[derive(Debug)]
struct Watched {
    inner: Box<dyn Accumulator>,
    /// Rows of the frame, over which `evaluate` may go.
    frame_rows: usize,
    /// Rows that calls may have gone over since the deadline was looked at.
    unchecked_rows: usize,
    /// What the values take that it has given, on the heap.
    bytes: usize,
    /// When they take so much the memory that is left is looked at.
    next_look: usize,
}

impl Watched {
    /// Looks at the deadline before a call that may go over so many rows, unless the calls since the last look were little work.
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

impl Accumulator for Watched {
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
            // They become an array while they are held.
            super::foresee(2 * self.bytes as u128 + self.inner.size() as u128)?;
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

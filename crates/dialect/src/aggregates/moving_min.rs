//! `min` over a sliding window frame is null once all values left in the frame are null.
//!
//! DataFusion's `min` keeps its last value then. Here the sliding accumulator also counts the values in the frame that are not
//! null.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType as Arrow, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::min_max::min_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

/// Returns the `min` that replaces DataFusion's.
pub fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Min { inner: min_udaf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Min {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Min {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        self.inner.coerce_types(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let null = ScalarValue::try_from(args.return_field.data_type())?;
        Ok(Box::new(SlidingMin {
            inner: self.inner.create_sliding_accumulator(args)?,
            non_null_rows: 0,
            null,
        }))
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &Arrow) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

/// DataFusion's sliding accumulator, with the number of rows of the frame whose value is not null.
#[derive(Debug)]
struct SlidingMin {
    inner: Box<dyn Accumulator>,
    non_null_rows: usize,
    null: ScalarValue,
}

fn values_of(columns: &[ArrayRef]) -> usize {
    columns[0].len() - columns[0].null_count()
}

impl Accumulator for SlidingMin {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.non_null_rows += values_of(columns);
        self.inner.update_batch(columns)
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.non_null_rows -= values_of(columns);
        self.inner.retract_batch(columns)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.non_null_rows == 0 { Ok(self.null.clone()) } else { self.inner.evaluate() }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

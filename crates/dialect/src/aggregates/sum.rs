//! `sum` of integers and decimals never wraps around, as in PostgreSQL: it is exact, or fails.
//!
//! DataFusion's `sum` does wrap around. Here totals are held in 128 bits and converted to the result type at the end, so a
//! partial sum may exceed the result type. Sums of floats are in [`crate::aggregates::floats`].

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array};
use arrow::datatypes::{
    DataType as Arrow, Decimal128Type, Field as ArrowField, FieldRef, Int64Type, UInt64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature,
};
use types::Error;

use crate::aggregates::floats::{self, Statistic};

/// Returns the `sum` that replaces DataFusion's.
pub fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(CheckedSum(Sum::new())))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum(Sum);

/// Returns the type of partial totals for a sum of type `data_type`; `None` for types that are left to DataFusion.
fn wide(data_type: &Arrow) -> Option<Arrow> {
    match data_type {
        Arrow::Int64 | Arrow::UInt64 => Some(Arrow::Decimal128(38, 0)),
        Arrow::Decimal128(_, scale) => Some(Arrow::Decimal128(38, *scale)),
        _ => None,
    }
}

impl AggregateUDFImpl for CheckedSum {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.0.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type();
        Ok(match (wide(data_type), args.is_distinct) {
            (None, distinct) if *data_type == Arrow::Float64 => floats::accumulator(Statistic::Sum, distinct),
            (None, _) => return self.0.accumulator(args),
            (Some(wide), true) => Box::new(DistinctSumAccumulator {
                counts: HashMap::new(),
                data_type: data_type.clone(),
                wide,
            }),
            (Some(wide), false) => {
                Box::new(SumAccumulator { sum: 0, count: 0, data_type: data_type.clone(), wide })
            }
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type();
        if wide(data_type).is_some() || *data_type == Arrow::Float64 {
            self.accumulator(args)
        } else {
            self.0.create_sliding_accumulator(args)
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if *args.return_type() == Arrow::Float64 {
            return Ok(floats::state_fields(Statistic::Sum, args.name, args.is_distinct));
        }
        let Some(wide) = wide(args.return_type()) else { return self.0.state_fields(args) };
        let field = if args.is_distinct {
            let item = ArrowField::new_list_field(wide, true);
            ArrowField::new_list(format_state_name(args.name, "sum distinct"), item, false)
        } else {
            ArrowField::new(format_state_name(args.name, "sum"), wide, true)
        };
        Ok(vec![Arc::new(field)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type();
        match wide(data_type) {
            None if *data_type == Arrow::Float64 => Ok(floats::groups_accumulator(Statistic::Sum)),
            None => self.0.create_groups_accumulator(args),
            Some(wide) => Ok(Box::new(GroupedSums {
                sums: Vec::new(),
                seen: Vec::new(),
                data_type: data_type.clone(),
                wide,
            })),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &Arrow) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
    }
}

fn out_of_range(data_type: &Arrow) -> DataFusionError {
    let name = sql::sql_type::field_type_name(&ArrowField::new("", data_type.clone(), true));
    DataFusionError::External(Box::new(
        Error::invalid(format!("a sum is out of range of {name}"))
            .hint("CAST what is summed to a decimal with more digits, or to float64"),
    ))
}

/// Converts a total to a value of type `data_type`, or fails if it is out of range.
fn to_scalar(sum: i128, data_type: &Arrow) -> Result<ScalarValue> {
    let overflow = || out_of_range(data_type);
    Ok(match data_type {
        Arrow::Int64 => ScalarValue::Int64(Some(sum.try_into().map_err(|_| overflow())?)),
        Arrow::UInt64 => ScalarValue::UInt64(Some(sum.try_into().map_err(|_| overflow())?)),
        Arrow::Decimal128(precision, scale) => {
            let limit = 10u128.checked_pow(u32::from(*precision)).ok_or_else(overflow)?;
            if sum.unsigned_abs() >= limit {
                return Err(overflow());
            }
            ScalarValue::Decimal128(Some(sum), *precision, *scale)
        }
        other => return Err(DataFusionError::Internal(format!("sums of {other} are not made here"))),
    })
}

/// Calls `each` with the row number and the value of every row that is not null.
fn each(values: &ArrayRef, mut each: impl FnMut(usize, i128) -> Result<()>) -> Result<()> {
    macro_rules! visit {
        ($type:ty) => {{
            let array = values.as_primitive::<$type>();
            for (i, value) in array.values().iter().enumerate() {
                if array.is_valid(i) {
                    each(i, i128::from(*value))?;
                }
            }
        }};
    }
    match values.data_type() {
        Arrow::Int64 => visit!(Int64Type),
        Arrow::UInt64 => visit!(UInt64Type),
        Arrow::Decimal128(..) => visit!(Decimal128Type),
        other => return Err(DataFusionError::Internal(format!("sums of {other} are not made here"))),
    }
    Ok(())
}

/// Sums a batch of int64 without nulls. The high and the low halves are added separately, so that the compiler can vectorise the
/// loop. They cannot overflow, because no batch has 2^31 rows.
fn sum_int64(values: &[i64]) -> i128 {
    let mut sum = 0i128;
    for chunk in values.chunks(1 << 16) {
        let (mut high, mut low) = (0i64, 0i64);
        for value in chunk {
            high += value >> 32;
            low += value & 0xffff_ffff;
        }
        sum += (i128::from(high) << 32) + i128::from(low);
    }
    sum
}

#[derive(Debug)]
struct SumAccumulator {
    sum: i128,
    count: u64,
    data_type: Arrow,
    wide: Arrow,
}

impl SumAccumulator {
    fn value(&self, data_type: &Arrow) -> Result<ScalarValue> {
        if self.count == 0 { ScalarValue::try_from(data_type) } else { to_scalar(self.sum, data_type) }
    }
}

impl Accumulator for SumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = &values[0];
        if *values.data_type() == Arrow::Int64 && values.null_count() == 0 {
            self.sum += sum_int64(values.as_primitive::<Int64Type>().values());
            self.count += values.len() as u64;
            return Ok(());
        }
        each(values, |_, value| {
            self.sum = self.sum.checked_add(value).ok_or_else(|| out_of_range(&self.data_type))?;
            self.count += 1;
            Ok(())
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| {
            self.sum = self.sum.checked_sub(value).ok_or_else(|| out_of_range(&self.data_type))?;
            self.count -= 1;
            Ok(())
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value(&self.wide)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.value(&self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// `sum(DISTINCT …)`: counts the occurrences of each value in the frame, so that rows can leave it.
#[derive(Debug)]
struct DistinctSumAccumulator {
    counts: HashMap<i128, u64>,
    data_type: Arrow,
    wide: Arrow,
}

impl Accumulator for DistinctSumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| {
            *self.counts.entry(value).or_default() += 1;
            Ok(())
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| {
            if let Some(count) = self.counts.get_mut(&value) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&value);
                }
            }
            Ok(())
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Result<Vec<ScalarValue>> =
            self.counts.keys().map(|value| to_scalar(*value, &self.wide)).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values?, &self.wide))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        let mut sum = 0i128;
        for value in self.counts.keys() {
            sum = sum.checked_add(*value).ok_or_else(|| out_of_range(&self.data_type))?;
        }
        to_scalar(sum, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(i128, u64)>()
    }
}

/// The totals of every group.
struct GroupedSums {
    sums: Vec<i128>,
    /// Tells for each group if it has a value that is not null.
    seen: Vec<bool>,
    data_type: Arrow,
    wide: Arrow,
}

impl GroupsAccumulator for GroupedSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, 0);
        self.seen.resize(count, false);
        let GroupedSums { sums, seen, data_type, .. } = self;
        each(&values[0], |i, value| {
            if filter.is_none_or(|f| f.is_valid(i) && f.value(i)) {
                let sum = &mut sums[groups[i]];
                *sum = sum.checked_add(value).ok_or_else(|| out_of_range(data_type))?;
                seen[groups[i]] = true;
            }
            Ok(())
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let null = ScalarValue::try_from(&self.data_type)?;
        let (sums, seen) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.seen));
        if sums.is_empty() {
            return Ok(arrow::array::new_empty_array(&self.data_type));
        }
        let values: Result<Vec<ScalarValue>> = sums
            .into_iter()
            .zip(seen)
            .map(|(sum, seen)| if seen { to_scalar(sum, &self.data_type) } else { Ok(null.clone()) })
            .collect();
        ScalarValue::iter_to_array(values?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, seen) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.seen));
        let values = sums.into_iter().zip(seen).map(|(sum, seen)| seen.then_some(sum));
        let array = Decimal128Array::from_iter(values).with_data_type(self.wide.clone());
        Ok(vec![Arc::new(array)])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.update_batch(states, groups, filter, count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut states: Vec<Option<i128>> = vec![None; values[0].len()];
        each(&values[0], |i, value| {
            if filter.is_none_or(|f| f.is_valid(i) && f.value(i)) {
                states[i] = Some(value);
            }
            Ok(())
        })?;
        let array = Decimal128Array::from_iter(states).with_data_type(self.wide.clone());
        Ok(vec![Arc::new(array)])
    }

    fn supports_convert_to_state(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_add_up_to_the_sum() {
        let values = [i64::MAX, i64::MAX, i64::MIN, -1, 0, 1, -4_294_967_296, 4_294_967_295];
        assert_eq!(sum_int64(&values), values.iter().map(|v| i128::from(*v)).sum::<i128>());
        let many = vec![i64::MIN; 200_000];
        assert_eq!(sum_int64(&many), i128::from(i64::MIN) * 200_000);
    }
}

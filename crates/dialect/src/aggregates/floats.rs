//! `sum`, `avg`, variances and standard deviations of float64 give the same result to the bit for any segments, partitions and
//! threads.
//!
//! DataFusion adds floats in the order in which rows arrive, so that the last bits of its results vary. Here the sums are held
//! exactly (`ExactSum`), and the result is rounded once at the end.

mod exact_sum;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Float64Array, Float64Builder, UInt64Array,
};
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature,
};

use exact_sum::ExactSum;

/// The statistic that an aggregate computes from its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistic {
    Sum,
    Mean,
    /// The variance of a sample (divided by n - 1) or of a population (divided by n); with `root`, the standard deviation.
    Variance {
        sample: bool,
        root: bool,
    },
}

impl Statistic {
    fn needs_squares(self) -> bool {
        matches!(self, Statistic::Variance { .. })
    }
}

/// Returns `avg`, the variances and the standard deviations, which replace DataFusion's functions.
pub fn functions() -> Vec<Arc<AggregateUDF>> {
    let variance = |sample, root| Statistic::Variance { sample, root };
    fn of(plain: impl AggregateUDFImpl + 'static, statistic: Statistic) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::new_from_impl(FloatAggregate {
            plain: AggregateUDF::new_from_impl(plain),
            statistic,
        }))
    }
    vec![
        of(Avg::new(), Statistic::Mean),
        of(VarianceSample::new(), variance(true, false)),
        of(VariancePopulation::new(), variance(false, false)),
        of(Stddev::new(), variance(true, true)),
        of(StddevPop::new(), variance(false, true)),
    ]
}

/// Wraps a function of DataFusion and computes its float64 results here. Other types, such as decimals, are left to the wrapped
/// function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatAggregate {
    plain: AggregateUDF,
    statistic: Statistic,
}

impl FloatAggregate {
    fn is_ours(input: &[FieldRef]) -> bool {
        input.first().is_some_and(|field| *field.data_type() == Arrow::Float64)
    }
}

impl AggregateUDFImpl for FloatAggregate {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.plain.name()
    }

    fn aliases(&self) -> &[String] {
        self.plain.aliases()
    }

    fn signature(&self) -> &Signature {
        self.plain.signature()
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.plain.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !Self::is_ours(args.expr_fields) {
            return self.plain.accumulator(args);
        }
        Ok(accumulator(self.statistic, args.is_distinct))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !Self::is_ours(args.expr_fields) {
            return self.plain.create_sliding_accumulator(args);
        }
        Ok(accumulator(self.statistic, args.is_distinct))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !Self::is_ours(args.input_fields) {
            return self.plain.state_fields(args);
        }
        Ok(state_fields(self.statistic, args.name, args.is_distinct))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        if Self::is_ours(args.expr_fields) {
            !args.is_distinct
        } else {
            self.plain.groups_accumulator_supported(args)
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if !Self::is_ours(args.expr_fields) {
            return self.plain.create_groups_accumulator(args);
        }
        Ok(groups_accumulator(self.statistic))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.plain.documentation()
    }
}

pub fn accumulator(statistic: Statistic, distinct: bool) -> Box<dyn Accumulator> {
    if distinct {
        Box::new(DistinctAccumulator { counts: HashMap::new(), statistic })
    } else {
        Box::new(MomentsAccumulator { moments: Moments::default(), statistic })
    }
}

pub fn groups_accumulator(statistic: Statistic) -> Box<dyn GroupsAccumulator> {
    Box::new(GroupedMoments { groups: Vec::new(), heap_bytes: 0, statistic })
}

pub fn state_fields(statistic: Statistic, name: &str, distinct: bool) -> Vec<FieldRef> {
    if distinct {
        let item = ArrowField::new_list_field(Arrow::Float64, true);
        return vec![Arc::new(ArrowField::new_list(format_state_name(name, "distinct"), item, false))];
    }
    let field = |part, data_type| Arc::new(ArrowField::new(format_state_name(name, part), data_type, false));
    let mut fields = vec![field("count", Arrow::UInt64), field("sum", Arrow::Binary)];
    if statistic.needs_squares() {
        fields.push(field("squares", Arrow::Binary));
    }
    fields
}

/// The count, the sum and the sum of squares from which every statistic is computed.
#[derive(Clone, Debug, Default)]
struct Moments {
    count: u64,
    sum: ExactSum,
    /// Boxed, because sums and means do not need it.
    squares: Option<Box<Squares>>,
}

impl Moments {
    #[inline]
    fn add(&mut self, value: f64, statistic: Statistic) {
        self.count += 1;
        self.sum.add(value);
        if statistic.needs_squares() {
            self.squares.get_or_insert_default().add(value);
        }
    }

    fn remove(&mut self, value: f64, statistic: Statistic) {
        self.count -= 1;
        self.sum.remove(value);
        if statistic.needs_squares() {
            self.squares.get_or_insert_default().remove(value);
        }
    }

    fn merge(&mut self, other: &Moments) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        if let Some(squares) = &other.squares {
            self.squares.get_or_insert_default().merge(squares);
        }
    }

    fn statistic(&self, statistic: Statistic) -> Option<f64> {
        let count = self.count as f64;
        match statistic {
            _ if self.count == 0 => None,
            Statistic::Sum => Some(self.sum.value()),
            Statistic::Mean => Some(self.mean()),
            Statistic::Variance { sample: true, .. } if self.count == 1 => None,
            Statistic::Variance { sample, root } => {
                let divisor = if sample { count * (count - 1.0) } else { count * count };
                let (deviations, exponent) = self.squared_deviations();
                let variance = deviations / divisor;
                Some(match (root, exponent) {
                    (true, _) => exact_sum::scaled(variance.sqrt(), exponent / 2),
                    (false, 0) => variance,
                    (false, _) => exact_sum::scaled(exact_sum::scaled(variance, exponent / 2), exponent / 2),
                })
            }
        }
    }

    /// Returns the mean, also if the sum exceeds the float64 range.
    fn mean(&self) -> f64 {
        let count = self.count as f64;
        match self.sum.value() {
            sum if sum.is_infinite() && self.sum.is_finite() => {
                exact_sum::scaled(self.sum.value_by(-EXPONENT_OF_COUNT) / count, EXPONENT_OF_COUNT)
            }
            sum => sum / count,
        }
    }

    /// Returns the sum of the squared distances to the mean, times the count, computed without rounding as `n Σx² - (Σx)²`; and
    /// the exponent of the power of two by which it has to be multiplied.
    fn squared_deviations(&self) -> (f64, i32) {
        let Some(squares) = self.squares.as_ref().filter(|s| s.plain.is_finite() && self.sum.is_finite())
        else {
            return (f64::NAN, 0);
        };
        // Scaling down loses small squares. They do not matter beside large ones, and without large ones nothing is scaled.
        let down = if squares.large.value() == 0.0 { 0 } else { LARGE_EXPONENT };
        let mut total = ExactSum::default();
        let mut add = |a: f64, b: f64| {
            let (high, low) = product(a, b);
            total.add(high);
            total.add(low);
        };
        let plain = squares.plain.components(2 * down);
        let large = if down == 0 { Vec::new() } else { squares.large.components(0) };
        plain.into_iter().chain(large).for_each(|part| add(part, self.count as f64));
        let parts = self.sum.components(down);
        for a in &parts {
            parts.iter().for_each(|b| add(-a, *b));
        }
        // Squares too small for a float64 are rounded after all, which can make the total slightly negative.
        (total.value().max(0.0), 2 * down)
    }

    fn heap_bytes(&self) -> usize {
        let squares = self.squares.as_ref().map_or(0, |s| size_of::<Squares>() + s.heap_bytes());
        self.sum.heap_bytes() + squares
    }

    fn encode_squares(&self, out: &mut Vec<u8>) {
        self.squares.as_deref().unwrap_or(&Squares::default()).encode(out);
    }
}

/// Exponent of a power of two that exceeds any possible number of values.
const EXPONENT_OF_COUNT: i32 = 64;
/// Smallest magnitude of a large value: the sum of as many of its squares as there can be values may exceed the float64 range.
const LARGE_MIN: f64 = f64::from_bits((1023 + 448) << 52);
/// Exponent of the power of two by which large values are divided before they are squared.
const LARGE_EXPONENT: i32 = 600;

/// A sum of squares.
#[derive(Clone, Debug, Default)]
struct Squares {
    plain: ExactSum,
    /// The sum of the squares of large values, in units of 2^(2 [`LARGE_EXPONENT`]).
    large: ExactSum,
}

impl Squares {
    #[inline]
    fn add(&mut self, value: f64) {
        let (value, sum) = self.place(value);
        let (square, rest) = product(value, value);
        sum.add(square);
        sum.add(rest);
    }

    fn remove(&mut self, value: f64) {
        let (value, sum) = self.place(value);
        let (square, rest) = product(value, value);
        sum.remove(square);
        sum.remove(rest);
    }

    #[inline]
    fn place(&mut self, value: f64) -> (f64, &mut ExactSum) {
        match value.abs() {
            LARGE_MIN..=f64::MAX => (exact_sum::scaled(value, -LARGE_EXPONENT), &mut self.large),
            _ => (value, &mut self.plain),
        }
    }

    fn merge(&mut self, other: &Squares) {
        self.plain.merge(&other.plain);
        self.large.merge(&other.large);
    }

    fn heap_bytes(&self) -> usize {
        self.plain.heap_bytes() + self.large.heap_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut plain = Vec::new();
        self.plain.encode(&mut plain);
        out.extend((plain.len() as u32).to_le_bytes());
        out.extend(plain);
        self.large.encode(out);
    }

    /// Returns `None` for bytes that [`Squares::encode`] did not write.
    fn decode(bytes: &[u8]) -> Option<Squares> {
        let (len, bytes) = bytes.split_first_chunk()?;
        let (plain, large) = bytes.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Squares { plain: ExactSum::decode(plain)?, large: ExactSum::decode(large)? })
    }
}

/// Returns a product and its rounding error (T. J. Dekker, 1971; here by a fused multiply-add).
fn product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    let rest = if product.is_finite() { a.mul_add(b, -product) } else { 0.0 };
    (product, rest)
}

fn each(values: &ArrayRef, mut each: impl FnMut(usize, f64)) {
    let array = values.as_primitive::<Float64Type>();
    if array.null_count() == 0 {
        array.values().iter().enumerate().for_each(|(i, value)| each(i, *value));
    } else {
        array.iter().enumerate().filter_map(|(i, value)| Some((i, value?))).for_each(|(i, v)| each(i, v));
    }
}

/// Calls `each` with the row number and the partial moments of every row of a state's columns.
fn for_each_state(
    states: &[ArrayRef],
    statistic: Statistic,
    mut each: impl FnMut(usize, Moments),
) -> Result<()> {
    let counts = states[0].as_primitive::<UInt64Type>();
    let unreadable = || DataFusionError::Internal("a partial sum cannot be read".into());
    let bytes = |column: usize, row: usize| states[column].as_binary::<i32>().value(row);
    for row in 0..counts.len() {
        let squares = if statistic.needs_squares() {
            Some(Box::new(Squares::decode(bytes(2, row)).ok_or_else(unreadable)?))
        } else {
            None
        };
        let sum = ExactSum::decode(bytes(1, row)).ok_or_else(unreadable)?;
        each(row, Moments { count: counts.value(row), sum, squares });
    }
    Ok(())
}

#[derive(Debug)]
struct MomentsAccumulator {
    moments: Moments,
    statistic: Statistic,
}

impl Accumulator for MomentsAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let MomentsAccumulator { moments, statistic } = self;
        each(&values[0], |_, value| moments.add(value, *statistic));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let MomentsAccumulator { moments, statistic } = self;
        each(&values[0], |_, value| moments.remove(value, *statistic));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let bytes = |encode: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            encode(&mut bytes);
            ScalarValue::Binary(Some(bytes))
        };
        let moments = &self.moments;
        let mut state = vec![ScalarValue::UInt64(Some(moments.count)), bytes(&|out| moments.sum.encode(out))];
        if self.statistic.needs_squares() {
            state.push(bytes(&|out| moments.encode_squares(out)));
        }
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let MomentsAccumulator { moments, statistic } = self;
        for_each_state(states, *statistic, |_, other| moments.merge(&other))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moments.statistic(self.statistic)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.moments.heap_bytes()
    }
}

/// Computes a statistic of distinct values. Values are equal if SQL says so: -0 equals 0, and all NaN are equal.
#[derive(Debug)]
struct DistinctAccumulator {
    /// The number of occurrences of each value in the frame, keyed by the value's bits.
    counts: HashMap<u64, u64>,
    statistic: Statistic,
}

fn bits(value: f64) -> u64 {
    match value {
        value if value.is_nan() => f64::NAN.to_bits(),
        0.0 => 0,
        value => value.to_bits(),
    }
}

impl Accumulator for DistinctAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| *self.counts.entry(bits(value)).or_default() += 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| {
            if let Some(count) = self.counts.get_mut(&bits(value)) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&bits(value));
                }
            }
        });
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> =
            self.counts.keys().map(|bits| ScalarValue::Float64(Some(f64::from_bits(*bits)))).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &Arrow::Float64))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut moments = Moments::default();
        self.counts.keys().for_each(|bits| moments.add(f64::from_bits(*bits), self.statistic));
        Ok(ScalarValue::Float64(moments.statistic(self.statistic)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(u64, u64)>()
    }
}

/// The moments of every group.
struct GroupedMoments {
    groups: Vec<Moments>,
    /// Bytes that the groups own on the heap, besides `groups` itself.
    heap_bytes: usize,
    statistic: Statistic,
}

impl GroupedMoments {
    fn take(&mut self, emit_to: EmitTo) -> Vec<Moments> {
        let taken = emit_to.take_needed(&mut self.groups);
        self.heap_bytes = self.groups.iter().map(Moments::heap_bytes).sum();
        taken
    }
}

fn state_of(groups: impl Iterator<Item = Moments>, statistic: Statistic) -> Vec<ArrayRef> {
    let (mut sums, mut squares) = (BinaryBuilder::new(), BinaryBuilder::new());
    let (mut counts, mut bytes) = (Vec::new(), Vec::new());
    for moments in groups {
        counts.push(moments.count);
        bytes.clear();
        moments.sum.encode(&mut bytes);
        sums.append_value(&bytes);
        if statistic.needs_squares() {
            bytes.clear();
            moments.encode_squares(&mut bytes);
            squares.append_value(&bytes);
        }
    }
    let mut state: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(counts)), Arc::new(sums.finish())];
    if statistic.needs_squares() {
        state.push(Arc::new(squares.finish()));
    }
    state
}

fn passes_filter(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for GroupedMoments {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize_with(count, Moments::default);
        let mut grown = 0;
        each(&values[0], |row, value| {
            if passes_filter(filter, row) {
                let group = &mut self.groups[groups[row]];
                let before = group.heap_bytes();
                group.add(value, self.statistic);
                grown += group.heap_bytes() - before;
            }
        });
        self.heap_bytes += grown;
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut values = Float64Builder::new();
        self.take(emit_to).iter().for_each(|group| values.append_option(group.statistic(self.statistic)));
        Ok(Arc::new(values.finish()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let taken = self.take(emit_to);
        Ok(state_of(taken.into_iter(), self.statistic))
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize_with(count, Moments::default);
        let mut grown = 0;
        for_each_state(states, self.statistic, |row, other| {
            if passes_filter(filter, row) {
                let group = &mut self.groups[groups[row]];
                let before = group.heap_bytes();
                group.merge(&other);
                grown += group.heap_bytes() - before;
            }
        })?;
        self.heap_bytes += grown;
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let array: &Float64Array = values[0].as_primitive();
        let one = |row: usize| {
            let mut moments = Moments::default();
            if array.is_valid(row) && passes_filter(filter, row) {
                moments.add(array.value(row), self.statistic);
            }
            moments
        };
        Ok(state_of((0..array.len()).map(one), self.statistic))
    }

    fn supports_convert_to_state(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Moments>() + self.heap_bytes
    }
}

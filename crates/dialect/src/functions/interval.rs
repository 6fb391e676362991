//! Operations on intervals that PostgreSQL has and DataFusion lacks: an interval times a number or divided by one
//! (`i * interval '1 minute'`), a time of day plus or minus an interval, and comparisons of intervals by length.
//!
//! The fraction of one part is carried to the next smaller one, where a month counts 30 days and a day 24 hours. Comparisons
//! count the same.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::kernels::arity;
use arrow::datatypes::{
    DataType as Arrow, Decimal128Type, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, Time64NanosecondType, TimeUnit,
};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use types::Error;

const INTERVAL: Arrow = Arrow::Interval(IntervalUnit::MonthDayNano);
const DAYS_OF_MONTH: f64 = 30.0;
const NANOS_OF_DAY: f64 = 86_400e9;
const TIME: Arrow = Arrow::Time64(TimeUnit::Nanosecond);
const LENGTH: Arrow = Arrow::Decimal128(38, 0);

/// Returns `interval * number`, in either order, or `interval / number`; `None` for other operands.
pub fn multiply_or_divide(left: &Expr, divides: bool, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let type_of = |expr: &Expr| expr.get_type(schema).ok();
    let is_interval = |expr: &Expr| matches!(type_of(expr), Some(Arrow::Interval(_)));
    let is_number = |expr: &Expr| type_of(expr).is_some_and(|data_type| data_type.is_numeric());
    let (interval, number) = match (is_interval(left), is_interval(right)) {
        (true, false) => (left, right),
        (false, true) if !divides => (right, left),
        _ => return None,
    };
    let function = Arc::new(ScalarUDF::new_from_impl(IntervalProduct::new(divides)));
    let args = vec![interval.clone(), number.clone()];
    is_number(number).then(|| Expr::ScalarFunction(ScalarFunction::new_udf(function, args)))
}

/// Returns a time of day plus or minus an interval, in either order for plus; `None` for other operands.
pub fn shift_time_of_day(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let theirs = right.get_type(schema).ok()?;
    if !matches!(theirs, Arrow::Interval(_) | Arrow::Time64(_) | Arrow::Time32(_)) {
        return None;
    }
    let (time, interval) = match (left.get_type(schema).ok()?, theirs, op) {
        (Arrow::Time64(_) | Arrow::Time32(_), Arrow::Interval(_), Operator::Plus | Operator::Minus) => {
            (left, right)
        }
        (Arrow::Interval(_), Arrow::Time64(_) | Arrow::Time32(_), Operator::Plus) => (right, left),
        _ => return None,
    };
    let signature = Signature::exact(vec![TIME, INTERVAL], Volatility::Immutable);
    let clock = TimeOfDayShift { back: op == Operator::Minus, signature };
    let args = vec![time.clone(), interval.clone()];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(clock)), args)))
}

/// Replaces the intervals among compared expressions by their lengths, and so the durations beside them.
pub fn compare_by_length(exprs: &mut [&mut Expr], schema: &DFSchema) {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::exact(vec![INTERVAL], Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(IntervalLength { signature }))
    });
    let types: Vec<Option<Arrow>> = exprs.iter().map(|expr| expr.get_type(schema).ok()).collect();
    if !types.iter().any(|own| matches!(own, Some(Arrow::Interval(_)))) {
        return;
    }
    for (expr, own) in exprs.iter_mut().zip(types) {
        let interval = match own {
            Some(INTERVAL) => std::mem::take(*expr),
            Some(Arrow::Interval(_) | Arrow::Duration(_)) => {
                Expr::Cast(Cast::new(Box::new(std::mem::take(*expr)), INTERVAL))
            }
            _ => continue,
        };
        **expr = Expr::ScalarFunction(ScalarFunction::new_udf(FUNCTION.clone(), vec![interval]));
    }
}

/// Adds an interval to a time of day, or subtracts it, modulo one day. Months and days are whole days, so they change nothing.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeOfDayShift {
    back: bool,
    signature: Signature,
}

impl ScalarUDFImpl for TimeOfDayShift {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        if self.back { "time_before" } else { "time_after" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(TIME)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sign = if self.back { -1 } else { 1 };
        let shown = |time: i64, interval: IntervalMonthDayNano| {
            let day = NANOS_OF_DAY as i128;
            (i128::from(time) + sign * i128::from(interval.nanoseconds)).rem_euclid(day) as i64
        };
        by_row(&args, |rows| {
            let times = args.args[0].to_array(rows)?;
            let intervals = args.args[1].to_array(rows)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            let times = times.as_primitive::<Time64NanosecondType>();
            Ok(Arc::new(arity::binary::<_, _, _, Time64NanosecondType>(times, intervals, shown)?))
        })
    }
}

/// Returns the length of an interval in nanoseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalLength {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalLength {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(LENGTH)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let length = |interval: IntervalMonthDayNano| {
            let days = i128::from(interval.months) * DAYS_OF_MONTH as i128 + i128::from(interval.days);
            days * NANOS_OF_DAY as i128 + i128::from(interval.nanoseconds)
        };
        by_row(&args, |rows| {
            let intervals = args.args[0].to_array(rows)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            Ok(Arc::new(intervals.unary::<_, Decimal128Type>(length).with_data_type(LENGTH)))
        })
    }
}

/// Evaluates a function for all rows; for one row if all its arguments are constant.
fn by_row(args: &ScalarFunctionArgs, give: impl FnOnce(usize) -> Result<ArrayRef>) -> Result<ColumnarValue> {
    if args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
        return ScalarValue::try_from_array(&give(1)?, 0).map(ColumnarValue::Scalar);
    }
    give(args.number_rows).map(ColumnarValue::Array)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalProduct {
    divides: bool,
    signature: Signature,
}

impl IntervalProduct {
    fn new(divides: bool) -> IntervalProduct {
        IntervalProduct { divides, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IntervalProduct {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        if self.divides { "interval_divided" } else { "interval_times" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        let is_whole = |data_type: &Arrow| data_type.is_signed_integer() && !self.divides;
        let number = if types.get(1).is_some_and(is_whole) { Arrow::Int64 } else { Arrow::Float64 };
        Ok(vec![INTERVAL, number])
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [interval, number] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("an interval is multiplied by one number".into()));
        };
        by_row(&args, |rows| {
            let product = product(&interval.to_array(rows)?, &number.to_array(rows)?, self.divides)?;
            Ok(Arc::new(product))
        })
    }
}

fn product(intervals: &ArrayRef, numbers: &ArrayRef, divides: bool) -> Result<IntervalMonthDayNanoArray> {
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let whole = numbers.as_primitive_opt::<Int64Type>();
    let part = numbers.as_primitive_opt::<Float64Type>();
    let one = |row: usize| {
        if intervals.is_null(row) || numbers.is_null(row) {
            return Ok(None);
        }
        let interval = intervals.value(row);
        let product = match (whole, part) {
            (Some(whole), _) => by_whole(interval, whole.value(row)),
            (_, Some(part)) if divides && part.value(row) == 0.0 => {
                return Err(external(Error::invalid("an interval is divided by zero")));
            }
            (_, Some(part)) if divides => by_part(interval, |of| of / part.value(row)),
            (_, Some(part)) => by_part(interval, |of| of * part.value(row)),
            _ => {
                return Err(DataFusionError::Internal(
                    "an interval is multiplied by something other than a number".into(),
                ));
            }
        };
        product.map(Some).ok_or_else(|| external(Error::invalid("an interval is out of range")))
    };
    (0..intervals.len()).map(one).collect()
}

fn by_whole(interval: IntervalMonthDayNano, number: i64) -> Option<IntervalMonthDayNano> {
    let small =
        |part: i32| i64::from(part).checked_mul(number).and_then(|product| i32::try_from(product).ok());
    Some(IntervalMonthDayNano {
        months: small(interval.months)?,
        days: small(interval.days)?,
        nanoseconds: interval.nanoseconds.checked_mul(number)?,
    })
}

fn by_part(interval: IntervalMonthDayNano, times: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let small = |part: f64| (part.abs() <= f64::from(i32::MAX)).then_some(part as i32);
    let months = times(f64::from(interval.months));
    let days = times(f64::from(interval.days));
    // A rest below a nanosecond comes from the rounding of floats and is dropped.
    let settled = |left: f64, unit: f64| (left * unit).round() / unit;
    let of_months = settled(months.fract() * DAYS_OF_MONTH, NANOS_OF_DAY);
    let of_days = settled(days.fract() + of_months.fract(), NANOS_OF_DAY);
    let nanos = times(interval.nanoseconds as f64) + of_days.fract() * NANOS_OF_DAY;
    let nanos = nanos.round();
    Some(IntervalMonthDayNano {
        months: small(months.trunc())?,
        days: small(days.trunc() + of_months.trunc() + of_days.trunc())?,
        nanoseconds: (nanos.abs() < 9.2e18).then_some(nanos as i64)?,
    })
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

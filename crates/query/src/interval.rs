//! An interval times a number, and divided by one, as PostgreSQL has it: `i * interval '1 minute'`. DataFusion has neither.
//!
//! What a part comes to that is not whole goes into the next: a month is 30 days then, a day 24 hours.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType as Arrow, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use types::Error;

const INTERVAL: Arrow = Arrow::Interval(IntervalUnit::MonthDayNano);
const DAYS_OF_MONTH: f64 = 30.0;
const NANOS_OF_DAY: f64 = 86_400e9;

/// `interval * number`, in either order, and `interval / number`; `None` if it is neither.
pub(crate) fn times(left: &Expr, divides: bool, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let type_of = |expr: &Expr| expr.get_type(schema).ok();
    let is_interval = |expr: &Expr| matches!(type_of(expr), Some(Arrow::Interval(_)));
    let is_number = |expr: &Expr| type_of(expr).is_some_and(|data_type| data_type.is_numeric());
    let (interval, number) = match (is_interval(left), is_interval(right)) {
        (true, false) => (left, right),
        (false, true) if !divides => (right, left),
        _ => return None,
    };
    let function = Arc::new(ScalarUDF::new_from_impl(Times::new(divides)));
    let args = vec![interval.clone(), number.clone()];
    is_number(number).then(|| Expr::ScalarFunction(ScalarFunction::new_udf(function, args)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Times {
    divides: bool,
    signature: Signature,
}

impl Times {
    fn new(divides: bool) -> Times {
        Times { divides, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Times {
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
        let is_constant = [interval, number].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let product = product(&interval.to_array(rows)?, &number.to_array(rows)?, self.divides)?;
        match is_constant {
            true => ScalarValue::try_from_array(&product, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(Arc::new(product))),
        }
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
                return Err(ours(Error::invalid("an interval is divided by zero")));
            }
            (_, Some(part)) if divides => by_part(interval, |of| of / part.value(row)),
            (_, Some(part)) => by_part(interval, |of| of * part.value(row)),
            _ => return Err(DataFusionError::Internal("an interval is multiplied by no number".into())),
        };
        product.map(Some).ok_or_else(|| ours(Error::invalid("an interval is longer than it can be")))
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
    // What is left over by the way floats are rounded is nothing: a nanosecond and less.
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

fn ours(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

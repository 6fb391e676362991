//! `date_part(part, time)` and `extract(part FROM time)` return PostgreSQL's values. DataFusion's return seconds without a
//! fraction, count ISO weekdays from 0, and count a year in the epoch of an interval as 360 days.

use std::any::Any;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array};
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::IntervalUnit;
use arrow::compute::kernels::temporal::{DatePart, date_part};
use arrow::datatypes::{
    DataType as Arrow, DurationMicrosecondType, Field, FieldRef, Float64Type, Int32Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use super::{INTERVAL, is_clock, of_time, out_of_range, own_types, wrong_argument_count, wrong_arguments};

const NAME: &str = "date_part";
const NANOS: i64 = 1_000_000_000;
const MICROS_OF_DAY: i64 = 86_400_000_000;

pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let function = DatePartFunction { inner: registry.udf(NAME)?, signature: own_types() };
    registry.register_udf(Arc::new(ScalarUDF::new_from_impl(function))).map(drop)
}

/// A planner extension that plans `extract` as the function that `register` registered. DataFusion's planner would take its own
/// function without a lookup.
#[derive(Debug, Default)]
pub struct ExtractPlanner {
    function: OnceLock<Arc<ScalarUDF>>,
}

impl ExtractPlanner {
    /// Takes over the registered function. Called after `register`.
    pub fn use_registered(&self, registry: &dyn FunctionRegistry) -> Result<()> {
        let function = registry.udf(NAME)?;
        self.function.get_or_init(|| function);
        Ok(())
    }
}

impl ExprPlanner for ExtractPlanner {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(match self.function.get() {
            Some(function) => {
                PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), args)))
            }
            None => PlannerResult::Original(args),
        })
    }
}

/// The parts that are computed here, not by DataFusion.
enum OwnPart {
    /// Seconds or milliseconds, with their fraction; the value is the number of nanoseconds in one.
    Seconds(i64),
    /// The ISO weekday: Monday is 1, Sunday 7.
    IsoDay,
    /// The total length of an interval in seconds.
    Epoch,
}

/// Returns how a part of a value of type `of` is computed here; `None` if DataFusion computes it.
fn own_part(part: &str, of: &Arrow) -> Option<OwnPart> {
    let part = part.trim_matches(['\'', '"']);
    match IntervalUnit::from_str(part) {
        Ok(IntervalUnit::Second) => Some(OwnPart::Seconds(NANOS)),
        Ok(IntervalUnit::Millisecond) => Some(OwnPart::Seconds(1_000_000)),
        _ if part.eq_ignore_ascii_case("isodow") => Some(OwnPart::IsoDay),
        _ if part.eq_ignore_ascii_case("epoch") && matches!(of, Arrow::Interval(_) | Arrow::Duration(_)) => {
            Some(OwnPart::Epoch)
        }
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePartFunction {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for DatePartFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        NAME
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        let [_, time] = types else { return Err(wrong_arguments(NAME, types)) };
        let time = match time {
            Arrow::Interval(_) => Some(INTERVAL),
            Arrow::Date32 | Arrow::Duration(_) => Some(time.clone()),
            clock if is_clock(clock) => Some(clock.clone()),
            time => of_time(time),
        };
        Ok(vec![Arrow::Utf8, time.ok_or_else(|| wrong_arguments(NAME, types))?])
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let part = args.scalar_arguments.first().copied().flatten().and_then(|part| part.try_as_str());
        let of = args.arg_fields.get(1).ok_or_else(|| wrong_argument_count(NAME))?.data_type().clone();
        let field = self.inner.return_field_from_args(args)?;
        Ok(match part.flatten().and_then(|part| own_part(part, &of)) {
            Some(OwnPart::Seconds(_)) => Arc::new(Field::clone(&field).with_data_type(Arrow::Float64)),
            _ => field,
        })
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), time] = args.args.as_slice() else {
            return Err(wrong_argument_count(NAME));
        };
        let of = time.data_type();
        let ours = part.try_as_str().flatten().and_then(|part| own_part(part, &of));
        let is_constant = matches!(time, ColumnarValue::Scalar(_));
        let mut times = time.to_array(if is_constant { 1 } else { args.number_rows })?;
        if matches!(of, Arrow::Duration(_)) {
            times = days_apart(&times)?;
            args.args[1] = if is_constant {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&times, 0)?)
            } else {
                ColumnarValue::Array(times.clone())
            };
            args.arg_fields[1] = Arc::new(Field::clone(&args.arg_fields[1]).with_data_type(INTERVAL));
        }
        let Some(ours) = ours else { return self.inner.invoke_with_args(args) };
        let parts: ArrayRef = match ours {
            OwnPart::Seconds(one) => Arc::new(seconds(&times, one)?),
            OwnPart::IsoDay => {
                let days = date_part(&times, DatePart::DayOfWeekMonday0)?;
                Arc::new(days.as_primitive::<Int32Type>().unary::<_, Int32Type>(|day| day + 1))
            }
            OwnPart::Epoch => {
                let intervals = times.as_primitive::<IntervalMonthDayNanoType>();
                Arc::new(intervals.unary::<_, Float64Type>(epoch))
            }
        };
        if is_constant {
            ScalarValue::try_from_array(&parts, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(parts))
        }
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.inner().preimage(args, literal, info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Converts durations to intervals of days and the rest of the last day, as PostgreSQL does for the difference of two times.
fn days_apart(spans: &ArrayRef) -> Result<ArrayRef> {
    let micros = cast(spans, &Arrow::Duration(TimeUnit::Microsecond))?;
    let micros = micros.as_primitive::<DurationMicrosecondType>();
    let parted = |span: i64| {
        let days = i32::try_from(span / MICROS_OF_DAY).map_err(|_| out_of_range(NAME))?;
        Ok::<_, DataFusionError>(IntervalMonthDayNano::new(0, days, span % MICROS_OF_DAY * 1_000))
    };
    Ok(Arc::new(micros.try_unary::<_, IntervalMonthDayNanoType, _>(parted)?))
}

/// Returns the seconds of an interval as PostgreSQL counts them: a year has 365.25 days, a month beyond full years has 30 days.
fn epoch(interval: IntervalMonthDayNano) -> f64 {
    let (years, months) = (interval.months / 12, interval.months % 12);
    let hours = i128::from(years) * 8_766 + i128::from(months) * 720 + i128::from(interval.days) * 24;
    let nanos = hours * 3_600 * i128::from(NANOS) + i128::from(interval.nanoseconds);
    nanos as f64 / NANOS as f64
}

/// Returns the time since the last full minute, in units of `one` nanoseconds.
fn seconds(times: &ArrayRef, one: i64) -> Result<Float64Array> {
    // One rounding gives the float64 nearest to the exact value.
    let rounded = |nanos: i64| nanos as f64 / one as f64;
    if let Some(intervals) = times.as_primitive_opt::<IntervalMonthDayNanoType>() {
        return Ok(intervals.unary(|interval| rounded(interval.nanoseconds % (60 * NANOS))));
    }
    let whole = date_part(times, DatePart::Second)?;
    let rest = date_part(times, DatePart::Nanosecond)?;
    let (whole, rest): (&Int32Array, &Int32Array) = (whole.as_primitive(), rest.as_primitive());
    let second = |(whole, rest): (Option<i32>, Option<i32>)| {
        Some(rounded(i64::from(whole?) * NANOS + i64::from(rest?) % NANOS))
    };
    Ok(whole.iter().zip(rest.iter()).map(second).collect())
}

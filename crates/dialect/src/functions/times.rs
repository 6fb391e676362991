//! Functions of time in microseconds, the unit in which times are stored, for the years 1 to 9999, with PostgreSQL's results.
//!
//! DataFusion's functions convert times to nanoseconds, for which an int64 holds only the years 1678 to 2261; beyond those they
//! fail, or return null or a wrong time. These functions also correct other results: Sunday is the seventh day of an ISO week,
//! seconds have a fraction, a time before 1970 belongs to the step that begins before it, and the width of a step must be
//! positive.

mod calendar;
mod date_part;
mod interval_text;
mod precision;
pub mod series;
mod to_timestamp;
mod zone;

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{
    DataType as Arrow, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use types::{DataType, Error};

use crate::functions::common_type::is_text;
use calendar::{DAY, Unit};
use zone::Zone;

pub use date_part::ExtractPlanner;
pub use interval_text::rewrite_intervals;
pub use precision::rewrite_precision;
pub use zone::{in_zone, rewrite_at_time_zone};

const INTERVAL: Arrow = Arrow::Interval(IntervalUnit::MonthDayNano);

/// Registers these functions, which replace DataFusion's.
pub fn register(registry: &mut dyn FunctionRegistry, extract: &ExtractPlanner) -> Result<()> {
    for name in ["date_bin", "date_trunc", "to_char", "to_local_time"] {
        let what = match name {
            "date_bin" => TimeFunctionKind::Bin,
            "date_trunc" => TimeFunctionKind::Truncate,
            _ => TimeFunctionKind::Delegated,
        };
        let function = TimeFunction { inner: registry.udf(name)?, what, signature: own_types() };
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    }
    date_part::register(registry)?;
    to_timestamp::register(registry)?;
    precision::register(registry)?;
    extract.use_registered(registry)
}

fn own_types() -> Signature {
    Signature::user_defined(Volatility::Immutable)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TimeFunctionKind {
    /// `date_bin(width, time[, origin])`.
    Bin,
    /// `date_trunc(unit, time)`.
    Truncate,
    /// A function of DataFusion that is right once it gets microseconds. The time is its first argument.
    Delegated,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeFunction {
    /// DataFusion's function, which also handles times of day.
    inner: Arc<ScalarUDF>,
    what: TimeFunctionKind,
    signature: Signature,
}

impl TimeFunction {
    /// Returns the index of the time among the arguments.
    fn at(&self) -> usize {
        usize::from(self.what != TimeFunctionKind::Delegated)
    }
}

impl ScalarUDFImpl for TimeFunction {
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
        &self.signature
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        let (name, text) = (self.name(), || Arrow::Utf8);
        let taken = match (self.what, types) {
            (TimeFunctionKind::Bin, [width, time, origin @ ..]) if origin.len() < 2 => {
                let is_width = matches!(width, Arrow::Interval(_) | Arrow::Null) || is_text(width);
                let origin = match (time, origin.first()) {
                    (Arrow::Time32(_) | Arrow::Time64(_), Some(_)) => Some(Some(time.clone())),
                    (_, origin) => origin.map(of_time),
                };
                of_time_or_clock(time).filter(|_| is_width).and_then(|time| match origin {
                    Some(origin) => Some(vec![INTERVAL, time, origin?]),
                    None => Some(vec![INTERVAL, time]),
                })
            }
            (TimeFunctionKind::Truncate, [_, time]) => of_time_or_clock(time).map(|time| vec![text(), time]),
            (TimeFunctionKind::Delegated, [time]) => of_time(time).map(|time| vec![time]),
            (TimeFunctionKind::Delegated, [time, _]) => {
                let kept = matches!(time, Arrow::Date32 | Arrow::Duration(_)) || is_clock(time);
                let time = if kept { Some(time.clone()) } else { of_time(time) };
                time.map(|time| vec![time, text()])
            }
            _ => None,
        };
        taken.ok_or_else(|| wrong_arguments(name, types))
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        match self.what {
            TimeFunctionKind::Delegated => self.inner.return_type(types),
            _ => types.get(1).cloned().ok_or_else(|| wrong_argument_count(self.name())),
        }
    }

    /// Rounding down to a unit or a step keeps the order of the times.
    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        let others = input.iter().enumerate().filter(|(at, _)| *at != self.at());
        let is_constant =
            others.map(|(_, other)| other).all(|o| o.sort_properties == SortProperties::Singleton);
        match input.get(self.at()) {
            Some(time) if is_constant && self.what != TimeFunctionKind::Delegated => Ok(time.sort_properties),
            _ => Ok(SortProperties::Unordered),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = self.name();
        if self.what == TimeFunctionKind::Delegated {
            if let [_, pattern] = args.args.as_slice() {
                has_fields(name, pattern)?;
            }
            return self.inner.invoke_with_args(args);
        }
        let ([first, time] | [first, time, _]) = args.args.as_slice() else {
            return Err(wrong_argument_count(name));
        };
        let ColumnarValue::Scalar(first) = first else {
            let what = if self.what == TimeFunctionKind::Bin { "width" } else { "unit" };
            return Err(external(Error::invalid(format!(
                "the {what} of `{name}` must be the same for all rows"
            ))));
        };
        let is_clock = is_clock(&time.data_type());
        match self.what {
            TimeFunctionKind::Truncate => {
                let unit = unit(name, first)?;
                if is_clock {
                    return self.inner.invoke_with_args(args);
                }
                let zone = Zone::of(&time.data_type())?;
                each(time, |time| zone.cut(time, unit).ok_or_else(|| out_of_range(name)))
            }
            _ => {
                let nothing = || ScalarValue::try_from(time.data_type()).map(ColumnarValue::Scalar);
                let ScalarValue::IntervalMonthDayNano(Some(width)) = first else { return nothing() };
                let width = width_of(*width)?;
                if is_clock {
                    return self.inner.invoke_with_args(args);
                }
                let origin = match args.args.get(2) {
                    None => 0,
                    Some(ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(Some(origin), _))) => {
                        *origin
                    }
                    Some(ColumnarValue::Scalar(_)) => return nothing(),
                    Some(ColumnarValue::Array(_)) => {
                        return Err(external(Error::invalid(
                            "the origin of `date_bin` must be the same for all rows",
                        )));
                    }
                };
                let begin = |time| match width {
                    Width::Nanos(width) => calendar::bin(time, width, origin),
                    Width::Months(width) => calendar::bin_months(time, width, origin),
                };
                each(time, |time| begin(time).ok_or_else(|| out_of_range(name)))
            }
        }
    }
}

/// Refuses formats in PostgreSQL's syntax, such as `YYYY-MM-DD`, which DataFusion would print literally.
fn has_fields(name: &str, pattern: &ColumnarValue) -> Result<()> {
    let check = |pattern: &str| {
        if pattern.is_empty() || pattern.contains('%') {
            return Ok(());
        }
        let message = format!("`{}` has no field that `{name}` knows", types::name::printable(pattern));
        let hint = "its patterns are those of strftime: '%Y-%m-%d %H:%M:%S' for 'YYYY-MM-DD HH24:MI:SS'";
        Err(external(Error::invalid(message).hint(hint)))
    };
    match pattern {
        ColumnarValue::Scalar(pattern) => pattern.try_as_str().flatten().map_or(Ok(()), check),
        ColumnarValue::Array(patterns) => match patterns.as_string_opt::<i32>() {
            Some(patterns) => patterns.iter().flatten().try_for_each(check),
            None => Ok(()),
        },
    }
}

/// The width of the steps of `date_bin`.
#[derive(Clone, Copy)]
enum Width {
    Nanos(i64),
    Months(i64),
}

fn width_of(width: IntervalMonthDayNano) -> Result<Width> {
    let IntervalMonthDayNano { months, days, nanoseconds } = width;
    let invalid = |message: &str| Err(external(Error::invalid(message)));
    if months != 0 && (days != 0 || nanoseconds != 0) {
        return invalid("the width of a stride of `date_bin` is in months and years, or in days and less");
    }
    let nanos = i128::from(days) * i128::from(DAY) * 1_000 + i128::from(nanoseconds);
    match (months, i64::try_from(nanos)) {
        (1.., _) => Ok(Width::Months(months.into())),
        (0, Ok(nanos @ 1..)) => Ok(Width::Nanos(nanos)),
        (0, Err(_)) if nanos > 0 => {
            invalid("the stride of `date_bin` is longer than 292 years: write it in years")
        }
        _ => invalid("the stride of `date_bin` must be greater than zero"),
    }
}

fn unit(name: &str, unit: &ScalarValue) -> Result<Unit> {
    let known = unit.try_as_str().flatten();
    known.and_then(Unit::named).ok_or_else(|| {
        let found = known.map_or("null".to_owned(), |text| format!("`{}`", types::name::printable(text)));
        let error = Error::invalid(format!("{found} is not a unit of `{name}`"));
        external(error.hint(format!("it takes one of these: {}", Unit::NAMES)))
    })
}

/// Applies a function to each time.
fn each(times: &ColumnarValue, of: impl Fn(i64) -> Result<i64>) -> Result<ColumnarValue> {
    let zone = |data_type: &Arrow| match data_type {
        Arrow::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    match times {
        ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(time, zone)) => {
            let of = time.map(of).transpose()?;
            Ok(ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(of, zone.clone())))
        }
        ColumnarValue::Array(times) => {
            let array = micros(times)?;
            let all: TimestampMicrosecondArray = array.try_unary(of)?;
            let all: ArrayRef = Arc::new(all.with_timezone_opt(zone(times.data_type())));
            Ok(ColumnarValue::Array(all))
        }
        ColumnarValue::Scalar(_) => Err(DataFusionError::Internal("a time is in microseconds".into())),
    }
}

fn micros(times: &ArrayRef) -> Result<&TimestampMicrosecondArray> {
    let array = times.as_primitive_opt::<TimestampMicrosecondType>();
    array.ok_or_else(|| DataFusionError::Internal("times are in microseconds".into()))
}

fn utc() -> Arrow {
    DataType::Timestamp.to_arrow()
}

/// Returns the timestamp type in which a function takes a time: another timestamp, a date, or a text. `None` for other types.
fn of_time(data_type: &Arrow) -> Option<Arrow> {
    match data_type {
        Arrow::Timestamp(_, zone) => Some(Arrow::Timestamp(TimeUnit::Microsecond, zone.clone())),
        Arrow::Date32 | Arrow::Date64 | Arrow::Null => Some(utc()),
        text if is_text(text) => Some(utc()),
        _ => None,
    }
}

fn of_time_or_clock(data_type: &Arrow) -> Option<Arrow> {
    if is_clock(data_type) { Some(data_type.clone()) } else { of_time(data_type) }
}

/// Returns true for the type of a time of day.
fn is_clock(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Time32(_) | Arrow::Time64(_))
}

fn wrong_arguments(name: &str, types: &[Arrow]) -> DataFusionError {
    let name_of = |data_type: &Arrow| {
        sql::sql_type::field_type_name(&arrow::datatypes::Field::new("", data_type.clone(), true))
    };
    let found = types.iter().map(name_of).collect::<Vec<_>>().join(", ");
    let takes = match name {
        "date_bin" => "an interval and a timestamp, and maybe another timestamp",
        "date_trunc" | "date_part" => "the name of a unit and a timestamp",
        "to_char" => "a timestamp and a format",
        "from_unixtime" => "a number of seconds, and maybe the name of a zone",
        _ => "a timestamp, a text or a number",
    };
    external(Error::invalid(format!("`{name}` does not take ({found})")).hint(format!("it takes {takes}")))
}

fn wrong_argument_count(name: &str) -> DataFusionError {
    DataFusionError::Internal(format!("{name} has another number of arguments"))
}

fn out_of_range(name: &str) -> DataFusionError {
    external(Error::invalid(format!("`{name}` would return a time that no timestamp can hold")))
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

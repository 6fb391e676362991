//! `now()`, and functions that make a time of numbers and texts: `to_timestamp` and its variants, and `from_unixtime`. All return
//! microseconds, and fail if the time is out of range.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType as Arrow, Decimal128Type, Field, FieldRef, Float64Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use types::Error;

use super::{external, of_time, own_types, utc, wrong_argument_count, wrong_arguments};
use crate::functions::common_type::is_text;

const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };
/// The range of valid times: 0001-01-01 to 9999-12-31T23:59:59.999999, in microseconds since 1970.
const FIRST: i128 = -62_135_596_800_000_000;
const LAST: i128 = 253_402_300_799_999_999;

pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let now = Now { inner: registry.udf("now")?, signature: Signature::nullary(Volatility::Stable) };
    registry.register_udf(Arc::new(ScalarUDF::new_from_impl(now)))?;
    // The number of nanoseconds in one unit of the argument.
    let units = [
        ("to_timestamp", 1_000_000_000),
        ("to_timestamp_seconds", 1_000_000_000),
        ("to_timestamp_millis", 1_000_000),
        ("to_timestamp_micros", 1_000),
        ("to_timestamp_nanos", 1),
        ("from_unixtime", 1_000_000_000),
    ];
    // Reads texts by given formats.
    let reader = registry.udf("to_timestamp_micros")?;
    for (name, nanos) in units {
        let made =
            ToTimestamp { inner: registry.udf(name)?, reader: reader.clone(), nanos, signature: own_types() };
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(made)))?;
    }
    Ok(())
}

/// `now()`: the start time of the statement, which the planner inserts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Now {
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

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(utc())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), utc(), false)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match info.query_execution_start_time() {
            Some(time) => {
                let time =
                    ScalarValue::TimestampMicrosecond(Some(time.timestamp_micros()), Some("UTC".into()));
                ExprSimplifyResult::Simplified(Expr::Literal(time, None))
            }
            None => ExprSimplifyResult::Original(args),
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(DataFusionError::Internal("the time is put in where a statement is planned".into()))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// A function that makes a time of a number, a text or another time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    inner: Arc<ScalarUDF>,
    reader: Arc<ScalarUDF>,
    /// The number of nanoseconds in one unit of a numeric argument.
    nanos: i64,
    signature: Signature,
}

impl ToTimestamp {
    fn is_unix(&self) -> bool {
        self.name() == "from_unixtime"
    }

    fn of_numbers(&self, numbers: &ArrayRef) -> Result<TimestampMicrosecondArray> {
        let name = self.name();
        let time = |micros: i128, number: &dyn std::fmt::Display| {
            if (FIRST..=LAST).contains(&micros) {
                return Ok(micros as i64);
            }
            let message = format!("`{name}({number})` lies beyond the years 1 to 9999");
            Err(external(Error::invalid(message)))
        };
        let nanos = i128::from(self.nanos);
        match numbers.data_type() {
            Arrow::Int64 => numbers
                .as_primitive::<Int64Type>()
                .try_unary(|number| time((i128::from(number) * nanos).div_euclid(1_000), &number)),
            Arrow::Float64 => numbers.as_primitive::<Float64Type>().try_unary(|number| {
                // `to_timestamp` keeps fractions of a second. The functions named after a unit never kept fractions of it.
                let number = if name == "to_timestamp" { number } else { number.trunc() };
                let micros = (number * (self.nanos as f64 / 1_000.0)).round();
                // NaN is out of range.
                let micros = if micros.is_nan() { i128::MAX } else { micros as i128 };
                time(micros, &number)
            }),
            Arrow::Decimal128(_, scale) => {
                let digits = 10i128.pow(u32::from(scale.unsigned_abs()));
                numbers.as_primitive::<Decimal128Type>().try_unary(|number| {
                    let micros = match scale {
                        0.. => number.checked_mul(nanos).map(|nanos| nanos.div_euclid(digits * 1_000)),
                        _ => number.checked_mul(digits).and_then(|n| n.checked_mul(nanos)).map(|n| n / 1_000),
                    };
                    time(micros.unwrap_or(i128::MAX), &number)
                })
            }
            other => Err(DataFusionError::Internal(format!("{name} is given {other}"))),
        }
    }

    /// Truncates to whole units, if these are longer than a microsecond.
    fn cut(&self, times: TimestampMicrosecondArray) -> Result<TimestampMicrosecondArray> {
        let micros = self.nanos / 1_000;
        if self.name() == "to_timestamp" || micros < 2 {
            return Ok(times);
        }
        Ok(times.unary(|time| time - time.rem_euclid(micros)))
    }
}

impl ScalarUDFImpl for ToTimestamp {
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
        let refuse = || wrong_arguments(self.name(), types);
        let (first, more) = types.split_first().ok_or_else(refuse)?;
        let is_plain = |data_type: &Arrow| is_text(data_type) || data_type.is_null();
        let made = match first {
            Arrow::Null => Some(Arrow::Int64),
            number if number.is_integer() => Some(Arrow::Int64),
            _ if self.is_unix() => None,
            number if number.is_floating() => Some(Arrow::Float64),
            Arrow::Decimal128(..) => Some(first.clone()),
            text if is_text(text) => Some(Arrow::Utf8),
            other => of_time(other),
        };
        let made = made.ok_or_else(refuse)?;
        let may_have_more =
            if self.is_unix() { more.len() < 2 } else { more.is_empty() || made == Arrow::Utf8 };
        if !may_have_more || !more.iter().all(is_plain) {
            return Err(refuse());
        }
        Ok(std::iter::once(made).chain(more.iter().map(|_| Arrow::Utf8)).collect())
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(utc())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let zone = match args.scalar_arguments {
            [_, zone] if self.is_unix() => {
                let zone = zone.and_then(|zone| zone.try_as_str().flatten()).filter(|zone| !zone.is_empty());
                let wrong = || {
                    external(Error::invalid("the zone of `from_unixtime` must be the name of a time zone"))
                };
                let zone = zone.ok_or_else(wrong)?;
                super::zone::named(zone).map_err(external)?;
                Arrow::Timestamp(TimeUnit::Microsecond, Some(zone.into()))
            }
            _ => utc(),
        };
        Ok(Arc::new(Field::new(self.name(), zone, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let first = args.args.first().ok_or_else(|| wrong_argument_count(self.name()))?;
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let data_type = args.return_field.data_type().clone();
        let Arrow::Timestamp(_, zone) = &data_type else {
            return Err(DataFusionError::Internal(format!("{data_type} is not a time")));
        };
        let values = first.to_array(rows)?;
        let times = match values.data_type() {
            Arrow::Utf8 if args.args.len() > 1 => {
                let read = self.reader.invoke_with_args(args)?.to_array(rows)?;
                self.cut(micros(&read, &utc())?)?
            }
            Arrow::Utf8 => self.cut(micros(&values, &utc())?)?,
            Arrow::Timestamp(..) => self.cut(micros(&values, &utc())?)?,
            _ => self.of_numbers(&values)?,
        };
        let times: ArrayRef = Arc::new(times.with_timezone_opt(zone.clone()));
        if is_constant {
            ScalarValue::try_from_array(&times, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(times))
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

fn micros(values: &ArrayRef, data_type: &Arrow) -> Result<TimestampMicrosecondArray> {
    let times = cast_with_options(values, data_type, &STRICT)?;
    Ok(times.as_primitive::<TimestampMicrosecondType>().clone())
}

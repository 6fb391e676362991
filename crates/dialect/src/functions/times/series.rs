//! `generate_series` and `range` over times, in microseconds, for the years 1 to 9999; rows are made while they are read.
//! DataFusion's use nanoseconds. Series of integers stay DataFusion's, but cannot step beyond the integers.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType as Arrow, Field, IntervalMonthDayNano, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunction, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use types::Error;

use super::calendar::{self, DAY};
use super::{INTERVAL, external, of_time, utc};

const BATCH_ROWS: usize = 8192;

/// Registers these functions, which replace DataFusion's.
pub fn register(state: &mut SessionState) -> Result<()> {
    for (name, has_end) in [("generate_series", true), ("range", false)] {
        let inner = state.table_functions().get(name).cloned();
        let inner = inner.ok_or_else(|| external(Error::internal(format!("there is no `{name}`"))))?;
        state.register_udtf(name, Arc::new(SeriesFunction { inner, has_end }));
    }
    Ok(())
}

#[derive(Debug)]
struct SeriesFunction {
    inner: Arc<TableFunction>,
    /// True if the end is part of the series.
    has_end: bool,
}

impl TableFunctionImpl for SeriesFunction {
    fn call(&self, args: &[Expr]) -> Result<Arc<dyn TableProvider>> {
        let name = self.inner.name();
        let is_time = |arg: &Expr| match arg {
            Expr::Literal(value, _) => {
                matches!(value.data_type(), Arrow::Timestamp(..) | Arrow::Date32 | Arrow::Date64)
            }
            _ => false,
        };
        if !args.iter().take(2).any(is_time) {
            return self.inner.create_table_provider(&self.within_integers(args)?);
        }
        let [from, to, step] = args else {
            let error = Error::invalid(format!("`{name}` over times takes the first, the last and a step"));
            return Err(external(
                error.hint(format!("{name}(TIMESTAMP '2026-01-01', now(), INTERVAL '1 day')")),
            ));
        };
        let (from, to) = (time(name, from)?, time(name, to)?);
        let step = self.step(step)?;
        let times = match (from, to, step) {
            (Some(from), Some(to), Some(step)) => {
                Some(TimeSeries { next: Some(from), to, step, has_end: self.has_end })
            }
            _ => None,
        };
        let schema = Arc::new(Schema::new(vec![Field::new("value", utc(), false)]));
        let part = Arc::new(SeriesPartition { schema: schema.clone(), times });
        Ok(Arc::new(StreamingTable::try_new(schema, vec![part])?))
    }
}

/// Evaluates an argument that is a constant time.
fn time(name: &str, arg: &Expr) -> Result<Option<i64>> {
    let refused = || {
        external(Error::invalid(format!(
            "`{name}` takes times that are constant or computed from now(), not `{arg}`"
        )))
    };
    let Expr::Literal(value, _) = arg else { return Err(refused()) };
    let wanted = of_time(&value.data_type()).ok_or_else(refused)?;
    match value.cast_to(&wanted)? {
        ScalarValue::TimestampMicrosecond(time, _) => Ok(time),
        _ => Err(refused()),
    }
}

impl SeriesFunction {
    /// Returns arguments for DataFusion's function over integers. DataFusion's would wrap around at the ends of int64. If the
    /// series is too long to be read to its end, the end is moved back by one step; else a series that would step beyond int64 is
    /// refused.
    fn within_integers(&self, args: &[Expr]) -> Result<Vec<Expr>> {
        /// Number of steps that nobody reads to the end: it takes years.
        const UNREACHED: i128 = 1 << 53;
        let number = |arg: &Expr| match arg {
            Expr::Literal(value, _) => match value.cast_to(&Arrow::Int64) {
                Ok(ScalarValue::Int64(number)) => number,
                _ => None,
            },
            _ => None,
        };
        let mut args = args.to_vec();
        let (start, end, step) = match args.as_slice() {
            [end] => (Some(0), number(end), Some(1)),
            [start, end] => (number(start), number(end), Some(1)),
            [start, end, step] => (number(start), number(end), number(step)),
            _ => return Ok(args),
        };
        let (Some(start), Some(end), Some(step)) = (start, end, step) else { return Ok(args) };
        if step == 0 || end.checked_add(step).is_some() && start.checked_add(step).is_some() {
            return Ok(args);
        }
        let steps = (i128::from(end) - i128::from(start)) / i128::from(step);
        if steps < 0 {
            return Ok(args);
        }
        if steps < UNREACHED {
            let what = format!("`{}` cannot step beyond the ends of int64", self.inner.name());
            return Err(external(Error::invalid(what).hint("let it end one step earlier")));
        }
        let reached = if step > 0 { i64::MAX - step } else { i64::MIN - step };
        let at = usize::from(args.len() > 1);
        args[at] = Expr::Literal(ScalarValue::Int64(Some(reached)), None);
        Ok(args)
    }

    fn step(&self, arg: &Expr) -> Result<Option<Step>> {
        let name = self.inner.name();
        let invalid = |what: &str| external(Error::invalid(format!("the step of `{name}` {what}")));
        let Expr::Literal(value, _) = arg else { return Err(invalid("must be the same for all rows")) };
        let ScalarValue::IntervalMonthDayNano(step) = value.cast_to(&INTERVAL)? else {
            return Err(invalid("over times must be an interval"));
        };
        let Some(IntervalMonthDayNano { months, days, nanoseconds }) = step else { return Ok(None) };
        if nanoseconds % 1_000 != 0 {
            return Err(invalid("must be in whole microseconds"));
        }
        let micros = i64::from(days).checked_mul(DAY).and_then(|days| days.checked_add(nanoseconds / 1_000));
        let micros = micros.ok_or_else(|| invalid("is longer than all times"))?;
        match (i64::from(months).signum(), i64::from(days).signum(), nanoseconds.signum()) {
            (0, 0, 0) => Err(invalid("must not be zero")),
            (a, b, c) if a.max(b).max(c) - a.min(b).min(c) == 2 => {
                Err(invalid("must not go forward and back"))
            }
            (a, b, c) => Ok(Some(Step { months: months.into(), micros, is_back: a + b + c < 0 })),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    months: i64,
    micros: i64,
    is_back: bool,
}

/// The iterator over the times of a series.
#[derive(Clone, Debug)]
struct TimeSeries {
    next: Option<i64>,
    to: i64,
    step: Step,
    has_end: bool,
}

impl Iterator for TimeSeries {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let TimeSeries { to, step, has_end, .. } = *self;
        let is_within =
            |time: &i64| *time == to && has_end || if step.is_back { *time > to } else { *time < to };
        let time = self.next.filter(is_within)?;
        let moved = if step.months == 0 { Some(time) } else { calendar::plus_months(time, step.months) };
        // A step beyond the range of times is beyond the end too, so the series ends.
        self.next = moved.and_then(|moved| moved.checked_add(step.micros));
        Some(time)
    }
}

#[derive(Debug)]
struct SeriesPartition {
    schema: SchemaRef,
    times: Option<TimeSeries>,
}

impl PartitionStream for SeriesPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (schema, mut times) = (self.schema.clone(), self.times.clone().into_iter().flatten());
        let batches = std::iter::from_fn(move || {
            let part: Vec<i64> = times.by_ref().take(BATCH_ROWS).collect();
            if part.is_empty() {
                return None;
            }
            let column: ArrayRef = Arc::new(TimestampMicrosecondArray::from(part).with_timezone("UTC"));
            Some(RecordBatch::try_new(schema.clone(), vec![column]).map_err(Into::into))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures::stream::iter(batches)))
    }
}

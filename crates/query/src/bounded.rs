//! Functions whose answer may be far larger than what they are given: `repeat`, padding, ranges.
//!
//! DataFusion's own take what they need at once, and its memory pool hears nothing of it: `repeat('x', 1000000000)` is a
//! gigabyte before anybody could object. Each is wrapped here: how much the answer will take is reckoned from the
//! arguments, and refused beyond [`BATCH_BYTES_MAX`], before the function is called.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use types::{Error, Kind};

/// What one call, for one batch of rows, may make.
pub(crate) const BATCH_BYTES_MAX: u128 = 64 << 20;

/// What decides how large an answer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grows {
    /// `repeat(text, times)`.
    Repeats,
    /// `lpad(text, characters[, fill])`.
    Pads,
    /// `replace(text, from, to)`.
    Replaces,
    /// `array_repeat(element, times)`.
    RepeatsElement,
    /// `array_resize(array, length[, element])`.
    Resizes,
    /// `range([start,] stop[, step])`.
    Counts,
}

const FUNCTIONS: [(&str, Grows); 8] = [
    ("repeat", Grows::Repeats),
    ("lpad", Grows::Pads),
    ("rpad", Grows::Pads),
    ("replace", Grows::Replaces),
    ("array_repeat", Grows::RepeatsElement),
    ("array_resize", Grows::Resizes),
    ("range", Grows::Counts),
    ("generate_series", Grows::Counts),
];

/// Puts the bounded functions in the place of DataFusion's.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, grows) in FUNCTIONS {
        let inner = registry.udf(name)?;
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(Bounded { inner, grows })))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    grows: Grows,
}

impl ScalarUDFImpl for Bounded {
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

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = bytes_of(self.grows, &args)?;
        if bytes > BATCH_BYTES_MAX {
            let message = format!(
                "`{}` would make {} MiB at once, more than {} MiB",
                self.name(),
                bytes >> 20,
                BATCH_BYTES_MAX >> 20
            );
            let error = Error::new(Kind::TooLarge, message)
                .hint("make shorter texts or lists, or of fewer rows; `FROM generate_series(…)` makes rows one by one");
            return Err(DataFusionError::External(Box::new(error)));
        }
        self.inner.invoke_with_args(args)
    }
}

/// An argument: for each row its own value, or one for all.
struct Argument {
    array: ArrayRef,
    single: bool,
}

impl Argument {
    fn at(&self, row: usize) -> usize {
        if self.single { 0 } else { row }
    }

    /// As whole numbers. What is none (or null) counts as 0: then nothing is made, or the function says what is wrong.
    fn numbers(&self) -> Result<impl Fn(usize) -> i64 + '_> {
        let numbers = cast(&self.array, &Arrow::Int64)?;
        Ok(move |row: usize| {
            let numbers = numbers.as_primitive::<Int64Type>();
            let at = self.at(row);
            if numbers.is_null(at) { 0 } else { numbers.value(at) }
        })
    }

    fn text(&self, row: usize) -> &str {
        let at = self.at(row);
        if self.array.is_null(at) {
            return "";
        }
        match self.array.data_type() {
            Arrow::Utf8 => self.array.as_string::<i32>().value(at),
            Arrow::LargeUtf8 => self.array.as_string::<i64>().value(at),
            Arrow::Utf8View => self.array.as_string_view().value(at),
            _ => "",
        }
    }

    /// What one of its values takes, on average.
    fn bytes_each(&self) -> u128 {
        let data = self.array.to_data();
        let all = data.get_slice_memory_size().unwrap_or_else(|_| self.array.get_array_memory_size());
        (all as u128).div_ceil(self.array.len().max(1) as u128).max(1)
    }
}

/// About how many bytes the call will make.
fn bytes_of(grows: Grows, args: &ScalarFunctionArgs) -> Result<u128> {
    let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { args.number_rows };
    let mut arguments = Vec::with_capacity(args.args.len());
    for arg in &args.args {
        let single = matches!(arg, ColumnarValue::Scalar(_));
        arguments.push(Argument { array: arg.to_array(if single { 1 } else { rows })?, single });
    }
    // Beside a column, a constant is copied for each of its rows.
    let copies = |argument: &Argument| if argument.single { argument.bytes_each() * rows as u128 } else { 0 };
    let copied: u128 = if constant { 0 } else { arguments.iter().map(copies).sum() };
    let positive = |number: i64| u128::from(number.max(0).unsigned_abs());
    let made = match (grows, arguments.as_slice()) {
        (Grows::Repeats, [text, times]) => {
            let times = times.numbers()?;
            (0..rows).map(|row| text.text(row).len() as u128 * positive(times(row))).sum()
        }
        (Grows::Pads, [_, characters, ..]) => {
            let characters = characters.numbers()?;
            (0..rows).map(|row| positive(characters(row))).sum()
        }
        (Grows::Replaces, [text, from, to]) => {
            (0..rows).map(|row| replaced(text.text(row), from.text(row), to.text(row))).sum()
        }
        (Grows::RepeatsElement, [element, times]) => {
            let (times, each) = (times.numbers()?, element.bytes_each());
            (0..rows).map(|row| each * positive(times(row))).sum()
        }
        (Grows::Resizes, [array, length, rest @ ..]) => {
            let width = match array.array.data_type() {
                Arrow::List(item) | Arrow::LargeList(item) => {
                    item.data_type().primitive_width().unwrap_or(16)
                }
                _ => 16,
            };
            let each = rest.first().map_or(1, Argument::bytes_each).max(width as u128);
            let length = length.numbers()?;
            (0..rows).map(|row| each * positive(length(row))).sum()
        }
        (Grows::Counts, arguments) => counted(arguments, rows)?,
        // The function says itself what is wrong with its arguments.
        _ => 0,
    };
    Ok(made + copied)
}

/// The length of `text` with `from` replaced, exactly where it matters.
fn replaced(text: &str, from: &str, to: &str) -> u128 {
    let (len, new) = (text.len() as u128, to.len() as u128);
    if to.len() <= from.len() {
        return len;
    }
    // An empty text stands between all characters.
    let matches_max = len / from.len().max(1) as u128 + 1;
    if matches_max * new <= 4 * (len + 64) {
        return len + matches_max * new;
    }
    len + text.matches(from).count() as u128 * new
}

/// Bytes of the numbers, days or points in time between two.
fn counted(arguments: &[Argument], rows: usize) -> Result<u128> {
    const EACH: u128 = 8;
    if arguments.iter().any(|argument| argument.array.data_type().is_null()) {
        return Ok(0);
    }
    let (start, stop, step) = match arguments {
        [stop] => (None, stop, None),
        [start, stop] => (Some(start), stop, None),
        [start, stop, step] => (Some(start), stop, Some(step)),
        _ => return Ok(0),
    };
    let starts = start.map(Argument::numbers).transpose()?;
    let stops = stop.numbers()?;
    let steps = step.map(Argument::steps).transpose()?;
    let mut bytes = 0;
    for row in 0..rows {
        if arguments.iter().any(|argument| argument.array.is_null(argument.at(row))) {
            continue;
        }
        let from = starts.as_ref().map_or(0, |starts| i128::from(starts(row)))
            * start.map_or(1, |start| unit_of(start.array.data_type()));
        let distance = i128::from(stops(row)) * unit_of(stop.array.data_type()) - from;
        let away = |step: i128| distance != 0 && (distance > 0) != (step > 0);
        let step = match steps.as_ref().map_or(Step::Of(1), |steps| steps(row)) {
            // Refused by the function, or nothing comes out.
            Step::Of(0) => continue,
            Step::Of(step) if away(step) => continue,
            Step::Of(step) => step,
            Step::Mixed => 1,
        };
        bytes += (distance.unsigned_abs() / step.unsigned_abs() + 1) * EACH;
    }
    Ok(bytes)
}

const DAY: i128 = 86_400_000_000_000;

/// What a step is counted in: nanoseconds, if it is one of time.
fn unit_of(data_type: &Arrow) -> i128 {
    match data_type {
        Arrow::Date32 => DAY,
        Arrow::Date64 | Arrow::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        Arrow::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        Arrow::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        _ => 1,
    }
}

enum Step {
    Of(i128),
    /// Months forward and days back, or the like: no telling how far it gets.
    Mixed,
}

impl Argument {
    fn steps(&self) -> Result<Box<dyn Fn(usize) -> Step + '_>> {
        if *self.array.data_type() != Arrow::Interval(IntervalUnit::MonthDayNano) {
            let numbers = self.numbers()?;
            return Ok(Box::new(move |row| Step::Of(numbers(row).into())));
        }
        let intervals = self.array.as_primitive::<IntervalMonthDayNanoType>();
        Ok(Box::new(move |row| {
            let (months, days, nanoseconds) =
                IntervalMonthDayNanoType::to_parts(intervals.value(self.at(row)));
            // No month is shorter than 28 days.
            let parts = [i128::from(months) * 28 * DAY, i128::from(days) * DAY, nanoseconds.into()];
            match parts.iter().any(|part| *part < 0) && parts.iter().any(|part| *part > 0) {
                true => Step::Mixed,
                false => Step::Of(parts.iter().sum()),
            }
        }))
    }
}

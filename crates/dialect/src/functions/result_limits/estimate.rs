//! Estimates the bytes that a call will make, from its arguments.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use types::Error;

use super::Growth;

/// An argument: one value for each row, or one for all rows.
pub(super) struct Argument {
    array: ArrayRef,
    single: bool,
}

impl Argument {
    /// Evaluates an argument of a call with `rows` rows.
    pub fn new(value: &ColumnarValue, rows: usize) -> Result<Self> {
        let single = matches!(value, ColumnarValue::Scalar(_));
        Ok(Argument { array: value.to_array(if single { 1 } else { rows })?, single })
    }

    pub fn is_single(&self) -> bool {
        self.single
    }

    fn at(&self, row: usize) -> usize {
        if self.single { 0 } else { row }
    }

    /// Returns the values as integers. Null and other values count as 0: then nothing is made, or the function reports the error.
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

    /// Returns the number of items of a list.
    fn items(&self, row: usize) -> u128 {
        let at = self.at(row);
        let items = match self.array.data_type() {
            Arrow::List(_) => self.array.as_list::<i32>().value_length(at) as usize,
            Arrow::LargeList(_) => self.array.as_list::<i64>().value_length(at) as usize,
            Arrow::FixedSizeList(_, length) => *length as usize,
            _ => 0,
        };
        items as u128
    }

    /// Returns the average number of bytes of a value.
    fn bytes_each(&self) -> u128 {
        // The buffers of a view array may be shared with rows that are not in it.
        let lengths: Option<u128> = match self.array.data_type() {
            Arrow::Utf8View => Some(self.array.as_string_view().lengths().map(u128::from).sum()),
            Arrow::BinaryView => Some(self.array.as_binary_view().lengths().map(u128::from).sum()),
            _ => None,
        };
        if let Some(all) = lengths {
            return all.div_ceil(self.array.len().max(1) as u128) + 16;
        }
        let data = self.array.to_data();
        let all = data.get_slice_memory_size().unwrap_or_else(|_| self.array.get_array_memory_size());
        (all as u128).div_ceil(self.array.len().max(1) as u128).max(1)
    }
}

/// Estimates the bytes that the call will make.
pub(super) fn bytes(growth: Growth, args: &ScalarFunctionArgs) -> Result<u128> {
    let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { args.number_rows };
    let mut arguments = Vec::with_capacity(args.args.len());
    for arg in &args.args {
        arguments.push(Argument::new(arg, rows)?);
    }
    // A constant is copied for each row if another argument is a column.
    let of_all = |argument: &Argument| argument.bytes_each() * rows as u128;
    let copies = |argument: &Argument| if argument.single { of_all(argument) } else { 0 };
    let copied: u128 = if constant { 0 } else { arguments.iter().map(copies).sum() };
    let positive = |number: i64| u128::from(number.max(0).unsigned_abs());
    let made = match (growth, arguments.as_slice()) {
        (Growth::Repeats, [text, times]) => {
            let times = times.numbers()?;
            (0..rows).map(|row| text.text(row).len() as u128 * positive(times(row))).sum()
        }
        (Growth::Pads, [_, characters, ..]) => {
            let characters = characters.numbers()?;
            (0..rows).map(|row| positive(characters(row))).sum()
        }
        (Growth::Replaces, [text, from, to]) => {
            (0..rows).map(|row| replaced(text.text(row), from.text(row), to.text(row))).sum()
        }
        (Growth::ReplacesMatches, [text, _, to, flags @ ..]) => {
            let all = flags.first().is_some_and(|flags| !flags.single || flags.text(0).contains('g'));
            let matches_max = |row: usize| if all { text.text(row).len() as u128 + 1 } else { 1 };
            matches_replaced(text, to, rows, matches_max)
        }
        (Growth::Translates, [text, _, to]) => {
            // Each character becomes one of up to four bytes.
            let wide = |row| if to.text(row).is_ascii() { 1 } else { 4 };
            (0..rows).map(|row| text.text(row).len() as u128 * wide(row)).sum()
        }
        (Growth::Encodes, [bytes, form]) => {
            let is_base64 = |row: usize| form.text(row).starts_with("base64");
            let all = of_all(bytes);
            if (0..rows).all(is_base64) { all * 4 / 3 + 4 * rows as u128 } else { all * 2 }
        }
        (Growth::Splits, [text, between, ..]) => {
            const EACH: u128 = 8;
            let items = |row| match (text.text(row), between.text(row)) {
                // An empty or null separator splits between all characters.
                (text, "") => text.len(),
                (text, between) => text.matches(between).count() + 1,
            };
            (0..rows).map(|row| text.text(row).len() as u128 + items(row) as u128 * EACH).sum()
        }
        (Growth::Joins | Growth::Overlays | Growth::Holds, arguments) => {
            return Ok(arguments.iter().map(of_all).sum());
        }
        (Growth::JoinsWith, [between, arguments @ ..]) => {
            let gaps = arguments.len().saturating_sub(1) as u128;
            return Ok(of_all(between) * gaps + arguments.iter().map(of_all).sum::<u128>());
        }
        (Growth::JoinsItems, [array, between, ..]) => {
            let between = between.bytes_each();
            let items = |row| array.items(row) * (between + ITEM_BYTES);
            (0..rows).map(items).sum::<u128>() + of_all(array)
        }
        (Growth::RepeatsElement, [element, times]) => {
            let (times, each) = (times.numbers()?, element.bytes_each());
            (0..rows).map(|row| each * positive(times(row))).sum()
        }
        (Growth::Resizes, [array, length, rest @ ..]) => {
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
        (Growth::Formats, [_, format]) => {
            // `%+` makes 32 characters of two.
            const EACH: u128 = 16;
            (0..rows).map(|row| format.text(row).len() as u128 * EACH).sum()
        }
        (Growth::Counts, arguments) => range_bytes(arguments, rows)?,
        // The function itself reports what is wrong with its arguments.
        _ => 0,
    };
    Ok(made + copied)
}

/// Returns how many pairs of characters or items the call will compare.
pub(super) fn pairs(args: &ScalarFunctionArgs) -> Result<u128> {
    pairs_from(args, 0)
}

/// Returns how many pairs the call will compare, where a right side of up to 64 parts counts as none.
pub(super) fn pairs_with_many(args: &ScalarFunctionArgs) -> Result<u128> {
    const FEW: u128 = 64;
    pairs_from(args, FEW)
}

fn pairs_from(args: &ScalarFunctionArgs, few: u128) -> Result<u128> {
    let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { args.number_rows };
    let [left, right, ..] = args.args.as_slice() else { return Ok(0) };
    let (left, right) = (Argument::new(left, rows)?, Argument::new(right, rows)?);
    let parts = |argument: &Argument, row| argument.text(row).len() as u128 + argument.items(row);
    let of_row = |row| match parts(&right, row) {
        right if right > few => parts(&left, row) * right,
        _ => 0,
    };
    Ok((0..rows).map(of_row).sum())
}

/// Returns an upper bound of the pairs of characters that a search for one constant in a column compares; [`u128::MAX`] for other
/// calls.
pub(super) fn pairs_with_constant(args: &ScalarFunctionArgs) -> Result<u128> {
    let [texts @ ColumnarValue::Array(_), part @ ColumnarValue::Scalar(_)] = args.args.as_slice() else {
        return Ok(u128::MAX);
    };
    let (texts, part) = (Argument::new(texts, args.number_rows)?, Argument::new(part, 1)?);
    Ok(texts.bytes_each() * args.number_rows as u128 * part.text(0).len().max(1) as u128)
}

/// Refuses a start position before the first item.
pub(super) fn check_start(name: &str, args: &ScalarFunctionArgs) -> Result<()> {
    let Some(start) = args.args.get(2) else { return Ok(()) };
    let start = Argument::new(start, args.number_rows)?;
    let rows = if start.is_single() { 1 } else { args.number_rows };
    let starts = cast(&start.array, &Arrow::Int64)?;
    let starts = starts.as_primitive::<Int64Type>();
    if (0..rows).all(|row| starts.is_null(row) || starts.value(row) >= 1) {
        return Ok(());
    }
    let error = Error::invalid(format!("`{name}` begins at an item, counted from 1"));
    Err(DataFusionError::External(Box::new(error)))
}

/// Returns the bytes of the largest argument that is not constant.
pub(super) fn largest_column(args: &ScalarFunctionArgs) -> Result<u128> {
    let mut largest = 0;
    for arg in args.args.iter().filter(|arg| matches!(arg, ColumnarValue::Array(_))) {
        largest = largest.max(Argument::new(arg, args.number_rows)?.bytes_each() * args.number_rows as u128);
    }
    Ok(largest)
}

/// Bytes of a number, a date or a timestamp as text, rounded up.
const ITEM_BYTES: u128 = 32;

/// Returns the length of all texts after their matches were replaced. Each reference to a group in the replacement counts as long
/// as the whole text, which is the upper bound.
pub(super) fn matches_replaced(
    text: &Argument,
    to: &Argument,
    rows: usize,
    matches: impl Fn(usize) -> u128,
) -> u128 {
    let row = |row| {
        let (text, to) = (text.text(row), to.text(row));
        let quotes = to.bytes().filter(|byte| matches!(byte, b'\\' | b'$')).count() as u128;
        text.len() as u128 * (1 + quotes) + matches(row) * to.len() as u128
    };
    (0..rows).map(row).sum()
}

/// Returns the length of `text` with `from` replaced by `to`. It is exact for long texts, to tell results that are hardly longer
/// than the text from results that grow.
fn replaced(text: &str, from: &str, to: &str) -> u128 {
    const COUNTED_FROM: usize = 256;
    let (len, new) = (text.len() as u128, to.len() as u128);
    if from.is_empty() || to.len() <= from.len() {
        return len;
    }
    if text.len() < COUNTED_FROM {
        return len + (len / from.len() as u128 + 1) * new;
    }
    len + text.matches(from).count() as u128 * (new - from.len() as u128)
}

/// Returns the bytes of the numbers, days or timestamps of a range.
fn range_bytes(arguments: &[Argument], rows: usize) -> Result<u128> {
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
            // The function refuses a step of 0, and a step away from the end makes nothing.
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

/// Returns the number of nanoseconds in one unit of a date or timestamp; 1 for numbers.
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
    /// A step with parts of both signs, such as months forward and days back: its length is unknown.
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
            // Months count 28 days, because no month is shorter.
            let parts = [i128::from(months) * 28 * DAY, i128::from(days) * DAY, nanoseconds.into()];
            if parts.iter().any(|part| *part < 0) && parts.iter().any(|part| *part > 0) {
                Step::Mixed
            } else {
                Step::Of(parts.iter().sum())
            }
        }))
    }
}

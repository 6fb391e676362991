//! Converts values of an answer to Python values.

use arrow::array::types::{
    Date32Type, Date64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use chrono::{DateTime, Datelike, Timelike};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDate, PyDateTime, PyDelta, PyDict, PyList, PyTime, PyTuple, PyType, PyTzInfo};

use crate::error::data;

const DAY_MICROS: i64 = 86_400_000_000;

/// Returns one row as a tuple.
pub fn row<'py>(py: Python<'py>, batch: &RecordBatch, at: usize) -> PyResult<Bound<'py, PyTuple>> {
    let schema = batch.schema_ref();
    let values =
        batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
            value(py, column, field, at).map_err(|error| named(py, error, field.name()))
        });
    PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)
}

/// Adds the column's name to the error of a value that Python cannot represent.
fn named(py: Python<'_>, error: PyErr, column: &str) -> PyErr {
    let text = error.value(py).to_string();
    data(
        format!("column `{column}`: {text}"),
        "read the rows as Arrow (`Cursor.fetch_arrow_table`), or CAST the column to text",
    )
}

/// Converts one value, nested ones included.
pub fn value<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    field: &Field,
    at: usize,
) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(at) {
        return Ok(py.None().into_bound(py));
    }
    macro_rules! number {
        ($type:ty) => {
            array.as_primitive::<$type>().value(at).into_bound_py_any(py)
        };
    }
    match array.data_type() {
        DataType::Null => Ok(py.None().into_bound(py)),
        DataType::Boolean => array.as_boolean().value(at).into_bound_py_any(py),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => array.as_primitive::<Float16Type>().value(at).to_f64().into_bound_py_any(py),
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(at)).into_bound_py_any(py),
        DataType::Float64 => number!(Float64Type),
        DataType::Decimal128(..) => decimal(py, &array.as_primitive::<Decimal128Type>().value_as_string(at)),
        DataType::Decimal256(..) => decimal(py, &array.as_primitive::<Decimal256Type>().value_as_string(at)),
        DataType::Utf8 => text(py, array.as_string::<i32>().value(at), field),
        DataType::LargeUtf8 => text(py, array.as_string::<i64>().value(at), field),
        DataType::Utf8View => text(py, array.as_string_view().value(at), field),
        DataType::Binary => Ok(PyBytes::new(py, array.as_binary::<i32>().value(at)).into_any()),
        DataType::LargeBinary => Ok(PyBytes::new(py, array.as_binary::<i64>().value(at)).into_any()),
        DataType::BinaryView => Ok(PyBytes::new(py, array.as_binary_view().value(at)).into_any()),
        DataType::FixedSizeBinary(16) => uuid(py, array.as_fixed_size_binary().value(at)),
        DataType::FixedSizeBinary(_) => {
            Ok(PyBytes::new(py, array.as_fixed_size_binary().value(at)).into_any())
        }
        DataType::Date32 => date(py, i64::from(array.as_primitive::<Date32Type>().value(at)) * 86_400),
        DataType::Date64 => date(py, array.as_primitive::<Date64Type>().value(at).div_euclid(1_000)),
        DataType::Timestamp(unit, _) => timestamp(py, micros_of_timestamp(array, *unit, at)),
        DataType::Time32(unit) | DataType::Time64(unit) => time(py, micros_of_time(array, *unit, at)),
        DataType::Duration(unit) => delta(py, 0, micros_of_duration(array, *unit, at)),
        DataType::Interval(unit) => interval(py, array, *unit, at),
        DataType::List(item) => list(py, &array.as_list::<i32>().value(at), item),
        DataType::LargeList(item) => list(py, &array.as_list::<i64>().value(at), item),
        DataType::FixedSizeList(item, _) => list(py, &array.as_fixed_size_list().value(at), item),
        DataType::Struct(fields) => {
            let dict = PyDict::new(py);
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                dict.set_item(field.name(), value(py, column, field, at)?)?;
            }
            Ok(dict.into_any())
        }
        DataType::Map(..) => {
            let (entries, dict) = (array.as_map().value(at), PyDict::new(py));
            let (keys, values) = (entries.column(0), entries.column(1));
            let (key, item) = (&entries.fields()[0], &entries.fields()[1]);
            for at in 0..entries.len() {
                dict.set_item(value(py, keys, key, at)?, value(py, values, item, at)?)?;
            }
            Ok(dict.into_any())
        }
        DataType::Dictionary(_, values) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[at];
            let field = Field::new(field.name(), values.as_ref().clone(), true);
            value(py, dictionary.values(), &field, key)
        }
        other => Err(data(format!("{other} is no value of Python"), "CAST it")),
    }
}

/// Returns true if the values of a field are JSON, which becomes Python objects.
fn is_json(field: &Field) -> bool {
    field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.json")
}

fn text<'py>(py: Python<'py>, text: &str, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if is_json(field) {
        LOADS.import(py, "json", "loads")?.call1((text,))
    } else {
        text.into_bound_py_any(py)
    }
}

fn decimal<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    DECIMAL.import(py, "decimal", "Decimal")?.call1((text,))
}

fn uuid<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    UUID.import(py, "uuid", "UUID")?.call1((py.None(), PyBytes::new(py, bytes)))
}

fn out_of_range(what: &str) -> PyErr {
    data(format!("a {what} lies beyond the years 1 to 9999"), "Python knows no others")
}

fn date(py: Python<'_>, seconds: i64) -> PyResult<Bound<'_, PyAny>> {
    let date = DateTime::from_timestamp(seconds, 0).map(|time| time.date_naive());
    let date = date.filter(|date| (1..=9999).contains(&date.year())).ok_or_else(|| out_of_range("date"))?;
    Ok(PyDate::new(py, date.year(), date.month() as u8, date.day() as u8)?.into_any())
}

fn timestamp(py: Python<'_>, micros: Option<i64>) -> PyResult<Bound<'_, PyAny>> {
    let time = micros.and_then(DateTime::from_timestamp_micros).map(|time| time.naive_utc());
    let time =
        time.filter(|time| (1..=9999).contains(&time.year())).ok_or_else(|| out_of_range("timestamp"))?;
    let utc = PyTzInfo::utc(py)?;
    let (hour, minute, second) = (time.hour() as u8, time.minute() as u8, time.second() as u8);
    let (month, day, micros) = (time.month() as u8, time.day() as u8, time.nanosecond() / 1_000);
    Ok(PyDateTime::new(py, time.year(), month, day, hour, minute, second, micros, Some(&utc))?.into_any())
}

fn time(py: Python<'_>, micros: i64) -> PyResult<Bound<'_, PyAny>> {
    let (seconds, micros) = (micros / 1_000_000, (micros % 1_000_000) as u32);
    let (hour, minute, second) = ((seconds / 3_600) as u8, (seconds / 60 % 60) as u8, (seconds % 60) as u8);
    Ok(PyTime::new(py, hour, minute, second, micros, None)?.into_any())
}

fn delta(py: Python<'_>, days: i64, micros: Option<i64>) -> PyResult<Bound<'_, PyAny>> {
    let too_long = || data("an interval is longer than 999999999 days", "CAST it to text");
    let micros = micros.ok_or_else(too_long)?;
    let days = i32::try_from(days + micros.div_euclid(DAY_MICROS)).map_err(|_| too_long())?;
    let rest = micros.rem_euclid(DAY_MICROS);
    let (seconds, micros) = ((rest / 1_000_000) as i32, (rest % 1_000_000) as i32);
    Ok(PyDelta::new(py, days, seconds, micros, true)?.into_any())
}

fn interval<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    unit: IntervalUnit,
    at: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let (months, days, micros) = match unit {
        IntervalUnit::YearMonth => (array.as_primitive::<IntervalYearMonthType>().value(at), 0, 0),
        IntervalUnit::DayTime => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(at);
            (0, value.days, i64::from(value.milliseconds) * 1_000)
        }
        IntervalUnit::MonthDayNano => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(at);
            (value.months, value.days, value.nanoseconds / 1_000)
        }
    };
    if months != 0 {
        return Err(data("an interval of months is no timedelta, since months differ", "CAST it to text"));
    }
    delta(py, days.into(), Some(micros))
}

fn list<'py>(py: Python<'py>, items: &ArrayRef, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    let values = (0..items.len()).map(|at| value(py, items, field, at));
    Ok(PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

fn micros_of_timestamp(array: &ArrayRef, unit: TimeUnit, at: usize) -> Option<i64> {
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(at).checked_mul(1_000_000),
        TimeUnit::Millisecond => {
            array.as_primitive::<TimestampMillisecondType>().value(at).checked_mul(1_000)
        }
        TimeUnit::Microsecond => Some(array.as_primitive::<TimestampMicrosecondType>().value(at)),
        TimeUnit::Nanosecond => {
            Some(array.as_primitive::<TimestampNanosecondType>().value(at).div_euclid(1_000))
        }
    }
}

fn micros_of_time(array: &ArrayRef, unit: TimeUnit, at: usize) -> i64 {
    match unit {
        TimeUnit::Second => i64::from(array.as_primitive::<Time32SecondType>().value(at)) * 1_000_000,
        TimeUnit::Millisecond => i64::from(array.as_primitive::<Time32MillisecondType>().value(at)) * 1_000,
        TimeUnit::Microsecond => array.as_primitive::<Time64MicrosecondType>().value(at),
        TimeUnit::Nanosecond => array.as_primitive::<Time64NanosecondType>().value(at) / 1_000,
    }
}

fn micros_of_duration(array: &ArrayRef, unit: TimeUnit, at: usize) -> Option<i64> {
    match unit {
        TimeUnit::Second => array.as_primitive::<DurationSecondType>().value(at).checked_mul(1_000_000),
        TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().value(at).checked_mul(1_000),
        TimeUnit::Microsecond => Some(array.as_primitive::<DurationMicrosecondType>().value(at)),
        TimeUnit::Nanosecond => {
            Some(array.as_primitive::<DurationNanosecondType>().value(at).div_euclid(1_000))
        }
    }
}

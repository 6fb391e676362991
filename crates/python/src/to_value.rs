//! Converts Python values to parameters of a statement.

use chrono::{NaiveDate, NaiveDateTime};
use polynya::Value;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyDict, PyFloat,
    PyInt, PyList, PyMapping, PyMemoryView, PyString, PyTime, PyTimeAccess, PyTuple, PyType, PyTzInfoAccess,
};

use crate::error::{data, interface};

/// 1970-01-01, counted from 0001-01-01 as Python does.
const EPOCH_ORDINAL: i32 = 719_163;
/// The deepest nesting of a list. No column holds deeper ones.
const NESTING_MAX: usize = 32;

/// Converts the parameters of a statement, a sequence with one value for each `$1`, `$2`, … or `?`.
pub fn params(params: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Value>> {
    let Some(params) = params.filter(|params| !params.is_none()) else { return Ok(Vec::new()) };
    let is_wrong = params.is_instance_of::<PyString>()
        || params.is_instance_of::<PyBytes>()
        || params.cast::<PyMapping>().is_ok();
    if is_wrong {
        let found = params.get_type().name()?;
        return Err(interface(
            format!("the values of a statement are a sequence, {found} found"),
            "pass a tuple or a list, `(value,)` for one",
        ));
    }
    let values = params.try_iter().map_err(|_| {
        interface("the values of a statement are a sequence", "pass a tuple or a list, `(value,)` for one")
    })?;
    values.map(|value| to_value(&value?, 0)).collect()
}

/// Converts one value.
pub fn to_value(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static JSON: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if value.is_none() {
        return Ok(Value::Null);
    }
    if depth > NESTING_MAX {
        return Err(data(format!("a list nests more than {NESTING_MAX} levels deep"), "pass JSON text"));
    }
    // The most frequent types come first. A bool is also an int, and a datetime also a date, so the subtype is tested first.
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_cow()?.into_owned()));
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(Value::Float64(value.value()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Value::Binary(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Value::Binary(bytes.to_vec()));
    }
    if value.is_instance_of::<PyMemoryView>() {
        return Ok(Value::Binary(value.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec()));
    }
    if let Ok(time) = value.cast::<PyDateTime>() {
        return timestamp(time);
    }
    if let Ok(date) = value.cast::<PyDate>() {
        let ordinal: i32 = date.call_method0("toordinal")?.extract()?;
        return Ok(Value::Date(ordinal - EPOCH_ORDINAL));
    }
    if let Ok(time) = value.cast::<PyTime>() {
        if time.get_tzinfo().is_some() {
            return Err(data("a time of day with a zone is no value of SQL", "pass a datetime"));
        }
        let (hour, minute, second) = (time.get_hour(), time.get_minute(), time.get_second());
        let text = format!("{hour:02}:{minute:02}:{second:02}.{:06}", time.get_microsecond());
        return Ok(Value::String(text));
    }
    if let Ok(delta) = value.cast::<PyDelta>() {
        // The parts have separate signs in SQL's text. Only the days can be negative.
        let (days, seconds) = (delta.get_days(), delta.get_seconds());
        let micros = delta.get_microseconds();
        return Ok(Value::String(format!("{days} days {seconds} seconds {micros} microseconds")));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| to_value(&item?, depth + 1));
        return Ok(Value::List(items.collect::<PyResult<_>>()?));
    }
    if value.is_instance_of::<PyDict>() || value.is_instance(JSON.import(py, "polynya", "Json")?)? {
        let text = py.import("polynya._json")?.call_method1("text", (value,))?;
        return Ok(Value::Json(text.extract()?));
    }
    if value.is_instance(DECIMAL.import(py, "decimal", "Decimal")?)? {
        if !value.call_method0("is_finite")?.extract::<bool>()? {
            return Err(data(
                format!("{value} is no decimal of SQL"),
                "decimals are finite; floats have NaN",
            ));
        }
        // A parameter has no scale; a text becomes a decimal where one is expected.
        return Ok(Value::String(value.call_method1("__format__", ("f",))?.extract()?));
    }
    if value.is_instance(UUID.import(py, "uuid", "UUID")?)? {
        let bytes: Vec<u8> = value.getattr("bytes")?.extract()?;
        let bytes = bytes.try_into().map_err(|_| data("a uuid has 16 bytes", "pass a uuid.UUID"))?;
        return Ok(Value::Uuid(bytes));
    }
    // NumPy's scalars and arrays, and array.array, have `tolist`.
    if let Ok(plain) = value.call_method0("tolist")
        && !plain.is(value)
    {
        return to_value(&plain, depth + 1);
    }
    if let Ok(whole) = value.call_method0("__index__") {
        return integer(&whole);
    }
    Err(interface(
        format!("a value of type {} cannot be passed to a statement", value.get_type().name()?),
        "pass None, bool, int, float, str, bytes, date, time, datetime, timedelta, Decimal, UUID, a list or a dict",
    ))
}

fn integer(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    value.extract().map(Value::Int64).map_err(|_| {
        data("an int has more than 64 bits", "pass a decimal.Decimal for a column of type decimal")
    })
}

/// Converts a datetime. One without a time zone is in UTC, as everywhere in SQL here.
fn timestamp(time: &Bound<'_, PyDateTime>) -> PyResult<Value> {
    let date = NaiveDate::from_ymd_opt(time.get_year(), time.get_month().into(), time.get_day().into());
    let at = date.and_then(|date| {
        let (hour, minute, second) = (time.get_hour(), time.get_minute(), time.get_second());
        date.and_hms_micro_opt(hour.into(), minute.into(), second.into(), time.get_microsecond())
    });
    let missing = || data("this datetime is none", "NaT and its like are None in SQL");
    let micros = at.as_ref().map(NaiveDateTime::and_utc).ok_or_else(missing)?.timestamp_micros();
    let offset = time.call_method0("utcoffset")?;
    let Ok(offset) = offset.cast::<PyDelta>() else { return Ok(Value::Timestamp(micros)) };
    let seconds = i64::from(offset.get_days()) * 86_400 + i64::from(offset.get_seconds());
    Ok(Value::Timestamp(micros - seconds * 1_000_000 - i64::from(offset.get_microseconds())))
}

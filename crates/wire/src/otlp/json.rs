//! The same messages in JSON: names in lowerCamelCase, 64-bit numbers as strings or numbers, ids hexadecimal, other bytes
//! base64. Fields that nothing is made of are passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use types::{Error, Result, name};

use super::message::any_value::Kind;
use super::message::{AnyValue, ArrayValue, KeyValue, KeyValueList, LogRecord};
use super::{Logs, Sift};

pub fn read(bytes: &[u8], sift: &mut Sift) -> Result<Vec<Logs>> {
    // serde_json itself refuses what is nested too deep.
    let json: Json = serde_json::from_slice(bytes).map_err(|e| {
        Error::invalid(format!("the body is no JSON: {e}")).hint("send an OTLP export of logs")
    })?;
    if !json.is_object() {
        return Err(wrong("the body", "an object with `resourceLogs`"));
    }
    list(&json, "resourceLogs", |json| resource_logs(json, sift))
}

fn wrong(what: &str, expected: &str) -> Error {
    Error::invalid(format!("{what}: {expected} expected"))
        .hint("send logs as an OTLP exporter over HTTP does")
}

/// A repeated field; absent and null are none.
fn list<T>(of: &Json, field: &str, read: impl FnMut(&Json) -> Result<T>) -> Result<Vec<T>> {
    match &of[field] {
        Json::Null => Ok(Vec::new()),
        Json::Array(items) => items.iter().map(read).collect(),
        _ => Err(wrong(&format!("`{field}`"), "a list")),
    }
}

fn text(of: &Json, field: &str) -> Result<String> {
    match &of[field] {
        Json::Null => Ok(String::new()),
        Json::String(text) => Ok(text.clone()),
        _ => Err(wrong(&format!("`{field}`"), "a string")),
    }
}

/// A number, or a string of one.
fn number<T: std::str::FromStr + Default>(of: &Json, field: &str) -> Result<T> {
    let written = match &of[field] {
        Json::Null => return Ok(T::default()),
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        _ => String::new(),
    };
    written.parse().map_err(|_| {
        let found = name::printable(&of[field].to_string());
        wrong(&format!("`{field}`"), &format!("a whole number, not {found},"))
    })
}

fn bytes(of: &Json, field: &str) -> Result<Vec<u8>> {
    let text = text(of, field)?;
    let bytes: Option<Vec<u8>> =
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    bytes.ok_or_else(|| wrong(&format!("`{field}`"), "hexadecimal digits"))
}

fn resource_logs(json: &Json, sift: &mut Sift) -> Result<Logs> {
    let resource = match &json["resource"] {
        Json::Null => Vec::new(),
        resource => list(resource, "attributes", key_value)?,
    };
    Ok(Logs { resource, scopes: list(json, "scopeLogs", |json| scope_logs(json, sift))? })
}

fn scope_logs(json: &Json, sift: &mut Sift) -> Result<(String, Vec<LogRecord>)> {
    let scope = match &json["scope"] {
        Json::Null => String::new(),
        scope => text(scope, "name")?,
    };
    let records = list(json, "logRecords", |json| {
        let record = log_record(json).map_err(|error| error.message().to_owned());
        Ok(sift.take(record, || json.to_string()))
    })?;
    Ok((scope, records.into_iter().flatten().collect()))
}

fn log_record(json: &Json) -> Result<LogRecord> {
    if !json.is_object() {
        return Err(wrong("`logRecords`", "a list of objects"));
    }
    let body = match &json["body"] {
        Json::Null => None,
        body => Some(any_value(body)?),
    };
    Ok(LogRecord {
        time_unix_nano: number(json, "timeUnixNano")?,
        severity_number: number(json, "severityNumber")?,
        severity_text: text(json, "severityText")?,
        body,
        attributes: list(json, "attributes", key_value)?,
        trace_id: bytes(json, "traceId")?,
        span_id: bytes(json, "spanId")?,
        observed_time_unix_nano: number(json, "observedTimeUnixNano")?,
        event_name: text(json, "eventName")?,
    })
}

fn key_value(json: &Json) -> Result<KeyValue> {
    let value = match &json["value"] {
        Json::Null => None,
        value => Some(any_value(value)?),
    };
    Ok(KeyValue { key: text(json, "key")?, value })
}

fn any_value(json: &Json) -> Result<AnyValue> {
    let Json::Object(fields) = json else {
        return Err(wrong("a value", "an object such as {\"stringValue\": …}"));
    };
    let Some((field, value)) = fields.iter().find(|(_, value)| !value.is_null()) else {
        return Ok(AnyValue { value: None });
    };
    let kind = match (field.as_str(), value) {
        ("stringValue", Json::String(text)) => Kind::StringValue(text.clone()),
        ("boolValue", Json::Bool(flag)) => Kind::BoolValue(*flag),
        ("intValue", _) => Kind::IntValue(number(json, "intValue")?),
        ("doubleValue", Json::Number(number)) => Kind::DoubleValue(number.as_f64().unwrap_or(f64::NAN)),
        ("doubleValue", Json::String(_)) => Kind::DoubleValue(number(json, "doubleValue")?),
        ("arrayValue", array) => Kind::ArrayValue(ArrayValue { values: list(array, "values", any_value)? }),
        ("kvlistValue", pairs) => {
            Kind::KvlistValue(KeyValueList { values: list(pairs, "values", key_value)? })
        }
        ("bytesValue", Json::String(text)) => {
            Kind::BytesValue(STANDARD.decode(text).map_err(|_| wrong("`bytesValue`", "base64"))?)
        }
        (field, _) => return Err(wrong(&format!("`{}`", name::printable(field)), "a value of OTLP")),
    };
    Ok(AnyValue { value: Some(kind) })
}

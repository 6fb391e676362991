//! Logs as OpenTelemetry sends them (OTLP over HTTP): an export request, as Protobuf or as JSON, becomes rows.
//!
//! The messages are those of the OpenTelemetry protocol 1.x, by its field numbers; what of them makes no column is left out
//! ([`COLUMNS`] says what there is).

mod json;
mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json};
use types::{DataType, Error, Result};

use message::{AnyValue, Export, KeyValue, any_value::Kind};

/// Names and types of the columns of a row.
///
/// `time` is when it happened, else when it was observed; `level` is the record's own word, else the one that its number
/// stands for; `body` is the text, or JSON where the body is no text; ids are hexadecimal.
pub const COLUMNS: [(&str, DataType); 12] = [
    ("time", DataType::Timestamp),
    ("severity", DataType::Int32),
    ("level", DataType::String),
    ("service", DataType::String),
    ("scope", DataType::String),
    ("event", DataType::String),
    ("body", DataType::String),
    ("attributes", DataType::Json),
    ("resource", DataType::Json),
    ("trace_id", DataType::String),
    ("span_id", DataType::String),
    ("observed", DataType::Timestamp),
];

/// The rows of a request in Protobuf. [`types::Kind::Invalid`] if it is none.
pub fn decode_protobuf(bytes: &[u8]) -> Result<RecordBatch> {
    let export = <Export as prost::Message>::decode(bytes).map_err(|e| {
        Error::invalid(format!("the body is no ExportLogsServiceRequest: {e}"))
            .hint("send logs alone here, as an OTLP exporter over HTTP does")
    })?;
    rows(&export)
}

/// The rows of a request in JSON. [`types::Kind::Invalid`] if it is none.
pub fn decode_json(bytes: &[u8]) -> Result<RecordBatch> {
    rows(&json::read(bytes)?)
}

/// An error as the protocol answers it: a `Status` whose code is left to that of HTTP.
pub fn status(message: &str) -> Vec<u8> {
    let status = message::Status { code: 0, message: message.to_owned() };
    prost::Message::encode_to_vec(&status)
}

/// A record with what holds for all of its kind.
struct Row<'a> {
    record: &'a message::LogRecord,
    service: Option<&'a str>,
    scope: Option<&'a str>,
    /// JSON, made once for all of a resource.
    resource: Option<&'a str>,
}

fn rows(export: &Export) -> Result<RecordBatch> {
    let resources: Vec<Option<String>> = export
        .resource_logs
        .iter()
        .map(|logs| attributes(logs.resource.as_ref().map_or(&[], |resource| &resource.attributes)))
        .collect();
    let mut rows = Vec::new();
    for (logs, resource) in export.resource_logs.iter().zip(&resources) {
        let of_resource = logs.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        let service = of_resource.iter().find(|attribute| attribute.key == "service.name");
        let service = service.and_then(|service| match &service.value.as_ref()?.value {
            Some(Kind::StringValue(name)) => Some(name.as_str()),
            _ => None,
        });
        for of_scope in &logs.scope_logs {
            let scope =
                of_scope.scope.as_ref().map(|scope| scope.name.as_str()).filter(|name| !name.is_empty());
            let records = of_scope.log_records.iter();
            rows.extend(records.map(|record| Row { record, service, scope, resource: resource.as_deref() }));
        }
    }
    batch(&rows)
}

fn batch(rows: &[Row<'_>]) -> Result<RecordBatch> {
    let texts = |of: &dyn Fn(&Row<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(rows.iter().map(of)))
    };
    let times = |of: &dyn Fn(&Row<'_>) -> u64| -> ArrayRef {
        let micros = rows.iter().map(|row| micros(of(row)));
        Arc::new(TimestampMicrosecondArray::from_iter(micros).with_timezone("UTC"))
    };
    let happened = |row: &Row<'_>| match row.record.time_unix_nano {
        0 => row.record.observed_time_unix_nano,
        time => time,
    };
    let severities = rows.iter().map(|row| Some(row.record.severity_number).filter(|number| *number != 0));
    let level = |row: &Row<'_>| match row.record.severity_text.as_str() {
        "" => level(row.record.severity_number).map(str::to_owned),
        text => Some(text.to_owned()),
    };
    let columns: [ArrayRef; 12] = [
        times(&happened),
        Arc::new(Int32Array::from_iter(severities)),
        texts(&level),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.service))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.scope))),
        texts(&|row| Some(row.record.event_name.clone()).filter(|name| !name.is_empty())),
        texts(&|row| row.record.body.as_ref().and_then(body)),
        texts(&|row| attributes(&row.record.attributes)),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.resource))),
        texts(&|row| hexadecimal(&row.record.trace_id)),
        texts(&|row| hexadecimal(&row.record.span_id)),
        times(&|row| row.record.observed_time_unix_nano),
    ];
    let named = COLUMNS.iter().zip(columns).map(|((name, _), column)| (*name, column, true));
    RecordBatch::try_from_iter_with_nullable(named)
        .map_err(|e| Error::internal(format!("log records make no batch: {e}")))
}

/// Nanoseconds as microseconds; 0 means unknown.
fn micros(nanos: u64) -> Option<i64> {
    (nanos > 0).then_some((nanos / 1_000) as i64)
}

/// The word for a number of severity: four numbers each.
fn level(number: i32) -> Option<&'static str> {
    const WORDS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
    let at = usize::try_from(number.checked_sub(1)?).ok()? / 4;
    WORDS.get(at).copied()
}

fn hexadecimal(id: &[u8]) -> Option<String> {
    let is_known = id.iter().any(|byte| *byte != 0);
    is_known.then(|| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn body(value: &AnyValue) -> Option<String> {
    match value.value.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        _ => Some(json_of(value).to_string()),
    }
}

fn attributes(attributes: &[KeyValue]) -> Option<String> {
    (!attributes.is_empty()).then(|| object(attributes).to_string())
}

fn object(pairs: &[KeyValue]) -> Json {
    let value = |pair: &KeyValue| pair.value.as_ref().map_or(Json::Null, json_of);
    Json::Object(pairs.iter().map(|pair| (pair.key.clone(), value(pair))).collect::<Map<_, _>>())
}

fn json_of(value: &AnyValue) -> Json {
    match &value.value {
        None => Json::Null,
        Some(Kind::StringValue(text)) => Json::String(text.clone()),
        Some(Kind::BoolValue(flag)) => Json::Bool(*flag),
        Some(Kind::IntValue(number)) => Json::Number((*number).into()),
        Some(Kind::DoubleValue(number)) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Some(Kind::ArrayValue(array)) => Json::Array(array.values.iter().map(json_of).collect()),
        Some(Kind::KvlistValue(list)) => object(&list.values),
        Some(Kind::BytesValue(bytes)) => Json::String(STANDARD.encode(bytes)),
    }
}

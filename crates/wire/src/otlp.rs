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

use message::{AnyValue, Export, KeyValue, LogRecord, any_value::Kind};

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

/// What is in a request.
#[derive(Debug)]
pub struct Decoded {
    pub rows: RecordBatch,
    /// Records that make no row. They do not keep the others out.
    pub refused: Vec<Refused>,
}

/// A record that cannot be read.
#[derive(Debug, PartialEq)]
pub struct Refused {
    /// Its number in the request, from 1.
    pub record: usize,
    pub reason: String,
    /// The record as it came: JSON, or its bytes in base64.
    pub raw: String,
}

/// Reads a request in Protobuf. [`types::Kind::Invalid`] if it is none.
pub fn decode_protobuf(bytes: &[u8]) -> Result<Decoded> {
    let export = <Export as prost::Message>::decode(bytes).map_err(|e| {
        Error::invalid(format!("the body is no ExportLogsServiceRequest: {e}"))
            .hint("send logs alone here, as an OTLP exporter over HTTP does")
    })?;
    let mut sift = Sift::default();
    let logs: Vec<Logs> = export
        .resource_logs
        .into_iter()
        .map(|logs| Logs {
            resource: logs.resource.map(|resource| resource.attributes).unwrap_or_default(),
            scopes: logs
                .scope_logs
                .into_iter()
                .map(|of| {
                    let read = |bytes: &Vec<u8>| {
                        let record = <LogRecord as prost::Message>::decode(&bytes[..]);
                        sift.take(record.map_err(|e| e.to_string()), || STANDARD.encode(bytes))
                    };
                    let records = of.log_records.iter().filter_map(read).collect();
                    (of.scope.map(|scope| scope.name).unwrap_or_default(), records)
                })
                .collect(),
        })
        .collect();
    let refused = sift.finish()?;
    Ok(Decoded { rows: rows(&logs)?, refused })
}

/// Reads a request in JSON. [`types::Kind::Invalid`] if it is none.
pub fn decode_json(bytes: &[u8]) -> Result<Decoded> {
    let mut sift = Sift::default();
    let logs = json::read(bytes, &mut sift)?;
    let refused = sift.finish()?;
    Ok(Decoded { rows: rows(&logs)?, refused })
}

/// The answer to a request in Protobuf of which so many records were not taken; no bytes if that is none.
pub fn answer(rejected: usize, message: &str) -> Vec<u8> {
    let partial = (rejected > 0).then(|| message::PartialSuccess {
        rejected_log_records: rejected as i64,
        error_message: message.to_owned(),
    });
    prost::Message::encode_to_vec(&message::Response { partial_success: partial })
}

/// An error as the protocol answers it: a `Status` whose code is left to that of HTTP.
pub fn status(message: &str) -> Vec<u8> {
    let status = message::Status { code: 0, message: message.to_owned() };
    prost::Message::encode_to_vec(&status)
}

/// What one resource sent: its attributes, and for each scope its name and its records.
struct Logs {
    resource: Vec<KeyValue>,
    scopes: Vec<(String, Vec<LogRecord>)>,
}

/// So many records of a request may be ones that cannot be read: each takes more memory than it came in.
const REFUSED_MAX: usize = 10_000;

/// Tells records that can be read from those that cannot.
#[derive(Default)]
struct Sift {
    seen: usize,
    refused: Vec<Refused>,
    has_too_many: bool,
}

impl Sift {
    fn take(
        &mut self,
        record: std::result::Result<LogRecord, String>,
        raw: impl FnOnce() -> String,
    ) -> Option<LogRecord> {
        self.seen += 1;
        let reason = match record {
            Ok(record) => return Some(record),
            Err(reason) => reason,
        };
        self.has_too_many |= self.refused.len() >= REFUSED_MAX;
        if !self.has_too_many {
            self.refused.push(Refused { record: self.seen, reason, raw: raw() });
        }
        None
    }

    /// What was refused, unless that is more than can be kept.
    fn finish(self) -> Result<Vec<Refused>> {
        match self.refused.first().filter(|_| self.has_too_many) {
            Some(Refused { record, reason, .. }) => Err(Error::invalid(format!(
                "more than {REFUSED_MAX} records cannot be read; record {record}: {reason}"
            ))
            .hint("send logs as an OTLP exporter over HTTP does")),
            None => Ok(self.refused),
        }
    }
}

/// A record with what holds for all of its kind.
struct Row<'a> {
    record: &'a LogRecord,
    service: Option<&'a str>,
    scope: Option<&'a str>,
    /// JSON, made once for all of a resource.
    resource: Option<&'a str>,
}

fn rows(all: &[Logs]) -> Result<RecordBatch> {
    let resources: Vec<Option<String>> = all.iter().map(|logs| attributes(&logs.resource)).collect();
    let mut rows = Vec::new();
    for (logs, resource) in all.iter().zip(&resources) {
        let service = logs.resource.iter().find(|attribute| attribute.key == "service.name");
        let service = service.and_then(|service| match &service.value.as_ref()?.value {
            Some(Kind::StringValue(name)) => Some(name.as_str()),
            _ => None,
        });
        for (scope, records) in &logs.scopes {
            let scope = Some(scope.as_str()).filter(|name| !name.is_empty());
            let row = |record| Row { record, service, scope, resource: resource.as_deref() };
            rows.extend(records.iter().map(row));
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

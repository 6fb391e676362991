//! Builds the columns of log records. The memory for a record is charged before the record is added: a short request
//! can become many bytes, since the attributes of a resource are repeated in each row.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json};
use types::{Error, Result};

use super::COLUMNS;
use super::message::{AnyValue, KeyValue, LogRecord, any_value::Kind};
use crate::Budget;

/// Bytes that a row takes besides its texts: two times, a number, the offsets of nine texts, and the validity bits.
const ROW_BYTES: usize = 64;

/// The values shared by all records of a resource and of a scope in it.
#[derive(Debug, Default)]
pub struct LogOrigin {
    service: Option<String>,
    /// The attributes as JSON, encoded once for all rows.
    resource: Option<String>,
    scope: Option<String>,
}

impl LogOrigin {
    pub fn resource(attributes: &[KeyValue]) -> LogOrigin {
        let service = attributes.iter().find(|attribute| attribute.key == "service.name");
        let service = service.and_then(|service| match &service.value.as_ref()?.value {
            Some(Kind::StringValue(name)) => Some(name.clone()),
            _ => None,
        });
        LogOrigin { service, resource: self::attributes(attributes), scope: None }
    }

    /// Sets the scope for the following records.
    pub fn enter(&mut self, scope: String) {
        self.scope = Some(scope).filter(|name| !name.is_empty());
    }
}

/// The builders of [`COLUMNS`], with the memory that they may still take.
#[derive(Debug)]
pub struct LogColumns {
    budget: Budget,
    time: TimestampMicrosecondBuilder,
    severity: Int32Builder,
    /// The columns from `level` to `span_id`.
    texts: [StringBuilder; 9],
    observed: TimestampMicrosecondBuilder,
}

impl LogColumns {
    pub fn new(budget: Budget) -> Self {
        let times = || TimestampMicrosecondBuilder::new().with_timezone("UTC");
        let (severity, texts) = (Int32Builder::new(), Default::default());
        LogColumns { budget, time: times(), severity, texts, observed: times() }
    }

    /// Charges memory for data kept beside the rows.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        self.budget.take(bytes)
    }

    /// Adds a row. [`types::Kind::TooLarge`] if that would exceed the budget; then nothing is added.
    pub fn push(&mut self, record: &LogRecord, of: &LogOrigin) -> Result<()> {
        let given = |text| Some(text).filter(|text: &&str| !text.is_empty());
        let texts: [Option<Cow<'_, str>>; 9] = [
            given(&record.severity_text).or_else(|| level(record.severity_number)).map(Cow::from),
            of.service.as_deref().map(Cow::from),
            of.scope.as_deref().map(Cow::from),
            given(&record.event_name).map(Cow::from),
            record.body.as_ref().and_then(body),
            attributes(&record.attributes).map(Cow::from),
            of.resource.as_deref().map(Cow::from),
            hexadecimal(&record.trace_id).map(Cow::from),
            hexadecimal(&record.span_id).map(Cow::from),
        ];
        self.budget.take(ROW_BYTES + texts.iter().flatten().map(|text| text.len()).sum::<usize>())?;
        let happened = match record.time_unix_nano {
            0 => record.observed_time_unix_nano,
            time => time,
        };
        self.time.append_option(micros(happened));
        self.severity.append_option(Some(record.severity_number).filter(|number| *number != 0));
        for (column, text) in self.texts.iter_mut().zip(texts) {
            column.append_option(text);
        }
        self.observed.append_option(micros(record.observed_time_unix_nano));
        Ok(())
    }

    pub fn finish(mut self) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(self.time.finish()), Arc::new(self.severity.finish())];
        arrays.extend(self.texts.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        arrays.push(Arc::new(self.observed.finish()));
        let named = COLUMNS.iter().zip(arrays).map(|((name, _), array)| (*name, array, true));
        RecordBatch::try_from_iter_with_nullable(named)
            .map_err(|e| Error::internal(format!("log records do not form a batch: {e}")))
    }
}

/// Converts nanoseconds to microseconds; 0 means unknown.
fn micros(nanos: u64) -> Option<i64> {
    (nanos > 0).then_some((nanos / 1_000) as i64)
}

/// Returns the word for a severity number; each word stands for four numbers.
fn level(number: i32) -> Option<&'static str> {
    const WORDS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
    let at = usize::try_from(number.checked_sub(1)?).ok()? / 4;
    WORDS.get(at).copied()
}

fn hexadecimal(id: &[u8]) -> Option<String> {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let is_known = id.iter().any(|byte| *byte != 0);
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
    is_known.then(|| id.iter().flat_map(digits).collect())
}

fn body(value: &AnyValue) -> Option<Cow<'_, str>> {
    Some(match value.value.as_ref()? {
        Kind::StringValue(text) => text.into(),
        _ => json_of(value).to_string().into(),
    })
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

//! The OTLP messages in JSON: names in lowerCamelCase, 64-bit numbers as strings or numbers, ids hexadecimal, other
//! bytes base64. Fields that belong to no column are skipped.
//!
//! No tree is built of the whole request: the outer messages are walked as text, and one record at a time is parsed
//! into values.

use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use types::{Error, Result, name};

use super::columns::LogOrigin;
use super::message::any_value::Kind;
use super::message::{AnyValue, ArrayValue, KeyValue, KeyValueList, LogRecord};
use super::{MANY_VALUES, RECORD_BYTES_MAX, RECORD_VALUES_MAX, RecordSink, many_bytes, too_large};
use crate::count;
use crate::sift::bounded;

pub fn read(bytes: &[u8], sink: &mut RecordSink) -> Result<()> {
    let no_export = || wrong("the body", "an object with `resourceLogs`");
    let no_json = |why: &str| {
        Error::invalid(format!("the body is not JSON: {why}")).hint("send an OTLP export of logs")
    };
    let body = std::str::from_utf8(bytes).map_err(|e| no_json(&e.to_string()))?;
    let mut json = serde_json::Deserializer::from_str(body);
    let found =
        FieldsVisitor(["resourceLogs"]).deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    let found = found.map_err(|e| if e.is_data() { no_export() } else { no_json(&e.to_string()) })?;
    // The body holds metrics or traces, or logs under other names.
    if found.has_others && found.fields[0].is_none() {
        return Err(no_export());
    }
    each("resourceLogs", found.fields[0], FieldsVisitor(["resource", "scopeLogs"]), |found| {
        let [resource, scope_logs] = found.fields;
        let attributes = match message("resource", resource)? {
            Some(resource) => list(&resource, "attributes", key_value)?,
            None => Vec::new(),
        };
        let mut of = LogOrigin::resource(&attributes);
        drop(attributes);
        each("scopeLogs", scope_logs, FieldsVisitor(["scope", "logRecords"]), |found| {
            let [scope, records] = found.fields;
            let scope = message("scope", scope)?;
            of.enter(scope.map_or(Ok(String::new()), |scope| text(&scope, "name"))?);
            each("logRecords", records, PhantomData::<&RawValue>, |record| {
                let text = record.get();
                let read = || {
                    if has_many_values(text) {
                        return Err(MANY_VALUES.to_owned());
                    }
                    let json = serde_json::from_str(text).map_err(|e| e.to_string())?;
                    log_record(&json).map_err(|e| e.message().to_owned())
                };
                sink.take(&of, text.len(), read, || bounded(text).to_owned())
            })
        })
    })
}

fn wrong(what: &str, expected: &str) -> Error {
    Error::invalid(format!("{what}: {expected} expected"))
        .hint("send logs as an OTLP exporter over HTTP does")
}

/// A visitor that extracts the named fields of an object and skips the others.
#[derive(Clone, Copy)]
struct FieldsVisitor<const N: usize>([&'static str; N]);

/// The raw values of those fields. If a field occurs twice, the last one counts.
struct FoundFields<'a, const N: usize> {
    fields: [Option<&'a RawValue>; N],
    has_others: bool,
}

impl<'de, const N: usize> DeserializeSeed<'de> for FieldsVisitor<N> {
    type Value = FoundFields<'de, N>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for FieldsVisitor<N> {
    type Value = FoundFields<'de, N>;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = FoundFields { fields: [None; N], has_others: false };
        while let Some(place) = map.next_key_seed(NameVisitor(&self.0))? {
            match place {
                Some(at) => found.fields[at] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                    found.has_others = true;
                }
            }
        }
        Ok(found)
    }
}

/// A visitor that maps a field name to its position among the wanted names.
struct NameVisitor<'a>(&'a [&'static str]);

impl<'de> DeserializeSeed<'de> for NameVisitor<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for NameVisitor<'_> {
    type Value = Option<usize>;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| *wanted == name))
    }
}

/// Calls `take` for each item of a repeated field, whose text is known to be valid JSON. An absent or null field has
/// no items.
fn each<'de, S: DeserializeSeed<'de> + Copy>(
    field: &str,
    raw: Option<&'de RawValue>,
    item: S,
    take: impl FnMut(S::Value) -> Result<()>,
) -> Result<()> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(()) };
    let mut failed = None;
    let items = ItemsVisitor { item, take, failed: &mut failed };
    let read = serde_json::Deserializer::from_str(raw.get()).deserialize_seq(items);
    match failed {
        Some(error) => Err(error),
        None => read.map_err(|_| wrong(&format!("`{field}`"), "a list of objects")),
    }
}

struct ItemsVisitor<'a, S, T> {
    item: S,
    take: T,
    /// The error with which `take` refused an item, since serde's errors cannot carry it.
    failed: &'a mut Option<Error>,
}

impl<'de, S, T> Visitor<'de> for ItemsVisitor<'_, S, T>
where
    S: DeserializeSeed<'de> + Copy,
    T: FnMut(S::Value) -> Result<()>,
{
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element_seed(self.item)? {
            if let Err(error) = (self.take)(item) {
                *self.failed = Some(error);
                return Err(A::Error::custom("an item was not taken"));
            }
        }
        Ok(())
    }
}

/// Parses a resource or scope, which applies to the records beside it. An absent or null field is `None`.
fn message(field: &str, raw: Option<&RawValue>) -> Result<Option<Json>> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    if raw.get().len() > RECORD_BYTES_MAX {
        return Err(too_large(field, &many_bytes()));
    }
    if has_many_values(raw.get()) {
        return Err(too_large(field, MANY_VALUES));
    }
    let json: Json = serde_json::from_str(raw.get()).map_err(|e| {
        Error::invalid(format!("`{field}`: {e}")).hint("send logs as an OTLP exporter over HTTP does")
    })?;
    object(&json, &format!("`{field}`"))?;
    Ok(Some(json))
}

/// Returns true if a text has too many values to be parsed into a tree.
fn has_many_values(text: &str) -> bool {
    // Each value takes at least one byte.
    text.len() > RECORD_VALUES_MAX
        && count::values(text.as_bytes(), 1, 1, RECORD_VALUES_MAX) > RECORD_VALUES_MAX
}

fn object<'a>(json: &'a Json, what: &str) -> Result<&'a Json> {
    json.is_object().then_some(json).ok_or_else(|| wrong(what, "an object"))
}

/// Reads a repeated field. An absent or null field is empty.
pub(super) fn list<T>(of: &Json, field: &str, read: impl FnMut(&Json) -> Result<T>) -> Result<Vec<T>> {
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

/// Reads a number, or a string that holds one.
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

pub(super) fn log_record(json: &Json) -> Result<LogRecord> {
    object(json, "a record")?;
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

pub(super) fn key_value(json: &Json) -> Result<KeyValue> {
    object(json, "a pair of key and value")?;
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
        ("arrayValue", array) => {
            let values = list(object(array, "`arrayValue`")?, "values", any_value)?;
            Kind::ArrayValue(ArrayValue { values })
        }
        ("kvlistValue", pairs) => {
            let values = list(object(pairs, "`kvlistValue`")?, "values", key_value)?;
            Kind::KvlistValue(KeyValueList { values })
        }
        ("bytesValue", Json::String(text)) => {
            Kind::BytesValue(STANDARD.decode(text).map_err(|_| wrong("`bytesValue`", "base64"))?)
        }
        (field, _) => return Err(wrong(&format!("`{}`", name::printable(field)), "a value of OTLP")),
    };
    Ok(AnyValue { value: Some(kind) })
}

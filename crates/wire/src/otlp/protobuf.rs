//! An export in Protobuf, decoded in place: one record at a time is decoded, and earlier ones are not kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use types::{Error, Result};

use super::columns::LogOrigin;
use super::message::{LogRecord, Resource, Scope};
use super::{MANY_VALUES, RECORD_BYTES_MAX, RECORD_VALUES_MAX, RecordSink, many_bytes, too_large};
use crate::RAW_BYTES_MAX;
use crate::protobuf::{Fields, MalformedMessage};

/// Decodes an `ExportLogsServiceRequest`.
pub fn read(bytes: &[u8], sink: &mut RecordSink) -> Result<()> {
    each(bytes, 1, |logs| {
        let mut of =
            LogOrigin::resource(&merged::<Resource>(logs, "resource", Some(MessageType::Pairs))?.attributes);
        each(logs, 2, |logs| {
            let scope: Scope = merged(logs, "scope", None)?;
            of.enter(scope.name);
            each(logs, 2, |record| log_record(record, &of, sink))
        })
    })
}

fn log_record(bytes: &[u8], of: &LogOrigin, sink: &mut RecordSink) -> Result<()> {
    // Base64 turns this many bytes into RAW_BYTES_MAX characters.
    let kept = &bytes[..bytes.len().min(RAW_BYTES_MAX / 4 * 3)];
    let read = || {
        // Each value takes at least two bytes.
        let may_be_many = bytes.len() / 2 > RECORD_VALUES_MAX;
        if may_be_many
            && values(bytes, MessageType::Record).map_err(|MalformedMessage(why)| why)? > RECORD_VALUES_MAX
        {
            return Err(MANY_VALUES.to_owned());
        }
        LogRecord::decode(bytes).map_err(|e| e.to_string())
    };
    sink.take(of, bytes.len(), read, || STANDARD.encode(kept))
}

/// Calls `take` for each message of a repeated field.
fn each<'a>(message: &'a [u8], field: u32, mut take: impl FnMut(&'a [u8]) -> Result<()>) -> Result<()> {
    let mut fields = Fields::new(message);
    while let Some((number, found)) = fields.next().map_err(|MalformedMessage(why)| wrong(why))? {
        if number == field {
            take(found.bytes().ok_or_else(|| wrong("a field has the wrong wire type for its number"))?)?;
        }
    }
    Ok(())
}

/// Decodes field 1, which applies to the other fields wherever it stands in the message. Several occurrences are
/// merged. With `form`, the nested values are counted and limited.
fn merged<M: prost::Message + Default>(message: &[u8], what: &str, form: Option<MessageType>) -> Result<M> {
    let (mut merged, mut bytes, mut count) = (M::default(), 0, 0);
    each(message, 1, |part| {
        bytes += part.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(too_large(what, &many_bytes()));
        }
        if let Some(form) = form {
            count += values(part, form).map_err(|MalformedMessage(why)| wrong(why))?;
        }
        if count > RECORD_VALUES_MAX {
            return Err(too_large(what, MANY_VALUES));
        }
        merged.merge(part).map_err(|e| wrong(&e.to_string()))
    })?;
    Ok(merged)
}

/// The types of messages that nest others, for counting values.
#[derive(Clone, Copy)]
enum MessageType {
    Record,
    Value,
    Values,
    Pair,
    /// A list of pairs. A resource has its attributes in field 1 too.
    Pairs,
}

impl MessageType {
    /// Returns the type of message in a field; `None` if it is not one of these messages.
    fn within(self, field: u32) -> Option<MessageType> {
        Some(match (self, field) {
            (MessageType::Record, 5) | (MessageType::Values, 1) | (MessageType::Pair, 2) => {
                MessageType::Value
            }
            (MessageType::Record, 6) | (MessageType::Pairs, 1) => MessageType::Pair,
            (MessageType::Value, 5) => MessageType::Values,
            (MessageType::Value, 6) => MessageType::Pairs,
            _ => return None,
        })
    }
}

/// Counts the fields of a message and of the messages nested in it. Stops beyond [`RECORD_VALUES_MAX`].
fn values(message: &[u8], form: MessageType) -> std::result::Result<usize, MalformedMessage> {
    // The recursion limit of prost.
    const DEPTH_MAX: usize = 100;
    fn walk(
        message: &[u8],
        form: MessageType,
        depth: usize,
        count: &mut usize,
    ) -> std::result::Result<(), MalformedMessage> {
        let mut fields = Fields::new(message);
        while *count <= RECORD_VALUES_MAX
            && let Some((number, field)) = fields.next()?
        {
            *count += 1;
            if let (Some(form), Some(bytes)) = (form.within(number), field.bytes())
                && depth < DEPTH_MAX
            {
                walk(bytes, form, depth + 1, count)?;
            }
        }
        Ok(())
    }
    let mut count = 0;
    walk(message, form, 0, &mut count)?;
    Ok(count)
}

fn wrong(why: &str) -> Error {
    Error::invalid(format!("the body is not an ExportLogsServiceRequest: {why}"))
        .hint("send only logs here, as an OTLP exporter over HTTP does")
}

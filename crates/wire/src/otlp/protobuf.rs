//! An export in Protobuf, decoded in place: one record at a time is decoded, and earlier ones are not kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use types::{Error, Result};

use super::columns::Of;
use super::message::{LogRecord, Resource, Scope};
use super::{MANY_VALUES, RECORD_BYTES_MAX, RECORD_VALUES_MAX, Sink, many_bytes, too_large};
use crate::RAW_BYTES_MAX;
use crate::protobuf::{Broken, Fields};

/// Decodes an `ExportLogsServiceRequest`.
pub fn read(bytes: &[u8], sink: &mut Sink) -> Result<()> {
    each(bytes, 1, |logs| {
        let mut of = Of::resource(&merged::<Resource>(logs, "resource", Some(Form::Pairs))?.attributes);
        each(logs, 2, |logs| {
            let scope: Scope = merged(logs, "scope", None)?;
            of.enter(scope.name);
            each(logs, 2, |record| log_record(record, &of, sink))
        })
    })
}

fn log_record(bytes: &[u8], of: &Of, sink: &mut Sink) -> Result<()> {
    // Base64 turns this many bytes into RAW_BYTES_MAX characters.
    let kept = &bytes[..bytes.len().min(RAW_BYTES_MAX / 4 * 3)];
    let read = || {
        // Each value takes at least two bytes.
        let may_be_many = bytes.len() / 2 > RECORD_VALUES_MAX;
        if may_be_many && values(bytes, Form::Record).map_err(|Broken(why)| why)? > RECORD_VALUES_MAX {
            return Err(MANY_VALUES.to_owned());
        }
        LogRecord::decode(bytes).map_err(|e| e.to_string())
    };
    sink.take(of, bytes.len(), read, || STANDARD.encode(kept))
}

/// Calls `take` for each message of a repeated field.
fn each<'a>(message: &'a [u8], field: u32, mut take: impl FnMut(&'a [u8]) -> Result<()>) -> Result<()> {
    let mut fields = Fields::new(message);
    while let Some((number, found)) = fields.next().map_err(|Broken(why)| wrong(why))? {
        if number == field {
            take(found.bytes().ok_or_else(|| wrong("a field has another form than its number says"))?)?;
        }
    }
    Ok(())
}

/// Decodes field 1, which applies to the other fields wherever it stands in the message. Several occurrences are
/// merged. With `form`, the nested values are counted and limited.
fn merged<M: prost::Message + Default>(message: &[u8], what: &str, form: Option<Form>) -> Result<M> {
    let (mut merged, mut bytes, mut count) = (M::default(), 0, 0);
    each(message, 1, |part| {
        bytes += part.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(too_large(what, &many_bytes()));
        }
        if let Some(form) = form {
            count += values(part, form).map_err(|Broken(why)| wrong(why))?;
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
enum Form {
    Record,
    Value,
    Values,
    Pair,
    /// A list of pairs. A resource has its attributes in field 1 too.
    Pairs,
}

impl Form {
    /// Returns the type of message in a field; `None` if it is not one of these messages.
    fn within(self, field: u32) -> Option<Form> {
        Some(match (self, field) {
            (Form::Record, 5) | (Form::Values, 1) | (Form::Pair, 2) => Form::Value,
            (Form::Record, 6) | (Form::Pairs, 1) => Form::Pair,
            (Form::Value, 5) => Form::Values,
            (Form::Value, 6) => Form::Pairs,
            _ => return None,
        })
    }
}

/// Counts the fields of a message and of the messages nested in it. Stops beyond [`RECORD_VALUES_MAX`].
fn values(message: &[u8], form: Form) -> std::result::Result<usize, Broken> {
    // The recursion limit of prost.
    const DEPTH_MAX: usize = 100;
    fn walk(message: &[u8], form: Form, depth: usize, count: &mut usize) -> std::result::Result<(), Broken> {
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
    Error::invalid(format!("the body is no ExportLogsServiceRequest: {why}"))
        .hint("send logs alone here, as an OTLP exporter over HTTP does")
}

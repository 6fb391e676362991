//! An export in Protobuf, read where it lies: one record after the other is made, and none of the others is kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use types::{Error, Result};

use super::columns::Of;
use super::message::{LogRecord, Resource, Scope};
use super::{MANY_VALUES, RECORD_BYTES_MAX, RECORD_VALUES_MAX, Sink, many_bytes, too_large};
use crate::RAW_BYTES_MAX;
use crate::protobuf::{Broken, Fields};

/// Reads an `ExportLogsServiceRequest`.
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
    // As many as RAW_BYTES_MAX characters stand for.
    let kept = &bytes[..bytes.len().min(RAW_BYTES_MAX / 4 * 3)];
    let read = || {
        // Each value takes two bytes at least.
        let may_be_many = bytes.len() / 2 > RECORD_VALUES_MAX;
        if may_be_many && values(bytes, Form::Record).map_err(|Broken(why)| why)? > RECORD_VALUES_MAX {
            return Err(MANY_VALUES.to_owned());
        }
        LogRecord::decode(bytes).map_err(|e| e.to_string())
    };
    sink.take(of, bytes.len(), read, || STANDARD.encode(kept))
}

/// Gives each message of a repeated field.
fn each<'a>(message: &'a [u8], field: u32, mut take: impl FnMut(&'a [u8]) -> Result<()>) -> Result<()> {
    let mut fields = Fields::new(message);
    while let Some((number, found)) = fields.next().map_err(|Broken(why)| wrong(why))? {
        if number == field {
            take(found.bytes().ok_or_else(|| wrong("a field has another form than its number says"))?)?;
        }
    }
    Ok(())
}

/// The message of field 1, which holds for the others wherever it stands. Where it comes several times they are one. It is looked
/// through as `form`, without which none of its messages are kept.
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

/// Messages of which others are made, many of little.
#[derive(Clone, Copy)]
enum Form {
    Record,
    Value,
    Values,
    Pair,
    /// A resource too has them in its field 1.
    Pairs,
}

impl Form {
    /// What a field holds that is a message again.
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

/// How many fields a message has with those within it; stops beyond [`RECORD_VALUES_MAX`].
fn values(message: &[u8], form: Form) -> std::result::Result<usize, Broken> {
    // As deep as prost goes.
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

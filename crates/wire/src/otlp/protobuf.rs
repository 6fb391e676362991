//! An export in Protobuf, read where it lies: one record after the other is made, and none of the others is kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use types::{Error, Result};

use super::columns::Of;
use super::message::{LogRecord, Resource, Scope};
use super::{RECORD_BYTES_MAX, Sink, too_large};
use crate::RAW_BYTES_MAX;
use crate::protobuf::{Broken, Fields};

/// Reads an `ExportLogsServiceRequest`.
pub fn read(bytes: &[u8], sink: &mut Sink) -> Result<()> {
    each(bytes, 1, |logs| {
        let resource: Resource = merged(logs, "resource")?;
        let mut of = Of::resource(&resource.attributes);
        each(logs, 2, |logs| {
            let scope: Scope = merged(logs, "scope")?;
            of.enter(scope.name);
            each(logs, 2, |record| log_record(record, &of, sink))
        })
    })
}

fn log_record(bytes: &[u8], of: &Of, sink: &mut Sink) -> Result<()> {
    // As many as RAW_BYTES_MAX characters stand for.
    let kept = &bytes[..bytes.len().min(RAW_BYTES_MAX / 4 * 3)];
    let read = || LogRecord::decode(bytes).map_err(|e| e.to_string());
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

/// The message of field 1, which holds for the others wherever it stands. Where it comes several times they are one.
fn merged<M: Message + Default>(message: &[u8], what: &str) -> Result<M> {
    let (mut merged, mut bytes) = (M::default(), 0);
    each(message, 1, |part| {
        bytes += part.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(too_large(what));
        }
        merged.merge(part).map_err(|e| wrong(&e.to_string()))
    })?;
    Ok(merged)
}

fn wrong(why: &str) -> Error {
    Error::invalid(format!("the body is no ExportLogsServiceRequest: {why}"))
        .hint("send logs alone here, as an OTLP exporter over HTTP does")
}

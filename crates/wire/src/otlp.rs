//! Logs as OpenTelemetry sends them (OTLP over HTTP): an export request, as Protobuf or as JSON, becomes rows.
//!
//! The messages are those of the OpenTelemetry protocol 1.x, by its field numbers; what of them makes no column is left out
//! ([`COLUMNS`] says what there is).

mod columns;
mod json;
mod message;
mod protobuf;
#[cfg(test)]
mod tests;

use arrow::array::RecordBatch;
use types::{DataType, Error, Kind, Result};

use super::{Budget, Limits};
use columns::{Columns, Of};
use message::LogRecord;

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
    /// The record as it came: JSON, or its bytes in base64. The first [`super::RAW_BYTES_MAX`] bytes of that.
    pub raw: String,
}

/// Reads a request in Protobuf. [`Kind::Invalid`] if it is none, [`Kind::TooLarge`] if it would make more than `limits` allow.
pub fn decode_protobuf(bytes: &[u8], limits: &Limits) -> Result<Decoded> {
    let mut sink = Sink::new(limits);
    protobuf::read(bytes, &mut sink)?;
    sink.finish()
}

/// Reads a request in JSON. Errors as [`decode_protobuf`].
pub fn decode_json(bytes: &[u8], limits: &Limits) -> Result<Decoded> {
    let mut sink = Sink::new(limits);
    json::read(bytes, &mut sink)?;
    sink.finish()
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

/// So many records of a request may be ones that cannot be read: who sends more does not send logs.
const REFUSED_MAX: usize = 10_000;

/// What one record may take as it came, and what is said of a resource or a scope.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// How many values it may have, those within others too: fields of objects and items of lists in JSON, fields of messages in
/// Protobuf. A few bytes become 60 and more once they are read, and up to 700 in JSON.
const RECORD_VALUES_MAX: usize = 65_536;
const MANY_VALUES: &str = "has more than 65,536 values";

/// What is made of a request, record by record.
struct Sink {
    columns: Columns,
    seen: usize,
    refused: Vec<Refused>,
}

impl Sink {
    fn new(limits: &Limits) -> Self {
        let columns = Columns::new(Budget::new(limits.decoded_bytes_max));
        Sink { columns, seen: 0, refused: Vec::new() }
    }

    /// Takes the next record, of `bytes` bytes as it came. One that cannot be read is refused, and kept as `raw`.
    fn take(
        &mut self,
        of: &Of,
        bytes: usize,
        read: impl FnOnce() -> std::result::Result<LogRecord, String>,
        raw: impl FnOnce() -> String,
    ) -> Result<()> {
        self.seen += 1;
        let record = match bytes > RECORD_BYTES_MAX {
            true => Err(many_bytes()),
            false => read(),
        };
        let reason = match record {
            Ok(record) => return self.columns.push(&record, of),
            Err(reason) => reason,
        };
        if self.refused.len() == REFUSED_MAX {
            let Refused { record, reason, .. } = &self.refused[0];
            let message =
                format!("more than {REFUSED_MAX} records cannot be read; record {record}: {reason}");
            return Err(Error::invalid(message).hint("send logs as an OTLP exporter over HTTP does"));
        }
        let refused = Refused { record: self.seen, reason, raw: raw() };
        self.columns.charge(size_of::<Refused>() + refused.reason.len() + refused.raw.len())?;
        self.refused.push(refused);
        Ok(())
    }

    fn finish(self) -> Result<Decoded> {
        Ok(Decoded { rows: self.columns.finish()?, refused: self.refused })
    }
}

/// Refuses a resource or a scope, without which no record of it has its row.
fn too_large(what: &str, why: &str) -> Error {
    Error::new(Kind::TooLarge, format!("a {what} {why}")).hint("say less of what sends the logs")
}

fn many_bytes() -> String {
    format!("takes more than {} MiB", RECORD_BYTES_MAX >> 20)
}

//! Logs of OpenTelemetry (OTLP over HTTP): an export request, as Protobuf or as JSON, becomes rows.
//!
//! The messages are those of the OpenTelemetry protocol 1.x, by its field numbers. Fields that belong to none of the
//! [`COLUMNS`] are ignored.

mod columns;
mod json;
mod message;
mod protobuf;
#[cfg(test)]
mod tests;

use arrow::array::RecordBatch;
use types::{DataType, Error, Kind, Result};

use super::{Budget, Limits};
use columns::{LogColumns, LogOrigin};
use message::LogRecord;

/// The names and types of the columns of a row.
///
/// `time` is the event's time or else the time of its observation. `level` is the record's own severity text, or else
/// the word for its severity number. `body` is the text, or JSON if the body is not a text. Ids are hexadecimal.
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

/// The content of a request.
#[derive(Debug)]
pub struct DecodedLogs {
    pub rows: RecordBatch,
    /// Records that cannot become rows. The other records are taken all the same.
    pub refused: Vec<RefusedRecord>,
}

/// A record that cannot be decoded.
#[derive(Debug, PartialEq)]
pub struct RefusedRecord {
    /// The record's number in the request, from 1.
    pub record: usize,
    pub reason: String,
    /// The record as received: JSON, or its bytes in base64; the first [`super::RAW_BYTES_MAX`] bytes of that.
    pub raw: String,
}

/// Decodes a request in Protobuf. [`Kind::Invalid`] if it is not such a request, [`Kind::TooLarge`] if it exceeds
/// `limits`.
pub fn decode_protobuf(bytes: &[u8], limits: &Limits) -> Result<DecodedLogs> {
    let mut sink = RecordSink::new(limits);
    protobuf::read(bytes, &mut sink)?;
    sink.finish()
}

/// Decodes a request in JSON, with the same errors as [`decode_protobuf`].
pub fn decode_json(bytes: &[u8], limits: &Limits) -> Result<DecodedLogs> {
    let mut sink = RecordSink::new(limits);
    json::read(bytes, &mut sink)?;
    sink.finish()
}

/// Encodes the Protobuf answer to a request of which `rejected` records were not taken; empty if all were taken.
pub fn answer(rejected: usize, message: &str) -> Vec<u8> {
    let partial = (rejected > 0).then(|| message::PartialSuccess {
        rejected_log_records: rejected as i64,
        error_message: message.to_owned(),
    });
    prost::Message::encode_to_vec(&message::Response { partial_success: partial })
}

/// Encodes an error as the protocol requires: a `Status` message. Its code stays 0, since the HTTP status has it.
pub fn status(message: &str) -> Vec<u8> {
    let status = message::Status { code: 0, message: message.to_owned() };
    prost::Message::encode_to_vec(&status)
}

/// The greatest number of records in a request that may be undecodable. A client that sends more is not sending logs.
const REFUSED_MAX: usize = 10_000;

/// Bytes of one record, resource or scope as received, at most.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// The greatest number of values in one record, nested ones included: fields of objects and items of lists in JSON,
/// fields of messages in Protobuf. A few input bytes become 60 and more once decoded, and up to 700 in JSON.
const RECORD_VALUES_MAX: usize = 65_536;
const MANY_VALUES: &str = "has more than 65,536 values";

/// Collects the rows and refused records of a request.
struct RecordSink {
    columns: LogColumns,
    seen: usize,
    refused: Vec<RefusedRecord>,
}

impl RecordSink {
    fn new(limits: &Limits) -> Self {
        let columns = LogColumns::new(Budget::new(limits.decoded_bytes_max));
        RecordSink { columns, seen: 0, refused: Vec::new() }
    }

    /// Takes the next record, which has `bytes` bytes in the input. If it cannot be decoded, it is refused and kept as
    /// `raw`.
    fn take(
        &mut self,
        of: &LogOrigin,
        bytes: usize,
        read: impl FnOnce() -> std::result::Result<LogRecord, String>,
        raw: impl FnOnce() -> String,
    ) -> Result<()> {
        self.seen += 1;
        let record = if bytes > RECORD_BYTES_MAX { Err(many_bytes()) } else { read() };
        let reason = match record {
            Ok(record) => return self.columns.push(&record, of),
            Err(reason) => reason,
        };
        if self.refused.len() == REFUSED_MAX {
            let RefusedRecord { record, reason, .. } = &self.refused[0];
            let message =
                format!("more than {REFUSED_MAX} records cannot be read; record {record}: {reason}");
            return Err(Error::invalid(message).hint("send logs as an OTLP exporter over HTTP does"));
        }
        let refused = RefusedRecord { record: self.seen, reason, raw: raw() };
        self.columns.charge(size_of::<RefusedRecord>() + refused.reason.len() + refused.raw.len())?;
        self.refused.push(refused);
        Ok(())
    }

    fn finish(self) -> Result<DecodedLogs> {
        Ok(DecodedLogs { rows: self.columns.finish()?, refused: self.refused })
    }
}

/// Makes the error for a resource or scope that is too large. It refuses the request, since all its records need it.
fn too_large(what: &str, why: &str) -> Error {
    Error::new(Kind::TooLarge, format!("a {what} {why}"))
        .hint("send fewer or shorter attributes of the resource or scope")
}

fn many_bytes() -> String {
    format!("takes more than {} MiB", RECORD_BYTES_MAX >> 20)
}

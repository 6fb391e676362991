//! Encodes any record batch as JSON, NDJSON, CSV or an Arrow IPC stream, chosen by `Accept`.
//!
//! | Arrow | JSON |
//! |---|---|
//! | integers | a number up to 2^53, beyond it a string, so that no reader rounds it |
//! | floats | the shortest number that reads back equal; NaN and the infinities are null |
//! | decimals | a string with all digits of the scale: readers would make floats of numbers |
//! | strings, enums | a string |
//! | json columns | the value itself (text that is no JSON: a string) |
//! | binary | base64, padded |
//! | date, timestamp, time | `"2026-11-21"`, `"2026-11-21T08:06:51.123456Z"` (no `Z` for one without zone), `"08:06:51.123456"` |
//! | uuid | `"01234567-89ab-cdef-0123-456789abcdef"` |
//! | list, vector | an array |
//! | struct, point | an object |
//! | everything else | a string as Arrow prints it |

mod arrow_stream;
pub mod csv;
pub mod json;

use arrow::datatypes::{DataType as Arrow, Field, Schema};
use arrow::record_batch::RecordBatch;
use types::Result;

/// The format of an answer's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Ndjson,
    Csv,
    ArrowStream,
}

impl Format {
    /// Returns the most preferred supported format of an `Accept` header; `None` if none is supported. Without a
    /// header: JSON.
    pub fn negotiate(accept: Option<&str>) -> Option<Self> {
        let Some(accept) = accept else { return Some(Format::Json) };
        let mut best: Option<(f32, Format)> = None;
        for part in accept.split(',') {
            let mut pieces = part.split(';').map(str::trim);
            let format = match pieces.next().unwrap_or("").to_ascii_lowercase().as_str() {
                "*/*" | "application/*" | "application/json" | "" => Format::Json,
                "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Format::Ndjson,
                "text/csv" | "text/*" => Format::Csv,
                "application/vnd.apache.arrow.stream" => Format::ArrowStream,
                _ => continue,
            };
            let quality = pieces.find_map(|p| p.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            if quality > 0.0 && best.is_none_or(|(q, _)| quality > q) {
                best = Some((quality, format));
            }
        }
        best.map(|(_, format)| format)
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Ndjson => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8; header=present",
            Format::ArrowStream => "application/vnd.apache.arrow.stream",
        }
    }
}

/// Writes the batches of one answer, one after the other. `Format::Json` is written like `Format::Ndjson`: the route
/// writes the frame around the rows.
pub enum Writer {
    Ndjson(json::Writer),
    Csv(csv::Writer),
    Arrow(arrow_stream::Writer),
}

impl Writer {
    pub fn new(format: Format, schema: &Schema) -> Result<Self> {
        Ok(match format {
            Format::Json | Format::Ndjson => Writer::Ndjson(json::Writer::new(schema)),
            Format::Csv => Writer::Csv(csv::Writer::new(schema)),
            Format::ArrowStream => Writer::Arrow(arrow_stream::Writer::new(schema)?),
        })
    }

    /// Writes the bytes before the first batch.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        match self {
            Writer::Ndjson(_) => {}
            Writer::Csv(writer) => writer.header(out),
            Writer::Arrow(writer) => writer.take(out),
        }
    }

    pub fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Writer::Ndjson(writer) => writer.rows(batch, out),
            Writer::Csv(writer) => writer.rows(batch, out),
            Writer::Arrow(writer) => writer.batch(batch, out)?,
        }
        Ok(())
    }

    /// Writes the bytes after the last batch.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Writer::Arrow(writer) => writer.end(out),
            _ => Ok(()),
        }
    }
}

/// Returns a column's type as users write it, or Arrow's own name if there is no such type here.
pub fn type_name(field: &Field) -> String {
    let extension = field.metadata().get("ARROW:extension:name").map(String::as_str);
    match (field.data_type(), extension) {
        (Arrow::Utf8, Some("arrow.json")) => "json".into(),
        (Arrow::Boolean, _) => "bool".into(),
        (Arrow::Int32, _) => "int32".into(),
        (Arrow::Int64, _) => "int64".into(),
        (Arrow::Float32, _) => "float32".into(),
        (Arrow::Float64, _) => "float64".into(),
        (Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View, _) => "string".into(),
        (Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView, _) => "binary".into(),
        (Arrow::FixedSizeBinary(16), _) => "uuid".into(),
        (Arrow::Date32, _) => "date".into(),
        (Arrow::Timestamp(..), _) => "timestamp".into(),
        (Arrow::Decimal128(p, s) | Arrow::Decimal256(p, s), _) => format!("decimal({p},{s})"),
        (Arrow::List(item) | Arrow::LargeList(item), _) => format!("list<{}>", type_name(item)),
        (Arrow::Dictionary(_, value), _) => type_name(&Field::new("", value.as_ref().clone(), true)),
        (other, _) => other.to_string().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;

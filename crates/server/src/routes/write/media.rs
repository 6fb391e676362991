//! The formats of rows in a body, by media type, and their decoders.

use http::{HeaderMap, header};
use types::{Error, name};
use wire::pieces::StreamFormat;
use wire::{DecodeTarget, DecodedRows, Limits, RefusedBody, SiftedRows, csv, ipc, json, protobuf};

use crate::content;
use crate::failure::{Failure, Result};

/// The format of rows in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// One object, an array, or a sequence of objects. `lines` is true if each line is certainly one row.
    Json {
        lines: bool,
    },
    Csv,
    Arrow,
    Protobuf,
}

const READABLE: &str = "send application/json, application/x-ndjson, text/csv, application/x-protobuf or application/vnd.apache.arrow.stream";

impl Media {
    pub fn of(headers: &HeaderMap) -> Result<Self> {
        let Some(said) = content::single(headers, &header::CONTENT_TYPE)? else {
            return Ok(Media::Json { lines: false });
        };
        content::is_utf8(said)?;
        let mut parts = said.split(';').map(|part| part.trim().to_ascii_lowercase());
        let media = parts.next().unwrap_or_default();
        Ok(match media.as_str() {
            // The media types that curl and other clients send by default.
            "" | "application/x-www-form-urlencoded" | "application/octet-stream" | "text/plain" => {
                Media::Json { lines: false }
            }
            "application/json" => Media::Json { lines: false },
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Media::Json { lines: true }
            }
            "text/csv" if parts.any(|part| part == "header=absent") => {
                return Err(Failure::unsupported(
                    "rows of CSV are read by the names in the first line, and `header=absent` says that there are none",
                    "begin with a line of column names",
                ));
            }
            "text/csv" => Media::Csv,
            "application/vnd.apache.arrow.stream" => Media::Arrow,
            "application/x-protobuf" | "application/protobuf" => Media::Protobuf,
            other => {
                let what = format!("rows cannot be read from `{}`", name::printable(other));
                return Err(Failure::unsupported(what, READABLE));
            }
        })
    }

    /// Returns the format for cutting a stream into pieces.
    pub fn form(self) -> StreamFormat {
        match self {
            Media::Json { lines } => StreamFormat::Json { lines },
            Media::Csv => StreamFormat::Csv,
            Media::Arrow => StreamFormat::Arrow,
            Media::Protobuf => StreamFormat::Protobuf,
        }
    }

    /// Returns the format of a piece of the stream. For JSON `lines` tells whether each line of the piece is a row.
    pub fn of_lines(self, lines: bool) -> Self {
        match self {
            Media::Json { .. } => Media::Json { lines },
            other => other,
        }
    }

    /// Decodes all rows of a body, or none.
    pub fn decode(
        self,
        body: &[u8],
        target: DecodeTarget<'_>,
        limits: &Limits,
    ) -> Result<DecodedRows, RefusedBody> {
        not_empty(body)?;
        match self {
            Media::Json { .. } => json::decode(body, target, limits),
            Media::Csv => csv::decode(body, target, limits),
            Media::Arrow => ipc::decode(body, target, limits),
            Media::Protobuf => protobuf::decode(body, target, limits),
        }
    }

    /// Decodes the good rows of a body, and returns the bad ones beside them.
    pub fn sift(
        self,
        body: &[u8],
        target: DecodeTarget<'_>,
        limits: &Limits,
    ) -> Result<SiftedRows, RefusedBody> {
        not_empty(body)?;
        match self {
            Media::Json { lines } => json::sift(body, target, limits, lines),
            Media::Csv => csv::sift(body, target, limits),
            Media::Arrow => ipc::sift(body, target, limits),
            Media::Protobuf => protobuf::sift(body, target, limits),
        }
    }
}

fn not_empty(body: &[u8]) -> types::Result<()> {
    if body.is_empty() {
        Err(Error::invalid("the body is empty").hint("send at least one row"))
    } else {
        Ok(())
    }
}

//! Cuts a message `Rows` between rows. Each piece repeats the names of the columns.

use std::io::Read;

use prost::encoding::{WireType, decode_key, decode_varint};
use types::{Error, Kind, Result};

use super::{StreamBuffer, StreamPiece};
use crate::protobuf::{COLUMNS, MalformedMessage, ROWS, no_rows};

/// The greatest length of a field's number and length prefix.
const HEAD_BYTES: usize = 16;

#[derive(Default)]
pub(super) struct ProtobufCutter {
    /// The fields with the names of the columns, as received.
    columns: Vec<u8>,
    begun: bool,
}

impl ProtobufCutter {
    pub fn next<R: Read>(&mut self, source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
        let before = source.before;
        let mut rows = Vec::new();
        while rows.len() < source.piece_bytes {
            source.fill(HEAD_BYTES)?;
            if source.buffer.is_empty() {
                break;
            }
            let (number, len) = field(&source.buffer)?;
            if len > source.row_bytes_max {
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("a row of more than {} MiB", source.row_bytes_max >> 20),
                ));
            }
            source.fill(len)?;
            if source.buffer.len() < len {
                return Err(no_rows(MalformedMessage("it is cut off")));
            }
            let field = source.take(len);
            match number {
                ROWS => rows.extend_from_slice(&field),
                COLUMNS if rows.is_empty() && !self.begun => {
                    self.columns.extend_from_slice(&field);
                    if self.columns.len() > source.row_bytes_max {
                        return Err(no_rows(MalformedMessage("the names of its columns are too long")));
                    }
                }
                COLUMNS => {
                    return Err(no_rows(MalformedMessage(
                        "in a chunked body the columns must come before the rows",
                    )));
                }
                _ => return Err(no_rows(MalformedMessage("it has a field that `Rows` does not have"))),
            }
        }
        if rows.is_empty() && self.begun {
            return Ok(None);
        }
        self.begun = true;
        Ok(Some(StreamPiece::whole([&self.columns[..], &rows].concat(), before, false)))
    }
}

/// Returns the number and the total length of the field at the beginning of `bytes`.
fn field(bytes: &[u8]) -> Result<(u32, usize)> {
    let mut rest = bytes;
    let broken = |why| no_rows(MalformedMessage(why));
    let (number, form) = decode_key(&mut rest).map_err(|_| broken("the tag of a field is invalid"))?;
    if form != WireType::LengthDelimited {
        return Err(broken("a field has the wrong wire type"));
    }
    let len = decode_varint(&mut rest).map_err(|_| broken("a length is cut off or too long"))?;
    let len = usize::try_from(len).map_err(|_| broken("it is cut off"))?;
    Ok((number, (bytes.len() - rest.len()).saturating_add(len)))
}

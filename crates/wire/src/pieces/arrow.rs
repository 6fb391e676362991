//! Cuts an Arrow stream between record batches. Each piece repeats the schema and the dictionaries before its batches.

use std::io::Read;

use arrow::ipc;
use types::{Error, Kind, Result};

use super::{StreamBuffer, StreamPiece};
use crate::ipc::broken;

/// The end-of-stream marker.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

#[derive(Default)]
pub(super) struct ArrowCutter {
    /// The schema and the dictionaries so far.
    prefix: Vec<u8>,
    has_schema: bool,
    /// True if a piece with the schema was returned.
    schema_sent: bool,
    ended: bool,
}

/// A message at the beginning of the buffer.
struct Message {
    len: usize,
    what: ipc::MessageHeader,
    /// The number of rows, for a record batch.
    rows: usize,
}

/// Counts the rows of all record batches of a stream.
pub(super) fn rows(stream: &[u8]) -> Result<usize> {
    let (cut, mut source) = (ArrowCutter::default(), StreamBuffer::new(stream, usize::MAX, usize::MAX));
    let mut all = 0usize;
    while let Some(Message { len, rows, .. }) = cut.message(&mut source)? {
        all = all.saturating_add(rows);
        source.take(len);
    }
    Ok(all)
}

impl ArrowCutter {
    pub fn next<R: Read>(&mut self, source: &mut StreamBuffer<R>) -> Result<Option<StreamPiece>> {
        let before = source.before;
        let mut batches = Vec::new();
        while !self.ended && batches.len() < source.piece_bytes {
            let Some(Message { len, what, .. }) = self.message(source)? else {
                self.ended = true;
                break;
            };
            if !batches.is_empty() && batches.len().saturating_add(len) > source.piece_bytes {
                break;
            }
            let message = source.take(len);
            match what {
                ipc::MessageHeader::RecordBatch if self.has_schema => batches.extend_from_slice(&message),
                ipc::MessageHeader::DictionaryBatch if self.has_schema => {
                    // The dictionary may replace one that the batches of this piece use.
                    let is_next = !batches.is_empty();
                    let bytes = self.prefix.len() + message.len();
                    if bytes > source.row_bytes_max {
                        let what = format!("dictionaries of more than {} MiB", source.row_bytes_max >> 20);
                        return Err(Error::new(Kind::TooLarge, what).hint("send the values themselves"));
                    }
                    if is_next {
                        let piece = self.piece(&batches, before);
                        self.prefix.extend_from_slice(&message);
                        return Ok(Some(piece));
                    }
                    self.prefix.extend_from_slice(&message);
                }
                ipc::MessageHeader::Schema if !self.has_schema => {
                    self.has_schema = true;
                    self.prefix.extend_from_slice(&message);
                }
                _ => return Err(broken("its messages are out of order")),
            }
        }
        if batches.is_empty() && (self.schema_sent || !self.has_schema) {
            Ok(None)
        } else {
            Ok(Some(self.piece(&batches, before)))
        }
    }

    fn piece(&mut self, batches: &[u8], before: crate::StreamOffset) -> StreamPiece {
        self.schema_sent = true;
        StreamPiece::whole([&self.prefix, batches, &END[..]].concat(), before, false)
    }

    /// Reads the next message completely; `None` at the end of the stream.
    fn message<R: Read>(&self, source: &mut StreamBuffer<R>) -> Result<Option<Message>> {
        source.fill(8)?;
        if source.buffer.is_empty() {
            return Ok(None);
        }
        let word = |at: usize| {
            source
                .buffer
                .get(at..at + 4)
                .and_then(|bytes| bytes.first_chunk::<4>())
                .map(|b| u32::from_le_bytes(*b))
        };
        let cut = || broken("it is cut off");
        let (size, head) = match word(0).ok_or_else(cut)? {
            u32::MAX => (word(4).ok_or_else(cut)?, 8),
            size => (size, 4),
        };
        if size == 0 {
            let len = head;
            source.take(len);
            return match source.first()? {
                None => Ok(None),
                Some(_) => Err(broken("something follows its end")),
            };
        }
        let end = head.saturating_add(size as usize);
        self.whole(source, end)?;
        let message = ipc::root_as_message(&source.buffer[head..end])
            .map_err(|e| broken(format!("a message's header is damaged: {e}")))?;
        let (what, body) = (message.header_type(), message.bodyLength());
        let rows = message.header_as_record_batch().map_or(0, |batch| batch.length());
        let rows = usize::try_from(rows).map_err(|_| broken("a record batch has a negative length"))?;
        let body = usize::try_from(body).map_err(|_| broken("a message has a negative length"))?;
        let len = end.saturating_add(body);
        self.whole(source, len)?;
        Ok(Some(Message { len, what, rows }))
    }

    fn whole<R: Read>(&self, source: &mut StreamBuffer<R>, len: usize) -> Result<()> {
        if len > source.row_bytes_max {
            let what = format!("a message of more than {} MiB", source.row_bytes_max >> 20);
            return Err(Error::new(Kind::TooLarge, what).hint("send smaller record batches"));
        }
        source.fill(len)?;
        if source.buffer.len() < len { Err(broken("it is cut off")) } else { Ok(()) }
    }
}

//! The block table: the offset, checksum and row bounds of each record batch in the Arrow file.

use crc32c::crc32c;
use types::codec::{Decoder, Encoder};
use types::{Error, Result};

/// One record batch of the Arrow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub offset: u64,
    /// Bytes of the message's metadata; `body_len` has those of its body.
    pub metadata_len: u32,
    pub body_len: u64,
    pub crc: u32,
    /// The ordinal of its first row: the number of rows in the blocks before it.
    pub ordinal: u64,
    pub rows: u32,
    /// The least and the greatest row id and time of the block.
    pub first_row: u64,
    pub last_row: u64,
    pub first_time: i64,
    pub last_time: i64,
}

impl Block {
    pub fn len(&self) -> u64 {
        u64::from(self.metadata_len) + self.body_len
    }
}

/// All parts of the Arrow file: the schema message before the first block, the blocks without gaps, the footer after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockTable {
    pub file_len: u64,
    pub head_len: u64,
    pub head_crc: u32,
    pub tail_crc: u32,
    pub blocks: Vec<Block>,
}

impl BlockTable {
    pub fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u64(self.file_len);
        e.u64(self.head_len);
        e.u32(self.head_crc);
        e.u32(self.tail_crc);
        e.list(&self.blocks, |e, b| {
            e.varint(b.metadata_len.into());
            e.varint(b.body_len);
            e.u32(b.crc);
            e.varint(b.rows.into());
            e.varint(b.first_row);
            e.varint(b.last_row - b.first_row);
            e.i64(b.first_time);
            e.varint((b.last_time - b.first_time) as u64);
        });
        e.bytes
    }

    /// Decodes a block table. `in_row_order` is true if rows are in row-id order over all blocks.
    pub fn decode(bytes: &[u8], in_row_order: bool) -> Result<BlockTable> {
        let mut d = Decoder::new(bytes);
        let (file_len, head_len, head_crc, tail_crc) = (d.u64()?, d.u64()?, d.u32()?, d.u32()?);
        let (mut offset, mut ordinal, mut next_row) = (head_len, 0u64, 0u64);
        let blocks = d.list(|d| {
            let (metadata_len, body_len, crc, rows) = (d.varint32()?, d.varint()?, d.u32()?, d.varint32()?);
            let (first_row, span, first_time, time_span) = (d.varint()?, d.varint()?, d.i64()?, d.varint()?);
            let end = offset.checked_add(metadata_len.into()).and_then(|o| o.checked_add(body_len));
            let last_row = first_row.checked_add(span).filter(|last| *last < u64::MAX);
            let last_time = first_time.checked_add_unsigned(time_span);
            let (Some(end), Some(last_row), Some(last_time)) = (end, last_row, last_time) else {
                return Err(d.damaged("a block table whose numbers do not fit"));
            };
            if end > file_len
                || metadata_len < 8
                || rows == 0
                || u64::from(rows) > span + 1
                || in_row_order && first_row < next_row
            {
                return Err(d.damaged("an impossible block"));
            }
            let block = Block {
                offset,
                metadata_len,
                body_len,
                crc,
                ordinal,
                rows,
                first_row,
                last_row,
                first_time,
                last_time,
            };
            offset = end;
            ordinal += u64::from(rows);
            next_row = last_row + 1;
            Ok(block)
        })?;
        d.finish()?;
        if head_len > file_len || offset > file_len {
            return Err(d.damaged("blocks beyond the end of the file"));
        }
        Ok(BlockTable { file_len, head_len, head_crc, tail_crc, blocks })
    }

    pub fn rows(&self) -> u64 {
        self.blocks.last().map_or(0, |b| b.ordinal + u64::from(b.rows))
    }

    pub fn tail_offset(&self) -> u64 {
        self.blocks.last().map_or(self.head_len, |b| b.offset + b.len())
    }

    /// Checks the file's length, its schema message and its footer.
    pub fn check_ends(&self, file: &[u8]) -> Result<()> {
        if file.len() as u64 != self.file_len {
            return Err(Error::damaged(format!("{} bytes expected, {} found", self.file_len, file.len())));
        }
        let (head, tail) = (&file[..self.head_len as usize], &file[self.tail_offset() as usize..]);
        if crc32c(head) != self.head_crc {
            return Err(Error::damaged("the schema does not match its checksum").with("offset", 0));
        }
        if crc32c(tail) != self.tail_crc {
            return Err(
                Error::damaged("the footer does not match its checksum").with("offset", self.tail_offset())
            );
        }
        Ok(())
    }
}

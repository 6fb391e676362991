//! Reads a log file in blocks: one read serves many small frames, and memory stays bounded.

use std::io;
use std::sync::Arc;

use arrow::buffer::{Buffer, MutableBuffer};
use types::Lsn;
use vfs::File;

use crate::layout::{ALIGN, FRAME_HEADER_BYTES, FrameHeader};

const BLOCK_BYTES: u64 = 1 << 20;

pub(crate) struct FrameReader {
    file: Arc<dyn File>,
    len: u64,
    block: Vec<u8>,
    /// Offset of `block` in the file.
    start: u64,
}

/// The result of a scan for frame headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderScan {
    /// The highest durable lsn that a frame header claims.
    pub durable_lsn: Lsn,
    /// End of the last frame according to its header, bounded by the file's length; 0 if the scan found no header.
    pub end: u64,
}

impl FrameReader {
    pub(crate) fn new(file: Arc<dyn File>, len: u64) -> Self {
        FrameReader { file, len, block: Vec::new(), start: 0 }
    }

    /// Returns `count` bytes (at most a block) at `offset`, or `None` if the file ends before.
    pub(crate) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<Option<&[u8]>> {
        debug_assert!(count as u64 <= BLOCK_BYTES);
        let Some(end) = offset.checked_add(count as u64).filter(|end| *end <= self.len) else {
            return Ok(None);
        };
        if offset < self.start || end > self.start + self.block.len() as u64 {
            let len = BLOCK_BYTES.min(self.len - offset);
            self.block.resize(len as usize, 0);
            self.start = offset;
            if let Err(error) = self.file.read_at(&mut self.block, offset) {
                self.block.clear();
                return Err(error);
            }
        }
        let at = (offset - self.start) as usize;
        Ok(Some(&self.block[at..at + count]))
    }

    /// Checks the payload of the frame at `offset`, whose header was read. Returns `None` if the checksum differs; otherwise the
    /// whole frame in aligned memory, if `wanted`.
    pub(crate) fn frame(
        &mut self,
        offset: u64,
        header: &FrameHeader,
        wanted: bool,
    ) -> io::Result<Option<Option<Buffer>>> {
        let len = header.frame_len();
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.len) else { return Ok(None) };
        if !wanted {
            return Ok(self.is_sound(offset + FRAME_HEADER_BYTES as u64, end, header)?.then_some(None));
        }
        let mut frame = MutableBuffer::from_len_zeroed(len as usize);
        if len <= BLOCK_BYTES {
            let Some(bytes) = self.bytes(offset, len as usize)? else { return Ok(None) };
            frame.as_slice_mut().copy_from_slice(bytes);
        } else {
            self.file.read_at(frame.as_slice_mut(), offset)?;
        }
        let crc = crc32c::crc32c(&frame.as_slice()[FRAME_HEADER_BYTES..]);
        Ok(accept(crc, header).then(|| Some(frame.into())))
    }

    fn is_sound(&mut self, mut offset: u64, end: u64, header: &FrameHeader) -> io::Result<bool> {
        let mut crc = 0;
        while offset < end {
            let count = BLOCK_BYTES.min(end - offset);
            let Some(bytes) = self.bytes(offset, count as usize)? else { return Ok(false) };
            crc = crc32c::crc32c_append(crc, bytes);
            offset += count;
        }
        Ok(accept(crc, header))
    }

    /// Scans for frame headers of this epoch (and salt, if known), from `offset` on at every aligned position.
    pub(crate) fn scan(&mut self, mut offset: u64, epoch: u64, salt: Option<u64>) -> io::Result<HeaderScan> {
        let mut found = HeaderScan::default();
        while offset + FRAME_HEADER_BYTES as u64 <= self.len {
            let count = BLOCK_BYTES.min(self.len - offset);
            let len = self.len;
            let Some(bytes) = self.bytes(offset, count as usize)? else { break };
            let mut at = 0;
            while at + FRAME_HEADER_BYTES <= bytes.len() {
                if FrameHeader::may_begin(&bytes[at..])
                    && let Some(header) = FrameHeader::read(&bytes[at..], epoch, salt)
                {
                    found.durable_lsn = found.durable_lsn.max(header.durable_lsn);
                    found.end = found.end.max((offset + at as u64 + header.frame_len()).min(len));
                }
                at += ALIGN as usize;
            }
            offset += at as u64;
        }
        Ok(found)
    }
}

fn accept(crc: u32, header: &FrameHeader) -> bool {
    cfg!(feature = "canary-skip-checksum") || crc == header.payload_crc
}

//! Bytes for one gathered write, partly owned, partly shared with Arrow arrays.

use std::io::IoSlice;
use std::ops::Range;

use arrow::buffer::Buffer;

/// Bytes below which a shared buffer is copied: one more part of the gathered write would cost more.
const COPY_BELOW: usize = 512;

/// Collects the parts of a frame. Positions count from the frame's start.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    own: Vec<u8>,
    parts: Vec<GatherPart>,
    len: u64,
}

#[derive(Debug)]
enum GatherPart {
    Own(Range<usize>),
    Shared(Buffer),
}

/// The place of four bytes in a [`Gather`] that are filled in later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot(usize);

impl Gather {
    /// Removes everything, and keeps a moderate amount of memory for the next frame.
    pub(crate) fn clear(&mut self) {
        self.own.clear();
        self.own.shrink_to(1 << 20);
        self.parts.clear();
        self.len = 0;
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let start = self.own.len();
        self.own.extend_from_slice(bytes);
        self.grew_from(start);
    }

    pub(crate) fn slot(&mut self) -> Slot {
        let slot = Slot(self.own.len());
        self.bytes(&[0; 4]);
        slot
    }

    pub(crate) fn fill(&mut self, slot: Slot, value: u32) {
        self.own[slot.0..slot.0 + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Adds a buffer without copying it, unless it is short.
    pub(crate) fn buffer(&mut self, buffer: Buffer) {
        if buffer.len() < COPY_BELOW {
            return self.bytes(&buffer);
        }
        self.len += buffer.len() as u64;
        self.parts.push(GatherPart::Shared(buffer));
    }

    /// Adds zeros up to a multiple of `align`.
    pub(crate) fn pad(&mut self, align: u64) {
        let missing = self.len.next_multiple_of(align) - self.len;
        let start = self.own.len();
        self.own.resize(start + missing as usize, 0);
        self.grew_from(start);
    }

    /// Overwrites the first bytes, which must be owned.
    pub(crate) fn set_start(&mut self, bytes: &[u8]) {
        self.own[..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the CRC32C of everything from position `skip` on, which must be within the owned bytes at the start.
    pub(crate) fn crc_from(&self, skip: usize) -> u32 {
        let mut crc = 0;
        for (i, part) in self.slices().enumerate() {
            crc = crc32c::crc32c_append(crc, if i == 0 { &part[skip..] } else { part });
        }
        crc
    }

    /// Returns the parts in order, for a gathered write.
    pub(crate) fn io_slices(&self) -> Vec<IoSlice<'_>> {
        self.slices().map(IoSlice::new).collect()
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.slices().flatten().copied().collect()
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            GatherPart::Own(range) => &self.own[range.clone()],
            GatherPart::Shared(buffer) => buffer.as_slice(),
        })
    }

    fn grew_from(&mut self, start: usize) {
        let end = self.own.len();
        self.len += (end - start) as u64;
        match self.parts.last_mut() {
            Some(GatherPart::Own(range)) => range.end = end,
            _ if start == end => {}
            _ => self.parts.push(GatherPart::Own(start..end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_and_the_checksum_is_that_of_their_concatenation() {
        let mut gather = Gather::default();
        gather.bytes(b"head....");
        let slot = gather.slot();
        gather.buffer(Buffer::from(vec![1u8; 600]));
        gather.buffer(Buffer::from(vec![2u8; 3]));
        gather.pad(8);
        gather.buffer(Buffer::from(vec![3u8; 700]));
        gather.bytes(b"end");
        gather.fill(slot, 0x0403_0201);
        gather.set_start(b"HEAD");
        let mut expected = b"HEAD....\x01\x02\x03\x04".to_vec();
        expected.extend([1; 600]);
        expected.extend([2; 3]);
        expected.resize(expected.len().next_multiple_of(8), 0);
        expected.extend([3; 700]);
        expected.extend(b"end");
        assert_eq!(gather.to_vec(), expected);
        assert_eq!(gather.len(), expected.len() as u64);
        assert_eq!(gather.crc_from(8), crc32c::crc32c(&expected[8..]));
        assert_eq!(gather.io_slices().len(), 5, "long buffers are shared, short ones are copied");
    }
}

//! The fixed parts of a log file in bytes: the file header and the frame header. Drawn in `docs/format.md`.
//!
//! All integers are little-endian. Parsing cannot fail: the bytes either are a header of the given file or are not.

use std::io;

use types::Lsn;
use vfs::File;

use crate::frame::FRAME_BYTES_MAX;

pub(crate) const VERSION: u32 = 1;
pub(crate) const FILE_HEADER_BYTES: u64 = 4096;
pub(crate) const FRAME_HEADER_BYTES: usize = 64;
/// Bytes to whose multiples the starts of frames and sections are aligned.
pub(crate) const ALIGN: u64 = 8;

const FILE_MAGIC: &[u8; 8] = b"PLYNYLOG";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"PFRM");

/// The first 4096 bytes of a log file. All bytes that are not zero are in the first 512, which the medium writes atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Equals the number in the file's name; otherwise the file is a recycled one whose rename was lost.
    pub epoch: u64,
    /// A random number. Frames repeat it, so that neither a stale frame of a recycled file nor bytes that a user stored can
    /// pass for a frame of this file.
    pub salt: u64,
    /// Lsn of the file's first frame. Frames of earlier files are valid only below it.
    pub first_lsn: Lsn,
    /// The highest lsn known to be durable when the header was written.
    pub durable_lsn: Lsn,
}

/// The result of reading the first 4096 bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderRead {
    Good(FileHeader),
    /// A header of this newer format version.
    Newer(u32),
    /// Bytes that are not a header: never written, torn, or damaged.
    Bad,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; FILE_HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(FILE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_lsn.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.durable_lsn.0.to_le_bytes());
        let crc = file_header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a file that is `len` bytes long.
    pub(crate) fn of(file: &dyn File, len: u64) -> io::Result<HeaderRead> {
        if len < FILE_HEADER_BYTES {
            return Ok(HeaderRead::Bad);
        }
        let mut bytes = vec![0; FILE_HEADER_BYTES as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(FileHeader::read(&bytes))
    }

    pub(crate) fn read(bytes: &[u8]) -> HeaderRead {
        if bytes.len() != FILE_HEADER_BYTES as usize
            || &bytes[0..8] != FILE_MAGIC
            || u32_at(bytes, 12) != file_header_crc(bytes)
        {
            return HeaderRead::Bad;
        }
        match u32_at(bytes, 8) {
            VERSION => HeaderRead::Good(FileHeader {
                epoch: u64_at(bytes, 16),
                salt: u64_at(bytes, 24),
                first_lsn: Lsn(u64_at(bytes, 32)),
                durable_lsn: Lsn(u64_at(bytes, 40)),
            }),
            newer if newer > VERSION => HeaderRead::Newer(newer),
            _ => HeaderRead::Bad,
        }
    }
}

/// Checksum of all 4096 bytes except the four that hold it.
fn file_header_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// The first 64 bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub payload_crc: u32,
    /// A multiple of [`ALIGN`].
    pub payload_len: u32,
    pub salt: u64,
    pub epoch: u64,
    pub first_lsn: Lsn,
    /// Number of commits. 0 in the mark that a clean close leaves: it has no sections, and `first_lsn` is the next free one.
    pub commits: u32,
    pub sections: u32,
    pub time: i64,
    pub durable_lsn: Lsn,
}

impl FrameHeader {
    pub(crate) fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_lsn.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.commits.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.sections.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.time.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.durable_lsn.0.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses the header at the start of `bytes`. `None` unless it belongs to the file with this epoch and, if known, salt. The
    /// header's own checksum covers the payload's, so lengths and lsns can be trusted before the payload is read.
    pub(crate) fn read(bytes: &[u8], epoch: u64, salt: Option<u64>) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        if u32_at(bytes, 0) != FRAME_MAGIC || u32_at(bytes, 4) != crc32c::crc32c(&bytes[8..]) {
            return None;
        }
        let header = FrameHeader {
            payload_crc: u32_at(bytes, 8),
            payload_len: u32_at(bytes, 12),
            salt: u64_at(bytes, 16),
            epoch: u64_at(bytes, 24),
            first_lsn: Lsn(u64_at(bytes, 32)),
            commits: u32_at(bytes, 40),
            sections: u32_at(bytes, 44),
            time: u64_at(bytes, 48) as i64,
            durable_lsn: Lsn(u64_at(bytes, 56)),
        };
        let sound = header.epoch == epoch
            && salt.is_none_or(|salt| salt == header.salt)
            && u64::from(header.payload_len).is_multiple_of(ALIGN)
            && header.frame_len() <= FRAME_BYTES_MAX
            && header.first_lsn.0 > 0
            && header.first_lsn.0.checked_add(header.commits.into()).is_some()
            && header.durable_lsn < header.first_lsn
            && (header.commits > 0 || header.payload_len == 0);
        sound.then_some(header)
    }

    /// Returns true if `bytes` could begin a frame of any file: the quick check of a scan.
    pub(crate) fn may_begin(bytes: &[u8]) -> bool {
        bytes.starts_with(&FRAME_MAGIC.to_le_bytes())
    }

    pub(crate) fn frame_len(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.payload_len)
    }

    /// The lsn after the frame's last commit.
    pub(crate) fn next_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0 + u64::from(self.commits))
    }

    /// Returns true for the mark of a clean close.
    pub(crate) fn is_mark(&self) -> bool {
        self.commits == 0
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_header_with_any_bit_flipped_is_none() {
        let header =
            FileHeader { epoch: 7, salt: 0x1234_5678_9abc_def0, first_lsn: Lsn(9), durable_lsn: Lsn(8) };
        let bytes = header.to_bytes();
        assert_eq!(FileHeader::read(&bytes), HeaderRead::Good(header));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileHeader::read(&bad), HeaderRead::Bad, "bit {bit}");
        }
    }

    #[test]
    fn a_file_header_of_a_later_version_is_told_from_damage() {
        let mut bytes = FileHeader { epoch: 7, salt: 1, first_lsn: Lsn(9), durable_lsn: Lsn(8) }.to_bytes();
        bytes[8] = 2;
        let crc = file_header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(FileHeader::read(&bytes), HeaderRead::Newer(2));
    }

    #[test]
    fn a_frame_header_with_any_bit_flipped_or_of_another_file_is_none() {
        let header = FrameHeader {
            payload_crc: 1,
            payload_len: 16,
            salt: 5,
            epoch: 6,
            first_lsn: Lsn(10),
            commits: 3,
            sections: 2,
            time: -1,
            durable_lsn: Lsn(4),
        };
        let bytes = header.to_bytes();
        assert_eq!(FrameHeader::read(&bytes, 6, Some(5)), Some(header));
        assert_eq!(FrameHeader::read(&bytes, 6, None), Some(header));
        assert_eq!(FrameHeader::read(&bytes, 6, Some(4)), None);
        assert_eq!(FrameHeader::read(&bytes, 5, Some(5)), None);
        assert_eq!(FrameHeader::read(&bytes[..63], 6, Some(5)), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::read(&bad, 6, Some(5)), None, "bit {bit}");
        }
    }
}

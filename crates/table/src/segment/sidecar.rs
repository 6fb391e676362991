//! The sidecar's frame: a directory of sections. Each section has its own checksum, so that it is checked when it is touched.
//!
//! ```text
//! magic "PLYNSEG\0" · version u32 · section count u32 · per section: tag u32, crc u32, offset u64, length u64 · crc u32
//! sections, each starting at a multiple of 8
//! ```

use bytes::Bytes;
use crc32c::crc32c;
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Result};

const MAGIC: [u8; 8] = *b"PLYNSEG\0";
/// The newest version. 2: rows may be out of row-id order, so that a section came that no reader may ignore. 3: blocks may be
/// compressed. 4: rows may be in the lake, without an Arrow file.
const VERSION: u32 = 4;
const SECTIONS_MAX: u32 = 64;

/// The content of a section. A reader ignores tags that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Tag {
    Summary = 1,
    Blocks = 2,
    LsnRuns = 3,
    RowIds = 4,
    Zones = 5,
    Keys = 6,
    Order = 7,
    Packed = 8,
    Evicted = 9,
}

impl Tag {
    fn name(self) -> &'static str {
        match self {
            Tag::Summary => "summary",
            Tag::Blocks => "block table",
            Tag::LsnRuns => "lsn runs",
            Tag::RowIds => "row ids",
            Tag::Zones => "zone maps",
            Tag::Keys => "key run",
            Tag::Order => "order of rows",
            Tag::Packed => "lengths before compression",
            Tag::Evicted => "columns in the lake",
        }
    }
}

/// Encodes the file of these sections. Returns its bytes and the directory's checksum.
pub(crate) fn encode(sections: &[(Tag, Vec<u8>)]) -> (Vec<u8>, u32) {
    let directory = 8 + 4 + 4 + sections.len() * 24 + 4;
    let mut offset = directory.next_multiple_of(8);
    let mut e = Encoder::new();
    e.bytes.extend_from_slice(&MAGIC);
    // Writes the oldest version that describes the sections, so that older programs can read the files that they understand.
    let since = |(tag, _): &(Tag, Vec<u8>)| match tag {
        Tag::Evicted => 4,
        Tag::Packed => 3,
        Tag::Order => 2,
        _ => 1,
    };
    e.u32(sections.iter().map(since).max().unwrap_or(1));
    e.u32(sections.len() as u32);
    for (tag, bytes) in sections {
        e.u32(*tag as u32);
        e.u32(crc32c(bytes));
        e.u64(offset as u64);
        e.u64(bytes.len() as u64);
        offset = (offset + bytes.len()).next_multiple_of(8);
    }
    let crc = crc32c(&e.bytes);
    e.u32(crc);
    let mut file = e.bytes;
    for (_, bytes) in sections {
        file.resize(file.len().next_multiple_of(8), 0);
        file.extend_from_slice(bytes);
    }
    (file, crc)
}

/// A mapped sidecar with a checked directory.
#[derive(Debug)]
pub(crate) struct Sidecar {
    bytes: Bytes,
    sections: Vec<(u32, u32, std::ops::Range<usize>)>,
}

impl Sidecar {
    /// Opens a sidecar. Fails unless its directory is intact and has the checksum that the manifest states.
    pub fn open(bytes: Bytes, crc_expected: u32) -> Result<Sidecar> {
        let mut d = Decoder::new(&bytes);
        if d.take(8)? != MAGIC {
            return Err(Error::damaged("the sidecar does not begin like one"));
        }
        let version = d.u32()?;
        let count = d.u32()?;
        if count > SECTIONS_MAX {
            return Err(Error::damaged(format!("a sidecar of {count} sections")));
        }
        // Every version has the directory's checksum here. Otherwise a flipped bit in the version would pass for a newer
        // program's file.
        let end = 16 + count as usize * 24;
        let crc = bytes.get(end..end + 4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")));
        if crc != Some(crc32c(&bytes[..end.min(bytes.len())])) {
            return Err(Error::damaged("the sidecar's directory does not match its checksum"));
        }
        if crc != Some(crc_expected) {
            return Err(Error::damaged("the sidecar belongs to another segment"));
        }
        if version > VERSION {
            return Err(Error::new(
                Kind::Newer,
                format!("the sidecar has version {version}, this program reads {VERSION}"),
            )
            .hint("open this directory with the newer Polynya that wrote it"));
        }
        if version == 0 {
            return Err(Error::damaged(format!("a sidecar of version {version}")));
        }
        let mut sections = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (tag, crc, offset, len) = (d.u32()?, d.u32()?, d.u64()?, d.u64()?);
            let range = offset.checked_add(len).filter(|end| *end <= bytes.len() as u64);
            let Some(end) = range else {
                return Err(Error::damaged("a section of the sidecar lies beyond its end"));
            };
            sections.push((tag, crc, offset as usize..end as usize));
        }
        Ok(Sidecar { bytes, sections })
    }

    pub fn has(&self, tag: Tag) -> bool {
        self.sections.iter().any(|(t, ..)| *t == tag as u32)
    }

    /// Returns a section's bytes, checked against its checksum. Reads all of them, so callers keep the result.
    pub fn section(&self, tag: Tag) -> Result<Bytes> {
        let found = self.sections.iter().find(|(t, ..)| *t == tag as u32);
        let Some((_, crc, range)) = found else {
            return Err(Error::damaged(format!("the sidecar has no {}", tag.name())));
        };
        let bytes = self.bytes.slice(range.clone());
        if crc32c(&bytes) != *crc {
            return Err(Error::damaged(format!("the checksum of the {} does not match", tag.name()))
                .with("offset", range.start)
                .with("bytes", range.len()));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_sidecar_is_told_from_one_whose_version_was_hit() {
        let (mut file, crc) = encode(&[(Tag::Summary, vec![7; 20])]);
        file[8] = VERSION as u8 + 1;
        assert_eq!(Sidecar::open(file.clone().into(), crc).unwrap_err().kind(), Kind::Damaged);
        let end = 16 + 24;
        let crc = crc32c(&file[..end]);
        file[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Sidecar::open(file.into(), crc).unwrap_err().kind(), Kind::Newer);
    }
}

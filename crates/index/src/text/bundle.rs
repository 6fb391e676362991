//! The file format of a piece: the files of its segment one after the other, then a footer that lists them.
//!
//! ```text
//! magic (8) · file … each at a multiple of 8 · footer · footer length u32 · crc32c u32 of everything before
//! footer: version u8 · piece id · first row · last row · documents · [name, offset, length]
//! ```
//!
//! A piece is a single file because it appears, is checked and goes as a whole: one name, one checksum, one sync of the
//! directory.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Result, RowId};

const MAGIC: &[u8; 8] = b"PNTEXT\r\n";
const VERSION: u8 = 1;
const ALIGN: usize = 8;

/// The identity of a piece and the rows that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceHeader {
    pub id: u64,
    /// The first row of the covered range.
    pub first: RowId,
    /// The last row of the covered range.
    pub last: RowId,
    /// Number of documents: all rows of the range that were live when the piece was built.
    pub docs: u32,
}

pub(super) fn write(head: &PieceHeader, files: &BTreeMap<String, Bytes>) -> Vec<u8> {
    let len: usize = files.values().map(|bytes| bytes.len() + ALIGN).sum();
    let mut out = Vec::with_capacity(len + 512);
    out.extend_from_slice(MAGIC);
    let mut places = Vec::new();
    for (name, bytes) in files {
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        places.push((name, out.len(), bytes.len()));
        out.extend_from_slice(bytes);
    }
    let mut footer = Encoder::new();
    footer.u8(VERSION);
    footer.varint(head.id);
    footer.varint(head.first.0);
    footer.varint(head.last.0);
    footer.varint(head.docs.into());
    footer.list(&places, |e, (name, offset, len)| {
        e.str(name);
        e.varint(*offset as u64);
        e.varint(*len as u64);
    });
    out.extend_from_slice(&footer.bytes);
    out.extend_from_slice(&(footer.bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// Returns the checksum that [`write`] put at the end. It identifies the content.
pub(super) fn crc(bytes: &[u8]) -> Option<u32> {
    bytes.last_chunk::<4>().map(|crc| u32::from_le_bytes(*crc))
}

/// Verifies the checksum and returns the head and the files.
pub(super) fn read(bytes: &Bytes) -> Result<(PieceHeader, Vec<(String, Bytes)>)> {
    let damaged = |what: &str| Error::damaged(format!("a piece of a text index: {what}"));
    let end = bytes.len().checked_sub(8).filter(|end| *end >= MAGIC.len());
    let end = end.ok_or_else(|| damaged("it is too short"))?;
    if !bytes.starts_with(MAGIC) {
        return Err(damaged("it does not begin like one"));
    }
    if crc(bytes) != Some(crc32c::crc32c(&bytes[..end + 4])) {
        return Err(damaged("its checksum is wrong"));
    }
    let footer_len = bytes[end..].first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len) as usize);
    let start = end.checked_sub(footer_len).ok_or_else(|| damaged("its footer is longer than it"))?;
    let mut d = Decoder::new(&bytes[start..end]);
    let version = d.u8()?;
    if version != VERSION {
        return Err(Error::new(Kind::Newer, format!("a piece of a text index has version {version}")));
    }
    let (id, first, last) = (d.varint()?, RowId(d.varint()?), RowId(d.varint()?));
    let docs = d.varint32()?;
    let files = d.list(|d| {
        let name = d.str()?.to_owned();
        let (offset, len) = (d.varint()?, d.varint()?);
        let range =
            offset.checked_add(len).filter(|to| *to <= start as u64).map(|to| offset as usize..to as usize);
        Ok((name, bytes.slice(range.ok_or_else(|| d.damaged("a file outside the piece"))?)))
    })?;
    d.finish()?;
    Ok((PieceHeader { id, first, last, docs }, files))
}

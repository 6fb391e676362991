//! Deletion vectors: blobs in Puffin files, each with the positions of the deleted rows of one data file.
//!
//! A blob consists of the length of magic and bitmap, the magic, a bitmap of 64-bit positions in Roaring's portable form, and
//! the CRC-32 of magic and bitmap. Length and checksum are big-endian, everything else is little-endian. The file's footer is
//! not read, because the manifest also tells the blob's offset and data file.

use roaring::{RoaringBitmap, RoaringTreemap};
use types::{Error, Result};

const MAGIC: [u8; 4] = [0xD1, 0xD3, 0x39, 0x64];

/// Returns the positions in a blob.
pub(super) fn positions(blob: &[u8]) -> Result<RoaringTreemap> {
    let damaged = |why: &str| Error::damaged(format!("a deletion vector {why}"));
    let short = || damaged("ends too early");
    let (length, rest) = blob.split_first_chunk::<4>().ok_or_else(short)?;
    let (body, checksum) = rest.split_last_chunk::<4>().ok_or_else(short)?;
    if u64::from(u32::from_be_bytes(*length)) != body.len() as u64 {
        return Err(damaged("has another length than it states"));
    }
    let mut crc = flate2::Crc::new();
    crc.update(body);
    if crc.sum() != u32::from_be_bytes(*checksum) {
        return Err(damaged("has another checksum than it states"));
    }
    let bitmaps = body.strip_prefix(&MAGIC).ok_or_else(|| damaged("does not begin with its magic bytes"))?;
    let (count, mut rest) = bitmaps.split_first_chunk::<8>().ok_or_else(short)?;
    let mut all: Vec<(u32, RoaringBitmap)> = Vec::new();
    let mut last = None;
    for _ in 0..u64::from_le_bytes(*count) {
        let (key, behind) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let key = u32::from_le_bytes(*key);
        if last.is_some_and(|last| last >= key) {
            return Err(damaged("has its parts out of order"));
        }
        (rest, last) = (behind, Some(key));
        let bitmap = RoaringBitmap::deserialize_from(&mut rest)
            .map_err(|e| damaged(&format!("has a part that cannot be read: {e}")))?;
        if !bitmap.is_empty() {
            all.push((key, bitmap));
        }
    }
    if rest.is_empty() {
        Ok(RoaringTreemap::from_bitmaps(all))
    } else {
        Err(damaged("continues after its end"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a blob as Iceberg and Delta write it.
    pub(in super::super) fn blob(positions: &RoaringTreemap) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        positions.serialize_into(&mut body).unwrap();
        framed(&body)
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut crc = flate2::Crc::new();
        crc.update(body);
        [&(body.len() as u32).to_be_bytes()[..], body, &crc.sum().to_be_bytes()[..]].concat()
    }

    #[test]
    fn positions_of_all_kinds_of_containers_are_read() {
        for positions in [
            RoaringTreemap::new(),
            RoaringTreemap::from_iter([0, 3, u64::from(u32::MAX) + 7]),
            // An array, a bitmap and a run container.
            RoaringTreemap::from_iter((0..10).chain((65_536..131_072).step_by(2)).chain(200_000..260_000)),
        ] {
            let mut positions = positions;
            assert_eq!(super::positions(&blob(&positions)).unwrap(), positions);
            let runs = positions.bitmaps().map(|(key, bitmap)| {
                let mut bitmap = bitmap.clone();
                bitmap.optimize();
                (key, bitmap)
            });
            positions = RoaringTreemap::from_bitmaps(runs.collect::<Vec<_>>());
            assert_eq!(super::positions(&blob(&positions)).unwrap(), positions);
        }
    }

    /// The blob is the example in Delta's protocol, which Iceberg adopted: 3, 4, 7, 11, 18, 29.
    #[test]
    fn a_blob_that_another_program_wrote_is_read() {
        let body = [
            0xd1, 0xd3, 0x39, 0x64, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0,
            5, 0, 0x10, 0, 0, 0, 3, 0, 4, 0, 7, 0, 11, 0, 18, 0, 29, 0,
        ];
        let found = super::positions(&framed(&body)).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [3, 4, 7, 11, 18, 29]);
    }

    #[test]
    fn a_blob_with_any_byte_changed_or_cut_is_an_error() {
        let positions = RoaringTreemap::from_iter([1, 5, 70_000, 1 << 33]);
        let whole = blob(&positions);
        for at in 0..whole.len() {
            assert!(super::positions(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                assert!(super::positions(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    /// A wrong writer computes a correct checksum of wrong contents, so that the checksum does not reveal them.
    #[test]
    fn a_blob_that_is_wrong_in_itself_is_an_error() {
        let one = |key: u32| {
            let mut part = key.to_le_bytes().to_vec();
            RoaringBitmap::from_iter([1, 2]).serialize_into(&mut part).unwrap();
            part
        };
        let of = |count: u64, parts: &[Vec<u8>]| {
            framed(&[&MAGIC[..], &count.to_le_bytes()[..], &parts.concat()].concat())
        };
        assert_eq!(super::positions(&of(2, &[one(0), one(3)])).unwrap().len(), 4);
        for (count, parts) in [
            (2, vec![one(0)]),
            (1, vec![one(0), one(1)]),
            (2, vec![one(1), one(1)]),
            (2, vec![one(1), one(0)]),
            (u64::MAX, vec![one(0)]),
            (0, vec![vec![0]]),
        ] {
            assert!(super::positions(&of(count, &parts)).is_err(), "{count} {parts:?}");
        }
        assert!(super::positions(&framed(b"\xd1\xd3\x39\x65\0\0\0\0\0\0\0\0")).is_err());
        // Changed bytes of a body under a correct checksum never cause a panic.
        let body = blob(&RoaringTreemap::from_iter((0..300).chain(66_000..66_003)));
        let body = &body[4..body.len() - 4];
        for at in 0..body.len() {
            for value in [0, 1, 0x3b, 0x7f, 0xff] {
                let mut changed = body.to_vec();
                changed[at] = value;
                let _ = super::positions(&framed(&changed));
            }
        }
    }
}

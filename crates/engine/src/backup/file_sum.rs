//! Checksums of a file: its length, its CRC and its hash.
//!
//! The CRC alone finds damage but does not tell one file from another: a file that ends with its own CRC, as a manifest
//! does, has the same CRC whatever its contents. So names are made of the hash (XXH3, 128 bits).

use xxhash_rust::xxh3::Xxh3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSum {
    pub bytes: u64,
    pub crc: u32,
    /// The hash; `None` if it was not recorded, as in a backup in a folder.
    pub hash: Option<u128>,
}

impl FileSum {
    pub fn of(bytes: &[u8]) -> FileSum {
        let mut summing = SumBuilder::default();
        summing.add(bytes);
        summing.finish()
    }

    /// Returns true if a file that was read matches the recorded checksums.
    pub fn matches(&self, read: &FileSum) -> bool {
        let is_hash = self.hash.is_none() || self.hash == read.hash;
        (self.bytes, self.crc) == (read.bytes, read.crc) && is_hash
    }
}

/// A [`FileSum`] under construction.
#[derive(Default)]
pub(crate) struct SumBuilder {
    bytes: u64,
    crc: u32,
    hash: Xxh3,
}

impl SumBuilder {
    pub fn add(&mut self, block: &[u8]) {
        self.bytes += block.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, block);
        self.hash.update(block);
    }

    pub fn finish(self) -> FileSum {
        FileSum { bytes: self.bytes, crc: self.crc, hash: Some(self.hash.digest128()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Manifests of the same length were taken for each other, and one backup for another.
    #[test]
    fn files_that_end_with_their_own_checksum_are_told_apart() {
        let with_crc = |body: &[u8]| [body, &crc32c::crc32c(body).to_le_bytes()].concat();
        let (one, other) = (FileSum::of(&with_crc(b"one lsn")), FileSum::of(&with_crc(b"another")));
        assert_eq!((one.bytes, one.crc), (other.bytes, other.crc), "this is how CRCs are");
        assert!(!one.matches(&other) && one.matches(&one));
        // A backup in a folder has no hash.
        assert!(FileSum { hash: None, ..one }.matches(&one));
    }
}

//! What a file is: its length, its CRC and its hash.
//!
//! The CRC alone tells damage and not one file from another: what ends with its own CRC, as a manifest does, has the same one
//! whatever is in it. So names are made of the hash (XXH3, 128 bits).

use xxhash_rust::xxh3::Xxh3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub bytes: u64,
    pub crc: u32,
    /// `None` where nobody wrote it down, as in a backup in a folder.
    pub hash: Option<u128>,
}

impl Sum {
    pub fn of(bytes: &[u8]) -> Sum {
        let mut summing = Summing::default();
        summing.add(bytes);
        summing.done()
    }

    /// Whether a file that was read is the one that was meant.
    pub fn is(&self, read: &Sum) -> bool {
        let is_hash = self.hash.is_none() || self.hash == read.hash;
        (self.bytes, self.crc) == (read.bytes, read.crc) && is_hash
    }
}

/// A [`Sum`] in the making.
#[derive(Default)]
pub(crate) struct Summing {
    bytes: u64,
    crc: u32,
    hash: Xxh3,
}

impl Summing {
    pub fn add(&mut self, block: &[u8]) {
        self.bytes += block.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, block);
        self.hash.update(block);
    }

    pub fn done(self) -> Sum {
        Sum { bytes: self.bytes, crc: self.crc, hash: Some(self.hash.digest128()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Manifests of one length were taken for each other, and one backup for another.
    #[test]
    fn files_that_end_with_their_own_checksum_are_told_apart() {
        let with_crc = |body: &[u8]| [body, &crc32c::crc32c(body).to_le_bytes()].concat();
        let (one, other) = (Sum::of(&with_crc(b"one lsn")), Sum::of(&with_crc(b"another")));
        assert_eq!((one.bytes, one.crc), (other.bytes, other.crc), "this is how CRCs are");
        assert!(!one.is(&other) && one.is(&one));
        // A backup in a folder has no hash.
        assert!(Sum { hash: None, ..one }.is(&one));
    }
}

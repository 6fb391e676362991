//! The key run: sorted hashes of a segment's keys, each with its row's ordinal, behind a directory of buckets.
//!
//! ```text
//! count u64 · bucket bits u32 · 0 u32 · 2^bits + 1 entry numbers u32 · padding to 8 · count hashes u64 · count ordinals u32
//! ```
//! A bucket holds the hashes with the same top bits, about eight; a lookup reads one directory entry and one bucket.

use arrow::array::{Array, RecordBatch};
use bytes::Bytes;
use types::codec::Encoder;
use types::{Error, Result, key};

use crate::layout::Layout;

const BITS_MAX: u32 = 28;

/// Returns the hashes of a batch's keys, row by row.
pub(crate) fn hashes<'a>(layout: &'a Layout, batch: &'a RecordBatch) -> impl Iterator<Item = u64> + 'a {
    let columns: Vec<&dyn Array> = layout.key.iter().map(|at| batch.column(*at).as_ref()).collect();
    let mut bytes = Vec::new();
    (0..batch.num_rows()).map(move |row| {
        bytes.clear();
        key::encode_row(&layout.key_types, &columns, row, &mut bytes);
        key::hash(&bytes)
    })
}

/// Encodes the section of these `(hash, ordinal)` pairs.
pub(crate) fn encode(mut pairs: Vec<(u64, u32)>) -> Vec<u8> {
    pairs.sort_unstable();
    let bits = (pairs.len() / 8).max(1).ilog2().min(BITS_MAX);
    let mut e = Encoder::new();
    e.bytes.reserve(32 + (4 << bits) + pairs.len() * 12);
    e.u64(pairs.len() as u64);
    e.u32(bits);
    e.u32(0);
    let mut entry = 0;
    for bucket in 0..1u64 << bits {
        e.u32(entry as u32);
        while pairs.get(entry).is_some_and(|(hash, _)| bucket_of(*hash, bits) == bucket as usize) {
            entry += 1;
        }
    }
    e.u32(entry as u32);
    e.bytes.resize(e.bytes.len().next_multiple_of(8), 0);
    pairs.iter().for_each(|(hash, _)| e.u64(*hash));
    pairs.iter().for_each(|(_, ordinal)| e.u32(*ordinal));
    e.bytes
}

fn bucket_of(hash: u64, bits: u32) -> usize {
    // Rust does not shift by 64; with no bits there is one bucket.
    hash.checked_shr(64 - bits).unwrap_or(0) as usize
}

/// A checked key run over mapped bytes.
#[derive(Clone, Debug)]
pub(crate) struct KeyRun {
    bytes: Bytes,
    count: usize,
    bits: u32,
    hashes: usize,
    ordinals: usize,
}

impl KeyRun {
    /// Checks a key run. `rows` bounds the ordinals.
    pub fn open(bytes: Bytes, rows: u64) -> Result<KeyRun> {
        let damaged = |what: &str| Error::damaged(format!("the key run is invalid: {what}"));
        let header = bytes.get(..16).ok_or_else(|| damaged("it is too short"))?;
        let count = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        let bits = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if count != rows || bits > BITS_MAX {
            return Err(damaged(&format!("{count} keys in {bits} bits for {rows} rows")));
        }
        let count = count as usize;
        let hashes = (16 + ((1usize << bits) + 1) * 4).next_multiple_of(8);
        let ordinals = count.checked_mul(8).and_then(|n| n.checked_add(hashes));
        let run = match ordinals {
            Some(ordinals) if ordinals.checked_add(count * 4) == Some(bytes.len()) => {
                KeyRun { bytes, count, bits, hashes, ordinals }
            }
            _ => return Err(damaged("its length does not fit its count")),
        };
        let ascending = (0..1usize << bits).all(|bucket| run.start(bucket) <= run.start(bucket + 1));
        if !ascending || run.start(1 << bits) != count {
            return Err(damaged("its directory does not ascend"));
        }
        if (0..count).any(|entry| u64::from(run.ordinal(entry)) >= rows) {
            return Err(damaged("it names a row that does not exist"));
        }
        Ok(run)
    }

    fn start(&self, bucket: usize) -> usize {
        self.u32(16 + bucket * 4) as usize
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn hash(&self, entry: usize) -> u64 {
        let at = self.hashes + entry * 8;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn ordinal(&self, entry: usize) -> u32 {
        self.u32(self.ordinals + entry * 4)
    }

    /// The ordinals of the rows whose key has this hash.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let bucket = bucket_of(hash, self.bits);
        let entries = self.start(bucket)..self.start(bucket + 1);
        self.touch(hash);
        entries.filter(move |entry| self.hash(*entry) == hash).map(|entry| self.ordinal(entry))
    }

    /// Prefetches the first hash and the first ordinal of a bucket: two loads that do not wait for each other.
    pub fn touch(&self, hash: u64) {
        let entry = self.start(bucket_of(hash, self.bits));
        if entry < self.count {
            std::hint::black_box(self.hash(entry) ^ u64::from(self.ordinal(entry)));
        }
    }

    /// All pairs, for verification.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        (0..self.count).map(|entry| (self.hash(entry), self.ordinal(entry)))
    }
}

#[cfg(test)]
#[path = "key_run/tests.rs"]
mod tests;

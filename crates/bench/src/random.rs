//! Seeded random numbers, and the hashes that prove that a benchmark's work has not changed.

use xxhash_rust::xxh3::Xxh3;

/// A SplitMix64 generator: one word of state, good enough for payloads, the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Creates an independent sequence for part `index` (a thread, a connection, a round) of a seeded run.
    pub fn part(seed: u64, index: u64) -> Self {
        let mut random = Random(seed ^ index.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Random(random.word())
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a bound above zero");
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Appends `length` characters out of `[0-9A-Za-z_-]`.
    pub fn text(&mut self, length: usize, out: &mut Vec<u8>) {
        const ALPHABET: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-";
        let mut left = length;
        while left > 0 {
            let mut word = self.word();
            for _ in 0..left.min(10) {
                out.push(ALPHABET[(word & 63) as usize]);
                word >>= 6;
            }
            left -= left.min(10);
        }
    }
}

/// Hashes the work of a run. The length of each part is hashed too, so moving a boundary changes the hash.
#[derive(Default)]
pub struct WorkHash(Xxh3);

impl WorkHash {
    pub fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// Returns the hash as 32 hexadecimal digits.
    pub fn finish(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(7);
        let mut text = Vec::new();
        random.text(82, &mut text);
        assert_eq!(text.len(), 82);
        let mut hash = WorkHash::default();
        hash.add(&text);
        hash.add(&random.below(1000).to_le_bytes());
        hash.add(&Random::part(7, 3).word().to_le_bytes());
        assert_eq!(hash.finish(), "959b2541f2702f286f294c9ea8572aeb");
    }

    #[test]
    fn moving_a_boundary_changes_the_hash() {
        let (mut a, mut b) = (WorkHash::default(), WorkHash::default());
        a.add(b"ab");
        a.add(b"c");
        b.add(b"a");
        b.add(b"bc");
        assert_ne!(a.finish(), b.finish());
    }
}

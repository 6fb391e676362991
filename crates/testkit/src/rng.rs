//! Random numbers that a seed reproduces. Not for keys.

use std::ops::Range;

/// xoshiro256++, its state filled from the seed by splitmix64 (both by Blackman and Vigna, public domain).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Makes a generator. Equal seeds give equal numbers, on every machine and in every version of Polynya.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Rng { state }
    }

    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let mut next = [s0, s1, s2 ^ s0, s3 ^ s1];
        next[1] ^= next[2];
        next[0] ^= next[3];
        next[2] ^= s1 << 17;
        next[3] = next[3].rotate_left(45);
        self.state = next;
        result
    }

    /// Returns a number uniform over `0..n`; panics if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing to choose from");
        // This is Lemire's multiplication. Its bias is below 2^-32 for any n that a test uses, which is negligible
        // here.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number uniform over a range; panics if it is empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "nothing to choose from");
        range.start + self.below(range.end - range.start)
    }

    /// Returns an index uniform over `0..n`.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns true with this probability: never at 0, always at 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns a number uniform over 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns one of `items`; panics if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }

    /// Returns a random word of lower-case letters.
    pub fn word(&mut self, len: usize) -> String {
        (0..len).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    /// Returns another generator, independent of the later output of this one.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the authors' xoshiro256++ after splitmix64(0), as rand_xoshiro tests them.
    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expected = [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205];
        assert_eq!(std::array::from_fn(|_| rng.next_u64()), expected);
        assert_eq!(Rng::new(0).state[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn equal_seeds_repeat_and_different_ones_differ() {
        assert_eq!(Rng::new(7).bytes(100), Rng::new(7).bytes(100));
        assert_ne!(Rng::new(7).bytes(100), Rng::new(8).bytes(100));
        let mut rng = Rng::new(7);
        assert_ne!(rng.fork(), rng.fork());
    }

    #[test]
    fn every_value_of_a_range_occurs_about_equally_often() {
        let mut rng = Rng::new(1);
        let mut counts = [0; 7];
        for _ in 0..70_000 {
            counts[rng.range(3..10) as usize - 3] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn chances_of_nought_and_one_are_certain() {
        let mut rng = Rng::new(2);
        assert!((0..1000).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
        let hits = (0..10_000).filter(|_| rng.one_in(10)).count();
        assert!((850..1150).contains(&hits), "{hits}");
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}

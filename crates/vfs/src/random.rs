//! The randomness interface.

use std::fmt::Debug;

/// A source of random bytes. The real one is fit for keys and tokens.
pub trait Random: Send + Sync + Debug {
    fn fill(&self, buf: &mut [u8]);

    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

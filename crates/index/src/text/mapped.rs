//! Adapter that hands the bytes of a file to tantivy without a copy.
#![allow(unsafe_code)]

use std::ops::Deref;

use bytes::Bytes;
use stable_deref_trait::StableDeref;
use tantivy::directory::OwnedBytes;

struct Mapped(Bytes);

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

// SAFETY: `Bytes` points to memory that it owns or shares, never to itself; moving the handle leaves the bytes where
// they are, and they stay until the last handle is dropped.
unsafe impl StableDeref for Mapped {}

/// Wraps bytes for tantivy. The bytes are shared, not copied.
pub(super) fn owned(bytes: Bytes) -> OwnedBytes {
    OwnedBytes::new(Mapped(bytes))
}

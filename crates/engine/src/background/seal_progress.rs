//! Bytes that a running seal has already written, which no longer count as debt of the writers.

use std::sync::Arc;

use crate::shared_state::Shared;

/// Bytes of a head that a seal has written. They no longer count as debt: writers are paced by the progress of a seal, not
/// by its end. The value travels with the sealed segment and is dropped together with the head's own bytes. If the bytes
/// were subtracted twice even for a moment, all writers would go on at once.
pub(crate) struct SealProgress {
    shared: Arc<Shared>,
    bytes: u64,
    /// Bytes of the head.
    bytes_max: u64,
}

impl std::fmt::Debug for SealProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.bytes, self.bytes_max)
    }
}

impl SealProgress {
    pub(super) fn new(shared: &Arc<Shared>, bytes_max: u64) -> SealProgress {
        SealProgress { shared: shared.clone(), bytes: 0, bytes_max }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes_max.saturating_sub(self.bytes));
        self.bytes += bytes;
        self.shared.counters.sealing_bytes.add(bytes);
    }
}

impl Drop for SealProgress {
    fn drop(&mut self) {
        self.shared.counters.sealing_bytes.take(self.bytes);
    }
}

//! What a seal under way has done of the debt that writers are paced by.

use std::sync::Arc;

use crate::shared::Shared;

/// Bytes of a head that a seal has written. They are no debt any more: writers are paced by how a seal gets on, not by when
/// it ends. Goes with what was made, and is dropped with the head's own bytes: counted twice even for a moment, they would
/// let all writers go on at once.
pub(crate) struct Sealing {
    shared: Arc<Shared>,
    bytes: u64,
    /// The head's.
    bytes_max: u64,
}

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.bytes, self.bytes_max)
    }
}

impl Sealing {
    pub(super) fn new(shared: &Arc<Shared>, bytes_max: u64) -> Sealing {
        Sealing { shared: shared.clone(), bytes: 0, bytes_max }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes_max.saturating_sub(self.bytes));
        self.bytes += bytes;
        self.shared.counters.sealing_bytes.add(bytes);
    }
}

impl Drop for Sealing {
    fn drop(&mut self) {
        self.shared.counters.sealing_bytes.take(self.bytes);
    }
}

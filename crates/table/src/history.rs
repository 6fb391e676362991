//! The delete history: which commit deleted which row, for followers of the change feed.

use imbl::Vector;
use types::{Lsn, RowId};

/// Deletes that a table remembers: a follower that is further behind has to start over.
pub(crate) const HISTORY_MAX: usize = 1 << 18;

/// The newest deletes in lsn order. Shared with snapshots; a change copies O(log n).
#[derive(Clone, Debug)]
pub(crate) struct DeleteHistory {
    entries: Vector<(u64, u64)>,
    /// Every delete after this lsn is there.
    floor: u64,
    /// What a restored history holds completely: replayed deletes up to here are there, or below the floor.
    restored: u64,
    max: usize,
}

impl Default for DeleteHistory {
    fn default() -> Self {
        DeleteHistory { entries: Vector::new(), floor: 0, restored: 0, max: HISTORY_MAX }
    }
}

impl DeleteHistory {
    pub fn restore(entries: &[(Lsn, RowId)], floor: Lsn, lsn: Lsn) -> Self {
        let entries = entries.iter().map(|(lsn, row)| (lsn.0, row.0)).collect();
        DeleteHistory { entries, floor: floor.0, restored: lsn.0, max: HISTORY_MAX }
    }

    #[cfg(test)]
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub fn floor(&self) -> Lsn {
        Lsn(self.floor)
    }

    pub fn push(&mut self, lsn: Lsn, row: RowId) {
        if lsn.0 <= self.restored {
            return;
        }
        debug_assert!(self.entries.last().is_none_or(|last| last.0 <= lsn.0), "deletes come in lsn order");
        self.entries.push_back((lsn.0, row.0));
        while self.entries.len() > self.max {
            if let Some((lsn, _)) = self.entries.pop_front() {
                self.floor = self.floor.max(lsn);
            }
        }
    }

    /// The deletes after `after`, in lsn order: whole commits, ending with the one that reaches `limit`.
    /// `true` if there may be more.
    pub fn after(&self, after: Lsn, limit: usize) -> (Vec<(u64, u64)>, bool) {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.entries[middle].0 <= after.0 { low = middle + 1 } else { high = middle }
        }
        let mut found: Vec<(u64, u64)> = Vec::new();
        for entry in self.entries.skip(low).iter() {
            if found.len() >= limit && found.last().is_some_and(|last| last.0 != entry.0) {
                return (found, true);
            }
            found.push(*entry);
        }
        (found, false)
    }

    pub fn to_vec(&self) -> Vec<(Lsn, RowId)> {
        // What is at or below the floor may have lost its fellows and serves nobody.
        let kept = self.entries.iter().filter(|(lsn, _)| *lsn > self.floor);
        let mut all: Vec<_> = kept.map(|(lsn, row)| (Lsn(*lsn), RowId(*row))).collect();
        all.sort_unstable();
        all
    }
}

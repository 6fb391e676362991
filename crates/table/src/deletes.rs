//! Delete vectors: the deleted rows of a segment or of the head.

use std::ops::RangeInclusive;
use std::sync::Arc;

use roaring::RoaringTreemap;

/// A copy-on-write set of row ids. Snapshots share it: a change copies only the short list of recent ids, and the bitmap
/// once the list is full, so a commit of one delete never clones a large bitmap.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteVector {
    base: Arc<RoaringTreemap>,
    /// Recently added ids: sorted, disjoint from `base`.
    recent: Arc<Vec<u64>>,
    base_len: u64,
}

impl DeleteVector {
    pub fn from_bitmap(base: RoaringTreemap) -> Self {
        let base_len = base.len();
        DeleteVector { base: Arc::new(base), recent: Arc::default(), base_len }
    }

    pub fn len(&self) -> u64 {
        self.base_len + self.recent.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, row: u64) -> bool {
        self.recent.binary_search(&row).is_ok() || (self.base_len > 0 && self.base.contains(row))
    }

    /// Adds a row id. Returns false if it was in the set already.
    pub fn insert(&mut self, row: u64) -> bool {
        if self.base_len > 0 && self.base.contains(row) {
            return false;
        }
        let Err(at) = self.recent.binary_search(&row) else { return false };
        Arc::make_mut(&mut self.recent).insert(at, row);
        // A larger bitmap is dearer to copy, so it waits for more recent ids.
        if self.recent.len() as u64 >= 512 + (self.base_len / 64).min(3584) {
            self.merge();
        }
        true
    }

    fn merge(&mut self) {
        let base = Arc::make_mut(&mut self.base);
        base.extend(self.recent.iter().copied());
        self.base_len = base.len();
        self.recent = Arc::default();
    }

    /// Counts the ids of the set within `rows`.
    pub fn count(&self, rows: RangeInclusive<u64>) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let recent = self.recent_in(&rows).len() as u64;
        if self.base_len == 0 {
            return recent;
        }
        let below = rows.start().checked_sub(1).map_or(0, |row| self.base.rank(row));
        recent + self.base.rank(*rows.end()) - below
    }

    /// Iterates over the ids of the set within `rows`: those of `base` ascending, then the recent ones, ascending too.
    pub fn iter(&self, rows: RangeInclusive<u64>) -> impl Iterator<Item = u64> + '_ {
        let end = *rows.end();
        let recent = self.recent_in(&rows).iter().copied();
        let mut base = self.base.iter();
        base.advance_to(*rows.start());
        base.take_while(move |row| *row <= end).chain(recent)
    }

    fn recent_in(&self, rows: &RangeInclusive<u64>) -> &[u64] {
        let from = self.recent.partition_point(|row| row < rows.start());
        let to = self.recent.partition_point(|row| row <= rows.end());
        &self.recent[from..to.max(from)]
    }

    pub fn to_bitmap(&self) -> RoaringTreemap {
        let mut bitmap = (*self.base).clone();
        bitmap.extend(self.recent.iter().copied());
        bitmap
    }

    /// Removes the ids below `row` from the set and returns them.
    pub fn split_below(&mut self, row: u64) -> RoaringTreemap {
        let mut below = self.to_bitmap();
        let mut rest = below.clone();
        rest.remove_range(..row);
        below.remove_range(row..);
        *self = Self::from_bitmap(rest);
        below
    }
}

#[cfg(test)]
#[path = "deletes/tests.rs"]
mod tests;

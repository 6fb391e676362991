//! A bounded cache, shared by all tables, of the row ids of data files, which never change. It also holds the pins of
//! readers on data files.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use vfs::{Mutex, Rank};

use crate::file_pins::FilePins;
use crate::row_ids::RowIds;

/// Bytes of row ids in the cache, at most.
const BYTES_MAX: usize = 32 << 20;
/// Bytes of row ids of one file, at most: a larger entry would evict too many others.
const FILE_BYTES_MAX: usize = BYTES_MAX / 4;

#[derive(Debug)]
pub(crate) struct DataFileCache {
    inner: Mutex<Inner>,
    pub pins: FilePins,
}

#[derive(Debug, Default)]
struct Inner {
    by_path: HashMap<Arc<str>, Arc<RowIds>>,
    /// Paths of the entries, the oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
    /// Paths of files that differed from their checksums when they were last read.
    damaged: BTreeSet<Arc<str>>,
}

impl Default for DataFileCache {
    fn default() -> Self {
        let inner = Mutex::new(Rank::new(66, "lake row ids"), Inner::default());
        DataFileCache { inner, pins: FilePins::default() }
    }
}

impl DataFileCache {
    pub fn put(&self, path: &str, ids: Arc<RowIds>) {
        let cost = |path: &str, ids: &RowIds| ids.memory() + 2 * path.len();
        let bytes = cost(path, &ids);
        if bytes > FILE_BYTES_MAX {
            return;
        }
        let path: Arc<str> = path.into();
        // Evicted entries are dropped after the lock is released.
        let mut gone = Vec::new();
        let mut inner = self.inner.lock();
        if inner.by_path.contains_key(&path) {
            return;
        }
        while inner.bytes + bytes > BYTES_MAX {
            let Some(oldest) = inner.order.pop_front() else { break };
            if let Some(ids) = inner.by_path.remove(&oldest) {
                inner.bytes -= cost(&oldest, &ids);
                gone.push(ids);
            }
        }
        inner.bytes += bytes;
        inner.order.push_back(path.clone());
        inner.by_path.insert(path, ids);
        drop(inner);
    }

    /// Records whether a file matched its checksums.
    pub fn record_check(&self, path: &str, is_damaged: bool) {
        let mut inner = self.inner.lock();
        if is_damaged {
            inner.damaged.insert(path.into());
        } else {
            inner.damaged.remove(path);
        }
    }

    pub fn is_damaged(&self, path: &str) -> bool {
        self.inner.lock().damaged.contains(path)
    }

    /// Returns the number of files known to be damaged.
    pub fn damaged_count(&self) -> usize {
        self.inner.lock().damaged.len()
    }

    pub fn get(&self, path: &str) -> Option<Arc<RowIds>> {
        self.inner.lock().by_path.get(path).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_ids::Builder;

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let cache = DataFileCache::default();
        // An id takes about two bytes here.
        let ids = || {
            let mut builder = Builder::default();
            (0..1_000_000).for_each(|n| builder.push(n * 21).unwrap());
            Arc::new(builder.finish().unwrap().unwrap())
        };
        let ids = ids();
        for n in 0..40 {
            cache.put(&format!("file {n}"), ids.clone());
            assert!(cache.get(&format!("file {n}")).is_some());
        }
        assert!(cache.get("file 0").is_none() && cache.get("file 30").is_some());
        assert!(cache.inner.lock().bytes <= BYTES_MAX);
    }
}

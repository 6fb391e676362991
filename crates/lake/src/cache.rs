//! What is remembered of data files, which never change. Bounded, one for all tables. Beside it, which of them readers hold.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use vfs::{Mutex, Rank};

use crate::pins::Pins;
use crate::row_ids::RowIds;

/// Row ids that are remembered.
const BYTES_MAX: usize = 32 << 20;
/// Of one file no more than this: it would push out too many others.
const FILE_BYTES_MAX: usize = BYTES_MAX / 4;

#[derive(Debug)]
pub(crate) struct Cache(Mutex<Inner>, pub(crate) Pins);

#[derive(Debug, Default)]
struct Inner {
    by_path: HashMap<Arc<str>, Arc<RowIds>>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
    /// Files that were not what was written when they were read last.
    damaged: BTreeSet<Arc<str>>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache(Mutex::new(Rank::new(66, "lake row ids"), Inner::default()), Pins::default())
    }
}

impl Cache {
    pub fn put(&self, path: &str, ids: Arc<RowIds>) {
        let cost = |path: &str, ids: &RowIds| ids.memory() + 2 * path.len();
        let bytes = cost(path, &ids);
        if bytes > FILE_BYTES_MAX {
            return;
        }
        let path: Arc<str> = path.into();
        // Let go of behind the lock.
        let mut gone = Vec::new();
        let mut inner = self.0.lock();
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

    /// Remembers whether a file is what was written.
    pub fn note(&self, path: &str, is_damaged: bool) {
        let mut inner = self.0.lock();
        match is_damaged {
            true => drop(inner.damaged.insert(path.into())),
            false => drop(inner.damaged.remove(path)),
        }
    }

    pub fn is_damaged(&self, path: &str) -> bool {
        self.0.lock().damaged.contains(path)
    }

    /// How many files are damaged, as far as they were read.
    pub fn damaged(&self) -> usize {
        self.0.lock().damaged.len()
    }

    pub fn get(&self, path: &str) -> Option<Arc<RowIds>> {
        self.0.lock().by_path.get(path).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_ids::Builder;

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let cache = Cache::default();
        // About two bytes a row.
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
        assert!(cache.0.lock().bytes <= BYTES_MAX);
    }
}

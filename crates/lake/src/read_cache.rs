//! A cache for readers of evicted rows: footers, decoded columns of parts of row groups, and byte ranges of remote files.
//! It is shared by all tables and bounded by bytes.
//!
//! It has no lock: each slot is swapped atomically (R1). A reader that misses reads the value itself, and two readers may
//! do so at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use arrow::array::{Array, ArrayRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use table::LakeRows;
use xxhash_rust::xxh3::Xxh3;

/// Number of slots that a key may occupy.
const WAYS: usize = 8;
/// Approximate bytes per slot, from which the number of slots follows.
const SLOT_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    /// The path of a file, or the name of a table's position.
    pub source: Arc<str>,
    pub part: CachedPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedPart {
    Footer,
    /// A column of the `nth` part of a file, which has a fixed number of rows.
    Column {
        nth: u64,
        column: u32,
    },
    /// The `nth` byte range of a file, of fixed size.
    Bytes {
        nth: u64,
    },
    /// Some columns of the `nth` range of row ids, sorted by id.
    Window {
        nth: u64,
        columns: u64,
    },
}

#[derive(Clone)]
pub(crate) enum CachedValue {
    Footer(ArrowReaderMetadata),
    Column(ArrayRef),
    Bytes(Bytes),
    Window(Arc<LakeRows>),
}

struct CacheEntry {
    key: CacheKey,
    value: CachedValue,
    bytes: usize,
    used: AtomicBool,
}

/// Statistics of reading evicted rows since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Row groups that were decoded from, counted at each access.
    pub row_groups: u64,
    /// Parts that were decoded: up to 16,384 rows of some columns.
    pub parts: u64,
    /// Bytes of decoded arrays in memory.
    pub bytes: u64,
    /// Columns of parts that were found in the cache.
    pub found: u64,
    /// Requests to the object store.
    pub requests: u64,
    /// Bytes in the cache now, and their limit.
    pub cached_bytes: u64,
    pub cached_bytes_max: u64,
}

/// Handle to the statistics of reading evicted rows.
#[derive(Clone, Debug)]
pub struct ReadStatistics(pub(crate) Arc<ReadCache>);

impl ReadStatistics {
    pub fn counts(&self) -> ReadCounts {
        self.0.counts()
    }
}

/// The cache; see the module.
pub(crate) struct ReadCache {
    slots: Box<[ArcSwapOption<CacheEntry>]>,
    bytes: AtomicUsize,
    bytes_max: usize,
    hand: AtomicUsize,
    pub row_groups: AtomicU64,
    pub parts: AtomicU64,
    pub decoded_bytes: AtomicU64,
    pub found: AtomicU64,
    pub requests: AtomicU64,
    /// Monotonic time in µs until which a store that did not answer gets no further request.
    pub unavailable_until: AtomicU64,
}

impl fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadCache({} of {} bytes)", self.bytes.load(Relaxed), self.bytes_max)
    }
}

impl ReadCache {
    pub fn new(bytes_max: usize) -> ReadCache {
        let count = (bytes_max / SLOT_BYTES).clamp(256, 1 << 16).next_power_of_two();
        ReadCache {
            slots: (0..count).map(|_| ArcSwapOption::empty()).collect(),
            bytes: AtomicUsize::new(0),
            bytes_max,
            hand: AtomicUsize::new(0),
            row_groups: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            decoded_bytes: AtomicU64::new(0),
            found: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            unavailable_until: AtomicU64::new(0),
        }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn counts(&self) -> ReadCounts {
        ReadCounts {
            row_groups: self.row_groups.load(Relaxed),
            parts: self.parts.load(Relaxed),
            bytes: self.decoded_bytes.load(Relaxed),
            found: self.found.load(Relaxed),
            requests: self.requests.load(Relaxed),
            cached_bytes: self.bytes.load(Relaxed) as u64,
            cached_bytes_max: self.bytes_max as u64,
        }
    }

    fn ways(&self, key: &CacheKey) -> impl Iterator<Item = &ArcSwapOption<CacheEntry>> {
        let mut hasher = Xxh3::new();
        hasher.update(key.source.as_bytes());
        let (tag, a, b) = match key.part {
            CachedPart::Footer => (0u64, 0, 0),
            CachedPart::Column { nth, column } => (1, nth, u64::from(column)),
            CachedPart::Bytes { nth } => (2, nth, 0),
            CachedPart::Window { nth, columns } => (3, nth, columns),
        };
        [tag, a, b].iter().for_each(|number| hasher.update(&number.to_le_bytes()));
        let (first, mask) = (hasher.digest() as usize, self.slots.len() - 1);
        (0..WAYS).map(move |way| &self.slots[first.wrapping_add(way) & mask])
    }

    pub fn get(&self, key: &CacheKey) -> Option<CachedValue> {
        self.ways(key).find_map(|slot| {
            let entry = slot.load();
            let entry = entry.as_ref().filter(|entry| entry.key == *key)?;
            if !entry.used.load(Relaxed) {
                entry.used.store(true, Relaxed);
            }
            Some(entry.value.clone())
        })
    }

    pub fn put(&self, key: CacheKey, value: CachedValue) {
        let bytes = 128 + key.source.len() + value.bytes();
        // A single value must not evict all others.
        if bytes > self.bytes_max / 4 {
            return;
        }
        let slot = {
            let is_free =
                |slot: &&ArcSwapOption<CacheEntry>| slot.load().as_ref().is_none_or(|entry| entry.key == key);
            let is_idle = |slot: &&ArcSwapOption<CacheEntry>| {
                slot.load().as_ref().is_none_or(|entry| !entry.used.swap(false, Relaxed))
            };
            let free = self.ways(&key).find(is_free);
            let Some(slot) =
                free.or_else(|| self.ways(&key).find(is_idle)).or_else(|| self.ways(&key).next())
            else {
                return;
            };
            slot
        };
        self.bytes.fetch_add(bytes, Relaxed);
        self.release_bytes(slot.swap(Some(Arc::new(CacheEntry {
            key,
            value,
            bytes,
            used: AtomicBool::new(false),
        }))));
        // Two rounds of the clock hand: entries that were not used since the last round go first.
        for _ in 0..2 * self.slots.len() {
            if self.bytes.load(Relaxed) <= self.bytes_max {
                break;
            }
            let slot = &self.slots[self.hand.fetch_add(1, Relaxed) & (self.slots.len() - 1)];
            if slot.load().as_ref().is_some_and(|entry| !entry.used.swap(false, Relaxed)) {
                self.release_bytes(slot.swap(None));
            }
        }
    }

    fn release_bytes(&self, entry: Option<Arc<CacheEntry>>) {
        if let Some(entry) = entry {
            self.bytes.fetch_sub(entry.bytes, Relaxed);
        }
    }
}

impl CachedValue {
    fn bytes(&self) -> usize {
        match self {
            CachedValue::Footer(footer) => footer.metadata().memory_size() + 1024,
            CachedValue::Column(array) => array.get_array_memory_size(),
            CachedValue::Bytes(bytes) => bytes.len(),
            CachedValue::Window(found) => rows_bytes(found),
        }
    }
}

pub(crate) fn rows_bytes(found: &LakeRows) -> usize {
    let columns = found.columns.iter().flatten().map(|column| column.get_array_memory_size());
    found.row_ids.get_array_memory_size() + columns.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(nth: u64) -> CacheKey {
        CacheKey { source: "file".into(), part: CachedPart::Bytes { nth } }
    }

    #[test]
    fn no_more_is_kept_than_the_bound_says_and_what_is_used_stays_longest() {
        let slots = ReadCache::new(1 << 20);
        for nth in 0..10_000 {
            slots.put(key(nth), CachedValue::Bytes(vec![0; 4 << 10].into()));
            assert!(slots.counts().cached_bytes <= 1 << 20);
            // Used between any two other insertions.
            if nth > 0 && slots.get(&key(0)).is_none() {
                slots.put(key(0), CachedValue::Bytes(vec![0; 4 << 10].into()));
            }
        }
        let entry = (0..10_000).filter(|nth| slots.get(&key(*nth)).is_some()).count();
        assert!((100..=256).contains(&entry), "{entry}");
        slots.put(key(1), CachedValue::Bytes(vec![0; 512 << 10].into()));
        assert!(slots.get(&key(1)).is_none(), "one thing does not push out all others");
    }
}

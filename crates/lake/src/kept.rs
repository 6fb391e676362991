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
pub(crate) struct Key {
    /// The path of a file, or the name of a table's position.
    pub of: Arc<str>,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
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
pub(crate) enum Kept {
    Footer(ArrowReaderMetadata),
    Column(ArrayRef),
    Bytes(Bytes),
    Window(Arc<LakeRows>),
}

struct Held {
    key: Key,
    value: Kept,
    bytes: usize,
    used: AtomicBool,
}

/// Statistics of reading evicted rows since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
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
    pub kept_bytes: u64,
    pub kept_bytes_max: u64,
}

/// Handle to the statistics of reading evicted rows.
#[derive(Clone, Debug)]
pub struct Reads(pub(crate) Arc<Slots>);

impl Reads {
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

/// The cache; see the module.
pub(crate) struct Slots {
    slots: Box<[ArcSwapOption<Held>]>,
    bytes: AtomicUsize,
    bytes_max: usize,
    hand: AtomicUsize,
    pub row_groups: AtomicU64,
    pub parts: AtomicU64,
    pub unpacked: AtomicU64,
    pub found: AtomicU64,
    pub requests: AtomicU64,
    /// Monotonic time in µs until which a store that did not answer gets no further request.
    pub away_until: AtomicU64,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots({} of {} bytes)", self.bytes.load(Relaxed), self.bytes_max)
    }
}

impl Slots {
    pub fn new(bytes_max: usize) -> Slots {
        let count = (bytes_max / SLOT_BYTES).clamp(256, 1 << 16).next_power_of_two();
        Slots {
            slots: (0..count).map(|_| ArcSwapOption::empty()).collect(),
            bytes: AtomicUsize::new(0),
            bytes_max,
            hand: AtomicUsize::new(0),
            row_groups: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            unpacked: AtomicU64::new(0),
            found: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            away_until: AtomicU64::new(0),
        }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn counts(&self) -> Counts {
        Counts {
            row_groups: self.row_groups.load(Relaxed),
            parts: self.parts.load(Relaxed),
            bytes: self.unpacked.load(Relaxed),
            found: self.found.load(Relaxed),
            requests: self.requests.load(Relaxed),
            kept_bytes: self.bytes.load(Relaxed) as u64,
            kept_bytes_max: self.bytes_max as u64,
        }
    }

    fn ways(&self, key: &Key) -> impl Iterator<Item = &ArcSwapOption<Held>> {
        let mut hasher = Xxh3::new();
        hasher.update(key.of.as_bytes());
        let (tag, a, b) = match key.part {
            Part::Footer => (0u64, 0, 0),
            Part::Column { nth, column } => (1, nth, u64::from(column)),
            Part::Bytes { nth } => (2, nth, 0),
            Part::Window { nth, columns } => (3, nth, columns),
        };
        [tag, a, b].iter().for_each(|number| hasher.update(&number.to_le_bytes()));
        let (first, mask) = (hasher.digest() as usize, self.slots.len() - 1);
        (0..WAYS).map(move |way| &self.slots[first.wrapping_add(way) & mask])
    }

    pub fn get(&self, key: &Key) -> Option<Kept> {
        self.ways(key).find_map(|slot| {
            let held = slot.load();
            let held = held.as_ref().filter(|held| held.key == *key)?;
            if !held.used.load(Relaxed) {
                held.used.store(true, Relaxed);
            }
            Some(held.value.clone())
        })
    }

    pub fn put(&self, key: Key, value: Kept) {
        let bytes = 128 + key.of.len() + value.bytes();
        // A single value must not evict all others.
        if bytes > self.bytes_max / 4 {
            return;
        }
        let slot = {
            let is_free =
                |slot: &&ArcSwapOption<Held>| slot.load().as_ref().is_none_or(|held| held.key == key);
            let is_idle = |slot: &&ArcSwapOption<Held>| {
                slot.load().as_ref().is_none_or(|held| !held.used.swap(false, Relaxed))
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
        self.let_go(slot.swap(Some(Arc::new(Held { key, value, bytes, used: AtomicBool::new(false) }))));
        // Two rounds of the clock hand: entries that were not used since the last round go first.
        for _ in 0..2 * self.slots.len() {
            if self.bytes.load(Relaxed) <= self.bytes_max {
                break;
            }
            let slot = &self.slots[self.hand.fetch_add(1, Relaxed) & (self.slots.len() - 1)];
            if slot.load().as_ref().is_some_and(|held| !held.used.swap(false, Relaxed)) {
                self.let_go(slot.swap(None));
            }
        }
    }

    fn let_go(&self, held: Option<Arc<Held>>) {
        if let Some(held) = held {
            self.bytes.fetch_sub(held.bytes, Relaxed);
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Footer(footer) => footer.metadata().memory_size() + 1024,
            Kept::Column(array) => array.get_array_memory_size(),
            Kept::Bytes(bytes) => bytes.len(),
            Kept::Window(found) => found_bytes(found),
        }
    }
}

pub(crate) fn found_bytes(found: &LakeRows) -> usize {
    let columns = found.columns.iter().flatten().map(|column| column.get_array_memory_size());
    found.row_ids.get_array_memory_size() + columns.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(nth: u64) -> Key {
        Key { of: "file".into(), part: Part::Bytes { nth } }
    }

    #[test]
    fn no_more_is_kept_than_the_bound_says_and_what_is_used_stays_longest() {
        let slots = Slots::new(1 << 20);
        for nth in 0..10_000 {
            slots.put(key(nth), Kept::Bytes(vec![0; 4 << 10].into()));
            assert!(slots.counts().kept_bytes <= 1 << 20);
            // Used between any two other insertions.
            if nth > 0 && slots.get(&key(0)).is_none() {
                slots.put(key(0), Kept::Bytes(vec![0; 4 << 10].into()));
            }
        }
        let held = (0..10_000).filter(|nth| slots.get(&key(*nth)).is_some()).count();
        assert!((100..=256).contains(&held), "{held}");
        slots.put(key(1), Kept::Bytes(vec![0; 512 << 10].into()));
        assert!(slots.get(&key(1)).is_none(), "one thing does not push out all others");
    }
}

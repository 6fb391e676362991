//! The head's key map: from a key's hash to the rows that may have the key.
//!
//! An entry is only a hint: a reader that follows it checks that the row lives in its snapshot and has the key. So entries are
//! never changed or removed, and all snapshots of a table share one [`Slots`]. A snapshot may see hints of rows that came after
//! it; they lead to nothing. The hints that it needs are there, since a row's hint is written before the root that holds the row
//! is published.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::GenericHashMap;
use imbl::shared_ptr::DefaultSharedPtr;

/// Number of rows in a full generation; then the next one begins. Sealing drops whole generations instead of removing key by key.
const GENERATION_ROWS: u64 = 1 << 18;
/// Number of rows with which the first generation begins. It grows fourfold until it has [`GROWN_ROWS`]; growing a larger one
/// would hold a commit up while its rows are entered again.
const FIRST_ROWS: u64 = 1 << 8;
const GROWN_ROWS: u64 = 1 << 16;
/// Number of bits in a slot that hold the row: its distance from the generation's first row, plus one.
const ROW_BITS: u32 = 28;
/// Number of row ids that one generation can span.
const SPAN_MAX: u64 = (1 << ROW_BITS) - 1;
/// Number of slots that are probed for one hash.
const PROBES_MAX: usize = 64;
/// Number of entries of one hash: a key that is written again and again must not fill the slots of its neighbours.
const ALIKE_MAX: usize = 8;

/// Candidate rows for a key. Entries may be stale: the row may be deleted, sealed, not yet published, or of another key with the
/// same hash. Each live head row of a keyed table has an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyMap {
    generations: Vec<Generation>,
    /// True if the next row begins a generation, because another map shares the last one.
    is_forked: bool,
}

#[derive(Clone, Debug)]
struct Generation {
    first: u64,
    /// The row id after the last one.
    end: u64,
    rows: u64,
    rows_max: u64,
    slots: Arc<Slots>,
    /// The newest row of each hash that found no slot. Nearly always empty.
    more: Map,
    /// Older live rows, with the tag of their hash, whose entry in `more` another live key took over.
    collisions: Arc<Vec<(u64, u64)>>,
}

/// An open-addressing table of hints. It has twice as many slots as rows, so that a probe ends soon.
#[derive(Debug)]
struct Slots {
    /// One entry a slot: the upper bits of a hash, and below them the row; 0 is free.
    slots: Box<[AtomicU64]>,
}

type Map = GenericHashMap<u64, u64, BuildHasherDefault<Identity>, DefaultSharedPtr>;

/// Passes keys through, which are XXH3 hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 hashes are hashed")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl KeyMap {
    /// Enters a new row, the highest so far. `keeps` returns true if an older row with the same hash is live and of another key,
    /// so that its entry must stay.
    pub fn insert(&mut self, hash: u64, row: u64, keeps: impl FnOnce(u64) -> bool) {
        let is_full = |g: &Generation| g.rows == g.rows_max || row - g.first >= SPAN_MAX;
        if self.is_forked || self.generations.last().is_none_or(is_full) {
            self.begin(row);
        }
        let generation = self.generations.last_mut().expect("one was begun if there was none");
        generation.end = row + 1;
        generation.rows += 1;
        if generation.slots.insert(hash, row - generation.first) {
            return;
        }
        if let Some(older) = generation.more.insert(tag(hash), row)
            && keeps(older)
        {
            Arc::make_mut(&mut generation.collisions).push((tag(hash), older));
        }
    }

    /// Calls `accept` with the rows that may have this hash and returns its first result that is not `None`. All rows from `from`
    /// on with this hash are among them; older ones may be too.
    pub fn find_map<T>(&self, hash: u64, from: u64, mut accept: impl FnMut(u64) -> Option<T>) -> Option<T> {
        for g in self.generations.iter().rev().take_while(|g| g.end > from) {
            if !g.more.is_empty() {
                let collided = g.collisions.iter().rev().filter(|(other, _)| *other == tag(hash));
                let mut rows =
                    g.more.get(&tag(hash)).copied().into_iter().chain(collided.map(|(_, row)| *row));
                let found = rows.find_map(&mut accept);
                if found.is_some() {
                    return found;
                }
            }
            let found = g.slots.rows(hash).find_map(|at| accept(g.first + at));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Prefetches the slots where the probes of these hashes begin. Unlike lookups, these loads do not wait for each other.
    pub fn touch(&self, hashes: impl Iterator<Item = u64>) {
        let first = |hash: u64| {
            let slots = self.generations.iter().map(|g| &g.slots);
            slots.fold(0, |all, slots| all ^ slots.slots[slots.start(hash)].load(Ordering::Relaxed))
        };
        std::hint::black_box(hashes.fold(0, |all, hash| all ^ first(hash)));
    }

    /// Drops the generations whose rows are all below `row`.
    pub fn drop_below(&mut self, row: u64) {
        self.generations.retain(|g| g.end > row);
    }

    /// Drops generations like [`KeyMap::drop_below`]. If it dropped any, returns the row id from which on all entered rows are
    /// still in the map.
    pub fn forget_below(&mut self, row: u64) -> Option<u64> {
        let before = self.generations.len();
        self.drop_below(row);
        // Rows between `row` and the first remaining one were never entered.
        let first = self.generations.first().map_or(row, |g| g.first.min(row));
        (self.generations.len() < before).then_some(first)
    }

    /// Separates this map from its clones: entries made from now on are only in this one.
    pub fn fork(&mut self) {
        self.is_forked = true;
    }

    /// Begins a generation for `row`, or enlarges the last one.
    fn begin(&mut self, row: u64) {
        let last = if self.is_forked { None } else { self.generations.last_mut() };
        self.is_forked = false;
        match last {
            Some(last) if last.rows_max < GROWN_ROWS && row - last.first < SPAN_MAX => {
                last.rows_max *= 4;
                let (slots, left) = last.slots.grown(last.rows_max);
                last.slots = Arc::new(slots);
                for (tag, at) in left {
                    if let Some(other) = last.more.insert(tag, last.first + at) {
                        Arc::make_mut(&mut last.collisions).push((tag, other));
                    }
                }
            }
            last => {
                let rows_max = match last {
                    Some(last) if last.rows == last.rows_max => GENERATION_ROWS,
                    _ => FIRST_ROWS,
                };
                self.generations.push(Generation {
                    first: row,
                    end: row,
                    rows: 0,
                    rows_max,
                    slots: Arc::new(Slots::for_rows(rows_max)),
                    more: Map::default(),
                    collisions: Arc::default(),
                });
            }
        }
    }
}

impl Slots {
    fn for_rows(rows: u64) -> Slots {
        Slots { slots: (0..rows * 2).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Index of the slot where the probes of a hash begin. It depends on the highest bits of the hash, which a slot holds, so
    /// that slots can be entered again in a larger table.
    fn start(&self, hash: u64) -> usize {
        (hash >> (64 - self.slots.len().ilog2())) as usize
    }

    fn probes(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let (start, mask) = (self.start(hash), self.slots.len() - 1);
        (start..start + PROBES_MAX.min(self.slots.len())).map(move |at| &self.slots[at & mask])
    }

    /// Enters a row. Returns false if there is no slot for it. `row` is a distance from the generation's first row. Several
    /// threads may insert at once, although only the commit thread does.
    fn insert(&self, hash: u64, row: u64) -> bool {
        let entry = (hash >> ROW_BITS << ROW_BITS) | (row + 1);
        let mut alike = 0;
        for slot in self.probes(hash) {
            // Relaxed: the publication of a row makes its hint visible to readers.
            let other = match slot.load(Ordering::Relaxed) {
                0 => match slot.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return true,
                    Err(other) => other,
                },
                other => other,
            };
            alike += usize::from(tag(other) == tag(hash));
            if alike >= ALIKE_MAX {
                return false;
            }
        }
        false
    }

    /// The rows that may have this hash, as distances from the generation's first row.
    fn rows(&self, hash: u64) -> impl Iterator<Item = u64> {
        self.probes(hash)
            .map(|slot| slot.load(Ordering::Relaxed))
            .take_while(|entry| *entry != 0)
            .filter(move |entry| tag(*entry) == tag(hash))
            .map(distance)
    }

    /// Copies the hints into a larger table. Also returns those that found no slot there, as tag and distance.
    fn grown(&self, rows: u64) -> (Slots, Vec<(u64, u64)>) {
        let (grown, mut left) = (Slots::for_rows(rows), Vec::new());
        for slot in &self.slots {
            let entry = slot.load(Ordering::Relaxed);
            if entry != 0 && !grown.insert(entry, distance(entry)) {
                left.push((tag(entry), distance(entry)));
            }
        }
        (grown, left)
    }
}

/// The upper bits of a hash, which a slot holds.
fn tag(hash: u64) -> u64 {
    hash >> ROW_BITS
}

/// The distance of a slot's row from the generation's first row.
fn distance(entry: u64) -> u64 {
    (entry & ((1 << ROW_BITS) - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: &KeyMap, hash: u64) -> Vec<u64> {
        let mut rows = Vec::new();
        map.find_map(hash, 0, |row| {
            rows.push(row);
            None::<()>
        });
        rows.sort_unstable();
        rows
    }

    /// A hash that is spread as well as one of XXH3.
    fn hash(n: u64) -> u64 {
        n.wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31)
            .wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    #[test]
    fn every_row_is_found_while_the_map_grows_and_generations_begin() {
        let rows = GROWN_ROWS + 2 * GENERATION_ROWS + 5;
        let (mut map, first) = (KeyMap::default(), 7);
        for row in 0..rows {
            map.insert(hash(row), first + row, |_| unreachable!("no hash comes twice"));
            let is_turn = row.is_power_of_two() || (row + 1).is_power_of_two();
            for known in (0..=row).step_by(if is_turn { 1 + row as usize / 1_000 } else { rows as usize }) {
                assert!(found(&map, hash(known)).contains(&(first + known)), "{known} at {row}");
            }
        }
        assert_eq!(map.generations.len(), 4);
        let strays: usize = (rows..rows + 100_000).map(|row| found(&map, hash(row)).len()).sum();
        assert!(strays < 10, "{strays} hints for nothing");
        map.drop_below(first + GROWN_ROWS);
        assert_eq!(map.generations.len(), 3);
        assert!(found(&map, hash(0)).is_empty());
        assert_eq!(found(&map, hash(rows - 1)), [first + rows - 1]);
    }

    #[test]
    fn a_key_that_is_written_again_and_again_is_found_in_a_few_steps_and_costs_its_neighbours_nothing() {
        let mut map = KeyMap::default();
        for row in 0..100_000 {
            // Each version ends when the next is written.
            map.insert(hash(1), row, |_| false);
        }
        let rows = found(&map, hash(1));
        assert!(rows.contains(&99_999) && rows.len() < 64, "{rows:?}");
        assert!(map.generations.iter().all(|g| g.collisions.is_empty()));
        map.insert(hash(2), 100_000, |_| false);
        assert_eq!(found(&map, hash(2)), [100_000]);
    }

    #[test]
    fn keys_of_one_hash_are_all_found() {
        let mut map = KeyMap::default();
        for row in 0..3_000 {
            map.insert(hash(1), row, |_| true);
            assert_eq!(found(&map, hash(1)).len() as u64, row + 1);
        }
    }

    /// A user who chooses keys with bad hashes may make lookups slow, but never wrong.
    #[test]
    fn hashes_that_all_begin_alike_are_all_found() {
        let mut map = KeyMap::default();
        let alike = |n: u64| (5 << 40) | (n << ROW_BITS);
        for row in 0..3_000 {
            map.insert(alike(row), row, |_| unreachable!("no hash comes twice"));
        }
        for row in 0..3_000 {
            assert_eq!(found(&map, alike(row)), [row]);
        }
    }

    /// An index over a column that is nearly always null has such rows, and so has a table most of whose rows are deleted.
    #[test]
    fn rows_far_apart_take_the_room_of_few() {
        let (mut map, step) = (KeyMap::default(), 1 << 22);
        (0..1_000).for_each(|n| map.insert(hash(n), n * step, |_| false));
        assert!((0..1_000).all(|n| found(&map, hash(n)).contains(&(n * step))));
        let slots: usize = map.generations.iter().map(|g| g.slots.slots.len()).sum();
        assert!(slots < 64_000, "{slots}");
        assert_eq!(map.forget_below(500 * step), Some(map.generations[0].first));
        assert!((500..1_000).all(|n| found(&map, hash(n)).contains(&(n * step))));
    }

    /// Rows with a null are not entered. If only such rows came after the forgotten ones, lookups from the next row on were once
    /// answered with "unknown".
    #[test]
    fn rows_that_were_never_entered_are_not_taken_for_forgotten() {
        let mut map = KeyMap::default();
        (0..10).for_each(|row| map.insert(hash(row), row, |_| false));
        map.fork();
        map.insert(hash(15), 15, |_| false);
        assert_eq!(map.forget_below(9), None);
        assert_eq!(map.forget_below(12), Some(12));
        assert!(found(&map, hash(3)).is_empty() && found(&map, hash(15)) == [15]);
        assert_eq!(map.forget_below(20), Some(20));
    }

    #[test]
    fn a_snapshot_keeps_its_rows_whatever_comes_after_it_and_what_goes_its_own_way_stays_alone() {
        let mut map = KeyMap::default();
        (0..300).for_each(|row| map.insert(hash(row), row, |_| false));
        let held = map.clone();
        let mut own = map.clone();
        own.fork();
        own.insert(hash(90_000), 300, |_| false);
        assert_eq!(found(&own, hash(90_000)), [300]);
        (300..70_000).for_each(|row| map.insert(hash(row), row, |_| false));
        assert!(found(&map, hash(90_000)).is_empty() && found(&held, hash(90_000)).is_empty());
        for row in 0..300 {
            assert!(found(&held, hash(row)).contains(&row) && found(&own, hash(row)).contains(&row));
        }
    }

    #[test]
    fn threads_that_enter_hints_at_once_lose_none() {
        let _limit = testkit::limit(60);
        let slots = Slots::for_rows(1 << 12);
        std::thread::scope(|scope| {
            for part in 0..4 {
                let slots = &slots;
                scope.spawn(move || {
                    (part * 1_000..(part + 1) * 1_000).for_each(|row| assert!(slots.insert(hash(row), row)))
                });
            }
        });
        assert!((0..4_000).all(|row| slots.rows(hash(row)).any(|found| found == row)));
    }
}

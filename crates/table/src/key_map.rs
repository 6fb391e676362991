//! Where the head's keys are: a persistent map from key hash to row id.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use imbl::GenericHashMap;
use imbl::shared_ptr::DefaultSharedPtr;

/// Keys are XXH3 hashes already.
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

type Map = GenericHashMap<u64, u64, BuildHasherDefault<Identity>, DefaultSharedPtr>;

/// A map covers so many rows; then the next is begun. Sealing drops whole maps instead of removing key by key, and leaves
/// what it cannot drop: an entry is only a hint, whoever follows it looks at the row.
const GENERATION_ROWS: u64 = 1 << 18;

/// Candidates for a key, newest first. Entries may be stale: the row may be deleted, sealed, or of another key with the
/// same hash; each live head row of a keyed table has an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyMap {
    generations: Vec<Generation>,
}

#[derive(Clone, Debug)]
struct Generation {
    first: u64,
    /// Past its last row.
    end: u64,
    map: Map,
    /// Live rows whose hash another live key had already: practically always empty.
    collisions: Arc<Vec<(u64, u64)>>,
}

impl KeyMap {
    /// Enters a new row, the highest so far. `keeps` says whether an older row with the same hash is live and of another
    /// key, so that its entry must stay.
    pub fn insert(&mut self, hash: u64, row: u64, keeps: impl FnOnce(u64) -> bool) {
        if self.generations.last().is_none_or(|g| row - g.first >= GENERATION_ROWS) {
            let fresh = Generation { first: row, end: row, map: Map::default(), collisions: Arc::default() };
            self.generations.push(fresh);
        }
        let generation = self.generations.last_mut().expect("one was pushed if there was none");
        generation.end = row + 1;
        if let Some(older) = generation.map.insert(hash, row)
            && keeps(older)
        {
            Arc::make_mut(&mut generation.collisions).push((hash, older));
        }
    }

    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = u64> + '_ {
        self.generations.iter().rev().flat_map(move |g| {
            let collided = g.collisions.iter().rev().filter(move |(h, _)| *h == hash).map(|(_, row)| *row);
            g.map.get(&hash).copied().into_iter().chain(collided)
        })
    }

    /// Forgets maps all of whose rows are below `row`.
    pub fn drop_below(&mut self, row: u64) {
        self.generations.retain(|g| g.end > row);
    }

    /// [`KeyMap::drop_below`] that tells from which row on entries are left, if it forgot some.
    pub fn forget_below(&mut self, row: u64) -> Option<u64> {
        let before = self.generations.len();
        self.drop_below(row);
        let first = self.generations.first().map_or(row, |g| g.first);
        (self.generations.len() < before).then_some(first)
    }
}

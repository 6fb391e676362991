//! The state that a tip and a snapshot share: a table value that is cheap to clone, and the lookups in it.

use std::sync::Arc;

use types::{Result, RowId, SegmentId, TableDef, key};

use crate::deletes::DeleteVector;
use crate::head::{Head, Stored};
use crate::history::DeleteHistory;
use crate::key_map::KeyMap;
use crate::key_match;
use crate::layout::{Layout, Projection};
use crate::past::{self, Past, PastView};
use crate::segment::{BlockRows, NeededColumns, Segment, covers, is_damage};
use crate::unique::RecentRows;

/// A table definition with its layout and projections, made once per definition (O1).
#[derive(Debug)]
pub(crate) struct CompiledDef {
    pub def: Arc<TableDef>,
    pub layout: Arc<Layout>,
    /// All columns, system columns first.
    pub all: Projection,
    /// The user columns.
    pub user: Projection,
}

impl CompiledDef {
    pub fn new(def: TableDef) -> Arc<CompiledDef> {
        let layout = Layout::of(&def);
        let all = Projection::all(&def, layout.schema.clone());
        let user = Projection::user(&def);
        Arc::new(CompiledDef { def: Arc::new(def), layout, all, user })
    }
}

/// A segment and its delete vector.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub segment: Arc<Segment>,
    pub deletes: DeleteVector,
}

impl Entry {
    /// Number of live rows.
    pub fn live(&self) -> u64 {
        // Saturating: deletes that came while the segment could not be read may name rows that it does not store.
        self.segment.meta().rows.saturating_sub(self.deletes.len())
    }
}

/// The fields of a tip and of a snapshot. Cloning costs O(1): everything that can be long is shared.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub compiled: Arc<CompiledDef>,
    pub head: Head,
    pub head_deletes: DeleteVector,
    pub keys: KeyMap,
    /// The recent values of each unique index that writes are checked against.
    pub uniques: Arc<[RecentRows]>,
    /// The segments in row-id order.
    pub segments: Arc<Vec<Entry>>,
    pub segment_bytes: u64,
    /// Bytes that the segments would take if none was compressed.
    pub segment_raw_bytes: u64,
    pub segment_live: u64,
    pub history: DeleteHistory,
    pub past: Arc<Past>,
    /// The additional state of a snapshot of the past; `None` for the present.
    pub past_view: Option<Arc<PastView>>,
    pub next_row: u64,
    pub sealed_next: u64,
    pub last_time: i64,
    /// `_time` of the last row below `sealed_next`.
    pub sealed_time: i64,
}

/// A stored row: its batch, which has at least the requested columns, and its index there.
pub(crate) struct RowInBatch<'a> {
    pub stored: BlockRows<'a>,
    pub index: usize,
}

/// The location of a row.
pub(crate) enum RowLocation<'a> {
    Head(RowInBatch<'a>),
    /// A row of a segment on this machine: the block, and the row's index in the block.
    Block(&'a Segment, usize, usize),
    /// A row of an evicted segment, which only the lake has.
    Evicted(&'a Segment),
}

impl Parts {
    pub fn live(&self) -> u64 {
        let ended_later = self.past_view.as_ref().map_or(0, |past_view| past_view.live);
        self.segment_live + self.head.rows() - self.head_deletes.len() + ended_later
    }

    /// Returns the segment whose range holds a row id, and its index.
    pub fn entry_of(&self, row: u64) -> Option<(usize, &Entry)> {
        let at = self.segments.partition_point(|entry| entry.segment.meta().last_row.0 < row);
        let entry = self.segments.get(at)?;
        covers(entry.segment.meta(), RowId(row)).then_some((at, entry))
    }

    pub fn is_live(&self, row: u64) -> Result<bool> {
        if row >= self.sealed_next {
            return Ok(self.is_live_in_head(row));
        }
        if let Some((_, entry)) = self.entry_of(row)
            && !entry.deletes.contains(row)
            && entry.segment.row_ids()?.contains(row)
        {
            return Ok(true);
        }
        Ok(self.past_entry_of(row)?.is_some())
    }

    /// Separates the key map and the maps of the unique indexes from those that other tips share: later entries go only here.
    pub fn fork_keys(&mut self) {
        self.keys.fork();
        let mut uniques = self.uniques.to_vec();
        uniques.iter_mut().for_each(RecentRows::fork);
        self.uniques = uniques.into();
    }

    pub fn is_live_in_head(&self, row: u64) -> bool {
        row >= self.sealed_next && row < self.next_row && !self.head_deletes.contains(row)
    }

    /// Returns a live row version with the columns of `need`, or `None` if the row is not live.
    pub fn row(&self, row: u64, need: NeededColumns<'_>) -> Result<Option<RowInBatch<'_>>> {
        Ok(match self.locate_row(row)? {
            None => None,
            Some(RowLocation::Head(place)) => Some(place),
            Some(RowLocation::Block(segment, block, index)) => {
                Some(RowInBatch { stored: segment.block(block, need)?, index })
            }
            Some(RowLocation::Evicted(segment)) => Some(self.fetched(segment, row)?),
        })
    }

    /// Reads all columns of a row out of the lake.
    fn fetched<'a>(&'a self, segment: &'a Segment, row: u64) -> Result<RowInBatch<'a>> {
        let batch = segment.fetch(&[RowId(row)], &self.compiled.all)?;
        let stored = Arc::new(Stored { batch, layout: self.compiled.layout.clone() });
        Ok(RowInBatch { stored: BlockRows::Fetched(stored), index: 0 })
    }

    /// Returns the location of a live row version.
    pub fn locate_row(&self, row: u64) -> Result<Option<RowLocation<'_>>> {
        if row >= self.sealed_next {
            return Ok(self.head_row(row).map(RowLocation::Head));
        }
        if let Some((_, entry)) = self.entry_of(row)
            && !entry.deletes.contains(row)
            && let Some((block, index)) = entry.segment.locate(row)?
        {
            if entry.segment.is_evicted() {
                return Ok(Some(RowLocation::Evicted(&entry.segment)));
            }
            return Ok(Some(RowLocation::Block(&entry.segment, block, index)));
        }
        let Some(entry) = self.past_entry_of(row)? else { return Ok(None) };
        let Some((block, index)) = entry.segment.locate(row)? else { return Ok(None) };
        Ok(Some(RowLocation::Block(&entry.segment, block, index)))
    }

    /// Returns the segment of ended rows that stores a row, if the row is live only in this snapshot of the past and no segment
    /// of the present stores it.
    pub fn past_entry_of(&self, row: u64) -> Result<Option<&Entry>> {
        let Some(past_view) = &self.past_view else { return Ok(None) };
        Ok(past::entry_of(past_view, row)?.filter(|entry| !entry.deletes.contains(row)))
    }

    fn head_row(&self, row: u64) -> Option<RowInBatch<'_>> {
        if !self.is_live_in_head(row) {
            return None;
        }
        let (batch, index) = self.head.locate(row)?;
        Some(RowInBatch { stored: BlockRows::Stored(&batch.stored), index })
    }

    /// Returns the live row of a key among the rows from `from` on, with the key's columns. Costs O(1) in the head, then one
    /// probe per segment, newest first.
    pub fn find(&self, key: &[u8], from: u64) -> Result<Option<(u64, RowInBatch<'_>)>> {
        self.find_reusing(key, from, &mut None)
    }

    /// Returns the live row of each key, in the order of `keys`. Sorts the lookups by block, so that each block of a compressed
    /// segment is unpacked about once whatever the order of the keys.
    pub fn find_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<u64>>> {
        if !self.is_compressed() {
            return keys.iter().map(|key| Ok(self.find(key, 0)?.map(|(row, _)| row))).collect();
        }
        let places: Vec<Option<(SegmentId, usize)>> =
            keys.iter().map(|key| self.newest_block_of(key)).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|at| places[*at]);
        let (mut found, mut last_block) = (vec![None; keys.len()], None);
        for at in order {
            found[at] = self.find_reusing(keys[at], 0, &mut last_block)?.map(|(row, _)| row);
        }
        Ok(found)
    }

    /// Returns true if any segment is compressed. Costs O(1).
    pub fn is_compressed(&self) -> bool {
        self.segment_bytes != self.segment_raw_bytes
    }

    /// Returns the newest block that may hold a key, as a sort key for lookups. Ignores read errors: the lookup of the key itself
    /// reports them.
    fn newest_block_of(&self, key: &[u8]) -> Option<(SegmentId, usize)> {
        let hash = key::hash(key);
        self.segments.iter().rev().filter(|entry| entry.live() > 0).find_map(|entry| {
            let (block, _) = entry.segment.candidates(hash).ok()?.next()?;
            Some((entry.segment.id(), block))
        })
    }

    fn find_reusing<'a>(
        &'a self,
        key: &[u8],
        from: u64,
        last_block: &mut LastBlock<'a>,
    ) -> Result<Option<(u64, RowInBatch<'a>)>> {
        let hash = key::hash(key);
        if let Some(found) = self.find_in_head(key, hash, from) {
            return Ok(Some(found));
        }
        if self.segments.len() > 1 {
            self.segments.iter().for_each(|entry| entry.segment.touch_key(hash));
        }
        // A key lives at most once, so a damaged segment matters only if no other segment has the key.
        let mut damage = None;
        let ended_later = self.past_view.iter().flat_map(|past_view| &past_view.segments);
        for entry in self.segments.iter().rev().chain(ended_later) {
            // Segments of ended rows are in no order.
            if entry.segment.meta().last_row.0 < from && self.past_view.is_none() {
                break;
            }
            if entry.live() == 0 {
                continue;
            }
            match find_in(entry, key, hash, from, last_block) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(e) if is_damage(&e) => damage = Some(e),
                Err(e) => return Err(e),
            }
        }
        damage.map_or(Ok(None), Err)
    }

    fn find_in_head(&self, key: &[u8], hash: u64, from: u64) -> Option<(u64, RowInBatch<'_>)> {
        let accept = |row| {
            let place = self.head_row(row).filter(|_| row >= from)?;
            // Most candidates match, and most callers then read the row.
            place.stored.touch(place.index);
            key_match::matches(&place.stored.layout, &place.stored.batch, place.index, key)
                .then_some((row, place))
        };
        self.keys.touch(std::iter::once(hash));
        self.keys.find_map(hash, from, accept).or_else(|| {
            let mut ended_later =
                self.past_view.iter().flat_map(|past_view| past_view.head_candidates(&self.head, hash));
            ended_later.find_map(|row| accept(*row))
        })
    }
}

/// The compressed block that was read last, with its key columns unpacked.
type LastBlock<'a> = Option<(SegmentId, usize, BlockRows<'a>)>;

fn find_in<'a>(
    entry: &'a Entry,
    key: &[u8],
    hash: u64,
    from: u64,
    last_block: &mut LastBlock<'a>,
) -> Result<Option<(u64, RowInBatch<'a>)>> {
    let id = entry.segment.id();
    for (block, index) in entry.segment.candidates(hash)? {
        let stored = match last_block {
            Some((of, at, rows)) if (*of, *at) == (id, block) => rows.clone(),
            _ => entry.segment.block(block, NeededColumns::Key)?,
        };
        match stored {
            BlockRows::Unpacked { .. } => *last_block = Some((id, block, stored.clone())),
            BlockRows::Stored(_) | BlockRows::Fetched(_) => stored.touch(index),
        }
        let row = stored.row_ids()[index] as u64;
        if row >= from
            && !entry.deletes.contains(row)
            && key_match::matches(&stored.layout, &stored.batch, index, key)
        {
            return Ok(Some((row, RowInBatch { stored, index })));
        }
    }
    Ok(None)
}

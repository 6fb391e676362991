//! Collects single rows from head batches, blocks and the lake into one batch.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use types::{Error, Result, RowId};

use crate::Projection;
use crate::head::Stored;
use crate::segment::{NeededColumns, Segment};

/// Picked rows, in the order in which they were picked. Compressed blocks are unpacked at the end, one after the other, each
/// once, and only their picked rows are kept.
#[derive(Debug, Default)]
pub(crate) struct Gather<'a> {
    sources: Vec<PickSource<'a>>,
    /// Index in `sources`, by the address of the rows, or by the address of the segment and the block's number.
    source_at: HashMap<(usize, Option<usize>), usize, BuildHasherDefault<AddressHasher>>,
    /// Index in `sources`, and the row's index there.
    picks: Vec<(usize, usize)>,
}

/// Hashes addresses and block numbers, which no user chooses: it need not resist chosen keys.
#[derive(Clone, Copy, Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}

#[derive(Debug)]
enum PickSource<'a> {
    InMemory(Arc<Stored>),
    Packed {
        segment: &'a Segment,
        block: usize,
        rows: Vec<u32>,
    },
    /// Rows in the lake, by their ids.
    Evicted {
        segment: &'a Segment,
        rows: Vec<RowId>,
    },
}

impl<'a> Gather<'a> {
    pub fn add(&mut self, stored: &Arc<Stored>, index: usize) {
        // Neighbouring rows are usually in the same batch.
        let is_same = |source: &usize| matches!(&self.sources[*source], PickSource::InMemory(last) if Arc::ptr_eq(last, stored));
        let last = self.picks.last().map(|(source, _)| *source).filter(is_same);
        let source = last.unwrap_or_else(|| {
            *self.source_at.entry((Arc::as_ptr(stored).addr(), None)).or_insert_with(|| {
                self.sources.push(PickSource::InMemory(stored.clone()));
                self.sources.len() - 1
            })
        });
        self.picks.push((source, index));
    }

    /// Picks a row of a segment's block.
    pub fn add_in(&mut self, segment: &'a Segment, block: usize, index: usize) -> Result<()> {
        if !segment.is_compressed() {
            let stored = segment.block(block, NeededColumns::All)?;
            self.add(&stored, index);
            return Ok(());
        }
        let place = (std::ptr::from_ref(segment).addr(), Some(block));
        let source = *self.source_at.entry(place).or_insert_with(|| {
            self.sources.push(PickSource::Packed { segment, block, rows: Vec::new() });
            self.sources.len() - 1
        });
        if let PickSource::Packed { rows, .. } = &mut self.sources[source] {
            self.picks.push((source, rows.len()));
            rows.push(index as u32);
        }
        Ok(())
    }

    /// Picks a row that only the lake has.
    pub fn add_evicted(&mut self, segment: &'a Segment, row: RowId) {
        let place = (std::ptr::from_ref(segment).addr(), None);
        let source = *self.source_at.entry(place).or_insert_with(|| {
            self.sources.push(PickSource::Evicted { segment, rows: Vec::new() });
            self.sources.len() - 1
        });
        if let PickSource::Evicted { rows, .. } = &mut self.sources[source] {
            self.picks.push((source, rows.len()));
            rows.push(row);
        }
    }

    pub fn finish(mut self, projection: &Projection) -> Result<RecordBatch> {
        let fetched = self.fetch(projection)?;
        let unpack = |(at, source)| match source {
            PickSource::InMemory(stored) => Ok(stored),
            PickSource::Evicted { .. } => {
                let batch = fetched.iter().find(|(of, _)| *of == at).map(|(_, batch)| batch.clone());
                let batch = batch.ok_or_else(|| Error::internal("rows in the lake were not fetched"))?;
                Ok(Arc::new(Stored { batch, layout: projection.layout()? }))
            }
            PickSource::Packed { segment, block, rows } => {
                let stored = segment.block(block, NeededColumns::Columns(projection))?;
                let batch = take_record_batch(&stored.batch, &UInt32Array::from(rows));
                let batch = batch.map_err(|e| Error::internal(format!("picking rows failed: {e}")))?;
                Ok(Arc::new(Stored { batch, layout: stored.layout.clone() }))
            }
        };
        let sources = self.sources.into_iter().enumerate().map(unpack).collect::<Result<Vec<_>>>()?;
        match self.picks[..] {
            [] => Ok(projection.empty()),
            [(source, index)] => {
                let Stored { layout, batch, .. } = &*sources[source];
                projection.batch(projection.row(layout, batch, index)?, 1)
            }
            _ => {
                let sources = sources.iter().map(|stored| (&*stored.layout, &stored.batch));
                projection.gather(sources, &self.picks)
            }
        }
    }

    /// Fetches the rows that are in the lake, per source, ascending by row id, and points the picks to their indexes there.
    fn fetch(&mut self, projection: &Projection) -> Result<Vec<(usize, RecordBatch)>> {
        let mut fetched = Vec::new();
        for (at, source) in self.sources.iter().enumerate() {
            let PickSource::Evicted { segment, rows } = source else { continue };
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            sorted.dedup();
            for (of, index) in self.picks.iter_mut().filter(|(of, _)| *of == at) {
                debug_assert_eq!(*of, at);
                *index = sorted.binary_search(&rows[*index]).unwrap_or(0);
            }
            fetched.push((at, segment.fetch(&sorted, projection)?));
        }
        Ok(fetched)
    }
}

//! The row ids of a data file and their positions in it.
//!
//! In a file in row-id order the position of an id is its rank. For other files, sorted by columns or written by another
//! program, there is a map in addition. The ids of new files are collected while they are written; those of other files are
//! read from their row-id column, which needs only the pages that may contain a requested id ([`scan`]).

mod scan;

use std::ops::RangeInclusive;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use roaring::RoaringBitmap;
use types::{Error, Result, RowId};

pub use scan::scan;

/// Rows up to which an unsorted file gets a map of positions. The row-id column of a larger one is read on each lookup.
pub const MAPPED_ROWS_MAX: u64 = 2 << 20;

/// The ids of a file's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowIds {
    /// Ids grouped by their upper 32 bits, ascending.
    parts: Vec<IdChunk>,
    rows: u64,
    /// Position by rank; `None` if they are equal.
    positions: Option<Vec<u32>>,
}

#[derive(Clone, Debug, PartialEq)]
struct IdChunk {
    high: u32,
    /// Number of ids in the parts before.
    before: u64,
    ids: RoaringBitmap,
}

impl RowIds {
    /// Reads the row ids of a data file; `None` if it is unsorted and too large for a map.
    pub fn of_file(bytes: Bytes) -> Result<Option<RowIds>> {
        let mut builder = Builder::default();
        scan(bytes, None, &mut |_, row| builder.push(row.0))?;
        builder.finish()
    }

    /// Number of ids.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the approximate bytes in memory.
    pub fn memory(&self) -> usize {
        let parts: usize =
            self.parts.iter().map(|part| size_of::<IdChunk>() + part.ids.serialized_size()).sum();
        size_of::<Self>() + parts + self.positions.as_ref().map_or(0, |map| map.len() * size_of::<u32>())
    }

    pub fn position(&self, row: RowId) -> Option<u64> {
        let (high, low) = halves(row.0);
        let part = &self.parts[self.parts.binary_search_by_key(&high, |part| part.high).ok()?];
        if !part.ids.contains(low) {
            return None;
        }
        let rank = part.before + part.ids.rank(low) - 1;
        match &self.positions {
            None => Some(rank),
            Some(positions) => positions.get(rank as usize).map(|position| u64::from(*position)),
        }
    }

    /// Returns true if each row's position is its rank.
    pub fn is_in_row_order(&self) -> bool {
        self.positions.is_none()
    }
}

fn halves(id: u64) -> (u32, u32) {
    ((id >> 32) as u32, id as u32)
}

/// Collects ids in the order of their rows.
#[derive(Debug, Default)]
pub struct Builder {
    ascending: RowIds,
    last: u64,
    /// All ids, from the first that does not ascend on.
    unsorted: Option<Vec<u64>>,
    rows: u64,
}

impl Builder {
    /// Adds the ids of a batch.
    pub fn extend(&mut self, column: &ArrayRef) -> Result<()> {
        let ids = ids_of(column)?;
        // Batches are mostly gapless, and such a batch is added as one range.
        if let ([first, .., last], None) = (ids, &self.unsorted)
            && (self.rows == 0 || *first as u64 > self.last)
            && ids.windows(2).all(|pair| pair[1] - pair[0] == 1)
        {
            self.rows += ids.len() as u64;
            self.last = *last as u64;
            self.ascending.add_all(*first as u64..=*last as u64);
            return Ok(());
        }
        ids.iter().try_for_each(|id| self.push(*id as u64))
    }

    pub fn push(&mut self, id: u64) -> Result<()> {
        self.rows += 1;
        if let Some(unsorted) = &mut self.unsorted {
            if self.rows <= MAPPED_ROWS_MAX {
                unsorted.push(id);
            }
            return Ok(());
        }
        if self.rows > 1 && id <= self.last {
            let mut unsorted = Vec::new();
            if self.rows <= MAPPED_ROWS_MAX {
                unsorted.extend(
                    self.ascending.parts.iter().flat_map(|part| {
                        part.ids.iter().map(|low| u64::from(part.high) << 32 | u64::from(low))
                    }),
                );
                unsorted.push(id);
            }
            self.ascending = RowIds::default();
            self.unsorted = Some(unsorted);
            return Ok(());
        }
        self.last = id;
        self.ascending.add(id);
        Ok(())
    }

    /// Returns the ids; `None` if they do not ascend and are too many for a map. Fails with `Damaged` if an id occurs
    /// twice.
    pub fn finish(self) -> Result<Option<RowIds>> {
        let mut ids = match self.unsorted {
            None => self.ascending,
            Some(_) if self.rows > MAPPED_ROWS_MAX => return Ok(None),
            Some(unsorted) => {
                let mut by_id: Vec<u32> = (0..unsorted.len() as u32).collect();
                by_id.sort_unstable_by_key(|at| unsorted[*at as usize]);
                if by_id.windows(2).any(|pair| unsorted[pair[0] as usize] == unsorted[pair[1] as usize]) {
                    return Err(Error::damaged("a row id that occurs twice"));
                }
                let mut ids = RowIds::default();
                by_id.iter().for_each(|at| ids.add(unsorted[*at as usize]));
                RowIds { positions: Some(by_id), ..ids }
            }
        };
        for part in &mut ids.parts {
            part.ids.optimize();
        }
        Ok(Some(ids))
    }
}

impl RowIds {
    /// Appends the ids of a file whose rows follow. Returns false and changes nothing unless both are in row-id order and
    /// all new ids are higher.
    pub fn append(&mut self, next: &RowIds) -> bool {
        let last = |ids: &RowIds| ids.parts.last().and_then(|part| Some((part.high, part.ids.max()?)));
        let first = next.parts.first().and_then(|part| Some((part.high, part.ids.min()?)));
        if !self.is_in_row_order()
            || !next.is_in_row_order()
            || first.is_some_and(|id| Some(id) <= last(self))
        {
            return false;
        }
        for IdChunk { high, ids, .. } in &next.parts {
            self.part(*high).ids |= ids;
            self.rows += ids.len();
        }
        true
    }

    /// Adds a range of ids above all others.
    fn add_all(&mut self, ids: RangeInclusive<u64>) {
        let (first, last) = (halves(*ids.start()), halves(*ids.end()));
        if first.0 != last.0 {
            return ids.into_iter().for_each(|id| self.add(id));
        }
        let part = self.part(first.0);
        part.ids.insert_range(first.1..=last.1);
        self.rows += ids.end() - ids.start() + 1;
    }

    /// Adds an id above all others.
    fn add(&mut self, id: u64) {
        let (high, low) = halves(id);
        self.part(high).ids.try_push(low).expect("ids ascend");
        self.rows += 1;
    }

    /// Returns the part with these upper bits, which must be the highest so far.
    fn part(&mut self, high: u32) -> &mut IdChunk {
        if self.parts.last().is_none_or(|part| part.high != high) {
            self.parts.push(IdChunk { high, before: self.rows, ids: RoaringBitmap::new() });
        }
        self.parts.last_mut().expect("pushed above")
    }
}

/// Returns the ids in a row-id column. Fails with `Damaged` if the type is wrong, or an id is null or negative.
pub fn ids_of(column: &ArrayRef) -> Result<&[i64]> {
    let ids = column.as_primitive_opt::<Int64Type>().filter(|ids| ids.null_count() == 0);
    let ids = ids.ok_or_else(|| Error::damaged("a row-id column of another type, or with nulls"))?.values();
    if ids.iter().any(|id| *id < 0) {
        return Err(Error::damaged("a negative row id"));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests;

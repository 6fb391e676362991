//! The entries of an index in order, over all of its runs.

use std::ops;

use types::{Result, RowId};

use super::codec::{Range, after};
use super::index::Index;
use super::run::{Block, Run};

/// Goes over the entries of a range, least first or greatest first. Reads a block of a run when it comes to it.
pub struct Walk<'a> {
    range: Range,
    descending: bool,
    sides: Vec<Side<'a>>,
}

/// The rows that have an entry. An entry of many rows comes several times.
#[derive(Clone)]
pub struct Rows<'a> {
    first: u64,
    block: Block<'a>,
    places: ops::Range<usize>,
}

/// One run.
struct Side<'a> {
    run: &'a Run,
    /// Those that are still to come.
    blocks: ops::Range<usize>,
    block: Option<Block<'a>>,
    /// Of the block; the next is the first of them, or the last.
    entries: ops::Range<usize>,
}

impl Index {
    /// The entries of a range in order. Rows that are dead by now come too.
    pub fn walk(&self, range: Range, descending: bool) -> Result<Walk<'_>> {
        let mut sides = Vec::with_capacity(self.runs.len());
        for run in self.runs.iter().filter(|_| !range.is_empty()) {
            let mut side = Side { run, blocks: run.blocks_of(&range), block: None, entries: 0..0 };
            side.settle(&range, descending)?;
            sides.push(side);
        }
        Ok(Walk { range, descending, sides })
    }
}

impl<'a> Walk<'a> {
    /// The next entry.
    #[allow(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<(&'a [u8], Rows<'a>)>> {
        let entries = self.sides.iter().enumerate().filter_map(|(at, side)| {
            let (entry, ..) = side.entry(self.descending)?;
            Some((entry, at))
        });
        // Of equal ones that of the run with the lowest row ids.
        let next = match self.descending {
            false => entries.min_by_key(|(entry, _)| *entry),
            true => entries.rev().max_by_key(|(entry, _)| *entry),
        };
        let Some((entry, side)) = next else { return Ok(None) };
        let side = &mut self.sides[side];
        let Some((_, block, at)) = side.entry(self.descending) else { return Ok(None) };
        let rows = Rows { first: side.run.head.first.0, block, places: block.rows_of(at..at + 1) };
        side.entries = match self.descending {
            false => at + 1..side.entries.end,
            true => side.entries.start..at,
        };
        side.settle(&self.range, self.descending)?;
        Ok(Some((entry, rows)))
    }

    /// Leaves out what begins so: going up, with a beginning no less than that of the entry that came last.
    pub fn skip(&mut self, prefix: &[u8]) -> Result<()> {
        debug_assert!(!self.descending);
        match after(prefix) {
            None => self.sides.clear(),
            Some(low) => {
                self.range.low = low.max(std::mem::take(&mut self.range.low));
                for side in &mut self.sides {
                    side.skip(&self.range)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Side<'a> {
    fn entry(&self, descending: bool) -> Option<(&'a [u8], Block<'a>, usize)> {
        let at = if descending { self.entries.end.checked_sub(1)? } else { self.entries.start };
        let block = self.block.filter(|_| !self.entries.is_empty())?;
        Some((block.entry(at), block, at))
    }

    /// Goes on to the next block at the end of one.
    fn settle(&mut self, range: &Range, descending: bool) -> Result<()> {
        while self.entries.is_empty() {
            let next = if descending { self.blocks.next_back() } else { self.blocks.next() };
            let Some(at) = next else { return Ok(()) };
            let block = self.run.block(at)?;
            (self.block, self.entries) = (Some(block), block.within(range));
        }
        Ok(())
    }

    /// To the first entry of a range that begins later than before.
    fn skip(&mut self, range: &Range) -> Result<()> {
        let Some(block) = self.block else { return Ok(()) };
        let is_past = |at: usize| block.entry(at) >= range.low.as_slice();
        if self.entries.is_empty() || is_past(self.entries.start) {
            return Ok(());
        }
        if is_past(self.entries.end - 1) {
            self.entries = block.within(range);
            return Ok(());
        }
        let blocks = self.run.blocks_of(range);
        self.blocks = blocks.start.max(self.blocks.start)..blocks.end.min(self.blocks.end);
        self.entries = 0..0;
        self.settle(range, false)
    }
}

impl Iterator for Rows<'_> {
    type Item = RowId;

    fn next(&mut self) -> Option<RowId> {
        let at = self.places.next()?;
        Some(RowId(self.first + u64::from(self.block.row(at))))
    }
}

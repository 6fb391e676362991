//! Ordered iteration over the entries of an index, across all of its runs.

use std::ops;

use types::{Result, RowId};

use super::codec::{EntryRange, prefix_successor};
use super::index::Index;
use super::run::{Block, SortedRun};

/// Iterates over the entries of a range, ascending or descending. Reads a block of a run only when the iteration
/// reaches it.
pub struct Walk<'a> {
    range: EntryRange,
    descending: bool,
    run_walks: Vec<RunWalk<'a>>,
}

/// Iterates over the rows with an entry. An entry of many rows is returned several times, each time with some of them.
#[derive(Clone)]
pub struct EntryRows<'a> {
    first: u64,
    block: Block<'a>,
    places: ops::Range<usize>,
}

/// The iteration over one run.
struct RunWalk<'a> {
    run: &'a SortedRun,
    /// Indexes of the blocks that are not read yet.
    blocks: ops::Range<usize>,
    block: Option<Block<'a>>,
    /// The remaining entries of the block. The next one is the first of them, or the last if descending.
    entries: ops::Range<usize>,
}

impl Index {
    /// Returns an iterator over the entries of a range in order. It includes rows that have died since.
    pub fn walk(&self, range: EntryRange, descending: bool) -> Result<Walk<'_>> {
        let mut run_walks = Vec::with_capacity(self.runs.len());
        for run in self.runs.iter().filter(|_| !range.is_empty()) {
            let mut run_walk = RunWalk { run, blocks: run.blocks_of(&range), block: None, entries: 0..0 };
            run_walk.load_block(&range, descending)?;
            run_walks.push(run_walk);
        }
        Ok(Walk { range, descending, run_walks })
    }
}

impl<'a> Walk<'a> {
    /// Returns the next entry and its rows, or `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<(&'a [u8], EntryRows<'a>)>> {
        let entries = self.run_walks.iter().enumerate().filter_map(|(at, run_walk)| {
            let (entry, ..) = run_walk.entry(self.descending)?;
            Some((entry, at))
        });
        // Among equal entries, the one of the run with the lowest row ids comes first.
        let next = if self.descending {
            entries.rev().max_by_key(|(entry, _)| *entry)
        } else {
            entries.min_by_key(|(entry, _)| *entry)
        };
        let Some((entry, run_walk)) = next else { return Ok(None) };
        let run_walk = &mut self.run_walks[run_walk];
        let Some((_, block, at)) = run_walk.entry(self.descending) else { return Ok(None) };
        let rows = EntryRows { first: run_walk.run.head.first.0, block, places: block.rows_of(at..at + 1) };
        run_walk.entries =
            if self.descending { run_walk.entries.start..at } else { at + 1..run_walk.entries.end };
        run_walk.load_block(&self.range, self.descending)?;
        Ok(Some((entry, rows)))
    }

    /// Skips all entries with this prefix, in an ascending walk. The prefix must not sort before the same number of
    /// bytes of the last entry returned.
    pub fn skip(&mut self, prefix: &[u8]) -> Result<()> {
        debug_assert!(!self.descending);
        match prefix_successor(prefix) {
            None => self.run_walks.clear(),
            Some(low) => {
                self.range.low = low.max(std::mem::take(&mut self.range.low));
                for run_walk in &mut self.run_walks {
                    run_walk.skip(&self.range)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> RunWalk<'a> {
    fn entry(&self, descending: bool) -> Option<(&'a [u8], Block<'a>, usize)> {
        let at = if descending { self.entries.end.checked_sub(1)? } else { self.entries.start };
        let block = self.block.filter(|_| !self.entries.is_empty())?;
        Some((block.entry(at), block, at))
    }

    /// Moves to the next block with entries of the range if the current one is exhausted.
    fn load_block(&mut self, range: &EntryRange, descending: bool) -> Result<()> {
        while self.entries.is_empty() {
            let next = if descending { self.blocks.next_back() } else { self.blocks.next() };
            let Some(at) = next else { return Ok(()) };
            let block = self.run.block(at)?;
            (self.block, self.entries) = (Some(block), block.within(range));
        }
        Ok(())
    }

    /// Moves forward to the first entry of a range whose lower bound has grown.
    fn skip(&mut self, range: &EntryRange) -> Result<()> {
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
        self.load_block(range, false)
    }
}

impl Iterator for EntryRows<'_> {
    type Item = RowId;

    fn next(&mut self) -> Option<RowId> {
        let at = self.places.next()?;
        Some(RowId(self.first + u64::from(self.block.row(at))))
    }
}

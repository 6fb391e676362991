//! A run: the sorted entries of a contiguous range of rows, in one immutable file.
//!
//! ```text
//! magic (8) · block … · footer · footer length u32 · crc32c u32 of the footer and its length
//! block:  entries u32 · rows u32 · bytes of the entries u32 · bytes of each entry u32, 0 if they differ
//!         · end of each entry u32 …, if they differ · end of each entry's rows u32 … · entries · rows u32 …
//! footer: version u8 · run id · first row · last row · rows · [first entry, offset, length, crc32c, rows] of each
//! block
//! ```
//!
//! Numbers are little-endian. A block stores an entry once, followed by its rows in ascending order, as distances from
//! the first row that the run covers. An entry of many rows continues in the next block.
//!
//! Opening a run reads its footer. The first reader that touches a block verifies its checksum; two readers that come
//! at the same time both verify it, so that neither waits for a lock (R1).

use std::ops;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use table::materializer::{Budget, MaterializerDir};
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Result, RowId};

use super::codec::EntryRange;
use crate::store::{Files, IndexFileWriter};

pub(super) const FILES: Files = Files { extension: ".run" };
const MAGIC: &[u8; 8] = b"PNCOLM\r\n";
const VERSION: u8 = 1;
/// The size in bytes of entries and rows at which a block is written.
const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of the header of a block: four 32-bit numbers.
const BLOCK_HEAD: usize = 16;

/// An open run: its decoded footer and its mapped file.
pub(super) struct SortedRun {
    pub head: RunHeader,
    /// Checksum of the footer, which in turn holds the checksums of the blocks.
    crc: u32,
    bytes: Bytes,
    blocks: Vec<Fence>,
    /// The first entries of all blocks, concatenated.
    first_entries: Vec<u8>,
    /// One bit for each block: set once the block's checksum was verified.
    checked: Vec<AtomicU64>,
    damaged: AtomicBool,
}

/// The identity of a run and the rows that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunHeader {
    pub id: u64,
    /// The first row of the covered range.
    pub first: RowId,
    /// The last row of the covered range.
    pub last: RowId,
    /// Number of rows in the run: all rows of the range that were live when the run was written.
    pub rows: u64,
}

/// The footer's description of one block.
struct Fence {
    /// End offset of the block's first entry in [`SortedRun::first_entries`].
    entry_end: usize,
    offset: usize,
    len: usize,
    crc: u32,
    /// Number of rows in all earlier blocks.
    rows_before: u64,
}

/// A decoded view of one block.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    width: usize,
    entry_ends: &'a [u8],
    row_ends: &'a [u8],
    entries: &'a [u8],
    rows: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at * 4..at * 4 + 4).and_then(|four| four.first_chunk::<4>());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

impl<'a> Block<'a> {
    pub fn len(&self) -> usize {
        self.row_ends.len() / 4
    }

    pub fn entry(&self, at: usize) -> &'a [u8] {
        let (start, end) = match (self.width, at) {
            (0, 0) => (0, u32_at(self.entry_ends, 0) as usize),
            (0, at) => (u32_at(self.entry_ends, at - 1) as usize, u32_at(self.entry_ends, at) as usize),
            (width, at) => (at * width, (at + 1) * width),
        };
        self.entries.get(start..end).unwrap_or_default()
    }

    /// Returns the positions for [`Block::row`] of the rows that belong to the entries `at`.
    pub fn rows_of(&self, at: ops::Range<usize>) -> ops::Range<usize> {
        let end = |entries: usize| match entries {
            0 => 0,
            entries => u32_at(self.row_ends, entries - 1) as usize,
        };
        end(at.start)..end(at.end)
    }

    /// Returns a row as its distance from the run's first row.
    pub fn row(&self, at: usize) -> u32 {
        u32_at(self.rows, at)
    }

    /// Returns the positions of the entries within a range.
    pub fn within(&self, range: &EntryRange) -> ops::Range<usize> {
        let len = self.len();
        let start = first_where(0..len, |at| self.entry(at) >= range.low.as_slice());
        // Most ranges end near where they begin.
        start..first_where_near(start..len, |at| range.ends_before(self.entry(at)))
    }

    /// Tells whether the parts of the block fit together, so that no accessor above can read out of bounds. `rows_span`
    /// is the number of row ids that the run covers.
    fn is_consistent(&self, rows_span: u64) -> bool {
        let ascends = |ends: &[u8], last: usize| {
            let mut ends = ends.chunks_exact(4).map(|c| u32_at(c, 0) as usize);
            ends.clone().is_sorted() && ends.next_back() == Some(last)
        };
        let entries = match self.width {
            0 => ascends(self.entry_ends, self.entries.len()),
            width => self.entries.len() == width * self.len(),
        };
        let in_span = |row: &[u8]| u64::from(u32_at(row, 0)) < rows_span;
        entries && ascends(self.row_ends, self.rows.len() / 4) && self.rows.chunks_exact(4).all(in_span)
    }
}

impl SortedRun {
    pub fn open(bytes: Bytes) -> Result<SortedRun> {
        let damaged = |what: &str| Error::damaged(format!("a run of a column index: {what}"));
        let end = bytes.len().checked_sub(8).filter(|end| *end >= MAGIC.len());
        let end = end.ok_or_else(|| damaged("it is too short"))?;
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("it does not begin like one"));
        }
        let (footer_len, crc) = (u32_at(&bytes[end..], 0) as usize, u32_at(&bytes[end..], 1));
        let start = end.checked_sub(footer_len).filter(|start| *start >= MAGIC.len());
        let start = start.ok_or_else(|| damaged("its footer is longer than it"))?;
        if crc32c::crc32c(&bytes[start..end + 4]) != crc {
            return Err(damaged("its checksum is wrong"));
        }
        let mut d = Decoder::new(&bytes[start..end]);
        let version = d.u8()?;
        if version != VERSION {
            return Err(Error::new(Kind::Newer, format!("a run of a column index has version {version}")));
        }
        let (id, first, last, rows) = (d.varint()?, RowId(d.varint()?), RowId(d.varint()?), d.varint()?);
        let (mut first_entries, mut rows_before) = (Vec::new(), 0u64);
        let blocks = d.list(|d| {
            first_entries.extend_from_slice(d.blob()?);
            let (offset, len, crc) = (d.varint()? as usize, d.varint()? as usize, d.u32()?);
            if offset.checked_add(len).is_none_or(|to| to > start) || len < BLOCK_HEAD {
                return Err(d.damaged("a block outside the run"));
            }
            let fence = Fence { entry_end: first_entries.len(), offset, len, crc, rows_before };
            rows_before = rows_before.saturating_add(d.varint()?);
            Ok(fence)
        })?;
        d.finish()?;
        if rows != rows_before || first > last {
            return Err(damaged("its blocks do not match its rows"));
        }
        let checked = (0..blocks.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let head = RunHeader { id, first, last, rows };
        Ok(SortedRun { head, crc, bytes, blocks, first_entries, checked, damaged: AtomicBool::new(false) })
    }

    /// Returns the checksum that identifies the content of the run.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Tells whether a reader has found a damaged block.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    fn first_entry(&self, block: usize) -> &[u8] {
        let start = block.checked_sub(1).map_or(0, |before| self.blocks[before].entry_end);
        &self.first_entries[start..self.blocks[block].entry_end]
    }

    /// Returns a block. Verifies its checksum at the first touch.
    pub fn block(&self, at: usize) -> Result<Block<'_>> {
        let fence = &self.blocks[at];
        let bytes = &self.bytes[fence.offset..fence.offset + fence.len];
        let (word, bit) = (&self.checked[at / 64], 1u64 << (at % 64));
        let is_checked = word.load(Ordering::Relaxed) & bit != 0;
        let block = split(bytes);
        if !is_checked {
            let span = self.head.last.0 - self.head.first.0 + 1;
            let is_right = crc32c::crc32c(bytes) == fence.crc && block.is_some_and(|b| b.is_consistent(span));
            if !is_right {
                self.damaged.store(true, Ordering::Relaxed);
                return Err(Error::damaged("a block of a column index does not match its checksum")
                    .with("run", self.head.id)
                    .with("offset", fence.offset));
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        block.ok_or_else(|| Error::internal("a block that was checked cannot be read"))
    }

    /// Returns the indexes of the blocks that may hold entries of a range.
    pub fn blocks_of(&self, range: &EntryRange) -> ops::Range<usize> {
        let all = self.blocks.len();
        // The block before may end with entries of the range.
        let start = first_where(0..all, |at| self.first_entry(at) >= range.low.as_slice()).saturating_sub(1);
        start..first_where_near(start..all, |at| range.ends_before(self.first_entry(at)))
    }

    /// Finds the position of the entries of a range. Reads at most two blocks.
    pub fn find(&self, range: &EntryRange) -> Result<Option<RowSpan>> {
        let blocks = self.blocks_of(range);
        let Some(last) = blocks.end.checked_sub(1).filter(|last| *last >= blocks.start) else {
            return Ok(None);
        };
        let within = |at: usize| {
            let block = self.block(at)?;
            Ok::<_, Error>(block.rows_of(block.within(range)))
        };
        let begun = within(blocks.start)?;
        let end = if last == blocks.start { begun.end } else { within(last)?.end };
        let before = |block: usize, row: usize| self.blocks[block].rows_before + row as u64;
        let rows = before(last, end).saturating_sub(before(blocks.start, begun.start));
        Ok(Some(RowSpan { first: (blocks.start, begun.start), last: (last, end), rows }))
    }

    /// Appends the rows of a span to `out`, in the order of entries and ascending within each entry.
    pub fn rows(&self, span: &RowSpan, out: &mut Vec<RowId>) -> Result<()> {
        let first = self.head.first.0;
        for at in span.first.0..=span.last.0 {
            let block = self.block(at)?;
            let start = if at == span.first.0 { span.first.1 } else { 0 };
            let end = if at == span.last.0 { span.last.1 } else { block.rows_of(0..block.len()).end };
            out.extend((start..end).map(|row| RowId(first + u64::from(block.row(row)))));
        }
        Ok(())
    }
}

/// The position of a range's rows in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowSpan {
    /// Block, and position within it, of the first row.
    first: (usize, usize),
    /// Block of the last row, and the position after it.
    last: (usize, usize),
    pub rows: u64,
}

/// Returns the first index at which `predicate` holds, or the end of `within` if there is none. `predicate` must hold
/// for all indexes after the first for which it holds (binary search).
fn first_where(within: ops::Range<usize>, predicate: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (within.start, within.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if predicate(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Does the same as [`first_where`] by steps that double from the start (galloping search). It needs few comparisons if the
/// result is near the start.
fn first_where_near(within: ops::Range<usize>, predicate: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (within.start, 1);
    loop {
        let next = low.saturating_add(step).min(within.end);
        if next == low || predicate(next - 1) {
            return first_where(low..next, predicate);
        }
        (low, step) = (next, step * 2);
    }
}

/// Splits the bytes of a block into its parts, or returns `None` if their lengths do not add up.
fn split(bytes: &[u8]) -> Option<Block<'_>> {
    let (head, rest) = bytes.split_at_checked(BLOCK_HEAD)?;
    let [entries, rows, entry_bytes, width] = [0, 1, 2, 3].map(|at| u32_at(head, at) as usize);
    let (entry_ends, rest) = rest.split_at_checked(if width == 0 { entries.checked_mul(4)? } else { 0 })?;
    let (row_ends, rest) = rest.split_at_checked(entries.checked_mul(4)?)?;
    let (entries, rest) = rest.split_at_checked(entry_bytes)?;
    (rest.len() == rows.checked_mul(4)?).then_some(Block { width, entry_ends, row_ends, entries, rows: rest })
}

/// Writes a run, entry by entry.
pub(super) struct Writer {
    head: RunHeader,
    width: usize,
    output: IndexFileWriter,
    fences: Encoder,
    fence_count: u64,
    entry_ends: Vec<u32>,
    row_ends: Vec<u32>,
    entries: Vec<u8>,
    rows: Vec<u32>,
    buffer: Vec<u8>,
}

impl Writer {
    /// Creates the file of a run. `width` is the size of all entries if they have one size. All rows lie between
    /// `first` and `last`, which are at most `u32::MAX` apart.
    pub fn create(
        place: &MaterializerDir,
        id: u64,
        first: RowId,
        last: RowId,
        width: Option<usize>,
        budget: &mut Budget<'_>,
    ) -> Result<Writer> {
        let mut output = FILES.create(place, id)?;
        output.write(MAGIC, budget)?;
        Ok(Writer {
            head: RunHeader { id, first, last, rows: 0 },
            width: width.unwrap_or(0),
            output,
            fences: Encoder::new(),
            fence_count: 0,
            entry_ends: Vec::new(),
            row_ends: Vec::new(),
            entries: Vec::new(),
            rows: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Adds a row with this entry. Entries must ascend, and so must the rows of one entry.
    pub fn push(&mut self, entry: &[u8], row: RowId, budget: &mut Budget<'_>) -> Result<()> {
        debug_assert!(self.width == 0 || entry.len() == self.width);
        debug_assert!(self.head.first <= row && row <= self.head.last);
        if self.entries.len() + 4 * self.rows.len() >= BLOCK_BYTES {
            self.end_block(budget)?;
        }
        if self.entry_ends.is_empty() || self.last_entry() != entry {
            debug_assert!(self.entry_ends.is_empty() || self.last_entry() < entry);
            self.entries.extend_from_slice(entry);
            self.entry_ends.push(self.entries.len() as u32);
            self.row_ends.push(self.rows.len() as u32);
        }
        self.rows.push((row.0 - self.head.first.0) as u32);
        if let Some(end) = self.row_ends.last_mut() {
            *end += 1;
        }
        Ok(())
    }

    fn last_entry(&self) -> &[u8] {
        let ends = &self.entry_ends;
        let start = ends.len().checked_sub(2).map_or(0, |before| ends[before] as usize);
        &self.entries[start..]
    }

    fn end_block(&mut self, budget: &mut Budget<'_>) -> Result<()> {
        let Some(first_end) = self.entry_ends.first().copied() else { return Ok(()) };
        self.buffer.clear();
        let head = [self.entry_ends.len(), self.rows.len(), self.entries.len(), self.width];
        let entry_ends = if self.width == 0 { self.entry_ends.as_slice() } else { &[] };
        let numbers = head.iter().map(|n| *n as u32).chain(entry_ends.iter().copied());
        for number in numbers.chain(self.row_ends.iter().copied()) {
            self.buffer.extend_from_slice(&number.to_le_bytes());
        }
        self.buffer.extend_from_slice(&self.entries);
        self.rows.iter().for_each(|row| self.buffer.extend_from_slice(&row.to_le_bytes()));
        self.fences.blob(&self.entries[..first_end as usize]);
        self.fences.varint(self.output.len());
        self.fences.varint(self.buffer.len() as u64);
        self.fences.u32(crc32c::crc32c(&self.buffer));
        self.fences.varint(self.rows.len() as u64);
        self.fence_count += 1;
        self.head.rows += self.rows.len() as u64;
        self.output.write(&self.buffer, budget)?;
        for list in [&mut self.entry_ends, &mut self.row_ends, &mut self.rows] {
            list.clear();
        }
        self.entries.clear();
        Ok(())
    }

    /// Writes the footer and opens the run. The run survives a crash once this returns.
    pub fn finish(mut self, place: &MaterializerDir, budget: &mut Budget<'_>) -> Result<SortedRun> {
        self.end_block(budget)?;
        let mut footer = Encoder::new();
        footer.u8(VERSION);
        footer.varint(self.head.id);
        footer.varint(self.head.first.0);
        footer.varint(self.head.last.0);
        footer.varint(self.head.rows);
        footer.varint(self.fence_count);
        footer.bytes.extend_from_slice(&self.fences.bytes);
        let len = footer.bytes.len() as u32;
        footer.u32(len);
        let crc = crc32c::crc32c(&footer.bytes);
        footer.u32(crc);
        self.output.write(&footer.bytes, budget)?;
        let path = FILES.path(place, self.head.id);
        SortedRun::open(self.output.finish(place, budget)?).map_err(|e| e.with("file", path.display()))
    }
}

//! The bytes of one file: those that a read sees, those on the medium, and the mixtures that a crash may leave.

use std::collections::BTreeMap;
use std::ops::Range;

use testkit::Rng;

/// The unit of writing: a sector is written whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// The unit of space allocation, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// The number of contents of a sector that are remembered between the durable and the present one. The machine may
/// have written any of them; remembering more has found no further defects.
const BETWEEN_MAX: usize = 3;

type Sector = [u8; SECTOR_BYTES as usize];

/// Draws the probability with which an unsynced sector reaches the medium. The extremes 0 and 1 are drawn as often as
/// other values, because a coin toss for every sector would hardly ever keep or lose a whole write.
pub(super) fn draw_survival(rng: &mut Rng) -> f64 {
    *rng.pick(&[0.0, 0.1, 0.5, 0.9, 1.0])
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileContent {
    data: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors written since the last sync, each with its contents between the durable and the present one.
    dirty: BTreeMap<u64, Vec<Sector>>,
    /// The lengths of the file since the last sync; empty if its length is the durable one.
    lens: Vec<usize>,
    /// Marks the blocks that have space allocated.
    blocks: Vec<bool>,
}

impl FileContent {
    /// Makes a file whose bytes are all durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        let blocks = vec![true; bytes.len().div_ceil(BLOCK_BYTES as usize)];
        FileContent { data: bytes.clone(), durable: bytes, blocks, ..FileContent::default() }
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn len(&self) -> u64 {
        self.data.len() as u64
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let range = offset..offset + bytes.len() as u64;
        self.touch(range.clone());
        if range.end > self.len() {
            self.resize(range.end);
        }
        self.data[offset as usize..range.end as usize].copy_from_slice(bytes);
        self.take_space(range);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let old = self.len();
        if len < old {
            // The cut bytes read as zeros if the file grows again. Until a sync the medium may keep the old bytes.
            self.touch(len..old);
            self.blocks.truncate(len.div_ceil(BLOCK_BYTES) as usize);
        }
        if len != old {
            self.resize(len);
        }
    }

    /// Extends the file to `len` with zeros, and allocates the space.
    pub(super) fn allocate(&mut self, len: u64) {
        let old = self.len();
        if len > old {
            // The real disk writes in steps, so a crash may leave the file at a length in between.
            self.resize(old + (len - old) / 2);
            self.resize(len);
            self.take_space(old..len);
        }
    }

    pub(super) fn sync(&mut self) {
        if !self.lens.is_empty() {
            self.durable.resize(self.data.len(), 0);
            self.lens.clear();
        }
        for at in std::mem::take(&mut self.dirty).into_keys() {
            let range = clip(at, self.data.len());
            if self.durable.len() < range.end {
                self.durable.resize(range.end, 0);
            }
            self.durable[range.clone()].copy_from_slice(&self.data[range]);
        }
    }

    /// Simulates a failed sync. Each sector to be written has reached the medium or not, and will not be written
    /// again, since the kernel now considers the pages clean. Reads show the lost bytes until the pages are evicted,
    /// which may be at once.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        let survival = draw_survival(rng);
        self.durable = self.after_crash(survival, rng);
        let evicted = rng.one_in(2);
        let dirty = std::mem::take(&mut self.dirty);
        self.lens.clear();
        for at in dirty.into_keys().filter(|_| evicted) {
            let bytes = sector(&self.durable, at);
            let range = clip(at, self.data.len());
            let len = range.len();
            self.data[range].copy_from_slice(&bytes[..len]);
        }
    }

    /// Returns the bytes that the medium holds if the power fails now.
    pub(super) fn after_crash(&self, survival: f64, rng: &mut Rng) -> Vec<u8> {
        let len = match self.lens.last() {
            None => self.durable.len(),
            Some(last) if rng.chance(survival) => *last,
            Some(_) => match rng.index(self.lens.len() + 1) {
                0 => self.durable.len(),
                n => self.lens[n - 1],
            },
        };
        let mut bytes = self.durable.clone();
        bytes.resize(len, 0);
        for (at, between) in &self.dirty {
            let content = if rng.chance(survival) {
                sector(&self.data, *at)
            } else if !between.is_empty() && rng.one_in(3) {
                *rng.pick(between)
            } else {
                continue;
            };
            let range = clip(*at, len);
            let n = range.len();
            bytes[range].copy_from_slice(&content[..n]);
        }
        bytes
    }

    /// Flips a bit on the medium and for reads.
    pub(super) fn flip_bit(&mut self, offset: u64) {
        let mask = 1 << (offset % 8);
        for bytes in [&mut self.data, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset as usize) {
                *byte ^= mask;
            }
        }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks.iter().filter(|taken| **taken).count() as u64
    }

    /// Returns the position in `range` at which a write must stop if only `free_blocks` more can be allocated. If all
    /// fits, this is the range's end.
    pub(super) fn fitting(&self, range: Range<u64>, free_blocks: u64) -> u64 {
        let mut free = free_blocks;
        for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
            if !self.blocks.get(block as usize).copied().unwrap_or(false) {
                if free == 0 {
                    return range.start.max(block * BLOCK_BYTES);
                }
                free -= 1;
            }
        }
        range.end
    }

    fn take_space(&mut self, range: Range<u64>) {
        let blocks = (range.start / BLOCK_BYTES) as usize..range.end.div_ceil(BLOCK_BYTES) as usize;
        if self.blocks.len() < blocks.end {
            self.blocks.resize(blocks.end, false);
        }
        self.blocks[blocks].fill(true);
    }

    fn resize(&mut self, len: u64) {
        self.data.resize(len as usize, 0);
        self.lens.push(len as usize);
    }

    /// Marks the sectors of `range` as dirty and remembers their present content.
    fn touch(&mut self, range: Range<u64>) {
        for at in range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES) {
            match self.dirty.get_mut(&at) {
                None => drop(self.dirty.insert(at, Vec::new())),
                Some(between) if between.len() < BETWEEN_MAX => between.push(sector(&self.data, at)),
                Some(_) => {}
            }
        }
    }
}

/// Returns a sector's bytes. Bytes beyond the end are zero.
fn sector(bytes: &[u8], at: u64) -> Sector {
    let mut sector = [0; SECTOR_BYTES as usize];
    let part = &bytes[clip(at, bytes.len())];
    sector[..part.len()].copy_from_slice(part);
    sector
}

/// The part of a sector that lies in a file of `len` bytes.
fn clip(at: u64, len: usize) -> Range<usize> {
    let start = (at * SECTOR_BYTES) as usize;
    start.min(len)..(start + SECTOR_BYTES as usize).min(len)
}

//! The bytes of a Parquet file for Parquet's reader: memory-mapped, or fetched from an object store. In the store, the footer
//! is fetched first, then only the columns that are read, for one row group or several small ones at a time.

use std::iter;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use types::{Error, Result};
use vfs::{Mutex, Rank};

use super::parquet_file::damaged;
use crate::store::Store;

/// Bytes at the end of a file that the first request fetches. Most footers are smaller.
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes of one request; larger ranges are split, because a response that breaks off is repeated. Smaller row groups are
/// fetched together up to this size.
const REQUEST_BYTES: u64 = 8 << 20;
/// Bytes between two wanted ranges up to which one request fetches both and the gap.
const GAP_BYTES: u64 = 256 << 10;

#[derive(Clone)]
pub(super) enum FileContents {
    Mapped(Bytes),
    Remote(Arc<RemoteFile>),
}

pub(super) struct RemoteFile {
    store: Store,
    path: PathBuf,
    len: u64,
    tail: FetchedRange,
    /// Byte ranges to fetch for each set of row groups that are read together, ascending. Set once the columns to read are
    /// known.
    planned: OnceLock<Vec<Vec<Range<u64>>>>,
    /// The set of row groups that is in memory, as an index into `planned` (`usize::MAX` for none), and its ranges.
    fetched: Mutex<(usize, Vec<FetchedRange>)>,
    /// The first error of the store, which Parquet's own errors do not keep.
    failed: OnceLock<Error>,
}

/// A range of a file's bytes, and its position in the file.
#[derive(Clone)]
struct FetchedRange {
    start: u64,
    bytes: Bytes,
}

impl FetchedRange {
    fn bytes_from(&self, start: u64) -> Bytes {
        self.bytes.slice((start - self.start) as usize..)
    }
}

impl FileContents {
    /// Opens a file of `len` bytes, which is the length that the manifest tells. Fails with `Damaged` if the file is longer or
    /// shorter.
    pub fn open(store: &Store, path: PathBuf, len: u64) -> Result<FileContents> {
        let other_len = || Error::damaged("a file is not as long as its manifest says");
        if !store.is_remote() {
            let bytes = store.read(&path)?;
            return if bytes.len() as u64 == len {
                Ok(FileContents::Mapped(bytes))
            } else {
                Err(other_len())
            };
        }
        let start = len.saturating_sub(TAIL_BYTES);
        // Asks for one byte more than the file should have, so that a longer file is noticed.
        let bytes = store.read_range(&path, start, len - start + 1)?;
        if bytes.len() as u64 != len - start {
            return Err(other_len());
        }
        Ok(FileContents::Remote(Arc::new(RemoteFile {
            store: store.clone(),
            path,
            len,
            tail: FetchedRange { start, bytes },
            planned: OnceLock::new(),
            fetched: Mutex::new(Rank::new(76, "lake fetched row groups"), (usize::MAX, Vec::new())),
            failed: OnceLock::new(),
        })))
    }

    /// Sets the columns that will be read; the caller calls it before the first row. Returns the ranges of row groups that one
    /// reader reads together. The caller reads these ranges one after the other; only one of them is in memory at a time.
    pub fn select_columns(&self, metadata: &ParquetMetaData, columns: &ProjectionMask) -> Vec<Range<usize>> {
        let FileContents::Remote(file) = self else {
            return iter::once(0..metadata.num_row_groups()).collect();
        };
        let (mut together, mut planned) = (Vec::<Range<usize>>::new(), Vec::<Vec<Range<u64>>>::new());
        for (nth, group) in metadata.row_groups().iter().enumerate() {
            let chunks = group.columns().iter().enumerate();
            let chunks = chunks.filter(|(leaf, _)| columns.leaf_included(*leaf));
            let ranges = chunks.filter_map(|(_, chunk)| {
                let (start, len) = chunk.byte_range();
                Some(start..start.checked_add(len)?)
            });
            let of_group = merged_ranges(ranges.filter(|range| range.end <= file.len).collect());
            if let (Some(groups), Some(before)) = (together.last_mut(), planned.last_mut()) {
                let with_it = merged_ranges([&before[..], &of_group].concat());
                if with_it.iter().map(|range| range.end - range.start).sum::<u64>() <= REQUEST_BYTES {
                    (groups.end, *before) = (nth + 1, with_it);
                    continue;
                }
            }
            together.push(nth..nth + 1);
            planned.push(of_group);
        }
        let _ = file.planned.set(planned);
        together
    }

    /// Returns the cause of an error of Parquet's reader: the store's error if there was one, else damage of the file.
    pub fn cause(&self, error: &dyn std::fmt::Display) -> Error {
        let failed = match self {
            FileContents::Mapped(_) => None,
            FileContents::Remote(file) => file.failed.get(),
        };
        failed.cloned().unwrap_or_else(|| damaged(error))
    }
}

/// Merges the ranges that are at most [`GAP_BYTES`] apart.
fn merged_ranges(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(range),
        }
    }
    merged
}

impl RemoteFile {
    /// Returns the bytes from `start` on: at least `len`, and those that follow in the same fetched range.
    fn bytes_from(&self, start: u64, len: u64) -> Result<Bytes> {
        let end = start.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| Error::damaged("a file ends before what its footer names"))?;
        if start >= self.tail.start {
            return Ok(self.tail.bytes_from(start));
        }
        let holds = |range: &Range<u64>| range.start <= start && end <= range.end;
        let mut planned = self.planned.get().into_iter().flatten().enumerate();
        match planned.find_map(|(at, ranges)| Some((at, ranges.iter().position(holds)?, ranges))) {
            Some((at, nth, ranges)) => Ok(self.fetched_range(at, ranges, nth)?.bytes_from(start)),
            None => self.fetch(start..end),
        }
    }

    /// Returns the range `nth` of the set `at` of row groups. Fetches all ranges of the set if they are not in memory.
    fn fetched_range(&self, at: usize, ranges: &[Range<u64>], nth: usize) -> Result<FetchedRange> {
        {
            let mut fetched = self.fetched.lock();
            if fetched.0 == at {
                return Ok(fetched.1[nth].clone());
            }
            // Frees the previous ranges before the next ones are fetched.
            *fetched = (usize::MAX, Vec::new());
        }
        let piece =
            |range: &Range<u64>| Ok(FetchedRange { start: range.start, bytes: self.fetch(range.clone())? });
        let pieces: Vec<FetchedRange> = ranges.iter().map(piece).collect::<Result<_>>()?;
        let range = pieces[nth].clone();
        *self.fetched.lock() = (at, pieces);
        Ok(range)
    }

    fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let part = |start: u64| {
            let len = REQUEST_BYTES.min(range.end - start);
            let bytes = self.store.read_range(&self.path, start, len)?;
            if bytes.len() as u64 == len { Ok(bytes) } else { Err(Error::damaged("a file became shorter")) }
        };
        match range.end - range.start {
            0 => Ok(Bytes::new()),
            1..=REQUEST_BYTES => part(range.start),
            len => {
                let mut all = Vec::with_capacity(len as usize);
                while (all.len() as u64) < len {
                    all.extend_from_slice(&part(range.start + all.len() as u64)?);
                }
                Ok(all.into())
            }
        }
    }

    fn bytes_for_parquet(&self, start: u64, len: u64) -> Parquet<Bytes> {
        self.bytes_from(start, len).map_err(|error| {
            let _ = self.failed.set(error.clone());
            ParquetError::External(Box::new(error))
        })
    }
}

impl Length for FileContents {
    fn len(&self) -> u64 {
        match self {
            FileContents::Mapped(bytes) => bytes.len() as u64,
            FileContents::Remote(file) => file.len,
        }
    }
}

impl ChunkReader for FileContents {
    type T = <Bytes as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Parquet<Self::T> {
        match self {
            FileContents::Mapped(bytes) => bytes.get_read(start),
            // A page's header. It lies in a wanted range, which is fetched whole.
            FileContents::Remote(file) => Ok(file.bytes_for_parquet(start, 1)?.reader()),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        match self {
            FileContents::Mapped(bytes) => bytes.get_bytes(start, length),
            FileContents::Remote(file) => Ok(file.bytes_for_parquet(start, length as u64)?.slice(..length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_lie_near_each_other_are_one_stretch() {
        let of = |ranges: &[Range<u64>]| merged_ranges(ranges.to_vec());
        let far = 90 << 20..91 << 20;
        assert_eq!(of(&[far.clone(), 4..100, 100..200, 10..50]), [4..200, far.clone()]);
        assert_eq!(of(&[4..100, 100 + GAP_BYTES..2 << 20, far.clone()]), [4..2 << 20, far.clone()]);
        assert_eq!(of(&[4..100, 101 + GAP_BYTES..2 << 20]), [4..100, 101 + GAP_BYTES..2 << 20]);
    }

    #[test]
    fn a_large_stretch_comes_in_several_requests() {
        let _limit = testkit::limit(60);
        let (objects, recording) = crate::objects::tests::recording_store();
        let store = Store::new(sim::SimEnv::new(1).env(), Some(objects));
        let whole: Vec<u8> = (0..20_u32 << 20).map(|at| (at / 7) as u8).collect();
        store.replace(std::path::Path::new("file"), &whole).unwrap();
        let contents = FileContents::open(&store, "file".into(), whole.len() as u64).unwrap();
        let FileContents::Remote(file) = &contents else { panic!("it is elsewhere") };
        file.planned.set(vec![vec![5..19 << 20]]).unwrap();
        recording.reads.lock().unwrap().clear();
        assert!(contents.get_bytes(5, (19 << 20) - 5).unwrap() == whole[5..19 << 20]);
        assert!(contents.get_bytes(9 << 20, 1 << 20).unwrap() == whole[9 << 20..10 << 20]);
        let reads = recording.reads.lock().unwrap().clone();
        assert_eq!(reads, [5..(8 << 20) + 5, (8 << 20) + 5..(16 << 20) + 5, (16 << 20) + 5..19 << 20]);
        assert!(contents.get_bytes(19 << 20, 2 << 20).is_err(), "beyond the end");
    }
}

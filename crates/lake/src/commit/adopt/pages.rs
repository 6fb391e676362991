//! Checks the page index of a data file. Readers of few rows find pages by the index and skip others; all other readers go
//! from front to back. Both must find the same rows.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::errors::Result as Parquet;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};
use types::{Error, Result, name};

/// Compares the page index of a row group, if there is one, with the actual pages.
pub(super) fn check(bytes: &Bytes, metadata: &ParquetMetaData, nth: usize) -> Result<()> {
    let group = metadata.row_group(nth);
    for (at, chunk) in group.columns().iter().enumerate() {
        let wrong = |why: &dyn Display| {
            let column = name::printable(&chunk.column_path().string());
            Error::damaged(format!("row group {nth} of its column `{column}`: {why}"))
        };
        let found = ChunkPages::walk(bytes, chunk).map_err(|why| wrong(&why))?;
        if found.rows != group.num_rows().max(0) as u64 {
            return Err(wrong(&format_args!(
                "the pages have {} rows, and the row group {}",
                found.rows,
                group.num_rows()
            )));
        }
        let indexed =
            metadata.offset_index().and_then(|index| Some(index.get(nth)?.get(at)?.page_locations()));
        let Some(indexed) = indexed else { continue };
        if found.is_cut {
            return Err(wrong(&"a page in the page index begins within a row"));
        }
        let pages = indexed.len().max(found.pages.len());
        if let Some(page) = (0..pages).find(|page| indexed.get(*page) != found.pages.get(*page)) {
            return Err(wrong(&format_args!(
                "page {page} has another place or other rows than the page index says"
            )));
        }
        let bounds = metadata.column_index().and_then(|index| index.get(nth)?.get(at));
        if let Some(bounds) = bounds.filter(|bounds| !matches!(bounds, ColumnIndexMetaData::NONE))
            && bounds.num_pages() != indexed.len() as u64
        {
            return Err(wrong(&format_args!(
                "there are bounds of {} pages, and {} pages",
                bounds.num_pages(),
                indexed.len()
            )));
        }
    }
    Ok(())
}

/// The pages of a column chunk, found by reading from front to back.
#[derive(Default)]
struct ChunkPages {
    pages: Vec<PageLocation>,
    rows: u64,
    /// True if a page begins within a row.
    is_cut: bool,
}

impl ChunkPages {
    fn walk(bytes: &Bytes, chunk: &ColumnChunkMetaData) -> std::result::Result<ChunkPages, String> {
        let unreadable = |e: &dyn Display| format!("a page cannot be read: {e}");
        let level_max = chunk.column_descr().max_rep_level();
        let (start, len) = chunk.byte_range();
        let file = Arc::new(OffsetRecorder { bytes: bytes.clone(), last_offset: AtomicU64::new(0) });
        // The reader uses the number of rows only with a page index, so 0 is passed.
        let pages = SerializedPageReader::new(file.clone(), chunk, 0, None).map_err(|e| unreadable(&e))?;
        let mut found = ChunkPages::default();
        for page in pages {
            let page = page.map_err(|e| unreadable(&e))?;
            let begin = file.last_offset.load(Relaxed);
            found.end_page(begin);
            if page.is_dictionary_page() {
                continue;
            }
            let (rows, begins_a_row) = rows_in(&page, level_max)
                .ok_or_else(|| unreadable(&"the rows of its values cannot be determined"))?;
            if let Page::DataPageV2 { num_rows, .. } = &page
                && u64::from(*num_rows) != rows
            {
                return Err(format!("a page has {rows} rows, and says {num_rows}"));
            }
            found.is_cut |= !begins_a_row;
            // The next page, or the end of the chunk, determines its size.
            let first_row_index = found.rows as i64;
            let location = PageLocation { offset: begin as i64, compressed_page_size: 0, first_row_index };
            found.pages.push(location);
            found.rows += rows;
        }
        found.end_page(start + len);
        Ok(found)
    }

    /// Sets the size of the last page, which ends at `end`. A page is never larger than the format's i32 allows.
    fn end_page(&mut self, end: u64) {
        if let Some(last) = self.pages.last_mut().filter(|page| page.compressed_page_size == 0) {
            last.compressed_page_size = (end as i64 - last.offset) as i32;
        }
    }
}

/// Returns the number of rows that begin in a page, and whether its first value begins a row. `None` if that cannot be
/// determined.
fn rows_in(page: &Page, level_max: i16) -> Option<(u64, bool)> {
    let values = u64::from(page.num_values());
    if level_max == 0 {
        return Some((values, true));
    }
    let levels = match page {
        Page::DataPage { buf, rep_level_encoding: Encoding::RLE, .. } => {
            let (len, rest) = buf.split_first_chunk::<4>()?;
            rest.get(..u32::from_le_bytes(*len) as usize)?
        }
        Page::DataPageV2 { buf, rep_levels_byte_len, .. } => buf.get(..*rep_levels_byte_len as usize)?,
        _ => return None,
    };
    zeros(levels, level_max, values)
}

/// Counts the zeros among `count` repetition levels, and tells whether the first one is 0. The encoding mixes runs of one
/// level with groups of eight bit-packed ones, lowest bit first. Returns `None` if there are fewer levels.
fn zeros(mut levels: &[u8], level_max: i16, count: u64) -> Option<(u64, bool)> {
    let width = (16 - (level_max as u16).leading_zeros()) as usize;
    let (mut zeros, mut seen, mut is_first) = (0, 0, true);
    while seen < count {
        let (header, rest) = varint(levels)?;
        let is_run = header & 1 == 0;
        let bytes = if is_run { width.div_ceil(8) } else { ((header >> 1) as usize).saturating_mul(width) };
        // The last bit-packed group may be truncated after the last level.
        let (packed, rest) = rest.split_at(bytes.min(rest.len()));
        let there = if is_run { header >> 1 } else { (packed.len() * 8 / width) as u64 };
        let taken = there.min(count - seen);
        if packed.is_empty() || taken == 0 {
            return None;
        }
        let is_zero = |nth: u64| {
            if is_run {
                packed.iter().all(|byte| *byte == 0)
            } else {
                (nth as usize * width..(nth as usize + 1) * width)
                    .all(|bit| (packed[bit / 8] >> (bit % 8)) & 1 == 0)
            }
        };
        if seen == 0 {
            is_first = is_zero(0);
        }
        zeros += match is_run {
            true if is_zero(0) => taken,
            true => 0,
            false => (0..taken).filter(|nth| is_zero(*nth)).count() as u64,
        };
        seen += taken;
        levels = rest;
    }
    Some((zeros, is_first))
}

/// Reads a varint of up to 32 bits, seven per byte. Returns it and the bytes after it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (nth, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[nth + 1..]));
        }
    }
    None
}

/// Records the offset of the reader's latest page, which Parquet's own reader does not expose.
struct OffsetRecorder {
    bytes: Bytes,
    last_offset: AtomicU64,
}

impl Length for OffsetRecorder {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl ChunkReader for OffsetRecorder {
    type T = <Bytes as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Parquet<Self::T> {
        self.last_offset.store(start, Relaxed);
        self.bytes.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        self.bytes.get_bytes(start, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_where_the_level_of_repetition_is_0() {
        // A run of five zeros, then eight packed levels, the last of which is not requested.
        assert_eq!(zeros(&[10, 0, 3, 0b1010_1010], 1, 12), Some((9, true)));
        // Three ones come first: the row began in another page.
        assert_eq!(zeros(&[6, 1, 4, 0], 1, 5), Some((2, false)));
        // Packed in two bits each: 0 1 2 3 0 1, truncated after the sixth.
        assert_eq!(zeros(&[3, 0b1110_0100, 0b0000_0100], 3, 6), Some((2, true)));
        assert_eq!(zeros(&[], 1, 0), Some((0, true)));
        let cut: [&[u8]; 5] = [&[], &[10], &[0x80], &[3], &[10, 0]];
        for cut in cut {
            assert_eq!(zeros(cut, 1, 6), None, "{cut:?}");
        }
        assert_eq!(varint(&[0xe5, 0x8e, 0x26, 7]), Some((624_485, &[7][..])));
    }
}

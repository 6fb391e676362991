//! Reads rows whose local segments were evicted, from the Iceberg snapshot that the reader pins.
//!
//! The unit of reading is a part: 16,384 rows of a file, as many as a page has. It is decoded column by column and kept in
//! a cache (`read_cache.rs`). A scan reads files in their own order and decodes each part once. A lookup by row id reads the
//! parts whose row-id bounds admit the id: a file in row-id order has each id in one part. A file sorted by other columns
//! may have them in all parts. A reader that takes rows of such files in row-id order gets them from windows: a window
//! holds a large range of ids, collected in one pass over the files and sorted. So a file is decoded once for each window
//! that contains rows of it, however small the reader's requests are.

pub(crate) mod bounds;
mod file_part;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, UInt32Array, new_null_array};
use arrow::compute::{concat, filter, take};
use arrow::datatypes::DataType as Arrow;
use table::{BATCH_ROWS, LakeFileRange, LakeRows, LakeSnapshot, Zone};
use types::{ColumnId, DataType, Error, Result, RowId, Value};

use crate::file_pins::FilePin;
use crate::live_rows::as_type;
use crate::read_cache::{CacheKey, CachedPart, CachedValue, ReadCache};
use crate::row_ids::ids_of;
use crate::state::{Lake, LiveFile};

/// Rows of a part, the same as of a page.
pub(crate) const PART_ROWS: u64 = if cfg!(test) { 32 } else { 16 << 10 };
/// Number of rows in one request from which the reader is assumed to read in row-id order.
const RUN_ROWS: usize = if cfg!(test) { 16 } else { 1_024 };
/// Factor by which the requested rows may be sparser than consecutive ones in such a request.
const RUN_SPARSENESS_MAX: u64 = 16;
/// Number of parts, beyond those that the rows would fill, from which a file counts as sorted by something else.
const SCATTERED_PARTS: usize = 4;
/// Row ids in a window, at least and at most.
const WINDOW_ROWS_MIN: u64 = BATCH_ROWS as u64;
const WINDOW_ROWS_MAX: u64 = 512 << 10;
/// Approximate factor by which rows are larger in memory than in files.
const EXPANSION_FACTOR: u64 = 4;

/// A pinned snapshot of a lake; see the module.
pub(crate) struct PinnedSnapshot {
    lake: Arc<Lake>,
    cache: Arc<ReadCache>,
    /// Cache key of the windows. The table's id is part of it, since another table may have had the same directory.
    name: Arc<str>,
    window_rows: u64,
    _pin: Arc<FilePin>,
}

impl fmt::Debug for PinnedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedSnapshot(row {}, {})", self.lake.row, self.name)
    }
}

impl PinnedSnapshot {
    /// Pins the data files of a lake.
    pub fn of(lake: Arc<Lake>, cache: Arc<ReadCache>) -> Result<PinnedSnapshot> {
        let files = lake.data.iter().map(|live| lake.local(&live.path)).collect::<Result<Vec<_>>>()?;
        let pin = lake.cache.pins.pin(lake.metadata.table_id().unwrap_or_default(), files);
        let rows: u64 = lake.data.iter().map(|live| live.entry.file.rows).sum();
        let bytes: u64 = lake.data.iter().map(|live| live.entry.file.bytes).sum();
        let row_bytes = (bytes * EXPANSION_FACTOR / rows.max(1)).max(8);
        let wanted = (cache.bytes_max() as u64 / 8 / row_bytes).clamp(WINDOW_ROWS_MIN, WINDOW_ROWS_MAX);
        // A power of two aligns windows, so that neighbouring requests share one.
        let window_rows = 1 << wanted.ilog2();
        let name = format!("{:?} {:?}", lake.metadata.table_id(), lake.snapshot_id()).into();
        Ok(PinnedSnapshot { lake, cache, name, window_rows, _pin: pin })
    }

    fn live(&self, file: usize) -> Result<&Arc<LiveFile>> {
        self.lake.data.get(file).ok_or_else(|| Error::internal("a file of another snapshot was requested"))
    }

    fn fetch_from(
        &self,
        file: usize,
        lookup: &mut RowLookup<'_>,
        wanted: &[(ColumnId, Arrow)],
        found: &mut Vec<LakeRows>,
    ) -> Result<()> {
        let live = &self.lake.data[file];
        let parts = self.parts_with(live, lookup.rows)?;
        for nth in parts {
            if lookup.count == 0 {
                break;
            }
            let ids = self.row_ids(live, nth)?;
            let picks = lookup.pick(ids_of(&ids)?)?;
            if picks.is_empty() {
                continue;
            }
            let picks = UInt32Array::from(picks);
            let columns = self.columns(live, nth, wanted)?;
            found.push(select_rows(&ids, &columns, |array| take(array, &picks, None))?);
        }
        Ok(())
    }

    /// Returns the rows of one window, sorted by row id.
    fn window(&self, nth: u64, wanted: &[(ColumnId, Arrow)]) -> Result<Arc<LakeRows>> {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        for (id, arrow) in wanted {
            id.0.hash(&mut hasher);
            arrow.hash(&mut hasher);
        }
        let key = CacheKey {
            source: self.name.clone(),
            part: CachedPart::Window { nth, columns: hasher.finish() },
        };
        if let Some(CachedValue::Window(found)) = self.cache.get(&key) {
            self.cache.found.fetch_add(1, Relaxed);
            return Ok(found);
        }
        let rows = nth * self.window_rows..(nth + 1) * self.window_rows;
        let mut pieces: Vec<LakeRows> = Vec::new();
        for live in &self.lake.data {
            if live.first.0 >= rows.end || live.last.0 < rows.start {
                continue;
            }
            for part in self.parts_within(live, &rows)? {
                let ids = self.row_ids_uncached(live, part)?;
                let mask: BooleanArray =
                    ids_of(&ids)?.iter().map(|id| Some(rows.contains(&(*id as u64)))).collect();
                if mask.true_count() == 0 {
                    continue;
                }
                let columns = self.columns_uncached(live, part, wanted)?;
                pieces.push(select_rows(&ids, &columns, |array| filter(array, &mask))?);
            }
        }
        let found = Arc::new(sort_by_row_id(pieces, wanted)?);
        self.cache.put(key, CachedValue::Window(found.clone()));
        Ok(found)
    }

    /// Returns rows by way of the windows that contain them.
    fn fetch_from_windows(&self, rows: &[RowId], wanted: &[(ColumnId, Arrow)]) -> Result<Vec<LakeRows>> {
        let mut all = Vec::new();
        for rows in rows.chunk_by(|a, b| a.0 / self.window_rows == b.0 / self.window_rows) {
            let window = self.window(rows[0].0 / self.window_rows, wanted)?;
            let ids = window.row_ids.values();
            let picks = rows.iter().filter_map(|row| ids.binary_search(&(row.0 as i64)).ok());
            let picks = UInt32Array::from_iter_values(picks.map(|at| at as u32));
            let ids: ArrayRef = Arc::new(window.row_ids.clone());
            all.push(select_rows(&ids, &window.columns, |array| take(array, &picks, None))?);
        }
        Ok(all)
    }

    /// Returns true if reading these rows in their order would decode most of a file repeatedly.
    fn is_scattered(&self, live: &LiveFile, rows: &[RowId]) -> Result<bool> {
        let from = rows.partition_point(|row| *row < live.first);
        let count = rows[from..].partition_point(|row| *row <= live.last);
        if count < RUN_ROWS / 4 {
            return Ok(false);
        }
        let filled = count.div_ceil(PART_ROWS as usize) + SCATTERED_PARTS;
        Ok(self.parts_with(live, &rows[from..from + count])?.len() > filled)
    }
}

impl LakeSnapshot for PinnedSnapshot {
    fn row(&self) -> RowId {
        self.lake.row
    }

    fn place(&self) -> String {
        match self.lake.snapshot_id() {
            Some(id) => format!("{}, snapshot {id}", self.lake.metadata_location()),
            None => self.lake.metadata_location(),
        }
    }

    fn file_ranges(&self, last: RowId) -> Vec<LakeFileRange> {
        let mut all = Vec::new();
        for (file, live) in self.lake.data.iter().enumerate().filter(|(_, live)| live.first <= last) {
            let data = &live.entry.file;
            let row_bytes = (data.bytes * EXPANSION_FACTOR / data.rows.max(1)).max(8);
            let mut position = 0;
            while position < data.rows {
                let rows = (data.rows - position).min(PART_ROWS.min(BATCH_ROWS as u64)) as u32;
                let (first_row, last_row) = self.known_id_bounds(live, position, rows);
                let bytes = row_bytes * u64::from(rows);
                all.push(LakeFileRange { file, position, rows, first_row, last_row, bytes });
                position += u64::from(rows);
            }
        }
        all.retain(|file_range| file_range.first_row <= last);
        all
    }

    fn zone(&self, file_range: &LakeFileRange, column: ColumnId, data_type: &DataType) -> Option<Zone> {
        let live = self.lake.data.get(file_range.file)?;
        let known = self.cached_footer(live);
        let of_pages = known.and_then(|footer| bounds::zone_of_pages(&footer, file_range, column, data_type));
        of_pages.or_else(|| bounds::zone_of_file(&live.entry.file, column, data_type))
    }

    fn lacks(&self, file_range: &LakeFileRange, column: ColumnId, value: &Value) -> bool {
        let Some(live) = self.lake.data.get(file_range.file) else { return false };
        let file = &live.entry.file;
        let Some(spec) = self.lake.specs.get(&file.spec) else { return false };
        bounds::excludes_value(spec, &file.partition, column, value)
    }

    fn read_bounds(&self, file_range: &LakeFileRange) -> Result<()> {
        let live = self.live(file_range.file)?;
        self.footer(live).map(drop).map_err(|e| e.with("file", &live.path))
    }

    fn read(&self, file_range: &LakeFileRange, wanted: &[(ColumnId, Arrow)]) -> Result<LakeRows> {
        let live = self.live(file_range.file)?;
        let read = || {
            let nth = file_range.position / PART_ROWS;
            let (offset, len) = ((file_range.position % PART_ROWS) as usize, file_range.rows as usize);
            let (ids, columns) = self.columns_with_row_ids(live, nth, wanted)?;
            if ids.len() < offset + len {
                return Err(Error::damaged("fewer rows in a part of a data file than its manifest says"));
            }
            select_rows(&ids, &columns, |array| Ok(array.slice(offset, len)))
        };
        read().map_err(|e: Error| e.with("file", &live.path))
    }

    fn fetch(&self, rows: &[RowId], wanted: &[(ColumnId, Arrow)]) -> Result<Vec<LakeRows>> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Vec::new()) };
        let mut files: Vec<usize> = (0..self.lake.data.len())
            .filter(|file| self.lake.data[*file].first <= *last && self.lake.data[*file].last >= *first)
            .collect();
        // Files with the narrowest bounds come first.
        files.sort_by_key(|file| self.lake.data[*file].last.0.saturating_sub(self.lake.data[*file].first.0));
        if rows.len() >= RUN_ROWS && last.0 - first.0 < RUN_SPARSENESS_MAX * rows.len() as u64 {
            for file in &files {
                let live = &self.lake.data[*file];
                if self.is_scattered(live, rows).map_err(|e| e.with("file", &live.path))? {
                    return self.fetch_from_windows(rows, wanted);
                }
            }
        }
        let mut lookup = RowLookup { rows, found: vec![false; rows.len()], count: rows.len() };
        let mut found = Vec::new();
        for file in files {
            if lookup.count == 0 {
                break;
            }
            let fetched = self.fetch_from(file, &mut lookup, wanted, &mut found);
            fetched.map_err(|e| e.with("file", &self.lake.data[file].path))?;
        }
        Ok(found)
    }
}

/// The rows that a lookup has not found yet.
struct RowLookup<'a> {
    rows: &'a [RowId],
    found: Vec<bool>,
    count: usize,
}

impl RowLookup<'_> {
    /// Marks the ids that are looked for as found, and returns their indices in `ids`.
    fn pick(&mut self, ids: &[i64]) -> Result<Vec<u32>> {
        let mut picks = Vec::new();
        for (at, id) in ids.iter().enumerate() {
            let Ok(nth) = self.rows.binary_search(&RowId(*id as u64)) else { continue };
            if std::mem::replace(&mut self.found[nth], true) {
                return Err(Error::damaged(format!("row {id} is in the lake twice")));
            }
            self.count -= 1;
            picks.push(at as u32);
        }
        Ok(picks)
    }
}

/// Selects rows of a part.
fn select_rows(
    ids: &ArrayRef,
    columns: &[Option<ArrayRef>],
    pick: impl Fn(&dyn Array) -> std::result::Result<ArrayRef, arrow::error::ArrowError>,
) -> Result<LakeRows> {
    let failed = |e| Error::internal(format!("picking rows of the lake: {e}"));
    let row_ids = pick(ids.as_ref()).map_err(failed)?;
    let row_ids = Int64Array::new(ids_of(&row_ids)?.to_vec().into(), None);
    let column = |column: &Option<ArrayRef>| {
        column.as_ref().map(|array| pick(array.as_ref()).map_err(failed)).transpose()
    };
    Ok(LakeRows { row_ids, columns: columns.iter().map(column).collect::<Result<_>>()? })
}

/// Sorts all rows by id. A column that some files lack is null in their rows: it has no initial value, or the lake would
/// have rewritten the files.
fn sort_by_row_id(pieces: Vec<LakeRows>, wanted: &[(ColumnId, Arrow)]) -> Result<LakeRows> {
    let failed = |e| Error::internal(format!("ordering rows of the lake: {e}"));
    let ids: Vec<i64> = pieces.iter().flat_map(|piece| piece.row_ids.values().iter().copied()).collect();
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by_key(|at| ids[*at as usize]);
    let sorted: Vec<i64> = order.iter().map(|at| ids[*at as usize]).collect();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::damaged(format!("row {} is in the lake twice", twice[0])));
    }
    let order = UInt32Array::from(order);
    let mut columns = Vec::with_capacity(wanted.len());
    for (nth, (_, arrow)) in wanted.iter().enumerate() {
        if pieces.iter().all(|piece| piece.columns[nth].is_none()) {
            columns.push(None);
            continue;
        }
        let part = |piece: &LakeRows| match &piece.columns[nth] {
            Some(array) => array.clone(),
            None => new_null_array(arrow, piece.row_ids.len()),
        };
        let parts: Vec<ArrayRef> = pieces.iter().map(part).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let whole = concat(&parts).map_err(failed)?;
        columns.push(Some(take(&whole, &order, None).map_err(failed)?));
    }
    Ok(LakeRows { row_ids: sorted.into(), columns })
}

/// Casts columns to their types in the table.
fn cast_columns(
    columns: Vec<Option<ArrayRef>>,
    wanted: &[(ColumnId, Arrow)],
) -> Result<Vec<Option<ArrayRef>>> {
    let column = |(column, (_, arrow)): (Option<ArrayRef>, &(ColumnId, Arrow))| {
        column.map(|array| as_type(&array, arrow)).transpose()
    };
    columns.into_iter().zip(wanted).map(column).collect()
}

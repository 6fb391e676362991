//! Parts of a data file: selects them by row id and decodes their columns.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::DataType as Arrow;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::metadata::PageIndexPolicy;
use types::{ColumnId, Error, ROW_ID, Result, RowId};

use super::{PART_ROWS, PinnedSnapshot, bounds, cast_columns};
use crate::file_bytes::FileBytes;
use crate::read_cache::{CacheKey, CachedPart, CachedValue};
use crate::state::LiveFile;

impl PinnedSnapshot {
    pub(super) fn file(&self, live: &LiveFile) -> Result<FileBytes> {
        let path = self.lake.local(&live.path)?;
        FileBytes::open(&self.lake.store, path, &live.path, &live.entry.file, &self.cache)
    }

    /// Returns the footer if it is in the cache.
    pub(super) fn cached_footer(&self, live: &LiveFile) -> Option<ArrowReaderMetadata> {
        match self.cache.get(&CacheKey { source: live.path.clone(), part: CachedPart::Footer }) {
            Some(CachedValue::Footer(footer)) => Some(footer),
            _ => None,
        }
    }

    pub(super) fn footer(&self, live: &LiveFile) -> Result<ArrowReaderMetadata> {
        if let Some(footer) = self.cached_footer(live) {
            return Ok(footer);
        }
        let file = self.file(live)?;
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let footer = ArrowReaderMetadata::load(&file, options).map_err(|e| file.cause(&e))?;
        if footer.metadata().file_metadata().num_rows() != live.entry.file.rows as i64 {
            return Err(Error::damaged("a data file has another number of rows than its manifest says"));
        }
        self.cache.put(
            CacheKey { source: live.path.clone(), part: CachedPart::Footer },
            CachedValue::Footer(footer.clone()),
        );
        Ok(footer)
    }

    /// Returns bounds of the row ids in a range of rows, as tight as they are known without I/O.
    pub(super) fn known_id_bounds(&self, live: &LiveFile, position: u64, rows: u32) -> (RowId, RowId) {
        let footer = self.cached_footer(live);
        let known = footer.and_then(|f| bounds::row_ids(&f, position..position + u64::from(rows)));
        known.map_or((live.first, live.last), |(first, last)| (first.max(live.first), last.min(live.last)))
    }

    /// Returns the parts that may contain one of these rows, which ascend.
    pub(super) fn parts_with(&self, live: &LiveFile, rows: &[RowId]) -> Result<Vec<u64>> {
        self.parts(live, |first, last| {
            let from = rows.partition_point(|row| *row < first);
            rows.get(from).is_some_and(|row| *row <= last)
        })
    }

    /// Returns the parts that may contain a row id of a range.
    pub(super) fn parts_within(&self, live: &LiveFile, rows: &Range<u64>) -> Result<Vec<u64>> {
        self.parts(live, |first, last| first.0 < rows.end && last.0 >= rows.start)
    }

    fn parts(&self, live: &LiveFile, may: impl Fn(RowId, RowId) -> bool) -> Result<Vec<u64>> {
        let footer = self.footer(live)?;
        let count = live.entry.file.rows.div_ceil(PART_ROWS);
        let bounds = |nth: u64| {
            let rows = nth * PART_ROWS..((nth + 1) * PART_ROWS).min(live.entry.file.rows);
            bounds::row_ids(&footer, rows).unwrap_or((live.first, live.last))
        };
        let is_wanted = |nth: &u64| {
            let (first, last) = bounds(*nth);
            may(first, last)
        };
        Ok((0..count).filter(is_wanted).collect())
    }

    pub(super) fn row_ids(&self, live: &LiveFile, nth: u64) -> Result<ArrayRef> {
        self.stored_columns(live, nth, &[ROW_ID], true)?.pop().flatten().ok_or_else(without_ids)
    }

    /// Returns the row ids of a part for a single pass over many parts: the decoded ids are not cached.
    pub(super) fn row_ids_uncached(&self, live: &LiveFile, nth: u64) -> Result<ArrayRef> {
        self.stored_columns(live, nth, &[ROW_ID], false)?.pop().flatten().ok_or_else(without_ids)
    }

    /// Returns the row ids and the columns of a part together.
    pub(super) fn columns_with_row_ids(
        &self,
        live: &LiveFile,
        nth: u64,
        wanted: &[(ColumnId, Arrow)],
    ) -> Result<(ArrayRef, Vec<Option<ArrayRef>>)> {
        let ids: Vec<ColumnId> = std::iter::once(ROW_ID).chain(wanted.iter().map(|(id, _)| *id)).collect();
        let mut stored = self.stored_columns(live, nth, &ids, true)?;
        let columns = stored.split_off(1);
        Ok((stored.pop().flatten().ok_or_else(without_ids)?, cast_columns(columns, wanted)?))
    }

    pub(super) fn columns(
        &self,
        live: &LiveFile,
        nth: u64,
        wanted: &[(ColumnId, Arrow)],
    ) -> Result<Vec<Option<ArrayRef>>> {
        let ids: Vec<ColumnId> = wanted.iter().map(|(id, _)| *id).collect();
        cast_columns(self.stored_columns(live, nth, &ids, true)?, wanted)
    }

    pub(super) fn columns_uncached(
        &self,
        live: &LiveFile,
        nth: u64,
        wanted: &[(ColumnId, Arrow)],
    ) -> Result<Vec<Option<ArrayRef>>> {
        let ids: Vec<ColumnId> = wanted.iter().map(|(id, _)| *id).collect();
        cast_columns(self.stored_columns(live, nth, &ids, false)?, wanted)
    }

    /// Returns columns of a part in their stored types; `None` for a column that the file lacks.
    fn stored_columns(
        &self,
        live: &LiveFile,
        nth: u64,
        wanted: &[ColumnId],
        keeps: bool,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let key = |id: ColumnId| CacheKey {
            source: live.path.clone(),
            part: CachedPart::Column { nth, column: id.0 },
        };
        let mut all: Vec<Option<ArrayRef>> = Vec::with_capacity(wanted.len());
        for id in wanted {
            all.push(match self.cache.get(&key(*id)) {
                Some(CachedValue::Column(array)) => Some(array),
                _ => None,
            });
        }
        self.cache.found.fetch_add(all.iter().flatten().count() as u64, Relaxed);
        if all.iter().all(Option::is_some) {
            return Ok(all);
        }
        let footer = self.footer(live)?;
        let fields = footer.parquet_schema().root_schema().get_fields();
        let place = |id: ColumnId| {
            let is_it = |info: &parquet::schema::types::BasicTypeInfo| {
                info.has_id() && i64::from(info.id()) == i64::from(id.0)
            };
            fields.iter().position(|field| is_it(field.get_basic_info()))
        };
        let mut roots: Vec<usize> = (wanted.iter().zip(&all))
            .filter(|(_, known)| known.is_none())
            .filter_map(|(id, _)| place(*id))
            .collect();
        roots.sort_unstable();
        roots.dedup();
        if roots.is_empty() {
            return Ok(all);
        }
        let arrays = self.decode(live, footer.clone(), nth, &roots)?;
        for (id, known) in wanted.iter().zip(&mut all) {
            let at = place(*id).and_then(|root| roots.binary_search(&root).ok());
            if let (None, Some(at)) = (&known, at) {
                if keeps {
                    self.cache.put(key(*id), CachedValue::Column(arrays[at].clone()));
                }
                *known = Some(arrays[at].clone());
            }
        }
        Ok(all)
    }

    fn decode(
        &self,
        live: &LiveFile,
        footer: ArrowReaderMetadata,
        nth: u64,
        roots: &[usize],
    ) -> Result<Vec<ArrayRef>> {
        let rows = nth * PART_ROWS..((nth + 1) * PART_ROWS).min(live.entry.file.rows);
        let (mut groups, mut first, mut skip) = (Vec::new(), 0u64, 0u64);
        for (group, meta) in footer.metadata().row_groups().iter().enumerate() {
            let end = first + meta.num_rows().max(0) as u64;
            if end > rows.start && first < rows.end {
                if groups.is_empty() {
                    skip = rows.start.saturating_sub(first);
                }
                groups.push(group);
            }
            first = end;
        }
        let count = (rows.end - rows.start) as usize;
        let file = self.file(live)?;
        let mask = ProjectionMask::roots(footer.parquet_schema(), roots.iter().copied());
        let selection: RowSelection =
            vec![RowSelector::skip(skip as usize), RowSelector::select(count)].into();
        self.cache.row_groups.fetch_add(groups.len() as u64, Relaxed);
        self.cache.parts.fetch_add(1, Relaxed);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), footer)
            .with_projection(mask)
            .with_row_groups(groups)
            .with_row_selection(selection)
            .with_batch_size(count)
            .build()
            .map_err(|e| file.cause(&e))?;
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|e| file.cause(&e))?;
        if batches.iter().map(|batch| batch.num_rows()).sum::<usize>() != count {
            return Err(Error::damaged("fewer rows in a data file than its footer says"));
        }
        let column = |at: usize| {
            let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            match &batches[..] {
                [only] => Ok(only.column(at).clone()),
                _ => concat(&parts).map_err(|e| Error::damaged(format!("a data file cannot be read: {e}"))),
            }
        };
        let arrays = (0..roots.len()).map(column).collect::<Result<Vec<ArrayRef>>>()?;
        let bytes: usize = arrays.iter().map(|array| array.get_array_memory_size()).sum();
        self.cache.decoded_bytes.fetch_add(bytes as u64, Relaxed);
        Ok(arrays)
    }
}

fn without_ids() -> Error {
    Error::damaged("a data file without row ids")
}

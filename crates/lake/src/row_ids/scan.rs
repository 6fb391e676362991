//! Reads the row ids of a data file.

use bytes::Bytes;
use iceberg::schema::parquet_error;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use types::{Error, ROW_ID, Result, RowId};

use super::ids_of;

/// Rows that are read at once.
const BATCH_ROWS: usize = 32 << 10;

/// Passes positions and row ids of a data file to `each`, in the order of the file: all, or at least those in `wanted`,
/// which must ascend.
pub fn scan(
    bytes: Bytes,
    wanted: Option<&[RowId]>,
    each: &mut dyn FnMut(u64, RowId) -> Result<()>,
) -> Result<()> {
    let policy = if wanted.is_some() { PageIndexPolicy::Optional } else { PageIndexPolicy::Skip };
    let options = ArrowReaderOptions::new().with_page_index_policy(policy);
    let metadata = ArrowReaderMetadata::load(&bytes, options).map_err(parquet_error)?;
    let schema = metadata.parquet_schema();
    let is_row_id = |t: &parquet::schema::types::Type| {
        let info = t.get_basic_info();
        info.has_id() && info.id() == ROW_ID.0 as i32
    };
    let at = schema.root_schema().get_fields().iter().position(|field| is_row_id(field));
    let at = at.ok_or_else(|| Error::damaged("a data file without row ids"))?;
    let mask = ProjectionMask::roots(schema, [at]);
    // The row id is a leaf after those of the columns before it.
    let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == at);
    let leaf = leaf.ok_or_else(|| Error::damaged("a data file without row ids"))?;
    let all = 0..metadata.metadata().file_metadata().num_rows().max(0) as u64;
    let parts = match wanted {
        None => std::iter::once(all).collect(),
        Some(wanted) => parts_with(metadata.metadata(), leaf, wanted),
    };
    let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata)
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS);
    if wanted.is_some() {
        builder = builder.with_row_selection(selection(&parts));
    }
    let mut positions = parts.into_iter().flatten();
    for batch in builder.build().map_err(parquet_error)? {
        let batch = batch.map_err(|e| Error::damaged(format!("a data file cannot be read: {e}")))?;
        for id in ids_of(batch.column(0))? {
            let position =
                positions.next().ok_or_else(|| Error::damaged("more rows than a data file says"))?;
            each(position, RowId(*id as u64))?;
        }
    }
    if positions.next().is_some() {
        return Err(Error::damaged("fewer rows than a data file says"));
    }
    Ok(())
}

type RowRange = std::ops::Range<u64>;

/// Returns the row ranges whose bounds admit a wanted row: pages if their bounds are known, else row groups.
fn parts_with(metadata: &ParquetMetaData, leaf: usize, wanted: &[RowId]) -> Vec<RowRange> {
    let may_hold = |least: Option<i64>, most: Option<i64>| match (least, most) {
        (Some(least), Some(most)) => {
            let from = wanted.partition_point(|row| (row.0 as i64) < least);
            wanted.get(from).is_some_and(|row| row.0 as i64 <= most)
        }
        _ => true,
    };
    let mut parts: Vec<RowRange> = Vec::new();
    let mut add = |rows: RowRange| match parts.last_mut() {
        _ if rows.is_empty() => {}
        // A damaged index may go backwards.
        Some(last) if last.end >= rows.start => last.end = last.end.max(rows.end),
        _ => parts.push(rows),
    };
    let mut first = 0u64;
    for (nth, group) in metadata.row_groups().iter().enumerate() {
        let rows = first..first + group.num_rows().max(0) as u64;
        first = rows.end;
        let (least, most) = match group.column(leaf).statistics() {
            Some(parquet::file::statistics::Statistics::Int64(s)) => {
                (s.min_opt().copied(), s.max_opt().copied())
            }
            _ => (None, None),
        };
        if !may_hold(least, most) {
            continue;
        }
        let bounds = metadata.column_index().and_then(|index| index.get(nth)?.get(leaf));
        let pages = metadata.offset_index().and_then(|index| index.get(nth)?.get(leaf));
        let (Some(ColumnIndexMetaData::INT64(bounds)), Some(pages)) = (bounds, pages) else {
            add(rows);
            continue;
        };
        let pages = pages.page_locations();
        for (page, location) in pages.iter().enumerate() {
            let begin = rows.start + location.first_row_index.max(0) as u64;
            let end =
                pages.get(page + 1).map_or(rows.end, |next| rows.start + next.first_row_index.max(0) as u64);
            if may_hold(bounds.min_value(page).copied(), bounds.max_value(page).copied()) {
                add(begin..end.min(rows.end));
            }
        }
    }
    parts
}

fn selection(parts: &[RowRange]) -> RowSelection {
    let mut selectors = Vec::with_capacity(parts.len() * 2);
    let mut at = 0;
    for rows in parts {
        selectors.push(RowSelector::skip((rows.start - at) as usize));
        selectors.push(RowSelector::select((rows.end - rows.start) as usize));
        at = rows.end;
    }
    selectors.into()
}

//! Bounds of values in a range of a data file, known without reading the values: from the file's manifest entry, its page
//! index and its partition.

use std::ops::Range;

use arrow::array::ArrayRef;
use iceberg::manifest::DataFile;
use iceberg::single_value::decimal_from_bytes;
use iceberg::spec::{Partition, Spec};
use iceberg::transform;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use table::{LakeFileRange, Zone};
use types::{ColumnId, DataType, ROW_ID, RowId, Value};

/// Returns the zone of a whole file from its manifest entry. There is none for floats, whose bounds ignore NaNs.
pub(super) fn zone_of_file(file: &DataFile, column: ColumnId, data_type: &DataType) -> Option<Zone> {
    let id = i32::try_from(column.0).ok()?;
    let metrics = &file.metrics;
    let count =
        |of: &[(i32, i64)]| of.iter().find(|(of, _)| *of == id).map(|(_, n)| n.max(&0).unsigned_abs());
    let nulls = count(&metrics.nulls);
    if nulls == Some(file.rows) {
        return Some(Zone { min: None, max: None, nulls: file.rows });
    }
    let bound = |of: &[(i32, Vec<u8>)]| {
        let (_, bytes) = of.iter().find(|(of, _)| *of == id)?;
        value(bytes, data_type)
    };
    let min = bound(&metrics.lower)?;
    Some(Zone { min: Some(min), max: bound(&metrics.upper), nulls: nulls.unwrap_or(file.rows) })
}

fn value(bytes: &[u8], data_type: &DataType) -> Option<Value> {
    let integer = || match bytes.len() {
        4 => Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        8 => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    };
    Some(match data_type {
        DataType::Bool => Value::Bool(*bytes.first()? != 0),
        DataType::Int32 => Value::Int32(integer()?.try_into().ok()?),
        DataType::Int64 => Value::Int64(integer()?),
        DataType::Date => Value::Date(integer()?.try_into().ok()?),
        DataType::Timestamp => Value::Timestamp(integer()?),
        DataType::String => Value::String(std::str::from_utf8(bytes).ok()?.to_owned()),
        DataType::Decimal { .. } => Value::Decimal(decimal_from_bytes(bytes)?),
        _ => return None,
    })
}

/// Returns the zone of the pages that overlap a range of a file, from its page index.
pub(super) fn zone_of_pages(
    footer: &ArrowReaderMetadata,
    file_range: &LakeFileRange,
    column: ColumnId,
    data_type: &DataType,
) -> Option<Zone> {
    let rows = file_range.position..file_range.position + u64::from(file_range.rows);
    let mut zone: Option<Zone> = None;
    let mut add = |index: &ColumnIndexMetaData, page: usize| {
        let Zone { min, max, nulls } = zone_of_page(index, page, data_type)?;
        zone = Some(match zone.take() {
            None => Zone { min, max, nulls },
            Some(known) => Zone {
                max: match (known.min.is_some(), min.is_some()) {
                    (true, true) => if_both_known(known.max, max, greatest)?,
                    (true, false) => known.max,
                    (false, _) => max,
                },
                min: match (known.min, min) {
                    (Some(a), Some(b)) => Some(least(a, b)?),
                    (a, b) => a.or(b),
                },
                nulls: known.nulls + nulls,
            },
        });
        Some(())
    };
    each_page(footer, column, &rows, &mut add)?;
    zone
}

/// Returns the zone of one page; `None` if the index has no bounds for values of this type.
pub(crate) fn zone_of_page(index: &ColumnIndexMetaData, page: usize, data_type: &DataType) -> Option<Zone> {
    let (min, max) = bounds_of_page(index, page, data_type)?;
    let nulls = index.null_count(page)?.max(0).unsigned_abs();
    // A page of nulls has no bounds. A page with only an upper bound would be indistinguishable from it.
    if min.is_none() && !index.is_null_page(page) {
        return None;
    }
    Some(Zone { min, max, nulls })
}

/// Returns the bounds of a page, each `None` if it is missing. The result is `None` for types without page bounds.
pub(crate) fn bounds_of_page(
    index: &ColumnIndexMetaData,
    page: usize,
    data_type: &DataType,
) -> Option<(Option<Value>, Option<Value>)> {
    Some(match (index, data_type) {
        (ColumnIndexMetaData::INT32(of), DataType::Int32) => {
            let bound = |value: Option<&i32>| value.copied().map(Value::Int32);
            (bound(of.min_value(page)), bound(of.max_value(page)))
        }
        (ColumnIndexMetaData::INT32(of), DataType::Int64) => {
            let bound = |value: Option<&i32>| value.map(|value| Value::Int64((*value).into()));
            (bound(of.min_value(page)), bound(of.max_value(page)))
        }
        (ColumnIndexMetaData::INT32(of), DataType::Date) => {
            let bound = |value: Option<&i32>| value.copied().map(Value::Date);
            (bound(of.min_value(page)), bound(of.max_value(page)))
        }
        (ColumnIndexMetaData::INT64(of), DataType::Int64) => {
            let bound = |value: Option<&i64>| value.copied().map(Value::Int64);
            (bound(of.min_value(page)), bound(of.max_value(page)))
        }
        (ColumnIndexMetaData::INT64(of), DataType::Timestamp) => {
            let bound = |value: Option<&i64>| value.copied().map(Value::Timestamp);
            (bound(of.min_value(page)), bound(of.max_value(page)))
        }
        (ColumnIndexMetaData::BYTE_ARRAY(of), DataType::String) => {
            let bound = |value: Option<&[u8]>| {
                value.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(|text| Value::String(text.into()))
            };
            (bound(of.min_value(page)), bound(of.max_value(page)))
        }
        _ => return None,
    })
}

/// Combines two bounds; none results if one is unknown.
fn if_both_known(
    a: Option<Value>,
    b: Option<Value>,
    pick: fn(Value, Value) -> Option<Value>,
) -> Option<Option<Value>> {
    match (a, b) {
        (Some(a), Some(b)) => pick(a, b).map(Some),
        _ => Some(None),
    }
}

fn order(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    Some(match (a, b) {
        (Value::Int32(a), Value::Int32(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        _ => return None,
    })
}

fn least(a: Value, b: Value) -> Option<Value> {
    Some(if order(&a, &b)?.is_le() { a } else { b })
}

fn greatest(a: Value, b: Value) -> Option<Value> {
    Some(if order(&a, &b)?.is_ge() { a } else { b })
}

/// Returns bounds of the row ids of some rows of a file, from its page index; `None` if it has none.
pub(super) fn row_ids(footer: &ArrowReaderMetadata, rows: Range<u64>) -> Option<(RowId, RowId)> {
    let mut bounds: Option<(i64, i64)> = None;
    let mut add = |index: &ColumnIndexMetaData, page: usize| {
        let ColumnIndexMetaData::INT64(of) = index else { return None };
        let (min, max) = (*of.min_value(page)?, *of.max_value(page)?);
        bounds = Some(bounds.map_or((min, max), |(low, high)| (low.min(min), high.max(max))));
        Some(())
    };
    each_page(footer, ROW_ID, &rows, &mut add)?;
    let (first, last) = bounds?;
    Some((RowId(u64::try_from(first).ok()?), RowId(u64::try_from(last).ok()?)))
}

/// Calls `each` for the pages of a column that overlap `rows`. Returns `None` if there is no index, or if `each` did.
fn each_page(
    footer: &ArrowReaderMetadata,
    column: ColumnId,
    rows: &Range<u64>,
    each: &mut dyn FnMut(&ColumnIndexMetaData, usize) -> Option<()>,
) -> Option<()> {
    let (schema, metadata) = (footer.parquet_schema(), footer.metadata());
    let is_it = |field: &parquet::schema::types::TypePtr| {
        let info = field.get_basic_info();
        info.has_id() && i64::from(info.id()) == i64::from(column.0)
    };
    let root = schema.root_schema().get_fields().iter().position(is_it)?;
    // Bounds are comparable only in columns with a single leaf.
    let mut leaves = (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root);
    let leaf = leaves.next()?;
    if leaves.next().is_some() || schema.column(leaf).max_rep_level() > 0 {
        return None;
    }
    let mut first = 0u64;
    for (group, meta) in metadata.row_groups().iter().enumerate() {
        let end = first + meta.num_rows().max(0) as u64;
        let begin = std::mem::replace(&mut first, end);
        if end <= rows.start || begin >= rows.end {
            continue;
        }
        let index = metadata.column_index()?.get(group)?.get(leaf)?;
        let pages = metadata.offset_index()?.get(group)?.get(leaf)?.page_locations();
        for page in 0..pages.len() {
            let has = rows_of_page(pages, page, &(begin..end));
            if has.end > rows.start && has.start < rows.end {
                each(index, page)?;
            }
        }
    }
    Some(())
}

/// Returns the rows of a page, where `group` are the rows of its row group.
pub(crate) fn rows_of_page(pages: &[PageLocation], page: usize, group: &Range<u64>) -> Range<u64> {
    let first = |page: &PageLocation| group.start + page.first_row_index.max(0) as u64;
    pages.get(page).map_or(group.end, first)..pages.get(page + 1).map_or(group.end, first)
}

/// Returns true if a partition cannot contain a value, judged by its bucket.
pub(super) fn excludes_value(spec: &Spec, partition: &Partition, column: ColumnId, value: &Value) -> bool {
    let excludes_value =
        |(field, of): (&iceberg::spec::SpecField, &Option<iceberg::single_value::SingleValue>)| {
            let count = field.transform.strip_prefix("bucket[")?.strip_suffix(']')?.parse().ok()?;
            if i64::from(field.source) != i64::from(column.0) {
                return None;
            }
            let data_type = match value {
                Value::Int32(_) => DataType::Int32,
                Value::Int64(_) => DataType::Int64,
                Value::String(_) => DataType::String,
                Value::Date(_) => DataType::Date,
                Value::Timestamp(_) => DataType::Timestamp,
                _ => return None,
            };
            let array: ArrayRef = Value::to_array(std::slice::from_ref(value), &data_type).ok()?;
            let bucket = transform::apply(types::Transform::Bucket(count), &array).ok()?;
            let bucket = transform::value_at(&bucket, 0).ok()?;
            // A partition whose bucket is null contains only nulls.
            Some(bucket != *of)
        };
    spec.fields.iter().zip(&partition.values).any(|pair| excludes_value(pair) == Some(true))
}

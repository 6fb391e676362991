//! Checks the statistics of a data file: minimum, maximum and number of nulls of each row group and page.
//!
//! Readers skip data that the statistics exclude. Readers of the lake use page statistics and the manifest, whose bounds
//! are taken from the row groups; a lookup of row ids uses both. Wrong statistics would hide rows, so each is compared with
//! the values while the file is read, by the functions that readers use. A bound need not be tight: texts are truncated.

use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::mem::take;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use iceberg::schema::{Columns, Leaf};
use iceberg::single_value::SingleValue;
use iceberg::transform::value_at;
use parquet::file::metadata::ParquetMetaData;
use types::{DataType, Error, ROW_ID, Result, Value, name};

use crate::data_file::{bounds, trusted_bounds, values_at};
use crate::evicted_rows::bounds::{bounds_of_page, rows_of_page, zone_of_page};

/// Compares a file's statistics with its values, batch by batch.
pub(super) struct StatisticsCheck<'a> {
    metadata: &'a ParquetMetaData,
    columns: Vec<ColumnCheck>,
    /// Number of rows so far.
    rows: u64,
}

/// A leaf column, or a field of structs in a column.
struct ColumnCheck {
    leaf: Leaf,
    /// Type as which readers interpret the page bounds; `None` if no reader uses them.
    data_type: Option<DataType>,
    /// Pages and row groups that have not ended, in the order of their ends.
    spans: VecDeque<Span>,
    page: ActualValues,
    group: ActualValues,
    is_unbounded: bool,
}

/// A page or row group. It ends before row `end`.
#[derive(Clone, Copy)]
struct Span {
    end: u64,
    group: usize,
    page: Option<usize>,
}

/// Properties of the actual values in a span.
#[derive(Default)]
struct ActualValues {
    rows: u64,
    nulls: u64,
    bounds: Option<(SingleValue, SingleValue)>,
}

/// Properties of a span according to the file's statistics.
#[derive(Default)]
struct ClaimedStatistics {
    min: Option<SingleValue>,
    max: Option<SingleValue>,
    nulls: Option<u64>,
    /// True if the statistics have no bounds because all values are null.
    is_null: bool,
}

impl<'a> StatisticsCheck<'a> {
    /// Begins a check. `leaves` are the table's leaves that the file has. Its page index must have been checked.
    pub fn new(
        metadata: &'a ParquetMetaData,
        leaves: &[Option<Leaf>],
        columns: &Columns,
    ) -> StatisticsCheck<'a> {
        let column = |leaf: &Leaf| ColumnCheck {
            data_type: match leaf.path[..] {
                [0] => Some(DataType::Int64),
                [1] => Some(DataType::Timestamp),
                [at] => columns.def.schema.columns.get(at - 2).map(|column| column.data_type.clone()),
                _ => None,
            },
            spans: spans(metadata, leaf.at),
            leaf: leaf.clone(),
            page: ActualValues::default(),
            group: ActualValues::default(),
            is_unbounded: false,
        };
        StatisticsCheck { metadata, columns: leaves.iter().flatten().map(column).collect(), rows: 0 }
    }

    /// Adds the next rows of the file.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        for column in &mut self.columns {
            column.add(self.metadata, batch, self.rows)?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Ends the check after the last row. Returns the ids of leaves with values for which a row group has no bounds.
    pub fn finish(self) -> Result<HashSet<i32>> {
        if self.columns.iter().any(|column| !column.spans.is_empty()) {
            return Err(Error::damaged("its row groups have more rows than it says"));
        }
        let unbounded = self.columns.iter().filter(|column| column.is_unbounded);
        Ok(unbounded.map(|column| column.leaf.id).collect())
    }
}

/// Returns a column's pages, as far as the index has them, and its row groups.
fn spans(metadata: &ParquetMetaData, leaf: usize) -> VecDeque<Span> {
    let (mut spans, mut end) = (VecDeque::new(), 0u64);
    for (group, meta) in metadata.row_groups().iter().enumerate() {
        let rows = end..end + meta.num_rows().max(0) as u64;
        end = rows.end;
        let index = metadata.offset_index().and_then(|index| index.get(group)?.get(leaf));
        if let Some(pages) = index.map(|index| index.page_locations()) {
            let page =
                |page: usize| Span { end: rows_of_page(pages, page, &rows).end, group, page: Some(page) };
            spans.extend((0..pages.len()).map(page));
        }
        spans.push_back(Span { end, group, page: None });
    }
    spans
}

impl ColumnCheck {
    /// Adds rows of the file, the first of which is row `first`.
    fn add(&mut self, metadata: &ParquetMetaData, batch: &RecordBatch, first: u64) -> Result<()> {
        let (array, nulls) = values_at(batch, &self.leaf.path);
        let is_null = |row: &usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(*row));
        let end = first + batch.num_rows() as u64;
        let mut at = first;
        loop {
            while let Some(span) = self.spans.front().copied().filter(|span| span.end <= at) {
                self.spans.pop_front();
                self.end(metadata, span)?;
            }
            if at == end {
                return Ok(());
            }
            let to = self.spans.front().map_or(end, |span| span.end.min(end));
            let rows = (at - first) as usize..(to - first) as usize;
            let nulls = rows.clone().filter(is_null).count() as u64;
            let bounds = match extremes(array, rows.clone().filter(|row| !is_null(row)))? {
                Some((least, most)) => value_at(array, least)?.zip(value_at(array, most)?),
                None => None,
            };
            for actual in [&mut self.page, &mut self.group] {
                actual.add(rows.len() as u64, nulls, bounds.as_ref());
            }
            at = to;
        }
    }

    /// Compares a page or row group after its last row.
    fn end(&mut self, metadata: &ParquetMetaData, span: Span) -> Result<()> {
        let (claimed, actual) = match span.page {
            Some(page) => (self.claims_of_page(metadata, span.group, page), take(&mut self.page)),
            None => (self.claims_of_group(metadata, span.group)?, take(&mut self.group)),
        };
        if let Some(wrong) = claimed.first_error(&actual) {
            let place = match span.page {
                Some(page) => format!("page {page} of row group {}", span.group),
                None => format!("row group {}", span.group),
            };
            let column = self.column_name(metadata, span.group);
            return Err(Error::damaged(format!(
                "{place} says of its column `{column}` that {wrong}; write it with right statistics, or with none"
            )));
        }
        if span.page.is_none() {
            self.is_unbounded |= actual.bounds.is_some() && claimed.min.is_none() && claimed.max.is_none();
        }
        Ok(())
    }

    fn claims_of_page(&self, metadata: &ParquetMetaData, group: usize, page: usize) -> ClaimedStatistics {
        let index = metadata.column_index().and_then(|index| index.get(group)?.get(self.leaf.at));
        let (Some(index), Some(data_type)) = (index, &self.data_type) else {
            return ClaimedStatistics::default();
        };
        // Lookups of row ids use bounds even where the number of nulls is missing.
        let Some((min, max)) = bounds_of_page(index, page, data_type) else {
            return ClaimedStatistics::default();
        };
        let zone = zone_of_page(index, page, data_type);
        ClaimedStatistics {
            min: min.and_then(value),
            max: max.and_then(value),
            nulls: zone.as_ref().map(|zone| zone.nulls),
            is_null: zone.is_some_and(|zone| zone.min.is_none()),
        }
    }

    fn claims_of_group(&self, metadata: &ParquetMetaData, group: usize) -> Result<ClaimedStatistics> {
        let meta = metadata.row_group(group);
        let chunk = meta.column(self.leaf.at);
        if chunk.num_values() != meta.num_rows() {
            return Err(Error::damaged(format!(
                "row group {group} has {} rows, and says of its column `{}` that it has {} values",
                meta.num_rows(),
                self.column_name(metadata, group),
                chunk.num_values()
            )));
        }
        let Some(statistics) = chunk.statistics() else { return Ok(ClaimedStatistics::default()) };
        // Lookups of row ids use bounds of deprecated statistics too.
        let (min, max) = if self.leaf.id == ROW_ID.0 as i32 {
            bounds(statistics, self.leaf.primitive_type)
        } else {
            trusted_bounds(statistics, self.leaf.primitive_type)
        };
        Ok(ClaimedStatistics { min, max, nulls: statistics.null_count_opt(), is_null: false })
    }

    fn column_name(&self, metadata: &ParquetMetaData, group: usize) -> String {
        name::printable(&metadata.row_group(group).column(self.leaf.at).column_path().string())
    }
}

impl ActualValues {
    fn add(&mut self, rows: u64, nulls: u64, bounds: Option<&(SingleValue, SingleValue)>) {
        self.rows += rows;
        self.nulls += nulls;
        let Some((least, most)) = bounds else { return };
        self.bounds = Some(match self.bounds.take() {
            None => (least.clone(), most.clone()),
            Some((low, high)) => (
                if *least < low { least.clone() } else { low },
                if *most > high { most.clone() } else { high },
            ),
        });
    }
}

impl ClaimedStatistics {
    /// Returns a description of the first wrong statistic.
    fn first_error(&self, actual: &ActualValues) -> Option<String> {
        if let Some(nulls) = self.nulls.filter(|nulls| *nulls != actual.nulls) {
            return Some(format!("{nulls} of its values are null, and {} are", actual.nulls));
        }
        if self.is_null && actual.nulls < actual.rows {
            return Some("all of its values are null, and some are not".into());
        }
        let (least, most) = actual.bounds.as_ref()?;
        let holds = |a: &SingleValue, b: &SingleValue| a.partial_cmp(b).is_some_and(Ordering::is_le);
        if let Some(min) = self.min.as_ref().filter(|min| !holds(min, least)) {
            return Some(format!("no value is below {}, and {} is", bound_text(min), bound_text(least)));
        }
        let max = self.max.as_ref().filter(|max| !holds(most, max))?;
        Some(format!("no value is above {}, and {} is", bound_text(max), bound_text(most)))
    }
}

/// Converts a page bound.
fn value(bound: Value) -> Option<SingleValue> {
    Some(match bound {
        Value::Int32(value) | Value::Date(value) => SingleValue::Int(value.into()),
        Value::Int64(value) | Value::Timestamp(value) => SingleValue::Int(value),
        Value::String(text) => SingleValue::Bytes(text.into_bytes()),
        _ => return None,
    })
}

fn bound_text(value: &SingleValue) -> String {
    match value {
        SingleValue::Bool(value) => value.to_string(),
        SingleValue::Int(value) => value.to_string(),
        SingleValue::Float(value) => value.to_string(),
        SingleValue::Decimal(value) => value.to_string(),
        SingleValue::Bytes(bytes) => format!("`{}`", name::printable(&String::from_utf8_lossy(bytes))),
    }
}

/// Returns the rows of the least and the greatest of some non-null values. NaNs are left out.
fn extremes(array: &ArrayRef, rows: impl Iterator<Item = usize>) -> Result<Option<(usize, usize)>> {
    let unknown = || Error::internal(format!("a column of type {} has no bounds", array.data_type()));
    macro_rules! numbers {
        ($of:ty) => {{
            let values = array.as_primitive_opt::<$of>().ok_or_else(unknown)?.values();
            extremes_by(rows, |row| values[row], Ord::cmp)
        }};
    }
    Ok(match array.data_type() {
        Arrow::Boolean => {
            let values = array.as_boolean();
            extremes_by(rows, |row| values.value(row), Ord::cmp)
        }
        Arrow::Int32 => numbers!(Int32Type),
        Arrow::Int64 => numbers!(Int64Type),
        Arrow::Date32 => numbers!(Date32Type),
        Arrow::Timestamp(..) => numbers!(TimestampMicrosecondType),
        Arrow::Decimal128(..) => numbers!(Decimal128Type),
        Arrow::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            extremes_by(rows.filter(|row| !values[*row].is_nan()), |row| values[row], f32::total_cmp)
        }
        Arrow::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            extremes_by(rows.filter(|row| !values[*row].is_nan()), |row| values[row], f64::total_cmp)
        }
        Arrow::Utf8 => {
            let values = array.as_string::<i32>();
            extremes_by(rows, |row| values.value(row).as_bytes(), |a, b| a.cmp(b))
        }
        Arrow::Binary => {
            let values = array.as_binary::<i32>();
            extremes_by(rows, |row| values.value(row), |a, b| a.cmp(b))
        }
        Arrow::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            extremes_by(rows, |row| values.value(row), |a, b| a.cmp(b))
        }
        _ => return Err(unknown()),
    })
}

fn extremes_by<T>(
    rows: impl Iterator<Item = usize>,
    value: impl Fn(usize) -> T,
    order: impl Fn(&T, &T) -> Ordering,
) -> Option<(usize, usize)> {
    rows.fold(None, |found, row| {
        let Some((least, most)) = found else { return Some((row, row)) };
        let new = value(row);
        let least = if order(&new, &value(least)).is_lt() { row } else { least };
        let most = if order(&new, &value(most)).is_gt() { row } else { most };
        Some((least, most))
    })
}

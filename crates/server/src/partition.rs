//! Selects the rows of a partition, named as in Iceberg's paths: `country=de/_time_day=2026-11-21`.
//!
//! The names are those of the table's partition fields in the lake. The values are the results of the `partition_by` transforms.
//! So a read by partition returns the rows that are in the files of that partition in the lake.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch, Scalar};
use arrow::compute::kernels::cmp;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::Int64Type;
use iceberg::layout::{Layout, PartitionColumn};
use iceberg::transform;
use percent_encoding::percent_decode_str;
use table::{ScanPiece, Snapshot};
use types::{ColumnId, DataType, Error, ROW_ID, Result, RowId, TIME, TableDef, Transform, Value, name};
use wire::{text, value};

/// A partition, or a set of partitions that have the same values of some fields.
#[derive(Debug)]
pub struct Partition(Vec<FieldFilter>);

#[derive(Debug)]
struct FieldFilter {
    column: ColumnId,
    data_type: DataType,
    /// The position of the column in a batch of all columns.
    at: usize,
    transform: Transform,
    /// One value, of the result type of the transform; `None` stands for null.
    wanted: Option<ArrayRef>,
}

/// The word that stands for null in a path.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

impl Partition {
    /// Parses `name=value`, or several of them separated by `/`. A `/`, `=` or `%` in names and values is percent-encoded.
    pub fn parse(def: &TableDef, asked: &str) -> Result<Partition> {
        let layout = Layout::of(def)?;
        let mut named = HashSet::new();
        let parse = |text: &str| {
            let fault = |why: String| {
                let fields: Vec<&str> = layout.partitions.iter().map(|field| field.name.as_str()).collect();
                Error::invalid(why).with("table", name::short_table_name(&def.name)).hint(
                    match fields.as_slice() {
                        [] => "the table has no `partition_by`".to_owned(),
                        fields => {
                            format!("its partitions are named by {}", engine::name_hints::one_of(fields))
                        }
                    },
                )
            };
            let decoded = |text: &str| {
                let decoded = percent_decode_str(text).decode_utf8();
                decoded
                    .map(String::from)
                    .map_err(|_| fault(format!("`{}` is not UTF-8", name::printable(text))))
            };
            let (field, value) = text.split_once('=').ok_or_else(|| {
                fault(format!("`partition` is name=value, `{}` was given", name::printable(text)))
            })?;
            let (field, value) = (decoded(field)?, decoded(value)?);
            let found = find_field(&layout, &field)
                .ok_or_else(|| fault(format!("there is no partition field `{}`", name::printable(&field))))?;
            if !named.insert(found.at) {
                return Err(fault(format!("`{}` is given twice", name::printable(&field))));
            }
            FieldFilter::new(def, found, &value)
        };
        asked.split('/').map(parse).collect::<Result<_>>().map(Partition)
    }

    /// Returns a mask of the rows of the partition in a batch with all columns of the table.
    pub fn mask(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        self.mask_of(|filter| batch.column(filter.at).clone())
    }

    fn mask_of(&self, column: impl Fn(&FieldFilter) -> ArrayRef) -> Result<BooleanArray> {
        let mut mask: Option<BooleanArray> = None;
        for filter in &self.0 {
            let fits = filter.mask(&column(filter))?;
            mask = Some(match mask {
                None => fits,
                Some(mask) => arrow::compute::and(&mask, &fits).map_err(failed)?,
            });
        }
        mask.ok_or_else(|| Error::internal("a partition of no fields"))
    }

    /// Returns the first `limit` rows of the partition from `from` on, and the row id to continue at if not all rows were read.
    /// It stops after the piece in which `scan_max` rows are reached. Pieces that the bounds of their columns rule out are not
    /// read.
    pub fn rows(
        &self,
        table: &Snapshot,
        from: RowId,
        limit: usize,
        scan_max: usize,
    ) -> Result<(Vec<RowId>, Option<RowId>)> {
        let mut columns = vec![ROW_ID];
        for filter in &self.0 {
            if !columns.contains(&filter.column) {
                columns.push(filter.column);
            }
        }
        let projection = table.projection(&columns)?;
        let (mut rows, mut scanned) = (Vec::new(), 0);
        for piece in table.pieces_after(RowId(from.0.saturating_sub(1))) {
            if !self.0.iter().all(|filter| filter.may_match(&piece).unwrap_or(true)) {
                continue;
            }
            if scanned >= scan_max {
                return Ok((rows, Some(piece.row_range().0)));
            }
            let batch = piece.read(&projection)?;
            scanned += batch.num_rows();
            let place = |filter: &FieldFilter| {
                columns.iter().position(|column| *column == filter.column).unwrap_or(0)
            };
            let mask = self.mask_of(|filter| batch.column(place(filter)).clone())?;
            let ids = batch.column(0).as_primitive::<Int64Type>();
            for at in mask.values().set_indices() {
                rows.push(RowId(ids.value(at) as u64));
                if rows.len() >= limit {
                    return Ok((rows, Some(RowId(ids.value(at) as u64 + 1))));
                }
            }
        }
        Ok((rows, None))
    }
}

/// Finds a partition field by its name in the lake, or by the name that Iceberg's own builders give it, which has no bucket count
/// or truncation width.
fn find_field<'l>(layout: &'l Layout, wanted: &str) -> Option<&'l PartitionColumn> {
    // The column of row ids has another name in the lake.
    let in_lake = wanted.strip_prefix(types::ROW_ID_NAME).map(|rest| format!("{}{rest}", lake::ROW_ID_NAME));
    let wanted = in_lake.as_deref().unwrap_or(wanted);
    if let Some(exact) = layout.partitions.iter().find(|field| field.name == wanted) {
        return Some(exact);
    }
    let short = |field: &&PartitionColumn| match field.transform {
        Transform::Bucket(n) | Transform::Truncate(n) => {
            field.name.strip_suffix(&format!("_{n}")) == Some(wanted)
        }
        _ => false,
    };
    let mut found = layout.partitions.iter().filter(short);
    found.next().filter(|_| found.next().is_none())
}

fn failed(error: arrow::error::ArrowError) -> Error {
    Error::internal(format!("a partition could not be compared: {error}"))
}

impl FieldFilter {
    fn new(def: &TableDef, field: &PartitionColumn, given: &str) -> Result<FieldFilter> {
        let (column, data_type) = match field.at {
            0 => (ROW_ID, DataType::Int64),
            1 => (TIME, DataType::Timestamp),
            at => {
                let column = &def.schema.columns[at - 2];
                (column.id, column.data_type.clone())
            }
        };
        let is_text = matches!(data_type, DataType::String | DataType::Json)
            && matches!(field.transform, Transform::Identity | Transform::Truncate(_));
        let wanted = match given {
            // Hive's word always means null.
            NULL => None,
            // A text column may contain the word "null" itself.
            "null" if !is_text => None,
            _ => Some(parse_value(field, &data_type, given)?),
        };
        Ok(FieldFilter { column, data_type, at: field.at, transform: field.transform, wanted })
    }

    fn mask(&self, column: &ArrayRef) -> Result<BooleanArray> {
        let values = transform::apply(self.transform, column)?;
        let fits = match &self.wanted {
            None => arrow::compute::is_null(&values),
            Some(wanted) => cmp::eq(&values, &Scalar::new(wanted.clone())),
        };
        let fits = fits.map_err(failed)?;
        Ok(if fits.null_count() > 0 { prep_null_mask_filter(&fits) } else { fits })
    }

    /// Returns whether a piece may have rows of the partition, judged by the bounds of the column; `None` if they do not tell.
    fn may_match(&self, piece: &ScanPiece) -> Option<bool> {
        let zone = piece.zone(self.column)?;
        let Some(wanted) = &self.wanted else { return Some(zone.nulls > 0) };
        let Some(min) = zone.min else { return Some(false) };
        let bound = |value: Value| {
            let value = Value::to_array(&[value], &self.data_type).ok()?;
            transform::apply(self.transform, &value).ok()
        };
        // NaN is outside the bounds, and hashes are not ordered like the values.
        if matches!(self.data_type, DataType::Float32 | DataType::Float64)
            || matches!(self.transform, Transform::Bucket(_)) && zone.max.as_ref() != Some(&min)
        {
            return None;
        }
        let (min, max) = (bound(min)?, bound(zone.max?)?);
        let (wanted, is) =
            (Scalar::new(wanted.clone()), |mask: BooleanArray| mask.is_valid(0) && mask.value(0));
        let from = is(cmp::lt_eq(&min, &wanted).ok()?);
        let to = is(cmp::gt_eq(&max, &wanted).ok()?);
        Some(from && to)
    }
}

/// Parses a value of a path into the result type of the transform.
fn parse_value(field: &PartitionColumn, data_type: &DataType, given: &str) -> Result<ArrayRef> {
    let fault = |wanted: String| {
        Error::invalid(format!(
            "`{}` is {wanted}, `{}` was given",
            name::printable(&field.name),
            name::printable(given)
        ))
    };
    let number = |number: Option<i64>, what: &str| {
        let number = number.and_then(|number| i32::try_from(number).ok());
        number
            .map(|number| Arc::new(Int32Array::from(vec![number])) as ArrayRef)
            .ok_or_else(|| fault(what.into()))
    };
    match field.transform {
        Transform::Identity | Transform::Truncate(_) => {
            let value = match data_type {
                DataType::Json => Some(Value::Json(given.to_owned())),
                DataType::Float32 => given.parse().ok().map(Value::Float32),
                DataType::Float64 => given.parse().ok().map(Value::Float64),
                _ => value::of_text(given, data_type).ok(),
            };
            Value::to_array(&[value.ok_or_else(|| fault(format!("of type {data_type}")))?], data_type)
        }
        Transform::Bucket(count) => {
            let bucket = given.parse().ok().filter(|bucket| (0..i64::from(count)).contains(bucket));
            number(bucket, &format!("a whole number below {count}"))
        }
        Transform::Day => number(text::parse_date(given).map(i64::from), "a day as 2026-11-21"),
        Transform::Year => number(months(given, 1).map(|months| months.div_euclid(12)), "a year as 2026"),
        Transform::Month => number(months(given, 2), "a month as 2026-11"),
        Transform::Hour => number(hours(given), "an hour as 2026-11-21-08"),
    }
}

/// Returns the months since January 1970 of a year (`parts` is 1) or of a month (`parts` is 2).
fn months(given: &str, parts: usize) -> Option<i64> {
    if given.split('-').count() != parts {
        return None;
    }
    let day = given.to_owned() + if parts == 1 { "-01-01" } else { "-01" };
    let (year, month, _) = text::civil_from_days(text::parse_date(&day)?.into());
    Some((year - 1970) * 12 + i64::from(month) - 1)
}

fn hours(given: &str) -> Option<i64> {
    let (day, hour) = given.rsplit_once('-')?;
    let hour: i64 = hour.parse().ok().filter(|n| hour.len() == 2 && (0..24).contains(n))?;
    Some(i64::from(text::parse_date(day)?) * 24 + hour)
}

#[cfg(test)]
mod tests;

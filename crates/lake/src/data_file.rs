//! Writes Parquet files of rows, and describes them for manifests.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowNativeTypeOp, ArrowPrimitiveType, DataType as Arrow, Date32Type, Float32Type, Float64Type,
    Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use iceberg::manifest::{Content, DataFile, Metrics};
use iceberg::schema::{BOUNDED_LEAVES_MAX, Columns, Leaf};
use iceberg::single_value::{PrimitiveType, SingleValue, decimal_from_bytes};
use iceberg::spec::Partition;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::AsBytes;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;
use types::Result;

use crate::parquet_writer::{FinishedFile, ParquetWriter};
use crate::row_ids::{self, RowIds};
use crate::store::Store;

/// Rows and encoded bytes of a row group, at most; the first limit reached ends it. A row group is in memory until then.
const ROW_GROUP_ROWS: usize = 1 << 20;
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a page, at most; a megabyte ends one too. A reader of few rows decodes whole pages.
const PAGE_ROWS: usize = 16 << 10;
/// Bytes that bounds of texts are truncated to.
const BOUND_BYTES: usize = 16;
/// Bytes of a bound that could not be truncated because its characters have no successor. A longer one is left out.
const BOUND_BYTES_MAX: usize = 128;
const ZSTD_LEVEL: i32 = 1;
/// A column is growing if at most one in this many values is less than the one before.
const FALLS_PART: usize = 16;
/// Rows that a batch needs to show whether a column is growing.
const GROWING_ROWS_MIN: usize = 1_000;
/// Rows from which a file has bloom filters over the key: smaller files are a page or two.
const FILTER_ROWS_MIN: u64 = 2 * PAGE_ROWS as u64;
/// False-positive rate of the bloom filters.
const FILTER_FALSE_POSITIVES: f64 = 0.02;

/// The partition that a file belongs to, and its spec.
#[derive(Clone, Debug, Default)]
pub struct FilePartition {
    pub spec: i32,
    pub partition: Arc<Partition>,
}

/// Writes a data file.
pub struct Writer<'a> {
    columns: &'a Columns,
    parquet: ParquetWriter,
    row_ids: row_ids::Builder,
    /// Number of NaNs in each leaf; 0 for leaves of other types.
    nans: Vec<u64>,
}

/// A written data file, durable except for its directory entry.
#[derive(Debug)]
pub struct WrittenFile {
    pub file: DataFile,
    /// Row ids by position; `None` if the rows are unsorted and too many for a map.
    pub row_ids: Option<Arc<RowIds>>,
}

impl<'a> Writer<'a> {
    /// Creates the file. `rows` is an upper estimate of the number of rows, `first` is the first batch.
    pub fn create(
        store: &Store,
        path: PathBuf,
        columns: &'a Columns,
        rows: u64,
        first: &RecordBatch,
    ) -> Result<Writer<'a>> {
        let properties = properties(columns, rows, Some(first));
        // Parquet's own schema defines the columns; no Arrow schema is embedded.
        let parquet =
            ParquetWriter::create(store.sink(path)?, columns.arrow.clone(), &columns.parquet, properties)?;
        let nans = vec![0; columns.leaves.len()];
        Ok(Writer { columns, parquet, row_ids: row_ids::Builder::default(), nans })
    }

    /// Adds rows. The first column is the row id.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.row_ids.extend(batch.column(0))?;
        for (leaf, nans) in self.columns.leaves.iter().zip(&mut self.nans) {
            if leaf.primitive_type.is_float() {
                *nans += count_nans(batch, &leaf.path);
            }
        }
        self.parquet.write(batch)
    }

    /// Returns the approximate size of the file if it ended here.
    pub fn bytes(&self) -> u64 {
        self.parquet.bytes()
    }

    /// Finishes the file. `location` is its path in manifests, `sort_order` the order of its rows.
    pub fn finish(
        self,
        location: String,
        place: FilePartition,
        sort_order: Option<i32>,
    ) -> Result<WrittenFile> {
        let finished = self.parquet.finish()?;
        let file = describe(finished, &self.columns.leaves, &self.nans, location, place, sort_order);
        Ok(WrittenFile { file, row_ids: self.row_ids.finish()?.map(Arc::new) })
    }
}

/// Describes a finished file for manifests, from its footer and checksums.
pub(crate) fn describe(
    finished: FinishedFile,
    leaves: &[Leaf],
    nans: &[u64],
    location: String,
    place: FilePartition,
    sort_order: Option<i32>,
) -> DataFile {
    let metadata = &finished.metadata;
    DataFile {
        content: Content::Data,
        path: location,
        spec: place.spec,
        partition: place.partition,
        rows: metadata.file_metadata().num_rows().max(0) as u64,
        bytes: finished.bytes,
        metrics: metrics(metadata, leaves, nans),
        split_offsets: metadata.row_groups().iter().map(group_offset).collect(),
        sort_order,
        checksums: Some(finished.checksums.into()),
    }
}

pub(crate) fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("zstd has this level"))
}

pub(crate) fn created_by() -> String {
    concat!("polynya ", env!("CARGO_PKG_VERSION")).into()
}

/// Returns the properties for a file of about `rows` rows, the first of which are `first`.
pub(crate) fn properties(columns: &Columns, rows: u64, first: Option<&RecordBatch>) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(created_by())
        .set_compression(compression())
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_truncate_length(Some(BOUND_BYTES));
    let always = [iceberg::schema::ROW_ID_NAME, types::TIME_NAME].map(str::to_owned);
    for column in always.into_iter().chain(first.into_iter().flat_map(growing)) {
        let path = ColumnPath::new(vec![column]);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    if rows >= FILTER_ROWS_MIN {
        for column in columns.def.key_columns() {
            // The bounds of the first sort column exclude more than a bloom filter would.
            let first = columns.layout.sorts.first().map(|sort| sort.source);
            if first == i32::try_from(column.id.0).ok() {
                continue;
            }
            let path = ColumnPath::new(vec![column.name.clone()]);
            properties = properties
                .set_column_bloom_filter_fpp(path.clone(), FILTER_FALSE_POSITIVES)
                .set_column_bloom_filter_ndv(path, rows.min(ROW_GROUP_ROWS as u64));
        }
    }
    properties.build()
}

/// Returns the integer and time columns whose values grow from row to row, such as times of events. A dictionary would cost
/// as much time as everything else there, and differences take less space.
fn growing(batch: &RecordBatch) -> Vec<String> {
    fn grows<T: ArrowPrimitiveType>(array: &ArrayRef) -> bool {
        let values = array.as_primitive::<T>().values();
        let falls = values.windows(2).filter(|pair| pair[0].is_gt(pair[1])).count();
        array.null_count() == 0 && values.len() >= GROWING_ROWS_MIN && falls * FALLS_PART <= values.len()
    }
    let grows = |array: &ArrayRef| match array.data_type() {
        Arrow::Int32 => grows::<Int32Type>(array),
        Arrow::Int64 => grows::<Int64Type>(array),
        Arrow::Date32 => grows::<Date32Type>(array),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => grows::<TimestampMicrosecondType>(array),
        _ => false,
    };
    let schema = batch.schema_ref();
    let columns = schema.fields().iter().zip(batch.columns());
    // The row id and the time always grow.
    columns.skip(2).filter(|(_, array)| grows(array)).map(|(field, _)| field.name().clone()).collect()
}

/// Returns the values at a path through a batch, and the nulls in them, those of enclosing structs included.
pub(crate) fn values_at<'b>(batch: &'b RecordBatch, path: &[usize]) -> (&'b ArrayRef, Option<NullBuffer>) {
    let mut array = batch.column(path[0]);
    let mut nulls = array.nulls().cloned();
    for field in &path[1..] {
        array = array.as_struct().column(*field);
        nulls = NullBuffer::union(nulls.as_ref(), array.nulls());
    }
    (array, nulls)
}

/// Counts the NaNs at a path through a batch.
pub(crate) fn count_nans(batch: &RecordBatch, path: &[usize]) -> u64 {
    let (array, nulls) = values_at(batch, path);
    let counts = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let count = match array.data_type() {
        Arrow::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            values.iter().enumerate().filter(|(row, value)| value.is_nan() && counts(*row)).count()
        }
        Arrow::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            values.iter().enumerate().filter(|(row, value)| value.is_nan() && counts(*row)).count()
        }
        _ => 0,
    };
    count as u64
}

pub(crate) fn group_offset(group: &parquet::file::metadata::RowGroupMetaData) -> i64 {
    group.columns().first().map_or(4, |column| column.byte_range().0 as i64)
}

/// Returns the sizes, counts and bounds of the leaves.
pub(crate) fn metrics(metadata: &ParquetMetaData, leaves: &[Leaf], nans: &[u64]) -> Metrics {
    let mut metrics = Metrics::default();
    for (nth, (leaf, nans)) in leaves.iter().zip(nans).enumerate() {
        let (mut bytes, mut values, mut nulls) = (0, 0, Some(0));
        let is_bounded = nth < BOUNDED_LEAVES_MAX;
        let none = || if is_bounded { Bound::None } else { Bound::Unknown };
        let (mut lower, mut upper) = (none(), none());
        for group in metadata.row_groups() {
            let column = group.column(leaf.at);
            bytes += column.compressed_size();
            values += column.num_values();
            let Some(statistics) = column.statistics() else {
                (nulls, lower, upper) = (None, Bound::Unknown, Bound::Unknown);
                continue;
            };
            let group_nulls = statistics.null_count_opt().map(|n| n as i64);
            nulls = nulls.zip(group_nulls).map(|(a, b)| a + b);
            if group_nulls == Some(column.num_values()) {
                // A group with nulls only has no bounds.
                continue;
            }
            let (min, max) = trusted_bounds(statistics, leaf.primitive_type);
            if *nans > 0 && min.is_none() && max.is_none() {
                // Neither has a group with nulls and NaNs only.
                continue;
            }
            lower = lower.and(min, |new, old| new < old);
            upper = upper.and(max, |new, old| new > old);
        }
        metrics.column_bytes.push((leaf.id, bytes));
        metrics.values.push((leaf.id, values));
        metrics.nulls.extend(nulls.map(|nulls| (leaf.id, nulls)));
        if leaf.primitive_type.is_float() {
            metrics.nans.push((leaf.id, *nans as i64));
        }
        let written = |bound: Bound| match bound {
            Bound::Is(single) => Some((leaf.id, leaf.primitive_type.to_bytes(&single))),
            Bound::None | Bound::Unknown => None,
        };
        metrics.lower.extend(written(lower));
        metrics.upper.extend(written(upper));
    }
    metrics
}

#[derive(Clone, Debug)]
enum Bound {
    /// There was no value so far.
    None,
    Unknown,
    Is(SingleValue),
}

impl Bound {
    fn and(self, new: Option<SingleValue>, better: impl Fn(&SingleValue, &SingleValue) -> bool) -> Bound {
        match (self, new) {
            (Bound::Unknown, _) | (_, None) => Bound::Unknown,
            (Bound::None, Some(new)) => Bound::Is(new),
            (Bound::Is(old), Some(new)) => Bound::Is(if better(&new, &old) { new } else { old }),
        }
    }
}

/// Returns a row group's bounds if manifests can use them.
pub(crate) fn trusted_bounds(
    statistics: &Statistics,
    of: PrimitiveType,
) -> (Option<SingleValue>, Option<SingleValue>) {
    // Old writers compared texts as signed bytes.
    if statistics.is_min_max_deprecated() { (None, None) } else { bounds(statistics, of) }
}

/// Returns a row group's bounds, in whatever order its writer compared values.
pub(crate) fn bounds(
    statistics: &Statistics,
    of: PrimitiveType,
) -> (Option<SingleValue>, Option<SingleValue>) {
    let is_decimal = matches!(of, PrimitiveType::Decimal { .. });
    let int =
        |value: i64| if is_decimal { SingleValue::Decimal(value.into()) } else { SingleValue::Int(value) };
    let bytes = |bytes: &[u8]| {
        if is_decimal {
            decimal_from_bytes(bytes).map(SingleValue::Decimal)
        } else {
            (bytes.len() <= BOUND_BYTES_MAX).then(|| SingleValue::Bytes(bytes.to_vec()))
        }
    };
    macro_rules! both {
        ($s:ident, $of:expr) => {
            ($s.min_opt().and_then($of), $s.max_opt().and_then($of))
        };
    }
    match statistics {
        Statistics::Boolean(s) => both!(s, |v| Some(SingleValue::Bool(*v))),
        Statistics::Int32(s) => both!(s, |v| Some(int((*v).into()))),
        Statistics::Int64(s) => both!(s, |v| Some(int(*v))),
        Statistics::Float(s) => floats(s.min_opt().map(|v| (*v).into()), s.max_opt().map(|v| (*v).into())),
        Statistics::Double(s) => floats(s.min_opt().copied(), s.max_opt().copied()),
        Statistics::ByteArray(s) => both!(s, |v| bytes(v.as_bytes())),
        Statistics::FixedLenByteArray(s) => both!(s, |v| bytes(v.as_bytes())),
        Statistics::Int96(_) => (None, None),
    }
}

/// Drops NaN bounds, and widens zeros, since writers differ in which zero they record.
fn floats(min: Option<f64>, max: Option<f64>) -> (Option<SingleValue>, Option<SingleValue>) {
    let bound = |value: Option<f64>, zero: f64| {
        let value = value.filter(|value| !value.is_nan())?;
        Some(SingleValue::Float(if value == 0.0 { zero } else { value }))
    };
    (bound(min, -0.0), bound(max, 0.0))
}

#[cfg(test)]
mod tests;

//! Parquet files of rows: written in row-id order, so that a row's position is its rank.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::AsBytes;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;
use types::{DataType, Result};
use vfs::Env;

use crate::files::Sink;
use crate::manifest::{Content, DataFile, Metrics};
use crate::row_ids::RowIds;
use crate::schema::{Columns, parquet_error};

/// A row group ends at so many rows or bytes, whatever comes first.
const ROW_GROUP_ROWS: usize = 128 << 10;
const ROW_GROUP_BYTES: usize = 16 << 20;
/// Bounds of texts are cut to so many bytes.
const BOUND_BYTES: usize = 16;
/// A bound that could not be cut (its characters have no successor) is left out if it is longer.
const BOUND_BYTES_MAX: usize = 128;
const ZSTD_LEVEL: i32 = 1;

/// A data file being written.
pub struct Writer<'a> {
    columns: &'a Columns,
    parquet: ArrowWriter<Sink>,
    rows: u64,
    row_ids: RowIds,
}

/// A file that was written and is durable but for its name.
#[derive(Debug)]
pub struct Written {
    pub file: DataFile,
    pub row_ids: Arc<RowIds>,
}

impl<'a> Writer<'a> {
    pub fn create(env: &Env, path: PathBuf, columns: &'a Columns) -> Result<Writer<'a>> {
        let sink = Sink::create(env, path)?;
        let options = ArrowWriterOptions::new()
            .with_properties(properties())
            // What the columns are is told by Parquet's own schema alone.
            .with_skip_arrow_metadata(true)
            .with_parquet_schema(columns.parquet.clone());
        let parquet =
            ArrowWriter::try_new_with_options(sink, columns.arrow.clone(), options).map_err(parquet_error)?;
        Ok(Writer { columns, parquet, rows: 0, row_ids: RowIds::default() })
    }

    /// Adds rows, in row-id order over all calls; the first column is the row id.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.row_ids.extend(batch.column(0))?;
        self.rows += batch.num_rows() as u64;
        self.parquet.write(batch).map_err(parquet_error)
    }

    /// About how large the file would be if it ended here.
    pub fn bytes(&self) -> u64 {
        (self.parquet.bytes_written() + self.parquet.in_progress_size()) as u64
    }

    /// `location` is what manifests call the file.
    pub fn finish(mut self, location: String) -> Result<Written> {
        let metadata = self.parquet.finish().map_err(parquet_error)?;
        let sink = self.parquet.inner_mut();
        sink.finish()?;
        let bytes = sink.len();
        let file = DataFile {
            content: Content::Data,
            path: location,
            rows: self.rows,
            bytes,
            metrics: metrics(&metadata, &self.columns.bounded),
            split_offsets: metadata.row_groups().iter().map(group_offset).collect(),
        };
        Ok(Written { file, row_ids: Arc::new(self.row_ids) })
    }
}

pub(crate) fn properties() -> WriterProperties {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("zstd has this level");
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("polynya ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_statistics_truncate_length(Some(BOUND_BYTES));
    // They only grow.
    for column in [types::ROW_ID_NAME, types::TIME_NAME] {
        let path = ColumnPath::from(column);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

fn group_offset(group: &parquet::file::metadata::RowGroupMetaData) -> i64 {
    group.columns().first().map_or(4, |column| column.byte_range().0 as i64)
}

/// Sizes of all columns (as far as they are told), counts and bounds of `bounded`.
fn metrics(metadata: &ParquetMetaData, bounded: &[(usize, i32, DataType)]) -> Metrics {
    let mut metrics = Metrics::default();
    for (leaf, id, data_type) in bounded {
        let (mut bytes, mut values, mut nulls) = (0, 0, Some(0));
        let (mut lower, mut upper) = (Bound::None, Bound::None);
        for group in metadata.row_groups() {
            let column = group.column(*leaf);
            bytes += column.compressed_size();
            values += column.num_values();
            let Some(statistics) = column.statistics() else {
                (nulls, lower, upper) = (None, Bound::Unknown, Bound::Unknown);
                continue;
            };
            let group_nulls = statistics.null_count_opt().map(|n| n as i64);
            nulls = nulls.zip(group_nulls).map(|(a, b)| a + b);
            if group_nulls == Some(column.num_values()) {
                // Nothing but nulls bounds nothing.
                continue;
            }
            let (min, max) = bounds(statistics, data_type);
            lower = lower.and(min, |new, old| new < old);
            upper = upper.and(max, |new, old| new > old);
        }
        metrics.column_bytes.push((*id, bytes));
        metrics.values.push((*id, values));
        metrics.nulls.extend(nulls.map(|nulls| (*id, nulls)));
        metrics.lower.extend(lower.into_bytes().map(|bytes| (*id, bytes)));
        metrics.upper.extend(upper.into_bytes().map(|bytes| (*id, bytes)));
    }
    metrics
}

/// A value as it is compared and as Iceberg writes it.
#[derive(Clone, Debug)]
enum Single {
    Bool(bool),
    Int(i64, usize),
    Float(f64, usize),
    Bytes(Vec<u8>),
    Decimal(i128),
}

#[derive(Clone, Debug)]
enum Bound {
    /// No value yet.
    None,
    Unknown,
    Is(Single),
}

impl Bound {
    fn and(self, new: Option<Single>, better: impl Fn(&Single, &Single) -> bool) -> Bound {
        match (self, new) {
            (Bound::Unknown, _) | (_, None) => Bound::Unknown,
            (Bound::None, Some(new)) => Bound::Is(new),
            (Bound::Is(old), Some(new)) => Bound::Is(if better(&new, &old) { new } else { old }),
        }
    }

    fn into_bytes(self) -> Option<Vec<u8>> {
        let Bound::Is(single) = self else { return None };
        Some(match single {
            Single::Bool(value) => vec![value.into()],
            Single::Int(value, width) => value.to_le_bytes()[..width].to_vec(),
            Single::Float(value, 4) => (value as f32).to_le_bytes().to_vec(),
            Single::Float(value, _) => value.to_le_bytes().to_vec(),
            Single::Bytes(bytes) => bytes,
            Single::Decimal(value) => shortest(value),
        })
    }
}

impl PartialEq for Single {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other).is_some_and(std::cmp::Ordering::is_eq)
    }
}

impl PartialOrd for Single {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Single::Bool(a), Single::Bool(b)) => a.partial_cmp(b),
            (Single::Int(a, _), Single::Int(b, _)) => a.partial_cmp(b),
            (Single::Float(a, _), Single::Float(b, _)) => a.partial_cmp(b),
            (Single::Bytes(a), Single::Bytes(b)) => a.partial_cmp(b),
            (Single::Decimal(a), Single::Decimal(b)) => a.partial_cmp(b),
            _ => None,
        }
    }
}

/// Two's complement, most significant byte first, as few bytes as hold it.
fn shortest(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let redundant = |at: usize| bytes[at] == sign && (bytes[at + 1] ^ sign) & 0x80 == 0;
    let first = (0..15).find(|at| !redundant(*at)).unwrap_or(15);
    bytes[first..].to_vec()
}

fn bounds(statistics: &Statistics, data_type: &DataType) -> (Option<Single>, Option<Single>) {
    let decimal = matches!(data_type, DataType::Decimal { .. });
    let int =
        |value: i64, width| if decimal { Single::Decimal(value.into()) } else { Single::Int(value, width) };
    let bytes = |bytes: &[u8]| match data_type {
        DataType::Decimal { .. } => {
            let sign = if bytes.first().is_some_and(|b| *b >= 0x80) { 0xff } else { 0 };
            let mut wide = [sign; 16];
            wide[16usize.checked_sub(bytes.len())?..].copy_from_slice(bytes);
            Some(Single::Decimal(i128::from_be_bytes(wide)))
        }
        _ => (bytes.len() <= BOUND_BYTES_MAX).then(|| Single::Bytes(bytes.to_vec())),
    };
    match statistics {
        Statistics::Boolean(s) => {
            (s.min_opt().map(|v| Single::Bool(*v)), s.max_opt().map(|v| Single::Bool(*v)))
        }
        Statistics::Int32(s) => {
            (s.min_opt().map(|v| int((*v).into(), 4)), s.max_opt().map(|v| int((*v).into(), 4)))
        }
        Statistics::Int64(s) => (s.min_opt().map(|v| int(*v, 8)), s.max_opt().map(|v| int(*v, 8))),
        Statistics::Float(s) => (
            s.min_opt().map(|v| Single::Float((*v).into(), 4)),
            s.max_opt().map(|v| Single::Float((*v).into(), 4)),
        ),
        Statistics::Double(s) => {
            (s.min_opt().map(|v| Single::Float(*v, 8)), s.max_opt().map(|v| Single::Float(*v, 8)))
        }
        Statistics::ByteArray(s) => {
            (s.min_opt().and_then(|v| bytes(v.as_bytes())), s.max_opt().and_then(|v| bytes(v.as_bytes())))
        }
        Statistics::FixedLenByteArray(s) => {
            (s.min_opt().and_then(|v| bytes(v.as_bytes())), s.max_opt().and_then(|v| bytes(v.as_bytes())))
        }
        Statistics::Int96(_) => (None, None),
    }
}

#[cfg(test)]
mod tests;

//! Position delete files: Parquet files with the positions of deleted rows in data files.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType as Arrow, Field, Int64Type, Schema};
use bytes::Bytes;
use iceberg::manifest::{Content, DataFile, Metrics};
use iceberg::schema::parquet_error;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::properties::WriterProperties;
use types::{Error, Result};

use crate::data_file::{self, FilePartition};
use crate::parquet_writer::ParquetWriter;
use crate::store::Store;

/// Field ids that Iceberg reserves for these columns.
const PATH_ID: i32 = 2_147_483_546;
const POSITION_ID: i32 = 2_147_483_545;

/// Deleted positions in one data file, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Path of the data file, as in manifests.
    pub path: Arc<str>,
    pub positions: Vec<u64>,
}

/// Rows that are passed to the Parquet writer at once.
const BATCH_ROWS: usize = 64 << 10;

/// Writes a position delete file, durable except for its directory entry. `location` is its path in manifests. All data
/// files that it refers to must be at `place`, since readers look for a file's deletes only in its own partition.
pub fn write(
    store: &Store,
    path: PathBuf,
    location: String,
    place: FilePartition,
    mut deleted: Vec<Positions>,
) -> Result<DataFile> {
    // Iceberg requires this order.
    deleted.sort_by(|a, b| a.path.cmp(&b.path));
    let field = |name: &str, arrow, id: i32| {
        Field::new(name, arrow, false)
            .with_metadata([(parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())].into())
    };
    let schema =
        Schema::new(vec![field("file_path", Arrow::Utf8, PATH_ID), field("pos", Arrow::Int64, POSITION_ID)]);
    let schema = Arc::new(schema);
    let properties = WriterProperties::builder()
        .set_created_by(data_file::created_by())
        .set_compression(data_file::compression())
        // A truncated path would be useless as a bound.
        .set_statistics_truncate_length(None)
        .build();
    let parquet = ArrowSchemaConverter::new().convert(&schema).map_err(parquet_error)?;
    let mut writer = ParquetWriter::create(store.sink(path)?, schema.clone(), &parquet, properties)?;
    let mut rows = 0u64;
    for of in &deleted {
        for part in of.positions.chunks(BATCH_ROWS) {
            rows += part.len() as u64;
            let paths = StringArray::from_iter_values(std::iter::repeat_n(&*of.path, part.len()));
            let positions = Int64Array::from_iter_values(part.iter().map(|p| *p as i64));
            let columns: Vec<ArrayRef> = vec![Arc::new(paths), Arc::new(positions)];
            let batch = RecordBatch::try_new(schema.clone(), columns)
                .map_err(|e| Error::internal(format!("a batch of positions: {e}")))?;
            writer.write(&batch)?;
        }
    }
    let finished = writer.finish()?;
    Ok(DataFile {
        content: Content::Deletes,
        path: location,
        spec: place.spec,
        partition: place.partition,
        rows,
        bytes: finished.bytes,
        metrics: Metrics {
            values: vec![(PATH_ID, rows as i64), (POSITION_ID, rows as i64)],
            nulls: vec![(PATH_ID, 0), (POSITION_ID, 0)],
            // Bounds are left out. Paths are random, so bounds would exclude next to nothing, and DuckDB 1.4 skips position
            // delete files with bounds when it looks for nulls in a column of the table.
            ..Metrics::default()
        },
        split_offsets: finished
            .metadata
            .row_groups()
            .iter()
            .filter_map(|group| Some(group.columns().first()?.byte_range().0 as i64))
            .collect(),
        sort_order: None,
        checksums: Some(finished.checksums.into()),
    })
}

/// Reads all positions, grouped by data file.
pub fn read(bytes: Bytes) -> Result<Vec<Positions>> {
    read_up_to(bytes, u64::MAX)
}

/// Reads positions, and refuses a file with more than `rows_max` of them.
pub fn read_up_to(bytes: Bytes, rows_max: u64) -> Result<Vec<Positions>> {
    let damaged = |e: String| Error::damaged(format!("a position delete file cannot be read: {e}"));
    // Ignores the writer's Arrow schema, so that columns have plain types.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)
        .map_err(|e| damaged(e.to_string()))?;
    if builder.metadata().file_metadata().num_rows().max(0) as u64 > rows_max {
        return Err(damaged(format!("it has more than {rows_max} rows")));
    }
    let fields = builder.parquet_schema().root_schema().get_fields().to_vec();
    let at = |id: i32| {
        let found = fields.iter().position(|f| f.get_basic_info().has_id() && f.get_basic_info().id() == id);
        found.ok_or_else(|| damaged(format!("it has no column {id}")))
    };
    let (path_at, position_at) = (at(PATH_ID)?, at(POSITION_ID)?);
    let mut all: Vec<Positions> = Vec::new();
    for batch in builder.build().map_err(|e| damaged(e.to_string()))? {
        let batch = batch.map_err(|e| damaged(e.to_string()))?;
        let paths = batch.column(path_at).as_string_opt::<i32>();
        let positions = batch.column(position_at).as_primitive_opt::<Int64Type>();
        let (Some(paths), Some(positions)) = (paths, positions) else {
            return Err(damaged("its columns are of other types".into()));
        };
        for (path, position) in paths.iter().zip(positions) {
            let (Some(path), Some(position)) = (path, position) else { return Err(damaged("nulls".into())) };
            let position = u64::try_from(position).map_err(|_| damaged("a negative position".into()))?;
            match all.last_mut() {
                Some(last) if *last.path == *path => last.positions.push(position),
                _ => all.push(Positions { path: path.into(), positions: vec![position] }),
            }
        }
    }
    Ok(all)
}

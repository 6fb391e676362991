//! Splices data files: concatenates their row groups without decoding them.
//!
//! A steady stream creates a file of some ten megabytes each second, and a merge would decode and encode each row again.
//! Splicing does not look at the rows. It requires files without deleted rows, in row-id order, with large row groups,
//! written by this version with the table's present columns.

use std::path::PathBuf;

use bytes::Bytes;
use iceberg::manifest::DataFile;
use iceberg::schema::{Columns, parquet_error};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
};
use parquet::file::writer::SerializedFileWriter;
use types::{Error, Result};

use crate::data_file::{self, FilePartition, WrittenFile};
use crate::page_checksums;
use crate::parquet_writer::FinishedFile;
use crate::row_ids::RowIds;
use crate::store::{Sink, Store};

/// Average bytes of row groups below which files are merged by decoding: readers open each row group separately, so they
/// should be large.
const GROUP_BYTES_MIN: u64 = if cfg!(test) { 4 << 10 } else { 8 << 20 };

/// A file that can be spliced.
pub(crate) struct SpliceInput {
    bytes: Bytes,
    metadata: ParquetMetaData,
    row_ids: RowIds,
    /// Number of NaNs in each leaf; 0 for leaves of other types.
    nans: Vec<u64>,
}

/// Returns true if a file's row groups are large enough to stay unchanged.
pub(crate) fn is_large(file: &DataFile) -> bool {
    file.bytes >= GROUP_BYTES_MIN * file.split_offsets.len() as u64
}

impl SpliceInput {
    /// Prepares a file; `None` if it has to be decoded. `row_ids` are those of its rows, if they are cached.
    pub fn of(
        bytes: Bytes,
        file: &DataFile,
        row_ids: Option<&RowIds>,
        columns: &Columns,
    ) -> Result<Option<SpliceInput>> {
        // The full list of page encodings is needed: readers skip more in a chunk whose pages all use the dictionary.
        let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
        let reader = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .with_metadata_options(Some(options));
        let metadata = reader.parse_and_finish(&bytes).map_err(parquet_error)?;
        let about = metadata.file_metadata();
        let groups = metadata.num_row_groups();
        let is_ours = about.created_by() == Some(data_file::created_by().as_str())
            && *about.schema_descr() == columns.parquet
            && metadata.column_index().is_some_and(|index| index.len() == groups)
            && metadata.offset_index().is_some_and(|index| index.len() == groups);
        if !is_ours || !is_large(file) {
            return Ok(None);
        }
        let row_ids = match row_ids {
            Some(known) => Some(known.clone()),
            None => RowIds::of_file(bytes.clone())?,
        };
        let Some(row_ids) = row_ids.filter(RowIds::is_in_row_order) else { return Ok(None) };
        if about.num_rows() as u64 != file.rows || row_ids.rows() != file.rows {
            return Err(Error::damaged("a data file has another number of rows than its manifest says"));
        }
        let told = |leaf: &iceberg::schema::Leaf| {
            let told = file.metrics.nans.iter().find(|(id, _)| *id == leaf.id);
            if leaf.primitive_type.is_float() { u64::try_from(told?.1).ok() } else { Some(0) }
        };
        let nans: Option<Vec<u64>> = columns.leaves.iter().map(told).collect();
        Ok(nans.map(|nans| SpliceInput { bytes, metadata, row_ids, nans }))
    }
}

impl SpliceInput {
    fn chunk(&self, column: &ColumnChunkMetaData) -> Option<&[u8]> {
        let from = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = from.checked_add(column.compressed_size())?;
        self.bytes.get(usize::try_from(from).ok()?..usize::try_from(end).ok()?)
    }
}

/// Writes a data file by splicing others.
pub(crate) struct SpliceWriter<'a> {
    columns: &'a Columns,
    parquet: SerializedFileWriter<Sink>,
    row_ids: RowIds,
    nans: Vec<u64>,
}

impl<'a> SpliceWriter<'a> {
    /// Creates the file. `rows` is an upper estimate of the number of rows.
    pub fn create(store: &Store, path: PathBuf, columns: &'a Columns, rows: u64) -> Result<SpliceWriter<'a>> {
        let (schema, properties) =
            (columns.parquet.root_schema_ptr(), data_file::properties(columns, rows, None));
        let parquet =
            SerializedFileWriter::new(store.sink(path)?, schema, properties.into()).map_err(parquet_error)?;
        Ok(SpliceWriter { columns, parquet, row_ids: RowIds::default(), nans: vec![0; columns.leaves.len()] })
    }

    /// Appends the rows of a file, whose ids must be above all before. `tick` is called with the bytes written since its
    /// last call.
    pub fn push(&mut self, piece: &SpliceInput, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let missing = || Error::damaged("a data file without an index of its pages");
        let (columns, offsets) = (piece.metadata.column_index(), piece.metadata.offset_index());
        let (columns, offsets) = columns.zip(offsets).ok_or_else(missing)?;
        for (nth, group) in piece.metadata.row_groups().iter().enumerate() {
            let mut into = self.parquet.next_row_group().map_err(parquet_error)?;
            for (at, column) in group.columns().iter().enumerate() {
                let filter = match column.bloom_filter_offset() {
                    Some(_) => Sbbf::read_from_column_chunk(column, &piece.bytes).map_err(parquet_error)?,
                    None => None,
                };
                let chunk = ColumnCloseResult {
                    bytes_written: column.compressed_size().max(0) as u64,
                    rows_written: group.num_rows().max(0) as u64,
                    metadata: column.clone(),
                    bloom_filter: filter,
                    column_index: Some(columns[nth].get(at).ok_or_else(missing)?.clone()),
                    offset_index: Some(offsets[nth].get(at).ok_or_else(missing)?.clone()),
                };
                let bytes = piece.chunk(column).ok_or_else(|| {
                    Error::damaged("a data file whose footer names bytes that it does not have")
                })?;
                // Files of earlier versions have no page checksums.
                let (bytes, chunk) = page_checksums::add(bytes, chunk)?;
                let written = chunk.bytes_written;
                into.append_column(&bytes, chunk).map_err(parquet_error)?;
                tick(written)?;
            }
            into.close().map_err(parquet_error)?;
        }
        if !self.row_ids.append(&piece.row_ids) {
            return Err(Error::internal("files that are not in row-id order were spliced"));
        }
        self.nans.iter_mut().zip(&piece.nans).for_each(|(sum, nans)| *sum += nans);
        Ok(())
    }

    /// Returns the size of the file so far.
    pub fn bytes(&self) -> u64 {
        self.parquet.bytes_written() as u64
    }

    /// Finishes the file. `location` is its path in manifests, `sort_order` the order of its rows.
    pub fn finish(
        mut self,
        location: String,
        place: FilePartition,
        sort_order: Option<i32>,
    ) -> Result<WrittenFile> {
        let metadata = self.parquet.finish().map_err(parquet_error)?;
        let sink = self.parquet.inner_mut();
        let checksums = sink.finish()?;
        let finished = FinishedFile { metadata, bytes: sink.len(), checksums };
        let file =
            data_file::describe(finished, &self.columns.leaves, &self.nans, location, place, sort_order);
        Ok(WrittenFile { file, row_ids: Some(self.row_ids.into()) })
    }
}

//! Writes Arrow batches into a Parquet file whose pages have checksums.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use iceberg::checksums::Checksums;
use iceberg::schema::parquet_error;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result as Parquet;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescriptor;
use types::{Error, Result};

use crate::page_checksums;
use crate::store::Sink;

/// Writes batches like `parquet`'s own Arrow writer, and adds checksums to the pages. A row group is in memory until it
/// ends at the rows or bytes in the properties.
pub(crate) struct ParquetWriter {
    file: SerializedFileWriter<Sink>,
    groups: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    group: Option<RowGroup>,
}

/// A row group that is being written.
struct RowGroup {
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

/// A written file, durable except for its directory entry.
pub(crate) struct FinishedFile {
    pub metadata: ParquetMetaData,
    pub bytes: u64,
    pub checksums: Checksums,
}

impl ParquetWriter {
    pub fn create(
        sink: Sink,
        arrow: SchemaRef,
        parquet: &SchemaDescriptor,
        properties: WriterProperties,
    ) -> Result<ParquetWriter> {
        let file = SerializedFileWriter::new(sink, parquet.root_schema_ptr(), properties.into())
            .map_err(parquet_error)?;
        let groups = ArrowRowGroupWriterFactory::new(&file, arrow.clone());
        Ok(ParquetWriter { file, groups, schema: arrow, group: None })
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut rest = batch.clone();
        while rest.num_rows() > 0 {
            let rows = self.room()?.min(rest.num_rows());
            let group = self.group.as_mut().ok_or_else(|| Error::internal("no row group was begun"))?;
            group.write(&rest.slice(0, rows), &self.schema).map_err(parquet_error)?;
            rest = rest.slice(rows, rest.num_rows() - rows);
        }
        Ok(())
    }

    /// Returns the number of rows that the row group may still take, at least one. Starts a row group if there is none, or
    /// if it is full.
    fn room(&mut self) -> Result<usize> {
        let properties = self.file.properties();
        let rows_max = properties.max_row_group_row_count().unwrap_or(usize::MAX);
        let bytes_max = properties.max_row_group_bytes().unwrap_or(usize::MAX);
        if self.group.as_ref().is_some_and(|group| group.room(rows_max, bytes_max) == 0) {
            self.end_group()?;
        }
        if self.group.is_none() {
            let nth = self.file.flushed_row_groups().len();
            let columns = self.groups.create_column_writers(nth).map_err(parquet_error)?;
            self.group = Some(RowGroup { columns, rows: 0 });
        }
        Ok(self.group.as_ref().map_or(0, |group| group.room(rows_max, bytes_max)).max(1))
    }

    fn end_group(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let chunks = group.columns.into_iter().map(ArrowColumnWriter::close).collect::<Parquet<Vec<_>>>();
        let (bytes, closes) = self.encoded(chunks.map_err(parquet_error)?).map_err(parquet_error)?;
        let mut into = self.file.next_row_group().map_err(parquet_error)?;
        let mut begin = MAGIC_BYTES;
        for close in closes {
            let end = begin + close.metadata.compressed_size().max(0) as usize;
            let chunk = bytes.get(begin..end).ok_or_else(|| Error::internal("a column is cut"))?;
            let (chunk, close) = page_checksums::add(chunk, close)?;
            into.append_column(&chunk, close).map_err(parquet_error)?;
            begin = end;
        }
        into.close().map_err(parquet_error)?;
        Ok(())
    }

    /// Writes the columns of a row group into a temporary file in memory, after [`MAGIC_BYTES`]: column chunks can only be
    /// written to a file.
    fn encoded(&self, chunks: Vec<ArrowColumnChunk>) -> Parquet<(Vec<u8>, Vec<ColumnCloseResult>)> {
        let bytes: i64 = chunks.iter().map(|chunk| chunk.close().metadata.compressed_size()).sum();
        let to = Vec::with_capacity(bytes.max(0) as usize + FOOTER_BYTES);
        let schema = self.file.schema_descr().root_schema_ptr();
        let mut file = SerializedFileWriter::new(to, schema, self.file.properties().clone())?;
        let mut group = file.next_row_group()?;
        let mut closes = Vec::with_capacity(chunks.len());
        for mut chunk in chunks {
            let close = chunk.close_mut();
            // The filter and the indexes belong into the real file only.
            let filter = close.bloom_filter.take();
            let (columns, offsets) = (close.column_index.take(), close.offset_index.take());
            closes.push(ColumnCloseResult {
                bloom_filter: filter,
                column_index: columns,
                offset_index: offsets,
                ..close.clone()
            });
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        Ok((file.into_inner()?, closes))
    }

    /// Returns the approximate size of the file if it ended here.
    pub fn bytes(&self) -> u64 {
        (self.file.bytes_written() + self.group.as_ref().map_or(0, RowGroup::bytes)) as u64
    }

    pub fn finish(mut self) -> Result<FinishedFile> {
        self.end_group()?;
        let metadata = self.file.finish().map_err(parquet_error)?;
        let sink = self.file.inner_mut();
        let checksums = sink.finish()?;
        Ok(FinishedFile { metadata, bytes: sink.len(), checksums })
    }
}

/// Bytes of the magic number at the start of a Parquet file.
const MAGIC_BYTES: usize = 4;
/// Bytes reserved for the unused footer of a temporary file.
const FOOTER_BYTES: usize = 64 << 10;

impl RowGroup {
    fn write(&mut self, rows: &RecordBatch, schema: &SchemaRef) -> Parquet<()> {
        let mut columns = self.columns.iter_mut();
        for (field, column) in schema.fields().iter().zip(rows.columns()) {
            for leaf in compute_leaves(field, column)? {
                let Some(into) = columns.next() else { break };
                into.write(&leaf)?;
            }
        }
        self.rows += rows.num_rows();
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.columns.iter().map(ArrowColumnWriter::get_estimated_total_bytes).sum()
    }

    /// Returns the number of further rows that fit, estimated from the size of the rows so far.
    fn room(&self, rows_max: usize, bytes_max: usize) -> usize {
        let by_rows = rows_max.saturating_sub(self.rows);
        if self.rows == 0 {
            return by_rows;
        }
        let bytes = self.bytes();
        by_rows.min(bytes_max.saturating_sub(bytes) / (bytes / self.rows).max(1))
    }
}

//! Writes checksums of Parquet pages into the page headers. The `parquet` crate checks them and does not write them.

use bytes::Bytes;
use iceberg::schema::parquet_error;
use parquet::column::writer::ColumnCloseResult;
use types::{Error, Result};

/// First byte of an `i32` field in Thrift's compact protocol whose id is one above that of the field before.
const NEXT_I32: u8 = 0x15;

/// Adds checksums to the pages of a column chunk that lack them. `chunk` are its bytes from the first page in `close` on.
/// The result has offsets relative to its own start, as `append_column` expects.
pub(crate) fn add(chunk: &[u8], mut close: ColumnCloseResult) -> Result<(Bytes, ColumnCloseResult)> {
    let metadata = close.metadata;
    let damaged = || Error::damaged("a column whose pages are not where its index says");
    let data_begin = metadata.data_page_offset();
    let dictionary_begin = metadata.dictionary_page_offset();
    let begin = dictionary_begin.unwrap_or(data_begin);
    let page = |from: i64, len: i64| {
        let from = usize::try_from(from - begin).ok()?;
        chunk.get(from..from.checked_add(usize::try_from(len).ok()?)?)
    };
    let mut out = Vec::with_capacity(chunk.len() + chunk.len() / 64 + 64);
    if let Some(from) = dictionary_begin {
        put_page(page(from, data_begin - from).ok_or_else(damaged)?, &mut out)?;
    }
    let data_begin = out.len() as i64;
    let mut index = close.offset_index.take().ok_or_else(damaged)?;
    for location in &mut index.page_locations {
        let from = out.len();
        let len = i64::from(location.compressed_page_size);
        put_page(page(location.offset, len).ok_or_else(damaged)?, &mut out)?;
        location.offset = from as i64;
        location.compressed_page_size = (out.len() - from) as i32;
    }
    let added = out.len() as i64 - metadata.compressed_size();
    if added < 0 {
        return Err(damaged());
    }
    let (compressed, uncompressed) = (metadata.compressed_size(), metadata.uncompressed_size());
    let metadata = metadata
        .into_builder()
        .set_data_page_offset(data_begin)
        .set_dictionary_page_offset(dictionary_begin.map(|_| 0))
        .set_total_compressed_size(compressed + added)
        .set_total_uncompressed_size(uncompressed + added)
        .build()
        .map_err(parquet_error)?;
    let bytes_written = out.len() as u64;
    Ok((out.into(), ColumnCloseResult { bytes_written, metadata, offset_index: Some(index), ..close }))
}

/// Appends a page with a checksum of its body in the header.
fn put_page(page: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let damaged = || Error::damaged("a page whose header cannot be read");
    // The header begins with the page type, the uncompressed size and the compressed size; the checksum field comes next.
    let mut rest = page;
    let mut size = 0;
    for _ in 0..3 {
        rest = rest.strip_prefix(&[NEXT_I32]).ok_or_else(damaged)?;
        (size, rest) = varint(rest).ok_or_else(damaged)?;
    }
    let body_begin = page.len().checked_sub(size as usize / 2).ok_or_else(damaged)?;
    let next = *rest.first().ok_or_else(damaged)?;
    if next == NEXT_I32 {
        out.extend_from_slice(page);
        return Ok(());
    }
    // Field ids are encoded as the difference from the field before.
    if next >> 4 < 2 || size % 2 == 1 {
        return Err(damaged());
    }
    let begin = page.len() - rest.len();
    let header = page.get(begin + 1..body_begin).ok_or_else(damaged)?;
    let checksum = crc32fast::hash(&page[body_begin..]) as i32;
    out.extend_from_slice(&page[..begin]);
    out.push(NEXT_I32);
    put_varint(((checksum << 1) ^ (checksum >> 31)) as u32, out);
    out.push(next - 0x10);
    out.extend_from_slice(header);
    out.extend_from_slice(&page[body_begin..]);
    Ok(())
}

fn varint(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0;
    for (nth, byte) in bytes.iter().enumerate().take(5) {
        value |= u32::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[nth + 1..]));
        }
    }
    None
}

fn put_varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
    use arrow::datatypes::Int32Type;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use parquet::file::writer::SerializedFileWriter;

    use super::*;

    fn batch() -> RecordBatch {
        let lists = (0..3_000).map(|n| (n % 7 > 0).then(|| (0..n % 5).map(move |k| Some(n * k))));
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from_iter_values((0..3_000).map(|n| n * n)))),
            (
                "s",
                Arc::new(
                    (0..3_000)
                        .map(|n| (n % 3 > 0).then(|| format!("word {}", n % 40)))
                        .collect::<StringArray>(),
                ),
            ),
            ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn read(file: Bytes) -> parquet::errors::Result<Vec<RecordBatch>> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(10_000).build()?;
        Ok(reader.collect::<Result<_, _>>()?)
    }

    fn metadata(file: &Bytes) -> ParquetMetaData {
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.parse_and_finish(file).unwrap()
    }

    /// Returns a copy of a file with checksums in its pages.
    fn with_checksums(file: &Bytes) -> Bytes {
        let metadata = metadata(file);
        let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
        let (columns, offsets) = (metadata.column_index().unwrap(), metadata.offset_index().unwrap());
        for (nth, group) in metadata.row_groups().iter().enumerate() {
            let mut into = writer.next_row_group().unwrap();
            for (at, column) in group.columns().iter().enumerate() {
                let (from, len) = column.byte_range();
                let close = ColumnCloseResult {
                    bytes_written: len,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: Some(columns[nth][at].clone()),
                    offset_index: Some(offsets[nth][at].clone()),
                };
                let (chunk, close) = add(&file[from as usize..(from + len) as usize], close).unwrap();
                into.append_column(&chunk, close).unwrap();
            }
            into.close().unwrap();
        }
        writer.into_inner().unwrap().into()
    }

    #[test]
    fn pages_with_checksums_hold_the_same_and_a_flipped_bit_of_what_they_hold_is_found() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_data_page_row_count_limit(500)
                .set_write_batch_size(100)
                .build();
            let mut writer = ArrowWriter::try_new(Vec::new(), batch().schema(), Some(properties)).unwrap();
            writer.write(&batch()).unwrap();
            let plain: Bytes = writer.into_inner().unwrap().into();
            let file = with_checksums(&plain);
            assert_eq!(read(file.clone()).unwrap(), [batch()]);
            assert_eq!(with_checksums(&file), file, "those that are there stay");
            let metadata = metadata(&file);
            let (mut silent, mut headers) = (Vec::new(), 0);
            for group in &metadata.offset_index().unwrap()[0] {
                for page in group.page_locations() {
                    let end = page.offset as usize + page.compressed_page_size as usize;
                    // The length comes from the header itself, which no checksum covers.
                    let body = end - body_bytes(&file[page.offset as usize..end]);
                    headers += body - page.offset as usize;
                    for at in [body, (body + end) / 2, end - 1] {
                        let mut flipped = file.to_vec();
                        flipped[at] ^= 1 << (at % 8);
                        if read(flipped.into()).is_ok() {
                            silent.push(at);
                        }
                    }
                }
            }
            assert!(silent.is_empty() && headers > 0, "{silent:?}");
        }
    }

    fn body_bytes(page: &[u8]) -> usize {
        let mut rest = page;
        let mut size = 0;
        for _ in 0..3 {
            (size, rest) = varint(rest.strip_prefix(&[NEXT_I32]).unwrap()).unwrap();
        }
        size as usize / 2
    }
}

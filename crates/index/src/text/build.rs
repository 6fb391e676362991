//! Builds pieces: a segment from rows, and one segment from several.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use tantivy::directory::OwnedBytes;
use tantivy::fastfield::{AliveBitSet, write_alive_bitset};
use tantivy::indexer::merge_filtered_segments;
use tantivy::schema::Field;
use tantivy::store::Compressor;
use tantivy::{BitSet, Index, IndexSettings, SingleSegmentIndexWriter, TantivyDocument};
use types::{Error, Result, RowId};

use super::bundle::{self, PieceHeader};
use super::dead_docs::DeadDocs;
use super::directory::MemoryDirectory;
use super::fields::Fields;
use super::internal;
use super::piece::TextPiece;

/// Memory in bytes by which tantivy sizes its initial hash table, for at most [`ROWS_SMALL`] rows. The table grows from
/// there.
const TABLE_BYTES_SMALL: usize = 1 << 17;
/// Memory in bytes by which tantivy sizes its initial hash table, for more rows.
const TABLE_BYTES: usize = 15 << 20;
const ROWS_SMALL: usize = 4_000;

/// Builds a segment from rows in row-id order.
pub(super) struct Builder {
    files: MemoryDirectory,
    writer: SingleSegmentIndexWriter,
    fields: usize,
    docs: u32,
    bytes: usize,
}

impl Builder {
    pub fn new(fields: &Fields, rows_expected: usize) -> Result<Builder> {
        let files = MemoryDirectory::default();
        let memory = if rows_expected <= ROWS_SMALL { TABLE_BYTES_SMALL } else { TABLE_BYTES };
        let writer = Index::builder()
            .schema(fields.schema())
            .settings(settings())
            .tokenizers(fields.analyzers())
            .single_segment_index_writer(files.clone(), memory)
            .map_err(|e| internal("starting a piece", e))?;
        Ok(Builder { files, writer, fields: fields.list.len(), docs: 0, bytes: 0 })
    }

    /// Adds rows with the columns [`Fields::columns`], all later than those before.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let no_such = || Error::internal("a text index was given columns that it did not request");
        let rows = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(no_such)?;
        let texts = (1..=self.fields).map(|at| batch.column(at).as_string_opt::<i32>());
        let texts = texts.collect::<Option<Vec<_>>>().ok_or_else(no_such)?;
        for at in 0..batch.num_rows() {
            let mut document = TantivyDocument::new();
            document.add_u64(Field::from_field_id(0), rows.value(at) as u64);
            for (field, text) in texts.iter().enumerate() {
                if text.is_valid(at) && !text.value(at).is_empty() {
                    self.bytes += text.value(at).len();
                    document.add_text(Field::from_field_id(field as u32 + 1), text.value(at));
                }
            }
            self.writer.add_document(document).map_err(|e| internal("indexing a row", e))?;
            self.docs += 1;
        }
        Ok(())
    }

    pub fn docs(&self) -> u32 {
        self.docs
    }

    /// Bytes of text added so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Finishes the segment and returns the bundle of the rows `first` to `last`.
    pub fn finish(self, id: u64, first: RowId, last: RowId) -> Result<Bytes> {
        self.writer.finalize().map_err(|e| internal("finishing a piece", e))?;
        let head = PieceHeader { id, first, last, docs: self.docs };
        Ok(bundle::write(&head, &self.files.take()).into())
    }
}

/// Merges neighbouring pieces into one, without their dead rows. Returns the bundle and its number of rows.
pub(super) fn merge(id: u64, inputs: &[(&TextPiece, &DeadDocs)]) -> Result<(Bytes, u32)> {
    let (Some((first, _)), Some((last, _))) = (inputs.first(), inputs.last()) else {
        return Err(Error::internal("nothing to merge"));
    };
    let failed = |e| internal("merging pieces", e);
    let mut segments = Vec::with_capacity(inputs.len());
    let mut alive = Vec::with_capacity(inputs.len());
    let mut docs = 0;
    for (piece, dead) in inputs {
        segments.extend(piece.index()?.searchable_segments().map_err(failed)?);
        alive.push((dead.count() > 0).then(|| alive_of(piece, dead)).transpose()?);
        docs += piece.docs() - dead.count();
    }
    let files = MemoryDirectory::default();
    merge_filtered_segments(&segments, settings(), alive, files.clone()).map_err(failed)?;
    let head = PieceHeader { id, first: first.head.first, last: last.head.last, docs };
    Ok((bundle::write(&head, &files.take()).into(), docs))
}

fn alive_of(piece: &TextPiece, dead: &DeadDocs) -> Result<AliveBitSet> {
    let mut alive = BitSet::with_max_value(piece.docs());
    for doc in (0..piece.docs()).filter(|doc| !dead.contains(*doc)) {
        alive.insert(doc);
    }
    let mut bytes = Vec::new();
    write_alive_bitset(&alive, &mut bytes).map_err(|e| internal("writing a bit set", e))?;
    Ok(AliveBitSet::open(OwnedBytes::new(bytes)))
}

/// Returns the settings of an index without stored documents: no compression, and no thread for it.
fn settings() -> IndexSettings {
    IndexSettings {
        docstore_compression: Compressor::None,
        docstore_compress_dedicated_thread: false,
        ..IndexSettings::default()
    }
}

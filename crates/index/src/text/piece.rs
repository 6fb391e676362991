//! A piece of a text index, open for reading: one tantivy segment, or its equivalent in memory.

use bytes::Bytes;
use tantivy::Index;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::schema::Field;
use types::{Error, Result, RowId};

use super::bundle::{self, PieceHeader};
use super::directory::MemoryDirectory;
use super::fields::Fields;
use super::in_memory::{self, Terms};
use super::postings::ColumnPostings;

/// An open piece. It is immutable. It takes from tantivy all readers that a search needs, because tantivy's own path to
/// them takes locks (R1).
pub(super) struct TextPiece {
    pub head: PieceHeader,
    rows: RowIds,
    /// The columns, in the order of [`Fields`].
    pub columns: Vec<PieceColumn>,
    /// The bytes of its file; empty for a piece in memory.
    bytes: Bytes,
}

/// The row ids of the documents.
enum RowIds {
    Stored(tantivy::fastfield::Column<u64>),
    InMemory(Vec<u64>),
}

/// One column of a piece.
pub(super) struct PieceColumn {
    pub column: ColumnPostings,
    /// Number of words in all rows, as [`PieceColumn::length`] counts them.
    pub tokens: u64,
}

impl PieceColumn {
    fn new(column: ColumnPostings, docs: u32) -> PieceColumn {
        let mut indexed = PieceColumn { column, tokens: 0 };
        indexed.tokens = (0..docs).map(|doc| indexed.length(doc)).sum();
        indexed
    }

    /// Returns the number of words of a row, rounded down to a value that one byte can store. Averages use these
    /// rounded numbers too, so that they add up exactly however the rows are divided into pieces.
    pub fn length(&self, doc: u32) -> u64 {
        FieldNormReader::id_to_fieldnorm(self.column.length_id(doc)).into()
    }
}

impl TextPiece {
    /// Opens a piece from the bytes of its file. Verifies the checksum of all bytes first.
    pub fn open(bytes: Bytes, fields: &Fields) -> Result<TextPiece> {
        let (head, files) = bundle::read(&bytes)?;
        let damaged = |e: tantivy::TantivyError| Error::damaged(format!("a piece of a text index: {e}"));
        let index = Index::open(MemoryDirectory::new(files)).map_err(damaged)?;
        let wrong = |what: &str| Error::damaged(format!("a piece of a text index {what}"));
        if index.schema() != fields.schema() {
            return Err(wrong("has other columns than the table's"));
        }
        let segments = index.searchable_segments().map_err(damaged)?;
        let [segment] = &segments[..] else { return Err(wrong("is not one segment")) };
        let reader = tantivy::SegmentReader::open(segment).map_err(damaged)?;
        if reader.max_doc() != head.docs {
            return Err(wrong("has another number of rows than it says"));
        }
        let rows = reader.fast_fields().u64("row").map_err(damaged)?;
        let columns = (1..=fields.list.len() as u32).map(|at| {
            let field = Field::from_field_id(at);
            let terms = reader.inverted_index(field).map_err(damaged)?;
            let norms = reader.get_fieldnorms_reader(field).map_err(damaged)?;
            Ok(PieceColumn::new(ColumnPostings::Stored { terms, norms }, head.docs))
        });
        let columns = columns.collect::<Result<_>>()?;
        Ok(TextPiece { head, rows: RowIds::Stored(rows), columns, bytes })
    }

    /// Returns a piece in memory that covers the rows `first` to `last`.
    pub fn in_memory(first: RowId, last: RowId, built: in_memory::Builder) -> TextPiece {
        let (rows, columns) = built.finish();
        TextPiece::of_terms(first, last, rows, columns)
    }

    fn of_terms(first: RowId, last: RowId, rows: Vec<u64>, columns: Vec<Terms>) -> TextPiece {
        let docs = rows.len() as u32;
        let columns = columns
            .into_iter()
            .map(|terms| PieceColumn::new(ColumnPostings::InMemory(terms), docs))
            .collect();
        let head = PieceHeader { id: 0, first, last, docs };
        TextPiece { head, rows: RowIds::InMemory(rows), columns, bytes: Bytes::new() }
    }

    /// Joins neighbouring pieces into one. Returns `None` unless all of them are in memory.
    pub fn join(parts: &[&TextPiece]) -> Option<TextPiece> {
        let (first, last) = (parts.first()?.head.first, parts.last()?.head.last);
        let mut rows = Vec::new();
        for part in parts {
            let RowIds::InMemory(more) = &part.rows else { return None };
            rows.extend_from_slice(more);
        }
        let terms = |column: usize| {
            let parts: Option<Vec<&Terms>> = parts.iter().map(|part| part.terms(column)).collect();
            Some(Terms::join(&parts?))
        };
        let columns = (0..parts[0].columns.len()).map(terms).collect::<Option<_>>()?;
        Some(TextPiece::of_terms(first, last, rows, columns))
    }

    /// Returns the terms of a column if the piece is in memory.
    fn terms(&self, column: usize) -> Option<&Terms> {
        match &self.columns[column].column {
            ColumnPostings::InMemory(terms) => Some(terms),
            ColumnPostings::Stored { .. } => None,
        }
    }

    pub fn docs(&self) -> u32 {
        self.head.docs
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn crc(&self) -> u32 {
        bundle::crc(&self.bytes).unwrap_or_default()
    }

    pub fn row(&self, doc: u32) -> RowId {
        RowId(match &self.rows {
            RowIds::Stored(rows) => rows.first(doc).unwrap_or_default(),
            RowIds::InMemory(rows) => rows.get(doc as usize).copied().unwrap_or_default(),
        })
    }

    /// Returns the document of a row, if the row was alive when the piece was built. Documents are in row-id order.
    pub fn doc(&self, row: RowId) -> Option<u32> {
        let at = self.first_after(RowId(row.0.checked_sub(1)?));
        (at < self.docs() && self.row(at) == row).then_some(at)
    }

    /// Returns the first document whose row comes after this row.
    pub fn first_after(&self, row: RowId) -> u32 {
        let (mut low, mut high) = (0, self.docs());
        while low < high {
            let middle = u32::midpoint(low, high);
            if self.row(middle) <= row { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Opens the segment as a tantivy index, as input to a merge.
    pub fn index(&self) -> Result<Index> {
        let (_, files) = bundle::read(&self.bytes)?;
        Index::open(MemoryDirectory::new(files))
            .map_err(|e| super::internal("opening a piece to merge it", e))
    }
}

//! A piece of a text index, open for reading: one tantivy segment, or its equivalent in memory.

use bytes::Bytes;
use tantivy::Index;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::schema::Field;
use types::{Error, Result, RowId};

use super::bundle::{self, Head};
use super::fields::Fields;
use super::files::Files;
use super::fresh::{self, Terms};
use super::postings::Column;

/// An open piece. It is immutable. It takes from tantivy all readers that a search needs, because tantivy's own path to
/// them takes locks (R1).
pub(super) struct Piece {
    pub head: Head,
    rows: Rows,
    /// The columns, in the order of [`Fields`].
    pub columns: Vec<Indexed>,
    /// The bytes of its file; empty for a piece in memory.
    bytes: Bytes,
}

/// The row ids of the documents.
enum Rows {
    Stored(tantivy::fastfield::Column<u64>),
    Fresh(Vec<u64>),
}

/// One column of a piece.
pub(super) struct Indexed {
    pub column: Column,
    /// Number of words in all rows, as [`Indexed::length`] counts them.
    pub tokens: u64,
}

impl Indexed {
    fn new(column: Column, docs: u32) -> Indexed {
        let mut indexed = Indexed { column, tokens: 0 };
        indexed.tokens = (0..docs).map(|doc| indexed.length(doc)).sum();
        indexed
    }

    /// Returns the number of words of a row, rounded down to a value that one byte can store. Averages use these
    /// rounded numbers too, so that they add up exactly however the rows are divided into pieces.
    pub fn length(&self, doc: u32) -> u64 {
        FieldNormReader::id_to_fieldnorm(self.column.length_id(doc)).into()
    }
}

impl Piece {
    /// Opens a piece from the bytes of its file. Verifies the checksum of all bytes first.
    pub fn open(bytes: Bytes, fields: &Fields) -> Result<Piece> {
        let (head, files) = bundle::read(&bytes)?;
        let damaged = |e: tantivy::TantivyError| Error::damaged(format!("a piece of a text index: {e}"));
        let index = Index::open(Files::new(files)).map_err(damaged)?;
        let wrong = |what: &str| Error::damaged(format!("a piece of a text index {what}"));
        if index.schema() != fields.schema() {
            return Err(wrong("is of other columns than the table's"));
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
            Ok(Indexed::new(Column::Stored { terms, norms }, head.docs))
        });
        let columns = columns.collect::<Result<_>>()?;
        Ok(Piece { head, rows: Rows::Stored(rows), columns, bytes })
    }

    /// Returns a piece in memory that covers the rows `first` to `last`.
    pub fn fresh(first: RowId, last: RowId, built: fresh::Builder) -> Piece {
        let (rows, columns) = built.finish();
        Piece::of_terms(first, last, rows, columns)
    }

    fn of_terms(first: RowId, last: RowId, rows: Vec<u64>, columns: Vec<Terms>) -> Piece {
        let docs = rows.len() as u32;
        let columns = columns.into_iter().map(|terms| Indexed::new(Column::Fresh(terms), docs)).collect();
        let head = Head { id: 0, first, last, docs };
        Piece { head, rows: Rows::Fresh(rows), columns, bytes: Bytes::new() }
    }

    /// Joins neighbouring pieces into one. Returns `None` unless all of them are in memory.
    pub fn join(parts: &[&Piece]) -> Option<Piece> {
        let (first, last) = (parts.first()?.head.first, parts.last()?.head.last);
        let mut rows = Vec::new();
        for part in parts {
            let Rows::Fresh(more) = &part.rows else { return None };
            rows.extend_from_slice(more);
        }
        let terms = |column: usize| {
            let parts: Option<Vec<&Terms>> = parts.iter().map(|part| part.terms(column)).collect();
            Some(Terms::join(&parts?))
        };
        let columns = (0..parts[0].columns.len()).map(terms).collect::<Option<_>>()?;
        Some(Piece::of_terms(first, last, rows, columns))
    }

    /// Returns the terms of a column if the piece is in memory.
    fn terms(&self, column: usize) -> Option<&Terms> {
        match &self.columns[column].column {
            Column::Fresh(terms) => Some(terms),
            Column::Stored { .. } => None,
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
            Rows::Stored(rows) => rows.first(doc).unwrap_or_default(),
            Rows::Fresh(rows) => rows.get(doc as usize).copied().unwrap_or_default(),
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
        Index::open(Files::new(files)).map_err(|e| super::internal("opening a piece to merge it", e))
    }
}

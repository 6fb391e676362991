//! Writes record batches as CSV (RFC 4180), with a header line. A null is an empty field (an empty line if there is
//! one column), an empty string is `""`, and floats that are not numbers are `NaN`, `Infinity` and `-Infinity`.

use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;

use super::json::ColumnCells;

pub struct Writer {
    fields: Vec<Field>,
}

impl Writer {
    pub fn new(schema: &Schema) -> Self {
        Writer { fields: schema.fields().iter().map(|f| f.as_ref().clone()).collect() }
    }

    pub fn header(&self, out: &mut Vec<u8>) {
        for (i, f) in self.fields.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            field(f.name().as_bytes(), b',', out);
        }
        out.extend_from_slice(b"\r\n");
    }

    pub fn rows(&self, batch: &RecordBatch, out: &mut Vec<u8>) {
        let cells: Vec<ColumnCells<'_>> =
            self.fields.iter().zip(batch.columns()).map(|(f, c)| ColumnCells::new(f, c, false)).collect();
        let mut scratch = Vec::new();
        for row in 0..batch.num_rows() {
            for (i, cell) in cells.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                if cell.is_null(row) {
                    continue;
                }
                if let Some(text) = cell.text(row) {
                    field(text.as_bytes(), b',', out);
                    continue;
                }
                if let Some(word) = cell.word(row) {
                    out.extend_from_slice(word.as_bytes());
                    continue;
                }
                scratch.clear();
                cell.write(row, &mut scratch);
                // The JSON string of a time, uuid and so on has nothing to escape; only its quotes are removed.
                match scratch.as_slice() {
                    [b'"', inner @ .., b'"'] => field(inner, b',', out),
                    other => field(other, b',', out),
                }
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes a text as a field. It is quoted if it is empty or a reader would misread it.
pub fn field(text: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    let is_special = |b: &u8| matches!(b, b'"' | b'\n' | b'\r') || *b == delimiter;
    if text.is_empty() || text.iter().any(is_special) {
        quoted_field(text, out)
    } else {
        out.extend_from_slice(text)
    }
}

/// Writes a text as a quoted field.
pub fn quoted_field(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &b in text {
        if b == b'"' {
            out.push(b'"');
        }
        out.push(b);
    }
    out.push(b'"');
}

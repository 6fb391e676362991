//! Record batches as CSV (RFC 4180): a header line, a null is an empty field (an empty line where there is one column), an empty
//! string is `""`, floats beyond numbers are `NaN`, `Infinity` and `-Infinity`.

use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;

use super::json::Cells;

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
        let cells: Vec<Cells<'_>> =
            self.fields.iter().zip(batch.columns()).map(|(f, c)| Cells::new(f, c, false)).collect();
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
                // A JSON string of a time, uuid, … has nothing to escape; its quotes go.
                match scratch.as_slice() {
                    [b'"', inner @ .., b'"'] => field(inner, b',', out),
                    other => field(other, b',', out),
                }
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes a text as a field: in quotes where a reader would take it for something else, so also if it is empty.
pub fn field(text: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    let is_special = |b: &u8| matches!(b, b'"' | b'\n' | b'\r') || *b == delimiter;
    match text.is_empty() || text.iter().any(is_special) {
        true => quoted_field(text, out),
        false => out.extend_from_slice(text),
    }
}

/// Writes a text as a field in quotes.
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

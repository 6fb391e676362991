//! Record batches as CSV (RFC 4180): a header line, a null is an empty field, an empty string is `""`.

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
            field(f.name().as_bytes(), out);
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
                    field(text.as_bytes(), out);
                    continue;
                }
                scratch.clear();
                cell.write(row, &mut scratch);
                // A JSON string of a time, uuid, … has nothing to escape; its quotes go.
                match scratch.as_slice() {
                    [b'"', inner @ .., b'"'] => field(inner, out),
                    b"null" => {}
                    other => field(other, out),
                }
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn field(text: &[u8], out: &mut Vec<u8>) {
    if !text.is_empty() && !text.iter().any(|b| matches!(b, b'"' | b',' | b'\n' | b'\r')) {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for &b in text {
        if b == b'"' {
            out.push(b'"');
        }
        out.push(b);
    }
    out.push(b'"');
}

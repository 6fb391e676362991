//! Writes record batches as one Arrow IPC stream, batch by batch.

use arrow::datatypes::Schema;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use types::{Error, Result};

pub struct Writer {
    stream: StreamWriter<Vec<u8>>,
}

impl Writer {
    /// Makes a writer; the schema message can be taken at once.
    pub fn new(schema: &Schema) -> Result<Self> {
        Ok(Writer { stream: StreamWriter::try_new(Vec::new(), schema).map_err(broken)? })
    }

    /// Moves the bytes written so far to `out`.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        out.append(self.stream.get_mut());
    }

    pub fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        self.stream.write(batch).map_err(broken)?;
        self.take(out);
        Ok(())
    }

    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.stream.finish().map_err(broken)?;
        self.take(out);
        Ok(())
    }
}

fn broken(e: arrow::error::ArrowError) -> Error {
    Error::internal(format!("the rows could not be written as Arrow: {e}"))
}

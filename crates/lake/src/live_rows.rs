//! Reads the live rows of a data file with the table's present columns, to write them into another file.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch, take};
use arrow::datatypes::{DataType as Arrow, Field};
use bytes::Bytes;
use iceberg::schema::{Columns, parquet_error};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use types::{Column, Error, Result, Value};

/// Reads a file once, from front to back.
pub(crate) struct LiveRows {
    columns: Arc<Columns>,
    reader: ParquetRecordBatchReader,
    /// The source of each column.
    from: Vec<ColumnSource>,
    deleted: Peekable<IntoIter<u64>>,
    position: u64,
    rows: u64,
}

enum ColumnSource {
    Stored(usize),
    /// One row with the value that older rows show for a column added later.
    Initial(ArrayRef),
}

impl LiveRows {
    /// Opens a data file. `deleted` are ascending positions to leave out. A batch takes about `batch_bytes`.
    pub fn open(
        bytes: Bytes,
        columns: Arc<Columns>,
        deleted: Vec<u64>,
        batch_bytes: u64,
    ) -> Result<LiveRows> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(parquet_error)?;
        let metadata = builder.metadata();
        let rows = metadata.file_metadata().num_rows().max(0) as u64;
        let unpacked: i64 = metadata.row_groups().iter().map(|group| group.total_byte_size()).sum();
        let row_bytes = (unpacked.max(0) as u64 / rows.max(1)).max(1);
        let batch_rows = (batch_bytes / row_bytes).clamp(1, BATCH_ROWS_MAX) as usize;
        let fields = builder.parquet_schema().root_schema().get_fields();
        let stored: Vec<i32> = fields
            .iter()
            .map(|field| field.get_basic_info())
            .map(|info| if info.has_id() { info.id() } else { -1 })
            .collect();
        let at: Vec<Option<usize>> = types::schema::column_ids(&columns.arrow)
            .into_iter()
            .map(|id| {
                stored.iter().position(|stored| id.is_some_and(|id| i64::from(id.0) == i64::from(*stored)))
            })
            .collect();
        let mut roots: Vec<usize> = at.iter().flatten().copied().collect();
        roots.sort_unstable();
        let from = |(nth, at): (usize, &Option<usize>)| match at {
            Some(at) => Ok(ColumnSource::Stored(roots.partition_point(|root| root < at))),
            None => initial_value(&columns, nth).map(ColumnSource::Initial),
        };
        let from = at.iter().enumerate().map(from).collect::<Result<Vec<_>>>()?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let reader =
            builder.with_projection(mask).with_batch_size(batch_rows).build().map_err(parquet_error)?;
        Ok(LiveRows { columns, reader, from, deleted: deleted.into_iter().peekable(), position: 0, rows })
    }

    /// Returns the next rows; `None` at the end.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let damaged = |e: &dyn std::fmt::Display| Error::damaged(format!("a data file cannot be read: {e}"));
        loop {
            let Some(batch) = self.reader.next() else {
                return if self.position == self.rows {
                    Ok(None)
                } else {
                    Err(damaged(&"it ends too early"))
                };
            };
            let batch = batch.map_err(|e| damaged(&e))?;
            let rows = batch.num_rows();
            let end = self.position + rows as u64;
            let mut live = BooleanArray::from(Vec::<bool>::new());
            let some_deleted = self.deleted.peek().is_some_and(|first| *first < end);
            if some_deleted {
                let mut flags = vec![true; rows];
                while let Some(at) = self.deleted.next_if(|at| *at < end) {
                    flags[(at - self.position) as usize] = false;
                }
                live = BooleanArray::from(flags);
            }
            self.position = end;
            let batch = if some_deleted {
                filter_record_batch(&batch, &live).map_err(|e| damaged(&e))?
            } else {
                batch
            };
            if batch.num_rows() > 0 {
                return self.conform(&batch).map(Some);
            }
        }
    }

    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |(from, field): (&ColumnSource, &Arc<Field>)| match from {
            ColumnSource::Stored(at) => as_type(batch.column(*at), field.data_type()),
            ColumnSource::Initial(one) => repeated(one, rows),
        };
        let columns = self.from.iter().zip(self.columns.arrow.fields()).map(column);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new_with_options(self.columns.arrow.clone(), columns, &options)
            .map_err(|e| Error::damaged(format!("a data file does not fit its table: {e}")))
    }
}

/// Rows of a batch, at most; the same as in the table's own batches.
const BATCH_ROWS_MAX: u64 = table::BATCH_ROWS as u64;

/// Returns the value that the `nth` column shows in rows older than the column.
fn initial_value(columns: &Columns, nth: usize) -> Result<ArrayRef> {
    let field = columns.arrow.field(nth);
    let column: Option<&Column> = nth.checked_sub(2).map(|at| &columns.def.schema.columns[at]);
    match column.and_then(|column| Some((column.initial.as_ref()?, &column.data_type))) {
        Some((initial, data_type)) => Value::to_array(std::slice::from_ref(initial), data_type),
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), 1)),
        None => Err(Error::damaged(format!("a data file without the required column `{}`", field.name()))),
    }
}

fn repeated(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    take(one, &UInt32Array::from(vec![0; rows]), None)
        .map_err(|e| Error::internal(format!("repeating a value: {e}")))
}

/// Casts a column to a type that holds all its values. Fails with `Damaged` if a value does not fit.
pub(crate) fn as_type(array: &ArrayRef, wanted: &Arrow) -> Result<ArrayRef> {
    if array.data_type() == wanted {
        return Ok(array.clone());
    }
    let strict = CastOptions { safe: false, ..Default::default() };
    cast_with_options(array, wanted, &strict).map_err(|e| {
        Error::damaged(format!("a column stored as {} cannot be read as {wanted}: {e}", array.data_type()))
    })
}

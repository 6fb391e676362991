//! Decoding of batches.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    SchemaRef, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use types::codec::Decoder;
use types::{Error, Result};

use super::{ALL_NULL, ALL_NULL_BYTES_MAX, HAS_NULLS, alignment, null, width};

/// Rows that a batch can have: the range of Arrow's 32-bit offsets.
const ROWS_MAX: u64 = i32::MAX as u64;

/// Decodes the batch that starts at `start` of `frame` and ends at or before `end`; returns the batch and its end. `schema`
/// decodes the description of the columns.
pub(crate) fn decode_at(
    frame: &Buffer,
    start: usize,
    end: usize,
    schema: &mut dyn FnMut(&[u8]) -> Result<SchemaRef>,
) -> Result<(RecordBatch, usize)> {
    let bytes = frame.get(start..end).ok_or_else(|| Error::damaged("a batch beyond the end of its frame"))?;
    let mut d = Decoder::new(bytes);
    let rows = d.varint()?;
    if rows > ROWS_MAX {
        return Err(d.damaged(format!("a batch of {rows} rows")));
    }
    let schema = schema(d.blob()?)?;
    let flags = d.blob()?;
    let position = start + d.position();
    let mut nodes = Nodes { frame, position, end, flags, all_null_bytes: 0 };
    let rows = rows as usize;
    let columns =
        schema.fields().iter().map(|f| nodes.read(f.data_type(), rows)).collect::<Result<Vec<ArrayRef>>>()?;
    if !nodes.flags.is_empty() {
        return Err(nodes.damaged("a batch with more arrays than columns"));
    }
    let end = nodes.position;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, columns, &options).map_err(misfit)?;
    Ok((batch, end))
}

struct Nodes<'a> {
    frame: &'a Buffer,
    position: usize,
    end: usize,
    flags: &'a [u8],
    all_null_bytes: u64,
}

impl Nodes<'_> {
    fn damaged(&self, what: impl Into<String>) -> Error {
        Error::damaged(what).with("at byte", self.position)
    }

    /// Reads one array of `slots` slots.
    fn read(&mut self, data_type: &DataType, slots: usize) -> Result<ArrayRef> {
        let Some((&flags, rest)) = self.flags.split_first() else {
            return Err(self.damaged("a batch with fewer arrays than columns"));
        };
        self.flags = rest;
        let nulls = match flags {
            0 => None,
            HAS_NULLS => {
                let bits = BooleanBuffer::new(self.buffer(slots.div_ceil(8), 8)?, 0, slots);
                Some(NullBuffer::new(bits))
            }
            ALL_NULL => return self.all_null(data_type, slots),
            other => return Err(self.damaged(format!("{other} are not flags of an array"))),
        };
        Ok(match data_type {
            DataType::Boolean => {
                let values = BooleanBuffer::new(self.buffer(slots.div_ceil(8), 8)?, 0, slots);
                Arc::new(BooleanArray::new(values, nulls))
            }
            DataType::Int32 => self.primitive::<Int32Type>(data_type, slots, nulls)?,
            DataType::Int64 => self.primitive::<Int64Type>(data_type, slots, nulls)?,
            DataType::Float32 => self.primitive::<Float32Type>(data_type, slots, nulls)?,
            DataType::Float64 => self.primitive::<Float64Type>(data_type, slots, nulls)?,
            DataType::Date32 => self.primitive::<Date32Type>(data_type, slots, nulls)?,
            DataType::Timestamp(..) => self.primitive::<TimestampMicrosecondType>(data_type, slots, nulls)?,
            DataType::Decimal128(..) => self.primitive::<Decimal128Type>(data_type, slots, nulls)?,
            DataType::Utf8 => {
                let (offsets, len) = self.offsets(slots)?;
                Arc::new(StringArray::try_new(offsets, self.buffer(len, 8)?, nulls).map_err(misfit)?)
            }
            DataType::Binary => {
                let (offsets, len) = self.offsets(slots)?;
                Arc::new(BinaryArray::try_new(offsets, self.buffer(len, 8)?, nulls).map_err(misfit)?)
            }
            DataType::FixedSizeBinary(16) => {
                let values = self.buffer(self.product(slots, 16)?, 8)?;
                Arc::new(FixedSizeBinaryArray::try_new(16, values, nulls).map_err(misfit)?)
            }
            DataType::List(item) => {
                let (offsets, len) = self.offsets(slots)?;
                let values = self.read(item.data_type(), len)?;
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls).map_err(misfit)?)
            }
            DataType::Struct(fields) => {
                let columns =
                    fields.iter().map(|f| self.read(f.data_type(), slots)).collect::<Result<Vec<_>>>()?;
                let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, slots);
                Arc::new(array.map_err(misfit)?)
            }
            DataType::FixedSizeList(item, len) => {
                let values = self.read(item.data_type(), self.product(slots, *len as usize)?)?;
                Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *len, values, nulls).map_err(misfit)?)
            }
            other => return Err(self.damaged(format!("a column of type {other}"))),
        })
    }

    fn all_null(&mut self, data_type: &DataType, slots: usize) -> Result<ArrayRef> {
        let bytes = null::memory(data_type, slots as u64);
        let total = bytes.and_then(|bytes| self.all_null_bytes.checked_add(bytes));
        match total {
            Some(total) if total <= ALL_NULL_BYTES_MAX => {
                self.all_null_bytes = total;
                null::array(data_type, slots)
            }
            _ => Err(self.damaged(format!("{slots} nulls of type {data_type} in one byte"))),
        }
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        data_type: &DataType,
        slots: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let width = width(data_type).unwrap_or(size_of::<T::Native>());
        let values = self.buffer(self.product(slots, width)?, alignment(data_type))?;
        let array =
            PrimitiveArray::<T>::try_new(ScalarBuffer::new(values, 0, slots), nulls).map_err(misfit)?;
        Ok(Arc::new(array.with_data_type(data_type.clone())))
    }

    /// Reads the offsets of `slots` slots, checked to start at 0 and never to fall. Also returns the number of values that they
    /// cover.
    fn offsets(&mut self, slots: usize) -> Result<(OffsetBuffer<i32>, usize)> {
        let count = slots.checked_add(1).ok_or_else(|| self.damaged("too many slots"))?;
        let offsets = ScalarBuffer::<i32>::new(self.buffer(self.product(count, 4)?, 8)?, 0, count);
        if offsets[0] != 0 || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(self.damaged("offsets that do not start at 0 or fall"));
        }
        let len = offsets[slots] as usize;
        Ok((OffsetBuffer::new(offsets), len))
    }

    /// Reads the next buffer: `len` bytes after padding to a multiple of `align`, in memory aligned to it.
    fn buffer(&mut self, len: usize, align: usize) -> Result<Buffer> {
        let start = self.position.next_multiple_of(align);
        let end = start.checked_add(len).filter(|end| *end <= self.end);
        let Some(end) = end else {
            return Err(self.damaged(format!("a buffer of {len} bytes beyond the end of its batch")));
        };
        self.position = end;
        let buffer = self.frame.slice_with_length(start, len);
        if buffer.as_ptr().align_offset(align) == 0 {
            return Ok(buffer);
        }
        Ok(Buffer::from_slice_ref(buffer.as_slice()))
    }

    fn product(&self, slots: usize, width: usize) -> Result<usize> {
        slots.checked_mul(width).ok_or_else(|| self.damaged("an array longer than memory"))
    }
}

fn misfit(error: ArrowError) -> Error {
    Error::damaged(format!("columns that do not fit together: {error}"))
}

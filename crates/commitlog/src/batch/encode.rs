//! Encoding of batches.

use arrow::array::{Array, AsArray, RecordBatch, downcast_primitive_array};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::DataType;
use types::codec::Encoder;
use types::{Error, Result};

use super::{ALL_NULL, ALL_NULL_BYTES_MAX, HAS_NULLS, alignment, null, width};
use crate::gather::Gather;

/// Appends `batch`, whose encoded schema is `schema` (see the `schema` module).
pub(crate) fn encode_into(gather: &mut Gather, batch: &RecordBatch, schema: &[u8]) -> Result<()> {
    let mut nodes = Nodes::default();
    for column in batch.columns() {
        nodes.add(column.as_ref())?;
    }
    let mut e = Encoder::new();
    e.varint(batch.num_rows() as u64);
    e.blob(schema);
    e.blob(&nodes.flags);
    gather.bytes(&e.bytes);
    for (align, buffer) in nodes.buffers {
        gather.pad(align as u64);
        gather.buffer(buffer);
    }
    Ok(())
}

/// The arrays of a batch, parents before children: one flag byte for each, and their buffers in order.
#[derive(Default)]
struct Nodes {
    flags: Vec<u8>,
    buffers: Vec<(usize, Buffer)>,
    all_null_bytes: u64,
}

impl Nodes {
    fn add(&mut self, array: &dyn Array) -> Result<()> {
        let data_type = array.data_type();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        if let Some(nulls) = nulls {
            if nulls.null_count() == array.len() && self.may_skip(data_type, array.len()) {
                self.flags.push(ALL_NULL);
                return Ok(());
            }
            self.buffers.push((8, nulls.inner().sliced()));
        }
        self.flags.push(if nulls.is_some() { HAS_NULLS } else { 0 });
        match data_type {
            DataType::Boolean => self.buffers.push((8, array.as_boolean().values().sliced())),
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                let (start, len) = self.offsets(array.offsets());
                self.buffers.push((8, array.values().slice_with_length(start, len)));
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                let (start, len) = self.offsets(array.offsets());
                self.buffers.push((8, array.values().slice_with_length(start, len)));
            }
            DataType::FixedSizeBinary(16) => {
                let array = array.as_fixed_size_binary();
                self.buffers.push((8, array.values().slice_with_length(0, array.len() * 16)));
            }
            DataType::List(_) => {
                let array = array.as_list::<i32>();
                let (start, len) = self.offsets(array.offsets());
                self.add(array.values().slice(start, len).as_ref())?;
            }
            DataType::Struct(_) => {
                for column in array.as_struct().columns() {
                    self.add(column.as_ref())?;
                }
            }
            DataType::FixedSizeList(_, len) => {
                let array = array.as_fixed_size_list();
                self.add(array.values().slice(0, array.len() * *len as usize).as_ref())?;
            }
            other => {
                let Some(width) = width(other) else { return Err(unsupported(other)) };
                let values = downcast_primitive_array!(
                    array => array.values().inner().clone(),
                    other => return Err(unsupported(other)),
                );
                self.buffers.push((alignment(data_type), values.slice_with_length(0, array.len() * width)));
            }
        }
        Ok(())
    }

    fn may_skip(&mut self, data_type: &DataType, slots: usize) -> bool {
        let Some(bytes) = null::memory(data_type, slots as u64) else { return false };
        let total = self.all_null_bytes.saturating_add(bytes);
        if total > ALL_NULL_BYTES_MAX {
            return false;
        }
        self.all_null_bytes = total;
        true
    }

    /// Adds offsets, shifted to start at 0. Returns the start and the length of the values that they cover.
    fn offsets(&mut self, offsets: &OffsetBuffer<i32>) -> (usize, usize) {
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        let normal = if first == 0 {
            offsets.inner().inner().slice_with_length(0, offsets.len() * 4)
        } else {
            Buffer::from_vec(offsets.iter().map(|offset| offset - first).collect::<Vec<i32>>())
        };
        self.buffers.push((8, normal));
        (first as usize, (last - first) as usize)
    }
}

fn unsupported(data_type: &DataType) -> Error {
    Error::internal(format!("a column of type {data_type} cannot be logged"))
}

//! Imports batches of other libraries by copying them.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, BufferSpec, MutableArrayData, RecordBatch, RecordBatchOptions, StructArray,
    layout, make_array,
};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use polynya::{Error, Result};

use super::{ArrowArray, ArrowArrayStream, ArrowSchema, schema};

/// The batches of another library's stream.
pub struct ImportedStream {
    stream: ArrowArrayStream,
    schema: SchemaRef,
}

impl ImportedStream {
    /// Takes ownership of the stream.
    pub fn new(mut stream: ArrowArrayStream) -> Result<ImportedStream> {
        let mut found = ArrowSchema::released();
        let get = stream.get_schema.ok_or_else(read)?;
        // SAFETY: the stream was not released; there is room for a schema.
        let code = unsafe { get(&mut stream, &mut found) };
        check(code, &mut stream)?;
        // SAFETY: the producer filled it.
        let schema = Arc::new(unsafe { schema::import(&found)? });
        Ok(ImportedStream { stream, schema })
    }
}

impl Iterator for ImportedStream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let Some(get) = self.stream.get_next else { return Some(Err(read())) };
        let mut found = ArrowArray::released();
        // SAFETY: the stream was not released; there is room for an array.
        let code = unsafe { get(&mut self.stream, &mut found) };
        if let Err(error) = check(code, &mut self.stream) {
            return Some(Err(error));
        }
        found.release?;
        Some(batch(&found, &self.schema))
    }
}

/// Imports one batch from an object that is not a stream.
pub fn array(schema: &ArrowSchema, array: &ArrowArray) -> Result<RecordBatch> {
    if schema.release.is_none() || array.release.is_none() {
        return Err(read());
    }
    // SAFETY: the schema is valid until it is released.
    let schema = unsafe { schema::import(schema)? };
    batch(array, &Arc::new(schema))
}

fn read() -> Error {
    Error::invalid("these Arrow data were read already").hint("a stream gives its rows once; make it again")
}

fn check(code: c_int, stream: &mut ArrowArrayStream) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let said = stream.get_last_error.and_then(|get| {
        // SAFETY: the call before this one failed, so there may be a text, which lives until the next call.
        let text = unsafe { get(stream) };
        // SAFETY: the same.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    });
    let said = said.filter(|text| !text.is_empty()).unwrap_or_else(|| format!("error {code}"));
    Err(Error::invalid(format!("reading the Arrow data failed: {said}")))
}

fn misfit(error: arrow::error::ArrowError) -> Error {
    Error::invalid(format!("the Arrow data are not what their type says: {error}"))
}

fn batch(array: &ArrowArray, schema: &SchemaRef) -> Result<RecordBatch> {
    // SAFETY: the producer made both, and neither was released. The data read in place are dropped before this returns, and
    // `owned` copied everything that is returned.
    let rows = StructArray::from(unsafe { in_place(array, &DataType::Struct(schema.fields().clone()))? });
    if rows.null_count() > 0 {
        return Err(Error::invalid("a row of a table cannot be null as a whole"));
    }
    let columns = rows.columns().iter().map(owned).collect::<Result<Vec<_>>>()?;
    let fields = schema.fields().iter().zip(&columns);
    let fields: Fields = fields
        .map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone()))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(misfit)
}

/// Copies the values alone, without other data in the same buffers.
fn owned(array: &ArrayRef) -> Result<ArrayRef> {
    // Views and dictionaries would keep references to their source.
    let plain_type = plain(array.data_type());
    let plain = if plain_type == *array.data_type() {
        array.clone()
    } else {
        cast(array, &plain_type).map_err(misfit)?
    };
    let data = plain.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.extend(0, 0, data.len());
    Ok(make_array(copy.freeze()))
}

fn plain(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| -> FieldRef {
        Arc::new(field.as_ref().clone().with_data_type(plain(field.data_type())))
    };
    match data_type {
        DataType::Dictionary(_, values) => plain(values),
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(field(item), *len),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

/// Returns an array that reads the memory of the producer, after full validation.
///
/// # Safety `array` is valid, not released and of this type, as long as the result and everything derived from it lives.
unsafe fn in_place(array: &ArrowArray, data_type: &DataType) -> Result<ArrayData> {
    let wrong = || Error::invalid(format!("an array of {data_type} has not the parts that the type has"));
    let count = |n: i64| usize::try_from(n).map_err(|_| wrong());
    let (len, offset, buffers) = (count(array.length)?, count(array.offset)?, count(array.n_buffers)?);
    let end = len.checked_add(offset).ok_or_else(wrong)?;
    let part = |at: usize, bytes: Option<usize>| {
        let bytes = bytes.filter(|_| at < buffers).ok_or_else(wrong)?;
        // SAFETY: the producer gives `n_buffers` pointers.
        let from = unsafe { *array.buffers.add(at) }.cast_mut().cast::<u8>();
        match NonNull::new(from) {
            // SAFETY: the buffer has at least as many bytes as type, length and offsets require, and lives as long as the array.
            Some(from) => Ok(unsafe { Buffer::from_custom_allocation(from, bytes, Arc::new(())) }),
            // An array without values may have no memory at all.
            None if end == 0 || bytes == 0 => Ok(Buffer::from(vec![0; bytes])),
            None => Err(wrong()),
        }
    };
    let layout = layout(data_type);
    let mut builder = ArrayData::builder(data_type.clone()).len(len).offset(offset);
    let mut at = 0;
    if layout.can_contain_null_mask {
        // SAFETY: there is a first pointer; null means that no value is null.
        if buffers > 0 && array.null_count != 0 && unsafe { !(*array.buffers).is_null() } {
            builder = builder.null_bit_buffer(Some(part(0, Some(end.div_ceil(8)))?));
        }
        at = 1;
    }
    let wide = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary);
    let mut offsets = Buffer::from(Vec::<u8>::new());
    for spec in &layout.buffers {
        let buffer = match spec {
            BufferSpec::BitMap => part(at, Some(end.div_ceil(8)))?,
            BufferSpec::FixedWidth { byte_width, .. } => {
                // There is one more offset than values.
                let values = end.checked_add(usize::from(has_offsets(data_type)));
                offsets = part(at, values.and_then(|values| values.checked_mul(*byte_width)))?;
                offsets.clone()
            }
            BufferSpec::VariableWidth => part(at, last(&offsets, wide))?,
            BufferSpec::AlwaysNull => return Err(wrong()),
        };
        builder = builder.add_buffer(buffer);
        at += 1;
    }
    if layout.variadic {
        // Data buffers lie between the views and the last buffer, which holds their lengths.
        let more = buffers.checked_sub(at + 1).ok_or_else(wrong)?;
        let lengths = part(buffers - 1, more.checked_mul(size_of::<i64>()))?;
        for (i, length) in lengths.as_slice().chunks_exact(size_of::<i64>()).enumerate() {
            let length = i64::from_ne_bytes(length.try_into().unwrap_or_default());
            builder = builder.add_buffer(part(at + i, usize::try_from(length).ok())?);
        }
    }
    let children: Vec<&FieldRef> = match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => vec![item],
        DataType::Map(entries, _) => vec![entries],
        DataType::Struct(fields) => fields.iter().collect(),
        _ => Vec::new(),
    };
    if count(array.n_children)? != children.len() {
        return Err(wrong());
    }
    for (i, child) in children.into_iter().enumerate() {
        // SAFETY: there are `n_children` of them, as valid as their parent, of these types.
        builder = builder.add_child_data(unsafe { in_place(&**array.children.add(i), child.data_type())? });
    }
    if let DataType::Dictionary(_, values) = data_type {
        // SAFETY: as valid as its parent, of this type.
        let dictionary = unsafe { array.dictionary.as_ref() }.ok_or_else(wrong)?;
        // SAFETY: the same.
        builder = builder.add_child_data(unsafe { in_place(dictionary, values)? });
    }
    builder.align_buffers(true).build().map_err(misfit)
}

fn has_offsets(data_type: &DataType) -> bool {
    use DataType::{Binary, LargeBinary, LargeList, LargeUtf8, List, Map, Utf8};
    matches!(data_type, Utf8 | LargeUtf8 | Binary | LargeBinary | List(_) | LargeList(_) | Map(..))
}

/// Returns the length in bytes of the values of texts or binaries: their last offset.
fn last(offsets: &Buffer, wide: bool) -> Option<usize> {
    let bytes = offsets.as_slice();
    if wide {
        let last = bytes.last_chunk().map_or(0, |last| i64::from_ne_bytes(*last));
        usize::try_from(last).ok()
    } else {
        let last = bytes.last_chunk().map_or(0, |last| i32::from_ne_bytes(*last));
        usize::try_from(last).ok()
    }
}

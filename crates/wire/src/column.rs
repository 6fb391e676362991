//! Builds one column while a body is decoded: plain vectors of its type, filled straight from the input bytes.
//!
//! [`from_json`] takes values from JSON, [`from_csv`] from the text of CSV fields, [`from_protobuf`] from Protobuf.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType as Arrow;
use types::{DataType, EpochUnit, Error, TableDef};

use super::Budget;
use super::parser::SyntaxError;

mod from_csv;
mod from_json;
mod from_protobuf;
mod from_value;

pub(super) use from_json::at_end;

/// The greatest magnitude up to which a float64 holds every integer.
pub(super) const EXACT_MAX: u64 = 1 << 53;

/// The reason why a value could not be taken.
#[derive(Debug)]
pub(super) enum ValueFault {
    /// The body is not JSON; the bytes after this position cannot be interpreted.
    Malformed(SyntaxError),
    /// This value does not fit the column: "int64 expected, `"x"` found".
    Misfit(String),
    /// A limit was exceeded; decoding of the body ends.
    Limit(Error),
}

impl From<SyntaxError> for ValueFault {
    fn from(malformed: SyntaxError) -> Self {
        ValueFault::Malformed(malformed)
    }
}

impl From<Error> for ValueFault {
    fn from(error: Error) -> Self {
        ValueFault::Limit(error)
    }
}

type Result<T> = std::result::Result<T, ValueFault>;

#[derive(Debug)]
pub(super) struct ColumnBuffer {
    data_type: Option<DataType>,
    /// True if the type may still be chosen or widened, because the column is new in this body.
    open: bool,
    /// The number of values before the type of an open column was chosen, and before it was widened.
    chosen_at: usize,
    widened_at: usize,
    pub len: usize,
    /// The validity bits. Created at the first null.
    validity: Option<BooleanBufferBuilder>,
    data: Data,
    /// The declared unit of numbers in a timestamp column.
    input: Option<EpochUnit>,
    scratch: String,
}

#[derive(Debug)]
enum Data {
    /// All values so far are null, and the type is not known yet.
    Untyped,
    Bool(BooleanBufferBuilder),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, u8),
    /// Strings, JSON texts or binaries: offsets and bytes.
    Bytes(Vec<i32>, Vec<u8>, BytesKind),
    Date(Vec<i32>),
    Timestamp(Vec<i64>),
    Uuid(Vec<u8>),
    List(Vec<i32>, Box<ColumnBuffer>, bool),
    Struct(Vec<Member>),
    Vector(Vec<f32>, usize),
    /// Points: one vector for each coordinate.
    Floats(&'static [&'static str], Vec<Vec<f64>>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BytesKind {
    String,
    Json,
    Base64,
}

#[derive(Debug)]
struct Member {
    name: String,
    nullable: bool,
    column: ColumnBuffer,
}

impl ColumnBuffer {
    /// Makes the builder for a column of a table.
    pub fn of(def: Option<&TableDef>, column: &types::Column) -> Self {
        let input = def.and_then(|def| def.input_of(column.id));
        ColumnBuffer { input, ..ColumnBuffer::new(&column.data_type) }
    }

    pub fn new(data_type: &DataType) -> Self {
        let data = Data::new(data_type);
        let data_type = Some(data_type.clone());
        ColumnBuffer {
            data_type,
            open: false,
            chosen_at: 0,
            widened_at: usize::MAX,
            len: 0,
            validity: None,
            data,
            input: None,
            scratch: String::new(),
        }
    }

    /// Makes the builder for a new column, whose first values decide the type.
    pub fn untyped() -> Self {
        ColumnBuffer {
            data_type: None,
            open: true,
            chosen_at: 0,
            widened_at: usize::MAX,
            len: 0,
            validity: None,
            data: Data::Untyped,
            input: None,
            scratch: String::new(),
        }
    }

    /// The type; `None` while all values are null.
    pub fn data_type(&self) -> Option<&DataType> {
        self.data_type.as_ref()
    }

    /// Returns true if the empty text is a value of the column, not a null.
    pub fn holds_empty(&self) -> bool {
        matches!(&self.data, Data::Bytes(_, _, BytesKind::String | BytesKind::Base64))
    }

    /// An upper estimate of the bytes that one null of this column takes.
    pub fn null_bytes(&self) -> usize {
        self.data_type.as_ref().map_or(1, null_bytes)
    }

    pub fn push_nulls(&mut self, count: usize, budget: &mut Budget) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        budget.take(count.saturating_mul(self.null_bytes()))?;
        let len = self.len;
        self.validity
            .get_or_insert_with(|| {
                let mut valid = BooleanBufferBuilder::new(len + count);
                valid.append_n(len, true);
                valid
            })
            .append_n(count, false);
        self.len += count;
        match &mut self.data {
            Data::Untyped => {}
            Data::Bool(v) => v.append_n(count, false),
            Data::Int32(v) | Data::Date(v) => v.resize(v.len() + count, 0),
            Data::Int64(v) | Data::Timestamp(v) => v.resize(v.len() + count, 0),
            Data::Float32(v) => v.resize(v.len() + count, 0.0),
            Data::Float64(v) => v.resize(v.len() + count, 0.0),
            Data::Decimal(v, ..) => v.resize(v.len() + count, 0),
            Data::Bytes(offsets, bytes, _) => offsets.resize(offsets.len() + count, bytes.len() as i32),
            Data::Uuid(v) => v.resize(v.len() + count * 16, 0),
            Data::List(offsets, item, _) => offsets.resize(offsets.len() + count, item.len as i32),
            Data::Vector(v, width) => v.resize(v.len() + count * *width, 0.0),
            Data::Floats(_, columns) => columns.iter_mut().for_each(|v| v.resize(v.len() + count, 0.0)),
            Data::Struct(members) => {
                for member in members {
                    member.column.push_fillers(count, budget)?;
                }
            }
        }
        Ok(())
    }

    /// Reserves room for about `values` more values like the first ones. Growing by doubling would copy the data
    /// repeatedly and take up to twice the memory. If the first value is not typical, some room is wasted.
    pub fn reserve(&mut self, values: usize) {
        match &mut self.data {
            Data::Int32(v) | Data::Date(v) => v.reserve(values),
            Data::Int64(v) | Data::Timestamp(v) => v.reserve(values),
            Data::Float32(v) => v.reserve(values),
            Data::Float64(v) => v.reserve(values),
            Data::Bytes(offsets, bytes, _) => {
                offsets.reserve(values);
                bytes.reserve(bytes.len().saturating_mul(values));
            }
            _ => {}
        }
    }

    /// Fills the children of a null parent. A NOT NULL child gets nulls here too, which nobody sees;
    /// [`ColumnBuffer::finish`] drops its validity, because Arrow refuses nulls in such a child.
    fn push_fillers(&mut self, count: usize, budget: &mut Budget) -> Result<()> {
        self.push_nulls(count, budget)
    }

    /// Drops all but the first `len` values, partial data of a value that did not fit, and the type if a dropped value
    /// decided it. Does nothing if there are not more than `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        let len = self.len;
        if let Some(validity) = &mut self.validity {
            validity.truncate(len);
        }
        if self.open && self.data_type.is_some() {
            if self.chosen_at >= len {
                (self.data, self.data_type) = (Data::Untyped, None);
            } else if self.widened_at >= len && self.widened_at != usize::MAX {
                self.narrow();
            }
        }
        match &mut self.data {
            Data::Untyped => {}
            Data::Bool(v) => v.truncate(len),
            Data::Int32(v) | Data::Date(v) => v.truncate(len),
            Data::Int64(v) | Data::Timestamp(v) => v.truncate(len),
            Data::Float32(v) => v.truncate(len),
            Data::Float64(v) => v.truncate(len),
            Data::Decimal(v, ..) => v.truncate(len),
            Data::Bytes(offsets, bytes, _) => {
                offsets.truncate(len + 1);
                bytes.truncate(offsets.last().map_or(0, |end| *end as usize));
            }
            Data::Uuid(v) => v.truncate(len * 16),
            Data::List(offsets, item, _) => {
                offsets.truncate(len + 1);
                item.truncate(offsets.last().map_or(0, |end| *end as usize));
            }
            Data::Vector(v, width) => v.truncate(len * *width),
            Data::Floats(_, columns) => columns.iter_mut().for_each(|v| v.truncate(len)),
            Data::Struct(members) => members.iter_mut().for_each(|member| member.column.truncate(len)),
        }
    }

    /// Goes back to integers when the values that caused the widening are dropped. The remaining floats are all exact
    /// integers.
    fn narrow(&mut self) {
        if let Data::Float64(floats) = &self.data {
            let before = self.widened_at.min(floats.len());
            self.data = Data::Int64(floats[..before].iter().map(|v| *v as i64).collect());
            self.data_type = Some(DataType::Int64);
            self.widened_at = usize::MAX;
        }
    }

    #[inline]
    fn mark_valid(&mut self) {
        if let Some(validity) = &mut self.validity {
            validity.append(true);
        }
        self.len += 1;
    }

    /// Makes the array. `None` if every value was null and no type is known.
    pub fn finish(mut self) -> types::Result<Option<ArrayRef>> {
        let nulls = self.validity.take().map(|mut v| NullBuffer::new(v.finish()));
        let Some(data_type) = &self.data_type else { return Ok(None) };
        self.data.finish(data_type, self.len, nulls).map(Some)
    }
}

impl Data {
    fn new(data_type: &DataType) -> Self {
        let bytes = |content| Data::Bytes(vec![0], Vec::new(), content);
        match data_type {
            DataType::Bool => Data::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int32 => Data::Int32(Vec::new()),
            DataType::Int64 => Data::Int64(Vec::new()),
            DataType::Float32 => Data::Float32(Vec::new()),
            DataType::Float64 => Data::Float64(Vec::new()),
            DataType::Decimal { precision, scale } => Data::Decimal(Vec::new(), *precision, *scale),
            DataType::String => bytes(BytesKind::String),
            DataType::Json => bytes(BytesKind::Json),
            DataType::Binary => bytes(BytesKind::Base64),
            DataType::Date => Data::Date(Vec::new()),
            DataType::Timestamp => Data::Timestamp(Vec::new()),
            DataType::Uuid => Data::Uuid(Vec::new()),
            DataType::List(item) => {
                Data::List(vec![0], Box::new(ColumnBuffer::new(&item.data_type)), item.nullable)
            }
            DataType::Struct(fields) => Data::Struct(
                fields
                    .iter()
                    .map(|f| Member {
                        name: f.name.clone(),
                        nullable: f.nullable,
                        column: ColumnBuffer::new(&f.data_type),
                    })
                    .collect(),
            ),
            DataType::Vector(width) => Data::Vector(Vec::new(), *width as usize),
            DataType::Point => Data::Floats(&["lon", "lat"], vec![Vec::new(); 2]),
            DataType::Point3d => Data::Floats(&["x", "y", "z"], vec![Vec::new(); 3]),
        }
    }

    fn finish(self, data_type: &DataType, len: usize, nulls: Option<NullBuffer>) -> types::Result<ArrayRef> {
        let broken =
            |e: arrow::error::ArrowError| Error::internal(format!("a decoded {data_type} column: {e}"));
        let offsets = |v: Vec<i32>| OffsetBuffer::new(ScalarBuffer::from(v));
        Ok(match self {
            Data::Untyped => unreachable!("a column without a type makes no array"),
            Data::Bool(mut v) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            Data::Int32(v) => Arc::new(Int32Array::new(v.into(), nulls)),
            Data::Int64(v) => Arc::new(Int64Array::new(v.into(), nulls)),
            Data::Float32(v) => Arc::new(Float32Array::new(v.into(), nulls)),
            Data::Float64(v) => Arc::new(Float64Array::new(v.into(), nulls)),
            Data::Decimal(v, ..) => {
                Arc::new(Decimal128Array::new(v.into(), nulls).with_data_type(data_type.to_arrow()))
            }
            Data::Date(v) => Arc::new(Date32Array::new(v.into(), nulls)),
            Data::Timestamp(v) => {
                Arc::new(TimestampMicrosecondArray::new(v.into(), nulls).with_timezone("UTC"))
            }
            Data::Uuid(v) => {
                Arc::new(FixedSizeBinaryArray::try_new(16, Buffer::from_vec(v), nulls).map_err(broken)?)
            }
            Data::Bytes(o, bytes, BytesKind::Base64) => {
                Arc::new(BinaryArray::try_new(offsets(o), Buffer::from_vec(bytes), nulls).map_err(broken)?)
            }
            Data::Bytes(o, bytes, _) => {
                Arc::new(StringArray::try_new(offsets(o), Buffer::from_vec(bytes), nulls).map_err(broken)?)
            }
            Data::List(o, item, _) => {
                let Arrow::List(field) = data_type.to_arrow() else { unreachable!("a list") };
                let values = item.finish()?.expect("a declared type is known");
                Arc::new(ListArray::try_new(field, offsets(o), values, nulls).map_err(broken)?)
            }
            Data::Struct(members) => {
                let Arrow::Struct(fields) = data_type.to_arrow() else { unreachable!("a struct") };
                let mut columns = Vec::with_capacity(members.len());
                for mut member in members {
                    if !member.nullable {
                        // The only nulls of this child are below a null parent, where zeros serve as well.
                        member.column.validity = None;
                    }
                    columns.push(member.column.finish()?.expect("a declared type is known"));
                }
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls, len).map_err(broken)?)
            }
            Data::Vector(v, width) => {
                let Arrow::FixedSizeList(field, _) = data_type.to_arrow() else { unreachable!("a vector") };
                let values = Arc::new(Float32Array::new(v.into(), None));
                Arc::new(FixedSizeListArray::try_new(field, width as i32, values, nulls).map_err(broken)?)
            }
            Data::Floats(_, columns) => {
                let Arrow::Struct(fields) = data_type.to_arrow() else { unreachable!("a point") };
                let columns =
                    columns.into_iter().map(|v| Arc::new(Float64Array::new(v.into(), None)) as ArrayRef);
                Arc::new(StructArray::try_new(fields, columns.collect(), nulls).map_err(broken)?)
            }
        })
    }
}

/// The bytes that a null of this type takes in Arrow.
pub(super) fn null_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::Bool => 1,
        DataType::Int32 | DataType::Float32 | DataType::Date => 5,
        DataType::String | DataType::Binary | DataType::Json | DataType::List(_) => 5,
        DataType::Int64 | DataType::Float64 | DataType::Timestamp => 9,
        DataType::Decimal { .. } | DataType::Uuid => 17,
        DataType::Point => 17,
        DataType::Point3d => 25,
        DataType::Vector(width) => 1 + *width as usize * 4,
        DataType::Struct(fields) => 1 + fields.iter().map(|f| null_bytes(&f.data_type)).sum::<usize>(),
    }
}

//! A row where it lies.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType as Arrow, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use types::{Column, ColumnId, DataType, Error, ROW_ID, Result, RowId, TIME, TableDef, Value};

use crate::Projection;
use crate::head::Stored;
use crate::layout;

/// Points to one row of a head batch or a segment's block, with all of its columns, and keeps that alive.
#[derive(Clone, Debug)]
pub struct RowRef {
    pub(crate) stored: Arc<Stored>,
    pub(crate) index: usize,
    pub(crate) def: Arc<TableDef>,
}

impl RowRef {
    pub fn row_id(&self) -> RowId {
        RowId(self.stored.row_ids()[self.index] as u64)
    }

    /// The row's place in the array of [`RowRef::stored`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// A column's array as it is stored, the row being at [`RowRef::index`]; `None` if the column was added after the row
    /// was written or is stored in a type that was widened since: then ask for [`RowRef::value`].
    pub fn stored(&self, column: ColumnId) -> Option<&ArrayRef> {
        let at = self.stored.layout.position(column)?;
        let array = self.stored.batch.column(at);
        let Some(wanted) = self.def.schema.column(column) else {
            return matches!(column, ROW_ID | TIME).then_some(array);
        };
        stands_for(array, &wanted.data_type).then_some(array)
    }

    /// The value of a column under the snapshot's definition.
    pub fn value(&self, column: ColumnId) -> Result<Value> {
        let at = self.stored.layout.position(column);
        let array = at.map(|at| self.stored.batch.column(at));
        let wanted: &Column = match (self.def.schema.column(column), array) {
            (Some(wanted), _) => wanted,
            (None, Some(array)) if column == ROW_ID => {
                return Ok(Value::from_array(array, &DataType::Int64, self.index));
            }
            (None, Some(array)) if column == TIME => {
                return Ok(Value::from_array(array, &DataType::Timestamp, self.index));
            }
            _ => return Err(Error::internal(format!("column {column} is not in the table's definition"))),
        };
        let Some(array) = array else { return Ok(wanted.initial.clone().unwrap_or(Value::Null)) };
        if stands_for(array, &wanted.data_type) {
            return Ok(Value::from_array(array, &wanted.data_type, self.index));
        }
        let one = layout::retype(&array.slice(self.index, 1), &wanted.data_type.to_arrow())?;
        Ok(Value::from_array(&one, &wanted.data_type, 0))
    }

    /// Before many of its values are asked for: reads where they are, for all columns at once. Each lies elsewhere, and these
    /// loads do not wait for each other.
    pub fn touch(&self) {
        let first = |array: &ArrayRef| match array.data_type() {
            Arrow::Int64 => array.as_primitive::<Int64Type>().values()[self.index] as u64,
            Arrow::Float64 => array.as_primitive::<Float64Type>().values()[self.index].to_bits(),
            Arrow::Int32 => array.as_primitive::<Int32Type>().values()[self.index] as u64,
            Arrow::Timestamp(TimeUnit::Microsecond, _) => {
                array.as_primitive::<TimestampMicrosecondType>().values()[self.index] as u64
            }
            Arrow::Utf8 => array.as_string::<i32>().value_offsets()[self.index] as u64,
            _ => 0,
        };
        let [_, _, user @ ..] = self.stored.batch.columns() else { return };
        std::hint::black_box(user.iter().fold(0, |all, array| all ^ first(array)));
    }

    /// The row as a batch of one.
    pub fn to_batch(&self, projection: &Projection) -> Result<RecordBatch> {
        projection.apply(&self.stored.layout, &self.stored.batch.slice(self.index, 1))
    }
}

/// Whether an array holds values of `data_type` as they are. Scalars are told by a cheap comparison, since building an
/// Arrow type allocates; nested names do not matter to [`Value::from_array`].
fn stands_for(array: &ArrayRef, data_type: &DataType) -> bool {
    match (array.data_type(), data_type) {
        (Arrow::Int32, DataType::Int32)
        | (Arrow::Int64, DataType::Int64)
        | (Arrow::Float32, DataType::Float32)
        | (Arrow::Float64, DataType::Float64) => true,
        (Arrow::Decimal128(p, _), DataType::Decimal { precision, .. }) => p == precision,
        (_, DataType::Int64 | DataType::Float64 | DataType::Int32 | DataType::Float32) => false,
        (_, DataType::Decimal { .. }) => false,
        // No other type widens, so what is stored under the column's id is of its type.
        _ => true,
    }
}

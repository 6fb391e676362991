//! A reference to one stored row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::DataType as Arrow;
use types::{Column, ColumnId, DataType, Error, ROW_ID, Result, RowId, TIME, TableDef, Value};

use crate::Projection;
use crate::head::Stored;
use crate::layout;

/// Points to one row of a head batch or a segment's block, with all of its columns, and keeps that batch alive.
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

    /// The definition under which the row's values are read: the snapshot's.
    pub fn def(&self) -> &Arc<TableDef> {
        &self.def
    }

    /// The row's index in the arrays that [`RowRef::stored`] returns.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns a column's array as it is stored; the row is at [`RowRef::index`]. `None` if the column was added after the row
    /// was written, or is stored in a type that was widened since: then use [`RowRef::value`].
    pub fn stored(&self, column: ColumnId) -> Option<&ArrayRef> {
        let at = self.stored.layout.position(column)?;
        let array = self.stored.batch.column(at);
        let Some(wanted) = self.def.schema.column(column) else {
            return matches!(column, ROW_ID | TIME).then_some(array);
        };
        stands_for(array, &wanted.data_type).then_some(array)
    }

    /// Returns the value of a column under the snapshot's definition.
    pub fn value(&self, column: ColumnId) -> Result<Value> {
        if let Some(wanted) = self.def.schema.column(column) {
            return self.value_of(wanted);
        }
        let (Some(at), ROW_ID | TIME) = (self.stored.layout.position(column), column) else {
            return Err(Error::internal(format!("column {column} is not in the table's definition")));
        };
        let data_type = if column == ROW_ID { DataType::Int64 } else { DataType::Timestamp };
        Ok(Value::from_array(self.stored.batch.column(at), &data_type, self.index))
    }

    /// Returns all values, in the order of the definition's columns.
    pub fn values(&self) -> Result<Vec<Value>> {
        let columns = &self.def.schema.columns;
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            values.push(self.value_of(column)?);
        }
        Ok(values)
    }

    fn value_of(&self, wanted: &Column) -> Result<Value> {
        let Some(at) = self.stored.layout.position(wanted.id) else {
            return Ok(wanted.initial.clone().unwrap_or(Value::Null));
        };
        let array = self.stored.batch.column(at);
        if stands_for(array, &wanted.data_type) {
            return Ok(Value::from_array(array, &wanted.data_type, self.index));
        }
        let one = layout::retype(&array.slice(self.index, 1), &wanted.data_type.to_arrow())?;
        Ok(Value::from_array(&one, &wanted.data_type, 0))
    }

    /// Returns the row as a batch of one row.
    pub fn to_batch(&self, projection: &Projection) -> Result<RecordBatch> {
        projection.apply(&self.stored.layout, &self.stored.batch.slice(self.index, 1))
    }
}

/// Returns true if an array can be read as `data_type` without a cast. Scalar types are compared cheaply, since building an Arrow
/// type allocates. The names of nested fields do not matter to [`Value::from_array`].
fn stands_for(array: &ArrayRef, data_type: &DataType) -> bool {
    match (array.data_type(), data_type) {
        (Arrow::Int32, DataType::Int32)
        | (Arrow::Int64, DataType::Int64)
        | (Arrow::Float32, DataType::Float32)
        | (Arrow::Float64, DataType::Float64) => true,
        (Arrow::Decimal128(p, _), DataType::Decimal { precision, .. }) => p == precision,
        (_, DataType::Int64 | DataType::Float64 | DataType::Int32 | DataType::Float32) => false,
        (_, DataType::Decimal { .. }) => false,
        // No other type widens, so any array stored under the column's id is of its type.
        _ => true,
    }
}

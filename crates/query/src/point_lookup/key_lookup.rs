//! The fastest lookup: columns of the one row with a given key. It compares nothing, since equal keys have equal bytes.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Operator;
use table::{Projection, Snapshot};
use types::{DataType, Error, Result, Value, key};

use super::{Operand, PointLookup};

/// A lookup by the whole key; see the module.
#[derive(Debug)]
pub(crate) struct KeyLookup {
    /// The parameter of each key column, by its index from 0.
    params: Vec<usize>,
    types: Vec<DataType>,
    projection: Projection,
    schema: SchemaRef,
}

impl PointLookup {
    /// Returns the lookup by key, if the conditions are exactly one equality with a parameter for each key column.
    pub fn key_lookup(&self, table: &Snapshot) -> Option<KeyLookup> {
        let def = table.def();
        if !def.is_keyed() || self.terms.len() != def.primary_key.len() || self.limit == 0 {
            return None;
        }
        let mut params = Vec::with_capacity(self.terms.len());
        for id in &def.primary_key {
            let term = self.terms.iter().find(|term| term.column == *id && term.op == Operator::Eq)?;
            let Operand::Param(at) = &term.operand else { return None };
            params.push(*at);
        }
        let types: Vec<DataType> = def.key_columns().map(|column| column.data_type.clone()).collect();
        // Different bytes of a float may be equal.
        if !types.iter().all(is_exact) {
            return None;
        }
        let columns: Vec<_> = self.projection.columns().take(self.schema.fields().len()).collect();
        Some(KeyLookup {
            params,
            types,
            projection: table.projection(&columns).ok()?,
            schema: self.schema.clone(),
        })
    }
}

impl KeyLookup {
    /// Returns the row, in a batch of at most one; `None` if a value is not of its key column's type and must be converted first.
    pub fn run(&self, table: &Snapshot, values: &[Value]) -> Result<Option<RecordBatch>> {
        let mut key = Vec::with_capacity(32);
        for (at, data_type) in self.params.iter().zip(&self.types) {
            let Some(value) = values.get(*at).filter(|value| has_type(value, data_type)) else {
                return Ok(None);
            };
            key::append_value(data_type, value, &mut key)?;
        }
        let _reading = vfs::read_path();
        let Some(columns) = table.columns_of(&key, &self.projection)? else {
            return Ok(Some(RecordBatch::new_empty(self.schema.clone())));
        };
        RecordBatch::try_new(self.schema.clone(), columns)
            .map(Some)
            .map_err(|e| Error::internal(format!("the row of a lookup makes no batch: {e}")))
    }
}

fn is_exact(data_type: &DataType) -> bool {
    use DataType::{Binary, Bool, Date, Int32, Int64, String, Timestamp, Uuid};
    matches!(data_type, Bool | Int32 | Int64 | String | Binary | Date | Timestamp | Uuid)
}

pub(crate) fn has_type(value: &Value, data_type: &DataType) -> bool {
    matches!(
        (value, data_type),
        (Value::Bool(_), DataType::Bool)
            | (Value::Int32(_), DataType::Int32)
            | (Value::Int64(_), DataType::Int64)
            | (Value::Float32(_), DataType::Float32)
            | (Value::Float64(_), DataType::Float64)
            | (Value::String(_), DataType::String)
            | (Value::Json(_), DataType::Json)
            | (Value::Binary(_), DataType::Binary)
            | (Value::Date(_), DataType::Date)
            | (Value::Timestamp(_), DataType::Timestamp)
            | (Value::Uuid(_), DataType::Uuid)
    )
}

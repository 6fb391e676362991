//! Takes known values: the defaults of rows that lack the column.

use types::{DataType, Error, Value};

use super::{ColumnBuffer, Data, Result};
use crate::Budget;

impl ColumnBuffer {
    /// Appends `value`, which has the column's type, `count` times.
    pub fn push_repeated(&mut self, value: &Value, count: usize, budget: &mut Budget) -> Result<()> {
        for _ in 0..count {
            self.push_value(value, budget)?;
        }
        Ok(())
    }

    fn push_value(&mut self, value: &Value, budget: &mut Budget) -> Result<()> {
        match (&mut self.data, value) {
            (_, Value::Null) => return self.push_nulls(1, budget),
            (Data::Bool(v), Value::Bool(value)) => v.append(*value),
            (Data::Int32(v), Value::Int32(value)) => v.push(*value),
            (Data::Int64(v), Value::Int64(value)) => v.push(*value),
            (Data::Float32(v), Value::Float32(value)) => v.push(*value),
            (Data::Float64(v), Value::Float64(value)) => v.push(*value),
            (Data::Decimal(v, ..), Value::Decimal(value)) => v.push(*value),
            (Data::Date(v), Value::Date(value)) => v.push(*value),
            (Data::Timestamp(v), Value::Timestamp(value)) => v.push(*value),
            (Data::Uuid(v), Value::Uuid(value)) => v.extend_from_slice(value),
            (Data::Bytes(..), Value::String(text) | Value::Json(text)) => {
                return self.push_bytes(text.as_bytes(), budget);
            }
            (Data::Bytes(..), Value::Binary(bytes)) => return self.push_bytes(bytes, budget),
            (Data::Vector(v, width), Value::Vector(values)) if values.len() == *width => {
                budget.take(values.len() * 4)?;
                v.extend_from_slice(values);
            }
            (Data::Floats(_, columns), Value::Point([x, y])) if columns.len() == 2 => {
                columns.iter_mut().zip([x, y]).for_each(|(column, value)| column.push(*value));
            }
            (Data::Floats(_, columns), Value::Point3d([x, y, z])) if columns.len() == 3 => {
                columns.iter_mut().zip([x, y, z]).for_each(|(column, value)| column.push(*value));
            }
            (Data::List(offsets, item, _), Value::List(values)) => {
                values.iter().try_for_each(|value| item.push_value(value, budget))?;
                let end = i32::try_from(item.len);
                offsets.push(end.map_err(|_| Error::invalid("a list column has too many elements"))?);
            }
            (Data::Struct(members), Value::Struct(values)) if members.len() == values.len() => {
                for (member, value) in members.iter_mut().zip(values) {
                    member.column.push_value(value, budget)?;
                }
            }
            _ => {
                let wanted = self.data_type().map_or_else(String::new, DataType::to_string);
                return Err(Error::internal(format!("a default of {wanted} has another type")).into());
            }
        }
        budget.take(8)?;
        self.mark_valid();
        Ok(())
    }

    /// Appends bytes to a column of strings, JSON texts or binaries. They are not validated.
    pub fn push_bytes(&mut self, given: &[u8], budget: &mut Budget) -> Result<()> {
        budget.take(given.len())?;
        let Data::Bytes(offsets, bytes, _) = &mut self.data else {
            return Err(Error::internal("bytes were pushed into a column of another type").into());
        };
        bytes.extend_from_slice(given);
        let end = i32::try_from(bytes.len());
        offsets.push(end.map_err(|_| Error::invalid("a column of texts has too many bytes"))?);
        self.mark_valid();
        Ok(())
    }
}

//! Parameters of a statement: the values of `$1`, `$2`, …
//!
//! A typed value has the Arrow type of its column type. A text takes part in comparisons as a literal does: compared with a
//! number, a time or a uuid, it is read as one. So parameters that came from JSON need no type of their own.

use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef};
use datafusion::common::ScalarValue;
use types::{ColumnId, DataType, Error, Field, Result, Value};

/// The parameters in the form that DataFusion needs: fields for planning, and values to insert into a plan.
#[derive(Clone, Debug, Default)]
pub struct Params {
    pub values: Vec<Value>,
    pub fields: Vec<FieldRef>,
    scalars: Vec<ScalarValue>,
    /// The error for a value that cannot stand in an expression, although it may be stored in a column.
    refused: Option<Error>,
}

impl Params {
    pub fn new(values: Vec<Value>) -> Self {
        let mut fields = Vec::with_capacity(values.len());
        let mut scalars = Vec::with_capacity(values.len());
        let mut refused = None;
        for (i, value) in values.iter().enumerate() {
            let scalar = scalar(value).unwrap_or_else(|error| {
                refused.get_or_insert(error.with("parameter", format!("${}", i + 1)));
                ScalarValue::Null
            });
            fields.push(Arc::new(ArrowField::new(format!("${}", i + 1), scalar.data_type(), true)));
            scalars.push(scalar);
        }
        Params { values, fields, scalars, refused }
    }

    /// Returns the values to insert into a plan. Fails if one of them cannot stand in an expression.
    pub fn scalars(&self) -> Result<&[ScalarValue]> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => Ok(&self.scalars),
        }
    }

    /// Returns the Arrow types of the values. A plan depends on them and on the statement's text.
    pub fn types(&self) -> Vec<Arrow> {
        self.fields.iter().map(|f| f.data_type().clone()).collect()
    }
}

/// Converts a value to DataFusion's form, with the type of the value itself.
pub fn scalar(value: &Value) -> Result<ScalarValue> {
    Ok(match value {
        Value::Null => ScalarValue::Null,
        Value::Int64(v) => ScalarValue::Int64(Some(*v)),
        // All NaN become one bit pattern.
        Value::Float64(v) if v.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        Value::Float32(v) if v.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        Value::String(v) | Value::Json(v) => ScalarValue::Utf8(Some(v.clone())),
        other => {
            let data_type = own_type(other)?;
            let array = Value::to_array(std::slice::from_ref(other), &data_type)?;
            ScalarValue::try_from_array(&array, 0).map_err(crate::error::from_datafusion)?
        }
    })
}

/// Returns the error for a number of values that differs from the number of parameters.
pub fn count_differs(whose: &str, named: usize, given: usize) -> Error {
    let parameters = if named == 1 { "parameter" } else { "parameters" };
    let values = if given == 1 { "value was" } else { "values were" };
    Error::invalid(format!("the {whose} has {named} {parameters}, {given} {values} given"))
}

/// Returns the type of a value without a column that defines one.
fn own_type(value: &Value) -> Result<DataType> {
    Ok(match value {
        Value::Null | Value::String(_) => DataType::String,
        Value::Json(_) => DataType::Json,
        Value::Bool(_) => DataType::Bool,
        Value::Int32(_) => DataType::Int32,
        Value::Int64(_) => DataType::Int64,
        Value::Float32(_) => DataType::Float32,
        Value::Float64(_) => DataType::Float64,
        Value::Binary(_) => DataType::Binary,
        Value::Date(_) => DataType::Date,
        Value::Timestamp(_) => DataType::Timestamp,
        Value::Uuid(_) => DataType::Uuid,
        Value::Vector(v) => DataType::Vector(v.len() as u32),
        Value::Point(_) => DataType::Point,
        Value::Point3d(_) => DataType::Point3d,
        Value::List(items) => {
            let mut item_type = None;
            for item in items.iter().filter(|item| **item != Value::Null) {
                let found = own_type(item)?;
                item_type = Some(match (item_type, found) {
                    (None, found) => found,
                    (Some(DataType::Int64), DataType::Float64)
                    | (Some(DataType::Float64), DataType::Int64) => DataType::Float64,
                    (Some(known), found) if known == found => known,
                    (Some(known), found) => {
                        return Err(Error::invalid(format!("a list holds both {known} and {found}")));
                    }
                });
            }
            let data_type = item_type.unwrap_or(DataType::String);
            DataType::List(Box::new(Field {
                id: ColumnId(0),
                name: "item".into(),
                data_type,
                nullable: true,
            }))
        }
        Value::Decimal(_) => {
            return Err(Error::invalid("a decimal parameter has no scale").hint("send it as text: \"1.23\""));
        }
        Value::Struct(_) => {
            return Err(Error::invalid("a struct parameter has no field names").hint("send it as JSON text"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_but_a_bare_decimal_or_struct_is_a_parameter() {
        let values = vec![
            Value::Null,
            Value::Bool(true),
            Value::Int32(1),
            Value::Int64(-1),
            Value::Float32(1.5),
            Value::Float64(2.5),
            Value::String("a".into()),
            Value::Binary(vec![0]),
            Value::Date(1),
            Value::Timestamp(1),
            Value::Uuid([1; 16]),
            Value::Json("{}".into()),
            Value::Vector(vec![1.0, 2.0]),
            Value::Point([1.0, 2.0]),
            Value::Point3d([1.0, 2.0, 3.0]),
            Value::List(vec![Value::Int64(1), Value::Null, Value::Float64(0.5)]),
            Value::List(vec![]),
        ];
        // A list of Int64 and Float64 is the one mixture that JSON produces.
        let count = values.len();
        assert_eq!(Params::new(values).scalars().unwrap().len(), count);
        assert!(Params::new(vec![Value::Decimal(1)]).scalars().is_err());
        assert!(Params::new(vec![Value::Struct(vec![])]).scalars().is_err());
        assert!(
            Params::new(vec![Value::List(vec![Value::Int64(1), Value::String("a".into())])])
                .scalars()
                .is_err()
        );
    }
}

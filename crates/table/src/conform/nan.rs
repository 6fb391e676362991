//! Normalises NaN: it has many bit patterns, with either sign, which an order by bits would treat as many values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, RecordBatch};
use arrow::datatypes::{DataType as Arrow, Float32Type, Float64Type};
use types::{Error, Result};

/// Replaces every NaN in all columns of a batch by the same NaN.
pub(super) fn of_rows(batch: &RecordBatch) -> Result<RecordBatch> {
    let changed: Vec<Option<ArrayRef>> = batch.columns().iter().map(one).collect();
    if changed.iter().all(Option::is_none) {
        return Ok(batch.clone());
    }
    let columns = changed.into_iter().zip(batch.columns());
    let columns = columns.map(|(changed, column)| changed.unwrap_or_else(|| column.clone())).collect();
    RecordBatch::try_new(batch.schema(), columns)
        .map_err(|e| Error::internal(format!("replacing NaNs failed: {e}")))
}

/// Replaces every NaN of an array by the same NaN; `None` if the array needs no change.
pub(super) fn one(array: &ArrayRef) -> Option<ArrayRef> {
    match array.data_type() {
        Arrow::Float64 => {
            let floats = array.as_primitive::<Float64Type>();
            let is_other = |v: &f64| v.is_nan() && v.to_bits() != f64::NAN.to_bits();
            if !floats.values().iter().any(is_other) {
                return None;
            }
            let one: Float64Array = floats.unary(|v| if v.is_nan() { f64::NAN } else { v });
            Some(Arc::new(one))
        }
        Arrow::Float32 => {
            let floats = array.as_primitive::<Float32Type>();
            let is_other = |v: &f32| v.is_nan() && v.to_bits() != f32::NAN.to_bits();
            if !floats.values().iter().any(is_other) {
                return None;
            }
            let one: Float32Array = floats.unary(|v| if v.is_nan() { f32::NAN } else { v });
            Some(Arc::new(one))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_has_one_form() {
        let values = vec![Some(1.0), None, Some(-f64::NAN), Some(-0.0), Some(f64::from_bits(u64::MAX))];
        let array: ArrayRef = Arc::new(Float64Array::from(values));
        let changed = one(&array).unwrap();
        let bits: Vec<Option<u64>> =
            changed.as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits)).collect();
        let nan = Some(f64::NAN.to_bits());
        assert_eq!(bits, [Some(1f64.to_bits()), None, nan, Some((-0f64).to_bits()), nan]);
        assert!(one(&changed).is_none());
        let singles: ArrayRef = Arc::new(Float32Array::from(vec![-f32::NAN]));
        let changed = one(&singles).unwrap();
        assert_eq!(changed.as_primitive::<Float32Type>().value(0).to_bits(), f32::NAN.to_bits());
    }
}

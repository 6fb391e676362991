//! The keys of whole arrays.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, make_array};
use arrow::datatypes::{DataType as Arrow, Float32Type, Float64Type};

use super::has_float;

pub(super) fn key(value: f64) -> f64 {
    if value.is_nan() {
        f64::NAN
    } else {
        // The sum of -0 and 0 is 0.
        value + 0.0
    }
}

pub(super) fn key_of_32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// Returns the array with keys in place of its floats, also in lists and structs; the same array if nothing changes.
pub fn keys(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        Arrow::Float64 => of_floats::<Float64Type>(array, key, |a, b| a.to_bits() == b.to_bits()),
        Arrow::Float32 => of_floats::<Float32Type>(array, key_of_32, |a, b| a.to_bits() == b.to_bits()),
        nested if has_float(nested) => {
            let data = array.to_data();
            let parts = data.child_data().iter().map(|part| keys(&make_array(part.clone())).to_data());
            let parts = parts.collect();
            match data.into_builder().child_data(parts).build() {
                Ok(data) => make_array(data),
                // Cannot happen: the new children have the same types and lengths.
                Err(_) => array.clone(),
            }
        }
        _ => array.clone(),
    }
}

fn of_floats<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    key: impl Fn(T::Native) -> T::Native,
    is_same: impl Fn(T::Native, T::Native) -> bool,
) -> ArrayRef {
    let floats = array.as_primitive::<T>();
    if floats.values().iter().all(|value| is_same(key(*value), *value)) {
        return array.clone();
    }
    let keys: PrimitiveArray<T> = floats.unary(key);
    Arc::new(keys)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, ListArray};

    use super::*;

    #[test]
    fn zeros_are_one_value_and_so_is_what_is_no_number() {
        let other_nan = f64::from_bits(f64::NAN.to_bits() | 1);
        let values = [Some(-0.0), Some(0.0), None, Some(-f64::NAN), Some(other_nan), Some(-1.5)];
        let array: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        let keys_of = |array: &ArrayRef| -> Vec<Option<u64>> {
            array.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect()
        };
        let nan = Some(f64::NAN.to_bits());
        assert_eq!(keys_of(&keys(&array)), [Some(0), Some(0), None, nan, nan, Some((-1.5f64).to_bits())]);
        // An array that is unchanged is not copied.
        let plain: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 1.0, f64::NAN]));
        assert!(Arc::ptr_eq(&keys(&plain), &plain));
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(1.0)]),
            Some(vec![Some(-0.0), None]),
        ]));
        assert_eq!(keys_of(&keys(&list.slice(1, 1)).as_list::<i32>().value(0)), [Some(0), None]);
    }
}

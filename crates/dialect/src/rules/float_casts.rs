//! Decimals become floats with a single rounding: the float that their digits have when they are parsed as text.
//!
//! Arrow converts all digits to a float, divides that by a power of ten, and rounds both times, so that `100.00000000000001`
//! became 100. This module replaces its casts, in plans and where values are converted for a column.

use std::any::Any;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, make_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType as Arrow, Decimal128Type, Decimal256Type, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::format::DEFAULT_CAST_OPTIONS;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::values::decimal_text;

/// The largest power of ten that each float type holds exactly, and the bound up to which it holds all integers.
const POWER_MAX_64: u32 = 22;
const INTEGER_MAX_64: u128 = 1 << 53;
const POWER_MAX_32: u32 = 10;
const INTEGER_MAX_32: u128 = 1 << 24;

/// Casts an array as Arrow does, except for decimals that become floats.
pub fn cast(
    array: &ArrayRef,
    to: &Arrow,
    options: &CastOptions<'_>,
) -> std::result::Result<ArrayRef, ArrowError> {
    decimal_text::check(array, to)?;
    match with_floats(array, to)? {
        Some(floats) if floats.data_type() == to => Ok(floats),
        Some(floats) => cast_with_options(&floats, to, options),
        None => cast_with_options(array, to, options),
    }
}

/// Converts the decimals of an array to floats where `to` has floats; `None` if there are none.
fn with_floats(array: &ArrayRef, to: &Arrow) -> std::result::Result<Option<ArrayRef>, ArrowError> {
    let from = array.data_type();
    if !rounds(from, to) {
        return Ok(None);
    }
    if let Some(to) = item(to) {
        return of_items(array, |items| with_floats(items, to));
    }
    Ok(match (from, to) {
        (Arrow::Decimal128(_, scale), Arrow::Float64) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            let floats = decimals.iter().map(|v| v.map(|v| to_f64(v, *scale)));
            Some(Arc::new(Float64Array::from_iter(floats)))
        }
        (Arrow::Decimal128(_, scale), Arrow::Float32) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            let floats = decimals.iter().map(|v| v.map(|v| to_f32(v, *scale)));
            Some(Arc::new(Float32Array::from_iter(floats)))
        }
        (Arrow::Decimal256(_, scale), Arrow::Float64) => {
            let decimals = array.as_primitive::<Decimal256Type>();
            let floats = decimals.iter().map(|v| v.map(|v| read(v, *scale, f64::NAN)));
            Some(Arc::new(Float64Array::from_iter(floats)))
        }
        (Arrow::Decimal256(_, scale), Arrow::Float32) => {
            let decimals = array.as_primitive::<Decimal256Type>();
            let floats = decimals.iter().map(|v| v.map(|v| read(v, *scale, f32::NAN)));
            Some(Arc::new(Float32Array::from_iter(floats)))
        }
        _ => None,
    })
}

/// Converts the items of lists; `None` if nothing changes.
pub fn of_items(
    array: &ArrayRef,
    convert: impl Fn(&ArrayRef) -> std::result::Result<Option<ArrayRef>, ArrowError>,
) -> std::result::Result<Option<ArrayRef>, ArrowError> {
    let lists = array.to_data();
    let Some(items) = lists.child_data().first() else { return Ok(None) };
    let Some(items) = convert(&make_array(items.clone()))? else { return Ok(None) };
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let data_type = match array.data_type() {
        Arrow::List(_) => Arrow::List(item),
        Arrow::LargeList(_) => Arrow::LargeList(item),
        Arrow::FixedSizeList(_, len) => Arrow::FixedSizeList(item, *len),
        _ => return Ok(None),
    };
    let lists = lists.into_builder().data_type(data_type).child_data(vec![items.to_data()]).build()?;
    Ok(Some(make_array(lists)))
}

/// Returns true if a cast between these types turns decimals into floats.
fn rounds(from: &Arrow, to: &Arrow) -> bool {
    match (item(from), item(to)) {
        (Some(from), Some(to)) => rounds(from, to),
        (None, None) => matches!(from, Arrow::Decimal128(..) | Arrow::Decimal256(..)) && holds_floats(to),
        _ => false,
    }
}

/// Returns the type of the items of a list.
pub fn item(data_type: &Arrow) -> Option<&Arrow> {
    match data_type {
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}

/// Converts a decimal to a float64. A quotient of two numbers that the float type holds exactly is rounded once; others are
/// parsed from their digits.
fn to_f64(mantissa: i128, scale: i8) -> f64 {
    match u32::try_from(scale) {
        Ok(power) if power <= POWER_MAX_64 && mantissa.unsigned_abs() <= INTEGER_MAX_64 => {
            mantissa as f64 / 10u128.pow(power) as f64
        }
        _ => read(mantissa, scale, f64::NAN),
    }
}

fn to_f32(mantissa: i128, scale: i8) -> f32 {
    match u32::try_from(scale) {
        Ok(power) if power <= POWER_MAX_32 && mantissa.unsigned_abs() <= INTEGER_MAX_32 => {
            mantissa as f32 / 10u128.pow(power) as f32
        }
        _ => read(mantissa, scale, f32::NAN),
    }
}

fn read<F: FromStr>(mantissa: impl Display, scale: i8, otherwise: F) -> F {
    format!("{mantissa}e{}", -i16::from(scale)).parse().unwrap_or(otherwise)
}

/// Replaces a cast of decimals to floats by this module's function. Casts of structs stay as they are.
pub fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (Expr::Cast(Cast { expr: of, data_type: to }) | Expr::TryCast(TryCast { expr: of, data_type: to })) =
        &expr
    else {
        return Ok(Transformed::no(expr));
    };
    if !holds_floats(to) || !of.get_type(schema).is_ok_and(|from| rounds(&from, to)) {
        return Ok(Transformed::no(expr));
    }
    if let Expr::Literal(decimal, _) = of.as_ref() {
        let floats = cast(&decimal.to_array()?, to, &DEFAULT_CAST_OPTIONS)?;
        return Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from_array(&floats, 0)?, None)));
    }
    let function = ToFloat { to: to.clone(), signature: Signature::any(1, Volatility::Immutable) };
    let function = Arc::new(ScalarUDF::new_from_impl(function));
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![of.as_ref().clone()]))))
}

fn holds_floats(data_type: &Arrow) -> bool {
    match item(data_type) {
        Some(item) => holds_floats(item),
        None => matches!(data_type, Arrow::Float32 | Arrow::Float64),
    }
}

/// Returns true for such a cast function, which cannot fail.
pub fn is_function(function: &ScalarUDF) -> bool {
    function.inner().as_any().is::<ToFloat>()
}

/// The function `to_float(x)`, which replaces a cast in a plan.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToFloat {
    to: Arrow,
    signature: Signature,
}

impl ScalarUDFImpl for ToFloat {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "to_float"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => {
                Ok(ColumnarValue::Array(cast(array, &self.to, &DEFAULT_CAST_OPTIONS)?))
            }
            [ColumnarValue::Scalar(scalar)] => {
                let float = cast(&scalar.to_array()?, &self.to, &DEFAULT_CAST_OPTIONS)?;
                ScalarValue::try_from_array(&float, 0).map(ColumnarValue::Scalar)
            }
            _ => Err(DataFusionError::Internal("a cast is of one value".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_becomes_the_float_that_its_digits_mean() {
        for (mantissa, scale, text) in [
            (10_000_000_000_000_001i128, 14i8, "100.00000000000001"),
            (-10_000_000_000_000_001, 14, "-100.00000000000001"),
            (9_007_199_254_740_993, 0, "9007199254740993"),
            (1, 38, "1e-38"),
            (i128::MAX, 5, "1701411834604692317316873037158841.05727"),
            (123, -3, "123000"),
            (1, 1, "0.1"),
            (0, 10, "0"),
            // Its float64 lies exactly in the middle between two float32.
            (16_777_217_000_000_001, 9, "16777217.000000001"),
        ] {
            assert_eq!(to_f64(mantissa, scale), text.parse::<f64>().unwrap(), "{text}");
            assert_eq!(to_f32(mantissa, scale), text.parse::<f32>().unwrap(), "{text}");
        }
    }
}

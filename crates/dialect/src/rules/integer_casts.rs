//! Casts of decimals and floats to integers round as in PostgreSQL: halves of decimals away from zero, halves of floats to the
//! even integer. Arrow's casts truncate. Casts of texts to decimals have a [limit](decimal_text) of their length.
//!
//! The casts become calls of a function, which DataFusion's simplifier does not know: it would move a cast to the other side of a
//! comparison.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType as Arrow, Field, FieldRef, Float32Type,
    Float64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::rules::float_casts::{item, of_items};
use crate::values::decimal_text;
use crate::values::type_depth;

/// Rewrites a cast that rounds to integers, or reads decimals from texts, to a call of this module's function. `arrow_cast` rounds
/// like Arrow, so only its casts of texts are rewritten.
pub fn rewrite(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (of, to, or_null, may_round) = match &expr {
        Expr::Cast(Cast { expr: of, data_type: to }) => (of.as_ref(), to.clone(), false, true),
        Expr::TryCast(TryCast { expr: of, data_type: to }) => (of.as_ref(), to.clone(), true, true),
        Expr::ScalarFunction(call) if call.name() == type_depth::FUNCTION => match call.args.first() {
            Some(of) => (of, expr.get_type(schema).unwrap_or(Arrow::Null), false, false),
            None => return Transformed::no(expr),
        },
        _ => return Transformed::no(expr),
    };
    let replaces = |from: Arrow| may_round && rounds(&from, &to) || decimal_text::is_read(&from, &to);
    if !holds_numbers(&to) || !of.get_type(schema).is_ok_and(replaces) {
        return Transformed::no(expr);
    }
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Arc::new(ScalarUDF::new_from_impl(ToNumber { to, or_null, signature }));
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![of.clone()])))
}

/// Returns true for integers and decimals, and for types that hold them.
fn holds_numbers(data_type: &Arrow) -> bool {
    match data_type {
        Arrow::Struct(fields) => fields.iter().any(|field| holds_numbers(field.data_type())),
        Arrow::Dictionary(_, values) => holds_numbers(values),
        _ => match decimal_text::item(data_type) {
            Some(item) => holds_numbers(item),
            None => data_type.is_integer() || data_type.is_decimal(),
        },
    }
}

fn rounds(from: &Arrow, to: &Arrow) -> bool {
    match (item(from), item(to)) {
        (Some(from), Some(to)) => rounds(from, to),
        (None, None) => {
            let has_fraction = match from {
                Arrow::Decimal128(_, scale) | Arrow::Decimal256(_, scale) => *scale > 0,
                _ => matches!(from, Arrow::Float32 | Arrow::Float64),
            };
            has_fraction && to.is_integer()
        }
        _ => false,
    }
}

fn cast(
    array: &ArrayRef,
    to: &Arrow,
    options: &CastOptions<'_>,
) -> std::result::Result<ArrayRef, ArrowError> {
    decimal_text::check(array, to)?;
    let whole = rounded(array, to)?;
    cast_with_options(whole.as_ref().unwrap_or(array), to, options)
}

/// Rounds the numbers of an array where `to` has integers; `None` if there are none to round.
fn rounded(array: &ArrayRef, to: &Arrow) -> std::result::Result<Option<ArrayRef>, ArrowError> {
    if !rounds(array.data_type(), to) {
        return Ok(None);
    }
    if let Some(to) = item(to) {
        return of_items(array, |items| rounded(items, to));
    }
    let options = CastOptions::default();
    Ok(match array.data_type() {
        Arrow::Float32 => {
            let floats: Float32Array = array.as_primitive::<Float32Type>().unary(f32::round_ties_even);
            Some(Arc::new(floats))
        }
        Arrow::Float64 => {
            let floats: Float64Array = array.as_primitive::<Float64Type>().unary(f64::round_ties_even);
            Some(Arc::new(floats))
        }
        // Arrow rounds if the scale becomes smaller.
        Arrow::Decimal128(..) => {
            Some(cast_with_options(array, &Arrow::Decimal128(DECIMAL128_MAX_PRECISION, 0), &options)?)
        }
        Arrow::Decimal256(..) => {
            Some(cast_with_options(array, &Arrow::Decimal256(DECIMAL256_MAX_PRECISION, 0), &options)?)
        }
        _ => None,
    })
}

/// The functions `to_integer(x)` and `to_decimal(x)`, which replace casts in a plan.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumber {
    to: Arrow,
    /// True for TRY_CAST, which returns null for a value that does not fit.
    or_null: bool,
    signature: Signature,
}

impl ToNumber {
    fn cast(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let options = CastOptions { safe: self.or_null, format_options: FormatOptions::default() };
        Ok(cast(array, &self.to, &options)?)
    }
}

impl ScalarUDFImpl for ToNumber {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        if self.to.is_decimal() { "to_decimal" } else { "to_integer" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = self.or_null || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => self.cast(array).map(ColumnarValue::Array),
            [ColumnarValue::Scalar(scalar)] => {
                let whole = self.cast(&scalar.to_array()?)?;
                ScalarValue::try_from_array(&whole, 0).map(ColumnarValue::Scalar)
            }
            _ => Err(DataFusionError::Internal("a cast is of one value".into())),
        }
    }
}

/// Returns true for such a cast function.
pub fn is_function(function: &ScalarUDF) -> bool {
    function.inner().as_any().is::<ToNumber>()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array, Int64Array};

    use super::*;

    #[test]
    fn halves_go_away_from_zero_in_decimals_and_to_the_even_integer_in_floats() {
        let decimals = Decimal128Array::from(vec![Some(5), Some(15), Some(-25), Some(24), None]);
        let decimals: ArrayRef = Arc::new(decimals.with_precision_and_scale(38, 1).unwrap());
        let whole = cast(&decimals, &Arrow::Int64, &CastOptions::default()).unwrap();
        let expected = Int64Array::from(vec![Some(1), Some(2), Some(-3), Some(2), None]);
        assert_eq!(whole.as_ref(), &expected as &dyn Array);

        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, -2.5, 2.4]));
        let whole = cast(&floats, &Arrow::Int32, &CastOptions::default()).unwrap();
        assert_eq!(whole.as_ref(), &Int32Array::from(vec![0, 2, -2, 2]) as &dyn Array);
    }

    #[test]
    fn the_largest_decimals_are_rounded_too() {
        let nines = 10i128.pow(38) - 1;
        let decimals = Decimal128Array::from(vec![nines]).with_precision_and_scale(38, 37).unwrap();
        let whole = cast(&(Arc::new(decimals) as ArrayRef), &Arrow::Int32, &CastOptions::default()).unwrap();
        assert_eq!(whole.as_primitive::<arrow::datatypes::Int32Type>().value(0), 10);
    }
}

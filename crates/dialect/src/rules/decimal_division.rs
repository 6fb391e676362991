//! The quotient of two decimals is rounded to the nearest value, as in PostgreSQL. DataFusion truncates it, so that
//! `0.05 / 0.3 * 0.3` was too small.
//!
//! The type stays DataFusion's: its scale is four digits longer than that of the dividend.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType as Arrow, Decimal128Type, DecimalType, i256};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use types::Error;

/// Returns the division function for decimals.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DecimalDivision { signature }))
}

/// Returns true if operands, whose types were coerced, are divided by [`function`].
pub fn applies_to(dividend: &Expr, divisor: &Expr, schema: &DFSchema) -> bool {
    let is_decimal = |expr: &Expr| matches!(expr.get_type(schema), Ok(Arrow::Decimal128(..)));
    is_decimal(divisor) && is_decimal(dividend)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DecimalDivision {
    signature: Signature,
}

impl ScalarUDFImpl for DecimalDivision {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "quotient"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        match types {
            [dividend, divisor] => {
                BinaryTypeCoercer::new(dividend, &Operator::Divide, divisor).get_result_type()
            }
            _ => Err(DataFusionError::Internal("one decimal is divided by one".into())),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [dividend, divisor] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("one decimal is divided by one".into()));
        };
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let quotients =
            divide(&dividend.to_array(rows)?, &divisor.to_array(rows)?, args.return_field.data_type())?;
        if is_constant {
            ScalarValue::try_from_array(&quotients, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(Arc::new(quotients)))
        }
    }
}

fn divide(dividends: &ArrayRef, divisors: &ArrayRef, quotient: &Arrow) -> Result<Decimal128Array> {
    let (
        &Arrow::Decimal128(_, dividend_scale),
        &Arrow::Decimal128(_, divisor_scale),
        &Arrow::Decimal128(precision, scale),
    ) = (dividends.data_type(), divisors.data_type(), quotient)
    else {
        return Err(DataFusionError::Internal("one decimal is divided by one".into()));
    };
    // dividend / 10^a / (divisor / 10^b) = quotient / 10^c: the quotient is dividend * 10^(c - a + b) / divisor.
    let shift = i32::from(scale) - i32::from(dividend_scale) + i32::from(divisor_scale);
    let (raised, lowered) = (power_of_ten(shift.max(0)), power_of_ten((-shift).max(0)));
    let (dividends, divisors) =
        (dividends.as_primitive::<Decimal128Type>(), divisors.as_primitive::<Decimal128Type>());
    let one = |row: usize| {
        if dividends.is_null(row) || divisors.is_null(row) {
            return Ok(None);
        }
        let (dividend, divisor) = (dividends.value(row), divisors.value(row));
        if divisor == 0 {
            return Err(ArrowError::DivideByZero.into());
        }
        let small = || {
            let dividend = dividend.checked_mul(raised.to_i128()?)?;
            rounded(dividend, divisor.checked_mul(lowered.to_i128()?)?)
        };
        let large = || {
            let dividend = i256::from_i128(dividend).checked_mul(raised)?;
            rounded_wide(dividend, i256::from_i128(divisor).checked_mul(lowered)?)
        };
        let found = small().or_else(large);
        let fits = found.filter(|found| Decimal128Type::is_valid_decimal_precision(*found, precision));
        fits.map(Some).ok_or_else(|| {
            let text = format!("a quotient of decimals is out of range of decimal({precision},{scale})");
            let error = Error::invalid(text).hint("CAST an operand to float64");
            DataFusionError::External(Box::new(error))
        })
    };
    let quotients: Decimal128Array = (0..dividends.len()).map(one).collect::<Result<_>>()?;
    Ok(quotients.with_precision_and_scale(precision, scale)?)
}

fn power_of_ten(exponent: i32) -> i256 {
    // The exponent is the sum of two scales, each at most the number of digits of a decimal.
    debug_assert!(exponent <= 2 * i32::from(DECIMAL128_MAX_PRECISION));
    i256::from_i128(10).wrapping_pow(exponent.unsigned_abs())
}

/// Divides and rounds halves away from zero, as PostgreSQL does for decimals. Returns `None` if an intermediate result overflows.
fn rounded(dividend: i128, divisor: i128) -> Option<i128> {
    let (quotient, rest) = (dividend.checked_div(divisor)?, dividend % divisor);
    if rest.unsigned_abs() < divisor.unsigned_abs() - rest.unsigned_abs() {
        return Some(quotient);
    }
    quotient.checked_add(if (dividend < 0) == (divisor < 0) { 1 } else { -1 })
}

fn rounded_wide(dividend: i256, divisor: i256) -> Option<i128> {
    let (quotient, rest) = (dividend.checked_div(divisor)?, dividend.checked_rem(divisor)?);
    let (rest, whole) = (rest.wrapping_abs(), divisor.wrapping_abs());
    if rest < whole.wrapping_sub(rest) {
        return quotient.to_i128();
    }
    let is_positive = dividend.is_negative() == divisor.is_negative();
    let away = i256::from_i128(if is_positive { 1 } else { -1 });
    quotient.checked_add(away)?.to_i128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_round_alike() {
        for (dividend, divisor, expected) in [
            (7, 2, 4),
            (-7, 2, -4),
            (7, -2, -4),
            (-7, -2, 4),
            (5, 3, 2),
            (4, 3, 1),
            (-4, 3, -1),
            (1, 3, 0),
            (-1, 2, -1),
            (0, -5, 0),
            (i128::MAX, 1, i128::MAX),
            (i128::MIN, i128::MAX, -1),
        ] {
            assert_eq!(rounded(dividend, divisor), Some(expected), "{dividend} / {divisor}");
            let wide = rounded_wide(i256::from_i128(dividend), i256::from_i128(divisor));
            assert_eq!(wide, Some(expected), "{dividend} / {divisor}");
        }
        assert_eq!(rounded(i128::MIN, -1), None);
    }
}

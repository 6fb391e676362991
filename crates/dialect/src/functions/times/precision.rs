//! `t::timestamp(3)` rounds a time to three digits of a second, as in PostgreSQL. DataFusion would change the type to
//! milliseconds; here the cast becomes a call that rounds, and the time stays in microseconds.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, Statement, TypedString, Value, visit_expressions_mut,
};
use sql::ast::call;

use super::{each, of_time, out_of_range, own_types, wrong_argument_count, wrong_arguments};

const NAME: &str = "to_precision";
/// The origin from which PostgreSQL counts: 2000-01-01, in microseconds since 1970.
const BEGIN: i128 = 946_684_800_000_000;
/// Number of digits of a second in a microsecond.
const DIGITS: u32 = 6;

pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let function = ToPrecision { signature: own_types() };
    registry.register_udf(Arc::new(ScalarUDF::new_from_impl(function))).map(drop)
}

/// Replaces each cast to a timestamp of fewer than six digits by a call that rounds.
pub fn rewrite_precision(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        let precision = match expr {
            Expr::Cast { data_type: SqlType::Timestamp(precision, _), .. } => precision,
            Expr::TypedString(TypedString { data_type: SqlType::Timestamp(precision, _), .. }) => precision,
            _ => return ControlFlow::<()>::Continue(()),
        };
        if let Some(digits) = precision.take_if(|digits| *digits < u64::from(DIGITS)) {
            let time = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *expr = call(NAME, vec![time, Expr::Value(Value::Number(digits.to_string(), false).into())]);
        }
        ControlFlow::Continue(())
    });
}

/// Returns the nearest time with `digits` digits of a second; ties go away from the year 2000.
fn rounded(time: i64, digits: u32) -> Option<i64> {
    let unit = 10i128.pow(DIGITS.checked_sub(digits)?);
    let since = i128::from(time) - BEGIN;
    let units = (since.abs() + unit / 2) / unit;
    i64::try_from(since.signum() * units * unit + BEGIN).ok()
}

/// The function `to_precision(time, digits)`, which replaces a cast in a statement.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToPrecision {
    signature: Signature,
}

impl ScalarUDFImpl for ToPrecision {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        match types {
            [time, digits] if digits.is_integer() => of_time(time).map(|time| vec![time, Arrow::Int64]),
            _ => None,
        }
        .ok_or_else(|| wrong_arguments(NAME, types))
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        types.first().cloned().ok_or_else(|| wrong_argument_count(NAME))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [time, ColumnarValue::Scalar(ScalarValue::Int64(Some(digits)))] = args.args.as_slice() else {
            return Err(wrong_argument_count(NAME));
        };
        let digits = u32::try_from(*digits).map_err(|_| wrong_argument_count(NAME))?;
        each(time, |time| rounded(time, digits).ok_or_else(|| out_of_range(NAME)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_to_the_nearest_and_halves_away_from_2000() {
        let after = BEGIN as i64;
        assert_eq!(rounded(after + 1_499_999, 0), Some(after + 1_000_000));
        assert_eq!(rounded(after + 1_500_000, 0), Some(after + 2_000_000));
        assert_eq!(rounded(after - 1_500_000, 0), Some(after - 2_000_000));
        assert_eq!(rounded(after + 1_234_567, 3), Some(after + 1_235_000));
        assert_eq!(rounded(i64::MAX, 0), None);
    }
}

//! Long constants that are to stand in every row: `SELECT repeat('x', 1000000) FROM t` is folded into one text, and
//! DataFusion copies it for each row of a batch. How many rows there are is known only when it does.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use types::{Error, Kind};

use super::BATCH_BYTES_MAX;

/// Shorter ones do not make too much of a batch.
const LONG_BYTES: usize = BATCH_BYTES_MAX as usize / table::BATCH_ROWS;

pub(crate) fn is_long(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.size() > LONG_BYTES)
}

/// An expression of a projection, grouping or window whose long constants count the rows that they are copied for.
/// Where a constant is an operand it is not copied.
pub(crate) fn counted(expr: Expr) -> Transformed<Expr> {
    let mut changed = false;
    let mut count = |expr: &mut Expr| {
        let counted = counted(std::mem::take(expr));
        changed |= counted.transformed;
        *expr = counted.data;
    };
    let expr = match expr {
        Expr::Literal(value, metadata) => {
            let expr = Expr::Literal(value, metadata);
            if !is_long(&expr) {
                return Transformed::no(expr);
            }
            let Expr::Literal(value, _) = expr else { return Transformed::no(expr) };
            // Nothing may fold it again.
            let signature = Signature::nullary(Volatility::Volatile);
            let function = Arc::new(ScalarUDF::new_from_impl(Constant { value, signature }));
            return Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, Vec::new())));
        }
        Expr::Alias(mut alias) => {
            count(&mut alias.expr);
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut function) => {
            // The others, as what stands between texts, must be constant.
            function.params.args.first_mut().into_iter().for_each(count);
            Expr::AggregateFunction(function)
        }
        Expr::WindowFunction(mut function) => {
            function.params.args.first_mut().into_iter().for_each(count);
            Expr::WindowFunction(function)
        }
        Expr::Case(mut case) => {
            let values = case.when_then_expr.iter_mut().map(|(_, then)| then);
            values.chain(&mut case.else_expr).for_each(|value| count(value));
            Expr::Case(case)
        }
        other => other,
    };
    Transformed::new_transformed(expr, changed)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    value: ScalarValue,
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "constant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(self.value.data_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), self.value.data_type(), self.value.is_null())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (rows, each) = (args.number_rows, self.value.size());
        let bytes = each as u128 * rows as u128;
        if rows > 1 && bytes > BATCH_BYTES_MAX {
            let (each, bytes, most) = (each >> 10, bytes >> 20, BATCH_BYTES_MAX >> 20);
            let message = format!(
                "a constant of {each} KiB would make {bytes} MiB in {rows} rows, more than {most} MiB"
            );
            let error = Error::new(Kind::TooLarge, message).hint("ask for it by itself, or for fewer rows");
            return Err(DataFusionError::External(Box::new(error)));
        }
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

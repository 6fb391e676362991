//! Bounds the copies of a long constant that stands in every row.
//!
//! `SELECT repeat('x', 1000000) FROM t` has one long text, which DataFusion copies for each row of a batch. The number of rows is
//! known only at that moment, so a function around the constant checks it there.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::take_function_args;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use types::{Error, Kind};

use super::BATCH_BYTES_MAX;

/// Bytes of the longest constant whose copies for a full batch stay within [`BATCH_BYTES_MAX`].
const LONG_BYTES: usize = BATCH_BYTES_MAX as usize / crate::BATCH_ROWS;

/// Returns true for a constant that may be long: a literal, or a call that the planner left because it takes long or makes a long
/// value.
pub fn may_be_long(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.size() > LONG_BYTES,
        Expr::ScalarFunction(call) => {
            call.func.signature().volatility != Volatility::Volatile && is_made_of_literals(expr)
        }
        _ => false,
    }
}

/// Wraps the long constants of each CASE in an expression, because CASE copies them for its rows.
pub fn wrap_in_cases(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(if matches!(expr, Expr::Case(_)) { wrap(expr) } else { Transformed::no(expr) })
    })
}

/// Returns true for an expression that consists of literals, calls and casts.
fn is_made_of_literals(expr: &Expr) -> bool {
    let other =
        |expr: &Expr| Ok(!matches!(expr, Expr::Literal(..) | Expr::ScalarFunction(_) | Expr::Cast(_)));
    expr.exists(other).is_ok_and(|found| !found)
}

/// Wraps long constants in an expression of a projection, grouping or window, where they are copied for each row. Operands of
/// operators are not copied, so they stay as they are.
pub fn wrap(expr: Expr) -> Transformed<Expr> {
    let mut changed = false;
    let mut count = |expr: &mut Expr| {
        let counted = wrap(std::mem::take(expr));
        changed |= counted.transformed;
        *expr = counted.data;
    };
    let expr = match expr {
        expr if may_be_long(&expr) => {
            return Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                WRAPPER.clone(),
                vec![expr],
            )));
        }
        Expr::Alias(mut alias) => {
            count(&mut alias.expr);
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut function) => {
            // The other arguments, such as the separator of `string_agg`, must stay constant.
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

static WRAPPER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    // Volatile, so that the optimizer does not fold it into a constant again.
    let signature = Signature::any(1, Volatility::Volatile);
    Arc::new(ScalarUDF::new_from_impl(CopiedConstant { signature }))
});

/// A function that returns its constant argument, or fails if the copies for all rows would take too many bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CopiedConstant {
    signature: Signature,
}

impl ScalarUDFImpl for CopiedConstant {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "constant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        Ok(types.first().cloned().unwrap_or(Arrow::Null))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = args.arg_fields.first().map(|field| Field::clone(field).with_name(self.name()));
        Ok(Arc::new(field.unwrap_or_else(|| Field::new(self.name(), Arrow::Null, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), args.args)?;
        let ColumnarValue::Scalar(constant) = &value else { return Ok(value) };
        let (rows, each) = (args.number_rows, constant.size());
        let bytes = each as u128 * rows as u128;
        if rows > 1 && bytes > BATCH_BYTES_MAX {
            let (each, bytes, most) = (each >> 10, bytes >> 20, BATCH_BYTES_MAX >> 20);
            let message = format!(
                "a constant of {each} KiB would make {bytes} MiB in {rows} rows, more than {most} MiB"
            );
            let error = Error::new(Kind::TooLarge, message).hint("ask for it by itself, or for fewer rows");
            return Err(DataFusionError::External(Box::new(error)));
        }
        Ok(value)
    }
}

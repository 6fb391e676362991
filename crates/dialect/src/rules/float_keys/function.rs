//! The function `float_key(x)`. It is not registered, so that statements cannot call it.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::keys;
use crate::rules::optimization_barrier;

pub const NAME: &str = "float_key";

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(FloatKey { signature: Signature::any(1, Volatility::Immutable) }))
});

pub(super) fn key(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(FUNCTION.clone(), vec![expr]))
}

/// Returns true for this function, which cannot fail.
pub fn is_function(function: &ScalarUDF) -> bool {
    function.inner().as_any().is::<FloatKey>()
}

/// Removes the keys and the [`as_is`](crate::rules::optimization_barrier) calls from an expression. Where the expression was
/// true, the result is true too, if zeros compare as one value.
pub fn without_keys(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let plain = expr.transform_up(|expr| {
        let function = expr.as_any().downcast_ref::<ScalarFunctionExpr>();
        Ok(
            match function.filter(|function| {
                is_function(function.fun()) || optimization_barrier::is_function(function.fun())
            }) {
                Some(function) => match function.args() {
                    [of] => Transformed::yes(of.clone()),
                    _ => Transformed::no(expr),
                },
                None => Transformed::no(expr),
            },
        )
    });
    plain.data()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatKey {
    signature: Signature,
}

impl ScalarUDFImpl for FloatKey {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        types.first().cloned().ok_or_else(|| DataFusionError::Internal("a key is of a value".into()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = args.arg_fields.first();
        let of = of.ok_or_else(|| DataFusionError::Internal("a key is of a value".into()))?;
        Ok(Arc::new(Field::clone(of).with_name(NAME)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(keys(array))),
            [ColumnarValue::Scalar(scalar)] => {
                ScalarValue::try_from_array(&keys(&scalar.to_array()?), 0).map(ColumnarValue::Scalar)
            }
            _ => Err(DataFusionError::Internal("a key is of one value".into())),
        }
    }
}

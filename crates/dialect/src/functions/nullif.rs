//! `nullif(a, b)` is null if `a = b`, else `a`. DataFusion's does not read an untyped text as the type of the other argument, and
//! takes -0 and 0, and different NaN, for different values.

use std::any::Any;
use std::sync::Arc;

use arrow::compute::kernels::cmp::eq;
use arrow::compute::nullif;
use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use sql::sql_type::field_type_name;
use types::Error;

use crate::functions::common_type::is_text;
use crate::rules::float_keys;

pub const NAME: &str = "nullif";

/// Returns the function that replaces DataFusion's.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(NullIf { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NullIf {
    signature: Signature,
}

impl ScalarUDFImpl for NullIf {
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
        let [left, right] = types else {
            let error = Error::invalid(format!("`nullif` takes two arguments, not {}", types.len()));
            return Err(DataFusionError::External(Box::new(error)));
        };
        let one = match (is_text(left), is_text(right)) {
            // Typed text was refused before, so this text has no type.
            (true, false) if *right != Arrow::Null => Some(right.clone()),
            (false, true) if *left != Arrow::Null => Some(left.clone()),
            _ => comparison_coercion(left, right),
        };
        let one = one.ok_or_else(|| {
            let name = |data_type: &Arrow| field_type_name(&Field::new("", data_type.clone(), true));
            let message = format!("`nullif` cannot compare {} and {}", name(left), name(right));
            DataFusionError::External(Box::new(Error::invalid(message).hint("CAST one of them")))
        })?;
        Ok(vec![one.clone(), one])
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        types.first().cloned().ok_or_else(|| DataFusionError::Internal("nullif takes arguments".into()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = args.arg_fields.first();
        let of = of.ok_or_else(|| DataFusionError::Internal("nullif takes arguments".into()))?;
        // The metadata of the field stay, such as the mark of a uuid.
        Ok(Arc::new(Field::clone(of).with_name(NAME).with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("nullif takes two arguments".into()));
        };
        let is_constant = [left, right].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let kept = nullif(&left, &eq(&float_keys::keys(&left), &float_keys::keys(&right))?)?;
        if is_constant {
            ScalarValue::try_from_array(&kept, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(kept))
        }
    }
}

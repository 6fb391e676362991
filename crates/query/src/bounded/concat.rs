//! `||` between texts: null where one of them is null, and no longer than other functions' answers may be.

use std::any::Any;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::compute::kernels::concat_elements::concat_elements_utf8;
use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Grows, bytes, check};

pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Concat { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Concat {
    signature: Signature,
}

impl ScalarUDFImpl for Concat {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        types.first().cloned().ok_or_else(|| DataFusionError::Internal("no operand".into()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check(self.name(), Grows::Joins, &args, bytes::of(Grows::Joins, &args)?)?;
        let [left, right] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("`||` stands between two texts".into()));
        };
        let constant = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let text =
            |value: &ColumnarValue| Ok::<_, DataFusionError>(cast(&value.to_array(rows)?, &Arrow::Utf8)?);
        let joined = concat_elements_utf8(text(left)?.as_string::<i32>(), text(right)?.as_string::<i32>())?;
        let joined = cast(&joined, args.return_field.data_type())?;
        if constant {
            return ScalarValue::try_from_array(&joined, 0).map(ColumnarValue::Scalar);
        }
        Ok(ColumnarValue::Array(joined))
    }
}

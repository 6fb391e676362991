//! `||` between texts, and between bytes: it is null if one side is null. DataFusion's operator has no limit; this function
//! refuses results that are too long, as [the other functions](super) do.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::compute::kernels::concat_elements::{concat_element_binary, concat_elements_utf8};
use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Growth, check, estimate};
use crate::execution::interrupt;
use crate::functions::byte_lengths::is_binary;

pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Concat { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Concat {
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
        check(self.name(), Growth::Joins, &args, estimate::bytes(Growth::Joins, &args)?)?;
        let [left, right] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("`||` stands between two texts".into()));
        };
        let constant = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let wanted = args.return_field.data_type();
        let as_one =
            |value: &ColumnarValue, one: Arrow| Ok::<_, DataFusionError>(cast(&value.to_array(rows)?, &one)?);
        let joined: ArrayRef = if is_binary(wanted) {
            let bytes = |value| as_one(value, Arrow::Binary);
            Arc::new(concat_element_binary(bytes(left)?.as_binary::<i32>(), bytes(right)?.as_binary())?)
        } else {
            let text = |value| as_one(value, Arrow::Utf8);
            Arc::new(concat_elements_utf8(text(left)?.as_string::<i32>(), text(right)?.as_string())?)
        };
        let joined = cast(&joined, wanted)?;
        if constant {
            return interrupt::charge(ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?));
        }
        interrupt::charge(ColumnarValue::Array(joined))
    }
}

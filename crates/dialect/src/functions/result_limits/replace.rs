//! `replace(text, from, to)` returns the text unchanged if `from` is empty, as in PostgreSQL. DataFusion's inserts `to` between
//! all characters. Here rows with an empty `from` keep their text.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{and, cast, is_not_null, nullif, prep_null_mask_filter};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

pub(super) fn invoke(inner: &ScalarUDF, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let [text, from, to] = args.args.as_slice() else { return inner.invoke_with_args(args) };
    let from = match from {
        ColumnarValue::Scalar(from) if from.try_as_str().flatten() != Some("") => {
            return inner.invoke_with_args(args);
        }
        from => from.to_array(rows)?,
    };
    let empty = is_empty(&from)?;
    if empty.true_count() == 0 {
        return inner.invoke_with_args(args);
    }
    let (text, to) = (text.to_array(rows)?, to.to_array(rows)?);
    args.args = [text.clone(), nullif(&from, &empty)?, to.clone()].map(ColumnarValue::Array).into();
    args.number_rows = rows;
    let replaced = inner.invoke_with_args(args)?.to_array(rows)?;
    let mut stays = and(&empty, &is_not_null(&to)?)?;
    if stays.null_count() > 0 {
        stays = prep_null_mask_filter(&stays);
    }
    let whole = zip(&stays, &cast(&text, replaced.data_type())?, &replaced)?;
    if is_constant {
        return ScalarValue::try_from_array(&whole, 0).map(ColumnarValue::Scalar);
    }
    Ok(ColumnarValue::Array(whole))
}

fn is_empty(texts: &ArrayRef) -> Result<BooleanArray> {
    let empty = ScalarValue::from("").cast_to(texts.data_type())?;
    Ok(eq(texts, &empty.to_scalar()?)?)
}

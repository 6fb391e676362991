//! Untyped text is read as the type of the expression that it meets, as PostgreSQL reads `'5'` in `n > '5'`. DataFusion would
//! compare both as texts.

use std::any::Any;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use sql::sql_type::from_arrow;
use types::{ColumnId, DataType, Error, Field, Kind, Result, Value, name};

use super::number::Number;
use crate::error::from_datafusion;
use crate::functions::times;
use crate::values::convert::text_to_value;

const UTC: &str = "UTC";

/// Returns true if an untyped text beside a value of this type is read as that type.
pub(super) fn reads(data_type: &Arrow) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            Arrow::Float32
                | Arrow::Float64
                | Arrow::Decimal128(..)
                | Arrow::Boolean
                | Arrow::Date32
                | Arrow::Timestamp(..)
                | Arrow::FixedSizeBinary(16)
                | Arrow::Binary
                | Arrow::List(_)
        )
}

/// Converts a text to a value of a type for which [`reads`] is true. A decimal keeps its own digits, whatever the precision of
/// the type.
pub(super) fn read(text: &str, data_type: &Arrow) -> Result<ScalarValue> {
    let of = |ours: DataType| -> Result<ScalarValue> {
        let value = text_to_value(text, &ours).map_err(|e| match e.kind() {
            Kind::Schema => no(text, &ours.to_string()),
            _ => e,
        })?;
        let array = Value::to_array(std::slice::from_ref(&value), &ours)?;
        ScalarValue::try_from_array(&array, 0).map_err(from_datafusion)
    };
    match data_type {
        Arrow::Int32 => of(DataType::Int32),
        Arrow::UInt64 => {
            let value = text.trim().parse().map_err(|_| no(text, "uint64"))?;
            Ok(ScalarValue::UInt64(Some(value)))
        }
        _ if data_type.is_integer() => of(DataType::Int64),
        Arrow::Float32 => of(DataType::Float32),
        Arrow::Float64 => of(DataType::Float64),
        Arrow::Decimal128(..) => {
            let number = Number::parse(text)?;
            Ok(number.to_decimal().unwrap_or(ScalarValue::Float64(Some(number.to_f64()))))
        }
        Arrow::Boolean => of(DataType::Bool),
        Arrow::Date32 => of(DataType::Date),
        Arrow::Timestamp(_, zone) => {
            let read = of(DataType::Timestamp)?;
            match (zone, &read) {
                (Some(zone), ScalarValue::TimestampMicrosecond(Some(time), _)) if zone.as_ref() != UTC => {
                    let time = times::in_zone(text, *time, zone)?.ok_or_else(|| no(text, "timestamp"))?;
                    Ok(ScalarValue::TimestampMicrosecond(Some(time), Some(zone.clone())))
                }
                _ => Ok(read),
            }
        }
        Arrow::FixedSizeBinary(_) => {
            let bytes = crate::functions::uuid::parse(text)
                .ok_or_else(|| crate::functions::uuid::invalid_uuid(text))?;
            Ok(ScalarValue::FixedSizeBinary(16, Some(bytes.to_vec())))
        }
        Arrow::Binary => of(DataType::Binary),
        Arrow::List(item) => {
            let list = text_to_value(text, &list_of(item)?)?;
            let array = Value::to_array(std::slice::from_ref(&list), &list_of(item)?)?;
            let list = ScalarValue::try_from_array(&array, 0).map_err(from_datafusion)?;
            list.cast_to(data_type).map_err(from_datafusion)
        }
        other => Err(Error::internal(format!("text is not read as {other}"))),
    }
}

/// Returns the column type of a list with items of this type.
fn list_of(item: &ArrowField) -> Result<DataType> {
    let data_type = match item.data_type() {
        Arrow::FixedSizeBinary(16) => DataType::Uuid,
        Arrow::List(item) => list_of(item)?,
        _ => from_arrow(item)?,
    };
    Ok(DataType::List(Box::new(Field { id: ColumnId(0), name: "item".into(), data_type, nullable: true })))
}

fn no(text: &str, data_type: &str) -> Error {
    if data_type == "binary" {
        return Error::invalid(format!("`{}` is not a valid binary", name::printable(text)))
            .hint("write two hexadecimal digits for each byte after `\\x`");
    }
    Error::invalid(format!("`{}` is not a valid {data_type}", name::printable(text)))
        .hint("it is compared with one; CAST the other side to text to compare texts")
}

/// Returns the type of the values that [`read`] returns, which may differ from the requested one.
fn result_type(data_type: &Arrow) -> Arrow {
    match data_type {
        Arrow::Int32 | Arrow::UInt64 => data_type.clone(),
        _ if data_type.is_integer() => Arrow::Int64,
        Arrow::Timestamp(_, zone) => {
            Arrow::Timestamp(TimeUnit::Microsecond, Some(zone.clone().unwrap_or_else(|| UTC.into())))
        }
        other => other.clone(),
    }
}

/// The function of `read`, for a parameter that is text and has no value yet. [`ReadAsFunction::fill_parameter`] inserts the
/// value into a plan that is cached for further executions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ReadAsFunction {
    data_type: Arrow,
    signature: Signature,
}

impl ReadAsFunction {
    pub fn call(text: Expr, data_type: &Arrow) -> Expr {
        let signature =
            Signature::one_of(vec![TypeSignature::Exact(vec![Arrow::Utf8])], Volatility::Immutable);
        let function = ReadAsFunction { data_type: data_type.clone(), signature };
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::new_from_impl(function)),
            vec![text],
        ))
    }

    /// Returns the type as which `expr` reads a text; `None` if it is not such a call.
    pub fn target(expr: &Expr) -> Option<&Arrow> {
        let Expr::ScalarFunction(function) = expr else { return None };
        function.func.inner().as_any().downcast_ref::<ReadAsFunction>().map(|this| &this.data_type)
    }

    /// Returns the value of `expr` if it reads a parameter whose text `value` returns.
    pub fn fill_parameter<'v>(
        expr: &Expr,
        value: impl Fn(&str) -> Option<&'v ScalarValue>,
    ) -> Result<Option<ScalarValue>> {
        let (Expr::ScalarFunction(function), Some(data_type)) = (expr, ReadAsFunction::target(expr)) else {
            return Ok(None);
        };
        let [Expr::Placeholder(placeholder)] = function.args.as_slice() else { return Ok(None) };
        match value(&placeholder.id) {
            Some(ScalarValue::Utf8(Some(text))) => {
                read(text, data_type).map(Some).map_err(|error| error.with("parameter", &placeholder.id))
            }
            _ => Ok(None),
        }
    }
}

impl ScalarUDFImpl for ReadAsFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "read_as"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> DfResult<Arrow> {
        Ok(result_type(&self.data_type))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [text] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("text is read from one argument".into()));
        };
        let texts = cast(&text.to_array(args.number_rows)?, &Arrow::Utf8)?;
        let values = texts.as_string::<i32>().iter().map(|text| match text {
            Some(text) => read(text, &self.data_type).map_err(|e| DataFusionError::External(Box::new(e))),
            None => ScalarValue::try_from(&result_type(&self.data_type)),
        });
        let values = values.collect::<DfResult<Vec<_>>>()?;
        if values.is_empty() {
            return Ok(ColumnarValue::Array(arrow::array::new_empty_array(&result_type(&self.data_type))));
        }
        ScalarValue::iter_to_array(values).map(ColumnarValue::Array)
    }
}

//! `bit_length`, `character_length` and `octet_length` also take bytes, as in PostgreSQL. DataFusion's know only text, and read
//! bytes as text.

use std::any::Any;
use std::sync::Arc;

use arrow::compute::kernels::length::{bit_length, length};
use arrow::datatypes::{DataType as Arrow, Field};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const NAMES: [&str; 3] = ["bit_length", "character_length", "octet_length"];

/// Registers these functions, which replace DataFusion's.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for name in NAMES {
        let inner = registry.udf(name)?;
        let signature = Signature::user_defined(Volatility::Immutable);
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(Length { inner, signature })))?;
    }
    Ok(())
}

pub fn is_binary(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        if let [one] = types
            && is_binary(one)
        {
            return Ok(vec![Arrow::Binary]);
        }
        let fields: Vec<_> = types.iter().map(|one| Arc::new(Field::new("", one.clone(), true))).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        match types {
            [one] if is_binary(one) => Ok(Arrow::Int32),
            _ => self.inner.return_type(types),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let of = if self.name() == "bit_length" { bit_length } else { length };
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] if is_binary(array.data_type()) => {
                Ok(ColumnarValue::Array(of(array)?))
            }
            [ColumnarValue::Scalar(scalar)] if is_binary(&scalar.data_type()) => {
                ScalarValue::try_from_array(&of(&scalar.to_array()?)?, 0).map(ColumnarValue::Scalar)
            }
            _ => self.inner.invoke_with_args(args),
        }
    }
}

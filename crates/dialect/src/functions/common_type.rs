//! `coalesce`, `greatest` and `least` bring their arguments to one type, and read a text of no type as the type of the others:
//! `coalesce(day, '2000-01-01')`. DataFusion's refuse that, or compare the arguments as texts.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use sql::sql_type::field_type_name;
use types::Error;

pub const NAMES: [&str; 3] = ["coalesce", "greatest", "least"];

/// Registers these functions, which replace DataFusion's.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for name in NAMES {
        let inner = registry.udf(name)?;
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(CommonTypeFunction { inner })))?;
    }
    Ok(())
}

pub fn is_text(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View)
}

/// Refuses typed text among values of other types: the statement has to say by a CAST which type is meant.
pub fn refuse_mixed(function: &str, types: &[Arrow]) -> types::Result<()> {
    let text = types.iter().find(|data_type| is_text(data_type));
    let (Some(text), Some(other)) = (text, types.iter().find(|data_type| !is_text(data_type))) else {
        return Ok(());
    };
    let name = |data_type: &Arrow| field_type_name(&Field::new("", data_type.clone(), true));
    let (text, other) = (name(text), name(other));
    Err(Error::invalid(format!("`{function}` takes values of one type, not {text} and {other}"))
        .hint(format!("say what is meant: CAST the {text} to {other}, or the {other} to {text}")))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CommonTypeFunction {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for CommonTypeFunction {
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
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        let others: Vec<Arrow> = types.iter().filter(|data_type| !is_text(data_type)).cloned().collect();
        if others.len() == types.len() || others.iter().all(Arrow::is_null) {
            return self.inner.coerce_types(types);
        }
        let known = self.inner.coerce_types(&others)?;
        match known.into_iter().find(|data_type| !data_type.is_null()) {
            Some(one) => Ok(vec![one; types.len()]),
            None => self.inner.coerce_types(types),
        }
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}

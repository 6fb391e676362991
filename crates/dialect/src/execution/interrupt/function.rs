//! Scalar functions that check their statement's deadline.
//!
//! A call is for a batch of up to 8,192 rows, and each row may hold a long text or list. DataFusion makes the call at once. Here
//! a call over more than `SLICE_BYTES` of arguments is split into several slices of rows, with a check before each. A constant
//! argument counts for every row, because most functions copy it for each. Each function itself bounds the cost of a single row
//! ([`crate::functions::result_limits`], [`crate::functions::regexes`]).

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::Array;
use arrow::compute::concat;
use arrow::datatypes::{DataType as Arrow, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{ExprSchema, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use super::FoldingCall;
use crate::values::type_depth;

/// Bytes of arguments of one slice: some hundredths of a second for the slowest of the functions that read a text once.
const SLICE_BYTES: usize = 1 << 20;

/// Functions that other functions or rules of DataFusion find by their Rust type, so that a wrapper would hide them.
const UNWRAPPED: [&str; 3] = ["get_field", "log", "power"];

/// Functions that look values up in a constant list instead of copying it.
const LOOK_UP: [&str; 2] = ["array_has", "array_has_any"];

/// Wraps all registered functions.
pub fn register(state: &mut SessionState) -> Result<()> {
    let known: HashMap<String, Arc<ScalarUDF>> =
        state.scalar_functions().values().map(|inner| (inner.name().to_owned(), inner.clone())).collect();
    for (name, inner) in known {
        let is_volatile = inner.signature().volatility == Volatility::Volatile;
        if is_volatile || inner.short_circuits() || UNWRAPPED.contains(&name.as_str()) {
            continue;
        }
        state.register_udf(interruptible(inner))?;
    }
    Ok(())
}

pub fn interruptible(inner: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Interruptible { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Interruptible {
    inner: Arc<ScalarUDF>,
}

impl Interruptible {
    /// Returns the number of rows of one slice.
    fn rows_each(&self, args: &ScalarFunctionArgs) -> usize {
        let rows = args.number_rows.max(1);
        let looks_up = LOOK_UP.contains(&self.inner.name());
        let bytes = |arg: &ColumnarValue| match arg {
            ColumnarValue::Array(array) => {
                let data = array.to_data();
                let all = data.get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size());
                all.div_ceil(rows)
            }
            ColumnarValue::Scalar(_) if looks_up => 0,
            ColumnarValue::Scalar(value) => value.size(),
        };
        let each: usize = args.args.iter().map(bytes).sum();
        SLICE_BYTES / each.clamp(1, SLICE_BYTES)
    }
}

fn slice(args: &ScalarFunctionArgs, start: usize, rows: usize) -> ScalarFunctionArgs {
    let part = |arg: &ColumnarValue| match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(start, rows)),
        scalar => scalar.clone(),
    };
    ScalarFunctionArgs {
        args: args.args.iter().map(part).collect(),
        arg_fields: args.arg_fields.clone(),
        number_rows: rows,
        return_field: args.return_field.clone(),
        config_options: args.config_options.clone(),
    }
}

impl ScalarUDFImpl for Interruptible {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let _call = FoldingCall::begin();
        super::check()?;
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let (rows, each) = (args.number_rows, self.rows_each(&args));
        if is_constant || each >= rows {
            return super::charge(self.inner.invoke_with_args(args)?);
        }
        let (mut parts, mut bytes) = (Vec::with_capacity(rows.div_ceil(each)), 0u128);
        for start in (0..rows).step_by(each) {
            super::check()?;
            // The parts and their concatenation below exist at the same time.
            super::check_memory(2 * bytes)?;
            let rows = each.min(rows - start);
            let part = self.inner.invoke_with_args(slice(&args, start, rows))?.into_array(rows)?;
            bytes += part.to_data().get_slice_memory_size().unwrap_or_else(|_| part.get_array_memory_size())
                as u128;
            parts.push(part);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        super::charge(ColumnarValue::Array(concat(&parts)?))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if self.name() == type_depth::FUNCTION {
            type_depth::check(args.scalar_arguments)?;
        }
        let field = self.inner.return_field_from_args(args)?;
        type_depth::check_depth(field.data_type())?;
        Ok(field)
    }

    // All other methods call the wrapped function.

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(ScalarUDF::new_from_impl(Interruptible { inner }))
    }

    #[allow(deprecated, reason = "a function may still answer it")]
    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        self.inner.is_nullable(args, schema)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn preimage(&self, args: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(args, value, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(&self, own: &Interval, inputs: &[&Interval]) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(own, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}

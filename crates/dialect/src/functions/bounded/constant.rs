//! Long constants that are to stand in every row: of `SELECT repeat('x', 1000000) FROM t` there is one text, and DataFusion copies it
//! for each row of a batch. How many rows there are is known only when it does.

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

/// Shorter ones do not make too much of a batch.
const LONG_BYTES: usize = BATCH_BYTES_MAX as usize / crate::BATCH_ROWS;

/// Tells a constant that may be long: a literal, or a call that the planner left because its value is long or takes long.
pub fn may_be_long(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.size() > LONG_BYTES,
        Expr::ScalarFunction(call) => {
            call.func.signature().volatility != Volatility::Volatile && is_made_of_literals(expr)
        }
        _ => false,
    }
}

/// Makes long constants count the rows that CASE copies them for, wherever in an expression it stands.
pub fn counted_in_cases(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(if matches!(expr, Expr::Case(_)) { counted(expr) } else { Transformed::no(expr) })
    })
}

/// Tells an expression that has calls and casts of literals, and nothing else.
fn is_made_of_literals(expr: &Expr) -> bool {
    let other =
        |expr: &Expr| Ok(!matches!(expr, Expr::Literal(..) | Expr::ScalarFunction(_) | Expr::Cast(_)));
    expr.exists(other).is_ok_and(|found| !found)
}

/// An expression of a projection, grouping or window whose long constants count the rows that they are copied for.
/// Where a constant is an operand it is not copied.
pub fn counted(expr: Expr) -> Transformed<Expr> {
    let mut changed = false;
    let mut count = |expr: &mut Expr| {
        let counted = counted(std::mem::take(expr));
        changed |= counted.transformed;
        *expr = counted.data;
    };
    let expr = match expr {
        expr if may_be_long(&expr) => {
            return Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                COUNTED.clone(),
                vec![expr],
            )));
        }
        Expr::Alias(mut alias) => {
            count(&mut alias.expr);
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut function) => {
            // The others, as what stands between texts, must be constant.
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

static COUNTED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    // Nothing may fold it again.
    let signature = Signature::any(1, Volatility::Volatile);
    Arc::new(ScalarUDF::new_from_impl(Constant { signature }))
});

/// Its argument, whose copies are counted.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
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

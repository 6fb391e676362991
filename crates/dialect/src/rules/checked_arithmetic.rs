//! Arithmetic on integers is exact or fails, as in PostgreSQL: `9223372036854775807 + 1` has no result in int64, and DataFusion's
//! operators would wrap around.
//!
//! This rule runs after types were coerced and replaces operators by checked functions, early enough for constants to be folded
//! by them. Division and modulo already check themselves. To save further traversals of the plan, the rule also inserts the
//! [bounded](crate::functions::result_limits) functions, and replaces casts of decimals [to floats](crate::rules::float_casts)
//! and [to integers](crate::rules::integer_casts), and casts that [lose](crate::rules::optimization_barrier) digits.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, Datum, Scalar};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinConstraint, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Join, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use types::Error;

use crate::functions::result_limits::BoundedFunctions;
use crate::rewrites::coercion::calculates;
use crate::rules::aggregate_filters;
use crate::rules::decimal_division;
use crate::rules::float_casts;
use crate::rules::float_keys;
use crate::rules::integer_casts;
use crate::rules::optimization_barrier;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedFunction {
    operation: Operation,
    signature: Signature,
}

impl CheckedFunction {
    fn make(operation: Operation) -> Arc<ScalarUDF> {
        let count = if operation == Operation::Negate { 1 } else { 2 };
        let signature = Signature::any(count, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(CheckedFunction { operation, signature }))
    }
}

impl ScalarUDFImpl for CheckedFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Negate => "checked_negate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        types.first().cloned().ok_or_else(|| DataFusionError::Internal("no operand".into()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let data_type = args.arg_fields.first().map_or(Arrow::Null, |f| f.data_type().clone());
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(ArrowField::new(self.name(), data_type, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_))) {
            let arrays = args.args.iter().map(|a| a.to_array(1)).collect::<Result<Vec<_>>>()?;
            let array = match arrays.as_slice() {
                [one] => self.apply(one, None)?,
                [left, right] => self.apply(left, Some(right))?,
                _ => return Err(DataFusionError::Internal("one operand or two".into())),
            };
            return ScalarValue::try_from_array(&array, 0).map(ColumnarValue::Scalar);
        }
        let array = match args.args.as_slice() {
            [ColumnarValue::Array(one)] => self.apply(one, None)?,
            [left, right] => {
                let (left, right) = (datum(left)?, datum(right)?);
                self.apply(left.as_ref(), Some(right.as_ref()))?
            }
            _ => return Err(DataFusionError::Internal("one operand or two".into())),
        };
        Ok(ColumnarValue::Array(array))
    }
}

fn datum(value: &ColumnarValue) -> Result<Box<dyn Datum>> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(array.clone()),
        ColumnarValue::Scalar(scalar) => Box::new(Scalar::new(scalar.to_array()?)),
    })
}

impl CheckedFunction {
    fn apply(&self, left: &dyn Datum, right: Option<&dyn Datum>) -> Result<ArrayRef> {
        let result = match (self.operation, right) {
            (Operation::Add, Some(right)) => numeric::add(left, right),
            (Operation::Subtract, Some(right)) => numeric::sub(left, right),
            (Operation::Multiply, Some(right)) => numeric::mul(left, right),
            _ => numeric::neg(left.get().0),
        };
        result.map_err(|error| match error {
            ArrowError::ArithmeticOverflow(text) => {
                let data_type = left.get().0.data_type();
                let name = sql::sql_type::field_type_name(&ArrowField::new("", data_type.clone(), true));
                // "Overflow happened on: 1 + 2"
                let (_, what) = text.split_once(": ").unwrap_or(("", &text));
                DataFusionError::External(Box::new(
                    Error::invalid(format!("`{what}` is out of range of {name}"))
                        .hint("CAST an operand to decimal or float64"),
                ))
            }
            other => other.into(),
        })
    }
}

/// Returns true for one of these functions, which fail on overflow.
pub fn is_checked(function: &ScalarUDF) -> bool {
    function.inner().as_any().is::<CheckedFunction>()
}

/// The rule that replaces operators by checked functions.
#[derive(Debug)]
pub struct CheckedArithmetic {
    bounds: BoundedFunctions,
    add: Arc<ScalarUDF>,
    subtract: Arc<ScalarUDF>,
    multiply: Arc<ScalarUDF>,
    negate: Arc<ScalarUDF>,
    divide: Arc<ScalarUDF>,
}

impl CheckedArithmetic {
    pub fn new(bounds: BoundedFunctions) -> Self {
        CheckedArithmetic {
            bounds,
            add: CheckedFunction::make(Operation::Add),
            subtract: CheckedFunction::make(Operation::Subtract),
            multiply: CheckedFunction::make(Operation::Multiply),
            negate: CheckedFunction::make(Operation::Negate),
            divide: decimal_division::function(),
        }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let counts = |expr: &Expr| is_integer(expr, schema);
        let call = |function: &Arc<ScalarUDF>, args: Vec<Expr>| {
            Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), args)))
        };
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if calculates(op) && counts(&right) && counts(&left) =>
            {
                match op {
                    Operator::Plus => call(&self.add, vec![*left, *right]),
                    Operator::Minus => call(&self.subtract, vec![*left, *right]),
                    Operator::Multiply => call(&self.multiply, vec![*left, *right]),
                    _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                }
            }
            Expr::Negative(inner) => match inner.get_type(schema).unwrap_or(Arrow::Null) {
                // An unsigned integer is, for example, the result of `approx_distinct`.
                own if own.is_unsigned_integer() => {
                    let signed = Expr::Cast(Cast::new(inner, Arrow::Int64));
                    call(&self.negate, vec![signed])
                }
                // DataFusion fails to negate a decimal that is null.
                own if own.is_integer() || own.is_decimal() => call(&self.negate, vec![*inner]),
                _ => Transformed::no(Expr::Negative(inner)),
            },
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right })
                if decimal_division::applies_to(&left, &right, schema) =>
            {
                call(&self.divide, vec![*left, *right])
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right })
                if is_text(&right, schema) =>
            {
                call(&self.bounds.concat, vec![*left, *right])
            }
            Expr::ScalarFunction(function) => match self.bounds.of(&function.func) {
                Some(bounded) => call(bounded, function.args),
                None => integer_casts::rewrite(Expr::ScalarFunction(function), schema),
            },
            other => {
                let cast = float_casts::rewrite(other, schema)?;
                let cast = if cast.transformed { cast } else { integer_casts::rewrite(cast.data, schema) };
                return Ok(if cast.transformed {
                    cast
                } else {
                    optimization_barrier::wrap_lossy_cast(cast.data, schema)
                });
            }
        })
    }
}

/// Returns true if an expression, whose operands already have one type, is an integer. The rule asks this for each `+` of
/// `a + b + …`, so only one operand is followed each time: looking at the whole tree would make long chains expensive.
fn is_integer(mut expr: &Expr, schema: &DFSchema) -> bool {
    loop {
        expr = match expr {
            Expr::BinaryExpr(BinaryExpr { op, right, .. }) if calculates(*op) => right,
            Expr::ScalarFunction(function) if is_checked(&function.func) => match function.args.last() {
                Some(operand) => operand,
                None => return false,
            },
            Expr::Negative(inner) => inner,
            Expr::Alias(alias) => &alias.expr,
            other => return other.get_type(schema).is_ok_and(|t| t.is_integer()),
        }
    }
}

/// Returns true if an operand of `||` is a text. Both operands already have one type.
fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|t| matches!(t, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View))
}

/// Turns USING into ON: the columns of a USING are resolved by now, and the rewritten keys may no longer be columns.
fn without_using(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Join(join) => LogicalPlan::Join(Join { join_constraint: JoinConstraint::On, ..join }),
        other => other,
    }
}

impl AnalyzerRule for CheckedArithmetic {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let schema = match &plan {
                LogicalPlan::TableScan(scan) => scan.projected_schema.as_ref().clone(),
                other => merge_schema(&other.inputs()),
            };
            let names = NamePreserver::new(&plan);
            let rewritten = plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|expr| {
                    aggregate_filters::check(&expr, &schema)?;
                    let settled = float_keys::key_constants(expr, &schema)?;
                    settled.transform_data(|expr| self.rewrite(expr, &schema))
                })?;
                Ok(if rewritten.transformed {
                    rewritten.update_data(|expr| name.restore(expr))
                } else {
                    rewritten
                })
            })?;
            if rewritten.transformed {
                rewritten.map_data(|plan| without_using(plan).recompute_schema())
            } else {
                Ok(rewritten)
            }
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "checked_arithmetic"
    }
}

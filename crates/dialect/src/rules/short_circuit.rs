//! `b <> 0 AND a / b > 1` does not fail where `b` is 0, as users of PostgreSQL expect.
//!
//! SQL promises no order of evaluation. DataFusion evaluates each condition for a whole batch; its optimizer joins the conditions
//! of several queries in an order of its own, and turns CASE into AND and OR. Here, after all that, each AND and OR whose right
//! side may fail becomes a function that contains the right side and evaluates it only for the rows that the left side leaves
//! undecided. The function takes the left side and columns as arguments, so it may stand wherever an expression may: in joins,
//! aggregates, windows and sorts. In the condition of a filter or join, the parts that cannot fail are moved to the front.

use std::any::Any;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Schema};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{merge_schema, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use crate::execution::interrupt;
use crate::functions::regexes;
use crate::functions::result_limits::long_constants;
use crate::rewrites::distinct::DistinctAsGrouping;
use crate::rules::checked_arithmetic;
use crate::rules::float_casts;
use crate::rules::float_keys;
use crate::rules::optimization_barrier;

/// Returns DataFusion's rules, with two more. [`DistinctAsGrouping`] comes before the rule about DISTINCT. `SafePartsFirst`
/// comes before common subexpressions are extracted from a filter's conditions to be evaluated once for all rows: it moves the
/// parts that cannot fail to the front, and only subexpressions of the first part are extracted.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let at = rules.iter().position(|rule| rule.name() == "common_sub_expression_eliminate");
    rules.insert(at.unwrap_or(rules.len()), Arc::new(SafePartsFirst));
    let at = rules.iter().position(|rule| rule.name() == "replace_distinct_aggregate");
    rules.insert(at.unwrap_or(rules.len()), Arc::new(DistinctAsGrouping));
    rules
}

/// Inserts short-circuit functions into an optimized plan, which no optimizer may see any more. To save another traversal of the
/// plan, it also wraps long constants so that they [count rows](long_constants).
pub fn insert(plan: &LogicalPlan, props: &ExecutionProps) -> Result<LogicalPlan> {
    if !has_work(plan)? {
        return Ok(plan.clone());
    }
    let rewritten = plan.clone().transform_up_with_subqueries(|plan| {
        // Conditions in a scan only select the blocks to skip.
        if matches!(plan, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(plan));
        }
        let inserter = ShortCircuitInserter { schema: merge_schema(&plan.inputs()), props };
        let rewritten = match plan {
            LogicalPlan::Filter(mut filter) => {
                let predicate = long_constants::wrap_in_cases(filter.predicate)?
                    .transform_data(|predicate| inserter.condition(predicate))?;
                filter.predicate = predicate.data;
                return Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), predicate.transformed));
            }
            LogicalPlan::Join(mut join) => {
                let mut changed = false;
                for key in join.on.iter_mut().flat_map(|(left, right)| [left, right]) {
                    let rewritten = long_constants::wrap_in_cases(std::mem::take(key))?
                        .transform_data(|key| inserter.value(key))?;
                    changed |= rewritten.transformed;
                    *key = rewritten.data;
                }
                if let Some(filter) = join.filter.take() {
                    let rewritten = long_constants::wrap_in_cases(filter)?
                        .transform_data(|filter| inserter.condition(filter))?;
                    changed |= rewritten.transformed;
                    join.filter = Some(rewritten.data);
                }
                return Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed));
            }
            plan => {
                let names = NamePreserver::new(&plan);
                let counts = matches!(
                    plan,
                    LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)
                );
                let is_window = matches!(plan, LogicalPlan::Window(_));
                plan.map_expressions(|expr| {
                    let name = names.save(&expr);
                    let counted = if counts { long_constants::wrap(expr) } else { Transformed::no(expr) };
                    let rewritten = counted
                        .transform_data(long_constants::wrap_in_cases)?
                        .transform_data(|expr| inserter.value(expr))?
                        .transform_data(|expr| {
                            if is_window {
                                interrupt::interruptible_window(expr)
                            } else {
                                Ok(Transformed::no(expr))
                            }
                        })?;
                    Ok(if rewritten.transformed {
                        rewritten.update_data(|expr| name.restore(expr))
                    } else {
                        rewritten
                    })
                })?
            }
        };
        if rewritten.transformed { rewritten.map_data(|plan| plan.recompute_schema()) } else { Ok(rewritten) }
    })?;
    Ok(rewritten.data)
}

fn is_logic(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }))
}

/// Returns true for a plan that has an AND or OR, a long constant, or a window.
fn has_work(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found |= matches!(plan, LogicalPlan::Window(_));
        plan.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(is_logic(expr) || long_constants::may_be_long(expr)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Returns the parts of a condition: first those that cannot fail, then those that may only overflow, then the others.
fn by_risk(condition: Expr, schema: &DFSchema) -> Vec<Expr> {
    let mut parts = split_conjunction_owned(condition);
    parts.sort_by_cached_key(|part| risk(part, schema));
    parts
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::And, Box::new(right)))
}

/// The rule that moves parts of a filter that cannot fail to the front. See [`optimizer_rules`].
#[derive(Debug)]
struct SafePartsFirst;

impl OptimizerRule for SafePartsFirst {
    fn name(&self) -> &str {
        "safe_first"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(mut filter) = plan else { return Ok(Transformed::no(plan)) };
        let schema = filter.input.schema();
        let parts = split_conjunction(&filter.predicate);
        let ordered = parts.len() < 2 || parts.is_sorted_by_key(|part| risk(part, schema));
        if ordered {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let parts = by_risk(std::mem::take(&mut filter.predicate), schema);
        filter.predicate = parts.into_iter().reduce(and).unwrap_or_default();
        Ok(Transformed::yes(LogicalPlan::Filter(filter)))
    }
}

/// Inserts short-circuit functions into the expressions of one node.
struct ShortCircuitInserter<'a> {
    /// The columns that the expressions can read.
    schema: DFSchema,
    props: &'a ExecutionProps,
}

impl ShortCircuitInserter<'_> {
    fn value(&self, expr: Expr) -> Result<Transformed<Expr>> {
        expr.transform_up(|expr| {
            let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) = expr
            else {
                return Ok(Transformed::no(expr));
            };
            if may_fail(&right, &self.schema) {
                let when =
                    if op == Operator::And { EvaluateRight::UnlessFalse } else { EvaluateRight::UnlessTrue };
                if let Some(rewritten) = self.short_circuit(when, &left, &right)? {
                    return Ok(Transformed::yes(rewritten));
                }
            }
            Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        })
    }

    /// Inserts short-circuit functions into a condition that filters rows, where null counts as false.
    fn condition(&self, condition: Expr) -> Result<Transformed<Expr>> {
        let condition = self.value_of_parts(condition)?;
        let parts = split_conjunction(&condition.data);
        if parts.len() < 2 || !parts.iter().any(|part| may_fail(part, &self.schema)) {
            return Ok(condition);
        }
        let mut whole: Option<Expr> = None;
        for part in by_risk(condition.data, &self.schema) {
            whole = Some(match whole {
                None => part,
                Some(before) if !may_fail(&part, &self.schema) => and(before, part),
                Some(before) => match self.short_circuit(EvaluateRight::IfTrue, &before, &part)? {
                    Some(rewritten) => rewritten,
                    None => and(before, part),
                },
            });
        }
        Ok(Transformed::yes(whole.unwrap_or_default()))
    }

    fn value_of_parts(&self, condition: Expr) -> Result<Transformed<Expr>> {
        let mut changed = false;
        let mut parts = Vec::new();
        for part in split_conjunction_owned(condition) {
            let part = self.value(part)?;
            changed |= part.transformed;
            parts.push(part.data);
        }
        let whole = parts.into_iter().reduce(and).unwrap_or_default();
        Ok(Transformed::new_transformed(whole, changed))
    }

    /// Returns the short-circuit function for `left AND right` or `left OR right`; `None` if the right side cannot be compiled by
    /// itself.
    fn short_circuit(&self, when: EvaluateRight, left: &Expr, right: &Expr) -> Result<Option<Expr>> {
        let mut columns = BTreeSet::new();
        for column in right.column_refs() {
            let Some(index) = self.schema.maybe_index_of_column(column) else { return Ok(None) };
            columns.insert(index);
        }
        let fields = columns.iter().map(|index| {
            let (qualifier, field) = self.schema.qualified_field(*index);
            (qualifier.cloned(), field.clone())
        });
        let schema = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
        let Ok(compiled) = create_physical_expr(right, &schema, self.props) else { return Ok(None) };
        let nullable = right.nullable(&schema)?;
        let volatility = if right.is_volatile() { Volatility::Volatile } else { Volatility::Immutable };
        let mut args = vec![left.clone()];
        args.extend(
            columns.iter().map(|index| Expr::Column(Column::from(self.schema.qualified_field(*index)))),
        );
        let function = ShortCircuit {
            name: format!("{} {right}", if when == EvaluateRight::UnlessTrue { "or" } else { "and" }),
            when,
            right: compiled,
            nullable,
            signature: Signature::any(args.len(), volatility),
        };
        let function = Arc::new(ScalarUDF::new_from_impl(function));
        Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, args))))
    }
}

/// The rows for which the right side is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum EvaluateRight {
    /// All rows but those where the left side is false: AND.
    UnlessFalse,
    /// All rows but those where the left side is true: OR.
    UnlessTrue,
    /// Rows where the left side is true: AND in a filter, where false and null are the same.
    IfTrue,
}

/// AND or OR as a function of its left side and of the columns that its right side reads.
#[derive(Debug, Eq)]
struct ShortCircuit {
    /// The name that EXPLAIN shows.
    name: String,
    when: EvaluateRight,
    /// The right side, compiled for a batch of the arguments after the first.
    right: Arc<dyn PhysicalExpr>,
    /// True if the right side may be null.
    nullable: bool,
    signature: Signature,
}

impl PartialEq for ShortCircuit {
    fn eq(&self, other: &Self) -> bool {
        self.when == other.when && self.right.eq(&other.right) && self.signature == other.signature
    }
}

impl Hash for ShortCircuit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.when.hash(state);
        self.right.hash(state);
    }
}

impl ScalarUDFImpl for ShortCircuit {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(Arrow::Boolean)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = self.nullable || args.arg_fields.first().is_none_or(|left| left.is_nullable());
        Ok(Arc::new(Field::new(self.name(), Arrow::Boolean, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let mut arrays = arrays.into_iter();
        let left = arrays.next().ok_or_else(|| DataFusionError::Internal("no left side".into()))?;
        let decided = as_boolean_array(&left)?;
        let open = |value: Option<bool>| match self.when {
            EvaluateRight::UnlessFalse => value != Some(false),
            EvaluateRight::UnlessTrue => value != Some(true),
            EvaluateRight::IfTrue => value == Some(true),
        };
        let open: BooleanArray = decided.iter().map(|value| Some(open(value))).collect();
        if open.true_count() == 0 {
            return Ok(ColumnarValue::Array(left));
        }
        let columns: Vec<_> = arrays.collect();
        let field = |array: &Arc<dyn arrow::array::Array>| Field::new("", array.data_type().clone(), true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let right = if open.true_count() == rows {
            self.right.evaluate(&batch)?
        } else {
            self.right.evaluate_selection(&batch, &open)?
        };
        let right = right.into_array(rows)?;
        let right = as_boolean_array(&right)?;
        let whole = match self.when {
            EvaluateRight::UnlessTrue => or_kleene(decided, right),
            EvaluateRight::UnlessFalse | EvaluateRight::IfTrue => and_kleene(decided, right),
        };
        Ok(ColumnarValue::Array(Arc::new(whole?)))
    }
}

fn may_fail(expr: &Expr, schema: &DFSchema) -> bool {
    risk(expr, schema) != Risk::None
}

/// The ways in which evaluating an expression may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Risk {
    None,
    /// Addition, subtraction or multiplication may overflow, which is rare.
    Overflow,
    /// Other failures, including those of all unknown expressions.
    Any,
}

fn risk(expr: &Expr, schema: &DFSchema) -> Risk {
    let mut overflows = false;
    let type_of = |expr: &Expr| expr.get_type(schema);
    let fails = |expr: &Expr| {
        let safe = match expr {
            Expr::BinaryExpr(BinaryExpr { op, right, .. }) => {
                // A constant pattern was checked while planning; a pattern from a row may be invalid.
                let matches = is_match(*op) && matches!(**right, Expr::Literal(..));
                matches || is_safe(*op) || type_of(expr).is_ok_and(|data_type| data_type.is_floating())
            }
            Expr::Cast(Cast { expr: from, data_type }) => {
                type_of(from).is_ok_and(|from| widens(&from, data_type))
            }
            Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_) | Expr::Between(_) | Expr::InList(_) => true,
            Expr::Like(_) | Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
            Expr::IsTrue(_) | Expr::IsFalse(_) | Expr::IsUnknown(_) => true,
            Expr::IsNotTrue(_) | Expr::IsNotFalse(_) | Expr::IsNotUnknown(_) => true,
            // The parts of the CASE are tested by themselves.
            Expr::Case(_) => true,
            Expr::ScalarFunction(ScalarFunction { func, .. })
                if float_keys::is_function(func)
                    || optimization_barrier::is_function(func)
                    || float_casts::is_function(func) =>
            {
                true
            }
            Expr::ScalarFunction(function) if regexes::is_safe(function) => true,
            Expr::ScalarFunction(function) if checked_arithmetic::is_checked(&function.func) => {
                overflows = true;
                true
            }
            _ => false,
        };
        Ok(!safe)
    };
    match expr.exists(fails) {
        Ok(false) if overflows => Risk::Overflow,
        Ok(false) => Risk::None,
        _ => Risk::Any,
    }
}

fn is_safe(op: Operator) -> bool {
    use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
    matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_match(op: Operator) -> bool {
    use Operator::{ILikeMatch, LikeMatch, NotILikeMatch, NotLikeMatch};
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
        || matches!(op, LikeMatch | ILikeMatch | NotLikeMatch | NotILikeMatch)
}

/// Returns true if a cast succeeds for every value.
fn widens(from: &Arrow, to: &Arrow) -> bool {
    let is_text = |t: &Arrow| matches!(t, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View);
    let longer = from.primitive_width() <= to.primitive_width();
    from == to
        || is_text(to) && (is_text(from) || from.is_primitive())
        || from.is_numeric() && to.is_floating()
        || from.is_signed_integer() && to.is_signed_integer() && longer
}

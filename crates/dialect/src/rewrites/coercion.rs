//! Decides what literals and text parameters mean where they stand, as PostgreSQL does, before DataFusion's own coercion.
//! DataFusion's would compare numbers with texts letter by letter, and would read `1.1` as a float.
//!
//! - Text of no type (a literal, or a parameter that came as text) that meets a typed expression is read as that type: exactly,
//!   or the statement is refused.
//! - Typed text that meets a number or a bool is refused, and so is a bool that meets a number: the statement has to say which is
//!   meant.
//! - A number with a point is exact where it is compared with an exact type, where a decimal takes part in the calculation, and
//!   where it has more digits than a float64 keeps. Elsewhere it is a float64: `2 / 3.0` should have all its digits, and
//!   `SELECT 1.5` should be a number in JSON, where decimals are strings.
//! - A column of VALUES or of a UNION is a float64 if one of its numbers is, by the same rule; a number beside a decimal column
//!   is exact there too.
//! - A date that meets a timestamp or an interval becomes a timestamp.
//! - A comparison of a decimal or an integer with a number becomes a comparison with a literal of its own type, however many
//!   digits the number has: no cast hides the column from key lookups and zone maps, and no common type has to hold both.

mod comparison;
mod dates;
mod literals;
mod number;
mod pattern;
mod text_value;
mod union;
mod untyped_text;

use arrow::datatypes::{DataType as Arrow, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Between, Cast, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::sql::sqlparser::ast::Statement;
use types::{Error, Result};

use crate::error::from_datafusion;
use crate::functions::arrays;
use crate::functions::common_type;
use crate::functions::interval;
use crate::functions::nullif;
use crate::functions::regexes;
use crate::functions::round_digits;
use crate::functions::times;
use comparison::binary;
use untyped_text::{is_untyped, refuse_mixed_operands};

pub use literals::CELL_PREFIX;
pub use number::Number;
pub use pattern::before_wildcards;
pub use text_value::ReadAsFunction;
pub use untyped_text::UntypedTextPlanner;

/// A plan whose literals have types.
pub struct CoercedPlan {
    pub plan: LogicalPlan,
    /// True if a parameter's text decides about more than a literal: the values have to be inserted before the plan is coerced.
    pub needs_values: bool,
}

/// Rewrites the parts of a statement that have to be decided before it is planned.
pub fn prepare(statement: &mut Statement) -> Result<()> {
    literals::floats_in_values(statement);
    literals::floats_that_no_decimal_holds(statement);
    untyped_text::rewrite_distinct(statement);
    times::rewrite_precision(statement);
    times::rewrite_intervals(statement);
    times::rewrite_at_time_zone(statement)
}

pub fn coerce(plan: LogicalPlan) -> Result<CoercedPlan> {
    let mut needs_values = false;
    let coerced = plan.transform_up_with_subqueries(|plan| coerce_node(plan, &mut needs_values));
    let plan = coerced.map_err(from_datafusion)?.data;
    Ok(CoercedPlan { plan, needs_values })
}

fn coerce_node(plan: LogicalPlan, needs_values: &mut bool) -> DfResult<Transformed<LogicalPlan>> {
    let schema = match &plan {
        LogicalPlan::TableScan(_) => return Ok(Transformed::no(plan)),
        other => merge_schema(&other.inputs()),
    };
    let mut pass = CoercionPass { schema: &schema, needs_values };
    let plan = match plan {
        LogicalPlan::Join(mut join) => {
            for (left, right) in &mut join.on {
                refuse_mixed_operands(left, right, &schema)?;
                pass.as_floats(&mut [left, right]);
                dates::as_timestamps(&mut [left, right], &schema);
                interval::compare_by_length(&mut [left, right], &schema);
            }
            LogicalPlan::Join(join)
        }
        LogicalPlan::Sort(mut sort) => {
            for by in &mut sort.expr {
                interval::compare_by_length(&mut [&mut by.expr], &schema);
            }
            LogicalPlan::Sort(sort)
        }
        other => other,
    };
    let names = NamePreserver::new(&plan);
    let rewritten = plan.map_expressions(|expr| {
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let settled = literals::assign_types(expr, &schema)?;
        let rewritten = settled.transform_up(|expr| pass.rewrite(expr))?;
        Ok(Transformed::yes(name.restore(rewritten.data)))
    })?;
    rewritten.map_data(|plan| match plan {
        // DataFusion does not compute the schema of these nodes again by itself.
        LogicalPlan::Values(values) => LogicalPlanBuilder::values(in_micros(values.values))?.build(),
        LogicalPlan::Union(inputs) => union::union(inputs.inputs),
        other => other.recompute_schema(),
    })
}

/// Changes timestamps in VALUES to microseconds: the planner brought columns with dates and timestamps to nanoseconds.
fn in_micros(mut rows: Vec<Vec<Expr>>) -> Vec<Vec<Expr>> {
    for value in rows.iter_mut().flatten() {
        if let Expr::Cast(cast) = value
            && let Arrow::Timestamp(TimeUnit::Nanosecond, _) = &cast.data_type
            && let Some(micros) = dates::timestamp_beside_date(&cast.data_type)
        {
            cast.data_type = micros;
        }
    }
    rows
}

struct CoercionPass<'a> {
    schema: &'a DFSchema,
    needs_values: &'a mut bool,
}

impl CoercionPass<'_> {
    fn rewrite(&mut self, expr: Expr) -> DfResult<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let (mut left, mut right) = self.read_each_other(*left, *right)?;
                refuse_mixed_operands(&left, &right, self.schema)?;
                dates::as_timestamps(&mut [&mut left, &mut right], self.schema);
                interval::compare_by_length(&mut [&mut left, &mut right], self.schema);
                if let (Some(Arrow::List(own)), Some(Arrow::List(other))) =
                    (self.type_of(&left), self.type_of(&right))
                {
                    untyped_text::refuse_mixed_types(own.data_type(), other.data_type())?;
                    if let Some(less) = arrays::less(left.clone(), op, right.clone()) {
                        return Ok(Transformed::yes(less));
                    }
                }
                Transformed::yes(self.compare(left, op, right))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if calculates(op) && (is_untyped(&left) || is_untyped(&right)) =>
            {
                let left_type = self.type_of(&left).filter(Arrow::is_numeric);
                let right_type = self.type_of(&right).filter(Arrow::is_numeric);
                let left = self.read_as(*left, right_type.as_ref())?;
                let right = self.read_as(*right, left_type.as_ref())?;
                Transformed::yes(binary(left, op, right))
            }
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if calculates(op) => {
                if let Some(time) = interval::shift_time_of_day(&left, op, &right, self.schema) {
                    return Ok(Transformed::yes(time));
                }
                dates::coerce_operands(&mut left, op, &mut right, self.schema)?;
                Transformed::yes(binary(self.signed(*left), op, self.signed(*right)))
            }
            Expr::BinaryExpr(BinaryExpr { op, .. }) if regexes::is_regex(op) => {
                Transformed::yes(self.interruptible(expr))
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let own = self.type_of(&expr);
                let (low, high) = (self.read_as(*low, own.as_ref())?, self.read_as(*high, own.as_ref())?);
                let (expr, mut low) = self.read_each_other(*expr, low)?;
                let (mut expr, mut high) = self.read_each_other(expr, high)?;
                refuse_mixed_operands(&expr, &low, self.schema)?;
                refuse_mixed_operands(&expr, &high, self.schema)?;
                dates::as_timestamps(&mut [&mut expr, &mut low, &mut high], self.schema);
                interval::compare_by_length(&mut [&mut expr, &mut low, &mut high], self.schema);
                Transformed::yes(self.between(expr, negated, low, high))
            }
            Expr::InList(InList { mut expr, list, negated }) => {
                let own = self.type_of(&expr).or_else(|| list.iter().find_map(|item| self.type_of(item)));
                *expr = self.read_as(*expr, own.as_ref())?;
                let mut read = Vec::with_capacity(list.len());
                for item in list {
                    let item = self.read_as(item, own.as_ref())?;
                    refuse_mixed_operands(&expr, &item, self.schema)?;
                    read.push(item);
                }
                let mut all: Vec<_> = std::iter::once(expr.as_mut()).chain(&mut read).collect();
                dates::as_timestamps(&mut all, self.schema);
                interval::compare_by_length(&mut all, self.schema);
                Transformed::yes(self.in_list(*expr, read, negated))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Transformed::yes(self.in_subquery(*expr, subquery, negated)?)
            }
            Expr::Like(like) => Transformed::yes(self.like(like)?),
            Expr::SimilarTo(like) => Transformed::yes(self.similar_to(like)?),
            // AT TIME ZONE adds such a cast to a value that is already a timestamp. Without it, key lookups and zone maps can use
            // the column.
            Expr::Cast(cast)
                if matches!(cast.data_type, Arrow::Timestamp(..))
                    && self.type_of(&cast.expr).as_ref() == Some(&cast.data_type) =>
            {
                Transformed::yes(*cast.expr)
            }
            Expr::Cast(cast) => untyped_text::cast(cast, self.schema)?,
            Expr::TryCast(cast) => untyped_text::try_cast(cast, self.schema)?,
            Expr::SetComparison(set) => Transformed::yes(self.set_comparison(set)?),
            Expr::Case(mut case) => {
                let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                let mut results: Vec<_> = results.chain(case.else_expr.as_deref_mut()).collect();
                self.as_floats(&mut results);
                dates::as_timestamps(&mut results, self.schema);
                Transformed::yes(match case.expr.take() {
                    Some(operand) => self.case(*operand, case)?,
                    None => Expr::Case(case),
                })
            }
            Expr::ScalarFunction(function) if function.func.name() == nullif::NAME => {
                Transformed::yes(self.nullif(function)?)
            }
            Expr::ScalarFunction(function) if common_type::NAMES.contains(&function.func.name()) => {
                Transformed::yes(self.common_type(function)?)
            }
            Expr::ScalarFunction(function) if function.func.name() == arrays::EQUALS_ANY => {
                Transformed::yes(self.equals_any(function)?)
            }
            Expr::ScalarFunction(function) if round_digits::applies_to(&function) => {
                Transformed::yes(round_digits::settle_digits(function, self.needs_values))
            }
            Expr::ScalarFunction(_) => {
                self.note_decimal_parameter(&expr);
                // DataFusion counts lengths and positions as uint64, and coerces uint64 and int64 to a decimal.
                match self.type_of(&expr) {
                    Some(Arrow::UInt64) => {
                        Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), Arrow::Int64)))
                    }
                    _ => Transformed::no(expr),
                }
            }
            other => Transformed::no(other),
        })
    }

    /// Casts a uint64, such as the length of a list, to int64: DataFusion coerces uint64 and int64 to a decimal.
    fn signed(&self, expr: Expr) -> Expr {
        match &expr {
            Expr::Literal(..) => expr,
            other if self.type_of(other) == Some(Arrow::UInt64) => {
                Expr::Cast(Cast::new(Box::new(expr), Arrow::Int64))
            }
            _ => expr,
        }
    }

    /// Returns the type of an expression; `None` if it is untyped.
    fn type_of(&self, expr: &Expr) -> Option<Arrow> {
        if is_untyped(expr) { None } else { expr.get_type(self.schema).ok() }
    }

    fn read_each_other(&mut self, left: Expr, right: Expr) -> DfResult<(Expr, Expr)> {
        if is_untyped(&left) == is_untyped(&right) {
            return Ok((left, right));
        }
        let (left_type, right_type) = (self.type_of(&left), self.type_of(&right));
        Ok((self.read_as(left, right_type.as_ref())?, self.read_as(right, left_type.as_ref())?))
    }

    /// Brings the arguments of a function to one type: untyped texts are read as the type of the others.
    fn common_type(&mut self, function: ScalarFunction) -> DfResult<Expr> {
        let ScalarFunction { func, args } = function;
        let typed: Vec<Arrow> =
            args.iter().filter_map(|arg| self.type_of(arg)).filter(|own| !own.is_null()).collect();
        common_type::refuse_mixed(func.name(), &typed).map_err(external)?;
        let time = typed.iter().find(|own| matches!(own, Arrow::Timestamp(..)));
        let own = time.or(typed.first());
        let mut args: Vec<Expr> =
            args.into_iter().map(|arg| self.read_as(arg, own)).collect::<DfResult<_>>()?;
        let mut all: Vec<_> = args.iter_mut().collect();
        self.as_floats(&mut all);
        dates::as_timestamps(&mut all, self.schema);
        Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
    }

    /// Reads the element of `= ANY` as the type of the list's items.
    fn equals_any(&mut self, function: ScalarFunction) -> DfResult<Expr> {
        let ScalarFunction { func, mut args } = function;
        if let [list, element] = args.as_mut_slice()
            && let Some(Arrow::List(item)) = self.type_of(list)
        {
            *element = self.read_as(std::mem::take(element), Some(item.data_type()))?;
            if let Some(own) = self.type_of(element) {
                untyped_text::refuse_mixed_types(item.data_type(), &own)?;
            }
        }
        Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
    }

    fn is_list(&self, expr: &Expr) -> bool {
        matches!(self.type_of(expr), Some(Arrow::List(_)))
    }

    /// Reads the arguments of `nullif`, which compares them.
    fn nullif(&mut self, function: ScalarFunction) -> DfResult<Expr> {
        let ScalarFunction { func, args } = function;
        let args = match <[Expr; 2]>::try_from(args) {
            Ok([left, right]) => {
                let (mut left, mut right) = self.read_each_other(left, right)?;
                refuse_mixed_operands(&left, &right, self.schema)?;
                let own = self.type_of(&left);
                dates::as_timestamps(&mut [&mut left, &mut right], self.schema);
                let changed = own.filter(|own| self.type_of(&left).as_ref() != Some(own));
                let mut call = Expr::ScalarFunction(ScalarFunction { func, args: vec![left, right] });
                // A date that was compared as a timestamp is returned as a date.
                if let Some(own) = changed {
                    dates::cast(&mut call, &own);
                }
                return Ok(call);
            }
            Err(args) => args,
        };
        Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
    }

    fn read_as(&mut self, expr: Expr, data_type: Option<&Arrow>) -> DfResult<Expr> {
        let expr = untyped_text::read_as(expr, data_type)?;
        self.note_decimal_parameter(&expr);
        Ok(expr)
    }

    /// Notes a parameter that is read as a decimal: its number of digits decides how it is compared.
    fn note_decimal_parameter(&mut self, expr: &Expr) {
        *self.needs_values |=
            ReadAsFunction::target(expr).is_some_and(|t| matches!(t, Arrow::Decimal128(..)));
    }
}

pub fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

pub fn calculates(op: Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

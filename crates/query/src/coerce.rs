//! What literals and text parameters mean where they stand, before DataFusion's own coercion, which would compare
//! numbers with texts letter by letter and read `1.1` as a float.
//!
//! - Text of no type (a literal, a parameter that came as text) that meets a typed expression is read as that type,
//!   as PostgreSQL does: exactly, or the statement is refused.
//! - Typed text that meets a number or a bool is refused, and so is a bool that meets a number: somebody has to say
//!   which of the two is meant.
//! - A number with a point is exact where it is compared with an exact type, where a decimal takes part in the
//!   calculation, and where it has more digits than a float64 keeps. Elsewhere it is a float64: `2 / 3.0` is to have
//!   all its digits, and `SELECT 1.5` to be a number in JSON, in which decimals are strings.
//! - A comparison of a decimal or an integer with a number becomes one with a literal of its own type, whatever digits
//!   the number has: no cast hides the column from keys and zones, and no common type has to hold both.

mod literals;
mod number;
mod read;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Between, Case, Cast, InList, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator};
use types::{Error, Result};

use crate::error::from_datafusion;
use number::{Number, Place};

pub(crate) use literals::{CELL_PREFIX, floats_that_no_decimal_holds};
pub(crate) use read::ReadAs;

/// A plan whose literals have types.
pub(crate) struct Coerced {
    pub plan: LogicalPlan,
    /// A parameter's text decides about more than a literal: the plan is right only with the values put in before.
    pub needs_values: bool,
}

pub(crate) fn coerce(plan: LogicalPlan) -> Result<Coerced> {
    let mut needs_values = false;
    let coerced = plan.transform_up_with_subqueries(|plan| node(plan, &mut needs_values));
    let plan = coerced.map_err(from_datafusion)?.data;
    Ok(Coerced { plan, needs_values })
}

fn node(plan: LogicalPlan, needs_values: &mut bool) -> DfResult<Transformed<LogicalPlan>> {
    let schema = match &plan {
        LogicalPlan::TableScan(_) => return Ok(Transformed::no(plan)),
        other => merge_schema(&other.inputs()),
    };
    if let LogicalPlan::Join(join) = &plan {
        for (left, right) in &join.on {
            refuse_beside(left, right, &schema)?;
        }
    }
    let names = NamePreserver::new(&plan);
    let mut pass = Pass { schema: &schema, needs_values };
    let rewritten = plan.map_expressions(|expr| {
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let settled = literals::settle(expr, &schema)?;
        let rewritten = settled.transform_up(|expr| pass.rewrite(expr))?;
        Ok(Transformed::yes(name.restore(rewritten.data)))
    })?;
    rewritten.map_data(|plan| match plan {
        // Its schema is not computed again otherwise.
        LogicalPlan::Values(values) => LogicalPlanBuilder::values(values.values)?.build(),
        other => other.recompute_schema(),
    })
}

struct Pass<'a> {
    schema: &'a DFSchema,
    needs_values: &'a mut bool,
}

impl Pass<'_> {
    fn rewrite(&mut self, expr: Expr) -> DfResult<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let (left, right) = self.read_each_other(*left, *right)?;
                refuse_beside(&left, &right, self.schema)?;
                Transformed::yes(self.compare(left, op, right))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if calculates(op) && (untyped(&left) || untyped(&right)) =>
            {
                let left_type = self.type_of(&left).filter(Arrow::is_numeric);
                let right_type = self.type_of(&right).filter(Arrow::is_numeric);
                let left = self.read_as(*left, right_type.as_ref())?;
                let right = self.read_as(*right, left_type.as_ref())?;
                Transformed::yes(binary(left, op, right))
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let own = self.type_of(&expr);
                let (low, high) = (self.read_as(*low, own.as_ref())?, self.read_as(*high, own.as_ref())?);
                let (expr, low) = self.read_each_other(*expr, low)?;
                let (expr, high) = self.read_each_other(expr, high)?;
                refuse_beside(&expr, &low, self.schema)?;
                refuse_beside(&expr, &high, self.schema)?;
                Transformed::yes(self.between(expr, negated, low, high))
            }
            Expr::InList(InList { expr, list, negated }) => {
                let own = self.type_of(&expr);
                let mut read = Vec::with_capacity(list.len());
                for item in list {
                    let item = self.read_as(item, own.as_ref())?;
                    refuse_beside(&expr, &item, self.schema)?;
                    read.push(item);
                }
                Transformed::yes(self.in_list(*expr, read, negated))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let theirs = subquery.subquery.schema().fields().first().map(|f| f.data_type().clone());
                let expr = self.read_as(*expr, theirs.as_ref())?;
                if let (Some(ours), Some(theirs)) = (self.type_of(&expr), theirs) {
                    refuse(&ours, &theirs)?;
                }
                Transformed::yes(Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated }))
            }
            Expr::Case(Case { expr: Some(expr), when_then_expr, else_expr }) => {
                let own = self.type_of(&expr);
                let mut cases = Vec::with_capacity(when_then_expr.len());
                for (when, then) in when_then_expr {
                    let when = self.read_as(*when, own.as_ref())?;
                    refuse_beside(&expr, &when, self.schema)?;
                    cases.push((Box::new(when), then));
                }
                Transformed::yes(Expr::Case(Case { expr: Some(expr), when_then_expr: cases, else_expr }))
            }
            other => Transformed::no(other),
        })
    }

    /// The type of an expression that has one of its own.
    fn type_of(&self, expr: &Expr) -> Option<Arrow> {
        if untyped(expr) { None } else { expr.get_type(self.schema).ok() }
    }

    fn read_each_other(&mut self, left: Expr, right: Expr) -> DfResult<(Expr, Expr)> {
        if untyped(&left) == untyped(&right) {
            return Ok((left, right));
        }
        let (left_type, right_type) = (self.type_of(&left), self.type_of(&right));
        Ok((self.read_as(left, right_type.as_ref())?, self.read_as(right, left_type.as_ref())?))
    }

    /// Text of no type as a value of `data_type`; anything else as it is.
    fn read_as(&mut self, expr: Expr, data_type: Option<&Arrow>) -> DfResult<Expr> {
        let Some(data_type) = data_type.filter(|t| untyped(&expr) && read::reads(t)) else { return Ok(expr) };
        Ok(match expr {
            Expr::Literal(
                ScalarValue::Utf8(Some(text))
                | ScalarValue::Utf8View(Some(text))
                | ScalarValue::LargeUtf8(Some(text)),
                metadata,
            ) => Expr::Literal(read::read(&text, data_type).map_err(ours)?, metadata),
            parameter => {
                // How many digits the text has decides about the comparison.
                *self.needs_values |= matches!(data_type, Arrow::Decimal128(..));
                ReadAs::call(parameter, data_type)
            }
        })
    }

    fn compare(&self, left: Expr, op: Operator, right: Expr) -> Expr {
        if let Some(place) = self.place(&right, &left) {
            return beside(left, op, place, right);
        }
        match (self.place(&left, &right), op.swap()) {
            (Some(Place::At(value)), _) => binary(Expr::Literal(value, None), op, right),
            (Some(place), Some(swapped)) => beside(right, swapped, place, left),
            _ => {
                let left = self.as_float_beside(left, &right);
                let right = self.as_float_beside(right, &left);
                binary(left, op, right)
            }
        }
    }

    /// Where a literal number lies among the values of what it is compared with.
    fn place(&self, literal: &Expr, other: &Expr) -> Option<Place> {
        let number = match literal {
            Expr::Literal(scalar, _) => Number::of(scalar)?,
            other => literals::beyond_decimals(other)?,
        };
        number.place(&self.type_of(other)?)
    }

    /// A decimal beside a float that is no literal as a float64, as PostgreSQL has it: no decimal holds every float.
    fn as_float_beside(&self, expr: Expr, other: &Expr) -> Expr {
        let is_float = |t: Arrow| matches!(t, Arrow::Float32 | Arrow::Float64);
        let is_decimal = |t: Arrow| matches!(t, Arrow::Decimal128(..));
        let constant = matches!(other, Expr::Literal(..) | Expr::Placeholder(_));
        if !constant
            && self.type_of(other).is_some_and(is_float)
            && self.type_of(&expr).is_some_and(is_decimal)
        {
            return Expr::Cast(Cast::new(Box::new(expr), Arrow::Float64));
        }
        expr
    }

    fn between(&self, expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
        if !may_stand_twice(&expr) {
            let (low, high) = (Box::new(low), Box::new(high));
            return Expr::Between(Between { expr: Box::new(expr), negated, low, high });
        }
        let at = |bound: Expr| match self.place(&bound, &expr) {
            Some(Place::At(value)) => Ok(Expr::Literal(value, None)),
            Some(_) => Err(bound),
            None => Ok(bound),
        };
        match (at(low), at(high)) {
            (Ok(low), Ok(high)) => {
                let (low, high) = (Box::new(low), Box::new(high));
                Expr::Between(Between { expr: Box::new(expr), negated, low, high })
            }
            (Ok(low) | Err(low), Ok(high) | Err(high)) => {
                let above = self.compare(expr.clone(), Operator::GtEq, low);
                let below = self.compare(expr, Operator::LtEq, high);
                let both = binary(above, Operator::And, below);
                if negated { Expr::Not(Box::new(both)) } else { both }
            }
        }
    }

    fn in_list(&self, expr: Expr, list: Vec<Expr>, negated: bool) -> Expr {
        let mut kept = Vec::with_capacity(list.len());
        for item in list {
            match self.place(&item, &expr) {
                Some(Place::At(value)) => kept.push(Expr::Literal(value, None)),
                None => kept.push(item),
                // No value of the type is this number.
                Some(_) => {}
            }
        }
        if kept.is_empty() {
            return if negated { always(expr) } else { never(expr) };
        }
        Expr::InList(InList { expr: Box::new(expr), list: kept, negated })
    }
}

/// `expr op literal`, the literal lying where `place` says.
fn beside(expr: Expr, op: Operator, place: Place, literal: Expr) -> Expr {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let value = |value| Expr::Literal(value, None);
    match (op, place) {
        (_, Place::At(at)) => binary(expr, op, value(at)),
        (Eq, _) => never(expr),
        (NotEq, _) => always(expr),
        (IsDistinctFrom, _) => value(ScalarValue::Boolean(Some(true))),
        (IsNotDistinctFrom, _) => value(ScalarValue::Boolean(Some(false))),
        (Gt | GtEq, Place::After(at)) => binary(expr, Gt, value(at)),
        (Lt | LtEq, Place::After(at)) => binary(expr, LtEq, value(at)),
        (Gt | GtEq, Place::BelowAll) | (Lt | LtEq, Place::AboveAll) => always(expr),
        (Gt | GtEq, Place::AboveAll) | (Lt | LtEq, Place::BelowAll) => never(expr),
        _ => binary(expr, op, literal),
    }
}

/// True, and null where the expression is null.
fn always(expr: Expr) -> Expr {
    unless_null(expr, true)
}

/// False, and null where the expression is null.
fn never(expr: Expr) -> Expr {
    unless_null(expr, false)
}

/// The expression stands in it once: it may be volatile, and what nests would double with each level.
fn unless_null(expr: Expr, value: bool) -> Expr {
    let constant = |value| Box::new(Expr::Literal(ScalarValue::Boolean(value), None));
    let is_null = Box::new(Expr::IsNull(Box::new(expr)));
    Expr::Case(Case {
        expr: None,
        when_then_expr: vec![(is_null, constant(None))],
        else_expr: Some(constant(Some(value))),
    })
}

/// Nodes of an expression that may stand twice in a plan.
const TWICE_NODES_MAX: usize = 32;

/// Whether an expression may stand twice: it gives the same value each time, and is small.
fn may_stand_twice(expr: &Expr) -> bool {
    let mut nodes = 0;
    // Counting does not fail.
    let _ = expr.apply(|_| {
        nodes += 1;
        Ok(if nodes > TWICE_NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    nodes <= TWICE_NODES_MAX && !expr.is_volatile()
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// Whether an expression is text that nobody gave a type.
fn untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(scalar, _) => is_text(&scalar.data_type()),
        Expr::Placeholder(placeholder) => placeholder.field.as_ref().is_some_and(|f| is_text(f.data_type())),
        _ => false,
    }
}

fn is_text(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::Utf8View | Arrow::LargeUtf8)
}

fn refuse_beside(left: &Expr, right: &Expr, schema: &DFSchema) -> DfResult<()> {
    if untyped(left) && untyped(right) {
        return Ok(());
    }
    match (left.get_type(schema), right.get_type(schema)) {
        (Ok(left), Ok(right)) => refuse(&left, &right),
        // What is wrong with it is said where it is planned.
        _ => Ok(()),
    }
}

fn refuse(left: &Arrow, right: &Arrow) -> DfResult<()> {
    let is_bool = |t: &Arrow| *t == Arrow::Boolean;
    let differ =
        |a: &Arrow, b: &Arrow| is_text(a) && (b.is_numeric() || is_bool(b)) || is_bool(a) && b.is_numeric();
    if !differ(left, right) && !differ(right, left) {
        return Ok(());
    }
    let name =
        |t: &Arrow| crate::sql_type::field_type_name(&arrow::datatypes::Field::new("", t.clone(), true));
    let (left, right) = (name(left), name(right));
    Err(ours(
        Error::invalid(format!("{left} and {right} cannot be compared"))
            .hint(format!("say what is meant: CAST the {left} to {right}, or the {right} to {left}")),
    ))
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

pub(crate) fn calculates(op: Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

fn ours(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

//! Comparisons of two types that have no common type that holds all values of both.

use arrow::datatypes::DataType as Arrow;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, Cast, InList, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlanBuilder, Operator, Subquery};
use sql::not_yet;

use super::number::{Number, NumberPlace};
use super::untyped_text::{refuse_mixed_operands, refuse_mixed_types};
use super::{CoercionPass, dates, external, literals};
use crate::functions::arrays;

impl CoercionPass<'_> {
    pub(super) fn compare(&mut self, left: Expr, op: Operator, right: Expr) -> Expr {
        if let Some(place) = self.place(&right, &left) {
            return compare_at(left, op, place, right);
        }
        match (self.place(&left, &right), op.swap()) {
            (Some(NumberPlace::At(value)), _) => binary(Expr::Literal(value, None), op, right),
            (Some(place), Some(swapped)) => compare_at(right, swapped, place, left),
            _ => {
                let (mut left, mut right) = (left, right);
                self.as_floats(&mut [&mut left, &mut right]);
                binary(left, op, right)
            }
        }
    }

    /// Returns the place of a literal number among the values of the other side's type.
    fn place(&mut self, literal: &Expr, other: &Expr) -> Option<NumberPlace> {
        let other = self.type_of(other)?;
        if let Expr::Placeholder(_) = literal {
            // The place of a float among decimals depends on its value.
            *self.needs_values |= is_decimal(&other) && self.type_of(literal).is_some_and(|t| is_float(&t));
            return None;
        }
        let number = match literal {
            Expr::Literal(ScalarValue::Float64(Some(v)), _) => return NumberPlace::of_float(*v, &other),
            Expr::Literal(ScalarValue::Float32(Some(v)), _) => return NumberPlace::of_float(*v, &other),
            Expr::Literal(scalar, _) => Number::of(scalar)?,
            other => literals::beyond_decimals(other)?,
        };
        number.place(&other)
    }

    /// Casts decimals to float64 if a float that is not a literal is compared with them, as PostgreSQL does: no decimal holds
    /// every float.
    pub(super) fn as_floats(&self, compared: &mut [&mut Expr]) {
        // The place of a constant among decimals is known, so it needs no cast.
        let varies = |expr: &Expr| !matches!(expr, Expr::Literal(..) | Expr::Placeholder(_));
        let has = |expr: &Expr, wanted: fn(&Arrow) -> bool| self.type_of(expr).is_some_and(|t| wanted(&t));
        if compared.iter().any(|expr| varies(expr) && has(expr, is_float)) {
            for expr in compared.iter_mut().filter(|expr| has(expr, is_decimal)) {
                **expr = as_float(std::mem::take(*expr));
            }
        }
    }

    pub(super) fn between(&mut self, expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
        let is_less = |left: &Expr, right: &Expr| arrays::less(left.clone(), Operator::LtEq, right.clone());
        if self.is_list(&expr)
            && let (Some(above), Some(below)) = (is_less(&low, &expr), is_less(&expr, &high))
        {
            let both = binary(above, Operator::And, below);
            return if negated { Expr::Not(Box::new(both)) } else { both };
        }
        let mut at = |bound: Expr| match self.place(&bound, &expr) {
            Some(NumberPlace::At(value)) => Ok(Expr::Literal(value, None)),
            Some(_) => Err(bound),
            None => Ok(bound),
        };
        match (at(low), at(high)) {
            (Ok(low), Ok(high)) => self.plain_between(expr, negated, low, high),
            (Ok(low) | Err(low), Ok(high) | Err(high)) if !may_stand_twice(&expr) => {
                self.plain_between(expr, negated, low, high)
            }
            (Ok(low) | Err(low), Ok(high) | Err(high)) => {
                let above = self.compare(expr.clone(), Operator::GtEq, low);
                let below = self.compare(expr, Operator::LtEq, high);
                let both = binary(above, Operator::And, below);
                if negated { Expr::Not(Box::new(both)) } else { both }
            }
        }
    }

    fn plain_between(&self, mut expr: Expr, negated: bool, mut low: Expr, mut high: Expr) -> Expr {
        self.as_floats(&mut [&mut expr, &mut low, &mut high]);
        let (expr, low, high) = (Box::new(expr), Box::new(low), Box::new(high));
        Expr::Between(Between { expr, negated, low, high })
    }

    pub(super) fn in_list(&mut self, mut expr: Expr, list: Vec<Expr>, negated: bool) -> Expr {
        let mut kept = Vec::with_capacity(list.len());
        for item in list {
            match self.place(&item, &expr) {
                Some(NumberPlace::At(value)) => kept.push(Expr::Literal(value, None)),
                None => kept.push(item),
                // No value of the type equals this number.
                Some(_) => {}
            }
        }
        if kept.is_empty() {
            return if negated { always(expr) } else { never(expr) };
        }
        self.as_floats(&mut std::iter::once(&mut expr).chain(&mut kept).collect::<Vec<_>>());
        if !kept.iter().any(is_made) {
            return Expr::InList(InList { expr: Box::new(expr), list: kept, negated });
        }
        // DataFusion evaluates a list on no rows to see if it is constant, and takes a CASE over a column for constant.
        let (made, constant): (Vec<Expr>, Vec<Expr>) = kept.into_iter().partition(varies);
        let mut found: Vec<Expr> =
            made.into_iter().map(|item| binary(expr.clone(), Operator::Eq, item)).collect();
        if !constant.is_empty() {
            found.push(Expr::InList(InList { expr: Box::new(expr), list: constant, negated: false }));
        }
        let found = any_of(found);
        if negated { Expr::Not(Box::new(found)) } else { found }
    }

    pub(super) fn in_subquery(&mut self, expr: Expr, subquery: Subquery, negated: bool) -> DfResult<Expr> {
        let (expr, subquery) = self.beside_subquery(expr, subquery)?;
        Ok(Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated }))
    }

    /// Plans `= ANY` as IN and `<> ALL` as NOT IN. Others are refused: DataFusion confuses their columns with those of the outer
    /// query if both read the same table.
    pub(super) fn set_comparison(&mut self, set: SetComparison) -> DfResult<Expr> {
        let SetComparison { expr, subquery, op, quantifier } = set;
        match (op, &quantifier) {
            (Operator::Eq, SetQuantifier::Any) => self.in_subquery(*expr, subquery, false),
            (Operator::NotEq, SetQuantifier::All) => self.in_subquery(*expr, subquery, true),
            _ => Err(external(
                not_yet(&format!("`{op} {quantifier} (SELECT …)`"))
                    .hint("compare with the least or the greatest: `x > (SELECT max(y) FROM t)`"),
            )),
        }
    }

    /// Brings an expression and the subquery whose rows it is compared with to one type.
    fn beside_subquery(&mut self, expr: Expr, subquery: Subquery) -> DfResult<(Expr, Subquery)> {
        let schema = subquery.subquery.schema().clone();
        let Some(theirs) = schema.fields().first().map(|field| field.data_type().clone()) else {
            return Ok((expr, subquery));
        };
        let expr = self.read_as(expr, Some(&theirs))?;
        let Some(ours) = self.type_of(&expr) else { return Ok((expr, subquery)) };
        refuse_mixed_types(&ours, &theirs)?;
        // The type to which each side is cast.
        let (mine, other) = match (&ours, &theirs) {
            (ours, theirs) if is_decimal(ours) && is_float(theirs) => (Some(Arrow::Float64), None),
            (ours, theirs) if is_float(ours) && is_decimal(theirs) => (None, Some(Arrow::Float64)),
            (Arrow::Date32, theirs) => (dates::timestamp_beside_date(theirs), None),
            (ours, Arrow::Date32) => (None, dates::timestamp_beside_date(ours)),
            _ => (None, None),
        };
        let expr = match mine {
            Some(mine) => Expr::Cast(Cast::new(Box::new(expr), mine)),
            None => expr,
        };
        let Some(other) = other else { return Ok((expr, subquery)) };
        let column = Box::new(Expr::from(schema.qualified_field(0)));
        let column = Expr::Cast(Cast::new(column, other)).alias(schema.field(0).name());
        let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone()).project([column])?;
        Ok((expr, subquery.with_plan(plan.build()?.into())))
    }

    /// Brings the operand and the WHEN values of `CASE operand WHEN …` to one type.
    pub(super) fn case(&mut self, operand: Expr, case: Case) -> DfResult<Expr> {
        if matches!(operand, Expr::Literal(..) | Expr::Placeholder(_)) {
            return self.case_of_constant(&operand, case);
        }
        let own = self.type_of(&operand);
        let (mut operand, mut whens, mut thens) = (operand, Vec::new(), Vec::new());
        for (when, then) in case.when_then_expr {
            let when = self.read_as(*when, own.as_ref())?;
            refuse_mixed_operands(&operand, &when, self.schema)?;
            whens.push(match (self.place(&when, &operand), &own) {
                (Some(NumberPlace::At(value)), _) => Expr::Literal(value, None),
                // No value of the type equals this number, and none equals null.
                (Some(_), Some(own)) => Expr::Literal(ScalarValue::try_from(own)?, None),
                _ => when,
            });
            thens.push(then);
        }
        let mut all: Vec<&mut Expr> = std::iter::once(&mut operand).chain(&mut whens).collect();
        self.as_floats(&mut all);
        dates::as_timestamps(&mut all, self.schema);
        let when_then_expr = whens.into_iter().map(Box::new).zip(thens).collect();
        Ok(Expr::Case(Case { expr: Some(Box::new(operand)), when_then_expr, else_expr: case.else_expr }))
    }

    /// Rewrites a CASE with a constant operand to one with conditions: the constant costs nothing to repeat, and is read as the
    /// type of each WHEN value.
    fn case_of_constant(&mut self, operand: &Expr, case: Case) -> DfResult<Expr> {
        let mut when_then_expr = Vec::with_capacity(case.when_then_expr.len());
        for (when, then) in case.when_then_expr {
            let (mut operand, mut when) = self.read_each_other(operand.clone(), *when)?;
            refuse_mixed_operands(&operand, &when, self.schema)?;
            dates::as_timestamps(&mut [&mut operand, &mut when], self.schema);
            when_then_expr.push((Box::new(self.compare(operand, Operator::Eq, when)), then));
        }
        Ok(Expr::Case(Case { expr: None, when_then_expr, else_expr: case.else_expr }))
    }
}

/// Returns true if an item of a list may differ by row.
fn varies(item: &Expr) -> bool {
    let differs = |expr: &Expr| {
        Ok(expr.is_volatile_node()
            || matches!(
                expr,
                Expr::Column(_)
                    | Expr::OuterReferenceColumn(..)
                    | Expr::ScalarSubquery(_)
                    | Expr::AggregateFunction(_)
            ))
    };
    item.exists(differs).unwrap_or(true)
}

/// Returns true for an item that may differ by row and is not a plain column.
fn is_made(item: &Expr) -> bool {
    !matches!(item, Expr::Column(_) | Expr::OuterReferenceColumn(..)) && varies(item)
}

/// Combines conditions by OR as a balanced tree, so that many of them do not nest deeply.
fn any_of(mut conditions: Vec<Expr>) -> Expr {
    while conditions.len() > 1 {
        let mut pairs = Vec::with_capacity(conditions.len().div_ceil(2));
        let mut left = conditions.into_iter();
        while let Some(first) = left.next() {
            pairs.push(match left.next() {
                Some(second) => binary(first, Operator::Or, second),
                None => first,
            });
        }
        conditions = pairs;
    }
    conditions.pop().unwrap_or_else(|| Expr::Literal(ScalarValue::Boolean(Some(false)), None))
}

pub(super) fn is_float(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Float32 | Arrow::Float64)
}

pub(super) fn is_decimal(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Decimal128(..))
}

pub(super) fn as_float(expr: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), Arrow::Float64))
}

/// Compares an expression with a literal that lies at `place` among the values of the expression's type.
fn compare_at(expr: Expr, op: Operator, place: NumberPlace, literal: Expr) -> Expr {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let value = |value| Expr::Literal(value, None);
    match (op, place) {
        (_, NumberPlace::At(at)) => binary(expr, op, value(at)),
        (Eq, _) => never(expr),
        (NotEq, _) => always(expr),
        (IsDistinctFrom, _) => value(ScalarValue::Boolean(Some(true))),
        (IsNotDistinctFrom, _) => value(ScalarValue::Boolean(Some(false))),
        (Gt | GtEq, NumberPlace::After(at)) => binary(expr, Gt, value(at)),
        (Lt | LtEq, NumberPlace::After(at)) => binary(expr, LtEq, value(at)),
        (Gt | GtEq, NumberPlace::BelowAll) | (Lt | LtEq, NumberPlace::AboveAll) => always(expr),
        (Gt | GtEq, NumberPlace::AboveAll) | (Lt | LtEq, NumberPlace::BelowAll) => never(expr),
        _ => binary(expr, op, literal),
    }
}

/// Returns true, or null if the expression is null.
fn always(expr: Expr) -> Expr {
    unless_null(expr, true)
}

/// Returns false, or null if the expression is null.
fn never(expr: Expr) -> Expr {
    unless_null(expr, false)
}

/// Returns `value`, or null if the expression is null. The expression appears only once: it may be volatile, and nested copies
/// would double with each level.
fn unless_null(expr: Expr, value: bool) -> Expr {
    let constant = |value| Box::new(Expr::Literal(ScalarValue::Boolean(value), None));
    let is_null = Box::new(Expr::IsNull(Box::new(expr)));
    Expr::Case(Case {
        expr: None,
        when_then_expr: vec![(is_null, constant(None))],
        else_expr: Some(constant(Some(value))),
    })
}

/// Number of nodes of the largest expression that may be duplicated in a plan.
const TWICE_NODES_MAX: usize = 32;

/// Returns true if an expression may be duplicated: it gives the same value each time, and is small.
fn may_stand_twice(expr: &Expr) -> bool {
    let mut nodes = 0;
    // The traversal cannot fail.
    let _ = expr.apply(|_| {
        nodes += 1;
        Ok(if nodes > TWICE_NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    nodes <= TWICE_NODES_MAX && !expr.is_volatile()
}

pub(super) fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

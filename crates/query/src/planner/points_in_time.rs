//! Resolves the points in time of AS OF to lsns.

use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, TimeUnit};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, SelectItem, Statement, Value as SqlValue};
use dialect::error::from_datafusion;
use dialect::rewrites::coercion;
use dialect::values::params::Params;
use engine::View;
use sql::as_of::{self, AsOfPoint};
use types::{Error, Lsn, Micros, Result, Value};

use super::{Planner, ViewTables};

impl Planner {
    /// Replaces a statement's points in time by lsns. Returns true if it has any.
    pub(super) fn resolve_points(
        &self,
        statement: &mut Statement,
        params: &Params,
        view: &View,
    ) -> Result<bool> {
        as_of::resolve(statement, &mut |point| {
            let lsn = match point {
                AsOfPoint::Lsn(expr) => lsn_of(expr, params)?,
                AsOfPoint::Time(expr) => view.lsn_at(self.time_of(expr, params, view)?)?,
            };
            view.at(lsn).map(|view| view.lsn())
        })
    }

    fn time_of(&self, expr: &Expr, params: &Params, view: &View) -> Result<Micros> {
        let no_time = |what: &str| {
            Error::invalid(format!("the value after AS OF is {what}")).hint(
                "`AS OF LSN 123`, `AS OF TIMESTAMP '2026-01-01 12:00:00'`, `AS OF now() - interval '5 minutes'`",
            )
        };
        if as_of::literal(expr).is_some() {
            return Err(no_time("a number: write AS OF LSN, or give a time"));
        }
        let item = SelectItem::UnnamedExpr(expr.clone());
        let statement = sql::ast::select(vec![item], Vec::new(), None)?;
        let mut tables = ViewTables::new(self, view, &[]);
        let plan = self.logical_plan(statement, params, &mut tables)?;
        let plan = coercion::coerce(self.substitute_params(plan, params)?)?.plan;
        let mut state = self.state.clone();
        state.mark_start_execution();
        let plan = state.optimize(&plan).map_err(from_datafusion)?;
        let value = constant(&plan).ok_or_else(|| no_time("not a constant"))?;
        let is_time = matches!(
            value.data_type(),
            Arrow::Timestamp(..)
                | Arrow::Date32
                | Arrow::Date64
                | Arrow::Utf8
                | Arrow::LargeUtf8
                | Arrow::Utf8View
        );
        if !is_time || value.is_null() {
            return Err(no_time("not a time"));
        }
        let micros = Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let read = value.to_array().map_err(from_datafusion)?;
        let read = cast(&read, &micros).map_err(|_| no_time("a text that is not a time"))?;
        match ScalarValue::try_from_array(&read, 0).map_err(from_datafusion)? {
            ScalarValue::TimestampMicrosecond(Some(time), _) => Ok(time),
            _ => Err(no_time("a text that is not a time")),
        }
    }
}

fn lsn_of(expr: &Expr, params: &Params) -> Result<Lsn> {
    let wrong = || Error::invalid("the value after AS OF LSN is not an lsn: a whole number from 0 on");
    if let Some(digits) = as_of::literal(expr) {
        return digits.parse().map(Lsn).map_err(|_| wrong());
    }
    let Expr::Value(value) = expr else { return Err(wrong()) };
    let SqlValue::Placeholder(name) = &value.value else { return Err(wrong()) };
    let at = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()).and_then(|n| n.checked_sub(1));
    let number = match at.and_then(|at| params.values.get(at)) {
        Some(Value::Int64(n)) => u64::try_from(*n).ok(),
        Some(Value::Int32(n)) => u64::try_from(*n).ok(),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    number.map(Lsn).ok_or_else(wrong)
}

fn constant(plan: &LogicalPlan) -> Option<&ScalarValue> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    let [expr] = projection.expr.as_slice() else { return None };
    let mut expr = expr;
    while let Logical::Alias(alias) = expr {
        expr = &alias.expr;
    }
    match expr {
        Logical::Literal(value, _) => Some(value),
        _ => None,
    }
}

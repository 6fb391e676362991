//! Dates that meet timestamps and intervals, and times of different zones.
//!
//! A date counts as its midnight, as in PostgreSQL, in microseconds, the unit of stored times. DataFusion would convert both to
//! nanoseconds, which end in 2262, and would drop the hours of a date plus an interval.

use arrow::datatypes::{DataType as Arrow, TimeUnit};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};
use types::{DataType, Error};

use super::external;

/// Returns the type of a date beside a value of type `data_type`; `None` if it stays a date.
pub(super) fn timestamp_beside_date(data_type: &Arrow) -> Option<Arrow> {
    match data_type {
        Arrow::Timestamp(_, Some(zone)) => Some(Arrow::Timestamp(TimeUnit::Microsecond, Some(zone.clone()))),
        Arrow::Timestamp(_, None) => Some(DataType::Timestamp.to_arrow()),
        _ => None,
    }
}

/// Casts the dates among expressions that need one type to timestamps, if there is a timestamp among them.
pub(super) fn as_timestamps(exprs: &mut [&mut Expr], schema: &DFSchema) {
    let types: Vec<Option<Arrow>> = exprs.iter().map(|expr| expr.get_type(schema).ok()).collect();
    let Some(time) = types.iter().flatten().find_map(timestamp_beside_date) else { return };
    for (expr, own) in exprs.iter_mut().zip(types) {
        if own == Some(Arrow::Date32) {
            cast(expr, &time);
        }
    }
}

/// Casts the sides of a sum or a difference: a date and an interval give a timestamp.
pub(super) fn coerce_operands(
    left: &mut Expr,
    op: Operator,
    right: &mut Expr,
    schema: &DFSchema,
) -> Result<()> {
    if !matches!(op, Operator::Plus | Operator::Minus) {
        return Ok(());
    }
    let is_of_time = |t: &Arrow| matches!(t, Arrow::Date32 | Arrow::Timestamp(..) | Arrow::Interval(_));
    // Sums nest on the left, so the type of the right side is cheaper to compute and comes first.
    let Some(theirs) = right.get_type(schema).ok().filter(is_of_time) else { return Ok(()) };
    let Ok(own) = left.get_type(schema) else { return Ok(()) };
    match (&own, &theirs) {
        (Arrow::Date32, Arrow::Interval(_)) => cast(left, &DataType::Timestamp.to_arrow()),
        (Arrow::Interval(_), Arrow::Date32) if op == Operator::Plus => {
            cast(right, &DataType::Timestamp.to_arrow());
        }
        (Arrow::Date32, Arrow::Timestamp(..)) | (Arrow::Timestamp(..), Arrow::Date32)
            if op == Operator::Minus =>
        {
            as_timestamps(&mut [left, right], schema);
        }
        _ => refuse_zones(&own, &theirs)?,
    }
    Ok(())
}

/// Refuses two times of different zones. In PostgreSQL a time in a zone is what clocks show there; here it is a moment, so that
/// comparing times of two zones would mean something else.
pub(super) fn refuse_zones(left: &Arrow, right: &Arrow) -> Result<()> {
    let (Arrow::Timestamp(_, Some(left)), Arrow::Timestamp(_, Some(right))) = (left, right) else {
        return Ok(());
    };
    if left == right {
        return Ok(());
    }
    let zone = if left.as_ref() == "UTC" { right } else { left };
    Err(external(Error::invalid(format!("a time in zone {left} does not go with one in zone {right}")).hint(format!(
        "a text is read as a time of the zone: `at AT TIME ZONE '{zone}' >= '2026-07-01 12:00'`; CAST both to timestamptz to go by \
         the moments"
    ))))
}

pub(super) fn cast(expr: &mut Expr, data_type: &Arrow) {
    *expr = Expr::Cast(Cast::new(Box::new(std::mem::take(expr)), data_type.clone()));
}

//! Times as clocks of a zone show them, and `AT TIME ZONE`, which stays in microseconds.

use std::ops::ControlFlow;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType as Arrow, TimeUnit, TimestampMicrosecondType};
use arrow::temporal_conversions::{as_datetime_with_timezone, timestamp_us_to_datetime};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Ident, ObjectName, ObjectNamePart, Statement, Value,
    visit_expressions_mut,
};

use super::calendar::{self, Unit};

/// The name of a type that no statement can write: a time in a zone.
const NAME: &str = "polynya time in zone";
/// Clocks that are put forward skip no more than this.
const SKIPPED_MAX: i64 = 3 * 3_600_000_000;

/// `t AT TIME ZONE 'z'` becomes a CAST to a type that [`type_in`] knows: the planner would make it one to nanoseconds.
pub(crate) fn spell_out(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        if let Expr::AtTimeZone { timestamp, time_zone } = expr
            && let Expr::Value(zone) = time_zone.as_ref()
            && let Value::SingleQuotedString(zone) = &zone.value
        {
            let name = ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', NAME))]);
            let data_type = SqlType::Custom(name, vec![zone.clone()]);
            let null = Box::new(Expr::Value(Value::Null.into()));
            let expr_ = std::mem::replace(timestamp, null);
            *expr = Expr::Cast { kind: CastKind::Cast, expr: expr_, data_type, array: false, format: None };
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The type that [`spell_out`] wrote.
pub(crate) fn type_in(name: &ObjectName, zone: &[String]) -> Option<Arrow> {
    let ([ObjectNamePart::Identifier(name)], [zone]) = (name.0.as_slice(), zone) else { return None };
    (name.value == NAME).then(|| Arrow::Timestamp(TimeUnit::Microsecond, Some(zone.as_str().into())))
}

/// Where clocks are read.
#[derive(Clone, Copy)]
pub(super) enum Zone {
    Utc,
    Of(Tz),
}

impl Zone {
    /// Of a time's type.
    pub fn of(data_type: &Arrow) -> Result<Zone> {
        match data_type {
            Arrow::Timestamp(_, Some(zone)) if zone.as_ref() != "UTC" => Ok(Zone::Of(zone.parse()?)),
            Arrow::Timestamp(..) => Ok(Zone::Utc),
            other => Err(DataFusionError::Internal(format!("{other} is no time"))),
        }
    }

    /// The beginning of the unit that a time lies in, as the clocks there show it.
    pub fn cut(self, time: i64, unit: Unit) -> Option<i64> {
        match self {
            // Where clocks are not set to whole minutes, which is long ago, minutes begin where those of UTC do.
            Zone::Of(zone) if !unit.is_below_hours() => {
                let shown = shown(time, zone)?;
                moment(calendar::cut(shown, unit)?, zone, shown - time)
            }
            _ => calendar::cut(time, unit),
        }
    }
}

/// What clocks show at a time.
fn shown(time: i64, zone: Tz) -> Option<i64> {
    let time = as_datetime_with_timezone::<TimestampMicrosecondType>(time, zone)?;
    Some(time.naive_local().and_utc().timestamp_micros())
}

/// When clocks show this; of two such times the one at which they are as far ahead of UTC as `ahead` says.
fn moment(shown: i64, zone: Tz, ahead: i64) -> Option<i64> {
    let at = timestamp_us_to_datetime(shown)?.and_local_timezone(zone);
    if let (Some(first), Some(last)) = (at.earliest(), at.latest()) {
        let (first, last) = (first.timestamp_micros(), last.timestamp_micros());
        return Some(if shown - first == ahead { first } else { last });
    }
    // Clocks skip it, as midnight where summer begins at midnight: it is as far behind what they show before.
    let before = shown.checked_sub(SKIPPED_MAX)?;
    let at = timestamp_us_to_datetime(before)?.and_local_timezone(zone).earliest()?;
    at.timestamp_micros().checked_add(SKIPPED_MAX)
}

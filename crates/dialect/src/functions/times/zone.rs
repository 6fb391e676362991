//! Times as clocks of a zone show them, and `AT TIME ZONE`: the same moment, of a type that names the zone, in microseconds.

use std::ops::ControlFlow;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType as Arrow, TimestampMicrosecondType};
use arrow::temporal_conversions::{as_datetime_with_timezone, timestamp_us_to_datetime};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Ident, ObjectName, ObjectNamePart, Statement, TimezoneInfo, Value,
    visit_expressions_mut,
};
use sql::sql_type::{TIME_IN_ZONE, time_in_zone};
use types::{DataType, Error, name};

use super::calendar::{self, Unit};
use crate::values::convert::{literal_text, text_to_value};

/// Clocks that are put forward skip no more than this.
const SKIPPED_MAX: i64 = 3 * 3_600_000_000;

/// `t AT TIME ZONE 'z'` becomes a CAST to a type that [`time_in_zone`] knows: the planner would make it one to nanoseconds. `TIMESTAMP
/// '…' AT TIME ZONE 'z'` is when clocks there show this: a timestamp of its own.
pub fn spell_out(statement: &mut Statement) -> types::Result<()> {
    let done = visit_expressions_mut(statement, |expr| {
        if let Expr::AtTimeZone { timestamp, time_zone } = expr
            && let Expr::Value(zone) = time_zone.as_ref()
            && let Value::SingleQuotedString(zone) = &zone.value
        {
            let known = match named(zone) {
                Ok(known) => known,
                Err(error) => return ControlFlow::Break(error),
            };
            if let Some(time) = local_literal(timestamp).and_then(|text| read_local(text, known)) {
                let text = literal_text(&types::Value::Timestamp(time), &DataType::Timestamp);
                let text = Value::SingleQuotedString(text.trim_matches('\'').to_owned());
                *expr = cast(Expr::Value(text.into()), instant());
                return ControlFlow::Continue(());
            }
            let name = ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', TIME_IN_ZONE))]);
            let in_zone = SqlType::Custom(name, vec![zone.clone()]);
            let time = std::mem::replace(timestamp.as_mut(), Expr::Value(Value::Null.into()));
            // A date or a text is a time of UTC, and not of this zone.
            let time = if is_in_zone(&time) { time } else { cast(time, instant()) };
            *expr = cast(time, in_zone);
        }
        ControlFlow::Continue(())
    });
    match done {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn cast(expr: Expr, data_type: SqlType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn instant() -> SqlType {
    SqlType::Timestamp(None, TimezoneInfo::Tz)
}

/// Whether [`spell_out`] wrote it.
fn is_in_zone(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { data_type: SqlType::Custom(name, zone), .. } => time_in_zone(&name.0, zone).is_some(),
        Expr::Nested(inner) => is_in_zone(inner),
        _ => false,
    }
}

/// The text of `TIMESTAMP '…'` or of `'…'::timestamp`.
fn local_literal(expr: &Expr) -> Option<&str> {
    let is_local = |data_type: &SqlType| {
        let SqlType::Timestamp(None | Some(6), zone) = data_type else { return false };
        matches!(zone, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
    };
    let value = match expr {
        Expr::TypedString(literal) if is_local(&literal.data_type) => &literal.value,
        Expr::Cast { expr, data_type, .. } if is_local(data_type) => match expr.as_ref() {
            Expr::Value(value) => value,
            _ => return None,
        },
        Expr::Nested(inner) => return local_literal(inner),
        _ => return None,
    };
    match &value.value {
        Value::SingleQuotedString(text) => Some(text),
        _ => None,
    }
}

/// The zone of this name.
pub(super) fn named(zone: &str) -> types::Result<Tz> {
    zone.parse().map_err(|_| {
        Error::invalid(format!("`{}` is no time zone", name::printable(zone))).hint(
            "write its name in the tz database, as 'Europe/Berlin', with its capital letters; or an offset, as '+02:00'",
        )
    })
}

/// A text without a zone of its own as a time of this one: of two the last, which is that of winter, as PostgreSQL has it.
fn read_local(text: &str, zone: Tz) -> Option<i64> {
    match text_to_value(text, &DataType::Timestamp) {
        Ok(types::Value::Timestamp(shown)) if !has_zone(text) => Some(moments(shown, zone)?.1),
        _ => None,
    }
}

/// What a text is compared as with times of a zone, which as a time of UTC is `time`: of two the first, so that what is not before
/// midnight is the whole day. `None` if it lies beyond all times.
pub fn in_zone(text: &str, time: i64, zone: &str) -> types::Result<Option<i64>> {
    let zone = named(zone)?;
    Ok(if has_zone(text) { Some(time) } else { moments(time, zone).map(|(first, _)| first) })
}

/// Whether a text of a time says of which zone it is.
fn has_zone(text: &str) -> bool {
    let day = "0000-00-00T".len();
    let rest = text.trim().get(day..).unwrap_or_default();
    rest.contains(|c: char| c.is_ascii_alphabetic() || matches!(c, '+' | '-'))
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
    let (first, last) = moments(shown, zone)?;
    Some(if shown - first == ahead { first } else { last })
}

/// When clocks show this: the first time and the last.
fn moments(shown: i64, zone: Tz) -> Option<(i64, i64)> {
    let at = timestamp_us_to_datetime(shown)?.and_local_timezone(zone);
    if let (Some(first), Some(last)) = (at.earliest(), at.latest()) {
        return Some((first.timestamp_micros(), last.timestamp_micros()));
    }
    // Clocks skip it, as midnight where summer begins at midnight: it is as far behind what they show before.
    let before = shown.checked_sub(SKIPPED_MAX)?;
    let at = timestamp_us_to_datetime(before)?.and_local_timezone(zone).earliest()?;
    let at = at.timestamp_micros().checked_add(SKIPPED_MAX)?;
    Some((at, at))
}

//! Reads the clocks of a time zone, and plans `AT TIME ZONE`: it gives the same moment with a type that names the zone, in
//! microseconds.

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

/// The longest time that clocks skip when they are put forward, in microseconds.
const SKIPPED_MAX: i64 = 3 * 3_600_000_000;

/// Replaces `t AT TIME ZONE 'z'` by a CAST to a type that [`time_in_zone`] knows; DataFusion's planner would convert to
/// nanoseconds. `TIMESTAMP '…' AT TIME ZONE 'z'` becomes the timestamp of the moment at which clocks in the zone show that time.
pub fn rewrite_at_time_zone(statement: &mut Statement) -> types::Result<()> {
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
            // A date or a text is a time in UTC, not in this zone.
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

/// Returns true for a cast that [`rewrite_at_time_zone`] wrote.
fn is_in_zone(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { data_type: SqlType::Custom(name, zone), .. } => time_in_zone(&name.0, zone).is_some(),
        Expr::Nested(inner) => is_in_zone(inner),
        _ => false,
    }
}

/// Returns the text of `TIMESTAMP '…'` or of `'…'::timestamp`.
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

/// Returns the zone of this name.
pub(super) fn named(zone: &str) -> types::Result<Tz> {
    zone.parse().map_err(|_| {
        Error::invalid(format!("`{}` is not a time zone", name::printable(zone))).hint(
            "write its name in the tz database, as 'Europe/Berlin', with its capital letters; or an offset, as '+02:00'",
        )
    })
}

/// Reads a text without a zone as a time in `zone`. If clocks show that time twice, it is the later moment, in winter time, as in
/// PostgreSQL.
fn read_local(text: &str, zone: Tz) -> Option<i64> {
    match text_to_value(text, &DataType::Timestamp) {
        Ok(types::Value::Timestamp(shown)) if !has_zone(text) => Some(moments(shown, zone)?.1),
        _ => None,
    }
}

/// Converts a text that is compared with times of a zone; `time` is the text read as UTC. If clocks show that time twice, it is
/// the earlier moment, so that `>= midnight` covers the whole day. Returns `None` if the moment is out of range.
pub fn in_zone(text: &str, time: i64, zone: &str) -> types::Result<Option<i64>> {
    let zone = named(zone)?;
    Ok(if has_zone(text) { Some(time) } else { moments(time, zone).map(|(first, _)| first) })
}

/// Returns true if the text of a time names its zone.
fn has_zone(text: &str) -> bool {
    let day = "0000-00-00T".len();
    let rest = text.trim().get(day..).unwrap_or_default();
    rest.contains(|c: char| c.is_ascii_alphabetic() || matches!(c, '+' | '-'))
}

/// A zone whose clocks are read.
#[derive(Clone, Copy)]
pub(super) enum Zone {
    Utc,
    Of(Tz),
}

impl Zone {
    /// Returns the zone of a timestamp type.
    pub fn of(data_type: &Arrow) -> Result<Zone> {
        match data_type {
            Arrow::Timestamp(_, Some(zone)) if zone.as_ref() != "UTC" => Ok(Zone::Of(zone.parse()?)),
            Arrow::Timestamp(..) => Ok(Zone::Utc),
            other => Err(DataFusionError::Internal(format!("{other} is not a time"))),
        }
    }

    /// Returns the beginning of the unit that contains a time, as clocks in the zone show it.
    pub fn cut(self, time: i64, unit: Unit) -> Option<i64> {
        match self {
            // Zones whose offset is not in whole minutes are long past: minutes begin there as in UTC.
            Zone::Of(zone) if !unit.is_below_hours() => {
                let shown = shown(time, zone)?;
                moment(calendar::cut(shown, unit)?, zone, shown - time)
            }
            _ => calendar::cut(time, unit),
        }
    }
}

/// Returns the time that clocks in the zone show at a moment.
fn shown(time: i64, zone: Tz) -> Option<i64> {
    let time = as_datetime_with_timezone::<TimestampMicrosecondType>(time, zone)?;
    Some(time.naive_local().and_utc().timestamp_micros())
}

/// Returns the moment at which clocks show a time. Of two such moments it is the one with the offset `ahead`.
fn moment(shown: i64, zone: Tz, ahead: i64) -> Option<i64> {
    let (first, last) = moments(shown, zone)?;
    Some(if shown - first == ahead { first } else { last })
}

/// Returns the first and the last moment at which clocks show a time.
fn moments(shown: i64, zone: Tz) -> Option<(i64, i64)> {
    let at = timestamp_us_to_datetime(shown)?.and_local_timezone(zone);
    if let (Some(first), Some(last)) = (at.earliest(), at.latest()) {
        return Some((first.timestamp_micros(), last.timestamp_micros()));
    }
    // Clocks skip this time, such as midnight where summer time begins at midnight. It counts from the time that clocks show
    // before the gap.
    let before = shown.checked_sub(SKIPPED_MAX)?;
    let at = timestamp_us_to_datetime(before)?.and_local_timezone(zone).earliest()?;
    let at = at.timestamp_micros().checked_add(SKIPPED_MAX)?;
    Some((at, at))
}

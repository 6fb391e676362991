//! Answers from `polynya.requests`: the requests to this server with their status and duration.

use types::{Result, Value};

use crate::comparison::Op;
use crate::evaluation::{Context, SourceResult};
use crate::number::Number;
use crate::sources::{Statement, format_count, format_figure, not_understood_sentence, section, short_name};
use crate::task::{Aggregate, Choice, RequestsQuery};
use crate::time::format_time;
use crate::vocabulary::SLOW_MICROS;

const TABLE: &str = "polynya.requests";
const ROWS: usize = 10;

pub(crate) async fn run(context: &Context, query: &RequestsQuery) -> Result<SourceResult> {
    let recorded = context.view.find(TABLE).filter(|table| table.rows() > 0);
    if recorded.is_none() {
        let detail = if context.all {
            "no request is recorded yet"
        } else {
            "this key may not see requests, or none is recorded yet"
        };
        return Ok(SourceResult { detail: Some(detail.into()), ..SourceResult::default() });
    }
    // `all` selects the requests that the question is about, `some` those of them that satisfy its condition.
    let mut all = Statement::default();
    all.within("time", query.scope.window.as_ref());
    let within = all.clone();
    if let Some(table) = &query.table {
        let (full, short_name) =
            (all.param(table.to_lowercase()), all.param(short_name(table).to_lowercase()));
        all.is(format!("(lower(\"table\") = {full} OR lower(\"table\") = {short_name})"));
    }
    let mut chosen = Vec::new();
    one_of(&mut all, "method", &query.methods, &mut chosen);
    one_of(&mut all, "route", &query.routes, &mut chosen);
    let mut some = all.clone();
    let mut phrases = Vec::new();
    if let Some((low, high)) = query.status {
        let (low_at, high_at) = (some.param(low), some.param(high));
        some.is(format!("status >= {low_at} AND status <= {high_at}"));
        phrases.push(match (low, high) {
            (400, 599) => "failed (status 400 or higher)".to_owned(),
            (500, 599) => "failed in the server (status 500 or higher)".to_owned(),
            (400, 499) => "were refused (status 400 to 499)".to_owned(),
            _ => format!("had status {low} to {high}"),
        });
    }
    one_of(&mut some, "status", &query.statuses, &mut phrases);
    for comparison in &query.status_bounds {
        let bound = some.param(comparison.number.to_f64());
        some.is(format!("status {} {bound}", comparison.op.sql()));
        phrases.push(format!("had a status {}", comparison.phrase));
    }
    for comparison in &query.duration {
        let Some(micros) = comparison.micros() else { continue };
        let bound = some.param(micros);
        some.is(format!("duration_us {} {bound}", comparison.op.sql()));
        let assumed = if comparison.unit.is_none() { " (milliseconds were assumed)" } else { "" };
        phrases.push(format!("took {} {} ms{assumed}", took(comparison.op), format_figure(micros / 1e3)));
    }
    if query.slow && query.duration.is_empty() {
        let bound = some.param(SLOW_MICROS);
        some.is(format!("duration_us >= {bound}"));
        phrases.push(format!("were slow ({} ms or more)", format_figure(SLOW_MICROS / 1e3)));
    }
    let predicate = !phrases.is_empty();
    let whole = figures(context, &all).await?;
    let part = if predicate { figures(context, &some).await? } else { whole.clone() };
    let when = query.scope.window.as_ref().map_or_else(
        || whole.oldest.map_or(String::new(), |oldest| format!(" since {}", format_time(oldest))),
        |window| format!(" {}", window.phrase),
    );
    let when = if chosen.is_empty() { when } else { format!("{when} ({})", chosen.join(", ")) };
    let of = format_count(whole.count, "recorded request");
    let mut text = match (predicate, part.count) {
        (false, count) => format!("{} answered{when}.", format_count(count, "request")),
        (true, 0) => format!("None of {of}{when} {}.", phrases.join(" and ")),
        (true, count) => {
            format!("{} of {of}{when} {}.", crate::sources::format_integer(count), phrases.join(" and "))
        }
    };
    // Requests beyond the recorded number per second are counted in one row of that second.
    let uncounted = whole.others;
    if uncounted > 0 && predicate {
        text += &format!(
            " {} more were only counted, so no details of them are known.",
            format_count(uncounted, "request")
        );
    } else if uncounted > 0 {
        text = format!(
            "{} answered{when}, of which {} are recorded in full.",
            format_count(whole.count + uncounted, "request"),
            crate::sources::format_integer(whole.count)
        );
    }
    let shown_figures = if predicate && part.count == 0 { &whole } else { &part };
    // Durations are beside the point for a question about statuses.
    let of_time = !predicate || query.slow || !query.duration.is_empty() || query.scope.aggregate.is_some();
    if shown_figures.count > 0 && of_time {
        let about = if predicate && part.count == 0 { "Of all, the" } else { "The" };
        text += &match query.scope.aggregate {
            Some(Aggregate::Average) => {
                format!(" They took {} ms on average.", format_figure(shown_figures.average / 1e3))
            }
            Some(Aggregate::Lowest) => {
                format!(" The fastest took {} ms.", format_figure(shown_figures.fastest / 1e3))
            }
            Some(Aggregate::Count) if !predicate => String::new(),
            _ => format!(" {about} slowest took {} ms.", format_figure(shown_figures.slowest / 1e3)),
        };
    }
    let mut verdict = match &query.count {
        Some(comparison) => {
            let holds = comparison.op.fits(Number::from(part.count).order(comparison.number));
            text += &format!(
                " That is {}{} {}.",
                if holds { "" } else { "not " },
                comparison.op.phrase(),
                comparison.number.phrase()
            );
            Some(holds)
        }
        None if query.scope.aggregate == Some(Aggregate::Average) => average(query, &whole, &mut text),
        // An unrecorded request may have satisfied the condition.
        None if predicate && part.count == 0 && uncounted > 0 => None,
        None if predicate || query.whether => Some(part.count > 0),
        None => None,
    };
    // Further requests would not change this verdict.
    let is_sure = match &query.count {
        Some(comparison) => comparison.op.is_upward() && verdict == Some(true),
        None => part.count > 0,
    };
    if query.scope.negated {
        verdict = verdict.map(|holds| !holds);
    }
    // Requests older than the records are unknown, so their absence is not claimed.
    if let Some(window) = query.scope.window.as_ref() {
        let sql = "SELECT min(time) FROM polynya.requests";
        let oldest = context.rows(sql, &[], 1).await?.rows.first().and_then(|row| row[0].time());
        let is_early = oldest.is_some_and(|oldest| window.from < oldest);
        let oldest = oldest.map_or(String::new(), format_time);
        let mut is_empty = whole.count == 0 && uncounted == 0;
        // There may be requests of other methods, routes or tables.
        if is_empty && all.conditions.len() > within.conditions.len() {
            let recorded = figures(context, &within).await?;
            is_empty = recorded.count == 0 && recorded.others == 0;
        }
        if is_empty && (predicate || is_early) {
            text = format!("No request is recorded {}, so nothing is known about that time.", window.phrase);
            verdict = None;
        } else if is_early && !is_sure {
            verdict = None;
        }
        if is_early {
            text += &format!(" The oldest recorded request is from {oldest}.");
        }
    }
    if let Some(unknown) = not_understood_sentence(&query.scope.not_understood) {
        text += &format!(" {unknown}");
        verdict = None;
    } else if let (Some(holds), true) = (verdict, query.whether) {
        text = format!("{}: {text}", if holds { "Yes" } else { "No" });
    }
    let order = match query.scope.aggregate {
        Some(Aggregate::Lowest) => "duration_us ASC",
        Some(Aggregate::Latest) => "time DESC",
        Some(Aggregate::Oldest) => "time ASC",
        _ if has_status(query) && query.duration.is_empty() && !query.slow => "time DESC",
        _ => "duration_us DESC",
    };
    let limit = query.scope.limit.unwrap_or(ROWS);
    let by_group = query.group.map(|group| {
        format!(
            "SELECT \"{group}\", count(*) AS count, avg(duration_us) / 1e3 AS average_ms, CAST(max(duration_us) AS DOUBLE PRECISION) / 1e3 AS slowest_ms \
             FROM polynya.requests{} GROUP BY \"{group}\" ORDER BY 2 DESC, 1 LIMIT {limit}",
            some.filter()
        )
    });
    let each = format!(
        "SELECT time, method, route, status, CAST(duration_us AS DOUBLE PRECISION) / 1e3 AS ms, \"table\", principal FROM polynya.requests{} ORDER BY {order}, time DESC LIMIT {limit}",
        some.filter()
    );
    let sql = by_group.unwrap_or(each);
    let rows = match part.count {
        0 => crate::evaluation::ResultTable::default(),
        _ => context.rows(&sql, &some.params, limit).await?,
    };
    if let (Some(group), false) = (query.group, rows.rows.is_empty()) {
        let some = rows.rows.iter().take(5).map(|row| format!("{}: {}", row[0].phrase(), row[1].phrase()));
        let more = if rows.rows.len() > 5 { ", …" } else { "" };
        text += &format!(" By {group}: {}{more}.", some.collect::<Vec<_>>().join(", "));
    }
    let sections = vec![section("requests", "Requests", text, &rows, &sql, &some.params)];
    Ok(SourceResult { sections, answered: true, verdict, as_of: whole.newest, detail: None })
}

/// Compares the average itself.
fn average(query: &RequestsQuery, whole: &Figures, text: &mut String) -> Option<bool> {
    let comparison = query.duration.first()?;
    let bound = comparison.micros()?;
    if whole.count == 0 {
        return None;
    }
    let holds = comparison.op.holds(whole.average, bound);
    *text = format!(
        "{} took {} ms on average, which is {}{} {} ms.",
        format_count(whole.count, "recorded request"),
        format_figure(whole.average / 1e3),
        if holds { "" } else { "not " },
        comparison.op.phrase(),
        format_figure(bound / 1e3)
    );
    Some(holds)
}

fn has_status(query: &RequestsQuery) -> bool {
    query.status.is_some() || !query.statuses.values.is_empty() || !query.status_bounds.is_empty()
}

/// Adds a condition that a column has one of the values, or none of them.
fn one_of<T: Clone + Into<Value> + std::fmt::Display>(
    statement: &mut Statement,
    column: &str,
    choice: &Choice<T>,
    phrases: &mut Vec<String>,
) {
    if choice.values.is_empty() {
        return;
    }
    let params: Vec<String> = choice.values.iter().map(|value| statement.param(value.clone())).collect();
    let is_in = format!("{column} IN ({})", params.join(", "));
    statement.is(if choice.negated { format!("({is_in}) IS NOT TRUE") } else { is_in });
    let values: Vec<String> = choice.values.iter().map(T::to_string).collect();
    let values = values.join(" or ");
    phrases.push(match (column, choice.negated) {
        ("status", true) => format!("did not have status {values}"),
        ("status", false) => format!("had status {values}"),
        (_, true) => format!("{column} is not {values}"),
        (_, false) => format!("{column} is {values}"),
    });
}

fn took(op: Op) -> &'static str {
    match op {
        Op::Above => "more than",
        Op::Below => "less than",
        other => other.phrase(),
    }
}

#[derive(Clone, Debug, Default)]
struct Figures {
    count: i64,
    others: i64,
    oldest: Option<i64>,
    newest: Option<i64>,
    average: f64,
    slowest: f64,
    fastest: f64,
}

async fn figures(context: &Context, statement: &Statement) -> Result<Figures> {
    let sql = format!(
        "SELECT count(*), CAST(sum(others) AS BIGINT), min(time), max(time), avg(duration_us), max(duration_us), min(duration_us) FROM polynya.requests{}",
        statement.filter()
    );
    let params: Vec<Value> = statement.params.clone();
    let table = context.rows(&sql, &params, 1).await?;
    let Some(row) = table.rows.first() else { return Ok(Figures::default()) };
    Ok(Figures {
        count: row[0].int().unwrap_or(0),
        others: row[1].int().unwrap_or(0),
        oldest: row[2].time(),
        newest: row[3].time(),
        average: row[4].number().unwrap_or(0.0),
        slowest: row[5].number().unwrap_or(0.0),
        fastest: row[6].number().unwrap_or(0.0),
    })
}

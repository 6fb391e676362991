//! Answers from `polynya.metrics`: the readings of this machine that the recorder takes each second.

use std::collections::BTreeMap;

use types::{Micros, Result};

use crate::answer::Section;
use crate::cell::Cell;
use crate::comparison::{Comparison, Op, Unit};
use crate::evaluation::{Context, ResultTable, SourceResult};
use crate::sources::{
    Statement, capitalized, column, format_bytes, format_count, format_figure, not_understood_sentence,
    section, sentence,
};
use crate::task::{Aggregate, Measure, MetricsQuery, Predicate, Quantity};
use crate::time::{MINUTE, format_duration, format_time};

const TABLE: &str = "polynya.metrics";
/// The number of last rows that contain the newest reading. One reading has up to 100 rows.
const NEWEST_ROWS: u64 = 1_000;
const ROWS_MAX: usize = 100;
/// The age from which a reading is called old.
const OLD: Micros = 2 * MINUTE;

/// The metrics behind a measure, and the way to show it.
struct MeasureSpec {
    title: String,
    /// The metric of the part. The next field is that of the whole, if the measure is a share.
    part: String,
    whole: Option<&'static str>,
    /// The metric of the other part. It replaces the whole if both parts do not add up to it: a file system reserves some space
    /// for itself.
    rest: Option<&'static str>,
    quantity: Option<Quantity>,
    /// True if the part is the free share of the whole.
    part_is_free: bool,
    unit: DisplayUnit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DisplayUnit {
    Percent,
    Bytes,
    BytesPerSecond,
    Plain,
}

fn measure_spec(measure: &Measure) -> MeasureSpec {
    let simple = |title: &str, part: &str, unit| MeasureSpec {
        title: title.to_owned(),
        part: part.into(),
        whole: None,
        rest: None,
        quantity: None,
        part_is_free: false,
        unit,
    };
    let share = |title: &str, part: &str, whole, quantity, part_is_free| MeasureSpec {
        title: title.to_owned(),
        part: part.into(),
        whole: Some(whole),
        rest: None,
        quantity: Some(quantity),
        part_is_free,
        unit: match quantity {
            Quantity::UsedPercent | Quantity::FreePercent => DisplayUnit::Percent,
            Quantity::UsedBytes | Quantity::FreeBytes => DisplayUnit::Bytes,
        },
    };
    match measure {
        Measure::Filesystem(quantity) => {
            let spec = share("File systems", "filesystem_free", "filesystem_size", *quantity, true);
            MeasureSpec { rest: Some("filesystem_used"), ..spec }
        }
        Measure::Memory(quantity) => share("Memory", "memory_used", "memory_total", *quantity, false),
        Measure::Cpu => simple("CPU", "cpu_busy", DisplayUnit::Percent),
        Measure::Cores => simple("Cores", "core_busy", DisplayUnit::Percent),
        Measure::Load => simple("Load of one minute", "load_1m", DisplayUnit::Plain),
        Measure::DiskActivity => simple("Disks at work", "disk_busy", DisplayUnit::Percent),
        Measure::Network => simple("Network, received", "net_received", DisplayUnit::BytesPerSecond),
        Measure::Pressure => simple("Time that tasks waited", "pressure_some", DisplayUnit::Percent),
        Measure::Swap => simple("Swap", "swap_used", DisplayUnit::Bytes),
        Measure::Sent => simple("Network, sent", "net_sent", DisplayUnit::BytesPerSecond),
        Measure::ByName(name) => simple(name, name, DisplayUnit::Plain),
    }
}

impl MeasureSpec {
    /// Returns the figure of one reading.
    fn value(&self, part: f64, whole: Option<f64>) -> Option<f64> {
        let Some(quantity) = self.quantity else { return Some(part) };
        let whole = whole.filter(|whole| *whole > 0.0)?;
        let (free, used) = if self.part_is_free { (part, whole - part) } else { (whole - part, part) };
        Some(match quantity {
            Quantity::UsedPercent => 100.0 * used / whole,
            Quantity::FreePercent => 100.0 * free / whole,
            Quantity::UsedBytes => used,
            Quantity::FreeBytes => free,
        })
    }

    /// Returns the same figure in SQL, over the rows of one time and device.
    fn expression(&self, statement: &mut Statement) -> String {
        let part_name = statement.param(self.part.as_str());
        let part = format!("max(CASE WHEN name = {part_name} THEN value END)");
        let (Some(whole), Some(quantity)) = (self.whole, self.quantity) else {
            statement.is(format!("name = {part_name}"));
            return part;
        };
        let whole_name = statement.param(whole);
        let mut names = format!("name = {part_name} OR name = {whole_name}");
        let mut whole = format!("max(CASE WHEN name = {whole_name} AND value > 0 THEN value END)");
        if let Some(rest) = self.rest {
            let rest = statement.param(rest);
            names += &format!(" OR name = {rest}");
            whole = format!("coalesce({part} + max(CASE WHEN name = {rest} THEN value END), {whole})");
        }
        statement.is(format!("({names})"));
        let is_part = self.part_is_free == matches!(quantity, Quantity::FreePercent | Quantity::FreeBytes);
        let amount = if is_part { part } else { format!("({whole} - {part})") };
        match quantity {
            Quantity::UsedPercent | Quantity::FreePercent => format!("100.0 * {amount} / {whole}"),
            Quantity::UsedBytes | Quantity::FreeBytes => amount,
        }
    }

    fn phrase(&self, value: f64) -> String {
        match self.unit {
            DisplayUnit::Percent => format!("{value:.1} %"),
            DisplayUnit::Bytes => format_bytes(value),
            DisplayUnit::BytesPerSecond => format!("{}/s", format_bytes(value)),
            DisplayUnit::Plain => format_figure(value),
        }
    }

    /// Returns the name of a device in a sentence.
    fn device(&self, device: &str) -> String {
        match (self.part.as_str(), device) {
            ("filesystem_free", "data") => "the disk of the data directory".to_owned(),
            _ => device.to_owned(),
        }
    }

    /// Returns the word after the figure: ` full`, ` free`, ` busy`.
    fn word(&self) -> &'static str {
        match self.quantity {
            Some(Quantity::UsedPercent) if self.part_is_free => " full",
            Some(Quantity::UsedPercent | Quantity::UsedBytes) => " used",
            Some(Quantity::FreePercent | Quantity::FreeBytes) => " free",
            None if self.part.ends_with("_busy") => " busy",
            None => "",
        }
    }
}

/// A bound that makes the question one of yes or no.
struct Bound {
    op: Op,
    number: f64,
    /// The bound in figures: `above 80 %`.
    phrase: String,
    /// The explanation of a word of the vocabulary in figures.
    meaning: Option<String>,
}

/// The newest figure of one device.
struct Reading {
    device: Option<String>,
    value: f64,
    part: f64,
    whole: Option<f64>,
    time: Micros,
}

pub(crate) async fn run(context: &Context, query: &MetricsQuery) -> Result<SourceResult> {
    if context.view.find(TABLE).is_none_or(|table| table.rows() == 0) {
        let detail = if context.all {
            "no metrics are recorded here; start with `polynya demo` or `polynya serve --record`"
        } else {
            "this key may not see metrics, or none are recorded"
        };
        return Ok(SourceResult { detail: Some(detail.into()), ..SourceResult::default() });
    }
    let spec = measure_spec(&query.measure);
    let newest = newest(context, &spec).await?;
    if newest.is_empty() {
        let detail = format!("no metric `{}` is recorded", spec.part);
        return Ok(SourceResult { detail: Some(detail), ..SourceResult::default() });
    }
    let as_of = newest.iter().map(|reading| reading.time).max();
    let cores = match query.predicate {
        Some(Predicate::LoadPerCore) => self::newest(context, &measure_spec(&Measure::Cores)).await?.len(),
        _ => 0,
    };
    // The remaining words may name a device.
    let (devices, left): (Vec<&String>, Vec<&String>) = query.scope.not_understood.iter().partition(|word| {
        newest
            .iter()
            .any(|reading| reading.device.as_deref().is_some_and(|device| device.eq_ignore_ascii_case(word)))
    });
    let left: Vec<String> = left.into_iter().cloned().collect();
    let wanted = |reading: &Reading| {
        devices.is_empty()
            || devices
                .iter()
                .any(|device| reading.device.as_deref().is_some_and(|d| d.eq_ignore_ascii_case(device)))
    };
    let newest: Vec<Reading> = newest.into_iter().filter(|reading| wanted(reading)).collect();
    let (bound, unclear) = bound(&spec, query, cores);
    let over_time = query.scope.window.is_some()
        || (query.when && bound.is_some())
        || matches!(query.scope.aggregate, Some(Aggregate::Average | Aggregate::Highest | Aggregate::Lowest));
    let mut outcome = if over_time {
        answer_over_window(context, query, &spec, bound.as_ref(), &devices).await?
    } else {
        answer_now(context, &spec, newest, bound.as_ref(), query)
    };
    outcome.as_of = as_of;
    let remarks =
        [unclear, not_understood_sentence(&left)].into_iter().flatten().collect::<Vec<_>>().join(" ");
    if query.scope.negated {
        outcome.verdict = outcome.verdict.map(|holds| !holds);
    }
    // A question for the time has no verdict.
    if !remarks.is_empty() || query.when {
        outcome.verdict = None;
    }
    if let Some(section) = outcome.sections.first_mut() {
        if let Some(holds) = outcome.verdict {
            section.text = format!("{}: {}", if holds { "Yes" } else { "No" }, section.text);
        } else {
            section.text = sentence(&section.text);
        }
        if !remarks.is_empty() {
            section.text += &format!(" {remarks}");
        }
    }
    Ok(outcome)
}

fn bound(spec: &MeasureSpec, query: &MetricsQuery, cores: usize) -> (Option<Bound>, Option<String>) {
    match &query.predicate {
        None => (None, None),
        Some(Predicate::Word { phrase, op, bound }) => {
            // The words of the vocabulary mean used shares in percent.
            if spec.unit != DisplayUnit::Percent {
                return (None, None);
            }
            let figures = match op {
                Op::Below => format!("less than {} %", format_figure(*bound)),
                _ => format!("{} % or more", format_figure(*bound)),
            };
            let meaning = Some(format!("{} means {figures}", capitalized(phrase)));
            (Some(Bound { op: *op, number: *bound, phrase: figures, meaning }), None)
        }
        Some(Predicate::LoadPerCore) if cores > 0 => {
            let meaning = Some(format!("High means at least {cores}, the number of cores"));
            let phrase = format!("at least {cores}");
            (Some(Bound { op: Op::AtLeast, number: cores as f64, phrase, meaning }), None)
        }
        Some(Predicate::LoadPerCore) => (
            None,
            Some("The number of cores is not recorded, so it is not known whether that is high.".into()),
        ),
        Some(Predicate::Compare(comparison)) => match number(spec, comparison) {
            Some(number) => {
                let phrase = comparison.phrase.clone();
                (Some(Bound { op: comparison.op, number, phrase, meaning: None }), None)
            }
            None => (None, Some(format!("“{}” cannot be compared with this.", comparison.phrase))),
        },
    }
}

fn number(spec: &MeasureSpec, comparison: &Comparison) -> Option<f64> {
    match (spec.unit, comparison.unit) {
        (_, None) if !comparison.of_time => Some(comparison.number.to_f64()),
        (DisplayUnit::Percent, Some(Unit::Percent)) => Some(comparison.number.to_f64()),
        (
            DisplayUnit::Bytes | DisplayUnit::BytesPerSecond | DisplayUnit::Plain,
            Some(Unit::Bytes(factor)),
        ) => Some(comparison.number.to_f64() * factor as f64),
        (DisplayUnit::Plain, Some(Unit::Percent)) => Some(comparison.number.to_f64()),
        _ => None,
    }
}

/// Returns the newest figure of each device.
async fn newest(context: &Context, spec: &MeasureSpec) -> Result<Vec<Reading>> {
    let Some(table) = context.view.find(TABLE) else { return Ok(Vec::new()) };
    let first = i64::try_from(table.next_row().0.saturating_sub(NEWEST_ROWS)).unwrap_or(0);
    for from in [first, 0] {
        let mut statement = Statement::default();
        let part = statement.param(spec.part.as_str());
        let whole = statement.param(spec.whole.unwrap_or(&spec.part));
        let rest = statement.param(spec.rest.unwrap_or(&spec.part));
        statement.is(format!("(name = {part} OR name = {whole} OR name = {rest})"));
        if from > 0 {
            let from = statement.param(from);
            statement.is(format!("_row_id >= {from}"));
        }
        let sql = format!(
            "SELECT name, device, value, time FROM polynya.metrics{} ORDER BY time DESC LIMIT {NEWEST_ROWS}",
            statement.filter()
        );
        let rows = context.rows(&sql, &statement.params, NEWEST_ROWS as usize).await?.rows;
        let readings = readings(spec, &rows);
        if !readings.is_empty() || from == 0 {
            return Ok(readings);
        }
    }
    Ok(Vec::new())
}

/// Takes the newest reading of each device from rows that are ordered newest first.
fn readings(spec: &MeasureSpec, rows: &[Vec<Cell>]) -> Vec<Reading> {
    let mut by_device: BTreeMap<Option<String>, Reading> = BTreeMap::new();
    for row in rows {
        let (Some(name), Some(value), Some(time)) = (row[0].text(), row[2].number(), row[3].time()) else {
            continue;
        };
        let device = row[1].text().map(str::to_owned);
        if name != spec.part || by_device.contains_key(&device) {
            continue;
        }
        // A share uses the whole of the same moment and device.
        let same = |name: Option<&str>| {
            let mut all = rows.iter().filter(|other| other[1] == row[1] && other[3] == row[3]);
            all.find(|other| name.is_some() && other[0].text() == name)?[2].number()
        };
        let whole = same(spec.rest).map(|rest| value + rest).or_else(|| same(spec.whole));
        let Some(figure) = spec.value(value, whole) else { continue };
        by_device.insert(device.clone(), Reading { device, value: figure, part: value, whole, time });
    }
    by_device.into_values().collect()
}

/// Answers from the newest reading.
fn answer_now(
    context: &Context,
    spec: &MeasureSpec,
    mut readings: Vec<Reading>,
    bound: Option<&Bound>,
    query: &MetricsQuery,
) -> SourceResult {
    let upward = bound.is_none_or(|bound| bound.op.is_upward());
    // The device most likely to satisfy the condition comes first.
    readings.sort_by(|a, b| if upward { b.value.total_cmp(&a.value) } else { a.value.total_cmp(&b.value) });
    let of = |reading: &Reading| {
        let device = reading.device.as_deref().map(|device| spec.device(device));
        if let (Some(whole), Some(Quantity::FreeBytes)) = (reading.whole, spec.quantity) {
            let name = device.map_or(String::new(), |device| format!("{device} has "));
            return format!("{name}{} of {} free", format_bytes(reading.value), format_bytes(whole));
        }
        let name = device.map_or(String::new(), |device| format!("{device} is "));
        let mut text = format!("{name}{}{}", spec.phrase(reading.value), spec.word());
        if let (Some(whole), true) = (reading.whole, spec.quantity.is_some()) {
            let free = if spec.part_is_free { reading.part } else { whole - reading.part };
            text += &format!(" ({} of {} free)", format_bytes(free), format_bytes(whole));
        }
        text
    };
    let verdict = bound.map(|bound| {
        let fulfils = |reading: &Reading| bound.op.holds(reading.value, bound.number);
        // `enough room` must hold for every device, `nearly full` for one.
        match query.predicate {
            Some(Predicate::Word { op: Op::Below, .. }) => readings.iter().all(fulfils),
            _ => readings.iter().any(fulfils),
        }
    });
    let figures: Vec<String> = readings.iter().take(8).map(of).collect();
    let newest = readings.iter().map(|reading| reading.time).max().unwrap_or(context.now);
    let mut text = match spec.title.as_str() {
        "File systems" => format!("{}, as of {}.", figures.join("; "), format_time(newest)),
        title => format!("{title}: {}, as of {}.", figures.join("; "), format_time(newest)),
    };
    if let Some(meaning) = bound.and_then(|bound| bound.meaning.as_ref()) {
        text += &format!(" ({meaning}.)");
    }
    let age = context.now - newest;
    if age > OLD {
        text += &format!(" That is {} old: nothing was recorded since.", format_duration(age));
    }
    let columns = vec![
        column("device", "string"),
        column("value", "float64"),
        column("unit", "string"),
        column("time", "timestamp"),
    ];
    let unit = match spec.unit {
        DisplayUnit::Percent => "%",
        DisplayUnit::Bytes => "bytes",
        DisplayUnit::BytesPerSecond => "bytes/s",
        DisplayUnit::Plain => "",
    };
    let rows = readings.iter().take(ROWS_MAX).map(|reading| {
        let device = reading.device.clone().map_or(Cell::Null, Cell::Text);
        // Answers round to two digits; the statement returns all.
        let value = if spec.unit == DisplayUnit::Percent {
            (reading.value * 100.0).round() / 100.0
        } else {
            reading.value
        };
        [device, Cell::Float(value), Cell::Text(unit.into()), Cell::Time(reading.time)]
            .iter()
            .map(Cell::json)
            .collect()
    });
    let mut statement = Statement::default();
    let part = statement.param(spec.part.as_str());
    let whole = statement.param(spec.whole.unwrap_or(&spec.part));
    let rest = statement.param(spec.rest.unwrap_or(&spec.part));
    let time = statement.time(newest);
    let sql = format!(
        "SELECT time, name, device, value, unit FROM polynya.metrics WHERE (name = {part} OR name = {whole} OR name = {rest}) AND time = {time}"
    );
    let section = Section {
        columns,
        rows: rows.collect(),
        ..section("metrics", spec.title.as_str(), text, &ResultTable::default(), &sql, &statement.params)
    };
    SourceResult { sections: vec![section], answered: true, verdict, ..SourceResult::default() }
}

/// Answers over a period of time.
async fn answer_over_window(
    context: &Context,
    query: &MetricsQuery,
    spec: &MeasureSpec,
    bound: Option<&Bound>,
    devices: &[&String],
) -> Result<SourceResult> {
    let mut statement = Statement::default();
    let value = spec.expression(&mut statement);
    statement.within("time", query.scope.window.as_ref());
    if !devices.is_empty() {
        let params: Vec<String> =
            devices.iter().map(|device| statement.param(device.to_lowercase())).collect();
        statement.is(format!("lower(device) IN ({})", params.join(", ")));
    }
    let filter = statement.filter();
    let (met, times) = match bound {
        Some(bound) => {
            let number = statement.param(bound.number);
            let case = |of: &str, then: &str| {
                format!("{of}(CASE WHEN v {} {number} THEN {then} END)", bound.op.sql())
            };
            let times =
                || format!(", {} AS first_met, {} AS last_met", case("min", "time"), case("max", "time"));
            (case("count", "1"), if query.when { times() } else { String::new() })
        }
        None => ("CAST(0 AS BIGINT)".to_owned(), String::new()),
    };
    let sql = format!(
        "SELECT device, count(v) AS readings, avg(v) AS average, min(v) AS lowest, max(v) AS highest, {met} AS met, max(time) AS newest{times} \
         FROM (SELECT time, device, {value} AS v FROM polynya.metrics{filter} GROUP BY time, device) AS m WHERE v IS NOT NULL \
         GROUP BY device ORDER BY device LIMIT {ROWS_MAX}"
    );
    let table = context.rows(&sql, &statement.params, ROWS_MAX).await?;
    let when = query.scope.window.as_ref().map_or("of all that is recorded", |window| &window.phrase);
    let readings: i64 = table.rows.iter().filter_map(|row| row[1].int()).sum();
    if readings == 0 {
        let text = format!("{}: nothing was recorded {when}.", spec.title);
        let section = section("metrics", spec.title.as_str(), text, &table, &sql, &statement.params);
        return Ok(SourceResult { sections: vec![section], answered: true, ..SourceResult::default() });
    }
    let of = |row: &Vec<Cell>| {
        let name = row[0].text().map_or(String::new(), |device| format!("{} ", spec.device(device)));
        let number = |at: usize| spec.phrase(row[at].number().unwrap_or(f64::NAN));
        let figure = match query.scope.aggregate {
            Some(Aggregate::Average) => format!("{} on average", number(2)),
            Some(Aggregate::Lowest) => format!("{} at the lowest", number(3)),
            Some(Aggregate::Highest) => format!("{} at the highest", number(4)),
            _ => format!("{} on average, between {} and {}", number(2), number(3), number(4)),
        };
        format!("{name}{figure}{}", spec.word())
    };
    let figures: Vec<String> = table.rows.iter().take(8).map(of).collect();
    let mut text =
        format!("{} {when}: {} ({}).", spec.title, figures.join("; "), format_count(readings, "reading"));
    let mut verdict = None;
    if let Some(bound) = bound {
        let met: i64 = table.rows.iter().filter_map(|row| row[5].int()).sum();
        let count = if met == 0 { "None".to_owned() } else { crate::sources::format_integer(met) };
        let verb = if met == 1 { "was" } else { "were" };
        let first = table.rows.iter().filter_map(|row| row.get(7)?.time()).min();
        let last = table.rows.iter().filter_map(|row| row.get(8)?.time()).max();
        let times = match (first.filter(|_| query.when), last) {
            (Some(first), Some(last)) if first == last => format!(", at {}", format_time(first)),
            (Some(first), Some(last)) => {
                format!(", the first at {}, the last at {}", format_time(first), format_time(last))
            }
            _ => String::new(),
        };
        text += &format!(" {count} of them {verb} {}{times}.", bound.phrase);
        verdict = Some(match (query.scope.aggregate, query.predicate.as_ref()) {
            (Some(aggregate @ (Aggregate::Average | Aggregate::Highest | Aggregate::Lowest)), _) => {
                let at = match aggregate {
                    Aggregate::Average => 2,
                    Aggregate::Lowest => 3,
                    _ => 4,
                };
                table
                    .rows
                    .iter()
                    .any(|row| row[at].number().is_some_and(|value| bound.op.holds(value, bound.number)))
            }
            (_, Some(Predicate::Word { op: Op::Below, .. })) => met == readings,
            _ => met > 0,
        });
    }
    let section = section("metrics", spec.title.as_str(), text, &table, &sql, &statement.params);
    Ok(SourceResult { sections: vec![section], answered: true, verdict, ..SourceResult::default() })
}

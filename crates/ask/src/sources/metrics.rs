//! Answers from `polynya.metrics`: the readings of this machine that the recorder takes each second.

use std::collections::BTreeMap;

use types::{Micros, Result};

use crate::answer::Section;
use crate::cell::Cell;
use crate::compare::{Comparison, Op, Unit};
use crate::evaluate::{Context, Outcome, Table};
use crate::sources::{Statement, bytes, capital, column, counted, figure, not_understood, section, sentence};
use crate::task::{Aggregate, Measure, Metrics, Predicate, Quantity};
use crate::time::{MINUTE, length, shown};

const TABLE: &str = "polynya.metrics";
/// The number of last rows that contain the newest reading. One reading has up to 100 rows.
const NEWEST_ROWS: u64 = 1_000;
const ROWS_MAX: usize = 100;
/// The age from which a reading is called old.
const OLD: Micros = 2 * MINUTE;

/// The metrics behind a measure, and the way to show it.
struct Made {
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
    unit: Shown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Percent,
    Bytes,
    BytesPerSecond,
    Plain,
}

fn made(measure: &Measure) -> Made {
    let simple = |title: &str, part: &str, unit| Made {
        title: title.to_owned(),
        part: part.into(),
        whole: None,
        rest: None,
        quantity: None,
        part_is_free: false,
        unit,
    };
    let share = |title: &str, part: &str, whole, quantity, part_is_free| Made {
        title: title.to_owned(),
        part: part.into(),
        whole: Some(whole),
        rest: None,
        quantity: Some(quantity),
        part_is_free,
        unit: match quantity {
            Quantity::UsedPercent | Quantity::FreePercent => Shown::Percent,
            Quantity::UsedBytes | Quantity::FreeBytes => Shown::Bytes,
        },
    };
    match measure {
        Measure::Filesystem(quantity) => {
            let made = share("File systems", "filesystem_free", "filesystem_size", *quantity, true);
            Made { rest: Some("filesystem_used"), ..made }
        }
        Measure::Memory(quantity) => share("Memory", "memory_used", "memory_total", *quantity, false),
        Measure::Cpu => simple("CPU", "cpu_busy", Shown::Percent),
        Measure::Cores => simple("Cores", "core_busy", Shown::Percent),
        Measure::Load => simple("Load of one minute", "load_1m", Shown::Plain),
        Measure::DiskActivity => simple("Disks at work", "disk_busy", Shown::Percent),
        Measure::Network => simple("Network, received", "net_received", Shown::BytesPerSecond),
        Measure::Pressure => simple("Time that tasks waited", "pressure_some", Shown::Percent),
        Measure::Swap => simple("Swap", "swap_used", Shown::Bytes),
        Measure::Sent => simple("Network, sent", "net_sent", Shown::BytesPerSecond),
        Measure::Named(name) => simple(name, name, Shown::Plain),
    }
}

impl Made {
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

    fn said(&self, value: f64) -> String {
        match self.unit {
            Shown::Percent => format!("{value:.1} %"),
            Shown::Bytes => bytes(value),
            Shown::BytesPerSecond => format!("{}/s", bytes(value)),
            Shown::Plain => figure(value),
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
    said: String,
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

pub(crate) async fn run(context: &Context, asked: &Metrics) -> Result<Outcome> {
    if context.view.find(TABLE).is_none_or(|table| table.rows() == 0) {
        let detail = match context.all {
            true => "no metrics are recorded here; start with `polynya demo` or `polynya serve --record`",
            false => "this key may not see metrics, or none are recorded",
        };
        return Ok(Outcome { detail: Some(detail.into()), ..Outcome::default() });
    }
    let made = made(&asked.measure);
    let newest = newest(context, &made).await?;
    if newest.is_empty() {
        let detail = format!("no metric `{}` is recorded", made.part);
        return Ok(Outcome { detail: Some(detail), ..Outcome::default() });
    }
    let as_of = newest.iter().map(|reading| reading.time).max();
    let cores = match asked.predicate {
        Some(Predicate::LoadPerCore) => self::newest(context, &self::made(&Measure::Cores)).await?.len(),
        _ => 0,
    };
    // The remaining words may name a device.
    let (devices, left): (Vec<&String>, Vec<&String>) = asked.scope.left.iter().partition(|word| {
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
    let (bound, unclear) = bound(&made, asked, cores);
    let over_time = asked.scope.window.is_some()
        || (asked.when && bound.is_some())
        || matches!(asked.scope.aggregate, Some(Aggregate::Average | Aggregate::Highest | Aggregate::Lowest));
    let mut outcome = match over_time {
        true => over(context, asked, &made, bound.as_ref(), &devices).await?,
        false => now(context, &made, newest, bound.as_ref(), asked),
    };
    outcome.as_of = as_of;
    let said = [unclear, not_understood(&left)].into_iter().flatten().collect::<Vec<_>>().join(" ");
    if asked.scope.negated {
        outcome.verdict = outcome.verdict.map(|holds| !holds);
    }
    // A question for the time has no verdict.
    if !said.is_empty() || asked.when {
        outcome.verdict = None;
    }
    if let Some(section) = outcome.sections.first_mut() {
        if let Some(holds) = outcome.verdict {
            section.text = format!("{}: {}", if holds { "Yes" } else { "No" }, section.text);
        } else {
            section.text = sentence(&section.text);
        }
        if !said.is_empty() {
            section.text += &format!(" {said}");
        }
    }
    Ok(outcome)
}

fn bound(made: &Made, asked: &Metrics, cores: usize) -> (Option<Bound>, Option<String>) {
    match &asked.predicate {
        None => (None, None),
        Some(Predicate::Word { said, op, bound }) => {
            // The words of the vocabulary mean used shares in percent.
            if made.unit != Shown::Percent {
                return (None, None);
            }
            let figures = match op {
                Op::Below => format!("less than {} %", figure(*bound)),
                _ => format!("{} % or more", figure(*bound)),
            };
            let meaning = Some(format!("{} means {figures}", capital(said)));
            (Some(Bound { op: *op, number: *bound, said: figures, meaning }), None)
        }
        Some(Predicate::LoadPerCore) if cores > 0 => {
            let meaning = Some(format!("High means at least {cores}, the number of cores"));
            let said = format!("at least {cores}");
            (Some(Bound { op: Op::AtLeast, number: cores as f64, said, meaning }), None)
        }
        Some(Predicate::LoadPerCore) => (
            None,
            Some("How many cores there are is not recorded, so whether that is high cannot be said.".into()),
        ),
        Some(Predicate::Compare(comparison)) => match number(made, comparison) {
            Some(number) => {
                let said = comparison.said.clone();
                (Some(Bound { op: comparison.op, number, said, meaning: None }), None)
            }
            None => (None, Some(format!("“{}” cannot be compared with this.", comparison.said))),
        },
    }
}

fn number(made: &Made, comparison: &Comparison) -> Option<f64> {
    match (made.unit, comparison.unit) {
        (_, None) if !comparison.of_time => Some(comparison.number.float()),
        (Shown::Percent, Some(Unit::Percent)) => Some(comparison.number.float()),
        (Shown::Bytes | Shown::BytesPerSecond | Shown::Plain, Some(Unit::Bytes(factor))) => {
            Some(comparison.number.float() * factor as f64)
        }
        (Shown::Plain, Some(Unit::Percent)) => Some(comparison.number.float()),
        _ => None,
    }
}

/// Returns the newest figure of each device.
async fn newest(context: &Context, made: &Made) -> Result<Vec<Reading>> {
    let Some(table) = context.view.find(TABLE) else { return Ok(Vec::new()) };
    let first = i64::try_from(table.next_row().0.saturating_sub(NEWEST_ROWS)).unwrap_or(0);
    for from in [first, 0] {
        let mut statement = Statement::default();
        let part = statement.param(made.part.as_str());
        let whole = statement.param(made.whole.unwrap_or(&made.part));
        let rest = statement.param(made.rest.unwrap_or(&made.part));
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
        let readings = readings(made, &rows);
        if !readings.is_empty() || from == 0 {
            return Ok(readings);
        }
    }
    Ok(Vec::new())
}

/// Takes the newest reading of each device from rows that are ordered newest first.
fn readings(made: &Made, rows: &[Vec<Cell>]) -> Vec<Reading> {
    let mut by_device: BTreeMap<Option<String>, Reading> = BTreeMap::new();
    for row in rows {
        let (Some(name), Some(value), Some(time)) = (row[0].text(), row[2].number(), row[3].time()) else {
            continue;
        };
        let device = row[1].text().map(str::to_owned);
        if name != made.part || by_device.contains_key(&device) {
            continue;
        }
        // A share uses the whole of the same moment and device.
        let same = |name: Option<&str>| {
            let mut all = rows.iter().filter(|other| other[1] == row[1] && other[3] == row[3]);
            all.find(|other| name.is_some() && other[0].text() == name)?[2].number()
        };
        let whole = same(made.rest).map(|rest| value + rest).or_else(|| same(made.whole));
        let Some(figure) = made.value(value, whole) else { continue };
        by_device.insert(device.clone(), Reading { device, value: figure, part: value, whole, time });
    }
    by_device.into_values().collect()
}

/// Answers from the newest reading.
fn now(
    context: &Context,
    made: &Made,
    mut readings: Vec<Reading>,
    bound: Option<&Bound>,
    asked: &Metrics,
) -> Outcome {
    let upward = bound.is_none_or(|bound| bound.op.is_upward());
    // The device most likely to satisfy the condition comes first.
    readings.sort_by(|a, b| if upward { b.value.total_cmp(&a.value) } else { a.value.total_cmp(&b.value) });
    let of = |reading: &Reading| {
        let device = reading.device.as_deref().map(|device| made.device(device));
        if let (Some(whole), Some(Quantity::FreeBytes)) = (reading.whole, made.quantity) {
            let name = device.map_or(String::new(), |device| format!("{device} has "));
            return format!("{name}{} of {} free", bytes(reading.value), bytes(whole));
        }
        let name = device.map_or(String::new(), |device| format!("{device} is "));
        let mut text = format!("{name}{}{}", made.said(reading.value), made.word());
        if let (Some(whole), true) = (reading.whole, made.quantity.is_some()) {
            let free = if made.part_is_free { reading.part } else { whole - reading.part };
            text += &format!(" ({} of {} free)", bytes(free), bytes(whole));
        }
        text
    };
    let verdict = bound.map(|bound| {
        let fulfils = |reading: &Reading| bound.op.holds(reading.value, bound.number);
        // `enough room` must hold for every device, `nearly full` for one.
        match asked.predicate {
            Some(Predicate::Word { op: Op::Below, .. }) => readings.iter().all(fulfils),
            _ => readings.iter().any(fulfils),
        }
    });
    let figures: Vec<String> = readings.iter().take(8).map(of).collect();
    let newest = readings.iter().map(|reading| reading.time).max().unwrap_or(context.now);
    let mut text = match made.title.as_str() {
        "File systems" => format!("{}, as of {}.", figures.join("; "), shown(newest)),
        title => format!("{title}: {}, as of {}.", figures.join("; "), shown(newest)),
    };
    if let Some(meaning) = bound.and_then(|bound| bound.meaning.as_ref()) {
        text += &format!(" ({meaning}.)");
    }
    let age = context.now - newest;
    if age > OLD {
        text += &format!(" That is {} old: nothing was recorded since.", length(age));
    }
    let columns = vec![
        column("device", "string"),
        column("value", "float64"),
        column("unit", "string"),
        column("time", "timestamp"),
    ];
    let unit = match made.unit {
        Shown::Percent => "%",
        Shown::Bytes => "bytes",
        Shown::BytesPerSecond => "bytes/s",
        Shown::Plain => "",
    };
    let rows = readings.iter().take(ROWS_MAX).map(|reading| {
        let device = reading.device.clone().map_or(Cell::Null, Cell::Text);
        // Answers round to two digits; the statement returns all.
        let value =
            if made.unit == Shown::Percent { (reading.value * 100.0).round() / 100.0 } else { reading.value };
        [device, Cell::Float(value), Cell::Text(unit.into()), Cell::Time(reading.time)]
            .iter()
            .map(Cell::json)
            .collect()
    });
    let mut statement = Statement::default();
    let part = statement.param(made.part.as_str());
    let whole = statement.param(made.whole.unwrap_or(&made.part));
    let rest = statement.param(made.rest.unwrap_or(&made.part));
    let time = statement.time(newest);
    let sql = format!(
        "SELECT time, name, device, value, unit FROM polynya.metrics WHERE (name = {part} OR name = {whole} OR name = {rest}) AND time = {time}"
    );
    let section = Section {
        columns,
        rows: rows.collect(),
        ..section("metrics", made.title.as_str(), text, &Table::default(), &sql, &statement.params)
    };
    Outcome { sections: vec![section], answered: true, verdict, ..Outcome::default() }
}

/// Answers over a period of time.
async fn over(
    context: &Context,
    asked: &Metrics,
    made: &Made,
    bound: Option<&Bound>,
    devices: &[&String],
) -> Result<Outcome> {
    let mut statement = Statement::default();
    let value = made.expression(&mut statement);
    statement.within("time", asked.scope.window.as_ref());
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
            (case("count", "1"), if asked.when { times() } else { String::new() })
        }
        None => ("CAST(0 AS BIGINT)".to_owned(), String::new()),
    };
    let sql = format!(
        "SELECT device, count(v) AS readings, avg(v) AS average, min(v) AS lowest, max(v) AS highest, {met} AS met, max(time) AS newest{times} \
         FROM (SELECT time, device, {value} AS v FROM polynya.metrics{filter} GROUP BY time, device) AS m WHERE v IS NOT NULL \
         GROUP BY device ORDER BY device LIMIT {ROWS_MAX}"
    );
    let table = context.rows(&sql, &statement.params, ROWS_MAX).await?;
    let said_when = asked.scope.window.as_ref().map_or("of all that is recorded", |window| &window.said);
    let readings: i64 = table.rows.iter().filter_map(|row| row[1].int()).sum();
    if readings == 0 {
        let text = format!("{}: nothing was recorded {said_when}.", made.title);
        let section = section("metrics", made.title.as_str(), text, &table, &sql, &statement.params);
        return Ok(Outcome { sections: vec![section], answered: true, ..Outcome::default() });
    }
    let of = |row: &Vec<Cell>| {
        let name = row[0].text().map_or(String::new(), |device| format!("{} ", made.device(device)));
        let number = |at: usize| made.said(row[at].number().unwrap_or(f64::NAN));
        let figure = match asked.scope.aggregate {
            Some(Aggregate::Average) => format!("{} on average", number(2)),
            Some(Aggregate::Lowest) => format!("{} at the lowest", number(3)),
            Some(Aggregate::Highest) => format!("{} at the highest", number(4)),
            _ => format!("{} on average, between {} and {}", number(2), number(3), number(4)),
        };
        format!("{name}{figure}{}", made.word())
    };
    let figures: Vec<String> = table.rows.iter().take(8).map(of).collect();
    let mut text =
        format!("{} {said_when}: {} ({}).", made.title, figures.join("; "), counted(readings, "reading"));
    let mut verdict = None;
    if let Some(bound) = bound {
        let met: i64 = table.rows.iter().filter_map(|row| row[5].int()).sum();
        let count = if met == 0 { "None".to_owned() } else { crate::sources::grouped(met) };
        let verb = if met == 1 { "was" } else { "were" };
        let first = table.rows.iter().filter_map(|row| row.get(7)?.time()).min();
        let last = table.rows.iter().filter_map(|row| row.get(8)?.time()).max();
        let times = match (first.filter(|_| asked.when), last) {
            (Some(first), Some(last)) if first == last => format!(", at {}", shown(first)),
            (Some(first), Some(last)) => {
                format!(", the first at {}, the last at {}", shown(first), shown(last))
            }
            _ => String::new(),
        };
        text += &format!(" {count} of them {verb} {}{times}.", bound.said);
        verdict = Some(match (asked.scope.aggregate, asked.predicate.as_ref()) {
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
    let section = section("metrics", made.title.as_str(), text, &table, &sql, &statement.params);
    Ok(Outcome { sections: vec![section], answered: true, verdict, ..Outcome::default() })
}

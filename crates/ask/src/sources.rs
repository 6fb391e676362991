//! The sources that can be asked, one per file.

pub(crate) mod catalog;
mod changes;
mod metrics;
mod notes;
mod requests;
mod tables;
mod values;

pub(crate) use tables::is_user_table;
use types::{Micros, Result, TIME_NAME, TableDef, Value, name};

use crate::answer::{Column, Section};
use crate::cell::Cell;
use crate::evaluation::{Context, ResultTable, SourceResult};
use crate::task::{SourceQuery, SourceTask};
use crate::time::{Window, rfc3339};

pub(crate) async fn run(context: &Context, task: &SourceTask) -> Result<SourceResult> {
    match &task.query {
        SourceQuery::Metrics(query) => metrics::run(context, query).await,
        SourceQuery::Requests(query) => requests::run(context, query).await,
        SourceQuery::Table(query) => tables::run(context, query).await,
        SourceQuery::Notes(query) => notes::run(context, query).await,
        SourceQuery::Changes(query) => changes::run(context, query).await,
        SourceQuery::Values(words) => values::run(context, words).await,
        SourceQuery::Catalog => Ok(catalog::run(context)),
    }
}

/// The conditions and parameters of a statement. Values are parameters, names are quoted, the rest is fixed text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statement {
    pub conditions: Vec<String>,
    pub params: Vec<Value>,
}

impl Statement {
    /// Adds a parameter and returns its placeholder, such as `$1`.
    pub fn param(&mut self, value: impl Into<Value>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }

    pub fn time(&mut self, time: Micros) -> String {
        self.param(Value::Timestamp(time))
    }

    pub fn is(&mut self, condition: String) {
        self.conditions.push(condition);
    }

    pub fn within(&mut self, column: &str, window: Option<&Window>) {
        let Some(window) = window else { return };
        if window.from > Micros::MIN {
            let from = self.time(window.from);
            self.is(format!("{column} >= {from}"));
        }
        if let Some(to) = window.to {
            let to = self.time(to);
            self.is(format!("{column} < {to}"));
        }
    }

    /// Returns ` WHERE …`, or an empty text without conditions.
    pub fn filter(&self) -> String {
        if self.conditions.is_empty() {
            String::new()
        } else {
            format!(" WHERE {}", self.conditions.join(" AND "))
        }
    }
}

/// Quotes a name for SQL, whatever characters it has.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a table's full name for SQL.
pub(crate) fn quoted_table(full_name: &str) -> String {
    full_name.splitn(2, '.').map(quoted).collect::<Vec<_>>().join(".")
}

/// Returns the column that times in questions about a table refer to: the declared time column, or `_time`.
pub(crate) fn time_column(def: &TableDef) -> String {
    let declared = def.time.and_then(|id| def.schema.column(id));
    quoted(declared.map_or(TIME_NAME, |column| &column.name))
}

/// Formats a value of a column in the unit that the column's name ends with: `rss_bytes`, `cpu_percent`. Integers and decimals
/// keep all their digits, unless they are an average.
pub(crate) fn format_column_value(column: &str, cell: &Cell, is_average: bool) -> String {
    let Some(value) = cell.number() else { return cell.phrase() };
    let name = column.to_lowercase();
    match () {
        () if name == "bytes" || name.ends_with("_bytes") => format_bytes(value),
        () if name == "percent" || name.ends_with("_percent") => format!("{} %", format_figure(value)),
        () if is_average => format_figure(value),
        () => cell.phrase(),
    }
}

/// Returns a section that shows rows, with the statement that gave them.
pub(crate) fn section(
    source: &str,
    title: impl Into<String>,
    text: String,
    table: &ResultTable,
    sql: &str,
    params: &[Value],
) -> Section {
    Section {
        title: title.into(),
        text,
        columns: table.columns.clone(),
        rows: table.rows.iter().map(|row| row.iter().map(crate::cell::Cell::json).collect()).collect(),
        sql: Some(sql.to_owned()),
        params: params.iter().map(json).collect(),
        source: source.to_owned(),
    }
}

pub(crate) fn column(name: &str, data_type: &str) -> Column {
    Column { name: name.to_owned(), data_type: data_type.to_owned() }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Int64(value) => serde_json::json!(value),
        Value::Float64(value) => serde_json::json!(value),
        Value::Timestamp(time) => serde_json::json!(rfc3339(*time)),
        Value::String(text) => serde_json::json!(text),
        Value::Bool(value) => serde_json::json!(value),
        _ => serde_json::Value::Null,
    }
}

/// Formats an integer with thousands separators: `1,234`.
pub(crate) fn format_integer(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// Formats a count with its noun: `3 rows`.
pub(crate) fn format_count(count: i64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", format_integer(count))
}

/// Formats a number with three or four digits: `12.3`, `0.00123`, `1,234`.
pub(crate) fn format_figure(value: f64) -> String {
    if !value.is_finite() {
        return "no number".into();
    }
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format_integer(value as i64);
    }
    if value.abs() >= 1_000.0 {
        return format_integer(value.round() as i64);
    }
    let digits = match value.abs() {
        large if large >= 100.0 => 1,
        large if large >= 1.0 => 2,
        small => (1.0 - small.log10().floor()).clamp(2.0, 12.0) as usize + 1,
    };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Capitalizes a sentence that begins with `the`; one that begins with a name stays as it is.
pub(crate) fn sentence(text: &str) -> String {
    if text.starts_with("the ") { capitalized(text) } else { text.to_owned() }
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// Formats a number of bytes: `37.1 GB`.
pub(crate) fn format_bytes(value: f64) -> String {
    let mut value = value;
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        if value.abs() < 1_000.0 {
            return if unit == "bytes" { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") };
        }
        value /= 1_000.0;
    }
    format!("{value:.1} PB")
}

/// Returns a table's full name as answers write it.
pub(crate) fn short_name(full_name: &str) -> &str {
    name::short_table_name(full_name)
}

/// Returns the sentence that lists the words that were not understood.
pub(crate) fn not_understood_sentence(words: &[String]) -> Option<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("“{word}”")).collect();
    (!quoted.is_empty()).then(|| format!("Not understood here: {}.", quoted.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said_shortly() {
        assert_eq!(
            (format_figure(12.3456), format_figure(0.001234), format_figure(123_456.7)),
            ("12.35".into(), "0.00123".into(), "123,457".into())
        );
        assert_eq!(
            (format_figure(5.0), format_figure(-0.5), format_figure(f64::NAN)),
            ("5".into(), "-0.5".into(), "no number".into())
        );
        assert_eq!(
            (format_bytes(999.0), format_bytes(37_120_000_000.0)),
            ("999 bytes".into(), "37.1 GB".into())
        );
        assert_eq!(
            (format_integer(-1_234_567), format_count(1, "row")),
            ("-1,234,567".into(), "1 row".into())
        );
    }

    #[test]
    fn a_name_cannot_end_its_quotes() {
        assert_eq!(quoted(r#"a"; DROP TABLE t; --"#), r#""a""; DROP TABLE t; --""#);
        assert_eq!(quoted_table("main.events"), "\"main\".\"events\"");
    }
}

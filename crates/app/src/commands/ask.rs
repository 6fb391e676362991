//! `polynya ask`: asks a question in plain words and shows the answer.

use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use types::Result;

use crate::cli::ServerArgs;
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output::{self, visible};
use crate::units::grouped;

/// Rows of a section that are shown on a terminal; the JSON has all.
const ROWS_SHOWN: usize = 10;

#[derive(Debug, Args)]
#[command(
    long_about = "Ask in plain words: about this machine (disk, memory, CPU, load, network), requests to the server, your \
                  tables and notes, and what changed. No language model is involved; words that are not understood are \
                  named. `polynya ask what can I ask` lists the subjects.",
    after_help = "Examples:\n  polynya ask 'is the disk nearly full?'\n  polynya ask what changed in the last hour\n  \
                  polynya ask 'if any request was slower than 20 ms, show it'\n  polynya ask how many events today\n  \
                  polynya ask --json 'average price of orders' | jq -r .answer"
)]
pub struct Options {
    /// The question
    #[arg(required = true, value_name = "QUESTION")]
    words: Vec<String>,
    /// Ask only this source: metrics, requests, changes, notes, tables, or a table; may be given several times
    #[arg(short, long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
    /// Time limit in milliseconds; sources that have not answered by then are left out
    #[arg(long, value_name = "MILLISECONDS")]
    deadline_ms: Option<u64>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let mut body = json!({ "q": options.words.join(" "), "sources": options.sources });
    if let Some(deadline) = options.deadline_ms {
        body["deadline_ms"] = json!(deadline);
    }
    let ask = async |connection: &mut DataConnection| {
        connection.client().json(Method::POST, "/v1/ask", Some(&body)).await
    };
    let answer =
        super::block_on(async { DataConnection::open(config, &options.server).await?.with(ask).await })?;
    output::print(&if options.json { format!("{answer}\n") } else { page(&answer) });
    Ok(ExitCode::SUCCESS)
}

/// Formats an answer for a terminal: the text, the rows behind it, and the sources that were asked.
fn page(answer: &Value) -> String {
    let text = |value: &Value| visible(value.as_str().unwrap_or_default()).into_owned();
    let mut out = format!("{}\n", text(&answer["answer"]));
    for section in answer["sections"].as_array().into_iter().flatten() {
        let rows = section["rows"].as_array().map_or(0, Vec::len);
        if rows == 0 {
            continue;
        }
        let shown = short(section);
        out += &format!("\n{}\n{}", text(&section["title"]), output::sql_table(&shown).render());
        if rows > ROWS_SHOWN {
            out += &format!("and {} more\n", grouped((rows - ROWS_SHOWN) as u64));
        }
    }
    let source = |source: &Value| {
        let mut said = format!("{} {}", text(&source["name"]), text(&source["state"]));
        match source["state"].as_str() {
            Some("answered") => {
                said += &format!(" in {:.1} ms", source["took_ms"].as_f64().unwrap_or_default());
                if let Some(as_of) = source["as_of"].as_str() {
                    said += &format!(", as of {}", visible(as_of));
                }
            }
            _ => {
                if let Some(detail) = source["detail"].as_str() {
                    said += &format!(" ({})", visible(detail));
                }
            }
        }
        said
    };
    let sources: Vec<String> = answer["sources"].as_array().into_iter().flatten().map(source).collect();
    let took = answer["took_ms"].as_f64().unwrap_or_default();
    let kept = if answer["cached"] == Value::Bool(true) { ", kept from an equal question" } else { "" };
    let asked = if sources.is_empty() {
        "No source was asked".into()
    } else {
        format!("Asked: {}", sources.join("; "))
    };
    format!("{out}\n{asked}. {took:.1} ms at lsn {}{kept}.\n", super::tables::number(&answer["lsn"]))
}

/// Shortens a section for a terminal: at most [`ROWS_SHOWN`] rows, rounded numbers, no empty columns.
fn short(section: &Value) -> Value {
    let of = |name: &str| section[name].as_array().cloned().unwrap_or_default();
    let (columns, mut rows) = (of("columns"), of("rows"));
    rows.truncate(ROWS_SHOWN);
    let is_filled = |at: usize| rows.iter().any(|row| !row[at].is_null());
    let filled: Vec<usize> = (0..columns.len()).filter(|at| is_filled(*at)).collect();
    let cell = |value: &Value| match value.as_f64().filter(|_| value.is_f64()) {
        Some(number) => json!(rounded(number)),
        None => value.clone(),
    };
    let rows: Vec<Value> = rows.iter().map(|row| filled.iter().map(|at| cell(&row[*at])).collect()).collect();
    let columns: Vec<&Value> = filled.iter().map(|at| &columns[*at]).collect();
    json!({ "columns": columns, "rows": rows })
}

/// Rounds a number to four significant digits, but keeps all digits before the decimal point.
fn rounded(number: f64) -> String {
    let digits = match number.abs() {
        large if large >= 1_000.0 => 0,
        large if large >= 1.0 => 3 - large.log10().floor() as usize,
        small if small > 0.0 => (3.0 - small.log10().floor()).min(12.0) as usize,
        _ => 0,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_four_digits() {
        let cases = [(0.0, "0"), (42.0, "42"), (99.832_198, "99.83"), (0.001_234_56, "0.001235")];
        for (number, text) in cases.into_iter().chain([(123_456.7, "123457"), (-9.999_96, "-10")]) {
            assert_eq!(rounded(number), text);
        }
    }

    #[test]
    fn an_answer_is_text_rows_and_who_was_asked() {
        let answer = json!({
            "answer": "Yes: data is 93.0 % full.\u{1b}[31m",
            "sections": [
                { "title": "File systems", "text": "…", "source": "metrics",
                  "columns": [{ "name": "device", "type": "string" }, { "name": "empty", "type": "string" }, { "name": "value", "type": "float64" }],
                  "rows": [["data", null, 99.83219822614215], ["root", null, 21135659008.0]] },
                { "title": "Nothing", "text": "", "source": "notes" },
            ],
            "sources": [
                { "name": "metrics", "kind": "metrics", "state": "answered", "took_ms": 1.25, "as_of": "2026-11-21T14:29:59.000000Z", "detail": null },
                { "name": "notes", "kind": "notes", "state": "nothing", "took_ms": 0.1, "as_of": null, "detail": "no text has it" },
            ],
            "took_ms": 2.04, "lsn": 7, "cached": false,
        });
        let page = page(&answer);
        assert!(page.starts_with("Yes: data is 93.0 % full.\\u001b[31m\n\nFile systems\n"), "{page}");
        assert!(page.contains(" data   │       99.83\n root   │ 21135659008\n"), "{page}");
        assert!(!page.contains("empty") && !page.contains("NULL"), "{page}");
        assert!(!page.contains("Nothing\n"));
        let last = "Asked: metrics answered in 1.2 ms, as of 2026-11-21T14:29:59.000000Z; notes nothing (no text has it). 2.0 ms at lsn 7.\n";
        assert!(page.ends_with(last), "{page}");
    }
}

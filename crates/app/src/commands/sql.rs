//! `polynya sql`.

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use types::{Error, Kind, Result};

use crate::cli::Reach;
use crate::client::Client;
use crate::config::Config;
use crate::door::Door;
use crate::output;
use crate::units::counted;

use super::shell;

#[derive(Debug, Args)]
#[command(
    long_about = "Ask in SQL (PostgreSQL's dialect). With a statement: its answer, as a table on a terminal, else as one \
                  JSON object a row. Without one: an interactive shell with history.",
    after_help = "Examples:\n  polynya sql \"SELECT name, count(*) FROM polynya.metrics GROUP BY name\"\n  \
                  polynya sql --csv \"SELECT * FROM access\" > access.csv\n  \
                  polynya sql \"SELECT * FROM access WHERE status = \\$1\" -p 404\n  \
                  polynya sql -f report.sql\n  polynya sql                      the shell; \\help explains it"
)]
pub struct Options {
    /// The statement
    statement: Option<String>,
    /// Read statements from a file, each ended by `;` (`-` is standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "statement")]
    file: Option<PathBuf>,
    /// A value for $1, $2, …: a JSON value, else text
    #[arg(short, long = "param", value_name = "VALUE", requires = "statement")]
    params: Vec<String>,
    /// Print one JSON object a row
    #[arg(long)]
    json: bool,
    /// Print CSV with a header
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    reach: Reach,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Table,
    Json,
    Csv,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let style = match (options.json, options.csv) {
        (true, _) => Style::Json,
        (_, true) => Style::Csv,
        _ if output::is_terminal() => Style::Table,
        _ => Style::Json,
    };
    let statements = match (&options.statement, &options.file) {
        (Some(statement), _) => vec![statement.clone()],
        (None, Some(path)) => shell::split(&read_file(path)?),
        (None, None) if !io::stdin().is_terminal() => shell::split(&read_file(&PathBuf::from("-"))?),
        (None, None) => return shell::run(config, &options.reach),
    };
    let params: Vec<Value> = options.params.iter().map(|text| param(text)).collect();
    super::block_on(async {
        let mut door = Door::open(config, &options.reach).await?;
        for statement in &statements {
            let printing = print(door.client(), statement, &params, style);
            tokio::select! {
                outcome = printing => outcome.map(|_| ())?,
                _ = tokio::signal::ctrl_c() => return Err(Error::new(Kind::Timeout, "interrupted; the statement was cancelled")),
            }
        }
        door.close().await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A number, `true` or `null` as such, everything else as text.
fn param(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn read_file(path: &PathBuf) -> Result<String> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().read_to_string(&mut text).map(|_| ()),
        false => std::fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
    Ok(text)
}

/// Runs one statement and prints its answer; returns how many rows it had. Dropping the future cancels the statement.
pub async fn print(client: &mut Client, statement: &str, params: &[Value], style: Style) -> Result<u64> {
    let body = json!({ "sql": statement, "params": params });
    if style == Style::Table {
        let answer = client.json(Method::POST, "/v1/sql", Some(&body)).await?;
        let rows = super::tables::number(&answer["count"]);
        let has_columns = answer["columns"].as_array().is_some_and(|columns| !columns.is_empty());
        let mut text = match has_columns {
            true => format!("{}{}", output::sql_table(&answer).render(), counted(rows, "row")),
            false => format!("done, {}", counted(rows, "row")),
        };
        if answer["truncated"] == Value::Bool(true) {
            text += ", and there are more: add a LIMIT, or use --json or --csv, which stream";
        }
        output::print(&(text + "\n"));
        return Ok(rows);
    }
    let accept = if style == Style::Csv { "text/csv" } else { "application/x-ndjson" };
    let headers = [("content-type", "application/json"), ("accept", accept)];
    let response = client.send(Method::POST, "/v1/sql", &headers, Bytes::from(body.to_string())).await?;
    let mut stream = response.into_body();
    let mut out = io::stdout().lock();
    let mut lines = 0;
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(Kind::Closed, "the answer ended in the middle, so what was printed is not all of it")
                .hint("the server's log says why; a LIMIT or a longer sql.deadline may help")
                .caused_by(error)
        })?;
        if let Some(data) = frame.data_ref() {
            lines += data.iter().filter(|byte| **byte == b'\n').count() as u64;
            if out.write_all(data).is_err() {
                // The reader went away (`| head`): that is the end, not an error.
                std::process::exit(0);
            }
        }
    }
    if out.flush().is_err() {
        std::process::exit(0);
    }
    Ok(lines)
}
